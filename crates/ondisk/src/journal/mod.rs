//! The journal's superblock; below it the blocks of the log ([`log`]) and of fast commits
//! ([`fast_commit`]). Big-endian, unlike the rest of the format.
//!
//! Source: the ext4 data structure documentation of Linux ("Journal (jbd2)"). Replay and writing stand
//! elsewhere.

mod crc32;
pub mod fast_commit;
pub mod log;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bitflags::bitflags;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, Place};
use crate::invariant_or;
use crate::seal::crc32c;
use crate::units::BlockSize;

/// `h_magic` of every journal block that has a header.
pub const JOURNAL_MAGIC: u32 = 0xC03B_3998;
/// Bytes of the journal's superblock; the rest of its block is zero.
pub const JOURNAL_SUPERBLOCK_LEN: usize = 1024;
/// Fewest blocks of a journal (`JBD2_MIN_JOURNAL_BLOCKS`).
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;
/// `s_checksum_type`: CRC-32C.
pub const JOURNAL_CHECKSUM_CRC32C: u8 = 4;

/// Kind of a journal block with a header (`h_blocktype`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Lists the home places of the blocks that follow.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The superblock of the first version, without features.
    SuperblockV1,
    /// The superblock.
    SuperblockV2,
    /// Lists blocks that replay must leave alone.
    Revoke,
}

impl BlockKind {
    const ALL: [BlockKind; 5] = [
        BlockKind::Descriptor,
        BlockKind::Commit,
        BlockKind::SuperblockV1,
        BlockKind::SuperblockV2,
        BlockKind::Revoke,
    ];

    /// The number on disk, counted from 1.
    #[must_use]
    pub fn code(self) -> u32 {
        let found = (1..).zip(Self::ALL).find(|(_, kind)| *kind == self);
        invariant_or!(found, return 0, "the list has every kind of block").0
    }

    /// The kind with this number; `None` for numbers without a meaning.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

bitflags! {
    /// `s_feature_compat` of the journal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct JournalCompat: u32 {
        /// Checksums of the first version: commits carry a CRC-32 of their transaction.
        const CHECKSUM = 0x1;
        /// Bits without a name stay as they are.
        const _ = !0;
    }
}

bitflags! {
    /// `s_feature_incompat` of the journal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct JournalIncompat: u32 {
        /// Revocation blocks exist.
        const REVOKE = 0x1;
        /// Block numbers of 64 bits.
        const BIT64 = 0x2;
        /// Commit blocks may be written before what they commit is stable.
        const ASYNC_COMMIT = 0x4;
        /// Checksums of the second version.
        const CSUM_V2 = 0x8;
        /// Checksums of the third version.
        const CSUM_V3 = 0x10;
        /// A fast-commit area is in use.
        const FAST_COMMIT = 0x20;
        /// Bits without a name stay as they are.
        const _ = !0;
    }
}

impl JournalIncompat {
    /// The features that have a name.
    pub const KNOWN: JournalIncompat = JournalIncompat::REVOKE
        .union(JournalIncompat::BIT64)
        .union(JournalIncompat::ASYNC_COMMIT)
        .union(JournalIncompat::CSUM_V2)
        .union(JournalIncompat::CSUM_V3)
        .union(JournalIncompat::FAST_COMMIT);
}

/// Features as dumpe2fs names them.
const FEATURE_NAMES: [(JournalIncompat, &str); 6] = [
    (JournalIncompat::REVOKE, "journal_incompat_revoke"),
    (JournalIncompat::BIT64, "journal_64bit"),
    (JournalIncompat::ASYNC_COMMIT, "journal_async_commit"),
    (JournalIncompat::CSUM_V2, "journal_checksum_v2"),
    (JournalIncompat::CSUM_V3, "journal_checksum_v3"),
    (JournalIncompat::FAST_COMMIT, "fast_commit"),
];

/// The journal's superblock, byte for byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawJournalSuperblock {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [u8; 768],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawJournalSuperblock>() == JOURNAL_SUPERBLOCK_LEN);
    assert!(offset_of!(RawJournalSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(RawJournalSuperblock, s_num_fc_blks) == 0x54);
    assert!(offset_of!(RawJournalSuperblock, s_checksum) == 0xFC);
};

fn bad(problem: String) -> Corrupt {
    Corrupt::new(Place::Journal, problem)
}

impl RawJournalSuperblock {
    /// The superblock of an empty journal inside a volume: `blocks` in all, of which the last
    /// `fast_commit_blocks` are for fast commits; `uuid` is the volume's.
    #[must_use]
    pub fn empty(block_size: BlockSize, blocks: u32, fast_commit_blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = <Self as zerocopy::FromZeros>::new_zeroed();
        raw.h_magic.set(JOURNAL_MAGIC);
        raw.h_blocktype.set(BlockKind::SuperblockV2.code());
        raw.s_blocksize.set(block_size.bytes());
        raw.s_maxlen.set(blocks);
        raw.s_first.set(1);
        raw.s_sequence.set(1);
        raw.s_nr_users.set(1);
        raw.s_num_fc_blks.set(fast_commit_blocks);
        raw.s_uuid = uuid;
        raw
    }

