//! A set of block numbers as runs: what is used in a part of the volume.

use std::collections::BTreeMap;

/// Disjoint runs, neighbours joined: start to one past the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds `start..end`, which may overlap what is there.
    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
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

    /// The run that holds `at`, or else the next one behind it.
    pub(super) fn at_or_after(&self, at: u64) -> Option<(u64, u64)> {
        let before = self.0.range(..=at).next_back().filter(|(_, end)| **end > at);
        before.or_else(|| self.0.range(at..).next()).map(|(start, end)| (*start, *end))
    }

    /// The first place at or behind `from` with `len` free blocks before `limit`.
    pub(super) fn find_free(&self, from: u64, limit: u64, len: u64) -> Option<u64> {
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
    pub(super) fn within(&self, from: u64, limit: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let (start, end) = self.at_or_after(at).filter(|(start, _)| *start < limit)?;
            let piece = (start.max(at), end.min(limit));
            at = end;
            Some(piece)
        })
    }

    /// Blocks of the runs inside `from..limit`.
    pub(super) fn count_within(&self, from: u64, limit: u64) -> u64 {
        self.within(from, limit).map(|(start, end)| end - start).sum()
    }

    /// The same runs, rounded out to whole units of 2^`log2` blocks.
    pub(super) fn rounded_out(&self, log2: u32) -> Runs {
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
        fn behaves_like_a_plain_set(spans in prop::collection::vec((0_u64..100, 0_u64..10), 0..30), from in 0_u64..110, len in 1_u64..12) {
            let mut runs = Runs::default();
            let mut plain = [false; 128];
            for (start, count) in spans {
                runs.insert(start, start + count);
                plain[start as usize..(start + count) as usize].fill(true);
            }
            let limit = 120;
            let found = (from..limit).find(|at| at + len <= limit && plain[*at as usize..(at + len) as usize].iter().all(|used| !used));
            prop_assert_eq!(runs.find_free(from, limit, len), found);
            let count = plain[from.min(60) as usize..60].iter().filter(|used| **used).count() as u64;
            prop_assert_eq!(runs.count_within(from.min(60), 60), count);
            // Neighbours are joined.
            let mut last = None;
            for (start, end) in &runs.0 {
                prop_assert!(start < end && last.is_none_or(|last| last < *start));
                last = Some(*end);
            }
        }
    }
}
