//! Descriptors of 64 bytes and of 32 (`64bit`): the blocks that are kept for growth become descriptors, and come back.
//!
//! Excludes: the descriptors themselves, which the draft writes in their new form, and their checksums.

use ondisk::invariant;
use std::sync::Arc;

use ondisk::block_map::pointers_per_block;
use ondisk::features::{Compat, FeatureBit, Incompat};
use ondisk::geometry::Geometry;
use ondisk::inode::Inode;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber, bounded, low_u32};

use platfs::mkfs::FeatureEdit;
use platfs_device::Device;

use super::{Request, TuneWork, checksums};
use crate::Result;
use crate::draft::{Change, Draft, Limits};
use crate::error::refused;
use crate::resize::Plan;

/// Slot of the double indirect block in the resize inode.
const DOUBLE: usize = 13;
/// Bytes of a wide descriptor.
const WIDE: u16 = 64;

/// The superblock with descriptors of the other width; all that follows is done by [`change`].
fn edited(raw: &RawSuperblock, wide: bool) -> Result<(RawSuperblock, Geometry)> {
    let mut raw = *raw;
    let blocks = [raw.blocks_count(), raw.reserved_blocks_count(), raw.free_blocks_count()];
    let mut features = raw.features();
    features.incompat.set(Incompat::BIT64, wide);
    raw.set_features(features);
    raw.s_desc_size.set(if wide { WIDE } else { 0 });
    raw.set_blocks_count(blocks[0]);
    raw.set_reserved_blocks_count(blocks[1]);
    raw.set_free_blocks_count(blocks[2]);
    let geometry = Geometry::from_superblock(&raw)?;
    Ok((raw, geometry))
}

/// Returns the new width if the width of descriptors is all that is asked for; `None` if there is more, or no change.
pub(super) fn alone(request: &Request, raw: &RawSuperblock) -> Option<bool> {
    let bit = FeatureBit::Incompat(Incompat::BIT64);
    let wide = match request.features[..] {
        [FeatureEdit::Set(one)] if one == bit => true,
        [FeatureEdit::Clear(one)] if one == bit => false,
        _ => return None,
    };
    let rest = Request { features: Vec::new(), ..request.clone() };
    let extents = raw.features().incompat.contains(Incompat::EXTENTS);
    (rest.is_empty() && raw.features().has(bit) != wide && (extents || !wide)).then_some(wide)
}

/// Returns true if the blocks that are kept for growth suffice, so that nothing moves.
pub(super) fn fits(raw: &RawSuperblock, wide: bool) -> Result<bool> {
    let before = Geometry::from_superblock(raw)?;
    let (_, after) = edited(raw, wide)?;
    let more = i64::from(after.descriptor_blocks()) - i64::from(before.descriptor_blocks());
    let kept = i64::from(before.reserved_descriptor_blocks) - more;
    let keeps = raw.features().compat.contains(Compat::RESIZE_INODE) && before.first_meta_bg.is_none();
    let most = i64::from(pointers_per_block(before.block_size));
    Ok(more == 0 && before.first_meta_bg.is_none() || keeps && (0..=most).contains(&kept))
}

/// Makes the descriptors wide or narrow where other things have to move for that.
pub(super) fn moving(device: &Arc<dyn Device>, wide: bool, limits: &Limits) -> Result<Change> {
    // What is marked as not in order is refused.
    drop(Draft::open(Arc::clone(device), *limits)?);
    let plan = Plan::of_width(Arc::clone(device), wide)?;
    plan.draft(Arc::clone(device), device.size(), limits)
}

/// Makes the descriptors wide or narrow.
pub(super) fn change(work: &mut TuneWork<'_>, wide: bool) -> Result<()> {
    if !wide && work.draft.geometry().blocks > u64::from(u32::MAX) {
        return refused("64bit can't be turned off: the volume has more than 4,294,967,295 blocks");
    }
    work.deepen()?;
    let before = *work.draft.geometry();
    let (mut raw, after) = edited(work.draft.superblock(), wide)?;
    let (had, has) = (before.descriptor_blocks(), after.descriptor_blocks());
    if had != has {
        room(work, &mut raw, had, has)?;
    }
    work.draft.reshape(|stored| *stored = raw)?;
    if had > has {
        list_copies(work, has..had)?;
    }
    // Wide descriptors have whole checksums of bitmaps.
    let features = work.draft.features();
    checksums::groups(&mut work.draft, features, features)
}

