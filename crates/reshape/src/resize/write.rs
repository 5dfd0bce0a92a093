//! The new structures on their way to the device: bitmaps, descriptors, superblocks.
//!
//! Excludes the contents of files and tables that move.

use crate::error::refused;
use crate::{Error, Result};
use ondisk::features::Compat;
use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, Group, saturated};
use platfs::mkfs::layout::{Tables, superblock_groups};
use platfs_device::Device;
use zerocopy::IntoBytes;

use super::bits::Bits;
use super::inodes::Inodes;
use super::old_volume::{OldVolume, own_bits};
use super::space::Space;

/// Parts of the new volume's structures.
pub(super) struct Writer<'a> {
    pub(super) before: &'a OldVolume,
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
    pub(super) sealer: Sealer,
    pub(super) tables: &'a [Tables],
    pub(super) space: &'a Space,
    pub(super) inodes: &'a Inodes,
    pub(super) device: &'a dyn Device,
    /// The byte from which on the device reads as zeros.
    pub(super) zeros_from: u64,
}

/// Sums over all groups.
#[derive(Default)]
struct Sums {
    clusters: u64,
    inodes: u32,
}

impl Writer<'_> {
    /// Writes everything; the superblock comes last.
    pub(super) fn run(mut self) -> Result<()> {
        let mut sums = Sums::default();
        let mut descriptors = Vec::with_capacity(self.geometry.groups as usize);
        for group in (0..self.geometry.groups).map(Group) {
            let raw = self.group(group)?;
            sums.clusters += u64::from(raw.free_clusters());
            sums.inodes = sums.inodes.saturating_add(raw.free_inodes());
            descriptors.push(raw);
        }
        self.descriptors(&descriptors)?;
        self.raw.set_free_blocks_count(sums.clusters << self.geometry.cluster_log2);
        self.raw.s_free_inodes_count.set(sums.inodes);
        self.superblocks()
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(offset, bytes).map_err(Error::io(format!("writing at byte {offset}")))
    }

    fn put_block(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.put(self.geometry.byte_offset(Block(block)), bytes)
    }

    fn is_new(&self, group: Group) -> bool {
        group.0 >= self.before.geometry.groups
    }

    /// Writes a group's bitmaps as far as they change; its descriptor, sealed.
    fn group(&self, group: Group) -> Result<RawGroupDescriptor> {
        let mut raw = self.before.descriptor(group);
        let Some(tables) = self.tables.get(group.0 as usize) else {
            return refused(format!("group {group} has no tables"));
        };
        let moved = self.before.tables(group) != *tables;
        raw.set_block_bitmap(Block(tables.block_bitmap));
        raw.set_inode_bitmap(Block(tables.inode_bitmap));
        raw.set_inode_table(Block(tables.inode_table));
        let widened = self.geometry.descriptor_size != self.before.geometry.descriptor_size;
        if let Some(bits) = self.space.finished(group) {
            self.blocks_of(group, tables, &bits, &mut raw)?;
        } else if (widened || moved) && !self.before.has_flag(group, GroupFlags::BLOCK_UNINIT) {
            self.block_bitmap(tables, &self.before.bitmap(group)?, &mut raw)?;
        }
        if self.is_new(group) {
            self.new_inodes(tables, &mut raw)?;
        } else if let Some(changed) = self.inodes.group(group) {
            changed.describe(self.before.has_flags(), self.geometry.inodes_per_group, &mut raw);
            self.inode_bitmap(tables, &changed.bits, &mut raw)?;
        } else if (widened || moved) && !self.before.has_flag(group, GroupFlags::INODE_UNINIT) {
            self.inode_bitmap(tables, &self.before.inode_bitmap(group)?, &mut raw)?;
        }
        self.sealer.seal_descriptor(group, &mut raw, &[]);
        Ok(raw)
    }

    fn blocks_of(
        &self,
        group: Group,
        tables: &Tables,
        bits: &Bits,
        raw: &mut RawGroupDescriptor,
    ) -> Result<()> {
        raw.set_free_clusters(bits.count_clear(self.geometry.group_clusters(group)));
        let mut flags = raw.flags();
        let may = self.before.has_flags() && group.0 + 1 != self.geometry.groups;
        let was = self.is_new(group) || flags.contains(GroupFlags::BLOCK_UNINIT);
        let uninit = may && was && *bits == own_bits(&self.geometry, group, tables);
        flags.set(GroupFlags::BLOCK_UNINIT, uninit);
        raw.set_flags(if self.before.has_flags() { flags } else { raw.flags() });
        if uninit {
            raw.set_block_bitmap_checksum(0);
            return Ok(());
        }
        self.block_bitmap(tables, bits, raw)
    }

    fn block_bitmap(&self, tables: &Tables, bits: &Bits, raw: &mut RawGroupDescriptor) -> Result<()> {
        if let Some(checksum) = self.sealer.bitmap_checksum(bits.bytes(), self.geometry.clusters_per_group())
        {
            raw.set_block_bitmap_checksum(checksum);
        }
        self.put_block(tables.block_bitmap, bits.bytes())
    }

    fn inode_bitmap(&self, tables: &Tables, bits: &Bits, raw: &mut RawGroupDescriptor) -> Result<()> {
        if let Some(checksum) = self.sealer.bitmap_checksum(bits.bytes(), self.geometry.inodes_per_group) {
            raw.set_inode_bitmap_checksum(checksum);
        }
        self.put_block(tables.inode_bitmap, bits.bytes())
    }

    /// A new group's inodes are all free. Where nothing says so, its table is cleared.
    fn new_inodes(&self, tables: &Tables, raw: &mut RawGroupDescriptor) -> Result<()> {
        let per_group = self.geometry.inodes_per_group;
        let log2 = self.geometry.block_size.log2();
        let offset = tables.inode_table << log2;
        let zero = offset >= self.zeros_from;
        raw.set_free_inodes(per_group);
        if self.before.has_flags() {
            raw.set_unused_inodes(per_group);
            let zeroed = if zero { GroupFlags::INODE_ZEROED } else { GroupFlags::empty() };
            raw.set_flags(raw.flags() | GroupFlags::INODE_UNINIT | zeroed);
            return Ok(());
        }
        if !zero {
            let len = u64::from(self.geometry.inode_table_blocks()) << log2;
            self.device
                .write_zeros(offset, len)
                .map_err(Error::io(format!("clearing an inode table at byte {offset}")))?;
        }
        let bits = Bits::new(self.geometry.block_size.bytes_usize(), per_group);
        self.inode_bitmap(tables, &bits, raw)
    }

    /// Writes the descriptors to all their places.
    fn descriptors(&self, descriptors: &[RawGroupDescriptor]) -> Result<()> {
        let geometry = &self.geometry;
        let size = usize::from(geometry.descriptor_size);
        let mut bytes = vec![0; (geometry.descriptor_blocks() as usize) << geometry.block_size.log2()];
        for (raw, to) in descriptors.iter().zip(bytes.chunks_exact_mut(size)) {
            raw.store(to);
        }
        let len = geometry.block_size.bytes_usize();
        let behind = geometry.descriptors_behind(Group(0));
        let together = bytes.get(..behind as usize * len).unwrap_or_default();
        for holder in superblock_groups(geometry) {
            if !together.is_empty() && geometry.descriptors_behind(Group(holder)) > 0 {
                self.put_block(geometry.descriptor_block_copy(0, Group(holder)).0, together)?;
            }
        }
        for (index, block) in (behind..).zip(bytes.chunks_exact(len).skip(behind as usize)) {
            let per_meta = geometry.descriptors_per_block();
            let first = index * per_meta;
            for member in [0, 1, per_meta - 1].map(|position| first.saturating_add(position)) {
                let place = geometry.meta_descriptor_held_by(Group(member));
                if let Some((_, place)) = place.filter(|_| member < geometry.groups) {
                    self.put_block(place.0, block)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the backups, then the primary. Backups are not marked as clean: a volume restored from one is to be
    /// checked.
    fn superblocks(&self) -> Result<()> {
        let mut backup = self.raw;
        backup.s_state.set(0);
        for holder in superblock_groups(&self.geometry).into_iter().skip(1) {
            backup.s_block_group_nr.set(saturated::<u16>(holder));
            self.sealer.seal_superblock(&mut backup);
            let mut bytes = backup.as_bytes().to_vec();
            if self.is_new(Group(holder)) {
                bytes.resize(self.geometry.block_size.bytes_usize(), 0);
            }
            self.put(self.geometry.superblock_offset(Group(holder)), &bytes)?;
        }
        let mut primary = self.raw;
        self.sealer.seal_superblock(&mut primary);
        self.put(SUPERBLOCK_OFFSET, primary.as_bytes())
    }
}

/// True if a volume keeps descriptor blocks for growth.
pub(super) fn keeps_descriptors(raw: &RawSuperblock) -> bool {
    raw.features().compat.contains(Compat::RESIZE_INODE)
}