    /// The superblock of an empty journal on a device of its own that no volume uses yet. The log
    /// begins behind the device's ext4 superblock and this one.
    #[must_use]
    pub fn empty_device(block_size: BlockSize, blocks: u32, fast_commit_blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = Self::empty(block_size, blocks, fast_commit_blocks, uuid);
        raw.s_nr_users.set(0);
        raw.s_first.set(Self::device_block(block_size) + 1);
        raw
    }

    /// Block of the journal's superblock on a device of its own.
    #[must_use]
    pub fn device_block(block_size: BlockSize) -> u32 {
        if block_size.bytes() == 1024 { 2 } else { 1 }
    }

    /// Reads and checks a journal's superblock.
    ///
    /// # Errors
    /// The rule that is broken, with the value found.
    pub fn parse(bytes: &[u8]) -> Result<Self, Corrupt> {
        // spec: journal
        let Ok((raw, _)) = RawJournalSuperblock::read_from_prefix(bytes) else {
            return Err(bad("the journal ends before its superblock".to_owned()));
        };
        let magic = raw.h_magic.get();
        if magic != JOURNAL_MAGIC {
            return Err(bad(format!("magic is {magic:#010x}, not {JOURNAL_MAGIC:#010x}")));
        }
        let code = raw.h_blocktype.get();
        if !matches!(BlockKind::from_code(code), Some(BlockKind::SuperblockV1 | BlockKind::SuperblockV2)) {
            return Err(bad(format!("its first block is of type {code}, not a superblock")));
        }
        let size = raw.s_blocksize.get();
        if BlockSize::from_bytes(u64::from(size)).is_none() {
            return Err(bad(format!("block size {size} is not a power of two from 1 KiB to 64 KiB")));
        }
        let (first, blocks, start) = (raw.s_first.get(), raw.s_maxlen.get(), raw.s_start.get());
        if first == 0 || first >= blocks || start >= blocks {
            return Err(bad(format!("first {first} or start {start} is outside its {blocks} blocks")));
        }
        if !raw.checksum_is_right() {
            return Err(bad("checksum of its superblock is wrong".to_owned()));
        }
        Ok(raw)
    }

    /// The incompatible features; a version 1 superblock has none.
    #[must_use]
    pub fn incompat(&self) -> JournalIncompat {
        if self.h_blocktype.get() == BlockKind::SuperblockV1.code() {
            return JournalIncompat::empty();
        }
        JournalIncompat::from_bits_retain(self.s_feature_incompat.get())
    }

    /// The compatible features; a version 1 superblock has none.
    #[must_use]
    pub fn compat(&self) -> JournalCompat {
        if self.h_blocktype.get() == BlockKind::SuperblockV1.code() {
            return JournalCompat::empty();
        }
        JournalCompat::from_bits_retain(self.s_feature_compat.get())
    }

    /// The incompatible features that this code does not know, by bits; empty if it knows all.
    #[must_use]
    pub fn unknown(&self) -> JournalIncompat {
        self.incompat().difference(JournalIncompat::KNOWN)
    }

    /// One past the last block of the log. What lies behind it is for fast commits.
    #[must_use]
    pub fn log_end(&self) -> u32 {
        let blocks = self.s_maxlen.get();
        if !self.incompat().contains(JournalIncompat::FAST_COMMIT) {
            return blocks;
        }
        let fast = match self.s_num_fc_blks.get() {
            0 => fast_commit::DEFAULT_FAST_COMMIT_BLOCKS,
            named => named,
        };
        blocks.checked_sub(fast).filter(|log| *log >= MIN_JOURNAL_BLOCKS).unwrap_or(blocks)
    }

    /// The blocks of the area for fast commits; none without it. The block behind the log is in neither: Linux
    /// counts the area's from one behind.
    #[must_use]
    pub fn fast_commit_area(&self) -> Range<u32> {
        (self.log_end().saturating_add(1)).min(self.s_maxlen.get())..self.s_maxlen.get()
    }

    /// True if the features for checksums contradict each other, or name a sum that is unknown.
    #[must_use]
    pub fn checksums_are_contradictory(&self) -> bool {
        let both = JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3;
        self.incompat().contains(both)
            || self.has_checksum()
                && (self.compat().contains(JournalCompat::CHECKSUM)
                    || self.s_checksum_type != JOURNAL_CHECKSUM_CRC32C)
    }

    /// Names of the set incompatible features, as dumpe2fs prints them.
    #[must_use]
    pub fn feature_names(&self) -> Vec<&'static str> {
        let set = self.incompat();
        FEATURE_NAMES.iter().filter(|(bit, _)| set.contains(*bit)).map(|(_, name)| *name).collect()
    }

    /// True if nothing waits for replay.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.s_start.get() == 0
    }

    fn has_checksum(&self) -> bool {
        self.incompat().intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
    }

    fn checksum(&self) -> u32 {
        let mut copy = *self;
        copy.s_checksum.set(0);
        crc32c(!0, copy.as_bytes())
    }

    fn checksum_is_right(&self) -> bool {
        !self.has_checksum() || self.s_checksum.get() == self.checksum()
    }

    /// Writes the checksum, where the features ask for one.
    pub fn seal(&mut self) {
        if self.has_checksum() {
            let checksum = self.checksum();
            self.s_checksum.set(checksum);
        }
    }
}
