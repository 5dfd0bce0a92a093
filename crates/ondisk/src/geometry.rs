//! Arithmetic of a volume: which group, which byte, where backups and descriptors lie.
//!
//! A [`Geometry`] is checked once, from the superblock; afterwards its arithmetic can't overflow:
//! the volume has at most 2^48 blocks and 2^32 groups, and every size is a legal power of two.
//! It excludes what is stored in descriptors (where bitmaps and tables are).

use crate::corrupt::{Corrupt, Place};
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use crate::units::{Block, BlockRun, BlockSize, Cluster, Group, InodeNumber, low_u32};

/// Blocks addressable by the 48-bit fields of extents and descriptors.
pub const MAX_BLOCKS: u64 = 1 << 48;

/// Rule for the groups that hold a copy of the superblock and the descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupRule {
    /// Every group (no `sparse_super`).
    Every,
    /// Groups 0, 1 and the powers of 3, 5 and 7 (`sparse_super`).
    Powers,
    /// Group 0 and the stated ones; zero means none (`sparse_super2`).
    Stated([u32; 2]),
}

impl BackupRule {
    /// True if the group holds a superblock, the primary included.
    #[must_use]
    pub fn has_superblock(self, group: Group) -> bool {
        // spec: gd: descriptors are copied where superblocks are.
        match self {
            _ if group.0 == 0 => true,
            BackupRule::Every => true,
            BackupRule::Stated(groups) => groups.contains(&group.0),
            BackupRule::Powers => group.0 == 1 || [3, 5, 7].iter().any(|base| is_power_of(group.0, *base)),
        }
    }
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

/// Sizes and counts of a volume, checked against each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Base-2 logarithm of the blocks in a cluster; 0 without `bigalloc`.
    pub cluster_log2: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Where group 0 begins: 1 with blocks of 1 KiB (without `bigalloc`), else 0.
    pub first_data_block: u32,
    /// Blocks in every group but the last.
    pub blocks_per_group: u32,
    /// Inodes in every group.
    pub inodes_per_group: u32,
    /// Block groups.
    pub groups: u32,
    /// Bytes of an inode record.
    pub inode_size: u16,
    /// Bytes of a group descriptor.
    pub descriptor_size: u16,
    /// First inode that is not reserved.
    pub first_inode: u32,
    /// Descriptor blocks kept free behind the descriptors for growth.
    pub reserved_descriptor_blocks: u16,
    /// With `meta_bg`: the first meta group whose descriptor block lies inside it.
    pub first_meta_bg: Option<u32>,
    /// Rule for the groups that hold superblock copies.
    pub backups: BackupRule,
    /// Base-2 logarithm of the groups in a flex group; 0 without `flex_bg`.
    pub flex_log2: u32,
}

fn bad(problem: String) -> Corrupt {
    Corrupt::new(Place::Superblock, problem)
}

impl Geometry {
    /// Derives and checks the geometry.
    ///
    /// # Errors
    /// A field that is out of its range or contradicts another, named with its value.
    pub fn from_superblock(raw: &RawSuperblock) -> Result<Self, Corrupt> {
        let features = raw.features();
        let (block_size, cluster_log2) = sizes(raw, features)?;
        let geometry = Geometry {
            block_size,
            cluster_log2,
            blocks: raw.blocks_count(),
            first_data_block: raw.s_first_data_block.get(),
            blocks_per_group: raw.s_blocks_per_group.get(),
            inodes_per_group: raw.s_inodes_per_group.get(),
            groups: 0,
            inode_size: raw.inode_size(),
            descriptor_size: descriptor_size(raw, features)?,
            first_inode: raw.first_inode(),
            reserved_descriptor_blocks: raw.s_reserved_gdt_blocks.get(),
            first_meta_bg: features.incompat.contains(Incompat::META_BG).then(|| raw.s_first_meta_bg.get()),
            backups: backup_rule(raw, features),
            flex_log2: if features.incompat.contains(Incompat::FLEX_BG) {
                u32::from(raw.s_log_groups_per_flex)
            } else {
                0
            },
        };
        geometry.checked(raw, features)
    }

