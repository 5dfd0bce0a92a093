//! What a policy sees of the free space: searches, no changes.
//!
//! Every search counts the free runs it looked at, under the kernel's name for it.

use crate::index::map::FreeMap;
use crate::layout::Layout;
use crate::request::{Refusal, Request};
use crate::stats::{Counter, Counters, Criterion, CriterionStats};
use ondisk::units::{Cluster, ClusterRun, Group};

/// A read-only view of an engine's free space.
pub struct View<'a> {
    pub(crate) map: &'a FreeMap,
    pub(crate) counters: &'a Counters,
}

impl View<'_> {
    /// Counts what the policy did.
    pub fn note(&self, counter: Counter, count: u64) {
        self.counters.add(counter, count);
    }

    /// Counts what the policy did for one of the kernel's criteria.
    pub fn note_criterion(&self, criterion: Criterion, counts: CriterionStats) {
        self.counters.add_criterion(criterion, counts);
    }

    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.map.layout()
    }

    /// Free clusters of the volume.
    #[must_use]
    pub fn free_clusters(&self) -> u64 {
        self.map.free()
    }

    /// Free clusters of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.map.group_free(group)
    }

    /// The bitmap of a group as searches see it, a set bit being used; `None` if it must be loaded
    /// first.
    #[must_use]
    pub fn group_words(&self, group: Group) -> Option<Vec<u64>> {
        self.map.group_words(group)
    }

    /// Whether a bitmap may still be asked for merely to find something better.
    #[must_use]
    pub fn may_ask(&self, request: &Request) -> bool {
        request.attempt < Request::PATIENCE
    }

    /// Whether the wanted length is free at the goal itself.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`] if the goal's group, or the one the run would go on in, is unknown
    /// and the request still has patience.
    pub fn fits_at_goal(&self, request: &Request) -> Result<bool, Refusal> {
        if request.align > 1 && !request.goal.0.is_multiple_of(u64::from(request.align)) {
            return match self.map.unknown_at(request.goal) {
                Some(group) if self.may_ask(request) => Err(Refusal::NeedBitmap(group)),
                _ => Ok(false),
            };
        }
        let reach = self.map.reach(request.goal, request.want);
        match reach.unknown {
            _ if reach.len >= request.want => Ok(true),
            Some(group) if self.may_ask(request) => Err(Refusal::NeedBitmap(group)),
            _ => Ok(false),
        }
    }

    /// The group of a cluster if its bitmap must be loaded to know whether the cluster is free.
    #[must_use]
    pub fn unknown_at(&self, cluster: Cluster) -> Option<Group> {
        self.map.unknown_at(cluster)
    }

    /// Free clusters from a place on in known groups, at most `limit`.
    #[must_use]
    pub fn reach(&self, from: Cluster, limit: u32) -> u32 {
        self.map.reach(from, limit).len
    }

    /// First place at or after `from` with the wanted number of free clusters; does not wrap.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`] if an unknown group comes first.
    pub fn next_fit(&self, request: &Request, from: Cluster) -> Result<Option<Cluster>, Refusal> {
        let mut scanned = 0;
        let found = self.map.next_fit(from, request.want, request.align, true, &mut scanned);
        self.counters.add(Counter::ExtentsScanned, scanned);
        self.counters.add(Counter::IndexLookups, 1);
        found.map_err(Refusal::NeedBitmap)
    }

    /// Place for the wanted number of clusters in known groups, tightest near the goal. Finds one
    /// if there is one.
    #[must_use]
    pub fn near_fit(&self, request: &Request) -> Option<Cluster> {
        self.near_fit_below(request, u32::MAX)
    }

    /// The same, in a run of less than `below` clusters; not every such run is found if regions
    /// hold longer ones beside it.
    #[must_use]
    pub fn near_fit_below(&self, request: &Request, below: u32) -> Option<Cluster> {
        let mut scanned = 0;
        let found = self.map.near_fit(request.goal, request.want, below, request.align, &mut scanned);
        self.counters.add(Counter::ExtentsScanned, scanned);
        self.counters.add(Counter::IndexLookups, 1);
        found
    }

    /// Length from which on free runs belong to the longest ones that together have at most
    /// `reserve` clusters.
    #[must_use]
    pub fn long_runs(&self, reserve: u64) -> u32 {
        self.map.long_runs(reserve)
    }

    /// A run of the largest class below `below`, which [`View::long_runs`] told, cut at the wanted
    /// length.
    #[must_use]
    pub fn longest_below(&self, request: &Request, below: u32) -> Option<ClusterRun> {
        self.counters.add(Counter::ExtentsScanned, 1);
        self.counters.add(Counter::IndexLookups, 1);
        self.map.longest_below(request.goal, below, request.want)
    }

    /// A run of the largest class in known groups, cut at the wanted length.
    #[must_use]
    pub fn longest(&self, request: &Request) -> Option<ClusterRun> {
        self.counters.add(Counter::ExtentsScanned, 1);
        self.counters.add(Counter::IndexLookups, 1);
        self.map.longest(request.goal, request.want)
    }

    /// Nearest group of unknown bitmap whose free count allows a run of `count`.
    #[must_use]
    pub fn unknown_with(&self, goal: Cluster, count: u32) -> Option<Group> {
        self.map.unknown_with(goal, count)
    }
}
