//! The volume as it is: its superblock, all descriptors, and bitmaps on demand.
//!
//! Owns: which volumes can change their size at all. Excludes files.

use std::sync::Arc;

use crate::draft::refuse_unclosed;
use crate::error::{corrupt, refused};
use crate::{Error, Result};
use ondisk::corrupt::Place;
use ondisk::features::{Compat, Features, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::inode::Inode;
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber, low_u32};
use platfs::mkfs::layout::{Runs, Tables};
use platfs_device::Device;

use super::bits::Bits;

/// Widest descriptor whose bytes have a meaning.
const WIDEST: u16 = 64;

/// Most bytes of descriptors: those of 1 PiB in blocks of 4 KiB.
const TABLE_MAX: u64 = 512 << 20;

/// A volume that can change its size, as it was found.
pub(super) struct OldVolume {
    pub(super) device: Arc<dyn Device>,
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
    pub(super) sealer: Sealer,
    pub(super) descriptors: Vec<RawGroupDescriptor>,
}

/// Refuses a volume that is not in order, or that this code does not know well enough.
fn admit(raw: &RawSuperblock, geometry: &Geometry) -> Result<()> {
    let features = raw.features();
    platfs_device::refuse_unreadable(features)?;
    refuse_unclosed(raw)?;
    if features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return refused(
            "files that were deleted while open wait for a mount: have it checked first (`plat check -p`)",
        );
    }
    let unknown = features.unwritable();
    if unknown != Features::default() {
        let names = unknown.names().join(", ");
        return refused(format!("it uses features with which its size can't change: {names}"));
    }
    if features.compat.intersects(Compat::EXCLUDE_BITMAP | Compat::EXCLUDE_INODE | Compat::LAZY_BG) {
        return refused("snapshots and lazy groups of old test versions are not known well enough");
    }
    if geometry.descriptor_size > WIDEST {
        return refused(format!("its group descriptors have {} bytes", geometry.descriptor_size));
    }
    let bytes = u64::from(geometry.descriptor_blocks()) << geometry.block_size.log2();
    if bytes > TABLE_MAX {
        return refused(format!("its group descriptors take {bytes} bytes, at most {TABLE_MAX}"));
    }
    if geometry.cluster_log2 > 0 && geometry.first_data_block != 0 {
        return refused("its clusters begin at block 1");
    }
    Ok(())
}

impl OldVolume {
    /// Reads superblock and descriptors.
    pub(super) fn read(device: Arc<dyn Device>) -> Result<Self> {
        let raw = platfs_device::read_superblock(&*device)?;
        let geometry = Geometry::from_superblock(&raw)?;
        admit(&raw, &geometry)?;
        let sealer = Sealer::from_superblock(&raw);
        if !sealer.superblock_is_right(&raw) {
            return Err(corrupt(Place::Superblock, "checksum is wrong"));
        }
        let have = device.size() >> geometry.block_size.log2();
        if have < geometry.blocks {
            return refused(format!(
                "the volume has {} blocks, but the device has room for {have}: its end is cut off; copy it again, or make it \
                 as long and have it checked (`plat check`)",
                geometry.blocks
            ));
        }
        let mut before = OldVolume { device, raw, geometry, sealer, descriptors: Vec::new() };
        before.descriptors = before.read_descriptors()?;
        Ok(before)
    }

    fn read_descriptors(&self) -> Result<Vec<RawGroupDescriptor>> {
        let mut found = Vec::new();
        let size = usize::from(self.geometry.descriptor_size);
        for index in 0..self.geometry.descriptor_blocks() {
            let block = self.geometry.descriptor_block(index);
            let bytes = self.block(block, "group descriptors")?;
            for record in bytes.chunks_exact(size) {
                let group = Group(low_u32(found.len() as u64));
                if group.0 == self.geometry.groups {
                    break;
                }
                found.push(self.judged(group, RawGroupDescriptor::parse(record))?);
            }
        }
        Ok(found)
    }

    fn judged(&self, group: Group, raw: RawGroupDescriptor) -> Result<RawGroupDescriptor> {
        let corrupt = |what: &str| Err(corrupt(Place::Descriptor(group), what));
        if !self.sealer.descriptor_is_right(group, &raw, &[]) {
            return corrupt("checksum is wrong; `plat check` says more");
        }
        let table = u64::from(self.geometry.inode_table_blocks());
        let places = [(raw.block_bitmap(), 1), (raw.inode_bitmap(), 1), (raw.inode_table(), table)];
        if places.iter().any(|(start, count)| !self.geometry.contains(*start, *count)) {
            return corrupt("its tables lie outside the volume; `plat check` says more");
        }
        Ok(raw)
    }

