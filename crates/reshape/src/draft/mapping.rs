//! Maps of files of the volume's own that are made again: extents or indirect blocks over runs that were taken.
//!
//! Excludes: choosing the runs, and maps of files that are there.

use ondisk::block_map::{self, POINTER_LEN};
use ondisk::extent::{Child, Entries, Extent, MAX_WRITTEN, Node, capacity};
use ondisk::features::Incompat;
use ondisk::inode::{I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::invariant;
use ondisk::units::{Block, FileBlock, low_u32};

use super::Draft;
use crate::Result;
use crate::error::refused;

impl Draft {
    /// Takes `count` blocks from `goal` on for a file that has none, and makes its map; size and checksum are the
    /// caller's. The runs of its contents, in the order of the file.
    ///
    /// # Errors
    /// Too few free blocks; free space in too many pieces for a map of this kind; more changes than the memory holds.
    pub fn give_blocks(&mut self, inode: &mut Inode, goal: Block, count: u64) -> Result<Vec<(Block, u64)>> {
        let extents = self.features().incompat.contains(Incompat::EXTENTS);
        let block_size = self.geometry().block_size;
        let nodes = if extents { 0 } else { block_map::indirect_blocks(block_size, count) };
        let runs = self.take(goal, count + nodes)?;
        let taken: u64 = runs.iter().map(|(_, len)| len).sum();
        let mut flags = inode.flags();
        flags.set(InodeFlags::EXTENTS, extents);
        inode.set_flags(flags);
        let (contents, charged) = if extents {
            let more = self.by_extents(inode, &runs, count)?;
            (runs, taken + more)
        } else {
            (self.by_pointers(inode, &runs, count)?, taken)
        };
        inode.set_sectors(charged << (block_size.log2() - 9), block_size);
        Ok(contents)
    }

    /// The blocks that nodes take, whole clusters.
    fn by_extents(&mut self, inode: &mut Inode, runs: &[(Block, u64)], count: u64) -> Result<u64> {
        let extents = extents(runs, count);
        let mut root = Node::empty(I_BLOCK_LEN);
        let len = self.geometry().block_size.bytes_usize();
        let (most, per_leaf) = (usize::from(capacity(I_BLOCK_LEN)), usize::from(capacity(len)));
        let mut charged = 0;
        if extents.len() <= most {
            root.entries = Entries::Leaf(extents);
        } else if extents.len().div_ceil(per_leaf) <= most {
            let seed = self.sealer().inode_seed(inode.number(), inode.generation());
            let mut children = Vec::new();
            for leaf in extents.chunks(per_leaf) {
                let place = self.take(runs.first().map_or(Block(0), |run| run.0), 1)?;
                let Some((node, cluster)) = place.first().copied() else {
                    return refused("no block is free");
                };
                charged += cluster;
                let mut bytes = vec![0; len];
                Node { entries: Entries::Leaf(leaf.to_vec()), ..Node::empty(len) }.store(&mut bytes);
                seed.seal_extent_node(&mut bytes);
                self.put_block(node, &bytes)?;
                children.push(Child { logical: leaf.first().map_or(FileBlock(0), |one| one.logical), node });
            }
            root.depth = 1;
            root.entries = Entries::Index(children);
        } else {
            return refused(format!("free space is in too many pieces: {} would be needed", extents.len()));
        }
        root.store(&mut inode.raw_mut().i_block);
        Ok(charged)
    }

    /// Contents and indirect blocks take turns, each of the latter before the first block that it leads to.
    fn by_pointers(
        &mut self,
        inode: &mut Inode,
        runs: &[(Block, u64)],
        count: u64,
    ) -> Result<Vec<(Block, u64)>> {
        let block_size = self.geometry().block_size;
        if runs.iter().any(|(start, len)| start.0 + len > u64::from(u32::MAX)) {
            return refused("a map of pointers does not reach behind block 4,294,967,295");
        }
        let mut places = runs.iter().flat_map(|(start, len)| start.0..start.0 + len);
        let mut open: Vec<Open> = Vec::new();
        let mut contents: Vec<(Block, u64)> = Vec::new();
        let mut root = [0; I_BLOCK_LEN];
        for logical in 0..low_u32(count) {
            let Some(path) = block_map::path(block_size, FileBlock(logical)) else {
                return refused(format!("file block {logical} is behind the reach of a block map"));
            };
            let way: Vec<u32> =
                std::iter::once(path.root).chain(path.slots.into_iter().take(path.depth as usize)).collect();
            // Nodes that the way no longer leads through are complete.
            let common = open.iter().zip(&way).take_while(|(node, slot)| node.slot == **slot).count();
            let common = common.min(way.len() - 1);
            for node in open.drain(common..) {
                self.put_block(node.place, &node.bytes)?;
            }
            let mut next = || places.next().map(Block).ok_or(());
            for slot in way.iter().take(way.len() - 1).skip(common) {
                let Ok(place) = next() else { return refused("too few blocks for a map") };
                point(&mut root, &mut open, *slot, place)?;
                open.push(Open { slot: *slot, place, bytes: vec![0; block_size.bytes_usize()] });
            }
            let Ok(place) = next() else { return refused("too few blocks for a map") };
            point(&mut root, &mut open, *invariant!(way.last(), "a path has a slot"), place)?;
            match contents.last_mut() {
                Some((start, len)) if start.0 + *len == place.0 => *len += 1,
                _ => contents.push((place, 1)),
            }
        }
        for node in open {
            self.put_block(node.place, &node.bytes)?;
        }
        inode.raw_mut().i_block = root;
        Ok(contents)
    }
}

/// An indirect block that is being filled, and the slot of the one above that leads to it.
struct Open {
    slot: u32,
    place: Block,
    bytes: Vec<u8>,
}

/// Stores a pointer in the innermost open node, or in the inode.
fn point(root: &mut [u8; I_BLOCK_LEN], open: &mut [Open], slot: u32, place: Block) -> Result<()> {
    let holder = open.last_mut().map_or(&mut root[..], |node| &mut node.bytes);
    let at = slot as usize * POINTER_LEN;
    let pointer = invariant!(holder.get_mut(at..at + POINTER_LEN), "a slot lies in its node");
    // Maps of pointers are refused above 2^32 blocks, so the low half is all of it.
    pointer.copy_from_slice(&low_u32(place.0).to_le_bytes());
    Ok(())
}

/// Extents over runs, for `count` file blocks from the first on.
fn extents(runs: &[(Block, u64)], count: u64) -> Vec<Extent> {
    let (mut logical, mut extents) = (0_u64, Vec::new());
    for (start, len) in runs {
        let (mut at, end) = (start.0, start.0 + (*len).min(count - logical));
        while at < end {
            let piece = (end - at).min(u64::from(MAX_WRITTEN));
            extents.push(Extent {
                logical: FileBlock(low_u32(logical)),
                start: Block(at),
                count: low_u32(piece),
                unwritten: false,
            });
            (at, logical) = (at + piece, logical + piece);
        }
    }
    extents
}
