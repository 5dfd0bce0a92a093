//! The buddy cache of one group: its bitmap, and how many free buddies of each order it has.
//!
//! The kernel keeps buddy bitmaps. A buddy of order `n` is free and not part of a larger one
//! exactly if its aligned 2^n clusters are free and its parent's are not, so the bitmap determines
//! them all; only the counts per order are kept here, updated run by run.

use crate::index::region::fill;
use ondisk::invariant_or;

/// Orders a group can have: up to a quarter of 2^19 clusters.
pub(super) const ORDERS: usize = 18;

/// In-core state of a group.
pub(super) struct Buddy {
    words: Vec<u64>,
    size: u32,
    top: u32,
    /// Free clusters.
    pub(super) free: u32,
    /// Maximal free runs.
    pub(super) fragments: u32,
    counters: [u32; ORDERS],
}

impl Buddy {
    /// From a bitmap (a set bit is used) of a group of `size` clusters; no buddy is larger than
    /// 2^`top`.
    pub(super) fn new(words: Vec<u64>, size: u32, top: u32) -> Self {
        let mut buddy = Buddy { words, size, top, free: 0, fragments: 0, counters: [0; ORDERS] };
        let mut at = buddy.next_free(0);
        while at < size {
            let end = buddy.next_used(at);
            buddy.account(at, end, true);
            at = buddy.next_free(end);
        }
        buddy
    }

    /// Clusters of the group.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    fn search(&self, from: u32, used: bool) -> u32 {
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in (from / 64..).zip(self.words.iter().skip((from / 64) as usize)) {
            let hits = if used { *word } else { !*word } & mask;
            if hits != 0 {
                return (index * 64 + hits.trailing_zeros()).min(self.size);
            }
            mask = u64::MAX;
        }
        self.size
    }

    /// First free cluster at or after `from`, or the size.
    pub(super) fn next_free(&self, from: u32) -> u32 {
        self.search(from, false)
    }

    /// First used cluster at or after `from`, or the size.
    pub(super) fn next_used(&self, from: u32) -> u32 {
        self.search(from, true)
    }

    pub(super) fn is_free(&self, at: u32) -> bool {
        at < self.size && self.next_free(at) == at
    }

    /// Start of the free run that ends before `at`, `at` itself if the cluster before is used.
    fn run_start(&self, at: u32) -> u32 {
        let mut at = at;
        while at > 0 {
            let word = self.words.get(((at - 1) / 64) as usize).copied().unwrap_or(u64::MAX);
            let below = word & (u64::MAX >> (63 - (at - 1) % 64));
            if below != 0 {
                return (at - 1) / 64 * 64 + 64 - below.leading_zeros();
            }
            at = (at - 1) / 64 * 64;
        }
        0
    }

    /// Counts the maximal run `from..to` in or out.
    fn account(&mut self, from: u32, to: u32, appears: bool) {
        if from >= to {
            return;
        }
        let mut at = from;
        while at < to {
            let order = self.order_within(at, to);
            at += 1 << order;
            let counter = self.counters.get_mut(order as usize);
            let counter = invariant_or!(counter, continue, "a buddy's order has a counter");
            *counter = match appears {
                true => *counter + 1,
                false => invariant_or!(counter.checked_sub(1), 0, "a buddy that goes was counted"),
            };
        }
        if appears {
            self.free += to - from;
            self.fragments += 1;
        } else {
            self.free -= to - from;
            self.fragments -= 1;
        }
    }

    /// Order of the buddy that begins at `at` in a free run that ends at `to`.
    fn order_within(&self, at: u32, to: u32) -> u32 {
        let aligned = if at == 0 { self.top } else { at.trailing_zeros() };
        aligned.min((to - at).ilog2()).min(self.top)
    }

    /// Marks `from..to` used or free. Parts that have that state already are left as they are; false if all do.
    pub(super) fn mark(&mut self, from: u32, to: u32, used: bool) -> bool {
        let to = to.min(self.size);
        let same = if used { self.next_free(from) } else { self.next_used(from) };
        if from >= to || same >= to {
            return false;
        }
        // Everything from the run that touches the start to the one that touches the end changes.
        let low = self.run_start(from);
        let high = if to < self.size && self.is_free(to) { self.next_used(to) } else { to };
        self.account_all(low, high, false);
        fill(&mut self.words, from, to, used);
        self.account_all(low, high, true);
        true
    }

    fn account_all(&mut self, low: u32, high: u32, appears: bool) {
        let mut at = self.next_free(low);
        while at < high {
            let end = self.next_used(at).min(high);
            self.account(at, end, appears);
            at = self.next_free(end);
        }
    }

    /// Largest order of which a free buddy exists.
    pub(super) fn largest_order(&self) -> Option<u32> {
        let at = self.counters.iter().rposition(|&count| count > 0)?;
        u32::try_from(at).ok()
    }

    /// Mean length of the free runs.
    pub(super) fn mean(&self) -> u32 {
        self.free.checked_div(self.fragments).unwrap_or(0)
    }

    /// Free buddies of an order.
    pub(super) fn count(&self, order: u32) -> u32 {
        self.counters.get(order as usize).copied().unwrap_or(0)
    }

    /// Lowest free buddy of exactly this order.
    pub(super) fn first_of_order(&self, order: u32) -> Option<u32> {
        let mut at = self.next_free(0);
        while at < self.size {
            let end = self.next_used(at);
            while at < end {
                let found = self.order_within(at, end);
                if found == order {
                    return Some(at);
                }
                at += 1 << found;
            }
            at = self.next_free(end);
        }
        None
    }

    /// The free extent at `at` as the kernel measures it: to the end of the buddy there, then
    /// further buddies until `needed` is reached.
    pub(super) fn extent(&self, at: u32, needed: u32) -> u32 {
        let end = self.next_used(at);
        let start = self.run_start(at);
        let mut buddy = start;
        while buddy + (1 << self.order_within(buddy, end)) <= at {
            buddy += 1 << self.order_within(buddy, end);
        }
        let mut reach = buddy + (1 << self.order_within(buddy, end));
        while reach < end && reach - at < needed {
            reach += 1 << self.order_within(reach, end);
        }
        reach - at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_follow_the_bitmap(
            size in 65u32..5_000,
            steps in prop::collection::vec((any::<u32>(), 1u32..700, any::<bool>()), 1..60),
        ) {
            let mut words = vec![0u64; size.div_ceil(64) as usize];
            fill(&mut words, size, size.next_multiple_of(64), true);
            let mut buddy = Buddy::new(words, size, 9);
            for (at, length, used) in steps {
                let from = at % size;
                buddy.mark(from, (from + length).min(size), used);
                let again = Buddy::new(buddy.words.clone(), size, 9);
                prop_assert_eq!(buddy.free, again.free);
                prop_assert_eq!(buddy.fragments, again.fragments);
                prop_assert_eq!(buddy.counters, again.counters);
                if buddy.is_free(from) {
                    let extent = buddy.extent(from, 5);
                    prop_assert!(from + extent <= buddy.next_used(from));
                    prop_assert!(extent >= 5 || from + extent == buddy.next_used(from));
                }
            }
        }
    }
}
