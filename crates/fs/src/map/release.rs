//! Freeing the blocks that were taken out of a map.
//!
//! With `bigalloc` a cluster belongs to the file blocks of one aligned stretch of the file, and is
//! freed with the last of them.

use std::collections::BTreeMap;

use ondisk::extent::Extent;
use ondisk::inode::FileType;
use ondisk::units::{Block, BlockRun, Cluster, ClusterRun, FileBlock};

use super::{Map, MapMut, State};
use crate::error::Result;
use crate::ranges::FileBlocks;

/// Frees what was taken out of an inode's map and is in no part of the map that is left.
pub(super) fn release(map: &mut MapMut<'_, '_>, removed: &[Extent]) -> Result<()> {
    if !removed.is_empty() {
        map.tx.note_moved(map.inode.number());
    }
    for extent in removed {
        map.view().refuse_foreign(extent.start, u64::from(extent.count))?;
        if map.inode.file_type() != Some(FileType::Regular) || map.tx.journals_data() {
            map.tx.forget(BlockRun { start: extent.start, count: extent.count });
        }
    }
    let mut edges = Edges::new();
    for extent in removed {
        free_inner(map, extent, &mut edges)?;
    }
    for (first, cluster) in edges {
        if !is_served(map.view(), first, cluster)? {
            free(map, ClusterRun { start: cluster, count: 1 })?;
        }
    }
    Ok(())
}

/// Clusters of which only a part was removed at once, by the first file block of their stretch.
type Edges = BTreeMap<FileBlock, Cluster>;

fn free(map: &mut MapMut<'_, '_>, run: ClusterRun) -> Result<()> {
    map.tx.free_clusters(run)?;
    map.uncharge(u64::from(run.count) << map.tx.format.geometry.cluster_log2);
    Ok(())
}

/// Frees the clusters that an extent covers whole, and notes the others.
fn free_inner(map: &mut MapMut<'_, '_>, extent: &Extent, edges: &mut Edges) -> Result<()> {
    let geometry = &map.tx.format.geometry;
    let ratio = geometry.blocks_per_cluster();
    let cluster_of = |offset: u32| geometry.cluster_of(Block(extent.start.0 + u64::from(offset)));
    let head = (extent.logical.0.wrapping_neg() % ratio).min(extent.count);
    let whole = (extent.count - head) / ratio;
    let tail = extent.count - head - whole * ratio;
    if head > 0 {
        edges.insert(FileBlock(extent.logical.0 - extent.logical.0 % ratio), cluster_of(0));
    }
    if tail > 0 {
        edges.insert(FileBlock(extent.logical.0 + head + whole * ratio), cluster_of(head + whole * ratio));
    }
    if whole == 0 {
        return Ok(());
    }
    free(map, ClusterRun { start: cluster_of(head), count: whole })
}

/// True if a cluster still serves file blocks of its stretch.
fn is_served(map: Map<'_>, first: FileBlock, cluster: Cluster) -> Result<bool> {
    let geometry = &map.format.geometry;
    let stretch = FileBlocks::from_count(first, u64::from(geometry.blocks_per_cluster()));
    for segment in map.segments(stretch) {
        if let State::Mapped(block) | State::Unwritten(block) = segment?.state
            && geometry.cluster_of(block) == cluster
        {
            return Ok(true);
        }
    }
    Ok(false)
}
