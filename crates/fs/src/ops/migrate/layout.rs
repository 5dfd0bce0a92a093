//! Where each block of a file comes to lie in room that was taken for it.
//!
//! Owns: the arithmetic, for both forms of maps and for clusters. Excludes: taking the room, and all reading and
//! writing.

use ondisk::block_map::{self, Path};
use ondisk::extent::{Extent, MAX_UNWRITTEN, MAX_WRITTEN};
use ondisk::geometry::Geometry;
use ondisk::units::{Block, BlockSize, ClusterRun, FileBlock, low_u32};

use crate::error::{Error, Result};
use crate::map::{MapForm, Placed};
use crate::space::ClustersOf;

/// Blocks to lay out, in the order in which they are to lie on disk.
pub(super) struct Layout {
    slots: Vec<Slot>,
    /// All clusters that it takes.
    pub(super) clusters: u64,
}

/// One thing after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// A number of blocks of the map, which lead to a file block.
    Leaders(FileBlock, u32),
    /// A part of the contents, where it lies now.
    Data(Extent),
}

/// Bytes that have to be brought to their new place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CopyRange {
    /// The first block they lie in; `None` for zeros.
    pub(super) from: Option<Block>,
    /// The first block they go to.
    pub(super) to: Block,
    /// Blocks.
    pub(super) count: u32,
}

/// A file in its new places.
pub(super) struct NewLayout {
    pub(super) placed: Vec<Placed>,
    pub(super) carries: Vec<CopyRange>,
}

impl NewLayout {
    /// Adds extents of the file that stay where they are.
    pub(super) fn add(&mut self, staying: Vec<Extent>) {
        if !staying.is_empty() {
            self.placed.extend(staying.into_iter().map(Placed::Run));
            self.placed.sort_by_key(|part| match part {
                Placed::Run(extent) => extent.logical,
                Placed::Leaders(at, _) => *at,
            });
        }
    }

    /// All extents.
    pub(super) fn runs(&self) -> Vec<Extent> {
        let run = |part: &Placed| match part {
            Placed::Run(extent) => Some(*extent),
            Placed::Leaders(..) => None,
        };
        self.placed.iter().filter_map(run).collect()
    }
}

impl Layout {
    /// The layout of a file that is mapped so, as a map of a form wants it. Extent trees keep their nodes elsewhere.
    ///
    /// # Errors
    /// File blocks behind the reach of the map.
    pub(super) fn new(old: &[Extent], form: MapForm, geometry: &Geometry) -> Result<Self> {
        match form {
            MapForm::Extents => Ok(Layout::of_tree(old, geometry.cluster_log2)),
            MapForm::Pointers => Layout::of_pointers(old, geometry.block_size),
        }
    }

    /// Lays out a part of a file without its map, which finds its own place.
    pub(super) fn of_tree(old: &[Extent], cluster_log2: u32) -> Self {
        let (mut clusters, mut next) = (0, 0);
        for extent in old {
            let first = u64::from(extent.logical.0) >> cluster_log2;
            let end = ((extent.logical_end() - 1) >> cluster_log2) + 1;
            clusters += end - first.max(next);
            next = end;
        }
        Layout { slots: old.iter().map(|extent| Slot::Data(*extent)).collect(), clusters }
    }

    fn of_pointers(old: &[Extent], size: BlockSize) -> Result<Self> {
        let (mut slots, mut clusters, mut last) = (Vec::new(), 0, None);
        for extent in old {
            let mut done = 0;
            while done < extent.count {
                let at = FileBlock(extent.logical.0 + done);
                let path = block_map::path(size, at)
                    .ok_or_else(|| Error::FileTooLarge(format!("file block {at} is behind the reach")))?;
                let leaders = new_nodes(last, &path);
                if leaders > 0 {
                    slots.push(Slot::Leaders(at, leaders));
                }
                let count = (extent.count - done).min(left_in_leaf(size, &path));
                slots.push(Slot::Data(part(extent, done, count)));
                clusters += u64::from(leaders) + u64::from(count);
                (done, last) = (done + count, Some(path));
            }
        }
        Ok(Layout { slots, clusters })
    }

    /// Puts it into runs of clusters.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if they are too few.
    pub(super) fn put(&self, runs: &[ClusterRun], form: MapForm, geometry: &Geometry) -> Result<NewLayout> {
        let filling = Filling { places: ClustersOf::new(runs), form, geometry, next: 0, begun: None };
        filling.fill(&self.slots)
    }
}

/// Blocks of the map on the way to a file block that were not on the way to the one before.
fn new_nodes(last: Option<Path>, path: &Path) -> u32 {
    let Some(last) = last.filter(|last| last.root == path.root) else { return path.depth };
    let inner = path.depth.saturating_sub(1);
    let same = (0..inner as usize).take_while(|level| last.slots.get(*level) == path.slots.get(*level));
    inner - low_u32(same.count() as u64)
}

/// File blocks from the one at the end of a path on to which the same block of pointers leads.
fn left_in_leaf(size: BlockSize, path: &Path) -> u32 {
    match (path.depth as usize).checked_sub(1) {
        None => block_map::DIRECT - path.root,
        Some(leaf) => block_map::pointers_per_block(size) - path.slots.get(leaf).copied().unwrap_or_default(),
    }
}

fn part(extent: &Extent, skip: u32, count: u32) -> Extent {
    let logical = FileBlock(extent.logical.0 + skip);
    Extent { logical, start: Block(extent.start.0 + u64::from(skip)), count, ..*extent }
}

/// A layout on its way into runs.
struct Filling<'a> {
    places: ClustersOf<'a>,
    form: MapForm,
    geometry: &'a Geometry,
    /// Clusters used so far.
    next: u64,
    /// The cluster of the file that was begun last: its other blocks belong into the same cluster on disk.
    begun: Option<u64>,
}