    fn checked(mut self, raw: &RawSuperblock, features: Features) -> Result<Self, Corrupt> {
        self.check_groups(features)?;
        let groups =
            (self.blocks - u64::from(self.first_data_block)).div_ceil(u64::from(self.blocks_per_group));
        self.groups =
            u32::try_from(groups).map_err(|_| bad(format!("{groups} block groups are too many")))?;
        self.check_inodes(raw)?;
        if self.flex_log2 > 31 {
            return Err(bad(format!("flex groups of 2^{} groups are too large", self.flex_log2)));
        }
        if u64::from(self.reserved_descriptor_blocks) > u64::from(self.block_size.bytes()) / 4 {
            return Err(bad(format!(
                "{} reserved descriptor blocks are too many",
                self.reserved_descriptor_blocks
            )));
        }
        let overhead = self.group_header(Group(0)).count;
        if u64::from(overhead) + u64::from(self.first_data_block) >= self.blocks {
            return Err(bad(format!("{} blocks can't hold {} group descriptors", self.blocks, self.groups)));
        }
        Ok(self)
    }

    /// The part of the volume in its first `blocks` blocks, with the groups that begin there: for one whose device ends
    /// before it does.
    #[must_use]
    pub fn within(mut self, blocks: u64) -> Self {
        let first = u64::from(self.first_data_block);
        self.blocks = self.blocks.min(blocks).max(first + 1);
        self.groups = low_u32((self.blocks - first).div_ceil(u64::from(self.blocks_per_group)));
        self
    }

    fn check_groups(&self, features: Features) -> Result<(), Corrupt> {
        let first = u64::from(self.first_data_block);
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let expected = u64::from(self.block_size.bytes() == 1024 && !bigalloc);
        if first != expected && !(bigalloc && self.block_size.bytes() == 1024 && first == 1) {
            return Err(bad(format!("first data block is {first}, not {expected}")));
        }
        // Byte offsets are signed 64-bit numbers everywhere outside the format.
        let most = MAX_BLOCKS.min(i64::MAX.cast_unsigned() >> self.block_size.log2());
        if self.blocks <= first || self.blocks > most {
            return Err(bad(format!("block count {} is out of range", self.blocks)));
        }
        let ratio = 1_u64 << self.cluster_log2;
        let most = u64::from(self.block_size.bytes()) * 8 * ratio;
        let per_group = u64::from(self.blocks_per_group);
        if per_group == 0 || per_group > most || !per_group.is_multiple_of(8 * ratio) {
            return Err(bad(format!(
                "{per_group} blocks per group (at most {most}, a multiple of {})",
                8 * ratio
            )));
        }
        Ok(())
    }

    fn check_inodes(&self, raw: &RawSuperblock) -> Result<(), Corrupt> {
        let size = u32::from(self.inode_size);
        if !size.is_power_of_two() || size < 128 || size > self.block_size.bytes() {
            return Err(bad(format!("inode size {size} is not a power of two from 128 to the block size")));
        }
        let per_group = self.inodes_per_group;
        if per_group == 0 || per_group > self.block_size.bytes() * 8 {
            return Err(bad(format!("{per_group} inodes per group are out of range")));
        }
        let total = u64::from(self.groups) * u64::from(per_group);
        let stated = raw.s_inodes_count.get();
        if total != u64::from(stated) {
            return Err(bad(format!(
                "{stated} inodes, but {} groups of {per_group} make {total}",
                self.groups
            )));
        }
        if self.first_inode < 11 || self.first_inode > stated {
            return Err(bad(format!("first usable inode {} is out of range", self.first_inode)));
        }
        Ok(())
    }

