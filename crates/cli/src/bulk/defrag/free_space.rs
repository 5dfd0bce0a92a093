//! Longer free runs: all files leave a stretch of the volume for holes elsewhere.
//!
//! The volume is seen in chunks, those of the placement engine. A window is a row of chunks in which all that is in use
//! belongs to files that may move; the cheapest one is emptied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::units::{Block, Cluster, Group, InodeNumber};
use platfs::{Error, Relocation, State, Towards, Volume};

use super::{Torn, Work, as_path};
use crate::bulk::Halt;

/// Clusters of a chunk.
const CHUNK: u64 = 512;

/// How often the volume is looked over.
const ROUNDS: u32 = 6;

/// Windows that are tried for one file before it is left.
const TRIES: u32 = 3;

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

/// The longest free runs, so many: first cluster and length of each.
pub(super) fn longest(volume: &Volume, count: usize) -> Result<Vec<(u64, u64)>, Error> {
    let (mut best, mut open) = (BTreeSet::new(), (0, 0));
    let mut close = |(start, length): (u64, u64)| {
        best.insert((length, start));
        if best.len() > count || length == 0 {
            best.pop_first();
        }
    };
    each_cluster(volume, |cluster, used| match used {
        true => close(std::mem::replace(&mut open, (cluster + 1, 0))),
        false => open.1 += 1,
    })?;
    close(open);
    Ok(best.into_iter().rev().map(|(length, start)| (start, length)).collect())
}

/// Lengths of the free runs, in clusters, and how many there are of each.
pub(super) fn lengths(volume: &Volume) -> Result<BTreeMap<u64, u64>, Error> {
    let (mut lengths, mut open) = (BTreeMap::new(), 0);
    let mut close = |open: u64| {
        if open > 0 {
            *lengths.entry(open).or_default() += 1;
        }
    };
    each_cluster(volume, |_, used| match used {
        true => close(std::mem::take(&mut open)),
        false => open += 1,
    })?;
    close(open);
    Ok(lengths)
}

/// A file that may move.
#[derive(Clone, Copy)]
struct Mover {
    pieces: u64,
    clusters: u64,
}

/// What is in use of a chunk.
#[derive(Clone, Default)]
struct Chunk {
    used: u64,
    /// Files that may move, with their clusters here.
    files: Vec<(InodeNumber, u64)>,
}

/// The volume in chunks.
pub(super) struct Plan {
    chunks: Vec<Chunk>,
    movers: HashMap<InodeNumber, Mover>,
    /// Chunks that were emptied, or could not be.
    done: BTreeSet<usize>,
}

impl Plan {
    /// What it costs to empty a chunk for so many clusters in a row; `None` where something can't leave.
    fn cost(&self, at: usize, wanted: u64) -> Option<u64> {
        let chunk = self.chunks.get(at).filter(|_| !self.done.contains(&at))?;
        let (mut movable, mut cost) = (0, 0);
        for (number, clusters) in &chunk.files {
            let mover = self.movers.get(number)?;
            movable += clusters;
            // One that is whole needs a hole as long as it is; one in pieces has to move anyway.
            if mover.pieces == 1 && mover.clusters >= wanted.max(CHUNK) {
                return None;
            }
            cost += if mover.pieces == 1 { 4 * clusters } else { *clusters };
        }
        (movable == chunk.used).then_some(cost)
    }

    /// The cheapest row of chunks for so many clusters.
    fn window(&self, wanted: u64) -> Option<(usize, usize)> {
        let count = usize::try_from(wanted.div_ceil(CHUNK)).ok()?.max(1);
        let costs: Vec<Option<u64>> = (0..self.chunks.len()).map(|at| self.cost(at, wanted)).collect();
        let (mut best, mut sum, mut begun) = (None, 0, 0);
        for (at, cost) in costs.iter().enumerate() {
            let Some(cost) = cost else {
                (sum, begun) = (0, at + 1);
                continue;
            };
            sum += cost;
            if at + 1 - begun > count {
                sum -= costs.get(at - count).copied().flatten().unwrap_or(0);
            }
            if at + 1 - begun >= count && best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, at + 1 - count));
            }
        }
        best.map(|(_, start)| (start, start + count))
    }
}

