//! Data of a map, gathered in one way through bitmaps and one through files: sums over cells of the volume and a few
//! files, so that memory is bounded whatever the image holds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use ondisk::geometry::Geometry;
use ondisk::inode::FileType;
use ondisk::units::{Block, Group};
use platfs::Pieces;

use super::super::frag::Totals;
use super::super::pieces::{Files, Listener};
use super::super::runs::Run;
use crate::console::{Console, Failure};
use crate::free_runs::{self, Figures};
use crate::reading::OpenImage;

/// Most cells of a map.
const CELLS: u32 = 4_096;
/// Places along the strip of a file.
pub(super) const PLACES: u64 = 2_048;
/// Most runs of places that are kept of a file.
const RUNS: usize = 512;
/// Files that are kept: this many in the most pieces, and as many of the largest.
const KEPT: usize = 48;

/// How a volume is divided: some cells to a group, or some groups to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) groups_per_cell: u32,
    pub(super) cells_per_group: u32,
    /// Clusters of a cell, where a group has several; the last of a group may be smaller.
    cell_clusters: u32,
    clusters_per_group: u32,
    groups: u32,
}

impl Grid {
    fn of(groups: u32, clusters_per_group: u32) -> Self {
        let groups_per_cell = groups.div_ceil(CELLS).max(1);
        let most =
            if groups_per_cell > 1 { 1 } else { CELLS.checked_div(groups).unwrap_or(1).clamp(1, 1_024) };
        // Whole bytes of the bitmap.
        let cell_clusters = clusters_per_group.div_ceil(1 << most.ilog2()).next_multiple_of(8).max(8);
        let cells_per_group =
            if groups_per_cell > 1 { 1 } else { clusters_per_group.div_ceil(cell_clusters) };
        Grid { groups_per_cell, cells_per_group, cell_clusters, clusters_per_group, groups }
    }

    pub(super) fn len(&self) -> usize {
        (self.groups.div_ceil(self.groups_per_cell) * self.cells_per_group) as usize
    }

    fn group(&self, group: u32) -> usize {
        (group / self.groups_per_cell * self.cells_per_group) as usize
    }

    /// The first group of a cell.
    pub(super) fn group_of(&self, cell: usize) -> u64 {
        cell as u64 / u64::from(self.cells_per_group.max(1)) * u64::from(self.groups_per_cell)
    }

    /// The cell of a cluster, and how many clusters follow in it, the cluster among them.
    fn place(&self, cluster: u64) -> (usize, u64) {
        let per_group = u64::from(self.clusters_per_group.max(1));
        let group = u32::try_from(cluster / per_group).unwrap_or(u32::MAX);
        let inside = ondisk::units::low_u32(cluster % per_group);
        if self.groups_per_cell > 1 {
            let first = u64::from(group / self.groups_per_cell) * u64::from(self.groups_per_cell);
            let end = (first + u64::from(self.groups_per_cell)) * per_group;
            return (self.group(group), end - cluster);
        }
        let cell = inside / self.cell_clusters;
        let end = ((cell + 1) * self.cell_clusters).min(self.clusters_per_group);
        (self.group(group) + cell as usize, u64::from(end - inside))
    }
}

/// Sums of a cell. Of inodes and directories those of its groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) clusters: u64,
    pub(super) used: u64,
    /// Blocks of superblocks, descriptors, bitmaps and tables of inodes.
    pub(super) metadata: u64,
    pub(super) inodes: u64,
    pub(super) used_inodes: u64,
    pub(super) directories: u64,
    /// Pieces of files that begin here.
    pub(super) pieces: u64,
    /// The file with the most blocks here, and how many.
    pub(super) owner: Option<(u64, Rc<[u8]>)>,
}

/// A file that is shown by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    /// Number that it is ranked by: pieces, or blocks.
    rank: u64,
    pub(super) path: Reverse<Vec<u8>>,
    pub(super) directory: bool,
    pub(super) pieces: u64,
    pub(super) blocks: u64,
    /// First place and places of its runs.
    pub(super) runs: Vec<(u64, u64)>,
}

