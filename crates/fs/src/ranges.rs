//! Ranges of a file, in bytes and in file blocks, so that one is never taken for the other.

use std::ops::Range;

use ondisk::units::{BlockSize, FileBlock, low_u32};

use crate::error::{Error, Result};

/// One past the last file block that any map can name.
const LAST: u64 = 1 << 32;

/// File blocks `start..end`. The end may be 2^32, which no [`FileBlock`] can say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileBlocks {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl FileBlocks {
    /// All that a map can hold.
    pub(crate) const ALL: FileBlocks = FileBlocks { start: 0, end: LAST };

    pub(crate) const fn new(start: u64, end: u64) -> Self {
        FileBlocks { start, end }
    }

    /// `count` blocks from one on.
    pub(crate) fn from_count(start: FileBlock, count: u64) -> Self {
        FileBlocks { start: u64::from(start.0), end: u64::from(start.0).saturating_add(count) }
    }

    /// All from one on.
    pub(crate) const fn behind(start: u64) -> Self {
        FileBlocks { start, end: LAST }
    }

    /// The first of them; of a range behind all file blocks the last there is.
    pub(crate) fn first(self) -> FileBlock {
        FileBlock(low_u32(self.start.min(LAST - 1)))
    }

    pub(crate) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The part of it that lies in another one.
    pub(crate) fn within(self, other: FileBlocks) -> Self {
        FileBlocks { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The bytes that they hold.
    pub(crate) fn bytes(self, size: BlockSize) -> ByteRange {
        ByteRange { start: self.start << size.log2(), end: self.end << size.log2() }
    }
}

/// Bytes `start..end` of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl ByteRange {
    pub(crate) const fn new(start: u64, end: u64) -> Self {
        ByteRange { start, end }
    }

    pub(crate) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whole blocks inside of it; its start may lie behind its end.
    pub(crate) fn inner(self, size: BlockSize) -> FileBlocks {
        FileBlocks { start: size.blocks_for(self.start), end: self.end >> size.log2() }
    }

    /// Blocks that it touches.
    pub(crate) fn outer(self, size: BlockSize) -> FileBlocks {
        FileBlocks { start: self.start >> size.log2(), end: size.blocks_for(self.end) }
    }
}

impl From<Range<u64>> for ByteRange {
    fn from(range: Range<u64>) -> Self {
        ByteRange { start: range.start, end: range.end }
    }
}

/// Does something to a range, from front to back, in parts of at most a given size: as large as the journal has
/// room for, cut at multiples of a unit. What fits is tried twice as long next: ranges may be mostly empty.
///
/// # Errors
/// Errors of a part of one unit; [`Error::TooLargeForLog`] of a longer one only makes it shorter.
pub(crate) fn in_parts(
    range: Range<u64>,
    unit: u64,
    most: u64,
    mut part: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let (mut at, mut len) = (range.start, most);
    while at < range.end {
        let cut = at.saturating_add(len) / unit * unit;
        let stop = cut.max((at / unit + 1) * unit).min(range.end);
        match part(at..stop) {
            Err(Error::TooLargeForLog { .. }) if stop - at > unit => len = (stop - at) / 2,
            done => {
                done?;
                at = stop;
                len = len.saturating_mul(2).min(most);
            }
        }
    }
    Ok(())
}
