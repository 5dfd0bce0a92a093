//! Longer free runs: all files leave a stretch of the volume for holes elsewhere.
//!
//! The volume is seen in units of a few clusters. A window is a row of units in which all that is in use belongs to files
//! that may move; the cheapest one is emptied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::units::{Block, Cluster, InodeNumber};
use platfs::{Relocation, RelocationGoal, State};

use super::holes::{Holes, Lengths, Part, Tightest, each_cluster};
use super::{PASSES, Torn, Work, as_path};
use crate::bulk::Halt;

/// Clusters of a unit.
const UNIT: u64 = 16;

/// Cost of a cluster of a file that is in pieces, and of one that is whole: it has to move as a whole.
const COST: [u64; 2] = [10, 13];

/// A run that a nearly empty stretch of the volume becomes.
const STRETCH: u64 = 512;

/// Windows that are compared.
const CANDIDATES: usize = 32;

/// Files that leave their places for one free run.
const STEPS: u32 = 64;

/// Bytes below which a file in pieces is not cut to make room for another.
const LEAST_PIECE: u64 = 32 << 10;

/// How often files are tried again for which there was no room.
const ROUNDS: u32 = 6;

/// Pieces in which a part of a file may leave, beside those that it has.
const MORE_PIECES: u64 = 8;

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
    /// Cost of emptying each unit.
    costs: Vec<u64>,
    /// Clusters of each unit that stay in use.
    stay: Vec<u64>,
    files: HashMap<InodeNumber, Mover>,
    /// First cluster of each part.
    starts: BTreeSet<(u64, InodeNumber)>,
    /// Clusters below which a file in pieces is not cut to make room.
    least: u64,
}

impl Plan {
    fn new() -> Self {
        let (files, starts) = (HashMap::new(), BTreeSet::new());
        Plan { costs: Vec::new(), stay: Vec::new(), files, starts, least: 1 }
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
        self.windows(wanted).first().copied()
    }

