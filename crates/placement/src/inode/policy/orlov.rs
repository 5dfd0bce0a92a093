//! `orlov`: the directory rule of ext4, which counts in flex groups.
//!
//! Source: ext4 as of 6.17.
//! Rules:
//! - A top-level directory: from the flex group its name decides, the one with the fewest
//!   directories among those with at least the mean of free inodes and clusters.
//! - Others: the first flex group, from the one where the parent's last inode was allocated on (the
//!   parent's own at first), with fewer directories than the mean plus a sixteenth of its inodes,
//!   at least one free inode, and free inodes and clusters at most a quarter of a flex group under
//!   the mean.
//! - In the flex group, the first group with a free inode.
//! - Fallback of both: the first group from the parent's on with the mean of free inodes, then
//!   with any.
//! - Files: the first group of the parent's flex group with a free inode; else of the one where
//!   the parent's last inode was allocated; else as a directory from the next flex group on.
//!   Without flex groups as in `orlov-debt`.
//!
//! The total of free inodes is read as the kernel reads it on one processor, without changes that the processor has not
//! handed over yet (`percpu_counter`); the mean follows from it.
//!
//! Deviations: the last group of a directory is known for the 256 directories used last, in the
//! kernel while the inode is in memory. Inodes deleted a moment ago are not avoided. The totals of free clusters
//! and of directories are exact; the kernel reads these also without the last changes of a processor.

use super::orlov_debt::other_than_directory;
use super::{Counts, DirectoryPolicy, Goal, InodeView, cycle, fewest_dirs, mean_inodes_or_any};
use crate::inode::InodeRequest;
use crate::inode::recent::Recent;
use crate::sync::{Mutex, PoisonError};
use ondisk::units::Group;

/// See the module.
#[derive(Default)]
pub struct Orlov {
    last_groups: Mutex<Recent<Option<Group>>>,
    /// Inodes freed, less those taken, since the processor handed its changes over.
    unseen: Mutex<i64>,
}

/// Changes that a processor hands over together, on up to 16 of them (`percpu_counter_batch`).
const BATCH: u64 = 32;

impl Orlov {
    fn last_group(&self, directory: u32) -> Option<Group> {
        let last = self.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
        last.peek(directory).copied().flatten()
    }

    fn count(&self, change: i64) {
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        *unseen += change;
        if unseen.unsigned_abs() >= BATCH {
            *unseen = 0;
        }
    }

    /// Counters of the volume as the kernel reads them.
    fn totals(&self, view: &InodeView<'_>) -> Counts {
        let unseen = *self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        let exact = view.totals();
        Counts { inodes: exact.inodes.saturating_add_signed(-unseen), ..exact }
    }

    fn choose_group(&self, view: &InodeView<'_>, request: &InodeRequest, parent: Group) -> Group {
        let layout = view.layout();
        let flexes = layout.flex_groups().max(1);
        let totals = self.totals(view);
        let mean = totals.mean_of(flexes);
        let chosen = if request.top_level && request.is_directory {
            fewest_dirs(cycle(request.seeded_hash % flexes, flexes), mean, |flex| view.flex(flex))
        } else {
            let start = self.last_group(request.parent).unwrap_or(parent);
            in_limits(view, layout.flex_of(start), mean)
        };
        let group = chosen.and_then(|flex| view.first_in_flex(flex));
        group.unwrap_or_else(|| mean_inodes_or_any(view, view.group_of(request.parent), totals))
    }
}

/// The first flex group from `start` on within the limits of the rule; `mean` is of all.
pub(super) fn in_limits(view: &InodeView<'_>, start: u32, mean: Counts) -> Option<u32> {
    let layout = view.layout();
    let flexes = layout.flex_groups();
    let size = u64::from(layout.groups_per_flex);
    let inodes = u64::from(layout.inodes_per_group) * size;
    let clusters = u64::from(layout.clusters_per_group) * size;
    let max_dirs = mean.dirs + inodes / 16;
    let min_inodes = mean.inodes.saturating_sub(inodes / 4).max(1);
    let min_clusters = mean.clusters.saturating_sub(clusters / 4);
    cycle(start, flexes).find(|&flex| {
        let counts = view.flex(flex);
        counts.dirs < max_dirs && counts.inodes >= min_inodes && counts.clusters >= min_clusters
    })
}

impl DirectoryPolicy for Orlov {
    fn for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        Goal::in_group(self.choose_group(view, request, view.group_of(request.parent)))
    }

    fn for_file(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        let layout = view.layout();
        let parent = view.group_of(request.parent);
        if layout.groups_per_flex <= 1 {
            return Goal::in_group(other_than_directory(view, request));
        }
        let own = view.first_in_flex(layout.flex_of(parent));
        let last = || view.first_in_flex(layout.flex_of(self.last_group(request.parent)?));
        let next = || {
            let next = parent.0.saturating_add(layout.groups_per_flex);
            self.choose_group(view, request, Group(if next < layout.groups { next } else { 0 }))
        };
        Goal::in_group(own.or_else(last).unwrap_or_else(next))
    }

    fn keeps_blocks_as_linux(&self) -> bool {
        true
    }

    fn created(&self, view: &InodeView<'_>, request: &InodeRequest, index: u32) {
        let mut last = self.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
        *last.touch(request.parent).0 = Some(view.group_of(index));
        self.count(-1);
    }

    fn freed(&self, _view: &InodeView<'_>, index: u32, was_directory: bool) {
        self.count(1);
        if was_directory {
            self.last_groups.lock().unwrap_or_else(PoisonError::into_inner).remove(index);
        }
    }
}
