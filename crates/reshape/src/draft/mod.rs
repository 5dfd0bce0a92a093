//! The draft of a change: a volume read into memory over its image, edited there, judged, and then applied.
//!
//! | module | owns |
//! | --- | --- |
//! | `table` | the group descriptors and their copies |
//! | `space` | bitmaps and counts: taking and giving back blocks and inodes |
//! | `files` | inodes, and where their contents lie |
//! | `mapping` | maps of new files of the volume itself |
//! | `judge` | the check of the volume as it would be |
//! | `change` | what is written, and in which order |
//!
//! All edits go to a [`Staged`] device; the image is only read until [`Change::apply`].

mod change;
mod files;
mod judge;
mod mapping;
mod space;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ondisk::features::{Features, Incompat};
use ondisk::geometry::Geometry;
use ondisk::inode::Timestamp;
use ondisk::mmp::RawMmp;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET};
use ondisk::units::{Block, Group, low_u16};
use platfs_check::Staged;
use platfs_device::{Device, read_superblock, refuse_unreadable};
use zerocopy::IntoBytes;

pub use change::Change;
pub use files::runs_of;
pub use judge::{CheckResult, judge, refuse_unsound};
use table::Table;

use crate::error::refused;
use crate::{Error, Result};

/// Bounds of a draft, and the values that it is a function of.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory for changes, and as many for the check.
    pub memory: u64,
    /// Threads of the check.
    pub threads: usize,
    /// Now.
    pub now: Timestamp,
}

/// A volume with the changes made so far, all in memory.
pub struct Draft {
    base: Arc<dyn Device>,
    staged: Arc<Staged>,
    limits: Limits,
    raw: RawSuperblock,
    geometry: Geometry,
    sealer: Sealer,
    table: Table,
    /// Runs that were given back: they are the volume's until the change is applied.
    released: Vec<(Block, u64)>,
    /// Bytes to be cleared before anything else is written, free ones: first and count.
    zeros: Vec<(u64, u64)>,
}

impl Draft {
    /// Begins a draft of the volume on a device, which is only read. [`judge`] says whether the volume is sound.
    ///
    /// # Errors
    /// No volume; one that this code can't read; one with a journal to be replayed, or marked as not closed or as
    /// having errors, with the remedy.
    pub fn open(device: Arc<dyn Device>, limits: Limits) -> Result<Self> {
        let draft = Self::open_marked(device, limits)?;
        let raw = &draft.raw;
        if raw.features().incompat.contains(Incompat::MMP) {
            let place = Block(raw.s_mmp_block.get());
            let mark = RawMmp::parse(place, &draft.block(place)?);
            if mark.is_ok_and(|mark| !mark.is_clean()) {
                return refused(
                    "another host has it mounted, or had when it stopped (mmp); if none has, \
                     `plat tune -E clear_mmp` takes the mark away",
                );
            }
        }
        Ok(draft)
    }

    /// As [`Draft::open`], also of a volume that is marked as mounted by a machine (`mmp`).
    ///
    /// # Errors
    /// As [`Draft::open`], but for the mark.
    pub fn open_marked(device: Arc<dyn Device>, limits: Limits) -> Result<Self> {
        refuse_unclosed(&read_superblock(&*device)?)?;
        Self::open_as_it_is(device, limits)
    }

    /// As [`Draft::open_marked`], also of a volume that was not closed: for changes of the superblock alone.
    pub(crate) fn open_as_it_is(device: Arc<dyn Device>, limits: Limits) -> Result<Self> {
        let raw = read_superblock(&*device)?;
        refuse_unreadable(raw.features())?;
        let geometry = Geometry::from_superblock(&raw).map_err(platfs_device::Error::from)?;
        let sealer = Sealer::from_superblock(&raw);
        if !sealer.superblock_is_right(&raw) {
            return refused(
                "the checksum of its superblock is wrong: have it repaired first (`plat check -y`)",
            );
        }
        let end = geometry.blocks << geometry.block_size.log2();
        if end > device.size() {
            return refused(format!(
                "the volume has {end} bytes, but the device ends after {}: copy it again, or make it as long and have it \
                 checked (`plat check`)",
                device.size()
            ));
        }
        let staged = Arc::new(Staged::new(Arc::clone(&device), limits.memory));
        let table = Table::read(&*staged, &geometry, limits.memory)?;
        let (released, zeros) = (Vec::new(), Vec::new());
        Ok(Draft { base: device, staged, limits, raw, geometry, sealer, table, released, zeros })
    }

