//! Size that an image needs: the space of a catalogue on a volume of a given shape.
//!
//! Data and the maps over them are counted exactly. Directories are estimated here; the smallest
//! image measures them by creating all names on a volume in memory.

use platfs::mkfs::Plan;
use platfs::ondisk::block_map;
use platfs::ondisk::features::Incompat;
use platfs::ondisk::units::{BlockSize, FileBlock, low_u32};

use crate::source::{Catalogue, NodeId, NodeKind};

/// Entries of an extent tree's root, in the inode.
const ROOT_ENTRIES: u64 = 4;
/// Blocks of the longest extent.
const LONGEST_EXTENT: u64 = 32_768;

/// Parameters of a volume's format that decide about sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    block_size: BlockSize,
    cluster_log2: u32,
    extents: bool,
    inline_data: bool,
    inode_size: u64,
}

impl Shape {
    /// The shape that a plan makes.
    pub(super) fn of(plan: &Plan) -> Self {
        let geometry = plan.geometry();
        Shape {
            block_size: geometry.block_size,
            cluster_log2: geometry.cluster_log2,
            extents: plan.superblock().features().incompat.contains(Incompat::EXTENTS),
            inline_data: plan.superblock().features().incompat.contains(Incompat::INLINE_DATA),
            inode_size: u64::from(geometry.inode_size),
        }
    }

    /// The shape of a volume that is there.
    pub(super) fn of_volume(format: &platfs::Format) -> Self {
        Shape {
            block_size: format.geometry.block_size,
            cluster_log2: format.geometry.cluster_log2,
            extents: format.features.incompat.contains(Incompat::EXTENTS),
            inline_data: format.features.incompat.contains(Incompat::INLINE_DATA),
            inode_size: u64::from(format.geometry.inode_size),
        }
    }

    fn clusters(&self, blocks: u64) -> u64 {
        blocks.div_ceil(1 << self.cluster_log2)
    }
}

/// Inodes that a catalogue takes; the root is among those a fresh volume has.
pub(super) fn inodes(catalogue: &Catalogue) -> u64 {
    catalogue.summary().inodes().saturating_sub(1)
}

/// Clusters for the data of all files and for the maps over them.
pub(super) fn data_clusters(catalogue: &Catalogue, shape: &Shape) -> u64 {
    let first_names = catalogue.walk().filter(|step| step.first);
    let files = first_names.filter(|step| catalogue.metadata(step.node).kind == NodeKind::File);
    files.map(|step| file_clusters(catalogue, shape, step.node)).sum()
}

/// Returns true if a file may end up inside its inode, which depends on its attributes, too: only a file that
/// is shorter than an inode and has no hole.
pub(super) fn may_be_inline(catalogue: &Catalogue, shape: &Shape, node: NodeId) -> bool {
    let size = catalogue.metadata(node).size;
    let whole =
        || catalogue.extents(node).next().is_some_and(|first| first.file_offset == 0 && first.len == size);
    shape.inline_data && size > 0 && size < shape.inode_size && whole()
}

/// Sums [`data_clusters`] over files that may end up inside their inodes.
pub(super) fn clusters_of_maybe_inline(catalogue: &Catalogue, shape: &Shape) -> u64 {
    let first_names = catalogue.walk().filter(|step| step.first);
    let files = first_names.filter(|step| catalogue.metadata(step.node).kind == NodeKind::File);
    let maybe = files.filter(|step| may_be_inline(catalogue, shape, step.node));
    maybe.map(|step| file_clusters(catalogue, shape, step.node)).sum()
}

