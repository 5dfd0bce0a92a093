//! Reproduces the metadata reads of allocation in clusters (2011): a file server on an aged volume,
//! blocks of 4 KiB alone and in clusters of 64 KiB, 256 KiB and 1 MiB.
//!
//! The model. A volume of [`VOLUME`] bytes holds files of [`SMALLEST`] to [`LARGEST`] bytes, every
//! octave as likely as any other, in [`DIRECTORIES`] directories spread over the volume. Each file
//! is laid out by one `fallocate` (in requests of at most 32,767 blocks, as the kernel makes them,
//! never raised by mballoc) whose goal is its directory's group. The volume is filled to 80 %, then
//! aged: as much as it holds is truncated, file by file at random, and laid out anew. Then
//! `fallocate` and `truncate` of random files alternate and are measured.
//!
//! What is read. Bitmaps: the engine keeps as many as [`BITMAPS`] blocks of 4 KiB hold, and drops
//! those unused for longest; each it asks for is one read of the call that needed it. A bitmap is
//! written, and may be dropped, as soon as the call ends. Map blocks: a file of more than four
//! extents has leaf blocks of 340, in a cache of [`LEAVES`] blocks (least recently used first out);
//! `truncate` reads those that are not there. Descriptors and open inodes are in memory. The
//! counts the kernel keeps of each group outlive its bitmap; so does what our index keeps.
//!
//! Bitmaps read ahead ([`Engine::wanted_bitmaps`], for ours only) are not reads of a call; they are
//! counted in a column of their own.

use super::Setup;
use crate::measure::{self, ratio};
use crate::numbers::{Numbers, count, float};
use crate::table::{Row, Rows};
use crate::volume::layout;
use ondisk::units::{Cluster, ClusterRun, Group};
use placement::policy::mballoc::{Generation, Mballoc, Tunables};
use placement::{BlockPolicyKind, Denial, Engine, GroupContent, Refusal, Request};
use std::collections::BTreeMap;

/// Bytes of the volume: 2 TiB, so 64 MiB of bitmaps with blocks of 4 KiB alone.
const VOLUME: u64 = 2 << 40;
/// Blocks of bitmaps that fit in memory: 2 MiB.
const BITMAPS: u64 = 512;
/// Leaf blocks that fit in memory.
const LEAVES: usize = 512;
const SMALLEST: f64 = 262_144.0;
const LARGEST: f64 = 33_554_432.0;
const DIRECTORIES: u64 = 1_000;
/// Calls of each kind that are measured.
const CALLS: u32 = 20_000;
/// Bytes our index keeps beside a bitmap of 4 KiB; the cache is meant in bitmaps.
const BESIDE: u64 = 232;

/// Name, bytes of a cluster.
const CASES: &[(&str, u32)] =
    &[("4 KiB", 4_096), ("64 KiB", 65_536), ("256 KiB", 262_144), ("1 MiB", 1_048_576)];

pub(crate) fn run(setup: &Setup) -> Rows {
    let own = [BlockPolicyKind::Mballoc64, BlockPolicyKind::Mballoc, BlockPolicyKind::Lease];
    let mut rows = Vec::new();
    for &(name, bytes) in CASES.iter().filter(|case| setup.wants(case.0)) {
        for policy in setup.policies(&own) {
            rows.extend(one(name, bytes, policy, setup));
        }
    }
    rows
}

fn one(case: &str, cluster: u32, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let shrink = if setup.quick { 16 } else { 1 };
    let mut server = Server::new(cluster, policy, shrink, setup.seed)?;
    server.age();
    let calls = CALLS / u32::try_from(shrink).ok()?;
    let (mut allocated, mut cut) = (Reads::default(), Reads::default());
    server.ahead = 0;
    for _ in 0..calls {
        cut.add(server.truncate());
        allocated.add(server.fallocate());
    }
    let extents = server.files.iter().map(|file| file.runs.len() as u64).sum();
    let runs: Vec<ClusterRun> = server.engine.free_runs().collect();
    let mut values = vec![
        ("fallocate", ratio(allocated.sum, u64::from(calls))),
        ("most", float(allocated.most)),
        ("ahead", ratio(server.ahead, u64::from(calls))),
        ("truncate", ratio(cut.sum, u64::from(calls))),
        ("most ", float(cut.most)),
        ("extents/file", ratio(extents, server.files.len() as u64)),
    ];
    values.push((
        "loaded %",
        100.0 * measure::ratio(server.loaded(), u64::from(server.engine.layout().groups)),
    ));
    values.push(("known runs", float(runs.len() as u64)));
    Some(Row { case: case.into(), policy: policy.name().into(), values })
}

