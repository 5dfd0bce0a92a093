//! Data at places that are multiples of a chunk, so that images made apart share the chunks of what they have in common.
//!
//! Files are taken layer by layer, and in each layer in the order of the walk, into segments. A segment begins at a
//! multiple of the chunk, and what it holds follows each other; where it lies does not change a byte of it. Segments end
//! where names say so, not where room ends: the same files of a layer are the same segments, whatever else an image
//! holds. A file of at least a chunk begins a segment, and files behind it fill its last chunk; small files before it and
//! behind those share other segments. The place of a file whose name a higher layer has taken stays free, so that those
//! behind it stay where they are.
//!
//! Owns: which files form a segment, and their order. Excludes: the order of files without alignment (`order`).

use ondisk::units::saturated;
use ondisk::{invariant, invariant_or};
use platfs::ondisk::geometry::Geometry;
use platfs::ondisk::units::Cluster;

use super::error::BuildError;
use super::fill::{Contents, Filler};
use super::order::UncopiedFiles;
use super::size::{Shape, file_clusters};
use crate::source::catalogue::Step;
use crate::source::{Catalogue, NodeId, NodeKind};

/// Chunks of a segment of small files at most.
const CHUNKS_MAX: u64 = 16;
/// One name in this number, on average, ends a segment.
const ENDS: u64 = 256;

/// Files that lie behind each other from a multiple of the chunk on.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Each with its place, where that is not just behind the one before it.
    files: Vec<(NodeId, Option<u64>)>,
    /// Up to the end of its last file.
    clusters: u64,
    /// Those of them that are free: places of files that are hidden.
    free: u64,
}

/// The segments of a tree, layer by layer.
pub(super) struct Segments {
    chunk: u64,
    layers: Vec<Vec<Segment>>,
}

/// Identity of a file in a segment.
struct Item {
    node: NodeId,
    /// A higher layer hides it.
    is_hidden: bool,
    clusters: u64,
    ends: bool,
}

/// Clusters of a chunk; at least one.
fn chunk_clusters(align: u64, geometry: &Geometry) -> u64 {
    (align >> geometry.block_size.log2() >> geometry.cluster_log2).max(1)
}

/// Returns true if a segment ends behind a file of that name (FNV-1a: the same everywhere).
fn ends(name: &[u8]) -> bool {
    let hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    // The low bits of a product know less of the bytes than the high ones.
    (hash >> 32).is_multiple_of(ENDS)
}

impl Segments {
    pub(super) fn of(catalogue: &Catalogue, shape: &Shape, chunk: u64) -> Self {
        let mut layers: Vec<Vec<Item>> = Vec::new();
        layers.resize_with(catalogue.layers(), Vec::new);
        let has_data = |node: NodeId| {
            let metadata = catalogue.metadata(node);
            metadata.kind == NodeKind::File && metadata.size > 0
        };
        let mut add = |step: &Step<'_>, node: NodeId| {
            let clusters = file_clusters(catalogue, shape, node).max(1);
            let item = Item { node, is_hidden: node != step.node, clusters, ends: ends(step.name) };
            if has_data(node) {
                let layer = layers.get_mut(catalogue.layer_of(node));
                invariant_or!(layer, return, "a file lies in a layer").push(item);
            }
        };
        for step in catalogue.walk().filter(|step| step.first) {
            add(&step, step.node);
            let mut hidden = catalogue.hidden_by(step.node);
            // Each lies in a lower layer than the one before.
            while let Some(node) = hidden {
                add(&step, node);
                hidden = catalogue.hidden_by(node);
            }
        }
        let divided = |layer| {
            let mut all = Vec::new();
            divide(layer, chunk, &mut all);
            all
        };
        Segments { chunk, layers: layers.into_iter().map(divided).collect() }
    }

    /// Clusters that stay free because segments begin at multiples of the chunk.
    pub(super) fn cost(&self) -> u64 {
        let cost = |segment: &Segment| {
            segment.clusters.next_multiple_of(self.chunk) - segment.clusters + segment.free
        };
        self.layers.iter().flatten().map(cost).sum()
    }
}

/// A segment that is being filled.
#[derive(Default)]
struct Open {
    segment: Segment,
    /// Clusters with those of hidden files.
    clusters: u64,
    /// Hidden ones behind the last file.
    hidden: u64,
}

impl Open {
    fn add(&mut self, item: &Item) {
        if item.is_hidden {
            self.hidden += item.clusters;
        } else {
            let place = (self.hidden > 0).then_some(self.clusters);
            self.segment.free += std::mem::take(&mut self.hidden);
            self.segment.files.push((item.node, place));
            self.segment.clusters = self.clusters + item.clusters;
        }
        self.clusters += item.clusters;
    }

    /// Ends the segment; one of hidden files alone is none.
    fn end(&mut self, all: &mut Vec<Segment>) {
        let Open { segment, .. } = std::mem::take(self);
        if !segment.files.is_empty() {
            all.push(segment);
        }
    }
}

/// Divides the files of a layer.
fn divide(layer: Vec<Item>, chunk: u64, all: &mut Vec<Segment>) {
    let mut small = Open::default();
    // That of the last large file, until one comes that its last chunk has no room for.
    let mut large = Open::default();
    for item in layer {
        if item.clusters >= chunk {
            large.end(all);
            large.add(&item);
            continue;
        }
        if large.clusters + item.clusters <= large.clusters.next_multiple_of(chunk) {
            large.add(&item);
            continue;
        }
        large.end(all);
        if small.clusters + item.clusters > chunk * CHUNKS_MAX {
            small.end(all);
        }
        small.add(&item);
        if item.ends && small.clusters >= chunk {
            small.end(all);
        }
    }
    large.end(all);
    small.end(all);
}

