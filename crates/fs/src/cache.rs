//! Metadata blocks in memory.
//!
//! Owns: one copy of each block in use, whether it must be written, and its role, which says how
//! its checksum is verified when it comes and sealed when it leaves (I9); the versions of inodes. Excludes:
//! what blocks mean, and when and in which order changed ones may go out (`order` and `sync` decide).
//!
//! Blocks are handed out as shared snapshots: a reader keeps the bytes it began with, takes no lock
//! while it looks at them, and a change makes a new copy only if a reader still holds the old one.
//! No lock is held while the device is waited for.

mod reading;
mod shard;
mod spare;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ondisk::corrupt::Place;
use ondisk::seal::Sealer;
use ondisk::units::{Block, BlockRun, BlockSize, bounded, saturated};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::locks::lock;
pub use crate::role::Role;
use crate::versions::Versions;
use crate::write_batch::SpareBatch;
pub(crate) use reading::Reading;
use shard::{ChangedBlock, Shard, State};
use spare::Spare;

/// Where metadata blocks can be read from: the cache, or an update that sees its own changes.
pub trait Blocks {
    /// The bytes of a block, its checksum verified for the role.
    ///
    /// # Errors
    /// The device's failure, a block behind the end, or a wrong checksum.
    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>>;

    /// Reads bytes of a file from its blocks, which lie in a row on the device. Where the journal has the bytes
    /// of files, memory is asked first: what leaves it after that is in its place.
    ///
    /// # Errors
    /// The device's failure.
    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Blocks on their way to the device, as they were when they were collected, in the order of their
/// numbers.
#[derive(Default)]
pub struct Outgoing {
    blocks: Vec<(u64, Role, Arc<[u8]>)>,
    /// On-device contents of those that are not new, where they are kept.
    before: HashMap<u64, Arc<[u8]>>,
}

impl Outgoing {
    /// Each block, with its role and its bytes, which are not sealed.
    pub(crate) fn blocks(&self) -> &[(u64, Role, Arc<[u8]>)] {
        &self.blocks
    }

    /// On-device contents of a block; `None` for a new one.
    pub(crate) fn before(&self, block: u64) -> Option<&Arc<[u8]>> {
        self.before.get(&block)
    }
}

/// Contents that are kept beside the blocks as they are now, for the order in which changes reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CachePolicy {
    /// On-device contents of changed blocks.
    pub(crate) before: bool,
    /// Bytes of files that wait in a journal.
    pub(crate) data: bool,
}

/// Parts of the cache with locks of their own; a power of two.
const SHARDS: usize = 16;
/// Memory for metadata blocks before clean ones are dropped.
const CACHE_BYTES: u64 = 32 << 20;
/// Bytes of neighbouring blocks written at once.
const GATHER: usize = 256 << 10;
/// Times a block is read from the device again because others were dropped meanwhile, before it is
/// handed out without being kept.
const RELOADS: u32 = 3;

/// The metadata blocks of one volume.
pub struct Cache {
    device: Arc<dyn Device>,
    block_size: BlockSize,
    sealer: Sealer,
    shards: Box<[Mutex<Shard>]>,
    /// Changed blocks that are not on their way to the device.
    changed: AtomicUsize,
    /// Clean blocks are dropped from a shard when it holds more than this many.
    capacity: usize,
    versions: Versions,
    policy: CachePolicy,
    spare: Spare,
    emptied: SpareBatch,
}

