//! The passes over a log: what is complete, what is revoked, and which copy of each block counts.
//!
//! Memory is bounded by the log: one entry for each copy in it. A hostile log is passed at most once by
//! each walk.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::journal::BlockKind;
use ondisk::journal::log::{Header, TransactionCrc, is_later};
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, bounded};
use zerocopy::FromBytes;

use super::location::{Log, bad};
use super::replay::{Copy, Judged, Replay};
use super::{Recovery, records};
use crate::Result;
use crate::superblock::Format;

/// A walk along the log from its start, block by block, up to the first that is not of the transaction that is due.
struct Walk<'l> {
    log: &'l Log,
    at: u32,
    /// The transaction that is due.
    sequence: u32,
    /// Blocks until the walk has been all around.
    left: u32,
    bytes: Vec<u8>,
}

impl<'l> Walk<'l> {
    fn new(log: &'l Log) -> Self {
        Walk {
            log,
            at: log.superblock.s_start.get(),
            sequence: log.superblock.s_sequence.get(),
            left: log.length(),
            bytes: vec![0; log.format.block_len()],
        }
    }

    /// Takes the next block; `None` when the walk has been all around.
    fn step(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.log.next(at);
        Some(at)
    }

    /// The next block of the transaction that is due, read; `None` at the end of the log.
    fn next(&mut self) -> Result<Option<BlockKind>> {
        let Some(at) = self.step() else { return Ok(None) };
        self.log.read(at, &mut self.bytes)?;
        let header = Header::parse(&self.bytes).filter(|header| header.sequence == self.sequence);
        Ok(header.and_then(|header| header.kind))
    }

    /// Returns the kind of the next block, while a transaction before `end` is due.
    fn next_before(&mut self, end: u32) -> Result<Option<BlockKind>> {
        if !is_later(end, self.sequence) { Ok(None) } else { self.next() }
    }

    fn tag_count(&self) -> usize {
        self.log.format.tags(&self.bytes).count()
    }

    /// Passes over the copies of the descriptor that was just read.
    fn skip_copies(&mut self) {
        for _ in 0..self.tag_count() {
            self.step();
        }
    }

    /// Skips the copies of a descriptor, adding them to the checksum.
    fn sum_copies(&mut self, crc: &mut TransactionCrc) -> Result<()> {
        let count = self.tag_count();
        crc.add(&self.bytes);
        for _ in 0..count {
            let Some(at) = self.step() else { break };
            self.log.read(at, &mut self.bytes)?;
            crc.add(&self.bytes);
        }
        Ok(())
    }
}

/// Where the log ends.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// The first transaction that does not count.
    pub(super) sequence: u32,
    /// The block behind the last that does.
    pub(super) at: u32,
}

/// Complete part of a log.
struct Complete {
    /// The first transaction that does not count.
    sequence: u32,
    damage: Option<String>,
}

/// Finds the last complete transaction. A checksum that is wrong ends the log: without a word where the
/// blocks may be left from an earlier use of the journal (times go back), or a commit may come before what
/// it commits; else as damage.
fn end_of(log: &Log) -> Result<Complete> {
    let mut walk = Walk::new(log);
    let mut crc = TransactionCrc::default();
    let (mut last, mut doubtful) = (0, false);
    let damaged = |sequence: u32, what: &str| {
        let damage = Some(format!("a checksum of {what} of transaction {sequence} is wrong"));
        Ok(Complete { sequence, damage })
    };
    while let Some(kind) = walk.next()? {
        match kind {
            BlockKind::Descriptor => {
                doubtful |= !log.format.tail_is_right(&walk.bytes);
                if log.format.seals_transactions() {
                    walk.sum_copies(&mut crc)?;
                } else {
                    walk.skip_copies();
                }
            }
            BlockKind::Revoke => doubtful |= !log.format.tail_is_right(&walk.bytes),
            BlockKind::Commit => {
                let time = log.format.commit_time(&walk.bytes).seconds;
                let right = log.format.commit_is_right(&walk.bytes, crc.value());
                let stale = time < last;
                if doubtful && !stale {
                    return damaged(walk.sequence, "a descriptor or revocation");
                }
                if doubtful || !right && (stale || log.format.commits_early()) {
                    break;
                }
                if !right {
                    return damaged(walk.sequence, "the commit");
                }
                (crc, last) = (TransactionCrc::default(), time);
                walk.sequence = walk.sequence.wrapping_add(1);
            }
            BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => break,
        }
    }
    Ok(Complete { sequence: walk.sequence, damage: None })
}

/// The blocks of which complete transactions hold copies.
fn targets(log: &Log, end: u32) -> Result<BTreeSet<u64>> {
    let mut walk = Walk::new(log);
    let mut targets = BTreeSet::new();
    while let Some(kind) = walk.next_before(end)? {
        match kind {
            BlockKind::Descriptor => {
                targets.extend(log.format.tags(&walk.bytes).map(|tag| tag.block));
                walk.skip_copies();
            }
            BlockKind::Commit => walk.sequence = walk.sequence.wrapping_add(1),
            _ => {}
        }
    }
    Ok(targets)
}

