//! Space promised to delayed writes: an owned token which gives itself back.
//!
//! `FreeAccounting` counts clusters that are free and not promised. Every allocation passes through it,
//! so the free space can't fall below what is promised. While there is plenty, each thread takes
//! from and gives to credits of its own; when the common account runs short all credits are called
//! in, so that what is refused is really not there.

use crate::events::{Event, EventReporter};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, PoisonError, SLOTS, slot};
use ondisk::invariant_or;
use std::sync::Arc;

/// Clusters a thread draws ahead at a time; it keeps at most twice as many.
const CREDIT: u64 = if cfg!(all(test, shuttle)) { 3 } else { 1_024 };
/// Below this much in the common account, credits are neither drawn nor kept.
const PLENTY: u64 = 4 * CREDIT * SLOTS as u64;

/// Free clusters that are not promised: the common account and the credits of all slots.
pub(crate) struct FreeAccounting {
    common: CachePadded<AtomicU64>,
    credits: Box<[CachePadded<AtomicU64>]>,
    /// Held while credits are called in, so that no other thread decides from half of them.
    call: Mutex<()>,
    /// The sink of events about promises.
    pub(crate) events: EventReporter,
}

impl FreeAccounting {
    pub(crate) fn new(events: EventReporter) -> Self {
        FreeAccounting {
            common: CachePadded::default(),
            credits: (0..SLOTS).map(|_| CachePadded::default()).collect(),
            call: Mutex::new(()),
            events,
        }
    }

    fn credit(&self) -> Option<&AtomicU64> {
        self.credits.get(slot()).map(|credit| &credit.0)
    }

    pub(crate) fn available(&self) -> u64 {
        let credits: u64 = self.credits.iter().map(|credit| credit.0.load(Ordering::Acquire)).sum();
        self.common.0.load(Ordering::Acquire) + credits
    }

    fn subtract(account: &AtomicU64, count: u64, keep: u64) -> bool {
        let update = |value: u64| value.checked_sub(count).filter(|left| *left >= keep);
        account.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_ok()
    }

    /// Takes `count` clusters, or none.
    pub(crate) fn take(&self, count: u64) -> bool {
        if let Some(credit) = self.credit() {
            if Self::subtract(credit, count, 0) {
                return true;
            }
            if count <= CREDIT && Self::subtract(&self.common.0, count + CREDIT, PLENTY) {
                credit.fetch_add(CREDIT, Ordering::AcqRel);
                return true;
            }
        }
        if Self::subtract(&self.common.0, count, 0) {
            return true;
        }
        let _call = self.call_in();
        Self::subtract(&self.common.0, count, 0)
    }

    /// Takes as many clusters as there are, from `min` to `max`.
    pub(crate) fn take_up_to(&self, min: u32, max: u32) -> Option<u32> {
        if self.take(u64::from(max)) {
            return Some(max);
        }
        let _call = self.call_in();
        let count = |value: u64| u32::try_from(value.min(u64::from(max))).unwrap_or(max);
        let update = |value: u64| {
            let count = count(value);
            (count >= min && count > 0).then(|| value - u64::from(count))
        };
        self.common.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).ok().map(count)
    }

    /// Moves all credits to the common account. Below [`PLENTY`] no thread draws new ones, so
    /// under this lock what the common account lacks is lacking, but for what is given back
    /// meanwhile.
    fn call_in(&self) -> crate::sync::MutexGuard<'_, ()> {
        let guard = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        for credit in &self.credits {
            let held = credit.0.swap(0, Ordering::AcqRel);
            self.common.0.fetch_add(held, Ordering::AcqRel);
        }
        guard
    }

    pub(crate) fn give(&self, count: u64) {
        if count == 0 {
            return;
        }
        if count <= CREDIT
            && self.common.0.load(Ordering::Acquire) >= PLENTY
            && let Some(credit) = self.credit()
        {
            let held = credit.fetch_add(count, Ordering::AcqRel) + count;
            if held > 2 * CREDIT && Self::subtract(credit, CREDIT, 0) {
                self.common.0.fetch_add(CREDIT, Ordering::AcqRel);
            }
        } else {
            self.common.0.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// A free count was stated again.
    pub(crate) fn adjust(&self, before: u64, after: u64) {
        if after >= before {
            self.common.0.fetch_add(after - before, Ordering::AcqRel);
            return;
        }
        let _call = self.call_in();
        let update = |value: u64| Some(value.saturating_sub(before - after));
        // Cannot fail: the update never refuses.
        let _ = self.common.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }
}

/// Clusters promised to a write that is delayed. Dropping it ends the promise.
#[must_use = "dropping a promise ends it"]
pub struct Promise {
    accounting: Arc<FreeAccounting>,
    count: u64,
}

impl Promise {
    pub(crate) fn new(accounting: &Arc<FreeAccounting>, count: u64) -> Self {
        Promise { accounting: Arc::clone(accounting), count }
    }

    /// Clusters still promised.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Cuts off a promise of `count` clusters (all, if it has fewer).
    pub fn split(&mut self, count: u64) -> Promise {
        let count = count.min(self.count);
        self.count -= count;
        Promise::new(&self.accounting, count)
    }

    /// Joins another promise of the same engine to this one.
    pub fn join(&mut self, mut other: Promise) {
        if Arc::ptr_eq(&self.accounting, &other.accounting) {
            self.count = self.count.saturating_add(other.count);
            other.count = 0;
        }
    }

    pub(crate) fn is_of(&self, accounting: &Arc<FreeAccounting>) -> bool {
        Arc::ptr_eq(&self.accounting, accounting)
    }

    /// Takes back what was spent.
    pub(crate) fn restore(&mut self, count: u32) {
        self.count = self.count.saturating_add(u64::from(count));
    }

    pub(crate) fn spend(&mut self, count: u32) {
        self.count = invariant_or!(self.count.checked_sub(u64::from(count)), 0, "what is spent was promised");
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.accounting.give(self.count);
        if self.count > 0 {
            self.accounting.events.report(|| Event::PromiseEnded(self.count));
        }
    }
}

impl std::fmt::Debug for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Promise").field(&self.count).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn credits_are_called_in_before_anything_is_refused() {
        let accounting = FreeAccounting::new(EventReporter::default());
        accounting.adjust(0, 400_000);
        std::thread::scope(|scope| {
            for _ in 0..SLOTS {
                scope.spawn(|| {
                    assert!(accounting.take(1));
                    accounting.give(1);
                });
            }
        });
        assert_eq!(accounting.available(), 400_000);
        assert!(!accounting.take(400_001));
        assert!(accounting.take(399_990));
        assert_eq!(accounting.take_up_to(11, 20), None);
        assert_eq!(accounting.take_up_to(3, 20), Some(10));
        assert_eq!((accounting.take_up_to(1, 20), accounting.available()), (None, 0));
    }
}
