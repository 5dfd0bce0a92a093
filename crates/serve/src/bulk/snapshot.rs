//! A volume as it is at one moment, copied while it is written.
//!
//! The moment lies behind a sync, between two writes to the device. What the copy holds is what a crash then would have
//! left: everything that was stable, and of a volume with a journal nothing that replay could not put in order. Blocks
//! that are in use at that moment are copied. The bitmaps that say so may wait in the journal, so that they are read from
//! the moment as it will be after replay.

use std::sync::Arc;

use platfs::device::{Device, Snapshot, SnapshotDevice};
use platfs_forensics::{RawImage, used};

use super::{Halt, Job};

/// Copies what the device is from now on into another that reads as zeros; bytes that were looked at.
///
/// # Errors
/// Another snapshot that is being taken; a read or a write that failed; what `go_on` says.
pub fn take(
    keeping: &Arc<SnapshotDevice>,
    to: Arc<dyn Device>,
    go_on: impl FnMut(u64) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    take_believing(keeping, to, || true, go_on)
}

/// Takes a snapshot of a device that may not tell the truth; `is_true` says if what was read is true, once bitmaps were read.
///
/// # Errors
/// As [`take`].
pub fn take_believing(
    keeping: &Arc<SnapshotDevice>,
    to: Arc<dyn Device>,
    is_true: impl FnOnce() -> bool,
    go_on: impl FnMut(u64) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    let taking = keeping.begin(to)?;
    // A volume of which the bitmaps can't be read is copied as a whole.
    let ranges = needed(&taking);
    if let Some(ranges) = ranges.filter(|_| is_true()) {
        taking.restrict_to(ranges);
    }
    taking.copy(go_on)?;
    Ok(taking.bytes())
}

fn needed(taking: &Snapshot) -> Option<Vec<std::ops::Range<u64>>> {
    let (after, _) = platfs::journal::replayed(taking.view()).ok()?;
    used::ranges(&RawImage::open(after).ok()?).ok()
}

/// Takes a snapshot on behalf of a program.
///
/// # Errors
/// As [`take`].
pub fn snapshot(
    job: &Job<'_>,
    keeping: &Arc<SnapshotDevice>,
    to: Arc<dyn Device>,
) -> Result<Vec<String>, Halt> {
    take(keeping, to, |bytes| {
        job.count(|done| done.bytes = bytes);
        job.go_on()
    })?;
    Ok(Vec::new())
}
