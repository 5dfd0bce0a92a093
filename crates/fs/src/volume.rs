//! An open volume: the facts of its format, its metadata cache and its free space.
//!
//! Owns: opening (the only door from an untrusted device to a usable volume), the superblock, and
//! sync. The verbs stand in `ops`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::inode::{Inode, TimeField, Timestamp};
use ondisk::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ondisk::units::{Group, low_u32};
use zerocopy::IntoBytes;

use crate::admission::{read_superblock, refuse_unreadable, refuse_unwritable};
use crate::cache::Cache;
use crate::device::Device;
use crate::dir::KnownNames;
use crate::dirty::Delayed;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::handles::Handles;
use crate::options::OpenOptions;
use crate::space::Space;
use crate::txn::Update;
use crate::xattr::AttributeBlocks;

/// An open ext2, ext3 or ext4 volume. Verbs take `&self` and may be called from many threads.
pub struct Volume {
    pub(crate) format: Format,
    pub(crate) cache: Arc<Cache>,
    pub(crate) space: Space,
    pub(crate) options: OpenOptions,
    /// Attribute blocks that other inodes may share.
    pub(crate) attribute_blocks: AttributeBlocks,
    /// What was written and has no blocks yet.
    pub(crate) delayed: Delayed,
    /// Names of the directory that was last added to.
    pub(crate) known_names: KnownNames,
    /// Held by each verb that changes something, and by sync: an update in flight is never synced.
    writer: Mutex<()>,
    superblock: Mutex<RawSuperblock>,
    /// Set by the first sync that failed: what is on the device is then unknown, and writing on
    /// could only make it worse (I17).
    failed: AtomicBool,
    /// Whether the disk says that the volume is not in order by itself.
    marked: AtomicBool,
    /// Inodes in use without a name.
    pub(crate) handles: Handles,
    now: Mutex<Timestamp>,
    /// Inodes made since the volume was opened.
    pub(crate) created: AtomicU64,
}

/// Proof that the caller is the only one changing the volume.
pub(crate) struct Writing<'v>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'v, ()>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Volume {
    /// Opens the volume on a device.
    ///
    /// # Errors
    /// The device's failure; a superblock that is none, has a wrong checksum, contradicts itself or
    /// describes more than the device holds; features that this code can't read or, when opened for
    /// writing, can't write.
    pub fn open(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Self> {
        let raw = read_superblock(&*device)?;
        refuse_unreadable(raw.features())?;
        let format = Format::from_superblock(&raw)?;
        if !format.sealer.superblock_is_right(&raw) {
            return Err(Error::corrupt(Place::Superblock, "checksum is wrong"));
        }
        let (blocks, log2) = (format.geometry.blocks, format.geometry.block_size.log2());
        if blocks > device.size() >> log2 {
            return Err(Error::corrupt(
                Place::Superblock,
                format!("the volume has {blocks} blocks, the device only {}", device.size() >> log2),
            ));
        }
        let cache = Arc::new(Cache::new(Arc::clone(&device), format.geometry.block_size, format.sealer));
        let space = if options.write {
            refuse_unwritable(&raw, &*device, &format, options)?;
            Space::for_writing(&*device, &format, Arc::clone(&cache), options.policy, options.loading)?
        } else {
            Space::for_reading(&*device, &format)?
        };
        Ok(Volume {
            format,
            cache,
            space,
            options: options.clone(),
            attribute_blocks: AttributeBlocks::default(),
            delayed: Delayed::new(log2, options.delay),
            known_names: KnownNames::default(),
            writer: Mutex::default(),
            superblock: Mutex::new(raw),
            failed: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            handles: Handles::default(),
            now: Mutex::new(options.now),
            created: AtomicU64::new(0),
        })
    }

    /// The facts of the volume's format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The superblock as last read or written.
    #[must_use]
    pub fn superblock(&self) -> RawSuperblock {
        *lock(&self.superblock)
    }

    /// Group descriptors and free counts.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Whether the journal holds changes that were not yet brought to their places. Reading shows
    /// the volume without them.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.format.has_incompat(Incompat::RECOVER)
    }

