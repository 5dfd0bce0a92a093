//! The order in which the data of files are copied: that of the walk, but where a free run ends.
//!
//! A volume's own structures (copies of the superblock, tables of later groups) cut the space for data into runs. A file
//! that does not fit the rest of a run waits for the next one, and the files behind it in the walk that do fit come
//! first: so no file is cut in two, and the rest is used up. What is left of a run when none fits stays free.

use ondisk::units::saturated;
use platfs::ondisk::units::Cluster;

use super::error::BuildError;
use super::fill::{Contents, Filler};
use super::size::{Shape, file_clusters};

/// The files (or segments of them) that are not copied yet, by their places in the walk.
pub(super) struct UncopiedFiles {
    /// Clusters of each; 0 once it is copied.
    sizes: Vec<u32>,
    /// By place: the least size from there on, as of the beginning.
    least: Vec<u32>,
    /// Clusters of all.
    pub(super) total: u64,
    /// All before it are copied.
    pub(super) first: usize,
}

impl UncopiedFiles {
    pub(super) fn new(sizes: Vec<u32>) -> Self {
        let mut least = sizes.clone();
        for at in (1..least.len()).rev() {
            least[at - 1] = least[at - 1].min(least[at]);
        }
        let total = sizes.iter().map(|size| u64::from(*size)).sum();
        UncopiedFiles { sizes, least, total, first: 0 }
    }

    /// The first file from a place on that takes no more than `room`.
    pub(super) fn find(&self, from: usize, room: u32) -> Option<usize> {
        let rest = self.sizes.get(from..)?.iter().zip(self.least.get(from..)?);
        let mut rest = rest.take_while(|(_, least)| **least <= room);
        rest.position(|(size, _)| (1..=room).contains(size)).map(|at| from + at)
    }

    /// Takes a file out; its clusters.
    pub(super) fn done(&mut self, at: usize) -> u32 {
        let size = std::mem::take(&mut self.sizes[at]);
        self.total -= u64::from(size);
        while self.sizes.get(self.first) == Some(&0) {
            self.first += 1;
        }
        size
    }
}

impl Filler<'_> {
    /// Copies the data of every file.
    ///
    /// # Errors
    /// As `Filler::file`.
    pub(super) fn data(&mut self, shape: &Shape) -> Result<(), BuildError> {
        self.lay(&mut self.catalogue.reader(), shape)
    }

    /// Lays out every file, with the bytes that `contents` gives.
    pub(super) fn lay(&mut self, contents: &mut dyn Contents, shape: &Shape) -> Result<(), BuildError> {
        if let Some(align) = self.align {
            self.align_cost = self.lay_aligned(contents, shape, align)?;
            return Ok(());
        }
        let catalogue = self.catalogue;
        let clusters = |node| saturated::<u32>(file_clusters(catalogue, shape, node));
        // A file of holes takes none; counted as one it is copied somewhere.
        let mut waiting = UncopiedFiles::new(self.files.iter().map(|node| clusters(*node).max(1)).collect());
        // Directories may have left some of a run behind them.
        self.volume.loader()?.go_on_at(Cluster(0));
        let (mut from, mut room, mut end) = (0, 0, 0);
        while waiting.total > 0 {
            if let Some(at) = waiting.find(from, room) {
                self.file(contents, self.files[at])?;
                room -= waiting.done(at);
                from = at + 1;
                continue;
            }
            // Files inside their inodes took nothing: there may be more room than was counted.
            let most = saturated::<u32>(waiting.total);
            let Some(run) = self.volume.loader()?.room_ahead(most)? else { break };
            if run.start.0 >= end {
                (from, room) = (waiting.first, run.count);
            } else if run.count != room {
                room = run.count;
            } else {
                self.volume.loader()?.go_on_at(Cluster(run.end()));
            }
            end = run.end();
        }
        // What no run holds is laid into those that are left.
        self.volume.loader()?.go_on_at(Cluster(0));
        while let Some(at) = waiting.find(waiting.first, u32::MAX) {
            self.file(contents, self.files[at])?;
            waiting.done(at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_comes_first() {
        let mut waiting = UncopiedFiles::new(vec![9, 4, 2, 7, 1]);
        assert_eq!(waiting.find(0, 5), Some(1));
        assert_eq!(waiting.done(1), 4);
        assert_eq!((waiting.find(2, 1), waiting.find(0, 3)), (Some(4), Some(2)));
        assert_eq!(waiting.done(0), 9);
        assert_eq!((waiting.first, waiting.total), (2, 10));
        assert_eq!(waiting.find(waiting.first, 0), None);
    }
}
