//! Where the contents of an inode lie: its map as a row of stretches.

use ondisk::corrupt::Place;
use ondisk::features::RoCompat;
use ondisk::units::{FileBlock, InodeNumber, low_u32};

use crate::error::{Error, Result};
use crate::map::{Segment, State};
use crate::volume::{VersionedInode, Volume};

/// The stretches of an inode's map in file order.
///
/// A map that holds more blocks than the volume has, as hostile images tie together from a few blocks,
/// is reported as corrupt, so that a walk is never longer than the volume is large.
pub struct FileMap<'v> {
    seen: VersionedInode<'v>,
    at: u64,
    end: u64,
    /// Blocks that may still come.
    blocks_left: u64,
    /// Stretches that may still come.
    steps_left: u64,
}

impl<'v> FileMap<'v> {
    /// The stretches up to file block `end`; none if the contents are in the inode.
    pub(super) fn new(seen: VersionedInode<'v>, end: u64) -> Self {
        let format = &seen.volume().format;
        let blocks = format.geometry.blocks;
        // On volumes that deduplicate, blocks stand in many places.
        let shared = format.has_ro_compat(RoCompat::SHARED_BLOCKS);
        FileMap {
            at: 0,
            end: if seen.node().has_map() { end.min(1 << 32) } else { 0 },
            seen,
            blocks_left: if shared { u64::MAX } else { blocks },
            // A stretch is mapped, or a hole beside one that is, or cut by the edge of a map block.
            steps_left: if shared { u64::MAX } else { blocks.saturating_mul(4) + 16 },
        }
    }

    /// Starts the iteration at a file block.
    #[must_use]
    pub fn starting_at(mut self, block: u64) -> Self {
        self.at = self.at.max(block).min(self.end);
        self
    }

    fn step(&mut self) -> Result<Segment> {
        let at = FileBlock(low_u32(self.at));
        let rest = Segment { logical: at, count: self.end - self.at, state: State::Hole };
        let mut segment = self.seen.seqlock_read(|view, inode| match inode.has_map() {
            true => view.map(inode).lookup(at),
            false => Ok(rest),
        })?;
        segment.count = segment.count.min(self.end - self.at);
        let taken = if segment.state == State::Hole { 0 } else { segment.count };
        let left = self.blocks_left.checked_sub(taken).zip(self.steps_left.checked_sub(1));
        let Some((blocks, steps)) = left else {
            let problem = format!("more blocks than the volume has, at file block {at}");
            return Err(Error::corrupt(Place::Map(self.seen.number()), problem));
        };
        (self.blocks_left, self.steps_left) = (blocks, steps);
        self.at += segment.count;
        Ok(segment)
    }
}

impl Iterator for FileMap<'_> {
    type Item = Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.at = self.end;
        }
        Some(step)
    }
}

impl Volume {
    /// The whole map of an inode, of whatever type, with what is allocated behind its size. It ends
    /// with a hole unless it is full.
    ///
    /// # Errors
    /// A broken inode; the device's failure. A broken map is an error of the iterator, which then ends.
    pub fn map(&self, number: InodeNumber) -> Result<FileMap<'_>> {
        Ok(FileMap::new(VersionedInode::read(self, number)?, 1 << 32))
    }
}
