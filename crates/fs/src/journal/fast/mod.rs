//! Fast commits: what was promised since the last transaction of the log, in records instead of blocks.
//!
//! Owns: what the records come to, and the volume as it is with them. Excludes: their bytes
//! ([`ondisk::journal::fast_commit`]), which of them count, and how the result reaches a device
//! ([`platfs_device::journal`]).
//!
//! Linux does record by record to the volume in place what the record says. Here all of them are read first, and what
//! they come to in the end is done once: which names there are, which inodes, which blocks each has. Counts (links,
//! blocks, what is free) follow from that, so that they fit each other whatever the records say. It is done in memory;
//! the blocks that differ then are what replay brings to the device.

mod apply;
mod extents;
mod settle;
#[cfg(test)]
mod tests;
mod wanted;

use std::io::ErrorKind;
use std::sync::Arc;

use platfs_device::journal::{FastCommits, Records};

use crate::device::{self, Overlay};
use crate::error::{Error, Result};

/// Brings in fast commits with the means of the verbs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByVerbs;

impl FastCommits for ByVerbs {
    fn apply(&self, records: Records, volume: &Arc<Overlay>) -> device::Result<Result<(), String>> {
        match apply(records, volume) {
            Ok(()) => Ok(Ok(())),
            // One that is too much for memory is the records' fault, not the device's.
            Err(Error::Io { action, source }) if source.kind() != ErrorKind::OutOfMemory => {
                Err(device::Error::Io { action, source })
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

/// # Errors
/// Records that contradict the volume or each other; a broken volume; features that can't be written.
fn apply(records: Records, volume: &Arc<Overlay>) -> Result<()> {
    apply::apply(wanted::plan(volume, records)?, volume)
}
