//! Removing blocks of a file from right to left, and which clusters become free by it.
//!
//! Extents are removed one after the other, the last first. The cluster at an extent's left edge
//! may be shared with the extent before it, which is not looked at yet; so it is carried along as
//! a *partial* cluster until the next extent, or the end of the removal, decides.

use super::{Clusters, Delayed, Extent, Span};

/// What is known of the cluster that the removal has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// Nothing is carried.
    #[default]
    Initial,
    /// All its blocks seen so far are removed; if none to the left uses it, it is free. Physical and
    /// logical cluster.
    ToFree(u64, u64),
    /// A block to the right of what is removed stays in this physical cluster.
    NotToFree(u64),
}

/// A cluster whose last mapped block is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The cluster of the volume.
    pub physical: u64,
    /// True if delayed blocks of the file remain in it: the file's reservation grows by one, which
    /// the caller takes from what this free gives.
    pub reserve_again: bool,
}

/// A removal under way.
#[derive(Debug)]
pub struct Removal {
    clusters: Clusters,
    partial: Partial,
}

impl Removal {
    /// Begins the removal of the blocks before `end`. `right` is the first extent that stays behind
    /// them, if any: a cluster it begins in must not be freed.
    #[must_use]
    pub fn new(clusters: Clusters, end: u64, right: Option<Extent>) -> Self {
        let shared = right.filter(|right| {
            let first = u64::from(right.logical.0);
            end > 0 && first >= end && clusters.of(first) == clusters.of(end - 1)
        });
        let partial =
            shared.map_or(Partial::Initial, |right| Partial::NotToFree(clusters.of(right.physical.0)));
        Removal { clusters, partial }
    }

    /// What is carried.
    #[must_use]
    pub fn partial(&self) -> Partial {
        self.partial
    }

    /// Removes the blocks `span` of `extent`, which contains them; nothing of the file between
    /// them and what was removed before stays mapped, except in the extent itself. Tells the clusters
    /// that became free, from right to left.
    pub fn remove(&mut self, extent: Extent, span: &Span, delayed: &mut Delayed) -> Vec<Freed> {
        let logical = u64::from(extent.logical.0);
        if span.is_empty() || span.start < logical || span.end > extent.end() {
            return Vec::new();
        }
        let physical = |block: u64| self.clusters.of(extent.physical.0 + (block - logical));
        let (first, last) = (physical(span.start), physical(span.end - 1));
        let mut freed = Vec::new();
        if let Partial::ToFree(cluster, at) = self.partial
            && cluster != last
        {
            freed.push(free(cluster, at, delayed));
            self.partial = Partial::Initial;
        }
        // The extent's own tail may stay in the cluster at the right edge.
        if span.end < extent.end() && physical(span.end) == last {
            self.partial = Partial::NotToFree(last);
        }
        for cluster in (first..=last).rev() {
            let at = self.clusters.of(span.end - 1) - (last - cluster);
            let kept = self.partial == Partial::NotToFree(cluster);
            if cluster > first {
                if !kept {
                    freed.push(free(cluster, at, delayed));
                }
                self.partial = Partial::Initial;
            } else if !kept {
                self.partial = Partial::ToFree(cluster, at);
            }
        }
        // A part of the extent to the left stays and uses the cluster.
        if span.start > logical && physical(span.start - 1) == first {
            self.partial = Partial::NotToFree(first);
        }
        freed
    }

    /// Ends the removal. `left` is the last extent that stays before what was removed, if any.
    pub fn finish(self, left: Option<Extent>, delayed: &mut Delayed) -> Option<Freed> {
        let Partial::ToFree(cluster, at) = self.partial else { return None };
        let shares = |left: Extent| self.clusters.of(left.physical.0 + u64::from(left.count) - 1) == cluster;
        let shared = left.filter(|left| left.count > 0).is_some_and(shares);
        (!shared).then(|| free(cluster, at, delayed))
    }
}

fn free(physical: u64, logical: u64, delayed: &mut Delayed) -> Freed {
    Freed { physical, reserve_again: delayed.freed(logical) }
}
