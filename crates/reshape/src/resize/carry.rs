//! Files on their way: contents are copied, maps and attributes lead to the new places, inodes get new numbers.
//!
//! Reads are always of the old volume. Excludes names, which [`super::names`] has, and where things go.

use ondisk::invariant;
use std::collections::{BTreeMap, BTreeSet};

use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags};
use ondisk::orphan_file;
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::superblock::{JOURNAL_MAP_COPIED, RawSuperblock};
use ondisk::units::{Block, InodeNumber, high_u32, low_u32};
use platfs::mkfs::layout::Tables;
use platfs_device::Device;
use platfs_device::map::words;

use super::kept::record;
use super::moves::Moves;
use super::old_volume::OldVolume;
use super::survey::Owner;
use crate::{Error, Result};

/// Bytes that are copied at once.
const GATHER: u64 = 4 << 20;

/// The way of files to the new volume.
pub(super) struct Carrier<'c> {
    pub(super) before: &'c OldVolume,
    pub(super) moves: &'c Moves,
    pub(super) numbers: &'c BTreeMap<u32, InodeNumber>,
    pub(super) tables: &'c [Tables],
    pub(super) after: &'c ondisk::geometry::Geometry,
    pub(super) sealer: Sealer,
    pub(super) device: &'c dyn Device,
    /// Blocks of attributes that were written; several files may share one.
    pub(super) attributes: BTreeSet<u64>,
    /// Blocks by which files grew or shrank, by owner, group and project.
    pub(super) charged: Vec<(Inode, i64)>,
}

