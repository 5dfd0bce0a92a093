//! Values in inodes of their own (`ea_inode`).
//!
//! A value inode has no name. Its record keeps, in fields that it has no use for, the number of
//! attributes that refer to it (high half in the change time, low half in the version) and the hash
//! of the value (in the access time). Source: the ext4 data structure documentation of Linux
//! ("Extended Attributes", "EA Inodes").

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{InodeNumber, high_u32, join_u64, low_u32};
use ondisk::xattr::{Entry, VALUE_MAX, Value};
use placement::InodeRequest;

use crate::error::{Error, Result};
use crate::file::{Allocation, WriteHint};
use crate::ranges::FileBlocks;
use crate::tx::{Tx, View};

/// Permissions of value inodes, as Linux makes them: no program opens them by name.
const MODE: u16 = 0o600;

/// Reads the value of an entry that refers to an inode, and verifies it as Linux does.
pub(super) fn read(view: View<'_>, owner: &Inode, entry: &Entry<'_>) -> Result<Vec<u8>> {
    let Value::Inode { number, size } = entry.value else { return Ok(Vec::new()) };
    let bad = |problem: String| {
        let text = format!("value in inode {number}: {problem}");
        Error::corrupt(Place::Xattrs(owner.number()), text)
    };
    if size as usize > VALUE_MAX {
        return Err(bad(format!("{size} bytes, at most {VALUE_MAX}")));
    }
    let inode = view.inode(view.format.logical_number(number))?;
    if !inode.flags().contains(InodeFlags::EA_INODE) || inode.file_type() != Some(FileType::Regular) {
        return Err(bad("not an inode for values".into()));
    }
    if inode.size() != u64::from(size) || inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Err(bad(format!("holds {} bytes instead of {size}", inode.size())));
    }
    let bytes = view.contents(&inode).read_all(VALUE_MAX as u64)?;
    let hash = view.format.sealer.attribute_value_hash(&bytes);
    let right = inode.raw().i_atime.get() == hash && entry.agrees_with_value_inode(hash);
    if right || is_of_lustre(view, owner, &inode) {
        Ok(bytes)
    } else {
        Err(bad("the hash does not fit".into()))
    }
}

/// Value inodes of Lustre name their only owner instead of counting and hashing.
fn is_of_lustre(view: View<'_>, owner: &Inode, inode: &Inode) -> bool {
    let number = view.format.physical_number(owner.number());
    inode.raw().i_mtime.get() == number.get() && inode.generation() == owner.generation()
}

/// True if the inode of a value names its owner.
pub(super) fn names(view: View<'_>, owner: &Inode, number: InodeNumber) -> Result<bool> {
    Ok(is_of_lustre(view, owner, &view.inode(view.format.logical_number(number))?))
}

/// Puts a value into a new inode with one reference; returns the inode, as it is called on disk, and the hash of the
/// value.
pub(super) fn create(tx: &mut Tx<'_>, owner: &Inode, value: &[u8]) -> Result<(InodeNumber, u32)> {
    let request = InodeRequest {
        parent: tx.format.physical_number(owner.number()).index(),
        is_directory: false,
        top_level: false,
        name_hash: 0,
        seeded_hash: 0,
        sequential: true,
    };
    let number = tx.space_mut()?.allocate_inode(&request, FileType::Regular)?;
    let hash = tx.format.sealer.attribute_value_hash(value);
    let mut inode = Inode::blank(number, tx.format.geometry.inode_size);
    let raw = inode.raw_mut();
    raw.i_mode.set(FileType::Regular.mode_bits() | MODE);
    raw.i_links_count.set(1);
    raw.i_version_lo.set(1);
    raw.i_atime.set(hash);
    inode.set_owner(owner.uid(), owner.gid());
    inode.set_flags(InodeFlags::EA_INODE);
    tx.map(&mut inode).init();
    let hint = WriteHint { end: value.len() as u64, growing: false, reserved: false };
    tx.contents(&mut inode).write(&mut Allocation::default(), 0, value, &hint)?;
    tx.store(&mut inode)?;
    Ok((tx.format.physical_number(number), hash))
}

/// Counts one more attribute that refers to a value inode.
pub(super) fn add_reference(tx: &mut Tx<'_>, number: InodeNumber) -> Result<()> {
    let mut inode = tx.inode(tx.format.logical_number(number))?;
    let raw = inode.raw_mut();
    let references = join_u64(raw.i_ctime.get(), raw.i_version_lo.get()).saturating_add(1);
    raw.i_ctime.set(high_u32(references));
    raw.i_version_lo.set(low_u32(references));
    tx.store(&mut inode)
}

/// Counts one attribute less that refers to a value inode; the last one frees it.
pub(super) fn drop_reference(tx: &mut Tx<'_>, number: InodeNumber) -> Result<()> {
    let mut inode = tx.inode(tx.format.logical_number(number))?;
    if !inode.flags().contains(InodeFlags::EA_INODE) || inode.file_type() != Some(FileType::Regular) {
        let text = format!("value in inode {number}: not an inode for values");
        return Err(Error::corrupt(Place::Xattrs(number), text));
    }
    let raw = inode.raw_mut();
    let references = join_u64(raw.i_ctime.get(), raw.i_version_lo.get()).saturating_sub(1);
    raw.i_ctime.set(high_u32(references));
    raw.i_version_lo.set(low_u32(references));
    if references > 0 {
        return tx.store(&mut inode);
    }
    tx.map(&mut inode).unmap(FileBlocks::ALL)?;
    tx.free_inode(&inode, FileType::Regular)
}
