//! A policy's view of the free space: searches, no changes.
//!
//! Every search counts the free runs it looked at, under the kernel's name for it.

use crate::index::Scan;
use crate::index::map::{FreeMap, Need};
use crate::index::region::{CHUNK, Lengths, NearLimits};
use crate::layout::Layout;
use crate::request::{Refusal, Request};
use crate::stats::{Counter, Counters, Criterion, CriterionStats};
use crate::sync::{self, Mutex, MutexGuard};
use crate::timing::Timed;
use ondisk::units::{Cluster, ClusterRun, Group};

/// A read-only view of an engine's free space.
pub struct View<'a> {
    pub(crate) map: &'a FreeMap,
    pub(crate) counters: &'a Counters,
}

impl View<'_> {
    /// Clusters of an aligned chunk, the unit that is kept whole for large files.
    pub const CHUNK: u32 = CHUNK;

    /// Counts what the policy did.
    pub fn note(&self, counter: Counter, count: u64) {
        self.counters.add(counter, count);
    }

    /// Notes how many free runs were looked at while the lock of a group was held, for [`crate::Engine::take_scans`].
    pub fn note_scan(&self, group: Group, runs: u64) {
        self.counters.scanned(Some(group), runs);
    }

    /// Locks a group of the policy's, to look for free runs.
    pub(crate) fn lock_group<'a, T>(&'a self, mutex: &'a Mutex<T>) -> Timed<'a, T> {
        self.counters.groups.lock(mutex, || self.note(Counter::LockWaits, 1))
    }

    /// Locks a group if no other thread holds it at this moment.
    pub(crate) fn try_lock_group<'a, T>(&'a self, mutex: &'a Mutex<T>) -> Option<Timed<'a, T>> {
        self.counters.groups.try_lock(mutex)
    }

    /// Locks a group of the policy's, to mark a run.
    pub(crate) fn lock_mark<'a, T>(&'a self, mutex: &'a Mutex<T>) -> Timed<'a, T> {
        self.counters.marks.lock(mutex, || self.note(Counter::LockWaits, 1))
    }

    /// Locks something else that the policy remembers.
    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        sync::lock(mutex, || {
            self.note(Counter::LockWaits, 1);
            self.counters.others.waiting()
        })
    }

    fn scanned(&self, scan: Scan) {
        self.counters.scanned(None, scan.runs);
        self.counters.add_all([
            (Counter::IndexLookups, 1),
            (Counter::ExtentsScanned, scan.runs),
            (Counter::BitmapBytes, scan.bytes),
        ]);
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

    /// Free clusters of the volume; what other threads changed last may be missing.
    #[must_use]
    pub fn free_clusters(&self) -> u64 {
        self.map.free_about()
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

    /// True if a bitmap may still be asked for merely to find something better.
    #[must_use]
    pub fn may_ask(&self, request: &Request) -> bool {
        request.attempt < Request::PATIENCE
    }

    /// Returns true if the wanted length is free at the goal itself.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`] if the goal's group, or the one the run would go on in, is unknown
    /// and the request still has patience.
    pub fn fits_at_goal(&self, request: &Request) -> Result<bool, Refusal> {
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

    /// True if a bitmap of the group must be loaded before all of it can be used.
    #[must_use]
    pub fn needs_bitmap(&self, group: Group) -> bool {
        self.map.needs_bitmap(group)
    }

    /// The group of the goal if its bitmap should be loaded before anything is chosen: it is
    /// unknown, the request still has patience, and no loaded neighbour does as well. Neighbours
    /// count only where memory is short, so that each bitmap loaded costs another; then those
    /// within the goal's 4,096 regions (512 GiB at 4 KiB) do, and the nearest is taken, unless a
    /// file continues at the goal.
    #[must_use]
    pub fn worth_loading(&self, request: &Request) -> Option<Group> {
        let group = self.map.unknown_at(request.goal).filter(|_| self.may_ask(request))?;
        let served = self.map.is_short_of_memory()
            && !request.extends
            && self.map.has_near(request.goal, request.want);
        (!served).then_some(group)
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
        self.next(from, Need::anywhere(request.want))
    }

    /// First place at or after `from` that is a completely free byte of a bitmap: eight clusters from
    /// a multiple of eight on; does not wrap.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`] if an unknown group comes first.
    pub fn next_byte(&self, from: Cluster) -> Result<Option<Cluster>, Refusal> {
        self.next(from, Need { count: 8, align: 8 })
    }

    fn next(&self, from: Cluster, need: Need) -> Result<Option<Cluster>, Refusal> {
        let mut scan = Scan::default();
        let found = self.map.next_fit(from, need, &mut scan);
        self.scanned(scan);
        found.map_err(Refusal::NeedBitmap)
    }

    /// Place for the wanted number of clusters in known groups, tightest near the goal. Finds one
    /// if there is one.
    #[must_use]
    pub fn near_fit(&self, request: &Request) -> Option<Cluster> {
        self.near_fit_below(request, u32::MAX)
    }

    /// Finds as [`View::near_fit`] does, in a run of less than `below` clusters; not every such run is found if regions
    /// hold longer ones beside it.
    #[must_use]
    pub fn near_fit_below(&self, request: &Request, below: u32) -> Option<Cluster> {
        let mut scan = Scan::default();
        let found = self.map.near_fit(request.goal, request.want, below, &mut scan);
        self.scanned(scan);
        found
    }

    /// The tightest place in a run of less than `below` clusters at most `within` clusters before or behind the goal, in
    /// known groups.
    #[must_use]
    pub fn tightest_beside(&self, request: &Request, within: u32, below: u32) -> Option<Cluster> {
        let mut scan = Scan::default();
        let found =
            self.map.tightest_beside(request.goal, request.want, NearLimits { within, below }, &mut scan);
        self.scanned(scan);
        found
    }

    /// A place in a run of less than `below` clusters in the region of the goal.
    #[must_use]
    pub fn home_fit(&self, request: &Request, below: u32) -> Option<Cluster> {
        let mut scan = Scan::default();
        let found = self.map.home_fit(request.goal, request.want, below, &mut scan);
        self.scanned(scan);
        found
    }

    /// A place at the ragged end of a run of at least [`View::CHUNK`] and less than `below`
    /// clusters, near the goal. A request under a chunk gets one only where it costs no completely
    /// free chunk; a longer one where it costs the fewest, in a run at most a quarter longer than
    /// itself.
    #[must_use]
    pub fn ragged_fit(&self, request: &Request, below: u32) -> Option<Cluster> {
        let small = request.want < CHUNK;
        let limit = if small { u32::MAX } else { request.want.saturating_add(request.want / 4) };
        let mut scan = Scan::default();
        let found = self.map.sparing_fit(request.goal, request.want, Lengths { below, limit }, &mut scan);
        self.scanned(scan);
        found.filter(|(_, lost)| !small || *lost == 0).map(|(start, _)| start)
    }

    /// Length from which on free runs belong to the longest ones that together have at most
    /// `reserve` clusters.
    #[must_use]
    pub fn long_runs(&self, reserve: u64) -> u32 {
        self.map.long_runs(reserve)
    }

    /// A run of the largest class below `below`, which [`View::long_runs`] gave, cut at the wanted
    /// length.
    #[must_use]
    pub fn longest_below(&self, request: &Request, below: u32) -> Option<ClusterRun> {
        self.counters.scanned(None, 1);
        self.counters.add(Counter::ExtentsScanned, 1);
        self.counters.add(Counter::IndexLookups, 1);
        self.map.longest_below(request.goal, below, request.want)
    }

    /// A run of the largest class in known groups, cut at the wanted length.
    #[must_use]
    pub fn longest(&self, request: &Request) -> Option<ClusterRun> {
        self.counters.scanned(None, 1);
        self.counters.add(Counter::ExtentsScanned, 1);
        self.counters.add(Counter::IndexLookups, 1);
        self.map.longest(request.goal, request.want)
    }

    /// The nearest group of unknown bitmap in which the wanted run may be, if its bitmap may be asked for before
    /// something worse is taken: memory is not short, and the request has patience.
    #[must_use]
    pub fn worth_asking(&self, request: &Request) -> Option<Group> {
        let may = self.may_ask(request) && !self.map.is_short_of_memory();
        may.then(|| self.unknown_with(request.goal, request.want)).flatten()
    }

    /// Nearest group of unknown bitmap whose free count allows a run of `count`.
    #[must_use]
    pub fn unknown_with(&self, goal: Cluster, count: u32) -> Option<Group> {
        self.map.unknown_with(goal, count)
    }
}
