//! Taking ranges out of an extent tree, changing the state of ranges, shifting what lies behind a
//! block.
//!
//! Leaves are changed one by one, from left to right. A node that loses its last entry is freed, and
//! so are the ones above it that this empties; a tree that fits the inode moves back into it.

use ondisk::extent::{Entries, Extent, Node};
use ondisk::inode::{I_BLOCK_LEN, Inode};
use ondisk::units::{Block, FileBlock, low_u32};

use super::{
    LOGICAL_END, Step, broken, child, descend, insert_one, longest, moved_node, next_key, own, place, root,
    store, store_path,
};
use crate::error::Result;
use crate::format::Format;
use crate::map::uncharge;
use crate::space::Space;
use crate::txn::Update;

/// The part of an extent in the file blocks `from..end`, which overlap it.
fn part(extent: &Extent, from: u64, end: u64) -> Extent {
    let from = from.max(u64::from(extent.logical.0));
    let end = end.min(extent.logical_end());
    let skipped = from - u64::from(extent.logical.0);
    Extent {
        logical: FileBlock(low_u32(from)),
        start: Block(extent.start.0 + skipped),
        count: low_u32(end.saturating_sub(from)),
        unwritten: extent.unwritten,
    }
}

fn overlaps(extent: &Extent, from: u64, end: u64) -> bool {
    u64::from(extent.logical.0) < end && extent.logical_end() > from
}

/// Takes the file blocks `from..end` out of a leaf's list. Returns what is behind them of an extent
/// that reaches over both ends: it needs an entry more.
fn cut_list(extents: &mut Vec<Extent>, from: u64, end: u64, removed: &mut Vec<Extent>) -> Option<Extent> {
    let mut rest = None;
    let mut kept = Vec::with_capacity(extents.len());
    for extent in extents.iter() {
        if !overlaps(extent, from, end) {
            kept.push(*extent);
            continue;
        }
        removed.push(part(extent, from, end));
        let left = u64::from(extent.logical.0) < from;
        let right = extent.logical_end() > end;
        if left {
            kept.push(part(extent, 0, from));
        }
        match (left, right) {
            (true, true) => rest = Some(part(extent, end, LOGICAL_END)),
            (false, true) => kept.push(part(extent, end, LOGICAL_END)),
            _ => {}
        }
    }
    *extents = kept;
    rest
}

/// Takes the file blocks `from..end` out of the tree and returns what was mapped there, in order. The
/// blocks themselves stay in use; nodes that become empty are freed and no longer charged.
pub(in crate::map) fn remove(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    end: u64,
) -> Result<Vec<Extent>> {
    if from == 0 && end >= LOGICAL_END && !update.order().changes_in_place() {
        return super::bulk::take(format, space, update, inode);
    }
    let mut removed = Vec::new();
    let mut at = from;
    while at < end.min(LOGICAL_END) {
        let mut path = descend(&*update, format, inode, FileBlock(low_u32(at)))?;
        let above = path.len() - 1;
        let next = next_key(path.get(..above).unwrap_or_default());
        if next <= at {
            return Err(broken(inode, format!("extent index is out of order at file block {at}")));
        }
        let overlap = match path.last().map(|step| &step.node.entries) {
            Some(Entries::Leaf(extents)) => extents.iter().any(|extent| overlaps(extent, from, end)),
            _ => false,
        };
        if overlap {
            own(format, space, update, inode, &mut path)?;
        }
        let before = removed.len();
        let Some(Entries::Leaf(extents)) = path.last_mut().map(|step| &mut step.node.entries) else { break };
        let rest = cut_list(extents, from, end, &mut removed);
        let empty = extents.is_empty();
        if removed.len() > before {
            if empty {
                prune(format, space, update, inode, path)?
            } else {
                store_path(format, update, inode, &mut path)?
            }
        }
        if let Some(rest) = rest {
            insert_one(format, space, update, inode, rest)?;
        }
        at = next;
    }
    fold(format, space, update, inode)?;
    Ok(removed)
}

/// Frees the empty leaf of a path, and every node above it that this empties.
fn prune(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    mut path: Vec<Step>,
) -> Result<()> {
    while let Some(empty) = path.pop() {
        let Some(block) = empty.block else {
            Node::empty(I_BLOCK_LEN).store(&mut inode.raw_mut().i_block);
            return Ok(());
        };
        let freed = space.free_metadata(update, block)?;
        uncharge(format, inode, freed);
        let Some(parent) = path.last_mut() else { break };
        let Entries::Index(children) = &mut parent.node.entries else { break };
        let taken = parent.position.saturating_sub(1);
        if taken < children.len() {
            children.remove(taken);
        }
        if !children.is_empty() {
            return store_path(format, update, inode, &mut path);
        }
    }
    Ok(())
}

