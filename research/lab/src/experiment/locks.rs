//! Time under locks and waiting for them, of real threads on the placement engine alone: what the document of S1 names as
//! the cause, measured and not modelled. Threads write S1's test 1 (40,000 files of 64 KiB, one directory, no delayed
//! allocation) on 100 GiB whose free runs have S1's lengths. The port locks the groups that it looks at as the kernel
//! does, so that which searches lose the best run is found out by threads, and not said by `searchers`.
//!
//! Shares are of the time of all threads together. Each cell is measured twice: for the rate without a look at the clock,
//! and for the rest with one. `search` is time under the lock of a group whose free runs are looked at, `mark` under that
//! of a group in which a run is only marked. Of other locks only the waiting is measured.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use ondisk::units::{Cluster, ClusterRun, Group};
use placement::{BlockPolicyKind, Counter, Engine, GroupContent, Layout, LockKind, Request};

use super::cost::ALLOC_COST;
use super::trial::{CellContext, Values};
use super::{Experiment, verdict};
use crate::jobs::{Job, Key};
use crate::measure::ratio;
use crate::numbers::{Numbers, float};
use crate::plan::Plan;
use crate::results::{Cell, Verdict};
use crate::system::layout;
use crate::table::{cases, mean, show};

pub(super) const GROUP_LOCKS: Experiment = Experiment {
    name: "group-locks",
    about: "time under locks and waiting for them: 1 to 64 threads on S1's fragmented volume",
    jobs,
    judge,
    ..ALLOC_COST
};

const POLICIES: [BlockPolicyKind; 4] = [
    BlockPolicyKind::Mballoc64,
    BlockPolicyKind::Mballoc65,
    BlockPolicyKind::Mballoc,
    BlockPolicyKind::Lease,
];

const GIB: u64 = 1 << 30;
const FILE: u32 = 64 << 10;
/// Unit in which S1's holes are counted.
const UNIT: u64 = 4096;

/// Lengths that are asked for, beside 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// Requests of the kernel's policies are raised to 8 MiB.
    Raised,
    /// Lengths of the kernel's algorithm without the series' first patch: groups are looked at to their end.
    Unreverted,
    Own,
}

impl Lengths {
    fn name(self) -> &'static str {
        match self {
            Lengths::Raised => "raised",
            Lengths::Unreverted => "without the revert",
            Lengths::Own => "own lengths",
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    block: u32,
    lengths: Lengths,
    threads: u32,
    files: u32,
    gibibytes: u64,
}

impl Case {
    fn name(self) -> String {
        let Case { block, lengths, threads, .. } = self;
        format!("{} KiB, {}, {threads} threads", block >> 10, lengths.name())
    }

    fn layout(self) -> Layout {
        // No group has more blocks than its descriptor can count.
        let per_group = (self.block * 8).min(65_528);
        let groups = (self.gibibytes * GIB / u64::from(self.block)) / u64::from(per_group);
        let layout = layout(u32::try_from(groups).unwrap_or(u32::MAX), per_group);
        Layout { block_bytes: self.block, ..layout }
    }
}

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let (threads, files, gibibytes): (&[u32], _, _) =
        if plan.quick { (&[2], 400, 8) } else { (&[1, 2, 8, 64], 40_000, 100) };
    let kinds = [
        (64 << 10, Lengths::Raised),
        (64 << 10, Lengths::Unreverted),
        (64 << 10, Lengths::Own),
        (4 << 10, Lengths::Raised),
        (4 << 10, Lengths::Own),
    ];
    let mut jobs = Vec::new();
    for (block, lengths) in kinds {
        for &threads in threads {
            let case = Case { block, lengths, threads, files, gibibytes };
            let own = if lengths == Lengths::Unreverted { &POLICIES[..2] } else { &POLICIES[..] };
            for policy in plan.policies(own).into_iter().filter(|_| plan.wants(&case.name())) {
                for seed in plan.seeds(1) {
                    let at = CellContext { table: GROUP_LOCKS.name, system: policy.name(), seed, plan };
                    let (key, plan) = (at.key(&case.name(), [("quick", plan.quick.into())]), plan.clone());
                    let run = move |key: &Key| {
                        let figures = measure(case, policy, key.seed, &plan)?.into_iter().collect();
                        Ok(vec![Cell { figures, ..key.cell() }.into()])
                    };
                    jobs.push(Job { key, memory: 256 << 20, weight: 1, run: Box::new(run) });
                }
            }
        }
    }
    Ok(jobs)
}

