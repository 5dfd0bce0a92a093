//! Storing attributes: names and values checked, laid out, and written with an tx.

use ondisk::acl::Acl;
use ondisk::features::{Compat, Incompat};
use ondisk::geometry::Geometry;
use ondisk::inode::Inode;
use ondisk::units::{Block, InodeNumber, low_u32};
use ondisk::xattr::{self, Entry, NameIndex, NameProblem, VALUE_MAX, Value};

use super::layout::{AttrLocation, Choice, Item, Rooms, layout};
use super::{Stored, StoredValue, Xattrs, XattrsMut, attribute_block, value_inode};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::tx::Tx;
use ondisk::invariant;

/// Checks a whole name and a value, and brings them into the form of the disk. `None` for an access
/// control list without entries, which stands for none.
fn checked(name: &[u8], value: &[u8]) -> Result<Option<Stored>> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let (index, rest) = xattr::split_name(name).map_err(|problem| {
        let text = format!("extended attribute {}: {problem}", shown());
        match problem {
            NameProblem::UnknownPrefix | NameProblem::Reserved => Error::Unsupported(text),
            NameProblem::TooLong(_) | NameProblem::Malformed => Error::Invalid(text),
        }
    })?;
    if value.len() > VALUE_MAX {
        let text = format!("extended attribute {}: {} bytes, at most {VALUE_MAX}", shown(), value.len());
        return Err(Error::Invalid(text));
    }
    let bytes = if index.is_posix_acl() {
        let acl = Acl::from_xattr(value).and_then(|acl| acl.check().map(|()| acl));
        let acl = acl.map_err(|problem| Error::Invalid(format!("{}: {problem}", shown())))?;
        if acl.entries().is_empty() {
            return Ok(None);
        }
        acl.to_disk()
    } else {
        value.to_vec()
    };
    Ok(Some(Stored { index, name: rest.to_vec(), value: StoredValue::Here(bytes) }))
}

/// True if an attribute can be set by its name at all; others stay as they are.
fn is_settable(attribute: &Stored) -> bool {
    xattr::split_name(&attribute.full_name()).is_ok()
}

