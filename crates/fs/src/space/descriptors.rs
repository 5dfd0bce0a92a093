//! The group descriptors of an open volume, in memory.
//!
//! Owns: the raw bytes of all descriptors, their checks, and writing changed ones into the primary
//! descriptor blocks. The copies in other groups are written by mkfs and resizing only, as Linux
//! does.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::corrupt::Place;
use ondisk::group::RawGroupDescriptor;
use ondisk::invariant;
use ondisk::units::{Block, ClusterRun, Group};

use crate::bytes;
use crate::cache::Role;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::txn::Update;

/// Most bytes of descriptors that are kept in memory: those of 1 PiB in blocks of 4 KiB. A hostile
/// superblock on a sparse file could ask for a thousand times as much.
const TABLE_MAX: u64 = 512 << 20;

/// All descriptors, as the disk has them or will have them after the next sync.
pub struct Descriptors {
    /// The format. It has no zone: that is made of what descriptors say.
    format: Format,
    size: usize,
    table: Vec<u8>,
    /// Trusts descriptors with a wrong checksum, and treats those that can't be read as absent.
    lenient: bool,
    /// Where the structures of all groups lie; they never move while the volume is open.
    structures: OnceLock<Vec<ClusterRun>>,
}

/// Free blocks and inodes of a volume, as its superblock counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    pub(crate) blocks: u64,
    pub(crate) inodes: u32,
}

impl Descriptors {
    /// Reads the primary descriptor blocks. With `lenient` what can't be read is zeros, and checksums don't count.
    ///
    /// # Errors
    /// The device's failure, or descriptor blocks that lie outside the volume.
    pub fn load(device: &dyn Device, format: &Format, lenient: bool) -> Result<Self> {
        let geometry = &format.geometry;
        let size = usize::from(geometry.descriptor_size);
        let block_len = geometry.block_size.bytes_usize();
        let blocks = geometry.descriptor_blocks();
        let bytes = u64::from(blocks) << geometry.block_size.log2();
        if bytes > TABLE_MAX {
            return Err(Error::Unsupported(format!(
                "{bytes} bytes of group descriptors, at most {TABLE_MAX}"
            )));
        }
        // Grows as blocks arrive, so that a hostile group count fails at the first missing block
        // instead of asking for memory.
        let mut table = Vec::new();
        let mut buffer = vec![0; block_len];
        for index in 0..blocks {
            let block = geometry.descriptor_block(index);
            if !geometry.contains(block, 1) {
                return Err(Error::corrupt(
                    Place::Superblock,
                    format!("descriptor block {index} would lie at block {block}, outside the volume"),
                ));
            }
            match device.read_at(geometry.byte_offset(block), &mut buffer) {
                // Blocks behind the end of the device ask for no memory.
                Err(_) if lenient && geometry.byte_offset(block) >= device.size() => break,
                Err(_) if lenient => buffer.fill(0),
                read => read.map_err(|source| {
                    Error::io(format!("reading group descriptors (block {block})"), source)
                })?,
            }
            table.extend_from_slice(&buffer);
        }
        table.truncate(geometry.groups as usize * size);
        let format = format.without_zone();
        Ok(Descriptors { format, size, table, lenient, structures: OnceLock::new() })
    }