    /// A group's block bitmap: bit `n` is cluster `n` of the group, set if in use; bits behind its last
    /// cluster are set. Groups whose bitmap is not initialised are shown as if it were.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        self.space.block_bitmap(&*self.cache, &self.format, group)
    }

    /// Waits until nobody else changes the volume, and sees to it that it may be changed.
    fn begin(&self) -> Result<Writing<'_>> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        let writing = Writing(lock(&self.writer));
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::WriteFailed);
        }
        self.mark(false)?;
        Ok(writing)
    }

    /// Does a verb that changes something: as one update, or not at all (I8). If it finds no space
    /// while some is only waiting for a sync, the sync is made and the verb tried once more: so it
    /// must not leave anything behind in what it borrows when it fails.
    pub(crate) fn change<'v, T>(&'v self, mut verb: impl FnMut(&mut Update<'v>) -> Result<T>) -> Result<T> {
        let writing = self.begin()?;
        self.reap(&writing)?;
        let done = match self.attempt(&mut verb) {
            Err(Error::NoSpace | Error::NoInodes) if self.space.holds_freed() => {
                self.sync_alone(&writing)?;
                self.attempt(&mut verb)
            }
            done => done,
        }?;
        self.relieve()?;
        Ok(done)
    }

    /// As [`Volume::change`], but a verb that finds no space fails at once.
    pub(crate) fn change_once<'v, T>(
        &'v self,
        mut verb: impl FnMut(&mut Update<'v>) -> Result<T>,
    ) -> Result<T> {
        let writing = self.begin()?;
        self.reap(&writing)?;
        let done = self.attempt(&mut verb)?;
        self.relieve()?;
        Ok(done)
    }

    pub(crate) fn attempt<'v, T>(&'v self, verb: &mut impl FnMut(&mut Update<'v>) -> Result<T>) -> Result<T> {
        let mut update = Update::new(&self.cache);
        let done = verb(&mut update)?;
        update.commit();
        Ok(done)
    }

    /// Tells on disk whether the volume is in order by itself, as Linux does while it is mounted:
    /// before the first change that it is not, when it is closed that it is again. Images that are
    /// being built appear when they are whole, and need no mark.
    fn mark(&self, clean: bool) -> Result<()> {
        if self.options.loading || self.marked.load(Ordering::Acquire) != clean {
            return Ok(());
        }
        self.edit_superblock(|raw| {
            let state = raw.s_state.get();
            raw.s_state.set(if clean { state | STATE_VALID } else { state & !STATE_VALID });
        });
        let marked = self.write_superblock().and_then(|()| self.flush());
        match marked {
            Ok(()) => self.marked.store(!clean, Ordering::Release),
            Err(_) => self.failed.store(true, Ordering::Release),
        }
        marked
    }

    fn flush(&self) -> Result<()> {
        self.cache.device().flush().map_err(|source| Error::io("flushing the device", source))
    }

    /// The time that changes get from now on; the library reads no clock.
    pub fn set_now(&self, now: Timestamp) {
        *lock(&self.now) = now;
    }

    /// The time that changes get.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *lock(&self.now)
    }

    /// Sets times of an inode to now. A loader states all times itself.
    pub(crate) fn touch(&self, inode: &mut Inode, fields: &[TimeField]) {
        if !self.options.loading {
            let now = self.now();
            fields.iter().for_each(|field| inode.set_time(*field, now));
        }
    }

    /// Changes the superblock in memory; the next sync writes it.
    pub(crate) fn edit_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) {
        change(&mut lock(&self.superblock));
    }

    /// Writes metadata blocks out when they take much memory. Only right while the ordering is
    /// *unordered*: nothing is promised before a sync.
    pub(crate) fn relieve(&self) -> Result<()> {
        if self.cache.is_crowded() { self.cache.write_back() } else { Ok(()) }
    }

    /// Makes everything written so far stable.
    ///
    /// # Errors
    /// The device's failure; a bitmap or descriptor that contradicts what was allocated. After that
    /// nothing more is written: every changing verb gives [`Error::WriteFailed`].
    pub fn sync(&self) -> Result<()> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.write_back(None)?;
        self.sync_metadata()
    }

    /// Makes stable what is not delayed.
    pub(crate) fn sync_metadata(&self) -> Result<()> {
        let writing = Writing(lock(&self.writer));
        if self.failed.load(Ordering::Acquire) {
            return Err(Error::WriteFailed);
        }
        if !self.options.loading && !self.marked.load(Ordering::Acquire) {
            return Ok(());
        }
        self.reap(&writing)?;
        self.tidy_maps(&writing);
        self.sync_alone(&writing)
    }

    fn sync_alone(&self, writing: &Writing<'_>) -> Result<()> {
        let synced = self.try_sync(writing);
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        synced
    }

    fn try_sync(&self, _writing: &Writing<'_>) -> Result<()> {
        let mut update = Update::new(&self.cache);
        let change = self.space.write_back(&mut update)?;
        update.commit();
        self.cache.write_back()?;
        self.edit_superblock(|raw| {
            let blocks = change.clusters << self.format.geometry.cluster_log2;
            raw.set_free_blocks_count(raw.free_blocks_count().saturating_add_signed(blocks));
            let inodes = u64::from(raw.s_free_inodes_count.get()).saturating_add_signed(change.inodes);
            raw.s_free_inodes_count.set(low_u32(inodes));
        });
        self.write_superblock()?;
        self.flush()?;
        self.space.settle()
    }

    /// Makes everything stable and says on disk that the volume is in order. A volume that was
    /// changed and is only dropped counts as not closed cleanly: it must be checked before it is
    /// written again. Does nothing to a volume that was only read.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        self.put_in_order()
    }

    /// As [`Volume::close`], for a volume that others still hold but do not change meanwhile: the
    /// next change takes it back.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn put_in_order(&self) -> Result<()> {
        if !self.space.is_writable() {
            return Ok(());
        }
        self.sync()?;
        self.mark(true)
    }

    fn write_superblock(&self) -> Result<()> {
        let mut raw = self.superblock();
        let mut times = raw.times();
        times.written = times.written.max(u64::try_from(self.now().seconds).unwrap_or(0));
        raw.set_times(times);
        self.format.sealer.seal_superblock(&mut raw);
        self.cache
            .device()
            .write_at(SUPERBLOCK_OFFSET, raw.as_bytes())
            .map_err(|source| Error::io("writing the superblock", source))
    }
}
