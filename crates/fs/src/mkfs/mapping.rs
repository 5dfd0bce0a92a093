//! Blocks for a planned file, and the map that leads to them: extents or indirect blocks.

use std::collections::BTreeMap;

use ondisk::block_map;
use ondisk::extent::{Child, Entries, Extent, MAX_WRITTEN, Node};
use ondisk::inode::{I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::seal::InodeSeed;
use ondisk::units::{Block, FileBlock, low_u32};

use super::block_use::BlockUse;
use super::shape::invalid;
use crate::Result;
use crate::bytes;
use ondisk::invariant;

/// A file's blocks and map.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// Where the contents lie: rising file blocks.
    pub(super) extents: Vec<Extent>,
    /// Blocks of the map itself.
    pub(super) nodes: Vec<(Block, Vec<u8>)>,
    i_block: [u8; I_BLOCK_LEN],
    by_extents: bool,
    /// Blocks charged to the file, whole clusters.
    charged: u64,
}

impl Mapping {
    /// Stores map and charge in the inode.
    pub(super) fn store(&self, inode: &mut Inode, block_size: ondisk::units::BlockSize) {
        inode.raw_mut().i_block = self.i_block;
        let mut flags = inode.flags();
        flags.set(InodeFlags::EXTENTS, self.by_extents);
        inode.set_flags(flags);
        inode.set_sectors(self.charged << (block_size.log2() - 9), block_size);
    }

    /// The disk block of a file block.
    pub(super) fn block(&self, logical: u32) -> Option<Block> {
        let extent = self
            .extents
            .iter()
            .find(|e| (u64::from(e.logical.0)..e.logical_end()).contains(&logical.into()))?;
        Some(Block(extent.start.0 + u64::from(logical - extent.logical.0)))
    }
}

/// Takes `order.len()` blocks from `goal` on and maps file blocks to them in the given order, which is
/// the order in which a writer would touch them.
pub(super) fn by_extents(
    block_use: &mut BlockUse,
    goal: u64,
    order: impl ExactSizeIterator<Item = u32>,
    seed: InodeSeed,
) -> Result<Mapping> {
    let runs = block_use.take(goal, order.len() as u64)?;
    let physical = runs.iter().flat_map(|(start, len)| *start..start + len);
    let mut extents = extents_of(order.zip(physical));
    extents.sort_by_key(|extent| extent.logical);
    let block_size = block_use.layout.geometry.block_size;
    let mut nodes = Vec::new();
    let mut root = Node::empty(I_BLOCK_LEN);
    let level = build_tree(block_use, &extents, seed, &mut nodes)?;
    root.depth = level.depth;
    root.entries = level.entries;
    let mut i_block = [0; I_BLOCK_LEN];
    root.store(&mut i_block);
    let cluster = 1 << block_use.layout.geometry.cluster_log2;
    let clusters = runs.iter().map(|(_, len)| len.div_ceil(cluster)).sum::<u64>() + nodes.len() as u64;
    debug_assert!(nodes.iter().all(|(_, bytes)| bytes.len() == block_size.bytes_usize()));
    Ok(Mapping { extents, nodes, i_block, by_extents: true, charged: clusters * cluster })
}

/// Joins pairs of (file block, disk block) that continue each other.
fn extents_of(pairs: impl Iterator<Item = (u32, u64)>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (logical, physical) in pairs {
        match extents.last_mut() {
            Some(last)
                if last.count < MAX_WRITTEN
                    && last.logical_end() == u64::from(logical)
                    && last.end() == physical =>
            {
                last.count += 1;
            }
            _ => extents.push(Extent {
                logical: FileBlock(logical),
                start: Block(physical),
                count: 1,
                unwritten: false,
            }),
        }
    }
    extents
}

struct Level {
    depth: u16,
    entries: Entries,
}

