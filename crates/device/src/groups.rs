//! Group descriptors as replay needs them: where one inode's record lies, and what is free in all.
//!
//! Excludes: keeping descriptors in memory, and judging more of them than is used.

use ondisk::corrupt::Place;
use ondisk::group::RawGroupDescriptor;
use ondisk::inode::Inode;
use ondisk::invariant;
use ondisk::units::{Block, Group, InodeNumber};

use crate::superblock::Format;
use crate::{Device, Error, Result};

/// Most bytes of descriptors that are read: those of 1 PiB in blocks of 4 KiB. A hostile superblock on a sparse
/// file could ask for a thousand times as much.
const TABLE_MAX: u64 = 512 << 20;

/// Free counts of a volume, as its superblock has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    pub(crate) blocks: u64,
    pub(crate) inodes: u32,
}

/// Sums the free counts of all groups: the truth of which the superblock has a copy.
///
/// # Errors
/// A broken descriptor; the device's failure.
pub(crate) fn sums(device: &dyn Device, format: &Format) -> Result<Sums> {
    let geometry = &format.geometry;
    let bytes = u64::from(geometry.descriptor_blocks()) << geometry.block_size.log2();
    if bytes > TABLE_MAX {
        return Err(Error::Unsupported(format!("{bytes} bytes of group descriptors, at most {TABLE_MAX}")));
    }
    let per_block = geometry.descriptors_per_block();
    let (mut clusters, mut inodes) = (0_u64, 0_u32);
    for index in 0..geometry.descriptor_blocks() {
        let block = read_block(device, format, index)?;
        let first = index.saturating_mul(per_block);
        let end = first.saturating_add(per_block).min(geometry.groups);
        for group in (first..end).map(Group) {
            let raw = parse(format, group, &block)?;
            clusters += u64::from(raw.free_clusters());
            inodes = inodes.saturating_add(raw.free_inodes());
        }
    }
    Ok(Sums { blocks: clusters << geometry.cluster_log2, inodes })
}

/// Reads an inode's record and verifies its checksum.
///
/// # Errors
/// A number behind the last inode, a wrong checksum, an impossible record; the device's failure.
pub(crate) fn inode(device: &dyn Device, format: &Format, number: InodeNumber) -> Result<Inode> {
    let geometry = &format.geometry;
    let Some((group, index)) = geometry.locate_inode(number) else {
        let problem = format!("the volume has {} inodes", geometry.inodes());
        return Err(Error::corrupt(Place::Inode(number), problem));
    };
    let block = read_block(device, format, group.0 / geometry.descriptors_per_block().max(1))?;
    let table = parse(format, group, &block)?.inode_table();
    let size = usize::from(geometry.inode_size);
    let offset = geometry.byte_offset(table) + u64::from(index) * size as u64;
    let mut bytes = vec![0; size];
    device
        .read_at(offset, &mut bytes)
        .map_err(|source| Error::io(format!("reading inode {number}"), source))?;
    let inode = Inode::parse(number, &bytes)?;
    if !format.sealer.inode_is_right(&inode) {
        return Err(Error::corrupt(Place::Inode(number), "checksum is wrong"));
    }
    Ok(inode)
}

fn read_block(device: &dyn Device, format: &Format, index: u32) -> Result<Vec<u8>> {
    let geometry = &format.geometry;
    let block: Block = geometry.descriptor_block(index);
    if !geometry.contains(block, 1) {
        return Err(Error::corrupt(
            Place::Superblock,
            format!("descriptor block {index} would lie at block {block}, outside the volume"),
        ));
    }
    let mut bytes = vec![0; geometry.block_size.bytes_usize()];
    device
        .read_at(geometry.byte_offset(block), &mut bytes)
        .map_err(|source| Error::io(format!("reading group descriptors (block {block})"), source))?;
    Ok(bytes)
}

/// A group's descriptor in its block, its checksum verified and its pointers inside the volume.
fn parse(format: &Format, group: Group, block: &[u8]) -> Result<RawGroupDescriptor> {
    let geometry = &format.geometry;
    let size = usize::from(geometry.descriptor_size);
    let at = (group.0 % geometry.descriptors_per_block().max(1)) as usize * size;
    let bytes = invariant!(block.get(at..at + size), "a descriptor lies inside its block");
    let raw = RawGroupDescriptor::parse(bytes);
    if !format.sealer.descriptor_is_right(group, &raw, bytes.get(64..).unwrap_or_default()) {
        return Err(Error::corrupt(Place::Descriptor(group), "checksum is wrong"));
    }
    let places = [
        (raw.block_bitmap(), 1, "block bitmap"),
        (raw.inode_bitmap(), 1, "inode bitmap"),
        (raw.inode_table(), u64::from(geometry.inode_table_blocks()), "inode table"),
    ];
    match places.iter().find(|(start, count, _)| !geometry.contains(*start, *count)) {
        None => Ok(raw),
        Some((start, _, what)) => Err(Error::corrupt(
            Place::Descriptor(group),
            format!("{what} at block {start} lies outside the volume"),
        )),
    }
}