/// Bytes that alignment costs a volume: what segments leave free, and chunks that structures of the volume cut.
pub(super) fn bytes(catalogue: &Catalogue, shape: &Shape, align: u64, geometry: &Geometry) -> u64 {
    let segments = Segments::of(catalogue, shape, chunk_clusters(align, geometry));
    let cut = 2 * (u64::from(geometry.groups) + 2);
    (segments.cost() << geometry.cluster_log2 << geometry.block_size.log2()) + align * cut
}

/// Where chunks lie on a volume, in clusters.
#[derive(Clone, Copy)]
struct Grid {
    chunk: u64,
    /// Before the first cluster: where a boot loader has a block of its own.
    before: u64,
}

impl Filler<'_> {
    /// Copies the data of every file in segments that begin at multiples of `align` bytes, layer by layer, and behind those
    /// of each layer but the first its directories; gives the bytes that this leaves free.
    ///
    /// # Errors
    /// As `Filler::file`.
    pub(super) fn lay_aligned(
        &mut self,
        contents: &mut dyn Contents,
        shape: &Shape,
        align: u64,
    ) -> Result<u64, BuildError> {
        let geometry = self.volume.format().geometry;
        let segments = Segments::of(self.catalogue, shape, chunk_clusters(align, &geometry));
        let log2 = geometry.cluster_log2 + geometry.block_size.log2();
        let before = geometry.byte_offset(geometry.cluster_start(Cluster(0))) >> log2;
        let grid = Grid { chunk: segments.chunk, before };
        for (layer, all) in segments.layers.iter().enumerate() {
            self.lay_layer(contents, all, grid)?;
            if layer > 0 {
                self.directories_of(layer)?;
            }
        }
        Ok(segments.cost() << log2)
    }

    /// Copies the files of a layer. What is made next lies behind its last segment.
    fn lay_layer(
        &mut self,
        contents: &mut dyn Contents,
        all: &[Segment],
        Grid { chunk, before }: Grid,
    ) -> Result<(), BuildError> {
        let units = |segment: &Segment| saturated::<u32>(segment.clusters.div_ceil(chunk));
        let mut waiting = UncopiedFiles::new(all.iter().map(units).collect());
        let (mut at, mut end) = (0, 0);
        while waiting.total > 0 {
            self.volume.loader()?.go_on_at(Cluster(at));
            let most = saturated::<u32>((waiting.total + 1) * chunk);
            let Some(run) = self.volume.loader()?.room_ahead(most)? else { break };
            let start = (run.start.0 + before).next_multiple_of(chunk) - before;
            let room = run.end().saturating_sub(start) / chunk;
            let room = saturated::<u32>(room);
            let Some(found) = waiting.find(waiting.first, room) else {
                at = run.end();
                continue;
            };
            let segment = invariant!(all.get(found), "what is found is one of the segments");
            self.volume.loader()?.go_on_at(Cluster(start));
            for (node, place) in &segment.files {
                if let Some(place) = place {
                    self.volume.loader()?.go_on_at(Cluster(start + place));
                }
                self.file(contents, *node)?;
            }
            end = start + segment.clusters;
            at = start + u64::from(waiting.done(found)) * chunk;
        }
        // What finds no such place is laid where there is room.
        self.volume.loader()?.go_on_at(Cluster(0));
        while let Some(found) = waiting.find(waiting.first, u32::MAX) {
            for (node, _) in &invariant!(all.get(found), "what is found is one of the segments").files {
                self.file(contents, *node)?;
            }
            waiting.done(found);
        }
        self.volume.loader()?.go_on_at(Cluster(end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u32, clusters: u64) -> Item {
        Item { node: NodeId::of_index(number), is_hidden: false, clusters, ends: false }
    }

    #[test]
    fn large_files_begin_segments_and_small_ones_fill_their_last_chunk() {
        let mut all = Vec::new();
        divide(vec![item(0, 1), item(1, 20), item(2, 7), item(3, 6), item(4, 3)], 16, &mut all);
        let shown: Vec<(u64, usize)> =
            all.iter().map(|segment| (segment.clusters, segment.files.len())).collect();
        // 20 with 7 behind it, and no room for 6; 1, 6 and 3.
        assert_eq!(shown, [(27, 2), (10, 3)]);
        assert_eq!(Segments { chunk: 16, layers: vec![all] }.cost(), 5 + 6);
    }

    #[test]
    fn the_place_of_a_hidden_file_stays_free() {
        let mut all = Vec::new();
        let hidden = |number, clusters| Item { is_hidden: true, ..item(number, clusters) };
        divide(vec![item(0, 2), hidden(1, 3), item(2, 4), hidden(3, 5)], 16, &mut all);
        let nodes = [0, 2].map(NodeId::of_index);
        assert_eq!(all[0].files, [(nodes[0], None), (nodes[1], Some(5))]);
        assert_eq!((all[0].clusters, all[0].free), (9, 3));
        assert_eq!(Segments { chunk: 16, layers: vec![all] }.cost(), 7 + 3);
        let mut none = Vec::new();
        divide(vec![hidden(0, 40)], 16, &mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn what_is_added_behind_changes_no_segment_before_it() {
        let files = |count: u32| (0..count).map(|number| item(number, 1 + u64::from(number % 9))).collect();
        let (mut few, mut many) = (Vec::new(), Vec::new());
        divide(files(500), 16, &mut few);
        divide(files(900), 16, &mut many);
        let last = few.len() - 1;
        for (one, other) in few.iter().zip(&many).take(last) {
            assert_eq!(one.files, other.files);
        }
    }
}