/// Everything that is shown.
pub(super) struct Survey {
    pub(super) grid: Grid,
    pub(super) cells: Vec<Cell>,
    pub(super) free: Figures,
    pub(super) totals: Totals,
    /// Files by pieces: element `n` counts those of 2^n to 2^(n+1) - 1.
    pub(super) by_pieces: Vec<u64>,
    pub(super) fragmented: Vec<Kept>,
    pub(super) largest: Vec<Kept>,
    /// Files claim more blocks than the volume has: whose a cell is was not followed to the end.
    pub(super) overfull: bool,
}

impl Survey {
    /// Goes through an image.
    pub(super) fn of(
        image: &OpenImage,
        paths: &[std::ffi::OsString],
        console: &mut Console<'_>,
    ) -> Result<Survey, Failure> {
        let geometry = image.volume.format().geometry;
        let grid = Grid::of(geometry.groups, geometry.clusters_per_group());
        let mut cells = vec![Cell::default(); grid.len()];
        let free = free_runs::figures(&image.volume, |group, bitmap| {
            count(&grid, &mut cells, group, geometry.group_clusters(group), bitmap)
        })
        .map_err(|error| image.whole(&error))?;
        groups(image, &geometry, &grid, &mut cells).map_err(|error| image.whole(&error))?;
        let mut gathering = Gathering::new(&geometry, grid, cells);
        let mut files = Files::of(image, true);
        for path in crate::reading::paths_or_root(paths) {
            use std::os::unix::ffi::OsStrExt;
            match image.find(&path, true) {
                Ok(inode) => {
                    let path = crate::reading::absolute(path.as_bytes());
                    files.below(console, &path, inode, &mut gathering)?;
                }
                Err(failure) => console.complain(failure)?,
            }
        }
        Ok(gathering.survey(free))
    }
}

/// Adds the clusters of a group, `count` of them, to its cells.
fn count(grid: &Grid, cells: &mut [Cell], group: Group, count: u32, bitmap: &[u8]) {
    let base = u64::from(group.0) * u64::from(grid.clusters_per_group);
    let mut at = 0;
    while at < count {
        let (cell, left) = grid.place(base + u64::from(at));
        // Ends within the group; a cell of several groups gets each by itself.
        let end = ondisk::units::low_u32((u64::from(at) + left).min(count.into()));
        let bytes = bitmap.get(at as usize / 8..end.div_ceil(8) as usize).unwrap_or_default();
        let set: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        // Bits behind the last cluster are set.
        let padding = end.next_multiple_of(8) - end;
        if let Some(cell) = cells.get_mut(cell) {
            cell.clusters += u64::from(end - at);
            cell.used += u64::from(set.saturating_sub(padding));
        }
        at = end;
    }
}

/// Adds what descriptors hold: inodes, directories, and where metadata lie.
fn groups(image: &OpenImage, geometry: &Geometry, grid: &Grid, cells: &mut [Cell]) -> platfs::Result<()> {
    let space = image.volume.space();
    for group in (0..geometry.groups).map(Group) {
        let raw = space.descriptor(group)?;
        let inodes = u64::from(geometry.inodes_per_group);
        let used = inodes.saturating_sub(raw.free_inodes().into());
        let first = grid.group(group.0);
        for cell in cells.iter_mut().skip(first).take(grid.cells_per_group as usize) {
            cell.inodes += inodes;
            cell.used_inodes += used;
            cell.directories += u64::from(raw.used_directories());
        }
        let header = geometry.group_header(group);
        let table = (raw.inode_table(), u64::from(geometry.inode_table_blocks()));
        let own = [
            (header.start, u64::from(header.count)),
            (raw.block_bitmap(), 1),
            (raw.inode_bitmap(), 1),
            table,
        ];
        for (start, count) in own.into_iter().filter(|(start, count)| geometry.contains(*start, *count)) {
            spread(geometry, grid, start, count, |cell, blocks| {
                if let Some(cell) = cells.get_mut(cell) {
                    cell.metadata += blocks;
                }
            });
        }
    }
    Ok(())
}

