//! Maps from file blocks to disk blocks: one face for extent trees and indirect maps.
//!
//! Owns: looking up, inserting and walking a file's map, and the blocks the map itself takes: [`Map`] to read,
//! [`MapMut`] to change.
//! Excludes: choosing blocks for data, file sizes, contents kept in the inode.

mod extents;
mod indirect;
mod own_files;
mod release;
mod replace;
#[cfg(test)]
mod tests;

use ondisk::corrupt::Place;
use ondisk::extent::Extent;
use ondisk::features::{Incompat, RoCompat};
use ondisk::file_size;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::units::{Block, BlockRun, BlockSize, ClusterRun, FileBlock, InodeNumber, low_u32};

use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::ranges::FileBlocks;
use crate::tx::{Tx, View};
pub(crate) use extents::LastLeaf;
pub(crate) use own_files::own_files;
pub use replace::MapForm;
pub(crate) use replace::{Placed, may_have};

/// State of a range of file blocks.
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

/// A run to insert into a map: file blocks that are a hole, and the disk blocks they get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewRun {
    /// First file block.
    pub(crate) logical: FileBlock,
    /// First disk block.
    pub(crate) start: Block,
    /// Blocks.
    pub(crate) count: u32,
    /// Reads as zeros until written; only extent trees can say so.
    pub(crate) unwritten: bool,
}

/// The map of an inode, to read.
#[derive(Clone, Copy)]
pub(crate) struct Map<'a> {
    blocks: &'a dyn Blocks,
    format: &'a Format,
    inode: &'a Inode,
}

/// The map of an inode, to change. The inode is changed in memory only; blocks of the map itself are charged to it,
/// those of data by the caller.
pub(crate) struct MapMut<'t, 'v> {
    tx: &'t mut Tx<'v>,
    inode: &'t mut Inode,
}

impl<'a> View<'a> {
    /// The map of an inode.
    pub(crate) fn map(self, inode: &'a Inode) -> Map<'a> {
        Map::new(self.blocks, self.format, inode)
    }
}

impl<'v> Tx<'v> {
    /// The map of an inode, to change.
    pub(crate) fn map<'t>(&'t mut self, inode: &'t mut Inode) -> MapMut<'t, 'v> {
        self.note_awaited(inode.number());
        MapMut { tx: self, inode }
    }
}

fn is_tree(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::EXTENTS)
}

/// The mapped blocks around a hole: file blocks, and where they lie. Maps of block pointers are not looked at.
#[derive(Clone, Copy, Default)]
pub(crate) struct Neighbours {
    /// The last block before.
    pub(crate) before: Option<(u64, Block)>,
    /// The first block behind.
    pub(crate) behind: Option<(u64, Block)>,
    /// Where ext4 would look first.
    pub(crate) likely: Option<Block>,
}

impl<'a> Map<'a> {
    pub(crate) fn new(blocks: &'a dyn Blocks, format: &'a Format, inode: &'a Inode) -> Self {
        Map { blocks, format, inode }
    }

    /// The stretch that begins at a file block. It ends where its state does or a little earlier (at
    /// the edge of an indirect block), never later.
    ///
    /// # Errors
    /// A map that breaks the format's rules or points outside the volume; the device's failure.
    pub(crate) fn lookup(self, at: FileBlock) -> Result<Segment> {
        if is_tree(self.inode) { extents::lookup(self, at) } else { indirect::lookup(self, at) }
    }

    /// As [`Map::lookup`], for many file blocks in order of a map that does not change meanwhile.
    ///
    /// # Errors
    /// As [`Map::lookup`].
    pub(crate) fn lookup_near(self, near: &mut LastLeaf, at: FileBlock) -> Result<Segment> {
        if is_tree(self.inode) { extents::lookup_near(self, near, at) } else { self.lookup(at) }
    }

    /// The mapped blocks around a file block that is a hole.
    ///
    /// # Errors
    /// As [`Map::lookup`].
    pub(crate) fn around(self, at: FileBlock) -> Result<Neighbours> {
        if is_tree(self.inode) { extents::around(self, at) } else { Ok(Neighbours::default()) }
    }

    /// The disk block behind a file block that must exist, for directories and other metadata files.
    ///
    /// # Errors
    /// As [`Map::lookup`]; a hole is corruption here.
    pub(crate) fn block_at(self, at: FileBlock) -> Result<Block> {
        match self.lookup(at)?.state {
            State::Mapped(block) => Ok(block),
            _ => Err(self.broken(format!("file block {at} is missing"))),
        }
    }