impl Cache {
    /// An empty cache over a device.
    pub fn new(device: Arc<dyn Device>, block_size: BlockSize, sealer: Sealer) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let cache = Cache {
            device,
            block_size,
            sealer,
            shards,
            changed: AtomicUsize::new(0),
            capacity: 1,
            versions: Versions::new(),
            policy: CachePolicy::default(),
            spare: Spare::default(),
            emptied: SpareBatch::default(),
        };
        cache.bounded(CACHE_BYTES)
    }

    /// As new, with another bound on memory than the usual one.
    #[must_use]
    pub(crate) fn bounded(mut self, bytes: u64) -> Self {
        let bytes = saturated::<usize>(bytes);
        self.capacity = (bytes / self.block_size.bytes_usize() / SHARDS).max(1);
        self
    }

    /// As new, keeping more than the blocks.
    #[must_use]
    pub(crate) fn keeping(self, policy: CachePolicy) -> Self {
        Cache { policy, ..self }
    }

    /// Bytes of a block.
    pub(crate) fn block_len(&self) -> usize {
        self.block_size.bytes_usize()
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Memory of bytes that were written together.
    pub(crate) fn emptied(&self) -> &SpareBatch {
        &self.emptied
    }

    /// The versions of inodes.
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// Neighbours lie in different shards.
    #[expect(clippy::indexing_slicing, reason = "the remainder is below the number of shards")]
    fn shard(&self, block: u64) -> MutexGuard<'_, Shard> {
        // A remainder by the number of shards always fits.
        let index = bounded::<usize>(block % SHARDS as u64);
        lock(&self.shards[index])
    }

    fn load(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; self.block_size.bytes_usize()];
        let offset = block.0.checked_mul(u64::from(self.block_size.bytes()));
        let offset = offset.ok_or_else(|| Error::corrupt(Place::Block(block), "lies behind the end"))?;
        self.device
            .read_at(offset, &mut bytes)
            .map_err(|source| Error::io(format!("reading block {block}"), source))?;
        self.verified(block, role, Arc::from(bytes))
    }

    /// Reads blocks that are not in memory with one read. What is wrong with one its reader will say.
    pub(crate) fn fetch(&self, run: BlockRun) {
        if run.count <= 1 || self.fetch_all(run).is_err() {
            // A failure to read ahead is not reported here. The call that needs the block reads it again and reports it.
            let _ = self.read(run.start, Role::Plain);
        }
    }

    fn fetch_all(&self, run: BlockRun) -> io::Result<()> {
        let missing = |block| match self.find(block, Role::Plain) {
            CacheLookup::Missing(departures) => Some((block, departures)),
            _ => None,
        };
        let missing: Vec<_> =
            (0..u64::from(run.count)).map(|at| missing(Block(run.start.0.saturating_add(at)))).collect();
        let len = usize::try_from(run.count).ok().and_then(|len| len.checked_mul(self.block_len()));
        let offset = run.start.0.checked_mul(u64::from(self.block_size.bytes()));
        let (Some(len), Some(offset)) = (len, offset) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut bytes = vec![0; len];
        self.device.read_at(offset, &mut bytes)?;
        for (missing, bytes) in missing.into_iter().zip(bytes.chunks_exact(self.block_len())) {
            let Some((block, departures)) = missing else { continue };
            let mut shard = self.shard(block.0);
            // As where one block is read.
            if shard.find(block.0).is_none() && shard.departures() == departures {
                shard.admit(block.0, Role::Plain, Arc::from(bytes), self.capacity);
            }
        }
        Ok(())
    }

    fn verified(&self, block: Block, role: Role, bytes: Arc<[u8]>) -> Result<Arc<[u8]>> {
        if role.is_right(&self.sealer, block, &bytes) {
            return Ok(bytes);
        }
        Err(Error::corrupt(Place::Block(block), format!("checksum of the {} is wrong", role.name())))
    }

    /// Verifies a clean block for another role than it came with. One that came without a role (the
    /// reader had to look at it to know) keeps this one, so that it is verified once.
    fn specify(&self, block: Block, role: Role, bytes: Arc<[u8]>) -> Result<Arc<[u8]>> {
        let bytes = self.verified(block, role, bytes)?;
        if let Some(entry) = self.shard(block.0).find(block.0)
            && entry.role == Role::Plain
            && Arc::ptr_eq(&entry.bytes, &bytes)
        {
            entry.role = role;
        }
        Ok(bytes)
    }

    /// Takes over changed blocks, each with what it was made of if it is not new.
    pub(crate) fn publish(
        &self,
        changed: impl IntoIterator<Item = (Block, Role, Arc<[u8]>, Option<Arc<[u8]>>)>,
    ) {
        for (block, role, bytes, before) in changed {
            let change = ChangedBlock { bytes, before: before.filter(|_| self.policy.before) };
            let mut shard = self.shard(block.0);
            let (more, replaced) = shard.change(block.0, role, change, self.capacity);
            // Counted under its lock: when it is collected it must have been counted.
            self.changed.fetch_add(more, Ordering::Relaxed);
            drop(shard);
            if let Some(bytes) = replaced {
                self.spare.put_back(bytes);
            }
        }
    }

    /// A copy of a block's bytes, to be changed.
    pub(crate) fn copy(&self, bytes: &Arc<[u8]>) -> Arc<[u8]> {
        self.spare.copy(bytes)
    }

    /// True if a block is changed, and nothing on the device leads to it.
    pub(crate) fn is_new(&self, block: Block) -> bool {
        let mut shard = self.shard(block.0);
        shard.find(block.0).is_some_and(|entry| entry.state == State::Changed && entry.before.is_none())
    }

    /// On-device contents of a block in memory, with writes in flight counted as done.
    pub(crate) fn before(&self, block: Block) -> Option<Arc<[u8]>> {
        let mut shard = self.shard(block.0);
        let entry = shard.find(block.0)?;
        if entry.state == State::Changed { entry.before.clone() } else { Some(Arc::clone(&entry.bytes)) }
    }

    /// Drops blocks that no longer are metadata, unwritten changes included; of each that has such, and that the
    /// device leads to, `dropped` gets what it was.
    pub(crate) fn forget(&self, run: BlockRun, mut dropped: impl FnMut(u64, Role, Arc<[u8]>)) {
        for block in run.start.0..run.start.0 + u64::from(run.count) {
            let mut shard = self.shard(block);
            let Some(entry) = shard.drop_block(block) else { continue };
            self.changed.fetch_sub(1, Ordering::Relaxed);
            if entry.before.is_some() {
                dropped(block, entry.role, entry.bytes);
            }
        }
    }

    /// Drops all blocks from one on, behind a new end of the volume. None of them may wait to be written.
    pub(crate) fn forget_behind(&self, end: Block) {
        self.shards().for_each(|mut shard| shard.drop_behind(end.0));
    }

    /// Changed blocks that are not on their way to the device.
    pub(crate) fn changed(&self) -> usize {
        self.changed.load(Ordering::Relaxed)
    }

    /// A block as it leaves for the device.
    pub(crate) fn sealed(&self, block: u64, role: Role, bytes: &Arc<[u8]>) -> Arc<[u8]> {
        if matches!(role, Role::Plain | Role::Data) {
            return Arc::clone(bytes);
        }
        // Readers share these bytes, which have no checksum while they are in memory (I9): a copy gets it.
        let mut sealed = bytes.to_vec();
        role.seal(&self.sealer, Block(block), &mut sealed);
        Arc::from(sealed)
    }

    /// Collected blocks are in the journal; they stay in memory until they are in their places.
    pub(crate) fn logged(&self, outgoing: &Outgoing) {
        for (block, _, bytes) in &outgoing.blocks {
            self.shard(*block).logged(*block, bytes);
        }
    }

    /// A block that the journal had is in its place.
    pub(crate) fn in_place(&self, block: u64, bytes: &Arc<[u8]>) {
        self.shard(block).in_place(block, bytes);
    }

    /// Drops clean blocks until the bound on memory holds.
    pub(crate) fn trim(&self) {
        self.shards().for_each(|mut shard| shard.trim(self.capacity));
    }

    /// Blocks that the cache holds before clean ones are dropped.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity * SHARDS
    }

    /// True if more than half of the capacity is dirty: these blocks should be written back.
    pub(crate) fn is_crowded(&self) -> bool {
        self.changed() > self.capacity() / 2
    }

    /// True if more blocks are dirty than the memory bound allows.
    pub(crate) fn is_overfull(&self) -> bool {
        self.changed() > self.capacity()
    }

    /// Every changed block as it is now. What is collected must be written before the next collection: of two versions of a block the older could reach the device last.
    pub(crate) fn collect(&self) -> Outgoing {
        let mut all = Outgoing::default();
        for mut shard in self.shards() {
            let before = all.blocks.len();
            shard.collect(&mut all);
            self.changed.fetch_sub(all.blocks.len() - before, Ordering::Relaxed);
        }
        // By their place: neighbours of all shards are then written together.
        all.blocks.sort_unstable_by_key(|(block, ..)| *block);
        all
    }

    /// Writes collected blocks in device order, sealed, neighbours together; does not flush the
    /// device.
    ///
    /// # Errors
    /// The device's failure. Blocks not yet written, and those changed meanwhile, are changed still.
    pub(crate) fn write_out(&self, outgoing: &Outgoing) -> Result<()> {
        self.write_runs(&outgoing.blocks, |run| self.written(run))?;
        self.trim();
        Ok(())
    }

    /// Writes images of blocks, in the order of their numbers; what of them is in memory stays changed.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn write_images(&self, images: &[(u64, Role, Arc<[u8]>)]) -> Result<()> {
        self.write_runs(images, |_| {})
    }

    /// All collected blocks are on the device as they were collected.
    pub(crate) fn all_written(&self, outgoing: &Outgoing) {
        self.written(&outgoing.blocks);
        self.trim();
    }

    fn written(&self, blocks: &[(u64, Role, Arc<[u8]>)]) {
        for (block, _, bytes) in blocks {
            self.shard(*block).written(*block, bytes);
        }
    }

    fn write_runs(
        &self,
        blocks: &[(u64, Role, Arc<[u8]>)],
        written: impl Fn(&[(u64, Role, Arc<[u8]>)]),
    ) -> Result<()> {
        // A block may be longer than all that is gathered at once.
        let most = (GATHER / self.block_size.bytes_usize()).max(1);
        let mut gathered = Vec::new();
        for run in blocks.chunk_by(|a, b| b.0 == a.0 + 1).flat_map(|run| run.chunks(most)) {
            gathered.clear();
            for (block, role, bytes) in run {
                let start = gathered.len();
                gathered.extend_from_slice(bytes);
                role.seal(&self.sealer, Block(*block), gathered.split_at_mut(start).1);
            }
            let first = run.first().map_or(0, |(block, ..)| *block);
            self.device
                .write_at(first * u64::from(self.block_size.bytes()), &gathered)
                .map_err(|source| Error::io(format!("writing block {first}"), source))?;
            // Run by run: after a failure those that were written are clean, and the others stay changed.
            written(run);
        }
        Ok(())
    }

    /// Writes every changed block.
    ///
    /// # Errors
    /// As [`Cache::write_out`].
    #[cfg(test)]
    pub(crate) fn write_back(&self) -> Result<()> {
        self.write_out(&self.collect())
    }

    fn find(&self, block: Block, role: Role) -> CacheLookup {
        let mut shard = self.shard(block.0);
        let Some(entry) = shard.find(block.0) else { return CacheLookup::Missing(shard.departures()) };
        let bytes = Arc::clone(&entry.bytes);
        // A changed block is sealed only when it leaves; a clean one was verified for one role.
        if entry.state != State::Clean || entry.role == role || role == Role::Plain {
            CacheLookup::Held(bytes)
        } else {
            CacheLookup::Unverified(bytes)
        }
    }
}

