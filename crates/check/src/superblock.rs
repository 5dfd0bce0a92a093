//! Choice of the superblock to believe: the primary, mended where a backup knows better, or a backup.
//!
//! A backup is looked for only when the primary can't be used, or its checksum is wrong. Where the primary
//! is this volume's at all, only fields that never change are taken from the backup: counts, times
//! and labels of the primary are newer.

use std::sync::Arc;

use ondisk::features::{Compat, Features, Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use ondisk::units::{Group, low_u32};

use super::Options;
use super::issue::Location;
use super::kinds::opening as kind;
use super::plausible::is_plausible;
use super::reporter::{Finding, Report};
use super::seed;
use super::staged::Staged;
use platfs_device::{Device, Error, Result};

/// The superblock that the check goes by.
pub(super) struct ChosenSuperblock {
    pub(super) raw: RawSuperblock,
    /// True if nothing of the primary was used: its marks of an unfinished journal are lost too.
    pub(super) from_backup: bool,
    /// True if the primary is to stay as it is: the check goes by something better all the same.
    pub(super) left: bool,
}

/// Compatible features that e2fsck 1.47 knows.
const KNOWN_COMPAT: Compat = Compat::DIR_PREALLOC
    .union(Compat::IMAGIC_INODES)
    .union(Compat::HAS_JOURNAL)
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);

/// Read-only compatible features that it knows beside those with which volumes can be written.
const KNOWN_READ_ONLY: RoCompat = RoCompat::READONLY.union(RoCompat::SHARED_BLOCKS);

/// `s_encoding`: UTF-8 by Unicode 12.1, the only one there is.
const ENCODING_UTF8: u16 = 1;

/// Refuses what this code does not know: repairing it could destroy what it means.
fn refuse_unknown(features: Features) -> Result<()> {
    platfs_device::refuse_unreadable(features)?;
    let unknown = Features {
        compat: features.compat - KNOWN_COMPAT,
        incompat: Incompat::empty(),
        ro_compat: features.unwritable().ro_compat - KNOWN_READ_ONLY,
    };
    if unknown == Features::default() {
        return Ok(());
    }
    let names = unknown.names().join(", ");
    Err(Error::Unsupported(format!("the volume uses features that can't be checked: {names}")))
}

/// The first inode and the size of inodes of revision 0, where they are stated.
const FIRST_OF_0: u32 = 11;
const SIZE_OF_0: u16 = 128;

/// Returns the geometry if a check can go by a superblock, its checksum aside.
fn usable(raw: &RawSuperblock) -> Result<Geometry> {
    let features = raw.features();
    refuse_unknown(features)?;
    let bad = |problem: String| Err(Error::corrupt(ondisk::corrupt::Place::Superblock, problem));
    let (first, size) = (raw.s_first_ino.get(), raw.s_inode_size.get());
    if raw.s_rev_level.get() == 0
        && features != Features::default()
        && !(matches!(first, 0 | FIRST_OF_0) && matches!(size, 0 | SIZE_OF_0))
    {
        return bad(format!("revision 0, but features, inodes of {size} bytes and a first inode of {first}"));
    }
    if features.incompat.contains(Incompat::CASEFOLD) && raw.s_encoding.get() != ENCODING_UTF8 {
        return bad(format!("names are encoded by {}, which is unknown", raw.s_encoding.get()));
    }
    if features.metadata_csum() && raw.s_checksum_type != 1 {
        return bad(format!("checksum type {} is unknown", raw.s_checksum_type));
    }
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        let (cluster, block) = (raw.s_log_cluster_size.get(), raw.s_log_block_size.get());
        if cluster != block {
            return bad(format!("clusters of 2^(10+{cluster}) bytes without bigalloc"));
        }
        let (clusters, blocks) = (raw.s_clusters_per_group.get(), raw.s_blocks_per_group.get());
        if clusters != blocks {
            return bad(format!("{clusters} clusters per group, but {blocks} blocks"));
        }
    }
    if raw.s_log_groups_per_flex > 31 {
        return bad(format!("flexible groups of 2^{} groups", raw.s_log_groups_per_flex));
    }
    let geometry = Geometry::from_superblock(raw)?;
    let (inodes, per_block) = (geometry.inodes_per_group, geometry.inodes_per_block());
    // A table needs room in its group beside two bitmaps and what else there is.
    let most = u64::from(per_block) * u64::from(geometry.blocks_per_group.saturating_sub(4));
    if inodes < per_block || !inodes.is_multiple_of(8) || u64::from(inodes) > most {
        return bad(format!("{inodes} inodes per group are out of range, or no multiple of 8"));
    }
    if begins_meta_groups_late(&geometry) {
        let (first, blocks) = (raw.s_first_meta_bg.get(), geometry.descriptor_blocks());
        return bad(format!("first meta group is {first}, of {blocks}"));
    }
    Ok(geometry)
}

