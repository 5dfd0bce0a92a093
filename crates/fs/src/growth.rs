//! A volume that grows while it is open: groups are added behind the last, and the last gets its end.
//!
//! Owns: the one update that makes a volume larger, what has to be on the device before it, and the backups behind it.
//! Excludes: how large a volume can become, and where structures of new groups lie (`platfs_reshape`); making the device
//! longer.
//!
//! 1. Bitmaps and tables of new groups are written behind the end of the volume, where nothing of it lies.
//! 2. Everything is made stable.
//! 3. One update, and so one transaction of the journal, has the descriptors of new groups, the end of the last group, the
//!    list of blocks kept for more descriptors, and the superblock. It is brought to its place before others change
//!    anything: a replay of the log sizes the volume by the superblock in its place. Verbs that come next see the larger
//!    volume.
//! 4. Backups are written. Cut off before, they are of the smaller volume; they are written again when the volume is given
//!    the size that it has.

use std::sync::Arc;

use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, low_u32};

use crate::context::Context;
use crate::error::{Error, Flow, Result};
use crate::format::Format;
use crate::mkfs::layout::{Runs, Tables};
use crate::placing;
pub use crate::sizes::write_backups;
use crate::sizes::{Reshape, copy_sizes, refused};
use crate::versions::SPACE;
use crate::volume::Volume;

/// Groups to add to a volume, by its new sizes.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The superblock with its new sizes. Nothing else of it counts.
    pub raw: RawSuperblock,
    /// Where the structures of the groups behind the last lie: all of them behind the end of the volume.
    pub tables: Vec<Tables>,
    /// The byte from which on the device reads as zeros.
    pub zeros_from: u64,
}

/// Makes a volume larger while others use it.
///
/// # Errors
/// [`Error::Unsupported`]: a volume without a journal, or a growth for which something must move. [`Error::Invalid`]: a
/// growth that does not fit the volume. [`Error::TooLargeForLog`]: it must be made in parts. The device's failure. The
/// volume has the size that it had then.
pub fn grow(volume: &Volume, growth: &Growth) -> Result<()> {
    let _shape = volume.change_shape();
    // Another may have come first: what it added is never written over.
    let addition = Addition::new(volume, growth)?;
    addition.write_new(volume)?;
    volume.syncing().with_all_stable(|| addition.make(volume))?;
    write_backups(volume)
}

/// Growth that suits the volume.
struct Addition<'g> {
    growth: &'g Growth,
    before: Geometry,
    after: Format,
    /// The blocks of all structures of new groups.
    structures: Runs,
}

impl<'g> Addition<'g> {
    fn new(volume: &Volume, growth: &'g Growth) -> Result<Self> {
        if !volume.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        if !volume.uses_journal() {
            return refused("a volume grows in use only through a journal");
        }
        if volume.space.is_end_closed() {
            return Err(Error::Invalid("the volume is becoming smaller".into()));
        }
        let mut raw = volume.superblock();
        copy_sizes(&mut raw, &growth.raw);
        let before = volume.format.geometry;
        let mut after = Format::from_superblock(&raw)?;
        after.keys = volume.format.keys.clone();
        after.numbers = Arc::clone(&volume.format.numbers);
        after.features = volume.format.features;
        let addition =
            Addition { growth, before, structures: structures(&after.geometry, before, growth), after };
        addition.check(volume)?;
        Ok(addition)
    }

    fn check(&self, volume: &Volume) -> Result<()> {
        let (before, after) = (&self.before, &self.after.geometry);
        let device = volume.cache.device().size() >> after.block_size.log2();
        let added = u64::from(after.groups.saturating_sub(before.groups));
        if after.blocks <= before.blocks || self.growth.tables.len() as u64 != added || after.blocks > device
        {
            return Err(Error::Invalid("the growth does not fit the volume or its device".into()));
        }
        let same = Geometry {
            blocks: before.blocks,
            groups: before.groups,
            reserved_descriptor_blocks: before.reserved_descriptor_blocks,
            ..*after
        };
        if same != *before || after.group_header(Group(0)) != before.group_header(Group(0)) {
            return refused("there is no room for the descriptors of more groups");
        }
        let end = before.group_start(Group(before.groups)).0;
        if self.structures.within(0, end).next().is_some() {
            return Err(Error::Invalid("structures of new groups would lie in old ones".into()));
        }
        Ok(())
    }

