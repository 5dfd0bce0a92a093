//! The bound on memory for bitmaps and their summaries: when it is exceeded, and what may be dropped then.
//!
//! Owns the numbers and the decision when to look. Excludes which bitmaps go ([`FreeMap::evict`]) and what callers say of
//! bitmaps ([`crate::residency`]).

use crate::index::map::FreeMap;
use crate::policy::BlockPolicy;
use crate::stats::{Counter, Counters};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Bitmaps that stay although the bound is exceeded: those loaded last. A request or a free may
/// need several groups at once, and each must still be there when the last one comes.
const RECENT: u32 = 64;

/// The bound on memory for bitmaps and their summaries.
pub(crate) struct Bound {
    bytes: AtomicU64,
    /// Memory in use from which dropping is tried again.
    next: AtomicU64,
    /// Bitmaps loaded last that stay: [`RECENT`], and one more for each that a request had to ask for
    /// since anything was last granted or freed, so that it comes to an end however many it needs.
    recent: AtomicU32,
    /// Held while claims are compared with what is dropped or written.
    serial: Mutex<()>,
}

impl Default for Bound {
    fn default() -> Self {
        let most = || AtomicU64::new(u64::MAX);
        Bound { bytes: most(), next: most(), recent: AtomicU32::new(RECENT), serial: Mutex::default() }
    }
}

/// Holders of the memory that is bounded.
#[derive(Clone, Copy)]
pub(crate) struct Holders<'a> {
    pub(crate) map: &'a FreeMap,
    pub(crate) policy: &'a dyn BlockPolicy,
    pub(crate) counters: &'a Counters,
}

impl Bound {
    /// Something was granted or freed, or needs one more bitmap.
    pub(crate) fn went_on(&self, needs_bitmap: bool) {
        if needs_bitmap {
            self.recent.fetch_add(1, Ordering::Relaxed);
        } else if self.recent.load(Ordering::Relaxed) != RECENT {
            self.recent.store(RECENT, Ordering::Relaxed);
        }
    }

    /// Sets the bound. It holds from the next [`Bound::keep`] on.
    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.next.store(bytes, Ordering::Relaxed);
    }

    /// While this is held, nothing is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops bitmaps if the bound is exceeded.
    pub(crate) fn enforce(&self, holders: Holders<'_>) {
        let next = self.next.load(Ordering::Relaxed);
        if next == u64::MAX || holders.map.memory_in_use() <= next {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.evict(bytes - bytes / 16, self.recent.load(Ordering::Relaxed), holders);
        // What can't be dropped now is not looked through again at once.
        let next = holders.map.memory_in_use().saturating_add(bytes / 16).max(bytes);
        self.next.store(next, Ordering::Relaxed);
    }

    /// Drops bitmaps down to `bytes`, but none of those loaded last; how many it dropped.
    pub(crate) fn evict(&self, bytes: u64, recent: u32, holders: Holders<'_>) -> u32 {
        let _serial = self.lock();
        let dropped = holders.map.evict(bytes, recent, &holders.policy.claims());
        holders.counters.add(Counter::BitmapsEvicted, u64::from(dropped));
        dropped
    }
}
