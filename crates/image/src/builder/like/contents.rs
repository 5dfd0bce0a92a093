//! Comparison of a file's contents with those in the older image.
//!
//! Contents are compared byte by byte: no time or length is trusted. A file of the same number of blocks, in which few
//! stretches differ, is changed where it lies; any other gets new blocks, all in one place if there is one.

use std::ops::Range;

use ondisk::units::saturated;
use platfs::ondisk::units::InodeNumber;
use platfs::{Reader, Seek, Volume};

use crate::builder::error::BuildError;
use crate::source::catalogue::Extent;
use crate::source::{Catalogue, DataReader, NodeId};

/// A stretch in which one changed byte costs a reader as much as any number of them.
const STEP: u64 = 64 << 10;
/// Bytes compared at once: few enough to stay in a processor's own cache between reading and comparing.
pub(super) const PIECE: usize = 128 << 10;

/// Way in which the contents of a file become those of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// They are.
    Same,
    /// These bytes are written where they lie, and the file is cut to its size.
    InPlace(Vec<Range<u64>>),
    /// All of them are written to new blocks.
    Afresh,
}

/// A file of the source beside one of the older image.
pub(super) struct Pair<'a, 'c> {
    pub(super) catalogue: &'c Catalogue,
    pub(super) source: &'a mut DataReader<'c>,
    pub(super) was: &'a Volume,
    /// Of [`PIECE`] bytes, for those of the older image.
    pub(super) buffer: &'a mut [u8],
}

impl Pair<'_, '_> {
    /// Compares the contents of two files.
    ///
    /// # Errors
    /// A source or an older image that can't be read.
    pub(super) fn compare(&mut self, node: NodeId, number: InodeNumber) -> Result<Contents, BuildError> {
        let size = self.catalogue.metadata(node).size;
        let old = self.was.open_file(number)?;
        let block = u64::from(self.was.format().geometry.block_size.bytes());
        // A longer file finds no room behind itself, as a rule.
        if size.div_ceil(block) > old.size().div_ceil(block) || (size == 0) != (old.size() == 0) {
            return Ok(Contents::Afresh);
        }
        let mut differing = Differing { block, ranges: Vec::new() };
        let mut end = 0;
        for extent in self.catalogue.extents(node) {
            if self.is_data(number, &old, end..extent.file_offset)? {
                return Ok(Contents::Afresh);
            }
            self.compare_extent(&extent, &old, &mut differing)?;
            end = extent.file_offset + extent.len;
        }
        if self.is_data(number, &old, end..size)? {
            return Ok(Contents::Afresh);
        }
        Ok(differing.verdict(size, old.size()))
    }

    /// Returns true if two files have the same bytes.
    ///
    /// # Errors
    /// As [`Pair::compare`].
    pub(super) fn is_same(&mut self, node: NodeId, number: InodeNumber) -> Result<bool, BuildError> {
        Ok(self.compare(node, number)? == Contents::Same)
    }

    /// Compares a run of the source's data.
    fn compare_extent(
        &mut self,
        extent: &Extent,
        old: &Reader<'_>,
        differing: &mut Differing,
    ) -> Result<(), BuildError> {
        let mut done = 0;
        while done < extent.len {
            let piece = self.source.window(extent, done, self.buffer.len())?;
            if piece.is_empty() {
                return Err(BuildError::Shrunk);
            }
            let at = extent.file_offset + done;
            let had = read_fully(old, at, self.buffer.get_mut(..piece.len()).unwrap_or_default())?;
            let had = self.buffer.get(..had).unwrap_or_default();
            if had != piece {
                differing.add(at, piece, had);
            }
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Returns true if the older file has bytes other than zero where the source has a hole.
    fn is_data(
        &mut self,
        number: InodeNumber,
        old: &Reader<'_>,
        hole: Range<u64>,
    ) -> Result<bool, BuildError> {
        let mut at = hole.start;
        while at < hole.end.min(old.size()) {
            let Some(data) = self.was.seek(number, at, Seek::Data)?.filter(|data| *data < hole.end) else {
                return Ok(false);
            };
            let len = saturated::<usize>(hole.end - data).min(self.buffer.len());
            let part = self.buffer.get_mut(..len).unwrap_or_default();
            let had = read_fully(old, data, part)?;
            if part.iter().take(had).any(|byte| *byte != 0) {
                return Ok(true);
            }
            at = data + len as u64;
        }
        Ok(false)
    }
}

/// Reads until the buffer is full or the file ends.
fn read_fully(old: &Reader<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize, platfs::Error> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = buffer.get_mut(done..).unwrap_or_default();
        match old.read_at(offset + done as u64, rest)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Blocks that differ.
struct Differing {
    block: u64,
    /// Rising and apart.
    ranges: Vec<Range<u64>>,
}

impl Differing {
    /// Compares a piece block by block; what the older file does not have differs.
    fn add(&mut self, at: u64, new: &[u8], old: &[u8]) {
        let mut from = 0;
        while from < new.len() {
            let to_border = self.block - (at + from as u64) % self.block;
            let end = new.len().min(from + usize::try_from(to_border).unwrap_or(new.len()));
            if new.get(from..end) != old.get(from..end) {
                self.push(at + from as u64..at + end as u64);
            }
            from = end;
        }
    }

    fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }

    /// Returns the treatment of a file that has `size` bytes and had `old`.
    fn verdict(self, size: u64, old: u64) -> Contents {
        if self.ranges.is_empty() && size == old {
            return Contents::Same;
        }
        let (mut steps, mut counted) = (0, 0);
        for range in &self.ranges {
            let (first, last) = (range.start / STEP, (range.end - 1) / STEP + 1);
            steps += last - first.max(counted).min(last);
            counted = last;
        }
        if steps * STEP <= size { Contents::InPlace(self.ranges) } else { Contents::Afresh }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changes_stay_in_place_and_many_do_not() {
        let of = |ranges: &[Range<u64>], size, old| {
            Differing { block: 4096, ranges: ranges.to_vec() }.verdict(size, old)
        };
        assert_eq!(of(&[], 9, 9), Contents::Same);
        assert_eq!(of(&[], 9, 10), Contents::InPlace(Vec::new()), "only cut");
        assert_eq!(of(&[Range { start: 0, end: 1 }], STEP - 1, STEP - 1), Contents::Afresh);
        let ends = [0..4096, STEP - 1..STEP + 1];
        assert_eq!(of(&ends, 2 * STEP, 2 * STEP), Contents::InPlace(ends.to_vec()));
        let spread: Vec<_> = (0..5).map(|n| n * STEP..n * STEP + 1).collect();
        assert_eq!(of(&spread, 5 * STEP - 1, 5 * STEP - 1), Contents::Afresh);
    }

    #[test]
    fn blocks_are_compared_from_their_borders() {
        let mut differing = Differing { block: 4, ranges: Vec::new() };
        differing.add(2, b"abcdefghij", b"abcdefgXij");
        assert_eq!(differing.ranges, vec![Range { start: 8, end: 12 }]);
        differing.add(12, b"klm", b"k");
        assert_eq!(differing.ranges, vec![Range { start: 8, end: 15 }]);
    }
}
