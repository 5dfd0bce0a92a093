//! The files of a new volume: root, lost+found, resize inode, journal, quota files, orphan file,
//! and the `mmp` block. In mke2fs's order, so that they land in the same places.

use std::collections::BTreeMap;

use ondisk::dirent;
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::inode::{FileType, Inode, InodeFlags, TimeField, Timestamp};
use ondisk::invariant;
use ondisk::journal::RawJournalSuperblock;
use ondisk::mmp::{MMP_DEFAULT_INTERVAL, RawMmp};
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::seal::{InodeSeed, Sealer};
use ondisk::superblock::{JOURNAL_MAP_COPIED, RawSuperblock};
use ondisk::units::{Block, Group, InodeNumber, low_u32};
use ondisk::xattr::{self, Entry, NameIndex};
use zerocopy::IntoBytes;

use super::block_use::BlockUse;
use super::mapping::{self, Mapping};
use super::options::{Options, Storage};
use super::shape::{Shape, invalid, wrong};
use super::{journal_size, resize, tables};
use crate::Result;
use crate::bytes;

const BAD_BLOCKS: InodeNumber = InodeNumber::constant(1);
const LOST_FOUND: InodeNumber = InodeNumber::constant(11);
/// Bytes that lost+found is given ahead, so that a check can use it without allocating.
const LOST_FOUND_BYTES: usize = 16 * 1024;

/// Sizes from here on do not fit 31 bits.
const LARGE_FILE: u64 = 1 << 31;

/// Something to write besides tables, bitmaps and superblocks.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// These bytes.
    Bytes(Block, Vec<u8>),
    /// Zeros, where the storage may hold something else.
    Zeros(Block, u64),
    /// Empty blocks of the orphan file.
    Orphans(Block, u64, InodeSeed),
}

/// The files, planned.
pub(super) struct Files<'a> {
    options: &'a Options,
    shape: &'a Shape,
    raw: &'a mut RawSuperblock,
    sealer: Sealer,
    pub(super) block_use: BlockUse,
    pub(super) writes: Vec<Write>,
    /// Every inode in use, without gaps from 1.
    pub(super) inodes: BTreeMap<u32, Inode>,
}

impl<'a> Files<'a> {
    pub(super) fn new(
        options: &'a Options,
        shape: &'a Shape,
        raw: &'a mut RawSuperblock,
        block_use: BlockUse,
    ) -> Self {
        let sealer = Sealer::from_superblock(raw);
        Files { options, shape, raw, sealer, block_use, writes: Vec::new(), inodes: BTreeMap::new() }
    }

    /// Plans them all; the superblock's fields that name them are filled in.
    pub(super) fn plan(&mut self) -> Result<()> {
        let features = self.shape.features;
        for number in 1..LOST_FOUND.get() {
            let Some(number) = InodeNumber::new(number) else { continue };
            self.inodes.insert(number.get(), self.unused(number));
        }
        self.directories()?;
        if features.compat.contains(Compat::RESIZE_INODE) {
            self.resize_inode()?;
        }
        if features.compat.contains(Compat::HAS_JOURNAL) {
            self.journal()?;
        }
        if features.incompat.contains(Incompat::MMP) {
            self.mmp()?;
        }
        if features.ro_compat.contains(RoCompat::QUOTA) {
            self.quota()?;
        }
        if features.compat.contains(Compat::ORPHAN_FILE) {
            self.orphan_file()?;
        }
        self.admit_large_files();
        for inode in self.inodes.values_mut() {
            self.sealer.seal_inode(inode);
        }
        Ok(())
    }

