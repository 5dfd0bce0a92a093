//! In how many pieces files and free space lie, as numbers.
//!
//! Owns: the counting, by the rules of filefrag(8) and e2freefrag(8). Excludes: going through the files of a volume, units,
//! and how the numbers are shown.

use ondisk::units::{Block, Group, low_u32};

use crate::error::Result;
use crate::volume::Volume;

/// Counts pieces of one file as filefrag(8) does: a piece begins where the disk does not go on as the file does. A hole that
/// the disk leaves room for breaks nothing, and unwritten space is no piece of its own.
///
/// ```
/// use platfs::{Pieces, ondisk::units::Block};
///
/// let mut count = Pieces::default();
/// count.add(0, Block(100), 8);
/// count.add(8, Block(108), 8);
/// count.add(16, Block(500), 1);
/// assert_eq!((count.pieces(), count.blocks()), (2, 17));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    /// File block and disk block behind the last run.
    behind: Option<(u64, u64)>,
    pieces: u64,
    blocks: u64,
}

impl Pieces {
    /// Counts one more run of the file: its first file block, its first disk block, its blocks. Holes are left out.
    pub fn add(&mut self, logical: u64, start: Block, count: u64) {
        let follows = self.behind.is_some_and(|(file, disk)| {
            let gap = logical.saturating_sub(file);
            start.0 == disk || disk.checked_add(gap) == Some(start.0)
        });
        self.pieces = self.pieces.saturating_add(u64::from(!follows));
        self.blocks = self.blocks.saturating_add(count);
        self.behind = Some((logical.saturating_add(count), start.0.saturating_add(count)));
    }

    /// Pieces so far.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Blocks so far.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// A bin for each power of two that a number of clusters can reach.
const BINS: usize = 64;

/// The free runs of a volume, counted in clusters. A run goes on across groups.
///
/// ```
/// let image = platfs::Image::in_memory(8 << 20)?;
/// let free = platfs::FreeRuns::count(image.volume(), |_, _| {})?;
/// assert!(free.runs() > 0 && free.longest() >= free.shortest());
/// # Ok::<(), platfs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FreeRuns {
    /// For runs of 2^n clusters and more, below 2^(n+1): how many, and their clusters.
    bins: [(u64, u64); BINS],
    shortest: u64,
    longest: u64,
    /// The run that reaches the last cluster looked at.
    open: u64,
}

impl FreeRuns {
    fn new() -> Self {
        FreeRuns { bins: [(0, 0); BINS], shortest: u64::MAX, longest: 0, open: 0 }
    }

    /// Counts the free runs of a volume; `show` gets each bitmap on the way.
    ///
    /// # Errors
    /// A bitmap or descriptor that can't be read; the device's failure.
    pub fn count(volume: &Volume, mut show: impl FnMut(Group, &[u8])) -> Result<Self> {
        let geometry = &volume.format().geometry;
        let mut found = FreeRuns::new();
        for group in (0..geometry.groups).map(Group) {
            let bitmap = volume.block_bitmap(group)?;
            found.bitmap(&bitmap, u64::from(geometry.group_clusters(group)));
            show(group, &bitmap);
        }
        found.close();
        Ok(found)
    }

    /// Goes through the first `count` bits, whole words at once where they are all the same.
    fn bitmap(&mut self, bitmap: &[u8], count: u64) {
        let mut left = count;
        for word in bitmap.chunks(8) {
            let bits = left.min(64);
            let mut bytes = [0xFF; 8];
            for (to, from) in bytes.iter_mut().zip(word) {
                *to = *from;
            }
            self.word(u64::from_le_bytes(bytes), bits);
            left -= bits;
            if left == 0 {
                return;
            }
        }
    }

    fn word(&mut self, mut word: u64, mut bits: u64) {
        while bits > 0 {
            let free = u64::from(word.trailing_zeros()).min(bits);
            self.open += free;
            bits -= free;
            if bits == 0 {
                return;
            }
            self.close();
            word = word.checked_shr(low_u32(free)).unwrap_or(0);
            let used = u64::from(word.trailing_ones()).min(bits);
            bits -= used;
            word = word.checked_shr(low_u32(used)).unwrap_or(0);
        }
    }

    /// Ends the open run.
    fn close(&mut self) {
        let length = std::mem::take(&mut self.open);
        if length == 0 {
            return;
        }
        self.shortest = self.shortest.min(length);
        self.longest = self.longest.max(length);
        if let Some((runs, clusters)) = self.bins.get_mut(length.ilog2() as usize) {
            *runs += 1;
            *clusters += length;
        }
    }

    /// How many runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.bins.iter().map(|(runs, _)| runs).sum()
    }

    /// Clusters of all runs.
    #[must_use]
    pub fn clusters(&self) -> u64 {
        self.bins.iter().map(|(_, clusters)| clusters).sum()
    }

    /// Clusters of the shortest run; 0 if there is none.
    #[must_use]
    pub fn shortest(&self) -> u64 {
        if self.runs() == 0 { 0 } else { self.shortest }
    }

    /// Clusters of the longest run.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Bins in use: n, the runs of 2^n clusters and more, below 2^(n+1), and their clusters.
    pub fn bins(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let used = (0_u32..).zip(&self.bins).filter(|(_, (runs, _))| *runs > 0);
        used.map(|(bin, (runs, clusters))| (bin, *runs, *clusters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_words_and_groups() {
        let mut census = FreeRuns::new();
        let mut bitmap = [0_u8; 16];
        bitmap[0] = 0b0000_0111;
        bitmap[9] = 0b1000_0000;
        census.bitmap(&bitmap, 100);
        census.bitmap(&[0, 0xFF], 16);
        census.close();
        // 3 used, 76 free, 1 used, 20 free up to bit 100, 8 more in the next group.
        assert_eq!((census.runs(), census.clusters(), census.shortest(), census.longest()), (2, 104, 28, 76));
        assert_eq!(census.bins().collect::<Vec<_>>(), [(4, 1, 28), (6, 1, 76)]);
    }

    #[test]
    fn a_hole_that_the_disk_leaves_room_for_is_no_end_of_a_piece() {
        let mut count = Pieces::default();
        count.add(0, Block(100), 4);
        count.add(10, Block(110), 4);
        count.add(20, Block(114), 4);
        count.add(30, Block(9), u64::MAX);
        assert_eq!((count.pieces(), count.blocks()), (2, u64::MAX));
    }
}
