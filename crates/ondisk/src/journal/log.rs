//! The blocks of the log: descriptors with their tags, revocations, commits, and their checksums.
//!
//! Source: the ext4 data structure documentation of Linux ("Journal (jbd2)"). Excludes: in which order
//! they are read or written.

use super::crc32;
use super::{BlockKind, JOURNAL_MAGIC, JournalCompat, JournalIncompat, RawJournalSuperblock, bad};
use crate::corrupt::Corrupt;
use crate::invariant_or;
use crate::seal::crc32c;
use crate::units::{high_u32, join_u64, low_u16, low_u32};

/// Bytes of the header that begins each block of the log that is not a copy of a block.
pub const HEADER_LEN: usize = 12;
/// Bytes of the checksum that ends descriptors and revocations.
const TAIL_LEN: usize = 4;
/// Bytes of a revocation before its numbers: the header and the count of bytes in use.
const REVOKE_HEAD_LEN: usize = 16;
/// Bytes of the UUID after a tag without the flag "same as before".
const UUID_LEN: usize = 16;
/// `h_chksum_type` of commits sealed by the first version: CRC-32, and its length.
const CRC32_TYPE: [u8; 2] = [1, 4];
/// Places in a commit block.
const COMMIT_TYPE: usize = 12;
const COMMIT_CHECKSUM: usize = 16;
const COMMIT_SECONDS: usize = 48;
const COMMIT_NANOSECONDS: usize = 56;
/// Bytes of a commit block that mean something.
const COMMIT_LEN: usize = 60;

const FLAG_ESCAPED: u32 = 1;
const FLAG_SAME_UUID: u32 = 2;
const FLAG_LAST: u32 = 8;

/// Header of every block of the log but the copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the block; `None` for a number without a meaning.
    pub kind: Option<BlockKind>,
    /// Number of the transaction it belongs to.
    pub sequence: u32,
}

impl Header {
    /// The header of a block; `None` if it has none, and so belongs to no transaction.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        // spec: journal: a block with another magic ends the log.
        if be32(bytes, 0)? != JOURNAL_MAGIC {
            return None;
        }
        Some(Header { kind: BlockKind::from_code(be32(bytes, 4)?), sequence: be32(bytes, 8)? })
    }

    fn store(kind: BlockKind, sequence: u32, bytes: &mut [u8]) {
        bytes.fill(0);
        put(bytes, 0, &JOURNAL_MAGIC.to_be_bytes());
        put(bytes, 4, &kind.code().to_be_bytes());
        put(bytes, 8, &sequence.to_be_bytes());
    }
}

/// One block of a transaction: where it belongs, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag {
    /// The block of the volume.
    pub block: u64,
    /// It begins with the magic of the log, which stands as zeros in the copy.
    pub escaped: bool,
    /// As the features have it: 32 bits, 16 bits, or 0.
    pub checksum: u32,
}

/// When a transaction was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommitTime {
    /// Seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

/// Layout and checksums of a log's blocks, by the features of its superblock.
#[derive(Clone, Copy, Debug)]
pub struct LogFormat {
    block_len: usize,
    incompat: JournalIncompat,
    crc32: bool,
    uuid: [u8; UUID_LEN],
    seed: u32,
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let to = invariant_or!(bytes.get_mut(at..at + value.len()), return, "a field lies inside its block");
    to.copy_from_slice(value);
}

/// The checksum of a block as if the four bytes at `at` were zero.
fn checksum_without(seed: u32, bytes: &[u8], at: usize) -> u32 {
    let (before, rest) = bytes.split_at(at.min(bytes.len()));
    let behind = rest.get(4..).unwrap_or_default();
    crc32c(crc32c(crc32c(seed, before), &[0; 4]), behind)
}

