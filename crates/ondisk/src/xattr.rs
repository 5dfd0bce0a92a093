//! Extended attributes: names, entries in the inode and in a block, hashes.
//!
//! ```text
//!  inode:  | 128 bytes | extra fields | magic | entry entry ... 0 |  free  | value value |
//!  block:  | header, 32 bytes         | entry entry entry ... 0   |  free  | value value |
//! ```
//!
//! Entries grow up from the front, values down from the end. Value offsets count from the first
//! entry in the inode, from the start of the block in a block. Large values may live in inodes of
//! their own (`ea_inode`); then the entry holds the inode's number.
//!
//! Source: the ext4 data structure documentation of Linux ("Extended Attributes"), and the hashes
//! that Linux and e2fsck accept. This module owns the bytes; which attribute goes where, sharing of
//! blocks and value inodes belong to the file system library.

mod encode;
mod name;
#[cfg(test)]
mod tests;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::{Corrupt, Place};
use crate::inode::Inode;
use crate::units::{Block, InodeNumber};

pub use encode::{DoesNotFit, room_in_block, room_in_inode, space_of, store_in_block, store_in_inode};
pub use name::{NAME_MAX, NameIndex, NameProblem, full_name, split_name};

/// First word of both regions.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes of [`RawHeader`], before the first entry of a block.
pub const HEADER_LEN: usize = 32;
/// Bytes of the magic before the first entry in an inode.
pub const INODE_HEADER_LEN: usize = 4;
/// Bytes of [`RawEntry`], before the name.
pub const ENTRY_LEN: usize = 16;
/// Most inodes that may share an attribute block (`EXT4_XATTR_REFCOUNT_MAX`).
pub const REFERENCES_MAX: u32 = 1024;
/// Largest value that system calls take, in bytes (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 64 << 10;

/// Header of an attribute block, byte for byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// An entry without its name, byte for byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "kernel field names; the spec is the document")]
pub struct RawEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER_LEN);
    assert!(size_of::<RawEntry>() == ENTRY_LEN);
};

/// Where the value of an attribute is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// Beside its entry.
    Here(&'a [u8]),
    /// In an inode of its own.
    Inode {
        /// The value inode.
        number: InodeNumber,
        /// Bytes of the value.
        size: u32,
    },
}

impl Value<'_> {
    /// Bytes of the value, wherever it is.
    #[must_use]
    pub fn len(&self) -> usize {
        match *self {
            Value::Here(bytes) => bytes.len(),
            Value::Inode { size, .. } => size as usize,
        }
    }

    /// True if the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One attribute of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Prefix of the name.
    pub index: NameIndex,
    /// The rest of the name, without NUL bytes.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// Hash of name and value as stored; zero (not computed) in inodes, where only values in inodes
    /// of their own are hashed. Encoding computes the hash of all other values.
    pub hash: u32,
}

impl<'a> Entry<'a> {
    /// An entry with its value beside it.
    #[must_use]
    pub fn here(index: NameIndex, name: &'a [u8], value: &'a [u8]) -> Self {
        Entry { index, name, value: Value::Here(value), hash: 0 }
    }

    /// An entry with its value in an inode; `value_hash` as the value inode stores it.
    #[must_use]
    pub fn in_value_inode(
        index: NameIndex,
        name: &'a [u8],
        number: InodeNumber,
        size: u32,
        value_hash: u32,
    ) -> Self {
        let hash = hash_words(hash_name(name, u32::from), &value_hash.to_le_bytes());
        Entry { index, name, value: Value::Inode { number, size }, hash }
    }

    /// True if the stored hash is right for a value inode that stores `value_hash`. Linux before
    /// 6.2 took the characters of names as signed on some machines, so both readings count.
    #[must_use]
    pub fn agrees_with_value_inode(&self, value_hash: u32) -> bool {
        // spec: ea-inode
        let word = value_hash.to_le_bytes();
        let readings = [hash_name(self.name, u32::from), hash_name(self.name, sign_extended)];
        readings.into_iter().any(|name| hash_words(name, &word) == self.hash)
    }
}

