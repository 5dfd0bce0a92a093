//! Counters of an engine, under the kernel's names (`mb_stats`) where it has one.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, SLOTS, lock, slot};
use crate::timing::Timer;
use ondisk::invariant_or;
use ondisk::units::Group;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Events that are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            /// All counters, in the order of reports.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// Name in reports: the kernel's where it has one.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }
        }
    };
}

counters! {
    /// Requests; a retry after a loaded bitmap counts again.
    Reqs = "reqs",
    /// Requests granted.
    Success = "success",
    /// Groups whose free runs were scanned.
    GroupsScanned = "groups_scanned",
    /// Free runs looked at.
    ExtentsScanned = "extents_scanned",
    /// Grants that begin at the goal.
    GoalHits = "goal_hits",
    /// Streams that found space in their own last group.
    StreamGoalHits = "stream_goal_hits",
    /// Grants of the whole goal length.
    LenGoalHits = "len_goal_hits",
    /// Requests met by a buddy of their power of two.
    TwoPowerHits = "2^n_hits",
    /// Scans given up after `mb_max_to_scan` free runs.
    Breaks = "breaks",
    /// Choices that another thread took first.
    Lost = "lost",
    /// Buddy structures built from a bitmap.
    BuddiesGenerated = "buddies_generated",
    /// Clusters preallocated beyond requests.
    Preallocated = "preallocated",
    /// Preallocated clusters given back unused.
    Discarded = "discarded",
    /// Searches in the run index.
    IndexLookups = "index_lookups",
    /// Bytes of bitmap in which free runs were looked for.
    BitmapBytes = "bitmap_bytes",
    /// Times a lock of the index or of a policy was held by another thread.
    LockWaits = "lock_waits",
    /// Chunks leased.
    Leases = "leases",
    /// Requests met from a lease, a window or a preallocation.
    WindowHits = "window_hits",
    /// Requests that needed a new window.
    WindowMisses = "window_misses",
    /// Grants shorter than wanted although a sufficient free run was known (audited runs only).
    FalseTrims = "false_trims",
    /// Requests that could not go on without a bitmap.
    BitmapsNeeded = "bitmaps_needed",
    /// Bitmaps taken in.
    BitmapsLoaded = "bitmaps_loaded",
    /// Bitmaps taken in before a request needed them.
    BitmapsPrefetched = "bitmaps_prefetched",
    /// Bitmaps dropped because of the bound on memory.
    BitmapsEvicted = "bitmaps_evicted",
    /// Grants that had to wait for bitmaps; all others found what they needed.
    BitmapWaits = "bitmap_waits",
}

/// The kernel's allocation criteria, with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// A free buddy of the power of two that is wanted.
    PowerTwoAligned,
    /// A group whose mean free run is long enough.
    GoalLenFast,
    /// As `GoalLenFast`, for a trimmed length.
    BestAvailLen,
    /// Any group with enough free clusters, scanned one after the other.
    GoalLenSlow,
    /// Whatever is free.
    AnyFree,
}

impl Criterion {
    /// All criteria, from strict to lenient.
    pub const ALL: [Criterion; 5] = [
        Criterion::PowerTwoAligned,
        Criterion::GoalLenFast,
        Criterion::BestAvailLen,
        Criterion::GoalLenSlow,
        Criterion::AnyFree,
    ];

    /// Name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Criterion::PowerTwoAligned => "p2_aligned",
            Criterion::GoalLenFast => "goal_fast",
            Criterion::BestAvailLen => "best_avail",
            Criterion::GoalLenSlow => "goal_slow",
            Criterion::AnyFree => "any_free",
        }
    }
}

/// Counts of one criterion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriterionStats {
    /// Requests it met.
    pub hits: u64,
    /// Groups it looked at.
    pub groups_considered: u64,
    /// Free runs it measured.
    pub extents_scanned: u64,
    /// Times it ended without a group worth scanning.
    pub useless_loops: u64,
}

