//! The block engine: asks the policy, verifies, takes.
//!
//! Owns the free space of a volume as the allocator sees it: what is used, what policies have
//! claimed for later, and what is promised to delayed writes. Excludes I/O: where a bitmap is needed
//! the caller learns which, loads it and asks again. Excludes durability: what a grant means on disk,
//! and when a run that is no longer used may be freed here, the caller decides. The engine alone takes
//! what a policy chose (I15).

use crate::bound::{Bound, Holders};
use crate::events::{Event, EventReporter, EventSink};
use crate::index::Scan;
use crate::index::groups::GroupContent;
use crate::index::map::{FreeMap, Need};
use crate::layout::Layout;
use crate::orphaned_grants::OrphanedGrants;
use crate::policy::{self, BlockPolicy, BlockPolicyKind, Choice, Source};
use crate::promise::{FreeAccounting, Promise};
use crate::request::{Contradiction, Denial, Refusal, Request};
use crate::shrink_reservation::ShrinkReservation;
use crate::stats::{Counter, Counters, Stats};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{SLOTS, slot, yield_now};
use crate::timing::{Clock, LockKind, LockTimes};
use crate::view::View;
use ondisk::invariant_or;
use ondisk::units::{Cluster, ClusterRun, Group, bounded, saturated};
use std::ops::Range;
use std::sync::Arc;

/// Races in a row after which a request is refused rather than tried again.
const MAX_LOST: u32 = 10_000;
/// Searches in a row that find nothing although the accounting says that there is something.
const MAX_MISSED: u32 = 1_000;

/// Free space of a volume and the policy that hands it out. All verbs take `&self` and may be
/// called from many threads; single-threaded runs are a function of their calls.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// Handles that grants hold, one for each slot, so that threads do not meet at one count of
    /// references.
    handles: Box<[Arc<Handle>]>,
}

/// A way to what the engine shares, on a cache line of its own.
#[repr(align(128))]
struct Handle(Arc<Shared>);

/// State shared by the engine and its grants. Aligned so that the count of references before it lies
/// on another cache line.
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) map: FreeMap,
    pub(crate) accounting: Arc<FreeAccounting>,
    pub(crate) policy: Box<dyn BlockPolicy>,
    pub(crate) orphaned: OrphanedGrants,
    pub(crate) closing: ShrinkReservation,
    pub(crate) counters: Counters,
    pub(crate) bound: Bound,
    audit: AtomicBool,
    /// True if describing a group changes the free account: not in a successor, until it takes over.
    is_counted: AtomicBool,
    pub(crate) events: EventReporter,
}

impl Engine {
    /// An engine that knows the geometry and nothing of the groups: until each is described, it
    /// counts as full.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] for an impossible geometry.
    pub fn new(layout: Layout, policy: BlockPolicyKind) -> Result<Self, Contradiction> {
        Self::with_policy(layout, policy.make())
    }

    /// An engine with a policy that is not in the registry, or has other tunables.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] for an impossible geometry.
    pub fn with_policy(layout: Layout, policy: Box<dyn BlockPolicy>) -> Result<Self, Contradiction> {
        Self::with_sink(layout, policy, None)
    }

    /// Makes an engine that reports all events to a sink.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] for an impossible geometry.
    pub fn with_sink(
        layout: Layout,
        policy: Box<dyn BlockPolicy>,
        sink: Option<Arc<dyn EventSink>>,
    ) -> Result<Self, Contradiction> {
        let events = EventReporter::new(sink);
        let accounting = Arc::new(FreeAccounting::new(events.clone()));
        Self::with_accounting(layout, policy, accounting, events, true)
    }

    /// An engine for the same volume in another shape, of which no group is described yet. What was promised by this one
    /// is promised by both. What the new one is given to know of groups counts from [`Engine::take_over`] on, and until
    /// then only this one may be used.
    ///
    /// # Errors
    /// [`Contradiction::Layout`] for an impossible geometry.
    pub fn successor(&self, layout: Layout, policy: Box<dyn BlockPolicy>) -> Result<Self, Contradiction> {
        let (accounting, events) = (Arc::clone(&self.shared.accounting), self.shared.events.clone());
        Self::with_accounting(layout, policy, accounting, events, false)
    }

