//! The order in which changes reach the device: the one place that knows which orders there are.
//!
//! Owns: the choice between them, what each must know of changes that are not on the device yet, and the writing of all
//! that one sync collects. Others ask what follows from the order ([`Order::lists_orphans`] and its like), never which
//! one it is. Excludes: what changes mean (the verbs), and when they are written (`sync`).
//!
//! | order | how a sync is written | what a crash leaves |
//! | --- | --- | --- |
//! | `async` | as the cache has it, in any order | something to be checked |
//! | `journal`, its data `ordered`, `writeback` or `journal` | as one transaction of the log ([`journal`]) | all or nothing of it |
//! | `softdep`; `normal` and `sync` after each change | in phases ([`phased`]) | space and inodes to be reclaimed |

mod awaited;
mod data_writes;
mod journal;
mod phased;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use ondisk::inode::Timestamp;
use ondisk::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ondisk::units::{BlockRun, Group, InodeNumber};
use zerocopy::IntoBytes;

use crate::cache::{Cache, CachePolicy, Outgoing};
use crate::error::{Error, Flow, Result};
use crate::format::Format;
use crate::locks::lock;
use crate::options::{DataMode, OpenOptions, WriteOrder};
use awaited::Awaited;
use data_writes::DataWrites;
pub(crate) use data_writes::{DataWrite, NoDataWrites};
pub(crate) use journal::Journal;
use phased::{Commit, Epoch};
pub(crate) use phased::{
    Facts, InodeSnapshot, LinkDelta, RemovedDir, RetainedName, SoftdepRecord, Survey, facts, is_used, mark,
};

/// Order in which a volume is written, by its options and its features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderChoice {
    /// In any order.
    Any,
    /// In phases.
    Phased,
    /// Through the journal.
    Journal(DataMode),
}

impl OrderChoice {
    /// The choice for a volume with or without a journal. One that is only read, or being loaded, needs none.
    pub(crate) fn from_options(options: &OpenOptions, has_journal: bool) -> Self {
        match options.ordering {
            _ if !options.write || options.loading => OrderChoice::Any,
            WriteOrder::Journal if has_journal => OrderChoice::Journal(options.data),
            WriteOrder::Journal | WriteOrder::Async => OrderChoice::Any,
            WriteOrder::Softdep | WriteOrder::Normal | WriteOrder::Sync => OrderChoice::Phased,
        }
    }

    /// Contents that the cache must keep for it.
    pub(crate) fn cache_policy(self) -> CachePolicy {
        CachePolicy {
            before: self == OrderChoice::Phased,
            data: self == OrderChoice::Journal(DataMode::Journal),
        }
    }
}

/// How soon changes must be stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum SyncPolicy {
    /// With the next sync.
    #[default]
    AtSync,
    /// Each change of metadata when its verb returns.
    Changes,
    /// And the bytes of files too.
    ChangesAndData,
}

impl SyncPolicy {
    fn from_order(ordering: WriteOrder) -> Self {
        match ordering {
            WriteOrder::Journal | WriteOrder::Async | WriteOrder::Softdep => SyncPolicy::AtSync,
            WriteOrder::Normal => SyncPolicy::Changes,
            WriteOrder::Sync => SyncPolicy::ChangesAndData,
        }
    }
}

/// The order of one open volume.
#[derive(Default)]
pub(crate) struct Order {
    how: OrderState,
    sync_policy: SyncPolicy,
    data_writes: DataWrites,
    awaited: Awaited,
}

#[derive(Default)]
enum OrderState {
    #[default]
    Any,
    Phased(Box<Phased>),
    Journal(Box<Journal>),
}

/// State of soft updates.
#[derive(Default)]
struct Phased {
    epoch: Epoch,
    /// The superblock that the last epoch wrote.
    superblock: Mutex<Vec<u8>>,
}

