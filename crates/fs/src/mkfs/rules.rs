//! The rules that single options must keep, and the features that need or exclude each other.

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::mmp::MMP_MAX_INTERVAL;
use ondisk::units::BlockSize;

use super::options::Options;
use super::profile::Profile;
use super::shape::{Shape, WIDE_DESCRIPTOR, wrong};
use crate::{Error, Result};

/// Largest cluster: the format's field goes up to 2^29.
const MOST_CLUSTER: u64 = 512 << 20;
/// Bounds of the bytes per inode.
const INODE_RATIOS: std::ops::RangeInclusive<u64> = 1024..=64 << 20;
/// Most clusters in a group: descriptors of 32 bytes count them in 16 bits.
const MOST_CLUSTERS_PER_GROUP: u32 = (1 << 16) - 8;

pub(super) fn block_size(options: &Options, defaults: &Profile) -> Result<BlockSize> {
    let size = |bytes: u32| {
        BlockSize::from_bytes(u64::from(bytes)).ok_or_else(|| {
            Error::option("-b", format!("block size {bytes} is not a power of two from 1024 to 65536"))
        })
    };
    match (options.block_size, options.least_block_size) {
        (Some(bytes), _) => size(bytes),
        (None, Some(least)) => Ok(size(defaults.block_size)?.max(size(least)?)),
        (None, None) => size(defaults.block_size),
    }
}

pub(super) fn cluster_log2(options: &Options, features: Features, block_size: BlockSize) -> Result<u32> {
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let block = u64::from(block_size.bytes());
    match options.cluster_size {
        Some(_) if !bigalloc => wrong("-C", "a cluster size needs the bigalloc feature (-O bigalloc)"),
        Some(bytes) if !bytes.is_power_of_two() || bytes <= 1024 || bytes > MOST_CLUSTER => {
            wrong("-C", format!("cluster size {bytes} is not a power of two from 2048 to {MOST_CLUSTER}"))
        }
        Some(bytes) if bytes < block => {
            wrong("-C", format!("cluster size {bytes} is smaller than the block size {block}"))
        }
        Some(bytes) => Ok(bytes.trailing_zeros() - block_size.log2()),
        // mke2fs's default: sixteen blocks.
        None if bigalloc => Ok(4),
        None => Ok(0),
    }
}

pub(super) fn inode_size(options: &Options, defaults: &Profile, block_size: BlockSize) -> Result<u16> {
    if options.old_revision {
        return match options.inode_size {
            None | Some(128) => Ok(128),
            Some(size) => wrong("-I", format!("inode size {size} is impossible in revision 0 (128 bytes)")),
        };
    }
    let size = options.inode_size.unwrap_or(defaults.inode_size);
    let most = block_size.bytes();
    match u16::try_from(size) {
        Ok(legal) if size.is_power_of_two() && size >= 128 && size <= most => Ok(legal),
        _ => wrong("-I", format!("inode size {size} is not a power of two from 128 to {}", most.min(32_768))),
    }
}

pub(super) fn inode_ratio(ratio: u64) -> Result<u64> {
    if INODE_RATIOS.contains(&ratio) {
        return Ok(ratio);
    }
    let (least, most) = (INODE_RATIOS.start(), INODE_RATIOS.end());
    wrong("-i", format!("inode ratio {ratio} is not from {least} to {most}"))
}

pub(super) fn flex_log2(options: &Options, features: Features) -> Result<u32> {
    let flex = features.incompat.contains(Incompat::FLEX_BG);
    match options.flex_groups {
        Some(_) if !flex => wrong("-G", "a flex group size needs the flex_bg feature (-O flex_bg)"),
        Some(groups) if !groups.is_power_of_two() => {
            wrong("-G", format!("flex group size {groups} is not a power of two"))
        }
        Some(groups) => Ok(groups.trailing_zeros()),
        None if flex => Ok(4),
        None => Ok(0),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a count, rounded down as mke2fs does; the share is from 0 to 50 percent"
)]
pub(super) fn reserved_blocks(options: &Options, blocks: u64) -> Result<u64> {
    let percent = options.reserved_percent;
    if (0.0..=50.0).contains(&percent) {
        Ok((percent * blocks as f64 / 100.0) as u64)
    } else {
        wrong("-m", format!("reserved blocks percentage {percent} is not from 0 to 50"))
    }
}

