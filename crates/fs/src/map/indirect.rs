//! Indirect maps of ext2 and ext3.

use ondisk::block_map::{self, POINTER_LEN, Path, ROOT_SLOTS};
use ondisk::corrupt::Place;
use ondisk::extent::Extent;
use ondisk::inode::Inode;
use ondisk::units::{Block, BlockRun, FileBlock, low_u32};

use super::{NewRun, Segment, State, charge, uncharge};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::space::Space;
use crate::txn::Update;

fn pointer(bytes: &[u8], slot: u32) -> u32 {
    let at = slot as usize * POINTER_LEN;
    bytes.get(at..at + POINTER_LEN).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn set_pointer(bytes: &mut [u8], slot: u32, block: Block) {
    let at = slot as usize * POINTER_LEN;
    if let Some(to) = bytes.get_mut(at..at + POINTER_LEN) {
        to.copy_from_slice(&low_u32(block.0).to_le_bytes());
    }
}

fn checked(format: &Format, inode: &Inode, pointer: u32) -> Result<Block> {
    let block = Block(u64::from(pointer));
    format.refuse_foreign(inode.number(), block, 1)?;
    Ok(block)
}

fn reach(format: &Format, at: FileBlock) -> Result<Path> {
    block_map::path(format.geometry.block_size, at)
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

pub(super) fn lookup(blocks: &dyn Blocks, format: &Format, inode: &Inode, at: FileBlock) -> Result<Segment> {
    let size = format.geometry.block_size;
    let limit = block_map::limit(size);
    if u64::from(at.0) >= limit {
        return Ok(Segment { logical: at, count: (1 << 32) - u64::from(at.0), state: State::Hole });
    }
    let path = reach(format, at)?;
    let root = &inode.raw().i_block;
    if path.depth == 0 {
        let count = u64::from(run_length(root, path.root, block_map::DIRECT));
        return segment(format, inode, at, pointer(root, path.root), count);
    }
    let mut next = pointer(root, path.root);
    // Missing subtrees that follow each other are one hole, or sparse files would take a step for each.
    let mut missing = 1;
    for (level, slot) in path.slots.iter().take(path.depth as usize).enumerate() {
        if next == 0 {
            let count = hole_behind(format, &path, level, missing);
            return Ok(Segment { logical: at, count, state: State::Hole });
        }
        let bytes = blocks.read(checked(format, inode, next)?, Role::Plain)?;
        next = pointer(&bytes, *slot);
        let count = run_length(&bytes, *slot, block_map::pointers_per_block(size));
        if level + 1 == path.depth as usize {
            return segment(format, inode, at, next, u64::from(count));
        }
        missing = count;
    }
    Ok(Segment { logical: at, count: 1, state: State::Hole })
}

/// File blocks from the path's own to the end of the `count` subtrees, the first of them on the path
/// `level` steps below the root slot, whose pointers are missing.
fn hole_behind(format: &Format, path: &Path, level: usize, count: u32) -> u64 {
    let size = format.geometry.block_size;
    let depth = path.depth - low_u32(level as u64);
    let inside =
        path.slots.iter().take(path.depth as usize).skip(level).fold(0, |offset, slot| {
            offset * u64::from(block_map::pointers_per_block(size)) + u64::from(*slot)
        });
    (block_map::span(size, depth) * u64::from(count)).saturating_sub(inside).max(1)
}

fn segment(format: &Format, inode: &Inode, at: FileBlock, pointer: u32, count: u64) -> Result<Segment> {
    if pointer == 0 {
        return Ok(Segment { logical: at, count, state: State::Hole });
    }
    let start = Block(u64::from(pointer));
    format.refuse_foreign(inode.number(), start, count)?;
    Ok(Segment { logical: at, count, state: State::Mapped(start) })
}

pub(super) fn insert(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    run: NewRun,
) -> Result<()> {
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
        done += insert_piece(format, space, update, inode, at, start, run.count - done)?;
    }
    Ok(())
}

/// Sets the pointers of one indirect block, or of the inode; returns how many.
fn insert_piece(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    at: FileBlock,
    start: Block,
    most: u32,
) -> Result<u32> {
    let path = reach(format, at)?;
    if path.depth == 0 {
        let count = most.min(block_map::DIRECT - path.root);
        for offset in 0..count {
            let block = Block(start.0 + u64::from(offset));
            set_pointer(&mut inode.raw_mut().i_block, path.root + offset, block);
        }
        return Ok(count);
    }
    let mut source = Source::Near(Block(start.0 + u64::from(most)));
    let leaf = leaf_block(format, space, update, inode, &path, &mut source)?;
    let slot = path.slots.get(path.depth as usize - 1).copied().unwrap_or(0);
    let count = most.min(left_in_leaf(format, &path));
    let bytes = update.edit(leaf, Role::Plain)?;
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
fn left_in_leaf(format: &Format, path: &Path) -> u32 {
    match (path.depth as usize).checked_sub(1) {
        None => block_map::DIRECT - path.root,
        Some(innermost) => {
            let slot = path.slots.get(innermost).copied().unwrap_or(0);
            block_map::pointers_per_block(format.geometry.block_size) - slot
        }
    }
}

/// File blocks from `at` on to which the same indirect block leads, or the inode itself.
pub(super) fn reach_of_leaf(format: &Format, at: FileBlock) -> Result<u32> {
    Ok(left_in_leaf(format, &reach(format, at)?))
}

/// Indirect blocks that are missing on the way to a file block.
pub(super) fn missing(blocks: &dyn Blocks, format: &Format, inode: &Inode, at: FileBlock) -> Result<u32> {
    let path = reach(format, at)?;
    let mut next = pointer(&inode.raw().i_block, path.root);
    for (level, slot) in (0..path.depth).zip(path.slots) {
        if next == 0 {
            return Ok(path.depth - level);
        }
        if level + 1 < path.depth {
            next = pointer(&blocks.read(checked(format, inode, next)?, Role::Plain)?, slot);
        }
    }
    Ok(0)
}

/// Makes the indirect blocks that are missing on the way to a file block: of blocks that the caller has taken and
/// charged, outermost first.
pub(super) fn lead(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    (at, given): (FileBlock, &[Block]),
) -> Result<()> {
    let path = reach(format, at)?;
    if path.depth > 0 {
        leaf_block(format, space, update, inode, &path, &mut Source::Given(given.iter()))?;
    }
    Ok(())
}

/// The innermost indirect block of a path, with every missing one on the way made.
fn leaf_block(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    path: &Path,
    source: &mut Source<'_>,
) -> Result<Block> {
    debug_assert!((path.root as usize) < ROOT_SLOTS);
    let mut here = match pointer(&inode.raw().i_block, path.root) {
        0 => {
            let block = new_block(format, space, update, inode, source)?;
            set_pointer(&mut inode.raw_mut().i_block, path.root, block);
            block
        }
        found => {
            let found = checked(format, inode, found)?;
            let own = own(format, space, update, inode, found)?;
            set_pointer(&mut inode.raw_mut().i_block, path.root, own);
            own
        }
    };
    for slot in path.slots.iter().take(path.depth as usize - 1) {
        here = match pointer(&update.read(here, Role::Plain)?, *slot) {
            0 => {
                let block = new_block(format, space, update, inode, source)?;
                set_pointer(update.edit(here, Role::Plain)?, *slot, block);
                block
            }
            found => {
                let found = checked(format, inode, found)?;
                let own = own(format, space, update, inode, found)?;
                if own != found {
                    set_pointer(update.edit(here, Role::Plain)?, *slot, own);
                }
                own
            }
        };
    }
    Ok(here)
}

/// An indirect block that may be changed: one that the device leads to moves to a new block, so that the map
/// switches with the inode's record.
fn own(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    block: Block,
) -> Result<Block> {
    if update.is_own(block) {
        return Ok(block);
    }
    let bytes = update.read(block, Role::Plain)?;
    let (new, charged) = space.allocate_metadata(update, block)?;
    let freed = space.free_metadata(update, block)?;
    charge(format, inode, charged);
    uncharge(format, inode, freed);
    update.create(new, Role::Plain).copy_from_slice(&bytes);
    Ok(new)
}

fn new_block(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    source: &mut Source<'_>,
) -> Result<Block> {
    let block = match source {
        Source::Near(goal) => {
            let (block, charged) = space.allocate_metadata(update, *goal)?;
            charge(format, inode, charged);
            block
        }
        Source::Given(blocks) => blocks.next().copied().ok_or(Error::NoSpace)?,
    };
    update.create(block, Role::Plain);
    Ok(block)
}

/// Pointers being taken out of a map.
struct Removal<'a, 'u, 'v> {
    format: &'a Format,
    space: &'a Space,
    update: &'u mut Update<'v>,
    from: u64,
    end: u64,
    removed: Vec<Extent>,
    /// Indirect blocks freed, to be taken off the inode's charge.
    freed: u64,
}

/// All blocks that a map takes: those of the file, and its own. More than the volume has are a knot.
pub(super) fn taken(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Vec<BlockRun>> {
    let size = format.geometry.block_size;
    let mut runs: Vec<BlockRun> = Vec::new();
    let mut count = 0;
    let slots = (0..low_u32(ROOT_SLOTS as u64)).rev();
    let mut waiting: Vec<(u32, u32)> = slots
        .map(|slot| (pointer(&inode.raw().i_block, slot), slot.saturating_sub(block_map::DIRECT - 1)))
        .collect();
    while let Some((found, depth)) = waiting.pop() {
        if found == 0 {
            continue;
        }
        let start = checked(format, inode, found)?;
        count += 1;
        if count > format.geometry.blocks {
            let problem = "leads to more blocks than the volume has";
            return Err(Error::corrupt(Place::Map(inode.number()), problem));
        }
        match runs.last_mut() {
            Some(last) if last.start.0 + u64::from(last.count) == start.0 => last.count += 1,
            _ => runs.push(BlockRun { start, count: 1 }),
        }
        if let Some(below) = depth.checked_sub(1) {
            let bytes = blocks.read(start, Role::Plain)?;
            let pointers = (0..block_map::pointers_per_block(size)).rev();
            waiting
                .extend(pointers.map(|slot| (pointer(&bytes, slot), below)).filter(|(found, _)| *found != 0));
        }
    }
    Ok(runs)
}

/// Takes the file blocks `from..end` out of the map and returns what was mapped there, in order. The
/// blocks themselves stay in use; indirect blocks that become empty are freed and no longer charged.
pub(super) fn remove(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    end: u64,
) -> Result<Vec<Extent>> {
    let mut removal = Removal { format, space, update, from, end, removed: Vec::new(), freed: 0 };
    let mut root = inode.raw().i_block;
    let mut base = 0;
    for slot in 0..low_u32(ROOT_SLOTS as u64) {
        let depth = slot.saturating_sub(block_map::DIRECT - 1);
        let found = pointer(&root, slot);
        if found != 0
            && let Some(to) = removal.clear(inode, found, depth, base)?
        {
            set_pointer(&mut root, slot, to);
        }
        base += block_map::span(format.geometry.block_size, depth);
    }
    let Removal { removed, freed, .. } = removal;
    inode.raw_mut().i_block = root;
    uncharge(format, inode, freed);
    Ok(removed)
}

impl Removal<'_, '_, '_> {
    /// Clears what a pointer leads to, `depth` levels down, its first file block being `base`; says
    /// what the pointer becomes if it changes: nothing, or a block that was moved. At most three levels deep.
    fn clear(&mut self, inode: &mut Inode, found: u32, depth: u32, base: u64) -> Result<Option<Block>> {
        let size = self.format.geometry.block_size;
        if base >= self.end || base + block_map::span(size, depth) <= self.from {
            return Ok(None);
        }
        let block = checked(self.format, inode, found)?;
        let Some(below) = depth.checked_sub(1) else {
            self.note(base, block);
            return Ok(Some(Block(0)));
        };
        let span = block_map::span(size, below);
        let mut bytes = self.update.read(block, Role::Plain)?.to_vec();
        let mut changed = false;
        for slot in 0..block_map::pointers_per_block(size) {
            let next = pointer(&bytes, slot);
            if next != 0
                && let Some(to) = self.clear(inode, next, below, base + u64::from(slot) * span)?
            {
                set_pointer(&mut bytes, slot, to);
                changed = true;
            }
        }
        if bytes.iter().all(|byte| *byte == 0) {
            self.freed += self.space.free_metadata(self.update, block)?;
            return Ok(Some(Block(0)));
        }
        if !changed {
            return Ok(None);
        }
        let own = own(self.format, self.space, self.update, inode, block)?;
        self.update.edit(own, Role::Plain)?.copy_from_slice(&bytes);
        Ok((own != block).then_some(own))
    }

    fn note(&mut self, base: u64, block: Block) {
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
