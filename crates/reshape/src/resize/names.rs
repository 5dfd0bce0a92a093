//! Inodes of groups that end: their new numbers, and all names and values that lead to them.
//!
//! Excludes the records of those inodes, and checksums of their maps.

use ondisk::invariant;
use std::collections::BTreeMap;

use ondisk::dirent::{self, Layout};
use ondisk::features::Compat;
use ondisk::group::GroupFlags;
use ondisk::htree::{Kind, looks_like_node};
use ondisk::inode::{I_BLOCK_LEN, I_BLOCK_OFFSET, Inode, InodeFlags};
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::units::{Block, Group, InodeNumber};
use ondisk::xattr::{self, NameIndex, Value};
use platfs::mkfs::layout::Tables;
use platfs_device::Device;

use super::carry::is_directory;
use super::inodes::{InodeGroup, Inodes};
use super::kept::record;
use super::moves::Moves;
use super::old_volume::OldVolume;
use super::survey::{Owner, map_of};
use crate::error::refused;
use crate::{Error, Result};

/// New numbers for the inodes behind the last group that stays.
pub(super) fn assign(
    before: &OldVolume,
    groups: u32,
    owners: &[Owner],
    inodes: &mut Inodes,
) -> Result<BTreeMap<u32, InodeNumber>> {
    let geometry = &before.geometry;
    let mut numbers = BTreeMap::new();
    let end = groups.saturating_mul(geometry.inodes_per_group);
    let leaving: Vec<&Inode> =
        owners.iter().map(|owner| &owner.inode).filter(|inode| inode.number().get() > end).collect();
    if leaving.is_empty() {
        return Ok(numbers);
    }
    if before.raw.features().compat.contains(Compat::STABLE_INODES) {
        return refused(
            "inodes of the part that ends would get new numbers, which the feature stable_inodes forbids",
        );
    }
    let mut leaving = leaving.into_iter();
    let mut next = leaving.next();
    for group in (0..groups).map(Group) {
        if before.descriptor(group).free_inodes() == 0 {
            continue;
        }
        let mut state = begun(before, group)?;
        let mut changed = false;
        for index in 0..geometry.inodes_per_group {
            let Some(inode) = next else { break };
            let Some(number) =
                geometry.inode_at(group, index).filter(|number| number.get() >= geometry.first_inode)
            else {
                continue;
            };
            if state.bits.get(index) {
                continue;
            }
            state.bits.set(index, index + 1);
            state.directories += u32::from(is_directory(inode));
            state.unused = state.unused.min(geometry.inodes_per_group - index - 1);
            numbers.insert(inode.number().get(), number);
            changed = true;
            next = leaving.next();
        }
        if changed {
            inodes.change(group, state);
        }
    }
    match next {
        None => Ok(numbers),
        Some(_) => refused(format!("the {groups} groups that stay have too few free inodes")),
    }
}

fn begun(before: &OldVolume, group: Group) -> Result<InodeGroup> {
    let raw = before.descriptor(group);
    let all = before.geometry.inodes_per_group;
    let fresh = before.has_flag(group, GroupFlags::INODE_UNINIT);
    let unused = if fresh { all } else { raw.unused_inodes() };
    Ok(InodeGroup { bits: before.inode_bitmap(group)?, directories: raw.used_directories(), unused })
}

/// Renumbering of names and values.
pub(super) struct Namer<'n> {
    pub(super) before: &'n OldVolume,
    pub(super) moves: &'n Moves,
    pub(super) numbers: &'n BTreeMap<u32, InodeNumber>,
    pub(super) tables: &'n [Tables],
    pub(super) after: &'n ondisk::geometry::Geometry,
    pub(super) sealer: Sealer,
    pub(super) device: &'n dyn Device,
}

