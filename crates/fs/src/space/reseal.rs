//! Bitmaps and descriptors of a volume that was cut off in an epoch of soft updates, made to fit each other.
//!
//! Bits are right, or set where nothing is in use (I27); so what descriptors say of them follows: how much is free,
//! and checksums. Inodes behind the part of a table that was ever used are not in use, whatever the bitmap
//! says: records come before names, and that part grows with records. Cut off, this is done again.

use ondisk::corrupt::Place;
use ondisk::group::RawGroupDescriptor;
use ondisk::units::{Block, Group};

use super::descriptors::Descriptors;
use super::groups;
use crate::bits::Bits;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;

/// Most bytes for what is known of clusters and inodes.
const MEMORY: u64 = 1 << 30;

/// Clusters and inodes marked as in use.
pub(crate) struct Marked {
    /// Clusters that no structure of the volume lies in.
    pub(crate) clusters: Bits,
    pub(crate) inodes: Bits,
    /// Blocks and inodes that are free.
    pub(crate) free: (u64, u32),
}

struct Resealing<'d> {
    device: &'d dyn Device,
    format: &'d Format,
    descriptors: Descriptors,
    marked: Marked,
}

/// Makes bitmaps and descriptors fit each other; what that changes is written, without a flush.
///
/// # Errors
/// Broken descriptors, structures that are marked free; a volume too large to know all of; the device's failure.
pub(crate) fn reseal(device: &dyn Device, format: &Format) -> Result<Marked> {
    let geometry = &format.geometry;
    let (clusters, inodes) = (geometry.clusters(), u64::from(geometry.inodes()));
    if (clusters * 2 + inodes) / 8 > MEMORY {
        let problem =
            "the volume was not closed cleanly, and is too large to be reclaimed; check it before writing";
        return Err(Error::Unsupported(problem.into()));
    }
    let marked = Marked { clusters: Bits::new(clusters), inodes: Bits::new(inodes), free: (0, 0) };
    let descriptors = Descriptors::load(device, format, false)?;
    let mut resealing = Resealing { device, format, descriptors, marked };
    for group in (0..geometry.groups).map(Group) {
        resealing.group(group)?;
    }
    resealing.descriptors.write(device)?;
    Ok(resealing.marked)
}

impl Resealing<'_> {
    fn read(&self, block: Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.format.geometry.block_size.bytes_usize()];
        let read = self.device.read_at(self.format.geometry.byte_offset(block), &mut bytes);
        read.map_err(|source| Error::io(format!("reading block {block}"), source))?;
        Ok(bytes)
    }

    fn group(&mut self, group: Group) -> Result<()> {
        let mut raw = self.descriptors.get(group)?;
        self.clusters(group, &mut raw)?;
        self.inodes(group, &mut raw)?;
        let blocks = u64::from(raw.free_clusters()) << self.format.geometry.cluster_log2;
        self.marked.free.0 += blocks;
        self.marked.free.1 += raw.free_inodes();
        self.descriptors.put(group, raw);
        Ok(())
    }

    fn clusters(&mut self, group: Group, raw: &mut RawGroupDescriptor) -> Result<()> {
        if self.descriptors.blocks_uninitialised(raw) {
            return Ok(());
        }
        let geometry = &self.format.geometry;
        let mut bitmap = self.read(raw.block_bitmap())?;
        if let Some(right) = self.format.sealer.bitmap_checksum(&bitmap, geometry.clusters_per_group()) {
            raw.set_block_bitmap_checksum(right);
        }
        let (start, end) = groups::group_span(geometry, group);
        let used = |bitmap: &[u8]| (0..end - start).filter(|bit| is_set(bitmap, *bit)).count() as u64;
        raw.set_free_clusters(ondisk::units::low_u32(end - start - used(&bitmap)));
        for run in groups::within(geometry, self.descriptors.structures()?, group) {
            for bit in run.start.0 - start..run.end() - start {
                if !is_set(&bitmap, bit) {
                    return Err(Error::corrupt(Place::BlockBitmap(group), "says that a structure is free"));
                }
            }
            groups::clear_bits(&mut bitmap, run.start.0 - start..run.end() - start);
        }
        (0..end - start)
            .filter(|bit| is_set(&bitmap, *bit))
            .for_each(|bit| self.marked.clusters.add(start + bit));
        Ok(())
    }

    /// Empties records behind the part of a table that counts: one may have been written whose descriptor was not,
    /// and would be found in the place of the next inode of its number once that counts (I27). Stable before its
    /// bit, which leads here, goes.
    fn empty_records(&self, raw: &RawGroupDescriptor, bits: impl Iterator<Item = u64>) -> Result<()> {
        let geometry = &self.format.geometry;
        let size = usize::from(geometry.inode_size);
        let table = geometry.byte_offset(raw.inode_table());
        let failed = |source| Error::io("emptying an inode that was never used", source);
        for bit in bits {
            self.device.write_at(table + bit * size as u64, &vec![0; size]).map_err(failed)?;
        }
        self.device.flush().map_err(failed)
    }

    fn inodes(&mut self, group: Group, raw: &mut RawGroupDescriptor) -> Result<()> {
        let format = self.format;
        let per_group = format.geometry.inodes_per_group;
        if self.descriptors.inodes_uninitialised(raw) {
            // Counts may have come to the device before the mark of the first inode.
            raw.set_free_inodes(per_group);
            raw.set_used_directories(0);
            return Ok(());
        }
        let mut bitmap = self.read(raw.inode_bitmap())?;
        let reached = u64::from(self.descriptors.used_inodes(raw).min(per_group));
        let strays = reached..u64::from(per_group);
        if strays.clone().any(|bit| is_set(&bitmap, bit)) {
            self.empty_records(raw, strays.clone().filter(|bit| is_set(&bitmap, *bit)))?;
            groups::clear_bits(&mut bitmap, strays);
            let offset = format.geometry.byte_offset(raw.inode_bitmap());
            let written = self.device.write_at(offset, &bitmap);
            written.map_err(|source| Error::io("writing an inode bitmap", source))?;
        }
        let first = u64::from(group.0) * u64::from(per_group);
        let mut used = 0;
        for bit in (0..reached).filter(|bit| is_set(&bitmap, *bit)) {
            self.marked.inodes.add(first + bit);
            used += 1;
        }
        raw.set_free_inodes(per_group - used);
        raw.set_used_directories(raw.used_directories().min(used));
        if format.features.descriptor_csum() {
            raw.set_unused_inodes(per_group - groups::last_used(&bitmap, per_group));
        }
        if let Some(right) = format.sealer.bitmap_checksum(&bitmap, per_group) {
            raw.set_inode_bitmap_checksum(right);
        }
        Ok(())
    }
}

fn is_set(bitmap: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get(at));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
