//! A value that is replaced while others look at it: the format and the space of a volume that grows while it is open.
//!
//! Owns: that each look gets the last value, and that a look at an earlier one stays good. For that all of them are
//! kept until the end, so that there are at most [`MOST`]. Excludes: when a value may be replaced (`growth`).

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values that may follow the first.
const MOST: usize = 64;

/// A value, and those that took its place.
pub(crate) struct Versioned<T> {
    first: T,
    later: Box<[OnceLock<T>]>,
    count: AtomicUsize,
}

impl<T> Versioned<T> {
    /// The first value.
    pub(crate) fn new(first: T) -> Self {
        Versioned { first, later: (0..MOST).map(|_| OnceLock::new()).collect(), count: AtomicUsize::new(0) }
    }

    /// True if another value can follow.
    pub(crate) fn has_room(&self) -> bool {
        self.count.load(Ordering::Acquire) < MOST
    }

    /// Puts another value in the place of the last; one caller at a time. Gives it back if there is no room.
    pub(crate) fn replace(&self, value: T) -> Result<(), T> {
        let count = self.count.load(Ordering::Acquire);
        let Some(place) = self.later.get(count) else { return Err(value) };
        place.set(value)?;
        self.count.store(count + 1, Ordering::Release);
        Ok(())
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let last = self.count.load(Ordering::Acquire).checked_sub(1);
        last.and_then(|last| self.later.get(last)?.get()).unwrap_or(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_seen_and_earlier_ones_stay() {
        let grown = Versioned::new(0);
        let first: &usize = &grown;
        for value in 1..=MOST {
            assert!(grown.has_room());
            assert_eq!(grown.replace(value), Ok(()));
            assert_eq!((*first, *grown), (0, value));
        }
        assert!(!grown.has_room());
        assert_eq!(grown.replace(7), Err(7));
    }
}