/// Where changes go.
#[derive(Clone, Copy)]
pub(crate) struct WriteContext<'t> {
    pub(crate) cache: &'t Cache,
    pub(crate) format: &'t Format,
    pub(crate) now: Timestamp,
}

/// All that one sync writes.
pub(crate) struct Batch {
    pub(crate) outgoing: Outgoing,
    pub(crate) superblock: RawSuperblock,
    /// Blocks and inodes that the device calls free.
    pub(crate) free_before: (u64, u32),
    notes: SoftdepRecord,
    forgotten: Vec<BlockRun>,
}

/// Writeback that is due before many more changes are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WritebackUrgency {
    /// Nothing.
    Needless,
    /// Changed blocks may go out by themselves.
    WriteOut,
    /// All changes must be committed together.
    Commit,
}

impl Order {
    /// The order of a volume that was opened for writing; its log, if it goes through a journal.
    pub(crate) fn new(choice: OrderChoice, ordering: WriteOrder, journal: Option<Journal>) -> Self {
        let how = match (choice, journal) {
            (OrderChoice::Phased, _) => OrderState::Phased(Box::default()),
            (OrderChoice::Journal(_), Some(journal)) => OrderState::Journal(Box::new(journal)),
            (OrderChoice::Any | OrderChoice::Journal(_), _) => OrderState::Any,
        };
        Order { how, sync_policy: SyncPolicy::from_order(ordering), ..Order::default() }
    }

    fn journal(&self) -> Option<&Journal> {
        match &self.how {
            OrderState::Journal(journal) => Some(journal),
            OrderState::Any | OrderState::Phased(_) => None,
        }
    }

    fn epoch(&self) -> Option<&Epoch> {
        match &self.how {
            OrderState::Phased(phased) => Some(&phased.epoch),
            OrderState::Any | OrderState::Journal(_) => None,
        }
    }