/// The last transaction that revoked each of these blocks.
fn revoked(log: &Log, end: u32, targets: &BTreeSet<u64>) -> Result<HashMap<u64, u32>> {
    let mut walk = Walk::new(log);
    let mut revoked = HashMap::new();
    while let Some(kind) = walk.next_before(end)? {
        match kind {
            BlockKind::Descriptor => walk.skip_copies(),
            BlockKind::Commit => walk.sequence = walk.sequence.wrapping_add(1),
            BlockKind::Revoke => {
                // Walks go forward: a later one takes the place of an earlier.
                let named = log.format.revoked(&walk.bytes)?.filter(|block| targets.contains(block));
                revoked.extend(named.map(|block| (block, walk.sequence)));
            }
            _ => {}
        }
    }
    Ok(revoked)
}

/// Chooses the copies that count.
struct Choice<'l> {
    log: &'l Log,
    format: &'l Format,
    revoked: HashMap<u64, u32>,
    copies: BTreeMap<Block, Copy>,
    /// The end of the volume, by the last superblock in the log or by the one in its place.
    end: u64,
    recovery: Recovery,
}

impl Choice<'_> {
    fn descriptor(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        let tags: Vec<_> = self.log.format.tags(&walk.bytes).collect();
        let mut bytes = vec![0; walk.bytes.len()];
        for tag in tags {
            let Some(at) = walk.step() else { break };
            let revoked = self.revoked.get(&tag.block);
            if revoked.is_some_and(|by| !is_later(walk.sequence, *by)) {
                self.recovery.revoked += 1;
                continue;
            }
            self.refuse(tag.block)?;
            if self.log.format.seals_blocks() {
                self.log.read(at, &mut bytes)?;
                if !self.log.format.copy_is_right(&tag, walk.sequence, &bytes) {
                    let what = format!(
                        "the copy of block {} in transaction {} has a wrong checksum",
                        tag.block, walk.sequence
                    );
                    self.recovery.damage.get_or_insert(what);
                    continue;
                }
            }
            let size = self.format.geometry.block_size;
            if tag.block == SUPERBLOCK_OFFSET >> size.log2() {
                self.log.read(at, &mut bytes)?;
                let inside = bounded::<usize>(SUPERBLOCK_OFFSET) & (size.bytes_usize() - 1);
                let raw = bytes.get(inside..).and_then(|raw| RawSuperblock::read_from_prefix(raw).ok());
                self.end = raw.map_or(self.end, |(raw, _)| raw.blocks_count());
            }
            let copy = Copy { offset: self.log.offset(at)?, escaped: tag.escaped };
            self.copies.insert(Block(tag.block), copy);
        }
        Ok(())
    }

    fn refuse(&self, block: u64) -> Result<()> {
        let geometry = &self.format.geometry;
        if block < u64::from(geometry.first_data_block) && block != 0 || block >= self.log.room() {
            return outside(block);
        }
        if self.log.holds(block) {
            return Err(bad(format!("holds a copy of block {block}, which is one of its own")));
        }
        Ok(())
    }

    /// Refuses copies of what lies behind the end of the volume, which may have grown since its superblock was written in
    /// its place.
    fn refuse_behind_end(&self) -> Result<()> {
        let end = self.end.max(self.format.geometry.blocks);
        self.copies.range(Block(end)..).next().map_or(Ok(()), |(block, _)| outside(block.0))
    }
}

fn outside(block: u64) -> Result<()> {
    Err(bad(format!("holds a copy of block {block}, which lies outside the volume")))
}

/// Judges a whole log.
pub(super) fn scan(log: Log, format: &Format) -> Result<Replay> {
    let start = log.superblock.s_sequence.get();
    let mut choice = Choice {
        log: &log,
        format,
        revoked: HashMap::new(),
        copies: BTreeMap::new(),
        end: format.geometry.blocks,
        recovery: Recovery::default(),
    };
    let error = log.superblock.s_errno.get();
    choice.recovery.recorded_error = (error != 0).then(|| error.cast_signed().unsigned_abs());
    let (mut next, mut at) = (start, log.superblock.s_start.get());
    let mut fast = None;
    if !log.superblock.is_clean() {
        let end = end_of(&log)?;
        choice.recovery.damage = end.damage;
        choice.recovery.transactions = end.sequence.wrapping_sub(start);
        if choice.recovery.damage.is_none() {
            fast = records::find(&log, end.sequence)?;
        }
        choice.revoked = revoked(&log, end.sequence, &targets(&log, end.sequence)?)?;
        let mut walk = Walk::new(&log);
        while let Some(kind) = walk.next_before(end.sequence)? {
            match kind {
                BlockKind::Descriptor => choice.descriptor(&mut walk)?,
                BlockKind::Commit => {
                    walk.sequence = walk.sequence.wrapping_add(1);
                    at = walk.at;
                }
                _ => {}
            }
        }
        next = end.sequence;
        choice.refuse_behind_end()?;
    }
    choice.recovery.blocks = choice.copies.len() as u64;
    let Choice { copies, recovery, .. } = choice;
    Replay::new(log, format, Judged { end: End { sequence: next, at }, copies, fast, recovery })
}
