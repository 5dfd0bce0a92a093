//! Which disk blocks hold which file blocks: one face for extent trees and indirect maps.
//!
//! Owns: looking up, inserting and walking a file's map, and the blocks the map itself takes.
//! Excludes: choosing blocks for data, file sizes, contents kept in the inode.

mod extents;
mod indirect;
mod kept;
mod release;
#[cfg(test)]
mod tests;

use std::ops::Range;

use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, BlockRun, ClusterRun, FileBlock};

use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::space::Space;
use crate::txn::Update;
pub(crate) use kept::kept;

/// What a stretch of a file is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing: reads as zeros.
    Hole,
    /// On disk, beginning at the block.
    Mapped(Block),
    /// Allocated, beginning at the block, but reads as zeros.
    Unwritten(Block),
}

/// A stretch of file blocks in one state, physically consecutive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First file block.
    pub logical: FileBlock,
    /// Blocks; holes reach at most to the end of the 32-bit file block space.
    pub count: u64,
    /// The state of all of them.
    pub state: State,
}

/// The stretch that begins at a file block. It ends where its state does or a little earlier (at
/// the edge of an indirect block), never later.
///
/// # Errors
/// A map that breaks the format's rules or points outside the volume; the device's failure.
pub fn lookup(blocks: &dyn Blocks, format: &Format, inode: &Inode, at: FileBlock) -> Result<Segment> {
    if inode.flags().contains(InodeFlags::EXTENTS) {
        extents::lookup(blocks, format, inode, at)
    } else {
        indirect::lookup(blocks, format, inode, at)
    }
}

/// The disk block behind a file block that must exist, for directories and other metadata files.
///
/// # Errors
/// As [`lookup`]; a hole is corruption here.
pub fn block_at(blocks: &dyn Blocks, format: &Format, inode: &Inode, at: FileBlock) -> Result<Block> {
    match lookup(blocks, format, inode, at)?.state {
        State::Mapped(block) => Ok(block),
        _ => Err(Error::corrupt(
            ondisk::corrupt::Place::Map(inode.number()),
            format!("file block {at} is missing"),
        )),
    }
}

/// One past the last file block a map of this kind can hold.
#[must_use]
pub fn block_limit(format: &Format, inode: &Inode) -> u64 {
    if inode.flags().contains(InodeFlags::EXTENTS) {
        // Linux keeps the last block number free so that a size in bytes never overflows.
        u64::from(u32::MAX)
    } else {
        ondisk::block_map::limit(format.geometry.block_size)
    }
}

/// A run to insert into a map: file blocks that are a hole, and the disk blocks they get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRun {
    /// First file block.
    pub logical: FileBlock,
    /// First disk block.
    pub start: Block,
    /// Blocks.
    pub count: u32,
    /// Reads as zeros until written; only extent trees can say so.
    pub unwritten: bool,
}

/// Maps a run of file blocks that were a hole. Blocks for the map itself are allocated near the
/// run and charged to the inode; the caller charges the run. The inode is changed in memory only.
///
/// # Errors
/// No space for a map block; a broken map; file blocks behind the reach of the map.
pub fn insert(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    run: NewRun,
) -> Result<()> {
    let end = u64::from(run.logical.0) + u64::from(run.count);
    if end > block_limit(format, inode) {
        return Err(Error::FileTooLarge(format!("file block {end} is behind the reach of the map")));
    }
    format.refuse_foreign(inode.number(), run.start, u64::from(run.count))?;
    if inode.flags().contains(InodeFlags::EXTENTS) {
        extents::insert(format, space, update, inode, run)
    } else {
        indirect::insert(format, space, update, inode, run)
    }
}

/// Whether the blocks of a file's map lie among its data, each before the data that it leads to. That is the order in
/// which an indirect map is read and in which a check counts pieces; extent trees keep their nodes elsewhere, and with
/// clusters a block of the map would take one of its own.
fn lies_among_data(format: &Format, inode: &Inode) -> bool {
    !is_tree(inode) && format.geometry.cluster_log2 == 0
}

/// Blocks of the map itself that belong before a file block and are not there yet.
///
/// # Errors
/// As [`lookup`]; a file block behind the reach of the map.
pub(crate) fn leaders(blocks: &dyn Blocks, format: &Format, inode: &Inode, at: FileBlock) -> Result<u32> {
    if lies_among_data(format, inode) { indirect::missing(blocks, format, inode, at) } else { Ok(0) }
}