    /// True if changes go through a journal. Its log has the superblock too: in its place that one is written by
    /// the log alone.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal().is_some()
    }

    /// True if a crash at any time leaves a volume that needs no person to repair it. Committed changes then come to
    /// the device together.
    pub(crate) fn survives_crashes(&self) -> bool {
        !matches!(self.how, OrderState::Any)
    }

    /// True if updates must note what order their changes need.
    pub(crate) fn takes_notes(&self) -> bool {
        self.epoch().is_some()
    }

    /// True if a block that the device leads to may be changed where it is. Soft updates move maps and indexes
    /// instead, so that all of one switches with its inode's record (I28).
    pub(crate) fn changes_in_place(&self) -> bool {
        self.epoch().is_none()
    }

    /// True if inodes without a name stand on the list in the superblock. Soft updates could keep no list in order:
    /// after a crash such inodes are found by having no name.
    pub(crate) fn lists_orphans(&self) -> bool {
        self.epoch().is_none()
    }

    /// True if inodes may come to share a block of attributes. With soft updates the count in a block that another
    /// inode uses can't change together with an inode's record.
    pub(crate) fn shares_attribute_blocks(&self) -> bool {
        self.epoch().is_none()
    }

    /// True if two names may switch in two blocks. With soft updates a crash between the writes would leave a file
    /// without a name.
    pub(crate) fn switches_names_across_blocks(&self) -> bool {
        self.epoch().is_none()
    }

    /// True if a superblock field that names a file must be written apart, after the file's record: with soft
    /// updates a crash may bring one without the other.
    pub(crate) fn names_files_apart(&self) -> bool {
        self.epoch().is_some()
    }

    /// True if the bytes of files are part of updates.
    pub(crate) fn journals_data(&self) -> bool {
        self.journal().is_some_and(|journal| journal.data() == DataMode::Journal)
    }

    /// True if a sync of an inode's bytes alone has to be a commit: metadata needed to read them changed since the last
    /// one, the bytes are in the journal, or it is not known.
    pub(crate) fn awaits(&self, inode: InodeNumber) -> bool {
        !self.survives_crashes() || self.journals_data() || self.awaited.has(inode)
    }

    /// True if each change must be stable when its verb returns.
    pub(crate) fn syncs_changes(&self) -> bool {
        self.sync_policy != SyncPolicy::AtSync
    }

    /// True if bytes that are written must be stable when the verb returns.
    pub(crate) fn syncs_data(&self) -> bool {
        self.sync_policy == SyncPolicy::ChangesAndData
    }

    /// Blocks of a file to write back with one update, at most.
    pub(crate) fn blocks_at_once(&self) -> u64 {
        self.journal().map_or(u64::MAX, Journal::blocks_at_once)
    }

    /// Returns the writeback that is due before more is changed.
    pub(crate) fn relief(&self, cache: &Cache) -> WritebackUrgency {
        match &self.how {
            OrderState::Journal(journal) if journal.is_filling() => WritebackUrgency::Commit,
            OrderState::Phased(_) if cache.is_crowded() => WritebackUrgency::Commit,
            OrderState::Any if cache.is_crowded() => WritebackUrgency::WriteOut,
            OrderState::Any | OrderState::Phased(_) | OrderState::Journal(_) => WritebackUrgency::Needless,
        }
    }

    /// Takes an update in, before it is published: `staged` blocks, and something in each of `groups`.
    ///
    /// # Errors
    /// [`Flow::Full`]: there is no room before a commit; [`Error::TooLargeForLog`]: nor after one.
    pub(crate) fn admit(&self, staged: usize, groups: &BTreeSet<Group>) -> Result<(), Flow> {
        self.journal().map_or(Ok(()), |journal| journal.admit(staged, groups))
    }

    /// Takes in what an update noted, as it is published, and the inodes it changed by more than their times.
    pub(crate) fn take_in(&self, notes: SoftdepRecord, changed: &[InodeNumber]) {
        if self.survives_crashes() {
            self.awaited.add(changed);
        }
        if let Some(epoch) = self.epoch() {
            epoch.take_in(notes);
        }
    }

    /// Drops blocks from the cache that stop being metadata, unwritten changes included.
    pub(crate) fn forget(&self, cache: &Cache, run: BlockRun) {
        match &self.how {
            OrderState::Any => cache.forget(run, |_, _, _| {}),
            OrderState::Phased(phased) => {
                cache.forget(run, |block, role, bytes| phased.epoch.note_dropped(block, role, bytes));
            }
            OrderState::Journal(journal) => {
                cache.forget(run, |_, _, _| {});
                journal.forget(run);
            }
        }
    }

    /// True if names that left a block of a directory have to stay on the device for a while.
    pub(crate) fn has_kept(&self, block: u64) -> bool {
        self.epoch().is_some_and(|epoch| epoch.has_kept(block))
    }

    /// True if an inode got names since the last commit, or is a directory out of which such an inode was moved: the
    /// names that the device has of it may be its only ones there.
    pub(crate) fn awaits_names(&self, number: InodeNumber) -> bool {
        self.epoch().is_some_and(|epoch| epoch.names_of(number) > 0 || epoch.is_left(number))
    }

    /// Survey of a volume that is being reclaimed; `None` where nothing is ever reclaimed.
    pub(crate) fn survey(&self) -> Option<MutexGuard<'_, Option<Survey>>> {
        self.epoch().map(Epoch::survey)
    }

    /// Begins to write the bytes of a file, where a commit must wait for them (I23); to be held until they are written.
    pub(crate) fn begin_data_write(&self) -> Option<DataWrite<'_>> {
        let is_awaited = match &self.how {
            OrderState::Any => false,
            OrderState::Phased(_) => true,
            OrderState::Journal(journal) => journal.data() == DataMode::Ordered,
        };
        is_awaited.then(|| self.data_writes.begin())
    }

    /// Waits until no published map leads to blocks without their bytes, and keeps others from being published.
    pub(crate) fn wait_data_writes(&self) -> NoDataWrites<'_> {
        self.data_writes.wait()
    }

    /// Collects all that is to be written. What comes now belongs to the next time.
    pub(crate) fn collect(&self, cache: &Cache, superblock: RawSuperblock, free_before: (u64, u32)) -> Batch {
        self.awaited.begin();
        let (mut notes, mut forgotten) = (SoftdepRecord::default(), Vec::new());
        match &self.how {
            OrderState::Any => {}
            OrderState::Phased(phased) => notes = phased.epoch.end(),
            OrderState::Journal(journal) => forgotten = journal.begin_next(),
        }
        Batch { outgoing: cache.collect(), superblock, free_before, notes, forgotten }
    }

    /// Makes all of it stable.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn commit(&self, to: &WriteContext<'_>, batch: &Batch) -> Result<()> {
        self.write(to, batch)?;
        self.awaited.end();
        Ok(())
    }

    fn write(&self, to: &WriteContext<'_>, batch: &Batch) -> Result<()> {
        match &self.how {
            OrderState::Any => {
                to.cache.write_out(&batch.outgoing)?;
                self.write_superblock(to, batch.superblock)?;
                flush(to)
            }
            OrderState::Phased(phased) => self.commit_in_phases(phased, to, batch),
            OrderState::Journal(journal) => journal.log().commit(&journal::Transaction {
                outgoing: &batch.outgoing,
                forgotten: &batch.forgotten,
                superblock: &batch.superblock,
                now: to.now,
            }),
        }
    }

    /// Writes an epoch. The superblock never counts more free than there is.
    fn commit_in_phases(&self, phased: &Phased, to: &WriteContext<'_>, batch: &Batch) -> Result<()> {
        let (last, mut first) = (batch.superblock, batch.superblock);
        first.set_free_blocks_count(last.free_blocks_count().min(batch.free_before.0));
        first.s_free_inodes_count.set(last.s_free_inodes_count.get().min(batch.free_before.1));
        let WriteContext { cache, format, .. } = *to;
        let commit = Commit { cache, format, outgoing: &batch.outgoing, notes: &batch.notes };
        let mut written = lock(&phased.superblock);
        let is_news = *written != last.as_bytes();
        let write = |raw| if is_news { self.write_superblock(to, raw).map(|()| true) } else { Ok(false) };
        commit.write(|| write(first), || write(last))?;
        *written = last.as_bytes().to_vec();
        Ok(())
    }

    /// Makes stable that the volume is in order by itself, or in use, as `raw` says. In a journal its first transaction
    /// says that the volume is in use.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn mark(&self, to: &WriteContext<'_>, raw: RawSuperblock, clean: bool) -> Result<()> {
        match &self.how {
            OrderState::Journal(journal) if clean => journal.log().close(to.now),
            OrderState::Journal(_) => Ok(()),
            OrderState::Any | OrderState::Phased(_) => {
                self.write_superblock(to, raw)?;
                flush(to)
            }
        }
    }

    /// Writes the superblock in its place, without making it stable; to be asked where there is no journal.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn write_superblock(&self, to: &WriteContext<'_>, mut raw: RawSuperblock) -> Result<()> {
        let mut times = raw.times();
        times.written = times.written.max(to.now.since_1970());
        raw.set_times(times);
        if matches!(self.how, OrderState::Phased(_)) && raw.s_state.get() & STATE_VALID == 0 {
            mark::put(&mut raw);
        }
        to.format.sealer.seal_superblock(&mut raw);
        let written = to.cache.device().write_at(SUPERBLOCK_OFFSET, raw.as_bytes());
        written.map_err(|source| Error::io("writing the superblock", source))
    }

    /// Leaves word that the volume could not be written, where there is a place for that.
    pub(crate) fn note_failure(&self) {
        if let Some(journal) = self.journal() {
            journal.log().note_failure();
        }
    }
}

fn flush(to: &WriteContext<'_>) -> Result<()> {
    to.cache.device().flush().map_err(|source| Error::io("flushing the device", source))
}