/// Hands over the blocks of a run cell by cell.
fn spread(geometry: &Geometry, grid: &Grid, start: Block, count: u64, mut take: impl FnMut(usize, u64)) {
    let (mut at, end) = (start.0, start.0.saturating_add(count));
    while at < end {
        let cluster = geometry.cluster_of(Block(at));
        let (cell, left) = grid.place(cluster.0);
        let behind = geometry.cluster_start(ondisk::units::Cluster(cluster.0 + left)).0.max(at + 1);
        take(cell, behind.min(end) - at);
        at = behind;
    }
}

/// Files on their way.
struct Gathering<'g> {
    geometry: &'g Geometry,
    grid: Grid,
    cells: Vec<Cell>,
    totals: Totals,
    by_pieces: Vec<u64>,
    fragmented: BinaryHeap<Reverse<Kept>>,
    largest: BinaryHeap<Reverse<Kept>>,
    /// Of the file in progress: its blocks by cell, in the order of its runs, ...
    touched: Vec<(usize, u64)>,
    /// ... its places ...
    places: Vec<(u64, u64)>,
    /// ... and where its last run ended.
    end: Option<u64>,
    /// Blocks that files may still claim: a sound volume never comes to the end of it.
    left: u64,
}

impl<'g> Gathering<'g> {
    fn new(geometry: &'g Geometry, grid: Grid, cells: Vec<Cell>) -> Self {
        Gathering {
            geometry,
            grid,
            cells,
            totals: Totals::default(),
            by_pieces: Vec::new(),
            fragmented: BinaryHeap::new(),
            largest: BinaryHeap::new(),
            touched: Vec::new(),
            places: Vec::new(),
            end: None,
            left: geometry.blocks.saturating_mul(2),
        }
    }

    fn survey(self, free: Figures) -> Survey {
        let sorted =
            |heap: BinaryHeap<Reverse<Kept>>| heap.into_sorted_vec().into_iter().map(|file| file.0).collect();
        Survey {
            grid: self.grid,
            cells: self.cells,
            free,
            totals: self.totals,
            by_pieces: self.by_pieces,
            fragmented: sorted(self.fragmented),
            largest: sorted(self.largest),
            overfull: self.left == 0,
        }
    }

    /// Where a block is along a strip.
    fn place(&self, block: u64) -> u64 {
        let place = u128::from(block) * u128::from(PLACES) / u128::from(self.geometry.blocks.max(1));
        u64::try_from(place).unwrap_or(PLACES).min(PLACES)
    }

    /// Whose a cell is: of a file with more blocks there than the one before.
    fn claim(&mut self, path: &[u8]) {
        let mut name: Option<Rc<[u8]>> = None;
        for (cell, blocks) in &self.touched {
            let Some(cell) = self.cells.get_mut(*cell) else { continue };
            if cell.owner.as_ref().is_none_or(|(most, _)| most < blocks) {
                let name = name.get_or_insert_with(|| path.into());
                cell.owner = Some((*blocks, Rc::clone(name)));
            }
        }
    }

    fn keep(heap: &mut BinaryHeap<Reverse<Kept>>, rank: u64, make: impl FnOnce(u64) -> Kept) {
        let least = heap.peek().map_or(0, |Reverse(least)| least.rank);
        if heap.len() >= KEPT && rank <= least {
            return;
        }
        heap.push(Reverse(make(rank)));
        if heap.len() > KEPT {
            heap.pop();
        }
    }
}

