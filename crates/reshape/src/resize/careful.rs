//! A device that keeps the old volume whole until the switch.
//!
//! Bytes for blocks that are free in the old volume, or behind its end, go to the device at once: nothing
//! refers to it yet. All else waits in memory. Excludes the switch itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::geometry::Geometry;
use ondisk::units::{Block, saturated};
use platfs_check::Staged;
use platfs_device::Device;

use super::bits::Bits;
use super::old_volume::OldVolume;

/// The way of bytes to the new volume.
pub(super) struct Careful<'b> {
    before: &'b OldVolume,
    base: Arc<dyn Device>,
    staged: Arc<Staged>,
    seen: Mutex<BTreeMap<u32, Bits>>,
}

impl<'b> Careful<'b> {
    pub(super) fn new(before: &'b OldVolume, base: Arc<dyn Device>, staged: Arc<Staged>) -> Self {
        Careful { before, base, staged, seen: Mutex::default() }
    }

    fn geometry(&self) -> &Geometry {
        &self.before.geometry
    }

    /// Returns true if the old volume has no use for a block.
    fn is_free(&self, block: Block) -> io::Result<bool> {
        let geometry = self.geometry();
        if block.0 >= geometry.blocks {
            return Ok(true);
        }
        // What stands before the first group belongs to no bitmap.
        let Some(group) = geometry.group_of_block(block) else { return Ok(false) };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let bits = match seen.entry(group.0) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(open) => {
                let bits = self.before.bitmap(group);
                open.insert(bits.map_err(|error| io::Error::other(error.to_string()))?)
            }
        };
        let (bit, _) = super::old_volume::span(geometry, geometry.group_start(group).0, block.0, block.0 + 1);
        Ok(!bits.get(bit))
    }

    fn is_same(&self, offset: u64, data: &[u8]) -> io::Result<bool> {
        let mut now = vec![0; data.len()];
        self.staged.read_at(offset, &mut now)?;
        Ok(now == data)
    }
}

impl Device for Careful<'_> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.staged.read_at(offset, buffer)
    }

    /// Runs of blocks that go the same way go together.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let log2 = self.geometry().block_size.log2();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let free = self.is_free(Block(at >> log2))?;
            let mut end = ((at >> log2) + 1) << log2;
            while end - offset < data.len() as u64 && self.is_free(Block(end >> log2))? == free {
                end += 1 << log2;
            }
            let stop = saturated::<usize>(end - offset).min(data.len());
            let part = data.get(done..stop).unwrap_or_default();
            if free {
                self.base.write_at(at, part)?;
            } else if !self.is_same(at, part)? {
                self.staged.write_at(at, part)?;
            }
            done = stop;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = self.geometry().blocks << self.geometry().block_size.log2();
        if offset >= end {
            return self.base.write_zeros(offset, len);
        }
        let zeros = [0; 64 * 1024];
        let mut done = 0;
        while done < len {
            let step = saturated::<usize>(len - done).min(zeros.len());
            self.write_at(offset + done, zeros.get(..step).unwrap_or_default())?;
            done += step as u64;
        }
        Ok(())
    }
}
