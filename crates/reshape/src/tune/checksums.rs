//! Every checksum of a volume, after features or UUID changed: superblocks, descriptors, bitmaps, inodes and what hangs
//! below them; and the flags of groups, which stand and fall with checksums of descriptors.

use ondisk::dirent::Layout;
use ondisk::extent::Node;
use ondisk::features::{FeatureBit, Features, Incompat, RoCompat};
use ondisk::group::GroupFlags;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::orphan_file;
use ondisk::seal::{Sealer, crc32c};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};
use platfs::mkfs::FeatureEdit;
use platfs_device::Device;

use super::TuneWork;
use super::directories::{self, LayoutChange};
use crate::Result;
use crate::draft::Draft;
use crate::error::{Error, refused};

/// `s_checksum_type`: CRC-32C.
const CHECKSUM_CRC32C: u8 = 1;
/// Bytes of tables that are read at once.
const PIECE: usize = 256 << 10;

/// Brings about the features of checksums and the UUID that are asked for, and every checksum that follows.
pub(super) fn follow(work: &mut TuneWork<'_>, before: &RawSuperblock) -> Result<()> {
    let mut target = *work.draft.superblock();
    choose(work, &mut target)?;
    let (old, new) = (*work.draft.sealer(), Sealer::from_superblock(&target));
    let (was, will) = (work.draft.features(), target.features());
    let values = will.incompat.contains(Incompat::EA_INODE) && before.s_uuid != target.s_uuid;
    if old == new || !was.descriptor_csum() && !will.descriptor_csum() && !values {
        // Nothing else depends on what changed.
        let (uuid, seed) = (target.s_uuid, target.s_checksum_seed);
        return work.draft.reshape_fields(|raw| {
            raw.set_features(will);
            raw.s_uuid = uuid;
            raw.s_checksum_seed = seed;
        });
    }
    work.deepen()?;
    if new.attribute_value_hash(&[]) != old.attribute_value_hash(&[]) {
        refuse_values(&work.draft)?;
    }
    if was.descriptor_csum() && !will.descriptor_csum() {
        begin_groups(&mut work.draft)?;
    }
    let layouts = [was, will].map(|features| Layout::new(work.draft.geometry().block_size, &features));
    work.draft.reshape(|raw| *raw = target)?;
    groups(&mut work.draft, was, will)?;
    let seed_of = |sealer: &Sealer| sealer.inode_seed(InodeNumber::ROOT, 0);
    if seed_of(&old) != seed_of(&new) {
        inodes(&work.draft, layouts)?;
        work.expected.extend(directories::REWRITTEN);
    }
    Ok(())
}

/// The features, the UUID and the seed as they will be.
fn choose(work: &mut TuneWork<'_>, target: &mut RawSuperblock) -> Result<()> {
    let asked = |bit: FeatureBit| {
        work.request.features.iter().rev().find_map(|edit| match edit {
            FeatureEdit::Set(one) if *one == bit => Some(true),
            FeatureEdit::Clear(one) if *one == bit => Some(false),
            _ => None,
        })
    };
    let sums = asked(FeatureBit::RoCompat(RoCompat::METADATA_CSUM));
    let groups = asked(FeatureBit::RoCompat(RoCompat::GDT_CSUM));
    let seed = asked(FeatureBit::Incompat(Incompat::CSUM_SEED));
    let was = target.features();
    let mut will = was;
    let covers = sums.unwrap_or(was.metadata_csum());
    will.ro_compat.set(RoCompat::METADATA_CSUM, covers);
    // Without checksums of all metadata, groups keep theirs unless something else is said.
    let had = was.ro_compat.contains(RoCompat::GDT_CSUM) || was.metadata_csum();
    will.ro_compat.set(RoCompat::GDT_CSUM, !covers && groups.unwrap_or(had));
    let wants_seed = seed == Some(true) || work.request.keep_checksums;
    if wants_seed && !covers {
        return refused("metadata_csum_seed needs checksums of all metadata (-O metadata_csum)");
    }
    let keeps = covers && (wants_seed || was.incompat.contains(Incompat::CSUM_SEED) && seed != Some(false));
    will.incompat.set(Incompat::CSUM_SEED, keeps);
    if !keeps {
        target.s_checksum_seed.set(0);
    } else if !was.incompat.contains(Incompat::CSUM_SEED) {
        // That of the UUID as it was: what is there stays right.
        target.s_checksum_seed.set(crc32c(!0, &target.s_uuid));
    }
    if let Some(uuid) = work.request.uuid.filter(|uuid| *uuid != target.s_uuid) {
        if will.compat.contains(ondisk::features::Compat::STABLE_INODES) {
            return refused("the UUID can't change: stable_inodes says that encrypted files depend on it");
        }
        target.s_uuid = uuid;
    }
    target.s_checksum_type = if covers { CHECKSUM_CRC32C } else { 0 };
    if !covers {
        target.s_checksum.set(0);
    }
    target.set_features(will);
    Ok(())
}

