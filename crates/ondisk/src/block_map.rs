//! The block map of ext2 and ext3: twelve direct pointers, then single, double and triple
//! indirection, in `i_block`.
//!
//! Source: the ext4 data structure documentation of Linux ("Direct/Indirect Block Addressing").
//! Here is only the arithmetic from a file block to a path of slots; reading blocks belongs to the
//! file system.

use crate::units::{BlockSize, FileBlock, low_u32};

/// Direct pointers in the inode.
pub const DIRECT: u32 = 12;
/// Pointers in the inode, the three indirect ones included.
pub const ROOT_SLOTS: usize = 15;
/// Bytes of a pointer.
pub const POINTER_LEN: usize = 4;

/// Where the pointer to a file block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Slot of `i_block`, 0 to 14.
    pub root: u32,
    /// Slots in the indirect blocks below, outermost first; the first `depth` count.
    pub slots: [u32; 3],
    /// Levels of indirection, 0 to 3.
    pub depth: u32,
}

/// Pointers in one indirect block.
#[must_use]
pub fn pointers_per_block(block_size: BlockSize) -> u32 {
    block_size.bytes() / 4
}

/// File blocks reachable below a pointer at `depth` levels of indirection.
#[must_use]
pub fn span(block_size: BlockSize, depth: u32) -> u64 {
    1 << (u64::from(block_size.log2() - 2) * u64::from(depth))
}

/// One past the last file block the map can hold, capped at the 32-bit file block space.
#[must_use]
pub fn limit(block_size: BlockSize) -> u64 {
    let reach = u64::from(DIRECT) + (1..=3).map(|depth| span(block_size, depth)).sum::<u64>();
    reach.min(1 << 32)
}

/// The path to a file block; `None` behind the reach of the map.
#[must_use]
pub fn path(block_size: BlockSize, block: FileBlock) -> Option<Path> {
    // spec: indirect
    if block.0 < DIRECT {
        return Some(Path { root: block.0, slots: [0; 3], depth: 0 });
    }
    let mut rest = u64::from(block.0 - DIRECT);
    for depth in 1..=3 {
        let below = span(block_size, depth);
        if rest < below {
            return Some(Path { root: DIRECT + depth - 1, slots: slots(block_size, rest, depth), depth });
        }
        rest -= below;
    }
    None
}

fn slots(block_size: BlockSize, offset: u64, depth: u32) -> [u32; 3] {
    let mut slots = [0; 3];
    for (level, slot) in slots.iter_mut().enumerate().take(depth as usize) {
        let below = span(block_size, depth - 1 - low_u32(level as u64));
        *slot = low_u32(offset / below % u64::from(pointers_per_block(block_size)));
    }
    slots
}

/// Indirect blocks that a dense file of `blocks` blocks needs.
#[must_use]
pub fn indirect_blocks(block_size: BlockSize, blocks: u64) -> u64 {
    let mut rest = blocks.saturating_sub(u64::from(DIRECT));
    let mut total = 0;
    for depth in 1..=3 {
        let here = rest.min(span(block_size, depth));
        total += (1..=depth).map(|level| here.div_ceil(span(block_size, level))).sum::<u64>();
        rest -= here;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_at_every_edge() {
        let size = BlockSize::from_bytes(1024).unwrap();
        let at = |block| path(size, FileBlock(block)).unwrap();
        assert_eq!(at(11), Path { root: 11, slots: [0; 3], depth: 0 });
        assert_eq!(at(12), Path { root: 12, slots: [0; 3], depth: 1 });
        assert_eq!(at(12 + 255), Path { root: 12, slots: [255, 0, 0], depth: 1 });
        assert_eq!(at(12 + 256), Path { root: 13, slots: [0; 3], depth: 2 });
        assert_eq!(at(12 + 256 + 65_536), Path { root: 14, slots: [0; 3], depth: 3 });
        let last = low_u32(limit(size) - 1);
        assert_eq!(at(last), Path { root: 14, slots: [255; 3], depth: 3 });
        assert_eq!(path(size, FileBlock(last + 1)), None);
    }

    #[test]
    fn indirect_blocks_are_counted_as_the_paths_need_them() {
        let size = BlockSize::from_bytes(1024).unwrap();
        for blocks in [0, 12, 13, 268, 269, 524, 525, 70_000] {
            let mut nodes = std::collections::HashSet::new();
            for block in 0..low_u32(blocks) {
                let path = path(size, FileBlock(block)).unwrap();
                for depth in 0..path.depth as usize {
                    nodes.insert((path.root, path.slots[..depth].to_vec()));
                }
            }
            assert_eq!(indirect_blocks(size, blocks), nodes.len() as u64, "{blocks} blocks");
        }
    }
}
