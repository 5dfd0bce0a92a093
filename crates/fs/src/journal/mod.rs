//! The journal (jbd2) of a volume: bringing in what an unclean one holds.
//!
//! Owns: what the records of fast commits come to. Excludes: the bytes of the log ([`ondisk::journal`]); where it lies,
//! what in it counts and its way to the device ([`platfs_device::journal`]); and writing it (`order`).

mod fast;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::superblock::RawSuperblock;
use platfs_device::journal::{self, Replay};

use crate::device::Device;
use crate::error::{Error, Result};
pub(crate) use fast::ByVerbs;
pub use platfs_device::journal::Recovery;
pub(crate) use platfs_device::journal::is_pending;

fn bad(problem: impl Into<String>) -> Error {
    Error::corrupt(Place::Journal, problem)
}

/// Finds out what replay will do; changes nothing.
pub(crate) fn plan(device: &Arc<dyn Device>, raw: &RawSuperblock) -> Result<Replay> {
    Ok(journal::plan(device, raw, &ByVerbs)?)
}

/// Replays a volume's journal on its device, as far as it is in order; nothing is done if there is nothing
/// to replay.
///
/// # Errors
/// As [`replayed`]; a write that failed, after which replay can be done again.
pub fn replay(device: &Arc<dyn Device>) -> Result<Recovery> {
    Ok(journal::replay(device, &ByVerbs)?)
}

/// A volume's device as it is after its journal was replayed, without changing it; the device itself if
/// there is nothing to replay.
///
/// # Errors
/// The device's failure; a superblock that can't be read; a journal that breaks a rule of the format, uses
/// unknown features, or lies on another device.
pub fn replayed(device: Arc<dyn Device>) -> Result<(Arc<dyn Device>, Recovery)> {
    Ok(journal::replayed(device, &ByVerbs)?)
}
