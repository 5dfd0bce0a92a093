//! Fast commits: what was promised since the last transaction of the log, in records instead of blocks.
//!
//! Owns: what the records come to, and the volume as it is with them. Excludes: their bytes
//! ([`ondisk::journal::fast_commit`]), and how the result reaches a device ([`super::replay`]).
//!
//! Linux does record by record to the volume in place what the record says. Here all of them are read first, and what
//! they come to in the end is done once: which names there are, which inodes, which blocks each has. Counts (links,
//! blocks, what is free) follow from that, so that they fit each other whatever the records say. It is done in memory;
//! the blocks that differ then are what replay brings to the device.

mod apply;
mod extents;
mod records;
#[cfg(test)]
mod tests;
mod wanted;

use std::sync::Arc;

use super::place::Log;
use crate::device::Overlay;
use crate::error::Result;

/// Fast commits that count.
pub(super) struct Found {
    pub(super) commits: u32,
    records: u64,
}

/// The fast commits that follow the last complete transaction; `None` if there are none.
///
/// # Errors
/// The device's failure; unknown features.
pub(super) fn find(log: &Log, transaction: u32) -> Result<Option<Found>> {
    if log.superblock.fast_commit_area().is_empty() {
        return Ok(None);
    }
    let scan = records::scan(log, transaction)?;
    Ok((scan.commits() > 0).then(|| Found { commits: scan.commits(), records: scan.counted() }))
}

impl Found {
    /// Brings them into a volume that is as its log left it.
    ///
    /// # Errors
    /// Records that contradict the volume or each other; a broken volume; features that can't be written.
    pub(super) fn apply(&self, log: &Log, volume: &Arc<Overlay>) -> Result<()> {
        let records = records::gather(log, self.records)?;
        apply::apply(wanted::plan(volume, records)?, volume)
    }
}
