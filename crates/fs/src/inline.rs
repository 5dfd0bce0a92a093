//! Contents kept in the inode itself (`inline_data`): 60 bytes of `i_block` and the attribute
//! `system.data`.
//!
//! Owns: taking such contents apart and together. Excludes: how a directory divides these bytes.
//! Source: the ext4 data structure documentation of Linux ("Inline Data").

use ondisk::corrupt::Place;
use ondisk::extent::{Entries, Node};
use ondisk::features::Incompat;
use ondisk::inode::{I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::xattr::{self, Entry, NameIndex, Value};

use crate::bytes;
use crate::error::{Error, Result};
use crate::tx::Tx;

/// The name of the attribute behind [`NameIndex::SYSTEM`] that holds inline contents.
pub(crate) const INLINE_NAME: &[u8] = b"data";

fn is_inline_data(entry: &Entry<'_>) -> bool {
    entry.index == NameIndex::SYSTEM && entry.name == INLINE_NAME
}

/// The two parts of inline contents: the bytes of `i_block` and those of `system.data`.
///
/// # Errors
/// Attributes that break the format's rules; a value outside the inode.
pub(crate) fn parts(inode: &Inode) -> Result<(&[u8; I_BLOCK_LEN], &[u8])> {
    let entries = xattr::in_inode(inode)?;
    let rest = match entries.into_iter().find(is_inline_data).map(|entry| entry.value) {
        Some(Value::Here(bytes)) => bytes,
        None => &[],
        Some(Value::Inode { .. }) => {
            return Err(Error::corrupt(Place::Inode(inode.number()), "inline contents in another inode"));
        }
    };
    Ok((&inode.raw().i_block, rest))
}

/// The contents of a file or symbolic link that is inline, up to the inode's size.
///
/// # Errors
/// As [`parts`]; a size beyond what is there.
pub(crate) fn contents(inode: &Inode) -> Result<Vec<u8>> {
    let (first, rest) = parts(inode)?;
    let size = usize::try_from(inode.size()).ok().filter(|size| *size <= first.len() + rest.len());
    let size = size.ok_or_else(|| {
        let problem = format!("size {} with {} bytes inline", inode.size(), first.len() + rest.len());
        Error::corrupt(Place::Inode(inode.number()), problem)
    })?;
    let mut bytes = [first.as_slice(), rest].concat();
    bytes.truncate(size);
    Ok(bytes)
}

/// True if the map of an inode may lead anywhere, judged by its root alone.
fn has_blocks(inode: &Inode) -> bool {
    let root = &inode.raw().i_block;
    let flags = inode.flags();
    if flags.contains(InodeFlags::EXTENTS) {
        !Node::parse(root).is_ok_and(|node| matches!(node.entries, Entries::Leaf(list) if list.is_empty()))
    } else {
        !flags.contains(InodeFlags::INLINE_DATA) && root.iter().any(|byte| *byte != 0)
    }
}

impl Tx<'_> {
    /// Turns an inline file into an empty mapped one and returns its contents, for it to outgrow the
    /// inode. The inode is changed in memory only.
    ///
    /// # Errors
    /// As [`contents`].
    pub(crate) fn take_inline(&mut self, inode: &mut Inode) -> Result<Vec<u8>> {
        let bytes = contents(inode)?;
        let before = inode.clone();
        let mut entries = xattr::in_inode(&before)?;
        entries.retain(|entry| !is_inline_data(entry));
        // Fewer entries than were there: they fit.
        xattr::store_in_inode(inode, &entries)
            .map_err(|problem| Error::corrupt(Place::Xattrs(before.number()), problem.to_string()))?;
        inode.raw_mut().i_block = [0; I_BLOCK_LEN];
        inode.set_flags(inode.flags().difference(InodeFlags::INLINE_DATA));
        inode.set_size(0);
        self.map(inode).init();
        Ok(bytes)
    }

    /// Keeps the contents of a new regular file or directory in its inode, if the volume does so and they fit beside
    /// the attributes; sets its size then. Says whether it was done; an inode that has blocks, or whose
    /// contents do not fit, is unchanged. Empty files need nothing and stay mapped, as Linux
    /// makes them.
    ///
    /// # Errors
    /// Attributes that break the format's rules.
    pub(crate) fn store_inline(&self, inode: &mut Inode, contents: &[u8]) -> Result<bool> {
        if !self.format.has_incompat(Incompat::INLINE_DATA) || contents.is_empty() || has_blocks(inode) {
            return Ok(false);
        }
        let (first, rest) = contents.split_at(contents.len().min(I_BLOCK_LEN));
        let mut head = [0; I_BLOCK_LEN];
        bytes::put(&mut head, 0, first)?;
        if !store_parts(inode, &head, rest)? {
            return Ok(false);
        }
        inode.set_flags(inode.flags().difference(InodeFlags::EXTENTS) | InodeFlags::INLINE_DATA);
        inode.set_size(contents.len() as u64);
        Ok(true)
    }
}

/// Stores both parts of inline contents beside the other attributes; `false` if the inode has no room for that, and is
/// unchanged.
///
/// # Errors
/// Attributes that break the format's rules.
pub(crate) fn store_parts(inode: &mut Inode, head: &[u8], tail: &[u8]) -> Result<bool> {
    let before = inode.clone();
    // Linux looks for the attribute even if it is empty.
    let data = Entry::here(NameIndex::SYSTEM, INLINE_NAME, tail);
    let others = xattr::in_inode(&before)?.into_iter().filter(|entry| !is_inline_data(entry));
    let entries: Vec<Entry<'_>> = std::iter::once(data).chain(others).collect();
    if xattr::store_in_inode(inode, &entries).is_err() {
        return Ok(false);
    }
    bytes::put(&mut inode.raw_mut().i_block, 0, head)?;
    Ok(true)
}

/// Puts both parts of inline contents back, at their old lengths.
///
/// # Errors
/// Attributes that break the format's rules.
pub(crate) fn set_parts(inode: &mut Inode, head: &[u8], tail: &[u8]) -> Result<()> {
    let problem = "its contents don't fit it any more";
    let stored = store_parts(inode, head, tail)?;
    stored.then_some(()).ok_or_else(|| Error::corrupt(Place::Xattrs(inode.number()), problem))
}

/// More bytes than these never fit into an inode.
pub(crate) fn capacity_max(inode: &Inode) -> usize {
    inode.bytes().len()
}
