//! The engine, under every policy, against a naive list of flags.
use crate::policy::{BlockPolicy, POLICIES};
use crate::{BlockPolicyKind, Denial, Engine, Grant, GroupContent, Kind, Layout, Refusal, Request};
use ondisk::units::{Cluster, ClusterRun, Group};
use proptest::prelude::*;

/// SplitMix64 (Steele, Lea, Flood 2014): a seeded stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn below32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap()
    }
}

struct Model {
    engine: Engine,
    /// True is used.
    flags: Vec<bool>,
    /// Bitmaps as on disk.
    disk: Vec<Vec<u8>>,
    /// Bitmaps on their way to the disk.
    writing: Vec<(Group, Vec<u8>)>,
    kept: Vec<ClusterRun>,
    /// Runs that are no longer used, but freed only when their commit is durable, and the number of that commit.
    waiting: Vec<(ClusterRun, u64)>,
    /// Runs of dropped grants whose bitmap is not there: they are freed when it is loaded.
    strays: Vec<ClusterRun>,
    commit: u64,
    held: Vec<Grant>,
    /// True if the policy promises to find every sufficient run.
    complete: bool,
}

fn layout(cpg: u32, groups: u32, last: u32) -> Layout {
    Layout {
        clusters: u64::from(cpg) * u64::from(groups - 1) + u64::from(last),
        clusters_per_group: cpg,
        groups,
        inodes_per_group: 64,
        groups_per_flex: 4,
        block_bytes: 4_096,
        blocks_per_cluster: 1,
    }
}

/// The policy, half of the time with other values of some of its parameters (any in their ranges must
/// do), and whether it has the usual ones.
fn tuned(policy: BlockPolicyKind, numbers: &mut Numbers) -> (Box<dyn BlockPolicy>, bool) {
    let mut values = Vec::new();
    let changes = numbers.below(2) == 0;
    for tunable in policy.row().tunables.iter().filter(|_| changes) {
        let any = u64::from(tunable.least) + numbers.below(u64::from(tunable.most - tunable.least).max(1));
        let any = u32::try_from(any).unwrap();
        if let Some(value) = [tunable.least, tunable.most, any].get(numbers.below32(8) as usize) {
            values.push((tunable.name, *value));
        }
    }
    (policy.tuned(&values).unwrap(), values.is_empty())
}

fn bytes_of(flags: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0xFF; flags.len().div_ceil(8)];
    for (index, used) in flags.iter().enumerate() {
        if !used {
            bytes[index / 8] &= !(1 << (index % 8));
        }
    }
    bytes
}

impl Model {
    fn new(layout: Layout, policy: BlockPolicyKind, numbers: &mut Numbers) -> Self {
        let (made, is_usual) = tuned(policy, numbers);
        let engine = Engine::with_policy(layout, made).unwrap();
        let mut flags = vec![false; usize::try_from(layout.clusters).unwrap()];
        let mut disk = Vec::new();
        for group in (0..layout.groups).map(Group) {
            let start = layout.group_start(group);
            let size = layout.clusters_of(group);
            let range = usize::try_from(start.0).unwrap()..usize::try_from(start.0).unwrap() + size as usize;
            let flags = &mut flags[range];
            if numbers.below(3) == 0 {
                let count = numbers.below32(size.min(600) + 1);
                let low = if numbers.below(2) == 0 { 0 } else { numbers.below32(size - count + 1) };
                let used = [ClusterRun { start: Cluster(start.0 + u64::from(low)), count }];
                flags[low as usize..(low + count) as usize].fill(true);
                let used = GroupContent::Uninitialised { used: if count > 0 { &used } else { &[] } };
                engine.describe_group(group, size - count, used).unwrap();
                disk.push(bytes_of(flags));
            } else {
                let mean = [1, 4, 30, 700, 20_000][numbers.below32(5) as usize];
                let mut at = 0;
                while at < size {
                    let end = (at + 1 + numbers.below32(mean * 2)).min(size);
                    flags[at as usize..end as usize].fill(numbers.below(2) == 0);
                    at = end;
                }
                let free = flags.iter().filter(|used| !**used).count();
                engine.describe_group(group, u32::try_from(free).unwrap(), GroupContent::Unknown).unwrap();
                disk.push(bytes_of(flags));
            }
        }
        let complete = policy == BlockPolicyKind::Lease && is_usual;
        if numbers.below(2) == 0 {
            engine.set_memory_bound(numbers.below(40_000));
        }
        Model {
            engine,
            flags,
            disk,
            writing: Vec::new(),
            kept: Vec::new(),
            waiting: Vec::new(),
            strays: Vec::new(),
            commit: 1,
            held: Vec::new(),
            complete,
        }
    }

