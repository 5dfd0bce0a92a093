//! How free space is cut up, with the figures and bins of e2freefrag(8).
//!
//! On volumes with clusters, where e2freefrag reports nothing, runs are those of clusters. Owns: the counting. Excludes:
//! how it is shown.

use ondisk::geometry::Geometry;
use ondisk::units::Group;
use platfs::Volume;
use serde_json::{Value, json};

/// A bin for each power of two that a number of clusters can reach.
const BINS: usize = 64;

/// Free runs of a volume, counted.
struct Census {
    /// For runs of 2^n clusters and more, below 2^(n+1): how many, and their clusters.
    bins: [(u64, u64); BINS],
    shortest: u64,
    longest: u64,
    /// The run that reaches the last cluster looked at.
    open: u64,
}

impl Census {
    /// The free runs of a volume; `show` gets each bitmap, too.
    fn of(volume: &Volume, mut show: impl FnMut(Group, &[u8])) -> platfs::Result<Self> {
        let geometry = &volume.format().geometry;
        let mut census = Census { bins: [(0, 0); BINS], shortest: u64::MAX, longest: 0, open: 0 };
        for group in (0..geometry.groups).map(Group) {
            let bitmap = volume.block_bitmap(group)?;
            census.bitmap(&bitmap, u64::from(geometry.group_clusters(group)));
            show(group, &bitmap);
        }
        census.close();
        Ok(census)
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
            word = word.checked_shr(ondisk::units::low_u32(free)).unwrap_or(0);
            let used = u64::from(word.trailing_ones()).min(bits);
            bits -= used;
            word = word.checked_shr(ondisk::units::low_u32(used)).unwrap_or(0);
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

    fn runs(&self) -> u64 {
        self.bins.iter().map(|(runs, _)| runs).sum()
    }

    fn clusters(&self) -> u64 {
        self.bins.iter().map(|(_, clusters)| clusters).sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The figures of a volume, in the units that are printed.
pub(crate) struct Figures {
    geometry: Geometry,
    census: Census,
}

/// Counts the free runs of a volume; each bitmap is shown on the way.
///
/// # Errors
/// A bitmap or descriptor that can't be read.
pub(crate) fn figures(volume: &Volume, show: impl FnMut(Group, &[u8])) -> platfs::Result<Figures> {
    Ok(Figures { geometry: volume.format().geometry, census: Census::of(volume, show)? })
}

impl Figures {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Clusters of the longest run.
    pub(crate) fn longest(&self) -> u64 {
        self.census.longest
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.blocks(self.census.clusters())
    }

    pub(crate) fn runs(&self) -> u64 {
        self.census.runs()
    }

    pub(crate) fn longest_blocks(&self) -> u64 {
        self.blocks(self.census.longest)
    }

    /// The bins as JSON.
    pub(crate) fn histogram(&self) -> Value {
        let bins = self.bins().map(|(low, high, runs, blocks)| {
            json!({ "from_bytes": low, "below_bytes": high, "extents": runs, "blocks": blocks })
        });
        bins.collect::<Vec<_>>().into()
    }

    pub(crate) fn blocks(&self, clusters: u64) -> u64 {
        clusters << self.geometry.cluster_log2
    }

    pub(crate) fn kilobytes(&self, clusters: u64) -> u64 {
        self.blocks(clusters) << self.geometry.block_size.log2() >> 10
    }

    pub(crate) fn shortest(&self) -> u64 {
        if self.census.runs() == 0 { 0 } else { self.census.shortest }
    }

    /// Mean length of a run in KiB, of a whole number of blocks as e2freefrag has it.
    pub(crate) fn mean(&self) -> u64 {
        self.kilobytes(self.census.clusters().checked_div(self.census.runs()).unwrap_or(0))
    }

    /// First byte count of a bin, the first of the next, its runs and blocks; bins in use only.
    pub(crate) fn bins(&self) -> impl Iterator<Item = (u64, u64, u64, u64)> {
        let unit = self.geometry.block_size.log2() + self.geometry.cluster_log2;
        let used = self.census.bins.iter().zip(0_u32..).filter(|((runs, _), _)| *runs > 0);
        used.map(move |((runs, clusters), bin)| {
            let low = 1_u64.checked_shl(bin + unit).unwrap_or(u64::MAX);
            (low, low.saturating_mul(2), *runs, self.blocks(*clusters))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_words_and_groups() {
        let mut census = Census { bins: [(0, 0); BINS], shortest: u64::MAX, longest: 0, open: 0 };
        let mut bitmap = [0_u8; 16];
        bitmap[0] = 0b0000_0111;
        bitmap[9] = 0b1000_0000;
        census.bitmap(&bitmap, 100);
        census.bitmap(&[0, 0xFF], 16);
        census.close();
        // 3 used, 76 free, 1 used, 20 free up to bit 100, 8 more in the next group.
        assert_eq!((census.runs(), census.clusters(), census.shortest, census.longest), (2, 104, 28, 76));
        assert_eq!((census.bins[4], census.bins[6]), ((1, 28), (1, 76)));
    }
}
