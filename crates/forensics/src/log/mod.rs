//! Transactions that lie in a journal: those that wait for replay, those that are on the volume already, and those that
//! were never completed.
//!
//! Owns: the walk over all blocks of the log, in the order in which they were written, and what each transaction holds.
//! Excludes: the bytes of the log ([`ondisk::journal`]), where it lies, and replay ([`platfs_device::journal`]).
//!
//! A log is a ring. What was written last ends where the oldest that is left begins, so that the walk starts there: no
//! transaction is cut in two by the end of the journal. A copy never begins with the magic of the log, so that a block
//! that does is one of the log's own, whatever a descriptor before it claims.

mod fast;
mod walk;

use std::sync::Arc;

use ondisk::features::Compat;
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::log::{CommitTime, unescape};
use ondisk::units::Block;
use platfs_device::journal::Log;
use platfs_device::{Device, Error, Result};

use crate::raw_image::RawImage;
pub use fast::{FastCommits, Record, RecordKind};

/// Fate of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The next replay brings it in.
    Waiting,
    /// Everything in it is on the volume.
    Checkpointed,
    /// It was never completed, or a part of it is lost or damaged: no replay brings it in.
    Cut,
}

/// A copy of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The block of the volume.
    pub block: Block,
    /// The block of the journal that holds the copy.
    pub at: u32,
    /// The magic of the log was taken out of its beginning.
    pub escaped: bool,
    /// True if its checksum is right; `None` where the journal has none for it.
    pub right: Option<bool>,
}

/// A transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Its number.
    pub sequence: u32,
    /// Fate of the transaction.
    pub state: State,
    /// When it was committed.
    pub time: Option<CommitTime>,
    /// The first block of the journal that is left of it.
    pub first: u32,
    /// The block behind its last.
    pub end: u32,
    /// Its beginning was written over: it had more copies.
    pub beginning_lost: bool,
    /// Copies of blocks.
    pub copies: Vec<Copy>,
    /// Blocks of which older copies do not count.
    pub revoked: Vec<u64>,
    /// Broken rules.
    pub problems: Vec<String>,
}

/// All that lies in a journal.
pub struct Journal {
    log: Log,
    device: Arc<dyn Device>,
    /// Transactions by their numbers.
    pub transactions: Vec<Transaction>,
    /// Fast commits, if the journal has room for them.
    pub fast: Option<FastCommits>,
}

impl Journal {
    /// Reads the journal of a volume; nothing if it has none.
    ///
    /// # Errors
    /// A journal on another device, one that breaks a rule of the format or uses unknown features; the device's failure.
    pub fn read(image: &RawImage) -> Result<Option<Self>> {
        if !image.features().compat.contains(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        let log = Log::find(image.device(), image.superblock())?;
        let device = Arc::clone(image.device());
        let transactions = walk::transactions(&log, &*device)?;
        let waiting = transactions.iter().rev().find(|one| one.state == State::Waiting);
        let next = match waiting {
            Some(last) => last.sequence.wrapping_add(1),
            None => log.superblock.s_sequence.get(),
        };
        let fast = fast::read_area(&log, &*device, next)?;
        Ok(Some(Journal { log, device, transactions, fast }))
    }

    /// Its superblock.
    #[must_use]
    pub fn superblock(&self) -> &RawJournalSuperblock {
        &self.log.superblock
    }

    /// True if each block of the log has a checksum.
    #[must_use]
    pub fn seals_blocks(&self) -> bool {
        self.log.format.seals_blocks()
    }

    /// The block of the volume that holds a block of the journal.
    ///
    /// # Errors
    /// The journal has no such block.
    pub fn block_of(&self, at: u32) -> Result<Block> {
        Ok(Block(self.log.offset(at)? / self.log.format.block_len() as u64))
    }

    /// The bytes of a copy, as they belong on the volume.
    ///
    /// # Errors
    /// The device's failure.
    pub fn contents(&self, copy: &Copy) -> Result<Vec<u8>> {
        let mut bytes = read(&self.log, &*self.device, copy.at)?;
        if copy.escaped {
            unescape(&mut bytes);
        }
        Ok(bytes)
    }
}

/// A block of the journal.
fn read(log: &Log, device: &dyn Device, at: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; log.format.block_len()];
    let read = device.read_at(log.offset(at)?, &mut bytes);
    read.map_err(|source| Error::io(format!("reading block {at} of the journal"), source))?;
    Ok(bytes)
}