    /// One block.
    pub(super) fn block(&self, block: Block, what: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size.bytes_usize()];
        self.device
            .read_at(self.geometry.byte_offset(block), &mut bytes)
            .map_err(Error::io(format!("reading {what} (block {block})")))?;
        Ok(bytes)
    }

    /// True if flags of groups count.
    pub(super) fn has_flags(&self) -> bool {
        self.raw.features().descriptor_csum()
    }

    /// A flag of a group, where flags count.
    pub(super) fn has_flag(&self, group: Group, flag: GroupFlags) -> bool {
        self.has_flags() && self.descriptor(group).flags().contains(flag)
    }

    /// A group's descriptor.
    pub(super) fn descriptor(&self, group: Group) -> RawGroupDescriptor {
        self.descriptors.get(group.0 as usize).copied().unwrap_or_else(RawGroupDescriptor::zeroed)
    }

    /// Where a group's tables lie.
    pub(super) fn tables(&self, group: Group) -> Tables {
        let raw = self.descriptor(group);
        Tables {
            block_bitmap: raw.block_bitmap().0,
            inode_bitmap: raw.inode_bitmap().0,
            inode_table: raw.inode_table().0,
        }
    }

    /// Returns the used clusters of a group.
    pub(super) fn bitmap(&self, group: Group) -> Result<Bits> {
        let geometry = &self.geometry;
        if self.has_flag(group, GroupFlags::BLOCK_UNINIT) {
            return Ok(own_bits(geometry, group, &self.tables(group)));
        }
        let raw = self.descriptor(group);
        let bytes = self.block(raw.block_bitmap(), "a block bitmap")?;
        let right = self.sealer.bitmap_checksum(&bytes, geometry.clusters_per_group());
        if right.is_some_and(|right| right != raw.block_bitmap_checksum()) {
            return Err(corrupt(Place::BlockBitmap(group), "checksum is wrong; `plat check` says more"));
        }
        Ok(Bits::from_bytes(bytes))
    }

    /// Returns the used inodes of a group.
    pub(super) fn inode_bitmap(&self, group: Group) -> Result<Bits> {
        let geometry = &self.geometry;
        if self.has_flag(group, GroupFlags::INODE_UNINIT) {
            return Ok(Bits::new(geometry.block_size.bytes_usize(), geometry.inodes_per_group));
        }
        let raw = self.descriptor(group);
        let bytes = self.block(raw.inode_bitmap(), "an inode bitmap")?;
        let right = self.sealer.bitmap_checksum(&bytes, geometry.inodes_per_group);
        if right.is_some_and(|right| right != raw.inode_bitmap_checksum()) {
            return Err(corrupt(Place::InodeBitmap(group), "checksum is wrong; `plat check` says more"));
        }
        Ok(Bits::from_bytes(bytes))
    }

    /// An inode's record, and where it lies.
    pub(super) fn record(&self, number: InodeNumber) -> Result<(u64, Inode)> {
        let outside = || corrupt(Place::Inode(number), "lies in no group");
        let (group, index) = self.geometry.locate_inode(number).ok_or_else(outside)?;
        let size = usize::from(self.geometry.inode_size);
        let offset =
            self.geometry.byte_offset(self.descriptor(group).inode_table()) + u64::from(index) * size as u64;
        let mut bytes = vec![0; size];
        self.device.read_at(offset, &mut bytes).map_err(Error::io(format!("reading inode {number}")))?;
        Ok((offset, Inode::parse(number, &bytes)?))
    }

    /// Blocks of superblocks, descriptors, bitmaps and tables; whole clusters.
    pub(super) fn structures(&self) -> Runs {
        let tables: Vec<Tables> = (0..self.geometry.groups).map(|group| self.tables(Group(group))).collect();
        structures(&self.geometry, &tables)
    }
}

/// Blocks of superblocks, descriptors, bitmaps and tables; whole clusters.
pub(super) fn structures(geometry: &Geometry, tables: &[Tables]) -> Runs {
    let mut runs = Runs::default();
    for (group, tables) in (0..).map(Group).zip(tables) {
        for (start, count) in parts(geometry, group, tables) {
            runs.insert(start, start + count);
        }
    }
    runs.rounded_out(geometry.cluster_log2)
}

/// The header of a group, its bitmaps and its table: first block and count.
pub(super) fn parts(geometry: &Geometry, group: Group, tables: &Tables) -> [(u64, u64); 4] {
    let header = geometry.group_header(group);
    [
        (header.start.0, u64::from(header.count)),
        (tables.block_bitmap, 1),
        (tables.inode_bitmap, 1),
        (tables.inode_table, u64::from(geometry.inode_table_blocks())),
    ]
}

/// The clusters of a group that a reader takes for used where its bitmap is not initialised.
pub(super) fn own_bits(geometry: &Geometry, group: Group, tables: &Tables) -> Bits {
    let mut own = Runs::default();
    for (start, count) in parts(geometry, group, tables) {
        own.insert(start, start + count);
    }
    bits_of(geometry, group, &own.rounded_out(geometry.cluster_log2))
}

/// The bitmap of a group in which only these runs of whole clusters are used.
pub(super) fn bits_of(geometry: &Geometry, group: Group, used: &Runs) -> Bits {
    let mut bits = Bits::new(geometry.block_size.bytes_usize(), geometry.group_clusters(group));
    let start = geometry.group_start(group).0;
    let end = start + u64::from(geometry.group_blocks(group));
    for (from, to) in used.within(start, end) {
        let (from, to) = span(geometry, start, from, to);
        bits.set(from, to);
    }
    bits
}

/// The bits of a run of blocks in a group that begins at `start`; parts of clusters count whole.
pub(super) fn span(geometry: &Geometry, start: u64, from: u64, to: u64) -> (u32, u32) {
    let ratio = 1 << geometry.cluster_log2;
    (low_u32((from - start) / ratio), low_u32((to - start).div_ceil(ratio)))
}