/// Result of looking a block up in the cache.
enum CacheLookup {
    Held(Arc<[u8]>),
    /// It was verified for another role.
    Unverified(Arc<[u8]>),
    /// Nothing; the number of blocks that had left its shard.
    Missing(u64),
}

impl Cache {
    /// A block that is in memory, verified for its role; `None` if it is not there. Never waits for the device.
    ///
    /// # Errors
    /// A wrong checksum.
    pub(crate) fn held(&self, block: Block, role: Role) -> Result<Option<Arc<[u8]>>> {
        match self.find(block, role) {
            CacheLookup::Held(bytes) => Ok(Some(bytes)),
            CacheLookup::Unverified(bytes) => self.specify(block, role, bytes).map(Some),
            CacheLookup::Missing(_) => Ok(None),
        }
    }
}

impl Blocks for Cache {
    fn read_data(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if !self.policy.data {
            return self.device.read_at(offset, buffer);
        }
        let log2 = self.block_size.log2();
        let end = offset + buffer.len() as u64;
        let mut held = Vec::new();
        for block in offset >> log2..end.div_ceil(1 << log2) {
            if let Some(entry) = self.shard(block).find(block) {
                held.push((block << log2, Arc::clone(&entry.bytes)));
            }
        }
        self.device.read_at(offset, buffer)?;
        for (start, bytes) in held {
            let (low, high) = (start.max(offset), (start + bytes.len() as u64).min(end));
            let part = |base: u64| {
                let at = |place: u64| bounded::<usize>(place - base);
                at(low)..at(high)
            };
            if let (Some(to), Some(from)) = (buffer.get_mut(part(offset)), bytes.get(part(start))) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn read(&self, block: Block, role: Role) -> Result<Arc<[u8]>> {
        let mut left = RELOADS;
        loop {
            let departures = match self.find(block, role) {
                CacheLookup::Held(bytes) => return Ok(bytes),
                CacheLookup::Unverified(bytes) => return self.specify(block, role, bytes),
                CacheLookup::Missing(departures) => departures,
            };
            let bytes = self.load(block, role)?;
            let mut shard = self.shard(block.0);
            if shard.find(block.0).is_some() {
                continue;
            }
            // Else the block may have come, been changed, written and dropped meanwhile, and what was
            // read be older than that.
            if shard.departures() == departures {
                shard.admit(block.0, role, Arc::clone(&bytes), self.capacity);
                return Ok(bytes);
            }
            left -= 1;
            if left == 0 {
                return Ok(bytes);
            }
        }
    }
}
