//! Counters of an engine, under the kernel's names (`mb_stats`) where it has one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that every thread adds to.
#[derive(Default)]
pub(crate) struct Counters {
    reqs: AtomicU64,
    success: AtomicU64,
    extents_scanned: AtomicU64,
    len_goal_hits: AtomicU64,
    goal_hits: AtomicU64,
    lost: AtomicU64,
}

/// A snapshot of an engine's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests, each retry after a loaded bitmap counted again.
    pub reqs: u64,
    /// Requests granted.
    pub success: u64,
    /// Free runs looked at.
    pub extents_scanned: u64,
    /// Grants of at least the wanted length.
    pub len_goal_hits: u64,
    /// Grants that begin at the goal.
    pub goal_hits: u64,
    /// Choices that another thread took first.
    pub lost: u64,
}

impl Counters {
    pub(crate) fn scanned(&self, runs: u64) {
        if runs > 0 {
            self.extents_scanned.fetch_add(runs, Ordering::Relaxed);
        }
    }

    pub(crate) fn request(&self) {
        self.reqs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn granted(&self, at_goal: bool, whole: bool) {
        self.success.fetch_add(1, Ordering::Relaxed);
        self.goal_hits.fetch_add(u64::from(at_goal), Ordering::Relaxed);
        self.len_goal_hits.fetch_add(u64::from(whole), Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            reqs: read(&self.reqs),
            success: read(&self.success),
            extents_scanned: read(&self.extents_scanned),
            len_goal_hits: read(&self.len_goal_hits),
            goal_hits: read(&self.goal_hits),
            lost: read(&self.lost),
        }
    }
}
