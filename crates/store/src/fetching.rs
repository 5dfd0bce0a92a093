//! Shared fetches: of many threads that want one object, one fetches it for all.
//!
//! Owns: who fetches something, and that those who wait for it share its failure. Excludes what is fetched, and where it is
//! kept.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::format::Hash;

/// Locks of fetches; far more than requests at once, so that few wait for another's.
const LOCKS: usize = 4096;

/// The last fetch that failed of those that share a lock.
struct FailedFetch {
    name: Hash,
    ended: Instant,
    why: Error,
}

type FetchLock<'f> = MutexGuard<'f, Option<FailedFetch>>;

/// Locks of fetches under way.
pub(crate) struct Fetching {
    locks: Vec<Mutex<Option<FailedFetch>>>,
}

impl Default for Fetching {
    fn default() -> Self {
        Fetching { locks: (0..LOCKS).map(|_| Mutex::default()).collect() }
    }
}

impl Fetching {
    /// Index of an object's lock. Several objects share a lock.
    pub(crate) fn lock_index(name: &Hash) -> usize {
        usize::from(u16::from_le_bytes([name[0], name[1]])) % LOCKS
    }

    /// Waits until nobody else fetches something; others wait while the result is there. Who comes here looks first
    /// whether it was fetched meanwhile.
    pub(crate) fn alone(&self, name: &Hash) -> FetchTurn<'_> {
        let begun = Instant::now();
        let held = self.locks.get(Self::lock_index(name));
        let held = held.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        FetchTurn { name: *name, begun, held }
    }

    /// Keeps others from what has that place; nothing if somebody fetches it already.
    pub(crate) fn try_alone(&self, place: usize) -> Option<FetchTurn<'_>> {
        let held = self.locks.get(place)?.try_lock().ok()?;
        Some(FetchTurn { name: [0; 32], begun: Instant::now(), held: Some(held) })
    }
}

/// Turn of one thread to fetch: nobody else fetches that object meanwhile.
pub(crate) struct FetchTurn<'f> {
    name: Hash,
    begun: Instant,
    held: Option<FetchLock<'f>>,
}

impl FetchTurn<'_> {
    /// Does the fetch, unless one failed that was waited for: one after the other would wait as long again.
    pub(crate) fn fetched<T>(&mut self, fetch: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(Some(failed)) = self.held.as_deref()
            && failed.name == self.name
            && failed.ended > self.begun
        {
            return Err(failed.why.clone());
        }
        fetch().inspect_err(|why: &Error| {
            if let Some(failed) = &mut self.held {
                **failed = Some(FailedFetch { name: self.name, ended: Instant::now(), why: why.clone() });
            }
        })
    }
}
