//! Clusters behind the end of a volume that is to become smaller, which nobody uses and nobody gets.
//!
//! Owns: the place from which on that is so, and the clusters: taken when the end was closed, and freed since. For the map,
//! and so for every policy, they are in use. They are kept here, so that a bitmap that is dropped and loaded again does not
//! bring them back. Excludes: taking and giving them back (`closing`).

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use ondisk::units::{Cluster, ClusterRun};
use std::collections::BTreeMap;

/// A place behind which nothing is given out, and the unused clusters there: runs by their start.
pub(crate) struct ShrinkReservation {
    from: AtomicU64,
    runs: Mutex<BTreeMap<u64, u32>>,
}

impl Default for ShrinkReservation {
    fn default() -> Self {
        ShrinkReservation { from: AtomicU64::new(u64::MAX), runs: Mutex::default() }
    }
}

impl ShrinkReservation {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts a run at the place: the part before it, and the part from it on. Either may be empty.
    pub(crate) fn cut(&self, run: ClusterRun) -> (ClusterRun, ClusterRun) {
        let from = self.from.load(Ordering::Acquire);
        let before = u32::try_from(from.saturating_sub(run.start.0)).map_or(run.count, |n| n.min(run.count));
        let start = Cluster(run.start.0 + u64::from(before));
        (ClusterRun { count: before, ..run }, ClusterRun { start, count: run.count - before })
    }

    /// The unused runs that touch these clusters.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<ClusterRun> {
        if to <= self.from.load(Ordering::Acquire) {
            return Vec::new();
        }
        let runs = self.lock();
        let runs =
            runs.range(..to).rev().map(|(start, count)| ClusterRun { start: Cluster(*start), count: *count });
        runs.take_while(|run| run.end() > from).collect()
    }

    /// Keeps clusters that were in use until now.
    pub(crate) fn insert(&self, run: ClusterRun) {
        debug_assert!(self.within(run.start.0, run.end()).is_empty(), "a cluster is reserved once: {run:?}");
        self.lock().insert(run.start.0, run.count);
    }

    /// Closes everything from a place on, or nothing.
    pub(crate) fn set(&self, from: Option<Cluster>) {
        self.from.store(from.map_or(u64::MAX, |from| from.0), Ordering::Release);
    }

    /// All that is kept, which is not kept any more.
    pub(crate) fn drain(&self) -> Vec<ClusterRun> {
        let runs = std::mem::take(&mut *self.lock());
        runs.into_iter().map(|(start, count)| ClusterRun { start: Cluster(start), count }).collect()
    }

    /// Clusters that are kept; `None` where nothing is closed.
    pub(crate) fn count(&self) -> Option<u64> {
        let is_closed = self.from.load(Ordering::Acquire) != u64::MAX;
        is_closed.then(|| self.lock().values().map(|count| u64::from(*count)).sum())
    }
}
