//! From options to sizes: block, cluster and inode sizes, groups, inodes per group, reserved
//! descriptors. Every bad combination is refused here, before anything is written.
//!
//! The rounding follows mke2fs step by step, so that the results are the same: a last group too
//! small for its own tables is dropped, tables are filled up to whole blocks, and so on.

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::geometry::{BackupRule, Geometry, MAX_BLOCKS};
use ondisk::superblock::RawSuperblock;
use ondisk::units::{BlockSize, Group, low_u16, low_u32};

use super::options::Options;
use super::{profile, rules};
use crate::{Error, Result};

/// Bytes of group descriptors with `64bit`.
pub(super) const WIDE_DESCRIPTOR: u16 = 64;
/// The inodes that every volume has: ten reserved ones and lost+found, and one to spare.
const LEAST_INODES: u64 = 12;
/// Bytes below which no volume has room for its own records.
const LEAST_BYTES: u64 = 16 << 10;
/// Blocks that a last group must have besides its tables to be worth keeping.
const LEAST_USEFUL: u64 = 50;

pub(super) fn invalid<T>(problem: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(problem.into()))
}

pub(super) fn wrong<T>(option: &'static str, problem: impl Into<String>) -> Result<T> {
    Err(Error::option(option, problem))
}

/// The sizes of a new volume, agreed with each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) features: Features,
    pub(super) block_size: BlockSize,
    /// Base-2 logarithm of the blocks in a cluster.
    pub(super) cluster_log2: u32,
    pub(super) blocks: u64,
    pub(super) reserved_blocks: u64,
    pub(super) first_data_block: u32,
    pub(super) blocks_per_group: u32,
    pub(super) groups: u32,
    pub(super) inode_size: u16,
    pub(super) inodes_per_group: u32,
    pub(super) inode_table_blocks: u32,
    pub(super) reserved_descriptor_blocks: u32,
    pub(super) backup_groups: [u32; 2],
    pub(super) flex_log2: u32,
    /// Bytes of a descriptor with `64bit`.
    wide_descriptor: u16,
    /// The resize inode was left out because no checker would take it.
    pub(super) lost_growth: bool,
    /// The inodes asked for, by number or by ratio.
    wanted_inodes: u64,
}

impl Shape {
    /// Works the sizes out for a volume on `bytes` bytes.
    pub(super) fn new(options: &Options, bytes: u64) -> Result<Shape> {
        let features = profile::features(options)?;
        let defaults = profile::Profile::from_options(options, bytes);
        let block_size = rules::block_size(options, &defaults)?;
        let mut shape = Shape {
            features,
            block_size,
            cluster_log2: rules::cluster_log2(options, features, block_size)?,
            blocks: bytes >> block_size.log2(),
            reserved_blocks: 0,
            first_data_block: 0,
            blocks_per_group: 0,
            groups: 0,
            inode_size: rules::inode_size(options, &defaults, block_size)?,
            inodes_per_group: 0,
            inode_table_blocks: 0,
            reserved_descriptor_blocks: 0,
            backup_groups: [0; 2],
            flex_log2: rules::flex_log2(options, features)?,
            wide_descriptor: rules::wide_descriptor(options, features)?,
            lost_growth: false,
            wanted_inodes: 0,
        };
        rules::check_features(options, &mut shape)?;
        if shape.cluster_log2 > 0 && block_size.bytes() == 1024 {
            // e2fsck looks for the reserved descriptors one block before where they are.
            shape.lost_growth = shape.features.compat.contains(Compat::RESIZE_INODE);
            shape.features.compat.remove(Compat::RESIZE_INODE);
        }
        shape.check_block_count()?;
        shape.wanted_inodes = shape.inodes_asked_for(options, &defaults)?;
        // The last cluster must be whole.
        shape.blocks = shape.blocks >> shape.cluster_log2 << shape.cluster_log2;
        shape.first_data_block = u32::from(block_size.bytes() == 1024 && shape.cluster_log2 == 0);
        shape.blocks_per_group = rules::blocks_per_group(options, block_size, shape.cluster_log2)?;
        shape.reserved_blocks = rules::reserved_blocks(options, shape.blocks)?;
        shape.resolve_defaults(options)?;
        Ok(shape)
    }

    fn check_block_count(&mut self) -> Result<()> {
        let (blocks, size) = (self.blocks, self.block_size.bytes());
        if blocks > u64::from(u32::MAX) {
            if !self.features.incompat.contains(Incompat::BIT64) {
                return invalid(format!(
                    "{blocks} blocks of {size} bytes are too many for 32-bit block numbers; use -O 64bit or larger blocks"
                ));
            }
            // The resize inode reaches 2^32 blocks at most.
            self.features.compat.remove(Compat::RESIZE_INODE);
        }
        if blocks > MAX_BLOCKS {
            return invalid(format!("{blocks} blocks of {size} bytes are over the format's limit of 2^48"));
        }
        Ok(())
    }

