//! The block engine: asks the policy, verifies, takes.
//!
//! Owns the free space of a volume as the allocator sees it: what is used, what policies have
//! claimed for later, what is promised to delayed writes, and what was freed but may not be used
//! yet. Excludes I/O: where a bitmap is needed the caller is told which, loads it and asks again.
//! Excludes durability: what a grant means on disk, and when a freed run may be reused, the
//! caller decides.

use crate::index::map::{FreeMap, GroupContent};
use crate::layout::Layout;
use crate::policy::{BlockPolicy, BlockPolicyKind, Choice, Event, Source};
use crate::promise::{Ledger, Promise};
use crate::quarantine::Quarantine;
use crate::request::{Contradiction, Denial, Refusal, Request};
use crate::stats::{Counter, Counters, Stats};
use crate::view::View;
use ondisk::units::{Cluster, ClusterRun, Group};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Races in a row after which a request is refused rather than tried again.
const MAX_LOST: u32 = 10_000;

/// Free space of a volume and the policy that hands it out. All verbs take `&self` and may be
/// called from many threads; single-threaded runs are a function of their calls.
pub struct Engine {
    shared: Arc<Shared>,
}

/// What the engine shares with its grants.
struct Shared {
    map: FreeMap,
    ledger: Arc<Ledger>,
    policy: Box<dyn BlockPolicy>,
    quarantine: Quarantine,
    counters: Counters,
    audit: AtomicBool,
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
        layout.check()?;
        let shared = Shared {
            map: FreeMap::new(layout),
            ledger: Arc::new(Ledger::default()),
            policy,
            quarantine: Quarantine::default(),
            counters: Counters::default(),
            audit: AtomicBool::new(false),
        };
        Ok(Engine { shared: Arc::new(shared) })
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
        self.shared.ledger.adjust(before, self.shared.map.group_free(group));
        described
    }

    /// Takes in a group's bitmap as it stands on disk, bit `n` of byte `n / 8` from the lowest up.
    /// A group that is known already is left alone.
    ///
    /// # Errors
    /// A bitmap too short for the group, or one that disagrees with the described free count; then
    /// the group is out of service and the rest of the volume usable.
    pub fn load_group(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        let before = self.shared.map.group_free(group);
        let loaded = self.shared.map.load(group, bitmap);
        if loaded.is_err() {
            self.shared.ledger.adjust(before, self.shared.map.group_free(group));
        }
        loaded
    }

    /// Finds and takes a run of clusters that are not promised to anyone.
    ///
    /// # Errors
    /// [`Refusal::NeedBitmap`]: load that group's bitmap, raise `request.attempt` by one and ask
    /// again. [`Refusal::NoSpace`]: no run of the minimum length is free, or all that is free is
    /// promised.
    pub fn allocate(&self, request: &Request) -> Result<Grant, Refusal> {
        let request = request.ordered(self.layout().clusters);
        let count = self.shared.ledger.take_up_to(request.min, request.max).ok_or(Refusal::NoSpace)?;
        let request = request.at_most(count);
        let found = self.shared.find(&request);
        let used = found.map_or(0, |run| run.count);
        self.shared.ledger.give(count.saturating_sub(used));
        found.map(|run| self.grant(run))
    }

    /// Finds and takes a run on account of a promise, which shrinks by its length.
    ///
    /// # Errors
    /// As [`Engine::allocate`]; [`Refusal::NoSpace`] also if less than the minimum is left of the
    /// promise.
    pub fn allocate_promised(&self, promise: &mut Promise, request: &Request) -> Result<Grant, Refusal> {
        let request = request.ordered(self.layout().clusters);
        if u64::from(request.min) > promise.count() {
            return Err(Refusal::NoSpace);
        }
        let left = u32::try_from(promise.count()).unwrap_or(u32::MAX);
        let run = self.shared.find(&request.at_most(left))?;
        promise.spend(run.count);
        Ok(self.grant(run))
    }

    fn grant(&self, run: ClusterRun) -> Grant {
        Grant { shared: Arc::clone(&self.shared), run }
    }

    /// Promises clusters to a write that is delayed: they can't be granted to anyone else.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`] if fewer are free and not promised yet. Space that is in quarantine
    /// does not count: make its frees durable, release it and ask again.
    pub fn promise(&self, count: u64) -> Result<Promise, Refusal> {
        self.shared
            .ledger
            .take(count)
            .then(|| Promise::new(&self.shared.ledger, count))
            .ok_or(Refusal::NoSpace)
    }

    /// The last writer of a file is gone: what was set aside for its growth is given up.
    pub fn closed(&self, owner: u64) {
        self.shared.reclaim(Event::Closed(owner));
    }

    /// A file was cut or removed: what was set aside for its growth is given up.
    pub fn truncated(&self, owner: u64) {
        self.shared.reclaim(Event::Truncated(owner));
    }

    /// Gives up all that policies have set aside, as at unmount.
    pub fn settle(&self) {
        self.shared.reclaim(Event::Pressure);
    }

    /// Takes exactly this run. If a part of it is set aside for growing files, all that is set
    /// aside is given up.
    ///
    /// # Errors
    /// [`Denial`] if a part is used, promised, outside, or unknown; then nothing was taken.
    pub fn take_exact(&self, run: ClusterRun) -> Result<Grant, Denial> {
        if !self.shared.ledger.take(u64::from(run.count)) {
            return Err(Denial::Mismatch { run, expected: "free" });
        }
        let mut taken = self.shared.map.take(run);
        if matches!(taken, Err(Denial::Mismatch { .. })) && self.shared.reclaim(Event::Pressure) {
            taken = self.shared.map.take(run);
        }
        if let Err(denial) = taken {
            self.shared.ledger.give(run.count);
            return Err(denial);
        }
        self.shared.policy.changed(&self.shared.view(), run, true);
        Ok(self.grant(run))
    }

    /// Gives a run back that was allocated for good; it can be granted again at once.
    ///
    /// # Errors
    /// [`Denial::NeedBitmap`]: load that group, then free again. Otherwise a part of the run was
    /// free already or lies outside the volume. In all cases nothing was freed.
    pub fn free(&self, run: ClusterRun) -> Result<(), Denial> {
        self.shared.free(run)
    }

    /// Sets a freed run aside until the commit with this number is durable: it stays used here.
    /// Whether it is really used is verified at release.
    pub fn quarantine(&self, run: ClusterRun, commit: u64) {
        self.shared.quarantine.add(run, commit);
    }

    /// Frees all that was set aside for commits up to this one, joined to the longest runs.
    ///
    /// # Errors
    /// The first run that could not be freed (a group not loaded, or a run that was free); it and
    /// the ones behind it stay in quarantine.
    pub fn release(&self, commit: u64) -> Result<(), Denial> {
        let runs = self.shared.quarantine.take(commit);
        for (index, run) in runs.iter().enumerate() {
            if let Err(denial) = self.free(*run) {
                for run in runs.iter().skip(index) {
                    self.shared.quarantine.add(*run, commit);
                }
                return Err(denial);
            }
        }
        Ok(())
    }

    /// Clusters in quarantine: free as soon as their commits are durable.
    #[must_use]
    pub fn quarantined(&self) -> u64 {
        self.shared.quarantine.clusters()
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
        self.shared.ledger.available()
    }

    /// Free clusters of a group.
    #[must_use]
    pub fn group_free(&self, group: Group) -> u32 {
        self.shared.map.group_free(group)
    }

    /// Whether the group's bitmap must be loaded before it can be used.
    #[must_use]
    pub fn needs_bitmap(&self, group: Group) -> bool {
        self.shared.map.unknown_at(self.layout().group_start(group)).is_some()
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
                let bit = usize::try_from(cluster - start).unwrap_or(usize::MAX);
                if let Some(byte) = out.get_mut(bit / 8) {
                    *byte &= !(1 << (bit % 8));
                }
            }
        }
        Ok(())
    }

    /// Whether the cluster is free; `None` if its group is not loaded (or has nothing free).
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

    /// Maximal free runs of one group, counted per region of 32,768 clusters.
    #[must_use]
    pub fn group_fragments(&self, group: Group) -> u32 {
        self.shared.map.fragments(group)
    }

    /// From now on, counts grants which are shorter than wanted although a sufficient run was
    /// known. Costs a search for each short grant.
    pub fn audit(&self) {
        self.shared.audit.store(true, Ordering::Relaxed);
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }
}

