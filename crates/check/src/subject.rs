//! The volume that is checked: what its superblock and descriptors say, and its bytes with the repairs
//! made so far. Excludes what was found about it ([`super::facts`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ondisk::dirent::Layout;
use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::inode::{Inode, Timestamp};
use ondisk::journal::RawJournalSuperblock;
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber, low_u32};

use super::staged::Staged;
use platfs_device::Device;

/// A volume with a superblock and descriptors that lead somewhere.
pub(super) struct Subject {
    pub(super) device: Arc<Staged>,
    /// The superblock with its repairs; `opening` writes it at the end.
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
    pub(super) features: Features,
    pub(super) sealer: Sealer,
    /// One for each group, with their repairs; `space` writes those that changed at the end.
    pub(super) descriptors: Vec<RawGroupDescriptor>,
    /// Groups whose bitmaps and counts are rewritten without an issue, because something reported
    /// already made them meaningless: a descriptor from a backup, a flag `UNINIT` that was wrong.
    pub(super) renewed: BTreeSet<u32>,
    /// Groups whose descriptor is to stay though nothing of it can be believed.
    pub(super) descriptors_left: BTreeSet<u32>,
    /// Groups whose count of inodes never used can't be right, and that count; their tables are read
    /// to the end.
    pub(super) unused_doubted: BTreeMap<u32, u32>,
    /// True if the superblock is a backup, whose counts are old.
    pub(super) superblock_renewed: bool,
    /// True if the superblock on the device stays as it is though `raw` is another.
    pub(super) superblock_left: bool,
    /// True if the resize inode is to be rebuilt.
    pub(super) resize_wanted: bool,
    /// True if something was repaired of which the backups of superblock and descriptors have a copy.
    pub(super) backups_follow: bool,
    /// True if the log holds changes that are to stay in it, which was reported.
    pub(super) log_left: bool,
    /// Repair of the journal's superblock, if one is due.
    pub(super) journal_wanted: Option<JournalWrite>,
    /// Files that were about to be cut: blocks behind their end go.
    pub(super) cut_wanted: BTreeSet<InodeNumber>,
    /// True if the blocks of the orphan file are to be rewritten.
    pub(super) orphan_file_wanted: bool,
    /// True if the owners of blocks are known, all but those of suspects: no block is written before.
    pub(super) owners_known: AtomicBool,
    /// Clusters that have two owners, and are to stay so: they are not written.
    pub(super) contested: Mutex<BTreeSet<u64>>,
    pub(super) threads: usize,
    pub(super) now: Timestamp,
}

/// Repair of the journal's superblock.
pub(super) enum JournalWrite {
    /// One of an empty journal.
    Empty,
    /// The one that there is, with its repairs.
    Edited(Box<RawJournalSuperblock>),
}

impl Subject {
    pub(super) fn has_compat(&self, feature: Compat) -> bool {
        self.features.compat.contains(feature)
    }

    pub(super) fn has_incompat(&self, feature: Incompat) -> bool {
        self.features.incompat.contains(feature)
    }