    /// Takes the place of the engine that this one is the successor of, which is not used any more. No grant of it may be
    /// left.
    pub fn take_over(&self, before: &Engine) {
        self.shared.is_counted.store(true, Ordering::Release);
        self.shared.accounting.adjust(before.free_clusters(), self.free_clusters());
    }

    fn with_accounting(
        layout: Layout,
        policy: Box<dyn BlockPolicy>,
        accounting: Arc<FreeAccounting>,
        events: EventReporter,
        is_counted: bool,
    ) -> Result<Self, Contradiction> {
        layout.check()?;
        let shared = Arc::new(Shared {
            map: FreeMap::new(layout),
            accounting,
            policy,
            orphaned: OrphanedGrants::default(),
            closing: ShrinkReservation::default(),
            counters: Counters::default(),
            bound: Bound::default(),
            audit: AtomicBool::new(false),
            is_counted: AtomicBool::new(is_counted),
            events,
        });
        let handles = (0..SLOTS).map(|_| Arc::new(Handle(Arc::clone(&shared)))).collect();
        Ok(Engine { shared, handles })
    }

    fn report(&self, event: impl FnOnce() -> Event) {
        self.shared.events.report(event);
    }

    /// Geometry of the volume.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.shared.map.layout()
    }

    /// States what the descriptor of a group says; to be called once for each group, before
    /// anything in it is used. An untouched group costs no memory beyond its slot.
    ///
    /// # Errors
    /// A group that doesn't exist, a free count above its size, used runs outside it, or (for an
    /// uninitialised group) a free count that disagrees with the used runs; in the last case the
    /// group is out of service and the rest of the volume usable.
    pub fn describe_group(
        &self,
        group: Group,
        free_clusters: u32,
        content: GroupContent<'_>,
    ) -> Result<(), Contradiction> {
        let before = self.shared.map.group_free(group);
        let described = self.shared.map.describe(group, free_clusters, content);
        if self.shared.is_counted.load(Ordering::Acquire) {
            self.shared.accounting.adjust(u64::from(before), u64::from(self.shared.map.group_free(group)));
        }
        let known = matches!(content, GroupContent::Uninitialised { .. });
        self.report(|| match described {
            Ok(()) => Event::Described { group, free: free_clusters, known },
            Err(_) => Event::Broken(group),
        });
        described
    }

    /// Finds and takes a run of clusters that are not promised to anyone.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`]: load that group's bitmap, raise `request.attempt` by one and ask
    /// again. [`Refusal::NoSpace`]: no run of the minimum length is free, or all that is free is
    /// promised.
    pub fn allocate(&self, request: &Request) -> Result<Grant, Refusal> {
        let asked = request.ordered(self.layout().clusters);
        let count = self.shared.accounting.take_up_to(asked.min, asked.want);
        let found = count.ok_or(Refusal::NoSpace).and_then(|count| {
            let found = self.shared.find(&asked.at_most(count));
            let rest = count.checked_sub(found.map_or(0, |run| run.count));
            self.shared.accounting.give(u64::from(invariant_or!(
                rest,
                0,
                "a grant was paid for before it was taken"
            )));
            found
        });
        self.shared.keep_bound();
        self.report(|| answered(asked, found, false));
        found.map(|run| self.grant(run))
    }

    /// Finds and takes a run on account of a promise, which shrinks by its length.
    ///
    /// # Errors
    /// As [`Engine::allocate`]; [`Refusal::NoSpace`] also if less than the minimum is left of the
    /// promise.
    pub fn allocate_promised(&self, promise: &mut Promise, request: &Request) -> Result<Grant, Refusal> {
        let asked = request.ordered(self.layout().clusters);
        let left = saturated::<u32>(promise.count());
        let found =
            if asked.min > left { Err(Refusal::NoSpace) } else { self.shared.find(&asked.at_most(left)) };
        promise.spend(found.map_or(0, |run| run.count));
        self.report(|| answered(asked, found, true));
        found.map(|run| self.grant(run))
    }

    fn grant(&self, run: ClusterRun) -> Grant {
        let handle = self.handles.get(slot()).map(Arc::clone);
        Grant { handle: handle.unwrap_or_else(|| Arc::new(Handle(Arc::clone(&self.shared)))), run }
    }

    /// Promises clusters to a write that is delayed: they can't be granted to anyone else.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`] if fewer are free and not promised yet.
    pub fn promise(&self, count: u64) -> Result<Promise, Refusal> {
        if !self.shared.accounting.take(count) {
            return Err(Refusal::NoSpace);
        }
        self.report(|| Event::Promised(count));
        Ok(Promise::new(&self.shared.accounting, count))
    }

    /// True if requests are to say what the file system knows of their file.
    #[must_use]
    pub fn wants_file(&self) -> bool {
        self.shared.policy.wants_file()
    }

    /// True if the kernel that the policy follows writes files back by folios of many blocks.
    #[must_use]
    pub fn writes_folios(&self) -> bool {
        self.shared.policy.writes_folios()
    }

    /// The last writer of a file is gone: what was set aside for its growth is given up.
    pub fn closed(&self, owner: u64) {
        self.shared.reclaim(policy::Event::Closed(owner));
        self.report(|| Event::Closed(owner));
    }

    /// A file was cut or removed: what was set aside for its growth is given up.
    pub fn truncated(&self, owner: u64) {
        self.shared.reclaim(policy::Event::Truncated(owner));
        self.report(|| Event::Truncated(owner));
    }

    /// Gives up all that policies have set aside, as at unmount.
    pub fn release_claims(&self) {
        self.shared.reclaim(policy::Event::Pressure);
        self.report(|| Event::ClaimsReleased);
    }

    /// Takes exactly this run. If a part of it is set aside for growing files, all that is set
    /// aside is given up.
    ///
    /// # Errors
    /// [`Denial`] if a part is used, promised, outside, or unknown; then nothing was taken.
    pub fn take_exact(&self, run: ClusterRun) -> Result<Grant, Denial> {
        if !self.shared.accounting.take(u64::from(run.count)) {
            return Err(Denial::Mismatch { run, expected: "free" });
        }
        let mut taken = self.shared.map.take(run);
        if matches!(taken, Err(Denial::Mismatch { .. })) && self.shared.reclaim(policy::Event::Pressure) {
            taken = self.shared.map.take(run);
        }
        if let Err(denial) = taken {
            self.shared.accounting.give(u64::from(run.count));
            return Err(denial);
        }
        self.shared.policy.changed(&self.shared.view(), run, true);
        self.report(|| Event::TakenExact(run));
        Ok(self.grant(run))
    }

    /// True if all of a run is in use (or set aside for growing files), so that it can be freed.
    /// False where a group is not loaded; true where it is out of service.
    #[must_use]
    pub fn is_used(&self, run: ClusterRun) -> bool {
        self.shared.map.is_used(run) && self.shared.closing.within(run.start.0, run.end()).is_empty()
    }

    /// Gives a run back that was allocated for good; it can be granted again at once.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`]: load that group, then free again. Otherwise a part of the run was
    /// free already or lies outside the volume. In all cases nothing was freed.
    pub fn free(&self, run: ClusterRun) -> Result<(), Denial> {
        self.shared.free(run)
    }

    /// Gives runs back as [`Engine::free`] does, neighbours joined to the longest, so that policies see what became free
    /// as it is.
    ///
    /// # Errors
    /// The first run that could not be freed; it and those behind it stay in use.
    pub fn free_all(&self, runs: impl IntoIterator<Item = ClusterRun>) -> Result<(), Denial> {
        joined(runs.into_iter().collect()).into_iter().try_for_each(|run| self.free(run))
    }

    /// Runs of grants that were dropped while their bitmap was not in memory: in use until it is loaded again.
    #[must_use]
    pub fn orphaned_grants(&self) -> Vec<ClusterRun> {
        self.shared.orphaned.within(0, u64::MAX)
    }

    /// Free clusters of the volume, exact: unknown groups count with what their descriptors say,
    /// promised clusters and those set aside for growing files as free, those of grants as used.
    #[must_use]
    pub fn free_clusters(&self) -> u64 {
        self.shared.map.free()
    }

    /// Free clusters that are not promised.
    #[must_use]
    pub fn available_clusters(&self) -> u64 {
        self.shared.accounting.available()
    }

    /// Free clusters of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.shared.map.group_free(group)
    }

    /// Writes the group's bitmap into `out`: bit `n` of byte `n / 8` from the lowest up is set for
    /// a used cluster, and all bits past the group's end are set. What is set aside for growing
    /// files shows as free.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`] for a group whose bitmap was never loaded.
    pub fn group_bitmap(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        self.shared.map.render(group, out)?;
        let start = self.layout().group_start(group).0;
        let end = start + u64::from(self.layout().clusters_of(group));
        for claim in self.shared.policy.claims() {
            for cluster in claim.start.0.max(start)..claim.end().min(end) {
                let bit = bounded::<usize>(cluster - start);
                if let Some(byte) = out.get_mut(bit / 8) {
                    *byte &= !(1 << (bit % 8));
                }
            }
        }
        Ok(())
    }

    /// Returns true if the cluster is free; `None` if its group is not loaded (or has nothing free).
    #[must_use]
    pub fn is_free(&self, cluster: Cluster) -> Option<bool> {
        let reach = self.shared.map.reach(cluster, 1);
        if reach.unknown.is_some() { None } else { Some(reach.len > 0) }
    }

    /// The maximal free runs of all known groups, ascending; runs over group edges are one. What
    /// is set aside for growing files is missing.
    pub fn free_runs(&self) -> impl Iterator<Item = ClusterRun> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = self.shared.map.run_from(at)?;
            at = run.end();
            Some(run)
        })
    }

    /// The first run of at least `count` free clusters at a place or behind it, shown up to `most`. What is set aside for
    /// growing files is missing.
    ///
    /// # Errors
    /// The group whose bitmap must be loaded to know.
    pub fn run_from(&self, from: Cluster, count: u32, most: u32) -> Result<Option<ClusterRun>, Group> {
        let map = &self.shared.map;
        let Some(start) = map.next_fit(from, Need::anywhere(count.max(1)), &mut Scan::default())? else {
            return Ok(None);
        };
        let reach = map.reach(start, most);
        match reach.unknown {
            Some(group) if reach.len < most => Err(group),
            _ => Ok(Some(ClusterRun { start, count: reach.len })),
        }
    }

    /// From now on, counts grants which are shorter than wanted although a sufficient run was
    /// known. Costs a search for each short grant.
    pub fn audit(&self) {
        self.shared.audit.store(true, Ordering::Relaxed);
    }

    /// From now on, keeps where free runs are looked at. Costs a lock for each search.
    pub fn keep_scans(&self) {
        self.shared.counters.keep_scans();
    }

    /// Where free runs were looked at since the last call, and how many, search by search: in a group, whose lock the
    /// kernel's allocator holds meanwhile, or in the index of all.
    #[must_use]
    pub fn take_scans(&self) -> Vec<(Option<Group>, u64)> {
        self.shared.counters.take_scans()
    }

    /// From now on, measures how long threads wait for locks, and how long they hold those of groups. Costs two looks at
    /// the clock for each wait and for each lock of a group; without it no clock is read.
    pub fn time_locks(&self, clock: Clock) {
        let Counters { groups, marks, others, .. } = &self.shared.counters;
        for timer in [groups, marks, others, self.shared.map.timer()] {
            timer.start(clock);
        }
    }

    /// Times that locks took since [`Engine::time_locks`].
    #[must_use]
    pub fn lock_times(&self, kind: LockKind) -> LockTimes {
        match kind {
            LockKind::Groups => self.shared.counters.groups.times(),
            LockKind::Marks => self.shared.counters.marks.times(),
            LockKind::Policy => self.shared.counters.others.times(),
            LockKind::Index => self.shared.map.timer().times(),
        }
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.counters.snapshot();
        stats.add(Counter::LockWaits, self.shared.map.waits());
        stats
    }
}

