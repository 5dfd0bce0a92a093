//! Used bytes of a volume: those that a copy of it must have.
//!
//! Owns: runs of clusters that the bitmaps have in use, and what stands outside of them. Excludes: whose they are
//! ([`crate::owners`]).

use std::ops::Range;

use ondisk::group::GroupFlags;
use ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, Cluster, Group};
use platfs_device::Result;

use crate::owners::{self, is_set};
use crate::raw_image::RawImage;

/// Shortest gap that is left out, in bytes; on large volumes it is longer, so that there are never many ranges.
const GAP: u64 = 64 << 10;
/// Bytes that are fetched together at least, where anything is far away.
pub const UNIT: u64 = 512 << 10;
/// Most groups that are looked at for what will be needed.
const GROUPS_MAX: u32 = 4096;
/// Base-2 logarithm of the most ranges.
const RANGES_LOG2: u32 = 22;

/// The ranges that are in use, in order; short gaps between them are included.
///
/// # Errors
/// A descriptor that leads out of the volume; the device's failure.
pub fn ranges(image: &RawImage) -> Result<Vec<Range<u64>>> {
    let geometry = image.geometry();
    let size = geometry.blocks << geometry.block_size.log2();
    let gap = GAP.max(size >> RANGES_LOG2);
    // Boot loader and superblock may stand before the first cluster.
    let front = 0..SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64;
    let mut found: Vec<Range<u64>> = std::iter::once(front).collect();
    let mut add = |range: Range<u64>| match found.last_mut() {
        Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
        _ => found.push(range),
    };
    for group in (0..geometry.groups).map(Group) {
        let mut own: Vec<Range<u64>> = Vec::new();
        match image.block_bitmap(group)? {
            Some(bitmap) => clusters(image, group, &bitmap, &mut add),
            None => {
                let mut parts = Vec::new();
                owners::of_group(image, group, &mut parts)?;
                own.extend(parts.iter().map(|part| {
                    let start = geometry.byte_offset(part.start);
                    start..start + (part.count << geometry.block_size.log2())
                }));
            }
        }
        // Tables of other groups may lie here as well, but then the bitmap was written.
        own.sort_unstable_by_key(|range| range.start);
        own.into_iter()
            .filter(|range| range.start >= geometry.byte_offset(geometry.group_start(group)))
            .for_each(&mut add);
    }
    Ok(found)
}

/// Where the structures lie by which all else is found, in order: bitmaps, and the parts of inode tables that are in use.
/// Tables behind the first `most` bytes of them are left out, where parts of [`UNIT`] bytes count as a whole.
///
/// # Errors
/// A descriptor that leads out of the volume; the device's failure.
pub fn tables(image: &RawImage, most: u64) -> Result<Vec<Range<u64>>> {
    let geometry = image.geometry();
    let block = geometry.block_size.bytes_usize() as u64;
    let (mut found, mut bytes, mut behind): (Vec<Range<u64>>, u64, u64) = (Vec::new(), 0, 0);
    for group in (0..geometry.groups.min(GROUPS_MAX)).map(Group) {
        let raw = image.descriptor(group)?;
        let records = match image.features().descriptor_csum() {
            true if raw.flags().contains(GroupFlags::INODE_UNINIT) => 0,
            true => geometry.inodes_per_group.saturating_sub(raw.unused_inodes()),
            false => geometry.inodes_per_group,
        };
        let records = u64::from(records);
        let table = records.saturating_mul(u64::from(geometry.inode_size)).next_multiple_of(block);
        for (start, len) in [(raw.block_bitmap(), block), (raw.inode_table(), table)] {
            let start = geometry.byte_offset(start);
            let end = start.saturating_add(len);
            let units = end.div_ceil(UNIT).saturating_sub(behind.max(start / UNIT));
            // Bitmaps and tables of a flex group lie in two rows: steps back are not counted twice.
            behind = behind.max(end.div_ceil(UNIT));
            bytes = bytes.saturating_add(units.saturating_mul(UNIT));
            if bytes > most {
                return Ok(found);
            }
            if len > 0 {
                found.push(start..end);
            }
        }
    }
    Ok(found)
}

/// Where directories probably lie, if they were made before all else, as images are built: behind the inode tables, as
/// many bytes as they are blocks, and not more than `most`.
///
/// # Errors
/// As [`tables`].
pub fn directories(image: &RawImage, most: u64) -> Result<Vec<Range<u64>>> {
    let geometry = image.geometry();
    let block = geometry.block_size.bytes_usize() as u64;
    let (mut found, mut left) = (Vec::new(), most);
    let together = geometry.groups_per_flex().max(1);
    let mut first = 0_u32;
    // Of a large volume the rest is found when it is needed.
    while first < geometry.groups.min(GROUPS_MAX) && left > 0 {
        let end = first.saturating_add(together).min(geometry.groups);
        let (mut behind, mut count) = (0, 0_u64);
        for group in (first..end).map(Group) {
            let raw = image.descriptor(group)?;
            let table = raw.inode_table().0.saturating_add(geometry.inode_table_blocks().into());
            behind = table.max(behind);
            count = count.saturating_add(raw.used_directories().into());
        }
        let bytes = count.saturating_mul(block).min(left);
        let start = geometry.byte_offset(Block(behind.min(geometry.blocks)));
        if bytes > 0 {
            found.push(start..start.saturating_add(bytes));
        }
        left -= bytes;
        first = end;
    }
    Ok(found)
}

/// The runs of a group's bitmap.
fn clusters(image: &RawImage, group: Group, bitmap: &[u8], add: &mut impl FnMut(Range<u64>)) {
    let geometry = image.geometry();
    let first = u64::from(group.0) * u64::from(geometry.clusters_per_group());
    let byte = |bit: u32| geometry.byte_offset(geometry.cluster_start(Cluster(first + u64::from(bit))));
    let count = geometry.group_clusters(group);
    let mut start = None;
    for bit in 0..=count {
        let is_used = bit < count && is_set(bitmap, bit);
        match (is_used, start) {
            (true, None) => start = Some(bit),
            (false, Some(from)) => {
                add(byte(from)..byte(bit));
                start = None;
            }
            _ => {}
        }
    }
}
