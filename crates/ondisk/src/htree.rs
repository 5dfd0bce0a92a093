//! The index of a hashed directory: its root in the directory's first block, and the nodes below.
//!
//! Source: the ext4 data structure documentation of Linux ("Hash Tree Directories"). Owns the bytes
//! of one index block; the walk from the root to a leaf belongs to the file system.
//!
//! ```text
//!  root   | . (12) | .. (12, length to the end) | 0 | version, 8, levels, flags | entries ... | tail |
//!  node   | unused entry over the whole block (8)                               | entries ... | tail |
//!
//!  entry  | hash | file block |      the first one holds limit and count instead of a hash,
//!                                    and leads to all hashes below the second one
//! ```
//!
//! Old code without the index sees the root as a block with `.` and `..`, and nodes as empty ones.

use crate::dirent::{self, HEADER_LEN, Layout, put};
use crate::dirhash::HashVersion;
use crate::invariant_or;
use crate::units::{FileBlock, InodeNumber, bounded};

/// Bytes of an entry, and of the words with limit and count.
pub const ENTRY_LEN: usize = 8;
/// Where the entries of a root begin.
pub const ROOT_ENTRIES: usize = 0x20;
/// Where the entries of a node begin.
pub const NODE_ENTRIES: usize = HEADER_LEN;
/// Bytes of the tail with the checksum.
const TAIL_LEN: usize = 8;
/// `info_length`, the only one in use.
const INFO_LEN: u8 = 8;
/// Where `..` begins in a root.
const DOTDOT: usize = 12;
/// Bits of the file block in an entry; the upper four are reserved.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
/// File blocks that an index can lead to.
pub const MAX_BLOCKS: u32 = BLOCK_MASK;

/// Levels of index blocks, the root included, that a directory may have.
#[must_use]
pub fn max_levels(large_dir: bool) -> u8 {
    if large_dir { 3 } else { 2 }
}

/// Kind of an index block: they differ in where their entries begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The first block of the directory.
    Root,
    /// Any other.
    Node,
}

impl Kind {
    /// Offset of the entries, and of limit and count within the first.
    #[must_use]
    pub fn entries_offset(self) -> usize {
        match self {
            Kind::Root => ROOT_ENTRIES,
            Kind::Node => NODE_ENTRIES,
        }
    }

    /// Entries that fit a block.
    #[must_use]
    pub fn limit(self, layout: Layout) -> u16 {
        let tail = if layout.checksums { TAIL_LEN } else { 0 };
        let space = layout.block_size.bytes_usize() - self.entries_offset() - tail;
        // At most 8,191: a block has at most 64 KiB.
        bounded::<u16>(space / ENTRY_LEN)
    }
}

/// Broken rule of an index block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message is its document")]
pub enum BrokenIndex {
    #[error("does not begin with `.` and `..` as an index root does")]
    NoDots,
    #[error("is not covered by one unused entry as an index node is")]
    NotCovered,
    #[error("information of the index root has length {0}, not 8")]
    InfoLength(u8),
    #[error("hash version {0} of the index is unknown")]
    HashVersion(u8),
    #[error("index flags {0:#04x} are unknown")]
    Flags(u8),
    #[error("index of {0} levels is deeper than {1}")]
    Levels(u16, u8),
    #[error("index limit is {0}, not {1}")]
    Limit(u16, u16),
    #[error("index count {0} is not within 1 to {1}")]
    Count(u16, u16),
}

/// Facts in the root about the whole index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The hash by which it is ordered.
    pub version: HashVersion,
    /// Levels of index blocks, the root included.
    pub levels: u8,
}

impl Root {
    /// Decodes the head of a root.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn parse(block: &[u8], layout: Layout, large_dir: bool) -> Result<Self, BrokenIndex> {
        // spec: htree
        let end = layout.encode_len(layout.block_size.bytes_usize() - DOTDOT);
        let dots = block.get(4..7) == Some(&[12, 0, 1])
            && block.get(DOTDOT + 4..DOTDOT + 6) == Some(&end)
            && block.get(DOTDOT + 6) == Some(&2);
        let Some(&[z0, z1, z2, z3, version, info_len, indirect, flags]) =
            block.get(ROOT_ENTRIES - ENTRY_LEN..ROOT_ENTRIES)
        else {
            return Err(BrokenIndex::NoDots);
        };
        if !dots || [z0, z1, z2, z3] != [0; 4] {
            return Err(BrokenIndex::NoDots);
        }
        if info_len != INFO_LEN {
            return Err(BrokenIndex::InfoLength(info_len));
        }
        // Only the lowest flag was ever given a meaning: that the hash is of another kind.
        if flags & 1 != 0 {
            return Err(BrokenIndex::Flags(flags));
        }
        let most = max_levels(large_dir);
        if indirect >= most {
            return Err(BrokenIndex::Levels(u16::from(indirect) + 1, most));
        }
        let version = HashVersion::from_raw(version).ok_or(BrokenIndex::HashVersion(version))?;
        Ok(Root { version, levels: indirect + 1 })
    }
}

