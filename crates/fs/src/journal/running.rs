//! The running transaction of a volume with a journal: how large it is, and when it may be committed.
//!
//! An update says what it changes before it is published, so that one that has no room in the running
//! transaction is dropped, which costs nothing, and begun anew once that is committed. One that has no room
//! in an empty one is told so, and made in parts where that is possible.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::{MutexGuard, PoisonError};

use ondisk::superblock::RawSuperblock;
use ondisk::units::Group;

use super::Log;
use super::writer::LogWriter;
use crate::cache::Cache;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::DataMode;
use crate::txn::Update;
use crate::volume::lock;

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
    /// Shared by who has published a map whose blocks do not hold their bytes yet.
    flights: RwLock<()>,
    data: DataMode,
}

impl Journal {
    /// Finds the journal of a volume that holds nothing to replay.
    pub(crate) fn open(
        device: &Arc<dyn Device>,
        cache: &Arc<Cache>,
        format: &Format,
        raw: &RawSuperblock,
        data: DataMode,
    ) -> Result<Self> {
        let log = LogWriter::new(Log::find(device, raw)?, cache, format, raw)?;
        if data == DataMode::Journal {
            cache.journal_data();
        }
        Ok(Journal {
            credits: log.credits(),
            log: Mutex::new(log),
            cache: Arc::clone(cache),
            groups: Mutex::default(),
            flights: RwLock::default(),
            data,
        })
    }

    /// The log, to write.
    pub(crate) fn log(&self) -> MutexGuard<'_, LogWriter> {
        lock(&self.log)
    }

    /// Blocks that the running transaction changes, at most.
    fn size(&self) -> usize {
        self.cache.changed() + PER_GROUP * lock(&self.groups).len()
    }

    /// Whether the running transaction should be committed before more is added to it.
    pub(crate) fn is_filling(&self) -> bool {
        self.size() > self.credits / 2 || self.cache.is_crowded()
    }

    /// Blocks of a file to write back with one update, at most.
    pub(crate) fn blocks_at_once(&self) -> u64 {
        match self.data {
            DataMode::Journal => (self.credits / 2) as u64,
            DataMode::Ordered | DataMode::Writeback => u64::MAX,
        }
    }

    /// Takes an update into the running transaction, before it is published.
    ///
    /// # Errors
    /// [`Error::LogFull`]: there is no room in this transaction; [`Error::TooLargeForLog`]: or in none.
    pub(crate) fn admit(&self, update: &Update<'_>) -> Result<()> {
        let blocks = update.staged() + PER_GROUP * update.groups().len();
        if blocks > self.credits {
            return Err(Error::TooLargeForLog { blocks, most: self.credits });
        }
        if self.size() + blocks > self.credits {
            return Err(Error::LogFull);
        }
        lock(&self.groups).extend(update.groups());
        Ok(())
    }

    /// The running transaction is about to be committed: what comes now belongs to the next.
    pub(crate) fn begin_next(&self) {
        lock(&self.groups).clear();
    }

    /// Held from before a map is published until its blocks hold their bytes, where that order counts.
    pub(crate) fn fly(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let shared = || self.flights.read().unwrap_or_else(PoisonError::into_inner);
        (self.data == DataMode::Ordered).then(shared)
    }

    /// Waits until no published map lacks its bytes.
    pub(crate) fn land(&self) -> RwLockWriteGuard<'_, ()> {
        self.flights.write().unwrap_or_else(PoisonError::into_inner)
    }
}