fn sign_extended(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

fn hash_name(name: &[u8], widen: fn(u8) -> u32) -> u32 {
    name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ widen(*byte))
}

/// Mixes a value in by little-endian words, the last one filled with zeros.
fn hash_words(seed: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(seed, |hash, chunk| {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Hash of a name and the value beside it (`e_hash` in blocks), characters taken as unsigned, as
/// Linux does on every machine since 6.2 and e2fsck accepts.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    // spec: xattr
    hash_words(hash_name(name, u32::from), value)
}

/// Hashes as [`entry_hash`], with characters taken as signed, as Linux before 6.2 did on some machines.
#[must_use]
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    // spec: xattr: Linux before 6.2 on machines whose characters are signed.
    hash_words(hash_name(name, sign_extended), value)
}

/// Hash of a block (`h_hash`) from the hashes of its entries in order; zero marks a block that is
/// not to be shared.
fn block_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // spec: xattr: zero means that the block is not to be shared.
    let mixed = hashes
        .into_iter()
        .try_fold(0_u32, |block, entry| if entry == 0 { None } else { Some(block.rotate_left(16) ^ entry) });
    mixed.unwrap_or(0)
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Walks the entries of a region from `first` and checks every rule that reading relies on.
fn decode<'a>(bytes: &'a [u8], first: usize, place: Place) -> Result<Vec<Entry<'a>>, Corrupt> {
    // spec: xattr: entries grow up and end with four zero bytes.
    let bad =
        |at: usize, problem: &str| Corrupt::new(place, format!("attribute entry at byte {at}: {problem}"));
    let mut found = Vec::new();
    let mut at = first;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first_chunk::<4>() {
            None => return Err(bad(at, "the list of entries has no end")),
            Some([0, 0, 0, 0]) => break,
            Some(_) => {}
        }
        let (raw, tail) =
            RawEntry::ref_from_prefix(rest).map_err(|_| bad(at, "reaches over the end of its region"))?;
        let name = tail.get(..usize::from(raw.e_name_len));
        let name = name.ok_or_else(|| bad(at, "the name reaches over the end of its region"))?;
        if name.contains(&0) {
            return Err(bad(at, "the name contains a NUL byte"));
        }
        if name.is_empty() && raw.e_name_index == 0 {
            // Without a value beside it, it would look like the end of the list.
            return Err(bad(at, "has neither an index nor a name"));
        }
        found.push((at, raw, name));
        // No overflow: `at` is inside the region and a name has at most 255 bytes.
        at += padded(ENTRY_LEN + name.len());
    }
    let values_from = at + 4;
    // Values of a sound region do not overlap; bounding their sum keeps copies of a hostile region
    // as small as the region.
    let mut room = bytes.len().saturating_sub(values_from);
    let entries = found.into_iter().map(|(at, raw, name)| {
        let value = value_of(raw, bytes, values_from, &mut room).map_err(|problem| bad(at, &problem))?;
        Ok(Entry { index: NameIndex(raw.e_name_index), name, value, hash: raw.e_hash.get() })
    });
    entries.collect()
}

fn value_of<'a>(
    raw: &RawEntry,
    bytes: &'a [u8],
    values_from: usize,
    room: &mut usize,
) -> Result<Value<'a>, String> {
    let stated = raw.e_value_size.get();
    if let Some(number) = InodeNumber::new(raw.e_value_inum.get()) {
        return Ok(Value::Inode { number, size: stated });
    }
    let (from, size) = (usize::from(raw.e_value_offs.get()), stated as usize);
    if size == 0 {
        return Ok(Value::Here(&[]));
    }
    let end = size.checked_next_multiple_of(4).and_then(|size| from.checked_add(size));
    if from < values_from || end.is_none_or(|end| end > bytes.len()) {
        let bounds = format!("bytes {values_from} to {}", bytes.len());
        return Err(format!("the value of {size} bytes at {from} lies outside {bounds}"));
    }
    *room = room.checked_sub(padded(size)).ok_or("the values overlap")?;
    bytes.get(from..from + size).map(Value::Here).ok_or_else(|| "the value lies outside".into())
}