/// Returns true if meta groups are said to begin behind the last one.
fn begins_meta_groups_late(geometry: &Geometry) -> bool {
    geometry.first_meta_bg.is_some_and(|first| first > geometry.descriptor_blocks())
}

/// The superblock itself, if a check can go by it.
pub(super) fn usable_as(raw: RawSuperblock) -> Result<RawSuperblock> {
    usable(&raw).map(|_| raw)
}

fn is_sealed(raw: &RawSuperblock) -> bool {
    Sealer::from_superblock(raw).superblock_is_right(raw)
}

/// A superblock at a byte offset, if there is one at all.
fn at(device: &dyn Device, offset: u64) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(offset, &mut bytes).map_err(|source| Error::io("reading the superblock", source))?;
    Ok(RawSuperblock::parse(&bytes)?)
}

/// Finds the superblock to go by.
///
/// # Errors
/// There is none, or it has features that are not known.
pub(super) fn choose(
    device: &Arc<Staged>,
    options: &Options,
    report: &mut Report<'_>,
) -> Result<ChosenSuperblock> {
    if let Some((block, size)) = options.superblock {
        let chosen = asked_for(&**device, block, size)?;
        let repairs = renews(&**device, &chosen.raw, block, report);
        return Ok(ChosenSuperblock { left: !repairs, ..chosen });
    }
    let primary = platfs_device::read_superblock(&**device);
    let (why, primary) = match primary {
        Ok(raw) => match usable(&raw) {
            Ok(geometry) if is_sealed(&raw) => return Ok(led_on(&**device, raw, &geometry, report)),
            Ok(_) => return checksum(&**device, raw, report),
            Err(error) => (error, Some(raw)),
        },
        Err(error) => (error, None),
    };
    let Some((offset, backup)) = search(&**device, primary.as_ref()) else {
        return derived(primary, why, report);
    };
    let group = u32::from(backup.s_block_group_nr.get());
    let here = Location::default();
    let ours = primary.filter(|raw| raw.s_uuid == backup.s_uuid);
    let (raw, repair) = match ours {
        Some(mut raw) => {
            merge(&mut raw, &backup);
            (raw, format!("what never changes is taken from the backup in group {group} (byte {offset})"))
        }
        None => (backup, format!("it is taken from the backup in group {group} (byte {offset})")),
    };
    let repairs = report.found(&kind::SUPERBLOCK_DAMAGED, Finding::new(here, why.to_string(), repair));
    Ok(ChosenSuperblock { raw, from_backup: ours.is_none(), left: !repairs })
}

/// A primary that is right in itself: what differs in a backup counts where only that leads somewhere.
fn led_on(
    device: &dyn Device,
    raw: RawSuperblock,
    geometry: &Geometry,
    report: &mut Report<'_>,
) -> ChosenSuperblock {
    let chosen = |raw, left| ChosenSuperblock { raw, from_backup: false, left };
    if is_plausible(device, &raw, geometry) {
        return reseeded(device, &raw, report).unwrap_or(chosen(raw, false));
    }
    let Some((offset, backup)) = search(device, Some(&raw)) else { return chosen(raw, false) };
    let mut merged = raw;
    let differing = merge(&mut merged, &backup);
    let leads = usable(&merged).is_ok_and(|geometry| is_plausible(device, &merged, &geometry));
    if differing.is_empty() || !leads {
        return chosen(raw, false);
    }
    let finding = Finding::new(
        Location::default(),
        format!(
            "by it there is no root directory, or structures overlap; the backup differs in {}",
            differing.join(", ")
        ),
        format!("these fields are taken from the backup at byte {offset}"),
    );
    let repairs = report.found(&kind::SUPERBLOCK_DAMAGED, finding);
    chosen(merged, !repairs)
}

