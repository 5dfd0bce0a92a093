//! Attributes to bytes: room, layout of a region, order and hashes in blocks.

use zerocopy::IntoBytes;

use super::{
    ENTRY_LEN, Entry, HEADER_LEN, INODE_HEADER_LEN, MAGIC, RawEntry, RawHeader, Value, block_hash,
    entry_hash, padded,
};
use crate::inode::{Inode, OLD_SIZE};

/// The attributes need more room than the region has, or one exceeds a field of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the extended attributes do not fit")]
pub struct DoesNotFit;

/// Bytes that the end of a list of entries takes.
const END_LEN: usize = 4;

/// Bytes that an attribute takes in a region: entry, name and, if it is here, value, each padded
/// to four.
#[must_use]
pub fn space_of(name_len: usize, value_len_here: usize) -> usize {
    padded(ENTRY_LEN.saturating_add(name_len)).saturating_add(padded(value_len_here))
}

/// Bytes for attributes in a block; compare with the sum of [`space_of`].
#[must_use]
pub fn room_in_block(block_len: usize) -> usize {
    block_len.saturating_sub(HEADER_LEN + END_LEN)
}

/// Bytes for attributes in an inode record; zero in records of 128 bytes and in those without extra
/// fields.
#[must_use]
pub fn room_in_inode(inode: &Inode) -> usize {
    let used = OLD_SIZE + usize::from(inode.extra_size()) + INODE_HEADER_LEN + END_LEN;
    if inode.extra_size() == 0 { 0 } else { inode.bytes().len().saturating_sub(used) }
}

fn len_here(entry: &Entry<'_>) -> usize {
    match entry.value {
        Value::Here(bytes) => bytes.len(),
        Value::Inode { .. } => 0,
    }
}

/// Writes entries from `first` up and values from the end down into a region of zeros, with the
/// entry hashes that `hash_here` gives to values beside their entry.
fn encode(
    region: &mut [u8],
    first: usize,
    entries: &[Entry<'_>],
    hash_here: fn(&[u8], &[u8]) -> u32,
) -> Result<Vec<u32>, DoesNotFit> {
    let needed = entries.iter().map(|entry| space_of(entry.name.len(), len_here(entry)));
    let needed = needed.fold(first.saturating_add(END_LEN), usize::saturating_add);
    if needed > region.len() {
        return Err(DoesNotFit);
    }
    let (mut at, mut values) = (first, region.len());
    let mut hashes = Vec::with_capacity(entries.len());
    for entry in entries {
        let (hash, inode) = match entry.value {
            Value::Here(bytes) => (hash_here(entry.name, bytes), 0),
            Value::Inode { number, .. } => (entry.hash, number.get()),
        };
        let mut offset = 0;
        if let Value::Here(bytes) = entry.value
            && !bytes.is_empty()
        {
            values = values.checked_sub(padded(bytes.len())).ok_or(DoesNotFit)?;
            offset = values;
            put(region, values, bytes)?;
        }
        let raw = RawEntry {
            e_name_len: u8::try_from(entry.name.len()).map_err(|_| DoesNotFit)?,
            e_name_index: entry.index.0,
            e_value_offs: u16::try_from(offset).map_err(|_| DoesNotFit)?.into(),
            e_value_inum: inode.into(),
            e_value_size: u32::try_from(entry.value.len()).map_err(|_| DoesNotFit)?.into(),
            e_hash: hash.into(),
        };
        put(region, at, raw.as_bytes())?;
        put(region, at + ENTRY_LEN, entry.name)?;
        at += padded(ENTRY_LEN + entry.name.len());
        hashes.push(hash);
    }
    Ok(hashes)
}

fn put(region: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), DoesNotFit> {
    let end = at.checked_add(bytes.len()).ok_or(DoesNotFit)?;
    region.get_mut(at..end).ok_or(DoesNotFit)?.copy_from_slice(bytes);
    Ok(())
}

/// Replaces the attributes in an inode record, in the given order; without any, the space is zeros.
///
/// # Errors
/// [`DoesNotFit`]; the record is unchanged then.
pub fn store_in_inode(inode: &mut Inode, entries: &[Entry<'_>]) -> Result<(), DoesNotFit> {
    let at = OLD_SIZE + usize::from(inode.extra_size());
    if inode.extra_size() == 0 {
        // Without extra fields the space behind byte 128 is not ours to clear.
        return if entries.is_empty() { Ok(()) } else { Err(DoesNotFit) };
    }
    let region = inode.bytes_mut().get_mut(at..).unwrap_or_default();
    if entries.is_empty() {
        region.fill(0);
        return Ok(());
    }
    let mut fresh = vec![0; region.len()];
    let (magic, list) = fresh.split_first_chunk_mut::<INODE_HEADER_LEN>().ok_or(DoesNotFit)?;
    *magic = MAGIC.to_le_bytes();
    // Linux leaves the hash of in-inode values zero.
    encode(list, 0, entries, |_, _| 0)?;
    region.copy_from_slice(&fresh);
    Ok(())
}

/// Fills a block with attributes in the order that Linux searches (index, length of the name, name)
/// and with the number of inodes that refer to it. The checksum is written when the block leaves.
///
/// # Errors
/// [`DoesNotFit`]; the block holds zeros then.
pub fn store_in_block(block: &mut [u8], entries: &[Entry<'_>], references: u32) -> Result<(), DoesNotFit> {
    block.fill(0);
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|entry| (entry.index, entry.name.len(), entry.name));
    let filled = encode(block, HEADER_LEN, &sorted, entry_hash);
    let Ok(hashes) = filled else {
        block.fill(0);
        return Err(DoesNotFit);
    };
    let header = RawHeader {
        h_magic: MAGIC.into(),
        h_refcount: references.into(),
        h_blocks: 1.into(),
        h_hash: block_hash(hashes).into(),
        h_checksum: 0.into(),
        h_reserved: [0.into(); 3],
    };
    put(block, 0, header.as_bytes())
}