/// Reads of the calls of one kind.
#[derive(Default)]
struct Reads {
    sum: u64,
    most: u64,
}

impl Reads {
    fn add(&mut self, reads: u64) {
        self.sum += reads;
        self.most = self.most.max(reads);
    }
}

struct Stored {
    key: u64,
    runs: Vec<ClusterRun>,
}

/// The file server: its volume, its files, its caches.
struct Server {
    engine: Engine,
    numbers: Numbers,
    cluster: u32,
    /// Whether the caller reads ahead what the engine wants.
    reads_ahead: bool,
    /// Bitmaps as on disk; none for groups that were never touched.
    disk: BTreeMap<u32, Vec<u8>>,
    files: Vec<Stored>,
    leaves: Recent,
    /// Bitmaps read ahead.
    ahead: u64,
}

impl Server {
    fn new(cluster: u32, policy: BlockPolicyKind, shrink: u64, seed: u64) -> Option<Server> {
        let groups = u32::try_from(VOLUME / shrink / u64::from(cluster) / 32_768).ok()?;
        let layout = layout(groups, 32_768);
        let generation = match policy {
            BlockPolicyKind::Mballoc => Some(Generation::From617),
            BlockPolicyKind::Mballoc65 => Some(Generation::From65),
            BlockPolicyKind::Mballoc64 => Some(Generation::UpTo64),
            _ => None,
        };
        let engine = match generation {
            Some(generation) => {
                let tunables =
                    Tunables { no_normalize: 1, cluster_bytes: cluster, ..Tunables::new(generation) };
                Engine::with_policy(layout, Box::new(Mballoc::new(tunables))).ok()?
            }
            None => Engine::new(layout, policy).ok()?,
        };
        for group in (0..groups).map(Group) {
            engine.describe_group(group, 32_768, GroupContent::Uninitialised { used: &[] }).ok()?;
        }
        engine.set_memory_bound(BITMAPS / shrink * (4_096 + BESIDE));
        Some(Server {
            engine,
            numbers: Numbers::new(seed),
            cluster,
            reads_ahead: generation.is_none(),
            disk: BTreeMap::new(),
            files: Vec::new(),
            leaves: Recent::new(LEAVES / usize::try_from(shrink).ok()?),
            ahead: 0,
        })
    }

    fn loaded(&self) -> u64 {
        self.engine.memory().warm_regions
    }

    fn age(&mut self) {
        while self.engine.free_clusters() > self.engine.layout().clusters / 5 {
            self.fallocate();
        }
        for _ in 0..self.files.len() {
            self.truncate();
            self.fallocate();
        }
    }

    /// Reads the bitmap of a group for the call that is under way.
    fn read(&self, group: Group) {
        if let Some(bitmap) = self.disk.get(&group.0) {
            // Fails only if the disk did not say what the engine knew, which a comparison of sums
            // at the end would show.
            let _ = self.engine.load_group(group, bitmap);
        }
    }

    /// Brings the bitmaps of what a call has changed to the disk.
    fn write(&mut self, runs: &[ClusterRun]) {
        let mut groups: Vec<u32> = Vec::new();
        for run in runs {
            let group = |cluster| self.engine.layout().group_of(Cluster(cluster)).0;
            groups.extend(group(run.start.0)..=group(run.end().saturating_sub(1)));
        }
        groups.sort_unstable();
        groups.dedup();
        for group in groups.into_iter().map(Group) {
            let bitmap = self.disk.entry(group.0).or_insert_with(|| vec![0; 4_096]);
            if self.engine.group_bitmap(group, bitmap).is_ok() {
                self.engine.written(group, bitmap);
            }
        }
    }

    /// Lays out a new file; tells the reads.
    fn fallocate(&mut self) -> u64 {
        let bytes = self.numbers.log_uniform(SMALLEST, LARGEST);
        let clusters = count((bytes / f64::from(self.cluster)).ceil(), u32::MAX).max(1);
        let directory = self.numbers.below(DIRECTORIES);
        let groups = u64::from(self.engine.layout().groups);
        let home = u32::try_from(directory * groups / DIRECTORIES).unwrap_or(0);
        let key = self.numbers.next();
        let mut file = Stored { key, runs: Vec::new() };
        let (mut reads, mut done) = (0, 0);
        while done < clusters {
            let end = file.runs.last().map(|run| run.end());
            let most = (32_767 / (self.cluster / 4_096)).max(1);
            let request = Request {
                owner: key,
                directory: directory + 2,
                offset: u64::from(done),
                extends: end.is_some(),
                size: u64::from(clusters),
                ..Request::data(
                    end.map_or(self.engine.layout().group_start(Group(home)), Cluster),
                    (clusters - done).min(most),
                )
            };
            let Some(run) = self.allocate(request, &mut reads) else { break };
            done += run.count;
            match file.runs.last_mut() {
                Some(last) if last.end() == run.start.0 => last.count += run.count,
                _ => file.runs.push(run),
            }
        }
        self.engine.closed(key);
        self.write(&file.runs);
        for leaf in leaves(&file) {
            self.leaves.touch(leaf);
        }
        self.files.push(file);
        self.read_ahead(home, clusters);
        reads
    }

