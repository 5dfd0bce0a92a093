//! Clusters of grants that were dropped while their bitmap was not in memory.
//!
//! A dropped grant can't ask its owner for a bitmap. Its clusters stay in use here until the bitmap is loaded the next time, and
//! are free then. Owns the list; giving back is the engine's ([`crate::Engine`]).

use crate::sync::{Mutex, PoisonError};
use ondisk::units::ClusterRun;

/// The runs, in no order.
#[derive(Default)]
pub(crate) struct OrphanedGrants(Mutex<Vec<ClusterRun>>);

impl OrphanedGrants {
    pub(crate) fn add(&self, run: ClusterRun) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    /// The runs that touch these clusters.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<ClusterRun> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().filter(|run| touches(run, from, to)).copied().collect()
    }

    /// Takes the runs that touch these clusters out.
    pub(crate) fn take(&self, from: u64, to: u64) -> Vec<ClusterRun> {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, left) = runs.drain(..).partition(|run| touches(run, from, to));
        *runs = left;
        taken
    }
}

fn touches(run: &ClusterRun, from: u64, to: u64) -> bool {
    run.start.0 < to && run.end() > from
}
