//! Directory entries in a block: reading, inserting, removing, and the first block of a directory.
//!
//! Source: the directory chapter of the ext4 data structure documentation of Linux ("Linear
//! Directories"). Owns the bytes of one block; which blocks a directory has and where a name
//! belongs is for the file system. The index above the leaves stands in [`crate::htree`].
//!
//! ```text
//!  0       4        6         7          8
//!  | inode | length | name    | file     | name ... | to a multiple of 4, then slack |
//!  |       | of all | length  | type     |          |                                |
//! ```
//!
//! Entries cover a block without gaps. With metadata checksums the last 12 bytes are a tail in the
//! shape of an unused entry, which holds the checksum ([`crate::seal`] computes it).

mod name;

use crate::features::{Features, Incompat};
use crate::inode::FileType;
use crate::invariant_or;
use crate::seal::DIRECTORY_TAIL_LEN;
use crate::units::{BlockSize, InodeNumber, low_u32};

pub use name::{BadName, MAX_NAME_LEN, Name};

/// Bytes before the name.
pub const HEADER_LEN: usize = 8;
/// Least length of an entry: a header and a name of one character, rounded up.
pub const MIN_ENTRY_LEN: usize = 12;
/// The file type that marks the checksum tail.
const TAIL_TYPE: u8 = 0xDE;

/// Bytes that an entry with a name of `name_len` bytes needs.
#[must_use]
pub fn entry_len(name_len: usize) -> usize {
    (HEADER_LEN + name_len).next_multiple_of(4)
}

/// Layout of directory blocks, by the volume's features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Entries hold file types (feature `filetype`).
    pub file_types: bool,
    /// Blocks end in a checksum tail (feature `metadata_csum`).
    pub checksums: bool,
}

impl Layout {
    /// The layout that features ask for.
    #[must_use]
    pub fn new(block_size: BlockSize, features: &Features) -> Self {
        Layout {
            block_size,
            file_types: features.incompat.contains(Incompat::FILETYPE),
            checksums: features.metadata_csum(),
        }
    }

    /// The length of an entry from its field. Lengths of 64 KiB do not fit 16 bits: with such blocks
    /// 65,535 and 0 mean a whole block, and the two low bits, else unused, are the highest.
    fn decode_len(self, raw: u16) -> usize {
        // spec: dir
        let raw = usize::from(raw);
        match (self.is_widest(), raw) {
            (false, _) => raw,
            (true, 0 | 0xFFFF) => self.block_size.bytes_usize(),
            (true, _) => raw & 0xFFFC | (raw & 3) << 16,
        }
    }

    /// The field for a length, a multiple of four up to the block size.
    #[must_use]
    pub fn encode_len(self, len: usize) -> [u8; 2] {
        u16::try_from(len).unwrap_or(0xFFFF).to_le_bytes()
    }

    fn is_widest(self) -> bool {
        self.block_size.log2() == 16
    }

    /// Bytes of a leaf that hold entries.
    #[must_use]
    pub fn leaf_space(self) -> usize {
        self.block_size.bytes_usize() - if self.checksums { DIRECTORY_TAIL_LEN } else { 0 }
    }

    fn type_code(self, file_type: FileType) -> u8 {
        if self.file_types { file_type.entry_code() } else { 0 }
    }
}

/// The rule that an entry breaks, and the offset in its block where the entry begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("entry at byte {offset}: {rule}")]
pub struct BrokenEntry {
    /// Offset of the entry in the block.
    pub offset: usize,
    /// Rule that it breaks.
    pub rule: EntryRule,
}

/// Rules of directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message is its document; len is in bytes")]
pub enum EntryRule {
    #[error("fewer than 8 bytes are left for its header")]
    NoHeader,
    #[error("length {len} is below 12")]
    TooShort { len: usize },
    #[error("length {len} is not a multiple of 4")]
    Unaligned { len: usize },
    #[error("length {len} reaches over the end, {left} bytes away")]
    OverEnd { len: usize, left: usize },
    #[error("length {len} leaves {left} bytes, too few for another entry")]
    LeavesScrap { len: usize, left: usize },
    #[error("name of {name_len} bytes does not fit length {len}")]
    NameOverEnd { name_len: usize, len: usize },
    #[error("in use for {len} bytes, but its name is empty")]
    NoName { len: usize },
}