impl XattrsMut<'_, '_> {
    fn view(&self) -> Xattrs<'_> {
        self.tx.view().xattrs(self.inode)
    }

    /// Gives the inode exactly these attributes, by whole names, of two with the same name the later;
    /// those that can't be set by name (inline contents, encryption contexts) stay.
    ///
    /// # Errors
    /// A name or value that the format can't hold; [`Error::XattrsTooLarge`]; no space.
    pub(crate) fn set_all(&mut self, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let old = self.view().stored()?;
        if attributes.is_empty() && old.iter().all(|attribute| !is_settable(attribute)) {
            return Ok(());
        }
        let mut wanted: Vec<Stored> = Vec::with_capacity(attributes.len());
        for (name, value) in attributes {
            if let Some(new) = checked(name, value)? {
                replace(&mut wanted, new);
            }
        }
        let mut list: Vec<Stored> = old.iter().filter(|kept| !is_settable(kept)).cloned().collect();
        list.append(&mut wanted);
        self.write(&old, list)
    }

    /// Gives the inode one attribute, by its whole name, in addition to those it has or in place of one
    /// of that name.
    ///
    /// # Errors
    /// As [`XattrsMut::set_all`].
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let Some(new) = checked(name, value)? else {
            return match self.remove(name) {
                Err(Error::NotFound) => Ok(()),
                other => other,
            };
        };
        let old = self.view().stored()?;
        let mut list = old.clone();
        replace(&mut list, new);
        self.write(&old, list)
    }

    /// Takes an attribute from the inode, by its whole name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; names that can't be set; otherwise as [`XattrsMut::set_all`].
    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<()> {
        let old = self.view().stored()?;
        let mut list = old.clone();
        list.retain(|attribute| attribute.full_name() != name || !is_settable(attribute));
        if list.len() == old.len() {
            return Err(Error::NotFound);
        }
        self.write(&old, list)
    }

    fn write(&mut self, old: &[Stored], mut list: Vec<Stored>) -> Result<()> {
        let format = self.tx.format;
        self.announce()?;
        let lost = lost_values(self.tx, self.inode, &list)?;
        let choices = choose(format, self.inode, &list)?;
        for (attribute, choice) in list.iter_mut().zip(&choices) {
            if let (true, StoredValue::Here(value)) = (choice.own_inode, &attribute.value) {
                let size = low_u32(value.len() as u64);
                let (number, value_hash) = value_inode::create(self.tx, self.inode, value)?;
                let entry = Entry::in_value_inode(attribute.index, &attribute.name, number, size, value_hash);
                attribute.value = StoredValue::Inode { number, size, hash: entry.hash };
            }
        }
        let at = |location: AttrLocation| -> Vec<Entry<'_>> {
            let chosen = list.iter().zip(&choices).filter(|(_, choice)| choice.location == location);
            chosen.map(|(attribute, _)| attribute.entry()).collect()
        };
        xattr::store_in_inode(self.inode, &at(AttrLocation::Inode)).map_err(|_| misfit("the inode"))?;
        let more = values_elsewhere(&list) - values_elsewhere(old);
        self.tx.charges.note_values(self.inode.number(), more);
        let charged = charge_of(&format.geometry, self.inode, old);
        self.write_block(&at(AttrLocation::Block))?;
        let size = format.geometry.block_size;
        let others = self.inode.sectors(size).saturating_sub(charged);
        self.inode.set_sectors(others.saturating_add(charge_of(&format.geometry, self.inode, &list)), size);
        lost.into_iter().try_for_each(|number| value_inode::drop_reference(self.tx, number))
    }

    /// Has the volume name the feature `ext_attr`, as Linux does with the first attribute. A loader keeps to the features
    /// that it was asked for.
    fn announce(&mut self) -> Result<()> {
        if self.tx.format.features.compat.contains(Compat::EXT_ATTR) {
            return Ok(());
        }
        if self.tx.session.is_loading() {
            let text = "extended attributes on a volume without the feature ext_attr";
            return Err(Error::Unsupported(text.into()));
        }
        self.tx.name_feature(|features| features.compat |= Compat::EXT_ATTR);
        Ok(())
    }

    /// Brings the attributes that did not fit into the inode into a block: the one it has, where no other inode
    /// shares it; an equal one; or a new one.
    fn write_block(&mut self, entries: &[Entry<'_>]) -> Result<()> {
        let old = attribute_block(self.tx.format, self.inode)?;
        if entries.is_empty() && old.is_none() {
            return Ok(());
        }
        let mut fresh = vec![0; self.tx.format.geometry.block_size.bytes_usize()];
        xattr::store_in_block(&mut fresh, entries, 1).map_err(|_| misfit("the block"))?;
        if let Some(block) = old
            && self.is_kept(block, entries, &fresh)?
        {
            return Ok(());
        }
        if entries.is_empty() {
            self.inode.set_attribute_block(Block(0));
            return Ok(());
        }
        let (block, _) = self.equal_block(&fresh)?;
        self.inode.set_attribute_block(block);
        Ok(())
    }

    /// Puts values that lie in inodes with certain numbers on disk into new ones; whether there were any.
    ///
    /// # Errors
    /// As [`XattrsMut::set_all`].
    pub(crate) fn renew_values(&mut self, is_meant: impl Fn(InodeNumber) -> bool) -> Result<bool> {
        let old = self.view().stored()?;
        let mut list = old.clone();
        let mut has_any = false;
        for attribute in &mut list {
            if let StoredValue::Inode { number, .. } = attribute.value
                && is_meant(number)
            {
                let value = value_inode::read(self.tx.view(), self.inode, &attribute.entry())?;
                attribute.value = StoredValue::Here(value);
                has_any = true;
            }
        }
        if has_any {
            self.write(&old, list)?;
        }
        Ok(has_any)
    }

    /// Gives the inode another block for its attributes, equal to the one that it has: that one lies where nothing may lie,
    /// and nobody shares it from now on. Others that share it already get the new one when it is their turn.
    pub(crate) fn move_block(&mut self) -> Result<()> {
        let Some(old) = attribute_block(self.tx.format, self.inode)? else { return Ok(()) };
        let bytes = self.tx.read(old, Role::Attributes)?;
        let mut fresh = bytes.to_vec();
        let (header, entries) = xattr::in_block(old, &bytes)?;
        let was_last = header.h_refcount.get() == 1;
        xattr::set_references(&mut fresh, 1);
        self.tx.session.attribute_blocks.forget(old);
        let (block, is_new) = self.equal_block(&fresh)?;
        // A block counts once as user of a value inode, however many share it.
        for kept in &entries {
            match kept.value {
                Value::Inode { number, .. } if is_new && !was_last => {
                    value_inode::add_reference(self.tx, number)?
                }
                Value::Inode { number, .. } if !is_new && was_last => {
                    value_inode::drop_reference(self.tx, number)?
                }
                _ => {}
            }
        }
        leave_block(self.tx, old)?;
        self.inode.set_attribute_block(block);
        Ok(())
    }

    /// A block with these attributes, for one more user; whether it is a new one.
    fn equal_block(&mut self, fresh: &[u8]) -> Result<(Block, bool)> {
        let may_share = self.tx.order().shares_attribute_blocks();
        let shared = if may_share { share(self.tx, fresh)? } else { None };
        if let Some(block) = shared {
            return Ok((block, false));
        }
        let home = self.tx.space.home(self.inode.number());
        let (block, _) = self.tx.allocate_metadata(home)?;
        self.tx.create(block, Role::Attributes).copy_from_slice(fresh);
        remember(self.tx, block, fresh);
        Ok((block, true))
    }

    /// Keeps the inode's block if it serves for its entries, or frees it as it has none; false if it is left to its
    /// other users.
    fn is_kept(&mut self, block: Block, entries: &[Entry<'_>], fresh: &[u8]) -> Result<bool> {
        let bytes = self.tx.read(block, Role::Attributes)?;
        let references = xattr::in_block(block, &bytes)?.0.h_refcount.get();
        if entries.is_empty() && references == 1 {
            self.inode.set_attribute_block(Block(0));
            return leave_block(self.tx, block).map(|()| true);
        }
        if references == 1 && self.tx.is_own(block) {
            self.tx.edit(block, Role::Attributes)?.copy_from_slice(fresh);
            remember(self.tx, block, fresh);
            return Ok(true);
        }
        if bytes.get(xattr::HEADER_LEN..) == fresh.get(xattr::HEADER_LEN..) {
            return Ok(true);
        }
        leave_block(self.tx, block)?;
        // A block counts once as user of a value inode, however many share it.
        for kept in xattr::in_block(block, &bytes)?.1 {
            if let (Value::Inode { number, .. }, true) = (kept.value, holds(self.inode, entries, &kept)?) {
                value_inode::add_reference(self.tx, number)?;
            }
        }
        Ok(false)
    }
}

impl Tx<'_> {
    /// Frees what the attributes of an inode take outside of it, for an inode that goes.
    ///
    /// # Errors
    /// Attributes that break the format's rules; blocks that are not theirs to free.
    pub(crate) fn release_xattrs(&mut self, inode: &Inode) -> Result<()> {
        let lost = lost_values(self, inode, &[])?;
        if self.session.quota_files.is_on() {
            let gone = self.view().xattrs(inode).value_inodes()?;
            self.charges.note_values(
                inode.number(),
                -invariant!(i64::try_from(gone), "an inode has few values in inodes of their own"),
            );
        }
        if let Some(block) = attribute_block(self.format, inode)? {
            leave_block(self, block)?;
        }
        lost.into_iter().try_for_each(|number| value_inode::drop_reference(self, number))
    }
}