    fn range(run: ClusterRun) -> std::ops::Range<usize> {
        usize::try_from(run.start.0).unwrap()..usize::try_from(run.end()).unwrap()
    }

    /// Gives the bitmap of a group as the disk has it: an older state than the engine's only where
    /// dropped grants were, which are free there at times.
    fn load(&mut self, group: Group) {
        assert!(self.engine.needs_bitmap(group), "asked for a bitmap that is there");
        let mut bitmap = self.disk[group.0 as usize].clone();
        let start = self.engine.layout().group_start(group).0;
        let size = u64::from(self.engine.layout().clusters_of(group));
        if self.commit.is_multiple_of(2) {
            for run in &self.strays {
                for at in run.start.0.max(start)..run.end().min(start + size) {
                    let bit = usize::try_from(at - start).unwrap();
                    bitmap[bit / 8] &= !(1 << (bit % 8));
                }
            }
        }
        if self.commit.is_multiple_of(3) {
            self.engine.prefetch_group(group, &bitmap).unwrap();
        } else {
            self.engine.load_group(group, &bitmap).unwrap();
        }
        self.look_for_strays();
    }

    /// Checks that clusters of orphaned grants are free once they are given back.
    fn look_for_strays(&mut self) {
        let mut left = self.engine.orphaned_grants();
        for run in std::mem::take(&mut self.strays) {
            match left.iter().position(|stray| *stray == run) {
                Some(at) => self.strays.push(left.swap_remove(at)),
                None => self.flags[Self::range(run)].fill(false),
            }
        }
        assert!(left.is_empty(), "{left:?} were never granted");
    }

    /// Tells for each region if it is known: each group is cut into regions of 32,768 clusters.
    fn known_regions(&self) -> Vec<Vec<bool>> {
        let layout = self.engine.layout();
        let known = |group| {
            let start = layout.group_start(group).0;
            let starts = (0..layout.clusters_of(group)).step_by(32_768);
            starts.map(|at| self.engine.is_free(Cluster(start + u64::from(at))).is_some()).collect()
        };
        (0..layout.groups).map(Group).map(known).collect()
    }

    /// For each cluster, whether it is used or unknown.
    fn unusable(&self) -> Vec<bool> {
        let cpg = self.engine.layout().clusters_per_group as usize;
        let known = self.known_regions();
        let hidden = |at: usize| !known[at / cpg][at % cpg / 32_768];
        self.flags.iter().enumerate().map(|(at, used)| *used || hidden(at)).collect()
    }

    /// True if there is a place with `count` free clusters.
    fn place(unusable: &[bool], count: u32) -> bool {
        let (mut start, mut at) = (0, 0);
        while at < unusable.len() {
            if unusable[at] {
                start = at + 1;
            } else if at >= start && at + 1 - start >= count as usize {
                return true;
            }
            at += 1;
        }
        false
    }

    /// True if anything is set aside for growing files.
    fn claims(&self) -> bool {
        let free = self.unusable().iter().filter(|unusable| !**unusable).count() as u64;
        self.engine.free_runs().map(|run| u64::from(run.count)).sum::<u64>() != free
    }

    /// Begins or ends the writing of a bitmap; what is on disk may be dropped.
    fn write(&mut self, numbers: &mut Numbers) {
        let layout = *self.engine.layout();
        let group = Group(numbers.below32(layout.groups));
        let mut bitmap = vec![0; layout.clusters_of(group).div_ceil(8) as usize];
        self.writing.retain(|(other, _)| *other != group);
        if self.engine.group_bitmap(group, &mut bitmap).is_ok() {
            self.writing.push((group, bitmap));
        }
        while self.writing.len() > numbers.below32(4) as usize {
            let (group, bitmap) = self.writing.remove(0);
            let start = layout.group_start(group).0;
            let count = layout.clusters_of(group);
            let now = bytes_of(&self.flags[Self::range(ClusterRun { start: Cluster(start), count })]);
            let known = !self.engine.needs_bitmap(group);
            let same = self.engine.written(group, &bitmap);
            assert!(same == (now == bitmap) || (!same && !known), "what is on disk is misjudged");
            self.disk[group.0 as usize] = bitmap;
        }
        if numbers.below(3) == 0 {
            self.engine.shrink_to(numbers.below(100_000));
        }
    }