/// One entry of a block, in use or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'b> {
    /// Where it begins in the block.
    pub offset: usize,
    /// Bytes it covers, slack included.
    pub len: usize,
    /// The inode; `None` for an unused entry.
    pub inode: Option<InodeNumber>,
    /// The type byte as stored; without the feature `filetype` it means nothing.
    pub type_code: u8,
    /// The name: any bytes, even `/` on a broken volume. Meaningless in unused entries.
    pub name: &'b [u8],
}

impl<'b> Entry<'b> {
    /// The file type, where the volume stores them and the value is known.
    #[must_use]
    pub fn file_type(&self, layout: Layout) -> Option<FileType> {
        if layout.file_types { FileType::from_entry_code(self.type_code) } else { None }
    }

    /// Bytes at its front that are in use.
    fn used(&self) -> usize {
        if self.inode.is_some() { entry_len(self.name.len()) } else { 0 }
    }

    /// Returns what is needed to write it again elsewhere; `None` if unused.
    #[must_use]
    pub fn record(&self) -> Option<Record<'b>> {
        let inode = self.inode?;
        Some(Record { inode, type_code: self.type_code, name: self.name })
    }
}

/// An entry to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'n> {
    inode: InodeNumber,
    type_code: u8,
    name: &'n [u8],
}

impl<'n> Record<'n> {
    /// A new entry.
    #[must_use]
    pub fn new(name: Name<'n>, inode: InodeNumber, file_type: FileType, layout: Layout) -> Self {
        Record { inode, type_code: layout.type_code(file_type), name: name.bytes() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'n [u8] {
        self.name
    }

    /// Bytes it needs.
    #[must_use]
    pub fn needs(&self) -> usize {
        entry_len(self.name.len())
    }
}

/// Walks the entries of a block or of a part of an inline directory. Ends after the first broken
/// one.
#[derive(Clone, Debug)]
pub struct Entries<'b> {
    bytes: &'b [u8],
    layout: Layout,
    at: usize,
}

/// The entries in the leaf (or linear block, or index root) `block`, without its checksum tail.
#[must_use]
pub fn entries(block: &[u8], layout: Layout) -> Entries<'_> {
    Entries { bytes: block.get(..space(block, layout)).unwrap_or(block), layout, at: 0 }
}

/// The entries in a region that has no tail: the two parts of an inline directory.
#[must_use]
pub fn entries_without_tail(region: &[u8], layout: Layout) -> Entries<'_> {
    Entries { bytes: region, layout, at: 0 }
}

/// True if the block ends in a checksum tail. A block that lacks it where it should have one was
/// written before checksums were turned on.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let [len_low, len_high] = 12u16.to_le_bytes();
    let shape = [0, 0, 0, 0, len_low, len_high, 0, TAIL_TYPE];
    block.last_chunk::<DIRECTORY_TAIL_LEN>().is_some_and(|tail| tail.starts_with(&shape))
}

/// Bytes of a block before its tail.
///
/// Index blocks have none: their first or second entry covers the rest of the block. What looks like a
/// tail there is left from the leaf that the kernel turned into a root.
fn space(block: &[u8], layout: Layout) -> usize {
    let reaches_end = |offset: usize| {
        let len = block.get(offset + 4..offset + 6).and_then(|len| len.first_chunk());
        len.is_some_and(|len| offset + layout.decode_len(u16::from_le_bytes(*len)) == block.len())
    };
    let is_index = reaches_end(0) || reaches_end(MIN_ENTRY_LEN);
    block.len() - if layout.checksums && !is_index && has_tail(block) { DIRECTORY_TAIL_LEN } else { 0 }
}

