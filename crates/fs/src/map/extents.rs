//! Extent trees: lookup, and insertion with merging, splitting and growth. Taking ranges out and
//! shifting them stands in [`cut`], changing their state in [`states`], repacking a tree in [`bulk`].
//!
//! A tree is walked with the depth falling by one at each step, so that even a tree that a hostile
//! image ties into a knot is left after five steps.

pub(super) mod bulk;
pub(super) mod cut;
pub(super) mod states;

use ondisk::corrupt::Place;
use ondisk::extent::{self, Child, Entries, Entry, Extent, Head, Lookup, MAX_UNWRITTEN, MAX_WRITTEN, Node};
use ondisk::inode::{I_BLOCK_LEN, Inode};
use ondisk::units::{Block, FileBlock};

use super::{Map, MapMut, Neighbours, NewRun, Segment, State};
use crate::error::{Error, Result};
use ondisk::invariant;

/// File blocks end here.
const LOGICAL_END: u64 = 1 << 32;

/// A node on the way from the root to a leaf.
struct Step {
    /// `None` for the root in the inode.
    block: Option<Block>,
    node: Node,
    /// The child taken, or the place in the leaf: the entry at or before the file block, plus one.
    position: usize,
}

/// A leaf that was looked at, as long as the tree does not change.
#[derive(Default)]
pub(crate) struct LastLeaf {
    extents: Vec<Extent>,
    /// The file blocks of which it is known that they belong to this leaf.
    start: u64,
    end: u64,
    /// One block was looked up, and is not worth the memory of its leaf.
    begun: bool,
}

impl LastLeaf {
    fn covers(&self, at: FileBlock) -> bool {
        (self.start..self.end).contains(&u64::from(at.0))
    }
}

fn broken(inode: &Inode, problem: impl Into<String>) -> Error {
    Error::corrupt(Place::Map(inode.number()), problem)
}

pub(super) fn init(inode: &mut Inode) {
    let root = Node::empty(I_BLOCK_LEN);
    root.store(&mut inode.raw_mut().i_block);
}

/// Levels below the root.
pub(super) fn depth(inode: &Inode) -> u16 {
    root(inode).map_or(0, |root| root.depth)
}

/// Extents that can be added without a block for the tree.
pub(super) fn room_in_root(inode: &Inode) -> u64 {
    match root(inode) {
        Ok(Node { capacity, entries: Entries::Leaf(held), .. }) => {
            u64::from(capacity).saturating_sub(held.len() as u64)
        }
        _ => 0,
    }
}

fn broken_root(inode: &Inode, problem: &str) -> Error {
    broken(inode, format!("extent root: {problem}"))
}

fn broken_node(inode: &Inode, block: Block, problem: &str) -> Error {
    broken(inode, format!("extent node in block {block}: {problem}"))
}

fn root(inode: &Inode) -> Result<Node> {
    Node::parse(&inode.raw().i_block).map_err(|problem| broken_root(inode, &problem))
}

fn child(map: Map<'_>, parent: &Node, at: Child) -> Result<Node> {
    map.refuse_foreign(at.node, 1)?;
    let bytes = map.blocks.read(at.node, map.node_role())?;
    let node = Node::parse(&bytes).map_err(|problem| broken_node(map.inode, at.node, &problem))?;
    check_depth(map, at.node, node.depth, parent.depth)?;
    Ok(node)
}

/// Refuses a node that is not one level below its parent.
fn check_depth(map: Map<'_>, block: Block, found: u16, parent: u16) -> Result<()> {
    if found + 1 == parent {
        return Ok(());
    }
    let wanted = parent.saturating_sub(1);
    Err(broken(map.inode, format!("extent node in block {block} has depth {found}, not {wanted}")))
}

/// Entries at or before a file block.
fn position(node: &Node, at: FileBlock) -> usize {
    match &node.entries {
        Entries::Leaf(extents) => extents.partition_point(|extent| extent.logical <= at),
        Entries::Index(children) => children.partition_point(|child| child.logical <= at),
    }
}

