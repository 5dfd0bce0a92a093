//! From the old superblock and a wanted size to the new superblock: counts, descriptors kept for growth, backups.
//!
//! The rounding is resize2fs's: a last group too small for its own tables is dropped, descriptor blocks come out of
//! those that were kept for growth, the share of reserved blocks stays. Excludes where anything lies.

use crate::Result;
use crate::error::refused;
use ondisk::features::{Compat, Incompat};
use ondisk::geometry::Geometry;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Group, low_u16, saturated};

/// Blocks that a last group must have besides its tables to be worth keeping.
const LEAST_USEFUL: u64 = 50;
/// Bytes of a descriptor on volumes with 64bit.
const WIDE_DESCRIPTOR: u16 = 64;

/// Rule for a small last group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// As resize2fs has it: with room for its own tables and some files.
    Useful,
    /// As small as the format allows.
    Any,
}

/// A volume's sizes as they will be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
}

/// The shape of a volume of `wanted` blocks, or a little less where a rest is of no use.
pub(super) fn plan(old: &RawSuperblock, wanted: u64, tail: Tail) -> Result<Shape> {
    let before = geometry(old)?;
    let mut blocks = wanted >> before.cluster_log2 << before.cluster_log2;
    loop {
        let shape = of_blocks(old, &before, blocks)?;
        let geometry = &shape.geometry;
        let rest = (blocks - u64::from(geometry.first_data_block)) % u64::from(geometry.blocks_per_group);
        let last = Group(geometry.groups - 1);
        let header = u64::from(geometry.group_header(last).count);
        let own = header + 2 + u64::from(geometry.inode_table_blocks());
        let least = match tail {
            Tail::Useful => own + LEAST_USEFUL,
            // Tables of flex groups may lie elsewhere.
            Tail::Any if geometry.flex_log2 > 0 => header + 1,
            Tail::Any => own,
        };
        if rest == 0 || rest >= least {
            return Ok(shape);
        }
        if geometry.groups == 1 {
            if rest >= own {
                return Ok(shape);
            }
            return refused(format!("{blocks} blocks can't hold the tables of one group ({own} blocks)"));
        }
        blocks -= rest;
    }
}

fn geometry(raw: &RawSuperblock) -> Result<Geometry> {
    Ok(Geometry::from_superblock(raw)?)
}

/// The shape with exactly these blocks.
fn of_blocks(old: &RawSuperblock, before: &Geometry, blocks: u64) -> Result<Shape> {
    let first = u64::from(before.first_data_block);
    if blocks <= first {
        return refused(format!("{blocks} blocks are no volume"));
    }
    let mut raw = *old;
    if blocks > u64::from(u32::MAX) {
        widen(&mut raw, before);
    }
    let groups = (blocks - first).div_ceil(u64::from(before.blocks_per_group));
    let inodes = groups.checked_mul(u64::from(before.inodes_per_group));
    let (Ok(groups), Some(Ok(inodes))) = (u32::try_from(groups), inodes.map(u32::try_from)) else {
        let (per_group, most) = (before.inodes_per_group, u32::MAX / before.inodes_per_group.max(1));
        return refused(format!(
            "{groups} groups of {per_group} inodes are more inodes than the format can count; at most {} blocks",
            u64::from(most) * u64::from(before.blocks_per_group)
        ));
    };
    raw.set_blocks_count(blocks);
    raw.s_inodes_count.set(inodes);
    raw.set_reserved_blocks_count(share(old.reserved_blocks_count(), blocks, old.blocks_count()));
    settle_descriptors(&mut raw, before, groups);
    settle_backups(&mut raw, before.groups, groups);
    // The superblock is ours: what is wrong with it is the size.
    let geometry = Geometry::from_superblock(&raw)
        .or_else(|_| refused(format!("{blocks} blocks can't hold the tables of a volume")))?;
    let header = u64::from(geometry.group_header(Group(0)).count);
    if header + 2 + u64::from(geometry.inode_table_blocks()) >= u64::from(geometry.blocks_per_group) {
        return refused(format!(
            "the descriptors of {groups} groups fill a whole group; the volume would need the feature meta_bg"
        ));
    }
    Ok(Shape { raw, geometry })
}

/// The shape of the same size with descriptors of the other width (`64bit`).
pub(super) fn of_width(old: &RawSuperblock, wide: bool) -> Result<Shape> {
    let before = geometry(old)?;
    if !wide && before.blocks > u64::from(u32::MAX) {
        return refused("64bit can't be turned off: the volume has more than 4,294,967,295 blocks");
    }
    let mut raw = *old;
    let counts = [old.blocks_count(), old.reserved_blocks_count(), old.free_blocks_count()];
    let mut features = raw.features();
    features.incompat.set(Incompat::BIT64, wide);
    raw.set_features(features);
    raw.s_desc_size.set(if wide { WIDE_DESCRIPTOR } else { 0 });
    raw.set_blocks_count(counts[0]);
    raw.set_reserved_blocks_count(counts[1]);
    raw.set_free_blocks_count(counts[2]);
    settle_descriptors(&mut raw, &before, before.groups);
    let geometry = geometry(&raw)?;
    Ok(Shape { raw, geometry })
}