/// Values of attributes in inodes of their own are named by hashes with the volume's seed.
fn refuse_values(draft: &Draft) -> Result<()> {
    if !draft.features().incompat.contains(Incompat::EA_INODE) {
        return Ok(());
    }
    let mut found = None;
    each_inode(draft, &mut |inode| {
        if inode.flags().contains(InodeFlags::EA_INODE) {
            found = Some(inode.number());
        }
        Ok(false)
    })?;
    match found {
        None => Ok(()),
        Some(number) => refused(format!(
            "attributes refer to their values (inode {number}) by hashes that depend on the UUID; with \
             metadata_csum, `--fast` keeps them"
        )),
    }
}

/// Begins the bitmaps of all groups, and clears what was never used of their tables: without checksums of descriptors
/// there are no flags that say so.
fn begin_groups(draft: &mut Draft) -> Result<()> {
    for group in (0..draft.geometry().groups).map(Group) {
        let raw = draft.descriptor(group);
        let flags = raw.flags();
        if flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bytes = draft.block_bitmap(group)?;
            draft.put_block_bitmap(group, &bytes)?;
        }
        let per_group = draft.geometry().inodes_per_group;
        let uninit = flags.contains(GroupFlags::INODE_UNINIT);
        if uninit {
            let bytes = draft.inode_bitmap(group)?;
            draft.put_inode_bitmap(group, &bytes)?;
        }
        let begun = if uninit { 0 } else { per_group.saturating_sub(raw.unused_inodes()) };
        clear_table(draft, group, begun)?;
    }
    Ok(())
}

/// Clears the records of a table from an index on, where they are not zeros already.
fn clear_table(draft: &Draft, group: Group, from: u32) -> Result<()> {
    let geometry = draft.geometry();
    let size = u64::from(geometry.inode_size);
    let start = geometry.byte_offset(draft.descriptor(group).inode_table());
    let end = start + u64::from(geometry.inodes_per_group) * size;
    let mut at = start + u64::from(from) * size;
    let mut bytes = vec![0; PIECE];
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let part = bytes.get_mut(..len).unwrap_or_default();
        draft.device().read_at(at, part).map_err(Error::io("reading an inode table"))?;
        if part.iter().any(|byte| *byte != 0) {
            part.fill(0);
            draft.device().write_at(at, part).map_err(Error::io("staging an inode table"))?;
        }
        at += len as u64;
    }
    Ok(())
}

/// Flags of groups, and the checksums of bitmaps in their descriptors.
pub(super) fn groups(draft: &mut Draft, was: Features, will: Features) -> Result<()> {
    let geometry = *draft.geometry();
    for group in (0..geometry.groups).map(Group) {
        let flags = draft.descriptor(group).flags();
        let mut sums = [0; 2];
        if will.metadata_csum() {
            let raw = draft.descriptor(group);
            let sum = |place: Block, bits: u32| -> Result<u32> {
                Ok(draft.sealer().bitmap_checksum(&draft.block(place)?, bits).unwrap_or(0))
            };
            if !flags.contains(GroupFlags::BLOCK_UNINIT) || !was.descriptor_csum() {
                sums[0] = sum(raw.block_bitmap(), geometry.clusters_per_group())?;
            }
            if !flags.contains(GroupFlags::INODE_UNINIT) || !was.descriptor_csum() {
                sums[1] = sum(raw.inode_bitmap(), geometry.inodes_per_group)?;
            }
        }
        draft.edit_descriptor(group, |raw| {
            raw.set_block_bitmap_checksum(sums[0]);
            raw.set_inode_bitmap_checksum(sums[1]);
            match (was.descriptor_csum(), will.descriptor_csum()) {
                (false, true) => {
                    raw.set_flags(GroupFlags::INODE_ZEROED);
                    raw.set_unused_inodes(0);
                }
                (true, false) => {
                    raw.set_flags(GroupFlags::empty());
                    raw.set_unused_inodes(0);
                    raw.bg_checksum.set(0);
                }
                _ => {}
            }
        });
    }
    Ok(())
}