/// The way from the root to the leaf that holds or would hold a file block.
fn descend(map: Map<'_>, at: FileBlock) -> Result<Vec<Step>> {
    let node = root(map.inode)?;
    let position_here = position(&node, at);
    let mut path = vec![Step { block: None, node, position: position_here }];
    while let Some(Step { node, position: here, .. }) = path.last()
        && let Entries::Index(children) = &node.entries
    {
        // Before the first child lies a hole; it belongs to the first leaf.
        let Some(taken) = children.get(here.saturating_sub(1)).copied() else {
            return Err(broken(map.inode, "extent index node is empty"));
        };
        let node = child(map, node, taken)?;
        let position = position(&node, at);
        path.push(Step { block: Some(taken.node), node, position });
    }
    Ok(path)
}

/// Where the next mapped block can begin at the earliest: the first key to the right of the path.
fn next_key(path: &[Step]) -> u64 {
    let right = |step: &Step| match &step.node.entries {
        Entries::Leaf(extents) => extents.get(step.position).map(|extent| extent.logical),
        Entries::Index(children) => children.get(step.position.max(1)).map(|child| child.logical),
    };
    path.iter().rev().find_map(right).map_or(LOGICAL_END, |logical| u64::from(logical.0))
}

/// The last extent at or before a file block, and where the next one can begin at the earliest.
fn find(map: Map<'_>, at: FileBlock) -> Result<(Option<Extent>, u64)> {
    let mut found =
        Lookup::find(&map.inode.raw().i_block, at).map_err(|problem| broken_root(map.inode, &problem))?;
    let mut next = LOGICAL_END;
    loop {
        next = found.next.map_or(next, |key| u64::from(key.0));
        let Child { node, .. } = match found.entry {
            Entry::Extent(extent) => return Ok((extent, next)),
            Entry::Child(child) => child,
        };
        map.refuse_foreign(node, 1)?;
        let bytes = map.blocks.read(node, map.node_role())?;
        let below = Lookup::find(&bytes, at).map_err(|problem| broken_node(map.inode, node, &problem))?;
        check_depth(map, node, below.depth, found.depth)?;
        found = below;
    }
}

/// The place for a file block that continues the extent at or before it; where there is none, the first extent of the
/// leaf counts. Source: Linux 6.18, `ext4_ext_find_goal`.
fn likely(extents: &[Extent], position: usize, at: FileBlock) -> Option<Block> {
    let before = position.checked_sub(1).and_then(|before| extents.get(before));
    let extent = before.or_else(|| extents.first())?;
    let forth = extent.start.0.saturating_add(u64::from(at.0.saturating_sub(extent.logical.0)));
    Some(Block(forth.saturating_sub(u64::from(extent.logical.0.saturating_sub(at.0)))))
}

/// The last mapped block at or before a file block, the first one behind it, and the likely place for the block itself.
pub(super) fn around(map: Map<'_>, at: FileBlock) -> Result<Neighbours> {
    let path = descend(map, at)?;
    let leaf = path.last().and_then(|step| match &step.node.entries {
        Entries::Leaf(extents) => Some((extents, step.position)),
        Entries::Index(_) => None,
    });
    let Some((extents, position)) = leaf else { return Ok(Neighbours::default()) };
    let before = position.checked_sub(1).and_then(|before| extents.get(before));
    let likely = likely(extents, position, at);
    let last = |extent: &Extent| {
        let count = u64::from(extent.count).saturating_sub(1);
        (u64::from(extent.logical.0) + count, Block(extent.start.0.saturating_add(count)))
    };
    let behind = match extents.get(position) {
        Some(extent) => Some(*extent),
        None => match next_key(&path) {
            LOGICAL_END => None,
            next => {
                let next = invariant!(u32::try_from(next), "a key of an extent tree is a file block");
                find(map, FileBlock(next))?.0
            }
        },
    };
    let first = behind.map(|extent| (u64::from(extent.logical.0), extent.start));
    Ok(Neighbours { before: before.map(last), behind: first, likely })
}