impl Namer<'_> {
    fn new_number(&self, old: InodeNumber) -> InodeNumber {
        self.numbers.get(&old.get()).copied().unwrap_or(old)
    }

    /// Lets all names of a directory lead to the new numbers. Its record stands at its new place already.
    pub(super) fn directory(&self, old: InodeNumber) -> Result<()> {
        let number = self.new_number(old);
        let (offset, mut inode) = record(self.device, self.after, self.tables, number)?;
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            self.inline(&mut inode)?;
            self.sealer.seal_inode(&mut inode);
            return self.put(offset, inode.bytes());
        }
        let (_, was) = self.before.record(old)?;
        let map = map_of(self.before, &self.before.geometry, &was)?;
        let seed = self.sealer.inode_seed(number, inode.generation());
        for run in map.runs.iter().filter(|run| !run.unwritten) {
            for at in 0..run.count {
                let place = self.moves.to(Block(run.start.0 + at));
                self.block(place, (&inode, run.logical + at), seed, number != old)?;
            }
        }
        Ok(())
    }

    /// One block of a directory.
    fn block(
        &self,
        place: Block,
        (inode, logical): (&Inode, u64),
        seed: InodeSeed,
        renamed: bool,
    ) -> Result<()> {
        let offset = self.after.byte_offset(place);
        let mut bytes = vec![0; self.after.block_size.bytes_usize()];
        self.device.read_at(offset, &mut bytes).map_err(Error::io(format!("reading block {place}")))?;
        let layout = Layout::new(self.after.block_size, &self.before.raw.features());
        let found: Vec<_> = dirent::entries(&bytes, layout)
            .filter_map(|entry| entry.ok().and_then(|entry| Some((entry.offset, entry.inode?))))
            .collect();
        if !self.retarget(&mut bytes, &found)? && !renamed {
            return Ok(());
        }
        let indexed = inode.flags().contains(InodeFlags::INDEX);
        if indexed && logical == 0 {
            seed.seal_index_node(&mut bytes, Kind::Root.entries_offset());
        } else if indexed && looks_like_node(&bytes, layout) {
            seed.seal_index_node(&mut bytes, Kind::Node.entries_offset());
        } else if dirent::has_tail(&bytes) {
            seed.seal_directory_leaf(&mut bytes);
        }
        self.put(offset, &bytes)
    }

    /// True if any entry leads to another inode now.
    fn retarget(&self, bytes: &mut [u8], found: &[(usize, InodeNumber)]) -> Result<bool> {
        let mut changed = false;
        for (offset, inode) in found {
            let new = self.new_number(*inode);
            if new != *inode {
                let to = bytes.get_mut(*offset..offset + 4);
                invariant!(to, "an entry that was found lies in its block")
                    .copy_from_slice(&new.get().to_le_bytes());
                changed = true;
            }
        }
        Ok(changed)
    }

    /// An inline directory: its parent, and entries in two places of its record.
    fn inline(&self, inode: &mut Inode) -> Result<()> {
        let layout = Layout::new(self.after.block_size, &self.before.raw.features());
        let parent = dirent::inline_parent(&inode.raw().i_block);
        let value = xattr::in_inode(inode)?.into_iter().find_map(|entry| match entry.value {
            Value::Here(value) if entry.index == NameIndex::SYSTEM && entry.name == b"data" => {
                let start = value.as_ptr().addr() - inode.bytes().as_ptr().addr();
                Some((start, start + value.len()))
            }
            _ => None,
        });
        let first = (I_BLOCK_OFFSET + 4, I_BLOCK_OFFSET + I_BLOCK_LEN);
        let mut found: Vec<(usize, InodeNumber)> =
            parent.map(|parent| (I_BLOCK_OFFSET, parent)).into_iter().collect();
        for (start, end) in [Some(first), value].into_iter().flatten() {
            let region = inode.bytes().get(start..end).unwrap_or_default();
            let entries = dirent::entries_without_tail(region, layout).filter_map(|entry| entry.ok());
            found.extend(entries.filter_map(|entry| Some((start + entry.offset, entry.inode?))));
        }
        self.retarget(inode.bytes_mut(), &found)?;
        Ok(())
    }

    /// Lets the attributes of an inode lead to the new numbers of inodes that hold values.
    pub(super) fn values(&self, old: InodeNumber) -> Result<()> {
        let (offset, mut inode) = record(self.device, self.after, self.tables, self.new_number(old))?;
        let number = inode.number();
        if xattr::renumber_in_inode(&mut inode, |value| self.new_number(value))? {
            self.sealer.seal_inode(&mut inode);
            self.put(offset, inode.bytes())?;
        }
        let place = inode.attribute_block();
        if place.0 == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; self.after.block_size.bytes_usize()];
        let offset = self.after.byte_offset(place);
        self.device
            .read_at(offset, &mut bytes)
            .map_err(Error::io(format!("reading attributes of {number}")))?;
        // No new number is one that changes, so that a block of several inodes may be met again.
        if xattr::renumber_in_block(place, &mut bytes, |value| self.new_number(value))? {
            self.sealer.seal_attribute_block(place, &mut bytes);
            self.put(offset, &bytes)?;
        }
        Ok(())
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(offset, bytes).map_err(Error::io(format!("writing at byte {offset}")))
    }
}