/// Blocks of the map itself that belong before or among `count` file blocks, if none of those has its place yet.
///
/// # Errors
/// As [`leaders`].
pub(crate) fn leaders_among(
    blocks: &dyn Blocks,
    format: &Format,
    inode: &Inode,
    (at, count): (FileBlock, u32),
) -> Result<u32> {
    if !lies_among_data(format, inode) {
        return Ok(0);
    }
    let all = |end: u64| ondisk::block_map::indirect_blocks(format.geometry.block_size, end);
    let (first, end) = (u64::from(at.0) + 1, u64::from(at.0) + u64::from(count.max(1)));
    let later = all(end).saturating_sub(all(first));
    Ok(indirect::missing(blocks, format, inode, at)?.saturating_add(ondisk::units::low_u32(later)))
}

/// Makes the blocks of the map that [`leaders`] counts, of blocks that the caller has taken and charged, and says how many
/// file blocks they lead to: the next one needs another.
///
/// # Errors
/// As [`insert`].
pub(crate) fn lead(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    (at, given): (FileBlock, &[Block]),
) -> Result<u32> {
    if !lies_among_data(format, inode) {
        return Ok(u32::MAX);
    }
    indirect::lead(format, space, update, inode, (at, given))?;
    indirect::reach_of_leaf(format, at)
}

/// Blocks that a map may take at most when so many blocks, in so many runs, are added to it: each block
/// an extent of its own, each run in a part of the map that is full.
#[must_use]
pub(crate) fn blocks_needed_at_most(format: &Format, inode: &Inode, blocks: u64, runs: u64) -> u64 {
    let size = format.geometry.block_size;
    if !is_tree(inode) {
        let pointers = u64::from(ondisk::block_map::pointers_per_block(size));
        return blocks.div_ceil(pointers) + 3 * (runs + 1);
    }
    if extents::room_in_root(inode) >= blocks {
        return 0;
    }
    // A node that is split leaves two that are half full.
    let half = u64::from(ondisk::extent::capacity(size.bytes_usize())) / 2;
    blocks.div_ceil(half) + runs + 2 + u64::from(extents::depth(inode))
}

/// Blocks that the map of a file may take at most when one extent becomes three.
#[must_use]
pub(crate) fn blocks_to_split_at_most(inode: &Inode) -> u64 {
    // Two entries more, each in a full node below full nodes; and where order counts, nodes that are changed move.
    4 * (u64::from(extents::depth(inode)) + 2)
}

/// Takes the end of an unwritten extent, from file block `from` on, out of the map, and lends it to the update for
/// blocks of the map.
///
/// # Errors
/// As [`unmap`].
pub(crate) fn lend(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    (from, run): (u64, BlockRun),
) -> Result<()> {
    // First: where order counts, taking it out may need a block too.
    update.lend(run);
    let end = from + u64::from(run.count);
    extents::cut::remove(format, space, update, inode, from, end)?;
    uncharge(format, inode, u64::from(run.count));
    update.note_moved(inode.number());
    Ok(())
}

/// Puts what is left of blocks that were lent back into the map, unwritten.
///
/// # Errors
/// As [`insert`].
pub(crate) fn take_back(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    (logical, left): (FileBlock, BlockRun),
) -> Result<()> {
    if left.count == 0 {
        return Ok(());
    }
    charge(format, inode, u64::from(left.count));
    let run = NewRun { logical, start: left.start, count: left.count, unwritten: true };
    insert(format, space, update, inode, run)
}

/// Frees what is left of blocks that were lent.
///
/// # Errors
/// Blocks that are not the file's to free.
pub(crate) fn give_up(format: &Format, space: &Space, update: &mut Update<'_>, left: BlockRun) -> Result<()> {
    if left.count == 0 {
        return Ok(());
    }
    let start = format.geometry.cluster_of(left.start);
    space.free_clusters(update, ClusterRun { start, count: left.count })
}

/// Allocates the file block behind the last of a metadata file (a directory, a link's target) and
/// charges it; with `bigalloc` the blocks of a cluster are used up first. The caller fills the block
/// and sets the size.
///
/// # Errors
/// As [`insert`].
pub fn append_block(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    logical: FileBlock,
) -> Result<Block> {
    let before = match logical.0.checked_sub(1) {
        Some(before) => Some(block_at(&*update, format, inode, FileBlock(before))?),
        None => None,
    };
    let ratio = format.geometry.blocks_per_cluster();
    let block = match before {
        Some(before) if !logical.0.is_multiple_of(ratio) => Block(before.0 + 1),
        _ => {
            let mut goal =
                before.map_or_else(|| space.home(format, inode.number()), |before| Block(before.0 + 1));
            let mut given = Vec::new();
            for _ in 0..leaders(&*update, format, inode, logical)? {
                let (block, charged) = space.allocate_metadata(update, goal)?;
                charge(format, inode, charged);
                given.push(block);
                goal = Block(block.0 + 1);
            }
            lead(format, space, update, inode, (logical, &given))?;
            let (block, charged) = space.allocate_metadata(update, goal)?;
            charge(format, inode, charged);
            block
        }
    };
    insert(format, space, update, inode, NewRun { logical, start: block, count: 1, unwritten: false })?;
    Ok(block)
}