impl LogFormat {
    /// The layout that a journal's superblock asks for.
    #[must_use]
    pub fn new(raw: &RawJournalSuperblock) -> Self {
        LogFormat {
            block_len: raw.s_blocksize.get() as usize,
            incompat: raw.incompat(),
            crc32: raw.compat().contains(JournalCompat::CHECKSUM),
            uuid: raw.s_uuid,
            seed: crc32c(!0, &raw.s_uuid),
        }
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    fn v3(&self) -> bool {
        self.incompat.contains(JournalIncompat::CSUM_V3)
    }

    /// True if blocks are sealed one by one (checksums of the second and third version).
    #[must_use]
    pub fn seals_blocks(&self) -> bool {
        self.incompat.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
    }

    /// True if commits carry a CRC-32 of the whole transaction (checksums of the first version).
    #[must_use]
    pub fn seals_transactions(&self) -> bool {
        self.crc32
    }

    /// True if a commit with a wrong checksum is the end of the log and no damage: it may have been
    /// written before what it commits.
    #[must_use]
    pub fn commits_early(&self) -> bool {
        self.incompat.contains(JournalIncompat::ASYNC_COMMIT)
    }

    fn tag_len(&self) -> usize {
        let wide = self.incompat.contains(JournalIncompat::BIT64);
        match (self.v3(), self.incompat.contains(JournalIncompat::CSUM_V2)) {
            (true, _) => 16,
            // The second version took two bytes more than it uses.
            (false, second) => 8 + 4 * usize::from(wide) + 2 * usize::from(second),
        }
    }

    /// Where tags and revocations must end.
    fn room_end(&self) -> usize {
        self.block_len - if self.seals_blocks() { TAIL_LEN } else { 0 }
    }

    /// The tags of a descriptor block, as far as it has room for them.
    #[must_use]
    pub fn tags<'b>(&self, bytes: &'b [u8]) -> Tags<'b> {
        let end = self.room_end().min(bytes.len());
        Tags { format: *self, bytes: bytes.get(..end).unwrap_or_default(), at: Some(HEADER_LEN) }
    }

    fn tag_at(&self, bytes: &[u8], at: usize) -> Option<(Tag, u32)> {
        let raw = bytes.get(at..at.checked_add(self.tag_len())?)?;
        let (flags, checksum) = if self.v3() {
            (be32(raw, 4)?, be32(raw, 12)?)
        } else {
            (u32::from(be16(raw, 6)?), u32::from(be16(raw, 4)?))
        };
        // With the third version the upper half has its place whether it is in use or not.
        let wide = self.incompat.contains(JournalIncompat::BIT64);
        let high = if wide { be32(raw, 8)? } else { 0 };
        let block = join_u64(high, be32(raw, 0)?);
        Some((Tag { block, escaped: flags & FLAG_ESCAPED != 0, checksum }, flags))
    }

    fn store_tag(&self, tag: &Tag, flags: u32, raw: &mut [u8]) {
        put(raw, 0, &low_u32(tag.block).to_be_bytes());
        if self.v3() {
            put(raw, 4, &flags.to_be_bytes());
            put(raw, 12, &tag.checksum.to_be_bytes());
        } else {
            put(raw, 4, &low_u16(tag.checksum).to_be_bytes());
            put(raw, 6, &low_u16(flags).to_be_bytes());
        }
        if self.incompat.contains(JournalIncompat::BIT64) {
            put(raw, 8, &high_u32(tag.block).to_be_bytes());
        }
    }

    /// Tags that a descriptor block has room for.
    #[must_use]
    pub fn tags_max(&self) -> usize {
        (self.room_end() - HEADER_LEN - UUID_LEN) / self.tag_len()
    }

    /// Makes `bytes` a sealed descriptor with these tags, at most [`LogFormat::tags_max`].
    pub fn write_descriptor(&self, sequence: u32, tags: &[Tag], bytes: &mut [u8]) {
        Header::store(BlockKind::Descriptor, sequence, bytes);
        let mut at = HEADER_LEN;
        for (index, tag) in tags.iter().enumerate() {
            let flags = (if tag.escaped { FLAG_ESCAPED } else { 0 })
                | (if index > 0 { FLAG_SAME_UUID } else { 0 })
                | (if index + 1 == tags.len() { FLAG_LAST } else { 0 });
            let to = bytes.get_mut(at..at + self.tag_len());
            self.store_tag(tag, flags, invariant_or!(to, break, "a descriptor has room for its tags"));
            at += self.tag_len();
            if index == 0 {
                put(bytes, at, &self.uuid);
                at += UUID_LEN;
            }
        }
        self.seal_tail(bytes);
    }

    /// The numbers that a revocation block names.
    ///
    /// # Errors
    /// More bytes in use than the block has.
    pub fn revoked<'b>(&self, bytes: &'b [u8]) -> Result<impl Iterator<Item = u64> + use<'b>, Corrupt> {
        let used = be32(bytes, HEADER_LEN).unwrap_or(0) as usize;
        if used > self.room_end() {
            return Err(bad(format!("a revocation block uses {used} bytes of {}", self.block_len)));
        }
        let wide = self.incompat.contains(JournalIncompat::BIT64);
        let numbers = bytes.get(REVOKE_HEAD_LEN..used).unwrap_or_default();
        Ok(numbers.chunks_exact(if wide { 8 } else { 4 }).filter_map(move |number| match wide {
            true => Some(join_u64(be32(number, 0)?, be32(number, 4)?)),
            false => be32(number, 0).map(u64::from),
        }))
    }

    /// Numbers that a revocation block has room for.
    #[must_use]
    pub fn revoked_max(&self) -> usize {
        let wide = self.incompat.contains(JournalIncompat::BIT64);
        (self.room_end() - REVOKE_HEAD_LEN) / if wide { 8 } else { 4 }
    }

    /// Makes `bytes` a sealed revocation of these blocks, at most [`LogFormat::revoked_max`].
    pub fn write_revoked(&self, sequence: u32, blocks: &[u64], bytes: &mut [u8]) {
        debug_assert!(blocks.len() <= self.revoked_max(), "a revocation has room for its blocks");
        Header::store(BlockKind::Revoke, sequence, bytes);
        let wide = self.incompat.contains(JournalIncompat::BIT64);
        let len = if wide { 8 } else { 4 };
        for (index, block) in blocks.iter().enumerate() {
            let number = block.to_be_bytes();
            put(bytes, REVOKE_HEAD_LEN + index * len, number.get(8 - len..).unwrap_or_default());
        }
        let used = low_u32((REVOKE_HEAD_LEN + blocks.len() * len) as u64);
        put(bytes, HEADER_LEN, &used.to_be_bytes());
        self.seal_tail(bytes);
    }

    /// True if the checksum of a descriptor or a revocation is right, or none is asked for.
    #[must_use]
    pub fn tail_is_right(&self, bytes: &[u8]) -> bool {
        let at = self.block_len - TAIL_LEN;
        !self.seals_blocks() || be32(bytes, at) == Some(checksum_without(self.seed, bytes, at))
    }

    fn seal_tail(&self, bytes: &mut [u8]) {
        if self.seals_blocks() {
            let at = self.block_len - TAIL_LEN;
            let checksum = checksum_without(self.seed, bytes, at);
            put(bytes, at, &checksum.to_be_bytes());
        }
    }

    /// The checksum for the tag of a copy, as it stands in the log; 0 if tags carry none.
    #[must_use]
    pub fn tag_checksum(&self, sequence: u32, copy: &[u8]) -> u32 {
        if !self.seals_blocks() {
            return 0;
        }
        let whole = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy);
        if self.v3() { whole } else { u32::from(low_u16(whole)) }
    }

    /// True if a copy is what its tag says.
    #[must_use]
    pub fn copy_is_right(&self, tag: &Tag, sequence: u32, copy: &[u8]) -> bool {
        tag.checksum == self.tag_checksum(sequence, copy) || !self.seals_blocks()
    }

    /// Makes `bytes` a sealed commit; `crc` is that of the transaction, where the features ask for it.
    pub fn write_commit(&self, sequence: u32, time: CommitTime, crc: u32, bytes: &mut [u8]) {
        Header::store(BlockKind::Commit, sequence, bytes);
        put(bytes, COMMIT_SECONDS, &time.seconds.to_be_bytes());
        put(bytes, COMMIT_NANOSECONDS, &time.nanoseconds.to_be_bytes());
        if self.crc32 {
            put(bytes, COMMIT_TYPE, &CRC32_TYPE);
            put(bytes, COMMIT_CHECKSUM, &crc.to_be_bytes());
        } else if self.seals_blocks() {
            let checksum = checksum_without(self.seed, bytes, COMMIT_CHECKSUM);
            put(bytes, COMMIT_CHECKSUM, &checksum.to_be_bytes());
        }
    }

    /// True if the checksum of a commit is right; `crc` is that of its transaction.
    ///
    /// A block is written whole by most devices, but only its sectors must be: the commit counts too if
    /// its checksum is right for a block whose rest is zeros, as it was written (Linux 6.15).
    #[must_use]
    pub fn commit_is_right(&self, bytes: &[u8], crc: u32) -> bool {
        // spec: journal
        let found = be32(bytes, COMMIT_CHECKSUM);
        if self.crc32 {
            let kind = bytes.get(COMMIT_TYPE..COMMIT_TYPE + 2);
            let unused = kind == Some(&[0, 0]) && found == Some(0);
            return unused || kind == Some(&CRC32_TYPE) && found == Some(crc);
        }
        if !self.seals_blocks() || found == Some(checksum_without(self.seed, bytes, COMMIT_CHECKSUM)) {
            return true;
        }
        let mut whole = vec![0; bytes.len()];
        let len = COMMIT_LEN.min(bytes.len());
        put(&mut whole, 0, bytes.get(..len).unwrap_or_default());
        found == Some(checksum_without(self.seed, &whole, COMMIT_CHECKSUM))
    }

    /// When a commit says it was made.
    #[must_use]
    pub fn commit_time(&self, bytes: &[u8]) -> CommitTime {
        let word = |at| be32(bytes, at).unwrap_or(0);
        CommitTime {
            seconds: join_u64(word(COMMIT_SECONDS), word(COMMIT_SECONDS + 4)),
            nanoseconds: word(COMMIT_NANOSECONDS),
        }
    }
}

