//! `spread`: the directory rule of the Berkeley fast file system until 2001.
//!
//! Source: McKusick, Joy, Leffler, Fabry, *A Fast File System for UNIX* (1984), 3.2.2.
//! Rules: a directory goes to the group with the fewest directories among those with at least the
//! mean of free inodes, the first of equals in the order of the volume; whatever its parent. Other
//! inodes go to their directory's group; where it is full, 1, 3, 7, ... groups behind it, then to
//! any from the second behind it on.
//! Deviations: none known.

use super::{DirectoryPolicy, Goal, InodeView, cycle, fewest_dirs};
use crate::inode::InodeRequest;
use crate::inode::view::quadratic;
use ondisk::units::Group;

/// See the module.
pub struct Spread;

impl DirectoryPolicy for Spread {
    fn for_directory(&self, view: &InodeView<'_>, _request: &InodeRequest) -> Goal {
        let groups = view.layout().groups;
        let mut mean = view.totals().mean_of(groups);
        mean.clusters = 0;
        let chosen = fewest_dirs(0..groups, mean, |group| view.group(Group(group)));
        Goal::in_group(Group(chosen.unwrap_or(0)))
    }

    fn elsewhere(&self, view: &InodeView<'_>, _request: &InodeRequest, home: Group) -> Vec<Group> {
        rehash(view, home)
    }
}

/// Where FFS looks when a group is full.
pub(super) fn rehash(view: &InodeView<'_>, home: Group) -> Vec<Group> {
    let groups = view.layout().groups;
    let linear = cycle(home.0.saturating_add(2) % groups.max(1), groups).map(Group);
    quadratic(home.0, groups).chain(linear).collect()
}
