//! A change that was judged: what it writes, and in which order.
//!
//! Excludes: undo files, which the caller keeps until a change that is not atomic is stable.

use std::io;
use std::sync::Arc;

use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use platfs_check::Staged;
use platfs_device::{Device, Protection, mmp, read_superblock};

/// A change in memory, complete and judged.
pub struct Change {
    base: Arc<dyn Device>,
    staged: Arc<Staged>,
    /// True if only superblocks change.
    of_superblocks: bool,
    /// Ranges to be cleared first, bytes that nothing of the volume has before: first and count.
    zeros: Vec<(u64, u64)>,
}

impl Change {
    pub(crate) fn new(
        base: Arc<dyn Device>,
        staged: Arc<Staged>,
        zeros: Vec<(u64, u64)>,
    ) -> io::Result<Self> {
        let of_superblocks = staged.offsets().into_iter().all(|offset| is_superblock(&staged, offset));
        if !of_superblocks {
            // What takes the mark of a change that is under way away again is the superblock, changed or not.
            let mut superblock = [0; SUPERBLOCK_LEN];
            staged.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
            staged.write_at(SUPERBLOCK_OFFSET, &superblock)?;
        }
        Ok(Change { base, staged, of_superblocks, zeros })
    }

    /// The volume as it will be, and what an undo file is made of.
    #[must_use]
    pub fn staged(&self) -> &Arc<Staged> {
        &self.staged
    }

    /// True if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.staged.is_unchanged()
    }

    /// True if the change is made by the one write of the superblock, with its backups behind it: it needs no undo
    /// file.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.of_superblocks
    }

    /// Bytes that will be written, in pieces of 1,024.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.staged.offsets().len() as u64 * SUPERBLOCK_LEN as u64
    }

    /// This change, and behind it one that was drafted on its staged volume; both in one.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub(crate) fn with(self, next: &Change) -> io::Result<Self> {
        next.apply()?;
        Change::new(self.base, self.staged, self.zeros)
    }

    /// Refuses a volume with multiple mount protection that other hosts may have: whoever changes it takes its mark before
    /// he drafts the change ([`platfs_device::mmp::take`]).
    fn refuse_shared(&self) -> io::Result<()> {
        let marked = |raw: RawSuperblock| mmp::read_block(&*self.base, &raw).is_some();
        if self.base.protection() == Protection::Open && read_superblock(&*self.base).is_ok_and(marked) {
            return Err(io::Error::other("its mark of multiple mount protection was not taken"));
        }
        Ok(())
    }

    /// Writes the change to the device and flushes. One that is not atomic first marks the volume as having errors, and
    /// takes the mark away at the end: cut off between, it does not pass for a sound one.
    ///
    /// # Errors
    /// The device's own words.
    pub fn apply(&self) -> io::Result<()> {
        self.refuse_shared()?;
        for (offset, len) in &self.zeros {
            self.base.write_zeros(*offset, *len)?;
        }
        if !self.zeros.is_empty() {
            self.base.flush()?;
        }
        if !self.of_superblocks {
            return self.staged.apply();
        }
        let pieces = self.staged.changes()?;
        let (first, backups): (Vec<_>, Vec<_>) =
            pieces.iter().partition(|(offset, _)| *offset == SUPERBLOCK_OFFSET);
        for wave in [first, backups] {
            for (offset, bytes) in &wave {
                self.base.write_at(*offset, &bytes[..])?;
            }
            if !wave.is_empty() {
                self.base.flush()?;
            }
        }
        Ok(())
    }
}

/// True if a piece is a superblock of the volume, the primary or a backup.
fn is_superblock(staged: &Staged, offset: u64) -> bool {
    if offset == SUPERBLOCK_OFFSET {
        return true;
    }
    let Ok(raw) = read_superblock(staged) else { return false };
    let Ok(geometry) = ondisk::geometry::Geometry::from_superblock(&raw) else { return false };
    let block = ondisk::units::Block(offset >> geometry.block_size.log2());
    let Some(group) = geometry.group_of_block(block) else { return false };
    group.0 > 0 && geometry.backups.has_superblock(group) && geometry.superblock_offset(group) == offset
}
