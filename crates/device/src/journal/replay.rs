//! Bringing the copies of a log to their places, and emptying the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::log::unescape;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, BlockSize};
use zerocopy::IntoBytes;

use super::location::Log;
use super::records::{FastCommitTotals, read_records};
use super::scan::End;
use super::{FastCommits, Recovery, deposit};
use crate::superblock::Format;
use crate::{Device, Error, Overlay, Result, groups, read_superblock};

/// Bytes of blocks that fast commits may change. Those of Linux's usual area change a few MiB.
const CHANGED_MAX: u64 = 512 << 20;

/// Where the copy of a block stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Its place on the device, in bytes.
    pub(super) offset: u64,
    /// The journal's magic was taken out of its beginning.
    pub(super) escaped: bool,
}

/// Part of a log that counts.
pub(super) struct Judged {
    /// Where the log goes on.
    pub(super) end: End,
    pub(super) copies: BTreeMap<Block, Copy>,
    pub(super) fast: Option<FastCommitTotals>,
    pub(super) recovery: Recovery,
}

/// All that the replay of a journal will do, judged before any of it is done.
pub struct Replay {
    block_size: BlockSize,
    log: Log,
    end: End,
    copies: BTreeMap<Block, Copy>,
    fast: Option<FastCommitTotals>,
    /// Blocks that fast commits change, as they will be.
    changed: BTreeMap<u64, Box<[u8]>>,
    /// Where the journal's superblock stands, and what it will be.
    superblock_at: u64,
    superblock: RawJournalSuperblock,
    /// Result of the replay.
    pub recovery: Recovery,
}

impl Replay {
    pub(super) fn new(log: Log, format: &Format, judged: Judged) -> Result<Self> {
        let Judged { end, copies, fast, recovery } = judged;
        let mut superblock = log.superblock;
        superblock.s_start.set(0);
        superblock.s_sequence.set(end.sequence.wrapping_add(1));
        superblock.s_errno.set(0);
        superblock.seal();
        let superblock_at = log.offset(0)?;
        let block_size = format.geometry.block_size;
        let changed = BTreeMap::new();
        Ok(Replay { block_size, log, end, copies, fast, changed, superblock_at, superblock, recovery })
    }

    /// Finds out which blocks fast commits change. Those that can't be brought in are damage.
    pub(super) fn take_in_fast_commits(
        &mut self,
        device: &Arc<dyn Device>,
        fast_commits: &dyn FastCommits,
    ) -> Result<()> {
        let Some(found) = &self.fast else { return Ok(()) };
        let overlay = Arc::new(Overlay::new(Arc::clone(device), self.block_size).bounded(CHANGED_MAX));
        self.show_copies(&overlay);
        let done = match read_records(&self.log, found) {
            Ok(records) => fast_commits.apply(records, &overlay)?,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(()) => {
                self.recovery.fast_commits = found.commits;
                self.changed = overlay.written();
                // Its sums follow from the groups in the end, and nothing else of it changes.
                self.changed.remove(&(SUPERBLOCK_OFFSET >> self.block_size.log2()));
            }
            Err(problem) => {
                let what = format!("fast commits can't be brought in: {problem}");
                self.recovery.damage.get_or_insert(what);
            }
        }
        Ok(())
    }

    pub(super) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Where the journal's superblock stands, in bytes: once it is written, the log is empty.
    #[must_use]
    pub fn superblock_at(&self) -> u64 {
        self.superblock_at
    }

