//! A directory policy's view: counters of groups, flex groups and the volume, and the next free
//! inode of a loaded group. It changes nothing but the count of groups looked at.

use super::map::InodeMap;
use crate::engine::Engine;
use crate::layout::Layout;
use ondisk::units::Group;

/// A read-only view of a volume's inodes and free clusters.
pub struct InodeView<'a> {
    pub(super) map: &'a InodeMap,
    pub(super) space: &'a Engine,
}

/// Counters of a group, a flex group or the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Free inodes.
    pub inodes: u64,
    /// Free clusters.
    pub clusters: u64,
    /// Directories.
    pub dirs: u64,
}

impl Counts {
    /// Divides the counts by a number of groups, rounding down.
    #[must_use]
    pub fn mean_of(self, groups: u32) -> Counts {
        let groups = u64::from(groups.max(1));
        Counts { inodes: self.inodes / groups, clusters: self.clusters / groups, dirs: self.dirs / groups }
    }
}

impl InodeView<'_> {
    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.space.layout()
    }

    /// Counters of the volume.
    #[must_use]
    pub fn totals(&self) -> Counts {
        Counts { inodes: self.map.free(), clusters: self.space.free_clusters(), dirs: self.map.dirs() }
    }

    /// Counters of one group; counts it as looked at.
    #[must_use]
    pub fn group(&self, group: Group) -> Counts {
        self.map.consider();
        Counts {
            inodes: u64::from(self.map.group_free(group)),
            clusters: u64::from(self.space.group_free(group)),
            dirs: u64::from(self.map.group_dirs(group)),
        }
    }

    /// Counters of a flex group; counts each of its groups as looked at.
    #[must_use]
    pub fn flex(&self, flex: u32) -> Counts {
        let groups = self.groups_of(flex).map(|g| self.group(g));
        groups.fold(Counts::default(), |sum, one| Counts {
            inodes: sum.inodes + one.inodes,
            clusters: sum.clusters + one.clusters,
            dirs: sum.dirs + one.dirs,
        })
    }

    /// The groups of a flex group.
    pub fn groups_of(&self, flex: u32) -> impl Iterator<Item = Group> + use<> {
        let size = self.layout().groups_per_flex.max(1);
        let first = flex.saturating_mul(size);
        (first..first.saturating_add(size).min(self.layout().groups)).map(Group)
    }

    /// First group of a flex group with a free inode.
    #[must_use]
    pub fn first_in_flex(&self, flex: u32) -> Option<Group> {
        self.groups_of(flex).find(|g| self.map.group_free(*g) > 0)
    }

    /// Group of an inode, the last one for an index outside the volume.
    #[must_use]
    pub fn group_of(&self, index: u32) -> Group {
        Group(self.map.group_of(index).0.min(self.layout().groups.saturating_sub(1)))
    }

    /// The first free inode of a group at or after a number counted from the group's start;
    /// `None` if there is none, or the group's bitmap is not loaded.
    #[must_use]
    pub fn next_free(&self, group: Group, from: u32) -> Option<u32> {
        self.map.peek(group, from)
    }

    /// The first run of free inodes of a group at or after a number: its first number, and one
    /// past its last. `None` as in [`InodeView::next_free`].
    #[must_use]
    pub fn next_free_run(&self, group: Group, from: u32) -> Option<(u32, u32)> {
        self.map.peek_run(group, from)
    }
}

/// All of `0..count` once, beginning at `start`.
pub(super) fn cycle(start: u32, count: u32) -> impl Iterator<Item = u32> + Clone {
    let start = if start < count { start } else { 0 };
    (start..count).chain(0..start)
}

/// The groups FFS and ext2 probe when the wanted one is full: 1, 3, 7, 15, ... behind it.
pub(super) fn quadratic(start: u32, count: u32) -> impl Iterator<Item = Group> {
    let steps = std::iter::successors(Some(1u32), |step| step.checked_mul(2)).take_while(move |i| *i < count);
    steps.scan(u64::from(start), move |at, step| {
        *at = (*at + u64::from(step)) % u64::from(count.max(1));
        u32::try_from(*at).ok().map(Group)
    })
}