    fn allocate(&mut self, mut request: Request, reads: &mut u64) -> Option<ClusterRun> {
        loop {
            match self.engine.allocate(&request) {
                Ok(grant) => return Some(grant.keep()),
                Err(Refusal::NeedBitmap(group)) => {
                    self.read(group);
                    *reads += 1;
                    request.attempt += 1;
                }
                Err(Refusal::NoSpace) => return None,
            }
        }
    }

    /// Loads what the next file of the same kind would need.
    fn read_ahead(&mut self, home: u32, clusters: u32) {
        if self.reads_ahead {
            let goal = self.engine.layout().group_start(Group(home));
            for group in self.engine.wanted_bitmaps(&Request::data(goal, clusters.min(32_767))) {
                if let Some(bitmap) = self.disk.get(&group.0) {
                    let _ = self.engine.prefetch_group(group, bitmap);
                    self.ahead += 1;
                }
            }
        }
    }

    /// Cuts a file at random to nothing; tells the reads.
    fn truncate(&mut self) -> u64 {
        if self.files.is_empty() {
            return 0;
        }
        let file = self.files.swap_remove(self.numbers.index(self.files.len()));
        let mut reads = 0;
        for leaf in leaves(&file) {
            reads += u64::from(!self.leaves.touch(leaf));
        }
        self.engine.truncated(file.key);
        for run in &file.runs {
            while let Err(Denial::NeedBitmap(group)) = self.engine.free(*run) {
                self.read(group);
                reads += 1;
            }
        }
        self.write(&file.runs);
        reads
    }
}

/// The leaf blocks of a file's extent tree; four extents fit in the inode.
fn leaves(file: &Stored) -> impl Iterator<Item = (u64, usize)> {
    let blocks = if file.runs.len() > 4 { file.runs.len().div_ceil(340) } else { 0 };
    let key = file.key;
    (0..blocks).map(move |leaf| (key, leaf))
}

/// The blocks used last.
struct Recent {
    room: usize,
    clock: u64,
    at: BTreeMap<(u64, usize), u64>,
    by_time: BTreeMap<u64, (u64, usize)>,
}

impl Recent {
    fn new(room: usize) -> Self {
        Recent { room, clock: 0, at: BTreeMap::new(), by_time: BTreeMap::new() }
    }

    /// Uses a block; false if it had to be read.
    fn touch(&mut self, block: (u64, usize)) -> bool {
        self.clock += 1;
        let before = self.at.insert(block, self.clock);
        if let Some(time) = before {
            self.by_time.remove(&time);
        }
        self.by_time.insert(self.clock, block);
        if self.at.len() > self.room
            && let Some((_, oldest)) = self.by_time.pop_first()
        {
            self.at.remove(&oldest);
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_save_reads_and_ours_needs_none_of_them() {
        let rows = run(&Setup { seed: 1, quick: true, ..Setup::default() });
        let figure = |case: &str, policy: &str, name: &str| {
            let row = rows.iter().find(|row| row.case == case && row.policy == policy).unwrap();
            row.values.iter().find(|(figure, _)| *figure == name).unwrap().1
        };
        let classic = ["4 KiB", "64 KiB", "256 KiB"].map(|case| figure(case, "mballoc-6.4", "fallocate"));
        assert!(classic[0] > 20.0 * classic[1], "{classic:?}");
        assert!(classic[1] >= classic[2], "{classic:?}");
        assert!(figure("4 KiB", "lease", "fallocate") <= 0.05);
    }

    #[test]
    fn the_least_recently_used_block_goes_first() {
        let mut recent = Recent::new(2);
        assert!(!recent.touch((1, 0)) && !recent.touch((2, 0)) && recent.touch((1, 0)));
        assert!(!recent.touch((3, 0)) && recent.touch((1, 0)) && !recent.touch((2, 0)));
    }
}