    /// Cheap rows of clusters that are so long, the cheapest first: of those that begin in each stretch of this length
    /// one.
    fn windows(&self, wanted: u64) -> Vec<(u64, u64)> {
        let Ok(count) = usize::try_from(wanted.div_ceil(UNIT).max(1)) else { return Vec::new() };
        let mut best: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        let (mut sum, mut begun) = (0, 0);
        for (at, (cost, stay)) in self.costs.iter().zip(&self.stay).enumerate() {
            if *stay > 0 {
                (sum, begun) = (0, at + 1);
                continue;
            }
            sum += cost;
            if at + 1 - begun > count {
                sum -= self.costs.get(at - count).copied().unwrap_or(0);
            }
            if at + 1 - begun >= count {
                let start = at + 1 - count;
                let found = best.entry(start / count).or_insert((sum, start));
                *found = (*found).min((sum, start));
            }
        }
        let mut found: Vec<_> = best.into_values().collect();
        found.sort_unstable();
        found.truncate(CANDIDATES);
        found.into_iter().map(|(_, start)| (start as u64 * UNIT, (start + count) as u64 * UNIT)).collect()
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

    /// The whole file that leaves the longest run when it goes, up to `wanted`, with its clusters and the place to which
    /// it can go; nothing if none leaves a longer one than there is.
    fn between_holes(&self, holes: &Holes, wanted: u64) -> Option<(InodeNumber, u64, Part)> {
        let (longest, tightest) = (holes.lengths.longest(), holes.by_length((0, 0)));
        let left = self.files.iter().filter_map(|(number, file)| {
            let [(first, count)] = file.parts[..] else { return None };
            let run = holes.around((first, count));
            if file.pieces > 1 || run <= longest {
                return None;
            }
            let place = tightest.apart(count, first)?;
            Some((run.min(wanted), std::cmp::Reverse(count), *number, place))
        });
        let (_, std::cmp::Reverse(count), number, first) = left.max()?;
        Some((number, count, (first, first + count)))
    }

    /// Estimates if the files of a window find holes, and how many clusters move then.
    fn foresee(&self, files: &[InodeNumber], window: (u64, u64), mut holes: Lengths) -> Option<u64> {
        let mut sum = 0;
        for file in files.iter().filter_map(|number| self.files.get(number)) {
            let whole = file.pieces <= 1;
            let mut left = if whole { file.clusters() } else { file.inside(window) };
            sum += left;
            while left > 0 {
                if holes.take(left) {
                    break;
                }
                let longest = holes.longest();
                if whole || longest < self.least {
                    return None;
                }
                holes.take(longest);
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
        // Blocks of files that still wait for room. They may move, whatever room is made for one of them.
        let mut waiting: u64 = torn.iter().map(|file| file.blocks).sum();
        for _ in 0..ROUNDS {
            let before = torn.len();
            let mut left = Vec::new();
            for file in torn {
                if self.room_for(&file, waiting, &mut plan)? {
                    waiting -= file.blocks;
                } else {
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

    /// Moves a file, one of those of `waiting` blocks, after it was given room if it has none. Says whether it is done with.
    fn room_for(&self, file: &Torn, waiting: u64, plan: &mut Plan) -> Result<bool, Halt> {
        if !self.may_move(file.blocks) {
            return Ok(false);
        }
        let wish = Relocation { directory: file.directory, ..Relocation::default() };
        let is_done = |done: Option<platfs::Relocated>| done.is_none_or(|done| done.pieces == 1 || done.busy);
        let mut done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
        if !is_done(done) && self.make_run(file.clusters(self), (plan, waiting))? {
            done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
            self.settle()?;
        }
        self.renew(file.number, plan);
        Ok(is_done(done))
    }

    /// Moves files to the tightest runs that hold them now: what moved last left some, too. Where a file takes the longest
    /// run, another is made. Returns what is still in pieces.
    pub(super) fn last_moves(&self, mut torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        let longest = self.longest_before();
        let reserve = longest << self.job.volume.format().geometry.cluster_log2;
        for _ in 0..PASSES {
            let (mut left, moved) = (Vec::new(), self.report.borrow().moved);
            let mut runs = self.tightest()?;
            for file in torn {
                let may_move = self.may_move(file.blocks + reserve);
                let Some(run) = may_move.then(|| runs.take(file.clusters(self))).flatten() else {
                    left.push(file);
                    continue;
                };
                left.extend(self.bring_together(file, self.into(run))?);
                if runs.longest() < longest {
                    // The bitmaps say what was committed.
                    self.settle()?;
                    self.keep_longest()?;
                    self.settle()?;
                    runs = self.tightest()?;
                }
            }
            self.settle()?;
            torn = left;
            if torn.is_empty() || self.report.borrow().moved == moved {
                break;
            }
        }
        Ok(torn)
    }

    fn tightest(&self) -> Result<Tightest, Halt> {
        Ok(Holes::of(self.job.volume).map_err(Halt::at(b"/"))?.by_length((0, 0)))
    }

    /// Lengths of the free runs that there are now.
    pub(super) fn free_runs(&self) -> Result<Lengths, Halt> {
        Ok(Holes::of(self.job.volume).map_err(Halt::at(b"/"))?.lengths)
    }

    /// Clusters of the longest free run that there was.
    pub(super) fn longest_before(&self) -> u64 {
        let geometry = &self.job.volume.format().geometry;
        (self.report.borrow().longest.before << 10) >> geometry.block_size.log2() >> geometry.cluster_log2
    }

    /// Makes the longest free run as long as it was, where that is possible.
    pub(super) fn keep_longest(&self) -> Result<(), Halt> {
        let before = self.longest_before();
        if self.free_runs()?.longest() < before {
            self.make_run(before, (&mut self.plan()?, 0))?;
        }
        Ok(())
    }

    /// Makes a free run of a number of clusters, if `more` blocks may move after that. Says whether it is there.
    fn make_run(&self, wanted: u64, (plan, more): (&mut Plan, u64)) -> Result<bool, Halt> {
        Ok(self.empty_window(wanted, (plan, more))? || self.lengthen(wanted, (plan, more))?)
    }

    /// Has the longest free run grow, file by file: each leaves its place between two runs, which become one with it.
    fn lengthen(&self, wanted: u64, (plan, more): (&mut Plan, u64)) -> Result<bool, Halt> {
        for _ in 0..STEPS {
            let holes = Holes::of(self.job.volume).map_err(Halt::at(b"/"))?;
            if holes.lengths.longest() >= wanted {
                return Ok(true);
            }
            let Some((number, clusters, to)) = plan.between_holes(&holes, wanted) else { break };
            let blocks = clusters << self.job.volume.format().geometry.cluster_log2;
            if !self.may_move(blocks + more) {
                break;
            }
            if self.leave(number, clusters, 1, self.into(to))? {
                self.renew(number, plan);
                self.settle()?;
            } else {
                // Others took that place, or write to it.
                plan.remove(number);
            }
        }
        Ok(false)
    }

    /// Empties what is nearly empty.
    pub(super) fn gather_free_space(&self) -> Result<(), Halt> {
        let mut plan = self.plan()?;
        let most = COST[1] * STRETCH / 3;
        while let Some(window) = plan.window(STRETCH)
            && (1..=most).contains(&plan.cost(window))
            && self.empty_window(STRETCH, (&mut plan, 0))?
        {}
        Ok(())
    }

    /// Empties a window of a number of clusters: of the cheap ones that all can leave that for which least has to move. If
    /// `more` blocks may move after that. Says whether all did.
    fn empty_window(&self, wanted: u64, (plan, more): (&mut Plan, u64)) -> Result<bool, Halt> {
        let geometry = &self.job.volume.format().geometry;
        let holes = Holes::of(self.job.volume).map_err(Halt::at(b"/"))?;
        let foreseen = plan.windows(wanted).into_iter().filter_map(|window| {
            let files = plan.inside(window);
            plan.foresee(&files, window, holes.outside(window)).map(|clusters| (clusters, window, files))
        });
        let Some((clusters, window, files)) = foreseen.min_by_key(|(clusters, ..)| *clusters) else {
            return Ok(false);
        };
        if !self.may_move((clusters << geometry.cluster_log2) + more) {
            return Ok(false);
        }
        let mut tightest = holes.by_length(window);
        let mut all = true;
        for number in files {
            let Some(file) = plan.files.get(&number) else { continue };
            let mut is_gone = false;
            if file.pieces <= 1
                && let Some(hole) = tightest.take(file.clusters())
            {
                is_gone = self.leave(number, file.clusters(), 1, self.into(hole))?;
            }
            if !is_gone {
                let most_pieces = if file.pieces > 1 { file.pieces + MORE_PIECES } else { 1 };
                is_gone = self.leave(number, file.inside(window), most_pieces, self.outside(window))?;
            }
            all &= is_gone;
            self.renew(number, plan);
        }
        self.settle()?;
        Ok(all)
    }

    /// Moves `clusters` clusters of a file, to make room; says whether they moved.
    fn leave(
        &self,
        number: InodeNumber,
        clusters: u64,
        most_pieces: u64,
        goal: RelocationGoal,
    ) -> Result<bool, Halt> {
        let wish = Relocation { most_pieces, goal, directory: None };
        let blocks = clusters << self.job.volume.format().geometry.cluster_log2;
        let done = self.relocate(number, (&as_path(number), blocks), &wish)?;
        Ok(done.is_some_and(|done| done.blocks > 0))
    }

    fn blocks(&self, (start, end): (u64, u64)) -> (u64, u64) {
        let block = |cluster: u64| self.job.volume.format().geometry.cluster_start(Cluster(cluster)).0;
        (block(start), block(end))
    }

    fn into(&self, clusters: (u64, u64)) -> RelocationGoal {
        let (start, end) = self.blocks(clusters);
        RelocationGoal::Into { start, end }
    }

    fn outside(&self, clusters: (u64, u64)) -> RelocationGoal {
        let (start, end) = self.blocks(clusters);
        RelocationGoal::Outside { start, end }
    }

    fn plan(&self) -> Result<Plan, Halt> {
        let geometry = &self.job.volume.format().geometry;
        let least = LEAST_PIECE >> geometry.block_size.log2() >> geometry.cluster_log2;
        let mut plan = Plan { least: least.max(1), ..Plan::new() };
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
        let holes = Lengths(BTreeMap::from([(3, 1), (9, 1)]));
        assert_eq!(plan.foresee(&[number(13)], (64, 128), holes.clone()), Some(4));
        assert_eq!(plan.foresee(&[number(12)], (0, 32), holes), None);
        plan.remove(number(13));
        plan.remove(number(12));
        assert_eq!((plan.cost((0, 128)), plan.starts.len()), (0, 0));
    }

    #[test]
    fn the_file_leaves_that_makes_the_longest_run() {
        let mut holes = Holes { runs: BTreeMap::from([(0, 4), (8, 5), (40, 6)]), ..Holes::default() };
        holes.runs.clone().values().for_each(|length| holes.lengths.add(*length));
        let mut plan = Plan { costs: vec![0; 8], stay: vec![0; 8], ..Plan::new() };
        plan.insert(number(12), Mover { pieces: 1, parts: vec![(4, 4)] });
        plan.insert(number(13), Mover { pieces: 1, parts: vec![(46, 2)] });
        plan.insert(number(14), Mover { pieces: 1, parts: vec![(20, 7)] });
        // Not into a run that becomes a part of the longer one.
        assert_eq!(plan.between_holes(&holes, 99), Some((number(12), 4, (40, 44))));
        // What is as long as is wanted is enough: the shortest file goes.
        assert_eq!(plan.between_holes(&holes, 8), Some((number(13), 2, (0, 2))));
        plan.remove(number(12));
        plan.remove(number(13));
        assert_eq!(plan.between_holes(&holes, 99), None);
    }
}
