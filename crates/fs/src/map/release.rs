//! Freeing the blocks that were taken out of a map.
//!
//! With `bigalloc` a cluster belongs to the file blocks of one aligned stretch of the file, and is
//! freed with the last of them.

use std::collections::BTreeMap;

use ondisk::extent::Extent;
use ondisk::inode::{FileType, Inode};
use ondisk::units::{Block, BlockRun, Cluster, ClusterRun, FileBlock};

use super::{Segments, State, uncharge};
use crate::error::Result;
use crate::format::Format;
use crate::space::Space;
use crate::txn::Update;

/// Frees what was taken out of an inode's map and is in no part of the map that is left.
pub(super) fn release(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    removed: &[Extent],
) -> Result<()> {
    if !removed.is_empty() {
        update.note_moved(inode.number());
    }
    for extent in removed {
        format.refuse_foreign(inode.number(), extent.start, u64::from(extent.count))?;
        if inode.file_type() != Some(FileType::Regular) || update.journals_data() {
            update.forget(BlockRun { start: extent.start, count: extent.count });
        }
    }
    let mut edges = Edges::new();
    for extent in removed {
        free_inner(format, space, update, inode, extent, &mut edges)?;
    }
    for (first, cluster) in edges {
        if !is_served(update, format, inode, first, cluster)? {
            free(format, space, update, inode, ClusterRun { start: cluster, count: 1 })?;
        }
    }
    Ok(())
}

/// Clusters of which only a part was removed at once, by the first file block of their stretch.
type Edges = BTreeMap<FileBlock, Cluster>;

fn free(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    run: ClusterRun,
) -> Result<()> {
    space.free_clusters(update, run)?;
    uncharge(format, inode, u64::from(run.count) << format.geometry.cluster_log2);
    Ok(())
}

/// Frees the clusters that an extent covers whole, and notes the others.
fn free_inner(
    format: &Format,
    space: &Space,
    update: &mut Update<'_>,
    inode: &mut Inode,
    extent: &Extent,
    edges: &mut Edges,
) -> Result<()> {
    let geometry = &format.geometry;
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
    free(format, space, update, inode, ClusterRun { start: cluster_of(head), count: whole })
}

/// Whether a cluster still serves file blocks of its stretch.
fn is_served(
    update: &Update<'_>,
    format: &Format,
    inode: &Inode,
    first: FileBlock,
    cluster: Cluster,
) -> Result<bool> {
    let end = u64::from(first.0) + u64::from(format.geometry.blocks_per_cluster());
    for segment in Segments::new(update, format, inode, u64::from(first.0), end) {
        if let State::Mapped(block) | State::Unwritten(block) = segment?.state
            && format.geometry.cluster_of(block) == cluster
        {
            return Ok(true);
        }
    }
    Ok(false)
}
