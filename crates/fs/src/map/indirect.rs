//! Indirect maps of ext2 and ext3.

use ondisk::block_map::{self, POINTER_LEN, Path, ROOT_SLOTS};
use ondisk::corrupt::Place;
use ondisk::extent::Extent;
use ondisk::units::{Block, BlockRun, BlockSize, FileBlock, low_u32};

use super::{Map, MapMut, NewRun, Segment, State};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::ranges::FileBlocks;
use ondisk::invariant;

fn pointer(bytes: &[u8], slot: u32) -> u32 {
    let at = slot as usize * POINTER_LEN;
    bytes.get(at..at + POINTER_LEN).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn set_pointer(bytes: &mut [u8], slot: u32, block: Block) {
    let at = slot as usize * POINTER_LEN;
    let Some(to) = bytes.get_mut(at..at + POINTER_LEN) else {
        debug_assert!(false, "slot {slot} lies behind the pointers of a block");
        return;
    };
    to.copy_from_slice(&low_u32(block.0).to_le_bytes());
}

fn checked(map: Map<'_>, pointer: u32) -> Result<Block> {
    let block = Block(u64::from(pointer));
    map.refuse_foreign(block, 1)?;
    Ok(block)
}

fn reach(size: BlockSize, at: FileBlock) -> Result<Path> {
    block_map::path(size, at)
        .ok_or_else(|| Error::FileTooLarge(format!("file block {at} is behind the reach of the map")))
}

/// Pointers from `slot` on that continue a run beginning with the one at `slot`, or are zero like it.
fn run_length(bytes: &[u8], slot: u32, slots: u32) -> u32 {
    let first = pointer(bytes, slot);
    let continues = |ahead: u32| match first {
        0 => pointer(bytes, slot + ahead) == 0,
        _ => first.checked_add(ahead) == Some(pointer(bytes, slot + ahead)),
    };
    (1..slots.saturating_sub(slot))
        .find(|ahead| !continues(*ahead))
        .unwrap_or(slots.saturating_sub(slot))
        .max(1)
}

pub(super) fn lookup(map: Map<'_>, at: FileBlock) -> Result<Segment> {
    let size = map.block_size();
    let limit = block_map::limit(size);
    if u64::from(at.0) >= limit {
        return Ok(Segment { logical: at, count: (1 << 32) - u64::from(at.0), state: State::Hole });
    }
    let path = reach(size, at)?;
    let root = &map.inode.raw().i_block;
    if path.depth == 0 {
        let count = u64::from(run_length(root, path.root, block_map::DIRECT));
        return segment(map, at, pointer(root, path.root), count);
    }
    let mut next = pointer(root, path.root);
    // Missing subtrees that follow each other are one hole, or sparse files would take a step for each.
    let mut missing = 1;
    for (level, slot) in path.slots.iter().take(path.depth as usize).enumerate() {
        if next == 0 {
            let count = hole_behind(size, &path, level, missing);
            return Ok(Segment { logical: at, count, state: State::Hole });
        }
        let bytes = map.blocks.read(checked(map, next)?, Role::Plain)?;
        next = pointer(&bytes, *slot);
        let count = run_length(&bytes, *slot, block_map::pointers_per_block(size));
        if level + 1 == path.depth as usize {
            return segment(map, at, next, u64::from(count));
        }
        missing = count;
    }
    Ok(Segment { logical: at, count: 1, state: State::Hole })
}

/// File blocks from the path's own to the end of the `count` subtrees, the first of them on the path
/// `level` steps below the root slot, whose pointers are missing.
fn hole_behind(size: BlockSize, path: &Path, level: usize, count: u32) -> u64 {
    let depth = path.depth - low_u32(level as u64);
    let inside =
        path.slots.iter().take(path.depth as usize).skip(level).fold(0, |offset, slot| {
            offset * u64::from(block_map::pointers_per_block(size)) + u64::from(*slot)
        });
    (block_map::span(size, depth) * u64::from(count)).saturating_sub(inside).max(1)
}

fn segment(map: Map<'_>, at: FileBlock, pointer: u32, count: u64) -> Result<Segment> {
    if pointer == 0 {
        return Ok(Segment { logical: at, count, state: State::Hole });
    }
    let start = Block(u64::from(pointer));
    map.refuse_foreign(start, count)?;
    Ok(Segment { logical: at, count, state: State::Mapped(start) })
}

pub(super) fn insert(map: &mut MapMut<'_, '_>, run: NewRun) -> Result<()> {
    if run.unwritten {
        return Err(Error::Unsupported("block maps can't hold unwritten blocks".into()));
    }
    if run.start.0 + u64::from(run.count) > 1 << 32 {
        return Err(Error::Unsupported("block maps can't point behind block 2^32".into()));
    }
    let mut done = 0;
    while done < run.count {
        let at = FileBlock(run.logical.0 + done);
        let start = Block(run.start.0 + u64::from(done));
        done += insert_piece(map, at, start, run.count - done)?;
    }
    Ok(())
}

/// Sets the pointers of one indirect block, or of the inode; returns how many.
fn insert_piece(map: &mut MapMut<'_, '_>, at: FileBlock, start: Block, most: u32) -> Result<u32> {
    let path = reach(map.block_size(), at)?;
    if path.depth == 0 {
        let count = most.min(block_map::DIRECT - path.root);
        for offset in 0..count {
            let block = Block(start.0 + u64::from(offset));
            set_pointer(&mut map.inode.raw_mut().i_block, path.root + offset, block);
        }
        return Ok(count);
    }
    let mut source = Source::Near(Block(start.0 + u64::from(most)));
    let leaf = leaf_block(map, &path, &mut source)?;
    let slot =
        invariant!(path.slots.get(path.depth as usize - 1).copied(), "a path has a slot for each level");
    let count = most.min(left_in_leaf(map.block_size(), &path));
    let bytes = map.tx.edit(leaf, Role::Plain)?;
    for offset in 0..count {
        set_pointer(bytes, slot + offset, Block(start.0 + u64::from(offset)));
    }
    Ok(count)
}

/// Where missing indirect blocks come from.
enum Source<'s> {
    /// They are allocated near a block, and charged to the inode.
    Near(Block),
    /// The caller has taken and charged them, outermost first.
    Given(std::slice::Iter<'s, Block>),
}

/// Pointers from the one at the end of a path to the end of the block, or of the part of the inode, that holds it.
fn left_in_leaf(size: BlockSize, path: &Path) -> u32 {
    match (path.depth as usize).checked_sub(1) {
        None => block_map::DIRECT - path.root,
        Some(innermost) => {
            let slot = path.slots.get(innermost).copied().unwrap_or(0);
            block_map::pointers_per_block(size) - slot
        }
    }
}

/// File blocks from `at` on to which the same indirect block leads, or the inode itself.
pub(super) fn reach_of_leaf(size: BlockSize, at: FileBlock) -> Result<u32> {
    Ok(left_in_leaf(size, &reach(size, at)?))
}

/// Indirect blocks that are missing on the way to a file block.
pub(super) fn missing(map: Map<'_>, at: FileBlock) -> Result<u32> {
    let path = reach(map.block_size(), at)?;
    let mut next = pointer(&map.inode.raw().i_block, path.root);
    for (level, slot) in (0..path.depth).zip(path.slots) {
        if next == 0 {
            return Ok(path.depth - level);
        }
        if level + 1 < path.depth {
            next = pointer(&map.blocks.read(checked(map, next)?, Role::Plain)?, slot);
        }
    }
    Ok(0)
}

/// Makes the indirect blocks that are missing on the way to a file block: of blocks that the caller has taken and
/// charged, outermost first.
pub(super) fn lead(map: &mut MapMut<'_, '_>, at: FileBlock, given: &[Block]) -> Result<()> {
    let path = reach(map.block_size(), at)?;
    if path.depth > 0 {
        leaf_block(map, &path, &mut Source::Given(given.iter()))?;
    }
    Ok(())
}

/// The innermost indirect block of a path, with every missing one on the way made.
fn leaf_block(map: &mut MapMut<'_, '_>, path: &Path, source: &mut Source<'_>) -> Result<Block> {
    debug_assert!((path.root as usize) < ROOT_SLOTS);
    let mut here = match pointer(&map.inode.raw().i_block, path.root) {
        0 => {
            let block = new_block(map, source)?;
            set_pointer(&mut map.inode.raw_mut().i_block, path.root, block);
            block
        }
        found => {
            let found = checked(map.view(), found)?;
            let own = own_block(map, found)?;
            set_pointer(&mut map.inode.raw_mut().i_block, path.root, own);
            own
        }
    };
    for slot in path.slots.iter().take(path.depth as usize - 1) {
        here = match pointer(&map.tx.read(here, Role::Plain)?, *slot) {
            0 => {
                let block = new_block(map, source)?;
                set_pointer(map.tx.edit(here, Role::Plain)?, *slot, block);
                block
            }
            found => {
                let found = checked(map.view(), found)?;
                let own = own_block(map, found)?;
                if own != found {
                    set_pointer(map.tx.edit(here, Role::Plain)?, *slot, own);
                }
                own
            }
        };
    }
    Ok(here)
}

/// An indirect block that may be changed: one that the device leads to moves to a new block, so that the map
/// switches with the inode's record.
fn own_block(map: &mut MapMut<'_, '_>, block: Block) -> Result<Block> {
    if map.tx.is_own(block) {
        return Ok(block);
    }
    let bytes = map.tx.read(block, Role::Plain)?;
    let new = map.take_block(block)?;
    map.give_block(block)?;
    map.tx.create(new, Role::Plain).copy_from_slice(&bytes);
    Ok(new)
}

fn new_block(map: &mut MapMut<'_, '_>, source: &mut Source<'_>) -> Result<Block> {
    let block = match source {
        Source::Near(goal) => map.take_block(*goal)?,
        Source::Given(blocks) => blocks.next().copied().ok_or(Error::NoSpace)?,
    };
    map.tx.create(block, Role::Plain);
    Ok(block)
}

/// Pointers being taken out of a map.
struct Removal<'m, 't, 'v> {
    map: &'m mut MapMut<'t, 'v>,
    blocks: FileBlocks,
    removed: Vec<Extent>,
}