    /// Inodes of the volume.
    #[must_use]
    pub fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }

    /// Blocks in a cluster.
    #[must_use]
    pub fn blocks_per_cluster(&self) -> u32 {
        1 << self.cluster_log2
    }

    /// Clusters in every group but the last.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_log2
    }

    /// Clusters of the volume; the last may be cut short by the end.
    #[must_use]
    pub fn clusters(&self) -> u64 {
        (self.blocks - u64::from(self.first_data_block)).div_ceil(1 << self.cluster_log2)
    }

    /// First block of a group.
    #[must_use]
    pub fn group_start(&self, group: Group) -> Block {
        Block(u64::from(self.first_data_block) + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks in a group; the last may be short.
    #[must_use]
    pub fn group_blocks(&self, group: Group) -> u32 {
        let rest = self.blocks.saturating_sub(self.group_start(group).0);
        low_u32(rest.min(u64::from(self.blocks_per_group)))
    }

    /// Clusters in a group; the last may be short.
    #[must_use]
    pub fn group_clusters(&self, group: Group) -> u32 {
        self.group_blocks(group).div_ceil(self.blocks_per_cluster())
    }

    /// The group a block lies in; `None` before the first group or behind the end.
    #[must_use]
    pub fn group_of_block(&self, block: Block) -> Option<Group> {
        let offset = block.0.checked_sub(u64::from(self.first_data_block))?;
        (block.0 < self.blocks).then(|| Group(low_u32(offset / u64::from(self.blocks_per_group))))
    }

    /// True if all of a run lies inside the volume and behind its first data block.
    #[must_use]
    pub fn contains(&self, start: Block, count: u64) -> bool {
        start.0 >= u64::from(self.first_data_block)
            && start.0.checked_add(count).is_some_and(|end| end <= self.blocks)
    }

    /// The cluster that holds a block of the volume.
    #[must_use]
    pub fn cluster_of(&self, block: Block) -> Cluster {
        // spec: bigalloc: maps count blocks, bitmaps clusters.
        Cluster(block.0.saturating_sub(u64::from(self.first_data_block)) >> self.cluster_log2)
    }

    /// First block of a cluster.
    #[must_use]
    pub fn cluster_start(&self, cluster: Cluster) -> Block {
        Block((cluster.0 << self.cluster_log2) + u64::from(self.first_data_block))
    }

    /// The group an inode lies in, and its index there; `None` for numbers behind the last.
    #[must_use]
    pub fn locate_inode(&self, inode: InodeNumber) -> Option<(Group, u32)> {
        (inode.get() <= self.inodes())
            .then(|| (Group(inode.index() / self.inodes_per_group), inode.index() % self.inodes_per_group))
    }

    /// The inode at an index of a group's table.
    #[must_use]
    pub fn inode_at(&self, group: Group, index: u32) -> Option<InodeNumber> {
        InodeNumber::new(group.0.checked_mul(self.inodes_per_group)?.checked_add(index)?.checked_add(1)?)
    }

    /// Blocks of one group's inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        low_u32(self.block_size.blocks_for(bytes))
    }

    /// Inode records in one block of a table.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.inode_size)
    }

    /// Descriptors in one block: the groups of a meta group.
    #[must_use]
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.descriptor_size)
    }

    /// Blocks that all descriptors fill.
    #[must_use]
    pub fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// Block of the superblock copy in a group that has one; the primary of volumes with blocks
    /// over 1 KiB lies inside block 0, at byte 1,024.
    #[must_use]
    pub fn superblock_block(&self, group: Group) -> Block {
        if group.0 == 0 && self.block_size.bytes() == 1024 { Block(1) } else { self.group_start(group) }
    }

    /// Byte offset of the superblock copy in a group that has one.
    #[must_use]
    pub fn superblock_offset(&self, group: Group) -> u64 {
        if group.0 == 0 { SUPERBLOCK_OFFSET } else { self.byte_offset(self.group_start(group)) }
    }

    /// Byte offset of a block.
    #[must_use]
    pub fn byte_offset(&self, block: Block) -> u64 {
        block.0 << self.block_size.log2()
    }

    /// True if a descriptor block lies in its meta group instead of behind the superblock.
    fn in_meta_group(&self, descriptor_block: u32) -> bool {
        self.first_meta_bg.is_some_and(|first| descriptor_block >= first)
    }

    /// Where primary descriptor block `index` lies.
    #[must_use]
    pub fn descriptor_block(&self, index: u32) -> Block {
        self.descriptor_block_copy(index, Group(0))
    }

    /// Where the copy of descriptor block `index` lies that belongs to the superblock of
    /// `group`. With `meta_bg` the copies are bound to the meta group, not to superblocks: group 0
    /// then names the primary and any other the first backup.
    #[must_use]
    pub fn descriptor_block_copy(&self, index: u32, group: Group) -> Block {
        if !self.in_meta_group(index) {
            return Block(self.superblock_block(group).0 + 1 + u64::from(index));
        }
        let first = index.saturating_mul(self.descriptors_per_block());
        let member = if group.0 == 0 { first } else { (first + 1).min(self.groups - 1) };
        self.meta_descriptor_in(Group(member))
    }

    /// Where copies of descriptor block `index` lie beside the primary, with the group of each: those behind copies of the
    /// superblock, or with `meta_bg` those in the second and the last group of the meta group.
    pub fn descriptor_copies(&self, index: u32) -> impl Iterator<Item = (Group, Block)> + '_ {
        // spec: gd
        let per_block = self.descriptors_per_block();
        let first = index.saturating_mul(per_block);
        let meta = self.in_meta_group(index);
        let last = if meta { first.saturating_add(per_block) } else { self.groups };
        let groups = (if meta { first } else { 0 }.saturating_add(1)..last.min(self.groups)).map(Group);
        let holds = move |group: &Group| match meta {
            true => self.meta_descriptor_held_by(*group).is_some(),
            false => self.backups.has_superblock(*group),
        };
        groups.filter(holds).map(move |group| {
            let behind = || Block(self.superblock_block(group).0 + 1 + u64::from(index));
            (group, if meta { self.meta_descriptor_in(group) } else { behind() })
        })
    }

    /// Descriptor block kept inside `group` under `meta_bg`: first block, or behind a superblock.
    fn meta_descriptor_in(&self, group: Group) -> Block {
        let has_super = u64::from(self.backups.has_superblock(group));
        let base = if has_super == 1 { self.superblock_block(group) } else { self.group_start(group) };
        Block(base.0 + has_super)
    }

    /// With `meta_bg`: index of the descriptor block that has a copy in this group. The first,
    /// second and last group of each meta group hold one.
    #[must_use]
    pub fn meta_descriptor_held_by(&self, group: Group) -> Option<(u32, Block)> {
        // spec: gd
        let per_block = self.descriptors_per_block();
        let index = group.0 / per_block;
        let position = group.0 % per_block;
        (self.in_meta_group(index) && (position < 2 || position == per_block - 1))
            .then(|| (index, self.meta_descriptor_in(group)))
    }

    /// Descriptor blocks that stand behind the superblock of a group, or its copy: those before the first meta group, or
    /// all. Copies inside of meta groups stand alone.
    #[must_use]
    pub fn descriptors_behind(&self, group: Group) -> u32 {
        // spec: gd
        match self.first_meta_bg {
            _ if !self.backups.has_superblock(group) => 0,
            Some(first) if group.0 / self.descriptors_per_block() >= first => 0,
            Some(first) => first.min(self.descriptor_blocks()),
            None => self.descriptor_blocks(),
        }
    }

    /// Blocks at the start of a group taken by superblock copy, descriptors and descriptors
    /// reserved for growth; `count` may be zero.
    #[must_use]
    pub fn group_header(&self, group: Group) -> BlockRun {
        let start = self.group_start(group);
        let mut count = 0;
        if self.backups.has_superblock(group) {
            let reserved = if self.first_meta_bg.is_none() { self.reserved_descriptor_blocks } else { 0 };
            let old_style = self.descriptors_behind(group) + u32::from(reserved);
            let before = low_u32(self.superblock_block(group).0 - start.0);
            count = before + 1 + old_style;
        }
        if self.meta_descriptor_held_by(group).is_some() {
            count += 1;
        }
        BlockRun { start, count }
    }

    /// Groups in a flex group.
    #[must_use]
    pub fn groups_per_flex(&self) -> u32 {
        1 << self.flex_log2
    }
}

