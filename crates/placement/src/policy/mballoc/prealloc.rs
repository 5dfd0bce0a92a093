//! Preallocations: windows of files, and pools of small files per CPU.

use crate::request::Request;
use ondisk::units::{Cluster, ClusterRun, bounded};
use std::collections::BTreeMap;

/// Preallocations of one size a locality group keeps, and what it is cut to beyond that.
const POOL_LIMIT: usize = 8;
const POOL_KEEP: usize = 5;

/// Sizes of pools that are told apart.
const POOL_ORDERS: usize = 10;

/// The number of the pool for a length.
fn order(len: u32) -> usize {
    len.checked_ilog2().map_or(0, |order| (order as usize).min(POOL_ORDERS - 1))
}

/// A window of a file: used clusters of it are marked, the others are claimed.
struct FileWindow {
    start: Cluster,
    len: u32,
    /// True for each cluster of the window that is still claimed.
    claimed: Vec<bool>,
}

impl FileWindow {
    fn runs(&self) -> Vec<ClusterRun> {
        let mut runs: Vec<ClusterRun> = Vec::new();
        for (index, _) in (0u64..).zip(&self.claimed).filter(|(_, claimed)| **claimed) {
            let start = Cluster(self.start.0 + index);
            match runs.last_mut() {
                Some(last) if last.end() == start.0 => last.count += 1,
                _ => runs.push(ClusterRun { start, count: 1 }),
            }
        }
        runs
    }
}

/// All preallocations.
#[derive(Default)]
pub(super) struct Preallocations {
    files: BTreeMap<u64, BTreeMap<u64, FileWindow>>,
    /// Of each CPU, by the order of their length.
    pools: BTreeMap<u32, [Vec<ClusterRun>; POOL_ORDERS]>,
    /// Pools that are given up and not yet reported.
    dropped: Vec<ClusterRun>,
}

impl Preallocations {
    /// Clusters of the file's own window at the request's offset, at most as many as wanted.
    pub(super) fn use_window(&mut self, request: &Request) -> Option<ClusterRun> {
        let windows = self.files.get_mut(&request.owner)?;
        let (logical, window) = windows.range_mut(..=request.offset).next_back()?;
        let from = u32::try_from(request.offset - logical).ok().filter(|&from| from < window.len)?;
        let ahead = window.claimed.iter().skip(from as usize).take(request.want as usize);
        let count = bounded::<u32>(ahead.take_while(|claimed| **claimed).count());
        if count < request.min {
            return None;
        }
        for claimed in window.claimed.iter_mut().skip(from as usize).take(count as usize) {
            *claimed = false;
        }
        let start = Cluster(window.start.0 + u64::from(from));
        if !window.claimed.contains(&true) {
            let logical = *logical;
            windows.remove(&logical);
        }
        Some(ClusterRun { start, count })
    }

    /// Clusters from a pool of the CPU: of those with room, the nearest to the goal (`ext4_mb_use_preallocated`).
    pub(super) fn use_pool(&mut self, cpu: u32, request: &Request, goal: Cluster) -> Option<ClusterRun> {
        let lists = self.pools.get_mut(&cpu)?;
        let least = order(request.want);
        let all = lists.iter().enumerate().skip(least);
        let places = all.flat_map(|(list, runs)| (0..runs.len()).map(move |at| (list, at)));
        let roomy = places.filter_map(|(list, at)| Some((list, at, *lists.get(list)?.get(at)?)));
        let roomy = roomy.filter(|(_, _, run)| run.count >= request.want);
        let (list, at, run) = roomy.min_by_key(|(_, _, run)| run.start.0.abs_diff(goal.0))?;
        lists.get_mut(list)?.remove(at);
        let rest = ClusterRun {
            start: Cluster(run.start.0 + u64::from(request.want)),
            count: run.count - request.want,
        };
        let dropped = self.add_pool(cpu, rest);
        self.dropped.extend(dropped);
        Some(ClusterRun { start: run.start, count: request.want })
    }

    /// Remembers a window of a file of which `used` is in use; returns what another one that began
    /// at the same place still claimed.
    pub(super) fn add_window(
        &mut self,
        owner: u64,
        logical: u64,
        whole: ClusterRun,
        used: ClusterRun,
    ) -> Vec<ClusterRun> {
        let claimed = (whole.start.0..whole.end()).map(|c| c < used.start.0 || c >= used.end()).collect();
        let window = FileWindow { start: whole.start, len: whole.count, claimed };
        let before = self.files.entry(owner).or_default().insert(logical, window);
        before.map(|window| window.runs()).unwrap_or_default()
    }

    /// Remembers the rest of a pool among those of its size, the smaller first; returns what is dropped because there
    /// are too many: the smallest others (`ext4_mb_add_n_trim`).
    pub(super) fn add_pool(&mut self, cpu: u32, rest: ClusterRun) -> Vec<ClusterRun> {
        if rest.count == 0 {
            return Vec::new();
        }
        let lists = self.pools.entry(cpu).or_default();
        let Some(list) = lists.get_mut(order(rest.count)) else { return Vec::new() };
        let others = list.len();
        let excess = if others > POOL_LIMIT { others - POOL_KEEP } else { 0 };
        let dropped = list.drain(..excess).collect();
        let at = list.iter().position(|run| rest.count < run.count).unwrap_or(list.len());
        list.insert(at, rest);
        dropped
    }

    /// Takes the runs that were dropped because there were too many pools.
    pub(super) fn take_dropped(&mut self) -> Vec<ClusterRun> {
        std::mem::take(&mut self.dropped)
    }

    /// Ends and starts, in clusters of the file, of the windows before and behind a place in no window.
    pub(super) fn around(&self, owner: u64, offset: u64) -> (Option<u64>, Option<u64>) {
        let Some(windows) = self.files.get(&owner) else { return (None, None) };
        let before = windows.range(..=offset).next_back();
        let end = before.map(|(logical, window)| logical + u64::from(window.len));
        (end, windows.range(offset + 1..).next().map(|(logical, _)| *logical))
    }

    /// Forgets the windows of a file; returns what they still claimed.
    pub(super) fn drop_file(&mut self, owner: u64) -> Vec<ClusterRun> {
        let windows = self.files.remove(&owner).unwrap_or_default();
        windows.values().flat_map(FileWindow::runs).collect()
    }

    /// Forgets everything; returns what was claimed.
    pub(super) fn drop_all(&mut self) -> Vec<ClusterRun> {
        let all = self.claims();
        *self = Preallocations::default();
        all
    }

    /// All that is claimed.
    pub(super) fn claims(&self) -> Vec<ClusterRun> {
        let windows = self.files.values().flat_map(BTreeMap::values).flat_map(FileWindow::runs);
        let pools = self.pools.values().flatten().flatten();
        windows.chain(pools.chain(&self.dropped).copied()).collect()
    }
}
