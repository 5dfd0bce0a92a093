//! Longer free runs: all files leave a stretch of the volume for holes elsewhere.
//!
//! The volume is seen in units of a few clusters. A window is a row of units in which all that is in use belongs to files
//! that may move; the cheapest one is emptied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::units::{Block, Cluster, Group, InodeNumber};
use platfs::{Error, Relocation, State, Towards, Volume};

use super::{Torn, Work, as_path};
use crate::bulk::Halt;

/// Clusters of a unit.
const UNIT: u64 = 16;

/// What a cluster of a file costs that is in pieces, and of one that is whole: it has to move as a whole.
const COST: [u64; 2] = [10, 13];

/// A run that a nearly empty stretch of the volume becomes.
const STRETCH: u64 = 512;

/// How often files are tried again for which there was no room.
const ROUNDS: u32 = 6;

/// Pieces in which a part of a file may leave, beside those that it has.
const MORE_PIECES: u64 = 8;

/// Each cluster of a volume: whether it is in use.
fn each_cluster(volume: &Volume, mut visit: impl FnMut(u64, bool)) -> Result<(), Error> {
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
pub(super) type Lengths = BTreeMap<u64, u64>;

/// Those of a volume, without what lies in some clusters.
pub(super) fn lengths(volume: &Volume, without: (u64, u64)) -> Result<Lengths, Error> {
    let (mut lengths, mut open) = (Lengths::new(), 0);
    let mut close = |open: u64| {
        if open > 0 {
            *lengths.entry(open).or_default() += 1;
        }
    };
    each_cluster(volume, |cluster, used| match used || cluster >= without.0 && cluster < without.1 {
        true => close(std::mem::take(&mut open)),
        false => open += 1,
    })?;
    close(open);
    Ok(lengths)
}

/// Takes clusters from the shortest run that holds them; says whether there was one.
pub(super) fn take(lengths: &mut Lengths, clusters: u64) -> bool {
    let Some(length) = lengths.range(clusters..).next().map(|(length, _)| *length) else { return false };
    if let Some(count) = lengths.get_mut(&length) {
        *count -= 1;
        if *count == 0 {
            lengths.remove(&length);
        }
    }
    if length > clusters {
        *lengths.entry(length - clusters).or_default() += 1;
    }
    true
}

/// A row of clusters of a file.
type Part = (u64, u64);

/// A file that may move.
#[derive(Clone, Default)]
struct Mover {
    pieces: u64,
    parts: Vec<Part>,
}

impl Mover {
    fn clusters(&self) -> u64 {
        self.parts.iter().map(|(_, count)| count).sum()
    }

    fn cost(&self) -> u64 {
        COST[usize::from(self.pieces <= 1)]
    }

    /// Its clusters among some.
    fn inside(&self, (start, end): (u64, u64)) -> u64 {
        let part = |(first, count): &Part| (first + count).min(end).saturating_sub(*first.max(&start));
        self.parts.iter().map(part).sum()
    }
}

/// Where the files lie that may move, and what can't.
pub(super) struct Plan {
    /// What it costs to empty each unit.
    costs: Vec<u64>,
    /// Clusters of each unit that stay in use.
    stay: Vec<u64>,
    files: HashMap<InodeNumber, Mover>,
    /// First cluster of each part.
    starts: BTreeSet<(u64, InodeNumber)>,
}

impl Plan {
    fn new() -> Self {
        Plan { costs: Vec::new(), stay: Vec::new(), files: HashMap::new(), starts: BTreeSet::new() }
    }

    /// Each unit that a part lies in, with its clusters there.
    fn units((first, count): Part) -> impl Iterator<Item = (usize, u64)> {
        let end = first + count;
        (first / UNIT..end.div_ceil(UNIT)).map(move |unit| {
            let inside = end.min((unit + 1) * UNIT) - first.max(unit * UNIT);
            (usize::try_from(unit).unwrap_or(usize::MAX), inside)
        })
    }

    fn remove(&mut self, number: InodeNumber) {
        let Some(file) = self.files.remove(&number) else { return };
        for part in &file.parts {
            self.starts.remove(&(part.0, number));
            for (unit, clusters) in Plan::units(*part) {
                if let Some(cost) = self.costs.get_mut(unit) {
                    *cost = cost.saturating_sub(clusters * file.cost());
                }
            }
        }
    }

    fn insert(&mut self, number: InodeNumber, file: Mover) {
        for part in &file.parts {
            self.starts.insert((part.0, number));
            for (unit, clusters) in Plan::units(*part) {
                if let Some(cost) = self.costs.get_mut(unit) {
                    *cost += clusters * file.cost();
                }
            }
        }
        self.files.insert(number, file);
    }

    /// The cheapest row of clusters that is so long, as the first and one past the last.
    fn window(&self, wanted: u64) -> Option<(u64, u64)> {
        let count = usize::try_from(wanted.div_ceil(UNIT)).ok()?.max(1);
        let (mut best, mut sum, mut begun) = (None, 0, 0);
        for (at, (cost, stay)) in self.costs.iter().zip(&self.stay).enumerate() {
            if *stay > 0 {
                (sum, begun) = (0, at + 1);
                continue;
            }
            sum += cost;
            if at + 1 - begun > count {
                sum -= self.costs.get(at - count).copied().unwrap_or(0);
            }
            if at + 1 - begun >= count && best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, at + 1 - count));
            }
        }
        best.map(|(_, start)| (start as u64 * UNIT, (start + count) as u64 * UNIT))
    }

    /// The files with parts in a window, those first that are the hardest to place: whole, and long.
    fn inside(&self, window: (u64, u64)) -> Vec<InodeNumber> {
        let Some(least) = InodeNumber::new(1) else { return Vec::new() };
        let begin = self.starts.range((window.0, least)..(window.1, least)).map(|(_, number)| *number);
        // Parts that begin before the window may reach into it.
        let mut files: BTreeSet<_> = begin.collect();
        for (start, number) in self.starts.range(..(window.0, least)).rev() {
            files.insert(*number);
            if window.0 - start > UNIT * STRETCH || files.len() > 100_000 {
                break;
            }
        }
        files.retain(|number| self.files.get(number).is_some_and(|file| file.inside(window) > 0));
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|number| {
            let file = self.files.get(number);
            file.map(|file| (file.pieces > 1, std::cmp::Reverse(file.inside(window)), *number))
        });
        files
    }

    /// Whether the files of a window find holes, and how many clusters move then.
    fn foresee(&self, files: &[InodeNumber], window: (u64, u64), mut holes: Lengths) -> Option<u64> {
        let mut sum = 0;
        for file in files.iter().filter_map(|number| self.files.get(number)) {
            let whole = file.pieces <= 1;
            let mut left = if whole { file.clusters() } else { file.inside(window) };
            sum += left;
            while left > 0 {
                if take(&mut holes, left) {
                    break;
                }
                let longest = holes.last_key_value().map_or(0, |(length, _)| *length);
                if whole || longest < UNIT / 2 {
                    return None;
                }
                take(&mut holes, longest);
                left -= longest;
            }
        }
        Some(sum)
    }
}