/// The in-inode region behind its magic; `None` where the record has none.
fn inode_region(inode: &Inode) -> Option<&[u8]> {
    let region = inode.bytes().get(inode.attributes_offset()?..)?;
    let (magic, rest) = region.split_first_chunk::<INODE_HEADER_LEN>()?;
    // Without extra fields Linux takes the space behind byte 128 for unused.
    (inode.extra_size() > 0 && *magic == MAGIC.to_le_bytes()).then_some(rest)
}

/// The attributes in an inode record; none where the record has no room or no magic.
///
/// # Errors
/// An entry that leaves the record, named with its place behind the magic.
pub fn in_inode(inode: &Inode) -> Result<Vec<Entry<'_>>, Corrupt> {
    let place = Place::Xattrs(inode.number());
    inode_region(inode).map_or(Ok(Vec::new()), |region| decode(region, 0, place))
}

/// The header and the attributes of a block.
///
/// # Errors
/// A wrong magic or block count, no references, or an entry that leaves the block.
pub fn in_block(block: Block, bytes: &[u8]) -> Result<(RawHeader, Vec<Entry<'_>>), Corrupt> {
    let bad = |problem: String| Corrupt::new(Place::Block(block), problem);
    let (header, _) = RawHeader::read_from_prefix(bytes)
        .map_err(|_| bad("attribute block is shorter than its header".into()))?;
    if header.h_magic.get() != MAGIC {
        return Err(bad(format!("magic {:#x} is not that of an attribute block", header.h_magic.get())));
    }
    if header.h_blocks.get() != 1 {
        return Err(bad(format!("attributes in {} blocks instead of 1", header.h_blocks.get())));
    }
    if header.h_refcount.get() == 0 {
        return Err(bad("attribute block without references".into()));
    }
    Ok((header, decode(bytes, HEADER_LEN, Place::Block(block))?))
}

/// Lets attributes in an inode record lead to other value inodes; whether any changed.
///
/// # Errors
/// As [`in_inode`]; nothing was changed then.
pub fn renumber_in_inode(
    inode: &mut Inode,
    new: impl Fn(InodeNumber) -> InodeNumber,
) -> Result<bool, Corrupt> {
    if in_inode(inode)?.is_empty() {
        return Ok(false);
    }
    let first = inode.attributes_offset().map_or(usize::MAX, |offset| offset + INODE_HEADER_LEN);
    Ok(renumber(inode.bytes_mut().get_mut(first..).unwrap_or_default(), 0, new))
}

/// Renumbers as [`renumber_in_inode`], attributes in a block.
///
/// # Errors
/// As [`in_block`]; nothing was changed then.
pub fn renumber_in_block(
    block: Block,
    bytes: &mut [u8],
    new: impl Fn(InodeNumber) -> InodeNumber,
) -> Result<bool, Corrupt> {
    in_block(block, bytes)?;
    Ok(renumber(bytes, HEADER_LEN, new))
}

/// Entries of a region that was decoded before, from its byte `at` on.
fn renumber(region: &mut [u8], mut at: usize, new: impl Fn(InodeNumber) -> InodeNumber) -> bool {
    let mut changed = false;
    while let Some(rest) = region.get_mut(at..).filter(|rest| rest.get(..4) != Some(&[0; 4])) {
        let Ok((raw, _)) = RawEntry::mut_from_prefix(rest) else { break };
        if let Some(old) = InodeNumber::new(raw.e_value_inum.get()) {
            let number = new(old);
            changed |= number != old;
            raw.e_value_inum.set(number.get());
        }
        at += padded(ENTRY_LEN + usize::from(raw.e_name_len));
    }
    changed
}

/// Stores the number of inodes that refer to an attribute block.
pub fn set_references(block: &mut [u8], references: u32) {
    if let Ok((header, _)) = RawHeader::mut_from_prefix(block) {
        header.h_refcount.set(references);
    }
}