impl<'b> Entries<'b> {
    fn parse(&self) -> Result<Entry<'b>, EntryRule> {
        // spec: dir: each rule that an entry can break has an error of its own.
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((header, after)) = rest.split_first_chunk::<HEADER_LEN>() else {
            return Err(EntryRule::NoHeader);
        };
        let &[i0, i1, i2, i3, l0, l1, name_len, type_code] = header;
        let len = self.layout.decode_len(u16::from_le_bytes([l0, l1]));
        let name_len = usize::from(name_len);
        if len < MIN_ENTRY_LEN {
            return Err(EntryRule::TooShort { len });
        }
        if !len.is_multiple_of(4) {
            return Err(EntryRule::Unaligned { len });
        }
        let Some(left) = rest.len().checked_sub(len) else {
            return Err(EntryRule::OverEnd { len, left: rest.len() });
        };
        if left != 0 && left < MIN_ENTRY_LEN {
            return Err(EntryRule::LeavesScrap { len, left });
        }
        if HEADER_LEN + name_len > len {
            return Err(EntryRule::NameOverEnd { name_len, len });
        }
        let inode = InodeNumber::new(u32::from_le_bytes([i0, i1, i2, i3]));
        if inode.is_some() && name_len == 0 {
            return Err(EntryRule::NoName { len });
        }
        let name = after.get(..name_len).unwrap_or_default();
        Ok(Entry { offset: self.at, len, inode, type_code, name })
    }
}

impl<'b> Iterator for Entries<'b> {
    type Item = Result<Entry<'b>, BrokenEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let offset = self.at;
        let parsed = self.parse().map_err(|rule| BrokenEntry { offset, rule });
        self.at = match &parsed {
            Ok(entry) => offset + entry.len,
            Err(_) => self.bytes.len(),
        };
        Some(parsed)
    }
}

