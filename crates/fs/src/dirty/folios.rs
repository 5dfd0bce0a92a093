//! Folios in which a kernel keeps what was written, where placement follows that kernel.
//!
//! Owns: the writes that are not written back, and the folios that follow from them. Excludes: what a write-back asks for
//! (`ops::flush`).
//!
//! Source: Linux 6.18, `__filemap_get_folio`: a write is cut into the largest folios that lie at a multiple of their own
//! length. What was written before stays in the folio that it has. A block counts as a page: on volumes with smaller blocks
//! the smallest folio holds several, which is not followed.

use std::collections::BTreeMap;

use crate::ranges::FileBlocks;

/// Writes that went on from each other, as long as the first but for the last one.
#[derive(Clone, Copy, Debug)]
struct Series {
    end: u64,
    /// Blocks of a write.
    step: u64,
}

/// The folios of a file, by the first block of a series of writes. No two overlap.
#[derive(Clone, Default, Debug)]
pub(crate) struct Folios(BTreeMap<u64, Series>);

impl Folios {
    /// Notes a write. What lies in a folio already stays there.
    pub(crate) fn note(&mut self, mut write: FileBlocks) {
        while !write.is_empty() {
            let behind = self.0.range(write.start + 1..).next();
            let end = behind.map_or(write.end, |(start, _)| write.end.min(*start));
            self.note_gap(FileBlocks::new(write.start, end));
            write.start = end;
        }
    }

    /// Notes a write in which no series begins.
    fn note_gap(&mut self, mut write: FileBlocks) {
        let before = self.0.range_mut(..=write.start).next_back();
        if let Some((start, series)) = before {
            write.start = write.start.max(series.end.min(write.end));
            let is_whole = (series.end - start).is_multiple_of(series.step);
            if series.end == write.start && is_whole && write.len() <= series.step {
                series.end = write.end;
                return;
            }
        }
        if !write.is_empty() {
            self.0.insert(write.start, Series { end: write.end, step: write.len() });
        }
    }

    /// The end of the folio that has a block in it, but not as its first.
    pub(crate) fn rest(&self, block: u64) -> Option<u64> {
        let (start, series) = self.0.range(..=block).next_back().filter(|(_, series)| block < series.end)?;
        let mut at = start + (block - start) / series.step * series.step;
        let stop = (at + series.step).min(series.end);
        while at < block {
            let room = stop.saturating_sub(at).checked_ilog2()?;
            let next = at + (1 << room.min(at.trailing_zeros()));
            if block < next {
                return Some(next);
            }
            at = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placement::BlockPolicyKind;

    use super::*;
    use crate::mkfs::{FsType, Options as FormatOptions};
    use crate::{Image, OpenOptions};

    fn folios_of(writes: impl IntoIterator<Item = (u64, u64)>) -> Folios {
        let mut folios = Folios::default();
        writes.into_iter().for_each(|(start, end)| folios.note(FileBlocks::new(start, end)));
        folios
    }

    /// Each write would else leave something behind for as long as the file is open.
    #[test]
    fn nothing_is_noted_where_no_write_waits() {
        for (delay, noted) in [(0, 0), (1 << 20, 3)] {
            let device = Arc::new(crate::device::MemoryDevice::new(8 << 20));
            let options = OpenOptions::new().policy(BlockPolicyKind::Mballoc).delay(delay);
            let image = Image::format(device, &FormatOptions::new(FsType::Ext4), &options).unwrap();
            let file = image.create("f").unwrap();
            for at in [0, 5, 9] {
                file.write_at(at * 4096, b"x").unwrap();
            }
            let number = image.metadata("f").unwrap().inode;
            let dirty = image.volume().session.delayed.enter(number);
            assert_eq!(dirty.state().folios.0.len(), noted, "{delay}");
        }
    }

    /// Writes of 16 blocks; the last one has 13, in folios of 8, 4 and 1.
    #[test]
    fn writes_of_one_length_are_cut_at_its_multiples() {
        let folios = folios_of((0..124).map(|at| (at * 16, at * 16 + 16)).chain([(1_984, 1_997)]));
        let rests = [1_726, 1_712, 0, 16, 15].map(|block| folios.rest(block));
        assert_eq!(rests, [Some(1_728), None, None, None, Some(16)]);
        let rests = [1_988, 1_992, 1_994, 1_996, 1_997].map(|block| folios.rest(block));
        assert_eq!(rests, [Some(1_992), None, Some(1_996), None, None]);
        assert_eq!(folios.0.len(), 1);
    }

    /// A file of 132 blocks goes on: its further folios lie at multiples of their lengths from there.
    #[test]
    fn what_is_appended_begins_folios_of_its_own() {
        let writes = (0..8).map(|at| (at * 16, at * 16 + 16)).chain([(128, 132), (132, 148), (148, 153)]);
        let folios = folios_of(writes);
        let rests = [130, 132, 134, 138, 144, 145, 152].map(|block| folios.rest(block));
        assert_eq!(rests, [Some(132), None, Some(136), Some(144), None, Some(148), None]);
    }

    #[test]
    fn what_is_written_again_stays_in_its_folio() {
        let folios = folios_of([(0, 8), (2, 4), (4, 12), (20, 22), (0, 1), (16, 24)]);
        let rests = [1, 6, 9, 11, 12, 17, 21, 22, 23].map(|block| folios.rest(block));
        let expected = [Some(8), Some(8), Some(12), Some(12), None, Some(20), Some(22), None, Some(24)];
        assert_eq!(rests, expected);
    }
}
