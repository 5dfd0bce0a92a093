//! Directory policies and their registry.
//!
//! A policy says where the search for an inode begins and how it goes on; the engine takes the
//! inode. To write a new one, copy a file of this directory, add a kind to
//! [`DirectoryPolicyKind`] and a row to [`DIRECTORY_POLICIES`]; tests and the lab find it there.

mod dirpref;
mod near;
mod oldalloc;
mod orlov;
mod orlov_debt;
mod spread;

pub use super::view::{Counts, InodeView};
pub use dirpref::Dirpref;
pub use near::Near;
pub use oldalloc::OldAlloc;
pub use orlov::Orlov;
pub use orlov_debt::OrlovDebt;
pub use spread::Spread;

use super::InodeRequest;
use super::view::cycle;
use crate::layout::Layout;
use crate::policy::tunable::{self, SettingError, Settings, Tunable};
use ondisk::units::Group;

/// Decides where the inode of a new file or directory is looked for.
///
/// The engine searches the goal's group from the goal's number on, then the whole group, then the
/// groups of [`DirectoryPolicy::elsewhere`], then all others: an inode is found if one is free,
/// whatever a policy says. What a policy remembers is a hint and lives in memory only.
pub trait DirectoryPolicy: Send + Sync {
    /// Where a new directory's inode is looked for first.
    fn for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal;

    /// Where any other inode is looked for first.
    fn for_file(&self, view: &InodeView<'_>, request: &InodeRequest) -> Goal {
        Goal::in_group(view.group_of(request.parent))
    }

    /// The groups to look at when the goal's group has no free inode, in order: its flex group,
    /// then those behind it. They need not be all.
    fn elsewhere(&self, view: &InodeView<'_>, _request: &InodeRequest, home: Group) -> Vec<Group> {
        let mut order: Vec<Group> = view.groups_of(view.layout().flex_of(home)).collect();
        let start = order.first().map_or(home.0, |group| group.0);
        order.extend(cycle(start, view.layout().groups).map(Group));
        order
    }

    /// An inode was taken for this request.
    fn created(&self, _view: &InodeView<'_>, _request: &InodeRequest, _index: u32) {}

    /// An inode was freed, or was taken and given back.
    fn freed(&self, _view: &InodeView<'_>, _index: u32, _was_directory: bool) {}

    /// Clusters at the start of a group's data that are better left to directories: the goal for
    /// contents of files lies that much behind the goal for directories.
    fn directory_area(&self, _layout: &Layout) -> u32 {
        0
    }

    /// True if blocks of directories come and go as in Linux: a full leaf is divided even where removed names left
    /// enough room in pieces, a block without names stays, and a name in a directory without an index goes to the first
    /// block with room.
    fn keeps_blocks_as_linux(&self) -> bool {
        false
    }
}

/// Where the search for an inode begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The group.
    pub group: Group,
    /// First number to look at, counted from the group's start.
    pub from: u32,
}

impl Goal {
    /// The first free inode of a group.
    #[must_use]
    pub fn in_group(group: Group) -> Self {
        Goal { group, from: 0 }
    }
}

/// Names the directory policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DirectoryPolicyKind {
    /// Ours: the parent's flex group within Orlov's limits; top-level directories spread; numbers
    /// set aside for directories filled side by side.
    #[default]
    Near,
    /// ext4's form of the Orlov rule, in flex groups.
    Orlov,
    /// The form of ext2 and ext3, with a debt for each group.
    OrlovDebt,
    /// The rule of FFS since 2001.
    Dirpref,
    /// The rule of FFS before 2001.
    Spread,
    /// The rule of ext2 before Orlov's.
    OldAlloc,
}

/// A row of the registry.
pub struct DirectoryPolicyRow {
    /// Policy of the row.
    pub kind: DirectoryPolicyKind,
    /// Name in options and reports.
    pub name: &'static str,
    /// Description, in one line.
    pub summary: &'static str,
    /// Parameters of the policy.
    pub tunables: &'static [Tunable],
    /// Makes one for an engine.
    pub make: fn(&Settings) -> Box<dyn DirectoryPolicy>,
}

/// All directory policies.
pub const DIRECTORY_POLICIES: &[DirectoryPolicyRow] = &[
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::Near,
        name: "near",
        summary: "ours: the parent's flex group while it has room, directories' blocks together, leased numbers",
        tunables: near::TUNABLES,
        make: |settings| Box::new(Near::new(settings)),
    },
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::Orlov,
        name: "orlov",
        summary: "ext4: the first flex group from the parent's last one on within limits of room",
        tunables: &[],
        make: |_| Box::new(Orlov::default()),
    },
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::OrlovDebt,
        name: "orlov-debt",
        summary: "ext2, ext3: groups within limits of room and of directories that got no files yet",
        tunables: &[],
        make: |_| Box::new(OrlovDebt::default()),
    },
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::Dirpref,
        name: "dirpref",
        summary: "FFS since 2001: the parent's group, a limit on directories in a row",
        tunables: dirpref::TUNABLES,
        make: |settings| Box::new(Dirpref::new(settings)),
    },
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::Spread,
        name: "spread",
        summary: "FFS before 2001: every directory where the fewest are",
        tunables: &[],
        make: |_| Box::new(Spread),
    },
    DirectoryPolicyRow {
        kind: DirectoryPolicyKind::OldAlloc,
        name: "oldalloc",
        summary: "ext2 before 2.6: every directory where the most blocks are free",
        tunables: &[],
        make: |_| Box::new(OldAlloc),
    },
];

impl DirectoryPolicyKind {
    /// The policy of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        DIRECTORY_POLICIES.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The registry's row of this policy.
    #[must_use]
    pub fn row(self) -> &'static DirectoryPolicyRow {
        // Every kind has a row; the first is that of the default.
        DIRECTORY_POLICIES.iter().find(|row| row.kind == self).unwrap_or(&DIRECTORY_POLICIES[0])
    }

    /// Makes one with default settings.
    #[must_use]
    pub fn make(self) -> Box<dyn DirectoryPolicy> {
        (self.row().make)(&Settings::default())
    }

    /// Makes the policy with these values of its tunables.
    ///
    /// # Errors
    /// [`SettingError`] for the first that is unknown or outside its range.
    pub fn tuned(self, values: &[(&str, u32)]) -> Result<Box<dyn DirectoryPolicy>, SettingError> {
        let row = self.row();
        Ok((row.make)(&tunable::settings(row.name, row.tunables, values)?))
    }
}

/// The candidate with the fewest directories among those with at least `mean` free inodes and
/// clusters; the first of equals.
fn fewest_dirs(
    candidates: impl Iterator<Item = u32>,
    mean: Counts,
    counts: impl Fn(u32) -> Counts,
) -> Option<u32> {
    let known = candidates.map(|at| (at, counts(at)));
    let roomy = known.filter(|(_, c)| c.inodes >= mean.inodes.max(1) && c.clusters >= mean.clusters);
    roomy.min_by_key(|(_, c)| c.dirs).map(|(at, _)| at)
}

/// The fallback of FFS and Orlov: the first group with at least the mean of free inodes, else the
/// first with any.
fn mean_inodes_or_any(view: &InodeView<'_>, start: Group, total: Counts) -> Group {
    let groups = view.layout().groups;
    let order = cycle(start.0, groups).map(Group);
    let mean = total.mean_of(groups).inodes.max(1);
    let least = |bound: u64| order.clone().find(|&group| view.group(group).inodes >= bound);
    least(mean).or_else(|| least(1)).unwrap_or(start)
}

#[cfg(test)]
mod tests;
