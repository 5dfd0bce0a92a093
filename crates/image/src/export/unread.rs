//! Going on where an image can't be read: what the output lacks is told, with its place in the file.
//!
//! Owns the search for bytes that can't be read. Excludes the walk, which decides what is left out ([`super`]).

use super::{CHUNK, ExportError};
use crate::archive::{Run, limits};
use crate::watch::Meter;
use ondisk::units::saturated;
use platfs::Reader;
use std::ops::Range;

/// Something of the image that the output lacks.
#[derive(Debug)]
pub struct Unread<'a> {
    /// The path below the exported directory.
    pub path: &'a [u8],
    /// Part that the output lacks.
    pub lacks: Lacks,
    /// Error of reading it.
    pub error: &'a ExportError,
}

/// Part of a file that an output lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The file or directory, with all that is in it.
    All,
    /// The file, because these bytes of it can't be read.
    FileFor(Range<u64>),
    /// These bytes: zeros stand in their place.
    Bytes(Range<u64>),
    /// Names of a directory, and what they lead to.
    Names,
    /// The extended attributes.
    Attributes,
}

/// Gets all that the output lacks.
pub type OnUnread<'t> = dyn Fn(&Unread<'_>) + Sync + 't;

/// Treatment of what can't be read.
#[derive(Clone, Copy)]
pub(super) struct KeepGoing<'t> {
    pub(super) tell: &'t OnUnread<'t>,
    pub(super) zeros: bool,
}

impl KeepGoing<'_> {
    pub(super) fn tell(&self, path: &[u8], lacks: Lacks, error: &ExportError) {
        (self.tell)(&Unread { path, lacks, error });
    }

    /// Tells of the bytes that can't be read; what is left of the runs, or `None` if the file is to be left out.
    pub(super) fn sift(
        &self,
        file: &ProbedFile<'_>,
        meter: &mut Meter,
    ) -> Result<Option<Vec<Run>>, ExportError> {
        let unread = file.unreadable(meter)?;
        for (range, error) in &unread {
            let lacks = if self.zeros { Lacks::Bytes(range.clone()) } else { Lacks::FileFor(range.clone()) };
            self.tell(file.path, lacks, error);
        }
        let stays = self.zeros || unread.is_empty();
        Ok(stays.then(|| without(file.runs, unread.iter().map(|(range, _)| range))))
    }
}

/// A file whose data are looked at before any of it is written.
pub(super) struct ProbedFile<'a> {
    pub(super) path: &'a [u8],
    pub(super) file: &'a Reader<'a>,
    pub(super) runs: &'a [Run],
    /// Bytes of a block, the least that can be read alone.
    pub(super) block: u64,
}

impl ProbedFile<'_> {
    /// All ranges that can't be read, rising, with the reason of the first failure in each.
    fn unreadable(&self, meter: &mut Meter) -> Result<Vec<(Range<u64>, ExportError)>, ExportError> {
        let mut found: Vec<(Range<u64>, ExportError)> = Vec::new();
        let mut buffer = vec![0; CHUNK];
        for run in self.runs {
            let (mut at, end) = (run.file_offset, run.file_offset.saturating_add(run.len));
            while at < end {
                let next = (at / CHUNK as u64 + 1).saturating_mul(CHUNK as u64).min(end);
                meter.bytes(0)?;
                self.search(at..next, &mut buffer, &mut found)?;
                at = next;
            }
        }
        Ok(found)
    }

    /// Halves a range until each part of it can be read, or is a block that can't.
    fn search(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        found: &mut Vec<(Range<u64>, ExportError)>,
    ) -> Result<(), ExportError> {
        let mut open = vec![range];
        while let Some(range) = open.pop() {
            let len = saturated::<usize>(range.end - range.start);
            let Some(piece) = buffer.get_mut(..len) else { continue };
            let Err(error) = read_all(self.file, range.start, piece) else { continue };
            let middle = (range.start + (range.end - range.start) / 2).next_multiple_of(self.block);
            if middle > range.start && middle < range.end {
                open.extend([middle..range.end, range.start..middle]);
                continue;
            }
            if let Some((last, _)) = found.last_mut().filter(|(last, _)| last.end == range.start) {
                last.end = range.end;
                continue;
            }
            if found.len() >= limits::SPARSE_RUNS {
                let problem = format!("more than {} ranges that can't be read", limits::SPARSE_RUNS);
                return Err(self.failed(platfs::Error::Unsupported(problem)));
            }
            found.push((range, self.failed(error)));
        }
        Ok(())
    }

    fn failed(&self, error: platfs::Error) -> ExportError {
        ExportError::Image { path: self.path.to_vec(), error }
    }
}

fn read_all(file: &Reader<'_>, mut at: u64, mut rest: &mut [u8]) -> platfs::Result<()> {
    while !rest.is_empty() {
        let count = file.read_at(at, rest)?;
        if count == 0 {
            break;
        }
        at += count as u64;
        rest = rest.get_mut(count..).unwrap_or_default();
    }
    Ok(())
}

/// The parts of runs that lie outside of ranges; both rise.
fn without<'r>(runs: &[Run], mut ranges: impl Iterator<Item = &'r Range<u64>>) -> Vec<Run> {
    let mut left = Vec::new();
    let mut next = ranges.next();
    for run in runs {
        let (mut at, end) = (run.file_offset, run.file_offset.saturating_add(run.len));
        let mut keep = |from: u64, to: u64| {
            if from < to {
                left.push(Run { file_offset: from, len: to - from, archive_offset: 0 });
            }
        };
        while let Some(range) = next.filter(|range| range.start < end) {
            keep(at, range.start);
            at = at.max(range.end);
            if range.end > end {
                break;
            }
            next = ranges.next();
        }
        keep(at, end);
    }
    left
}
