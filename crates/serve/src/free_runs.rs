//! How free space is cut up, with the figures and bins of e2freefrag(8).
//!
//! On volumes with clusters, where e2freefrag reports nothing, runs are those of clusters. Owns: the units. Excludes: the
//! counting, which is the library's, and how it is shown.

use ondisk::geometry::Geometry;
use ondisk::units::Group;
use platfs::{FreeRuns, Volume};
use serde_json::{Value, json};

/// Part of a whole, in percent; 0 of nothing.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The figures of a volume, in the units that are printed.
pub struct Figures {
    geometry: Geometry,
    census: FreeRuns,
}

/// Counts the free runs of a volume; each bitmap is shown on the way.
///
/// # Errors
/// A bitmap or descriptor that can't be read.
pub fn figures(volume: &Volume, show: impl FnMut(Group, &[u8])) -> platfs::Result<Figures> {
    Ok(Figures { geometry: volume.format().geometry, census: FreeRuns::count(volume, show)? })
}

impl Figures {
    /// The geometry of the volume.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Clusters of the longest run.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.census.longest()
    }

    /// Number of free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.blocks(self.census.clusters())
    }

    /// Number of free runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.census.runs()
    }

    /// Blocks of the longest run.
    #[must_use]
    pub fn longest_blocks(&self) -> u64 {
        self.blocks(self.census.longest())
    }

    /// The bins as JSON.
    #[must_use]
    pub fn histogram(&self) -> Value {
        let bins = self.bins().map(|(low, high, runs, blocks)| {
            json!({ "from_bytes": low, "below_bytes": high, "extents": runs, "blocks": blocks })
        });
        bins.collect::<Vec<_>>().into()
    }

    /// Blocks of a number of clusters.
    #[must_use]
    pub fn blocks(&self, clusters: u64) -> u64 {
        clusters << self.geometry.cluster_log2
    }

    /// KiB of a number of clusters.
    #[must_use]
    pub fn kilobytes(&self, clusters: u64) -> u64 {
        self.blocks(clusters) << self.geometry.block_size.log2() >> 10
    }

    /// Clusters of the shortest run.
    #[must_use]
    pub fn shortest(&self) -> u64 {
        self.census.shortest()
    }

    /// Mean length of a run in KiB, of a whole number of blocks as e2freefrag has it.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.kilobytes(self.census.clusters().checked_div(self.census.runs()).unwrap_or(0))
    }

    /// First byte count of a bin, the first of the next, its runs and blocks; bins in use only.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64, u64, u64)> {
        let unit = self.geometry.block_size.log2() + self.geometry.cluster_log2;
        self.census.bins().map(move |(bin, runs, clusters)| {
            let low = 1_u64.checked_shl(bin + unit).unwrap_or(u64::MAX);
            (low, low.saturating_mul(2), runs, self.blocks(clusters))
        })
    }
}
