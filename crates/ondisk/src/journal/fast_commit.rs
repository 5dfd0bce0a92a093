//! Fast commits: small records of what changed since the last transaction, in an area behind the log.
//!
//! Owns: the bytes of a record, and how many records of an area count. Excludes: what a record asks of the volume.
//! Little-endian, unlike the log. Source: the ext4 data structure documentation of Linux ("Fast commits").
//!
//! The area is a row of records of kind, length and value. The first record of all is a head that names the
//! transaction which the fast commits follow; a tail ends each of them, to the end of its block. A record lies inside
//! of one block. What no right tail follows was never promised, and does not count.

use crate::invariant_or;
use std::ops::ControlFlow;

use crate::corrupt::Corrupt;
use crate::dirent::Name;
use crate::extent::{ENTRY_LEN, Extent};
use crate::inode::OLD_SIZE;
use crate::seal::crc32c;

/// Blocks of the area where the superblock names none.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Bytes of a record before its value: kind and length.
const HEAD_LEN: usize = 4;
/// Bytes of a tail that its checksum covers: kind, length and transaction.
const TAIL_COVERED: usize = HEAD_LEN + 4;

/// Change of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameChange {
    /// It names a new inode.
    Create,
    /// It names an inode that has, or had, other names.
    Link,
    /// It is taken away, if it still names the inode.
    Unlink,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag<'b> {
    /// File blocks of an inode lie here now.
    AddRange {
        /// The inode.
        inode: u32,
        /// Where.
        extent: Extent,
    },
    /// File blocks of an inode are a hole now.
    DeleteRange {
        /// The inode.
        inode: u32,
        /// The first of them.
        first: u32,
        /// Number of file blocks.
        count: u32,
    },
    /// A name changes.
    Name {
        /// Kind of the change.
        change: NameChange,
        /// The directory.
        parent: u32,
        /// The inode that is named.
        inode: u32,
        /// The name, which may not be a legal one.
        name: &'b [u8],
    },
    /// The record of an inode, all of it or as far as it is in use; of its map only contents that stand in it count.
    Inode {
        /// The inode.
        inode: u32,
        /// Its bytes.
        record: &'b [u8],
    },
    /// Nothing.
    Padding,
    /// Ends a fast commit.
    Tail {
        /// The transaction it follows.
        transaction: u32,
        /// Of all records since the tail before.
        checksum: u32,
    },
    /// Begins the area.
    Head {
        /// Features that a replay has to know; none exist.
        features: u32,
        /// The transaction that the fast commits follow.
        transaction: u32,
    },
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl<'b> Tag<'b> {
    /// Takes a value apart; `None` if it can't be one of its kind.
    fn parse(kind: u16, value: &'b [u8]) -> Option<Self> {
        // spec: fc
        let named = |change| {
            let name = value.get(8..).filter(|name| (1..=255).contains(&name.len()))?;
            Some(Tag::Name { change, parent: le32(value, 0)?, inode: le32(value, 4)?, name })
        };
        match kind {
            1 if value.len() == 4 + ENTRY_LEN => {
                Some(Tag::AddRange { inode: le32(value, 0)?, extent: Extent::read(value.get(4..)?) })
            }
            2 if value.len() == 12 => Some(Tag::DeleteRange {
                inode: le32(value, 0)?,
                first: le32(value, 4)?,
                count: le32(value, 8)?,
            }),
            3 => named(NameChange::Create),
            4 => named(NameChange::Link),
            5 => named(NameChange::Unlink),
            6 => {
                let record = value.get(4..).filter(|record| record.len() >= OLD_SIZE)?;
                Some(Tag::Inode { inode: le32(value, 0)?, record })
            }
            7 => Some(Tag::Padding),
            8 => Some(Tag::Tail { transaction: le32(value, 0)?, checksum: le32(value, 4)? }),
            9 if value.len() == 8 => {
                Some(Tag::Head { features: le32(value, 0)?, transaction: le32(value, 4)? })
            }
            _ => None,
        }
    }
}