impl Work<'_> {
    /// Makes room for files that fit nowhere, the largest first, and moves them there. Returns those that are left.
    pub(super) fn make_room(&self, mut torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        if torn.is_empty() {
            return Ok(torn);
        }
        torn.sort_by_key(|file| std::cmp::Reverse(file.blocks));
        let mut plan = self.plan()?;
        for _ in 0..ROUNDS {
            let before = torn.len();
            let mut left = Vec::new();
            for file in torn {
                if !self.room_for(&file, &mut plan)? {
                    left.push(file);
                }
            }
            torn = left;
            if torn.is_empty() || torn.len() == before {
                break;
            }
        }
        Ok(torn)
    }

    fn room_for(&self, file: &Torn, plan: &mut Plan) -> Result<bool, Halt> {
        let wish = Relocation { directory: file.directory, ..Relocation::default() };
        let is_done = |done: Option<platfs::Relocated>| done.is_none_or(|done| done.pieces == 1 || done.busy);
        let mut done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
        if !is_done(done) && self.empty_window(file.clusters(self), (plan, file.blocks))? {
            done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
            self.settle()?;
        }
        self.renew(file.number, plan);
        Ok(is_done(done))
    }

    /// Makes the longest free run as long as it was, where that is possible, and empties what is nearly empty.
    pub(super) fn gather_free_space(&self) -> Result<(), Halt> {
        let failed = Halt::at(b"/");
        let geometry = &self.job.volume.format().geometry;
        let before = (self.report.borrow().longest.before << 10)
            >> geometry.block_size.log2()
            >> geometry.cluster_log2;
        let mut plan = self.plan()?;
        let longest =
            lengths(self.job.volume, (0, 0)).map_err(failed)?.last_key_value().map_or(0, |(run, _)| *run);
        if longest < before {
            self.empty_window(before + UNIT, (&mut plan, 0))?;
        }
        let most = COST[1] * STRETCH / 3;
        while let Some(window) = plan.window(STRETCH)
            && (1..=most).contains(&plan.cost(window))
            && self.empty_window(STRETCH, (&mut plan, 0))?
        {}
        Ok(())
    }

    /// Empties the cheapest window of a number of clusters, if all can leave it and `more` blocks may move after that. Says
    /// whether all did.
    fn empty_window(&self, wanted: u64, (plan, more): (&mut Plan, u64)) -> Result<bool, Halt> {
        let Some(window) = plan.window(wanted) else { return Ok(false) };
        let geometry = &self.job.volume.format().geometry;
        let holes = lengths(self.job.volume, window).map_err(Halt::at(b"/"))?;
        let files = plan.inside(window);
        let moving = plan.foresee(&files, window, holes);
        if !moving.is_some_and(|clusters| self.may_move((clusters << geometry.cluster_log2) + more)) {
            return Ok(false);
        }
        let block = |cluster: u64| geometry.cluster_start(Cluster(cluster)).0;
        let towards = Towards::Outside { start: block(window.0), end: block(window.1) };
        let mut all = true;
        for number in files {
            let Some(file) = plan.files.get(&number) else { continue };
            let most_pieces = if file.pieces > 1 { file.pieces + MORE_PIECES } else { 1 };
            let wish = Relocation { most_pieces, towards, directory: None };
            let blocks = file.inside(window) << geometry.cluster_log2;
            let done = self.relocate(number, (&as_path(number), blocks), &wish)?;
            all &= done.is_some_and(|done| done.blocks > 0);
            self.renew(number, plan);
        }
        self.settle()?;
        Ok(all)
    }

    fn plan(&self) -> Result<Plan, Halt> {
        let mut plan = Plan::new();
        let counted = each_cluster(self.job.volume, |cluster, is_used| {
            let at = usize::try_from(cluster / UNIT).unwrap_or(usize::MAX);
            if plan.stay.len() <= at {
                plan.stay.resize(at + 1, 0);
            }
            if let Some(stay) = plan.stay.get_mut(at) {
                *stay += u64::from(is_used);
            }
        });
        counted.map_err(Halt::at(b"/"))?;
        // What lies behind the last cluster is no room.
        if !self.job.volume.format().geometry.clusters().is_multiple_of(UNIT)
            && let Some(last) = plan.stay.last_mut()
        {
            *last += UNIT;
        }
        plan.costs = vec![0; plan.stay.len()];
        for number in &self.files {
            self.job.go_on()?;
            self.renew(*number, &mut plan);
        }
        for file in plan.files.values() {
            for (unit, clusters) in file.parts.iter().flat_map(|part| Plan::units(*part)) {
                if let Some(stay) = plan.stay.get_mut(unit) {
                    *stay = stay.saturating_sub(clusters);
                }
            }
        }
        Ok(plan)
    }

    /// Notes where a file lies now.
    fn renew(&self, number: InodeNumber, plan: &mut Plan) {
        plan.remove(number);
        let geometry = &self.job.volume.format().geometry;
        // One that is gone, or broken, is no reason to end.
        let Ok((pieces, _)) = self.job.volume.inode(number).pieces() else { return };
        let Ok(map) = self.job.volume.map(number) else { return };
        let mut runs = BTreeSet::new();
        for segment in map.map_while(Result::ok) {
            let (State::Mapped(start) | State::Unwritten(start)) = segment.state else { continue };
            let first = geometry.cluster_of(start).0;
            runs.insert((first, geometry.cluster_of(Block(start.0 + segment.count - 1)).0 + 1));
        }
        let mut parts: Vec<Part> = Vec::new();
        for (first, end) in runs {
            match parts.last_mut() {
                // Extents may share a cluster.
                Some((start, count)) if first <= *start + *count => *count = (*count).max(end - *start),
                _ => parts.push((first, end - first)),
            }
        }
        plan.insert(number, Mover { pieces, parts });
    }
}