/// The tags of a descriptor block, in the order of their copies.
#[derive(Clone, Debug)]
pub struct Tags<'b> {
    format: LogFormat,
    bytes: &'b [u8],
    at: Option<usize>,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let at = self.at?;
        let Some((tag, flags)) = self.format.tag_at(self.bytes, at) else {
            self.at = None;
            return None;
        };
        let uuid = if flags & FLAG_SAME_UUID == 0 { UUID_LEN } else { 0 };
        self.at = (flags & FLAG_LAST == 0).then_some(at + self.format.tag_len() + uuid);
        Some(tag)
    }
}

/// The running CRC-32 of a transaction's blocks (checksums of the first version).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionCrc(u32);

impl Default for TransactionCrc {
    fn default() -> Self {
        TransactionCrc(!0)
    }
}

impl TransactionCrc {
    /// Takes in the next block as it stands in the log: a descriptor or a copy.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32::crc32_be(self.0, bytes);
    }

    /// The sum so far.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

/// Takes the log's magic out of the beginning of a copy; says whether it stood there.
pub fn escape(copy: &mut [u8]) -> bool {
    let escaped = be32(copy, 0) == Some(JOURNAL_MAGIC);
    if escaped {
        put(copy, 0, &[0; 4]);
    }
    escaped
}

/// Puts the log's magic back.
pub fn unescape(copy: &mut [u8]) {
    put(copy, 0, &JOURNAL_MAGIC.to_be_bytes());
}

/// True if transaction `a` comes after `b`: numbers go round.
#[must_use]
pub fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}
