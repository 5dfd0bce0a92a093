//! Where regions are kept: four bytes of state for each, bitmaps and summaries for those that need
//! them, and the locks.
//!
//! A lock guards a stripe: the regions whose numbers agree modulo the number of stripes. A volume
//! of up to [`STRIPES`] regions (32 GiB at 4 KiB) thus has a lock for each region; in larger ones
//! regions that share a lock lie far apart. A thread that holds one stripe takes no other; one that needs
//! all regions of a group takes their stripes in ascending order and no further one.

use super::region::{RunMap, Span};
use super::sparse::{Sparse, bytes_of};
use super::state::{Look, State};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Mutex, MutexGuard};
use crate::timing::Timer;
use std::ops::Range;

/// Locks of a large volume.
const STRIPES: u32 = 256;

/// State and edges of 64 regions.
struct Leaf {
    /// Packed [`State`]s, changed under the region's lock only.
    states: [AtomicU32; 64],
    /// Suffix of the region in the high half, prefix of the next in the low half.
    edges: [AtomicU32; 64],
}

impl Default for Leaf {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU32::new(0));
        Leaf { states: zeros(), edges: zeros() }
    }
}

/// A region with its bitmap.
pub(super) struct Warm {
    pub(super) map: RunMap,
    pub(super) region: u32,
    /// When it was last looked at, in bitmaps loaded or made until then.
    pub(super) used: u32,
}

/// A cache line of its own, so that threads don't meet in one without meeting in a lock.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(Mutex<Vec<Warm>>);

/// All regions of a volume.
pub(super) struct Store {
    leaves: Sparse<Leaf>,
    stripes: Box<[Stripe]>,
    mask: u32,
    warm: AtomicU64,
    bitmap_bytes: AtomicU64,
    /// Bitmaps loaded or made so far: the clock of [`Warm::used`].
    clock: AtomicU32,
    /// Times a lock was held by another thread.
    waits: AtomicU64,
    pub(super) timer: Timer,
}

impl Store {
    pub(super) fn new(regions: u32) -> Self {
        let stripes = regions.clamp(1, STRIPES).next_power_of_two();
        Store {
            leaves: Sparse::new(regions.div_ceil(64)),
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            mask: stripes - 1,
            warm: AtomicU64::new(0),
            bitmap_bytes: AtomicU64::new(0),
            clock: AtomicU32::new(0),
            waits: AtomicU64::new(0),
            timer: Timer::default(),
        }
    }

    /// Bytes of all that is not a warm region.
    pub(super) fn fixed_bytes(&self) -> u64 {
        self.leaves.bytes() + self.stripes.len() as u64 * bytes_of::<Stripe>()
    }

    /// Bytes of warm regions without their bitmaps, unused room included.
    pub(super) fn warm_bytes(&self) -> u64 {
        let room: u64 = self.stripes().map(|warm| warm.capacity() as u64).sum();
        room * bytes_of::<Warm>()
    }

    /// Regions with bitmaps, and the bytes of these bitmaps.
    pub(super) fn warm(&self) -> (u64, u64) {
        (self.warm.load(Ordering::Relaxed), self.bitmap_bytes.load(Ordering::Relaxed))
    }

