//! Space and inodes that committed updates took and gave up since the last sync.

use std::collections::{BTreeMap, HashMap, HashSet};

use ondisk::units::{ClusterRun, Group};

use crate::bits::Bits;

/// Clusters and inodes that committed updates took and freed, and that no bitmap on disk shows yet, in the order of their
/// commits.
#[derive(Default, Debug)]
pub(super) struct PendingSpace {
    work: Work,
    /// Per group: inodes of the table that are in use or lie before one that is. Survives syncs.
    reached: HashMap<u32, u32>,
    /// Clusters on their way out, by updates not yet committed too: end by start. Nothing is freed
    /// twice.
    leaving: BTreeMap<u64, u64>,
    /// Inodes on their way out.
    leaving_inodes: HashSet<u32>,
    /// Clusters and inodes freed by committed updates that can't be used yet.
    unsettled: (u64, u64),
    /// Clusters that committed updates took or freed, while a caller wants to know.
    touched: Option<Bits>,
}

/// Changes that a sync has to bring to bitmaps and counts.
#[derive(Default, Debug)]
pub struct Work {
    /// Clusters allocated.
    pub(super) taken: Vec<ClusterRun>,
    /// Clusters freed; may have been allocated since the last sync.
    pub(super) freed: Vec<ClusterRun>,
    /// Inodes allocated, counted from 0 over the volume, and whether each is a directory.
    pub(super) taken_inodes: Vec<(u32, bool)>,
    /// Inodes freed, likewise.
    pub(super) freed_inodes: Vec<(u32, bool)>,
    /// Directories by which descriptors of groups miscount.
    pub(super) corrections: Vec<(Group, i64)>,
}

impl Work {
    /// Clusters that become free, in the longest runs.
    pub(crate) fn freed_runs(&self) -> Vec<ClusterRun> {
        let mut joined = Vec::new();
        self.freed.iter().for_each(|run| push(&mut joined, *run));
        joined
    }
}

fn push(runs: &mut Vec<ClusterRun>, run: ClusterRun) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
            last.count += run.count;
        }
        _ => runs.push(run),
    }
}

impl PendingSpace {
    pub(super) fn took_blocks(&mut self, run: ClusterRun) {
        self.touch(run);
        push(&mut self.work.taken, run);
    }

    fn touch(&mut self, run: ClusterRun) {
        if let Some(touched) = &mut self.touched {
            (run.start.0..run.end()).for_each(|cluster| touched.add(cluster));
        }
    }

    /// Begins to note which of the volume's clusters are taken or freed; with `None`, ends it.
    pub(super) fn watch(&mut self, clusters: Option<u64>) {
        self.touched = clusters.map(Bits::new);
    }

    /// True if a cluster was taken or freed since that began.
    pub(super) fn was_touched(&self, cluster: u64) -> bool {
        self.touched.as_ref().is_some_and(|touched| touched.has(cluster))
    }

    /// A group's descriptor counts too few directories, by this number.
    pub(super) fn correct(&mut self, group: Group, directories: i64) {
        self.work.corrections.push((group, directories));
    }

    /// Directories by which the next sync changes the count of a group.
    pub(super) fn directories_to_come(&self, group: Group, per_group: u32) -> i64 {
        let of = |inodes: &[(u32, bool)]| {
            let directories = inodes.iter().filter(|(index, is)| *is && index / per_group == group.0);
            i64::try_from(directories.count()).unwrap_or(i64::MAX)
        };
        let corrections = self.work.corrections.iter().filter(|(of, _)| *of == group);
        of(&self.work.taken_inodes) - of(&self.work.freed_inodes)
            + corrections.map(|(_, count)| count).sum::<i64>()
    }

    pub(super) fn took_inode(&mut self, index: u32, directory: bool, inodes_per_group: u32) {
        self.work.taken_inodes.push((index, directory));
        let reached = self.reached.entry(index / inodes_per_group).or_default();
        *reached = (*reached).max(index % inodes_per_group + 1);
    }

    /// Notes that a run is about to be freed; `false`, and nothing noted, if a part of it already is.
    pub(super) fn leave(&mut self, run: ClusterRun) -> bool {
        let before = self.leaving.range(..run.end()).next_back();
        if before.is_some_and(|(_, end)| *end > run.start.0) {
            return false;
        }
        self.leaving.insert(run.start.0, run.end());
        true
    }