fn measure(case: Case, policy: BlockPolicyKind, seed: u64, plan: &Plan) -> Result<Values, String> {
    let (seconds, _) = write(&volume(case, policy, seed, plan)?, case)?;
    let timed = volume(case, policy, seed, plan)?;
    timed.time_locks(clock);
    let before = timed.stats();
    let (_, all) = write(&timed, case)?;
    let since = |counter| timed.stats().get(counter) - before.get(counter);
    let files = u64::from(case.files);
    let [groups, marks, others, index] =
        [LockKind::Groups, LockKind::Marks, LockKind::Policy, LockKind::Index]
            .map(|kind| timed.lock_times(kind));
    let each = |nanoseconds| ratio(nanoseconds, files) / 1_000.0;
    let share = |nanoseconds| 100.0 * ratio(nanoseconds, nanoseconds_of(all));
    let of_groups = groups.waited + marks.waited;
    Ok(vec![
        ("files/s", float(files) / seconds),
        ("scanned/file", ratio(since(Counter::ExtentsScanned), files)),
        ("lost/file", ratio(since(Counter::Lost), files)),
        ("group locks/file", ratio(groups.taken + marks.taken, files)),
        ("search us/file", each(groups.held)),
        ("mark us/file", each(marks.held)),
        ("waited us/file", each(of_groups + others.waited + index.waited)),
        ("group waiting %", share(of_groups)),
        ("waiting %", share(of_groups + others.waited + index.waited)),
    ])
}

fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds since the first look.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanoseconds_of(START.get_or_init(Instant::now).elapsed())
}

/// The fragmented volume, with a policy that knows all of it.
fn volume(case: Case, policy: BlockPolicyKind, seed: u64, plan: &Plan) -> Result<Engine, String> {
    // The published volumes had the sets, though those with large blocks have few groups.
    let mut own = vec![("cpus", 64), ("mb_optimize_scan", 1)];
    if case.lengths != Lengths::Own {
        own.push(("forced_goal", (8 << 20) / case.block));
    }
    if case.lengths == Lengths::Unreverted {
        own.push(("mb_min_to_scan", u32::MAX));
    }
    let engine = plan.engine(case.layout(), policy, &own)?;
    let (mut holes, mut left) = (holes(case, seed), None);
    for group in (0..engine.layout().groups).map(Group) {
        describe(&engine, group, &mut holes, &mut left).ok_or("the engine refuses the volume")?;
    }
    // What is made for the first request is not of the files.
    let first = engine.allocate(&Request { owner: 1, ..Request::data(Cluster(0), 1) });
    drop(first);
    engine.release_claims();
    Ok(engine)
}

/// S1's holes in clusters, from the start of the volume on: first and end.
fn holes(case: Case, seed: u64) -> impl Iterator<Item = (u64, u64)> {
    let (mut numbers, mut at, unit) = (Numbers::new(seed), 0u64, u64::from(case.block) / UNIT);
    std::iter::repeat_with(move || {
        let from = at + u64::from(numbers.between(850, 1_199));
        let long = numbers.chance(0.05);
        let hole = if long { numbers.between(1_024, 2_000) } else { numbers.between(820, 1_023) };
        at = from + u64::from(hole);
        (from.div_ceil(unit), at / unit)
    })
}

/// States what a group holds: all is used but the holes. One that goes on behind the group is left for the next.
fn describe(
    engine: &Engine,
    group: Group,
    holes: &mut impl Iterator<Item = (u64, u64)>,
    left: &mut Option<(u64, u64)>,
) -> Option<()> {
    let start = engine.layout().group_start(group).0;
    let end = start + u64::from(engine.layout().clusters_of(group));
    let (mut used, mut at, mut free) = (Vec::new(), start, 0);
    while let Some((from, upto)) = left.take().or_else(|| holes.next()) {
        let (low, high) = (from.clamp(at, end), upto.clamp(at, end));
        let count = u32::try_from(low - at).ok()?;
        used.extend((count > 0).then_some(ClusterRun { start: Cluster(at), count }));
        (at, free) = (high, free + u32::try_from(high - low).ok()?);
        if upto >= end {
            *left = Some((from.max(end), upto));
            break;
        }
    }
    engine.describe_group(group, free, GroupContent::Uninitialised { used: &used }).ok()
}