/// The records of a block, each with the bytes that it takes. Ends with the block, or with `None` before bytes that are
/// no record.
#[derive(Clone, Debug)]
pub struct Tags<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Iterator for Tags<'b> {
    type Item = Option<(Tag<'b>, &'b [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| rest.len() >= HEAD_LEN)?;
        let end = HEAD_LEN + usize::from(le16(rest, 2)?);
        let tag = rest.get(HEAD_LEN..end).and_then(|value| Tag::parse(le16(rest, 0)?, value));
        self.at = if tag.is_some() { self.at + end } else { self.bytes.len() };
        Some(tag.map(|tag| (tag, rest.get(..end).unwrap_or_default())))
    }
}

/// The records of a block of the area.
#[must_use]
pub fn tags(block: &[u8]) -> Tags<'_> {
    Tags { bytes: block, at: 0 }
}

/// Finds out how much of an area counts, block by block, from its first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    transaction: u32,
    crc: u32,
    begun: bool,
    /// Records so far.
    seen: u64,
    /// Fast commits that count.
    commits: u32,
    /// Records up to the end of the last of them.
    counted: u64,
}

impl Scan {
    /// Of fast commits that follow the last complete transaction: they name the one that was running.
    #[must_use]
    pub fn after(transaction: u32) -> Self {
        Scan { transaction, crc: 0, begun: false, seen: 0, commits: 0, counted: 0 }
    }

    /// Fast commits that count.
    #[must_use]
    pub fn commits(&self) -> u32 {
        self.commits
    }

