//! The journal (jbd2): what an unclean volume's log holds, and bringing it in.
//!
//! Owns: where the log lies, which copies of blocks in it count, which fast commits follow it, and the way of all that
//! to its places, on the device or in memory. Excludes: the bytes of the log ([`ondisk::journal`]), writing the log of
//! a volume that is changed, and what the records of fast commits come to: a writer does that ([`FastCommits`]).
//!
//! As in Linux and e2fsck, replay goes over the log for what is complete (scan), for what is revoked, and
//! for the copies; then come fast commits. Nothing is written before all of it has been judged.

mod deposit;
mod location;
mod records;
mod replay;
mod scan;

use std::fmt;
use std::sync::Arc;

use ondisk::features::Incompat;
use ondisk::superblock::RawSuperblock;
use zerocopy::IntoBytes;

use crate::superblock::Format;
use crate::{Device, Error, Overlay, Result, read_superblock};
pub use location::Log;
pub use records::{InodeChanges, NameRecord, Range, Records, generation};
pub use replay::Replay;

/// Writer of the records of fast commits into a volume.
///
/// A record says which name, inode or extent there is now, and a file system must follow: it takes blocks, adds names,
/// counts links. That is a writer's work, so the caller of a replay gives one.
pub trait FastCommits {
    /// Brings the records into a volume that is as its log left it, and that has no other user. The inner result says
    /// what speaks against them; then nothing of them counts.
    ///
    /// # Errors
    /// The device's failure; [`Error::FastCommits`] where there is no writer.
    fn apply(&self, records: Records, volume: &Arc<Overlay>) -> Result<Result<(), String>>;
}

/// For callers without a writer: a journal with fast commits is refused, so that none is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWriter;

impl FastCommits for NoWriter {
    fn apply(&self, records: Records, _volume: &Arc<Overlay>) -> Result<Result<(), String>> {
        Err(Error::FastCommits(records.commits))
    }
}

/// Result of the replay of a journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Complete transactions in the log.
    pub transactions: u32,
    /// Blocks that got what their last copy in the log says.
    pub blocks: u64,
    /// Copies that were passed over because their block was revoked.
    pub revoked: u64,
    /// An error that the file system had recorded in the journal, as a positive number of `errno`: the
    /// volume is marked as having errors.
    pub recorded_error: Option<u32>,
    /// Fast commits behind the log, which were brought in with it.
    pub fast_commits: u32,
    /// Damage that ended the replay; everything committed before it was brought in.
    pub damage: Option<String>,
}

impl Recovery {
    /// Says which committed changes are missing; `None` if none are.
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

/// True if the volume of a superblock has a journal that is to be replayed.
#[must_use]
pub fn is_pending(raw: &RawSuperblock) -> bool {
    raw.features().incompat.contains(Incompat::RECOVER)
}

/// Finds out what replay will do; changes nothing.
///
/// # Errors
/// A journal that breaks a rule of the format, uses unknown features, or lies on another device; the device's failure;
/// whatever stops `fast_commits`.
pub fn plan(device: &Arc<dyn Device>, raw: &RawSuperblock, fast_commits: &dyn FastCommits) -> Result<Replay> {
    let format = Format::from_superblock(raw)?;
    let log = Log::find_in(device, raw, &format)?;
    let mut replay = scan::scan(log, &format)?;
    replay.take_in_fast_commits(device, fast_commits)?;
    Ok(replay)
}

/// The superblock of a journal once its log is given up, and where it stands, in bytes.
///
/// # Errors
/// As [`Log::find`].
pub fn emptied(device: &Arc<dyn Device>, raw: &RawSuperblock) -> Result<(u64, Vec<u8>)> {
    let log = Log::find(device, raw)?;
    let mut superblock = log.superblock;
    // No number that may still stand in the log.
    superblock.s_sequence.set(superblock.s_sequence.get().wrapping_add(log.blocks()));
    superblock.s_start.set(0);
    superblock.seal();
    Ok((log.offset(0)?, superblock.as_bytes().to_vec()))
}

/// Error for a journal that is to be replayed and lies on another device.
#[must_use]
pub fn elsewhere() -> Error {
    let problem = "its journal is on another device, which is not read, and holds changes: have Linux mount the \
                   volume once, which brings them in";
    Error::Unsupported(problem.into())
}

/// Replays a volume's journal on its device, as far as it is in order; nothing is done if there is nothing
/// to replay.
///
/// # Errors
/// As [`replayed`]; a write that failed, after which replay can be done again.
pub fn replay(device: &Arc<dyn Device>, fast_commits: &dyn FastCommits) -> Result<Recovery> {
    let raw = read_superblock(&**device)?;
    if !is_pending(&raw) {
        return Ok(Recovery::default());
    }
    let replay = plan(device, &raw, fast_commits)?;
    replay.write(&**device)?;
    Ok(replay.recovery)
}

/// A volume's device as it is after its journal was replayed, without changing it; the device itself if
/// there is nothing to replay.
///
/// # Errors
/// The device's failure; a superblock that can't be read; a journal that breaks a rule of the format, uses
/// unknown features, or lies on another device; whatever stops `fast_commits`.
pub fn replayed(
    device: Arc<dyn Device>,
    fast_commits: &dyn FastCommits,
) -> Result<(Arc<dyn Device>, Recovery)> {
    let raw = read_superblock(&*device)?;
    if !is_pending(&raw) {
        return Ok((device, Recovery::default()));
    }
    let replay = plan(&device, &raw, fast_commits)?;
    let overlay = Overlay::new(device, replay.block_size());
    replay.lay_over(&overlay)?;
    Ok((Arc::new(overlay), replay.recovery))
}