fn sizes(raw: &RawSuperblock, features: Features) -> Result<(BlockSize, u32), Corrupt> {
    let log = raw.s_log_block_size.get();
    let block_size = log
        .checked_add(10)
        .and_then(BlockSize::from_log2)
        .ok_or_else(|| bad(format!("block size 2^(10+{log}) is not 1 KiB to 64 KiB")))?;
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        return Ok((block_size, 0));
    }
    let cluster = raw.s_log_cluster_size.get();
    let ratio = cluster.checked_sub(log).filter(|ratio| *ratio <= 29 && cluster <= 19);
    let ratio =
        ratio.ok_or_else(|| bad(format!("cluster size 2^(10+{cluster}) does not suit the block size")))?;
    let expected = raw.s_clusters_per_group.get();
    if raw.s_blocks_per_group.get() >> ratio != expected {
        return Err(bad(format!("{expected} clusters per group contradict the blocks per group")));
    }
    Ok((block_size, ratio))
}

fn descriptor_size(raw: &RawSuperblock, features: Features) -> Result<u16, Corrupt> {
    if !features.incompat.contains(Incompat::BIT64) {
        return Ok(32);
    }
    let size = raw.s_desc_size.get();
    let fits = size.is_power_of_two() && (64..=1024).contains(&size);
    if fits {
        Ok(size)
    } else {
        Err(bad(format!("descriptor size {size} is not a power of two from 64 to 1024")))
    }
}

