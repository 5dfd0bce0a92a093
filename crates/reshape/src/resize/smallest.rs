//! The smallest size of a volume.
//!
//! The space of files is known, and that of structures follows from the number of groups; so a size below which nothing
//! fits is known at once. From there sizes are tried one by one: files in pieces may need more blocks for their maps.

use std::sync::Arc;

use ondisk::features::Compat;
use ondisk::group::RawGroupDescriptor;
use ondisk::units::Group;

use super::Plan;
use super::old_volume::OldVolume;
use super::shape::{self, Shape, Tail};
use super::{homes, new_tables};
use crate::{Error, Result};

/// Most sizes that are tried one by one: more than maps of files in pieces can need.
const TRIES: u32 = 1 << 10;

/// Plans the smallest volume.
pub(super) fn plan(before: &Arc<OldVolume>) -> Result<Plan> {
    let needed = needed(before)?;
    let cluster = 1 << before.geometry.cluster_log2;
    let (mut blocks, mut step) = (least(before, needed)?, cluster);
    for tried in 0_u32.. {
        let shape = shape::plan(&before.raw, blocks.min(before.geometry.blocks), Tail::Any);
        match shape.and_then(|shape| Plan::with_shape(before, shape)) {
            Ok(plan) => return Ok(plan),
            Err(error) if blocks >= before.geometry.blocks => return Err(error),
            // These blocks are missing whatever the pieces.
            Err(Error::NoRoom(more)) if tried < TRIES => blocks += more.div_ceil(cluster).max(1) * cluster,
            // It is not for want of room: sizes in growing steps.
            Err(_) => {
                blocks = blocks.saturating_add(step);
                step = step.saturating_mul(2);
            }
        }
    }
    Plan::with_shape(before, shape::plan(&before.raw, before.geometry.blocks, Tail::Any)?)
}

/// Blocks that files take, and what else is no structure of a group; whole clusters.
fn needed(before: &OldVolume) -> Result<u64> {
    let geometry = &before.geometry;
    let mut used = 0;
    for group in (0..geometry.groups).map(Group) {
        let clusters = geometry.group_clusters(group);
        used += u64::from(clusters - before.bitmap(group)?.count_clear(clusters).min(clusters));
    }
    let structures = before.structures().count_within(0, u64::MAX);
    Ok((used << geometry.cluster_log2).saturating_sub(structures))
}

/// The least size for a number of blocks of files, as far as counts say.
fn least(before: &OldVolume, needed: u64) -> Result<u64> {
    let old = &before.geometry;
    let used_inodes: u64 = before
        .descriptors
        .iter()
        .map(|raw| u64::from(old.inodes_per_group.saturating_sub(raw.free_inodes())))
        .sum();
    let mut first = used_inodes.div_ceil(u64::from(old.inodes_per_group)).max(1);
    if before.raw.features().compat.contains(Compat::STABLE_INODES) {
        let used = |raw: &RawGroupDescriptor| raw.free_inodes() < old.inodes_per_group;
        first = before.descriptors.iter().rposition(used).map_or(1, |last| last as u64 + 1);
    }
    for groups in first..=u64::from(old.groups) {
        let start = u64::from(old.first_data_block) + (groups - 1) * u64::from(old.blocks_per_group);
        let end = (start + u64::from(old.blocks_per_group)).min(old.blocks);
        let Ok(Shape { geometry, .. }) = shape::plan(&before.raw, end, Tail::Any) else { continue };
        let places = new_tables::plan(before, &geometry)?;
        let homeless: u64 =
            places.homeless.iter().map(|group| homes::homeless_blocks(&places, &geometry, *group)).sum();
        let taken = homes::staying(&places, &geometry).count_within(0, u64::MAX) + homeless;
        let ratio = 1 << geometry.cluster_log2;
        let blocks = (u64::from(geometry.first_data_block) + taken + needed).div_ceil(ratio) * ratio;
        if blocks <= end {
            return Ok(
                blocks.max(start + u64::from(geometry.group_header(Group(geometry.groups - 1)).count) + 1)
            );
        }
    }
    Ok(old.blocks)
}