pub(super) fn lookup(map: Map<'_>, at: FileBlock) -> Result<Segment> {
    let (extent, next) = find(map, at)?;
    segment(map, at, extent, next)
}

/// As [`lookup`], in the leaf that was looked at last if it is that one.
pub(super) fn lookup_near(map: Map<'_>, near: &mut LastLeaf, at: FileBlock) -> Result<Segment> {
    if !near.covers(at) {
        if Head::read(&map.inode.raw().i_block).depth == 0 || !std::mem::replace(&mut near.begun, true) {
            return lookup(map, at);
        }
        let mut path = descend(map, at)?;
        let leaf = path.pop().map(|step| step.node.entries);
        let Some(Entries::Leaf(extents)) = leaf else { return lookup(map, at) };
        *near = LastLeaf { extents, start: u64::from(at.0), end: next_key(&path), begun: true };
    }
    let position = near.extents.partition_point(|extent| extent.logical <= at);
    let extent = position.checked_sub(1).and_then(|before| near.extents.get(before));
    let next = near.extents.get(position).map_or(near.end, |next| u64::from(next.logical.0));
    segment(map, at, extent.copied(), next)
}

/// The stretch that begins at a file block, by the extent at or before it and the beginning of the next.
fn segment(map: Map<'_>, at: FileBlock, extent: Option<Extent>, next: u64) -> Result<Segment> {
    if let Some(extent) = extent
        && extent.logical_end() > u64::from(at.0)
    {
        map.refuse_foreign(extent.start, u64::from(extent.count))?;
        let skipped = at.0 - extent.logical.0;
        let start = Block(extent.start.0 + u64::from(skipped));
        let state = if extent.unwritten { State::Unwritten(start) } else { State::Mapped(start) };
        return Ok(Segment { logical: at, count: u64::from(extent.count - skipped), state });
    }
    // An index whose next key lies at or before the block would make no progress.
    let count = next.saturating_sub(u64::from(at.0));
    if count == 0 {
        return Err(broken(map.inode, format!("extent index is out of order at file block {at}")));
    }
    Ok(Segment { logical: at, count, state: State::Hole })
}

fn longest(extent: &Extent) -> u32 {
    if extent.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
}

/// True if `right` continues `left` in the file and on disk, in one extent.
fn joins(left: &Extent, right: &Extent) -> bool {
    left.logical_end() == u64::from(right.logical.0)
        && left.end() == right.start.0
        && left.unwritten == right.unwritten
        && left.count.checked_add(right.count).is_some_and(|count| count <= longest(left))
}

/// Puts an extent into a leaf's list, joined to its neighbours where possible. Returns false, with
/// the list untouched, if it needs an entry that does not fit.
fn insert_joined(extents: &mut Vec<Extent>, position: usize, new: Extent, capacity: usize) -> bool {
    let left =
        position.checked_sub(1).filter(|index| extents.get(*index).is_some_and(|left| joins(left, &new)));
    let right = extents.get(position).is_some_and(|right| joins(&new, right));
    match (left, right) {
        (Some(left), true) => {
            extents[left].count += new.count;
            if joins(&extents[left], &extents[position]) {
                extents[left].count += extents[position].count;
                extents.remove(position);
            }
        }
        (Some(left), false) => extents[left].count += new.count,
        (None, true) => {
            let right = &mut extents[position];
            right.logical = new.logical;
            right.start = new.start;
            right.count += new.count;
        }
        (None, false) if extents.len() < capacity => extents.insert(position, new),
        (None, false) => return false,
    }
    true
}