/// A superblock by which no checksum is right though those of the root and others agree: its seed is what is wrong.
fn reseeded(device: &dyn Device, raw: &RawSuperblock, report: &mut Report<'_>) -> Option<ChosenSuperblock> {
    let right = seed::agreed(device, raw)?;
    let finding = Finding::new(Location::default(), right.found, right.repair);
    let repairs = report.found(&kind::SUPERBLOCK_DAMAGED, finding);
    Some(ChosenSuperblock { raw: right.raw, from_backup: false, left: !repairs })
}

/// The superblock that the caller named.
fn asked_for(device: &dyn Device, block: u64, size: Option<u32>) -> Result<ChosenSuperblock> {
    let sizes = match size {
        Some(size) => size..=size,
        None => 1024..=65536,
    };
    let mut last = Error::Invalid(format!("no superblock at block {block}"));
    let mut size = *sizes.start();
    while sizes.contains(&size) {
        let found = block.checked_mul(u64::from(size)).map(|offset| if offset == 0 { 1024 } else { offset });
        if let Some(raw) = found.map(|offset| at(device, offset)) {
            match raw.and_then(|raw| usable(&raw).map(|geometry| (raw, geometry))) {
                Ok((raw, geometry)) if geometry.block_size.bytes() == size => {
                    return Ok(ChosenSuperblock {
                        from_backup: raw.s_block_group_nr.get() != 0,
                        left: false,
                        raw,
                    });
                }
                Ok(_) => {}
                Err(error) => last = error,
            }
        }
        size = size.saturating_mul(2);
    }
    Err(last)
}

/// Reports a primary that can't be used, or is another than the superblock that the caller named says; says whether it
/// is to be written.
fn renews(device: &dyn Device, named: &RawSuperblock, block: u64, report: &mut Report<'_>) -> bool {
    let primary = platfs_device::read_superblock(device);
    let found = match primary.and_then(|raw| usable(&raw).map(|_| raw)) {
        Ok(raw) if is_sealed(&raw) => {
            let differing = merge(&mut { raw }, named);
            if differing.is_empty() {
                return true;
            }
            format!("it differs from the one at block {block}: {}", differing.join(", "))
        }
        Ok(_) => "its checksum is wrong".to_owned(),
        Err(error) => error.to_string(),
    };
    let repair = format!("it is taken from the one at block {block}");
    report.found(&kind::SUPERBLOCK_DAMAGED, Finding::new(Location::default(), found, repair))
}

/// Only the checksum is wrong. A backup shows whether a field that never changes is to blame.
fn checksum(device: &dyn Device, raw: RawSuperblock, report: &mut Report<'_>) -> Result<ChosenSuperblock> {
    let mut right = raw;
    let mut differing = Vec::new();
    if let Some((_, backup)) = search(device, Some(&raw)) {
        differing = merge(&mut right, &backup);
    }
    let chosen = |raw, left| Ok(ChosenSuperblock { raw, from_backup: false, left });
    if !differing.is_empty() {
        let group =
            u32::from(search(device, Some(&raw)).map_or(0, |(_, backup)| backup.s_block_group_nr.get()));
        let finding = Finding::new(
            Location::default(),
            format!("its checksum is wrong, and it differs from the backup: {}", differing.join(", ")),
            format!("these fields are taken from the backup in group {group}"),
        );
        let repairs = report.found(&kind::SUPERBLOCK_DAMAGED, finding);
        return chosen(right, !repairs);
    }
    if let Some(chosen) = reseeded(device, &raw, report) {
        return Ok(chosen);
    }
    Sealer::from_superblock(&right).seal_superblock(&mut right);
    let finding = Finding::new(
        Location::default(),
        format!("{:#010x}", raw.s_checksum.get()),
        "the checksum is recomputed",
    )
    .expected(format!("{:#010x}", right.s_checksum.get()));
    let repairs = report.found(&kind::SUPERBLOCK_CHECKSUM, finding);
    chosen(if repairs { right } else { raw }, false)
}

