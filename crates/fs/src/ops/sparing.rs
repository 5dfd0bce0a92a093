//! Write-back into preallocated space where no block is left for the map to grow by.
//!
//! Bytes that go into the middle of an unwritten extent cut it in up to three, and the tree may have no
//! room for that. On a full volume the extent pays for it itself: a few of its blocks behind the end of the
//! file, which hold nothing and are promised to nobody else, become blocks of the map. Where it has none
//! there, zeros are written around the bytes, but never behind the end of the file: what is written there
//! would have no size. What is left of an extent that ends a little behind the file is freed.

use ondisk::inode::Inode;
use ondisk::units::{Block, BlockRun, FileBlock, low_u32};

use crate::dirty::DirtyFile;
use crate::error::{Error, Result};
use crate::file;
use crate::map::{self, Segments, State};
use crate::tx::Tx;
use crate::volume::Volume;

/// An unwritten extent: its file blocks, and the disk block of the first.
#[derive(Clone, Copy)]
struct Unwritten {
    first: u64,
    last: u64,
    start: Block,
}

impl Unwritten {
    fn place(&self, block: u64) -> Block {
        Block(self.start.0 + (block - self.first))
    }
}

impl Volume {
    /// Makes the file blocks `written` of a preallocated extent written without taking space. The file ends
    /// before block `limit`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where somebody writes to what would be given up: the next write-back takes it
    /// along. A broken map; the device's failure.
    pub(super) fn set_written_sparing(
        &self,
        update: &mut Tx<'_>,
        node: &mut Inode,
        file: &DirtyFile,
        written: (u64, u64),
        limit: u64,
    ) -> Result<()> {
        let Some(extent) = self.extent_around(update, node, written.0)? else {
            return map::set_unwritten(&self.format, &self.space, update, node, written, false);
        };
        let stop = extent.last.min(limit.max(written.1));
        let most = map::blocks_to_split_at_most(node);
        let whole_blocks = self.format.geometry.cluster_log2 == 0;
        // A journal that has the bytes of files may revoke them in this very transaction.
        let lends = whole_blocks && !update.journals_data();
        if lends && extent.last - stop > most {
            return self.split_on_loan(update, node, file, (extent, extent.last - most), written);
        }
        self.zero_around(node, extent, written, stop)?;
        if stop < extent.last {
            keep_off(file, (stop, extent.last))?;
            if lends {
                return self.cut_on_loan(update, node, (extent, stop));
            }
            map::unmap(&self.format, &self.space, update, node, stop, extent.last)?;
        }
        map::set_unwritten(&self.format, &self.space, update, node, (extent.first, stop), false)
    }

    /// Splits an extent, whose blocks from `from` on the map may take for that. Those it did not take come back.
    fn split_on_loan(
        &self,
        update: &mut Tx<'_>,
        node: &mut Inode,
        file: &DirtyFile,
        (extent, from): (Unwritten, u64),
        written: (u64, u64),
    ) -> Result<()> {
        keep_off(file, (from, extent.last))?;
        let lent = BlockRun { start: extent.place(from), count: low_u32(extent.last - from) };
        map::lend(&self.format, &self.space, update, node, (from, lent))?;
        map::set_unwritten(&self.format, &self.space, update, node, written, false)?;
        let left = update.end_loan();
        map::take_back(&self.format, &self.space, update, node, (FileBlock(low_u32(from)), left))
    }

    /// Makes an extent that reaches a little behind the file written up to `stop`. The map may take the rest; what it
    /// does not take is freed.
    fn cut_on_loan(
        &self,
        update: &mut Tx<'_>,
        node: &mut Inode,
        (extent, stop): (Unwritten, u64),
    ) -> Result<()> {
        let lent = BlockRun { start: extent.place(stop), count: low_u32(extent.last - stop) };
        map::lend(&self.format, &self.space, update, node, (stop, lent))?;
        map::set_unwritten(&self.format, &self.space, update, node, (extent.first, stop), false)?;
        let left = update.end_loan();
        map::give_up(&self.format, &self.space, update, left)
    }

    /// The unwritten extent that holds a file block.
    fn extent_around(&self, update: &Tx<'_>, node: &Inode, block: u64) -> Result<Option<Unwritten>> {
        let before = block.saturating_sub(u64::from(ondisk::extent::MAX_UNWRITTEN));
        for segment in Segments::new(update, &self.format, node, before, 1 << 32) {
            let segment = segment?;
            let first = u64::from(segment.logical.0);
            let last = first + segment.count;
            if last > block {
                let State::Unwritten(start) = segment.state else { break };
                return Ok(Some(Unwritten { first, last, start }));
            }
        }
        Ok(None)
    }

    /// Zeros on the device for the blocks of an extent before `stop` that get no bytes now.
    fn zero_around(&self, node: &Inode, extent: Unwritten, written: (u64, u64), stop: u64) -> Result<()> {
        let at = |block: u64| self.format.geometry.byte_offset(extent.place(block));
        file::write_zeros(self, node, at(extent.first), at(written.0))?;
        file::write_zeros(self, node, at(written.1), at(stop))
    }
}

/// Sees to it that nobody's bytes go to file blocks that are about to be given up: who wants to write there waits
/// for the end of this write-back, and looks at the map again.
fn keep_off(file: &DirtyFile, blocks: (u64, u64)) -> Result<()> {
    let mut state = file.state();
    if state.pages.dirty_blocks(blocks.0, blocks.1) > 0 {
        return Err(Error::NoSpace);
    }
    state.leaving.push(blocks);
    Ok(())
}
