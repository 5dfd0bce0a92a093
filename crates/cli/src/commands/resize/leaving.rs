//! The size with which a volume has room that users can fill: `plat resize IMAGE auto+100M`.

use std::sync::Arc;

use platfs::device::Device;
use platfs::ondisk::features::Incompat;
use platfs::ondisk::geometry::Geometry;
use platfs::ondisk::units::Group;
use platfs_image::Free;
use platfs_reshape::resize::Plan;
use platfs_reshape::{Error, Result};

/// Steps of the search: each leaves a small part of what the one before it lacked, and only structures that come with a
/// larger volume are missing then.
const STEPS: usize = 100;

/// Plans the smallest volume, or one a little larger, that holds what it holds and leaves that much.
///
/// # Errors
/// As [`Plan::new`]; nothing of the volume would be left for files.
pub(super) fn plan(device: &Arc<dyn Device>, free: Free) -> Result<Plan> {
    let raw = platfs::device::read_superblock(&**device)?;
    let extents = raw.features().incompat.contains(Incompat::EXTENTS);
    let mut plan = Plan::smallest(Arc::clone(device))?;
    let before = *plan.before();
    let files = before.blocks.saturating_sub(raw.free_blocks_count()).saturating_sub(structures(&before));
    let room = if let Free::Bytes(bytes) = free { bytes >> before.block_size.log2() } else { 0 };
    let most = plan.after().blocks.saturating_add(room).saturating_mul(Free::TIMES_MOST);
    for _ in 0..STEPS {
        let after = plan.after();
        let left = after.blocks.saturating_sub(structures(after)).saturating_sub(files);
        let reserved = u128::from(raw.reserved_blocks_count()) * u128::from(after.blocks);
        let reserved = u64::try_from(reserved.div_ceil(u128::from(before.blocks.max(1)))).unwrap_or(u64::MAX);
        let missing = free.blocks(reserved, extents, after).saturating_sub(left);
        if missing == 0 {
            return Ok(plan);
        }
        let taken = reserved.saturating_add(Free::tables(after));
        let more = free.growth(missing, taken, after).filter(|_| after.blocks <= most);
        let Some(more) = more else { return Err(Error::Refused(free.too_much(reserved, after))) };
        let blocks = after.blocks.saturating_add(more.max(missing));
        // A rest that is too small for a group of its own is of no use.
        let group = u64::from(after.blocks_per_group).saturating_mul(2);
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(after.block_size.bytes()));
        let next = Plan::new(Arc::clone(device), bytes(blocks))?;
        plan = match next.after().blocks > after.blocks {
            true => next,
            false => Plan::new(Arc::clone(device), bytes(after.blocks.saturating_add(group)))?,
        };
    }
    Err(Error::Refused(free.too_much(raw.reserved_blocks_count(), &before)))
}

/// Blocks of the structures of groups.
fn structures(geometry: &Geometry) -> u64 {
    let each = 2 + u64::from(geometry.inode_table_blocks());
    (0..geometry.groups).map(Group).map(|group| u64::from(geometry.group_header(group).count) + each).sum()
}