/// Moves file blocks of a metadata file, which share a cluster, to a new one; returns the disk block of the
/// first. Their contents are the caller's to bring there.
///
/// # Errors
/// As [`insert`].
pub(crate) fn renew(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    blocks: Range<u32>,
) -> Result<Block> {
    let goal = block_at(&*update, format, inode, FileBlock(blocks.start))?;
    let (start, charged) = space.allocate_metadata(update, goal)?;
    unmap(format, space, update, inode, u64::from(blocks.start), u64::from(blocks.end))?;
    charge(format, inode, charged);
    let count = blocks.end.saturating_sub(blocks.start);
    let run = NewRun { logical: FileBlock(blocks.start), start, count, unwritten: false };
    insert(format, space, update, inode, run)?;
    Ok(start)
}

/// Gives a new inode an empty map: an extent tree where the volume has them, else block pointers
/// (all zero, which they are).
pub fn init(format: &Format, inode: &mut Inode) {
    if format.has_incompat(ondisk::features::Incompat::EXTENTS) {
        inode.set_flags(inode.flags() | InodeFlags::EXTENTS);
        extents::init(inode);
    }
}

/// Adds disk blocks to the space charged to an inode.
pub(crate) fn charge(format: &Format, inode: &mut Inode, blocks: u64) {
    let size = format.geometry.block_size;
    let sectors = inode.sectors(size) + (blocks << (size.log2() - 9));
    inode.set_sectors(sectors, size);
}

/// Takes disk blocks off the space charged to an inode.
pub(crate) fn uncharge(format: &Format, inode: &mut Inode, blocks: u64) {
    let size = format.geometry.block_size;
    let sectors = inode.sectors(size).saturating_sub(blocks << (size.log2() - 9));
    inode.set_sectors(sectors, size);
}

fn is_tree(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::EXTENTS)
}

/// Makes the file blocks `from..end` a hole: what they hold is freed, and map blocks that become
/// empty. The inode is changed in memory only.
///
/// # Errors
/// A broken map; blocks that are not the file's to free; no space where an extent is cut in two.
pub(crate) fn unmap(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    end: u64,
) -> Result<()> {
    let removed = if is_tree(inode) {
        extents::cut::remove(format, space, update, inode, from, end)?
    } else {
        indirect::remove(format, space, update, inode, from, end)?
    };
    release::release(format, space, update, inode, &removed)
}

/// Says of the mapped blocks among the file blocks `from..end` that they are written, or that they
/// read as zeros. Block maps know only written ones, and are left alone.
///
/// # Errors
/// A broken map; no space where an extent is cut in two.
pub(crate) fn set_unwritten(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    (from, end): (u64, u64),
    unwritten: bool,
) -> Result<()> {
    if !is_tree(inode) {
        return Ok(());
    }
    if unwritten && update.journals_data() {
        forget_data(format, update, inode, (from, end))?;
    }
    extents::cut::set_state(format, space, update, inode, from, end, unwritten)
}

/// What the journal has of the bytes of some file blocks does not count any more.
fn forget_data(
    format: &Format,
    update: &mut Update<'_>,
    inode: &Inode,
    (from, end): (u64, u64),
) -> Result<()> {
    let segments: Vec<Segment> = Segments::new(&*update, format, inode, from, end).collect::<Result<_>>()?;
    for segment in segments {
        if let State::Mapped(start) = segment.state {
            update.forget(BlockRun { start, count: ondisk::units::low_u32(segment.count) });
        }
    }
    Ok(())
}

/// All blocks that an inode's map leads to, and those that the map itself takes.
///
/// # Errors
/// A broken map; the device's failure.
pub(crate) fn taken(blocks: &dyn Blocks, format: &Format, inode: &Inode) -> Result<Vec<BlockRun>> {
    let taken = if is_tree(inode) {
        extents::bulk::taken(blocks, format, inode)?
    } else {
        indirect::taken(blocks, format, inode)?
    };
    for run in &taken {
        format.refuse_foreign(inode.number(), run.start, u64::from(run.count))?;
    }
    Ok(taken)
}

/// Takes the file blocks `from..end` out of an extent tree and moves what is behind them forward.
///
/// # Errors
/// As [`unmap`].
pub(crate) fn collapse(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    end: u64,
) -> Result<()> {
    unmap(format, space, update, inode, from, end)?;
    extents::cut::shift(format, space, update, inode, end, (end - from).cast_signed().wrapping_neg())
}