/// Takes blocks that are kept for growth, or gives them back: their number and the inode that has them.
fn room(work: &mut TuneWork<'_>, raw: &mut RawSuperblock, had: u32, has: u32) -> Result<()> {
    let geometry = *work.draft.geometry();
    if geometry.first_meta_bg.is_some() {
        return refused("64bit can't change along with other things with meta_bg; ask for it alone");
    }
    if !work.draft.features().compat.contains(Compat::RESIZE_INODE) {
        return refused(format!(
            "64bit can't change along with other things: descriptors would fill {has} blocks instead of {had}, and others \
             would have to move; ask for it alone"
        ));
    }
    let reserved = i64::from(geometry.reserved_descriptor_blocks) + i64::from(had) - i64::from(has);
    let most = i64::from(pointers_per_block(geometry.block_size));
    if reserved < 0 || reserved > most {
        return refused(format!(
            "64bit can't change along with other things: descriptors would fill {has} blocks instead of {had}, and {} are \
             kept for growth; ask for it alone",
            geometry.reserved_descriptor_blocks
        ));
    }
    if had > has && backups(&geometry).len() > pointers_per_block(geometry.block_size) as usize {
        return refused(
            "64bit can't be turned off: a block does not hold the list of all copies of a descriptor block; turn \
             resize_inode off first",
        );
    }
    // No more than the pointers of a block, by the test before.
    raw.s_reserved_gdt_blocks.set(bounded::<u16>(reserved.unsigned_abs()));
    let mut inode = work.draft.inode(InodeNumber::RESIZE)?;
    let top = top_of(&inode);
    let mut table = work.draft.block(top)?;
    let first = geometry.superblock_block(Group(0)).0 + 1;
    for index in had.min(has)..had.max(has) {
        let block = if has > had { 0 } else { low_u32(first + u64::from(index)) };
        let at = (u64::from(index) % u64::from(pointers_per_block(geometry.block_size))) * 4;
        put(&mut table, at, block)?;
    }
    work.draft.put_block(top, &table)?;
    let copies = 1 + i64::from(low_u32(backups(&geometry).len() as u64));
    let moved = ((i64::from(had) - i64::from(has)) * copies) << geometry.cluster_log2;
    let sectors = i64::try_from(inode.sectors(geometry.block_size)).unwrap_or(i64::MAX);
    let sectors = sectors.saturating_add(moved * i64::from(geometry.block_size.bytes() / 512)).max(0);
    inode.set_sectors(sectors.unsigned_abs(), geometry.block_size);
    work.draft.put_inode(&mut inode)
}

fn top_of(inode: &Inode) -> Block {
    let word = inode.raw().i_block.get(DOUBLE * 4..DOUBLE * 4 + 4).and_then(|word| word.try_into().ok());
    Block(u64::from(word.map_or(0, u32::from_le_bytes)))
}

fn put(bytes: &mut [u8], at: u64, block: u32) -> Result<()> {
    let at = bounded::<usize>(at);
    invariant!(bytes.get_mut(at..at + 4), "a pointer lies in its block")
        .copy_from_slice(&block.to_le_bytes());
    Ok(())
}

fn backups(geometry: &Geometry) -> Vec<Group> {
    (1..geometry.groups).map(Group).filter(|group| geometry.backups.has_superblock(*group)).collect()
}

/// Makes blocks that were descriptors such as are kept for growth: those of group 0 list their copies.
fn list_copies(work: &mut TuneWork<'_>, indexes: std::ops::Range<u32>) -> Result<()> {
    let geometry = *work.draft.geometry();
    for index in indexes {
        let mut bytes = vec![0; geometry.block_size.bytes_usize()];
        for (at, group) in backups(&geometry).into_iter().enumerate() {
            let copy = geometry.superblock_block(group).0 + 1 + u64::from(index);
            put(&mut bytes, at as u64 * 4, low_u32(copy))?;
        }
        let block = Block(geometry.superblock_block(Group(0)).0 + 1 + u64::from(index));
        work.draft.put_block(block, &bytes)?;
    }
    Ok(())
}
