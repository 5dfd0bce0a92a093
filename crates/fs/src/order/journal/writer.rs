//! Writing the log: transactions go in, and out to their places when there is need of room.
//!
//! Owns: the head and the tail of the log, what it holds that is not in place, which blocks it must revoke
//! (I24), and the order of all this with flushes (I22). Excludes: what belongs to a transaction (`sync`), and how large one
//! may become before it must be committed (`super`).
//!
//! The order of a commit (I22): revocations, descriptors, copies, and zeros where the commit block will be; flush, which
//! also makes stable the data that was written before; the commit block; flush. Of a checkpoint: the blocks to their
//! places, with a flush between the superblock and the others where the volume has another size; flush; the new beginning
//! of the log; flush. Nothing is overwritten in the log before the latter.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::features::{Features, Incompat};
use ondisk::inode::Timestamp;
use ondisk::journal::log::{CommitTime, LogFormat, Tag, escape};
use ondisk::journal::{BlockKind, JOURNAL_CHECKSUM_CRC32C, JournalIncompat};
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ondisk::units::{BlockRun, BlockSize};
use platfs_device::journal::{self, Log};
use zerocopy::IntoBytes;

use crate::bytes;
use crate::cache::{Cache, Outgoing};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::role::Role;

/// Bytes of neighbouring blocks written at once.
const GATHER: usize = 256 << 10;

fn bad(problem: impl Into<String>) -> Error {
    Error::corrupt(Place::Journal, problem)
}

/// All that becomes stable together.
pub(crate) struct Transaction<'t> {
    /// Changed blocks.
    pub(crate) outgoing: &'t Outgoing,
    /// Blocks that stopped being metadata.
    pub(crate) forgotten: &'t [BlockRun],
    /// The superblock, without a word of the journal in it.
    pub(crate) superblock: &'t RawSuperblock,
    /// The time.
    pub(crate) now: Timestamp,
}

/// A block as a transaction leaves it: its number, what it is, its bytes.
type Image = (u64, Role, Arc<[u8]>);

/// A committed block that is not in its place.
struct Waiting {
    role: Role,
    bytes: Arc<[u8]>,
}

/// The log of a volume that is open for writing.
pub(crate) struct LogWriter {
    log: Log,
    cache: Arc<Cache>,
    sealer: Sealer,
    block_size: BlockSize,
    /// The next block of the log.
    head: u32,
    /// Blocks of the log from its tail to its head.
    used: u32,
    /// The next transaction.
    sequence: u32,
    waiting: BTreeMap<u64, Waiting>,
    /// Blocks of which the log holds copies that are not revoked.
    copied: BTreeSet<u64>,
    /// The volume's superblock as it stands in its place.
    placed: RawSuperblock,
    /// The superblock as it was last committed.
    committed: RawSuperblock,
    /// Superblock as last committed, without the changes that committing adds.
    known: RawSuperblock,
    /// The block that holds the superblock.
    frame: Vec<u8>,
}

