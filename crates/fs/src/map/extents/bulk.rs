//! A whole extent tree at once: listing it, packing it anew, telling when that is worth it.

use ondisk::extent::{self, Child, Entries, Extent, Node};
use ondisk::inode::Inode;
use ondisk::units::{Block, BlockRun};

use super::{broken, child, entry_count, init, joins, new_node, root};
use crate::cache::Blocks;
use crate::error::Result;
use crate::format::Format;
use crate::map::uncharge;
use crate::space::Space;
use crate::txn::Update;

/// What one level of a tree holds.
#[derive(Clone, Copy, Default)]
struct Level {
    entries: u64,
    room: u64,
}

/// A tree taken apart.
#[derive(Default)]
struct Parts {
    extents: Vec<Extent>,
    nodes: Vec<Block>,
    /// From the root down.
    levels: Vec<Level>,
}

/// Walks a whole tree. More nodes than the volume has blocks are a knot.
fn take_apart(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Parts> {
    let mut parts = Parts::default();
    let top = root(inode)?;
    let depth = usize::from(top.depth);
    parts.levels = vec![Level::default(); depth + 1];
    let mut waiting = vec![top];
    while let Some(node) = waiting.pop() {
        let at = depth - usize::from(node.depth).min(depth);
        if let Some(level) = parts.levels.get_mut(at) {
            let (entries, capacity) = (entry_count(&node) as u64, u64::from(node.capacity));
            // As e2fsck counts: an append that splits a node leaves one entry free in the old one.
            let spare = u64::from(at > 0 && entries < capacity);
            level.entries += entries;
            level.room += capacity - spare;
        }
        match &node.entries {
            Entries::Leaf(extents) => parts.extents.extend(extents),
            Entries::Index(children) => {
                for taken in children.iter().rev() {
                    waiting.push(child(blocks, format, inode, &node, *taken)?);
                    parts.nodes.push(taken.node);
                }
                if parts.nodes.len() as u64 > format.geometry.blocks {
                    return Err(broken(inode, "extent tree has more nodes than the volume has blocks"));
                }
            }
        }
    }
    Ok(parts)
}

/// All extents in order.
pub(in crate::map) fn list(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Vec<Extent>> {
    Ok(take_apart(blocks, format, inode)?.extents)
}

/// All blocks that a tree takes: those of the file, and its own.
pub(in crate::map) fn taken(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Vec<BlockRun>> {
    let Parts { extents, nodes, .. } = take_apart(blocks, format, inode)?;
    let nodes = nodes.into_iter().map(|start| BlockRun { start, count: 1 });
    Ok(extents
        .iter()
        .map(|extent| BlockRun { start: extent.start, count: extent.count })
        .chain(nodes)
        .collect())
}

/// Takes everything out of a tree, as [`super::cut::remove`] does, without changing a node that goes.
pub(in crate::map) fn take(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
) -> Result<Vec<Extent>> {
    let parts = take_apart(&*update, format, inode)?;
    for node in &parts.nodes {
        let freed = space.free_metadata(update, *node)?;
        uncharge(format, inode, freed);
    }
    init(inode);
    Ok(parts.extents)
}

/// Whether a check would call the tree wasteful: a level with more than a node's worth of free
/// entries, or one that would fit into the level above.
fn is_wasteful(format: &Format, levels: &[Level]) -> bool {
    let node = u64::from(extent::capacity(format.geometry.block_size.bytes_usize()));
    levels.iter().enumerate().any(|(at, level)| {
        let above = levels.get(..at).unwrap_or_default();
        level.room.saturating_sub(level.entries) > node
            || above.iter().any(|above| level.entries < above.room)
    })
}

/// Packs a tree anew if a check would call it wasteful.
pub(in crate::map) fn tidy(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
) -> Result<bool> {
    if root(inode)?.depth == 0 {
        return Ok(false);
    }
    let parts = take_apart(&*update, format, inode)?;
    if !is_wasteful(format, &parts.levels) {
        return Ok(false);
    }
    for node in &parts.nodes {
        let freed = space.free_metadata(update, *node)?;
        uncharge(format, inode, freed);
    }
    build(format, space, update, inode, &parts.extents)?;
    Ok(true)
}

/// Gives an inode without a map a tree of these extents, every node but the last of its level full.
pub(in crate::map) fn build(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    extents: &[Extent],
) -> Result<()> {
    init(inode);
    let capacity = extent::capacity(format.geometry.block_size.bytes_usize());
    let mut top = root(inode)?;
    let mut goal = space.home(format, inode.number());
    let extents = joined(extents);
    top.entries = Entries::Leaf(extents);
    while entry_count(&top) > usize::from(top.capacity) {
        let lower = match &top.entries {
            Entries::Leaf(list) => chunks(list, capacity, Entries::Leaf),
            Entries::Index(list) => chunks(list, capacity, Entries::Index),
        };
        let mut children = Vec::with_capacity(lower.len());
        for entries in lower {
            let node = Node { depth: top.depth, capacity, entries };
            let Some(logical) = super::first_key(&node) else { continue };
            let block = new_node(format, space, update, inode, goal, &node)?;
            goal = Block(block.0 + 1);
            children.push(Child { logical, node: block });
        }
        top = Node { depth: top.depth + 1, capacity: top.capacity, entries: Entries::Index(children) };
    }
    top.store(&mut inode.raw_mut().i_block);
    Ok(())
}

fn chunks<T: Clone>(list: &[T], capacity: u16, wrap: impl Fn(Vec<T>) -> Entries) -> Vec<Entries> {
    list.chunks(usize::from(capacity).max(1)).map(|chunk| wrap(chunk.to_vec())).collect()
}

/// The same extents, neighbours in one where they can be.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut list: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match list.last_mut() {
            Some(last) if joins(last, extent) => last.count += extent.count,
            _ => list.push(*extent),
        }
    }
    list
}
