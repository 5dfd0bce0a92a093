//! The running transaction of a volume with a journal: how large it is, and when it may be committed
//! (I21, I25).
//!
//! Owns: the room that a transaction has, the blocks that stopped being metadata in it, and the log (`writer`). An
//! update says what it changes before it is published, so that one that has no room in the running transaction is
//! dropped, which costs nothing, and begun again once that is committed. One that has no room in an empty one is
//! refused, and made in parts where that is possible. Excludes: what a log holds after a crash (`crate::journal`).

mod writer;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use ondisk::superblock::RawSuperblock;
use ondisk::units::{BlockRun, Group};
use platfs_device::journal::Log;

use crate::cache::Cache;
use crate::error::{Error, Flow, Result};
use crate::format::Format;
use crate::locks::lock;
use crate::options::DataMode;
use writer::LogWriter;
pub(super) use writer::Transaction;

/// Blocks that change with what is taken or freed in a group: two bitmaps and the descriptor.
const PER_GROUP: usize = 3;

/// The journal of a volume that is open for writing.
pub(crate) struct Journal {
    log: Mutex<LogWriter>,
    cache: Arc<Cache>,
    /// Blocks that a transaction may change.
    credits: usize,
    /// Groups whose bitmaps the running transaction changes.
    groups: Mutex<BTreeSet<Group>>,
    /// Blocks that stopped being metadata in it: replay must not bring old copies of them back.
    forgotten: Mutex<Vec<BlockRun>>,
    data: DataMode,
}

impl Journal {
    /// A journal whose log holds nothing to replay.
    ///
    /// # Errors
    /// A log that is too short; the device's failure.
    pub(crate) fn new(
        log: Log,
        cache: &Arc<Cache>,
        format: &Format,
        raw: &RawSuperblock,
        data: DataMode,
    ) -> Result<Self> {
        let log = LogWriter::new(log, cache, format, raw)?;
        Ok(Journal {
            credits: log.credits(),
            log: Mutex::new(log),
            cache: Arc::clone(cache),
            groups: Mutex::default(),
            forgotten: Mutex::default(),
            data,
        })
    }

    /// The log, to write.
    pub(super) fn log(&self) -> MutexGuard<'_, LogWriter> {
        lock(&self.log)
    }

    /// Journaling of the bytes of files.
    pub(super) fn data(&self) -> DataMode {
        self.data
    }

    /// Blocks that the running transaction changes, at most.
    fn size(&self) -> usize {
        self.cache.changed() + PER_GROUP * lock(&self.groups).len()
    }

    /// True if the running transaction should be committed before more is added to it.
    pub(super) fn is_filling(&self) -> bool {
        self.size() > self.credits / 2 || self.cache.is_crowded()
    }

    /// Blocks of a file to write back with one update, at most.
    pub(super) fn blocks_at_once(&self) -> u64 {
        match self.data {
            DataMode::Journal => (self.credits / 2) as u64,
            DataMode::Ordered | DataMode::Writeback => u64::MAX,
        }
    }

    /// Takes an update into the running transaction, before it is published (I25): `staged` blocks, and something in
    /// each of `groups`.
    ///
    /// # Errors
    /// [`Flow::Full`]: there is no room in this transaction; [`Error::TooLargeForLog`]: or in none.
    pub(super) fn admit(&self, staged: usize, groups: &BTreeSet<Group>) -> Result<(), Flow> {
        let blocks = staged + PER_GROUP * groups.len();
        if blocks > self.credits {
            return Err(Error::TooLargeForLog { blocks, most: self.credits }.into());
        }
        if self.size() + blocks > self.credits {
            return Err(Flow::Full);
        }
        lock(&self.groups).extend(groups);
        Ok(())
    }

    /// Notes that blocks stop being metadata.
    pub(super) fn forget(&self, run: BlockRun) {
        lock(&self.forgotten).push(run);
    }

    /// The running transaction is about to be committed: what comes now belongs to the next. Returns the blocks that
    /// stopped being metadata in it.
    pub(super) fn begin_next(&self) -> Vec<BlockRun> {
        lock(&self.groups).clear();
        std::mem::take(&mut *lock(&self.forgotten))
    }
}