/// All blocks that a map takes: those of the file, and its own. More than the volume has are a knot.
pub(super) fn taken(map: Map<'_>) -> Result<Vec<BlockRun>> {
    let size = map.block_size();
    let mut runs: Vec<BlockRun> = Vec::new();
    let mut count = 0;
    let slots = (0..low_u32(ROOT_SLOTS as u64)).rev();
    let mut waiting: Vec<(u32, u32)> = slots
        .map(|slot| (pointer(&map.inode.raw().i_block, slot), slot.saturating_sub(block_map::DIRECT - 1)))
        .collect();
    while let Some((found, depth)) = waiting.pop() {
        if found == 0 {
            continue;
        }
        let start = checked(map, found)?;
        count += 1;
        if count > map.format.geometry.blocks {
            let problem = "leads to more blocks than the volume has";
            return Err(Error::corrupt(Place::Map(map.inode.number()), problem));
        }
        match runs.last_mut() {
            Some(last) if last.start.0 + u64::from(last.count) == start.0 => last.count += 1,
            _ => runs.push(BlockRun { start, count: 1 }),
        }
        if let Some(below) = depth.checked_sub(1) {
            let bytes = map.blocks.read(start, Role::Plain)?;
            let pointers = (0..block_map::pointers_per_block(size)).rev();
            waiting
                .extend(pointers.map(|slot| (pointer(&bytes, slot), below)).filter(|(found, _)| *found != 0));
        }
    }
    Ok(runs)
}