    /// The superblock as it will be, but for its checksum.
    #[must_use]
    pub fn superblock(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The superblock, to edit fields that other structures don't depend on. [`Draft::reshape`] is for the others.
    pub fn superblock_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// The features as they will be.
    #[must_use]
    pub fn features(&self) -> Features {
        self.raw.features()
    }

    /// The sizes as they will be.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The checksums as they will be.
    #[must_use]
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Returns the draft's bounds.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The volume as it is.
    #[must_use]
    pub fn base(&self) -> &Arc<dyn Device> {
        &self.base
    }

    /// The volume with the edits so far.
    #[must_use]
    pub fn device(&self) -> &Arc<Staged> {
        &self.staged
    }

    /// Changes fields on which sizes and checksums depend, and goes on with those that follow from them. Descriptors
    /// keep what they say, and are written in their new form by [`Draft::finish`]; checksums of all else, and what has
    /// to move, are the caller's.
    ///
    /// # Errors
    /// The fields contradict each other.
    pub fn reshape(&mut self, edit: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let mut raw = self.raw;
        edit(&mut raw);
        let geometry = Geometry::from_superblock(&raw).map_err(platfs_device::Error::from)?;
        let sealer = Sealer::from_superblock(&raw);
        if geometry != self.geometry || sealer != self.sealer {
            self.table.reshape(&geometry);
        }
        (self.raw, self.geometry, self.sealer) = (raw, geometry, sealer);
        Ok(())
    }

    /// Changes fields on which checksums of superblocks depend, and no others.
    ///
    /// # Errors
    /// The fields contradict each other.
    pub fn reshape_fields(&mut self, edit: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        edit(&mut self.raw);
        self.geometry = Geometry::from_superblock(&self.raw).map_err(platfs_device::Error::from)?;
        self.sealer = Sealer::from_superblock(&self.raw);
        Ok(())
    }

    /// Has blocks that were taken cleared: on the device, before the change, where they were free before; else in
    /// memory, with the change.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub fn zero_first(&mut self, runs: &[(Block, u64)]) -> Result<()> {
        for (start, count) in runs {
            let overlaps = |(other, len): &(Block, u64)| start.0 < other.0 + len && other.0 < start.0 + count;
            let offset = self.geometry.byte_offset(*start);
            let len = count << self.geometry.block_size.log2();
            if self.released.iter().any(overlaps) {
                self.staged.write_zeros(offset, len).map_err(Error::io("clearing blocks"))?;
            } else {
                self.zeros.push((offset, len));
            }
        }
        Ok(())
    }