impl Shared {
    pub(crate) fn view(&self) -> View<'_> {
        View { map: &self.map, counters: &self.counters }
    }

    pub(crate) fn holders(&self) -> Holders<'_> {
        Holders { map: &self.map, policy: &*self.policy, counters: &self.counters }
    }

    /// Drops bitmaps if their bound is exceeded.
    pub(crate) fn keep_bound(&self) {
        self.bound.enforce(self.holders());
    }

    /// Frees what dropped grants left among these clusters, as far as the bitmaps are known.
    pub(crate) fn free_orphaned(&self, clusters: Range<u64>) {
        for run in self.orphaned.take(clusters.start, clusters.end) {
            // Any other denial means that someone freed them by address: then they are free already.
            if let Err(Denial::NeedBitmap(_)) = self.free(run) {
                self.orphaned.add(run);
            }
        }
    }

    fn find(&self, request: &Request) -> Result<ClusterRun, Refusal> {
        self.counters.add(Counter::Reqs, 1);
        let found = self.find_and_take(request);
        let needs_bitmap = matches!(found, Err(Refusal::NeedBitmap(_)));
        self.bound.went_on(needs_bitmap);
        self.counters.add(Counter::BitmapsNeeded, u64::from(needs_bitmap));
        self.counters.add(Counter::BitmapWaits, u64::from(found.is_ok() && request.attempt > 0));
        found
    }

    fn find_and_take(&self, request: &Request) -> Result<ClusterRun, Refusal> {
        // The caller holds clusters of the accounting: single ones can be missing only while another
        // thread moves them, from one region to another past this search, or into or out of a
        // claim. Longer runs may not be there; but the claims that a policy wanted back may have been
        // given up by others meanwhile, so that one more look is due.
        let mut missed = if request.min == 1 { 0 } else { MAX_MISSED - 1 };
        for _ in 0..MAX_LOST {
            let choice = match self.policy.choose(&self.view(), request) {
                Err(Refusal::NoSpace) if self.reclaim(policy::Event::Pressure) => continue,
                Err(Refusal::NoSpace) if missed < MAX_MISSED => {
                    missed += 1;
                    yield_now();
                    continue;
                }
                other => other?,
            };
            match self.take(&choice) {
                Ok(()) => return Ok(self.granted(request, &choice)),
                // Dropped since it was chosen, or chosen by what the policy remembers of it.
                Err(Denial::NeedBitmap(group)) => {
                    self.policy.lost(&self.view(), &choice);
                    return Err(Refusal::NeedBitmap(group));
                }
                Err(_) => {
                    self.counters.add(Counter::Lost, 1);
                    self.policy.lost(&self.view(), &choice);
                    self.events.report(|| Event::Lost(choice.run));
                }
            }
        }
        Err(Refusal::NoSpace)
    }

    /// Verifies a choice by taking it.
    fn take(&self, choice: &Choice) -> Result<(), Denial> {
        match choice.source {
            Source::Free => self.map.take(choice.run),
            Source::Claimed => self.count(choice.run),
            Source::FreeWithSurplus(whole) => {
                self.map.take_uncounted(whole)?;
                self.count(choice.run)
            }
        }
    }

    fn count(&self, run: ClusterRun) -> Result<(), Denial> {
        if self.map.count(run, true) { Ok(()) } else { Err(Denial::Outside(run)) }
    }

    fn granted(&self, request: &Request, choice: &Choice) -> ClusterRun {
        let run = choice.run;
        debug_assert!(
            request.min <= run.count && run.count <= request.want && run.end() <= self.map.layout().clusters,
            "a grant is of a wanted length and lies in the volume: {request:?}, {run:?}"
        );
        if let Source::FreeWithSurplus(whole) = choice.source {
            self.events.report(|| Event::Claimed { owner: request.owner, run: whole });
        }
        let given_up = self.policy.taken(&self.view(), request, choice);
        self.give_up(given_up);
        self.counters.add_all([
            (Counter::Success, 1),
            (Counter::GoalHits, u64::from(run.start == request.goal)),
            (Counter::LenGoalHits, u64::from(run.count >= request.want)),
        ]);
        if run.count < request.want {
            let audited = self.audit.load(Ordering::Relaxed);
            let avoidable = audited && self.view().near_fit(request).is_some();
            self.counters.add(Counter::FalseTrims, u64::from(avoidable));
            self.events.report(|| Event::Short { want: request.want, run, avoidable });
        }
        run
    }

    /// Reports an event to the policy; what it gives up goes back to the free space. True if it
    /// gave up anything.
    pub(crate) fn reclaim(&self, event: policy::Event) -> bool {
        self.give_up(self.policy.event(&self.view(), event))
    }

    fn give_up(&self, claims: Vec<ClusterRun>) -> bool {
        let mut given = false;
        for run in claims {
            given |= self.map.give_uncounted(run).is_ok();
            self.policy.changed(&self.view(), run, false);
            self.counters.add(Counter::Discarded, u64::from(run.count));
            self.events.report(|| Event::GivenUp(run));
        }
        given
    }

    /// As [`Shared::free`], but what is freed can be taken by this promise only.
    fn free_into(&self, run: ClusterRun, promise: &mut Promise) -> Result<(), Denial> {
        if !promise.is_of(&self.accounting) {
            return self.free(run);
        }
        self.give(run)?;
        promise.restore(run.count);
        self.events.report(|| Event::Promised(u64::from(run.count)));
        Ok(())
    }

    /// Makes a run free in the map; the caller decides which promise may take it.
    pub(crate) fn give(&self, run: ClusterRun) -> Result<(), Denial> {
        let given = self.map.give(run);
        self.bound.went_on(matches!(given, Err(Denial::NeedBitmap(_))));
        given?;
        self.policy.changed(&self.view(), run, false);
        self.events.report(|| Event::Freed(run));
        Ok(())
    }
}

