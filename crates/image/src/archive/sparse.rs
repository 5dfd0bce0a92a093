//! Sparse maps: the runs of data in a file with holes, in each of the encodings GNU tar has used.
//!
//! | version | where the map stands |
//! | --- | --- |
//! | old GNU (type `S`) | four pairs in the header, twenty-one in each extension block after it |
//! | PAX 0.0, 0.1 | in PAX records; see [`super::pax::SparseRecords`] |
//! | PAX 1.0 | as decimal lines before the data, padded to a whole block |
//!
//! The runs' data follow each other without gaps.

use super::entry::Run;
use super::header::{Header, field};
use super::limits;
use super::{number, pax};
use std::ops::Range;

/// Fault of a sparse map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SparseError {
    /// A number that is none, or an odd count of them.
    #[error("the sparse map holds something other than pairs of numbers")]
    Number,
    /// Runs that overlap, go backwards, or reach past the file's end.
    #[error("the sparse map's runs overlap, go backwards or pass the end of the file")]
    Order,
    /// The runs' total is not the size of the data that the archive holds.
    #[error("the sparse map's runs do not add up to the stored size")]
    Total,
    /// More than [`limits::SPARSE_RUNS`].
    #[error("a sparse file has more than {} data runs", limits::SPARSE_RUNS)]
    TooMany,
    /// The map is longer than the entry's data.
    #[error("the sparse map is longer than the entry")]
    Long,
}

/// Appends the pairs of an old GNU header or extension block: `place` is the field that holds them.
/// Returns false after the last pair (a pair without a length).
///
/// # Errors
/// [`SparseError::Number`], [`SparseError::TooMany`].
pub fn old_gnu_pairs(
    block: Header<'_>,
    place: Range<usize>,
    map: &mut Vec<u64>,
) -> Result<bool, SparseError> {
    let (pairs, _) = block.bytes(place).as_chunks::<24>();
    for pair in pairs {
        let (offset, len) = pair.split_at(12);
        if len.first() == Some(&0) {
            return Ok(false);
        }
        for text in [offset, len] {
            let value = number::parse(text).and_then(|v| u64::try_from(v).ok());
            map.push(value.ok_or(SparseError::Number)?);
        }
        if map.len() > 2 * limits::SPARSE_RUNS {
            return Err(SparseError::TooMany);
        }
    }
    Ok(true)
}

/// Returns true if one more extension block follows an old GNU header.
#[must_use]
pub fn old_gnu_continues(header: Header<'_>) -> bool {
    header.0[field::GNU_EXTENDED] != 0
}

/// Reads the decimal lines of a version 1.0 map from consecutive pieces of data.
#[derive(Debug, Default)]
pub struct LineMap {
    count: Option<u64>,
    /// Offsets and lengths in turn.
    map: Vec<u64>,
    digits: Vec<u8>,
}

impl LineMap {
    /// Takes in the next bytes. Returns true once the map is complete; the rest of that block is padding.
    ///
    /// # Errors
    /// [`SparseError::Number`], [`SparseError::TooMany`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<bool, SparseError> {
        for &byte in bytes {
            if byte != b'\n' {
                // Twenty digits hold any 64-bit number.
                if self.digits.len() >= 20 {
                    return Err(SparseError::Number);
                }
                self.digits.push(byte);
                continue;
            }
            let value = pax::decimal(&self.digits).ok_or(SparseError::Number)?;
            self.digits.clear();
            match self.count {
                None => self.count = Some(checked_count(value)?),
                Some(_) => self.map.push(value),
            }
            if self.is_complete() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The pairs read.
    #[must_use]
    pub fn into_map(self) -> Vec<u64> {
        self.map
    }

    fn is_complete(&self) -> bool {
        self.count.is_some_and(|count| u64::try_from(self.map.len()) == Ok(2 * count))
    }
}

fn checked_count(count: u64) -> Result<u64, SparseError> {
    let bounded = usize::try_from(count).is_ok_and(|count| count <= limits::SPARSE_RUNS);
    if bounded { Ok(count) } else { Err(SparseError::TooMany) }
}

/// Makes runs of a map: `stored` bytes of data lie at `data_offset`, the file is `size` long. Empty runs
/// vanish and touching ones join, so that equal contents have equal runs.
///
/// # Errors
/// [`SparseError::Number`], [`SparseError::Order`], [`SparseError::Total`].
pub fn runs(map: &[u64], size: u64, data_offset: u64, stored: u64) -> Result<Vec<Run>, SparseError> {
    let (pairs, odd) = map.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(SparseError::Number);
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut end = 0;
    let mut used: u64 = 0;
    for &[file_offset, len] in pairs {
        let run_end = file_offset.checked_add(len).ok_or(SparseError::Order)?;
        if file_offset < end || run_end > size {
            return Err(SparseError::Order);
        }
        let archive_offset = data_offset.checked_add(used).ok_or(SparseError::Total)?;
        match runs.last_mut() {
            _ if len == 0 => {}
            Some(last) if file_offset == end => last.len += len,
            _ => runs.push(Run { file_offset, len, archive_offset }),
        }
        end = run_end;
        used = used.checked_add(len).ok_or(SparseError::Total)?;
    }
    if used == stored { Ok(runs) } else { Err(SparseError::Total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_checked_and_joined() {
        let run = |file_offset, len, archive_offset| Run { file_offset, len, archive_offset };
        assert_eq!(
            runs(&[0, 10, 10, 5, 50, 5, 100, 0], 100, 1000, 20),
            Ok(vec![run(0, 15, 1000), run(50, 5, 1015)])
        );
        assert_eq!(runs(&[], 100, 1000, 0), Ok(vec![]));
        assert_eq!(runs(&[100, 0], 100, 1000, 0), Ok(vec![]));
        assert_eq!(runs(&[0], 100, 0, 0), Err(SparseError::Number));
        assert_eq!(runs(&[10, 5, 0, 5], 100, 0, 10), Err(SparseError::Order));
        assert_eq!(runs(&[0, 10, 9, 5], 100, 0, 15), Err(SparseError::Order));
        assert_eq!(runs(&[90, 11], 100, 0, 11), Err(SparseError::Order));
        assert_eq!(runs(&[u64::MAX, 2], u64::MAX, 0, 2), Err(SparseError::Order));
        assert_eq!(runs(&[0, 10], 100, 0, 11), Err(SparseError::Total));
    }

    #[test]
    fn lines_may_be_cut_anywhere() {
        let mut map = LineMap::default();
        assert_eq!(map.feed(b"2\n0\n1"), Ok(false));
        assert_eq!(map.feed(b"0\n512\n7"), Ok(false));
        assert_eq!(map.feed(b"\n\0\0\0"), Ok(true));
        assert_eq!(map.into_map(), [0, 10, 512, 7]);
        assert_eq!(LineMap::default().feed(b"0\n"), Ok(true));
        assert_eq!(LineMap::default().feed(b"x\n"), Err(SparseError::Number));
        assert_eq!(LineMap::default().feed(&[b'1'; 30]), Err(SparseError::Number));
        assert_eq!(LineMap::default().feed(b"99999999999\n"), Err(SparseError::TooMany));
    }
}
