//! Clusters of several blocks (`bigalloc`): which blocks a cluster already serves, what delayed
//! writes must reserve, and what a removal may free.
//!
//! A bit of the bitmap is a cluster, but extents count blocks; so a cluster may be begun by one
//! extent and gone on with by the next. Owns the rules that follow from it, for one file at a time,
//! in logical blocks. Excludes the map of the file and the free space: both are the caller's, who
//! asks here what to do with them.
//!
//! - A block whose cluster already backs a neighbour takes its place there: [`Clusters::implied`].
//! - A delayed block reserves its cluster once, and not at all where the cluster is allocated:
//!   [`Delayed`]. Where a cluster is both allocated and delayed, that is remembered (*pending*), so
//!   that freeing the allocated part turns it back into a reservation.
//! - A removal goes from right to left and frees a cluster when the last of its blocks is gone:
//!   [`Removal`].

mod delayed;
mod removal;

pub use delayed::Delayed;
pub use removal::{Freed, Partial, Removal};

use ondisk::units::{Block, FileBlock};

/// Blocks of a file: first, and how many.
pub type Span = std::ops::Range<u64>;

/// The arithmetic of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clusters {
    log2: u32,
}

/// An extent of a file's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub logical: FileBlock,
    /// Block of the volume that it is on, counted from the volume's first cluster.
    pub physical: Block,
    /// Blocks.
    pub count: u32,
}

impl Extent {
    fn end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.count)
    }
}

impl Clusters {
    /// Clusters of `2^log2` blocks.
    #[must_use]
    pub fn new(log2: u32) -> Self {
        Clusters { log2: log2.min(31) }
    }

    /// Blocks of a cluster.
    #[must_use]
    pub fn blocks(self) -> u64 {
        1 << self.log2
    }

    /// The cluster of a block, in the file or on the volume.
    #[must_use]
    pub fn of(self, block: u64) -> u64 {
        block >> self.log2
    }

    /// The place of a block in its cluster.
    #[must_use]
    pub fn inside(self, block: u64) -> u64 {
        block & (self.blocks() - 1)
    }

    /// Clusters that some blocks touch.
    #[must_use]
    pub fn touched(self, span: &Span) -> std::ops::RangeInclusive<u64> {
        self.of(span.start)..=self.of(span.end.max(span.start + 1) - 1)
    }

    /// Where up to `count` new blocks from `logical` on must lie because their cluster already backs
    /// a neighbour: the place of the first, and how many of them (to the end of the cluster or to
    /// the next mapped block). `left` is the last extent before `logical`, `right` the first behind;
    /// neither may contain it.
    #[must_use]
    pub fn implied(
        self,
        logical: FileBlock,
        count: u32,
        left: Option<Extent>,
        right: Option<Extent>,
    ) -> Option<(Block, u32)> {
        let at = u64::from(logical.0);
        let cluster = self.of(at);
        let before = left.filter(|left| left.count > 0 && self.of(left.end() - 1) == cluster);
        let behind = right.filter(|right| self.of(u64::from(right.logical.0)) == cluster);
        let base = match (before, behind) {
            (Some(left), _) => self.of(left.physical.0 + u64::from(left.count) - 1),
            (None, Some(right)) => self.of(right.physical.0),
            (None, None) => return None,
        };
        let next = right.map_or(u64::MAX, |right| u64::from(right.logical.0));
        let room = next.min((cluster + 1) << self.log2).saturating_sub(at);
        let count = u32::try_from(room).unwrap_or(u32::MAX).min(count);
        Some((Block((base << self.log2) + self.inside(at)), count))
    }
}

#[cfg(test)]
mod tests;