/// Every record of the tables that was ever used, in order; those for which `edit` says so are sealed and staged.
pub(super) fn each_inode(draft: &Draft, edit: &mut dyn FnMut(&mut Inode) -> Result<bool>) -> Result<()> {
    let size = usize::from(draft.geometry().inode_size);
    let per_piece = u32::try_from(PIECE / size).unwrap_or(1).max(1);
    let begun: Vec<(Group, u32)> = draft.tables_begun().collect();
    for (group, begun) in begun {
        for first in (0..begun).step_by(per_piece as usize) {
            let count = per_piece.min(begun - first);
            let mut bytes = vec![0; count as usize * size];
            let Some(number) = draft.geometry().inode_at(group, first) else { break };
            draft
                .device()
                .read_at(draft.inode_offset(number)?, &mut bytes)
                .map_err(Error::io("reading an inode table"))?;
            for (at, record) in (first..).zip(bytes.chunks_exact(size)) {
                if record.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let Some(number) = draft.geometry().inode_at(group, at) else { break };
                let Ok(mut inode) = Inode::parse(number, record) else { continue };
                if edit(&mut inode)? {
                    draft.put_inode(&mut inode)?;
                }
            }
        }
    }
    Ok(())
}

/// Seals all inodes, and what hangs below those in use.
fn inodes(draft: &Draft, [old, new]: [Layout; 2]) -> Result<()> {
    let raw = *draft.superblock();
    if raw.features().incompat.contains(Incompat::MMP) {
        let block = Block(raw.s_mmp_block.get());
        let mut bytes = draft.block(block)?;
        draft.sealer().seal_mmp(&mut bytes);
        draft.put_block(block, &bytes)?;
    }
    let orphans = InodeNumber::new(raw.s_orphan_file_inum.get());
    let change = LayoutChange { draft, old, new };
    each_inode(draft, &mut |inode| {
        if inode.links() > 0 {
            below(&change, inode, orphans == Some(inode.number()))?;
        }
        Ok(true)
    })
}

/// Seals the blocks below an inode in use: nodes of its map, its block of attributes, blocks of a directory.
fn below(change: &LayoutChange<'_>, inode: &Inode, is_orphan_file: bool) -> Result<()> {
    let draft = change.draft;
    let attributes = inode.attribute_block();
    if attributes.0 != 0 {
        let mut bytes = draft.block(attributes)?;
        draft.sealer().seal_attribute_block(attributes, &mut bytes);
        draft.put_block(attributes, &bytes)?;
    }
    if !inode.has_map() || inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    let seed = draft.sealer().inode_seed(inode.number(), inode.generation());
    let is_directory = inode.file_type() == Some(FileType::Directory);
    // Files whose extents fit the inode have nothing below.
    let flat = Node::parse(&inode.raw().i_block).is_ok_and(|root| root.depth == 0);
    let has_nodes = inode.flags().contains(InodeFlags::EXTENTS) && !flat;
    if has_nodes {
        for block in draft.map_of(inode)?.nodes {
            let mut bytes = draft.block(block)?;
            seed.seal_extent_node(&mut bytes);
            draft.put_block(block, &bytes)?;
        }
    }
    if is_directory {
        change.directory(inode)?;
    }
    if is_orphan_file {
        let mut bytes = vec![0; draft.geometry().block_size.bytes_usize()];
        for run in draft.map_of(inode)?.runs {
            for block in (run.start.0..run.start.0 + run.count).map(Block) {
                orphan_file::write(seed, block, &[], &mut bytes);
                draft.put_block(block, &bytes)?;
            }
        }
    }
    Ok(())
}