fn backup_rule(raw: &RawSuperblock, features: Features) -> BackupRule {
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        BackupRule::Stated(raw.s_backup_bgs.map(|group| group.get()))
    } else if features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
        BackupRule::Powers
    } else {
        BackupRule::Every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(blocks: u64, log_block_size: u32) -> RawSuperblock {
        let mut raw = RawSuperblock::zeroed();
        raw.s_rev_level.set(1);
        raw.set_features(Features {
            incompat: Incompat::BIT64 | Incompat::FLEX_BG | Incompat::EXTENTS,
            ro_compat: RoCompat::SPARSE_SUPER,
            ..Features::default()
        });
        raw.s_log_block_size.set(log_block_size);
        raw.set_blocks_count(blocks);
        let first = u64::from(log_block_size == 0);
        let per_group = 8 << (10 + log_block_size);
        raw.s_first_data_block.set(u32::from(log_block_size == 0));
        raw.s_blocks_per_group.set(per_group);
        raw.s_inodes_per_group.set(1024);
        raw.s_inodes_count.set(low_u32((blocks - first).div_ceil(u64::from(per_group)) * 1024));
        raw.s_inode_size.set(256);
        raw.s_desc_size.set(64);
        raw.s_first_ino.set(11);
        raw.s_log_groups_per_flex = 4;
        raw
    }

    #[test]
    fn groups_cover_the_volume_and_the_last_may_be_short() {
        let geometry = Geometry::from_superblock(&superblock(32768 * 3 + 5, 2)).unwrap();
        assert_eq!(geometry.groups, 4);
        assert_eq!(geometry.group_blocks(Group(3)), 5);
        assert_eq!(geometry.group_of_block(Block(32768)), Some(Group(1)));
        assert_eq!(geometry.group_of_block(Block(32768 * 3 + 5)), None);
        let small = Geometry::from_superblock(&superblock(8193 + 100, 0)).unwrap();
        assert_eq!(small.groups, 2);
        assert_eq!(small.group_start(Group(1)), Block(8193));
        assert_eq!(small.group_of_block(Block(0)), None);
        assert_eq!(small.superblock_block(Group(0)), Block(1));
    }

    #[test]
    fn backups_follow_the_powers() {
        let held: Vec<u32> = (0..130).filter(|g| BackupRule::Powers.has_superblock(Group(*g))).collect();
        assert_eq!(held, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert!(BackupRule::Stated([1, 77]).has_superblock(Group(77)));
        assert!(!BackupRule::Stated([1, 77]).has_superblock(Group(3)));
    }

    #[test]
    fn an_exbibyte_of_geometry_computes() {
        // 64 KiB blocks, 2^44 blocks: 2^25 groups of 2^19 blocks.
        let mut raw = superblock(1 << 44, 6);
        raw.s_inodes_per_group.set(16);
        raw.s_inodes_count.set(16 << 25);
        let geometry = Geometry::from_superblock(&raw).unwrap();
        assert_eq!(geometry.groups, 1 << 25);
        assert_eq!(geometry.group_start(Group((1 << 25) - 1)).0, (1 << 44) - (1 << 19));
        assert_eq!(geometry.byte_offset(Block(1 << 44)), 1 << 60);
    }

    #[test]
    fn byte_offsets_never_overflow() {
        // 2^48 blocks of 64 KiB would end at byte 2^64, that is 0.
        let mut raw = superblock(MAX_BLOCKS, 6);
        raw.s_inodes_per_group.set(1);
        raw.s_inodes_count.set(1 << 29);
        let error = Geometry::from_superblock(&raw).unwrap_err();
        assert!(error.to_string().contains("block count"), "{error}");
    }

    #[test]
    fn meta_groups_hold_their_descriptors() {
        let mut raw = superblock(32768 * 200, 2);
        let mut features = raw.features();
        features.incompat |= Incompat::META_BG;
        raw.set_features(features);
        let geometry = Geometry::from_superblock(&raw).unwrap();
        assert_eq!(geometry.descriptors_per_block(), 64);
        assert_eq!(geometry.descriptor_block(0), Block(1));
        assert_eq!(geometry.descriptor_block(1), Block(64 * 32768));
        assert_eq!(geometry.meta_descriptor_held_by(Group(127)), Some((1, Block(127 * 32768))));
        assert_eq!(geometry.meta_descriptor_held_by(Group(100)), None);
        assert_eq!(geometry.group_header(Group(1)).count, 2);
        // Where meta groups begin late, those before have copies of all that stand behind the superblock.
        raw.s_first_meta_bg.set(2);
        let geometry = Geometry::from_superblock(&raw).unwrap();
        assert_eq!(geometry.group_header(Group(81)).count, 3);
        assert_eq!(geometry.descriptor_block(2), Block(128 * 32768));
        assert_eq!(geometry.group_header(Group(128)).count, 1);
        raw.s_first_meta_bg.set(1);
        let geometry = Geometry::from_superblock(&raw).unwrap();
        assert_eq!(geometry.group_header(Group(81)).count, 1, "a superblock alone");
    }

    #[test]
    fn contradictions_are_named() {
        let mut raw = superblock(32768 * 4, 2);
        raw.s_inodes_count.set(7);
        let error = Geometry::from_superblock(&raw).unwrap_err();
        assert!(error.to_string().contains("7 inodes"), "{error}");
        let mut raw = superblock(32768 * 4, 2);
        raw.s_log_block_size.set(u32::MAX);
        assert!(Geometry::from_superblock(&raw).is_err());
    }
}