/// Takes file blocks out of the map and returns what was mapped there, in order. The blocks themselves stay in
/// use; indirect blocks that become empty are freed and no longer charged.
pub(super) fn remove(map: &mut MapMut<'_, '_>, blocks: FileBlocks) -> Result<Vec<Extent>> {
    let mut root = map.inode.raw().i_block;
    let size = map.block_size();
    let mut removal = Removal { map, blocks, removed: Vec::new() };
    let mut base = 0;
    for slot in 0..low_u32(ROOT_SLOTS as u64) {
        let depth = slot.saturating_sub(block_map::DIRECT - 1);
        let found = pointer(&root, slot);
        if found != 0
            && let Some(to) = removal.clear(found, depth, base)?
        {
            set_pointer(&mut root, slot, to);
        }
        base += block_map::span(size, depth);
    }
    let Removal { map, removed, .. } = removal;
    map.inode.raw_mut().i_block = root;
    Ok(removed)
}

impl Removal<'_, '_, '_> {
    /// Clears what a pointer leads to, `depth` levels down, its first file block being `base`; says
    /// what the pointer becomes if it changes: nothing, or a block that was moved. At most three levels deep.
    fn clear(&mut self, found: u32, depth: u32, base: u64) -> Result<Option<Block>> {
        let size = self.map.block_size();
        if base >= self.blocks.end || base + block_map::span(size, depth) <= self.blocks.start {
            return Ok(None);
        }
        let block = checked(self.map.view(), found)?;
        let Some(below) = depth.checked_sub(1) else {
            self.push_removed(base, block);
            return Ok(Some(Block(0)));
        };
        let span = block_map::span(size, below);
        let mut bytes = self.map.tx.read(block, Role::Plain)?.to_vec();
        let mut changed = false;
        for slot in 0..block_map::pointers_per_block(size) {
            let next = pointer(&bytes, slot);
            if next != 0
                && let Some(to) = self.clear(next, below, base + u64::from(slot) * span)?
            {
                set_pointer(&mut bytes, slot, to);
                changed = true;
            }
        }
        if bytes.iter().all(|byte| *byte == 0) {
            self.map.give_block(block)?;
            return Ok(Some(Block(0)));
        }
        if !changed {
            return Ok(None);
        }
        let own = own_block(self.map, block)?;
        self.map.tx.edit(own, Role::Plain)?.copy_from_slice(&bytes);
        Ok((own != block).then_some(own))
    }

    fn push_removed(&mut self, base: u64, block: Block) {
        match self.removed.last_mut() {
            Some(last) if last.logical_end() == base && last.end() == block.0 && last.count < u32::MAX => {
                last.count += 1;
            }
            _ => {
                let logical = FileBlock(low_u32(base));
                self.removed.push(Extent { logical, start: block, count: 1, unwritten: false });
            }
        }
    }
}
