//! Where the contents of a file lie, by the bytes of its map alone.
//!
//! Owns: the way through an extent tree or indirect blocks, in the order of the file, in bounded time and memory.
//! Excludes: how blocks of the map are read and whether their checksums count, which the caller decides; what a file
//! may consist of; changing maps.

use ondisk::block_map::{DIRECT, pointers_per_block};
use ondisk::extent::{Entries, Node};
use ondisk::geometry::Geometry;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, bounded};

/// Most blocks of one map that are read: a hostile one may lead to the same block again and again.
const NODES_MAX: usize = 1 << 16;
/// Most runs of one file: mke2fs makes a journal of one for each group that it crosses.
const RUNS_MAX: usize = 1 << 18;

/// A run of blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First file block.
    pub logical: u64,
    /// First block on the device.
    pub start: Block,
    /// Blocks.
    pub count: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// Where a file lies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Map {
    /// Its contents: rising, without overlap, neighbours joined.
    pub runs: Vec<Run>,
    /// The blocks that the map itself takes.
    pub nodes: Vec<Block>,
}

/// Reason for which a map was not followed to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure<E> {
    /// A block of the map could not be read.
    Read(E),
    /// The map breaks a rule of the format, in words that complete "map: ...".
    Broken(String),
}

impl<E> From<String> for Failure<E> {
    fn from(problem: String) -> Self {
        Failure::Broken(problem)
    }
}

/// Follows the map of a file up to file block `end`, which may lie inside the last run; blocks of the map are read
/// by `read`.
///
/// # Errors
/// Whatever `read` says; a map that breaks a rule of the format, leads out of the volume, or is larger than a file of
/// the volume's own can need.
pub fn walk<E>(
    geometry: &Geometry,
    inode: &Inode,
    end: u64,
    read: impl FnMut(Block) -> Result<Vec<u8>, E>,
) -> Result<Map, Failure<E>> {
    let mut walk = Walk { geometry, end, read, map: Map::default() };
    let root = &inode.raw().i_block[..];
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Err(Failure::Broken("its contents are in the inode".to_owned()));
    }
    if inode.flags().contains(InodeFlags::EXTENTS) {
        walk.extents(root)?;
    } else {
        walk.pointers(root)?;
    }
    let map = walk.map;
    if map.runs.is_sorted_by(|one, other| one.logical + one.count <= other.logical) {
        Ok(map)
    } else {
        Err(Failure::Broken("its map is out of order".to_owned()))
    }
}

struct Walk<'g, R> {
    geometry: &'g Geometry,
    end: u64,
    read: R,
    map: Map,
}

impl<E, R: FnMut(Block) -> Result<Vec<u8>, E>> Walk<'_, R> {
    fn node(&mut self, block: Block) -> Result<Vec<u8>, Failure<E>> {
        self.map.nodes.push(block);
        if self.map.nodes.len() > NODES_MAX {
            return Err(Failure::Broken("its map does not end".to_owned()));
        }
        (self.read)(block).map_err(Failure::Read)
    }

    fn add(&mut self, run: Run) -> Result<(), Failure<E>> {
        if run.logical >= self.end {
            return Ok(());
        }
        if !self.geometry.contains(run.start, run.count) {
            return Err(Failure::Broken(format!("block {} lies outside the volume", run.start)));
        }
        let count = self.map.runs.len();
        match self.map.runs.last_mut() {
            Some(last)
                if last.logical + last.count == run.logical
                    && last.start.0 + last.count == run.start.0
                    && last.unwritten == run.unwritten =>
            {
                last.count += run.count;
            }
            _ if count == RUNS_MAX => {
                return Err(Failure::Broken(format!("it lies in more than {RUNS_MAX} pieces")));
            }
            _ => self.map.runs.push(run),
        }
        Ok(())
    }

    /// Nodes below have exactly one level less each, so that a walk ends.
    fn extents(&mut self, root: &[u8]) -> Result<(), Failure<E>> {
        let mut waiting = vec![Node::parse(root)?];
        while let Some(node) = waiting.pop() {
            match node.entries {
                Entries::Leaf(extents) => {
                    for extent in extents {
                        self.add(Run {
                            logical: u64::from(extent.logical.0),
                            start: extent.start,
                            count: u64::from(extent.count),
                            unwritten: extent.unwritten,
                        })?;
                    }
                }
                Entries::Index(children) => {
                    let end = self.end;
                    let wanted = children.iter().filter(|child| u64::from(child.logical.0) < end);
                    // The first is popped first.
                    for child in wanted.rev() {
                        let below = Node::parse(&self.node(child.node)?)?;
                        if below.depth + 1 != node.depth {
                            return Err(Failure::Broken("its extent tree has a wrong depth".to_owned()));
                        }
                        waiting.push(below);
                    }
                }
            }
        }
        Ok(())
    }

    fn pointers(&mut self, root: &[u8]) -> Result<(), Failure<E>> {
        let per_block = u64::from(pointers_per_block(self.geometry.block_size));
        let mut logical = 0;
        for (slot, word) in words(root).enumerate() {
            let depth = slot.saturating_sub(DIRECT as usize - 1);
            self.below(word, logical, depth, per_block)?;
            logical += per_block.pow(u32::try_from(depth).unwrap_or(3).min(3));
        }
        Ok(())
    }

    /// At most three levels.
    fn below(&mut self, word: u32, logical: u64, depth: usize, per_block: u64) -> Result<(), Failure<E>> {
        if word == 0 || logical >= self.end {
            return Ok(());
        }
        let start = Block(u64::from(word));
        if depth == 0 {
            return self.add(Run { logical, start, count: 1, unwritten: false });
        }
        let block = self.node(start)?;
        let span = per_block.pow(bounded::<u32>(depth - 1));
        for (at, word) in words(&block).enumerate() {
            self.below(word, logical + at as u64 * span, depth - 1, per_block)?;
        }
        Ok(())
    }
}

