//! New places for bitmaps and tables that lie where descriptors will, or behind the new end.
//!
//! Groups of a flex group find them anywhere, others inside of themselves. Where no free run is long enough, files make
//! room. Excludes the copying.

use ondisk::geometry::Geometry;
use ondisk::invariant;
use ondisk::units::{Block, Group};
use platfs::mkfs::layout::{Runs, Tables};

use super::new_tables::NewTables;
use super::old_volume::{OldVolume, parts};
use super::space::Space;
use crate::Result;
use crate::error::refused;

/// A structure that moves: first old block, first new one, count.
pub(super) type Moved = (Block, Block, u64);

/// Structures that stay where they are, or are new; whole clusters.
pub(super) fn staying(places: &NewTables, after: &Geometry) -> Runs {
    let mut runs = Runs::default();
    for (group, tables) in (0..).map(Group).zip(&places.tables) {
        let [header, own @ ..] = parts(after, group, tables);
        runs.insert(header.0, header.0 + header.1);
        for (start, count) in own {
            if !is_homeless(places, start, count) {
                runs.insert(start, start + count);
            }
        }
    }
    runs.rounded_out(after.cluster_log2)
}

/// Blocks of the structures of a group that need a new place.
pub(super) fn homeless_blocks(places: &NewTables, after: &Geometry, group: Group) -> u64 {
    let Some(tables) = places.tables.get(group.0 as usize) else { return 0 };
    let [_, own @ ..] = parts(after, group, tables);
    own.iter().filter(|(start, count)| is_homeless(places, *start, *count)).map(|(_, count)| count).sum()
}

fn is_homeless(places: &NewTables, start: u64, count: u64) -> bool {
    places.evicted.count_within(start, start + count) > 0
}

/// Finds a place for each structure without one. Files in the way of it are evicted.
pub(super) fn find(before: &OldVolume, places: &mut NewTables, space: &mut Space) -> Result<Vec<Moved>> {
    let mut moved = Vec::new();
    let evicted = places.evicted.clone();
    for group in places.homeless.clone() {
        let Some(tables) = places.tables.get(group.0 as usize).copied() else { continue };
        let [_, own @ ..] = parts(space.geometry(), group, &tables);
        let mut new = own;
        for (start, count) in
            new.iter_mut().filter(|(start, count)| evicted.count_within(*start, start + count) > 0)
        {
            let place = match free(space, group, *count)? {
                Some(place) => place,
                None => make_room(before, places, space, group, *count)?,
            };
            space.insert_structure(place, place + *count)?;
            moved.push((Block(*start), Block(place), *count));
            *start = place;
        }
        let [(block_bitmap, _), (inode_bitmap, _), (inode_table, _)] = new;
        *invariant!(places.tables.get_mut(group.0 as usize), "each group has a row of the plan") =
            Tables { block_bitmap, inode_bitmap, inode_table };
    }
    Ok(moved)
}

/// A free run for a structure of a group: in the group, in its flex group, and then anywhere.
fn free(space: &mut Space, group: Group, count: u64) -> Result<Option<u64>> {
    let geometry = *space.geometry();
    let mut groups = vec![group.0];
    if geometry.flex_log2 > 0 {
        let first = group.0 >> geometry.flex_log2 << geometry.flex_log2;
        groups.extend(first..first.saturating_add(geometry.groups_per_flex()).min(geometry.groups));
        groups.extend(0..geometry.groups);
    }
    for group in groups {
        let runs = space.free_runs(Group(group))?;
        if let Some((start, _)) = runs.iter().find(|(start, end)| end - start >= count) {
            return Ok(Some(*start));
        }
    }
    Ok(None)
}

/// The run of a group behind its structures that fewest files have to leave.
fn make_room(
    before: &OldVolume,
    places: &mut NewTables,
    space: &mut Space,
    group: Group,
    count: u64,
) -> Result<u64> {
    let geometry = *space.geometry();
    let start = geometry.group_start(group).0;
    let end = start + u64::from(geometry.group_blocks(group));
    let taken = space.structures().clone();
    let mut best: Option<(u64, u64)> = None;
    let free = space.free_runs(group)?;
    let mut at = start;
    while let Some(place) = taken.find_free(at, end, count) {
        let open: u64 =
            free.iter().map(|(from, to)| (*to).min(place + count).saturating_sub((*from).max(place))).sum();
        if best.is_none_or(|(used, _)| count - open < used) {
            best = Some((count - open, place));
        }
        at = place + u64::from(geometry.blocks_per_cluster().max(8));
    }
    let Some((_, place)) = best else {
        return refused(format!("the descriptors leave no room for the tables of group {group}"));
    };
    let log2 = geometry.cluster_log2;
    if start < before.geometry.blocks {
        places.evicted.insert(place >> log2 << log2, (place + count).div_ceil(1 << log2) << log2);
    }
    Ok(place)
}
