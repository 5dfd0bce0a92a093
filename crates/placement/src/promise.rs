//! Space promised to delayed writes: an owned token which gives itself back.
//!
//! The ledger counts clusters that are free and not promised. Every allocation passes through it,
//! so the free space can't fall below what is promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Free clusters that are not promised.
#[derive(Default)]
pub(crate) struct Ledger {
    available: AtomicU64,
}

impl Ledger {
    pub(crate) fn available(&self) -> u64 {
        self.available.load(Ordering::Acquire)
    }

    /// Takes `count` clusters, or none.
    pub(crate) fn take(&self, count: u64) -> bool {
        let update = |available: u64| available.checked_sub(count);
        self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_ok()
    }

    /// Takes as many clusters as there are, from `min` to `max`.
    pub(crate) fn take_up_to(&self, min: u32, max: u32) -> Option<u32> {
        let count = |available: u64| u32::try_from(available.min(u64::from(max))).unwrap_or(max);
        let update = |available: u64| {
            let count = count(available);
            (count >= min).then(|| available - u64::from(count))
        };
        self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).ok().map(count)
    }

    pub(crate) fn give(&self, count: u32) {
        if count > 0 {
            self.available.fetch_add(u64::from(count), Ordering::AcqRel);
        }
    }

    /// The free count of a group was stated anew.
    pub(crate) fn adjust(&self, before: u32, after: u32) {
        let update = |available: u64| Some((available + u64::from(after)).saturating_sub(u64::from(before)));
        // Cannot fail: the update never refuses.
        let _ = self.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }
}

/// Clusters promised to a write that is delayed. Dropping it ends the promise.
#[must_use = "dropping a promise ends it"]
pub struct Promise {
    ledger: Arc<Ledger>,
    count: u64,
}

impl Promise {
    pub(crate) fn new(ledger: &Arc<Ledger>, count: u64) -> Self {
        Promise { ledger: Arc::clone(ledger), count }
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
        Promise::new(&self.ledger, count)
    }

    /// Joins another promise of the same engine to this one.
    pub fn join(&mut self, mut other: Promise) {
        if Arc::ptr_eq(&self.ledger, &other.ledger) {
            self.count = self.count.saturating_add(other.count);
            other.count = 0;
        }
    }

    pub(crate) fn spend(&mut self, count: u32) {
        self.count = self.count.saturating_sub(u64::from(count));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.ledger.available.fetch_add(self.count, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Promise").field(&self.count).finish()
    }
}