/// Counters that every thread adds to, each thread in its own slot.
pub(crate) struct Counters {
    slots: Box<[CachePadded<Slot>]>,
    scans: Scans,
    /// Measure the locks of a policy.
    pub(crate) groups: Timer,
    pub(crate) marks: Timer,
    pub(crate) others: Timer,
}

/// Where free runs were looked at, search by search: only while someone wants to know.
#[derive(Default)]
struct Scans {
    are_wanted: AtomicBool,
    kept: Mutex<Vec<(Option<Group>, u64)>>,
}

struct Slot {
    plain: [AtomicU64; Counter::ALL.len()],
    criteria: [[AtomicU64; 4]; Criterion::ALL.len()],
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            plain: std::array::from_fn(|_| AtomicU64::new(0)),
            criteria: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| CachePadded::default()).collect();
        let (groups, marks, others) = Default::default();
        Counters { slots, scans: Scans::default(), groups, marks, others }
    }
}

/// A snapshot of an engine's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    plain: [u64; Counter::ALL.len()],
    criteria: [CriterionStats; Criterion::ALL.len()],
}

impl Stats {
    /// One counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.plain.get(counter as usize).copied().unwrap_or(0)
    }

    /// Counts of one criterion; zero for policies that have none.
    #[must_use]
    pub fn criterion(&self, criterion: Criterion) -> CriterionStats {
        self.criteria.get(criterion as usize).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, counter: Counter, count: u64) {
        *invariant_or!(self.plain.get_mut(counter as usize), return, "each counter has a place") += count;
    }

    /// Every counter with its name, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().map(|counter| (counter.name(), self.get(*counter)))
    }
}

impl Counters {
    fn slot(&self) -> Option<&Slot> {
        self.slots.get(slot()).map(|apart| &apart.0)
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        if count > 0
            && let Some(counter) = self.slot().and_then(|slot| slot.plain.get(counter as usize))
        {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds to several counters.
    pub(crate) fn add_all<const N: usize>(&self, counts: [(Counter, u64); N]) {
        let Some(slot) = self.slot() else { return };
        for (counter, count) in counts {
            if let Some(counter) = slot.plain.get(counter as usize).filter(|_| count > 0) {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Free runs were looked at under the lock of a group; of no group's in particular by a search of the index.
    pub(crate) fn scanned(&self, group: Option<Group>, runs: u64) {
        if self.scans.are_wanted.load(Ordering::Relaxed) && runs > 0 {
            lock(&self.scans.kept, || ()).push((group, runs));
        }
    }

    /// From now on scans are kept.
    pub(crate) fn keep_scans(&self) {
        self.scans.are_wanted.store(true, Ordering::Relaxed);
    }

    /// The scans since the last call, in their order.
    pub(crate) fn take_scans(&self) -> Vec<(Option<Group>, u64)> {
        std::mem::take(&mut *lock(&self.scans.kept, || ()))
    }

    pub(crate) fn add_criterion(&self, criterion: Criterion, counts: CriterionStats) {
        let Some(totals) = self.slot().and_then(|slot| slot.criteria.get(criterion as usize)) else { return };
        let counts = [counts.hits, counts.groups_considered, counts.extents_scanned, counts.useless_loops];
        for (total, count) in totals.iter().zip(counts) {
            if count > 0 {
                total.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Sums over all threads; exact when none is inside the engine.
    pub(crate) fn snapshot(&self) -> Stats {
        let mut stats = Stats::default();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for CachePadded(slot) in &self.slots {
            for (sum, counter) in stats.plain.iter_mut().zip(&slot.plain) {
                *sum += read(counter);
            }
            for (sum, [hits, groups, extents, useless]) in stats.criteria.iter_mut().zip(&slot.criteria) {
                sum.hits += read(hits);
                sum.groups_considered += read(groups);
                sum.extents_scanned += read(extents);
                sum.useless_loops += read(useless);
            }
        }
        stats
    }
}