/// Sorts runs and joins neighbours.
fn joined(mut runs: Vec<ClusterRun>) -> Vec<ClusterRun> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut joined: Vec<ClusterRun> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end() == run.start.0 && last.count.checked_add(run.count).is_some() => {
                last.count += run.count;
            }
            _ => joined.push(run),
        }
    }
    joined
}

/// The event for a request.
fn answered(request: Request, found: Result<ClusterRun, Refusal>, promised: bool) -> Event {
    match found {
        Ok(run) => Event::Allocated { request, run, promised },
        Err(refusal) => Event::Refused { request, refusal },
    }
}

/// Clusters that are taken but not yet anyone's for good: dropping the grant gives them back.
#[must_use = "dropping a grant gives its clusters back"]
pub struct Grant {
    handle: Arc<Handle>,
    run: ClusterRun,
}

impl Grant {
    /// The granted run.
    #[must_use]
    pub fn run(&self) -> ClusterRun {
        self.run
    }

    /// Makes the grant permanent.
    pub fn into_run(mut self) -> ClusterRun {
        let run = self.run;
        self.run.count = 0;
        run
    }

    /// Gives the clusters back to the promise that they were taken from: they are free, and as promised as before.
    pub fn give_back(mut self, promise: &mut Promise) {
        // What can't be freed now is given back as if it were dropped.
        if self.run.count > 0 && self.handle.0.free_into(self.run, promise).is_ok() {
            self.run.count = 0;
        }
    }

    /// Cuts the grant in two: its first `count` clusters (all, if it has fewer) and the rest.
    /// Either may be empty.
    pub fn split(mut self, count: u32) -> (Grant, Grant) {
        let head = count.min(self.run.count);
        let start = Cluster(self.run.start.0 + u64::from(head));
        let run = ClusterRun { start, count: self.run.count - head };
        self.run.count = head;
        let rest = Grant { handle: Arc::clone(&self.handle), run };
        (self, rest)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.run.count > 0 {
            // A bitmap that was dropped meanwhile says used. Another thread loads it, perhaps right after this
            // attempt, so there is a second one.
            let shared = &self.handle.0;
            if let Err(Denial::NeedBitmap(_)) = shared.free(self.run) {
                shared.orphaned.add(self.run);
                shared.free_orphaned(self.run.start.0..self.run.end());
            }
        }
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Grant").field(&self.run).finish()
    }
}