    /// All stretches in some file blocks, the last cut at their end.
    pub(crate) fn segments(self, blocks: FileBlocks) -> Segments<'a> {
        Segments { map: self, left: blocks.within(FileBlocks::ALL) }
    }

    /// All blocks that the map leads to, and those that the map itself takes.
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub(crate) fn taken(self) -> Result<Vec<BlockRun>> {
        let taken = if is_tree(self.inode) { extents::bulk::taken(self)? } else { indirect::taken(self)? };
        for run in &taken {
            self.refuse_foreign(run.start, u64::from(run.count))?;
        }
        Ok(taken)
    }

    /// Its blocks that have checksums of their own.
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub(crate) fn sealed_blocks(self) -> Result<Vec<(Block, Role)>> {
        if !is_tree(self.inode) {
            return Ok(Vec::new());
        }
        let nodes = extents::bulk::nodes(self)?;
        nodes.iter().try_for_each(|node| self.refuse_foreign(*node, 1))?;
        Ok(nodes.into_iter().map(|node| (node, self.node_role())).collect())
    }

    /// One past the last file block a map of this kind can hold.
    pub(crate) fn limit(self) -> u64 {
        limit(self.block_size(), self.inode)
    }

    /// Blocks that the map may take at most when `blocks` blocks, in `runs` runs, are added to it: each block
    /// an extent of its own, each run in a part of the map that is full.
    pub(crate) fn blocks_needed_at_most(self, blocks: u64, runs: u64) -> u64 {
        let size = self.block_size();
        if !is_tree(self.inode) {
            let pointers = u64::from(ondisk::block_map::pointers_per_block(size));
            return blocks.div_ceil(pointers) + 3 * (runs + 1);
        }
        if extents::room_in_root(self.inode) >= blocks {
            return 0;
        }
        // A node that is split leaves two that are half full.
        let half = u64::from(ondisk::extent::capacity(size.bytes_usize())) / 2;
        blocks.div_ceil(half) + runs + 2 + u64::from(extents::depth(self.inode))
    }

    /// True if the blocks of the map lie among the data, each before the data that it leads to. That is the order in
    /// which an indirect map is read and in which a check counts pieces; extent trees keep their nodes elsewhere, and
    /// with clusters a block of the map would take one of its own.
    fn lies_among_data(self) -> bool {
        !is_tree(self.inode) && self.format.geometry.cluster_log2 == 0
    }

    /// Blocks of the map itself that belong before a file block and are not there yet.
    ///
    /// # Errors
    /// As [`Map::lookup`]; a file block behind the reach of the map.
    pub(crate) fn leaders(self, at: FileBlock) -> Result<u32> {
        if self.lies_among_data() { indirect::missing(self, at) } else { Ok(0) }
    }

    /// Blocks of the map itself that belong before or among `count` file blocks, if none of those has its place yet.
    ///
    /// # Errors
    /// As [`Map::leaders`].
    pub(crate) fn leaders_among(self, at: FileBlock, count: u32) -> Result<u32> {
        if !self.lies_among_data() {
            return Ok(0);
        }
        let all = |end: u64| ondisk::block_map::indirect_blocks(self.block_size(), end);
        let (first, end) = (u64::from(at.0) + 1, u64::from(at.0) + u64::from(count.max(1)));
        let later = all(end).saturating_sub(all(first));
        Ok(indirect::missing(self, at)?.saturating_add(low_u32(later)))
    }

    /// The inode's number.
    pub(crate) fn number(self) -> InodeNumber {
        self.inode.number()
    }

    fn block_size(self) -> BlockSize {
        self.format.geometry.block_size
    }

    fn node_role(self) -> Role {
        Role::ExtentNode(self.format.seed_of(self.inode))
    }

    fn broken(self, problem: impl Into<String>) -> Error {
        Error::corrupt(Place::Map(self.inode.number()), problem)
    }

    fn refuse_foreign(self, start: Block, count: u64) -> Result<()> {
        self.format.refuse_foreign(self.inode.number(), start, count)
    }
}

/// One past the last file block that the map of an inode can hold.
pub(crate) fn limit(size: BlockSize, inode: &Inode) -> u64 {
    file_size::reach(size, is_tree(inode))
}

