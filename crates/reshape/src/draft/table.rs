//! The group descriptors in memory, and the places where they and their copies are written.
//!
//! Excludes: what they say of bitmaps and counts.

use ondisk::invariant_or;
use std::collections::BTreeSet;

use ondisk::geometry::Geometry;
use ondisk::group::RawGroupDescriptor;
use ondisk::seal::Sealer;
use ondisk::units::{Block, Group};
use platfs_device::Device;

use crate::error::refused;
use crate::{Error, Result};

/// All descriptors of a volume.
pub(super) struct Table {
    descriptors: Vec<RawGroupDescriptor>,
    changed: BTreeSet<u32>,
    /// True if form or place of all changes.
    reshaped: bool,
}

impl Table {
    pub(super) fn read(device: &dyn Device, geometry: &Geometry, memory: u64) -> Result<Self> {
        if u64::from(geometry.groups) * 64 > memory {
            return refused(format!("{} groups need more memory than there is", geometry.groups));
        }
        if geometry.descriptor_size > 64 {
            return refused("its group descriptors have more than 64 bytes, of which the rest is not known");
        }
        let (mut descriptors, size) = (Vec::new(), usize::from(geometry.descriptor_size));
        let mut bytes = vec![0; geometry.block_size.bytes_usize()];
        for index in 0..geometry.descriptor_blocks() {
            let block = geometry.descriptor_block(index);
            if !geometry.contains(block, 1) {
                return refused(format!("descriptor block {index} would lie outside the volume"));
            }
            device
                .read_at(geometry.byte_offset(block), &mut bytes)
                .map_err(Error::io(format!("reading group descriptors (block {block})")))?;
            let left = (geometry.groups - index * geometry.descriptors_per_block()) as usize;
            descriptors.extend(bytes.chunks_exact(size).take(left).map(RawGroupDescriptor::parse));
        }
        Ok(Table { descriptors, changed: BTreeSet::new(), reshaped: false })
    }

    /// Goes on with other sizes: groups may be fewer or more, which have zeros.
    pub(super) fn reshape(&mut self, geometry: &Geometry) {
        self.descriptors.resize(geometry.groups as usize, RawGroupDescriptor::zeroed());
        self.reshaped = true;
    }

    pub(super) fn get(&self, group: Group) -> RawGroupDescriptor {
        self.descriptors.get(group.0 as usize).copied().unwrap_or_else(RawGroupDescriptor::zeroed)
    }

    pub(super) fn edit(&mut self, group: Group, edit: impl FnOnce(&mut RawGroupDescriptor)) {
        let raw = self.descriptors.get_mut(group.0 as usize);
        edit(invariant_or!(raw, return, "each group has a descriptor"));
        self.changed.insert(group.0);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Group, &RawGroupDescriptor)> {
        (0..).map(Group).zip(&self.descriptors)
    }

    /// Seals what changed, and stages the blocks that hold it and their copies.
    pub(super) fn store(&mut self, device: &dyn Device, geometry: &Geometry, sealer: &Sealer) -> Result<()> {
        if !self.reshaped && self.changed.is_empty() {
            return Ok(());
        }
        for (group, raw) in (0..).map(Group).zip(&mut self.descriptors) {
            if self.reshaped || self.changed.contains(&group.0) {
                sealer.seal_descriptor(group, raw, &[]);
            }
        }
        for index in 0..geometry.descriptor_blocks() {
            let first = index * geometry.descriptors_per_block();
            let end = first.saturating_add(geometry.descriptors_per_block());
            if self.reshaped || self.changed.range(first..end).next().is_some() {
                self.store_block(device, geometry, index)?;
            }
        }
        self.changed.clear();
        Ok(())
    }

    fn store_block(&self, device: &dyn Device, geometry: &Geometry, index: u32) -> Result<()> {
        let mut bytes = vec![0; geometry.block_size.bytes_usize()];
        let first = index * geometry.descriptors_per_block();
        let size = usize::from(geometry.descriptor_size);
        for (to, raw) in bytes.chunks_exact_mut(size).zip(self.descriptors.iter().skip(first as usize)) {
            raw.store(to);
        }
        for block in copies(geometry, index) {
            let offset = geometry.byte_offset(block);
            let mut there = vec![0; bytes.len()];
            device.read_at(offset, &mut there).map_err(Error::io("reading group descriptors"))?;
            if there != bytes {
                device.write_at(offset, &bytes).map_err(Error::io("staging group descriptors"))?;
            }
        }
        Ok(())
    }
}

/// All places of a descriptor block, the first one at the front.
fn copies(geometry: &Geometry, index: u32) -> Vec<Block> {
    let mut blocks = vec![geometry.descriptor_block(index)];
    if geometry.first_meta_bg.is_some_and(|first| index >= first) {
        let first = index.saturating_mul(geometry.descriptors_per_block());
        let end = first.saturating_add(geometry.descriptors_per_block()).min(geometry.groups);
        let held = (first..end).filter_map(|group| geometry.meta_descriptor_held_by(Group(group)));
        blocks.extend(held.map(|(_, block)| block));
    } else {
        let groups =
            (1..geometry.groups).map(Group).filter(|group| geometry.descriptors_behind(*group) > index);
        blocks.extend(groups.map(|group| geometry.descriptor_block_copy(index, group)));
    }
    blocks.dedup();
    blocks
}
