//! Owners of blocks: the structure or file that each belongs to.
//!
//! Owns: the parts that a volume is made of, group by group and inode by inode, and the search for the parts that
//! given blocks lie in: one pass, however many blocks. Excludes: names of inodes ([`crate::names`]).
//!
//! A block may have several owners: blocks that are kept for growth belong to the resize inode too, shared attribute
//! blocks to many inodes, and on a damaged volume anything is possible.

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::inode::Inode;
use ondisk::units::{Block, Group, InodeNumber, saturated};
use platfs_device::{Error, Result};

use crate::raw_image::{RawImage, has_map, is_live, note};

/// A part of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Before the superblock, for a boot loader.
    Boot,
    /// The superblock or a copy of it.
    Superblock(Group),
    /// Group descriptors or a copy of them, by the group in which they lie.
    Descriptors(Group),
    /// Blocks into which the descriptors can grow.
    ReservedDescriptors(Group),
    /// The bitmap of a group's clusters.
    BlockBitmap(Group),
    /// The bitmap of a group's inodes.
    InodeBitmap(Group),
    /// A group's inode table; of a single block the first inode in it.
    InodeTable(Group, InodeNumber),
    /// The block that keeps several hosts from mounting the volume at once.
    Mmp,
    /// Contents of an inode from this file block on.
    Data {
        /// Inode of the file.
        inode: InodeNumber,
        /// The first file block.
        file_block: u64,
        /// Allocated, but reads as zeros.
        unwritten: bool,
    },
    /// A node of an extent tree, or an indirect block.
    Map(InodeNumber),
    /// Extended attributes.
    Attributes(InodeNumber),
}

impl Part {
    /// The inode that the part belongs to.
    #[must_use]
    pub fn inode(&self) -> Option<InodeNumber> {
        match *self {
            Part::Data { inode, .. } | Part::Map(inode) | Part::Attributes(inode) => Some(inode),
            _ => None,
        }
    }

    /// The group that the part belongs to.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        match *self {
            Part::Superblock(group)
            | Part::Descriptors(group)
            | Part::ReservedDescriptors(group)
            | Part::BlockBitmap(group)
            | Part::InodeBitmap(group)
            | Part::InodeTable(group, _) => Some(group),
            _ => None,
        }
    }

    /// The part, counted from a block inside of it.
    fn from(self, blocks: u64, inodes_per_block: u32) -> Part {
        match self {
            Part::Data { inode, file_block, unwritten } => {
                Part::Data { inode, file_block: file_block.saturating_add(blocks), unwritten }
            }
            Part::InodeTable(group, first) => {
                let skipped = saturated::<u32>(blocks).saturating_mul(inodes_per_block);
                let number = InodeNumber::new(first.get().saturating_add(skipped)).unwrap_or(first);
                Part::InodeTable(group, number)
            }
            other => other,
        }
    }
}

/// Blocks of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// The part.
    pub part: Part,
    /// Its first block.
    pub start: Block,
    /// Blocks.
    pub count: u64,
}

/// An owner of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The block.
    pub block: Block,
    /// Part of the volume that it belongs to.
    pub part: Part,
}

/// Owners and use of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    /// Owners, by block.
    pub found: Vec<Owner>,
    /// State of each block in the bitmap, by block; `None` where it can't be read.
    pub in_use: Vec<(Block, Option<bool>)>,
    /// Structures that could not be read or followed: owners may be missing.
    pub problems: Vec<String>,
}

impl Owners {
    /// The owners of a block.
    #[must_use]
    pub fn of_block(&self, block: Block) -> &[Owner] {
        let from = self.found.partition_point(|owner| owner.block < block);
        let to = self.found.partition_point(|owner| owner.block <= block);
        self.found.get(from..to).unwrap_or_default()
    }
}

/// The parts that stand at fixed places of a group, or at those that its descriptor names.
///
/// # Errors
/// As [`RawImage::descriptor`]; then `found` has what does not depend on it.
pub fn of_group(image: &RawImage, group: Group, found: &mut Vec<Stretch>) -> Result<()> {
    let geometry = image.geometry();
    let mut add = |part, start: Block, count: u64| {
        if count > 0 {
            found.push(Stretch { part, start, count });
        }
    };
    if group.0 == 0 && geometry.block_size.bytes() == 1024 {
        add(Part::Boot, Block(0), 1);
    }
    if geometry.backups.has_superblock(group) {
        let own = geometry.superblock_block(group);
        add(Part::Superblock(group), own, 1);
        let here = geometry.descriptors_behind(group);
        let reserved = if geometry.first_meta_bg.is_none() { geometry.reserved_descriptor_blocks } else { 0 };
        add(Part::Descriptors(group), Block(own.0 + 1), here.into());
        add(Part::ReservedDescriptors(group), Block(own.0 + 1 + u64::from(here)), reserved.into());
    }
    if let Some((_, block)) = geometry.meta_descriptor_held_by(group) {
        add(Part::Descriptors(group), block, 1);
    }
    let raw = image.descriptor(group)?;
    add(Part::BlockBitmap(group), raw.block_bitmap(), 1);
    add(Part::InodeBitmap(group), raw.inode_bitmap(), 1);
    if let Some(first) = geometry.inode_at(group, 0) {
        add(Part::InodeTable(group, first), raw.inode_table(), geometry.inode_table_blocks().into());
    }
    Ok(())
}

