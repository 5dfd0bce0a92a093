//! The locks and atomics of this crate: those of the standard library, or, for the models of
//! `models`, those of a scheduler that tries many interleavings. Everything in this crate that
//! threads share takes them from here.
//!
//! Also owns what keeps threads apart: slots, one of which each thread keeps for its life, so that
//! threads which count do not write to one cache line.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::thread::yield_now;
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::thread::yield_now;

pub(crate) use std::sync::PoisonError;
use std::sync::TryLockError;

/// Slots that threads are dealt out over; few in models, so that some threads share one.
pub(crate) const SLOTS: usize = if cfg!(all(test, shuttle)) { 2 } else { 16 };

/// The calling thread's slot, below [`SLOTS`].
#[cfg(all(test, shuttle))]
pub(crate) fn slot() -> usize {
    usize::from(shuttle::current::me()) % SLOTS
}

/// The calling thread's slot, below [`SLOTS`].
#[cfg(not(all(test, shuttle)))]
pub(crate) fn slot() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // A constant start value makes a look at it one load.
        static SLOT: std::cell::Cell<usize> = const { std::cell::Cell::new(SLOTS) };
    }
    SLOT.with(|slot| {
        if slot.get() == SLOTS {
            slot.set(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        slot.get()
    })
}

/// A value on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Locks, and calls `busy` first if another thread holds the lock at this moment; what it returns is dropped once the lock
/// is there. A panic while it was held is ignored: what these locks protect is never left half changed.
#[inline]
pub(crate) fn lock<T, W>(mutex: &Mutex<T>, busy: impl FnOnce() -> W) -> MutexGuard<'_, T> {
    match try_lock(mutex) {
        Some(guard) => guard,
        None => wait(mutex, busy),
    }
}

#[cold]
#[inline(never)]
fn wait<T, W>(mutex: &Mutex<T>, busy: impl FnOnce() -> W) -> MutexGuard<'_, T> {
    let _waiting = busy();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, unless another thread holds the lock at this moment.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
