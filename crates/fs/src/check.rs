//! The check of a whole volume and its repair, with the fast commits of its journal.
//!
//! Excludes all of the check itself, which is a crate of its own (`platfs-check`) and shares no code with what writes
//! volumes here. Added is one thing: fast commits that wait in a journal are brought in with the verbs of this crate.

use std::sync::Arc;

pub use platfs_check::{
    Decision, Issue, Kind, Location, Options, Outcome, PIECE_LEN, PieceChange, Progress, Severity, Sink,
    Staged, Summary, kinds,
};

use crate::device::Device;
use crate::error::Result;
use crate::journal::ByVerbs;

/// Checks the volume on `device`, reports every issue to `sink`, and makes the repairs that it decides
/// for in memory. The device is only read.
///
/// # Errors
/// Only where there is nothing to check: no superblock or backup that could be one, a feature that
/// is not known, a volume beyond the memory bound. Damage and failures of the device on the way
/// are issues.
pub fn check(device: Arc<dyn Device>, options: &Options, sink: &mut dyn Sink) -> Result<Outcome> {
    Ok(platfs_check::check_with(device, options, &ByVerbs, sink)?)
}

/// Reason to check a volume although it is marked clean, in a few words; `None` if nothing that a mount needs
/// is wrong. The device is only read.
///
/// # Errors
/// As [`check`].
pub fn glance(device: Arc<dyn Device>, options: &Options) -> Result<Option<String>> {
    Ok(platfs_check::glance(device, options)?)
}