/// Rounded down, as all sizes are.
fn share(part: u64, new: u64, old: u64) -> u64 {
    let share = u128::from(part) * u128::from(new) / u128::from(old.max(1));
    saturated::<u64>(share)
}

/// Makes block numbers and descriptors wide. Pointers of the resize inode have 32 bits, so that it ends; descriptors
/// behind those that there is room for now lie in their meta groups.
fn widen(raw: &mut RawSuperblock, before: &Geometry) {
    let mut features = raw.features();
    if !features.incompat.contains(Incompat::BIT64) {
        features.incompat |= Incompat::BIT64;
        raw.s_desc_size.set(WIDE_DESCRIPTOR);
    }
    if features.compat.contains(Compat::RESIZE_INODE) {
        features.compat.remove(Compat::RESIZE_INODE);
        features.incompat |= Incompat::META_BG;
        let room = before.descriptor_blocks() + u32::from(before.reserved_descriptor_blocks);
        raw.s_first_meta_bg.set(room);
        raw.s_reserved_gdt_blocks.set(0);
    }
    raw.set_features(features);
}

/// Descriptor blocks come from those kept for growth, and go back to them.
fn settle_descriptors(raw: &mut RawSuperblock, before: &Geometry, groups: u32) {
    let features = raw.features();
    let size = if features.incompat.contains(Incompat::BIT64) { raw.s_desc_size.get().max(32) } else { 32 };
    let blocks = groups.div_ceil((before.block_size.bytes() / u32::from(size)).max(1));
    if features.incompat.contains(Incompat::META_BG) {
        let first = raw.s_first_meta_bg.get().min(blocks);
        raw.s_first_meta_bg.set(first);
    } else if features.compat.contains(Compat::RESIZE_INODE) {
        let room = before.descriptor_blocks() + u32::from(before.reserved_descriptor_blocks);
        let kept = room.saturating_sub(blocks).min(before.block_size.bytes() / 4);
        raw.s_reserved_gdt_blocks.set(low_u16(kept));
    }
}

/// With `sparse_super2`: the second backup stays in the last group.
fn settle_backups(raw: &mut RawSuperblock, before: u32, after: u32) {
    if !raw.features().compat.contains(Compat::SPARSE_SUPER2) || before == after {
        return;
    }
    let last = after - 1;
    let stated = raw.s_backup_bgs.map(|group| group.get());
    let wanted = stated.iter().filter(|group| **group != 0).count();
    // A volume of one group had no place for any.
    let wanted = if before == 1 { 2 } else { wanted };
    let first = if wanted >= 1 { last.min(1) } else { 0 };
    let second = if wanted >= 2 && last > first || wanted == 1 && stated[1] != 0 { last } else { 0 };
    let first = if wanted == 1 && stated[0] == 0 { 0 } else { first };
    raw.s_backup_bgs[0].set(first);
    raw.s_backup_bgs[1].set(if second == first { 0 } else { second });
}

#[cfg(test)]
mod tests {
    use platfs::mkfs::{FsType, Options, Plan};

    use super::*;

    fn raw(bytes: u64) -> RawSuperblock {
        *Plan::new(&Options::new(FsType::Ext4), bytes).unwrap().superblock()
    }

    #[test]
    fn descriptors_come_from_those_kept_for_growth() {
        let old = raw(1 << 30);
        let before = Geometry::from_superblock(&old).unwrap();
        let shape = plan(&old, 1 << 28, Tail::Useful).unwrap();
        let after = shape.geometry;
        assert_eq!(after.groups, 8192);
        assert_eq!(
            after.descriptor_blocks() + u32::from(after.reserved_descriptor_blocks),
            before.descriptor_blocks() + u32::from(before.reserved_descriptor_blocks)
        );
        assert_eq!(after.group_header(Group(0)), before.group_header(Group(0)));
        // The share, which is rounded in the old volume, stays.
        assert_eq!(shape.raw.reserved_blocks_count(), ((1 << 18) / 20) << 10);
        let back = plan(&shape.raw, 1 << 18, Tail::Useful).unwrap();
        assert_eq!(back.geometry, before);
    }

    #[test]
    fn a_last_group_too_small_is_dropped() {
        let old = raw(1 << 30);
        let shape = plan(&old, (1 << 18) + 32768 + 100, Tail::Useful).unwrap();
        assert_eq!(shape.geometry.blocks, (1 << 18) + 32768);
        assert!(plan(&old, 100, Tail::Useful).is_err());
        assert!(plan(&old, 0, Tail::Any).is_err());
    }

    #[test]
    fn sizes_over_32_bits_make_wide_numbers() {
        let old = raw(1 << 30);
        let shape = plan(&old, 1 << 33, Tail::Useful).unwrap();
        let features = shape.raw.features();
        assert!(features.incompat.contains(Incompat::BIT64 | Incompat::META_BG));
        assert!(!features.compat.contains(Compat::RESIZE_INODE));
        assert!(plan(&old, 1 << 47, Tail::Useful).unwrap_err().to_string().contains("inodes"));
    }
}