/// The entry in use with this name.
///
/// # Errors
/// The first broken entry before it.
pub fn find<'b>(block: &'b [u8], layout: Layout, name: &[u8]) -> Result<Option<Entry<'b>>, BrokenEntry> {
    for entry in entries(block, layout) {
        let entry = entry?;
        // Names in one directory often begin alike: the last byte rules most of them out.
        if entry.name.last() == name.last() && entry.name == name && entry.inode.is_some() {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Where a new entry fits: found by [`find_room`], used by [`insert_at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    offset: usize,
    used: usize,
    len: usize,
}

/// The first room of at least `needs` bytes ([`Record::needs`]): an unused entry, or the slack of
/// one in use.
///
/// # Errors
/// A broken entry before the room.
pub fn find_room(block: &[u8], layout: Layout, needs: usize) -> Result<Option<Room>, BrokenEntry> {
    for entry in entries(block, layout) {
        let entry = entry?;
        let used = entry.used();
        if entry.len.saturating_sub(used) >= needs {
            return Ok(Some(Room { offset: entry.offset, used, len: entry.len }));
        }
    }
    Ok(None)
}

/// Writes an entry into a room that [`find_room`] gave for the same bytes and at least its needs.
pub fn insert_at(block: &mut [u8], layout: Layout, room: Room, record: &Record<'_>) {
    if room.used > 0 {
        put_len(block, layout, room.offset, room.used);
    }
    write(block, layout, room.offset + room.used, room.len - room.used, record);
}

/// Removes the entry at an offset that a walk gave: it is joined to the one before it, or marked
/// unused if it is the first. Its bytes are cleared, so that the name does not stay on the volume.
/// `false` if no entry in use begins there.
///
/// # Errors
/// A broken entry up to there; nothing was changed.
pub fn remove(block: &mut [u8], layout: Layout, offset: usize) -> Result<bool, BrokenEntry> {
    let mut before: Option<(usize, usize)> = None;
    for entry in entries(block, layout) {
        let entry = entry?;
        if entry.offset == offset {
            let (len, used) = (entry.len, entry.inode.is_some());
            return Ok(used && {
                let found = block.get_mut(offset..offset + len);
                invariant_or!(found, return Ok(false), "an entry lies inside its block").fill(0);
                match before {
                    Some((at, before_len)) => put_len(block, layout, at, before_len + len),
                    None => put_len(block, layout, offset, len),
                }
                true
            });
        }
        before = Some((entry.offset, entry.len));
    }
    Ok(false)
}

/// Lets the entry at an offset that a walk gave lead to another inode. `false` if no entry in use
/// begins there.
///
/// # Errors
/// A broken entry up to there; nothing was changed.
pub fn retarget(
    block: &mut [u8],
    layout: Layout,
    offset: usize,
    inode: InodeNumber,
    file_type: FileType,
) -> Result<bool, BrokenEntry> {
    for entry in entries(block, layout) {
        let entry = entry?;
        if entry.offset == offset && entry.inode.is_some() {
            put(block, offset, &inode.get().to_le_bytes());
            put(block, offset + 7, &[layout.type_code(file_type)]);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fills a block with records, each as short as it can be, the last one covering the rest, and
/// the tail behind them. The caller makes sure that they fit [`Layout::leaf_space`]; those that
/// do not are left out, and the result is `false`.
pub fn fill<'r>(block: &mut [u8], layout: Layout, records: impl IntoIterator<Item = Record<'r>>) -> bool {
    block.fill(0);
    let space = layout.leaf_space().min(block.len());
    let (mut at, mut last) = (0, 0);
    for record in records {
        let needs = record.needs();
        if at + needs > space {
            return false;
        }
        write(block, layout, at, needs, &record);
        (last, at) = (at, at + needs);
    }
    put_len(block, layout, last, space - last);
    if layout.checksums {
        put_tail(block);
    }
    true
}

/// Makes the last 12 bytes of a block a checksum tail, which is then to be sealed.
pub fn put_tail(block: &mut [u8]) {
    let at = block.len().saturating_sub(DIRECTORY_TAIL_LEN);
    put(block, at, &[0, 0, 0, 0, 12, 0, 0, TAIL_TYPE, 0, 0, 0, 0]);
}

/// Makes a block a leaf without entries.
pub fn init_leaf(block: &mut [u8], layout: Layout) {
    fill(block, layout, []);
}

/// The entries `.` and `..`, with which every directory of blocks begins.
#[must_use]
pub fn dots(layout: Layout, own: InodeNumber, parent: InodeNumber) -> [Record<'static>; 2] {
    let entry = |name, inode| Record { inode, type_code: layout.type_code(FileType::Directory), name };
    [entry(b".", own), entry(b"..", parent)]
}

/// Makes a block the first one of a new directory: `.` and `..`.
pub fn init_directory(block: &mut [u8], layout: Layout, own: InodeNumber, parent: InodeNumber) {
    fill(block, layout, dots(layout, own, parent));
}

/// The parent of an inline directory: the first four of the 60 bytes in the inode. Its entries
/// follow (`entries_without_tail(&bytes[4..])`), and go on in the value of the attribute
/// `system.data`; `.` is not stored.
#[must_use]
pub fn inline_parent(i_block: &[u8]) -> Option<InodeNumber> {
    // spec: dir, inline
    i_block.first_chunk().and_then(|parent| InodeNumber::new(u32::from_le_bytes(*parent)))
}

pub(crate) fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    let to = invariant_or!(block.get_mut(at..at + bytes.len()), return, "an entry lies inside its block");
    to.copy_from_slice(bytes);
}

fn put_len(block: &mut [u8], layout: Layout, offset: usize, len: usize) {
    put(block, offset + 4, &layout.encode_len(len));
}

/// Writes an entry that covers `len` bytes.
pub(crate) fn write(block: &mut [u8], layout: Layout, offset: usize, len: usize, record: &Record<'_>) {
    let [l0, l1] = layout.encode_len(len);
    let [i0, i1, i2, i3] = record.inode.get().to_le_bytes();
    // Names come from `Name` or from an entry, so their length fits a byte.
    let name_len = low_u32(record.name.len() as u64).to_le_bytes()[0];
    put(block, offset, &[i0, i1, i2, i3, l0, l1, name_len, record.type_code]);
    put(block, offset + HEADER_LEN, record.name);
    // What an entry before it left behind the name would otherwise stay on the volume.
    let end = offset + HEADER_LEN + record.name.len();
    let padding = offset + record.needs();
    invariant_or!(block.get_mut(end..padding), return, "an entry lies inside its block").fill(0);
}

#[cfg(test)]
mod tests;
