//! Sources of a volume's bytes, in memory: ranges that lie over one another, the last on top.
//!
//! Excludes what a source is.

use std::collections::BTreeMap;

use platfs_device::units::bounded;

/// Where bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// They are zeros.
    Zeros,
    /// They are in an object that somebody has numbered, from an offset on.
    At {
        /// The object.
        object: u32,
        /// The first byte.
        offset: u32,
    },
}

impl Source {
    fn behind(self, bytes: u64) -> Self {
        match self {
            Source::Zeros => Source::Zeros,
            Source::At { object, offset } => {
                let more = bounded::<u32>(bytes);
                Source::At { object, offset: offset.saturating_add(more) }
            }
        }
    }
}

/// Bytes in one piece from one source, or from none that is known here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) source: Option<Source>,
}

/// The ranges, by their first byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    ranges: BTreeMap<u64, (u64, Source)>,
}

impl Extents {
    /// Lays a range over what is there.
    pub(crate) fn insert(&mut self, start: u64, len: u64, source: Source) {
        let end = start.saturating_add(len);
        if len == 0 {
            return;
        }
        if let Some((&first, &(stop, old))) = self.ranges.range(..start).next_back()
            && stop > start
        {
            self.ranges.insert(first, (start, old));
            if stop > end {
                self.ranges.insert(end, (stop, old.behind(end - first)));
            }
        }
        while let Some((&first, &(stop, old))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&first);
            if stop > end {
                self.ranges.insert(end, (stop, old.behind(end - first)));
            }
        }
        self.ranges.insert(start, (end, source));
    }

    /// Returns the pieces of a range, in order and without gaps.
    pub(crate) fn pieces(&self, start: u64, len: u64) -> Vec<Piece> {
        let end = start.saturating_add(len);
        let before = self.ranges.range(..start).next_back().filter(|(_, (stop, _))| *stop > start);
        let mut found = Vec::new();
        let mut at = start;
        for (&first, &(stop, source)) in before.into_iter().chain(self.ranges.range(start..end)) {
            if first > at {
                found.push(Piece { start: at, len: first - at, source: None });
            }
            let from = first.max(start);
            let to = stop.min(end);
            found.push(Piece { start: from, len: to - from, source: Some(source.behind(from - first)) });
            at = to;
        }
        if at < end {
            found.push(Piece { start: at, len: end - at, source: None });
        }
        found
    }

    /// All ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Piece> + '_ {
        let piece = |(&start, &(end, source)): (&u64, &(u64, Source))| Piece {
            start,
            len: end - start,
            source: Some(source),
        };
        self.ranges.iter().map(piece)
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "all numbers are below two hundred")]
    fn ranges_are_those_of_an_array_of_bytes() {
        const SIZE: u64 = 200;
        let mut extents = Extents::default();
        let mut model: Vec<Option<(u32, u32)>> = vec![None; SIZE as usize];
        let mut random = 12_345_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for object in 0..2000_u32 {
            let start = next(SIZE);
            let len = next(SIZE - start + 1).min(1 + next(60));
            extents.insert(start, len, Source::At { object, offset: 1000 });
            for (at, place) in (0_u32..).zip(&mut model[start as usize..(start + len) as usize]) {
                *place = Some((object, 1000 + at));
            }
            let (start, len) = (next(50), 150);
            let mut at = start;
            for piece in extents.pieces(start, len) {
                assert_eq!(piece.start, at);
                for inside in 0..piece.len {
                    let wanted = piece.source.map(|source| match source.behind(inside) {
                        Source::At { object, offset } => (object, offset),
                        Source::Zeros => unreachable!(),
                    });
                    assert_eq!(model[(at + inside) as usize], wanted);
                }
                at += piece.len;
            }
            assert_eq!(at, start + len);
        }
    }
}