/// Writes the files by all threads: seconds from the first's start to the last's end, and the time of all together.
fn write(engine: &Engine, case: Case) -> Result<(f64, Duration), String> {
    let begin = Barrier::new(case.threads as usize);
    let each = case.files / case.threads;
    let life = |thread: u32| {
        begin.wait();
        let start = Instant::now();
        let wrote = (0..each).all(|file| one(engine, u64::from(thread * each + file) + 2, FILE / case.block));
        wrote.then(|| (start, Instant::now()))
    };
    let lives: Option<Vec<_>> = std::thread::scope(|scope| {
        let life = &life;
        let threads: Vec<_> = (0..case.threads).map(|thread| scope.spawn(move || life(thread))).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    let lives = lives.ok_or("a file found no place")?;
    let first = lives.iter().map(|(start, _)| *start).min();
    let last = lives.iter().map(|(_, end)| *end).max();
    let whole = last.zip(first).map(|(last, first)| last - first).unwrap_or_default();
    Ok((whole.as_secs_f64(), lives.iter().map(|(start, end)| *end - *start).sum()))
}

/// Makes a file of the directory, whose group is the volume's first.
fn one(engine: &Engine, owner: u64, clusters: u32) -> bool {
    let mut done = 0;
    while done < clusters {
        let want = clusters - done;
        let file = Request {
            owner,
            directory: 2,
            offset: done.into(),
            size: clusters.into(),
            ..Request::data(Cluster(0), want)
        };
        match engine.allocate(&Request { growing: true, ..file }) {
            Ok(grant) => done += grant.into_run().count,
            Err(_) => return false,
        }
    }
    engine.closed(owner);
    true
}

/// Judges the purpose of BEST_AVAIL, and that ours waits less; shares tell neither, since threads that do nothing else than this wait
/// for something whatever a search takes.
fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let claims = [
        ("search us/file", "mballoc-6.5", "less time under the locks of groups whose runs are looked at"),
        ("waited us/file", "lease", "less waiting for locks"),
    ];
    let mut verdicts = Vec::new();
    for (figure, system, claim) in claims {
        let of = |case: &str, system| mean(cells, case, system, figure);
        let raised = cases(cells).into_iter().filter(|case| case.contains("raised") && !case.contains(" 1 "));
        let pairs: Vec<_> =
            raised.filter_map(|case| Some((case, of(case, system)?, of(case, "mballoc-6.4")?))).collect();
        let line = |(case, ours, other): &(&str, f64, f64)| {
            let not = if ours < other { "" } else { "NOT " };
            format!("{not}{case}: {} and {} us a file", show(*ours), show(*other))
        };
        let detail = pairs.iter().map(line).collect::<Vec<_>>().join("; ");
        let holds = pairs.iter().all(|(_, ours, other)| ours < other);
        let text = format!("where requests are raised to 8 MiB, {system} has {claim} than mballoc-6.4");
        verdicts.extend((!pairs.is_empty()).then(|| verdict(GROUP_LOCKS.name, text, holds, detail)));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::measured;

    #[test]
    fn the_volume_is_that_of_s1() {
        for block in [64 << 10, 4 << 10] {
            let case = Case { block, lengths: Lengths::Raised, threads: 2, files: 8, gibibytes: 8 };
            let engine = volume(case, BlockPolicyKind::Mballoc64, 1, &Plan::default()).unwrap();
            let (runs, free) = (engine.free_runs().count() as u64, engine.free_clusters());
            let kibibytes = free * u64::from(block >> 10) / runs;
            assert!((3_500..4_100).contains(&kibibytes), "{kibibytes}");
            let share = ratio(free, engine.layout().clusters);
            assert!((0.45..0.52).contains(&share), "{share}");
        }
    }

    #[test]
    fn locks_are_counted_and_every_file_has_its_place() {
        let cells = measured(&GROUP_LOCKS, "64 KiB, raised", &[]);
        assert_eq!(cells.len(), 4);
        let value = |system, figure| mean(&cells, "64 KiB, raised, 2 threads", system, figure).unwrap();
        // Two looks at a group and more for each file of the port; ours has no locks of groups.
        assert!(value("mballoc-6.4", "group locks/file") >= 2.0);
        assert_eq!(value("lease", "group locks/file"), 0.0);
        assert!(value("mballoc-6.4", "scanned/file") > 10.0 * value("mballoc-6.5", "scanned/file"));
        assert_eq!(judge(&cells).len(), 2);
    }
}