    pub(super) fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.features.ro_compat.contains(feature)
    }

    pub(super) fn descriptor(&self, group: Group) -> Option<&RawGroupDescriptor> {
        self.descriptors.get(usize::try_from(group.0).ok()?)
    }

    pub(super) fn descriptor_mut(&mut self, group: Group) -> Option<&mut RawGroupDescriptor> {
        self.descriptors.get_mut(usize::try_from(group.0).ok()?)
    }

    /// Returns true if the group has a flag that counts: without checksums of descriptors `UNINIT` flags mean nothing.
    pub(super) fn group_has(&self, group: Group, flag: GroupFlags) -> bool {
        self.features.descriptor_csum()
            && self.descriptor(group).is_some_and(|raw| raw.flags().contains(flag))
    }

    /// Inodes of the files of quota that the superblock names, of users, groups and projects; 0 where there is none.
    pub(super) fn quota_inodes(&self) -> [u32; 3] {
        let raw = &self.raw;
        match self.has_ro_compat(RoCompat::QUOTA) {
            true => [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum].map(|inum| inum.get()),
            false => [0; 3],
        }
    }

    /// Number of inodes at the start of a group's table that were ever used; the rest of it is not read.
    pub(super) fn inodes_begun(&self, group: Group) -> u32 {
        let whole = self.geometry.inodes_per_group;
        let Some(raw) = self.descriptor(group) else { return 0 };
        if self.table_of(group).is_none() || self.group_has(group, GroupFlags::INODE_UNINIT) {
            return 0;
        }
        let unused = if self.features.descriptor_csum() { raw.unused_inodes() } else { 0 };
        whole.saturating_sub(unused)
    }

    /// Where a group's inode table begins; `None` where none of it can be read.
    pub(super) fn table_of(&self, group: Group) -> Option<Block> {
        let table = self.descriptor(group)?.inode_table();
        let inside = self.geometry.contains(table, u64::from(self.geometry.inode_table_blocks()));
        // Block 0 never holds one; a descriptor says so where there is none.
        (inside && table.0 != 0).then_some(table)
    }

    /// Now, as a deletion time: never a number that could be an inode's on a list of orphans.
    pub(super) fn deletion_time(&self) -> u32 {
        low_u32(self.now.seconds.max(1).cast_unsigned()).max(self.geometry.inodes())
    }

    /// Bytes of a block.
    pub(super) fn block_len(&self) -> usize {
        self.geometry.block_size.bytes_usize()
    }

    /// Layout of directory blocks.
    pub(super) fn layout(&self) -> Layout {
        Layout::new(self.geometry.block_size, &self.features)
    }

    /// Seed of the checksums of an inode's structures.
    pub(super) fn seed_of(&self, inode: &Inode) -> InodeSeed {
        self.sealer.inode_seed(inode.number(), inode.generation())
    }

    /// Reads whole blocks from one on; outside the volume it fails.
    pub(super) fn read(&self, block: Block, buffer: &mut [u8]) -> io::Result<()> {
        let blocks = self.geometry.block_size.blocks_for(buffer.len() as u64);
        if block.0.checked_add(blocks).is_none_or(|end| end > self.geometry.blocks) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("block {block} lies outside the volume"),
            ));
        }
        self.device.read_at(self.geometry.byte_offset(block), buffer)
    }

    /// One block.
    pub(super) fn block(&self, block: Block) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_len()];
        self.read(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Stages new bytes of a block: the one way for all blocks but superblocks and tables of inodes. A block that keeps
    /// two owners, because the sink decided so, is left as it is; the next check reports it.
    ///
    /// # Errors
    /// The device's; a call before the owners are known, which would write where a damaged field leads.
    pub(super) fn write(&self, block: Block, bytes: &[u8]) -> io::Result<()> {
        if !self.owners_known.load(Ordering::Relaxed) {
            return Err(io::Error::other(format!("the owner of block {block} is not known yet")));
        }
        if self.is_contested(block) {
            return Ok(());
        }
        self.device.write_at(self.geometry.byte_offset(block), bytes)
    }

    /// Stages the bytes of a block as those of another, as [`Subject::write`] does.
    ///
    /// # Errors
    /// As there; a block that can't be read.
    pub(super) fn copy(&self, from: Block, to: Block) -> io::Result<()> {
        if !self.owners_known.load(Ordering::Relaxed) || self.is_contested(to) {
            return self.write(to, &self.block(from)?);
        }
        let geometry = &self.geometry;
        self.device.copy(geometry.byte_offset(from), geometry.byte_offset(to), self.block_len())
    }

    /// Returns true if a block has two owners, and is to stay so.
    pub(super) fn is_contested(&self, block: Block) -> bool {
        let contested = self.contested.lock().unwrap_or_else(PoisonError::into_inner);
        !contested.is_empty() && contested.contains(&self.geometry.cluster_of(block).0)
    }

    /// Byte offset of an inode's record; `None` where its number or its group's table lies outside.
    pub(super) fn inode_offset(&self, number: InodeNumber) -> Option<u64> {
        let (group, index) = self.geometry.locate_inode(number)?;
        let start = self.geometry.byte_offset(self.table_of(group)?);
        Some(start + u64::from(index) * u64::from(self.geometry.inode_size))
    }

    /// An inode's record as it is now, repairs included.
    pub(super) fn inode(&self, number: InodeNumber) -> io::Result<Inode> {
        let offset = self.inode_offset(number).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = vec![0; usize::from(self.geometry.inode_size)];
        self.device.read_at(offset, &mut bytes)?;
        Inode::parse(number, &bytes).map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))
    }

    /// Stages an inode's record, with its checksum made right.
    pub(super) fn write_inode(&self, inode: &mut Inode) -> io::Result<()> {
        self.sealer.seal_inode(inode);
        let offset = self.inode_offset(inode.number()).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.device.write_at(offset, inode.bytes())
    }
}