impl Shared {
    fn view(&self) -> View<'_> {
        View { map: &self.map, counters: &self.counters }
    }

    fn find(&self, request: &Request) -> Result<ClusterRun, Refusal> {
        self.counters.add(Counter::Reqs, 1);
        for _ in 0..MAX_LOST {
            let choice = match self.policy.choose(&self.view(), request) {
                Err(Refusal::NoSpace) if self.reclaim(Event::Pressure) => continue,
                other => other?,
            };
            if self.take(&choice) {
                return Ok(self.granted(request, &choice));
            }
            self.counters.add(Counter::Lost, 1);
        }
        Err(Refusal::NoSpace)
    }

    /// Verifies a choice by taking it.
    fn take(&self, choice: &Choice) -> bool {
        match choice.source {
            Source::Free => self.map.take(choice.run).is_ok(),
            Source::Claimed => self.map.count(choice.run, true),
            Source::FreeWithSurplus(whole) => {
                self.map.take_uncounted(whole).is_ok() && self.map.count(choice.run, true)
            }
        }
    }

    fn granted(&self, request: &Request, choice: &Choice) -> ClusterRun {
        let run = choice.run;
        let given_up = self.policy.taken(&self.view(), request, choice);
        self.give_up(given_up);
        self.counters.add(Counter::Success, 1);
        self.counters.add(Counter::GoalHits, u64::from(run.start == request.goal));
        self.counters.add(Counter::LenGoalHits, u64::from(run.count >= request.want));
        if run.count < request.want && self.audit.load(Ordering::Relaxed) {
            let missed = self.view().near_fit(request).is_some();
            self.counters.add(Counter::FalseTrims, u64::from(missed));
        }
        run
    }

    /// Tells the policy of an event; what it gives up goes back to the free space. True if it
    /// gave up anything.
    fn reclaim(&self, event: Event) -> bool {
        self.give_up(self.policy.event(&self.view(), event))
    }

    fn give_up(&self, claims: Vec<ClusterRun>) -> bool {
        let mut given = false;
        for run in claims {
            given |= self.map.give_uncounted(run).is_ok();
            self.counters.add(Counter::Discarded, u64::from(run.count));
        }
        given
    }

    fn free(&self, run: ClusterRun) -> Result<(), Denial> {
        self.map.give(run)?;
        self.ledger.give(run.count);
        self.policy.changed(&self.view(), run, false);
        Ok(())
    }
}

/// Clusters that are taken but not yet anyone's for good: dropping the grant gives them back.
#[must_use = "dropping a grant gives its clusters back"]
pub struct Grant {
    shared: Arc<Shared>,
    run: ClusterRun,
}

impl Grant {
    /// The granted run.
    #[must_use]
    pub fn run(&self) -> ClusterRun {
        self.run
    }

    /// Makes the grant permanent.
    pub fn keep(mut self) -> ClusterRun {
        let run = self.run;
        self.run.count = 0;
        run
    }

    /// Cuts the grant in two: its first `count` clusters (all, if it has fewer) and the rest.
    /// Either may be empty.
    pub fn split(mut self, count: u32) -> (Grant, Grant) {
        let head = count.min(self.run.count);
        let start = Cluster(self.run.start.0 + u64::from(head));
        let run = ClusterRun { start, count: self.run.count - head };
        self.run.count = head;
        let rest = Grant { shared: Arc::clone(&self.shared), run };
        (self, rest)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.run.count > 0 {
            // Fails only if someone freed these clusters by address, which they did not own;
            // then they are free, as they should be.
            let _ = self.shared.free(self.run);
        }
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Grant").field(&self.run).finish()
    }
}