/// The parts that belong to an inode.
///
/// # Errors
/// As [`RawImage::map`]; then `found` has what does not depend on the map.
pub fn of_inode(image: &RawImage, inode: &Inode, found: &mut Vec<Stretch>) -> Result<()> {
    let number = inode.number();
    let attributes = inode.attribute_block();
    if attributes.0 != 0 {
        if !image.geometry().contains(attributes, 1) {
            return Err(Error::corrupt(
                Place::Xattrs(number),
                format!("in block {attributes}, outside the volume"),
            ));
        }
        found.push(Stretch { part: Part::Attributes(number), start: attributes, count: 1 });
    }
    if !has_map(inode) {
        return Ok(());
    }
    let map = image.map(inode)?;
    found.extend(map.nodes.iter().map(|node| Stretch { part: Part::Map(number), start: *node, count: 1 }));
    found.extend(map.runs.iter().map(|run| {
        let part = Part::Data { inode: number, file_block: run.logical, unwritten: run.unwritten };
        Stretch { part, start: run.start, count: run.count }
    }));
    Ok(())
}

/// Hands over every part of the volume, in no order. What can't be read or followed is put into `problems`.
///
/// # Errors
/// Whatever `take` says.
pub fn all(
    image: &RawImage,
    problems: &mut Vec<String>,
    mut take: impl FnMut(&Stretch) -> Result<()>,
) -> Result<()> {
    let mut found = Vec::new();
    if image.features().incompat.contains(Incompat::MMP) {
        found.push(Stretch { part: Part::Mmp, start: Block(image.superblock().s_mmp_block.get()), count: 1 });
    }
    for group in (0..image.geometry().groups).map(Group) {
        if let Err(error) = of_group(image, group, &mut found) {
            note(problems, error.to_string());
        }
        found.drain(..).try_for_each(|stretch| take(&stretch))?;
    }
    // Maps of a sound volume have fewer nodes than the volume has blocks.
    let mut left = image.geometry().blocks;
    let mut broken = Vec::new();
    image.inodes(problems, |inode| {
        if !is_live(&inode) || left == 0 {
            return Ok(());
        }
        if let Err(error) = of_inode(image, &inode, &mut found) {
            note(&mut broken, error.to_string());
        }
        let nodes = found.iter().filter(|stretch| matches!(stretch.part, Part::Map(_))).count();
        left = left.saturating_sub(nodes as u64);
        found.drain(..).try_for_each(|stretch| take(&stretch))
    })?;
    if left == 0 {
        note(
            problems,
            "maps of files have more nodes than the volume has blocks; not all were followed".into(),
        );
    }
    problems.append(&mut broken);
    Ok(())
}

/// Finds the owners of blocks, in one pass over the volume.
///
/// # Errors
/// A block that lies outside of the volume.
pub fn find(image: &RawImage, blocks: &[Block]) -> Result<Owners> {
    let mut wanted = blocks.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let geometry = image.geometry();
    if let Some(last) = wanted.last().filter(|last| last.0 >= geometry.blocks) {
        let blocks = geometry.blocks;
        return Err(Error::Invalid(format!("the volume has {blocks} blocks, and so no block {last}")));
    }
    let mut owners = Owners::default();
    let mut found = Vec::new();
    all(image, &mut owners.problems, |stretch| {
        let end = stretch.start.0.saturating_add(stretch.count);
        let from = wanted.partition_point(|block| *block < stretch.start);
        let hits = wanted.get(from..).unwrap_or_default().iter().take_while(|block| block.0 < end);
        found.extend(hits.map(|block| Owner {
            block: *block,
            part: stretch.part.from(block.0 - stretch.start.0, geometry.inodes_per_block()),
        }));
        Ok(())
    })?;
    found.sort_by_key(|owner| owner.block);
    owners.found = found;
    let mut bitmaps = Bitmaps { image, held: None };
    owners.in_use = wanted.iter().map(|block| (*block, bitmaps.has(*block, &mut owners.problems))).collect();
    Ok(owners)
}

/// Bitmaps, of which the last is kept: who asks goes through the volume in order.
struct Bitmaps<'g> {
    image: &'g RawImage,
    held: Option<(Group, Option<Option<Vec<u8>>>)>,
}

impl Bitmaps<'_> {
    fn has(&mut self, block: Block, problems: &mut Vec<String>) -> Option<bool> {
        let (group, bit) = self.image.bit_of(block)?;
        if self.held.as_ref().is_none_or(|(held, _)| *held != group) {
            let read = self.image.block_bitmap(group).map_err(|error| note(problems, error.to_string()));
            self.held = Some((group, read.ok()));
        }
        let (_, read) = self.held.as_ref()?;
        match read.as_ref()? {
            Some(bitmap) => Some(is_set(bitmap, bit)),
            // Never written: in use is what the group's own structures take.
            None => {
                let mut own = Vec::new();
                of_group(self.image, group, &mut own).ok()?;
                let holds = |one: &Stretch| (one.start.0..one.start.0 + one.count).contains(&block.0);
                Some(own.iter().any(holds))
            }
        }
    }
}

/// A bit of a bitmap.
pub(crate) fn is_set(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
