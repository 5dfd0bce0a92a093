//! Plausibility of a superblock that is right in itself: it leads to a root directory, and to structures
//! that keep out of each other's way.
//!
//! A wrong size or feature can be as legal as the right one. Repairs by it would destroy everything.

use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::group::RawGroupDescriptor;
use ondisk::inode::{FileType, Inode};
use ondisk::superblock::{MAGIC, RawSuperblock};
use ondisk::units::{Block, Group, InodeNumber};

use platfs_device::Device;

/// Offset of `s_magic` in a superblock.
const MAGIC_OFFSET: u64 = std::mem::offset_of!(RawSuperblock, s_magic) as u64;

/// Looks at the root directory and the first block of descriptors.
pub(super) fn is_plausible(device: &dyn Device, raw: &RawSuperblock, geometry: &Geometry) -> bool {
    let mut block = vec![0; geometry.block_size.bytes_usize()];
    let place = geometry.descriptor_block(0);
    if device.read_at(geometry.byte_offset(place), &mut block).is_err() {
        // The device is to blame.
        return true;
    }
    let size = usize::from(geometry.descriptor_size);
    let descriptors: Vec<_> = block.chunks_exact(size).map(RawGroupDescriptor::parse).collect();
    let flexible = raw.features().incompat.contains(Incompat::FLEX_BG);
    let groups = (0..geometry.groups).map(Group);
    let keeps_out = groups.zip(&descriptors).all(|(group, raw)| {
        let table = u64::from(geometry.inode_table_blocks());
        [(raw.inode_table(), table), (raw.block_bitmap(), 1), (raw.inode_bitmap(), 1)]
            .into_iter()
            .all(|(start, count)| is_free_for(geometry, group, flexible, start, count))
    });
    let whole = geometry.blocks <= device.size() >> geometry.block_size.log2();
    whole
        && keeps_out
        && has_backups(device, geometry)
        && descriptors.first().is_some_and(|first| has_root(device, geometry, first))
}

/// Returns true if the first groups that should have a backup of the superblock have one.
fn has_backups(device: &dyn Device, geometry: &Geometry) -> bool {
    let first =
        (1..geometry.groups.min(5)).map(Group).filter(|group| geometry.backups.has_superblock(*group));
    first.take(2).all(|group| {
        let mut magic = [0; 2];
        let read = device.read_at(geometry.superblock_offset(group) + MAGIC_OFFSET, &mut magic);
        read.is_err() || u16::from_le_bytes(magic) == MAGIC
    })
}

/// Returns true if blocks lie where a structure of a group may, and outside superblocks and descriptors.
fn is_free_for(geometry: &Geometry, group: Group, flexible: bool, start: Block, count: u64) -> bool {
    if !geometry.contains(start, count) {
        return false;
    }
    let end = Block(start.0 + count - 1);
    [start, end].into_iter().all(|block| {
        geometry.group_of_block(block).is_some_and(|lies| {
            let header = geometry.group_header(lies);
            (flexible || lies == group) && block.0 >= header.start.0 + u64::from(header.count)
        })
    })
}

fn has_root(device: &dyn Device, geometry: &Geometry, first: &RawGroupDescriptor) -> bool {
    let size = u64::from(geometry.inode_size);
    let offset = geometry.byte_offset(first.inode_table()) + size * u64::from(InodeNumber::ROOT.index());
    let mut record = vec![0; usize::from(geometry.inode_size)];
    if device.read_at(offset, &mut record).is_err() {
        return true;
    }
    Inode::parse(InodeNumber::ROOT, &record)
        .is_ok_and(|inode| inode.file_type() == Some(FileType::Directory) && inode.links() > 0)
}
