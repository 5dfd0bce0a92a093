//! Extended attributes of inodes: reading them wherever they are, storing them where they fit best.
//!
//! Owns: whole names and values, the choice between the inode, a block and inodes of their own, and
//! sharing of equal blocks. Excludes: the bytes ([`ondisk::xattr`], [`ondisk::acl`]) and the rights to see
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

use crate::cache::Role;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::inline::INLINE_NAME;
use crate::tx::{Tx, View};

/// Most bytes of values that [`Xattrs::all`] gathers: an inode can refer to thousands of value inodes, and a
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
    fn from_entry(entry: &Entry<'_>) -> Self {
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

/// The extended attributes of an inode, to read.
#[derive(Clone, Copy)]
pub(crate) struct Xattrs<'a> {
    view: View<'a>,
    inode: &'a Inode,
}

/// The extended attributes of an inode, to change. The inode is changed in memory only, blocks in the update.
pub(crate) struct XattrsMut<'t, 'v> {
    tx: &'t mut Tx<'v>,
    inode: &'t mut Inode,
}

impl<'a> View<'a> {
    /// The extended attributes of an inode.
    pub(crate) fn xattrs(self, inode: &'a Inode) -> Xattrs<'a> {
        Xattrs { view: self, inode }
    }
}

impl<'v> Tx<'v> {
    /// The extended attributes of an inode, to change.
    pub(crate) fn xattrs<'t>(&'t mut self, inode: &'t mut Inode) -> XattrsMut<'t, 'v> {
        XattrsMut { tx: self, inode }
    }
}

impl Xattrs<'_> {
    /// Every attribute, inline contents included, without the values in other inodes.
    fn stored(self) -> Result<Vec<Stored>> {
        let mut found: Vec<Stored> = xattr::in_inode(self.inode)?.iter().map(Stored::from_entry).collect();
        if let Some(block) = attribute_block(self.view.format, self.inode)? {
            let bytes = self.view.blocks.read(block, Role::Attributes)?;
            let (_, entries) = xattr::in_block(block, &bytes)?;
            found.extend(entries.iter().map(Stored::from_entry));
        }
        Ok(found)
    }

    fn listed(self) -> Result<Vec<Stored>> {
        let mut found = self.stored()?;
        found.retain(|attribute| !attribute.is_inline_data());
        Ok(found)
    }

    fn value_of(self, attribute: &Stored) -> Result<Vec<u8>> {
        let raw = match &attribute.value {
            StoredValue::Here(bytes) => bytes.clone(),
            StoredValue::Inode { .. } => value_inode::read(self.view, self.inode, &attribute.entry())?,
        };
        if !attribute.index.is_posix_acl() {
            return Ok(raw);
        }
        let acl = Acl::from_disk(&raw);
        let place = Place::Xattrs(self.inode.number());
        Ok(acl.map_err(|problem| Error::corrupt(place, problem.to_string()))?.to_xattr())
    }

    /// Attributes whose values are in inodes of their own.
    ///
    /// # Errors
    /// As [`Xattrs::names`].
    pub(crate) fn value_inodes(self) -> Result<u64> {
        if !self.view.format.has_incompat(Incompat::EA_INODE) {
            return Ok(0);
        }
        let is_elsewhere = |attribute: &&Stored| matches!(attribute.value, StoredValue::Inode { .. });
        Ok(self.stored()?.iter().filter(is_elsewhere).count() as u64)
    }

    /// True if an inode above a number on disk has a value.
    ///
    /// # Errors
    /// As [`Xattrs::names`].
    pub(crate) fn has_values_above(self, last: u32) -> Result<bool> {
        let is_above = |attribute: &Stored| matches!(attribute.value, StoredValue::Inode { number, .. } if number.get() > last);
        Ok(self.stored()?.iter().any(is_above))
    }

    /// True if an inode with a value names this one as its owner, as those of Lustre do.
    ///
    /// # Errors
    /// As [`Xattrs::names`].
    pub(crate) fn is_named_by_values(self) -> Result<bool> {
        if !self.view.format.has_incompat(Incompat::EA_INODE) {
            return Ok(false);
        }
        let owner = self.inode;
        for attribute in self.stored()? {
            if let StoredValue::Inode { number, .. } = attribute.value
                && value_inode::names(self.view, owner, number)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The whole names, in stored order. Names whose prefix has no meaning begin with `unknown-INDEX.`.
    ///
    /// # Errors
    /// Attributes that break the format's rules; the device's failure.
    pub(crate) fn names(self) -> Result<Vec<Vec<u8>>> {
        Ok(self.listed()?.iter().map(Stored::full_name).collect())
    }

    /// The value of an attribute by its whole name, or `None` where the inode has no such attribute.
    ///
    /// # Errors
    /// As [`Xattrs::names`], and a value inode that is not one or whose hash does not fit.
    pub(crate) fn value(self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.listed()?.into_iter().find(|attribute| attribute.full_name() == name);
        found.map(|attribute| self.value_of(&attribute)).transpose()
    }

    /// Whole names and values of all attributes, sorted by name.
    ///
    /// # Errors
    /// As [`Xattrs::value`]; values of more than 32 MiB together.
    pub(crate) fn all(self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut sum = 0_usize;
        let mut found = Vec::new();
        for attribute in self.listed()? {
            sum = sum.saturating_add(attribute.entry().value.len());
            if sum > ALL_VALUES_MAX {
                let number = self.inode.number();
                let text = format!("extended attributes of inode {number} of more than 32 MiB");
                return Err(Error::Unsupported(text));
            }
            found.push((attribute.full_name(), self.value_of(&attribute)?));
        }
        found.sort_unstable();
        Ok(found)
    }
}
