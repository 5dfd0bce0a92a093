//! Inode records: reading them from the tables and writing them back, sealed.
//!
//! Owns: where a record stands and its checksum. Excludes: which numbers are in use (`space`).

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, InodeNumber, saturated};
use ondisk::xattr::{self, Entry, Value};

use crate::bytes;
use crate::cache::Role;
use crate::charges::Holding;
use crate::error::{Error, Result};
use crate::order::{self, Facts, LinkDelta};
use crate::tx::{Tx, View};

impl View<'_> {
    /// The block of an inode's record, what that block is, and the record's offset in it.
    fn record(self, number: InodeNumber) -> Result<(Block, Role, usize)> {
        self.record_on_disk(self.format.physical_number(number))
    }

    /// As `record`, by the number on disk.
    fn record_on_disk(self, number: InodeNumber) -> Result<(Block, Role, usize)> {
        let (block, inside) = self.space.record_on_disk(number)?;
        let first = InodeNumber::new(number.get() - inside);
        let offset = inside as usize * usize::from(self.format.geometry.inode_size);
        Ok((block, first.map_or(Role::Plain, Role::Inodes), offset))
    }

    /// Reads an inode's record and verifies its checksum. Whether the inode is in use is for the caller
    /// to judge.
    ///
    /// # Errors
    /// A number behind the last inode, a wrong checksum, an impossible record; the device's failure.
    pub(crate) fn inode(self, number: InodeNumber) -> Result<Inode> {
        self.format.numbers.between(|| {
            let on_disk = self.format.physical_number(number);
            let (block, role, offset) = self.record_on_disk(on_disk)?;
            let table = self.blocks.read(block, role)?;
            let size = usize::from(self.format.geometry.inode_size);
            let inode = Inode::parse(number, bytes::part(&table, offset..offset + size)?)?;
            if !self.format.sealer.inode_is_right_as(on_disk, &inode) {
                return Err(Error::corrupt(Place::Inode(number), "checksum is wrong"));
            }
            Ok(inode.narrowed(!self.format.has_incompat(Incompat::BIT64)))
        })
    }
}

impl View<'_> {
    /// Attributes of an inode whose values are in inodes of their own: each counts as an inode of the owner.
    fn values_elsewhere(self, inode: &Inode) -> Result<i64> {
        if !self.format.has_incompat(Incompat::EA_INODE) {
            return Ok(0);
        }
        let count = |entries: &[Entry<'_>]| {
            let elsewhere = entries.iter().filter(|entry| matches!(entry.value, Value::Inode { .. }));
            i64::try_from(elsewhere.count()).unwrap_or(i64::MAX)
        };
        let here = count(&xattr::in_inode(inode)?);
        let block = inode.attribute_block();
        if block.0 == 0 {
            return Ok(here);
        }
        let bytes = self.blocks.read(block, Role::Attributes)?;
        Ok(here.saturating_add(count(&xattr::in_block(block, &bytes)?.1)))
    }
}

impl Tx<'_> {
    /// An inode as this update leaves it.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub(crate) fn inode(&self, number: InodeNumber) -> Result<Inode> {
        self.view().inode(number)
    }

    /// Seals an inode's record and puts it into the table.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn store(&mut self, inode: &mut Inode) -> Result<()> {
        self.format.sealer.seal_inode_as(self.format.physical_number(inode.number()), inode);
        self.note_changed(inode.number());
        let (block, role, offset) = self.view().record(inode.number())?;
        let takes_notes = self.order().takes_notes();
        let counts = self.session.quota_files.counts(inode.number());
        let (size, inodes) = (self.format.geometry.block_size, self.format.geometry.inodes());
        let table = self.edit(block, role)?;
        let record = bytes::part_mut(table, offset..offset + inode.bytes().len())?;
        let is_awaited = inode.differs_beyond_times(record);
        let was = if takes_notes { order::facts(record) } else { Facts::default() };
        let held = counts.then(|| Holding::of_inode(&Inode::unjudged(inode.number(), record), size, inodes));
        record.copy_from_slice(inode.bytes());
        let (number, is) = (inode.number(), order::facts(inode.bytes()));
        if is_awaited {
            self.note_awaited(number);
        }
        if was != is {
            self.note(|notes| notes.add_delta(LinkDelta::Record { inode: number, was, is }));
        }
        if let Some(held) = held {
            let holds = Holding::of_inode(inode, size, inodes);
            let mut charges = std::mem::take(&mut self.charges);
            let done = charges.stored(number, held, holds, || self.view().values_elsewhere(inode));
            self.charges = charges;
            done?;
        }
        Ok(())
    }

    /// True if an inode is in use on the device, whatever uncommitted changes do to it.
    ///
    /// # Errors
    /// A number behind the last inode; the device's failure.
    pub(crate) fn was_in_use(&self, number: InodeNumber) -> Result<bool> {
        let (block, role, offset) = self.view().record(number)?;
        let before = self.before(block, role)?;
        let size = usize::from(self.format.geometry.inode_size);
        match before {
            Some(before) => Ok(order::is_used(bytes::part(&before, offset..offset + size)?)),
            None => Ok(false),
        }
    }

    /// Puts a record to where the inode of a number on disk has its own. What it holds is charged to nobody.
    ///
    /// # Errors
    /// The device's failure.
    pub(crate) fn store_at(&mut self, number: InodeNumber, inode: &mut Inode) -> Result<()> {
        self.format.sealer.seal_inode_as(number, inode);
        let (block, role, offset) = self.view().record_on_disk(number)?;
        let table = self.edit(block, role)?;
        Ok(bytes::put(table, offset, inode.bytes())?)
    }

    /// Frees an inode that has nothing left. Its record keeps the generation and the time.
    ///
    /// # Errors
    /// A broken bitmap; the device's failure.
    pub(crate) fn free_inode(&mut self, node: &Inode, file_type: FileType) -> Result<()> {
        let mut gone = self.gone(node);
        self.store(&mut gone)?;
        self.space_mut()?.free_inode(node.number(), file_type)
    }

    /// The record of an inode once it is free.
    pub(crate) fn gone(&self, node: &Inode) -> Inode {
        let geometry = &self.format.geometry;
        let mut gone = Inode::blank(node.number(), geometry.inode_size);
        // A time as low as an inode number would be taken for a link of the orphan list.
        let written = self.session.superblock().times().written;
        let least = written.max(u64::from(geometry.inodes()) + 1);
        // A clock before that least time counts as that time, and one behind 2106 as the last second that the field can say.
        let now = self.context.now.since_1970().max(least);
        gone.raw_mut().i_generation = node.raw().i_generation;
        gone.raw_mut().i_dtime.set(saturated::<u32>(now));
        gone
    }
}