    /// The bytes of a block, with the edits so far.
    ///
    /// # Errors
    /// A block outside the volume; the device's failure.
    pub fn block(&self, block: Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size.bytes_usize()];
        if block.0 >= self.geometry.blocks {
            return refused(format!("block {block} lies outside the volume"));
        }
        self.staged
            .read_at(self.geometry.byte_offset(block), &mut bytes)
            .map_err(Error::io(format!("reading block {block}")))?;
        Ok(bytes)
    }

    /// Stages new bytes of a block.
    ///
    /// # Errors
    /// A block outside the volume; more changes than the memory may hold.
    pub fn put_block(&self, block: Block, bytes: &[u8]) -> Result<()> {
        if block.0 >= self.geometry.blocks {
            return refused(format!("block {block} lies outside the volume"));
        }
        self.staged
            .write_at(self.geometry.byte_offset(block), bytes)
            .map_err(Error::io(format!("staging block {block}")))
    }

    /// Stages descriptors, superblock and backups: the device that [`Draft::device`] gives is whole then.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub fn stage_superblocks(&mut self) -> Result<()> {
        self.table.store(&*self.staged, &self.geometry, &self.sealer)?;
        let mut copy = self.raw;
        copy.s_state.set(copy.s_state.get() & !STATE_VALID);
        let before = read_superblock(&*self.base)?;
        for group in (1..self.geometry.groups).map(Group) {
            if self.geometry.backups.has_superblock(group) && changes_backups(&before, &self.raw) {
                copy.s_block_group_nr.set(low_u16(group.0));
                self.put_superblock(self.geometry.superblock_offset(group), &mut copy.clone())?;
            }
        }
        let mut raw = self.raw;
        self.put_superblock(SUPERBLOCK_OFFSET, &mut raw)
    }

    fn put_superblock(&self, offset: u64, raw: &mut RawSuperblock) -> Result<()> {
        self.sealer.seal_superblock(raw);
        let mut there = [0; ondisk::superblock::SUPERBLOCK_LEN];
        self.staged.read_at(offset, &mut there).map_err(Error::io("reading a superblock"))?;
        if there == raw.as_bytes() {
            return Ok(());
        }
        self.staged.write_at(offset, raw.as_bytes()).map_err(Error::io("staging a superblock"))
    }

    /// Ends a draft of fields of the superblock alone: nothing else was changed, so that nothing else is looked at.
    ///
    /// # Errors
    /// More changes than the memory may hold.
    pub fn finish_fields(mut self) -> Result<Change> {
        self.stage_superblocks()?;
        Change::new(self.base, self.staged, self.zeros).map_err(Error::io("staging the superblock"))
    }

    /// Ends a draft: the check judges the volume as it would be. Of what it finds, kinds in `expected` (by their
    /// identifiers) are part of the change, and their repairs with them.
    ///
    /// # Errors
    /// The check finds anything else; more changes than the memory may hold.
    pub fn finish(mut self, expected: &[&str]) -> Result<Change> {
        self.stage_superblocks()?;
        let kept = self.raw;
        let judged = judge(&(Arc::clone(&self.staged) as Arc<dyn Device>), &self.limits, expected)?;
        if let Some(why) = judged.refusal {
            return refused(format!("nothing was written: the volume would not be sound: {why}"));
        }
        if let Some(repaired) = judged.repaired {
            repaired.apply().map_err(Error::io("staging what follows from the change"))?;
            self.take_up(&kept)?;
        }
        if judged.expected > 0 {
            let again = judge(&(Arc::clone(&self.staged) as Arc<dyn Device>), &self.limits, &[])?;
            if let Some(why) = again.refusal {
                return refused(format!("nothing was written: the volume would not be sound: {why}"));
            }
        }
        Change::new(self.base, self.staged, self.zeros).map_err(Error::io("staging the superblock"))
    }

    /// Goes on with what repairs made of superblock and descriptors. Notes of a check, which this was not, stay as
    /// they were.
    fn take_up(&mut self, kept: &RawSuperblock) -> Result<()> {
        let mut raw = read_superblock(&*self.staged)?;
        raw.s_state = kept.s_state;
        raw.s_mnt_count = kept.s_mnt_count;
        raw.set_times(kept.times());
        self.raw = raw;
        self.table = Table::read(&*self.staged, &self.geometry, self.limits.memory)?;
        self.stage_superblocks()
    }
}

/// Refuses a volume that another program has, or that needs a mount or a check first.
pub(crate) fn refuse_unclosed(raw: &RawSuperblock) -> Result<()> {
    if raw.features().incompat.contains(Incompat::RECOVER) {
        if raw.s_journal_inum.get() == 0 {
            return refused(
                "its journal on another device is to be replayed: mount it with that device once; if the device is lost, \
                 `plat tune -f -O ^has_journal` gives up what only the journal has",
            );
        }
        return refused(
            "its journal is to be replayed: mount and unmount it, or let `plat check -p` replay it, then try again",
        );
    }
    let state = raw.s_state.get();
    if state & STATE_ERROR != 0 {
        return refused("it is marked as having errors: have it repaired first (`plat check -y`)");
    }
    if state & STATE_VALID == 0 {
        return refused("it was not closed: have it checked first (`plat check -p`)");
    }
    if raw.s_last_orphan.get() != 0 {
        return refused(
            "files that were deleted while open wait for a mount: have it checked first (`plat check -p`)",
        );
    }
    Ok(())
}

/// True if the backups have to follow: for all but marks and counts that each mount changes.
fn changes_backups(before: &RawSuperblock, after: &RawSuperblock) -> bool {
    let lasting = |raw: &RawSuperblock| {
        let mut copy = *raw;
        copy.s_state.set(0);
        copy.s_mnt_count.set(0);
        copy.set_times(ondisk::superblock::SuperblockTimes::default());
        copy.s_checksum.set(0);
        copy
    };
    lasting(before).as_bytes() != lasting(after).as_bytes()
}
