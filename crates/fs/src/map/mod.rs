//! Which disk blocks hold which file blocks: one face for extent trees and indirect maps.
//!
//! Owns: looking up, inserting and walking a file's map, and the blocks the map itself takes.
//! Excludes: choosing blocks for data, file sizes, contents kept in the inode.

mod extents;
mod indirect;
#[cfg(test)]
mod tests;

use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, FileBlock};

use crate::cache::Blocks;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::space::Space;
use crate::txn::Update;

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
    if inode.flags().contains(InodeFlags::EXTENTS) {
        extents::insert(format, space, update, inode, run)
    } else {
        indirect::insert(format, space, update, inode, run)
    }
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
            let goal =
                before.map_or_else(|| space.home(format, inode.number()), |before| Block(before.0 + 1));
            let (block, charged) = space.allocate_metadata(update, goal)?;
            charge(format, inode, charged);
            block
        }
    };
    insert(format, space, update, inode, NewRun { logical, start: block, count: 1, unwritten: false })?;
    Ok(block)
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
