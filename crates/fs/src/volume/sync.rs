//! Bringing changes to the device: syncs, the mark of a volume in use, relief of a crowded cache.
//!
//! Owns: when metadata is written. While anything is written verbs go on: the writer's lock is held only to collect what
//! there is. Excludes: in which order it is written (`order`).
//!
//! Locks are taken in this order: `syncs.writing`, the gate of data writes (`order`), `writer`, what they protect.
//! Nothing but `syncs.writing` is held while the device is waited for.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ondisk::inode::Timestamp;
use ondisk::superblock::STATE_VALID;
use ondisk::units::{ClusterRun, low_u32};

use crate::context::Context;
use crate::device::Protection;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::order::{Batch, WriteContext, WritebackUrgency};
use crate::space::Work;
use crate::txn::Update;
use crate::versions::SPACE;
use crate::volume::{Core, Shared};

/// How far syncs have come.
#[derive(Default)]
pub(crate) struct Syncs {
    /// Held while metadata or the superblock is written.
    writing: Mutex<()>,
    /// Syncs begun so far.
    begun: AtomicU64,
    /// The last of them that came to its end.
    done: AtomicU64,
    /// Set by the first write that failed: what is on the device is then unknown, and writing on
    /// could only make it worse (I17).
    failed: AtomicBool,
    /// The volume is marked as in use on disk.
    marked: AtomicBool,
    /// News that a sync has ended.
    ended: (Mutex<()>, Condvar),
}

/// How long a sync waits before it looks again whether the device is free: not every holder gives notice.
const PATIENCE: Duration = Duration::from_millis(5);

/// The right to write metadata to the device.
struct DeviceLease<'v>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'v, ()>);

/// All that a sync has to write, and the work that it makes durable.
struct Collected {
    batch: Batch,
    work: Work,
}

/// The syncs of a volume, which bring changes to the device.
#[derive(Clone, Copy)]
pub(crate) struct Syncing<'v> {
    shared: &'v Shared,
    now: Timestamp,
}

impl Core {
    /// Its syncs.
    pub(crate) fn syncing(&self) -> Syncing<'_> {
        Syncing { shared: self, now: self.context.now }
    }
}

impl<'v> Syncing<'v> {
    /// Refuses changes once something could not be written.
    pub(crate) fn refuse_failed(&self) -> Result<()> {
        if self.shared.cache.device().protection() == Protection::Lost {
            // Not even a word of it in the journal: it is another host's.
            self.shared.syncs.failed.store(true, Ordering::Release);
            return Err(Error::TakenOver);
        }
        if self.shared.syncs.failed.load(Ordering::Acquire) { Err(Error::WriteFailed) } else { Ok(()) }
    }