    fn new_groups(&self) -> impl Iterator<Item = (Group, &Tables)> {
        (self.before.groups..).map(Group).zip(&self.growth.tables)
    }

    /// The runs of blocks in a group that structures take.
    fn used_in(&self, group: Group) -> Vec<(u64, u64)> {
        let start = self.after.geometry.group_start(group).0;
        let end = start + u64::from(self.after.geometry.group_blocks(group));
        self.structures.within(start, end).collect()
    }

    /// Writes what of new groups lies outside of the volume as it is.
    fn write_new(&self, volume: &Volume) -> Result<()> {
        let device = volume.cache.device();
        let failed = |source| Error::io("writing the structures of new groups", source);
        let geometry = &self.after.geometry;
        for (group, tables) in self.new_groups() {
            let raw = self.descriptor(group, tables);
            if !raw.flags().contains(GroupFlags::BLOCK_UNINIT) {
                let offset = geometry.byte_offset(Block(tables.block_bitmap));
                device.write_at(offset, &self.bitmap(group)).map_err(failed)?;
            }
            if raw.flags().contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let offset = geometry.byte_offset(Block(tables.inode_bitmap));
            device.write_at(offset, &self.inode_bitmap()).map_err(failed)?;
            let offset = geometry.byte_offset(Block(tables.inode_table));
            if offset < self.growth.zeros_from {
                let len = u64::from(geometry.inode_table_blocks()) << geometry.block_size.log2();
                device.write_zeros(offset, len).map_err(failed)?;
            }
        }
        device.flush().map_err(failed)
    }

    fn bitmap(&self, group: Group) -> Vec<u8> {
        let geometry = &self.after.geometry;
        let start = geometry.group_start(group).0;
        let clusters = u64::from(geometry.group_clusters(group));
        let mut bitmap = full_behind(geometry, clusters);
        for (from, to) in self.used_in(group) {
            let log2 = geometry.cluster_log2;
            set(&mut bitmap, (from - start) >> log2, (to - start).div_ceil(1 << log2).min(clusters));
        }
        bitmap
    }

    fn inode_bitmap(&self) -> Vec<u8> {
        full_behind(&self.after.geometry, u64::from(self.after.geometry.inodes_per_group))
    }

    /// The descriptor of a new group.
    fn descriptor(&self, group: Group, tables: &Tables) -> RawGroupDescriptor {
        let (geometry, sealer) = (&self.after.geometry, &self.after.sealer);
        let mut raw = RawGroupDescriptor::zeroed();
        raw.set_block_bitmap(Block(tables.block_bitmap));
        raw.set_inode_bitmap(Block(tables.inode_bitmap));
        raw.set_inode_table(Block(tables.inode_table));
        raw.set_free_inodes(geometry.inodes_per_group);
        let used = self.used_in(group);
        let bitmap = self.bitmap(group);
        let in_use: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
        raw.set_free_clusters((geometry.block_size.bytes() * 8).saturating_sub(in_use));
        let mut flags = GroupFlags::empty();
        if self.after.features.descriptor_csum() {
            raw.set_unused_inodes(geometry.inodes_per_group);
            flags |= GroupFlags::INODE_UNINIT;
            if geometry.byte_offset(Block(tables.inode_table)) >= self.growth.zeros_from {
                flags |= GroupFlags::INODE_ZEROED;
            }
            // A reader expects a group's own structures in it, and nothing else.
            let own = structure_runs(geometry, group, tables);
            let is_last = group.0 + 1 == geometry.groups;
            flags.set(GroupFlags::BLOCK_UNINIT, !is_last && own == used);
        }
        raw.set_flags(flags);
        let checksum = |bits: &[u8], count| sealer.bitmap_checksum(bits, count);
        if !flags.contains(GroupFlags::BLOCK_UNINIT)
            && let Some(checksum) = checksum(&bitmap, geometry.clusters_per_group())
        {
            raw.set_block_bitmap_checksum(checksum);
        }
        if !flags.contains(GroupFlags::INODE_UNINIT)
            && let Some(checksum) = checksum(&self.inode_bitmap(), geometry.inodes_per_group)
        {
            raw.set_inode_bitmap_checksum(checksum);
        }
        raw
    }

