//! Parts that growing and shrinking an open volume have in common.
//!
//! Owns: descriptors, the list of blocks kept for descriptors, the new format and the superblock's sizes as parts of one
//! update, and the backups behind it. Excludes: which groups come or go (`growth`, `shrink`).

use ondisk::block_map::POINTER_LEN;
use ondisk::features::Compat;
use ondisk::geometry::Geometry;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber, saturated};
use zerocopy::IntoBytes;

use crate::cache::Role;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::mkfs::layout::{fill_resize_inode, reserved_blocks, reserved_copies, superblock_groups};
use crate::space::Descriptors;
use crate::tx::Tx;
use crate::volume::Volume;
use crate::zone::Zone;

/// The slot of the resize inode that leads to its doubly indirect block.
const DOUBLY: usize = 13;

/// Writes the copies of superblock and descriptors.
///
/// # Errors
/// The device's failure; a broken descriptor.
pub fn write_backups(volume: &Volume) -> Result<()> {
    let device = volume.cache.device();
    let put = |offset: u64, bytes: &[u8]| {
        device.write_at(offset, bytes).map_err(|source| Error::io("writing backups", source))
    };
    let format = &*volume.format;
    let geometry = &format.geometry;
    let mut backup = volume.superblock();
    let mut features = backup.features();
    features.incompat.remove(ondisk::features::Incompat::RECOVER);
    backup.set_features(features);
    // A volume that is restored from one is to be checked.
    backup.s_state.set(0);
    for holder in superblock_groups(geometry).into_iter().skip(1).map(Group) {
        // The field has 16 bits: later groups are all called the last that it can say.
        backup.s_block_group_nr.set(saturated::<u16>(holder.0));
        format.sealer.seal_superblock(&mut backup);
        put(geometry.superblock_offset(holder), backup.as_bytes())?;
        for index in 0..geometry.descriptors_behind(holder) {
            let bytes = volume.space.descriptors().block(index);
            put(geometry.byte_offset(geometry.descriptor_block_copy(index, holder)), &bytes)?;
        }
    }
    let per_meta = geometry.descriptors_per_block();
    for index in geometry.descriptors_behind(Group(0))..geometry.descriptor_blocks() {
        let first = index.saturating_mul(per_meta);
        // The first group of a meta group has the one that counts.
        for member in [1, per_meta - 1].map(|position| first.saturating_add(position)) {
            if let Some((_, place)) = geometry.meta_descriptor_held_by(Group(member))
                && member < geometry.groups
            {
                let bytes = volume.space.descriptors().block(index);
                put(geometry.byte_offset(place), &bytes)?;
            }
        }
    }
    device.flush().map_err(|source| Error::io("flushing the device", source))
}

pub(crate) fn refused<T>(why: &str) -> Result<T> {
    Err(Error::Unsupported(format!("{why}: unmount the volume, and change its size then")))
}

/// A volume before and after.
#[derive(Clone, Copy)]
pub(crate) struct Reshape<'r> {
    pub(crate) before: &'r Geometry,
    pub(crate) after: &'r Format,
}

impl Reshape<'_> {
    /// The blocks of descriptors from the one of this number on.
    pub(crate) fn stage_descriptors(
        &self,
        tx: &mut Tx<'_>,
        from: u32,
        descriptors: &Descriptors,
    ) -> Result<()> {
        let geometry = &self.after.geometry;
        for index in from..geometry.descriptor_blocks() {
            let first = Group(index * geometry.descriptors_per_block());
            let (block, role) = (geometry.descriptor_block(index), Role::Descriptors(first));
            let bytes = descriptors.block(index);
            let to = if index < self.before.descriptor_blocks() {
                tx.edit(block, role)?
            } else {
                tx.create(block, role)
            };
            to.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// The blocks kept for descriptors to come, of which some may have become descriptors or were some, and the list of their
    /// copies in other groups.
    pub(crate) fn stage_kept(&self, tx: &mut Tx<'_>) -> Result<()> {
        let after = &self.after.geometry;
        if !self.after.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let backups = superblock_groups(after);
        let same_backups = backups.len() == superblock_groups(self.before).len();
        let kept = |of: &Geometry| (of.descriptor_blocks(), of.reserved_descriptor_blocks);
        if same_backups && kept(after) == kept(self.before) {
            return Ok(());
        }
        let mut inode = tx.inode(InodeNumber::RESIZE)?;
        let top = resize_top(self.before, inode.raw().i_block.as_slice())?;
        let bytes = fill_resize_inode(after, &mut inode, top);
        tx.rewrite(top, Role::Plain)?.copy_from_slice(&bytes);
        tx.store(&mut inode)?;
        if !same_backups || after.descriptor_blocks() < self.before.descriptor_blocks() {
            for block in reserved_blocks(after) {
                let to = tx.create(block, Role::Plain);
                reserved_copies(after, backups.get(1..).unwrap_or_default(), block, to);
            }
        }
        Ok(())
    }

    /// The format of the volume with these descriptors.
    pub(crate) fn format(
        &self,
        volume: &Volume,
        raw: &RawSuperblock,
        descriptors: &Descriptors,
    ) -> Result<Format> {
        let mut format = self.after.clone();
        let zone = Zone::from_descriptors(&format.geometry, raw, |group| descriptors.get(group), true)?;
        format.zone = zone.with_files_of(&volume.format.zone);
        Ok(format)
    }
}

/// The block to which the resize inode leads.
///
/// # Errors
/// There is none in the volume.
pub(crate) fn resize_top(geometry: &Geometry, pointers: &[u8]) -> Result<Block> {
    let pointer = pointers.chunks_exact(POINTER_LEN).nth(DOUBLY);
    let pointer = pointer.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let top = Block(u64::from(pointer));
    if pointer == 0 || !geometry.contains(top, 1) {
        return refused("the list of blocks kept for descriptors is damaged; `plat check` repairs it");
    }
    Ok(top)
}

/// Sizes and what follows from them.
pub(crate) fn copy_sizes(raw: &mut RawSuperblock, from: &RawSuperblock) {
    raw.set_blocks_count(from.blocks_count());
    raw.set_reserved_blocks_count(from.reserved_blocks_count());
    raw.s_inodes_count = from.s_inodes_count;
    raw.s_reserved_gdt_blocks = from.s_reserved_gdt_blocks;
}