    fn inodes_asked_for(&self, options: &Options, defaults: &profile::Profile) -> Result<u64> {
        let bytes = self.blocks << self.block_size.log2();
        let most = u64::from(u32::MAX);
        let wanted = match options.inodes {
            Some(inodes) if inodes > most => {
                return wrong("-N", format!("{inodes} inodes are too many; the format counts below 2^32"));
            }
            Some(inodes) => inodes,
            None => {
                let cluster = u64::from(self.block_size.bytes()) << self.cluster_log2;
                let ratio = match options.inode_ratio {
                    Some(ratio) => rules::inode_ratio(ratio)?,
                    None => defaults.inode_ratio.max(cluster),
                };
                let inodes = bytes / ratio;
                if inodes > most && !self.features.incompat.contains(Incompat::BIT64) {
                    return invalid(format!("{inodes} inodes are too many; raise the inode ratio (-i)"));
                }
                inodes.min(most)
            }
        };
        if bytes < LEAST_BYTES {
            return invalid("fewer than 16 KiB are too few for a volume; sizes may have a unit: 64M");
        }
        if wanted * u64::from(self.inode_size) >= bytes {
            return invalid(format!(
                "{wanted} inodes of {} bytes do not fit a volume of {} blocks; raise the inode ratio (-i) or ask for fewer inodes (-N)",
                self.inode_size, self.blocks
            ));
        }
        Ok(wanted)
    }

    /// Inodes to provide: those asked for, or one per 4 KiB where nothing says how many.
    fn least_inodes(&self) -> u64 {
        let wanted = if self.wanted_inodes == 0 {
            let blocks_per_inode = (4096 / u64::from(self.block_size.bytes())).max(1);
            (self.blocks / blocks_per_inode).min(u64::from(u32::MAX))
        } else {
            self.wanted_inodes
        };
        // Inodes of a group are whole blocks of the table, rounded down to a multiple of eight.
        wanted.max(LEAST_INODES.next_multiple_of(8))
    }

    /// Rounds until everything agrees.
    fn resolve_defaults(&mut self, options: &Options) -> Result<()> {
        let blocks_asked_for = self.blocks;
        // Every turn takes blocks from the groups, or at most once the last group from the volume.
        loop {
            self.count_groups()?;
            let bitmap_bits = self.block_size.bytes() * 8;
            let per_group = self.least_inodes().div_ceil(u64::from(self.groups));
            if per_group > u64::from(bitmap_bits) {
                if self.cluster_log2 > 0 || self.blocks_per_group < 256 {
                    return self.too_many_inodes();
                }
                self.blocks_per_group -= 8;
                self.blocks = blocks_asked_for;
                continue;
            }
            self.fill_inode_tables(low_u32(per_group));
            self.reserve_descriptors(options)?;
            if !self.drop_small_last_group(options)? {
                break;
            }
        }
        self.check_inode_count()?;
        self.backup_groups = self.resolve_backup_groups(options);
        Ok(())
    }

    fn count_groups(&mut self) -> Result<()> {
        let rest = self.blocks.saturating_sub(u64::from(self.first_data_block));
        let groups = rest.div_ceil(u64::from(self.blocks_per_group));
        if groups == 0 {
            return invalid(format!("{} blocks are too few for a volume", self.blocks));
        }
        self.groups = u32::try_from(groups)
            .map_err(|_| Error::Invalid(format!("{groups} block groups are too many; use larger blocks")))?;
        Ok(())
    }

    /// Settles the inodes per group: whole blocks of the table, a multiple of eight, at most 2^32 in
    /// all.
    fn fill_inode_tables(&mut self, wanted: u32) {
        let (block, size) = (self.block_size.bytes(), u32::from(self.inode_size));
        let most = (1 << 16) - block / size;
        let mut wanted = wanted.min(most);
        loop {
            let table = (wanted * size).div_ceil(block);
            self.inodes_per_group = (table * block / size).max(8) & !7;
            self.inode_table_blocks = (self.inodes_per_group * size).div_ceil(block);
            let total = u64::from(self.inodes_per_group) * u64::from(self.groups);
            if total <= u64::from(u32::MAX) || wanted <= 8 {
                break;
            }
            wanted -= 1;
        }
    }

    fn descriptor_size(&self) -> u16 {
        if self.features.incompat.contains(Incompat::BIT64) { self.wide_descriptor } else { 32 }
    }