impl Carrier<'_> {
    /// Carries one file over; the superblock follows where it names it.
    pub(super) fn carry(&mut self, owner: &Owner, raw: &mut RawSuperblock) -> Result<()> {
        let old = owner.inode.number();
        let number = self.numbers.get(&old.get()).copied().unwrap_or(old);
        let mut inode = Inode::parse(number, owner.inode.bytes())?;
        let seed = self.sealer.inode_seed(number, inode.generation());
        if owner.moves {
            self.contents(owner)?;
        }
        if raw.s_orphan_file_inum.get() == old.get() && old.get() != 0 {
            self.orphan_file(owner, seed)?;
        }
        if owner.inode.flags().contains(InodeFlags::EXTENTS) {
            self.extents(owner, &mut inode, seed, number != old)?;
        } else if owner.moves && super::survey::has_map(&owner.inode) {
            self.pointers(&mut inode)?;
        }
        if let Some(block) = owner.attributes().filter(|_| owner.moves) {
            inode.set_attribute_block(self.attribute_block(block)?);
        }
        self.sealer.seal_inode(&mut inode);
        let (offset, _) = record(self.device, self.after, self.tables, number)?;
        self.put(offset, inode.bytes())?;
        rename(raw, old, number);
        keep_journal_map(raw, &inode);
        Ok(())
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(offset, bytes).map_err(Error::io(format!("writing at byte {offset}")))
    }

    /// Copies a run of blocks of the old volume.
    pub(super) fn copy(&self, from: Block, to: Block, count: u64) -> Result<()> {
        let log2 = self.after.block_size.log2();
        let (mut from, mut to, mut left) = (from.0 << log2, to.0 << log2, count << log2);
        let mut bytes = vec![0; invariant!(usize::try_from(left.min(GATHER)), "a piece fits memory")];
        while left > 0 {
            let len = left.min(GATHER);
            let part = usize::try_from(len).ok().and_then(|len| bytes.get_mut(..len));
            let part = invariant!(part, "no piece is longer than the first");
            self.before.device.read_at(from, part).map_err(Error::io(format!("reading at byte {from}")))?;
            self.put(to, part)?;
            (from, to, left) = (from + len, to + len, left - len);
        }
        Ok(())
    }

    fn contents(&self, owner: &Owner) -> Result<()> {
        for run in owner.map.runs.iter().filter(|run| !run.unwritten) {
            let mut from = run.start;
            for (to, count, moved) in self.moves.pieces(run.start, run.count) {
                if moved {
                    self.copy(from, to, count)?;
                }
                from = Block(from.0 + count);
            }
        }
        Ok(())
    }

    /// Checksums of the orphan file cover the places of its blocks.
    fn orphan_file(&self, owner: &Owner, seed: InodeSeed) -> Result<()> {
        let mut bytes = vec![0; self.after.block_size.bytes_usize()];
        for run in &owner.map.runs {
            for block in run.start.0..run.start.0 + run.count {
                let to = self.moves.to(Block(block));
                orphan_file::write(seed, to, &[], &mut bytes);
                self.put(self.after.byte_offset(to), &bytes)?;
            }
        }
        Ok(())
    }

    fn extents(&mut self, owner: &Owner, inode: &mut Inode, seed: InodeSeed, renamed: bool) -> Result<()> {
        let size = self.after.block_size;
        let Some(nodes) = self.moves.nodes.get(&owner.inode.number().get()) else {
            return if renamed { self.reseal_nodes(owner, seed) } else { Ok(()) };
        };
        let extents = super::tree::moved(&owner.map, self.moves);
        let (root, built) = super::tree::build(extents, &nodes.blocks, seed, size);
        for (block, bytes) in built {
            self.put(self.after.byte_offset(block), &bytes)?;
        }
        inode.raw_mut().i_block = invariant!(root.try_into(), "a root fills the map in the inode");
        let more = nodes.blocks.len().cast_signed() - nodes.had.cast_signed();
        if more != 0 {
            let sectors = (more as i64) << (self.after.cluster_log2 + size.log2() - 9);
            inode.set_sectors(inode.sectors(size).saturating_add_signed(sectors), size);
            self.charged.push((inode.clone(), sectors));
        }
        Ok(())
    }

    fn reseal_nodes(&self, owner: &Owner, seed: InodeSeed) -> Result<()> {
        for node in owner.map.nodes.iter().filter(|_| self.sealer.covers_metadata()) {
            let mut bytes = self.before.block(*node, "a block of a map")?;
            seed.seal_extent_node(&mut bytes);
            self.put(self.after.byte_offset(*node), &bytes)?;
        }
        Ok(())
    }

    /// Block pointers: those in the inode, and those in the blocks below, which keep their form.
    fn pointers(&self, inode: &mut Inode) -> Result<()> {
        for (slot, at) in (0..I_BLOCK_LEN).step_by(4).enumerate() {
            let pointer = invariant!(words(&inode.raw().i_block).nth(slot), "an inode has 15 pointers");
            let depth = slot.saturating_sub(ondisk::block_map::DIRECT as usize - 1);
            let moved = self.below(pointer, depth)?;
            let to = invariant!(inode.raw_mut().i_block.get_mut(at..at + 4), "an inode has 15 pointers");
            to.copy_from_slice(&moved.to_le_bytes());
        }
        Ok(())
    }

    /// At most three levels.
    fn below(&self, pointer: u32, depth: usize) -> Result<u32> {
        if pointer == 0 {
            return Ok(0);
        }
        let from = Block(u64::from(pointer));
        let to = self.moves.to(from);
        if depth > 0 {
            let mut bytes = self.before.block(from, "a block of pointers")?;
            for word in bytes.chunks_exact_mut(4) {
                let old = u32::from_le_bytes(word.try_into().unwrap_or_default());
                word.copy_from_slice(&self.below(old, depth - 1)?.to_le_bytes());
            }
            self.put(self.after.byte_offset(to), &bytes)?;
        }
        u32::try_from(to.0)
            .map_err(|_| Error::Refused(format!("block {to} is out of reach of block pointers")))
    }

    /// Brings a block of attributes to its place, whose number its checksum covers.
    fn attribute_block(&mut self, from: Block) -> Result<Block> {
        let to = self.moves.to(from);
        if to != from && self.attributes.insert(from.0) {
            let mut bytes = self.before.block(from, "a block of attributes")?;
            self.sealer.seal_attribute_block(to, &mut bytes);
            self.put(self.after.byte_offset(to), &bytes)?;
        }
        Ok(to)
    }
}

/// Fields of the superblock that name an inode.
fn rename(raw: &mut RawSuperblock, old: InodeNumber, new: InodeNumber) {
    let fields = [
        &mut raw.s_journal_inum,
        &mut raw.s_usr_quota_inum,
        &mut raw.s_grp_quota_inum,
        &mut raw.s_prj_quota_inum,
        &mut raw.s_orphan_file_inum,
        &mut raw.s_lpf_ino,
        &mut raw.s_snapshot_inum,
    ];
    for field in fields.into_iter().filter(|field| field.get() == old.get()) {
        field.set(new.get());
    }
}

/// The copy of the journal's map.
fn keep_journal_map(raw: &mut RawSuperblock, inode: &Inode) {
    if raw.s_journal_inum.get() != inode.number().get() || raw.s_jnl_backup_type != JOURNAL_MAP_COPIED {
        return;
    }
    let size = [high_u32(inode.size()), low_u32(inode.size())];
    for (to, from) in raw.s_jnl_blocks.iter_mut().zip(words(&inode.raw().i_block).chain(size)) {
        to.set(from);
    }
}

/// True if an inode is a directory.
pub(super) fn is_directory(inode: &Inode) -> bool {
    inode.file_type() == Some(FileType::Directory)
}
