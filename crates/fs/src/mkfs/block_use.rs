//! Free space while a volume is being planned: the tables of every group, and the few files.

use std::collections::BTreeMap;

use ondisk::units::Group;

use super::runs::Runs;
use super::shape::invalid;
use super::tables::{Layout, Pack};
use crate::Result;

/// Used blocks. Only packs that were looked at closely are stored; all others follow from the layout.
#[derive(Clone, Debug)]
pub(super) struct BlockUse {
    pub(super) layout: Layout,
    packs: BTreeMap<u32, Pack>,
    taken: u64,
}

impl BlockUse {
    pub(super) fn new(layout: Layout) -> Self {
        BlockUse { layout, packs: BTreeMap::new(), taken: 0 }
    }

    /// Blocks taken by files so far, whole clusters.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// A pack as it stands.
    pub(super) fn pack(&self, pack: u32) -> Result<std::borrow::Cow<'_, Pack>> {
        match self.packs.get(&pack) {
            Some(pack) => Ok(std::borrow::Cow::Borrowed(pack)),
            None => Ok(std::borrow::Cow::Owned(self.layout.pack(pack)?)),
        }
    }

    fn used(&mut self, pack: u32) -> Result<&mut Runs> {
        if !self.packs.contains_key(&pack) {
            self.packs.insert(pack, self.layout.pack(pack)?);
        }
        match self.packs.get_mut(&pack) {
            Some(pack) => Ok(&mut pack.used),
            None => invalid(format!("pack {pack} is behind the end")),
        }
    }

    /// Free blocks of a group.
    pub(super) fn free_in_group(&self, group: Group) -> Result<u64> {
        let span = self.layout.span(&(group.0..group.0 + 1));
        let pack = self.pack(self.layout.pack_of(group))?;
        Ok(span.end - span.start - pack.used.count_within(span.start, span.end))
    }

    /// The first free run at or behind `goal`, from the start again if there is none; at most
    /// `most` blocks.
    fn find(&mut self, goal: u64, most: u64) -> Result<(u64, u64)> {
        let end = self.layout.geometry.blocks;
        let start = u64::from(self.layout.geometry.first_data_block);
        let from = if goal < end { goal.max(start) } else { start };
        match self.find_from(from, end, most)? {
            Some(found) => Ok(found),
            None => match self.find_from(start, from, most)? {
                Some(found) => Ok(found),
                None => invalid("the volume is too small for its own files (root, lost+found, journal ...)"),
            },
        }
    }

    fn find_from(&mut self, mut at: u64, limit: u64, most: u64) -> Result<Option<(u64, u64)>> {
        let log2 = self.layout.geometry.cluster_log2;
        at = at >> log2 << log2;
        let geometry = self.layout.geometry;
        let mut found: Option<(u64, u64)> = None;
        while at < limit {
            let Some(group) = geometry.group_of_block(ondisk::units::Block(at)) else { break };
            let pack = self.layout.pack_of(group);
            let end = self.layout.span(&self.layout.groups_of(pack)).end.min(limit);
            let next = self.used(pack)?.at_or_after(at).filter(|(start, _)| *start < end);
            let free_until = next.map_or(end, |(start, _)| start);
            if free_until > at {
                let start = found.map_or(at, |(start, _)| start);
                found = Some((start, (free_until - start).min(most)));
            }
            // A run may go on in the next pack, but not behind a used block.
            match (found, next) {
                (Some((_, len)), next) if next.is_some() || len == most => break,
                (_, Some((_, used_end))) => at = used_end,
                (_, None) => at = end,
            }
        }
        Ok(found)
    }

    /// The first free run of `count` blocks behind a goal; `None` if there is none before the end.
    pub(super) fn whole_run(&mut self, goal: u64, count: u64) -> Result<Option<u64>> {
        let end = self.layout.geometry.blocks;
        let mut at = goal;
        while let Some((start, len)) = self.find_from(at, end, count)? {
            if len >= count {
                return Ok(Some(start));
            }
            at = start + len;
        }
        Ok(None)
    }

    /// Takes `count` blocks from `goal` on in as few runs as the free space allows, whole clusters
    /// each: the runs that were taken, in order.
    pub(super) fn take(&mut self, goal: u64, count: u64) -> Result<Vec<(u64, u64)>> {
        let log2 = self.layout.geometry.cluster_log2;
        let mut rest = count;
        let mut runs = Vec::new();
        let mut goal = goal;
        while rest > 0 {
            let (start, len) = self.find(goal, rest.div_ceil(1 << log2) << log2)?;
            self.mark(start, start + len)?;
            let here = len.min(rest);
            runs.push((start, here));
            rest -= here;
            goal = start + len;
        }
        Ok(runs)
    }

    fn mark(&mut self, start: u64, end: u64) -> Result<()> {
        self.taken += end - start;
        let mut at = start;
        while at < end {
            let Some(group) = self.layout.geometry.group_of_block(ondisk::units::Block(at)) else { break };
            let pack = self.layout.pack_of(group);
            let stop = self.layout.span(&self.layout.groups_of(pack)).end.min(end);
            self.used(pack)?.insert(at, stop);
            at = stop;
        }
        Ok(())
    }
}
