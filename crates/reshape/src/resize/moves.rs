//! Where blocks that must be left go to.
//!
//! Files go as whole as free runs allow, the largest first; blocks of maps and attributes fill what is left. Excludes
//! the copying, and the maps of files.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::geometry::Geometry;
use ondisk::units::{Block, Group};
use platfs::mkfs::layout::Runs;

use super::space::Space;
use super::survey::Owner;
use super::tree;
use crate::{Error, Result};

/// From old blocks to new ones, by whole clusters.
#[derive(Default)]
pub(super) struct Moves {
    /// First old block to one past the last one and the first new one.
    runs: BTreeMap<u64, (u64, u64)>,
    /// Nodes that a map gets besides those it has, or has too many.
    pub(super) nodes: BTreeMap<u32, Nodes>,
    /// Blocks of maps that are not needed any more, in evicted blocks.
    dropped: Runs,
}

/// Changes of the blocks of a map.
#[derive(Default)]
pub(super) struct Nodes {
    /// All blocks of the new map, in the order of their use.
    pub(super) blocks: Vec<Block>,
    /// Blocks of the old map, as they were counted.
    pub(super) had: usize,
}

impl Moves {
    /// Where a block is afterwards.
    pub(super) fn to(&self, block: Block) -> Block {
        let run = self.runs.range(..=block.0).next_back().filter(|(_, (end, _))| block.0 < *end);
        run.map_or(block, |(start, (_, to))| Block(to + (block.0 - start)))
    }

    /// A run as it lies afterwards, in its order: new start, count, and whether it moved.
    pub(super) fn pieces(&self, start: Block, count: u64) -> Vec<(Block, u64, bool)> {
        let mut pieces: Vec<(Block, u64, bool)> = Vec::new();
        let (mut at, end) = (start.0, start.0 + count);
        while at < end {
            let run = self.runs.range(..=at).next_back().filter(|(_, (end, _))| at < *end);
            let (to, stop, moved) = match run {
                Some((from, (stop, to))) => (to + (at - from), (*stop).min(end), true),
                None => {
                    let next = self.runs.range(at..).next().map_or(end, |(from, _)| *from);
                    (at, next.min(end), false)
                }
            };
            pieces.push((Block(to), stop - at, moved));
            at = stop;
        }
        pieces
    }

    /// Blocks that move.
    pub(super) fn blocks(&self) -> u64 {
        self.runs.iter().map(|(start, (end, _))| end - start).sum()
    }

    /// Old runs that need to stay no more.
    pub(super) fn vacated(&self) -> Runs {
        let mut runs = self.dropped.clone();
        self.runs.iter().for_each(|(start, (end, _))| runs.insert(*start, *end));
        runs
    }

    fn add(&mut self, from: u64, to: u64, len: u64) {
        self.runs.insert(from, (from + len, to));
    }
}

/// Free runs by length. Those that structures gave up come last: the old volume has them until the switch, so that what
/// goes there waits in memory.
struct Pool {
    /// Free before and after.
    free: BTreeSet<(u64, u64)>,
    /// Taken by structures before, free after.
    freed: BTreeSet<(u64, u64)>,
    taken: Vec<(u64, u64)>,
}

impl Pool {
    /// Free runs of the volume from its first group on: all, or enough for twice the need.
    fn collect(space: &mut Space, need: u64) -> Result<Self> {
        let mut pool = Pool { free: BTreeSet::new(), freed: BTreeSet::new(), taken: Vec::new() };
        let mut sum = 0;
        for group in (0..space.geometry().groups).map(Group) {
            for (start, end) in space.free_runs(group)? {
                let mut at = start;
                for (from, to) in space.structures_before().within(start, end).chain([(end, end)]) {
                    if at < from {
                        pool.free.insert((from - at, at));
                        sum += from - at;
                    }
                    if from < to {
                        pool.freed.insert((to - from, from));
                    }
                    at = to;
                }
            }
            if sum >= need.saturating_mul(2).saturating_add(u64::from(space.geometry().blocks_per_group)) {
                break;
            }
        }
        Ok(pool)
    }

    /// The whole of `len` blocks in the shortest run that has them.
    fn whole(&mut self, len: u64) -> Option<u64> {
        let shortest = |runs: &BTreeSet<(u64, u64)>| runs.range((len, 0)..).next().copied();
        let run = shortest(&self.free).or_else(|| shortest(&self.freed))?;
        Some(self.cut(run, len))
    }

    /// As many of `len` blocks as the longest run has.
    fn part(&mut self, len: u64) -> Option<(u64, u64)> {
        let run = self.free.last().max(self.freed.last()).copied()?;
        let len = len.min(run.0);
        Some((self.cut(run, len), len))
    }

    fn cut(&mut self, run: (u64, u64), len: u64) -> u64 {
        let runs = if self.free.remove(&run) { &mut self.free } else { &mut self.freed };
        runs.remove(&run);
        if run.0 > len {
            runs.insert((run.0 - len, run.1 + len));
        }
        self.taken.push((run.1, run.1 + len));
        run.1
    }
}

/// Contents of a file that wait for a place: blocks in all, and in pieces.
struct UnplacedFile {
    len: u64,
    pieces: Vec<(u64, u64)>,
}

