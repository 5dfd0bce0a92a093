//! Figures of `statfs`, counted as Linux does: without what the format itself takes, and with a
//! reserve for conversions that Linux keeps of volumes with extents.

use std::sync::Mutex;

use fuse::Statistics;
use ondisk::features::{Compat, Incompat};
use ondisk::geometry::Geometry;
use ondisk::inode::InodeFlags;
use ondisk::quota::QuotaKind;
use ondisk::units::{Group, InodeNumber};
use platfs::Volume;
use platfs_open::locks::locked;

/// Figures that are counted once for each size that the volume has.
pub(super) struct Room(Mutex<(Geometry, Statistics)>);

impl Room {
    /// That of a volume as it is.
    ///
    /// # Errors
    /// Broken group descriptors.
    pub(super) fn of(volume: &Volume) -> platfs::Result<Self> {
        Ok(Room(Mutex::new((volume.format().geometry, statistics(volume)?))))
    }

    fn of_size(&self, volume: &Volume) -> Statistics {
        let mut known = locked(&self.0);
        let geometry = volume.format().geometry;
        if known.0 != geometry
            && let Ok(counted) = statistics(volume)
        {
            *known = (geometry, counted);
        }
        known.1
    }
}

/// The room of a volume; `free` and `free_inodes` are those of the group descriptors.
///
/// # Errors
/// Broken group descriptors.
fn statistics(volume: &Volume) -> platfs::Result<Statistics> {
    let (format, raw) = (volume.format(), volume.superblock());
    let geometry = &format.geometry;
    let (mut free, mut free_inodes) = (0_u64, 0_u64);
    let space = volume.space();
    for group in (0..geometry.groups).map(Group) {
        let descriptor = space.descriptor(group)?;
        free += u64::from(descriptor.free_clusters());
        free_inodes += u64::from(descriptor.free_inodes());
    }
    let log2 = geometry.cluster_log2;
    let overhead = u64::from(raw.s_overhead_clusters.get());
    let overhead = if overhead > 0 { overhead << log2 } else { taken_by_format(volume) };
    let room = Statistics {
        block_size: geometry.block_size.bytes(),
        blocks: geometry.blocks.saturating_sub(overhead),
        free: 0,
        available: 0,
        inodes: u64::from(geometry.inodes()),
        free_inodes: 0,
        name_max: 255,
    };
    Ok(with_free(volume, room, free, free_inodes))
}

/// The room of a volume as it is now.
pub(super) fn now(volume: &Volume, room: &Room) -> Statistics {
    let room = room.of_size(volume);
    match volume.space().free_after_sync() {
        Some((clusters, inodes)) => with_free(volume, room, clusters, inodes),
        None => room,
    }
}

/// The room as a directory shows it whose files belong to its project: no more than the limits of that leave.
///
/// # Errors
/// A broken inode or quota file.
pub(super) fn of_project(
    volume: &Volume,
    number: InodeNumber,
    room: Statistics,
) -> platfs::Result<Statistics> {
    let quota = volume.quota();
    if !quota.is_enforced() || !quota.kinds().contains(&QuotaKind::Project) {
        return Ok(room);
    }
    let facts = volume.metadata(number)?;
    if !facts.flags.contains(InodeFlags::PROJINHERIT) {
        return Ok(room);
    }
    let record = quota.record(QuotaKind::Project, facts.project)?;
    let log2 = volume.format().geometry.block_size.log2();
    let least = |one: u64, other: u64| if one == 0 || other == 0 { one.max(other) } else { one.min(other) };
    let mut room = room;
    let limit = least(record.limits.soft_bytes, record.limits.hard_bytes) >> log2;
    if limit > 0 {
        let used =
            record.usage.bytes.saturating_add(quota.reserved(QuotaKind::Project, facts.project)) >> log2;
        let left = limit.saturating_sub(used);
        room.blocks = room.blocks.min(limit);
        (room.free, room.available) = (room.free.min(left), room.available.min(left));
    }
    let limit = least(record.limits.soft_inodes, record.limits.hard_inodes);
    if limit > 0 {
        let left = limit.saturating_sub(record.usage.inodes);
        (room.inodes, room.free_inodes) = (room.inodes.min(limit), room.free_inodes.min(left));
    }
    Ok(room)
}

fn with_free(volume: &Volume, room: Statistics, clusters: u64, inodes: u64) -> Statistics {
    let format = volume.format();
    let (log2, all) = (format.geometry.cluster_log2, format.geometry.clusters());
    let reserve = if format.has_incompat(Incompat::EXTENTS) { (all / 50).min(4096) } else { 0 };
    let kept = volume.superblock().reserved_blocks_count() + (reserve << log2);
    let free = clusters.min(all) << log2;
    Statistics { free, available: free.saturating_sub(kept), free_inodes: inodes, ..room }
}

/// Blocks of superblocks, descriptors, bitmaps, tables and journal, where the superblock does not say.
fn taken_by_format(volume: &Volume) -> u64 {
    let (format, raw) = (volume.format(), volume.superblock());
    let geometry = &format.geometry;
    let copies = (0..geometry.groups).filter(|group| geometry.backups.has_superblock(Group(*group))).count();
    let meta_bg = format.has_incompat(Incompat::META_BG);
    let descriptors = if meta_bg {
        u64::from(geometry.descriptor_blocks()) * 3
    } else {
        let each = geometry.descriptor_blocks() + u32::from(geometry.reserved_descriptor_blocks);
        u64::from(each) * copies as u64
    };
    let tables = u64::from(geometry.groups) * (2 + u64::from(geometry.inode_table_blocks()));
    let journal = InodeNumber::new(raw.s_journal_inum.get())
        .filter(|_| format.features.compat.contains(Compat::HAS_JOURNAL))
        .and_then(|inode| volume.metadata(inode).ok())
        .map_or(0, |metadata| geometry.block_size.blocks_for(metadata.size));
    u64::from(geometry.first_data_block) + copies as u64 + descriptors + tables + journal
}