    /// Makes the volume larger, on disk with the next commit and for all verbs that begin from now on. Nobody else changes
    /// anything, and all is stable.
    fn make(&self, volume: &Volume) -> Result<()> {
        volume.syncing().mark_changed()?;
        let mut tx = volume.tx(Context::new(volume.now()));
        let (last, raw, added) = volume.space.lengthen_last(&mut tx, &self.after)?;
        let new = self.new_groups().map(|(group, tables)| (group, self.descriptor(group, tables)));
        let changed: Vec<_> = std::iter::once((last, raw)).chain(new).collect();
        let free: u64 = changed.iter().skip(1).map(|(_, raw)| u64::from(raw.free_clusters())).sum();
        let descriptors = volume.space.descriptors().reshaped(&self.after, &changed);
        let reshape = Reshape { before: &self.before, after: &self.after };
        let from = last.0 / self.before.descriptors_per_block();
        reshape.stage_descriptors(&mut tx, from, &descriptors)?;
        reshape.stage_kept(&mut tx)?;
        let format = reshape.format(volume, &self.growth.raw, &descriptors)?;
        let (raw, options) = (volume.session.superblock(), &volume.session.options);
        let policies = placing::policies(volume.view(), &raw, options)?;
        let space = volume.space.grown(&format, descriptors, policies)?;
        tx.admit().map_err(|flow| match flow {
            Flow::Failed(error) => error,
            Flow::Full | Flow::Missing(_) => Error::Invalid("the journal has no room".into()),
        })?;
        volume.cache.versions().during(&[SPACE], &[], || {
            tx.commit();
            space.take_over(&volume.space);
            // A verb with the larger format must find the larger space.
            volume.space.replace(space);
            volume.format.replace(format);
        });
        let free = (free + u64::from(added)) << self.before.cluster_log2;
        let inodes = self.after.geometry.inodes() - self.before.inodes();
        let overhead = self.structures.count_within(0, u64::MAX) >> self.before.cluster_log2;
        volume.session.edit_superblock(|raw| {
            let free = raw.free_blocks_count().saturating_add(free);
            copy_sizes(raw, &self.growth.raw);
            raw.set_free_blocks_count(free);
            raw.s_free_inodes_count.set(raw.s_free_inodes_count.get().saturating_add(inodes));
            if let known @ 1.. = raw.s_overhead_clusters.get() {
                raw.s_overhead_clusters.set(known.saturating_add(low_u32(overhead)));
            }
        });
        Ok(())
    }
}

/// A bitmap with `count` clear bits; those behind are set, as the format wants.
fn full_behind(geometry: &Geometry, count: u64) -> Vec<u8> {
    let mut bitmap = vec![0; geometry.block_size.bytes_usize()];
    set(&mut bitmap, count, u64::from(geometry.block_size.bytes()) * 8);
    bitmap
}

fn set(bitmap: &mut [u8], from: u64, to: u64) {
    for bit in from..to {
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get_mut(at)) else {
            debug_assert!(false, "bit {bit} lies behind a bitmap's end");
            return;
        };
        *byte |= 1 << (bit % 8);
    }
}

/// The header, the bitmaps and the table of a group.
fn parts(geometry: &Geometry, group: Group, tables: &Tables) -> [(u64, u64); 4] {
    let header = geometry.group_header(group);
    [
        (header.start.0, u64::from(header.count)),
        (tables.block_bitmap, 1),
        (tables.inode_bitmap, 1),
        (tables.inode_table, u64::from(geometry.inode_table_blocks())),
    ]
}

/// The blocks of the structures of all new groups; whole clusters.
fn structures(after: &Geometry, before: Geometry, growth: &Growth) -> Runs {
    let mut runs = Runs::default();
    for (group, tables) in (before.groups..).map(Group).zip(&growth.tables) {
        for (start, count) in parts(after, group, tables) {
            runs.insert(start, start.saturating_add(count));
        }
    }
    runs.rounded_out(after.cluster_log2)
}

/// The runs that a group's own structures take in it.
fn structure_runs(geometry: &Geometry, group: Group, tables: &Tables) -> Vec<(u64, u64)> {
    let mut runs = Runs::default();
    for (start, count) in parts(geometry, group, tables) {
        runs.insert(start, start.saturating_add(count));
    }
    let start = geometry.group_start(group).0;
    let end = start + u64::from(geometry.group_blocks(group));
    runs.rounded_out(geometry.cluster_log2).within(start, end).collect()
}