/// The largest size in bytes of a file whose map has this form.
pub(crate) fn size_limit(format: &Format, form: MapForm) -> u64 {
    let huge = format.has_ro_compat(RoCompat::HUGE_FILE);
    file_size::limit(format.geometry.block_size, form == MapForm::Extents, huge)
}

/// Blocks that the map of a file may take at most when one extent becomes three.
pub(crate) fn blocks_to_split_at_most(inode: &Inode) -> u64 {
    // Two entries more, each in a full node below full nodes; and where order counts, nodes that are changed move.
    4 * (u64::from(extents::depth(inode)) + 2)
}

/// True if a check may complain of the map of an inode: an extent tree with nodes of its
/// own, which random changes leave half full.
pub(crate) fn may_be_untidy(inode: &Inode) -> bool {
    is_tree(inode) && inode.has_map() && extents::depth(inode) > 0
}

impl MapMut<'_, '_> {
    /// The map as it is now.
    pub(crate) fn view(&self) -> Map<'_> {
        Map::new(&**self.tx, self.tx.format, self.inode)
    }

    /// Gives a new inode an empty map: an extent tree where the volume has them, else block pointers
    /// (all zero, which they are).
    pub(crate) fn init(&mut self) {
        if self.tx.format.has_incompat(Incompat::EXTENTS) {
            self.inode.set_flags(self.inode.flags() | InodeFlags::EXTENTS);
            extents::init(self.inode);
        }
    }

    /// Maps a run of file blocks that were a hole.
    ///
    /// # Errors
    /// No space for a map block; a broken map; file blocks behind the reach of the map.
    pub(crate) fn insert(&mut self, run: NewRun) -> Result<()> {
        let end = u64::from(run.logical.0) + u64::from(run.count);
        if end > self.view().limit() {
            return Err(Error::FileTooLarge(format!("file block {end} is behind the reach of the map")));
        }
        self.view().refuse_foreign(run.start, u64::from(run.count))?;
        if is_tree(self.inode) { extents::insert(self, run) } else { indirect::insert(self, run) }
    }

    /// Makes the blocks of the map that [`Map::leaders`] counts, of blocks that the caller has taken and charged, and
    /// says how many file blocks they lead to: the next one needs another.
    ///
    /// # Errors
    /// As [`MapMut::insert`].
    pub(crate) fn lead(&mut self, at: FileBlock, given: &[Block]) -> Result<u32> {
        if !self.view().lies_among_data() {
            return Ok(u32::MAX);
        }
        indirect::lead(self, at, given)?;
        indirect::reach_of_leaf(self.block_size(), at)
    }

    /// Makes file blocks a hole: what they hold is freed, and map blocks that become empty.
    ///
    /// # Errors
    /// A broken map; blocks that are not the file's to free; no space where an extent is cut in two.
    pub(crate) fn unmap(&mut self, blocks: FileBlocks) -> Result<()> {
        let removed = self.remove(blocks)?;
        release::release(self, &removed)
    }

    fn remove(&mut self, blocks: FileBlocks) -> Result<Vec<Extent>> {
        if is_tree(self.inode) { extents::cut::remove(self, blocks) } else { indirect::remove(self, blocks) }
    }

    /// Says of the mapped blocks among some file blocks that they are written, or that they read as zeros. Block
    /// maps know only written ones, and are left alone.
    ///
    /// # Errors
    /// A broken map; no space where an extent is cut in two.
    pub(crate) fn set_unwritten(&mut self, blocks: FileBlocks, unwritten: bool) -> Result<()> {
        if !is_tree(self.inode) {
            return Ok(());
        }
        if unwritten && self.tx.journals_data() {
            self.forget_data(blocks)?;
        }
        extents::states::set(self, &[blocks], unwritten)
    }

    /// Says of the mapped blocks in many ranges, which rise and do not overlap, that they are written: one change for
    /// each leaf of the tree.
    ///
    /// # Errors
    /// As [`MapMut::set_unwritten`].
    pub(crate) fn set_all_written(&mut self, ranges: &[FileBlocks]) -> Result<()> {
        if is_tree(self.inode) { extents::states::set(self, ranges, false) } else { Ok(()) }
    }

    /// Forgets journaled bytes of some file blocks: they must not be written to their places any more.
    fn forget_data(&mut self, blocks: FileBlocks) -> Result<()> {
        let segments: Vec<Segment> = self.view().segments(blocks).collect::<Result<_>>()?;
        for segment in segments {
            if let State::Mapped(start) = segment.state {
                self.tx.forget(BlockRun { start, count: low_u32(segment.count) });
            }
        }
        Ok(())
    }

    /// Allocates the file block behind the last of a metadata file (a directory, a link's target) and
    /// charges it; with `bigalloc` the blocks of a cluster are used up first. The caller fills the block
    /// and sets the size.
    ///
    /// # Errors
    /// As [`MapMut::insert`].
    pub(crate) fn append_block(&mut self, logical: FileBlock) -> Result<Block> {
        let before = match logical.0.checked_sub(1) {
            Some(before) => Some(self.view().block_at(FileBlock(before))?),
            None => None,
        };
        let ratio = self.tx.format.geometry.blocks_per_cluster();
        let block = match before {
            Some(before) if !logical.0.is_multiple_of(ratio) => Block(before.0 + 1),
            _ => {
                let mut goal = before.map_or_else(|| self.home(), |before| Block(before.0 + 1));
                let mut given = Vec::new();
                for _ in 0..self.view().leaders(logical)? {
                    let leader = self.take_block(goal)?;
                    given.push(leader);
                    goal = Block(leader.0 + 1);
                }
                self.lead(logical, &given)?;
                self.take_block(goal)?
            }
        };
        self.insert(NewRun { logical, start: block, count: 1, unwritten: false })?;
        Ok(block)
    }

    /// Moves file blocks of a metadata file, which share a cluster, to a new one; returns the disk block of the
    /// first. Their contents are the caller's to bring there.
    ///
    /// # Errors
    /// As [`MapMut::insert`].
    pub(crate) fn renew(&mut self, blocks: FileBlocks) -> Result<Block> {
        let logical = blocks.first();
        let goal = self.view().block_at(logical)?;
        let (start, charged) = self.tx.allocate_metadata(goal)?;
        self.unmap(blocks)?;
        self.charge(charged);
        self.insert(NewRun { logical, start, count: low_u32(blocks.len()), unwritten: false })?;
        Ok(start)
    }

    /// Takes the end of an unwritten extent, which lies in `run` and begins at file block `from`, out of the map,
    /// and lends it to the update for blocks of the map.
    ///
    /// # Errors
    /// As [`MapMut::unmap`].
    pub(crate) fn unmap_and_lend(&mut self, from: FileBlock, run: BlockRun) -> Result<()> {
        // First: where order counts, taking it out may need a block too.
        self.tx.lend_blocks(run);
        extents::cut::remove(self, FileBlocks::from_count(from, u64::from(run.count)))?;
        self.uncharge(u64::from(run.count));
        self.tx.note_moved(self.inode.number());
        Ok(())
    }

    /// Puts what is left of blocks that were lent back into the map, unwritten.
    ///
    /// # Errors
    /// As [`MapMut::insert`].
    pub(crate) fn take_back(&mut self, logical: FileBlock, left: BlockRun) -> Result<()> {
        if left.count == 0 {
            return Ok(());
        }
        self.charge(u64::from(left.count));
        self.insert(NewRun { logical, start: left.start, count: left.count, unwritten: true })
    }

    /// Frees what is left of blocks that were lent.
    ///
    /// # Errors
    /// Blocks that are not the file's to free.
    pub(crate) fn give_up(&mut self, left: BlockRun) -> Result<()> {
        if left.count == 0 {
            return Ok(());
        }
        let start = self.tx.format.geometry.cluster_of(left.start);
        self.tx.free_clusters(ClusterRun { start, count: left.count })
    }

    /// Takes file blocks out of an extent tree and moves what is behind them forward.
    ///
    /// # Errors
    /// As [`MapMut::unmap`].
    pub(crate) fn collapse(&mut self, blocks: FileBlocks) -> Result<()> {
        self.unmap(blocks)?;
        extents::cut::shift(self, blocks.end, blocks.len().cast_signed().wrapping_neg())
    }

    /// Moves everything from the start of some file blocks on in an extent tree back by as many, which become a
    /// hole.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`]; as [`MapMut::unmap`].
    pub(crate) fn spread(&mut self, blocks: FileBlocks) -> Result<()> {
        let (from, count) = (blocks.start, blocks.len());
        let last = extents::bulk::list(self.view())?.last().map_or(0, Extent::logical_end);
        if last > from && last + count > self.view().limit() {
            let end = last + count;
            return Err(Error::FileTooLarge(format!("file block {end} is behind the reach of the map")));
        }
        // An extent that reaches over the place is cut there.
        let around = match from.checked_sub(1).map(|before| FileBlock(low_u32(before))) {
            Some(before) => self.view().lookup(before)?,
            None => Segment { logical: FileBlock(0), count: 0, state: State::Hole },
        };
        let crosses = around.state != State::Hole && around.count > 1;
        let end = u64::from(around.logical.0) + around.count;
        let cut = if crosses { extents::cut::remove(self, FileBlocks::new(from, end))? } else { Vec::new() };
        extents::cut::shift(self, from, count.cast_signed())?;
        for piece in cut {
            let logical = FileBlock(low_u32(u64::from(piece.logical.0) + count));
            let run = NewRun { logical, start: piece.start, count: piece.count, unwritten: piece.unwritten };
            extents::insert(self, run)?;
        }
        Ok(())
    }

    /// Repacks an extent tree if it takes more nodes than it needs; says whether it did.
    ///
    /// # Errors
    /// A broken map; no space for the new nodes.
    pub(crate) fn tidy(&mut self) -> Result<bool> {
        if may_be_untidy(self.inode) { extents::bulk::tidy(self) } else { Ok(false) }
    }

    /// Maps a file by an extent tree instead of block pointers, or the other way around; the data stays
    /// where it is.
    ///
    /// # Errors
    /// Towards block pointers: unwritten blocks, blocks that they can't reach, `bigalloc`. No space for
    /// the new map; a broken map.
    pub(crate) fn switch(&mut self, to_extents: bool) -> Result<()> {
        if is_tree(self.inode) == to_extents {
            return Ok(());
        }
        let unsupported = |what: &str| Err(Error::Unsupported(format!("block pointers: {what}")));
        if !to_extents && self.tx.format.geometry.cluster_log2 > 0 {
            return unsupported("the volume has clusters");
        }
        let all = self.remove(FileBlocks::ALL)?;
        if !to_extents && all.iter().any(|extent| extent.unwritten) {
            return unsupported("the file has space that was allocated and not written");
        }
        self.inode.raw_mut().i_block = [0; I_BLOCK_LEN];
        let mut flags = self.inode.flags();
        flags.set(InodeFlags::EXTENTS, to_extents);
        self.inode.set_flags(flags);
        if to_extents {
            extents::init(self.inode);
        }
        for Extent { logical, start, count, .. } in all {
            self.insert(NewRun { logical, start, count, unwritten: false })?;
        }
        Ok(())
    }

    /// Adds disk blocks to the space charged to the inode.
    pub(crate) fn charge(&mut self, blocks: u64) {
        let size = self.block_size();
        let sectors = self.inode.sectors(size) + (blocks << (size.log2() - 9));
        self.inode.set_sectors(sectors, size);
    }

    /// Takes disk blocks off the space charged to the inode.
    fn uncharge(&mut self, blocks: u64) {
        let size = self.block_size();
        let sectors = self.inode.sectors(size).saturating_sub(blocks << (size.log2() - 9));
        self.inode.set_sectors(sectors, size);
    }

    /// Takes a block for the map itself or for other metadata of the inode, and charges it.
    fn take_block(&mut self, goal: Block) -> Result<Block> {
        let (block, charged) = self.tx.allocate_metadata(goal)?;
        self.charge(charged);
        Ok(block)
    }

    /// Frees a block that [`MapMut::take_block`] took.
    fn give_block(&mut self, block: Block) -> Result<()> {
        let freed = self.tx.free_metadata(block)?;
        self.uncharge(freed);
        Ok(())
    }

    /// Where blocks of the inode would best begin.
    fn home(&self) -> Block {
        let (space, number) = (self.tx.space, self.inode.number());
        if space.wants_file() {
            let delays = self.tx.session.delayed.is_on();
            let is_regular = self.inode.file_type() == Some(FileType::Regular);
            return space.first_goal(number, self.tx.context.process, delays, is_regular);
        }
        space.home(number)
    }

    fn block_size(&self) -> BlockSize {
        self.tx.format.geometry.block_size
    }
}

/// Walks the stretches of a file.
pub(crate) struct Segments<'a> {
    map: Map<'a>,
    left: FileBlocks,
}

impl Iterator for Segments<'_> {
    type Item = Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        match self.map.lookup(self.left.first()) {
            Ok(mut segment) => {
                segment.count = segment.count.min(self.left.len());
                self.left.start += segment.count;
                Some(Ok(segment))
            }
            Err(error) => {
                self.left.start = self.left.end;
                Some(Err(error))
            }
        }
    }
}