/// The little-endian words of a map.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).filter_map(|word| word.try_into().ok()).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ondisk::extent::{Child, Extent};
    use ondisk::inode::InodeFlags;
    use ondisk::superblock::RawSuperblock;
    use ondisk::units::{FileBlock, InodeNumber};
    use zerocopy::FromZeros;

    use super::*;

    const BLOCK: usize = 1024;

    /// A volume of 8,192 blocks.
    fn geometry() -> Geometry {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_magic.set(0xEF53);
        raw.s_blocks_count_lo.set(8192);
        raw.s_first_data_block.set(1);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw.s_inodes_per_group.set(128);
        raw.s_inodes_count.set(128);
        Geometry::from_superblock(&raw).unwrap()
    }

    fn inode(flags: InodeFlags, root: &[u8]) -> Inode {
        let mut inode = Inode::blank(InodeNumber::new(12).unwrap(), 128);
        inode.set_flags(flags);
        inode.raw_mut().i_block[..root.len()].copy_from_slice(root);
        inode
    }

    fn leaf(extents: &[(u32, u64, u32)]) -> Vec<u8> {
        let extent = |&(logical, start, count): &(u32, u64, u32)| Extent {
            logical: FileBlock(logical),
            start: Block(start),
            count,
            unwritten: false,
        };
        let mut node = Node::empty(BLOCK);
        node.entries = Entries::Leaf(extents.iter().map(extent).collect());
        let mut bytes = vec![0; BLOCK];
        node.store(&mut bytes);
        bytes
    }

    fn root(children: &[(u32, u64)]) -> Vec<u8> {
        let child = |&(logical, node): &(u32, u64)| Child { logical: FileBlock(logical), node: Block(node) };
        let node =
            Node { depth: 1, capacity: 4, entries: Entries::Index(children.iter().map(child).collect()) };
        let mut bytes = vec![0; 60];
        node.store(&mut bytes);
        bytes
    }

    fn walked(inode: &Inode, end: u64, blocks: &HashMap<u64, Vec<u8>>) -> Result<Map, Failure<u64>> {
        walk(&geometry(), inode, end, |block| blocks.get(&block.0).cloned().ok_or(block.0))
    }

    fn run(logical: u64, start: u64, count: u64) -> Run {
        Run { logical, start: Block(start), count, unwritten: false }
    }

    #[test]
    fn trees_are_followed_in_order_and_no_farther_than_asked() {
        let inode = inode(InodeFlags::EXTENTS, &root(&[(0, 500), (20, 501), (30, 502)]));
        let blocks = HashMap::from([
            (500, leaf(&[(0, 100, 10), (10, 110, 10)])),
            (501, leaf(&[(20, 120, 3), (25, 200, 2)])),
        ]);
        let map = walked(&inode, 26, &blocks).unwrap();
        assert_eq!(map.runs, [run(0, 100, 23), run(25, 200, 2)]);
        assert_eq!(map.nodes, [Block(502 - 1), Block(500)]);
        assert_eq!(walked(&inode, 31, &blocks), Err(Failure::Read(502)));
    }

    #[test]
    fn pointers_are_followed_in_order_and_no_farther_than_asked() {
        let mut words = [0_u32; 15];
        (words[0], words[1], words[11], words[12], words[13]) = (50, 51, 60, 300, 301);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let inode = inode(InodeFlags::empty(), &bytes);
        let mut indirect = vec![0; BLOCK];
        indirect[..8].copy_from_slice(&[61_u32.to_le_bytes(), 70_u32.to_le_bytes()].concat());
        let blocks = HashMap::from([(300, indirect)]);
        let map = walked(&inode, 12 + 256, &blocks).unwrap();
        assert_eq!(map.runs, [run(0, 50, 2), run(11, 60, 2), run(13, 70, 1)]);
        assert_eq!(walked(&inode, 12 + 257, &blocks), Err(Failure::Read(301)));
    }

    #[test]
    fn hostile_maps_end() {
        let broken = |inode: &Inode, blocks: &HashMap<u64, Vec<u8>>| match walked(inode, u64::MAX, blocks) {
            Err(Failure::Broken(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let tree = inode(InodeFlags::EXTENTS, &root(&[(0, 500), (1, 500)]));
        let blocks = |node: Vec<u8>| HashMap::from([(500, node)]);
        assert!(broken(&tree, &blocks(leaf(&[(0, 100, 10)]))).contains("out of order"));
        assert!(broken(&tree, &blocks(leaf(&[(0, 8190, 10)]))).contains("outside"));
        let mut deep = leaf(&[(0, 100, 1)]);
        deep[6] = 1;
        assert!(broken(&tree, &blocks(deep)).contains("depth"));
        // Every pointer of a triple indirect block leads to the block itself.
        let knot = [vec![0; 56], 300_u32.to_le_bytes().to_vec()].concat();
        let knot = inode(InodeFlags::empty(), &knot);
        let itself = HashMap::from([(300, 300_u32.to_le_bytes().repeat(BLOCK / 4))]);
        assert!(broken(&knot, &itself).contains("pieces"));
    }
}
