//! Delayed blocks of a file and the clusters reserved for them.
//!
//! A delayed block reserves a cluster only if no other block of the file shares it, delayed or
//! mapped. If a mapped one does, no reservation is made and the cluster is *pending*: should its
//! mapped part be freed while delayed blocks remain in it, it is reserved again instead of given
//! back.

use super::{Clusters, Span};
use std::collections::{BTreeMap, BTreeSet};

/// The delayed blocks of one file.
#[derive(Clone, Debug, Default)]
pub struct Delayed {
    /// First block and the one past the last of maximal runs.
    runs: BTreeMap<u64, u64>,
    /// Clusters that are allocated and have delayed blocks, too.
    pending: BTreeSet<u64>,
    reserved: u64,
}

impl Delayed {
    /// Clusters reserved for the file: what a promise must cover.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Whether the cluster is allocated and has delayed blocks, so that freeing its allocated part
    /// must reserve it again.
    #[must_use]
    pub fn is_pending(&self, cluster: u64) -> bool {
        self.pending.contains(&cluster)
    }

    /// Clusters a write of these blocks would have to reserve; `is_allocated` tells whether a
    /// cluster of the file has mapped blocks. Ask before [`Delayed::add`], to get the promise first.
    #[must_use]
    pub fn needs(&self, clusters: Clusters, span: &Span, is_allocated: impl Fn(u64) -> bool) -> u64 {
        if span.is_empty() {
            return 0;
        }
        let needed = |cluster: &u64| !is_allocated(*cluster) && !self.any_in(clusters, *cluster);
        clusters.touched(span).filter(needed).count() as u64
    }

    /// Delays these blocks, none of which is mapped; some may be delayed already. Returns the number
    /// of clusters reserved for them.
    pub fn add(&mut self, clusters: Clusters, span: &Span, is_allocated: impl Fn(u64) -> bool) -> u64 {
        if span.is_empty() {
            return 0;
        }
        let more = self.needs(clusters, span, &is_allocated);
        self.pending.extend(clusters.touched(span).filter(|&cluster| is_allocated(cluster)));
        let (mut from, mut to) = (span.start, span.end);
        let touching: Vec<(u64, u64)> = self.overlapping(span.start.saturating_sub(1)..span.end + 1);
        for (start, end) in touching {
            self.runs.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.runs.insert(from, to);
        self.reserved += more;
        more
    }

    /// These blocks are no longer delayed: they were written (then their clusters are allocated) or
    /// removed. `is_allocated` tells of the clusters as they are from now on.
    ///
    /// The reservation of a cluster ends when it is allocated or has no delayed block left. A
    /// cluster that is allocated now and still has delayed blocks becomes pending.
    pub fn remove(&mut self, clusters: Clusters, span: &Span, is_allocated: impl Fn(u64) -> bool) -> u64 {
        let mut touched = BTreeSet::new();
        for (start, end) in self.overlapping(span.clone()) {
            self.runs.remove(&start);
            if start < span.start {
                self.runs.insert(start, span.start);
            }
            if end > span.end {
                self.runs.insert(span.end, end);
            }
            touched.extend(clusters.touched(&(start.max(span.start)..end.min(span.end))));
        }
        let mut less = 0;
        for cluster in touched {
            let (delayed, allocated) = (self.any_in(clusters, cluster), is_allocated(cluster));
            let was_pending = self.pending.contains(&cluster);
            if !was_pending && (allocated || !delayed) {
                less += 1;
            }
            if delayed && allocated {
                self.pending.insert(cluster);
            } else if !delayed {
                self.pending.remove(&cluster);
            }
        }
        self.reserved -= less;
        less
    }

    /// The mapped blocks of a cluster are gone. True if delayed blocks remain: then the cluster must
    /// be reserved again, and is counted so here.
    pub fn freed(&mut self, cluster: u64) -> bool {
        let again = self.pending.remove(&cluster);
        self.reserved += u64::from(again);
        again
    }

    /// A cluster with delayed blocks was allocated for blocks that were not delayed. Returns 1 if a
    /// reservation is no longer needed.
    pub fn allocated(&mut self, clusters: Clusters, cluster: u64) -> u64 {
        if !self.any_in(clusters, cluster) || !self.pending.insert(cluster) {
            return 0;
        }
        self.reserved -= 1;
        1
    }

    fn any_in(&self, clusters: Clusters, cluster: u64) -> bool {
        let first = cluster * clusters.blocks();
        !self.overlapping(first..first + clusters.blocks()).is_empty()
    }

    /// The runs that share a block with `span`.
    fn overlapping(&self, span: Span) -> Vec<(u64, u64)> {
        let before = self.runs.range(..span.start).next_back().filter(|(_, end)| **end > span.start);
        let inside = self.runs.range(span);
        before.into_iter().chain(inside).map(|(start, end)| (*start, *end)).collect()
    }
}