    /// True if nothing waits in the journal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.recovery.transactions == 0 && self.fast.is_none()
    }

    fn show_copies(&self, overlay: &Overlay) {
        for (block, copy) in &self.copies {
            overlay.redirect(block.0, copy.offset, copy.escaped);
        }
    }

    /// Shows the volume as it will be, in memory.
    pub(super) fn lay_over(&self, overlay: &Overlay) -> Result<()> {
        let before = read_superblock(overlay)?;
        self.show_copies(overlay);
        self.write_changed(overlay)?;
        self.finish(overlay, &before)
    }

    /// Writes the volume as it will be to a device that a crash does not leave half written.
    ///
    /// # Errors
    /// The device's failure; a superblock in the log that is none.
    pub fn write_at_once(&self, device: &dyn Device) -> Result<()> {
        let before = read_superblock(device)?;
        self.write_copies(device)?;
        self.write_changed(device)?;
        self.finish(device, &before)
    }

    /// Writes the volume as it will be. Cut short at any point, it can be done again: the log is emptied
    /// only when all it holds is stable, and what fast commits come to goes through it.
    ///
    /// # Errors
    /// The device's failure; a superblock in the log that is none; fast commits that change more than the log holds.
    pub fn write(&self, device: &dyn Device) -> Result<()> {
        let before = read_superblock(device)?;
        self.write_copies(device)?;
        flush(device)?;
        if !self.changed.is_empty() {
            deposit::deposit(device, &self.log, self.end, &self.changed)?;
            self.write_changed(device)?;
            flush(device)?;
        }
        self.finish(device, &before)
    }

    fn write_copies(&self, device: &dyn Device) -> Result<()> {
        let mut bytes = vec![0; self.block_size.bytes_usize()];
        for (block, copy) in &self.copies {
            let failed = |source| Error::io(format!("replaying the journal's copy of block {block}"), source);
            device.read_at(copy.offset, &mut bytes).map_err(failed)?;
            if copy.escaped {
                unescape(&mut bytes);
            }
            device.write_at(block.0 << self.block_size.log2(), &bytes).map_err(failed)?;
        }
        Ok(())
    }

    fn write_changed(&self, device: &dyn Device) -> Result<()> {
        self.changed.iter().try_for_each(|(block, bytes)| {
            let written = device.write_at(block << self.block_size.log2(), bytes);
            written.map_err(|source| Error::io(format!("bringing fast commits to block {block}"), source))
        })
    }

    /// Says in both superblocks that nothing waits for replay, that of the volume last.
    fn finish(&self, device: &dyn Device, before: &RawSuperblock) -> Result<()> {
        let mut raw = read_superblock(device)?;
        let format = Format::from_superblock(&raw)?;
        if !format.sealer.superblock_is_right(&raw) {
            return Err(Error::corrupt(Place::Journal, "holds a superblock with a wrong checksum"));
        }
        keep_errors(&mut raw, before);
        count(device, &format, &mut raw);
        if self.recovery.recorded_error.is_some() {
            raw.s_state.set(raw.s_state.get() | STATE_ERROR);
        }
        let mut features = raw.features();
        features.incompat = features.incompat.difference(Incompat::RECOVER);
        raw.set_features(features);
        format.sealer.seal_superblock(&mut raw);
        let failed = |source| Error::io("emptying the journal", source);
        // What the journal had recorded must be in the volume's superblock before it is dropped there.
        if self.recovery.recorded_error.is_some() {
            let mut pending = raw;
            features.incompat |= Incompat::RECOVER;
            pending.set_features(features);
            format.sealer.seal_superblock(&mut pending);
            device.write_at(SUPERBLOCK_OFFSET, pending.as_bytes()).map_err(failed)?;
            flush(device)?;
        }
        device.write_at(self.superblock_at, self.superblock.as_bytes()).map_err(failed)?;
        flush(device)?;
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(failed)?;
        flush(device)
    }
}

/// The log has copies of groups, but hardly ever one of the superblock: Linux writes its sums when it closes a volume.
/// Where descriptors are damaged the sums stay, for a check to report both.
fn count(device: &dyn Device, format: &Format, raw: &mut RawSuperblock) {
    if let Ok(sums) = groups::sums(device, format) {
        raw.set_free_blocks_count(sums.blocks);
        raw.s_free_inodes_count.set(sums.inodes);
    }
}

/// Keeps the errors noted in the superblock on the volume: a copy in the log may be older.
fn keep_errors(raw: &mut RawSuperblock, before: &RawSuperblock) {
    raw.s_state.set(raw.s_state.get() | before.s_state.get() & STATE_ERROR);
    raw.s_error_count = before.s_error_count;
    raw.s_first_error_time = before.s_first_error_time;
    raw.s_first_error_ino = before.s_first_error_ino;
    raw.s_first_error_block = before.s_first_error_block;
    raw.s_first_error_func = before.s_first_error_func;
    raw.s_first_error_line = before.s_first_error_line;
    raw.s_last_error_time = before.s_last_error_time;
    raw.s_last_error_ino = before.s_last_error_ino;
    raw.s_last_error_line = before.s_last_error_line;
    raw.s_last_error_block = before.s_last_error_block;
    raw.s_last_error_func = before.s_last_error_func;
}

fn flush(device: &dyn Device) -> Result<()> {
    device.flush().map_err(|source| Error::io("flushing the device after replay", source))
}
