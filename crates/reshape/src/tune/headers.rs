//! The blocks at the start of groups: backups of the superblock (`sparse_super`), and those kept for growth
//! (`resize_inode`).

use ondisk::features::{Compat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, Group, InodeNumber};

use super::TuneWork;
use crate::Result;
use crate::draft::runs_of;
use crate::error::refused;

/// Gives the blocks of backups up that only volumes without `sparse_super` have.
pub(super) fn thin_backups(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let edit = |raw: &mut RawSuperblock| {
        let mut features = raw.features();
        features.ro_compat |= RoCompat::SPARSE_SUPER;
        raw.set_features(features);
    };
    let mut raw = *work.draft.superblock();
    edit(&mut raw);
    let after = Geometry::from_superblock(&raw)?;
    let before = *work.draft.geometry();
    let mut runs = Vec::new();
    for group in (0..before.groups).map(Group) {
        let (old, new) = (before.group_header(group), after.group_header(group));
        if new.count < old.count {
            let start = Block(new.start.0 + u64::from(new.count));
            runs.push((start, u64::from(old.count - new.count)));
        }
    }
    work.draft.release(&runs)?;
    work.draft.reshape(edit)
}

/// Gives the blocks up that are kept for more descriptors, and the inode that has them.
pub(super) fn give_up_growth(work: &mut TuneWork<'_>) -> Result<()> {
    work.deepen()?;
    let edit = |raw: &mut RawSuperblock| {
        let mut features = raw.features();
        features.compat -= Compat::RESIZE_INODE;
        raw.set_features(features);
        raw.s_reserved_gdt_blocks.set(0);
    };
    let inode = work.draft.inode(InodeNumber::RESIZE)?;
    let map = work.draft.map_of(&inode)?;
    let mut raw = *work.draft.superblock();
    edit(&mut raw);
    let after = Geometry::from_superblock(&raw)?;
    // With `bigalloc` the last descriptors share a cluster with the first blocks that are kept.
    let stays = |block: Block| {
        let Some(group) = after.group_of_block(block) else { return true };
        let header = after.group_header(group);
        header.count > 0
            && after.cluster_of(block)
                <= after.cluster_of(Block(header.start.0 + u64::from(header.count) - 1))
    };
    let mut clusters: Vec<_> = runs_of(&map)
        .flat_map(|(start, count)| (start.0..start.0 + count).map(Block))
        .filter(|block| !stays(*block))
        .map(|block| after.cluster_of(block))
        .collect();
    clusters.sort_unstable();
    clusters.dedup();
    let ratio = u64::from(after.blocks_per_cluster());
    let runs: Vec<_> = clusters.into_iter().map(|cluster| (after.cluster_start(cluster), ratio)).collect();
    if runs.iter().any(|(start, count)| !after.contains(*start, *count)) {
        return refused("the resize inode has blocks outside the volume");
    }
    work.draft.release(&runs)?;
    work.draft.clear_inode(InodeNumber::RESIZE)?;
    work.draft.reshape(edit)
}