    /// Sets a run aside until its commit, or makes commits durable.
    fn commit(&mut self, numbers: &mut Numbers) {
        if numbers.below(3) > 0 && !self.kept.is_empty() {
            let run = self.kept.swap_remove(usize::try_from(numbers.below(self.kept.len() as u64)).unwrap());
            self.waiting.push((run, self.commit));
            return;
        }
        let done = self.commit - numbers.below(2);
        self.commit += 1;
        let (durable, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, commit)| *commit <= done);
        self.waiting = waiting;
        // One at a time: each may need several bitmaps, which must be there together.
        for (run, _) in durable {
            self.free(run);
        }
    }

    fn allocate(&mut self, request: Request) {
        let mut request = request;
        let claims = self.complete && self.claims();
        let grant = loop {
            match self.engine.allocate(&request) {
                Err(Refusal::NeedBitmap(group)) => {
                    self.load(group);
                    request.attempt += 1;
                }
                other => break other,
            }
        };
        let Ok(grant) = grant else {
            let fits = Self::place(&self.flags, request.min);
            assert!(!fits, "refused {request:?}, but it fits");
            return;
        };
        let run = grant.run();
        assert!(run.count >= request.min && run.count <= request.want, "{request:?} got {run:?}");
        for flag in &mut self.flags[Self::range(run)] {
            assert!(!*flag, "double allocation in {run:?}");
            *flag = true;
        }
        let tight = self.engine.free_clusters() < self.engine.layout().clusters / 3;
        // A window may have been in the way: also the file's own, which is given up with this grant.
        if run.count < request.want && self.complete && !tight && !claims && !self.claims() {
            // Put it back for a moment: the known space must not have held the whole.
            self.flags[Self::range(run)].fill(false);
            let fits = Self::place(&self.unusable(), request.want);
            assert!(!fits, "{request:?} trimmed to {run:?}");
            self.flags[Self::range(run)].fill(true);
        }
        self.held.push(grant);
    }

    fn free(&mut self, run: ClusterRun) {
        loop {
            // Neighbours are joined by the one, not by the other; the outcome is the same.
            let freed =
                if run.count.is_multiple_of(2) { self.engine.free(run) } else { self.engine.free_all([run]) };
            match freed {
                Err(Denial::NeedBitmap(group)) => self.load(group),
                other => break other.unwrap(),
            }
        }
        self.flags[Self::range(run)].fill(false);
    }

    fn settle(&mut self, numbers: &mut Numbers) {
        let Some(grant) = self.held.pop() else { return };
        let cut = numbers.below32(grant.run().count + 1);
        let (first, second) = grant.split(cut);
        for grant in [first, second] {
            if numbers.below(3) == 0 {
                self.strays.extend(Some(grant.run()).filter(|run| run.count > 0));
                drop(grant);
                self.look_for_strays();
            } else if grant.run().count > 0 {
                self.kept.push(grant.into_run());
            }
        }
    }

    fn compare(&self) {
        let layout = *self.engine.layout();
        let free = self.flags.iter().filter(|used| !**used).count() as u64;
        assert_eq!(self.engine.free_clusters(), free);
        let mut out = vec![0; layout.clusters_per_group.div_ceil(8) as usize + 3];
        for group in (0..layout.groups).map(Group) {
            let run = ClusterRun { start: layout.group_start(group), count: layout.clusters_of(group) };
            let flags = &self.flags[Self::range(run)];
            let free = flags.iter().filter(|used| !**used).count();
            assert_eq!(self.engine.group_free(group) as usize, free);
            if self.engine.group_bitmap(group, &mut out).is_ok() {
                let expected = bytes_of(flags);
                assert_eq!(out[..expected.len()], expected);
                assert!(out[expected.len()..].iter().all(|&byte| byte == 0xFF));
            }
        }
        let unusable = self.unusable();
        let mut expected = Vec::new();
        let mut at = 0;
        while at < unusable.len() {
            let start = at;
            while unusable.get(at) == Some(&false) {
                at += 1;
            }
            if at > start {
                let count = u32::try_from(at - start).unwrap();
                expected.push(ClusterRun { start: Cluster(start as u64), count });
            }
            at += 1;
        }
        let found: Vec<ClusterRun> = self.engine.free_runs().collect();
        let total = |runs: &[ClusterRun]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        if total(&found) == total(&expected) {
            // Nothing is set aside.
            assert!(found == expected, "free runs differ");
        }
        let free = |run: &ClusterRun| !self.flags[Self::range(*run)].contains(&true);
        assert!(found.iter().all(free), "a free run has used clusters");
    }
}

