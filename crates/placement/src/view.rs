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
        let mut scanned = 0;
        let found = self.map.near_fit(request.goal, request.want, request.align, &mut scanned);
        self.counters.add(Counter::ExtentsScanned, scanned);
        self.counters.add(Counter::IndexLookups, 1);
        found
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
