//! Extent trees of files whose blocks moved: as flat as they can be.
//!
//! Excludes where the blocks of a tree lie.

use ondisk::extent::{Child, Entries, Extent, MAX_UNWRITTEN, MAX_WRITTEN, Node, capacity};
use ondisk::inode::I_BLOCK_LEN;
use ondisk::seal::InodeSeed;
use ondisk::units::{Block, BlockSize, FileBlock, low_u32};
use platfs_device::map::Map;

use super::moves::Moves;

/// Entries of the root in the inode.
const ROOT: usize = 4;

/// The extents of a file after the moves.
pub(super) fn moved(map: &Map, moves: &Moves) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for run in &map.runs {
        let mut logical = run.logical;
        for (start, count, _) in moves.pieces(run.start, run.count) {
            add(&mut extents, logical, start, count, run.unwritten);
            logical += count;
        }
    }
    extents
}

fn add(extents: &mut Vec<Extent>, mut logical: u64, mut start: Block, mut count: u64, unwritten: bool) {
    let most = u64::from(if unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN });
    if let Some(last) = extents.last_mut()
        && last.unwritten == unwritten
        && last.logical_end() == logical
        && last.end() == start.0
    {
        let more = count.min(most - u64::from(last.count));
        last.count += low_u32(more);
        (logical, start, count) = (logical + more, Block(start.0 + more), count - more);
    }
    while count > 0 {
        let here = count.min(most);
        extents.push(Extent { logical: FileBlock(low_u32(logical)), start, count: low_u32(here), unwritten });
        (logical, start, count) = (logical + here, Block(start.0 + here), count - here);
    }
}

/// Blocks of a tree of a number of extents.
pub(super) fn nodes(extents: usize, block_size: BlockSize) -> usize {
    let most = usize::from(capacity(block_size.bytes_usize())).max(1);
    let (mut level, mut sum) = (extents, 0);
    while level > ROOT {
        level = level.div_ceil(most);
        sum += level;
    }
    sum
}

/// Builds a tree in `blocks`, as many as [`nodes`] says: the root as it stands in the inode, and the bytes of each block.
pub(super) fn build(
    extents: Vec<Extent>,
    blocks: &[Block],
    seed: InodeSeed,
    block_size: BlockSize,
) -> (Vec<u8>, Vec<(Block, Vec<u8>)>) {
    let len = block_size.bytes_usize();
    let most = usize::from(capacity(len)).max(1);
    let mut built = Vec::new();
    let mut free = blocks.iter();
    let mut level = Entries::Leaf(extents);
    let mut depth = 0;
    while count(&level) > ROOT {
        let mut above = Vec::new();
        for (logical, entries) in chunks(&level, most) {
            let Some(block) = free.next() else { break };
            let node = Node { depth, capacity: capacity(len), entries };
            let mut bytes = vec![0; len];
            node.store(&mut bytes);
            seed.seal_extent_node(&mut bytes);
            built.push((*block, bytes));
            above.push(Child { logical, node: *block });
        }
        level = Entries::Index(above);
        depth += 1;
    }
    let mut root = vec![0; I_BLOCK_LEN];
    Node { depth, capacity: capacity(I_BLOCK_LEN), entries: level }.store(&mut root);
    (root, built)
}

fn count(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(extents) => extents.len(),
        Entries::Index(children) => children.len(),
    }
}

/// The entries of a level in nodes, each with its first file block.
fn chunks(entries: &Entries, most: usize) -> Vec<(FileBlock, Entries)> {
    let first = |logical: Option<FileBlock>| logical.unwrap_or(FileBlock(0));
    match entries {
        Entries::Leaf(extents) => {
            let parts = extents.chunks(most);
            parts.map(|part| (first(part.first().map(|e| e.logical)), Entries::Leaf(part.to_vec()))).collect()
        }
        Entries::Index(children) => {
            let parts = children.chunks(most);
            parts
                .map(|part| (first(part.first().map(|c| c.logical)), Entries::Index(part.to_vec())))
                .collect()
        }
    }
}
