//! An open volume: the facts of its format, its metadata cache and its free space.
//!
//! Owns: opening (the only door from an untrusted device to a usable volume), the superblock in
//! memory, and who may change the volume. The verbs stand in `ops`.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ondisk::corrupt::Place;
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::inode::{Inode, TimeField, Timestamp};
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use ondisk::units::{Block, Group};

use crate::admission::{read_superblock, refuse_unphased, refuse_unreadable, refuse_unwritable};
use crate::cache::{Blocks, Cache, Role, in_haste};
use crate::device::Device;
use crate::dir::KnownNames;
use crate::dirty::Delayed;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::handles::Handles;
use crate::journal::{self, Journal, Recovery};
use crate::map;
use crate::ops::Reclaiming;
use crate::options::OpenOptions;
use crate::phased::{self, Unclean};
use crate::space::Space;
use crate::sync::Syncs;
use crate::txn::Update;
use crate::versions::SPACE;
use crate::xattr::AttributeBlocks;
use crate::zone::Zone;

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
    /// Held by each verb that changes something, and by a sync while it collects what there is to be
    /// written: an update in flight is never synced.
    pub(crate) writer: Mutex<()>,
    superblock: Mutex<RawSuperblock>,
    /// Who may write metadata to the device, and what the device was told.
    pub(crate) syncs: Syncs,
    /// Inodes in use without a name.
    pub(crate) handles: Handles,
    now: Mutex<Timestamp>,
    /// Inodes made since the volume was opened.
    pub(crate) created: AtomicU64,
    recovery: Option<Recovery>,
    /// The journal, if it is used.
    pub(crate) journal: Option<Journal>,
    /// What a crash left, and is to be reclaimed.
    pub(crate) reclaiming: Reclaiming,
}

/// Times a verb makes a sync for space that others then take before it.
const SYNCS_FOR_SPACE: u32 = 16;

/// Blocks that a verb may find missing before it waits for them with the writer's lock.
const MISSES: u32 = 64;

/// Proof that the caller is the only one changing the volume.
pub(crate) struct Writing<'v>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'v, ()>);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The superblock of a device and the facts of its format, checked.
fn readable(device: &dyn Device) -> Result<(RawSuperblock, Format)> {
    let raw = read_superblock(device)?;
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
    Ok((raw, format))
}

/// A device with a volume that can be used: its journal replayed, if it has to be.
struct Recovered {
    device: Arc<dyn Device>,
    recovery: Option<Recovery>,
    /// What is to be reclaimed, where changes are kept in order without a journal.
    unclean: Option<Unclean>,
}

