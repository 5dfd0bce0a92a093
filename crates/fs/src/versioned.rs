//! A value that is replaced while others look at it: the format and the space of a volume that gets another size while it is
//! open.
//!
//! Owns: that each look gets the last value, and that a look at an earlier one stays good. A look is a plain reference,
//! without a lock, on every path of the library. All values are therefore kept until the end: each change of the size costs
//! the memory of a format and a space until the volume is closed. Excludes: when a value may be replaced (`growth`,
//! `shrink`).

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ondisk::invariant_or;

/// Values of which each row has twice as many as that before; the number of a value has no more bits than there are rows.
const ROWS: usize = usize::BITS as usize;

type Row<T> = OnceLock<Box<[OnceLock<T>]>>;

/// A value, and those that took its place.
pub(crate) struct Versioned<T> {
    first: T,
    later: [Row<T>; ROWS],
    count: AtomicUsize,
}

/// Row and column of the value with a number, which is 1 for the first that follows.
fn place(number: usize) -> Option<(usize, usize)> {
    let row = number.checked_ilog2()?;
    Some((row as usize, number - (1 << row)))
}

impl<T> Versioned<T> {
    /// The first value.
    pub(crate) fn new(first: T) -> Self {
        Versioned { first, later: [const { OnceLock::new() }; ROWS], count: AtomicUsize::new(0) }
    }

    /// Puts another value in the place of the last; one caller at a time.
    pub(crate) fn replace(&self, value: T) {
        let number = self.count.load(Ordering::Acquire) + 1;
        let found = place(number).and_then(|(row, column)| {
            let row = self.later.get(row)?.get_or_init(|| (0..1 << row).map(|_| OnceLock::new()).collect());
            row.get(column)
        });
        let set = found.and_then(|place| place.set(value).ok());
        invariant_or!(set, return, "one caller at a time replaces a value");
        self.count.store(number, Ordering::Release);
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let last = place(self.count.load(Ordering::Acquire));
        last.and_then(|(row, column)| self.later.get(row)?.get()?.get(column)?.get()).unwrap_or(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_seen_and_earlier_ones_stay() {
        let grown = Versioned::new(0);
        let first: &usize = &grown;
        let mut seen: Vec<&usize> = Vec::new();
        for value in 1..=1000 {
            grown.replace(value);
            assert_eq!((*first, *grown), (0, value));
            seen.push(&grown);
        }
        assert!(seen.into_iter().copied().eq(1..=1000));
    }
}
