//! Inode records: reading them from the tables and writing them back, sealed.
//!
//! Owns: where a record stands and its checksum. Excludes: which numbers are in use (`space`).

use ondisk::corrupt::Place;
use ondisk::inode::Inode;
use ondisk::units::InodeNumber;

use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::order::{self, Facts, Tally};
use crate::space::Space;
use crate::txn::Update;

/// What the block of an inode's record is.
pub(crate) fn table_role(format: &Format, number: InodeNumber) -> Role {
    let inside = format.geometry.locate_inode(number).map_or(0, |(_, index)| index);
    let first = number.get() - inside % format.geometry.inodes_per_block();
    InodeNumber::new(first).map_or(Role::Plain, Role::Inodes)
}

/// Reads an inode's record and verifies its checksum. Whether the inode is in use is for the caller
/// to judge.
///
/// # Errors
/// A number behind the last inode, a wrong checksum, an impossible record; the device's failure.
pub fn load(blocks: &dyn Blocks, format: &Format, space: &Space, number: InodeNumber) -> Result<Inode> {
    let (block, offset) = space.inode_place(format, number)?;
    let table = blocks.read(block, table_role(format, number))?;
    let size = usize::from(format.geometry.inode_size);
    let bytes = table.get(offset..offset + size).unwrap_or_default();
    let inode = Inode::parse(number, bytes)?;
    if !format.sealer.inode_is_right(&inode) {
        return Err(Error::corrupt(Place::Inode(number), "checksum is wrong"));
    }
    Ok(inode)
}

/// Seals an inode's record and puts it into the table.
///
/// # Errors
/// The device's failure.
pub fn store(update: &mut Update<'_>, format: &Format, space: &Space, inode: &mut Inode) -> Result<()> {
    format.sealer.seal_inode(inode);
    update.note_changed(inode.number());
    let (block, offset) = space.inode_place(format, inode.number())?;
    let role = table_role(format, inode.number());
    let takes_notes = update.order().takes_notes();
    let table = update.edit(block, role)?;
    let Some(record) = table.get_mut(offset..offset + inode.bytes().len()) else { return Ok(()) };
    let was = if takes_notes { order::facts(record) } else { Facts::default() };
    record.copy_from_slice(inode.bytes());
    let (inode, is) = (inode.number(), order::facts(inode.bytes()));
    if was != is {
        update.note(|notes| notes.tally(Tally::Record { inode, was, is }));
    }
    Ok(())
}

/// Whether the device knows an inode as one in use, whatever the changes that are not committed do to it.
///
/// # Errors
/// A number behind the last inode; the device's failure.
pub(crate) fn was_in_use(
    update: &Update<'_>,
    format: &Format,
    space: &Space,
    number: InodeNumber,
) -> Result<bool> {
    let (block, offset) = space.inode_place(format, number)?;
    let before = update.before(block, table_role(format, number))?;
    let size = usize::from(format.geometry.inode_size);
    Ok(before.is_some_and(|before| order::is_used(before.get(offset..offset + size).unwrap_or_default())))
}