    /// One stripe after the other, locked.
    pub(super) fn stripes(&self) -> impl Iterator<Item = MutexGuard<'_, Vec<Warm>>> {
        self.stripes.iter().map(|stripe| self.lock_stripe(stripe))
    }

    /// A bitmap is about to be loaded or made.
    pub(super) fn tick(&self) {
        self.clock.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    fn state(&self, region: u32) -> Option<&AtomicU32> {
        self.leaves.get(region / 64)?.states.get((region % 64) as usize)
    }

    /// True if a region's bitmap is missing, without its lock. The answer may have changed when it
    /// is used; the caller that relies on it finds out under the lock.
    pub(super) fn is_unknown(&self, region: u32) -> bool {
        self.state(region).is_some_and(|state| State::unpack(state.load(Ordering::Acquire)).is_unknown())
    }

    /// The edge between a region and the next, if anything is known of either.
    pub(super) fn edge(&self, region: u32) -> Option<&AtomicU32> {
        self.leaves.get(region / 64)?.edges.get((region % 64) as usize)
    }

    /// Returns the edge behind a region, made if need be.
    pub(super) fn made_edge(&self, region: u32) -> Option<&AtomicU32> {
        self.leaves.make(region / 64)?.edges.get((region % 64) as usize)
    }

    fn lock_stripe<'a>(&'a self, stripe: &'a Stripe) -> MutexGuard<'a, Vec<Warm>> {
        sync::lock(&stripe.0, || {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.timer.waiting()
        })
    }

    /// Times a thread waited for the lock of a stripe.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn stripe_of(&self, region: u32) -> usize {
        (region & self.mask) as usize
    }

    /// Locks a region; `None` outside the volume and where nothing was ever described.
    pub(super) fn lock(&self, region: u32) -> Option<Locked<'_>> {
        let state = self.state(region)?;
        // A panic can't leave a region half changed: every update is computed before it is stored.
        let mut stripe = self.lock_stripe(self.stripes.get(self.stripe_of(region))?);
        if let State::Mapped(entry) = State::unpack(state.load(Ordering::Relaxed))
            && let Some(warm) = stripe.get_mut(entry as usize)
        {
            warm.used = self.clock.load(Ordering::Relaxed);
        }
        Some(Locked { store: self, stripe, state, region })
    }

    /// Locks these regions, all at once.
    pub(super) fn lock_all(&self, regions: Range<u32>) -> LockedGroup<'_> {
        for page in regions.start / 64..regions.end.div_ceil(64) {
            self.leaves.make(page);
        }
        let mut stripes: Vec<usize> = regions.clone().map(|region| self.stripe_of(region)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let held = stripes.into_iter().filter_map(|at| Some((at, self.lock_stripe(self.stripes.get(at)?))));
        LockedGroup { store: self, held: held.collect(), regions }
    }
}

/// One region, locked.
pub(super) struct Locked<'a> {
    store: &'a Store,
    stripe: MutexGuard<'a, Vec<Warm>>,
    state: &'a AtomicU32,
    region: u32,
}

impl Locked<'_> {
    pub(super) fn look(&self) -> Look<'_> {
        look(self.state, &self.stripe)
    }

    pub(super) fn body(&mut self) -> Body<'_> {
        Body { store: self.store, stripe: &mut self.stripe, state: self.state, region: self.region }
    }
}

/// The regions of a group, locked.
pub(super) struct LockedGroup<'a> {
    store: &'a Store,
    held: Vec<(usize, MutexGuard<'a, Vec<Warm>>)>,
    pub(super) regions: Range<u32>,
}

impl LockedGroup<'_> {
    pub(super) fn body(&mut self, region: u32) -> Option<Body<'_>> {
        let at = self.store.stripe_of(region);
        let stripe = &mut self.held.iter_mut().find(|(stripe, _)| *stripe == at)?.1;
        Some(Body { store: self.store, stripe, state: self.store.state(region)?, region })
    }

    pub(super) fn state(&self, region: u32) -> State {
        self.store.state(region).map_or(State::Unknown, |state| State::unpack(state.load(Ordering::Relaxed)))
    }

    /// True if the bitmap is missing for any of the regions.
    pub(super) fn any_unknown(&self) -> bool {
        self.regions.clone().any(|region| self.state(region).is_unknown())
    }
}

fn look<'a>(state: &AtomicU32, stripe: &'a [Warm]) -> Look<'a> {
    match State::unpack(state.load(Ordering::Relaxed)) {
        State::Unknown | State::Cold(_) => Look::Unknown,
        State::Broken => Look::Plain((0, 0)),
        State::Plain(run) => Look::Plain(run),
        State::Mapped(entry) => {
            stripe.get(entry as usize).map_or(Look::Unknown, |warm| Look::Mapped(&warm.map))
        }
    }
}

/// One region under its lock, to change.
pub(super) struct Body<'a> {
    store: &'a Store,
    stripe: &'a mut Vec<Warm>,
    state: &'a AtomicU32,
    region: u32,
}