/// True if a block other than the first is an index node, not a leaf: one unused entry covers it
/// all. Without checksums a leaf that was emptied looks the same, and has nothing to find either.
#[must_use]
pub fn looks_like_node(block: &[u8], layout: Layout) -> bool {
    let whole = layout.encode_len(layout.block_size.bytes_usize());
    block.get(..4) == Some(&[0; 4]) && block.get(4..6) == Some(&whole)
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Least hash that it leads to; bit 0 set if names with that hash also are in the leaf before.
    pub hash: u32,
    /// Where it leads.
    pub block: FileBlock,
}

/// The entries of an index block.
#[derive(Clone, Copy, Debug)]
pub struct Index<'b> {
    /// Exactly the entries in use, the first with limit and count in place of its hash.
    entries: &'b [[u8; ENTRY_LEN]],
}

fn limit_and_count(block: &[u8], kind: Kind) -> (u16, u16) {
    let at = kind.entries_offset();
    match block.get(at..at + 4) {
        Some(&[a, b, c, d]) => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
        _ => (0, 0),
    }
}

impl<'b> Index<'b> {
    /// Decodes the entries of an index block.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn parse(block: &'b [u8], kind: Kind, layout: Layout) -> Result<Self, BrokenIndex> {
        // spec: htree
        if kind == Kind::Node && !looks_like_node(block, layout) {
            return Err(BrokenIndex::NotCovered);
        }
        let (limit, count) = limit_and_count(block, kind);
        if limit != kind.limit(layout) {
            return Err(BrokenIndex::Limit(limit, kind.limit(layout)));
        }
        let (entries, _) = block.get(kind.entries_offset()..).unwrap_or_default().as_chunks();
        match entries.get(..usize::from(count)) {
            Some(entries) if count >= 1 && count <= limit => Ok(Index { entries }),
            _ => Err(BrokenIndex::Count(count, limit)),
        }
    }

    /// Entries in use, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at a position; the first one counts from hash 0.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<IndexEntry> {
        let &[h0, h1, h2, h3, b0, b1, b2, b3] = self.entries.get(position)?;
        let hash = if position == 0 { 0 } else { u32::from_le_bytes([h0, h1, h2, h3]) };
        Some(IndexEntry { hash, block: FileBlock(u32::from_le_bytes([b0, b1, b2, b3]) & BLOCK_MASK) })
    }

    /// Position of the last entry whose hash is not above `hash`.
    #[must_use]
    pub fn find(&self, hash: u32) -> usize {
        let after_first = self.entries.get(1..).unwrap_or_default();
        after_first.partition_point(|&[h0, h1, h2, h3, ..]| u32::from_le_bytes([h0, h1, h2, h3]) <= hash)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + use<'b> {
        let index = *self;
        (0..self.len()).filter_map(move |position| index.get(position))
    }
}

/// Stores entries, at least one and at most the limit: those that are too many are left out.
fn store(block: &mut [u8], kind: Kind, layout: Layout, entries: impl IntoIterator<Item = IndexEntry>) {
    let (start, limit) = (kind.entries_offset(), kind.limit(layout));
    let mut count = 0u16;
    for entry in entries.into_iter().take(usize::from(limit)) {
        let at = start + ENTRY_LEN * usize::from(count);
        put(block, at, &entry.hash.to_le_bytes());
        put(block, at + 4, &(entry.block.0 & BLOCK_MASK).to_le_bytes());
        count += 1;
    }
    put_counts(block, kind, layout, count);
}

fn put_counts(block: &mut [u8], kind: Kind, layout: Layout, count: u16) {
    put(block, kind.entries_offset(), &kind.limit(layout).to_le_bytes());
    put(block, kind.entries_offset() + 2, &count.to_le_bytes());
}

