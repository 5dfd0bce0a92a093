//! Directory policies and their registry. Files go to their directory's group under each of them.

use super::InodeRequest;
use super::map::InodeMap;
use crate::engine::Engine;
use crate::layout::Layout;
use ondisk::units::Group;

/// Decides in which group a new directory's inode is looked for first.
pub trait DirectoryPolicy: Send + Sync {
    /// A group near which an inode is free; `None` if the volume has none.
    fn group_for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Option<Group>;
}

/// Names the directory policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DirectoryPolicyKind {
    /// Ours: the parent's flex group within Orlov's limits; top-level directories spread.
    #[default]
    Near,
}

/// A row of the registry.
pub struct DirectoryPolicyRow {
    /// What the row is for.
    pub kind: DirectoryPolicyKind,
    /// Name in options and reports.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Makes one for an engine.
    pub make: fn() -> Box<dyn DirectoryPolicy>,
}

/// All directory policies.
pub const DIRECTORY_POLICIES: &[DirectoryPolicyRow] = &[DirectoryPolicyRow {
    kind: DirectoryPolicyKind::Near,
    name: "near",
    summary: "the parent's flex group while it has room; top-level directories spread",
    make: || Box::new(Near),
}];

impl DirectoryPolicyKind {
    /// The policy of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        DIRECTORY_POLICIES.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Its name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        DIRECTORY_POLICIES.iter().find(|row| row.kind == self).map_or("", |row| row.name)
    }

    pub(crate) fn make(self) -> Box<dyn DirectoryPolicy> {
        DIRECTORY_POLICIES
            .iter()
            .find(|row| row.kind == self)
            .map_or_else(|| Box::new(Near) as _, |row| (row.make)())
    }
}

/// What a directory policy sees: counters of groups and flex groups.
pub struct InodeView<'a> {
    pub(crate) map: &'a InodeMap,
    pub(crate) space: &'a Engine,
}

/// Counters of a flex group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlexCounts {
    /// Free inodes.
    pub inodes: u64,
    /// Free clusters.
    pub clusters: u64,
    /// Directories.
    pub dirs: u64,
}

impl InodeView<'_> {
    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.space.layout()
    }

    /// Counters of the volume.
    #[must_use]
    pub fn totals(&self) -> FlexCounts {
        FlexCounts { inodes: self.map.free(), clusters: self.space.free_clusters(), dirs: self.map.dirs() }
    }

    /// Counters of one group, as those of a flex group of one.
    #[must_use]
    pub fn group(&self, group: Group) -> FlexCounts {
        FlexCounts {
            inodes: u64::from(self.map.group_free(group)),
            clusters: u64::from(self.space.group_free(group)),
            dirs: u64::from(self.map.group_dirs(group)),
        }
    }

    /// Counters of a flex group.
    #[must_use]
    pub fn flex(&self, flex: u32) -> FlexCounts {
        let groups = self.groups_of(flex).map(|g| self.group(g));
        groups.fold(FlexCounts::default(), |sum, one| FlexCounts {
            inodes: sum.inodes + one.inodes,
            clusters: sum.clusters + one.clusters,
            dirs: sum.dirs + one.dirs,
        })
    }

    fn groups_of(&self, flex: u32) -> impl Iterator<Item = Group> {
        let size = self.layout().groups_per_flex.max(1);
        let first = flex.saturating_mul(size);
        (first..first.saturating_add(size).min(self.layout().groups)).map(Group)
    }

    /// First group of a flex group with a free inode.
    #[must_use]
    pub fn first_in_flex(&self, flex: u32) -> Option<Group> {
        self.groups_of(flex).find(|g| self.map.group_free(*g) > 0)
    }

    /// Group of an inode.
    #[must_use]
    pub fn group_of(&self, index: u32) -> Group {
        self.map.group_of(index)
    }
}

/// `near`, the default. Top-level directories: from a place the name decides, the flex group with
/// the fewest directories among those with at least the mean of free inodes and clusters. Others:
/// from the parent's flex group on, the first within the limits of the Orlov rule as ext4 has them
/// (a quarter of a flex group under the mean, a sixteenth of its inodes over the mean number of
/// directories).
struct Near;

impl DirectoryPolicy for Near {
    fn group_for_directory(&self, view: &InodeView<'_>, request: &InodeRequest) -> Option<Group> {
        let flexes = view.layout().flex_groups();
        let home = view.layout().flex_of(view.group_of(request.parent)).min(flexes.saturating_sub(1));
        let start = if request.top_level { request.name_hash.checked_rem(flexes)? } else { home };
        let order = || (start..flexes).chain(0..start);
        let chosen = if request.top_level { fewest(view, order()) } else { roomy(view, order()) };
        let any = || order().find(|&flex| view.flex(flex).inodes > 0);
        chosen.or_else(any).and_then(|flex| view.first_in_flex(flex))
    }
}

fn fewest(view: &InodeView<'_>, order: impl Iterator<Item = u32>) -> Option<u32> {
    let (flexes, totals) = (u64::from(view.layout().flex_groups()), view.totals());
    let (inodes, clusters) = (totals.inodes / flexes, totals.clusters / flexes);
    let roomy = order.map(|flex| (flex, view.flex(flex)));
    let roomy = roomy.filter(|(_, c)| c.inodes >= inodes.max(1) && c.clusters >= clusters);
    // The first of equals, so that the name decides among empty ones.
    roomy.min_by_key(|(_, counts)| counts.dirs).map(|(flex, _)| flex)
}

fn roomy(view: &InodeView<'_>, mut order: impl Iterator<Item = u32>) -> Option<u32> {
    let layout = view.layout();
    let (flexes, totals) = (u64::from(layout.flex_groups()), view.totals());
    let size = u64::from(layout.groups_per_flex);
    let inodes = u64::from(layout.inodes_per_group) * size;
    let clusters = u64::from(layout.clusters_per_group) * size;
    let max_dirs = (totals.dirs / flexes + inodes / 16).max(1);
    let min_inodes = (totals.inodes / flexes).saturating_sub(inodes / 4).max(1);
    let min_clusters = (totals.clusters / flexes).saturating_sub(clusters / 4);
    order.find(|&flex| {
        let counts = view.flex(flex);
        counts.dirs < max_dirs && counts.inodes >= min_inodes && counts.clusters >= min_clusters
    })
}
