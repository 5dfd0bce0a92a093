//! Regions by class: one bit per region and class, in levels of 64, set where the region holds a member of the class.
//!
//! A leaf block covers 64 regions with 32 words, one per class (four cache lines); a block of a
//! higher level covers 64 blocks of the level below. A leaf bit is exact, since only the holder of
//! its region's lock changes it. Bits of higher levels are hints: a thread that clears one re-reads the
//! word below and sets it again if need be, so a stale 1 costs a probe and a stale 0 can't stay.
//! A block is there from the first bit that is set in it.

use super::sparse::Sparse;
use crate::sync::atomic::{AtomicU64, Ordering};
use ondisk::units::bounded;

/// The words of 64 regions or blocks, one per class.
struct Block<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Block(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Bit planes of `N` classes over all regions.
pub(crate) struct Planes<const N: usize> {
    /// Leaf level first; the last level has one block.
    levels: Vec<Sparse<Block<N>>>,
}

impl<const N: usize> Planes<N> {
    pub(crate) fn new(regions: u32) -> Self {
        let mut levels = Vec::new();
        let mut blocks = regions.div_ceil(64).max(1);
        loop {
            levels.push(Sparse::new(blocks));
            if blocks == 1 {
                return Planes { levels };
            }
            blocks = blocks.div_ceil(64);
        }
    }

    /// Replaces the set of classes of `region`; the caller holds the region's lock.
    pub(crate) fn update(&self, region: u32, before: u32, after: u32) {
        each(after & !before, |class| self.set(region, class));
        each(before & !after, |class| self.clear(region, class));
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.iter().map(Sparse::bytes).sum()
    }

    fn block(&self, level: usize, block: u32) -> Option<&[AtomicU64; N]> {
        self.levels.get(level)?.get(block).map(|block| &block.0)
    }

    fn word(&self, level: usize, block: u32, class: u32) -> Option<&AtomicU64> {
        self.block(level, block)?.get(class as usize)
    }

    fn made_word(&self, level: usize, block: u32, class: u32) -> Option<&AtomicU64> {
        self.levels.get(level)?.make(block)?.0.get(class as usize)
    }

    /// Sets one bit and what leads to it.
    pub(crate) fn set(&self, region: u32, class: u32) {
        let mut index = region;
        for level in 0..self.levels.len() {
            let Some(word) = self.made_word(level, index / 64, class) else { return };
            if word.fetch_or(1 << (index % 64), Ordering::SeqCst) != 0 {
                return;
            }
            index /= 64;
        }
    }

    /// Clears one bit, and what leads to it where nothing is left below.
    pub(crate) fn clear(&self, region: u32, class: u32) {
        let mut index = region;
        for level in 0..self.levels.len() {
            let Some(word) = self.word(level, index / 64, class) else { return };
            let bit = 1 << (index % 64);
            if word.fetch_and(!bit, Ordering::SeqCst) & !bit != 0 {
                return;
            }
            if level > 0 && self.any_below(level, index, class) {
                self.set_from(level, index, class);
                return;
            }
            index /= 64;
        }
    }

    fn any_below(&self, level: usize, index: u32, class: u32) -> bool {
        self.word(level - 1, index, class).is_some_and(|w| w.load(Ordering::SeqCst) != 0)
    }

    fn set_from(&self, from: usize, index: u32, class: u32) {
        let mut index = index;
        for level in from..self.levels.len() {
            let Some(word) = self.made_word(level, index / 64, class) else { return };
            word.fetch_or(1 << (index % 64), Ordering::SeqCst);
            index /= 64;
        }
    }

    /// Union of the words of `classes` in a block.
    fn union(&self, level: usize, block: u32, classes: u32) -> u64 {
        let Some(words) = self.block(level, block) else { return 0 };
        let skip = classes.trailing_zeros() as usize;
        let mut union = 0;
        for (class, word) in words.iter().enumerate().skip(skip) {
            if classes >> class & 1 != 0 {
                union |= word.load(Ordering::Acquire);
            }
        }
        union
    }

    /// First region at or after `from` that holds a member of one of `classes`.
    pub(crate) fn next(&self, from: u32, classes: u32) -> Option<u32> {
        let mut level = 0;
        let mut index = from;
        while level < self.levels.len() {
            let word = self.union(level, index / 64, classes) & (u64::MAX << (index % 64));
            if word != 0 {
                let found = index / 64 * 64 + word.trailing_zeros();
                match self.descend(level, found, classes, u64::trailing_zeros) {
                    Some(region) => return Some(region),
                    // A stale hint: go on behind it on the same level.
                    None => index = found + 1,
                }
                if index.is_multiple_of(64) {
                    index /= 64;
                    level += 1;
                }
                continue;
            }
            index = index / 64 + 1;
            level += 1;
        }
        None
    }

    /// Regions that hold a member of one of `classes`: those from `home` on, then those before it.
    pub(crate) fn around(&self, home: u32, classes: u32) -> impl Iterator<Item = u32> {
        let span = move |from, upto| {
            let first = self.next(from, classes);
            std::iter::successors(first, move |at| self.next(at + 1, classes))
                .take_while(move |&at| at < upto)
        };
        span(home, u32::MAX).chain(span(0, home))
    }

    /// Last region at or before `from` that holds a member of one of `classes`.
    pub(crate) fn previous(&self, from: u32, classes: u32) -> Option<u32> {
        let mut level = 0;
        let mut index = from;
        while level < self.levels.len() {
            let word = self.union(level, index / 64, classes) & (u64::MAX >> (63 - index % 64));
            if word != 0 {
                let found = index / 64 * 64 + 63 - word.leading_zeros();
                if let Some(region) = self.descend(level, found, classes, |w| 63 - w.leading_zeros()) {
                    return Some(region);
                }
                if found.is_multiple_of(64) {
                    level += 1;
                    index = (found / 64).checked_sub(1)?;
                } else {
                    index = found - 1;
                }
                continue;
            }
            level += 1;
            index = (index / 64).checked_sub(1)?;
        }
        None
    }

    /// Follows set bits down to a leaf; `pick` chooses among the bits of a word.
    fn descend(&self, level: usize, index: u32, classes: u32, pick: fn(u64) -> u32) -> Option<u32> {
        let mut index = index;
        for below in (0..level).rev() {
            let word = self.union(below, index, classes);
            if word == 0 {
                return None;
            }
            index = index * 64 + pick(word);
        }
        Some(index)
    }

    /// Nearest region to `goal` with a member of one of `classes`, the later one on a tie.
    pub(crate) fn nearest(&self, goal: u32, classes: u32) -> Option<u32> {
        let after = self.next(goal, classes);
        if after == Some(goal) {
            return after;
        }
        let before = goal.checked_sub(1).and_then(|last| self.previous(last, classes));
        match (before, after) {
            (Some(b), Some(a)) => Some(if goal - b < a - goal { b } else { a }),
            (b, a) => a.or(b),
        }
    }

    /// Classes of which the block of 64^`scope` regions around `goal` holds a member.
    pub(crate) fn classes_around(&self, goal: u32, scope: u32) -> u32 {
        let level = scope.saturating_sub(1) as usize;
        let block = goal.checked_shr(6 * scope).unwrap_or(0);
        let Some(words) = self.block(level, block) else { return 0 };
        let mut classes = 0;
        for (class, word) in words.iter().enumerate() {
            if word.load(Ordering::Acquire) != 0 {
                classes |= 1 << class;
            }
        }
        classes
    }

    /// Levels of blocks; the block of the last one covers everything.
    pub(crate) fn scopes(&self) -> u32 {
        bounded::<u32>(self.levels.len())
    }
}

/// Calls `act` with the number of every set bit, ascending.
fn each(mut set: u32, mut act: impl FnMut(u32)) {
    while set != 0 {
        act(set.trailing_zeros());
        set &= set - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(
            regions in 1u32..20_000,
            steps in prop::collection::vec((any::<u32>(), 0u32..4, any::<bool>()), 1..120),
            probes in prop::collection::vec((any::<u32>(), 1u32..16), 1..40),
        ) {
            let planes = Planes::<32>::new(regions);
            let mut model = std::collections::BTreeMap::<u32, u32>::new();
            for (at, class, on) in steps {
                let region = at % regions;
                let entry = model.entry(region).or_default();
                let before = *entry;
                if on { *entry |= 1 << class } else { *entry &= !(1 << class) }
                planes.update(region, before, *entry);
            }
            for (at, classes) in probes {
                let from = at % regions;
                let hit = |(_, set): &(&u32, &u32)| **set & classes != 0;
                let next = model.range(from..).find(hit).map(|(r, _)| *r);
                let previous = model.range(..=from).rev().find(hit).map(|(r, _)| *r);
                prop_assert_eq!(planes.next(from, classes), next);
                prop_assert_eq!(planes.previous(from, classes), previous);
            }
        }
    }
}
