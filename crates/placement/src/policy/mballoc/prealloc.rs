//! Preallocations: windows of files, and pools of small files per CPU.

use crate::request::Request;
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;

/// Preallocations of one size a locality group keeps, and what it is cut to beyond that.
const POOL_LIMIT: usize = 8;
const POOL_KEEP: usize = 5;

/// A window of a file: used clusters of it are marked, the others are claimed.
struct FileWindow {
    start: Cluster,
    len: u32,
    /// Which clusters of the window are still claimed.
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
    pools: BTreeMap<u32, Vec<ClusterRun>>,
}

impl Preallocations {
    /// Clusters of the file's own window at the request's offset, at most as many as wanted.
    pub(super) fn use_window(&mut self, request: &Request) -> Option<ClusterRun> {
        let windows = self.files.get_mut(&request.owner)?;
        let (logical, window) = windows.range_mut(..=request.offset).next_back()?;
        let from = u32::try_from(request.offset - logical).ok().filter(|&from| from < window.len)?;
        let ahead = window.claimed.iter().skip(from as usize).take(request.want as usize);
        let count = u32::try_from(ahead.take_while(|claimed| **claimed).count()).unwrap_or(0);
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

    /// Clusters from a pool of the CPU: of those with room, the nearest to the goal.
    pub(super) fn use_pool(&mut self, cpu: u32, request: &Request) -> Option<ClusterRun> {
        let pool = self.pools.get_mut(&cpu)?;
        let roomy = pool.iter_mut().filter(|run| run.count >= request.want);
        let nearest = roomy.min_by_key(|run| run.start.0.abs_diff(request.goal.0))?;
        let start = nearest.start;
        nearest.start = Cluster(start.0 + u64::from(request.want));
        nearest.count -= request.want;
        pool.retain(|run| run.count > 0);
        Some(ClusterRun { start, count: request.want })
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

    /// Remembers the rest of a pool; returns what is dropped because there are too many.
    pub(super) fn add_pool(&mut self, cpu: u32, rest: ClusterRun) -> Vec<ClusterRun> {
        let pool = self.pools.entry(cpu).or_default();
        pool.push(rest);
        if pool.len() <= POOL_LIMIT {
            return Vec::new();
        }
        pool.drain(..pool.len() - POOL_KEEP).collect()
    }

    /// Start of the first window of the file behind `offset`, which a new one must not cover.
    pub(super) fn next_window(&self, owner: u64, offset: u64) -> Option<u64> {
        self.files.get(&owner)?.range(offset..).next().map(|(logical, _)| *logical)
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
        windows.chain(self.pools.values().flatten().copied()).collect()
    }
}