fn length(numbers: &mut Numbers, size: u64) -> u32 {
    let bounds = [2, 17, 600, 5_000, u32::try_from(size / 2).unwrap(), 70_000];
    let bound = bounds[numbers.below32(6) as usize].max(1);
    1 + numbers.below32(bound)
}

fn exercise(layout: Layout, policy: BlockPolicyKind, seed: u64, steps: u32) {
    let mut numbers = Numbers(seed);
    let mut model = Model::new(layout, policy, &mut numbers);
    for step in 0..steps {
        match numbers.below(16) {
            0..=4 => {
                let want = length(&mut numbers, layout.clusters);
                let goal = Cluster(numbers.below(layout.clusters));
                let min = 1 + numbers.below32(want);
                let stream = numbers.below(3) == 0;
                let kind = if numbers.below(3) == 0 { Kind::Metadata } else { Kind::Data };
                let owner = numbers.below(6);
                let offset = numbers.below(3) * numbers.below(5_000);
                let request = Request {
                    min,
                    stream,
                    kind,
                    owner,
                    directory: numbers.below(4),
                    offset,
                    extends: offset > 0 && numbers.below(2) == 0,
                    size: offset + u64::from(want),
                    growing: numbers.below(2) == 0,
                    ..Request::data(goal, want)
                };
                model.allocate(request);
            }
            5..=7 => model.settle(&mut numbers),
            8 => model.engine.closed(numbers.below(6)),
            11 | 12 => model.write(&mut numbers),
            13..=15 => model.commit(&mut numbers),
            9 if !model.kept.is_empty() => {
                let index = usize::try_from(numbers.below(model.kept.len() as u64)).unwrap();
                let run = model.kept.swap_remove(index);
                model.free(run);
            }
            _ => {
                let start = Cluster(numbers.below(layout.clusters));
                let run = ClusterRun { start, count: 1 + numbers.below32(40) };
                if run.end() <= layout.clusters && model.flags[Model::range(run)].iter().all(|used| !used) {
                    match model.engine.take_exact(run) {
                        Ok(grant) => {
                            model.flags[Model::range(run)].fill(true);
                            model.held.push(grant);
                        }
                        Err(denial) => assert!(matches!(denial, Denial::NeedBitmap(_)), "{denial}"),
                    }
                } else {
                    assert!(model.engine.take_exact(run).is_err());
                }
            }
        }
        if step % 16 == 0 {
            model.compare();
        }
    }
    for owner in 0..6 {
        model.engine.closed(owner);
    }
    model.engine.release_claims();
    model.compare();
    let known = model.unusable().iter().filter(|unusable| !**unusable).count() as u64;
    let found: u64 = model.engine.free_runs().map(|run| u64::from(run.count)).sum();
    assert_eq!(found, known, "something is still set aside");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn nothing_is_lost_or_given_twice(
        cpg in prop_oneof![
            Just(256u32), Just(8_192), Just(8_200), Just(32_768), Just(32_760), Just(40_000), Just(65_528)
        ],
        groups in 1u32..6,
        odd in 1u32..70_000,
        seed in any::<u64>(),
    ) {
        let last = 1 + odd % cpg;
        let groups = if cpg == 256 { groups * 30 } else { groups };
        for row in POLICIES {
            exercise(layout(cpg, groups, last), row.kind, seed, 200);
        }
    }
}

/// A request that leaves the file's window, where only the window's place would hold all of it.
#[test]
fn a_file_in_the_way_of_itself_is_split() {
    exercise(layout(8_192, 3, 8_163), BlockPolicyKind::Lease, 5_016_328_092_283_475_448, 200);
}

#[test]
fn a_group_of_64_kib_blocks() {
    for row in POLICIES {
        exercise(layout(524_288, 2, 300_001), row.kind, 7, 120);
    }
}

/// Block sizes from 1 to 64 KiB, two million steps in all; see docs/testing.md for the command.
#[test]
#[ignore = "takes minutes"]
fn millions_of_steps() {
    let sizes = [(256, 40, 150_000), (8_192, 5, 50_000), (16_384, 4, 20_000), (32_768, 3, 15_000)];
    let large = [(65_536, 3, 6_000), (131_072, 2, 3_000), (262_144, 2, 2_000), (524_288, 2, 1_000)];
    for (cpg, groups, steps) in sizes.into_iter().chain(large) {
        for (row, seed) in POLICIES.iter().zip(100u64..) {
            exercise(layout(cpg, groups, cpg - 8), row.kind, seed, steps);
            println!("{cpg} clusters per group, {}: {steps} steps", row.name);
        }
    }
}

