//! The resize inode: it owns the blocks kept free behind the descriptors, in the primary group and
//! in every backup, so that a mounted volume can grow.
//!
//! Its double-indirect block lists the reserved blocks of the primary group, each at its own place
//! in the descriptor table; each of those, used as an indirect block, lists its copies in the backups (spec: resize).

use ondisk::geometry::Geometry;
use ondisk::inode::Inode;
use ondisk::units::{Block, Group, low_u32};

use super::tables::superblock_groups;

/// Slot of the double-indirect pointer in the inode.
const DOUBLE_SLOT: usize = 13;

/// Where to look for the double-indirect block: behind the first group's own tables.
pub(super) fn goal(geometry: &Geometry) -> u64 {
    u64::from(geometry.first_data_block)
        + u64::from(geometry.descriptor_blocks())
        + u64::from(geometry.reserved_descriptor_blocks)
        + 2
        + u64::from(geometry.inode_table_blocks())
}

/// The reserved blocks of the primary group, by position.
pub fn reserved(geometry: &Geometry) -> impl Iterator<Item = Block> {
    let first = geometry.superblock_block(Group(0)).0 + 1 + u64::from(geometry.descriptor_blocks());
    (0..u64::from(geometry.reserved_descriptor_blocks)).map(move |index| Block(first + index))
}

/// Fills the inode in and gives the contents of its double-indirect block.
#[must_use]
pub fn fill(geometry: &Geometry, inode: &mut Inode, top: Block) -> Vec<u8> {
    let pointers = geometry.block_size.bytes() / 4;
    let mut bytes = vec![0; geometry.block_size.bytes_usize()];
    for (index, block) in (geometry.descriptor_blocks()..).zip(reserved(geometry)) {
        let at = (index % pointers) as usize * 4;
        put(&mut bytes, at, block);
    }
    put(&mut inode.raw_mut().i_block, DOUBLE_SLOT * 4, top);
    let per = u64::from(pointers);
    inode.set_size((per * per + per + u64::from(ondisk::block_map::DIRECT)) << geometry.block_size.log2());
    let backups = superblock_groups(geometry).len() as u64 - 1;
    let reserved = u64::from(geometry.reserved_descriptor_blocks);
    // Each block counts as the cluster it stands for.
    let charged = (1 + reserved * (1 + backups)) << geometry.cluster_log2;
    inode.set_sectors(charged << (geometry.block_size.log2() - 9), geometry.block_size);
    bytes
}

/// The contents of a reserved block of the primary group: its copies in the backups.
pub fn copies(geometry: &Geometry, backups: &[u32], primary: Block, bytes: &mut [u8]) {
    bytes.fill(0);
    let offset = primary.0 - geometry.superblock_block(Group(0)).0;
    for (index, group) in backups.iter().enumerate() {
        put(bytes, index * 4, Block(geometry.superblock_block(Group(*group)).0 + offset));
    }
}

fn put(bytes: &mut [u8], at: usize, block: Block) {
    let Some(to) = bytes.get_mut(at..at + 4) else {
        debug_assert!(false, "a pointer at {at} lies behind the end of its block");
        return;
    };
    to.copy_from_slice(&low_u32(block.0).to_le_bytes());
}