/// Without a backup: fields that follow from others.
fn derived(primary: Option<RawSuperblock>, why: Error, report: &mut Report<'_>) -> Result<ChosenSuperblock> {
    let Some(mut raw) = primary else { return Err(why) };
    if !raw.features().ro_compat.contains(RoCompat::BIGALLOC) {
        raw.s_log_cluster_size = raw.s_log_block_size;
        raw.s_clusters_per_group = raw.s_blocks_per_group;
    }
    raw.s_checksum_type = u8::from(raw.features().metadata_csum());
    // Only new files are placed by it.
    raw.s_log_groups_per_flex = if raw.s_log_groups_per_flex > 31 { 0 } else { raw.s_log_groups_per_flex };
    // Then all descriptors lie where meta groups have them.
    if Geometry::from_superblock(&raw).is_ok_and(|geometry| begins_meta_groups_late(&geometry)) {
        raw.s_first_meta_bg.set(0);
    }
    let blocks = raw.blocks_count().saturating_sub(u64::from(raw.s_first_data_block.get()));
    let per_group = u64::from(raw.s_blocks_per_group.get()).max(1);
    let inodes = blocks.div_ceil(per_group).saturating_mul(u64::from(raw.s_inodes_per_group.get()));
    raw.s_inodes_count.set(low_u32(inodes));
    if usable(&raw).is_err() {
        return Err(why);
    }
    let repair = "there is no backup; the field becomes what follows from the others";
    let finding = Finding::new(Location::default(), why.to_string(), repair);
    let repairs = report.found(&kind::SUPERBLOCK_DAMAGED, finding);
    Ok(ChosenSuperblock { raw, from_backup: false, left: !repairs })
}

/// Takes from a backup what never changes; the names of the fields that differed.
fn merge(raw: &mut RawSuperblock, backup: &RawSuperblock) -> Vec<&'static str> {
    let mut differing = Vec::new();
    macro_rules! take {
        ($($field:ident),*) => {
            $(if raw.$field != backup.$field {
                raw.$field = backup.$field;
                differing.push(stringify!($field));
            })*
        };
    }
    take!(
        s_inodes_count,
        s_blocks_count_lo,
        s_blocks_count_hi,
        s_first_data_block,
        s_log_block_size,
        s_log_cluster_size,
        s_blocks_per_group,
        s_clusters_per_group,
        s_inodes_per_group,
        s_rev_level,
        s_first_ino,
        s_inode_size,
        s_uuid,
        s_desc_size,
        s_reserved_gdt_blocks,
        s_log_groups_per_flex,
        s_first_meta_bg,
        s_checksum_type,
        s_checksum_seed,
        s_backup_bgs,
        s_creator_os,
        s_encoding
    );
    let (now, then) = (raw.features(), backup.features());
    // Linux sets these by itself, and in the primary only.
    let compat = Compat::EXT_ATTR;
    let incompat = Incompat::RECOVER | Incompat::EXTENTS;
    let ro_compat = RoCompat::LARGE_FILE | RoCompat::DIR_NLINK | RoCompat::ORPHAN_PRESENT;
    let merged = Features {
        compat: (then.compat - compat) | (now.compat & compat),
        incompat: (then.incompat - incompat) | (now.incompat & incompat),
        ro_compat: (then.ro_compat - ro_compat) | (now.ro_compat & ro_compat),
    };
    if merged != now {
        raw.set_features(merged);
        differing.push("features");
    }
    differing
}

/// Groups that usually have backups.
const USUAL_GROUPS: [u64; 10] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125];
/// Most blocks, or clusters, of a group: its count of free ones has 16 bits.
const GROUP_MOST: u64 = 65_528;
/// Most blocks of a cluster, as a power of two: clusters have at most 512 MiB.
const CLUSTER_LOG2_MOST: u32 = 19;
/// Bytes of a device that are searched throughout, from its start.
const SEARCHED: u64 = 1 << 30;
/// Bytes read at once in a search.
const SEARCH_PIECE: usize = 1 << 20;

/// Division of a volume into groups, as a candidate.
#[derive(Clone, Copy)]
struct Division {
    block_log2: u32,
    blocks_per_group: u64,
    first_block: u64,
}

