//! The seed of the volume's checksums, where what they seal agrees on another than the superblock says.
//!
//! One wrong bit of the UUID makes every checksum of a volume wrong. Inodes and directories that were sealed with one seed
//! are sound, and the superblock is what is damaged. Owns: which seed that is, and what the superblock becomes. Excludes
//! the checksum of the superblock itself ([`super::superblock`]).

use std::collections::BTreeMap;

use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::group::RawGroupDescriptor;
use ondisk::inode::{FileType, Inode};
use ondisk::seal::{Sealer, crc32c};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};
use ondisk::unseal;
use platfs_device::Device;
use platfs_device::map;

/// Inodes that are asked, from the first on: the root, and usually the journal and lost+found.
const ASKED: u32 = 64;
/// Blocks that are asked of a directory.
const BLOCKS_ASKED: usize = 4;

/// A superblock by which checksums are right.
pub(super) struct SeedRepair {
    pub(super) raw: RawSuperblock,
    pub(super) found: String,
    pub(super) repair: &'static str,
}

/// The superblock with the seed that the volume's first structures agree on; `None` where that is what it has, or where
/// they don't agree. The root must be among them: tables may hold inodes of an older volume.
pub(super) fn agreed(device: &dyn Device, raw: &RawSuperblock) -> Option<SeedRepair> {
    let features = raw.features();
    if !features.metadata_csum() {
        return None;
    }
    let inodes = first_inodes(device, &Geometry::from_superblock(raw).ok()?)?;
    let sealer = Sealer::from_superblock(raw);
    let root = inodes.get(usize::try_from(InodeNumber::ROOT.index()).ok()?)?;
    if sealer.inode_is_right(root) {
        return None;
    }
    let geometry = Geometry::from_superblock(raw).ok()?;
    let told: BTreeMap<u32, usize> = inodes
        .iter()
        .filter(|inode| inode.links() > 0)
        .flat_map(|inode| seeds(device, &geometry, inode))
        .fold(BTreeMap::new(), |mut told, seed| {
            *told.entry(seed).or_default() += 1;
            told
        });
    let own = if features.incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.get()
    } else {
        crc32c(!0, &raw.s_uuid)
    };
    let of = |seed: u32| told.get(&seed).copied().unwrap_or(0);
    let best = seeds(device, &geometry, root).into_iter().max_by_key(|seed| of(*seed))?;
    (best != own && of(best) > 1 && of(best) > of(own)).then(|| with_seed(raw, best, of(best)))
}

/// The superblock with another seed: by the UUID that differs in a bit, if one gives it, or stored.
fn with_seed(raw: &RawSuperblock, seed: u32, of: usize) -> SeedRepair {
    let mut right = *raw;
    let mut features = raw.features();
    let near = (0..128).map(|bit| {
        let mut uuid = raw.s_uuid;
        uuid.iter_mut().skip(bit / 8).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
        uuid
    });
    let (of_whom, repair) = if features.incompat.contains(Incompat::CSUM_SEED) {
        right.s_checksum_seed.set(seed);
        ("that is stored in it", "that seed is stored")
    } else if let Some(uuid) = near.into_iter().find(|uuid| crc32c(!0, uuid) == seed) {
        right.s_uuid = uuid;
        ("of its UUID", "the bit of the UUID is turned that makes them right")
    } else {
        features.incompat |= Incompat::CSUM_SEED;
        right.set_features(features);
        right.s_checksum_seed.set(seed);
        ("of its UUID", "that seed is stored, with the feature metadata_csum_seed; the UUID stays")
    };
    let found =
        format!("{of} checksums, the root's among them, agree on another seed than the one {of_whom}");
    SeedRepair { raw: right, found, repair }
}

/// The first inodes of the first group's table.
fn first_inodes(device: &dyn Device, geometry: &Geometry) -> Option<Vec<Inode>> {
    let mut block = vec![0; geometry.block_size.bytes_usize()];
    device.read_at(geometry.byte_offset(geometry.descriptor_block(0)), &mut block).ok()?;
    let table = RawGroupDescriptor::parse(block.get(..usize::from(geometry.descriptor_size))?).inode_table();
    if table.0 == 0 || !geometry.contains(table, u64::from(geometry.inode_table_blocks())) {
        return None;
    }
    let size = usize::from(geometry.inode_size);
    let mut records = vec![0; ASKED.min(geometry.inodes_per_group) as usize * size];
    device.read_at(geometry.byte_offset(table), &mut records).ok()?;
    let numbers = (0..).map_while(|index| geometry.inode_at(Group(0), index));
    Some(
        numbers
            .zip(records.chunks_exact(size))
            .map(|(number, record)| Inode::unjudged(number, record))
            .collect(),
    )
}

/// The seeds by which an inode and the first blocks of a directory are sealed.
fn seeds(device: &dyn Device, geometry: &Geometry, inode: &Inode) -> Vec<u32> {
    let mut told: Vec<u32> = unseal::by_inode(inode).into_iter().collect();
    if inode.file_type() != Some(FileType::Directory) || !inode.has_map() {
        return told;
    }
    let read = |block: Block| {
        let mut bytes = vec![0; geometry.block_size.bytes_usize()];
        device.read_at(geometry.byte_offset(block), &mut bytes).map(|()| bytes)
    };
    let Ok(map) = map::walk(geometry, inode, BLOCKS_ASKED as u64, read) else { return told };
    let blocks = map.runs.iter().flat_map(|run| (0..run.count).map(|at| Block(run.start.0 + at)));
    let leaves = blocks.take(BLOCKS_ASKED).filter_map(|block| read(block).ok());
    told.extend(leaves.filter_map(|leaf| unseal::by_directory_leaf(inode, &leaf)));
    told
}