    fn descriptors_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.descriptor_size())
    }

    fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    fn reserve_descriptors(&mut self, options: &Options) -> Result<()> {
        self.reserved_descriptor_blocks = 0;
        if self.features.compat.contains(Compat::RESIZE_INODE) {
            self.reserved_descriptor_blocks = self.growth_blocks(options)?;
        }
        let header = self.reserved_descriptor_blocks + self.descriptor_blocks();
        if header > self.blocks_per_group / 4 * 3 {
            // Descriptors would fill the groups that hold a backup.
            self.features.incompat |= Incompat::META_BG;
            self.features.compat.remove(Compat::RESIZE_INODE);
            self.reserved_descriptor_blocks = 0;
        }
        let meta = self.features.incompat.contains(Incompat::META_BG);
        let descriptors = if meta { 1 } else { self.descriptor_blocks() };
        let overhead = 3 + self.inode_table_blocks + self.reserved_descriptor_blocks + descriptors;
        if overhead > self.blocks_per_group { self.too_many_inodes() } else { Ok(()) }
    }

    /// Descriptor blocks to keep free for growth: up to the limit asked for, or to 1,024 times the
    /// size, as far as the resize inode reaches.
    fn growth_blocks(&self, options: &Options) -> Result<u32> {
        let per_group = u64::from(self.blocks_per_group);
        let (limit, first) = match options.resize_limit.map(|limit| limit.in_blocks(self.block_size)) {
            Some(limit) if limit <= self.blocks => {
                let blocks = self.blocks;
                return wrong(
                    "-E resize",
                    format!("resize limit of {limit} blocks is not over the size, {blocks}"),
                );
            }
            Some(limit) => (limit, 0),
            None => (self.blocks.saturating_mul(1024).min(u64::from(u32::MAX)), self.first_data_block),
        };
        let groups = (limit - u64::from(first)).div_ceil(per_group);
        let blocks = groups.div_ceil(u64::from(self.descriptors_per_block()));
        let growth = blocks.saturating_sub(u64::from(self.descriptor_blocks()));
        Ok(low_u32(growth.min(u64::from(self.block_size.bytes() / 4))))
    }

    /// Drops a last group that is too small to be useful; whether it did.
    fn drop_small_last_group(&mut self, options: &Options) -> Result<bool> {
        let last = Group(self.groups - 1);
        let mut overhead = 2 + u64::from(self.inode_table_blocks);
        let backup = if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            options.backup_superblocks >= if self.groups == 2 { 1 } else { 2 }
        } else {
            self.backup_rule().has_superblock(last)
        };
        if backup {
            overhead += u64::from(1 + self.descriptor_blocks() + self.reserved_descriptor_blocks);
        }
        let rest = (self.blocks - u64::from(self.first_data_block)) % u64::from(self.blocks_per_group);
        if rest == 0 || rest >= overhead + LEAST_USEFUL {
            return Ok(false);
        }
        if self.groups == 1 {
            return invalid(format!(
                "{} blocks of {} bytes are too few: superblock, bitmaps and inode table take {overhead}, and \
                 {LEAST_USEFUL} have to be left",
                self.blocks,
                self.block_size.bytes()
            ));
        }
        self.blocks -= rest;
        self.reserved_blocks = rules::reserved_blocks(options, self.blocks)?;
        Ok(true)
    }

    fn backup_rule(&self) -> BackupRule {
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            BackupRule::Stated(self.backup_groups)
        } else if self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            BackupRule::Powers
        } else {
            BackupRule::Every
        }
    }

    fn resolve_backup_groups(&self, options: &Options) -> [u32; 2] {
        if !self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return [0; 2];
        }
        let last = self.groups - 1;
        let first = if options.backup_superblocks >= 1 { last.min(1) } else { 0 };
        let second = if options.backup_superblocks >= 2 && last != first { last } else { 0 };
        [first.min(second), first.max(second)]
    }

    fn check_inode_count(&self) -> Result<()> {
        let inodes = u64::from(self.groups) * u64::from(self.inodes_per_group);
        if inodes > u64::from(u32::MAX) {
            return invalid(format!(
                "{inodes} inodes in {} groups are more than 2^32 - 1; raise the inode ratio (-i)",
                self.groups
            ));
        }
        Ok(())
    }

    fn too_many_inodes<T>(&self) -> Result<T> {
        invalid(format!(
            "{} inodes are too many for {} blocks in groups of {}; raise the inode ratio (-i) or ask for fewer (-N)",
            self.wanted_inodes, self.blocks, self.blocks_per_group
        ))
    }

    /// Stores the sizes and features.
    pub(super) fn store(&self, raw: &mut RawSuperblock) {
        let log = self.block_size.log2() - 10;
        raw.set_features(self.features);
        raw.s_log_block_size.set(log);
        raw.s_log_cluster_size.set(log + self.cluster_log2);
        raw.set_blocks_count(self.blocks);
        raw.set_reserved_blocks_count(self.reserved_blocks);
        raw.s_first_data_block.set(self.first_data_block);
        raw.s_blocks_per_group.set(self.blocks_per_group);
        raw.s_clusters_per_group.set(self.blocks_per_group >> self.cluster_log2);
        raw.s_inodes_per_group.set(self.inodes_per_group);
        raw.s_inodes_count.set(self.inodes_per_group.saturating_mul(self.groups));
        raw.s_inode_size.set(self.inode_size);
        raw.s_reserved_gdt_blocks.set(low_u16(self.reserved_descriptor_blocks));
        raw.s_backup_bgs[0].set(self.backup_groups[0]);
        raw.s_backup_bgs[1].set(self.backup_groups[1]);
        if self.features.incompat.contains(Incompat::BIT64) {
            raw.s_desc_size.set(self.wide_descriptor);
        }
        raw.s_log_groups_per_flex = self.flex_log2.to_le_bytes()[0];
    }

    /// The geometry, checked the way a reader checks it.
    pub(super) fn geometry(&self, raw: &RawSuperblock) -> Result<Geometry> {
        Ok(Geometry::from_superblock(raw)?)
    }
}