/// A file's data as ranges of blocks, rising and apart.
fn ranges(catalogue: &Catalogue, shape: &Shape, node: NodeId) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let log2 = shape.block_size.log2();
    for extent in catalogue.extents(node) {
        let start = extent.file_offset >> log2;
        let end = shape.block_size.blocks_for(extent.file_offset + extent.len);
        match ranges.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// Clusters for the data of a file and for the map over them, if it does not end up inside its inode.
pub(super) fn file_clusters(catalogue: &Catalogue, shape: &Shape, node: NodeId) -> u64 {
    let ranges = ranges(catalogue, shape, node);
    let mut taken = 0;
    let mut counted_to = 0;
    for (start, end) in &ranges {
        let (first, last) = (start >> shape.cluster_log2, shape.clusters(*end));
        taken += last - first.max(counted_to).min(last);
        counted_to = last;
    }
    // Each map block takes a cluster of its own.
    taken + if shape.extents { extent_nodes(shape, &ranges) } else { indirect_nodes(shape, &ranges) }
}

/// Nodes below the root of a tree whose extents were appended one after the other: a full leaf keeps
/// all entries but one when the next is begun.
fn extent_nodes(shape: &Shape, ranges: &[(u64, u64)]) -> u64 {
    let extents: u64 = ranges.iter().map(|(start, end)| (end - start).div_ceil(LONGEST_EXTENT)).sum();
    let capacity = u64::from(platfs::ondisk::extent::capacity(shape.block_size.bytes_usize()));
    let mut total = 0;
    let mut entries = extents;
    while entries > ROOT_ENTRIES {
        entries = (entries - 1).div_ceil(capacity - 1);
        total += entries;
    }
    total
}

/// Indirect blocks over ranges: each is counted when the first pointer in it is set.
fn indirect_nodes(shape: &Shape, ranges: &[(u64, u64)]) -> u64 {
    let per_block = u64::from(block_map::pointers_per_block(shape.block_size));
    let mut total = 0;
    let mut last: Option<block_map::Path> = None;
    for (start, end) in ranges {
        let mut at = *start;
        while at < *end {
            let Some(path) = block_map::path(shape.block_size, FileBlock(low_u32(at))) else { break };
            let depth = path.depth as usize;
            let shared = last.filter(|last| last.root == path.root && depth > 0).map_or(0, |last| {
                1 + (0..depth - 1).take_while(|level| last.slots[*level] == path.slots[*level]).count()
            });
            total += depth.saturating_sub(shared) as u64;
            // On to where the innermost indirect block ends.
            at += match depth {
                0 => u64::from(block_map::DIRECT - path.root),
                _ => per_block - u64::from(path.slots[depth - 1]),
            };
            last = Some(path);
        }
    }
    total
}

/// A generous guess of the clusters for directories, long links and attributes.
pub(super) fn name_clusters(catalogue: &Catalogue, shape: &Shape) -> u64 {
    let mut total = directory_clusters(catalogue, shape, catalogue.root());
    for step in catalogue.walk().filter(|step| step.first) {
        let metadata = catalogue.metadata(step.node);
        total += match metadata.kind {
            NodeKind::Directory => directory_clusters(catalogue, shape, step.node),
            _ => 0,
        };
        total += inode_clusters(catalogue, shape, step.node);
    }
    total
}

/// A generous guess of the clusters that come with an inode: for a long link and attributes.
pub(super) fn inode_clusters(catalogue: &Catalogue, shape: &Shape, node: NodeId) -> u64 {
    let metadata = catalogue.metadata(node);
    let link = u64::from(metadata.kind == NodeKind::Symlink && metadata.size >= 60);
    let attributes = catalogue.xattrs(node);
    let bytes: u64 = attributes.iter().map(|xattr| (xattr.name.len() + xattr.value.len() + 24) as u64).sum();
    // Behind a record with 32 bytes of extra fields.
    if bytes <= shape.inode_size.saturating_sub(160) {
        return link;
    }
    let large = attributes.iter().map(|xattr| xattr.value.len() as u64);
    link + 1 + large.map(|len| shape.clusters(shape.block_size.blocks_for(len))).sum::<u64>()
}

/// Leaves of an index are split in halves, so they end up between half full and full.
fn directory_clusters(catalogue: &Catalogue, shape: &Shape, directory: NodeId) -> u64 {
    let entries = catalogue.children(directory).map(|(name, _)| (8 + name.len() as u64).next_multiple_of(4));
    let bytes = 64 + entries.sum::<u64>();
    let blocks = match shape.block_size.blocks_for(bytes) {
        1 => 1,
        full => full * 2 + full / 64 + 2,
    };
    shape.clusters(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: bool) -> Shape {
        let block_size = BlockSize::from_bytes(1024).unwrap();
        Shape { block_size, cluster_log2: 0, extents, inline_data: false, inode_size: 256 }
    }

    #[test]
    fn indirect_blocks_agree_with_the_dense_count_and_sparse_files_need_fewer() {
        for blocks in [0, 12, 13, 268, 269, 70_000] {
            let expected = block_map::indirect_blocks(shape(false).block_size, blocks);
            assert_eq!(indirect_nodes(&shape(false), &[(0, blocks)]), expected, "{blocks}");
        }
        // One block behind a triple indirection, and its neighbour.
        assert_eq!(indirect_nodes(&shape(false), &[(70_000, 70_001), (70_002, 70_003)]), 3);
    }

    #[test]
    fn extent_trees_take_nodes_only_behind_four_extents() {
        let scattered = |count: u64| (0..count).map(|n| (2 * n, 2 * n + 1)).collect::<Vec<_>>();
        assert_eq!(extent_nodes(&shape(true), &scattered(4)), 0);
        assert_eq!(extent_nodes(&shape(true), &scattered(5)), 1);
        assert_eq!(extent_nodes(&shape(true), &scattered(84)), 1);
        assert_eq!(extent_nodes(&shape(true), &scattered(85)), 2);
        assert_eq!(extent_nodes(&shape(true), &[(0, 32_768 * 4)]), 0);
    }
}
