//! Pieces of a device that are to become what other pieces of it are: as runs, without their bytes.
//!
//! Owns: which piece is a copy of which. Excludes reading and writing them ([`super::staged`], [`super::apply`]).

use std::collections::BTreeMap;
use std::ops::Range;

/// Copies beside each other, from pieces beside each other.
#[derive(Clone, Copy)]
struct Run {
    count: u64,
    from: u64,
}

/// Copies by the first piece of each run.
#[derive(Default)]
pub(super) struct Copies(BTreeMap<u64, Run>);

impl Copies {
    /// Number of runs, which is what they take memory by.
    pub(super) fn runs(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Makes a piece the copy of another. It must not be one already.
    pub(super) fn insert(&mut self, to: u64, from: u64) {
        if let Some((start, run)) = self.0.range_mut(..to).next_back()
            && start + run.count == to
            && run.from + run.count == from
        {
            run.count += 1;
            return;
        }
        self.0.insert(to, Run { count: 1, from });
    }

    /// The piece of which this one is a copy.
    pub(super) fn source(&self, piece: u64) -> Option<u64> {
        let (start, run) = self.0.range(..=piece).next_back()?;
        let at = piece - start;
        (at < run.count).then(|| run.from + at)
    }

    /// Copies within a range, rising: each with its source.
    pub(super) fn within(&self, pieces: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.range(..pieces.start).next_back().map_or(pieces.start, |(start, _)| *start);
        let end = pieces.end;
        self.0.range(first..end.max(first)).flat_map(move |(start, run)| {
            let (from, until) = ((*start).max(pieces.start), (start + run.count).min(end));
            (from..until).map(move |piece| (piece, run.from + (piece - start)))
        })
    }

    /// All copies, rising.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.within(0..u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let mut copies = Copies::default();
        for (to, from) in [(10, 50), (11, 51), (12, 53), (20, 60), (21, 61)] {
            copies.insert(to, from);
        }
        assert_eq!(copies.runs(), 3);
        assert_eq!(
            [9, 10, 11, 12, 13, 21].map(|piece| copies.source(piece)),
            [None, Some(50), Some(51), Some(53), None, Some(61)]
        );
        assert_eq!(copies.within(11..21).collect::<Vec<_>>(), [(11, 51), (12, 53), (20, 60)]);
        assert_eq!(copies.iter().count(), 5);
    }
}