    /// The update that was about to free a run was dropped.
    pub(super) fn stay(&mut self, run: ClusterRun) {
        self.leaving.remove(&run.start.0);
    }

    pub(super) fn freed_blocks(&mut self, run: ClusterRun) {
        self.unsettled.0 += u64::from(run.count);
        self.touch(run);
        push(&mut self.work.freed, run);
    }

    /// True if any clusters are on their way out.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// As [`PendingSpace::leave`], for an inode.
    pub(super) fn leave_inode(&mut self, index: u32) -> bool {
        self.leaving_inodes.insert(index)
    }

    /// True if an inode is on its way out.
    pub(super) fn is_leaving_inode(&self, index: u32) -> bool {
        self.leaving_inodes.contains(&index)
    }

    pub(super) fn stay_inode(&mut self, index: u32) {
        self.leaving_inodes.remove(&index);
    }

    pub(super) fn freed_inode(&mut self, index: u32, directory: bool) {
        self.unsettled.1 += 1;
        self.work.freed_inodes.push((index, directory));
    }

    /// Clusters and inodes that were freed and can't be used before a sync, one under way included.
    pub(super) fn unsettled(&self) -> (u64, u64) {
        self.unsettled
    }

    /// How far a group's table has been reached since the volume was opened; 0 if not at all.
    pub(super) fn reached(&self, group: Group) -> u32 {
        self.reached.get(&group.0).copied().unwrap_or(0)
    }

    /// The groups from this one on are gone. What comes there next has tables that were never reached.
    pub(super) fn forget_groups(&mut self, first: u32) {
        self.reached.retain(|group, _| *group < first);
    }

    /// Hands over the work, sorted.
    pub(super) fn take(&mut self) -> Work {
        let mut work = std::mem::take(&mut self.work);
        work.taken.sort_unstable_by_key(|run| run.start);
        work.freed.sort_unstable_by_key(|run| run.start);
        work.taken_inodes.sort_unstable();
        work.freed_inodes.sort_unstable();
        work
    }

    /// True if there is anything for the next sync.
    pub(super) fn has_work(&self) -> bool {
        let Work { taken, freed, taken_inodes, freed_inodes, corrections } = &self.work;
        let has_inodes = !taken_inodes.is_empty() || !freed_inodes.is_empty() || !corrections.is_empty();
        has_inodes || !taken.is_empty() || !freed.is_empty()
    }

    /// Work of the next sync, as it is now.
    pub(super) fn work(&self) -> &Work {
        &self.work
    }

    /// The freed space of a sync is free on disk too.
    pub(super) fn settled(&mut self, work: &Work) {
        let clusters: u64 = work.freed.iter().map(|run| u64::from(run.count)).sum();
        self.unsettled.0 -= clusters;
        self.unsettled.1 -= work.freed_inodes.len() as u64;
        for run in &work.freed {
            let parts: Vec<u64> =
                self.leaving.range(run.start.0..run.end()).map(|(start, _)| *start).collect();
            for start in parts {
                self.leaving.remove(&start);
            }
        }
        for (index, _) in &work.freed_inodes {
            self.leaving_inodes.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use ondisk::units::Cluster;

    use super::*;

    fn run(start: u64, count: u32) -> ClusterRun {
        ClusterRun { start: Cluster(start), count }
    }

    #[test]
    fn tables_of_groups_that_went_are_forgotten() {
        let mut pending = PendingSpace::default();
        pending.took_inode(3 * 16 + 5, false, 16);
        pending.took_inode(4 * 16 + 1, false, 16);
        pending.forget_groups(4);
        assert_eq!([3, 4].map(|group| pending.reached(Group(group))), [6, 0]);
    }

    #[test]
    fn nothing_leaves_twice_until_it_has_settled() {
        let mut pending = PendingSpace::default();
        assert!(pending.leave(run(10, 5)));
        assert!(!pending.leave(run(14, 1)) && !pending.leave(run(5, 6)) && !pending.leave(run(12, 1)));
        assert!(pending.leave(run(15, 5)) && pending.leave(run(5, 5)));
        pending.stay(run(15, 5));
        assert!(pending.leave(run(15, 1)));
        pending.freed_blocks(run(10, 5));
        pending.freed_blocks(run(5, 5));
        let work = pending.take();
        pending.settled(&work);
        assert!(pending.leave(run(5, 10)) && !pending.leave(run(15, 1)));
    }
}
