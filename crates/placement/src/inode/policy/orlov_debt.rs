//! `orlov-debt`: the directory rule of ext2 and ext3.
//!
//! Source: the Orlov allocator, which ext2 and ext3 took over from `dirpref` in 2002.
//! Rules:
//! - A top-level directory: from a place its name decides, the group with the fewest directories
//!   among those with at least the mean of free inodes and clusters.
//! - Others: the first group from the parent's on with a free inode whose debt is under the
//!   limit, with fewer directories than the mean plus a sixteenth of the inodes, and free inodes
//!   and clusters at most a quarter of a group under the mean.
//! - Fallback of both: the first group with the mean of free inodes, then with any.
//! - Debt: a byte for each group, +1 for a directory, -1 for any other inode. The limit is the
//!   clusters of a group over those a directory takes on average (at least 256), at most the
//!   inodes of a group over 64, at least 1, at most 255.
//! - Files: the parent's group if it has a free inode and a free cluster; else 1, 3, 7, ... groups
//!   behind the one that parent's group and number decide, on the same terms; else any in order.
//!
//! Deviations: the originals begin at a random group for top-level directories.

use super::dirpref::GroupBytes;
use super::{DirectoryPolicy, Goal, InodeView, cycle, fewest_dirs, mean_inodes_or_any};
use crate::inode::InodeRequest;
use crate::inode::view::quadratic;
use ondisk::units::{Group, bounded};

/// Clusters a directory is expected to bring at least.
const BLOCK_COST: u64 = 256;
/// Inodes a directory is expected to bring at least.
const INODE_COST: u64 = 64;

/// See the module.
#[derive(Default)]
pub struct OrlovDebt {
    debts: GroupBytes,
}

impl OrlovDebt {
    fn max_debt(view: &InodeView<'_>) -> u8 {
        let (layout, totals) = (view.layout(), view.totals());
        let used = layout.clusters.saturating_sub(totals.clusters);
        let per_directory = used.checked_div(totals.dirs).unwrap_or(0).max(BLOCK_COST);
        let by_clusters = u64::from(layout.clusters_per_group) / per_directory;
        let limit = by_clusters.min(u64::from(layout.inodes_per_group) / INODE_COST);
        u8::try_from(limit.clamp(1, 255)).unwrap_or(255)
    }

    fn in_limits(&self, view: &InodeView<'_>, start: u32) -> Option<u32> {
        let layout = view.layout();
        let mean = view.totals().mean_of(layout.groups);
        let inodes = u64::from(layout.inodes_per_group);
        let max_dirs = mean.dirs + inodes / 16;
        let min_inodes = mean.inodes.saturating_sub(inodes / 4).max(1);
        let min_clusters = mean.clusters.saturating_sub(u64::from(layout.clusters_per_group) / 4);
        let max_debt = Self::max_debt(view);
        cycle(start, layout.groups).find(|&group| {
            let counts = view.group(Group(group));
            self.debts.get(Group(group)) < max_debt
                && counts.dirs < max_dirs
                && counts.inodes >= min_inodes
                && counts.clusters >= min_clusters
        })
    }
}

impl DirectoryPolicy for OrlovDebt {
    fn for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        let groups = view.layout().groups.max(1);
        let parent = view.group_of(request.parent);
        let chosen = if request.top_level {
            let mean = view.totals().mean_of(groups);
            let order = cycle(request.name_hash % groups, groups);
            fewest_dirs(order, mean, |group| view.group(Group(group)))
        } else {
            self.in_limits(view, parent.0)
        };
        Goal::in_group(chosen.map_or_else(|| mean_inodes_or_any(view, parent, view.totals()), Group))
    }

    fn for_file(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        Goal::in_group(other_than_directory(view, request))
    }

    fn created(&self, view: &InodeView<'_>, request: &InodeRequest, index: u32) {
        self.debts.step(view.group_of(index), request.is_directory);
    }
}

/// Where a file goes without flex groups.
pub(super) fn other_than_directory(view: &InodeView<'_>, request: &InodeRequest) -> Group {
    let groups = view.layout().groups.max(1);
    let parent = view.group_of(request.parent);
    let roomy = |group: &Group| {
        let counts = view.group(*group);
        counts.inodes > 0 && counts.clusters > 0
    };
    if roomy(&parent) {
        return parent;
    }
    // The kernel's inode numbers count from 1.
    let start = (u64::from(parent.0) + u64::from(request.parent) + 1) % u64::from(groups);
    let start = bounded::<u32>(start);
    let any = || cycle(parent.0, groups).map(Group).find(|group| view.group(*group).inodes > 0);
    quadratic(start, groups).find(roomy).or_else(any).unwrap_or(parent)
}
