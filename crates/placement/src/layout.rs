//! Geometry of the cluster space as placement sees it: groups, and the regions they are cut into.
//!
//! Owns: the arithmetic between clusters, regions and groups. Excludes: where metadata lies (the
//! caller describes that as used runs) and bytes, but for the size of a cluster.

use crate::request::Contradiction;
use ondisk::units::{Cluster, Group, saturated};

/// Clusters of a full region: 4 KiB of bitmap, independent of the block size.
pub(crate) const REGION: u32 = 32_768;

/// Shape of a volume: a linear space of clusters in which group `g` owns the clusters from
/// `g * clusters_per_group` on, the last group what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Clusters of the volume.
    pub clusters: u64,
    /// Clusters of every group but the last.
    pub clusters_per_group: u32,
    /// Block groups.
    pub groups: u32,
    /// Inodes of every group.
    pub inodes_per_group: u32,
    /// Groups of a flex group; 1 without `flex_bg`.
    pub groups_per_flex: u32,
    /// Bytes of a block: rules that published policies count in bytes need it.
    pub block_bytes: u32,
    /// Blocks of a cluster; 1 without `bigalloc`.
    pub blocks_per_cluster: u32,
}

impl Layout {
    /// Checks that groups cover the clusters exactly and that no size is zero.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] with the rule that is broken.
    pub fn check(&self) -> Result<(), Contradiction> {
        let sizes =
            [self.clusters_per_group, self.groups_per_flex, self.block_bytes, self.blocks_per_cluster];
        if self.clusters == 0 || sizes.contains(&0) {
            return Err(Contradiction::Layout("a size of zero"));
        }
        if self.clusters.div_ceil(u64::from(self.clusters_per_group)) != u64::from(self.groups) {
            return Err(Contradiction::Layout("the number of groups does not fit the number of clusters"));
        }
        let regions = u64::from(self.groups) * u64::from(self.regions_per_group());
        if regions >= u64::from(u32::MAX) {
            return Err(Contradiction::Layout("more than 2^32 regions of 32,768 clusters"));
        }
        Ok(())
    }

    /// Bytes of a cluster.
    #[must_use]
    pub fn cluster_bytes(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.blocks_per_cluster)
    }

    /// Clusters of `group`; zero past the last group.
    #[must_use]
    pub fn clusters_of(&self, group: Group) -> u32 {
        let start = self.group_start(group).0;
        let left = self.clusters.saturating_sub(start).min(u64::from(self.clusters_per_group));
        u32::try_from(left).unwrap_or(self.clusters_per_group)
    }

    /// First cluster of `group`.
    #[must_use]
    pub fn group_start(&self, group: Group) -> Cluster {
        Cluster(u64::from(group.0) * u64::from(self.clusters_per_group))
    }

    /// Group that owns `cluster`.
    #[must_use]
    pub fn group_of(&self, cluster: Cluster) -> Group {
        let group = cluster.0 / u64::from(self.clusters_per_group.max(1));
        Group(saturated::<u32>(group))
    }

    /// Flex groups of the volume.
    #[must_use]
    pub fn flex_groups(&self) -> u32 {
        self.groups.div_ceil(self.groups_per_flex.max(1))
    }

    /// Flex group of `group`.
    #[must_use]
    pub fn flex_of(&self, group: Group) -> u32 {
        group.0 / self.groups_per_flex.max(1)
    }

    pub(crate) fn regions_per_group(&self) -> u32 {
        self.clusters_per_group.div_ceil(REGION)
    }

    pub(crate) fn regions(&self) -> u32 {
        self.groups.saturating_mul(self.regions_per_group())
    }
}

/// The arithmetic of regions, with what would otherwise be divided out again for each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    layout: Layout,
    /// Groups are whole regions: then region `n` begins at cluster `n * 32,768`, whatever the
    /// groups.
    whole: bool,
    per_group: u32,
    regions: u32,
}

impl Grid {
    pub(crate) fn new(layout: Layout) -> Self {
        let whole = layout.clusters_per_group.is_multiple_of(REGION);
        Grid { layout, whole, per_group: layout.regions_per_group(), regions: layout.regions() }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn regions(&self) -> u32 {
        self.regions
    }

    pub(crate) fn group_of_region(&self, region: u32) -> Group {
        Group(if self.per_group == 1 { region } else { region / self.per_group })
    }

    /// The regions of a group.
    pub(crate) fn regions_of(&self, group: Group) -> std::ops::Range<u32> {
        let first = group.0.saturating_mul(self.per_group);
        first..first.saturating_add(self.per_group).min(self.regions)
    }

    pub(crate) fn first_region(&self, group: Group) -> u32 {
        group.0.saturating_mul(self.per_group)
    }

    /// Offset of `region` inside its group.
    pub(crate) fn offset(&self, region: u32) -> u32 {
        if self.per_group == 1 { 0 } else { region % self.per_group * REGION }
    }

    /// Clusters of `region`. One past the end of a short last group has none.
    pub(crate) fn len(&self, region: u32) -> u32 {
        if self.whole {
            let left = self.layout.clusters.saturating_sub(u64::from(region) * u64::from(REGION));
            return u32::try_from(left.min(u64::from(REGION))).unwrap_or(REGION);
        }
        let group = self.layout.clusters_of(self.group_of_region(region));
        group.saturating_sub(self.offset(region)).min(REGION)
    }

    /// First cluster of `region`.
    pub(crate) fn start(&self, region: u32) -> u64 {
        if self.whole {
            return u64::from(region) * u64::from(REGION);
        }
        self.layout.group_start(self.group_of_region(region)).0 + u64::from(self.offset(region))
    }

    /// Region and offset inside it of `cluster`; `None` outside the volume.
    pub(crate) fn locate(&self, cluster: Cluster) -> Option<(u32, u32)> {
        if cluster.0 >= self.layout.clusters {
            return None;
        }
        if self.whole {
            let region = u32::try_from(cluster.0 / u64::from(REGION)).ok()?;
            return Some((region, u32::try_from(cluster.0 % u64::from(REGION)).ok()?));
        }
        let group = self.layout.group_of(cluster);
        let inside = u32::try_from(cluster.0 - self.layout.group_start(group).0).ok()?;
        Some((self.first_region(group) + inside / REGION, inside % REGION))
    }

    /// Length of the shortest region that can lie in the middle of a run.
    pub(crate) fn shortest_inner_region(&self) -> u32 {
        match self.layout.clusters_per_group % REGION {
            0 => REGION,
            rest => rest,
        }
    }
}
