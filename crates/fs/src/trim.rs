//! Discards: the device learns which space is not needed: what a sync made free, and all that is free.

use std::io;
use std::ops::Range;

use ondisk::geometry::Geometry;
use ondisk::units::{Block, low_u32};

use crate::error::{Error, Result};
use crate::space::Trimmed;
use crate::volume::Volume;

impl Volume {
    /// Discards free space in a range of bytes of the volume, in runs of at least `min` bytes, and returns
    /// how much that was. Space that was freed and is not committed yet is left alone. Others can go on meanwhile: little
    /// is kept from them at a time.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the range begins behind the end or holds no block, `min` is longer than a group.
    /// [`Error::Unsupported`]: the device has no use for it. The device's failure; not open for writing.
    pub fn trim(&self, range: Range<u64>, min: u64) -> Result<u64> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.syncing().refuse_failed()?;
        let _shape = self.keep_shape();
        let geometry = &self.format.geometry;
        let log2 = geometry.block_size.log2();
        let cluster_log2 = log2 + geometry.cluster_log2;
        let blocks = (range.start >> log2, range.end >> log2);
        let len = range.end.saturating_sub(range.start);
        if blocks.0 >= geometry.blocks || len >> log2 == 0 {
            return Err(Error::Invalid(format!("no block is in the {len} bytes from {} on", range.start)));
        }
        if min >> cluster_log2 > u64::from(geometry.clusters_per_group()) {
            return Err(Error::Invalid(format!("no free run has {min} bytes: groups end before")));
        }
        let unit = self.cache.device().discard_unit().map_err(cant_discard)?.max(1);
        let min = min.max(unit).div_ceil(1 << cluster_log2).max(1);
        if min > u64::from(geometry.clusters_per_group()) {
            return Ok(0);
        }
        let wanted = Trimmed { min: low_u32(min), unit: low_u32(unit.div_ceil(1 << cluster_log2)) };
        let mut told = 0;
        self.space.hold_free(whole_clusters(geometry, blocks.0, blocks.1), wanted, |held| {
            self.syncing().refuse_failed()?;
            told += self.syncing().discard(held.run()).map_err(cant_discard)?;
            Ok(())
        })?;
        Ok(told)
    }
}

/// The clusters that lie wholly in a range of blocks; the last one of a volume may be short.
fn whole_clusters(geometry: &Geometry, start: u64, end: u64) -> Range<u64> {
    let of = |block: u64| geometry.cluster_of(Block(block.max(u64::from(geometry.first_data_block))));
    let first = of(start);
    let first = first.0 + u64::from(geometry.cluster_start(first).0 < start);
    let last = if end >= geometry.blocks { geometry.clusters() } else { of(end).0 };
    first..last
}

fn cant_discard(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::Unsupported {
        return Error::Unsupported("the device can't be told which space is free".into());
    }
    Error::io("telling the device which space is free", error)
}
