//! Freed runs that wait until the commit which freed them is durable.

use crate::sync::{Mutex, PoisonError};
use ondisk::units::ClusterRun;
use std::collections::BTreeMap;

/// Runs by the number of their commit.
#[derive(Default)]
pub(crate) struct Quarantine {
    commits: Mutex<BTreeMap<u64, Vec<ClusterRun>>>,
}

impl Quarantine {
    pub(crate) fn add(&self, run: ClusterRun, commit: u64) {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.entry(commit).or_default().push(run);
    }

    /// Removes what belongs to commits up to `commit`; neighbours are joined.
    pub(crate) fn take(&self, commit: u64) -> Vec<ClusterRun> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = commit.checked_add(1).map(|next| commits.split_off(&next)).unwrap_or_default();
        let done = std::mem::replace(&mut *commits, kept);
        drop(commits);
        let mut runs: Vec<ClusterRun> = done.into_values().flatten().collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut joined: Vec<ClusterRun> = Vec::new();
        for run in runs {
            match joined.last_mut() {
                Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                    last.count += run.count;
                }
                _ => joined.push(run),
            }
        }
        joined
    }

    /// The runs that touch these clusters, whatever their commit.
    pub(crate) fn within(&self, from: u64, to: u64) -> Vec<ClusterRun> {
        let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = |run: &&ClusterRun| run.start.0 < to && run.end() > from;
        commits.values().flatten().filter(touches).copied().collect()
    }

    pub(crate) fn clusters(&self) -> u64 {
        let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        commits.values().flatten().map(|run| u64::from(run.count)).sum()
    }
}