/// Neighbouring blocks on their way to the device together.
struct WriteBatch<'d> {
    device: &'d dyn Device,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'d> WriteBatch<'d> {
    fn new(device: &'d dyn Device) -> Self {
        WriteBatch { device, offset: 0, bytes: Vec::new() }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let is_next = offset == self.offset + self.bytes.len() as u64;
        if !is_next || self.bytes.len() + bytes.len() > GATHER {
            self.write()?;
            self.offset = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            let written = self.device.write_at(self.offset, &self.bytes);
            written
                .map_err(|source| Error::io(format!("writing metadata at byte {}", self.offset), source))?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The superblock with or without the mark that the journal must be replayed, sealed.
fn marked(sealer: &Sealer, raw: &RawSuperblock, recover: bool, now: Timestamp) -> RawSuperblock {
    let mut raw = *raw;
    let mut times = raw.times();
    times.written = times.written.max(now.since_1970());
    raw.set_times(times);
    let mut features: Features = raw.features();
    // Set from before the first commit is promised until all is in place (I26).
    features.incompat.set(Incompat::RECOVER, recover);
    raw.set_features(features);
    sealer.seal_superblock(&mut raw);
    raw
}

impl LogWriter {
    /// The log of a volume whose journal holds nothing, with the volume's superblock as it stands. Nothing is
    /// written.
    pub(crate) fn new(
        mut log: Log,
        cache: &Arc<Cache>,
        format: &Format,
        raw: &RawSuperblock,
    ) -> Result<Self> {
        let block_size = format.geometry.block_size;
        let mut frame = vec![0; block_size.bytes_usize()];
        let start = SUPERBLOCK_OFFSET & !u64::from(block_size.bytes() - 1);
        cache
            .device()
            .read_at(start, &mut frame)
            .map_err(|source| Error::io("reading the superblock", source))?;
        let mut sequence = log.superblock.s_sequence.get();
        if !log.superblock.is_clean() {
            // What lies there must not be taken for what follows on new transactions.
            sequence = sequence.wrapping_add(log.blocks());
            log.superblock.s_start.set(0);
        }
        choose_features(&mut log, format);
        let head = begins_at(&log);
        if log.length() < ondisk::journal::MIN_JOURNAL_BLOCKS / 2 {
            return Err(bad(format!("its log of {} blocks is too short to be written", log.length())));
        }
        Ok(LogWriter {
            log,
            cache: Arc::clone(cache),
            sealer: format.sealer,
            block_size,
            head,
            used: 0,
            sequence,
            waiting: BTreeMap::new(),
            copied: BTreeSet::new(),
            placed: *raw,
            committed: *raw,
            known: *raw,
            frame,
        })
    }

    /// Blocks that one transaction may change, at most: descriptors, revocations and the commit have
    /// their room beside them.
    pub(crate) fn credits(&self) -> usize {
        let length = self.log.length() as usize;
        length - length / 16 - 16
    }

    fn device(&self) -> &dyn Device {
        &**self.cache.device()
    }

    fn flush(&self) -> Result<()> {
        self.device().flush().map_err(|source| Error::io("flushing the device", source))
    }

    /// Makes a transaction stable. One without changes only makes stable what was written beside it.
    pub(crate) fn commit(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let changed = transaction.superblock.as_bytes() != self.known.as_bytes();
        if transaction.outgoing.blocks().is_empty() && transaction.forgotten.is_empty() && !changed {
            return self.flush();
        }
        let superblock = marked(&self.sealer, transaction.superblock, true, transaction.now);
        let blocks = self.blocks_of(transaction, &superblock)?;
        let revoked = self.revoked_by(transaction);
        let format = self.log.format;
        let need = blocks.len()
            + blocks.len().div_ceil(format.tags_max())
            + revoked.len().div_ceil(format.revoked_max())
            + 1;
        self.make_room(need)?;
        self.begin(transaction.now)?;
        self.write_body(&blocks, &revoked)?;
        self.flush()?;
        self.write_commit(transaction.now)?;
        self.flush()?;
        self.note_committed(transaction, blocks, &revoked, superblock);
        if self.waiting.len() > self.cache.capacity() / 2 {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// The blocks of a transaction, that of the superblock among them.
    fn blocks_of(&self, transaction: &Transaction<'_>, raw: &RawSuperblock) -> Result<Vec<Image>> {
        let mut frame = self.frame.clone();
        let inside = bytes::length(SUPERBLOCK_OFFSET)? & (frame.len() - 1);
        bytes::put(&mut frame, inside, raw.as_bytes())?;
        let mut blocks = transaction.outgoing.blocks().to_vec();
        blocks.push((SUPERBLOCK_OFFSET >> self.block_size.log2(), Role::Plain, Arc::from(frame)));
        Ok(blocks)
    }

    /// The blocks that stopped being metadata and of which the log holds copies: replay must not bring them
    /// back over what they will hold next (I24).
    fn revoked_by(&self, transaction: &Transaction<'_>) -> Vec<u64> {
        let ends = |run: &BlockRun| run.start.0..run.start.0 + u64::from(run.count);
        let mut revoked: Vec<u64> =
            transaction.forgotten.iter().flat_map(|run| self.copied.range(ends(run))).copied().collect();
        // Of what came back the transaction has a copy, which counts.
        let blocks = transaction.outgoing.blocks();
        revoked.retain(|block| blocks.binary_search_by_key(block, |(number, ..)| *number).is_err());
        revoked.sort_unstable();
        revoked.dedup();
        revoked
    }

    fn make_room(&mut self, need: usize) -> Result<()> {
        let fits = |used: u32| need + (used as usize) < self.log.length() as usize;
        if !fits(self.used) {
            self.checkpoint()?;
        }
        if need >= self.log.length() as usize {
            return Err(bad(format!("has no room for a transaction of {need} blocks")));
        }
        Ok(())
    }

    /// Says in both superblocks that the log is in use (I26): first that of the volume, then, stable with the body of
    /// the first transaction, that of the journal.
    fn begin(&mut self, now: Timestamp) -> Result<()> {
        if !journal::is_pending(&self.placed) {
            // A log without the mark would make a check ask what to do.
            self.place_superblock(true, now)?;
            self.flush()?;
        }
        if self.log.superblock.is_clean() {
            self.write_tail(self.head)?;
        }
        Ok(())
    }

    fn place_superblock(&mut self, recover: bool, now: Timestamp) -> Result<()> {
        self.placed = marked(&self.sealer, &self.placed, recover, now);
        let written = self.device().write_at(SUPERBLOCK_OFFSET, self.placed.as_bytes());
        written.map_err(|source| Error::io("writing the superblock", source))
    }

    /// Writes where the log begins; 0: nowhere, it holds nothing.
    fn write_tail(&mut self, start: u32) -> Result<()> {
        let raw = &mut self.log.superblock;
        raw.s_start.set(start);
        raw.s_sequence.set(self.sequence);
        raw.seal();
        let (offset, raw) = (self.log.offset(0)?, self.log.superblock);
        let written = self.device().write_at(offset, raw.as_bytes());
        written.map_err(|source| Error::io("writing the superblock of the journal", source))
    }

    /// Takes the next block of the log; where it lies.
    fn step(&mut self) -> Result<u64> {
        let at = self.head;
        self.head = self.log.next(at);
        self.used += 1;
        Ok(self.log.offset(at)?)
    }

    fn write_body(&mut self, blocks: &[Image], revoked: &[u64]) -> Result<()> {
        let cache = Arc::clone(&self.cache);
        let mut gathered = WriteBatch::new(&**cache.device());
        let format = self.log.format;
        let mut block = vec![0; format.block_len()];
        for chunk in revoked.chunks(format.revoked_max()) {
            format.write_revoked(self.sequence, chunk, &mut block);
            gathered.put(self.step()?, &block)?;
        }
        for chunk in blocks.chunks(format.tags_max()) {
            let copies: Vec<(Tag, Arc<[u8]>)> =
                chunk.iter().map(|(number, role, bytes)| self.copy(*number, *role, bytes)).collect();
            let tags: Vec<Tag> = copies.iter().map(|(tag, _)| *tag).collect();
            format.write_descriptor(self.sequence, &tags, &mut block);
            gathered.put(self.step()?, &block)?;
            for (_, copy) in &copies {
                gathered.put(self.step()?, copy)?;
            }
        }
        // Linux and e2fsck call a log corrupt whose last commit block was torn and ends in older bytes.
        block.fill(0);
        gathered.put(self.log.offset(self.head)?, &block)?;
        gathered.write()
    }

    /// A block as it stands in the log, and its tag.
    fn copy(&self, block: u64, role: Role, bytes: &Arc<[u8]>) -> (Tag, Arc<[u8]>) {
        let mut copy = self.cache.sealed(block, role, bytes);
        let mut escaped = false;
        if copy.starts_with(&ondisk::journal::JOURNAL_MAGIC.to_be_bytes()) {
            escaped = escape(Arc::make_mut(&mut copy));
        }
        let checksum = self.log.format.tag_checksum(self.sequence, &copy);
        (Tag { block, escaped, checksum }, copy)
    }

    fn write_commit(&mut self, now: Timestamp) -> Result<()> {
        let mut block = vec![0; self.log.format.block_len()];
        let time = CommitTime { seconds: now.seconds.cast_unsigned(), nanoseconds: now.nanoseconds };
        self.log.format.write_commit(self.sequence, time, 0, &mut block);
        let offset = self.step()?;
        let written = self.device().write_at(offset, &block);
        written.map_err(|source| Error::io("writing a commit to the journal", source))
    }

    fn note_committed(
        &mut self,
        transaction: &Transaction<'_>,
        blocks: Vec<Image>,
        revoked: &[u64],
        superblock: RawSuperblock,
    ) {
        self.sequence = self.sequence.wrapping_add(1);
        self.committed = superblock;
        self.known = *transaction.superblock;
        for block in revoked {
            self.copied.remove(block);
        }
        for run in transaction.forgotten {
            let gone: Vec<u64> = self
                .waiting
                .range(run.start.0..run.start.0 + u64::from(run.count))
                .map(|(block, _)| *block)
                .collect();
            // Its place will hold something else: what waited for it must never be written there.
            gone.iter().for_each(|block| drop(self.waiting.remove(block)));
        }
        for (block, role, bytes) in blocks {
            self.copied.insert(block);
            self.waiting.insert(block, Waiting { role, bytes });
        }
        self.cache.logged(transaction.outgoing);
    }

    /// Brings all that is committed to its place, and empties the log.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        self.write_waiting()?;
        self.flush()?;
        self.write_tail(self.head)?;
        self.flush()?;
        self.note_empty();
        Ok(())
    }

    /// Brings all that is committed to its place. Where the size of the volume changes, the superblock never counts a group
    /// that has no descriptor there: Linux and e2fsck look at both before they replay.
    fn write_waiting(&mut self) -> Result<()> {
        let superblock = SUPERBLOCK_OFFSET >> self.block_size.log2();
        let is_it = |block: u64| block == superblock;
        match self.committed.blocks_count().cmp(&self.placed.blocks_count()) {
            Ordering::Equal => self.write_those(|_| true)?,
            Ordering::Greater => {
                self.write_those(|block| !is_it(block))?;
                self.flush()?;
                self.write_those(is_it)?;
            }
            Ordering::Less => {
                self.write_those(is_it)?;
                self.flush()?;
                self.write_those(|block| !is_it(block))?;
            }
        }
        self.placed = self.committed;
        Ok(())
    }

    fn write_those(&self, is_meant: impl Fn(u64) -> bool) -> Result<()> {
        let mut gathered = WriteBatch::new(&**self.cache.device());
        for (block, waiting) in self.waiting.iter().filter(|(block, _)| is_meant(**block)) {
            let sealed = self.cache.sealed(*block, waiting.role, &waiting.bytes);
            gathered.put(block << self.block_size.log2(), &sealed)?;
        }
        gathered.write()
    }

    fn note_empty(&mut self) {
        for (block, waiting) in std::mem::take(&mut self.waiting) {
            self.cache.in_place(block, &waiting.bytes);
        }
        self.cache.trim();
        self.copied.clear();
        self.used = 0;
    }

    /// Notes in the journal's superblock that the volume could not be written, for the next replay (I17). The rest of
    /// what that superblock says holds whatever write failed: the log gets a new beginning only when all of it is in
    /// place.
    pub(crate) fn note_failure(&mut self) {
        const EIO: i32 = -5;
        if !journal::is_pending(&self.placed) {
            return;
        }
        self.log.superblock.s_errno.set(EIO.cast_unsigned());
        self.log.superblock.seal();
        if let Ok(offset) = self.log.offset(0) {
            // A device that takes nothing any more does not take this.
            let _ = self.device().write_at(offset, self.log.superblock.as_bytes());
            let _ = self.device().flush();
        }
    }

    /// Brings all to its place and says that nothing is left to replay.
    pub(crate) fn close(&mut self, now: Timestamp) -> Result<()> {
        if self.log.superblock.is_clean() && !journal::is_pending(&self.placed) {
            return Ok(());
        }
        self.write_waiting()?;
        self.flush()?;
        self.log.superblock.s_head.set(self.head);
        self.write_tail(0)?;
        self.flush()?;
        self.place_superblock(false, now)?;
        self.flush()?;
        self.note_empty();
        Ok(())
    }
}

/// Where an empty log goes on: behind what it held last, as its superblock says since Linux 6.4, so that removed files can
/// be found by what it held before. Nothing depends on it.
fn begins_at(log: &Log) -> u32 {
    let (first, head) = (log.superblock.s_first.get(), log.superblock.s_head.get());
    let is_inside = log.superblock.is_clean() && (first..log.superblock.log_end()).contains(&head);
    if is_inside { head } else { first }
}

/// The features that Linux would use for this volume.
fn choose_features(log: &mut Log, format: &Format) {
    let raw = &mut log.superblock;
    if raw.h_blocktype.get() == BlockKind::SuperblockV1.code() {
        // What the first version does not define may hold anything.
        raw.h_blocktype.set(BlockKind::SuperblockV2.code());
        raw.s_feature_incompat.set(0);
        raw.s_feature_ro_compat.set(0);
        raw.s_nr_users.set(1);
    }
    let mut features = JournalIncompat::REVOKE;
    features |= raw.incompat() & JournalIncompat::FAST_COMMIT;
    if format.has_incompat(Incompat::BIT64) {
        features |= JournalIncompat::BIT64;
    }
    if format.features.metadata_csum() {
        features |= JournalIncompat::CSUM_V3;
        raw.s_checksum_type = JOURNAL_CHECKSUM_CRC32C;
    }
    raw.s_feature_compat.set(0);
    raw.s_feature_incompat.set(features.bits());
    log.format = LogFormat::new(&log.superblock);
}