impl Listener for Gathering<'_> {
    fn begin(&mut self) {
        self.touched.clear();
        self.places.clear();
        self.end = None;
    }

    fn run(&mut self, run: &Run) {
        let (from, to) = (self.place(run.start.0), self.place(run.start.0.saturating_add(run.count)));
        let has_room = self.places.len() < RUNS;
        match self.places.last_mut() {
            Some((first, count)) if from >= *first && from <= *first + *count => {
                *count = (*count).max(to - *first)
            }
            _ if has_room => self.places.push((from, to - from)),
            _ => {}
        }
        if self.left < run.count {
            self.left = 0;
            return;
        }
        self.left -= run.count;
        let (is_new, mut first) = (self.end != Some(run.start.0), true);
        self.end = Some(run.start.0 + run.count);
        let (cells, touched) = (&mut self.cells, &mut self.touched);
        spread(self.geometry, &self.grid, run.start, run.count, |at, blocks| {
            if let Some(cell) = cells.get_mut(at) {
                cell.pieces += u64::from(is_new && std::mem::take(&mut first));
            }
            let has_room = touched.len() < CELLS as usize;
            match touched.last_mut() {
                Some((last, sum)) if *last == at => *sum += blocks,
                _ if has_room => touched.push((at, blocks)),
                _ => {}
            }
        });
    }

    fn file(
        &mut self,
        console: &mut Console<'_>,
        path: &[u8],
        kind: FileType,
        count: &Pieces,
    ) -> Result<(), Failure> {
        self.claim(path);
        let directory = kind == FileType::Directory;
        if !directory {
            self.totals.file(console, path, kind, count)?;
            let bin = count.pieces().checked_ilog2().map_or(0, |log| log as usize);
            if count.pieces() > 0 {
                self.by_pieces.resize(self.by_pieces.len().max(bin + 1), 0);
                self.by_pieces[bin] += 1;
            }
        }
        let places = &self.places;
        let kept = |rank| Kept {
            rank,
            path: Reverse(path.to_vec()),
            directory,
            pieces: count.pieces(),
            blocks: count.blocks(),
            runs: places.clone(),
        };
        if count.pieces() > 1 {
            Self::keep(&mut self.fragmented, count.pieces(), kept);
        }
        if count.pieces() > 0 {
            Self::keep(&mut self.largest, count.blocks(), kept);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_has_a_cell_and_there_are_never_many() {
        for (groups, per_group) in [
            (1, 8),
            (1, 32_768),
            (3, 8_192),
            (8, 32_768),
            (64, 1_000),
            (4_096, 8),
            (8_192, 32_768),
            (u32::MAX, 8),
        ] {
            let grid = Grid::of(groups, per_group);
            assert!(grid.len() <= 2 * CELLS as usize && grid.len() > 0, "{grid:?}");
            let all = u64::from(groups) * u64::from(per_group);
            let (mut at, mut last, mut steps) = (0, 0, 0);
            while at < all {
                let (cell, left) = grid.place(at);
                assert!(left > 0 && cell < grid.len() && (cell == last || cell == last + 1), "{grid:?} {at}");
                (at, last, steps) = (at + left, cell, steps + 1);
            }
            assert!(last + 1 == grid.len() && steps == grid.len(), "{grid:?}");
        }
    }

    #[test]
    fn used_clusters_are_those_of_the_bitmap() {
        let grid = Grid::of(2, 64);
        assert_eq!((grid.cells_per_group, grid.len()), (8, 16));
        let mut cells = vec![Cell::default(); grid.len()];
        count(&grid, &mut cells, Group(0), 64, &[0xFF, 1, 0, 0, 0, 0, 0, 0x80]);
        // A last group of 11 clusters: three in use, and five bits that are no clusters.
        count(&grid, &mut cells, Group(1), 11, &[1, 0b1111_1110, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        let found: Vec<(u64, u64)> = cells.iter().map(|cell| (cell.used, cell.clusters)).collect();
        assert_eq!(found[..8], [(8, 8), (1, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (1, 8)]);
        assert_eq!(found[8..], [(1, 8), (2, 3), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
    }
}
