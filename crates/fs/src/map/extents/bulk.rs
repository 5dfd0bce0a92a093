//! A whole extent tree at once: listing it, repacking it, deciding when that is worth it.

use ondisk::extent::{self, Child, Entries, Extent, Node};
use ondisk::units::{Block, BlockRun, BlockSize};

use super::{broken, child, entry_count, init, joins, new_node, root};
use crate::error::Result;
use crate::map::{Map, MapMut};

/// Entries of one level of a tree, and room for them.
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
fn take_apart(map: Map<'_>) -> Result<Parts> {
    let mut parts = Parts::default();
    let top = root(map.inode)?;
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
                    waiting.push(child(map, &node, *taken)?);
                    parts.nodes.push(taken.node);
                }
                if parts.nodes.len() as u64 > map.format.geometry.blocks {
                    return Err(broken(map.inode, "extent tree has more nodes than the volume has blocks"));
                }
            }
        }
    }
    Ok(parts)
}

/// All extents in order.
pub(in crate::map) fn list(map: Map<'_>) -> Result<Vec<Extent>> {
    Ok(take_apart(map)?.extents)
}

/// All blocks that a tree takes: those of the file, and its own.
pub(in crate::map) fn taken(map: Map<'_>) -> Result<Vec<BlockRun>> {
    let Parts { extents, nodes, .. } = take_apart(map)?;
    let nodes = nodes.into_iter().map(|start| BlockRun { start, count: 1 });
    Ok(extents
        .iter()
        .map(|extent| BlockRun { start: extent.start, count: extent.count })
        .chain(nodes)
        .collect())
}

/// The blocks of a tree.
pub(in crate::map) fn nodes(map: Map<'_>) -> Result<Vec<Block>> {
    Ok(take_apart(map)?.nodes)
}

/// Takes everything out of a tree, as [`super::cut::remove`] does, without changing a node that goes.
pub(in crate::map) fn take(map: &mut MapMut<'_, '_>) -> Result<Vec<Extent>> {
    let parts = take_apart(map.view())?;
    for node in &parts.nodes {
        map.give_block(*node)?;
    }
    init(map.inode);
    Ok(parts.extents)
}

/// True if a check would call the tree wasteful: a level with more than a node's worth of free
/// entries, or one that would fit into the level above.
fn is_wasteful(size: BlockSize, levels: &[Level]) -> bool {
    let node = u64::from(extent::capacity(size.bytes_usize()));
    levels.iter().enumerate().any(|(at, level)| {
        let above = levels.get(..at).unwrap_or_default();
        level.room.saturating_sub(level.entries) > node
            || above.iter().any(|above| level.entries < above.room)
    })
}

/// Repacks a tree if a check would call it wasteful.
pub(in crate::map) fn tidy(map: &mut MapMut<'_, '_>) -> Result<bool> {
    if root(map.inode)?.depth == 0 {
        return Ok(false);
    }
    let parts = take_apart(map.view())?;
    if !is_wasteful(map.block_size(), &parts.levels) {
        return Ok(false);
    }
    for node in &parts.nodes {
        map.give_block(*node)?;
    }
    build(map, &parts.extents)?;
    Ok(true)
}

/// Gives an inode without a map a tree of these extents, every node but the last of its level full.
pub(in crate::map) fn build(map: &mut MapMut<'_, '_>, extents: &[Extent]) -> Result<()> {
    init(map.inode);
    let capacity = extent::capacity(map.block_size().bytes_usize());
    let mut top = root(map.inode)?;
    let mut goal = map.home();
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
            let block = new_node(map, goal, &node)?;
            goal = Block(block.0 + 1);
            children.push(Child { logical, node: block });
        }
        top = Node { depth: top.depth + 1, capacity: top.capacity, entries: Entries::Index(children) };
    }
    top.store(&mut map.inode.raw_mut().i_block);
    Ok(())
}

fn chunks<T: Clone>(list: &[T], capacity: u16, wrap: impl Fn(Vec<T>) -> Entries) -> Vec<Entries> {
    list.chunks(usize::from(capacity).max(1)).map(|chunk| wrap(chunk.to_vec())).collect()
}

/// Joins neighbouring extents where one can hold both.
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
