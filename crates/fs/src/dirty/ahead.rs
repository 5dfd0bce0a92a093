//! Space promised to bytes that are on their way: somebody took them from their writer, and will hand them over later.
//!
//! Owns: which blocks of one file such bytes may take, and the promise that waits for them. Excludes: which of a file's
//! blocks need one at all, and when such bytes are waited for no more (`ops::expect`).

use std::collections::BTreeMap;
use std::sync::Arc;

use placement::Promise;

use crate::charges::Reserved;
use crate::ranges::FileBlocks;

/// Space promised to bytes of one file that are still to come.
#[derive(Default)]
pub(crate) struct AwaitedWrites {
    /// Stretches of file blocks, by their first; no two touch.
    parts: BTreeMap<u64, u64>,
    /// Clusters in all of them.
    clusters: u64,
    /// Space for the stretches and for what their map may need.
    promise: Option<Promise>,
    /// Reservation for them within the limits of the owner.
    pub(crate) reserved: Option<Arc<Reserved>>,
}

impl AwaitedWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Stretches, and the clusters in them.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.parts.len() as u64, self.clusters)
    }

    /// Clusters that are promised.
    pub(crate) fn promised(&self) -> u64 {
        self.promise.as_ref().map_or(0, Promise::count)
    }

    /// The parts of some blocks that do not wait for bytes yet.
    pub(crate) fn missing(&self, blocks: FileBlocks) -> Vec<FileBlocks> {
        let (mut missing, mut next) = (Vec::new(), blocks.start);
        let before = self.parts.range(..=blocks.start).next_back().map_or(blocks.start, |(start, _)| *start);
        for (start, end) in self.parts.range(before..blocks.end.max(before)) {
            if *start > next {
                missing.push(FileBlocks::new(next, *start));
            }
            next = next.max(*end);
        }
        if next < blocks.end {
            missing.push(FileBlocks::new(next, blocks.end));
        }
        missing
    }

    /// Bytes of these blocks are waited for.
    pub(crate) fn add(&mut self, blocks: FileBlocks, cluster_log2: u32) {
        let FileBlocks { mut start, mut end } = blocks;
        let touching = |parts: &BTreeMap<u64, u64>, end: u64, start: u64| {
            parts.range(..=end).next_back().filter(|(_, to)| **to >= start).map(|(from, to)| (*from, *to))
        };
        while let Some((from, to)) = touching(&self.parts, end, start) {
            self.parts.remove(&from);
            self.clusters -= clusters(FileBlocks::new(from, to), cluster_log2);
            (start, end) = (start.min(from), end.max(to));
        }
        self.parts.insert(start, end);
        self.clusters += clusters(FileBlocks::new(start, end), cluster_log2);
    }

    /// Clusters of some blocks that wait for bytes.
    pub(crate) fn waiting(&self, blocks: FileBlocks, cluster_log2: u32) -> u64 {
        let before = self.parts.range(..=blocks.start).next_back().map_or(blocks.start, |(start, _)| *start);
        let parts = self.parts.range(before..blocks.end.max(before));
        parts.map(|(start, end)| clusters(FileBlocks::new(*start, *end).within(blocks), cluster_log2)).sum()
    }

    /// Bytes of these blocks have come.
    pub(crate) fn came(&mut self, blocks: FileBlocks, cluster_log2: u32) {
        let inside = |parts: &BTreeMap<u64, u64>| {
            parts
                .range(..blocks.end)
                .next_back()
                .filter(|(_, to)| **to > blocks.start)
                .map(|(from, to)| FileBlocks::new(*from, *to))
        };
        while let Some(part) = inside(&self.parts) {
            self.parts.remove(&part.start);
            self.clusters -= clusters(part, cluster_log2);
            for rest in [FileBlocks::new(part.start, blocks.start), FileBlocks::new(blocks.end, part.end)] {
                if !rest.is_empty() {
                    self.parts.insert(rest.start, rest.end);
                    self.clusters += clusters(rest, cluster_log2);
                }
            }
        }
    }

    /// Adds to what is promised.
    pub(crate) fn join(&mut self, more: Promise) {
        match &mut self.promise {
            Some(promise) => promise.join(more),
            none => *none = Some(more),
        }
    }

    /// Gives up to `most` clusters of what is promised beyond `kept`.
    pub(crate) fn split_promise(&mut self, most: u64, kept: u64) -> Option<Promise> {
        let promise = self.promise.as_mut()?;
        let spare = promise.count().saturating_sub(kept).min(most);
        (spare > 0).then(|| promise.split(spare))
    }
}

/// Clusters that some blocks touch.
pub(crate) fn clusters(blocks: FileBlocks, cluster_log2: u32) -> u64 {
    if blocks.is_empty() {
        0
    } else {
        ((blocks.end - 1) >> cluster_log2) - (blocks.start >> cluster_log2) + 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn blocks(start: u64, end: u64) -> FileBlocks {
        FileBlocks::new(start, end)
    }

    #[test]
    fn stretches_are_as_a_set_of_blocks() {
        let mut random = testkit::random::Random(7);
        for _ in 0..200 {
            let (mut ahead, mut model) = (AwaitedWrites::default(), BTreeSet::new());
            for _ in 0..60 {
                let start = random.below(60);
                let range = start..start + 1 + random.below(12);
                let these = blocks(range.start, range.end);
                let missing: BTreeSet<u64> =
                    ahead.missing(these).iter().flat_map(|part| part.start..part.end).collect();
                assert_eq!(missing, range.clone().filter(|block| !model.contains(block)).collect());
                if random.below(2) == 0 {
                    ahead.add(these, 0);
                    model.extend(range);
                } else {
                    let waiting = ahead.waiting(these, 0);
                    assert_eq!(waiting, range.clone().filter(|block| model.remove(block)).count() as u64);
                    ahead.came(these, 0);
                }
                assert_eq!(ahead.size().1, model.len() as u64);
                let mut ends = ahead.parts.iter();
                let mut last = ends.next().map(|(_, end)| *end);
                for (start, end) in ends {
                    assert!(last.is_some_and(|last| last < *start), "stretches touch");
                    last = Some(*end);
                }
            }
        }
    }

    #[test]
    fn clusters_count_where_they_are_touched() {
        assert_eq!(clusters(blocks(3, 5), 2), 2);
        assert_eq!(clusters(blocks(4, 8), 2), 1);
        assert_eq!(clusters(blocks(5, 5), 2), 0);
    }
}
