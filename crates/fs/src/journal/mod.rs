//! The journal (jbd2): what an unclean volume's log holds, and bringing it in.
//!
//! Owns: where the log lies, which copies of blocks in it count, what fast commits behind it come to, and the way of
//! both to their places, on the device or in memory. Excludes: the bytes of the log ([`ondisk::journal`]), and writing it
//! (`order::journal`).
//!
//! As in Linux and e2fsck, replay goes over the log for what is complete (scan), for what is revoked, and
//! for the copies; then come fast commits (`fast`). Nothing is written before all of it has been judged.

mod deposit;
mod fast;
mod place;
mod replay;
mod scan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use ondisk::features::Incompat;
use ondisk::superblock::RawSuperblock;

use crate::admission::read_superblock;
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::format::Format;
pub(crate) use place::{Log, bad};
pub(crate) use replay::Replay;
use zerocopy::IntoBytes;

/// What replay of a journal found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Complete transactions in the log.
    pub transactions: u32,
    /// Blocks that got what their last copy in the log says.
    pub blocks: u64,
    /// Copies that were passed over because their block was revoked.
    pub revoked: u64,
    /// An error that the file system had told the journal of, as a positive number of `errno`: the
    /// volume is marked as having errors.
    pub recorded_error: Option<u32>,
    /// Fast commits behind the log, which were brought in with it.
    pub fast_commits: u32,
    /// Why not all that was committed could be brought in; all before it was.
    pub damage: Option<String>,
}

impl Recovery {
    /// What is missing although it was committed, in words; `None` if nothing is.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.damage.as_ref().map(|damage| format!("its journal is damaged: {damage}"))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recovery { transactions, blocks, revoked, fast_commits, .. } = self;
        write!(f, "{transactions} transactions, {blocks} blocks, {revoked} copies revoked")?;
        if *fast_commits > 0 { write!(f, ", {fast_commits} fast commits") } else { Ok(()) }
    }
}

/// Whether the volume of a superblock has a journal that is to be replayed.
pub(crate) fn is_pending(raw: &RawSuperblock) -> bool {
    raw.features().incompat.contains(Incompat::RECOVER)
}

/// Finds out what replay will do; changes nothing.
pub(crate) fn plan(device: &Arc<dyn Device>, raw: &RawSuperblock) -> Result<Replay> {
    let format = Format::from_superblock(raw)?;
    let log = Log::find(device, raw, &format)?;
    let mut replay = scan::scan(log, &format)?;
    replay.take_in_fast_commits(device)?;
    Ok(replay)
}

/// The superblock of a journal once its log is given up, and where it stands, in bytes.
pub(crate) fn emptied(device: &Arc<dyn Device>, raw: &RawSuperblock) -> Result<(u64, Vec<u8>)> {
    let log = Log::find(device, raw, &Format::from_superblock(raw)?)?;
    let mut superblock = log.superblock;
    // No number that may still stand in the log.
    superblock.s_sequence.set(superblock.s_sequence.get().wrapping_add(log.blocks()));
    superblock.s_start.set(0);
    superblock.seal();
    Ok((log.offset(0)?, superblock.as_bytes().to_vec()))
}

/// What is said of a journal that is to be replayed and lies on another device.
pub(crate) fn elsewhere() -> Error {
    let problem = "its journal is on another device, which is not read, and holds changes: have Linux mount the \
                   volume once, which brings them in";
    Error::Unsupported(problem.into())
}

/// Replays a volume's journal on its device, as far as it is in order; nothing is done if there is nothing
/// to replay.
///
/// # Errors
/// As [`replayed`]; a write that failed, after which replay can be done again.
pub fn replay(device: &Arc<dyn Device>) -> Result<Recovery> {
    let raw = read_superblock(&**device)?;
    if !is_pending(&raw) {
        return Ok(Recovery::default());
    }
    let replay = plan(device, &raw)?;
    replay.write(&**device)?;
    Ok(replay.recovery)
}

/// A volume's device as it is after its journal was replayed, without changing it; the device itself if
/// there is nothing to replay.
///
/// # Errors
/// The device's failure; a superblock that can't be read; a journal that breaks a rule of the format, uses
/// unknown features, or lies on another device.
pub fn replayed(device: Arc<dyn Device>) -> Result<(Arc<dyn Device>, Recovery)> {
    let raw = read_superblock(&*device)?;
    if !is_pending(&raw) {
        return Ok((device, Recovery::default()));
    }
    let replay = plan(&device, &raw)?;
    let overlay = Overlay::new(device, replay.block_size());
    replay.lay_over(&overlay)?;
    let recovery = replay.recovery;
    Ok((Arc::new(overlay), recovery))
}