    fn device(&self) -> Result<DeviceLease<'v>> {
        let device = DeviceLease(lock(&self.shared.syncs.writing));
        self.refuse_failed()?;
        Ok(device)
    }

    /// Nothing is written any more once something could not be (I17), but for a word of it in the journal.
    pub(crate) fn or_fail<T>(&self, done: Result<T>) -> Result<T> {
        // The first failure is the one that the journal tells: later ones may be its consequences.
        if done.is_err() && !self.shared.syncs.failed.swap(true, Ordering::AcqRel) {
            self.shared.order.note_failure();
        }
        done
    }

    /// Marks the volume on disk as not in order, before the first change, as Linux does
    /// while it is mounted. Images that are being built appear when they are whole, and need no mark.
    pub(crate) fn mark_changed(&self) -> Result<()> {
        if self.shared.session.options.loading || self.shared.syncs.marked.load(Ordering::Acquire) {
            return self.refuse_failed();
        }
        if self.shared.order.has_journal() {
            self.refuse_failed()?;
            // Its first transaction says so.
            self.shared.syncs.marked.store(true, Ordering::Release);
            return Ok(());
        }
        self.mark(&self.device()?, false)
    }

    /// True if another host has the volume, and this one had nothing left to write: nothing is lost.
    pub(crate) fn is_lost_unchanged(&self) -> bool {
        let is_lost = self.shared.cache.device().protection() == Protection::Lost;
        is_lost && !self.is_marked() && self.shared.session.delayed.bytes() == 0
    }

    /// True if the disk says that the volume is in use.
    pub(crate) fn is_marked(&self) -> bool {
        self.shared.syncs.marked.load(Ordering::Acquire)
    }

    /// Says on disk that the volume is in order, if nothing of it waits to be written. The next change takes it
    /// back before it is made.
    pub(crate) fn mark_if_idle(&self) -> Result<()> {
        let device = self.device()?;
        let _written = self.shared.order.wait_data_writes();
        let _writing = lock(&self.shared.writer);
        if self.shared.cache.changed() > 0
            || self.shared.space.has_work()
            || self.shared.reclaiming.is_unfinished()
        {
            return Ok(());
        }
        self.mark(&device, true)
    }

    /// Says on disk that the volume is in order, once all of it is stable.
    pub(crate) fn mark_in_order(&self) -> Result<()> {
        self.mark(&self.device()?, true)
    }

    fn mark(&self, _device: &DeviceLease<'_>, clean: bool) -> Result<()> {
        if self.shared.session.options.loading || self.shared.syncs.marked.load(Ordering::Acquire) != clean {
            return Ok(());
        }
        // Without a list of them they have to be looked for, when the volume is opened next.
        if clean && !self.shared.order.lists_orphans() && self.shared.session.handles.has_orphans() {
            return Ok(());
        }
        if !self.shared.order.has_journal() {
            self.shared.session.edit_superblock(|raw| {
                let state = raw.s_state.get();
                raw.s_state.set(if clean { state | STATE_VALID } else { state & !STATE_VALID });
            });
        }
        self.or_fail(self.shared.order.mark(&self.target(), self.shared.session.superblock(), clean))?;
        self.shared.syncs.marked.store(!clean, Ordering::Release);
        Ok(())
    }

    /// Where changes go.
    fn target(&self) -> WriteContext<'v> {
        WriteContext { cache: &self.shared.cache, format: &self.shared.format, now: self.now }
    }

    /// True if anything may have to be made stable.
    pub(crate) fn is_due(&self) -> bool {
        self.shared.session.options.loading || self.is_marked()
    }

    /// Makes stable what the cache and the running transaction hold, unless somebody else does.
    pub(crate) fn commit(&self) -> Result<()> {
        let begun = self.shared.syncs.begun.load(Ordering::Acquire);
        self.sync_after(begun)
    }

    /// Makes stable what was written to the device so far, of files whose maps are there already.
    pub(crate) fn flush(&self) -> Result<()> {
        self.refuse_failed()?;
        let flushed = self.shared.cache.device().flush();
        self.or_fail(flushed.map_err(|source| Error::io("flushing the device", source)))
    }

    /// Brings changes to the device when they take much memory, or most of the journal.
    pub(crate) fn relieve(&self) -> Result<()> {
        match self.shared.order.relief(&self.shared.cache) {
            WritebackUrgency::Needless => Ok(()),
            WritebackUrgency::WriteOut => self.write_out_some(),
            WritebackUrgency::Commit => self.commit(),
        }
    }

    /// Writes changed blocks in any order, unless another thread does.
    fn write_out_some(&self) -> Result<()> {
        let guard = match self.shared.syncs.writing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread writes already. Memory is bounded all the same: changes come no faster then.
            Err(TryLockError::WouldBlock) if self.shared.cache.is_overfull() => {
                lock(&self.shared.syncs.writing)
            }
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let _device = DeviceLease(guard);
        self.refuse_failed()?;
        if !self.shared.cache.is_crowded() {
            return Ok(());
        }
        self.or_fail(self.shared.cache.write_out(&self.shared.cache.collect()))
    }

    /// Makes a sync, unless another one begins after the `begun`-th.
    fn sync_after(&self, begun: u64) -> Result<()> {
        let Some(device) = self.device_or_sync_after(begun) else { return Ok(()) };
        let done = self.refuse_failed().and_then(|()| self.sync_alone(&device));
        drop(device);
        let _listening = lock(&self.shared.syncs.ended.0);
        self.shared.syncs.ended.1.notify_all();
        done
    }

    /// Waits for the device, or for a sync of another thread that was begun after another and so brings
    /// everything along: threads that wait for the same need not wait for each other.
    fn device_or_sync_after(&self, begun: u64) -> Option<DeviceLease<'v>> {
        let (lock_of_news, news) = &self.shared.syncs.ended;
        let mut listening = lock(lock_of_news);
        loop {
            if self.shared.syncs.done.load(Ordering::Acquire) > begun {
                return None;
            }
            match self.shared.syncs.writing.try_lock() {
                Ok(guard) => return Some(DeviceLease(guard)),
                Err(TryLockError::Poisoned(poisoned)) => return Some(DeviceLease(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            // Who writes blocks without a sync frees the device without news: the wait has to end by itself.
            let waited = news.wait_timeout(listening, PATIENCE);
            listening = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes what was freed usable, unless that has happened since `free_generation`.
    pub(crate) fn release_freed(&self, free_generation: u64) -> Result<()> {
        let device = self.device()?;
        if self.shared.space.free_generation() == free_generation { self.sync_alone(&device) } else { Ok(()) }
    }

    fn sync_alone(&self, _device: &DeviceLease<'_>) -> Result<()> {
        let number = self.shared.syncs.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.or_fail(self.try_sync())?;
        self.shared.syncs.done.store(number, Ordering::Release);
        Ok(())
    }

    fn try_sync(&self) -> Result<()> {
        self.shared.space.warm_up()?;
        let collected = self.collect()?;
        self.finish(&collected)
    }

    /// Makes what was collected stable, and what it frees usable.
    fn finish(&self, collected: &Collected) -> Result<()> {
        self.shared.order.commit(&self.target(), &collected.batch)?;
        if self.shared.session.options.discard {
            // What is free for good and can't be in use again yet. It is advice: a device that can't take it keeps
            // old bytes, which does no harm.
            for run in collected.work.freed_runs() {
                let _ = self.discard(run);
            }
        }
        self.shared.space.free_committed(&collected.work)
    }

    /// Tells the device that nobody needs a run; how many bytes that is.
    pub(crate) fn discard(&self, run: ClusterRun) -> io::Result<u64> {
        let geometry = &self.shared.format.geometry;
        let start = geometry.cluster_start(run.start);
        let end = (start.0 + (u64::from(run.count) << geometry.cluster_log2)).min(geometry.blocks);
        let len = end.saturating_sub(start.0) << geometry.block_size.log2();
        self.shared.cache.device().discard(geometry.byte_offset(start), len).map(|()| len)
    }

    /// Writes the superblock as it is now, without making it durable.
    pub(crate) fn write_superblock(&self) -> Result<()> {
        let _device = self.device()?;
        self.or_fail(self.shared.order.write_superblock(&self.target(), self.shared.session.superblock()))
    }

    /// Makes a change at a moment at which everything is stable, and brings it to its place before anybody else changes
    /// anything.
    ///
    /// # Errors
    /// The device's failure; what `change` gives: nothing is changed then.
    pub(crate) fn with_all_stable<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let device = self.device()?;
        // Most is brought to the device while others go on.
        self.sync_alone(&device)?;
        let _written = self.shared.order.wait_data_writes();
        let _writing = lock(&self.shared.writer);
        let rest = self.collect_held().and_then(|rest| self.finish(&rest));
        self.or_fail(rest)?;
        // A log that is replayed must have nothing that lies behind the end of the volume that is met then.
        self.mark(&device, true)?;
        let done = change()?;
        let changed = self.collect_held().and_then(|changed| self.finish(&changed));
        self.or_fail(changed)?;
        self.mark(&device, true)?;
        Ok(done)
    }

    /// All that is to be written, as of one moment between two updates (I21).
    fn collect(&self) -> Result<Collected> {
        // In this order: data writes take the writer's lock while they are in flight. Held together they make the
        // moment: no update is between its first look and its commit, and no map leads to bytes that are not written.
        let _written = self.shared.order.wait_data_writes();
        let _writing = lock(&self.shared.writer);
        self.collect_held()
    }

    fn collect_held(&self) -> Result<Collected> {
        // Readers of bitmaps and descriptors look again while these change (I20).
        let (change, work) = self.shared.cache.versions().during(&[SPACE], &[], || {
            let mut update = Update::new(&self.shared.cache, &self.shared.order, Context::new(self.now));
            let written_back = self.shared.space.write_back(&mut update)?;
            update.commit();
            Ok::<_, Error>(written_back)
        })?;
        // What the device calls free before this sync: soft updates never say that more is (I27).
        let raw = self.shared.session.superblock();
        let free_before = (raw.free_blocks_count(), raw.s_free_inodes_count.get());
        self.shared.session.edit_superblock(|raw| {
            let blocks = change.clusters << self.shared.format.geometry.cluster_log2;
            raw.set_free_blocks_count(raw.free_blocks_count().saturating_add_signed(blocks));
            let inodes = u64::from(raw.s_free_inodes_count.get()).saturating_add_signed(change.inodes);
            raw.s_free_inodes_count.set(low_u32(inodes));
        });
        let batch =
            self.shared.order.collect(&self.shared.cache, self.shared.session.superblock(), free_before);
        Ok(Collected { batch, work })
    }
}
