//! A set of block numbers as runs: what is used in a part of the volume.

use std::collections::BTreeMap;

/// Disjoint runs, neighbours joined: start to one past the end.
#[derive(Clone, Debug, Default)]
pub struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds `start..end`, which may overlap what is there.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((s, e)) = self.0.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes `start..end` out, as far as it is there.
    pub fn remove(&mut self, start: u64, end: u64) {
        while let Some((s, e)) = self.at_or_after(start).filter(|(s, _)| *s < end) {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start);
            }
            if e > end {
                self.0.insert(end, e);
            }
        }
    }

    /// The run that holds `at`, or else the next one behind it.
    #[must_use]
    pub fn at_or_after(&self, at: u64) -> Option<(u64, u64)> {
        let before = self.0.range(..=at).next_back().filter(|(_, end)| **end > at);
        before.or_else(|| self.0.range(at..).next()).map(|(start, end)| (*start, *end))
    }

    /// The first place at or behind `from` with `len` free blocks before `limit`.
    #[must_use]
    pub fn find_free(&self, from: u64, limit: u64, len: u64) -> Option<u64> {
        let mut at = from;
        while at.checked_add(len)? <= limit {
            match self.at_or_after(at) {
                Some((start, end)) if start < at + len => at = end,
                _ => return Some(at),
            }
        }
        None
    }

    /// The parts of the runs that lie in `from..limit`.
    pub fn within(&self, from: u64, limit: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let (start, end) = self.at_or_after(at).filter(|(start, _)| *start < limit)?;
            let piece = (start.max(at), end.min(limit));
            at = end;
            Some(piece)
        })
    }

    /// Blocks of the runs inside `from..limit`.
    #[must_use]
    pub fn count_within(&self, from: u64, limit: u64) -> u64 {
        self.within(from, limit).map(|(start, end)| end - start).sum()
    }

    /// Rounds the runs out to whole units of 2^`log2` blocks.
    #[must_use]
    pub fn rounded_out(&self, log2: u32) -> Runs {
        let mut rounded = Runs::default();
        for (start, end) in &self.0 {
            rounded.insert(start >> log2 << log2, end.div_ceil(1 << log2) << log2);
        }
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_plain_set(
            spans in prop::collection::vec((0_usize..100, 0_usize..10), 0..30),
            from in 0_usize..110,
            len in 1_usize..12,
        ) {
            let mut runs = Runs::default();
            let mut plain = [false; 120];
            for (start, count) in spans {
                runs.insert(start as u64, (start + count) as u64);
                plain[start..start + count].fill(true);
            }
            let is_free = |at: &usize| plain.get(*at..at + len).is_some_and(|part| part.iter().all(|used| !used));
            let found = (from..plain.len()).find(is_free);
            prop_assert_eq!(runs.find_free(from as u64, 120, len as u64), found.map(|at| at as u64));
            let from = from.min(60);
            let count = plain[from..60].iter().filter(|used| **used).count();
            prop_assert_eq!(runs.count_within(from as u64, 60), count as u64);
            let mut last = None;
            for (start, end) in &runs.0 {
                prop_assert!(start < end && last.is_none_or(|last| last < *start), "neighbours are joined");
                last = Some(*end);
            }
            runs.remove(from as u64, (from + len) as u64);
            plain[from..from + len].fill(false);
            for (at, used) in plain.iter().enumerate() {
                prop_assert_eq!(runs.count_within(at as u64, at as u64 + 1) == 1, *used);
            }
        }
    }
}