impl Work<'_> {
    /// Makes room for files that fit nowhere, the largest first, and moves them there. Returns those that are left.
    pub(super) fn make_room(&self, mut torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        for _ in 0..ROUNDS {
            let before = self.report.borrow().moved;
            let mut plan = self.plan()?;
            let mut left = Vec::new();
            torn.sort_by_key(|file| std::cmp::Reverse(file.blocks));
            for file in torn {
                if !self.room_for(&file, &mut plan)? {
                    left.push(file);
                }
            }
            torn = left;
            if torn.is_empty() || self.report.borrow().moved == before {
                break;
            }
        }
        Ok(torn)
    }

    fn room_for(&self, file: &Torn, plan: &mut Plan) -> Result<bool, Halt> {
        let wish = Relocation { directory: file.directory, ..Relocation::default() };
        for _ in 0..TRIES {
            match self.relocate(file.number, (&file.path, file.blocks), &wish)? {
                Some(done) if done.pieces > 1 && !done.busy => {}
                // Whole, or not to be moved.
                _ => return Ok(true),
            }
            if !self.may_move(2 * file.blocks) || !self.empty_window(file.clusters(self), plan)? {
                break;
            }
        }
        let done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
        Ok(done.is_none_or(|done| done.pieces == 1))
    }

    /// Makes the longest free run at least as long as it was, and shorter ones longer.
    pub(super) fn gather_free_space(&self) -> Result<(), Halt> {
        let failed = Halt::at(b"/");
        let log2 = self.job.volume.format().geometry.block_size.log2();
        let before = (self.report.borrow().longest.before << 10) >> log2;
        for round in 0..ROUNDS {
            let longest =
                lengths(self.job.volume).map_err(&failed)?.last_key_value().map_or(0, |(run, _)| *run);
            let wanted = (before >> self.job.volume.format().geometry.cluster_log2).max(CHUNK);
            let mut plan = self.plan()?;
            let moved = self.report.borrow().moved;
            if longest < wanted {
                self.empty_window(wanted + CHUNK, &mut plan)?;
            } else if round > 0 {
                break;
            }
            // Chunks that are nearly empty already.
            while let Some((start, _)) = plan.window(CHUNK)
                && plan.cost(start, CHUNK).is_some_and(|cost| cost <= CHUNK)
                && self.empty_window(CHUNK, &mut plan)?
            {}
            if self.report.borrow().moved == moved {
                break;
            }
        }
        Ok(())
    }

    /// Empties the cheapest window of so many clusters. Says whether there was one, and all left it.
    fn empty_window(&self, wanted: u64, plan: &mut Plan) -> Result<bool, Halt> {
        let Some((first, end)) = plan.window(wanted) else { return Ok(false) };
        plan.done.extend(first..end);
        let geometry = &self.job.volume.format().geometry;
        let block = |chunk: usize| geometry.cluster_start(Cluster(chunk as u64 * CHUNK)).0;
        let towards = Towards::Outside { start: block(first), end: block(end) };
        let inside: BTreeSet<_> = (first..end)
            .filter_map(|at| plan.chunks.get(at))
            .flat_map(|chunk| chunk.files.iter().map(|(number, _)| *number))
            .collect();
        let mut files: Vec<_> =
            inside.into_iter().filter_map(|number| Some((number, *plan.movers.get(&number)?))).collect();
        // What is hardest to place has the first choice.
        files.sort_by_key(|(number, mover)| (std::cmp::Reverse(mover.clusters), *number));
        let mut all = true;
        for (number, Mover { pieces, clusters }) in files {
            let blocks = clusters << geometry.cluster_log2;
            let mut left = false;
            for most_pieces in [1, pieces] {
                let wish = Relocation { most_pieces, towards, directory: None };
                let Some(done) = self.relocate(number, (&as_path(number), blocks), &wish)? else { break };
                left = done.blocks > 0;
                if left || pieces == 1 {
                    break;
                }
            }
            all &= left;
        }
        self.settle()?;
        Ok(all)
    }

    fn plan(&self) -> Result<Plan, Halt> {
        let mut plan = Plan { chunks: Vec::new(), movers: HashMap::new(), done: BTreeSet::new() };
        let counted = each_cluster(self.job.volume, |cluster, is_used| {
            let at = usize::try_from(cluster / CHUNK).unwrap_or(usize::MAX);
            if plan.chunks.len() <= at {
                plan.chunks.resize(at + 1, Chunk::default());
            }
            if let Some(chunk) = plan.chunks.get_mut(at) {
                chunk.used += u64::from(is_used);
            }
        });
        counted.map_err(Halt::at(b"/"))?;
        // What lies behind the last cluster of the last chunk is no room.
        let clusters = self.job.volume.format().geometry.clusters();
        if !clusters.is_multiple_of(CHUNK) {
            plan.chunks.pop();
        }
        for number in &self.files {
            self.job.go_on()?;
            self.note(*number, &mut plan);
        }
        Ok(plan)
    }

    /// Notes in which chunks a file lies.
    fn note(&self, number: InodeNumber, plan: &mut Plan) {
        let geometry = &self.job.volume.format().geometry;
        // One that is gone, or broken, is no reason to end.
        let Ok((pieces, _)) = self.job.volume.inode(number).pieces() else { return };
        let Ok(map) = self.job.volume.map(number) else { return };
        let mut runs = BTreeSet::new();
        for segment in map.map_while(Result::ok) {
            let (State::Mapped(start) | State::Unwritten(start)) = segment.state else { continue };
            let first = geometry.cluster_of(start).0;
            let last = geometry.cluster_of(Block(start.0 + segment.count - 1)).0;
            runs.insert((first, last));
        }
        let (mut clusters, mut next) = (0, 0);
        for (first, last) in runs {
            // Extents may share a cluster.
            for cluster in first.max(next)..=last {
                let at = usize::try_from(cluster / CHUNK).unwrap_or(usize::MAX);
                clusters += 1;
                let Some(chunk) = plan.chunks.get_mut(at) else { continue };
                match chunk.files.last_mut() {
                    Some((last, count)) if *last == number => *count += 1,
                    _ => chunk.files.push((number, 1)),
                }
            }
            next = last + 1;
        }
        plan.movers.insert(number, Mover { pieces, clusters });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_window_has_nothing_that_must_stay() {
        let number = |number| InodeNumber::new(number).unwrap();
        let file = |at, clusters| Chunk { used: clusters, files: vec![(number(at), clusters)] };
        let kept = Chunk { used: 9, files: Vec::new() };
        let chunks = vec![file(12, 50), kept, file(13, 10), file(14, 40), file(15, 20)];
        let movers = [12, 13, 14, 15].map(|at| (number(at), Mover { pieces: 1, clusters: 60 }));
        let mut plan = Plan { chunks, movers: HashMap::from(movers), done: BTreeSet::new() };
        assert_eq!(plan.window(1), Some((2, 3)));
        assert_eq!(plan.window(CHUNK + 1), Some((2, 4)));
        assert_eq!(plan.window(4 * CHUNK), None);
        plan.done.insert(2);
        assert_eq!(plan.window(CHUNK), Some((4, 5)));
        assert_eq!(plan.window(2 * CHUNK), Some((3, 5)));
    }
}