impl Filling<'_> {
    fn fill(mut self, slots: &[Slot]) -> Result<NewLayout> {
        let mut laid = NewLayout { placed: Vec::new(), carries: Vec::new() };
        for slot in slots {
            match *slot {
                Slot::Leaders(at, count) => {
                    let blocks = (0..count).map(|_| self.one()).collect::<Result<_>>()?;
                    laid.placed.push(Placed::Leaders(at, blocks));
                }
                Slot::Data(extent) => self.data(&extent, &mut laid)?,
            }
        }
        Ok(laid)
    }

    /// The next cluster alone.
    fn one(&mut self) -> Result<Block> {
        let run = self.places.from(self.next).ok_or(Error::NoSpace)?;
        self.next += 1;
        Ok(self.geometry.cluster_start(run.start))
    }

    fn data(&mut self, extent: &Extent, laid: &mut NewLayout) -> Result<()> {
        let log2 = self.geometry.cluster_log2;
        let mut done = 0;
        while done < extent.count {
            let at = u64::from(extent.logical.0) + u64::from(done);
            if self.begun != Some(at >> log2) {
                self.next += 1;
            }
            let run = self.places.from(self.next - 1).ok_or(Error::NoSpace)?;
            let inside = at & ((1 << log2) - 1);
            let most = if extent.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
            let room = (u64::from(run.count) << log2) - inside;
            let count = (extent.count - done).min(most).min(low_u32(room.min(u64::from(u32::MAX))));
            let start = Block(self.geometry.cluster_start(run.start).0 + inside);
            self.add(&part(extent, done, count), start, laid);
            let last = (at + u64::from(count) - 1) >> log2;
            self.next += last - (at >> log2);
            (self.begun, done) = (Some(last), done + count);
        }
        Ok(())
    }

    fn add(&self, old: &Extent, start: Block, laid: &mut NewLayout) {
        // Pointers can't say that blocks read as zeros: those become zeros.
        let unwritten = old.unwritten && self.form == MapForm::Extents;
        laid.placed.push(Placed::Run(Extent { start, unwritten, ..*old }));
        if !unwritten {
            let from = (!old.unwritten).then_some(old.start);
            laid.carries.push(CopyRange { from, to: start, count: old.count });
        }
    }
}

/// Pieces as filefrag(8) counts them: one begins where the disk does not go on as the file does. A hole that the disk
/// leaves room for breaks nothing, nor do blocks of pointers before what they lead to, and unwritten space is no piece
/// of its own.
pub(super) fn pieces(extents: &[Extent], form: MapForm, size: BlockSize) -> u64 {
    let (mut pieces, mut before): (u64, Option<&Extent>) = (0, None);
    for extent in extents {
        let follows = before.is_some_and(|before| {
            let gap = u64::from(extent.logical.0).saturating_sub(before.logical_end());
            let leaders = if form == MapForm::Pointers { leaders_between(before, extent, size) } else { 0 };
            let dense = before.end() + leaders;
            extent.start.0 == before.end() || extent.start.0 == dense || extent.start.0 == dense + gap
        });
        pieces += u64::from(!follows);
        before = Some(extent);
    }
    pieces
}

/// Blocks of pointers that lead to an extent and not to the one before.
fn leaders_between(before: &Extent, extent: &Extent, size: BlockSize) -> u64 {
    let last = FileBlock(before.logical.0.saturating_add(before.count.saturating_sub(1)));
    let path = block_map::path(size, extent.logical);
    path.map_or(0, |path| u64::from(new_nodes(block_map::path(size, last), &path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, start: u64, count: u32) -> Extent {
        Extent { logical: FileBlock(logical), start: Block(start), count, unwritten: false }
    }

    #[test]
    fn blocks_of_pointers_stand_before_what_they_lead_to() {
        let size = BlockSize::from_log2(10).unwrap();
        // 12 direct blocks, 256 behind one indirect block, then two more blocks of pointers.
        let layout = Layout::of_pointers(&[extent(0, 500, 300), extent(600, 900, 1)], size).unwrap();
        let leaders: Vec<_> = layout.slots.iter().filter(|slot| matches!(slot, Slot::Leaders(..))).collect();
        let wanted = [(12, 1), (268, 2), (600, 1)].map(|(at, count)| Slot::Leaders(FileBlock(at), count));
        assert_eq!(leaders, wanted.iter().collect::<Vec<_>>());
        assert_eq!(layout.clusters, 301 + 4);
    }

    #[test]
    fn parts_of_a_cluster_stay_together() {
        let layout = Layout::of_tree(&[extent(0, 64, 3), extent(5, 69, 2), extent(16, 96, 17)], 4);
        assert_eq!(layout.clusters, 3);
    }

    #[test]
    fn a_piece_ends_where_the_disk_does_not_go_on() {
        let size = BlockSize::from_log2(10).unwrap();
        let count = |extents: &[Extent], form| pieces(extents, form, size);
        assert_eq!(count(&[], MapForm::Extents), 0);
        let whole = [extent(0, 10, 5), extent(5, 15, 5), extent(20, 30, 1)];
        assert_eq!(count(&whole, MapForm::Extents), 1);
        let torn = [extent(0, 10, 5), extent(5, 16, 5), extent(12, 21, 1)];
        assert_eq!(count(&torn, MapForm::Extents), 2);
        let led = [extent(0, 10, 12), extent(12, 23, 256), extent(268, 281, 5)];
        assert_eq!((count(&led, MapForm::Pointers), count(&led, MapForm::Extents)), (1, 3));
    }
}