    /// Sums of the free counts of all groups: the truth of which the superblock has a copy.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(crate) fn sums(&self) -> Result<Sums> {
        let geometry = &self.format.geometry;
        let (mut clusters, mut inodes) = (0_u64, 0_u32);
        for group in (0..geometry.groups).map(Group) {
            let raw = self.get(group)?;
            clusters += u64::from(raw.free_clusters());
            inodes = inodes.saturating_add(raw.free_inodes());
        }
        Ok(Sums { blocks: clusters << geometry.cluster_log2, inodes })
    }

    /// Clusters taken by the structures of all groups, as sorted runs.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(super) fn structures(&self) -> Result<&[ClusterRun]> {
        if let Some(known) = self.structures.get() {
            return Ok(known);
        }
        let found = super::groups::structures(self)?;
        Ok(self.structures.get_or_init(|| found))
    }

    /// The format by which they are read.
    pub(super) fn format(&self) -> &Format {
        &self.format
    }

    /// Bytes of a group's descriptor; none behind the last group.
    fn bytes(&self, group: Group) -> &[u8] {
        let start = group.0 as usize * self.size;
        self.table.get(start..start + self.size).unwrap_or_default()
    }

    /// A group's descriptor, its checksum verified and its pointers inside the volume.
    ///
    /// # Errors
    /// A group behind the last, a wrong checksum, a pointer outside the volume.
    pub fn get(&self, group: Group) -> Result<RawGroupDescriptor> {
        let bytes = self.bytes(group);
        if bytes.is_empty() {
            return Err(Error::corrupt(Place::Descriptor(group), "the group lies behind the last"));
        }
        let raw = RawGroupDescriptor::parse(bytes);
        let rest = bytes.get(64..).unwrap_or_default();
        if !self.lenient && !self.format.sealer.descriptor_is_right(group, &raw, rest) {
            return Err(Error::corrupt(Place::Descriptor(group), "checksum is wrong"));
        }
        let geometry = &self.format.geometry;
        let places = [
            (raw.block_bitmap(), 1, "block bitmap"),
            (raw.inode_bitmap(), 1, "inode bitmap"),
            (raw.inode_table(), u64::from(geometry.inode_table_blocks()), "inode table"),
        ];
        match places.iter().find(|(start, count, _)| !geometry.contains(*start, *count)) {
            None => Ok(raw),
            Some((start, _, what)) => Err(Error::corrupt(
                Place::Descriptor(group),
                format!("{what} at block {start} lies outside the volume"),
            )),
        }
    }

    /// Looks at every descriptor as [`Descriptors::get`] does.
    ///
    /// # Errors
    /// The first that is broken.
    pub(crate) fn verify(&self) -> Result<()> {
        (0..self.format.geometry.groups).map(Group).try_for_each(|group| self.get(group).map(|_| ()))
    }

    /// Replaces a descriptor, sealed, here only.
    pub(super) fn put(&mut self, group: Group, mut raw: RawGroupDescriptor) {
        let start = group.0 as usize * self.size;
        let Some(bytes) = self.table.get_mut(start..start + self.size) else {
            debug_assert!(false, "group {group} lies behind the last, and its descriptor is changed");
            return;
        };
        // Descriptors of 32 bytes have no rest, and none is longer than 64 but on volumes of others.
        self.format.sealer.seal_descriptor(group, &mut raw, bytes.get(64..).unwrap_or_default());
        raw.store(bytes);
    }

    /// Writes the blocks of descriptors that differ from what the device has.
    ///
    /// # Errors
    /// The device's failure.
    pub(super) fn write(&self, device: &dyn Device) -> Result<()> {
        let geometry = &self.format.geometry;
        let each = geometry.descriptors_per_block() as usize * self.size;
        let mut buffer = vec![0; geometry.block_size.bytes_usize()];
        for (index, bytes) in (0..geometry.descriptor_blocks()).zip(self.table.chunks(each.max(1))) {
            let offset = geometry.byte_offset(geometry.descriptor_block(index));
            let failed = |source| Error::io("bringing group descriptors in order", source);
            device.read_at(offset, &mut buffer).map_err(failed)?;
            let held =
                invariant!(buffer.get_mut(..bytes.len()), "a block of descriptors is no longer than a block");
            if *held != *bytes {
                held.copy_from_slice(bytes);
                device.write_at(offset, &buffer).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Those of the volume in another format: `changed` has groups that are there, and those that come behind the last.
    pub(crate) fn reshaped(&self, format: &Format, changed: &[(Group, RawGroupDescriptor)]) -> Descriptors {
        let mut table = self.table.clone();
        table.resize(format.geometry.groups as usize * self.size, 0);
        let mut reshaped = Descriptors {
            format: format.without_zone(),
            size: self.size,
            table,
            lenient: self.lenient,
            structures: OnceLock::new(),
        };
        for (group, raw) in changed {
            reshaped.put(*group, *raw);
        }
        reshaped
    }

    /// A block of descriptors; what lies behind the last of them is zeros.
    pub(crate) fn block(&self, index: u32) -> Vec<u8> {
        let each = self.format.geometry.descriptors_per_block() as usize * self.size;
        let start = index as usize * each;
        let bytes = self.table.get(start..self.table.len().min(start + each)).unwrap_or_default();
        let mut block = bytes.to_vec();
        block.resize(self.format.geometry.block_size.bytes_usize(), 0);
        block
    }

    /// Replaces a descriptor, sealed, here and in its block.
    ///
    /// # Errors
    /// The device's failure when the block has to be read.
    pub fn set(&mut self, update: &mut Update<'_>, group: Group, raw: RawGroupDescriptor) -> Result<()> {
        self.put(group, raw);
        let start = group.0 as usize * self.size;
        let bytes = bytes::part(&self.table, start..start + self.size)?;
        let per_block = self.format.geometry.descriptors_per_block();
        let block = self.format.geometry.descriptor_block(group.0 / per_block);
        let at = (group.0 % per_block) as usize * self.size;
        let first = Group(group.0 - group.0 % per_block);
        Ok(bytes::put(update.edit(block, Role::Descriptors(first))?, at, bytes)?)
    }

    /// Where the inode table of a group begins.
    ///
    /// # Errors
    /// A broken descriptor.
    pub(super) fn inode_table(&self, group: Group) -> Result<Block> {
        Ok(self.get(group)?.inode_table())
    }
}

/// Where inode tables begin, of groups whose descriptor was found right once. They never move while the volume is open.
#[derive(Default)]
pub(super) struct Tables(Box<[AtomicU64]>);

impl Tables {
    pub(super) fn new(groups: u32) -> Self {
        Tables((0..groups).map(|_| AtomicU64::new(0)).collect())
    }

    /// That of a group; `find` is asked where it is not known yet.
    pub(super) fn table_of(&self, group: Group, find: impl FnOnce() -> Result<Block>) -> Result<Block> {
        let place = self.0.get(group.0 as usize);
        if let Some(known @ 1..) = place.map(|place| place.load(Ordering::Relaxed)) {
            return Ok(Block(known));
        }
        let found = find()?;
        if let Some(place) = place {
            place.store(found.0, Ordering::Relaxed);
        }
        Ok(found)
    }
}