/// Finds a place for everything of the owners that lies in evicted blocks, and for single blocks of the volume's own.
pub(super) fn assign(
    space: &mut Space,
    owners: &[Owner],
    singles: &[Block],
    evicted: &Runs,
) -> Result<Moves> {
    let geometry = *space.geometry();
    let mut waiting: Vec<UnplacedFile> = Vec::new();
    let mut seen = Runs::default();
    for owner in owners.iter().filter(|owner| owner.moves) {
        let runs = owner.map.runs.iter().map(|run| (run.start, run.count));
        let pieces = evicted_pieces(&geometry, evicted, &mut seen, runs);
        let len = pieces.iter().map(|(start, end)| end - start).sum();
        waiting.push(UnplacedFile { len, pieces });
    }
    // The longest first; of equal ones, by number: the order is stable.
    waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.len));
    let need = waiting.iter().map(|waiting| waiting.len).sum::<u64>() + 2 * owners.len() as u64;
    let mut pool = Pool::collect(space, need)?;
    let mut moves = Moves::default();
    for UnplacedFile { len, pieces } in &waiting {
        contents(&mut pool, &mut moves, *len, pieces)?;
    }
    for single in singles {
        for (start, end) in evicted_pieces(&geometry, evicted, &mut seen, std::iter::once((*single, 1))) {
            let Some(at) = pool.whole(end - start) else { return full(1) };
            moves.add(start, at, end - start);
        }
    }
    for owner in owners.iter().filter(|owner| owner.moves) {
        structures(&mut pool, &mut moves, space, &mut seen, (owner, evicted))?;
    }
    for (start, end) in pool.taken {
        space.mark(start, end, true)?;
    }
    Ok(moves)
}

/// The parts of a file's runs that must be left, as whole clusters, each once.
fn evicted_pieces(
    geometry: &Geometry,
    evicted: &Runs,
    seen: &mut Runs,
    runs: impl Iterator<Item = (Block, u64)>,
) -> Vec<(u64, u64)> {
    let log2 = geometry.cluster_log2;
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for (start, count) in runs {
        for (from, to) in evicted.within(start.0, start.0 + count) {
            let (mut from, to) = (from >> log2 << log2, to.div_ceil(1 << log2) << log2);
            while let Some((s, e)) = seen.at_or_after(from).filter(|(s, _)| *s <= from) {
                debug_assert!(s <= from);
                from = e;
            }
            if from >= to {
                continue;
            }
            seen.insert(from, to);
            match pieces.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => pieces.push((from, to)),
            }
        }
    }
    pieces
}

/// Places the contents of a file: in one run, or else each piece in one, or else in parts.
fn contents(pool: &mut Pool, moves: &mut Moves, len: u64, pieces: &[(u64, u64)]) -> Result<()> {
    if let Some(mut at) = Some(len).filter(|len| *len > 0).and_then(|len| pool.whole(len)) {
        for (start, end) in pieces {
            moves.add(*start, at, end - start);
            at += end - start;
        }
        return Ok(());
    }
    for (start, end) in pieces {
        let mut start = *start;
        while start < *end {
            let place =
                pool.whole(end - start).map(|at| (at, end - start)).or_else(|| pool.part(end - start));
            let Some((at, len)) = place else { return full(end - start) };
            moves.add(start, at, len);
            start += len;
        }
    }
    Ok(())
}

fn full<T>(blocks: u64) -> Result<T> {
    Err(Error::NoRoom(blocks))
}

/// Places attributes and the blocks of a map.
fn structures(
    pool: &mut Pool,
    moves: &mut Moves,
    space: &mut Space,
    seen: &mut Runs,
    (owner, evicted): (&Owner, &Runs),
) -> Result<()> {
    let geometry = *space.geometry();
    let cluster = 1 << geometry.cluster_log2;
    let mut place = |pool: &mut Pool, moves: &mut Moves, block: Block| -> Result<()> {
        for (start, end) in evicted_pieces(&geometry, evicted, seen, std::iter::once((block, 1))) {
            let Some(at) = pool.whole(end - start) else { return full(1) };
            moves.add(start, at, end - start);
        }
        Ok(())
    };
    if let Some(block) = owner.attributes() {
        place(pool, moves, block)?;
    }
    if !owner.inode.flags().contains(ondisk::inode::InodeFlags::EXTENTS) {
        return owner.map.nodes.iter().try_for_each(|node| place(pool, moves, *node));
    }
    let extents = tree::moved(&owner.map, moves);
    let wanted = tree::nodes(extents.len(), geometry.block_size);
    let mut blocks = Vec::new();
    for node in &owner.map.nodes {
        if blocks.len() < wanted {
            place(pool, moves, *node)?;
            blocks.push(moves.to(*node));
            continue;
        }
        let start = node.0 >> geometry.cluster_log2 << geometry.cluster_log2;
        if evicted.count_within(node.0, node.0 + 1) == 0 {
            space.mark(start, start + cluster, false)?;
        } else {
            moves.dropped.insert(start, start + cluster);
        }
    }
    while blocks.len() < wanted {
        let Some(at) = pool.whole(cluster) else { return full(1) };
        blocks.push(Block(at));
    }
    moves.nodes.insert(owner.inode.number().get(), Nodes { blocks, had: owner.map.nodes.len() });
    Ok(())
}