impl Body<'_> {
    pub(super) fn look(&self) -> Look<'_> {
        look(self.state, self.stripe)
    }

    pub(super) fn state(&self) -> State {
        State::unpack(self.state.load(Ordering::Relaxed))
    }

    fn map(&mut self) -> Option<&mut RunMap> {
        let State::Mapped(entry) = self.state() else { return None };
        self.stripe.get_mut(entry as usize).map(|warm| &mut warm.map)
    }

    /// Replaces the state by one without a bitmap.
    pub(super) fn set(&mut self, state: State) {
        if let State::Mapped(entry) = self.state() {
            self.drop_entry(entry);
        }
        self.state.store(state.pack(), Ordering::Release);
    }

    /// Replaces the state by a bitmap.
    pub(super) fn set_map(&mut self, map: RunMap) {
        // Not by way of another state: readers without the lock must never see one.
        if let State::Mapped(entry) = self.state() {
            self.drop_entry(entry);
        }
        let Ok(entry) = u32::try_from(self.stripe.len()) else { return };
        self.store.warm.fetch_add(1, Ordering::Relaxed);
        self.store.bitmap_bytes.fetch_add(map.bitmap_bytes(), Ordering::Relaxed);
        if self.stripe.capacity() == self.stripe.len() {
            // Grows slowly: the index of a full volume should not be half empty.
            self.stripe.reserve_exact(1 + self.stripe.len() / 32);
        }
        self.stripe.push(Warm { map, region: self.region, used: self.store.clock.load(Ordering::Relaxed) });
        self.state.store(State::Mapped(entry).pack(), Ordering::Release);
    }

    fn drop_entry(&mut self, entry: u32) {
        if (entry as usize) >= self.stripe.len() {
            return;
        }
        let gone = self.stripe.swap_remove(entry as usize);
        self.store.warm.fetch_sub(1, Ordering::Relaxed);
        self.store.bitmap_bytes.fetch_sub(gone.map.bitmap_bytes(), Ordering::Relaxed);
        if let Some(moved) = self.stripe.get(entry as usize)
            && let Some(state) = self.store.state(moved.region)
        {
            state.store(State::Mapped(entry).pack(), Ordering::Release);
        }
        if self.stripe.len() * 4 < self.stripe.capacity() * 3 {
            self.stripe.shrink_to_fit();
        }
    }

    /// Notes that the disk has the bitmap as it is here.
    pub(super) fn mark_stored(&mut self) {
        if let Some(map) = self.map() {
            map.mark_stored();
        }
    }

    /// See [`RunMap::take`].
    pub(super) fn take(&mut self, start: u32, end: u32, len: u32) -> Option<Span> {
        if let State::Plain((from, to)) = self.state() {
            if start < from || end > to || end <= start {
                return None;
            }
            if start == from || end == to {
                self.set(State::Plain(if start == from { (end, to) } else { (from, start) }));
                return Some((from, to));
            }
            self.store.tick();
            self.set_map(RunMap::with_run(len, (from, to)));
        }
        self.map()?.take(start, end)
    }

    /// See [`RunMap::give`].
    pub(super) fn give(&mut self, start: u32, end: u32, len: u32) -> Option<Span> {
        if let State::Plain((from, to)) = self.state() {
            let apart = end <= from || start >= to || from >= to;
            if !apart || end <= start || end > len {
                return None;
            }
            if let Some(joined) = join((from, to), (start, end)) {
                self.set(State::Plain(joined));
                return Some(joined);
            }
            self.store.tick();
            self.set_map(RunMap::with_run(len, (from, to)));
        }
        self.map()?.give(start, end)
    }
}

/// Two runs as one, if they touch or the first is empty.
fn join(run: Span, more: Span) -> Option<Span> {
    match run {
        (from, to) if from >= to => Some(more),
        (from, to) if more.1 == from => Some((more.0, to)),
        (from, to) if more.0 == to => Some((from, more.1)),
        _ => None,
    }
}
