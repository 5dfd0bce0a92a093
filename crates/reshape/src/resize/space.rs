//! Clusters in use on the future volume. Groups are looked at one by one, on demand.
//!
//! Owns: bitmaps of groups that change; finding free runs. Excludes who needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Error, Result};
use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group};
use platfs::mkfs::layout::Runs;

use super::bits::Bits;
use super::old_volume::{OldVolume, bits_of, span};

/// Used and free clusters of the new volume.
pub(super) struct Space {
    before: Arc<OldVolume>,
    geometry: Geometry,
    /// Structures as they were and as they will be.
    old: Runs,
    new: Runs,
    groups: BTreeMap<u32, Bits>,
}

impl Space {
    pub(super) fn new(before: Arc<OldVolume>, geometry: Geometry, new: Runs) -> Self {
        let old = before.structures();
        Space { before, geometry, old, new, groups: BTreeMap::new() }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Looks at all groups of the old volume whose bitmaps change by the new shape alone.
    pub(super) fn look_at_changes(&mut self) -> Result<()> {
        let geometry = self.geometry;
        let kept = self.before.geometry.groups.min(geometry.groups);
        let mut changed = vec![kept - 1];
        for (one, other) in [(&self.old, &self.new), (&self.new, &self.old)] {
            let end = geometry.group_start(Group(kept)).0.min(geometry.blocks);
            for (start, end) in one.within(0, end) {
                let mut at = start;
                while at < end {
                    let same = other.at_or_after(at).filter(|(from, _)| *from <= at);
                    if let Some((_, to)) = same {
                        at = to;
                        continue;
                    }
                    let next = other.at_or_after(at).map_or(end, |(from, _)| from).min(end);
                    let group = |block| geometry.group_of_block(Block(block)).map_or(kept, |group| group.0);
                    changed.extend(group(at)..=group(next - 1).min(kept - 1));
                    at = next;
                }
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
            .into_iter()
            .filter(|group| *group < kept)
            .try_for_each(|group| self.group(Group(group)).map(drop))
    }

    /// The bitmap of any group.
    pub(super) fn group(&mut self, group: Group) -> Result<&mut Bits> {
        if !self.groups.contains_key(&group.0) {
            let bits = self.load(group)?;
            self.groups.insert(group.0, bits);
        }
        self.groups
            .get_mut(&group.0)
            .ok_or_else(|| Error::Refused(format!("the volume has no group {group}")))
    }

    fn load(&self, group: Group) -> Result<Bits> {
        let geometry = &self.geometry;
        if group.0 >= self.before.geometry.groups {
            return Ok(bits_of(geometry, group, &self.new));
        }
        let mut bits = self.before.bitmap(group)?;
        let (before, after) = (self.before.geometry.group_clusters(group), geometry.group_clusters(group));
        bits.clear(before, after);
        bits.set(after, bits.len());
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        for (from, to) in self.old.within(start, end) {
            let (from, to) = span(geometry, start, from, to);
            bits.clear(from, to.min(after));
        }
        for (from, to) in self.new.within(start, end) {
            let (from, to) = span(geometry, start, from, to);
            bits.set(from, to);
        }
        Ok(bits)
    }

    /// The bitmap as it is written.
    pub(super) fn finished(&self, group: Group) -> Option<Bits> {
        match self.groups.get(&group.0) {
            Some(bits) => Some(bits.clone()),
            None if group.0 >= self.before.geometry.groups => Some(bits_of(&self.geometry, group, &self.new)),
            None => None,
        }
    }

    /// Marks whole clusters as used or free.
    pub(super) fn mark(&mut self, start: u64, end: u64, used: bool) -> Result<()> {
        let geometry = self.geometry;
        let mut at = start;
        while let Some(group) = geometry.group_of_block(Block(at)).filter(|_| at < end) {
            let first = geometry.group_start(group).0;
            let stop = (first + u64::from(geometry.blocks_per_group)).min(end);
            let (from, to) = span(&geometry, first, at, stop);
            let bits = self.group(group)?;
            if used {
                bits.set(from, to)
            } else {
                bits.clear(from, to)
            }
            at = stop;
        }
        Ok(())
    }

    /// Notes where a structure lies that had no place yet.
    pub(super) fn insert_structure(&mut self, start: u64, end: u64) -> Result<()> {
        let log2 = self.geometry.cluster_log2;
        let (start, end) = (start >> log2 << log2, end.div_ceil(1 << log2) << log2);
        self.new.insert(start, end);
        self.mark(start, end, true)
    }

    /// All structures as they were; whole clusters.
    pub(super) fn structures_before(&self) -> &Runs {
        &self.old
    }

    /// All structures as they will be; whole clusters.
    pub(super) fn structures(&self) -> &Runs {
        &self.new
    }

    /// Free runs of a group, in blocks.
    pub(super) fn free_runs(&mut self, group: Group) -> Result<Vec<(u64, u64)>> {
        let geometry = self.geometry;
        let (start, limit) = (geometry.group_start(group).0, geometry.group_clusters(group));
        let bits = self.group(group)?;
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some((from, to)) = bits.next_run(at, limit, false) {
            let log2 = geometry.cluster_log2;
            runs.push((
                start + (u64::from(from) << log2),
                (start + (u64::from(to) << log2)).min(geometry.blocks),
            ));
            at = to;
        }
        Ok(runs)
    }
}