pub(super) fn insert(map: &mut MapMut<'_, '_>, run: NewRun) -> Result<()> {
    let mut rest = run;
    while rest.count > 0 {
        let mut new =
            Extent { logical: rest.logical, start: rest.start, count: rest.count, unwritten: rest.unwritten };
        new.count = new.count.min(longest(&new));
        insert_one(map, new)?;
        rest.count -= new.count;
        rest.start = Block(rest.start.0 + u64::from(new.count));
        // Wraps only with a count of zero left: the caller checked the end.
        rest.logical = FileBlock(rest.logical.0.wrapping_add(new.count));
    }
    if map.tx.space.wants_file() { shrink(map) } else { Ok(()) }
}

/// Brings the only leaf of a tree back into the inode if it fits: ext4 does so behind every extent that it puts in
/// (Linux 6.18, `ext4_ext_try_to_merge_up`).
fn shrink(map: &mut MapMut<'_, '_>) -> Result<()> {
    let root = root(map.inode)?;
    let Entries::Index(children) = &root.entries else { return Ok(()) };
    let (&[only], 1) = (children.as_slice(), root.depth) else { return Ok(()) };
    let leaf = child(map.view(), &root, only)?;
    if entry_count(&leaf) > usize::from(root.capacity) {
        return Ok(());
    }
    let new_root = Node { depth: 0, capacity: root.capacity, entries: leaf.entries };
    new_root.store(&mut map.inode.raw_mut().i_block);
    map.give_block(only.node)
}

fn insert_one(map: &mut MapMut<'_, '_>, new: Extent) -> Result<()> {
    // Each round without a place splits one node or adds one level, and leaves room behind it: at
    // most two rounds for each level.
    for _ in 0..=2 * (extent::MAX_DEPTH + 1) {
        let mut path = descend(map.view(), new.logical)?;
        make_path_own(map, &mut path)?;
        let Some(leaf) = path.last_mut() else { break };
        let capacity = usize::from(leaf.node.capacity);
        let Entries::Leaf(extents) = &mut leaf.node.entries else { break };
        if insert_joined(extents, leaf.position, new, capacity) {
            return store_path(map, &mut path);
        }
        // ext4 splits near where the extent was looked for, and begins a tree at the file's own part of the volume
        // (Linux 6.18, `ext4_ext_split` and `ext4_ext_grow_indepth`).
        let follows = map.tx.space.wants_file();
        let near = likely(extents, leaf.position, new.logical).filter(|_| follows);
        let full = |step: &Step| entry_count(&step.node) >= usize::from(step.node.capacity);
        match path.iter().rposition(|step| !full(step)) {
            Some(roomy) => split(map, &mut path, roomy, near)?,
            None => {
                let goal = if follows { map.home() } else { new.start };
                grow(map, goal)?;
            }
        }
    }
    Err(broken(map.inode, "extent tree finds no room for another extent"))
}

fn entry_count(node: &Node) -> usize {
    match &node.entries {
        Entries::Leaf(extents) => extents.len(),
        Entries::Index(children) => children.len(),
    }
}

fn first_key(node: &Node) -> Option<FileBlock> {
    match &node.entries {
        Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
        Entries::Index(children) => children.first().map(|child| child.logical),
    }
}

/// Stores the last node of a path, and the keys above it as far as its first key changed.
fn store_path(map: &mut MapMut<'_, '_>, path: &mut [Step]) -> Result<()> {
    for level in (0..path.len()).rev() {
        store(map, &path[level])?;
        let key = first_key(&path[level].node);
        let Some(parent) = level.checked_sub(1).and_then(|above| path.get_mut(above)) else { break };
        let taken = parent.position.saturating_sub(1);
        let Entries::Index(children) = &mut parent.node.entries else { break };
        match (children.get_mut(taken), key) {
            (Some(child), Some(key)) if child.logical != key => child.logical = key,
            _ => break,
        }
    }
    Ok(())
}