/// Moves a tree whose root has a single child into the inode, as long as it fits.
fn fold(format: &Format, space: &Space, update: &mut Update<'_>, inode: &mut Inode) -> Result<()> {
    loop {
        let top = root(inode)?;
        let Entries::Index(children) = &top.entries else { return Ok(()) };
        let &[only] = children.as_slice() else { return Ok(()) };
        let below = child(&*update, format, inode, &top, only)?;
        if super::entry_count(&below) > usize::from(top.capacity) {
            return Ok(());
        }
        let folded = Node { capacity: top.capacity, ..below };
        folded.store(&mut inode.raw_mut().i_block);
        let freed = space.free_metadata(update, only.node)?;
        uncharge(format, inode, freed);
    }
}

/// Gives the mapped blocks among the file blocks `from..end` a state: written, or reading as zeros.
pub(in crate::map) fn set_state(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    end: u64,
    unwritten: bool,
) -> Result<()> {
    let mut at = from;
    while at < end.min(LOGICAL_END) {
        let path = descend(&*update, format, inode, FileBlock(low_u32(at)))?;
        let Some(Entries::Leaf(extents)) = path.last().map(|step| &step.node.entries) else { break };
        let index = extents.iter().position(|extent| overlaps(extent, at, end));
        at = match index {
            None => next_key(path.get(..path.len() - 1).unwrap_or_default()).max(at + 1),
            Some(index) if extents[index].unwritten == unwritten => extents[index].logical_end(),
            Some(index) => convert(format, space, update, inode, path, index, (at, end))?,
        };
    }
    Ok(())
}

/// Changes the state of the part of one extent that lies in a range; returns where that part ends.
fn convert(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    mut path: Vec<Step>,
    index: usize,
    (from, end): (u64, u64),
) -> Result<u64> {
    own(format, space, update, inode, &mut path)?;
    let Some(leaf) = path.last_mut() else { return Ok(end) };
    let capacity = usize::from(leaf.node.capacity);
    let Entries::Leaf(extents) = &mut leaf.node.entries else { return Ok(end) };
    let whole = extents.remove(index);
    let mut middle = part(&whole, from, end);
    middle.unwritten = !whole.unwritten;
    middle.count = middle.count.min(longest(&middle));
    let (start, stop) = (u64::from(middle.logical.0), middle.logical_end());
    let left = (u64::from(whole.logical.0) < start).then(|| part(&whole, 0, start));
    let right = (whole.logical_end() > stop).then(|| part(&whole, stop, LOGICAL_END));
    let mut later = Vec::new();
    for piece in [left, Some(middle), right].into_iter().flatten() {
        let position = extents.partition_point(|extent| extent.logical <= piece.logical);
        if !later.is_empty() || !place(extents, position, piece, capacity) {
            later.push(piece);
        }
    }
    store_path(format, update, inode, &mut path)?;
    for piece in later {
        insert_one(format, space, update, inode, piece)?;
    }
    Ok(stop)
}

/// Moves everything from file block `from` on by a distance, in place. The caller has seen to it
/// that nothing is in the way and no extent reaches over `from`.
pub(in crate::map) fn shift(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    distance: i64,
) -> Result<()> {
    let mut top = Step { block: None, node: root(inode)?, position: 0 };
    shift_node(format, space, update, inode, &mut top, from, distance)?;
    store(format, update, inode, &top)
}

fn moved(logical: FileBlock, from: u64, distance: i64) -> FileBlock {
    if u64::from(logical.0) < from {
        return logical;
    }
    FileBlock(low_u32(u64::from(logical.0).saturating_add_signed(distance)))
}

/// As deep as the tree, which is at most five levels.
fn shift_node(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    step: &mut Step,
    from: u64,
    distance: i64,
) -> Result<()> {
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
                let node = child(&*update, format, inode, &parent, *taken)?;
                let mut below = Step { block: Some(taken.node), node, position: 0 };
                shift_node(format, space, update, inode, &mut below, from, distance)?;
                if update.is_own(taken.node) {
                    store(format, update, inode, &below)?;
                } else {
                    taken.node = moved_node(format, space, update, inode, taken.node, &below.node)?;
                }
                taken.logical = moved(taken.logical, from, distance);
            }
        }
    }
    Ok(())
}