/// Blocks per group; the option counts clusters with `bigalloc`.
pub(super) fn blocks_per_group(options: &Options, block_size: BlockSize, cluster_log2: u32) -> Result<u32> {
    let most = (block_size.bytes() * 8).min(MOST_CLUSTERS_PER_GROUP);
    let clusters = options.blocks_per_group.unwrap_or(most);
    if !clusters.is_multiple_of(8) || clusters < 256 || clusters > most {
        return wrong(
            "-g",
            format!("{clusters} blocks per group are not a multiple of 8 from 256 to {most}"),
        );
    }
    clusters.checked_shl(cluster_log2).filter(|blocks| blocks >> cluster_log2 == clusters).ok_or_else(|| {
        Error::option("-g", format!("groups of {clusters} clusters of this size are too large"))
    })
}

/// Bytes of a descriptor with `64bit`.
pub(super) fn wide_descriptor(options: &Options, features: Features) -> Result<u16> {
    match options.descriptor_size {
        None => Ok(WIDE_DESCRIPTOR),
        Some(_) if !features.incompat.contains(Incompat::BIT64) => wrong("-E desc_size", "needs -O 64bit"),
        Some(size) if size.is_power_of_two() && (WIDE_DESCRIPTOR..=1024).contains(&size) => Ok(size),
        Some(size) => wrong("-E desc_size", format!("{size} is no power of two from 64 to 1024")),
    }
}

/// Checks which features go together, and drops those another one replaces.
pub(super) fn check_features(options: &Options, shape: &mut Shape) -> Result<()> {
    let features = &mut shape.features;
    if features.metadata_csum() {
        features.ro_compat.remove(RoCompat::GDT_CSUM);
    }
    if options.quota_kinds.as_ref().is_some_and(|kinds| kinds.contains(&ondisk::quota::QuotaKind::Project)) {
        features.ro_compat |= RoCompat::PROJECT;
    }
    if options.resize_limit.is_some() && !options.old_revision {
        features.compat |= Compat::RESIZE_INODE;
    }
    let broken = [&combined(options, shape)[..], &limited(options, shape)[..]].concat();
    match broken.into_iter().find(|(_, broken, _)| *broken) {
        Some((option, _, complaint)) => wrong(option, complaint),
        None => Ok(()),
    }
}

/// An option, whether it breaks a rule, and which.
type Rule = (&'static str, bool, &'static str);

/// Features that need or exclude each other.
fn combined(options: &Options, shape: &Shape) -> [Rule; 7] {
    let features = shape.features;
    let compat = |bit| features.compat.contains(bit);
    let incompat = |bit| features.incompat.contains(bit);
    let ro_compat = |bit| features.ro_compat.contains(bit);
    let sparse = ro_compat(RoCompat::SPARSE_SUPER) || compat(Compat::SPARSE_SUPER2);
    let journal = compat(Compat::HAS_JOURNAL);
    [
        (
            "-O",
            ro_compat(RoCompat::BIGALLOC) && !incompat(Incompat::EXTENTS),
            "bigalloc needs the extent feature",
        ),
        (
            "-O",
            incompat(Incompat::META_BG) && compat(Compat::RESIZE_INODE),
            "resize_inode and meta_bg exclude each other; use -O ^resize_inode",
        ),
        (
            "-O",
            compat(Compat::RESIZE_INODE) && !sparse,
            "resize_inode needs sparse_super: blocks for growth exist only on sparse volumes",
        ),
        (
            "-O",
            incompat(Incompat::CSUM_SEED) && !features.metadata_csum(),
            "metadata_csum_seed needs the metadata_csum feature",
        ),
        ("-O", compat(Compat::ORPHAN_FILE) && !journal, "orphan_file needs the has_journal feature"),
        (
            "-O",
            incompat(Incompat::BIT64) && !incompat(Incompat::EXTENTS),
            "64bit needs the extent feature; use -O ^64bit, or keep extent",
        ),
        (
            "-E resize",
            options.resize_limit.is_some() && options.old_revision,
            "revision 0 can't grow while mounted",
        ),
    ]
}

/// Sizes and lengths that have limits.
fn limited(options: &Options, shape: &Shape) -> [Rule; 6] {
    let small = shape.inode_size == 128;
    [
        (
            "-O",
            shape.features.incompat.contains(Incompat::INLINE_DATA) && small,
            "inodes of 128 bytes are too small for inline_data; use -I 256",
        ),
        (
            "-O",
            shape.features.ro_compat.contains(RoCompat::PROJECT) && small,
            "inodes of 128 bytes are too small for project; use -I 256",
        ),
        (
            "-E mmp_update_interval",
            options.mmp_interval > MMP_MAX_INTERVAL,
            "the mmp update interval is over 300 seconds",
        ),
        ("-L", options.label.len() > 16, "the label is longer than 16 bytes"),
        ("-M", options.last_mounted.len() > 64, "the last mounted directory is longer than 64 bytes"),
        (
            "-E num_backup_sb",
            options.backup_superblocks > 2,
            "sparse_super2 has at most 2 superblock backups",
        ),
    ]
}
