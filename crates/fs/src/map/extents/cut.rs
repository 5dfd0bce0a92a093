//! Taking ranges out of an extent tree, shifting what lies behind a block.
//!
//! Leaves are changed one by one, from left to right. A node that loses its last entry is freed, and
//! so are the ones above it that this empties; a tree that fits the inode moves back into it.

use ondisk::extent::{Entries, Extent, Node};
use ondisk::inode::I_BLOCK_LEN;
use ondisk::units::{Block, FileBlock, low_u32};

use super::{
    LOGICAL_END, Step, broken, child, descend, insert_one, make_path_own, moved_node, next_key, root, store,
    store_path,
};
use crate::error::Result;
use crate::map::MapMut;
use crate::ranges::FileBlocks;
use ondisk::invariant;

pub(super) fn blocks_of(extent: &Extent) -> FileBlocks {
    FileBlocks::new(u64::from(extent.logical.0), extent.logical_end())
}

/// The part of an extent in file blocks that overlap it.
pub(super) fn part(extent: &Extent, blocks: FileBlocks) -> Extent {
    let inside = blocks_of(extent).within(blocks);
    Extent {
        logical: inside.first(),
        start: Block(extent.start.0 + (inside.start - u64::from(extent.logical.0))),
        count: low_u32(inside.len()),
        unwritten: extent.unwritten,
    }
}

/// The part of an extent before a file block.
fn part_before(extent: &Extent, end: u64) -> Extent {
    part(extent, FileBlocks::new(0, end))
}

/// The part of an extent from a file block on.
fn part_from(extent: &Extent, start: u64) -> Extent {
    part(extent, FileBlocks::behind(start))
}

pub(super) fn overlaps(extent: &Extent, blocks: FileBlocks) -> bool {
    !blocks_of(extent).within(blocks).is_empty()
}

/// Takes file blocks out of a leaf's list. Returns what is behind them of an extent that reaches over both
/// ends: it needs an entry more.
fn cut_list(extents: &mut Vec<Extent>, blocks: FileBlocks, removed: &mut Vec<Extent>) -> Option<Extent> {
    let mut rest = None;
    let mut kept = Vec::with_capacity(extents.len());
    for extent in extents.iter() {
        if !overlaps(extent, blocks) {
            kept.push(*extent);
            continue;
        }
        removed.push(part(extent, blocks));
        let left = u64::from(extent.logical.0) < blocks.start;
        let right = extent.logical_end() > blocks.end;
        if left {
            kept.push(part_before(extent, blocks.start));
        }
        match (left, right) {
            (true, true) => rest = Some(part_from(extent, blocks.end)),
            (false, true) => kept.push(part_from(extent, blocks.end)),
            _ => {}
        }
    }
    *extents = kept;
    rest
}

/// Takes file blocks out of the tree and returns what was mapped there, in order. The blocks themselves stay in
/// use; nodes that become empty are freed and no longer charged.
pub(in crate::map) fn remove(map: &mut MapMut<'_, '_>, blocks: FileBlocks) -> Result<Vec<Extent>> {
    if blocks.start == 0 && blocks.end >= LOGICAL_END && !map.tx.order().changes_in_place() {
        return super::bulk::take(map);
    }
    let mut removed = Vec::new();
    let mut at = blocks.start;
    while at < blocks.end.min(LOGICAL_END) {
        let mut path = descend(map.view(), FileBlock(low_u32(at)))?;
        let (_, above) = invariant!(path.split_last(), "a path through an extent tree ends with a leaf");
        let next = next_key(above);
        if next <= at {
            return Err(broken(map.inode, format!("extent index is out of order at file block {at}")));
        }
        let overlap = match path.last().map(|step| &step.node.entries) {
            Some(Entries::Leaf(extents)) => extents.iter().any(|extent| overlaps(extent, blocks)),
            _ => false,
        };
        if overlap {
            make_path_own(map, &mut path)?;
        }
        let before = removed.len();
        let Some(Entries::Leaf(extents)) = path.last_mut().map(|step| &mut step.node.entries) else { break };
        let rest = cut_list(extents, blocks, &mut removed);
        let empty = extents.is_empty();
        if removed.len() > before {
            if empty { prune(map, path)? } else { store_path(map, &mut path)? }
        }
        if let Some(rest) = rest {
            insert_one(map, rest)?;
        }
        at = next;
    }
    fold(map)?;
    Ok(removed)
}

/// Frees the empty leaf of a path, and every node above it that this empties.
fn prune(map: &mut MapMut<'_, '_>, mut path: Vec<Step>) -> Result<()> {
    while let Some(empty) = path.pop() {
        let Some(block) = empty.block else {
            Node::empty(I_BLOCK_LEN).store(&mut map.inode.raw_mut().i_block);
            return Ok(());
        };
        map.give_block(block)?;
        let Some(parent) = path.last_mut() else { break };
        let Entries::Index(children) = &mut parent.node.entries else { break };
        let taken = parent.position.saturating_sub(1);
        if taken < children.len() {
            children.remove(taken);
        }
        if !children.is_empty() {
            return store_path(map, &mut path);
        }
    }
    Ok(())
}

/// Moves a tree whose root has a single child into the inode, if it fits.
fn fold(map: &mut MapMut<'_, '_>) -> Result<()> {
    loop {
        let top = root(map.inode)?;
        let Entries::Index(children) = &top.entries else { return Ok(()) };
        let &[only] = children.as_slice() else { return Ok(()) };
        let below = child(map.view(), &top, only)?;
        if super::entry_count(&below) > usize::from(top.capacity) {
            return Ok(());
        }
        let folded = Node { capacity: top.capacity, ..below };
        folded.store(&mut map.inode.raw_mut().i_block);
        map.give_block(only.node)?;
    }
}

/// Moves everything from file block `from` on by a distance, in place. The caller has seen to it
/// that nothing is in the way and no extent reaches over `from`.
pub(in crate::map) fn shift(map: &mut MapMut<'_, '_>, from: u64, distance: i64) -> Result<()> {
    let mut top = Step { block: None, node: root(map.inode)?, position: 0 };
    shift_node(map, &mut top, from, distance)?;
    store(map, &top)
}

fn moved(logical: FileBlock, from: u64, distance: i64) -> FileBlock {
    if u64::from(logical.0) < from {
        return logical;
    }
    FileBlock(low_u32(u64::from(logical.0).saturating_add_signed(distance)))
}

/// As deep as the tree, which is at most five levels.
fn shift_node(map: &mut MapMut<'_, '_>, step: &mut Step, from: u64, distance: i64) -> Result<()> {
    let parent = step.node.clone();
    match &mut step.node.entries {
        Entries::Leaf(extents) => {
            for extent in extents {
                extent.logical = moved(extent.logical, from, distance);
            }
        }
        Entries::Index(children) => {
            // The last child that begins before `from` may hold what lies behind it.
            let first =
                children.partition_point(|child| u64::from(child.logical.0) <= from).saturating_sub(1);
            for taken in children.iter_mut().skip(first) {
                let node = child(map.view(), &parent, *taken)?;
                let mut below = Step { block: Some(taken.node), node, position: 0 };
                shift_node(map, &mut below, from, distance)?;
                if map.tx.is_own(taken.node) {
                    store(map, &below)?;
                } else {
                    taken.node = moved_node(map, taken.node, &below.node)?;
                }
                taken.logical = moved(taken.logical, from, distance);
            }
        }
    }
    Ok(())
}
