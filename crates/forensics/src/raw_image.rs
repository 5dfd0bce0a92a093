//! A volume as its bytes stand: blocks, descriptors, inode records and maps, read one by one.
//!
//! Owns: where each structure lies, and reads of bounded size. Excludes: whether what is read is right; who asks decides
//! how much a wrong checksum matters.

use ondisk::invariant;
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::corrupt::Place;
use ondisk::dirent::Layout;
use ondisk::features::Features;
use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};
use platfs_device::map::{self, Failure, Map};
use platfs_device::{Device, Error, Result, read_superblock, refuse_unreadable};

/// Bytes of inode tables that are read at once.
const TABLE_STEP: u64 = 256 << 10;

/// A volume that is only read.
pub struct RawImage {
    device: Arc<dyn Device>,
    raw: RawSuperblock,
    geometry: Geometry,
    sealer: Sealer,
    /// The block of descriptors that was read last, and its number.
    descriptors: Mutex<Option<(u32, Vec<u8>)>>,
}

impl RawImage {
    /// Takes the facts from the superblock of a device.
    ///
    /// # Errors
    /// No superblock; one that contradicts itself; features that can't be read; the device's failure.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        let raw = read_superblock(&*device)?;
        refuse_unreadable(raw.features())?;
        let geometry = Geometry::from_superblock(&raw)?;
        let sealer = Sealer::from_superblock(&raw);
        Ok(RawImage { device, raw, geometry, sealer, descriptors: Mutex::new(None) })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Sizes and counts.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The features.
    #[must_use]
    pub fn features(&self) -> Features {
        self.raw.features()
    }