#[test]
fn a_run_crosses_groups() {
    let engine = Engine::new(layout(32_768, 4, 32_768), BlockPolicyKind::Lease).unwrap();
    for group in 0..4 {
        engine.describe_group(Group(group), 32_768, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    let request = Request { stream: true, ..Request::data(Cluster(20_000), 20_000) };
    let grant = engine.allocate(&request).unwrap();
    assert_eq!(grant.run(), ClusterRun { start: Cluster(20_000), count: 20_000 });
    let tail = engine.allocate(&Request { min: 92_000, ..Request::data(Cluster(0), 92_000) });
    assert_eq!(tail.unwrap_err(), Refusal::NoSpace);
    drop(grant);
    assert_eq!(engine.allocate(&Request::data(Cluster(0), 131_072)).unwrap().run().count, 131_072);
    assert_eq!(engine.free_runs().count(), 1);
}

#[test]
fn a_stream_leaves_gaps_for_later() {
    let engine = Engine::new(layout(8_192, 4, 8_192), BlockPolicyKind::Lease).unwrap();
    for group in 0..4u32 {
        let used = [ClusterRun { start: Cluster(u64::from(group) * 8_192 + 4_000), count: 100 }];
        engine.describe_group(Group(group), 8_092, GroupContent::Uninitialised { used: &used }).unwrap();
    }
    let stream = |goal, want| Request { stream: true, ..Request::data(Cluster(goal), want) };
    let first = engine.allocate(&stream(3_900, 200)).unwrap().into_run();
    assert_eq!(first.start, Cluster(4_100));
    let second = engine.allocate(&stream(3_900, 100)).unwrap().into_run();
    assert_eq!(second.start, Cluster(3_900));
    let joined = engine.allocate(&stream(4_300, 8_000)).unwrap().into_run();
    assert_eq!(joined, ClusterRun { start: Cluster(12_292), count: 8_000 });
}

#[test]
fn contradictions_are_reported_and_leave_the_rest_usable() {
    let engine = Engine::new(layout(8_192, 2, 8_192), BlockPolicyKind::Lease).unwrap();
    engine.describe_group(Group(0), 10, GroupContent::Unknown).unwrap();
    engine.describe_group(Group(1), 8_192, GroupContent::Uninitialised { used: &[] }).unwrap();
    assert!(engine.describe_group(Group(2), 1, GroupContent::Unknown).is_err());
    assert!(engine.describe_group(Group(0), 8_193, GroupContent::Unknown).is_err());
    let refusal = engine.allocate(&Request::data(Cluster(5), 3)).unwrap_err();
    assert_eq!(refusal, Refusal::NeedBitmap(Group(0)));
    assert!(engine.load_group(Group(0), &[0; 8]).is_err());
    let error = engine.load_group(Group(0), &[0; 1_024]).unwrap_err();
    assert_eq!(error.to_string(), "group 0: the bitmap shows 8192 free, the descriptor 10");
    assert_eq!(engine.free_clusters(), 8_192);
    let run = engine.allocate(&Request::data(Cluster(5), 3)).unwrap().into_run();
    assert!(run.start.0 >= 8_192);
    assert!(engine.free(ClusterRun { start: Cluster(5), count: 1 }).is_err());
    engine.free(run).unwrap();
    assert!(engine.free(run).is_err());
}

#[test]
fn threads_share_one_volume() {
    let engine = Engine::new(layout(8_192, 16, 8_000), BlockPolicyKind::Lease).unwrap();
    for group in (0..16).map(Group) {
        let size = engine.layout().clusters_of(group);
        engine.describe_group(group, size, GroupContent::Uninitialised { used: &[] }).unwrap();
    }
    let total = engine.free_clusters();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let engine = &engine;
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                let mut kept = Vec::new();
                for _ in 0..3_000 {
                    let want = 1 + numbers.below32(300);
                    let goal = Cluster(numbers.below(engine.layout().clusters));
                    if let Ok(grant) = engine.allocate(&Request::data(goal, want)) {
                        kept.push(grant);
                    }
                    if kept.len() > 40 || numbers.below(3) == 0 {
                        kept.truncate(kept.len() / 2);
                    }
                }
            });
        }
    });
    assert_eq!(engine.free_clusters(), total);
    assert_eq!(engine.free_runs().count(), 1);
    let whole = engine.allocate(&Request::data(Cluster(0), u32::try_from(total).unwrap())).unwrap();
    assert_eq!(u64::from(whole.run().count), total);
}
