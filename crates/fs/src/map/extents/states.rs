//! The state of ranges in an extent tree: written, or reading as zeros.
//!
//! Many ranges are changed at once: each leaf is read once, gets all that concerns it, and is written once. A
//! leaf that has no room for that is divided as often as it takes.

use ondisk::extent::{self, Child, Entries, Extent, Node};
use ondisk::units::{Block, FileBlock, low_u32};

use super::cut::{blocks_of, part};
use super::{
    LOGICAL_END, Step, broken, descend, entry_count, grow, joins, longest, make_path_own, new_node, next_key,
    split, store, store_path,
};
use crate::error::Result;
use crate::map::MapMut;
use crate::ranges::FileBlocks;
use ondisk::invariant;

/// Gives the mapped blocks in ranges, which rise and do not overlap, a state: written, or reading as zeros.
pub(in crate::map) fn set(map: &mut MapMut<'_, '_>, ranges: &[FileBlocks], unwritten: bool) -> Result<()> {
    let mut left = ranges;
    let mut behind = 0;
    while let [first, rest @ ..] = left {
        let at = first.start.max(behind);
        if at >= first.end.min(LOGICAL_END) {
            left = rest;
            continue;
        }
        let path = descend(map.view(), FileBlock(low_u32(at)))?;
        let (_, above) = invariant!(path.split_last(), "a path through an extent tree ends with a leaf");
        behind = next_key(above);
        if behind <= at {
            return Err(broken(map.inode, format!("extent index is out of order at file block {at}")));
        }
        let here = left.partition_point(|range| range.start < behind);
        set_leaf(map, path, left.split_at(here).0, unwritten)?;
    }
    Ok(())
}

/// Gives what a leaf holds of some ranges a state.
fn set_leaf(
    map: &mut MapMut<'_, '_>,
    mut path: Vec<Step>,
    ranges: &[FileBlocks],
    unwritten: bool,
) -> Result<()> {
    let Some(Step { node: Node { entries: Entries::Leaf(extents), capacity, .. }, .. }) = path.last() else {
        return Ok(());
    };
    let Some(changed) = with_state(extents, ranges, unwritten) else { return Ok(()) };
    if changed.len() <= usize::from(*capacity) {
        make_path_own(map, &mut path)?;
        return store_leaf(map, &mut path, changed);
    }
    let Some(first) = changed.first().copied() else { return Ok(()) };
    if path.len() == 1 {
        // What the inode holds goes to a leaf of its own.
        grow(map, first.start)?;
        path = descend(map.view(), first.logical)?;
    }
    make_path_own(map, &mut path)?;
    let capacity = path.last().map_or(1, |leaf| usize::from(leaf.node.capacity));
    let mut parts = parts(&changed, capacity);
    let own = invariant!(parts.next(), "extents that are divided between leaves are some");
    store_leaf(map, &mut path, own.to_vec())?;
    parts.try_for_each(|part| add_leaf(map, part))
}

fn store_leaf(map: &mut MapMut<'_, '_>, path: &mut [Step], extents: Vec<Extent>) -> Result<()> {
    let leaf = invariant!(path.last_mut(), "a path through an extent tree ends with a leaf");
    leaf.node.entries = Entries::Leaf(extents);
    store_path(map, path)
}

/// Splits a list into leaves of a capacity: even parts, with room for more.
fn parts(extents: &[Extent], capacity: usize) -> impl Iterator<Item = &[Extent]> {
    let count = match extents.len() {
        len if len <= capacity => 1,
        len => len.div_ceil((capacity * 3 / 4).max(1)),
    };
    extents.chunks(extents.len().div_ceil(count.max(1)).max(1))
}

/// Puts a new leaf behind the one that would hold its extents.
fn add_leaf(map: &mut MapMut<'_, '_>, extents: &[Extent]) -> Result<()> {
    let Some(Extent { logical, .. }) = extents.first().copied() else { return Ok(()) };
    let full = |step: &Step| entry_count(&step.node) >= usize::from(step.node.capacity);
    // As where one extent is inserted.
    for _ in 0..=2 * (extent::MAX_DEPTH + 1) {
        let mut path = descend(map.view(), logical)?;
        make_path_own(map, &mut path)?;
        let Some(Step { block: Some(goal), node: Node { capacity, .. }, .. }) = path.pop() else { break };
        match path.iter().rposition(|step| !full(step)) {
            Some(roomy) if roomy + 1 == path.len() => {
                let leaf = Node { depth: 0, capacity, entries: Entries::Leaf(extents.to_vec()) };
                return add_child(map, path.pop(), logical, goal, &leaf);
            }
            Some(roomy) => split(map, &mut path, roomy, None)?,
            None => grow(map, goal)?,
        }
    }
    Err(broken(map.inode, "extent tree finds no room for another leaf"))
}

/// Puts a new node below one that has room, behind the child that was taken.
fn add_child(
    map: &mut MapMut<'_, '_>,
    parent: Option<Step>,
    logical: FileBlock,
    goal: Block,
    node: &Node,
) -> Result<()> {
    let Some(mut parent) = parent else { return Ok(()) };
    let node = new_node(map, goal, node)?;
    if let Entries::Index(children) = &mut parent.node.entries {
        children.insert(parent.position.max(1).min(children.len()), Child { logical, node });
    }
    store(map, &parent)
}

/// A list in which what lies in some ranges has a state, joined to its neighbours where possible; nothing if it has
/// that already.
fn with_state(extents: &[Extent], ranges: &[FileBlocks], unwritten: bool) -> Option<Vec<Extent>> {
    let mut list = List(Vec::with_capacity(extents.len() + 2 * ranges.len()));
    let mut ranges = ranges.iter().copied().peekable();
    let mut changes = false;
    for extent in extents {
        let whole = blocks_of(extent);
        let mut at = whole.start;
        while let Some(range) = ranges.peek().filter(|range| range.start < whole.end) {
            let inside = range.within(whole);
            if !inside.is_empty() && extent.unwritten != unwritten {
                changes = true;
                list.push(part(extent, FileBlocks::new(at, inside.start)));
                list.push(Extent { unwritten, ..part(extent, inside) });
                at = inside.end;
            }
            if range.end > whole.end {
                break;
            }
            ranges.next();
        }
        list.push(part(extent, FileBlocks::new(at, whole.end)));
    }
    changes.then_some(list.0)
}

/// Extents in order, joined where possible.
struct List(Vec<Extent>);

impl List {
    /// Adds an extent, if it is not empty.
    fn push(&mut self, mut new: Extent) {
        if let Some(last) = self.0.last_mut()
            && joins(last, &new)
        {
            last.count += new.count;
            return;
        }
        while new.count > 0 {
            let count = new.count.min(longest(&new));
            self.0.push(Extent { count, ..new });
            new.count -= count;
            new.start = Block(new.start.0 + u64::from(count));
            // Wraps only with nothing left.
            new.logical = FileBlock(new.logical.0.wrapping_add(count));
        }
    }
}