    /// Records that count, from the first of the area on.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Takes in the next block; breaks off where nothing after it can count.
    ///
    /// # Errors
    /// Features that are unknown: everything after them may mean anything.
    pub fn block(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>, Corrupt> {
        for found in tags(bytes) {
            let Some((tag, covered)) = found else { return Ok(ControlFlow::Break(())) };
            if self.tag(tag, covered)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(if self.begun { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    fn tag(&mut self, tag: Tag<'_>, covered: &[u8]) -> Result<ControlFlow<()>, Corrupt> {
        // spec: fc: what no right tail follows does not count.
        self.seen += 1;
        match tag {
            Tag::Head { transaction, .. } if transaction != self.transaction => {
                return Ok(ControlFlow::Break(()));
            }
            Tag::Head { features: features @ 1.., .. } => {
                return Err(super::bad(format!("its fast commits use unknown features ({features:#x})")));
            }
            Tag::Head { .. } => self.begun = true,
            _ if !self.begun => return Ok(ControlFlow::Break(())),
            Tag::Tail { transaction, checksum } => {
                let crc = crc32c(self.crc, covered.get(..TAIL_COVERED).unwrap_or_default());
                if transaction != self.transaction || checksum != crc {
                    return Ok(ControlFlow::Break(()));
                }
                self.crc = 0;
                self.commits += 1;
                self.counted = self.seen;
                return Ok(ControlFlow::Continue(()));
            }
            _ => {}
        }
        self.crc = crc32c(self.crc, covered);
        Ok(ControlFlow::Continue(()))
    }
}

/// True if bytes can be a name that a directory gets or loses: `.` and `..` stay.
#[must_use]
pub fn is_name(bytes: &[u8]) -> bool {
    Name::new(bytes).is_ok_and(|name| !name.is_dots())
}

/// Puts records together as Linux writes them, for tests of replay.
#[derive(Clone, Debug)]
pub struct Area {
    bytes: Vec<u8>,
    crc: u32,
    block_len: usize,
}

impl Area {
    /// An area of blocks of `block_len` bytes, with its head.
    #[must_use]
    pub fn new(transaction: u32, block_len: usize) -> Self {
        let mut area = Self::headless(block_len);
        area.put(9, &[&0_u32.to_le_bytes()[..], &transaction.to_le_bytes()[..]].concat());
        area
    }

    /// Makes an area without a head.
    #[must_use]
    pub fn headless(block_len: usize) -> Self {
        Area { bytes: Vec::new(), crc: 0, block_len }
    }

    /// Adds a record, behind padding where the block has no room for it.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        let left = self.block_len - self.bytes.len() % self.block_len;
        // A tail must always find room.
        if HEAD_LEN + value.len() + HEAD_LEN + 8 > left {
            self.put_here(7, &vec![0; left.saturating_sub(HEAD_LEN)]);
        }
        self.put_here(kind, value);
    }

    fn put_here(&mut self, kind: u16, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend(kind.to_le_bytes());
        let len = invariant_or!(u16::try_from(value.len()), u16::MAX, "a record is shorter than a block");
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(value);
        self.crc = crc32c(self.crc, self.bytes.get(start..).unwrap_or_default());
    }

    /// Ends a fast commit.
    pub fn seal(&mut self, transaction: u32) {
        let left = self.block_len - self.bytes.len() % self.block_len;
        let len = left.checked_sub(HEAD_LEN).and_then(|rest| u16::try_from(rest).ok());
        let len = invariant_or!(len, u16::MAX, "a tail has room in the block");
        let head = [8_u16.to_le_bytes(), len.to_le_bytes()].concat();
        let crc = crc32c(crc32c(self.crc, &head), &transaction.to_le_bytes());
        self.bytes.extend([&head[..], &transaction.to_le_bytes()[..], &crc.to_le_bytes()[..]].concat());
        self.bytes.resize(self.bytes.len().next_multiple_of(self.block_len), 0);
        self.crc = 0;
    }

    /// All blocks.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: usize = 1024;

    fn area() -> Area {
        let mut area = Area::new(7, BLOCK);
        area.put(6, &[3; 4 + OLD_SIZE]);
        area.put(5, b"\x02\0\0\0\x0c\0\0\0name");
        area.seal(7);
        area
    }

    /// Fast commits and records that count.
    fn counted(transaction: u32, bytes: &[u8]) -> (u32, u64) {
        let mut scan = Scan::after(transaction);
        for block in bytes.chunks(BLOCK) {
            if !matches!(scan.block(block), Ok(ControlFlow::Continue(()))) {
                break;
            }
        }
        (scan.commits(), scan.counted())
    }

    #[test]
    fn only_what_is_sealed_for_the_right_transaction_counts() {
        let mut area = area();
        assert_eq!(counted(7, area.bytes()), (1, 4));
        assert_eq!(counted(8, area.bytes()), (0, 0));
        area.put(2, &[1; 12]);
        assert_eq!(counted(7, area.bytes()), (1, 4), "what no tail follows was never promised");
        area.seal(7);
        assert_eq!(counted(7, area.bytes()), (2, 6));
        for spoiled in 0..BLOCK * 2 {
            let mut bytes = area.bytes().to_vec();
            bytes[spoiled] ^= 1;
            let (commits, _) = counted(7, &bytes);
            let is_padding = (176..BLOCK).contains(&spoiled) || spoiled >= BLOCK + 28;
            assert_eq!(commits, if is_padding { 2 } else { u32::from(spoiled >= BLOCK) }, "byte {spoiled}");
        }
    }

    #[test]
    fn records_that_do_not_fit_a_block_begin_the_next() {
        let mut area = Area::new(7, BLOCK);
        (0..9).for_each(|number| area.put(6, &[number; 4 + 156]));
        area.seal(7);
        assert_eq!(area.bytes().len(), 2 * BLOCK);
        assert_eq!(counted(7, area.bytes()), (1, 12));
        let inodes =
            |block: &[u8]| tags(block).flatten().filter(|(tag, _)| matches!(tag, Tag::Inode { .. })).count();
        assert_eq!(area.bytes().chunks(BLOCK).map(inodes).collect::<Vec<_>>(), [6, 3]);
    }

    #[test]
    fn unknown_features_are_refused() {
        let mut bytes = area().bytes().to_vec();
        bytes[4] = 1;
        assert!(Scan::after(7).block(&bytes[..BLOCK]).unwrap_err().to_string().contains("0x1"));
    }

    #[test]
    fn names_are_those_that_a_verb_would_take() {
        assert!(is_name(b"a") && !is_name(b"..") && !is_name(b"a/b") && !is_name(b""));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200), id: u32) {
            let _ = Scan::after(id).block(&bytes);
            prop_assert!(tags(&bytes).count() <= 51);
        }
    }
}