impl Plan {
    fn cost(&self, (start, end): (u64, u64)) -> u64 {
        let at = |cluster: u64| usize::try_from(cluster / UNIT).unwrap_or(usize::MAX);
        self.costs.get(at(start)..at(end)).map_or(0, |costs| costs.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u32) -> InodeNumber {
        InodeNumber::new(number).unwrap()
    }

    #[test]
    fn the_cheapest_window_has_nothing_that_must_stay() {
        let mut plan = Plan { costs: vec![0; 8], stay: vec![0, 0, 3, 0, 0, 0, 0, 0], ..Plan::new() };
        plan.insert(number(12), Mover { pieces: 1, parts: vec![(0, 32)] });
        plan.insert(number(13), Mover { pieces: 2, parts: vec![(40, 20), (70, 4)] });
        assert_eq!(plan.window(UNIT), Some((80, 96)));
        assert_eq!(plan.window(4 * UNIT), Some((64, 128)));
        assert_eq!(plan.window(6 * UNIT), None);
        assert_eq!(plan.inside((64, 128)), [number(13)]);
        let holes = Lengths::from([(3, 1), (9, 1)]);
        assert_eq!(plan.foresee(&[number(13)], (64, 128), holes.clone()), Some(4));
        assert_eq!(plan.foresee(&[number(12)], (0, 32), holes), None);
        plan.remove(number(13));
        plan.remove(number(12));
        assert_eq!((plan.cost((0, 128)), plan.starts.len()), (0, 0));
    }

    #[test]
    fn holes_are_used_up_from_the_tightest() {
        let mut holes = Lengths::from([(3, 1), (9, 2)]);
        assert!(take(&mut holes, 4) && take(&mut holes, 5) && take(&mut holes, 9) && !take(&mut holes, 9));
        assert_eq!(holes, Lengths::from([(3, 1)]));
    }
}