/// Moves everything from file block `from` on in an extent tree back by `count` blocks, which become
/// a hole.
///
/// # Errors
/// [`Error::FileTooLarge`]; as [`unmap`].
pub(crate) fn spread(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    from: u64,
    count: u64,
) -> Result<()> {
    let last =
        extents::bulk::list(&*update, format, inode)?.last().map_or(0, ondisk::extent::Extent::logical_end);
    if last > from && last + count > block_limit(format, inode) {
        return Err(Error::FileTooLarge(format!(
            "file block {} is behind the reach of the map",
            last + count
        )));
    }
    // An extent that reaches over the place is cut there.
    let around = match from.checked_sub(1).map(|before| FileBlock(ondisk::units::low_u32(before))) {
        Some(before) => lookup(&*update, format, inode, before)?,
        None => Segment { logical: FileBlock(0), count: 0, state: State::Hole },
    };
    let crosses = around.state != State::Hole && around.count > 1;
    let end = u64::from(around.logical.0) + around.count;
    let cut =
        if crosses { extents::cut::remove(format, space, update, inode, from, end)? } else { Vec::new() };
    extents::cut::shift(format, space, update, inode, from, count.cast_signed())?;
    for piece in cut {
        let logical = FileBlock(ondisk::units::low_u32(u64::from(piece.logical.0) + count));
        let run = NewRun { logical, start: piece.start, count: piece.count, unwritten: piece.unwritten };
        extents::insert(format, space, update, inode, run)?;
    }
    Ok(())
}

/// Whether a check would find the map of an inode worth looking at: an extent tree with nodes of its
/// own, which random changes leave half full.
pub(crate) fn may_be_untidy(inode: &Inode) -> bool {
    is_tree(inode) && inode.has_map() && extents::depth(inode) > 0
}

/// Packs an extent tree anew if it takes more nodes than it needs; says whether it did.
///
/// # Errors
/// A broken map; no space for the new nodes.
pub(crate) fn tidy(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
) -> Result<bool> {
    if may_be_untidy(inode) { extents::bulk::tidy(format, space, update, inode) } else { Ok(false) }
}

/// Maps a file by an extent tree instead of block pointers, or the other way around; the data stays
/// where it is.
///
/// # Errors
/// Towards block pointers: unwritten blocks, blocks that they can't reach, `bigalloc`. No space for
/// the new map; a broken map.
pub(crate) fn switch(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    to_extents: bool,
) -> Result<()> {
    if is_tree(inode) == to_extents {
        return Ok(());
    }
    let unsupported = |what: &str| Err(Error::Unsupported(format!("block pointers: {what}")));
    if !to_extents && format.geometry.cluster_log2 > 0 {
        return unsupported("the volume has clusters");
    }
    let all = if to_extents {
        indirect::remove(format, space, update, inode, 0, 1 << 32)?
    } else {
        extents::cut::remove(format, space, update, inode, 0, 1 << 32)?
    };
    if !to_extents && all.iter().any(|extent| extent.unwritten) {
        return unsupported("the file has space that was allocated and not written");
    }
    inode.raw_mut().i_block = [0; ondisk::inode::I_BLOCK_LEN];
    let mut flags = inode.flags();
    flags.set(InodeFlags::EXTENTS, to_extents);
    inode.set_flags(flags);
    if to_extents {
        extents::init(inode);
    }
    for extent in all {
        let run =
            NewRun { logical: extent.logical, start: extent.start, count: extent.count, unwritten: false };
        insert(format, space, update, inode, run)?;
    }
    Ok(())
}

/// Walks the stretches of a file from a block on; ends behind `end`.
pub struct Segments<'a> {
    blocks: &'a dyn Blocks,
    format: &'a Format,
    inode: &'a Inode,
    at: u64,
    end: u64,
}

impl<'a> Segments<'a> {
    /// All stretches in the file blocks `from..end`, the last cut at `end`.
    #[must_use]
    pub fn new(blocks: &'a dyn Blocks, format: &'a Format, inode: &'a Inode, from: u64, end: u64) -> Self {
        Segments { blocks, format, inode, at: from, end: end.min(1 << 32) }
    }
}

impl Iterator for Segments<'_> {
    type Item = Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let at = FileBlock(ondisk::units::low_u32(self.at));
        match lookup(self.blocks, self.format, self.inode, at) {
            Ok(mut segment) => {
                segment.count = segment.count.min(self.end - self.at);
                self.at += segment.count;
                Some(Ok(segment))
            }
            Err(error) => {
                self.at = self.end;
                Some(Err(error))
            }
        }
    }
}