fn recovered(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Recovered> {
    if options.replaying {
        return Ok(Recovered { device, recovery: None, unclean: None });
    }
    let (device, recovery) = replayed(device, options)?;
    let is_phased = options.write && !options.loading && options.ordering.is_phased();
    let unclean = if is_phased { unclean(&device, options)? } else { None };
    Ok(Recovered { device, recovery, unclean })
}

/// What a crash left, if the volume was not closed cleanly. Lists of orphans are not kept in order
/// either: those of other ways of writing go first.
fn unclean(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<Option<Unclean>> {
    let (raw, format) = readable(&**device)?;
    let state = raw.s_state.get();
    let has_orphans =
        raw.s_last_orphan.get() != 0 || raw.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let unclean = state & STATE_VALID == 0 && !options.force;
    if state & STATE_ERROR != 0 || !(unclean || has_orphans) {
        return Ok(None);
    }
    refuse_unwritable(&raw, &**device, &format, &options.clone().force(true))?;
    refuse_unphased(&format)?;
    phased::recover(device, options, has_orphans)
}

/// A device whose journal was replayed, if it has to be.
fn replayed(device: Arc<dyn Device>, options: &OpenOptions) -> Result<(Arc<dyn Device>, Option<Recovery>)> {
    let (raw, mut format) = readable(&*device)?;
    if options.noload || !journal::is_pending(&raw) {
        return Ok((device, None));
    }
    if !options.write {
        let (device, recovery) = journal::replayed(device)?;
        return Ok((device, Some(recovery)));
    }
    // What else speaks against writing is asked before the first write.
    format.features.incompat.remove(Incompat::RECOVER);
    refuse_unwritable(&raw, &*device, &format, options)?;
    let replay = journal::plan(&device, &raw)?;
    if let Some(missing) = replay.recovery.missing() {
        return Err(Error::Unsupported(format!("the volume was not closed cleanly, and {missing}")));
    }
    replay.write(&*device)?;
    Ok((device, Some(replay.recovery)))
}

/// The space of a volume, to read, once it is known what of it no map may lead to. Whoever will write needs to know
/// all of that.
fn zoned(
    device: &dyn Device,
    cache: &Cache,
    raw: &RawSuperblock,
    format: &mut Format,
    write: bool,
) -> Result<Space> {
    let space = Space::for_reading(device, format)?;
    let descriptor = |group| space.descriptors().get(format, group);
    format.zone = Zone::of(&format.geometry, raw, descriptor, write)?;
    if write {
        format.zone = format.zone.keeping(map::kept(cache, format, &space)?)?;
    }
    Ok(space)
}

impl Volume {
    /// Opens the volume on a device. A journal that was left with changes is replayed: in memory, the
    /// device untouched, if the volume is only to be read, else on the device.
    ///
    /// # Errors
    /// The device's failure; a superblock that is none, has a wrong checksum, contradicts itself or
    /// describes more than the device holds; features that this code can't read or, when opened for
    /// writing, can't write; a journal that can't be replayed, or for writing not wholly.
    pub fn open(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Self> {
        let Recovered { device, recovery, unclean } = recovered(device, options)?;
        let (mut raw, mut format) = readable(&*device)?;
        if options.replaying {
            // Its log is in place.
            format.features.incompat.remove(Incompat::RECOVER);
        }
        let log2 = format.geometry.block_size.log2();
        let cache = Cache::new(Arc::clone(&device), format.geometry.block_size, format.sealer);
        let cache = Arc::new(match options.cache {
            Some(bytes) => cache.bounded(bytes),
            None => cache,
        });
        let space = if options.write {
            let is_seen_to = options.force || unclean.is_some();
            refuse_unwritable(&raw, &*device, &format, &options.clone().force(is_seen_to))?;
            phased::mark::remove(&mut raw);
            let (policy, loading) = (options.block_policy()?, options.loading);
            let space = zoned(&*device, &cache, &raw, &mut format, true)?;
            let cache = Arc::clone(&cache);
            let space = space.for_writing(&format, cache, policy, options.directories, loading)?;
            let sums = space.descriptors().sums(&format)?;
            // Linux keeps the sums of the superblock up to date only when it closes a volume: what is taken
            // and freed from now on is added to those of the groups.
            raw.set_free_blocks_count(sums.blocks);
            raw.s_free_inodes_count.set(sums.inodes);
            match options.bitmaps {
                Some(bytes) => space.bounded(bytes),
                None => space,
            }
        } else {
            zoned(&*device, &cache, &raw, &mut format, false)?
        };
        let journaled = options.write && !options.loading && options.uses_journal();
        let journal = if journaled && format.features.compat.contains(Compat::HAS_JOURNAL) {
            Some(Journal::open(&device, &cache, &format, &raw, options.data)?)
        } else {
            None
        };
        if options.write && !options.loading && options.ordering.is_phased() {
            refuse_unphased(&format)?;
            cache.keep_order();
        }
        let volume = Volume {
            format,
            cache,
            space,
            options: options.clone(),
            attribute_blocks: AttributeBlocks::default(),
            delayed: Delayed::new(log2, options.delay, !options.closes_untold),
            known_names: KnownNames::default(),
            writer: Mutex::default(),
            superblock: Mutex::new(raw),
            syncs: Syncs::default(),
            handles: Handles::default(),
            now: Mutex::new(options.now),
            created: AtomicU64::new(0),
            recovery,
            journal,
            reclaiming: Reclaiming::default(),
        };
        if let Some(unclean) = unclean {
            volume.begin_reclaiming(unclean);
        }
        if options.write && !options.replaying {
            volume.clean_orphans()?;
        }
        Ok(volume)
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

    /// Whether the journal may hold changes that were not brought to their places, because the volume was
    /// opened so ([`OpenOptions::noload`]): reading shows it without them.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.format.has_incompat(Incompat::RECOVER)
    }

    /// Whether changes go through a journal.
    #[must_use]
    pub fn uses_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether a crash at any time leaves a volume that needs no person to repair it.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.journal.is_some() || self.cache.epoch().is_some()
    }

    /// What replay of the journal did when the volume was opened, if there was need of it. A volume that
    /// is only read was replayed in memory: the device is as it was.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// A group's block bitmap: bit `n` is cluster `n` of the group, set if in use; bits behind its last
    /// cluster are set. Groups whose bitmap is not initialised are shown as if it were.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        self.steady(SPACE, || self.space.block_bitmap(&*self.cache, &self.format, group))
    }

    /// Waits until nobody else changes the volume, and sees to it that it may be changed.
    pub(crate) fn begin(&self) -> Result<Writing<'_>> {
        let writing = Writing(lock(&self.writer));
        self.refuse_failed()?;
        Ok(writing)
    }

    /// The same once the disk says that the volume is in use. Somebody may call it in order at any moment before.
    fn begin_marked(&self) -> Result<Writing<'_>> {
        loop {
            self.mark_changed()?;
            let writing = self.begin()?;
            if self.options.loading || self.is_marked() {
                return Ok(writing);
            }
        }
    }

    /// Does a verb that changes something: as one update, or not at all (I8). If it finds no space
    /// while some is only waiting for a sync, the sync is made and the verb tried once more: so it
    /// must not leave anything behind in what it borrows when it fails.
    pub(crate) fn change<'v, T>(&'v self, mut verb: impl FnMut(&mut Update<'v>) -> Result<T>) -> Result<T> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.mark_changed()?;
        self.reap()?;
        let mut left = SYNCS_FOR_SPACE;
        loop {
            let settlements = self.space.settlements();
            match self.perform(&mut verb) {
                Err(Error::NoSpace | Error::NoInodes) if left > 0 && self.make_space(settlements)? => {
                    left -= 1
                }
                done => {
                    let done = done?;
                    self.relieve()?;
                    if self.options.ordering.is_each() {
                        self.sync_metadata()?;
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// Does a verb as one update, whatever space it finds. Where it would wait for the device, it is
    /// dropped, the block read with nobody kept waiting, and the verb begun anew. What is too large for the
    /// journal is tried once more without what can be done later.
    pub(crate) fn perform<'v, T>(&'v self, verb: &mut impl FnMut(&mut Update<'v>) -> Result<T>) -> Result<T> {
        let mut left = if self.options.loading { 0 } else { MISSES };
        let mut postponing = false;
        loop {
            let mut verb = |update: &mut Update<'v>| {
                if postponing {
                    update.postpone_removal();
                }
                verb(update)
            };
            let missing = match self.attempt(&mut verb, left > 0) {
                Err(Error::NotCached(block)) => block,
                Err(Error::LogFull) => {
                    self.commit_full()?;
                    continue;
                }
                Err(Error::TooLargeForLog { .. }) if !postponing => {
                    postponing = true;
                    continue;
                }
                done => {
                    if postponing && done.is_ok() {
                        // What fails here is met by the next change.
                        let _ = self.reap();
                    }
                    return done;
                }
            };
            left -= 1;
            // What is wrong with it the verb will say.
            let _ = self.cache.read(Block(missing), Role::Plain);
        }
    }

    /// One try at a verb, which waits for the device or is dropped where it would.
    pub(crate) fn attempt<'v, T>(
        &'v self,
        verb: &mut impl FnMut(&mut Update<'v>) -> Result<T>,
        hasty: bool,
    ) -> Result<T> {
        let writing = self.begin_marked()?;
        let is_full = self.cache.epoch().is_some() && self.cache.is_crowded();
        if is_full || self.journal.as_ref().is_some_and(Journal::is_filling) {
            return Err(Error::LogFull);
        }
        self.attempt_at_once(&writing, verb, hasty)
    }

    /// The same as part of the transaction that is running, if it has any room.
    pub(crate) fn attempt_at_once<'v, T>(
        &'v self,
        _writing: &Writing<'_>,
        verb: &mut impl FnMut(&mut Update<'v>) -> Result<T>,
        hasty: bool,
    ) -> Result<T> {
        let mut update = Update::new(&self.cache);
        let done = in_haste(hasty, || verb(&mut update));
        if self.space.has_news_of_damage() {
            self.note_damage();
        }
        let done = done?;
        if let Some(journal) = &self.journal {
            journal.admit(&update)?;
        }
        update.commit();
        Ok(done)
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
}
