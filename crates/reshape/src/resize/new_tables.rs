//! Where the structures of each group lie afterwards, and which blocks must be left for them.
//!
//! Groups keep their tables where they are, but for those that lie where descriptors will, or behind the new end.
//! New groups get theirs as mke2fs places them. Excludes files, and free space inside of groups.

use std::ops::Range;

use crate::Result;
use ondisk::geometry::Geometry;
use ondisk::units::Group;
use platfs::mkfs::layout::{Layout, Runs, Tables};

use super::old_volume::{OldVolume, parts, structures};

/// The structures of the volume as it will be.
pub(super) struct NewTables {
    /// Of each group. Those of `homeless` groups are still where they were.
    pub(super) tables: Vec<Tables>,
    /// Blocks that nothing of the old volume may stay in; whole clusters.
    pub(super) evicted: Runs,
    /// Groups with structures in evicted blocks, for which a place must be found.
    pub(super) homeless: Vec<Group>,
}

/// Groups that are there before and after.
pub(super) fn kept(before: &Geometry, after: &Geometry) -> u32 {
    before.groups.min(after.groups)
}

/// Finds places for all that does not depend on free space.
pub(super) fn plan(before: &OldVolume, after: &Geometry) -> Result<NewTables> {
    let old = &before.geometry;
    let kept = kept(old, after);
    let mut evicted = Runs::default();
    for group in (0..kept).map(Group) {
        let (from, to) = (end(old, group), end(after, group));
        evicted.insert(from.min(to), to);
    }
    evicted.insert(after.blocks.min(old.blocks), old.blocks);
    let evicted = evicted.rounded_out(old.cluster_log2);
    let mut tables: Vec<Tables> = (0..kept).map(|group| before.tables(Group(group))).collect();
    let homeless = (0..kept).map(Group).filter(|group| {
        let places = before.tables(*group);
        let [_, structures @ ..] = parts(old, *group, &places);
        structures.iter().any(|(start, count)| evicted.count_within(*start, start + count) > 0)
    });
    let homeless = homeless.collect();
    new_groups(before, after, &mut tables)?;
    Ok(NewTables { tables, evicted, homeless })
}

/// The end of a group's header.
fn end(geometry: &Geometry, group: Group) -> u64 {
    let header = geometry.group_header(group);
    header.start.0 + u64::from(header.count)
}

/// Lays out the groups behind the old ones.
fn new_groups(before: &OldVolume, after: &Geometry, tables: &mut Vec<Tables>) -> Result<()> {
    let first = tables.len();
    let stride = before.raw.s_raid_stride.get();
    let layout = Layout { geometry: *after, packed: false, stride };
    if first == after.groups as usize {
        return Ok(());
    }
    let begun = layout.pack_of(Group(before.geometry.groups));
    for pack in begun..layout.packs() {
        let groups = layout.groups_of(pack);
        let old = tables.get(groups.start as usize..).unwrap_or_default().to_vec();
        if old.is_empty() {
            tables.extend(layout.pack(pack)?.tables);
        } else {
            let used = used(before, after, groups.start..before.geometry.groups)?;
            let laid = layout.pack_behind(pack, &old, used)?;
            tables.extend(laid.tables.into_iter().skip(old.len()));
        }
    }
    Ok(())
}

/// Finds the used blocks of old groups, with all structures of the volume that lie in them.
fn used(before: &OldVolume, after: &Geometry, groups: Range<u32>) -> Result<Runs> {
    let mut runs = Runs::default();
    let log2 = after.cluster_log2;
    for group in groups.map(Group) {
        let bits = before.bitmap(group)?;
        let (start, limit) = (after.group_start(group).0, before.geometry.group_clusters(group));
        let mut at = 0;
        while let Some((from, to)) = bits.next_run(at, limit, true) {
            runs.insert(start + (u64::from(from) << log2), start + (u64::from(to) << log2));
            at = to;
        }
    }
    Ok(runs)
}

impl NewTables {
    /// All structures; whole clusters.
    pub(super) fn structures(&self, after: &Geometry) -> Runs {
        structures(after, &self.tables)
    }
}
