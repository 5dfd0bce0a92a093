//! Times of locks: how long threads wait for them, and how long those of groups are held.
//!
//! Nothing is measured until someone gives a clock ([`crate::Engine::time_locks`]), and no clock is read. Waiting is
//! measured where a thread waits anyway. Only locks of groups ([`Timed`]) cost more without a clock: a look at whether
//! there is one.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, CachePadded, Mutex, MutexGuard, SLOTS, slot};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// Nanoseconds from some moment on.
pub type Clock = fn() -> u64;

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Those of groups, as far as free runs are looked for under them.
    Groups,
    /// Locks of groups for marking a run only: taken, freed, or found again.
    Marks,
    /// Locks of other state of a policy: preallocations, windows, shelves, sets of groups.
    Policy,
    /// Those of regions, under which the run index is looked at and changed.
    Index,
}

/// Times of the locks of a kind, all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTimes {
    /// Times a lock of groups was taken; of others it is not counted.
    pub taken: u64,
    /// Times another thread held it.
    pub contended: u64,
    /// Nanoseconds for which threads waited.
    pub waited: u64,
    /// Nanoseconds for which locks of groups were held.
    pub held: u64,
}

/// Measures the locks of a kind.
#[derive(Default)]
pub(crate) struct Timer(OnceLock<On>);

struct On {
    clock: Clock,
    slots: Box<[CachePadded<[AtomicU64; 4]>]>,
}

impl On {
    fn note(&self, counts: [u64; 4]) {
        let Some(CachePadded(sums)) = self.slots.get(slot()) else { return };
        for (sum, count) in sums.iter().zip(counts).filter(|(_, count)| *count > 0) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock<'a, T>(&'a self, mutex: &'a Mutex<T>, busy: impl FnOnce()) -> Timed<'a, T> {
        let guard = sync::lock(mutex, || {
            busy();
            Waiting { on: self, since: (self.clock)() }
        });
        self.note([1, 0, 0, 0]);
        Timed { since: Some((self, (self.clock)())), guard }
    }

    #[cold]
    #[inline(never)]
    fn release(&self, since: u64) {
        self.note([0, 0, 0, (self.clock)().saturating_sub(since)]);
    }
}

impl Timer {
    /// From now on locks are measured by this clock; by the first one, if there is one already.
    pub(crate) fn start(&self, clock: Clock) {
        let slots = (0..SLOTS).map(|_| CachePadded(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        // Refused if it is on: then it goes on.
        let _ = self.0.set(On { clock, slots });
    }

    /// Sums over all threads.
    pub(crate) fn times(&self) -> LockTimes {
        let mut sums = [0; 4];
        for CachePadded(slot) in self.0.get().into_iter().flat_map(|on| &on.slots) {
            for (sum, count) in sums.iter_mut().zip(slot) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        let [taken, contended, waited, held] = sums;
        LockTimes { taken, contended, waited, held }
    }

    /// A thread begins to wait, until what this returns is dropped.
    #[cold]
    pub(crate) fn waiting(&self) -> Option<Waiting<'_>> {
        self.0.get().map(|on| Waiting { on, since: (on.clock)() })
    }

    /// As [`sync::lock`].
    #[inline]
    pub(crate) fn lock<'a, T>(&'a self, mutex: &'a Mutex<T>, busy: impl FnOnce()) -> Timed<'a, T> {
        match self.0.get() {
            None => Timed { since: None, guard: sync::lock(mutex, busy) },
            Some(on) => on.lock(mutex, busy),
        }
    }

    /// A lock, if no other thread holds it at this moment.
    pub(crate) fn try_lock<'a, T>(&'a self, mutex: &'a Mutex<T>) -> Option<Timed<'a, T>> {
        let guard = sync::try_lock(mutex)?;
        let since = self.0.get().map(|on| (on, (on.clock)()));
        if let Some((on, _)) = since {
            on.note([1, 0, 0, 0]);
        }
        Some(Timed { since, guard })
    }
}

/// A thread that waits.
pub(crate) struct Waiting<'a> {
    on: &'a On,
    since: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.on.note([0, 1, (self.on.clock)().saturating_sub(self.since), 0]);
    }
}

/// A lock that is held.
pub(crate) struct Timed<'a, T> {
    since: Option<(&'a On, u64)>,
    guard: MutexGuard<'a, T>,
}

impl<T> Deref for Timed<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Timed<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Timed<'_, T> {
    /// The lock itself is given up behind this.
    #[inline]
    fn drop(&mut self) {
        if let Some((on, since)) = self.since {
            on.release(since);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A clock that goes on by one with each look.
    fn steps() -> u64 {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        STEPS.fetch_add(1, Ordering::SeqCst)
    }

    #[test]
    fn without_a_clock_nothing_is_measured() {
        let (timer, mutex) = (Timer::default(), Mutex::new(1));
        drop(timer.lock(&mutex, || ()));
        assert_eq!(timer.times(), LockTimes::default());
        assert_eq!(*timer.try_lock(&mutex).unwrap(), 1);
    }

    #[test]
    fn waiting_and_holding_are_measured_apart() {
        let (timer, mutex) = (Timer::default(), Mutex::new(0));
        timer.start(steps);
        *timer.lock(&mutex, || ()) += 1;
        let times = timer.times();
        assert_eq!((times.taken, times.contended, times.waited), (1, 0, 0));
        assert!(times.held >= 1);
        std::thread::scope(|scope| {
            let held = timer.lock(&mutex, || ());
            let (send, receive) = std::sync::mpsc::channel();
            let (timer, mutex) = (&timer, &mutex);
            scope.spawn(move || drop(timer.lock(mutex, || send.send(()).unwrap())));
            // The other thread found it held.
            receive.recv().unwrap();
            assert!(timer.try_lock(mutex).is_none());
            drop(held);
        });
        let times = timer.times();
        assert_eq!((times.taken, times.contended), (3, 1));
        assert!(times.waited >= 1 && times.held >= 3, "{times:?}");
    }
}
