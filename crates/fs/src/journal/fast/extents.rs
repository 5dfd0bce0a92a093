//! The map of a file as records change it, in memory.

use std::collections::BTreeMap;

use ondisk::extent::{Extent, MAX_UNWRITTEN, MAX_WRITTEN};
use ondisk::units::{Block, BlockRun, FileBlock, low_u32};

use platfs_device::journal::Range;

use super::super::bad;
use crate::error::Result;
use crate::format::Format;
use crate::map::{Map, State};
use crate::ranges::FileBlocks;

/// Extents by their first file block; none overlap.
#[derive(Default)]
pub(super) struct Extents(BTreeMap<u32, Extent>);

impl Extents {
    /// Those of a file.
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub(super) fn read(map: Map<'_>) -> Result<Self> {
        let mut extents = BTreeMap::new();
        for segment in map.segments(FileBlocks::ALL) {
            let segment = segment?;
            let (start, unwritten) = match segment.state {
                State::Hole => continue,
                State::Mapped(start) => (start, false),
                State::Unwritten(start) => (start, true),
            };
            let extent = Extent { logical: segment.logical, start, count: low_u32(segment.count), unwritten };
            extents.insert(segment.logical.0, extent);
        }
        Ok(Extents(extents))
    }

    /// Does what a record says.
    ///
    /// # Errors
    /// Blocks outside the volume, or behind the reach of a map.
    pub(super) fn change(&mut self, format: &Format, limit: u64, range: &Range) -> Result<()> {
        match *range {
            Range::Delete { first, count } => self.cut(u64::from(first), u64::from(first) + u64::from(count)),
            Range::Add(extent) => {
                let lies_inside = format.geometry.contains(extent.start, u64::from(extent.count));
                if extent.count == 0 || !lies_inside || extent.logical_end() > limit {
                    let Extent { logical, start, count, .. } = extent;
                    return Err(bad(format!(
                        "a fast commit says that {count} file blocks from {logical} on lie at block {start}, \
                         which can't be"
                    )));
                }
                self.cut(u64::from(extent.logical.0), extent.logical_end());
                self.0.insert(extent.logical.0, extent);
            }
        }
        Ok(())
    }

    /// Makes a hole.
    fn cut(&mut self, from: u64, end: u64) {
        let first = low_u32(from.min(u64::from(u32::MAX)));
        let before = self.0.range(..first).next_back().map(|(at, _)| *at);
        let inside = self.0.range(first..).take_while(|(at, _)| u64::from(**at) < end).map(|(at, _)| *at);
        for at in before.into_iter().chain(inside).collect::<Vec<_>>() {
            let Some(extent) = self.0.remove(&at) else { continue };
            for (from, end) in [
                (u64::from(at), extent.logical_end().min(from)),
                (end.max(u64::from(at)), extent.logical_end()),
            ] {
                if from < end {
                    self.0.insert(low_u32(from), part(extent, from, end));
                }
            }
        }
    }

    /// All of them in order, neighbours joined.
    pub(super) fn joined(&self) -> Vec<Extent> {
        let mut joined: Vec<Extent> = Vec::new();
        for extent in self.0.values() {
            let most = if extent.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
            match joined.last_mut() {
                Some(last)
                    if last.logical_end() == u64::from(extent.logical.0)
                        && last.end() == extent.start.0
                        && last.unwritten == extent.unwritten
                        && last.count.saturating_add(extent.count) <= most =>
                {
                    last.count += extent.count;
                }
                _ => joined.push(*extent),
            }
        }
        joined
    }
}

fn part(extent: Extent, from: u64, end: u64) -> Extent {
    let skipped = from - u64::from(extent.logical.0);
    Extent {
        logical: FileBlock(low_u32(from)),
        start: Block(extent.start.0 + skipped),
        count: low_u32(end - from),
        unwritten: extent.unwritten,
    }
}

/// The blocks of extents.
pub(super) fn runs(extents: &[Extent]) -> Vec<BlockRun> {
    extents.iter().map(|extent| BlockRun { start: extent.start, count: extent.count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, start: u64, count: u32) -> Extent {
        Extent { logical: FileBlock(logical), start: Block(start), count, unwritten: false }
    }

    #[test]
    fn a_hole_cuts_what_it_meets_and_neighbours_join() {
        let mut extents = Extents::default();
        extents.0.insert(0, extent(0, 100, 10));
        extents.0.insert(10, extent(10, 110, 10));
        extents.0.insert(30, extent(30, 200, 5));
        assert_eq!(extents.joined(), [extent(0, 100, 20), extent(30, 200, 5)]);
        extents.cut(4, 6);
        assert_eq!(extents.joined(), [extent(0, 100, 4), extent(6, 106, 14), extent(30, 200, 5)]);
        extents.cut(15, 1 << 32);
        assert_eq!(extents.joined(), [extent(0, 100, 4), extent(6, 106, 9)]);
        extents.cut(0, 0);
        assert_eq!(extents.joined().len(), 2);
    }
}
