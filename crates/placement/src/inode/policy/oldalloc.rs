//! `oldalloc`: the directory rule of ext2 until Linux 2.6, later behind the mount option of this name.
//!
//! Source: the description of ext2's options, and Card, Ts'o, Tweedie, *Design and Implementation of the Second
//! Extended Filesystem* (1994).
//! Rules: a directory goes to the group with the most free blocks among those with at least the mean of free inodes,
//! the first of equals in the order of the volume; whatever its parent. Other inodes go to their directory's group;
//! where it is full, 1, 3, 7, ... groups behind it, then to any.
//! Deviations: the probes begin at the parent's group, not at a place that the directory's number decides.

use super::spread::rehash;
use super::{DirectoryPolicy, Goal, InodeView};
use crate::inode::InodeRequest;
use ondisk::units::Group;

/// See the module.
pub struct OldAlloc;

impl DirectoryPolicy for OldAlloc {
    fn for_directory(&self, view: &InodeView<'_>, _request: &InodeRequest) -> Goal {
        let groups = view.layout().groups;
        let mean = view.totals().mean_of(groups).inodes.max(1);
        let known = (0..groups).map(|group| (group, view.group(Group(group))));
        let roomy = known.filter(|(_, counts)| counts.inodes >= mean);
        // Of equals the last is the greatest: the order is turned round for the first.
        let most = roomy.max_by_key(|&(group, counts)| (counts.clusters, std::cmp::Reverse(group)));
        Goal::in_group(Group(most.map_or(0, |(group, _)| group)))
    }

    fn elsewhere(&self, view: &InodeView<'_>, _request: &InodeRequest, home: Group) -> Vec<Group> {
        rehash(view, home)
    }
}
