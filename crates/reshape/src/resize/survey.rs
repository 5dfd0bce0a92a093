//! Files in the way: those with blocks that must be left, and those whose inodes lie in groups that end.
//!
//! Owns: one pass over all inodes in use. Excludes where anything goes.

use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::group::GroupFlags;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, Group, InodeNumber};
use ondisk::xattr;
use platfs::mkfs::layout::Runs;
use platfs_device::map::{Failure, Map, walk};

use super::old_volume::OldVolume;
use crate::error::{corrupt, refused};
use crate::{Error, Result};

/// Bytes of a table that are read at once.
const GATHER: u32 = 1 << 20;
/// Bytes that a short symbolic link has at most.
const SHORT_LINK: u64 = 59;

/// A file that is in the way.
pub(super) struct Owner {
    pub(super) inode: Inode,
    /// Where its contents lie, and the blocks of its map.
    pub(super) map: Map,
    /// True if any of it, not only its inode, must move.
    pub(super) moves: bool,
}

impl Owner {
    /// The block of its attributes.
    pub(super) fn attributes(&self) -> Option<Block> {
        Some(self.inode.attribute_block()).filter(|block| block.0 != 0)
    }
}

/// Result of one pass over all inodes.
#[derive(Default)]
pub(super) struct Survey {
    /// Files in the way, by number.
    pub(super) owners: Vec<Owner>,
    /// All directories, where inodes change their numbers.
    pub(super) directories: Vec<InodeNumber>,
    /// All inodes with attributes, where inodes with values change their numbers.
    pub(super) valued: Vec<InodeNumber>,
}

/// Parts of the old volume that are in the way.
pub(super) struct InTheWay<'w> {
    /// Blocks that must be left.
    pub(super) evicted: &'w Runs,
    /// Groups that stay; inodes behind them change their numbers.
    pub(super) groups: u32,
}

impl InTheWay<'_> {
    fn has(&self, start: Block, count: u64) -> bool {
        self.evicted.at_or_after(start.0).is_some_and(|(from, _)| from < start.0 + count)
    }

    /// True if inodes change their numbers.
    pub(super) fn renumbers(&self, before: &OldVolume) -> bool {
        (self.groups..before.geometry.groups)
            .any(|group| before.descriptor(Group(group)).free_inodes() < before.geometry.inodes_per_group)
    }
}

/// Looks at all inodes in use.
pub(super) fn survey(before: &OldVolume, way: &InTheWay<'_>) -> Result<Survey> {
    let mut found = Survey::default();
    let renumbers = way.renumbers(before);
    let values = before.raw.features().incompat.contains(Incompat::EA_INODE);
    for group in (0..before.geometry.groups).map(Group) {
        each_inode(before, group, &mut |inode| {
            if renumbers && inode.file_type() == Some(FileType::Directory) {
                found.directories.push(inode.number());
            }
            if renumbers && values && has_attributes(&inode) {
                found.valued.push(inode.number());
            }
            if let Some(owner) = judge(before, way, group, inode)? {
                found.owners.push(owner);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Calls `work` for each inode in use of a group.
pub(super) fn each_inode(
    before: &OldVolume,
    group: Group,
    work: &mut dyn FnMut(Inode) -> Result<()>,
) -> Result<()> {
    let geometry = &before.geometry;
    if before.has_flag(group, GroupFlags::INODE_UNINIT) {
        return Ok(());
    }
    let bits = before.inode_bitmap(group)?;
    let descriptor = before.descriptor(group);
    let unused = if before.has_flags() { descriptor.unused_inodes() } else { 0 };
    let begun = geometry.inodes_per_group.saturating_sub(unused);
    let size = usize::from(geometry.inode_size);
    let step = GATHER / u32::from(geometry.inode_size);
    let table = geometry.byte_offset(descriptor.inode_table());
    let mut at = 0;
    while let Some((first, _)) = bits.next_run(at, begun, true) {
        let count = step.min(begun - first);
        let mut bytes = vec![0; count as usize * size];
        before
            .device
            .read_at(table + u64::from(first) * size as u64, &mut bytes)
            .map_err(Error::io(format!("reading the inode table of group {group}")))?;
        for (index, record) in (first..).zip(bytes.chunks_exact(size)) {
            let Some(number) = geometry.inode_at(group, index).filter(|_| bits.get(index)) else { continue };
            let is_narrow = !before.raw.features().incompat.contains(Incompat::BIT64);
            let inode = Inode::parse(number, record)?.narrowed(is_narrow);
            if !before.sealer.inode_is_right(&inode) {
                return Err(corrupt(Place::Inode(number), "checksum is wrong; `plat check` says more"));
            }
            work(inode)?;
        }
        at = first + count;
    }
    Ok(())
}

fn has_attributes(inode: &Inode) -> bool {
    inode.attribute_block().0 != 0 || xattr::in_inode(inode).is_ok_and(|entries| !entries.is_empty())
}

/// True if an inode has a map.
pub(super) fn has_map(inode: &Inode) -> bool {
    let mapped = match inode.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => inode.flags().contains(InodeFlags::EXTENTS) || inode.size() > SHORT_LINK,
        // Reserved inodes have no type, and may have blocks.
        None => inode.raw().i_block.iter().any(|byte| *byte != 0),
        Some(_) => false,
    };
    mapped && !inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// All of a file's map.
pub(super) fn map_of(before: &OldVolume, geometry: &Geometry, inode: &Inode) -> Result<Map> {
    let seed = before.sealer.inode_seed(inode.number(), inode.generation());
    let extents = inode.flags().contains(InodeFlags::EXTENTS);
    let read = |block: Block| {
        let bytes = before.block(block, "a block of a map")?;
        if extents && !seed.extent_node_is_right(&bytes) {
            return Err(corrupt(
                Place::Map(inode.number()),
                "checksum of a node is wrong; `plat check` says more",
            ));
        }
        Ok(bytes)
    };
    match walk(geometry, inode, u64::MAX, read) {
        Ok(map) => Ok(map),
        Err(Failure::Read(error)) => Err(error),
        Err(Failure::Broken(why)) => {
            refused(format!("inode {}: {why}; `plat check` says more", inode.number()))
        }
    }
}

fn judge(before: &OldVolume, way: &InTheWay<'_>, group: Group, inode: Inode) -> Result<Option<Owner>> {
    let geometry = &before.geometry;
    if inode.number() == InodeNumber::RESIZE {
        return Ok(None);
    }
    let map = if has_map(&inode) { map_of(before, geometry, &inode)? } else { Map::default() };
    let attributes = inode.attribute_block();
    let moves = map.runs.iter().any(|run| way.has(run.start, run.count))
        || map.nodes.iter().any(|node| way.has(*node, 1))
        || attributes.0 != 0 && way.has(attributes, 1);
    if moves && inode.number().get() == 1 {
        return refused("blocks that are listed as bad would have to move");
    }
    let ends = group.0 >= way.groups;
    Ok((moves || ends).then_some(Owner { inode, map, moves }))
}
