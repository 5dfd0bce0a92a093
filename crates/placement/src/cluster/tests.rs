//! The rules against a list of blocks.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(index: u64) -> usize {
    usize::try_from(index).unwrap()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Hole,
    Delayed,
    Mapped(u64),
}

struct Naive {
    clusters: Clusters,
    blocks: Vec<What>,
    delayed: Delayed,
    /// Clusters of the volume in use.
    used: BTreeSet<u64>,
    next: u64,
}

impl Naive {
    fn mapped_in(&self, cluster: u64) -> Option<u64> {
        let first = cluster * self.clusters.blocks();
        let blocks = (first..first + self.clusters.blocks()).filter_map(|at| self.blocks.get(self::at(at)));
        blocks
            .filter_map(|what| if let What::Mapped(at) = what { Some(self.clusters.of(*at)) } else { None })
            .next()
    }

    fn delayed_in(&self, cluster: u64) -> bool {
        let first = cluster * self.clusters.blocks();
        (first..first + self.clusters.blocks())
            .any(|at| self.blocks.get(self::at(at)) == Some(&What::Delayed))
    }

    fn allocated(&self) -> Vec<bool> {
        let last = self.clusters.of(self.blocks.len() as u64);
        (0..=last).map(|cluster| self.mapped_in(cluster).is_some()).collect()
    }

    fn extents(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for (at, what) in (0u32..).zip(&self.blocks) {
            let What::Mapped(physical) = *what else { continue };
            match extents.last_mut() {
                Some(last)
                    if last.end() == u64::from(at) && last.physical.0 + u64::from(last.count) == physical =>
                {
                    last.count += 1;
                }
                _ => extents.push(Extent { logical: FileBlock(at), physical: Block(physical), count: 1 }),
            }
        }
        extents
    }

    fn delay(&mut self, span: Span) {
        let mut at = span.start;
        while at < span.end {
            let end = (at..span.end).find(|at| matches!(self.blocks[self::at(*at)], What::Mapped(_)));
            let end = end.unwrap_or(span.end);
            let allocated = self.allocated();
            let before = self.delayed.reserved();
            let needed = self.delayed.needs(self.clusters, &(at..end), |c| allocated[self::at(c)]);
            let more = self.delayed.add(self.clusters, &(at..end), |c| allocated[self::at(c)]);
            assert_eq!((needed, before + more), (more, self.delayed.reserved()));
            self.blocks[self::at(at)..self::at(end)].fill(What::Delayed);
            at = end + 1;
        }
    }

    fn write(&mut self, span: Span, jump: u64) {
        let mut at = span.start;
        while at < span.end {
            if matches!(self.blocks[self::at(at)], What::Mapped(_)) {
                at += 1;
                continue;
            }
            let extents = self.extents();
            let left = extents.iter().copied().rfind(|extent| extent.end() <= at);
            let right = extents.iter().copied().find(|extent| u64::from(extent.logical.0) > at);
            let count = u32::try_from(span.end - at).unwrap();
            let cluster = self.clusters.of(at);
            let implied = self.clusters.implied(FileBlock(u32::try_from(at).unwrap()), count, left, right);
            assert_eq!(implied.map(|(block, _)| self.clusters.of(block.0)), self.mapped_in(cluster));
            let (place, count) = implied.unwrap_or_else(|| {
                self.next += 1 + jump;
                self.used.insert(self.next);
                let end = ((cluster + 1) * self.clusters.blocks()).min(span.end);
                (
                    Block(self.next * self.clusters.blocks() + self.clusters.inside(at)),
                    u32::try_from(end - at).unwrap(),
                )
            });
            for step in 0..u64::from(count) {
                assert!(!matches!(self.blocks[self::at(at + step)], What::Mapped(_)));
                self.blocks[self::at(at + step)] = What::Mapped(place.0 + step);
            }
            self.delayed.remove(self.clusters, &(at..at + u64::from(count)), |_| true);
            self.delayed.allocated(self.clusters, cluster);
            at += u64::from(count);
        }
    }

    fn remove(&mut self, span: Span) {
        let extents = self.extents();
        let allocated = self.allocated();
        for at in span.clone() {
            if self.blocks[self::at(at)] == What::Delayed {
                self.blocks[self::at(at)] = What::Hole;
            }
        }
        self.delayed.remove(self.clusters, &span, |c| allocated[self::at(c)]);
        let right = extents.iter().copied().find(|extent| u64::from(extent.logical.0) >= span.end);
        let mut removal = Removal::new(self.clusters, span.end, right);
        let mut freed = Vec::new();
        for extent in extents.iter().rev() {
            let start = u64::from(extent.logical.0).max(span.start);
            let end = extent.end().min(span.end);
            if start < end {
                freed.extend(removal.remove(*extent, &(start..end), &mut self.delayed));
                self.blocks[self::at(start)..self::at(end)].fill(What::Hole);
            }
        }
        let left = extents.iter().copied().rfind(|extent| extent.end() <= span.start);
        freed.extend(removal.finish(left, &mut self.delayed));
        for freed in freed {
            assert!(self.used.remove(&freed.physical), "{freed:?} is free already");
        }
    }

    fn compare(&self) {
        let last = self.clusters.of(self.blocks.len() as u64);
        let mapped: BTreeSet<u64> = (0..=last).filter_map(|cluster| self.mapped_in(cluster)).collect();
        assert_eq!(self.used, mapped);
        let waits = |cluster: &u64| self.delayed_in(*cluster) && self.mapped_in(*cluster).is_none();
        assert_eq!(self.delayed.reserved(), (0..=last).filter(waits).count() as u64);
        for cluster in 0..=last {
            let both = self.delayed_in(cluster) && self.mapped_in(cluster).is_some();
            assert_eq!(self.delayed.is_pending(cluster), both, "cluster {cluster}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn agrees_with_a_list_of_blocks(
        log2 in 0u32..5,
        size in 20u64..220,
        steps in prop::collection::vec((0u8..5, any::<u64>(), 1u64..60, 0u64..2), 1..80),
    ) {
        let mut naive = Naive {
            clusters: Clusters::new(log2),
            blocks: vec![What::Hole; self::at(size)],
            delayed: Delayed::default(),
            used: BTreeSet::new(),
            next: 7,
        };
        for (what, at, length, jump) in steps {
            let start = at % size;
            let span = start..(start + length).min(size);
            match what {
                0 | 1 => naive.delay(span),
                2 => naive.write(span, jump),
                3 => naive.remove(span),
                _ => naive.remove(start..size),
            }
            naive.compare();
        }
    }
}

#[test]
fn a_block_goes_beside_its_neighbours() {
    let clusters = Clusters::new(4);
    let left = Extent { logical: FileBlock(16), physical: Block(32), count: 5 };
    let right = Extent { logical: FileBlock(28), physical: Block(44), count: 4 };
    let place = |at, count| clusters.implied(FileBlock(at), count, Some(left), Some(right));
    assert_eq!(place(23, 100), Some((Block(39), 5)));
    assert_eq!(place(23, 2), Some((Block(39), 2)));
    assert_eq!(clusters.implied(FileBlock(40), 1, Some(right), None), None);
    assert_eq!(clusters.implied(FileBlock(18), 9, None, Some(right)), Some((Block(34), 9)));
}
