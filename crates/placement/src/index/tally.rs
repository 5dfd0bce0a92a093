//! Sums that many threads change and searches read: each thread adds to its own slot, which flows
//! over into the total when it holds much.
//!
//! A single thread reads exact sums. Another thread's last changes may be missing from what it
//! reads, at most a bound for each slot and sum; [`Tally::exact`] adds all slots.

use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{CachePadded, SLOTS, slot};

/// Most that a slot keeps back, in either direction, however large the sums are.
const HOLD: u64 = if cfg!(all(test, shuttle)) { 4 } else { 4_096 };
/// No more than this part of them: all slots together are then 1/1,280 off for each sum, where what decisions
/// look for is an eightieth.
const PART: u64 = 1_280 * SLOTS as u64;

/// `N` sums.
pub(crate) struct Tally<const N: usize> {
    /// Most that a slot keeps back.
    hold: i64,
    total: CachePadded<[AtomicI64; N]>,
    slots: Box<[CachePadded<[AtomicI64; N]>]>,
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Never negative but while other threads' changes are missing.
fn sum(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

impl<const N: usize> Tally<N> {
    /// Sums of things of which there are `all`.
    pub(crate) fn for_total(all: u64) -> Self {
        let zeros = || CachePadded(std::array::from_fn(|_| AtomicI64::new(0)));
        let hold = signed((all / PART).min(HOLD));
        Tally { hold, total: zeros(), slots: (0..SLOTS).map(|_| zeros()).collect() }
    }

    fn total(&self, at: usize) -> i64 {
        self.total.0.get(at).map_or(0, |total| total.load(Ordering::Acquire))
    }

    fn slot_sum(&self, at: usize) -> Option<&AtomicI64> {
        self.slots.get(slot())?.0.get(at)
    }

    /// Adds to one sum.
    pub(crate) fn add(&self, at: usize, count: u64) {
        self.change([(at, signed(count))]);
    }

    /// Subtracts from one sum.
    pub(crate) fn subtract(&self, at: usize, count: u64) {
        self.change([(at, -signed(count))]);
    }

    /// Adds to several sums.
    pub(crate) fn change<const M: usize>(&self, changes: [(usize, i64); M]) {
        let Some(mine) = self.slots.get(slot()) else { return };
        for (at, by) in changes {
            if let Some(mine) = mine.0.get(at).filter(|_| by != 0) {
                self.change_mine(mine, at, by);
            }
        }
    }

    fn change_mine(&self, mine: &AtomicI64, at: usize, by: i64) {
        if (mine.fetch_add(by, Ordering::AcqRel) + by).abs() <= self.hold {
            return;
        }
        // Two threads of one slot may both come here: what is moved is what the swap finds.
        let moved = mine.swap(0, Ordering::AcqRel);
        if let Some(total) = self.total.0.get(at) {
            total.fetch_add(moved, Ordering::AcqRel);
        }
    }

    /// One sum as this thread sees it.
    pub(crate) fn near(&self, at: usize) -> u64 {
        sum(self.total(at) + self.slot_sum(at).map_or(0, |mine| mine.load(Ordering::Acquire)))
    }

    /// All sums as this thread sees them, the last first.
    pub(crate) fn near_all(&self) -> impl Iterator<Item = u64> + '_ {
        let mine = self.slots.get(slot()).map_or(&self.total.0, |slot| &slot.0);
        let pairs = self.total.0.iter().zip(mine).rev();
        pairs.map(|(total, mine)| sum(total.load(Ordering::Relaxed) + mine.load(Ordering::Relaxed)))
    }

    /// One sum with the changes of all threads that are done.
    pub(crate) fn exact(&self, at: usize) -> u64 {
        let slots = self.slots.iter().filter_map(|slot| slot.0.get(at));
        let held: i64 = slots.map(|slot| slot.load(Ordering::Acquire)).sum();
        sum(self.total(at) + held)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_other_threads_changed_is_missing_by_a_small_part_of_all() {
        for all in [1_000, 500_000, 1 << 30] {
            let tally = Tally::<1>::for_total(all);
            std::thread::scope(|scope| {
                for _ in 0..SLOTS {
                    scope.spawn(|| (0..all / SLOTS as u64 / 7).for_each(|_| tally.add(0, 7)));
                }
            });
            let missing = tally.exact(0) - tally.near(0);
            assert!(missing <= all / 1_280, "{missing} of {all}");
        }
    }

    #[test]
    fn one_thread_sees_every_change_and_all_together_are_exact() {
        let tally = Tally::<2>::for_total(1 << 30);
        let mut expected = 0u64;
        for step in 0..10_000u64 {
            tally.add(1, step % 1_500);
            expected += step % 1_500;
            if expected > 900 && step % 3 == 0 {
                tally.subtract(1, 900);
                expected -= 900;
            }
            assert_eq!((tally.near(1), tally.exact(1), tally.near(0)), (expected, expected, 0));
        }
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|_| tally.add(0, 7)));
            }
        });
        assert_eq!(tally.exact(0), 40 * 100 * 7);
        assert_eq!(tally.near_all().last(), Some(tally.near(0)));
    }
}
