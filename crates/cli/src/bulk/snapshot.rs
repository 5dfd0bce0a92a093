//! A volume as it is at one moment, copied while it is written.
//!
//! The moment lies behind a sync, between two writes to the device. What the copy holds is what a crash then would have
//! left: everything that was stable, and of a volume with a journal nothing that replay could not put in order. Blocks
//! that are in use at that moment are copied. The bitmaps that say so may wait in the journal, so that they are read from
//! the moment as it will be after replay.

use std::sync::Arc;

use platfs::device::{Device, Keeping, Taking};
use platfs_forensics::{Ground, used};

use super::{Halt, Job};

/// Copies what the device is from now on into another that reads as zeros; bytes that were looked at.
///
/// # Errors
/// Another snapshot that is being taken; a read or a write that failed; what `go_on` says.
pub fn take(
    keeping: &Arc<Keeping>,
    to: Arc<dyn Device>,
    go_on: impl FnMut(u64) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    let taking = keeping.begin(to)?;
    // A volume of which the bitmaps can't be read is copied as a whole.
    if let Some(ranges) = needed(&taking) {
        taking.only(ranges);
    }
    taking.copy(go_on)?;
    Ok(taking.bytes())
}

fn needed(taking: &Taking) -> Option<Vec<std::ops::Range<u64>>> {
    let (after, _) = platfs::journal::replayed(taking.view()).ok()?;
    used::ranges(&Ground::open(after).ok()?).ok()
}

/// The same on behalf of a program.
///
/// # Errors
/// As [`take`].
pub fn snapshot(job: &Job<'_>, keeping: &Arc<Keeping>, to: Arc<dyn Device>) -> Result<Vec<String>, Halt> {
    take(keeping, to, |bytes| {
        job.count(|done| done.bytes = bytes);
        job.go_on()
    })?;
    Ok(Vec::new())
}
