//! Bringing the copies of a log to their places, and emptying the log.

use std::collections::BTreeMap;

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::log::unescape;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, BlockSize};
use zerocopy::IntoBytes;

use super::Recovery;
use super::place::Log;
use crate::admission::read_superblock;
use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::format::Format;

/// Where the copy of a block stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Its place on the device, in bytes.
    pub(super) offset: u64,
    /// The journal's magic was taken out of its beginning.
    pub(super) escaped: bool,
}

/// All that replay will do.
pub(crate) struct Replay {
    block_size: BlockSize,
    copies: BTreeMap<Block, Copy>,
    /// Where the journal's superblock stands, and what it will be.
    superblock_at: u64,
    superblock: RawJournalSuperblock,
    /// What was found, and is done.
    pub(crate) recovery: Recovery,
}

impl Replay {
    /// `next` is the transaction with which the log goes on.
    pub(super) fn new(
        log: &Log,
        format: &Format,
        next: u32,
        copies: BTreeMap<Block, Copy>,
        recovery: Recovery,
    ) -> Result<Self> {
        let mut superblock = log.superblock;
        superblock.s_start.set(0);
        superblock.s_sequence.set(next);
        superblock.s_errno.set(0);
        superblock.seal();
        let superblock_at = log.offset(0)?;
        let block_size = format.geometry.block_size;
        Ok(Replay { block_size, copies, superblock_at, superblock, recovery })
    }

    pub(super) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Where the journal's superblock stands, in bytes: once it is written, the log is empty.
    pub(crate) fn superblock_at(&self) -> u64 {
        self.superblock_at
    }

    /// Shows the volume as it will be, in memory.
    pub(super) fn lay_over(&self, overlay: &Overlay) -> Result<()> {
        let before = read_superblock(overlay)?;
        for (block, copy) in &self.copies {
            overlay.redirect(block.0, copy.offset, copy.escaped);
        }
        self.finish(overlay, &before)
    }

    /// Writes the volume as it will be. Cut short at any point, it can be done again: the log is emptied
    /// only when all it holds is stable.
    pub(crate) fn write(&self, device: &dyn Device) -> Result<()> {
        let before = read_superblock(device)?;
        let mut bytes = vec![0; self.block_size.bytes_usize()];
        for (block, copy) in &self.copies {
            let failed = |source| Error::io(format!("replaying the journal's copy of block {block}"), source);
            device.read_at(copy.offset, &mut bytes).map_err(failed)?;
            if copy.escaped {
                unescape(&mut bytes);
            }
            device.write_at(block.0 << self.block_size.log2(), &bytes).map_err(failed)?;
        }
        flush(device)?;
        self.finish(device, &before)
    }

    /// Says in both superblocks that nothing waits for replay, that of the volume last.
    fn finish(&self, device: &dyn Device, before: &RawSuperblock) -> Result<()> {
        let mut raw = read_superblock(device)?;
        let format = Format::from_superblock(&raw)?;
        if !format.sealer.superblock_is_right(&raw) {
            return Err(Error::corrupt(Place::Journal, "holds a superblock with a wrong checksum"));
        }
        keep_errors(&mut raw, before);
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

/// What the superblock says of errors is written beside the journal: a copy in the log may be older.
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