    /// Sizes over 2 GiB, such as the resize inode's, need the feature whatever was asked for.
    fn admit_large_files(&mut self) {
        if self.inodes.values().any(|inode| inode.size() >= LARGE_FILE) {
            let mut features = self.raw.features();
            features.ro_compat |= RoCompat::LARGE_FILE;
            self.raw.set_features(features);
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp { seconds: i64::try_from(self.options.time).unwrap_or(i64::MAX), nanoseconds: 0 }
    }

    /// A reserved inode without use: zeros, but for the times of the one for bad blocks.
    fn unused(&self, number: InodeNumber) -> Inode {
        let mut inode = Inode::blank(number, self.shape.inode_size);
        inode.bytes_mut().fill(0);
        if number == BAD_BLOCKS {
            for field in [TimeField::Access, TimeField::Change, TimeField::Modify] {
                inode.set_time(field, self.now());
            }
        }
        inode
    }

    fn inode(&self, number: InodeNumber, file_type: FileType, permissions: u16, links: u16) -> Inode {
        let mut inode = Inode::blank(number, self.shape.inode_size);
        inode.raw_mut().i_mode.set(file_type.mode_bits() | permissions & 0o7777);
        inode.raw_mut().i_links_count.set(links);
        for field in [TimeField::Access, TimeField::Change, TimeField::Modify, TimeField::Create] {
            inode.set_time(field, self.now());
        }
        inode
    }

    /// A regular file that only the file system itself uses.
    fn hidden(&self, number: InodeNumber, size: u64) -> Inode {
        let mut inode = self.inode(number, FileType::Regular, 0o600, 1);
        inode.set_size(size);
        inode
    }

    fn next_inode(&self) -> Result<InodeNumber> {
        let next = self.inodes.last_key_value().map_or(1, |(number, _)| number + 1);
        match InodeNumber::new(next).filter(|number| number.get() <= self.raw.s_inodes_count.get()) {
            Some(number) => Ok(number),
            None => invalid(format!("{} inodes are too few for the features asked for", next - 1)),
        }
    }

    fn goal(&self, number: InodeNumber) -> u64 {
        let geometry = &self.block_use.layout.geometry;
        let group = geometry.locate_inode(number).map_or(Group(0), |(group, _)| group);
        tables::inode_goal(geometry, group).0
    }

    /// Gives a file blocks from `goal` on, and its map to the inode.
    fn map(
        &mut self,
        inode: &mut Inode,
        goal: u64,
        order: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Result<Mapping> {
        let seed = self.sealer.inode_seed(inode.number(), 0);
        let mapping = if self.shape.features.incompat.contains(Incompat::EXTENTS) {
            mapping::by_extents(&mut self.block_use, goal, order, seed)?
        } else {
            mapping::by_block_map(&mut self.block_use, goal, order)?
        };
        mapping.store(inode, self.shape.block_size);
        self.writes.extend(mapping.nodes.iter().map(|(block, bytes)| Write::Bytes(*block, bytes.clone())));
        Ok(mapping)
    }

    fn block_len(&self) -> usize {
        self.shape.block_size.bytes_usize()
    }

    /// Gives the root directory its label. As SELinux keeps it, a zero ends it.
    fn label(&self, root: &mut Inode) -> Result<()> {
        if self.options.root_label.is_empty() {
            return Ok(());
        }
        if !self.shape.features.compat.contains(Compat::EXT_ATTR) {
            return wrong("-E root_selinux", "needs the feature ext_attr");
        }
        let label = [&self.options.root_label[..], b"\0"].concat();
        let entry = Entry::here(NameIndex::SECURITY, b"selinux", &label);
        let stored = xattr::store_in_inode(root, &[entry]);
        stored.or_else(|_| {
            wrong("-E root_selinux", "the label does not fit the inode; larger inodes (-I) have room")
        })
    }

    fn directories(&mut self) -> Result<()> {
        let len = self.block_len();
        let mut root = self.inode(InodeNumber::ROOT, FileType::Directory, self.options.root_permissions, 3);
        let (uid, gid) = self.options.root_owner;
        root.set_owner(uid, gid);
        self.label(&mut root)?;
        let mut lost_found = self.inode(LOST_FOUND, FileType::Directory, 0o700, 2);
        let layout = dirent::Layout::new(self.shape.block_size, &self.shape.features);
        let mut first = vec![0; len];
        dirent::init_directory(&mut first, layout, InodeNumber::ROOT, InodeNumber::ROOT);
        let name =
            dirent::Name::new(b"lost+found").map_err(|_| crate::Error::Invalid("lost+found".into()))?;
        let record = dirent::Record::new(name, LOST_FOUND, FileType::Directory, layout);
        match dirent::find_room(&first, layout, record.needs()) {
            Ok(Some(room)) => dirent::insert_at(&mut first, layout, room, &record),
            _ => return invalid("the root directory has no room for lost+found"),
        }
        self.directory(&mut root, &[first])?;
        let mut blocks = vec![vec![0; len]; self.lost_found_blocks()];
        for block in &mut blocks {
            dirent::init_leaf(block, layout);
        }
        let first = invariant!(blocks.first_mut(), "lost+found has a block");
        dirent::init_directory(first, layout, LOST_FOUND, InodeNumber::ROOT);
        self.directory(&mut lost_found, &blocks)?;
        self.inodes.insert(root.number().get(), root);
        self.inodes.insert(lost_found.number().get(), lost_found);
        Ok(())
    }

    /// At least two blocks, so that large empty ones are tested too; at most the direct ones.
    fn lost_found_blocks(&self) -> usize {
        let blocks = (LOST_FOUND_BYTES / self.block_len()).clamp(2, ondisk::block_map::DIRECT as usize);
        // mke2fs's first expansion of an inline directory only moves it out.
        blocks - usize::from(self.shape.features.incompat.contains(Incompat::INLINE_DATA))
    }

    fn directory(&mut self, inode: &mut Inode, blocks: &[Vec<u8>]) -> Result<()> {
        inode.set_size((blocks.len() * self.block_len()) as u64);
        let seed = self.sealer.inode_seed(inode.number(), 0);
        let goal = self.goal(inode.number());
        let mapping = self.map(inode, goal, 0..low_u32(blocks.len() as u64))?;
        for (logical, bytes) in (0..).zip(blocks) {
            let Some(block) = mapping.block(logical) else { continue };
            let mut bytes = bytes.clone();
            if self.sealer.covers_metadata() {
                seed.seal_directory_leaf(&mut bytes);
            }
            self.writes.push(Write::Bytes(block, bytes));
        }
        Ok(())
    }

    fn resize_inode(&mut self) -> Result<()> {
        let mut inode = self.inode(InodeNumber::RESIZE, FileType::Regular, 0o600, 1);
        let goal = resize::goal(&self.block_use.layout.geometry);
        let Some((block, _)) = self.block_use.take(goal, 1)?.first().copied() else {
            return invalid("no room for the resize inode's map");
        };
        let top = resize::fill(&self.block_use.layout.geometry, &mut inode, Block(block));
        self.writes.push(Write::Bytes(Block(block), top));
        self.inodes.insert(InodeNumber::RESIZE.get(), inode);
        Ok(())
    }

    fn journal(&mut self) -> Result<()> {
        let free = self.free_blocks()?;
        let (log, fast) = journal_size::of_volume(self.options, self.shape, free)?;
        let blocks = log + fast;
        let goal = match self.options.journal.location {
            Some(place) => self.run_from(place.in_blocks(self.shape.block_size), blocks)?,
            None if self.options.packed_meta_blocks => 0,
            None if !self.shape.features.incompat.contains(Incompat::EXTENTS) => {
                self.goal(InodeNumber::JOURNAL)
            }
            None => self.run_from(self.middle()?, blocks)?,
        };
        let mut inode = self.hidden(InodeNumber::JOURNAL, u64::from(blocks) << self.shape.block_size.log2());
        let mapping = self.map(&mut inode, goal, 0..blocks)?;
        if self.options.storage == Storage::Unknown && !self.options.lazy_journal {
            let zeros = mapping.extents.iter().map(|e| Write::Zeros(e.start, u64::from(e.count)));
            self.writes.extend(zeros);
        }
        let Some(first) = mapping.block(0) else { return invalid("the journal has no block") };
        let superblock = RawJournalSuperblock::empty(self.shape.block_size, blocks, fast, self.options.uuid);
        self.writes.push(Write::Bytes(first, superblock.as_bytes().to_vec()));
        self.name_journal(&inode, u64::from(blocks));
        self.inodes.insert(InodeNumber::JOURNAL.get(), inode);
        Ok(())
    }

    /// Names the journal in the superblock, with the copy of its map for a lost inode table.
    fn name_journal(&mut self, inode: &Inode, blocks: u64) {
        self.raw.s_journal_inum.set(InodeNumber::JOURNAL.get());
        self.raw.s_jnl_backup_type = JOURNAL_MAP_COPIED;
        let map = inode.raw().i_block;
        for (to, word) in self.raw.s_jnl_blocks.iter_mut().zip(map.chunks_exact(4)) {
            to.set(word.try_into().map_or(0, u32::from_le_bytes));
        }
        let size = inode.raw();
        self.raw.s_jnl_blocks[15] = size.i_size_high;
        self.raw.s_jnl_blocks[16] = size.i_size_lo;
        let overhead =
            u64::from(self.raw.s_overhead_clusters.get()) + blocks.div_ceil(1 << self.shape.cluster_log2);
        // 0 means that the number is not known. The next mount counts it.
        self.raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
    }

    /// Where a run for all of the journal begins from a goal on, if one is wanted and there is one.
    fn run_from(&mut self, goal: u64, blocks: u32) -> Result<u64> {
        let whole = match self.options.journal.in_one_run {
            true => self.block_use.whole_run(goal, u64::from(blocks))?,
            false => None,
        };
        Ok(whole.unwrap_or(goal))
    }

    /// Free blocks as things stand.
    fn free_blocks(&self) -> Result<u64> {
        Ok(super::free_at_first(&self.block_use.layout)?.saturating_sub(self.block_use.taken()))
    }

    /// Where to look for the journal: the emptiest group around the middle.
    fn middle(&self) -> Result<u64> {
        let geometry = &self.block_use.layout.geometry;
        let middle = (geometry.blocks - u64::from(geometry.first_data_block)) / 2;
        let behind_first = middle.saturating_sub(u64::from(geometry.first_data_block));
        let mut group = low_u32(behind_first / u64::from(geometry.blocks_per_group));
        let last = geometry.groups - 1;
        let flex = geometry.groups_per_flex();
        let mut first = group.saturating_sub(1);
        if geometry.flex_log2 > 0 && group > flex {
            group &= !(flex - 1);
            while group < last && self.block_use.free_in_group(Group(group))? == 0 {
                group += 1;
            }
            first = group;
        }
        let mut best = (self.block_use.free_in_group(Group(first))?, first);
        for other in first + 1..=(group + 1).min(last) {
            let free = self.block_use.free_in_group(Group(other))?;
            if free > best.0 {
                best = (free, other);
            }
        }
        Ok(geometry.group_start(Group(best.1)).0)
    }

    fn mmp(&mut self) -> Result<()> {
        let Some((block, _)) = self.block_use.take(0, 1)?.first().copied() else {
            return invalid("no room for the mmp block");
        };
        let interval =
            if self.options.mmp_interval == 0 { MMP_DEFAULT_INTERVAL } else { self.options.mmp_interval };
        let (node, device) = &self.options.mmp_names;
        let mmp = RawMmp::clean(self.options.time, interval, node, device);
        let mut contents = vec![0; self.block_len()];
        bytes::put(&mut contents, 0, mmp.as_bytes())?;
        self.sealer.seal_mmp(&mut contents);
        self.writes.push(Write::Bytes(Block(block), contents));
        self.raw.s_mmp_block.set(block);
        self.raw.s_mmp_update_interval.set(interval);
        Ok(())
    }

    fn quota(&mut self) -> Result<()> {
        let project = self.shape.features.ro_compat.contains(RoCompat::PROJECT);
        for kind in QuotaKind::ALL {
            let wanted = match &self.options.quota_kinds {
                Some(kinds) => kinds.contains(&kind),
                None => kind != QuotaKind::Project || project,
            };
            if !wanted {
                continue;
            }
            let number = match kind {
                QuotaKind::User => InodeNumber::constant(3),
                QuotaKind::Group => InodeNumber::constant(4),
                QuotaKind::Project => self.next_inode()?,
            };
            self.quota_file(kind, number)?;
            match kind {
                QuotaKind::User => self.raw.s_usr_quota_inum.set(number.get()),
                QuotaKind::Group => self.raw.s_grp_quota_inum.set(number.get()),
                QuotaKind::Project => self.raw.s_prj_quota_inum.set(number.get()),
            }
        }
        Ok(())
    }

    /// Usage of root and lost+found; files that only the file system sees are not counted.
    fn usage(&self, kind: QuotaKind) -> BTreeMap<u32, Usage> {
        let mut usage: BTreeMap<u32, Usage> = BTreeMap::new();
        for inode in
            [InodeNumber::ROOT, LOST_FOUND].iter().filter_map(|number| self.inodes.get(&number.get()))
        {
            let id = match kind {
                QuotaKind::User => inode.uid(),
                QuotaKind::Group => inode.gid(),
                QuotaKind::Project => inode.project(),
            };
            let entry = usage.entry(id).or_default();
            entry.bytes += inode.sectors(self.shape.block_size) * 512;
            entry.inodes += 1;
        }
        usage
    }

    fn quota_file(&mut self, kind: QuotaKind, number: InodeNumber) -> Result<()> {
        let contents = quota::encode(kind, &self.usage(kind));
        let mut inode = self.hidden(number, contents.len() as u64);
        inode.set_flags(InodeFlags::IMMUTABLE);
        let blocks = low_u32(self.shape.block_size.blocks_for(contents.len() as u64));
        let mut order: Vec<u32> = (0..blocks).collect();
        if self.block_len() == quota::QUOTA_BLOCK && self.shape.cluster_log2 == 0 {
            // The tree's root is written last, behind the blocks it leads to.
            order.retain(|block| *block != 1);
            order.push(1);
        }
        let goal = self.goal(number);
        let mapping = self.map(&mut inode, goal, order.into_iter())?;
        for (logical, bytes) in (0..).zip(contents.chunks(self.block_len())) {
            let Some(block) = mapping.block(logical) else { continue };
            let mut bytes = bytes.to_vec();
            bytes.resize(self.block_len(), 0);
            self.writes.push(Write::Bytes(block, bytes));
        }
        self.inodes.insert(number.get(), inode);
        Ok(())
    }

    fn orphan_file(&mut self) -> Result<()> {
        let number = self.next_inode()?;
        let blocks = match self.options.orphan_file_size {
            Some(length) => {
                let asked = length.in_blocks(self.shape.block_size);
                let Ok(blocks) = u32::try_from(asked) else {
                    return invalid(format!("an orphan file of {asked} blocks has no map that holds it"));
                };
                blocks
            }
            None => ondisk::orphan_file::default_blocks(self.shape.blocks),
        };
        let ratio = 1_u32 << self.shape.cluster_log2;
        let Some(blocks) =
            blocks.max(1).checked_next_multiple_of(ratio).filter(|b| u64::from(*b) < self.shape.blocks)
        else {
            return invalid(format!("an orphan file of {blocks} blocks does not fit the volume"));
        };
        let mut inode = self.hidden(number, u64::from(blocks) << self.shape.block_size.log2());
        let goal = self.goal(number);
        let mapping = self.map(&mut inode, goal, 0..blocks)?;
        let seed = self.sealer.inode_seed(number, 0);
        let orphans = mapping.extents.iter().map(|e| Write::Orphans(e.start, u64::from(e.count), seed));
        self.writes.extend(orphans);
        self.raw.s_orphan_file_inum.set(number.get());
        self.inodes.insert(number.get(), inode);
        Ok(())
    }
}