fn values_elsewhere(list: &[Stored]) -> i64 {
    let elsewhere = list.iter().filter(|stored| matches!(stored.value, StoredValue::Inode { .. }));
    i64::try_from(elsewhere.count()).unwrap_or(i64::MAX)
}

fn replace(list: &mut Vec<Stored>, new: Stored) {
    list.retain(|old| (old.index, &old.name) != (new.index, &new.name));
    list.push(new);
}

fn item(attribute: &Stored) -> Item {
    let value_len = match &attribute.value {
        StoredValue::Here(bytes) => Some(bytes.len()),
        StoredValue::Inode { .. } => None,
    };
    let hot = attribute.index.is_posix_acl() || attribute.index == NameIndex::SECURITY;
    Item { name_len: attribute.name.len(), value_len, pinned: attribute.is_inline_data(), hot }
}

fn choose(format: &Format, inode: &Inode, list: &[Stored]) -> Result<Vec<Choice>> {
    let rooms = Rooms {
        inode: xattr::room_in_inode(inode),
        block: xattr::room_in_block(format.geometry.block_size.bytes_usize()),
        value_inodes: format.has_incompat(Incompat::EA_INODE),
    };
    let items: Vec<Item> = list.iter().map(item).collect();
    let choices = layout(&items, rooms);
    // e2fsck takes a short symbolic link for one with blocks if space is charged to it and there is no
    // attribute block.
    let misread = |choices: &Vec<Choice>| {
        let elsewhere =
            items.iter().zip(choices).any(|(item, choice)| choice.own_inode || item.value_len.is_none());
        elsewhere && choices.iter().all(|choice| choice.location == AttrLocation::Inode)
    };
    if inode.is_fast_symlink()
        && choices.as_ref().is_some_and(misread)
        && let Some(choices) = layout(&items, Rooms { inode: 0, ..rooms })
    {
        return Ok(choices);
    }
    choices.ok_or_else(|| {
        let needed = items.iter().map(|item| xattr::space_of(item.name_len, item.value_len.unwrap_or(0)));
        let needed = needed.fold(0, usize::saturating_add);
        let remedy = if rooms.value_inodes { "" } else { "; the feature ea_inode takes large values" };
        let Rooms { inode, block, .. } = rooms;
        Error::XattrsTooLarge(format!(
            "{needed} bytes into {inode} in the inode and {block} in a block{remedy}"
        ))
    })
}

