//! Write-back into preallocated space where no block is left for the map to grow by.
//!
//! Bytes that go into the middle of an unwritten extent cut it in up to three, and the tree may have no
//! room for that. On a full volume the extent pays for it itself: a few of its blocks behind the end of the
//! file, which hold nothing and are promised to no other file, become blocks of the map. Where it has none
//! there, zeros are written around the bytes, but never behind the end of the file: what is written there
//! would have no size. What is left of an extent that ends a little behind the file is freed.

use ondisk::inode::Inode;
use ondisk::units::{Block, BlockRun, low_u32};

use crate::dirty::DirtyFile;
use crate::error::{Error, Result};
use crate::map::{self, State};
use crate::ranges::{ByteRange, FileBlocks};
use crate::tx::Tx;

/// An unwritten extent: its file blocks, and the disk block of the first.
#[derive(Clone, Copy)]
struct Unwritten {
    blocks: FileBlocks,
    start: Block,
}

impl Unwritten {
    fn disk_block(&self, block: u64) -> Block {
        Block(self.start.0 + (block - self.blocks.start))
    }

    /// Its blocks from one on.
    fn tail(&self, from: u64) -> Tail {
        let blocks = FileBlocks { start: from, ..self.blocks };
        Tail { blocks, run: BlockRun { start: self.disk_block(from), count: low_u32(blocks.len()) } }
    }
}

/// The last blocks of an extent, which it gives up: the file blocks, and where they lie.
#[derive(Clone, Copy)]
struct Tail {
    blocks: FileBlocks,
    run: BlockRun,
}

impl Tx<'_> {
    /// Makes the file blocks `written` of a preallocated extent written without taking space. The file ends
    /// before block `limit`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where another thread writes to blocks that would be given up: the next write-back takes
    /// those bytes along. A broken map; the device's failure.
    pub(super) fn set_written_sparing(
        &mut self,
        node: &mut Inode,
        file: &DirtyFile,
        written: FileBlocks,
        limit: u64,
    ) -> Result<()> {
        let Some(extent) = self.extent_around(node, written.start)? else {
            return self.map(node).set_unwritten(written, false);
        };
        let last = extent.blocks.end;
        let stop = last.min(limit.max(written.end));
        let most = map::blocks_to_split_at_most(node);
        let whole_blocks = self.format.geometry.cluster_log2 == 0;
        // A journal that has the bytes of files may revoke them in this very transaction.
        let lends = whole_blocks && !self.journals_data();
        if lends && last - stop > most {
            let lent = extent.tail(last - most);
            keep_off(file, lent.blocks)?;
            return self.split_on_loan(node, lent, written);
        }
        let kept = FileBlocks { end: stop, ..extent.blocks };
        self.zero_around(node, extent, written, kept)?;
        if stop < last {
            let lent = extent.tail(stop);
            keep_off(file, lent.blocks)?;
            if lends {
                return self.cut_on_loan(node, lent, kept);
            }
            self.map(node).unmap(lent.blocks)?;
        }
        self.map(node).set_unwritten(kept, false)
    }

    /// Splits an extent, whose last blocks the map may take for that. Those it did not take come back.
    fn split_on_loan(&mut self, node: &mut Inode, lent: Tail, written: FileBlocks) -> Result<()> {
        self.map(node).unmap_and_lend(lent.blocks.first(), lent.run)?;
        self.map(node).set_unwritten(written, false)?;
        let left = self.end_loan();
        self.map(node).take_back(lent.blocks.first(), left)
    }

    /// Makes what is kept of an extent that reaches a little behind the file written. The map may take the rest; what
    /// it does not take is freed.
    fn cut_on_loan(&mut self, node: &mut Inode, lent: Tail, kept: FileBlocks) -> Result<()> {
        self.map(node).unmap_and_lend(lent.blocks.first(), lent.run)?;
        self.map(node).set_unwritten(kept, false)?;
        let left = self.end_loan();
        self.map(node).give_up(left)
    }

    /// The unwritten extent that holds a file block.
    fn extent_around(&self, node: &Inode, block: u64) -> Result<Option<Unwritten>> {
        let before = block.saturating_sub(u64::from(ondisk::extent::MAX_UNWRITTEN));
        for segment in self.view().map(node).segments(FileBlocks::behind(before)) {
            let segment = segment?;
            let blocks = FileBlocks::from_count(segment.logical, segment.count);
            if blocks.end > block {
                let State::Unwritten(start) = segment.state else { break };
                return Ok(Some(Unwritten { blocks, start }));
            }
        }
        Ok(None)
    }

    /// Zeros on the device for those blocks kept of an extent that get no bytes now.
    fn zero_around(
        &mut self,
        node: &mut Inode,
        extent: Unwritten,
        written: FileBlocks,
        kept: FileBlocks,
    ) -> Result<()> {
        let at = |block: u64| self.format.geometry.byte_offset(extent.disk_block(block));
        let before = ByteRange::new(at(kept.start), at(written.start));
        let behind = ByteRange::new(at(written.end), at(kept.end));
        self.contents(node).write_zeros(before)?;
        self.contents(node).write_zeros(behind)
    }
}

/// Keeps bytes from going to file blocks that are about to be given up: a writer there waits for the end of this
/// write-back, and looks at the map again.
fn keep_off(file: &DirtyFile, blocks: FileBlocks) -> Result<()> {
    let mut state = file.state();
    if state.pages.dirty_blocks(blocks) > 0 {
        return Err(Error::NoSpace);
    }
    state.leaving.push(blocks);
    Ok(())
}
