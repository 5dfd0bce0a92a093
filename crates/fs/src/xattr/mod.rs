//! Extended attributes of inodes: reading them wherever they are, storing them where they fit best.
//!
//! Owns: whole names and values, the choice between the inode, a block and inodes of their own, and
//! sharing of equal blocks. Excludes: the bytes ([`ondisk::xattr`], [`ondisk::acl`]) and who may see
//! or change an attribute.
//!
//! Values of `system.posix_acl_*` go in and out in the form of Linux's system calls. The attribute
//! `system.data` holds inline contents; it belongs to [`crate::inline`] and is never listed.

mod layout;
mod store;
#[cfg(test)]
mod tests;
mod value_inode;

use ondisk::acl::Acl;
use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::inode::Inode;
use ondisk::units::{Block, InodeNumber};
use ondisk::xattr::{self, Entry, NameIndex, Value};

use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::volume::Volume;

pub(crate) use store::{release_all, remove, set, set_all};

/// The name of the attribute behind [`NameIndex::SYSTEM`] that holds inline contents.
pub(crate) const INLINE_NAME: &[u8] = b"data";

/// Most bytes of values that [`all`] gathers: an inode can refer to thousands of value inodes, and a
/// hostile one would by that turn one block into hundreds of megabytes.
const ALL_VALUES_MAX: usize = 32 << 20;

/// An attribute taken out of its region.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stored {
    index: NameIndex,
    name: Vec<u8>,
    value: StoredValue,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum StoredValue {
    Here(Vec<u8>),
    Inode { number: InodeNumber, size: u32, hash: u32 },
}

impl Stored {
    fn of(entry: &Entry<'_>) -> Self {
        let value = match entry.value {
            Value::Here(bytes) => StoredValue::Here(bytes.to_vec()),
            Value::Inode { number, size } => StoredValue::Inode { number, size, hash: entry.hash },
        };
        Stored { index: entry.index, name: entry.name.to_vec(), value }
    }

    fn entry(&self) -> Entry<'_> {
        match &self.value {
            StoredValue::Here(bytes) => Entry::here(self.index, &self.name, bytes),
            StoredValue::Inode { number, size, hash } => Entry {
                index: self.index,
                name: &self.name,
                value: Value::Inode { number: *number, size: *size },
                hash: *hash,
            },
        }
    }

    fn full_name(&self) -> Vec<u8> {
        xattr::full_name(self.index, &self.name)
    }

    fn is_inline_data(&self) -> bool {
        self.index == NameIndex::SYSTEM && self.name == INLINE_NAME
    }
}

/// The block of attributes that an inode leads to.
///
/// # Errors
/// One outside the volume, or one of the volume's own.
pub(crate) fn attribute_block(format: &Format, inode: &Inode) -> Result<Option<Block>> {
    let block = inode.attribute_block();
    if block.0 == 0 {
        return Ok(None);
    }
    let refused = format.refuse_foreign(inode.number(), block, 1);
    refused.map_err(|error| match error {
        Error::Corrupt(wrong) => {
            Error::corrupt(Place::Inode(inode.number()), format!("attribute block: {}", wrong.problem()))
        }
        other => other,
    })?;
    Ok(Some(block))
}

/// Every attribute of an inode, inline contents included, without the values in other inodes.
fn stored(blocks: &dyn Blocks, volume: &Volume, inode: &Inode) -> Result<Vec<Stored>> {
    let mut found: Vec<Stored> = xattr::in_inode(inode)?.iter().map(Stored::of).collect();
    if let Some(block) = attribute_block(&volume.format, inode)? {
        let bytes = blocks.read(block, Role::Attributes)?;
        let (_, entries) = xattr::in_block(block, &bytes)?;
        found.extend(entries.iter().map(Stored::of));
    }
    Ok(found)
}

fn listed(blocks: &dyn Blocks, volume: &Volume, inode: &Inode) -> Result<Vec<Stored>> {
    let mut found = stored(blocks, volume, inode)?;
    found.retain(|attribute| !attribute.is_inline_data());
    Ok(found)
}

fn value_of(volume: &Volume, inode: &Inode, attribute: &Stored) -> Result<Vec<u8>> {
    let raw = match &attribute.value {
        StoredValue::Here(bytes) => bytes.clone(),
        StoredValue::Inode { .. } => value_inode::read(volume, inode, &attribute.entry())?,
    };
    if !attribute.index.is_posix_acl() {
        return Ok(raw);
    }
    let acl = Acl::from_disk(&raw);
    let acl = acl.map_err(|problem| Error::corrupt(Place::Xattrs(inode.number()), problem.to_string()))?;
    Ok(acl.to_xattr())
}

/// Attributes of an inode whose values are in inodes of their own.
///
/// # Errors
/// As [`names`].
pub(crate) fn value_inodes(volume: &Volume, inode: &Inode) -> Result<u64> {
    if !volume.format.has_incompat(Incompat::EA_INODE) {
        return Ok(0);
    }
    let found = stored(&*volume.cache, volume, inode)?;
    Ok(found.iter().filter(|attribute| matches!(attribute.value, StoredValue::Inode { .. })).count() as u64)
}

/// The whole names of an inode's attributes, in stored order. Names whose prefix has no meaning
/// begin with `unknown-INDEX.`.
///
/// # Errors
/// Attributes that break the format's rules; the device's failure.
pub(crate) fn names(blocks: &dyn Blocks, volume: &Volume, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    Ok(listed(blocks, volume, inode)?.iter().map(Stored::full_name).collect())
}

/// The value of an attribute by its whole name, or `None` where the inode has no such attribute.
///
/// # Errors
/// As [`names`], and a value inode that is not one or whose hash does not fit.
pub(crate) fn value(
    blocks: &dyn Blocks,
    volume: &Volume,
    inode: &Inode,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let found = listed(blocks, volume, inode)?.into_iter().find(|attribute| attribute.full_name() == name);
    found.map(|attribute| value_of(volume, inode, &attribute)).transpose()
}

/// Whole names and values of all attributes of an inode, sorted by name.
///
/// # Errors
/// As [`value`]; values of more than 32 MiB together.
pub(crate) fn all(blocks: &dyn Blocks, volume: &Volume, inode: &Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut sum = 0_usize;
    let mut found = Vec::new();
    for attribute in listed(blocks, volume, inode)? {
        sum = sum.saturating_add(attribute.entry().value.len());
        if sum > ALL_VALUES_MAX {
            let text = format!("extended attributes of inode {} of more than 32 MiB", inode.number());
            return Err(Error::Unsupported(text));
        }
        found.push((attribute.full_name(), value_of(volume, inode, &attribute)?));
    }
    found.sort_unstable();
    Ok(found)
}