/// The value inodes that an inode refers to by itself or by a block of its own, and no longer will. A
/// shared block keeps its references.
fn lost_values(tx: &Tx<'_>, inode: &Inode, list: &[Stored]) -> Result<Vec<InodeNumber>> {
    let mut own: Vec<Stored> = xattr::in_inode(inode)?.iter().map(Stored::from_entry).collect();
    if let Some(block) = attribute_block(tx.format, inode)? {
        let bytes = tx.read(block, Role::Attributes)?;
        let (header, entries) = xattr::in_block(block, &bytes)?;
        if header.h_refcount.get() == 1 {
            own.extend(entries.iter().map(Stored::from_entry));
        }
    }
    let lost = |was: Stored| match was.value {
        StoredValue::Inode { number, .. } if !list.iter().any(|kept| kept.value == was.value) => Some(number),
        _ => None,
    };
    Ok(own.into_iter().filter_map(lost).collect())
}

/// One user less of an attribute block; the last frees it.
fn leave_block(tx: &mut Tx<'_>, block: Block) -> Result<()> {
    let bytes = tx.read(block, Role::Attributes)?;
    let references = xattr::in_block(block, &bytes)?.0.h_refcount.get();
    if references > 1 {
        xattr::set_references(tx.edit(block, Role::Attributes)?, references - 1);
        return Ok(());
    }
    tx.session.attribute_blocks.forget(block);
    tx.free_metadata(block)?;
    Ok(())
}

/// Sectors charged to an inode for its attributes: a cluster for the block, shared or not, and every
/// value in an inode of its own, rounded up to clusters.
fn charge_of(geometry: &Geometry, inode: &Inode, list: &[Stored]) -> u64 {
    let sectors_log2 = geometry.block_size.log2() + geometry.cluster_log2 - 9;
    let clusters_of = |attribute: &Stored| match attribute.value {
        StoredValue::Inode { size, .. } => u64::from(size).div_ceil(512 << sectors_log2),
        StoredValue::Here(_) => 0,
    };
    let block = u64::from(inode.attribute_block().0 != 0);
    (block + list.iter().map(clusters_of).sum::<u64>()) << sectors_log2
}

/// The layout was computed for the same rooms, so this is not met; it is an error, not a panic, to
/// stay safe beside later changes.
fn misfit(place: &str) -> Error {
    Error::XattrsTooLarge(format!("the layout for {place} did not hold"))
}

/// True if an entry of a former block is now in the inode or among the entries of the next block.
fn holds(inode: &Inode, entries: &[Entry<'_>], kept: &Entry<'_>) -> Result<bool> {
    let same = |entry: &Entry<'_>| entry.value == kept.value;
    Ok(entries.iter().any(same) || xattr::in_inode(inode)?.iter().any(same))
}

/// Takes one more reference to a known block with the same entries as `fresh`.
fn share(tx: &mut Tx<'_>, fresh: &[u8]) -> Result<Option<Block>> {
    let Some(block) = tx.session.attribute_blocks.like(fresh) else { return Ok(None) };
    let bytes = tx.read(block, Role::Attributes)?;
    let references = xattr::in_block(block, &bytes)?.0.h_refcount.get();
    let equal = bytes.get(xattr::HEADER_LEN..) == fresh.get(xattr::HEADER_LEN..);
    if !equal || references >= xattr::REFERENCES_MAX {
        return Ok(None);
    }
    xattr::set_references(tx.edit(block, Role::Attributes)?, references + 1);
    Ok(Some(block))
}

/// Notes a block that this update fills with `fresh`: others share it from its commit on.
fn remember(tx: &mut Tx<'_>, block: Block, fresh: &[u8]) {
    tx.session.attribute_blocks.forget(block);
    tx.filled.note(block, fresh);
}