impl Division {
    /// As the primary says.
    fn stated(raw: &RawSuperblock) -> Option<Self> {
        let block_log2 = raw.s_log_block_size.get().checked_add(10).filter(|log2| *log2 <= 16)?;
        let (blocks_per_group, first) = (raw.s_blocks_per_group.get(), raw.s_first_data_block.get());
        Some(Division { block_log2, blocks_per_group: blocks_per_group.into(), first_block: first.into() })
    }

    /// As programs divide volumes: one block of bitmap for each group, for blocks of every size and clusters of every
    /// size of such blocks.
    fn usual() -> impl Iterator<Item = Self> {
        let clusters = (0..=CLUSTER_LOG2_MOST).flat_map(|cluster| (10..=16).map(move |log2| (log2, cluster)));
        clusters.map(|(block_log2, cluster)| Division {
            block_log2,
            blocks_per_group: (8 << block_log2).min(GROUP_MOST) << cluster,
            first_block: u64::from(block_log2 == 10 && cluster == 0),
        })
    }

    /// Byte offsets where backups may lie on a device of `size` bytes: at the groups that usually have one, and at the
    /// last, which has one with `sparse_super2`.
    fn backups(self, size: u64) -> impl Iterator<Item = u64> {
        let blocks = (size >> self.block_log2).saturating_sub(self.first_block);
        let last = blocks.saturating_sub(1).checked_div(self.blocks_per_group).unwrap_or(0);
        let near = USUAL_GROUPS.into_iter().take_while(move |group| *group < last);
        near.chain(std::iter::once(last)).filter_map(move |group| {
            let block = self.blocks_per_group.checked_mul(group)?.checked_add(self.first_block)?;
            block.checked_shl(self.block_log2).filter(|offset| offset >> self.block_log2 == block)
        })
    }
}

/// A backup that can be used, and its byte offset: where the primary says, at the usual places of
/// every block size, then anywhere near the start.
fn search(device: &dyn Device, primary: Option<&RawSuperblock>) -> Option<(u64, RawSuperblock)> {
    let divisions = primary.and_then(Division::stated).into_iter().chain(Division::usual());
    divisions
        .flat_map(|division| division.backups(device.size()))
        .find_map(|offset| backup_at(device, offset))
        .or_else(|| search_all(device))
}

/// The superblock at an offset, if it is a backup that belongs there and can be used.
fn backup_at(device: &dyn Device, offset: u64) -> Option<(u64, RawSuperblock)> {
    if offset <= SUPERBLOCK_OFFSET || offset.checked_add(SUPERBLOCK_LEN as u64)? > device.size() {
        return None;
    }
    let raw = at(device, offset).ok()?;
    let geometry = usable(&raw).ok().filter(|_| is_sealed(&raw))?;
    // The field has 16 bits of the group's number; far groups are recognised by their place alone.
    let group = geometry.group_of_block(ondisk::units::Block(offset >> geometry.block_size.log2()))?;
    let stated = u32::from(raw.s_block_group_nr.get());
    // Revision 0 has no such field.
    let numbered = stated == group.0 & 0xFFFF || raw.s_rev_level.get() == 0 && stated == 0;
    let belongs = group != Group(0) && geometry.superblock_offset(group) == offset && numbered;
    belongs.then_some((offset, raw))
}

fn search_all(device: &dyn Device) -> Option<(u64, RawSuperblock)> {
    let end = device.size().min(SEARCHED);
    let mut piece = vec![0; SEARCH_PIECE];
    for start in (0..end).step_by(SEARCH_PIECE) {
        let len = usize::try_from(end - start).unwrap_or(SEARCH_PIECE).min(SEARCH_PIECE);
        let bytes = piece.get_mut(..len)?;
        if device.read_at(start, bytes).is_err() {
            continue;
        }
        for (index, block) in bytes.chunks_exact(1024).enumerate() {
            let magic = block.get(0x38..0x3A) == Some(&ondisk::superblock::MAGIC.to_le_bytes()[..]);
            if magic && let Some(found) = backup_at(device, start + index as u64 * 1024) {
                return Some(found);
            }
        }
    }
    None
}