/// Builds node blocks until what is left fits the inode. Nodes stand before the file's first block
/// where that is free, as mke2fs puts them.
fn build_tree(
    block_use: &mut BlockUse,
    extents: &[Extent],
    seed: InodeSeed,
    nodes: &mut Vec<(Block, Vec<u8>)>,
) -> Result<Level> {
    let root_capacity = usize::from(ondisk::extent::capacity(I_BLOCK_LEN));
    if extents.len() <= root_capacity {
        return Ok(Level { depth: 0, entries: Entries::Leaf(extents.to_vec()) });
    }
    let len = block_use.layout.geometry.block_size.bytes_usize();
    let capacity = usize::from(ondisk::extent::capacity(len));
    let mut goal = extents.first().map_or(0, |first| first.start.0.saturating_sub(1));
    let mut children = Vec::new();
    let mut add = |block_use: &mut BlockUse, depth, entries, logical| -> Result<Child> {
        let Some((block, _)) = block_use.take(goal, 1)?.first().copied() else {
            return invalid("no room for a map");
        };
        goal = block + 1;
        let mut bytes = vec![0; len];
        let node = Node { depth, entries, ..Node::empty(len) };
        node.store(&mut bytes);
        seed.seal_extent_node(&mut bytes);
        nodes.push((Block(block), bytes));
        Ok(Child { logical, node: Block(block) })
    };
    for leaf in extents.chunks(capacity) {
        let logical = leaf.first().map_or(FileBlock(0), |extent| extent.logical);
        children.push(add(block_use, 0, Entries::Leaf(leaf.to_vec()), logical)?);
    }
    let mut depth = 1;
    while children.len() > root_capacity {
        let mut above = Vec::new();
        for part in children.chunks(capacity) {
            let logical = part.first().map_or(FileBlock(0), |child| child.logical);
            above.push(add(block_use, depth, Entries::Index(part.to_vec()), logical)?);
        }
        children = above;
        depth += 1;
    }
    Ok(Level { depth, entries: Entries::Index(children) })
}

/// As [`by_extents`], with indirect blocks, each taken just before the first block it leads to.
pub(super) fn by_block_map(
    block_use: &mut BlockUse,
    goal: u64,
    order: impl ExactSizeIterator<Item = u32> + Clone,
) -> Result<Mapping> {
    let block_size = block_use.layout.geometry.block_size;
    let mut steps: Vec<Step> = Vec::new();
    let mut seen = BTreeMap::new();
    for logical in order {
        let Some(path) = block_map::path(block_size, FileBlock(logical)) else {
            return invalid(format!("file block {logical} is behind the reach of a block map"));
        };
        let mut parent = Parent { node: None, slot: path.root };
        for level in 0..path.depth {
            let next = steps.len();
            let node = *seen.entry((parent.node, parent.slot)).or_insert_with(|| {
                steps.push(Step { parent, logical: None });
                next
            });
            let slot =
                invariant!(path.slots.get(level as usize).copied(), "a path has a slot for each level");
            parent = Parent { node: Some(node), slot };
        }
        steps.push(Step { parent, logical: Some(logical) });
    }
    let runs = block_use.take(goal, steps.len() as u64)?;
    let places: Vec<u64> = runs.iter().flat_map(|(start, len)| *start..start + len).collect();
    lay_out(&steps, &places, block_size)
}

/// Where the pointer to a block stands: a slot of an indirect block (by step) or of the inode.
#[derive(Clone, Copy)]
struct Parent {
    node: Option<usize>,
    slot: u32,
}

/// A block to take: an indirect one, or one of the contents.
struct Step {
    parent: Parent,
    logical: Option<u32>,
}

fn lay_out(steps: &[Step], places: &[u64], block_size: ondisk::units::BlockSize) -> Result<Mapping> {
    let mut i_block = [0; I_BLOCK_LEN];
    let mut nodes: BTreeMap<usize, (Block, Vec<u8>)> = BTreeMap::new();
    for (index, (step, place)) in steps.iter().zip(places).enumerate() {
        let holder = match step.parent.node {
            Some(node) => {
                let (_, bytes) =
                    invariant!(nodes.get_mut(&node), "an indirect block comes before what it leads to");
                bytes.as_mut_slice()
            }
            None => i_block.as_mut_slice(),
        };
        let at = step.parent.slot as usize * block_map::POINTER_LEN;
        bytes::put(holder, at, &low_u32(*place).to_le_bytes())?;
        if step.logical.is_none() {
            nodes.insert(index, (Block(*place), vec![0; block_size.bytes_usize()]));
        }
    }
    let data = steps.iter().zip(places).filter_map(|(step, place)| Some((step.logical?, *place)));
    let mut extents = extents_of(data);
    extents.sort_by_key(|extent| extent.logical);
    let charged = steps.len() as u64;
    Ok(Mapping { extents, nodes: nodes.into_values().collect(), i_block, by_extents: false, charged })
}