/// Stores a node of a path.
///
/// # Errors
/// Entries that are out of order: each node of a damaged tree may be right by itself and not fit those above it, so that
/// a key which is carried upwards passes its neighbours. Stored so, nobody could read the map any more.
fn store(map: &mut MapMut<'_, '_>, step: &Step) -> Result<()> {
    if !step.node.is_in_order() {
        return Err(broken(map.inode, "extent tree is out of order"));
    }
    match step.block {
        None => step.node.store(&mut map.inode.raw_mut().i_block),
        Some(block) => {
            let role = map.view().node_role();
            step.node.store(map.tx.edit(block, role)?);
        }
    }
    Ok(())
}

fn new_node(map: &mut MapMut<'_, '_>, goal: Block, node: &Node) -> Result<Block> {
    let block = map.take_block(goal)?;
    let role = map.view().node_role();
    node.store(map.tx.create(block, role));
    Ok(block)
}

/// Moves the nodes of a path that the device leads to to new blocks: the tree switches with the inode's record.
fn make_path_own(map: &mut MapMut<'_, '_>, path: &mut [Step]) -> Result<()> {
    for level in 1..path.len() {
        let (above, below) = path.split_at_mut(level);
        let (Some(parent), Some(step)) = (above.last_mut(), below.first_mut()) else { break };
        let Some(block) = step.block.filter(|block| !map.tx.is_own(*block)) else { continue };
        let new = moved_node(map, block, &step.node)?;
        let taken = parent.position.saturating_sub(1);
        if let Entries::Index(children) = &mut parent.node.entries
            && let Some(child) = children.get_mut(taken)
        {
            child.node = new;
        }
        step.block = Some(new);
        store(map, parent)?;
    }
    Ok(())
}

/// Puts a node into a new block, in place of the one it had.
fn moved_node(map: &mut MapMut<'_, '_>, from: Block, node: &Node) -> Result<Block> {
    let new = new_node(map, from, node)?;
    map.give_block(from)?;
    Ok(new)
}

/// Adds a level: the root's contents move to a block of their own.
fn grow(map: &mut MapMut<'_, '_>, goal: Block) -> Result<()> {
    let old = root(map.inode)?;
    let (Some(logical), true) = (first_key(&old), old.depth < extent::MAX_DEPTH) else {
        return Err(broken(map.inode, "extent tree can't grow deeper"));
    };
    let mut moved = old.clone();
    moved.capacity = extent::capacity(map.block_size().bytes_usize());
    let node = new_node(map, goal, &moved)?;
    let new_root = Node {
        depth: old.depth + 1,
        capacity: old.capacity,
        entries: Entries::Index(vec![Child { logical, node }]),
    };
    new_root.store(&mut map.inode.raw_mut().i_block);
    Ok(())
}

/// Where to cut a full node: files mostly grow at their end, where moving one entry leaves the left
/// node full; elsewhere in half.
fn cut(position: usize, count: usize) -> usize {
    if position >= count { count - 1 } else { count / 2 }
}

/// Splits the full node below `roomy`, whose parent has room for one more child; the new node lies near a goal, or near
/// the other half.
fn split(map: &mut MapMut<'_, '_>, path: &mut [Step], roomy: usize, near: Option<Block>) -> Result<()> {
    let (above, below) = path.split_at_mut(roomy + 1);
    let (Some(parent), Some(full)) = (above.last_mut(), below.first_mut()) else {
        return Err(broken(map.inode, "extent tree finds no room for another extent"));
    };
    let at = cut(full.position, entry_count(&full.node));
    let moved = match &mut full.node.entries {
        Entries::Leaf(extents) => Entries::Leaf(extents.split_off(at)),
        Entries::Index(children) => Entries::Index(children.split_off(at)),
    };
    let right = Node { depth: full.node.depth, capacity: full.node.capacity, entries: moved };
    let (Some(logical), Some(goal)) = (first_key(&right), full.block) else {
        return Err(broken(map.inode, "extent node can't be split"));
    };
    let node = new_node(map, near.unwrap_or(goal), &right)?;
    if let Entries::Index(children) = &mut parent.node.entries {
        children.insert(parent.position.max(1), Child { logical, node });
    }
    store(map, full)?;
    store(map, parent)
}
