//! Room for longer inode tables: files leave a run of each group. The volume's shape stays.
//!
//! Owns: which run each table gets. Excludes: the tables themselves (`tune`), and where files go (`moves`).

use std::sync::Arc;

use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group};
use platfs::mkfs::layout::Runs;
use platfs_device::Device;

use super::old_volume::OldVolume;
use super::shape::Shape;
use super::{Plan, new_tables};
use crate::Result;
use crate::error::refused;

impl Plan {
    /// Plans the same volume with a run of `count` blocks for the inode table of each group, free but for the table that
    /// it has now; gives the first block of each. Tables of flex groups may lie in any group of theirs.
    ///
    /// # Errors
    /// A volume that is not in order; too little room.
    pub(crate) fn with_room(device: Arc<dyn Device>, count: u64) -> Result<(Plan, Vec<Block>)> {
        let before = Arc::new(OldVolume::read(device)?);
        let shape = Shape { raw: before.raw, geometry: before.geometry };
        let mut rooms = Rooms::new(&before, count);
        let found: Vec<Block> =
            (0..before.geometry.groups).map(|group| rooms.find(Group(group))).collect::<Result<_>>()?;
        let Rooms { evicted, chosen, .. } = rooms;
        let mut places = new_tables::plan(&before, &shape.geometry)?;
        // All structures stay where they are.
        places.homeless.clear();
        places.evicted = evicted;
        let mut plan = Plan::with_places(&before, shape, places)?;
        for (start, end) in chosen.within(0, before.geometry.blocks) {
            plan.space.mark(start, end, true)?;
        }
        plan.make_way()?;
        for (start, end) in chosen.within(0, before.geometry.blocks) {
            plan.space.mark(start, end, false)?;
        }
        Ok((plan, found))
    }
}

/// Runs that are found for tables.
struct Rooms<'b> {
    before: &'b OldVolume,
    count: u64,
    structures: Runs,
    /// Chosen runs without the tables that lie in them now.
    chosen: Runs,
    /// Blocks of them that files must leave.
    evicted: Runs,
}

impl<'b> Rooms<'b> {
    fn new(before: &'b OldVolume, count: u64) -> Self {
        let structures = before.structures();
        Rooms { before, count, structures, chosen: Runs::default(), evicted: Runs::default() }
    }

    fn geometry(&self) -> &Geometry {
        &self.before.geometry
    }

    /// The first block of the run for a group's table.
    fn find(&mut self, group: Group) -> Result<Block> {
        let table = self.before.tables(group).inode_table;
        let own = (table, table + u64::from(self.geometry().inode_table_blocks()));
        let first = group.0 >> self.geometry().flex_log2 << self.geometry().flex_log2;
        let end = first.saturating_add(self.geometry().groups_per_flex()).min(self.geometry().groups);
        let mut best: Option<(u64, u64)> = None;
        for group in std::iter::once(group.0).chain(first..end) {
            let found = self.cheapest(Group(group), own)?;
            best = best.into_iter().chain(found).min_by_key(|(cost, _)| *cost);
            if best.is_some_and(|(cost, _)| cost == 0) {
                break;
            }
        }
        let Some((_, start)) = best else {
            return refused(format!(
                "the inode table of group {group} needs {} blocks in one piece, and other tables leave no such run",
                self.count
            ));
        };
        self.choose(start, own);
        Ok(Block(start))
    }

    fn choose(&mut self, start: u64, own: (u64, u64)) {
        for (from, to) in [(start, own.0.min(start + self.count)), (start.max(own.1), start + self.count)] {
            if from < to {
                self.chosen.insert(from, to);
                self.evicted.insert(from, to);
            }
        }
    }

    /// The run of a group that fewest used blocks have to leave: how many, and its first block. A table's own blocks
    /// count as free.
    fn cheapest(&self, group: Group, own: (u64, u64)) -> Result<Option<(u64, u64)>> {
        let geometry = self.geometry();
        let bits = self.before.bitmap(group)?;
        let start = geometry.group_start(group).0;
        let blocks = u64::from(geometry.group_blocks(group));
        let end = start + blocks;
        let taken = |at: u64, runs: &Runs| runs.at_or_after(at).is_some_and(|(from, _)| from <= at);
        let (mut best, mut used, mut begun) = (None, 0, start);
        let is_own = |at: u64| (own.0..own.1).contains(&at);
        let is_used = |at: u64| !is_own(at) && bits.get(ondisk::units::low_u32(at - start));
        for at in start..end {
            if !is_own(at) && (taken(at, &self.structures) || taken(at, &self.chosen)) {
                (used, begun) = (0, at + 1);
                continue;
            }
            used += u64::from(is_used(at));
            if at + 1 - begun > self.count {
                used -= u64::from(is_used(begun));
                begun += 1;
            }
            if at + 1 - begun == self.count && best.is_none_or(|(least, _)| used < least) {
                best = Some((used, begun));
            }
        }
        Ok(best)
    }
}