/// Makes a directory's first block the root of an index with one level and one leaf.
pub fn init_root(
    block: &mut [u8],
    layout: Layout,
    (own, parent): (InodeNumber, InodeNumber),
    version: HashVersion,
    leaf: FileBlock,
) {
    let bare = Layout { checksums: false, ..layout };
    dirent::init_directory(block, bare, own, parent);
    put(block, ROOT_ENTRIES - ENTRY_LEN, &[0, 0, 0, 0, version.raw(), INFO_LEN, 0, 0]);
    store(block, Kind::Root, layout, [IndexEntry { hash: 0, block: leaf }]);
}

/// Makes a block an index node with these entries.
pub fn init_node(block: &mut [u8], layout: Layout, entries: impl IntoIterator<Item = IndexEntry>) {
    block.fill(0);
    put(block, 4, &layout.encode_len(layout.block_size.bytes_usize()));
    store(block, Kind::Node, layout, entries);
}

/// Sets the levels of index blocks below a root, and leaves it one entry.
pub fn raise_root(block: &mut [u8], layout: Layout, levels: u8, only: FileBlock) {
    set_root(block, layout, levels, [IndexEntry { hash: 0, block: only }]);
}

/// Sets the levels of index blocks, the root included, and all entries of a root.
pub fn set_root(block: &mut [u8], layout: Layout, levels: u8, entries: impl IntoIterator<Item = IndexEntry>) {
    put(block, ROOT_ENTRIES - 2, &[levels.saturating_sub(1)]);
    block.get_mut(ROOT_ENTRIES..).unwrap_or_default().fill(0);
    store(block, Kind::Root, layout, entries);
}

/// Adds an entry behind the one at `position`; `false` if the block is full or broken.
pub fn insert_after(
    block: &mut [u8],
    kind: Kind,
    layout: Layout,
    position: usize,
    entry: IndexEntry,
) -> bool {
    let (limit, count) = limit_and_count(block, kind);
    let (from, end) = (position + 1, usize::from(count));
    if count >= limit || limit != kind.limit(layout) || from > end {
        return false;
    }
    let byte = |position: usize| kind.entries_offset() + ENTRY_LEN * position;
    block.copy_within(byte(from)..byte(end), byte(from + 1));
    put(block, byte(from), &entry.hash.to_le_bytes());
    put(block, byte(from) + 4, &(entry.block.0 & BLOCK_MASK).to_le_bytes());
    put_counts(block, kind, layout, count + 1);
    true
}

/// Takes an entry out; the one before it takes over its hashes, or of the first entry the one behind it. `false` if it
/// is the only one, or the block is broken.
pub fn remove(block: &mut [u8], kind: Kind, layout: Layout, position: usize) -> bool {
    let (limit, count) = limit_and_count(block, kind);
    let end = usize::from(count);
    if count < 2 || count > limit || limit != kind.limit(layout) || position >= end {
        return false;
    }
    let byte = |position: usize| kind.entries_offset() + ENTRY_LEN * position;
    // The hash of a new first entry is written over by limit and count.
    block.copy_within(byte(position + 1)..byte(end), byte(position));
    let last = block.get_mut(byte(end - 1)..byte(end));
    invariant_or!(last, return false, "an entry lies inside its block").fill(0);
    put_counts(block, kind, layout, count - 1);
    true
}

/// Has an entry lead to another block. `false` if there is no such entry.
pub fn retarget(block: &mut [u8], kind: Kind, layout: Layout, position: usize, to: FileBlock) -> bool {
    let (limit, count) = limit_and_count(block, kind);
    if limit != kind.limit(layout) || count > limit || position >= usize::from(count) {
        return false;
    }
    let at = kind.entries_offset() + ENTRY_LEN * position + 4;
    put(block, at, &(to.0 & BLOCK_MASK).to_le_bytes());
    true
}

/// Cuts an index block down to its first `count` entries and clears the others.
pub fn truncate(block: &mut [u8], kind: Kind, layout: Layout, count: u16) {
    let from = kind.entries_offset() + ENTRY_LEN * usize::from(count);
    invariant_or!(block.get_mut(from..), return, "an entry lies inside its block").fill(0);
    put_counts(block, kind, layout, count);
}

#[cfg(test)]
mod tests;
