//! Free runs of a volume, by length and by place, as the bitmaps say.
//!
//! Owns: finding them, and taking room from a copy of the list. Excludes: who needs room, and moving anything. Files that
//! moved a moment ago count when the volume was committed.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::units::Group;
use platfs::{Error, Volume};

/// A row of clusters of a file.
pub(super) type Part = (u64, u64);

/// Each cluster of a volume: whether it is in use.
pub(super) fn each_cluster(volume: &Volume, mut visit: impl FnMut(u64, bool)) -> Result<(), Error> {
    let geometry = &volume.format().geometry;
    let mut first = 0;
    for group in (0..geometry.groups).map(Group) {
        let bitmap = volume.block_bitmap(group)?;
        let count = geometry.group_clusters(group);
        for index in 0..count {
            let byte = bitmap.get(index as usize / 8).copied().unwrap_or(0xFF);
            visit(first + u64::from(index), byte >> (index % 8) & 1 == 1);
        }
        first += u64::from(count);
    }
    Ok(())
}

/// Lengths of free runs, in clusters, and how many there are of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths(pub(super) BTreeMap<u64, u64>);

impl Lengths {
    pub(super) fn add(&mut self, length: u64) {
        if length > 0 {
            *self.0.entry(length).or_default() += 1;
        }
    }

    fn remove(&mut self, length: u64) {
        if let Some(count) = self.0.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&length);
            }
        }
    }

    pub(super) fn longest(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(length, _)| *length)
    }

    /// Takes clusters from the shortest run that holds them; says whether there was one.
    pub(super) fn take(&mut self, clusters: u64) -> bool {
        let Some(length) = self.0.range(clusters..).next().map(|(length, _)| *length) else { return false };
        self.remove(length);
        self.add(length - clusters);
        true
    }
}

/// Free runs by their lengths: these, and the first cluster of each.
pub(super) struct Tightest(BTreeSet<(u64, u64)>);

impl Tightest {
    /// Takes clusters from the shortest run that holds them: the first of them, and one past the last.
    pub(super) fn take(&mut self, clusters: u64) -> Option<(u64, u64)> {
        let (count, first) = self.0.range((clusters, 0)..).next().copied()?;
        self.0.remove(&(count, first));
        if count > clusters {
            self.0.insert((count - clusters, first + clusters));
        }
        Some((first, first + clusters))
    }

    pub(super) fn longest(&self) -> u64 {
        self.0.last().map_or(0, |(count, _)| *count)
    }

    /// The first cluster of the shortest run that holds `clusters` and does not touch the clusters from `first` on.
    pub(super) fn apart(&self, clusters: u64, first: u64) -> Option<u64> {
        let mut runs = self.0.range((clusters, 0)..);
        runs.find(|(count, start)| start + count != first && *start != first + clusters)
            .map(|(_, start)| *start)
    }
}

/// Free runs by their first cluster, and their lengths.
#[derive(Default)]
pub(super) struct Holes {
    pub(super) runs: BTreeMap<u64, u64>,
    pub(super) lengths: Lengths,
}

impl Holes {
    pub(super) fn of(volume: &Volume) -> Result<Self, Error> {
        let mut runs = BTreeMap::new();
        let mut open: Option<(u64, u64)> = None;
        each_cluster(volume, |cluster, used| match (used, &mut open) {
            (true, _) => runs.extend(open.take()),
            (false, Some((_, count))) => *count += 1,
            (false, None) => open = Some((cluster, 1)),
        })?;
        runs.extend(open);
        let mut lengths = Lengths::default();
        runs.values().for_each(|length| lengths.add(*length));
        Ok(Holes { runs, lengths })
    }

    /// The length of the run that clusters would be a part of if they were free.
    pub(super) fn around(&self, (first, count): Part) -> u64 {
        let before = self.runs.range(..first).next_back().filter(|(start, count)| *start + *count == first);
        let behind = self.runs.get(&(first + count));
        before.map_or(0, |(_, count)| *count) + count + behind.copied().unwrap_or(0)
    }

    /// The runs without what lies in some clusters, by their lengths.
    pub(super) fn by_length(&self, (start, end): (u64, u64)) -> Tightest {
        let parts = self.runs.iter().flat_map(|(first, count)| {
            let behind = *first.max(&end);
            [
                (*first, count.min(&start.saturating_sub(*first)).to_owned()),
                (behind, (first + count).saturating_sub(behind)),
            ]
        });
        Tightest(parts.filter(|(_, count)| *count > 0).map(|(first, count)| (count, first)).collect())
    }

    /// The lengths without what lies in some clusters.
    pub(super) fn outside(&self, (start, end): (u64, u64)) -> Lengths {
        let mut lengths = self.lengths.clone();
        for (first, count) in self.runs.range(..end).rev() {
            if first + count <= start {
                break;
            }
            lengths.remove(*count);
            lengths.add(start.saturating_sub(*first));
            lengths.add((first + count).saturating_sub(end));
        }
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_used_up_from_the_tightest() {
        let mut holes = Lengths(BTreeMap::from([(3, 1), (9, 2)]));
        assert!(holes.take(4) && holes.take(5) && holes.take(9) && !holes.take(9));
        assert_eq!(holes.0, BTreeMap::from([(3, 1)]));
    }

    #[test]
    fn holes_outside_of_a_window_keep_what_reaches_out_of_it() {
        let mut holes = Holes { runs: BTreeMap::from([(0, 4), (8, 20), (40, 3)]), ..Holes::default() };
        holes.runs.clone().values().for_each(|length| holes.lengths.add(*length));
        assert_eq!(holes.outside((10, 20)).0, BTreeMap::from([(2, 1), (3, 1), (4, 1), (8, 1)]));
        assert_eq!(holes.outside((30, 50)).0, BTreeMap::from([(4, 1), (20, 1)]));
        assert_eq!(holes.outside((4, 8)).0, holes.lengths.0);
        assert_eq!(holes.by_length((10, 20)).0, BTreeSet::from([(2, 8), (3, 40), (4, 0), (8, 20)]));
        assert_eq!((holes.around((4, 4)), holes.around((28, 11)), holes.around((30, 2))), (28, 31, 2));
    }
}
