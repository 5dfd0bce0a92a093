//! The resize inode: it owns the descriptor blocks kept for growth, and names them and their copies.

use crate::error::corrupt;
use crate::{Error, Result};
use ondisk::corrupt::Place;
use ondisk::geometry::Geometry;
use ondisk::inode::Inode;
use ondisk::seal::Sealer;
use ondisk::units::{Block, InodeNumber};
use platfs::mkfs::layout::{Tables, fill_resize_inode, reserved_blocks, reserved_copies, superblock_groups};
use platfs_device::Device;

/// Slot of the pointer to the double-indirect block.
const DOUBLE: usize = 13;

/// Where an inode's record lies; its bytes.
pub(super) fn record(
    device: &dyn Device,
    geometry: &Geometry,
    tables: &[Tables],
    number: InodeNumber,
) -> Result<(u64, Inode)> {
    let outside = || corrupt(Place::Inode(number), "lies in no group");
    let (group, index) = geometry.locate_inode(number).ok_or_else(outside)?;
    let table = tables.get(group.0 as usize).ok_or_else(outside)?.inode_table;
    let size = usize::from(geometry.inode_size);
    let offset = geometry.byte_offset(Block(table)) + u64::from(index) * size as u64;
    let mut bytes = vec![0; size];
    device.read_at(offset, &mut bytes).map_err(Error::io(format!("reading inode {number}")))?;
    Ok((offset, Inode::parse(number, &bytes)?))
}

/// The double-indirect block of the resize inode.
pub(super) fn top(inode: &Inode, geometry: &Geometry) -> Result<Block> {
    let pointer = platfs_device::map::words(&inode.raw().i_block).nth(DOUBLE).unwrap_or(0);
    let block = Block(u64::from(pointer));
    if pointer == 0 || !geometry.contains(block, 1) {
        return Err(corrupt(Place::Map(InodeNumber::RESIZE), "leads outside; `plat check` repairs it"));
    }
    Ok(block)
}

/// Stores what follows from the new shape, with the double-indirect block at `top`.
pub(super) fn store(
    device: &dyn Device,
    geometry: &Geometry,
    tables: &[Tables],
    sealer: &Sealer,
    top: Block,
) -> Result<()> {
    let put = |offset: u64, bytes: &[u8]| {
        device.write_at(offset, bytes).map_err(Error::io("writing the resize inode"))
    };
    let (offset, mut inode) = record(device, geometry, tables, InodeNumber::RESIZE)?;
    let bytes = fill_resize_inode(geometry, &mut inode, top);
    put(geometry.byte_offset(top), &bytes)?;
    sealer.seal_inode(&mut inode);
    put(offset, inode.bytes())?;
    let backups = superblock_groups(geometry);
    let mut copies = vec![0; geometry.block_size.bytes_usize()];
    for block in reserved_blocks(geometry) {
        reserved_copies(geometry, backups.get(1..).unwrap_or_default(), block, &mut copies);
        put(geometry.byte_offset(block), &copies)?;
    }
    Ok(())
}

/// Empties the resize inode of a volume that has outgrown it.
pub(super) fn clear(device: &dyn Device, geometry: &Geometry, tables: &[Tables]) -> Result<()> {
    let (offset, mut inode) = record(device, geometry, tables, InodeNumber::RESIZE)?;
    inode.bytes_mut().fill(0);
    device.write_at(offset, inode.bytes()).map_err(Error::io("writing the resize inode"))
}