    /// The checksums.
    #[must_use]
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Returns the layout of directory blocks.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(self.geometry.block_size, &self.features())
    }

    /// A block of the volume.
    ///
    /// # Errors
    /// It lies outside of the volume; the device's failure.
    pub fn block(&self, block: Block) -> Result<Vec<u8>> {
        if !self.geometry.contains(block, 1) && block.0 != 0 {
            return Err(Error::corrupt(Place::Block(block), "lies outside the volume"));
        }
        let mut bytes = vec![0; self.geometry.block_size.bytes_usize()];
        self.read(self.geometry.byte_offset(block), &mut bytes, || format!("block {block}"))?;
        Ok(bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8], what: impl FnOnce() -> String) -> Result<()> {
        let read = self.device.read_at(offset, bytes);
        read.map_err(|source| Error::io(format!("reading {}", what()), source))
    }

    /// The descriptor of a group, its checksum not looked at.
    ///
    /// # Errors
    /// No such group; a descriptor that names blocks outside of the volume; the device's failure.
    pub fn descriptor(&self, group: Group) -> Result<RawGroupDescriptor> {
        let geometry = &self.geometry;
        if group.0 >= geometry.groups {
            return Err(Error::Invalid(format!("the volume has no group {group}")));
        }
        let per_block = geometry.descriptors_per_block().max(1);
        let (index, size) = (group.0 / per_block, usize::from(geometry.descriptor_size));
        let mut held = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_none_or(|(number, _)| *number != index) {
            *held = Some((index, self.block(geometry.descriptor_block(index))?));
        }
        let block = held.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let at = (group.0 % per_block) as usize * size;
        let bytes = invariant!(block.get(at..at + size), "a descriptor lies inside its block");
        let raw = RawGroupDescriptor::parse(bytes);
        let table = u64::from(geometry.inode_table_blocks());
        let sound = geometry.contains(raw.block_bitmap(), 1)
            && geometry.contains(raw.inode_bitmap(), 1)
            && geometry.contains(raw.inode_table(), table);
        if sound { Ok(raw) } else { Err(Error::corrupt(Place::Descriptor(group), "leads out of the volume")) }
    }

    /// Where the record of an inode begins, in bytes.
    ///
    /// # Errors
    /// No such inode; as [`RawImage::descriptor`].
    pub fn place_of(&self, number: InodeNumber) -> Result<u64> {
        let geometry = &self.geometry;
        let Some((group, index)) = geometry.locate_inode(number) else {
            let last = geometry.inodes();
            return Err(Error::Invalid(format!("there is no inode {number}; the last is {last}")));
        };
        let table = geometry.byte_offset(self.descriptor(group)?.inode_table());
        Ok(table + u64::from(index) * u64::from(geometry.inode_size))
    }

    /// The record of an inode, not judged.
    ///
    /// # Errors
    /// As [`RawImage::place_of`]; the device's failure.
    pub fn inode(&self, number: InodeNumber) -> Result<Inode> {
        let offset = self.place_of(number)?;
        let mut bytes = vec![0; usize::from(self.geometry.inode_size)];
        self.read(offset, &mut bytes, || format!("inode {number}"))?;
        Ok(Inode::unjudged(number, &bytes))
    }

    /// Hands over every record of a group's inode table that could be in use, in order. Records behind those that
    /// the descriptor calls unused are left out, as Linux does.
    ///
    /// # Errors
    /// As [`RawImage::descriptor`]; whatever `take` says.
    pub fn inodes_of(&self, group: Group, mut take: impl FnMut(Inode) -> Result<()>) -> Result<()> {
        let geometry = &self.geometry;
        let raw = self.descriptor(group)?;
        let mut count = geometry.inodes_per_group;
        if self.features().descriptor_csum() {
            count = count.saturating_sub(raw.unused_inodes());
            if raw.flags().contains(GroupFlags::INODE_UNINIT) {
                return Ok(());
            }
        }
        let size = u64::from(geometry.inode_size);
        let (mut at, per_step) = (0, u32::try_from(TABLE_STEP / size).unwrap_or(1).max(1));
        while at < count {
            let step = per_step.min(count - at);
            let mut bytes = vec![0; step as usize * usize::from(geometry.inode_size)];
            let offset = geometry.byte_offset(raw.inode_table()) + u64::from(at) * size;
            self.read(offset, &mut bytes, || format!("the inode table of group {group}"))?;
            for (index, record) in (at..).zip(bytes.chunks_exact(usize::from(geometry.inode_size))) {
                if let Some(number) = geometry.inode_at(group, index) {
                    take(Inode::unjudged(number, record))?;
                }
            }
            at += step;
        }
        Ok(())
    }

    /// Reads the inodes of all groups. Errors are put into `problems`, and the other groups follow.
    ///
    /// # Errors
    /// Whatever `take` says.
    pub fn inodes(
        &self,
        problems: &mut Vec<String>,
        mut take: impl FnMut(Inode) -> Result<()>,
    ) -> Result<()> {
        for group in (0..self.geometry.groups).map(Group) {
            let mut failed = None;
            let read = self.inodes_of(group, |inode| take(inode).inspect_err(|_| failed = Some(())));
            match (read, failed) {
                (Err(error), Some(())) => return Err(error),
                (Err(error), None) => note(problems, error.to_string()),
                (Ok(()), _) => {}
            }
        }
        Ok(())
    }

    /// The bitmap of a group's clusters; nothing if the descriptor says that it was never written.
    ///
    /// # Errors
    /// As [`RawImage::descriptor`]; the device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Option<Vec<u8>>> {
        let raw = self.descriptor(group)?;
        if self.features().descriptor_csum() && raw.flags().contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(None);
        }
        self.block(raw.block_bitmap()).map(Some)
    }

    /// Group of a block, and its bit in the group's bitmap.
    #[must_use]
    pub fn bit_of(&self, block: Block) -> Option<(Group, u32)> {
        let group = self.geometry.group_of_block(block)?;
        let first = u64::from(group.0) * u64::from(self.geometry.clusters_per_group());
        let bit = self.geometry.cluster_of(block).0.checked_sub(first)?;
        Some((group, u32::try_from(bit).ok()?))
    }

    /// Where the contents of an inode lie, checksums not looked at.
    ///
    /// # Errors
    /// A map that breaks a rule of the format, in words that complete "map of inode N: "; the device's failure.
    pub fn map(&self, inode: &Inode) -> Result<Map> {
        map::walk(&self.geometry, inode, u64::MAX, |block| self.block(block)).map_err(|failure| match failure
        {
            Failure::Read(error) => error,
            Failure::Broken(problem) => Error::corrupt(Place::Map(inode.number()), problem),
        })
    }
}

/// The inode of blocks that can't be used; its record has no type.
const BAD_BLOCKS: u32 = 1;
/// Most problems that are kept in words.
const PROBLEMS_MAX: usize = 100;

/// Keeps a problem, as long as there are not too many.
pub(crate) fn note(problems: &mut Vec<String>, problem: String) {
    if problems.len() < PROBLEMS_MAX {
        problems.push(problem);
    }
}

/// True if blocks can be reached through the record.
pub(crate) fn has_map(inode: &Inode) -> bool {
    let is_bad_blocks = inode.number().get() == BAD_BLOCKS && inode.raw().i_block != [0; 60];
    inode.has_map() || is_bad_blocks && !inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// True if a record is of a file that exists: it has a name, or is one of those that need none.
pub(crate) fn is_live(inode: &Inode) -> bool {
    inode.links() > 0 && inode.file_type().is_some() || inode.number().get() == BAD_BLOCKS
}

/// True if a record is of a directory that exists.
pub(crate) fn is_directory(inode: &Inode) -> bool {
    inode.links() > 0 && inode.file_type() == Some(FileType::Directory)
}
