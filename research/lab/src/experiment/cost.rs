//! Cost of the allocator itself: calls and time per block for files of 5 kB, 600 kB and
//! 12,445 kB with bitmaps loaded (2004), and throughput of many threads on one volume.
//!
//! Time is that of the monotonic clock over batches, medians of them. Cycles are nanoseconds times
//! the clock rate the processor states; zero where it states none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ondisk::units::{Cluster, Group};
use placement::stats::Stats;
use placement::{BlockPolicyKind, Counter, Engine, Request};

use super::trial::{CellContext, Values, of_key};
use super::{Baseline, Experiment, Kind, best};
use crate::file::File;
use crate::jobs::{Job, Key};
use crate::measure::ratio;
use crate::numbers::{Numbers, float};
use crate::plan::Plan;
use crate::results::{Cell, Criteria};
use crate::summary::Summary;
use crate::system::{Writing, cut, describe_empty, extend, layout};

pub(super) const ALLOC_COST: Experiment = Experiment {
    name: "alloc-cost",
    also: "",
    about: "calls and cycles per block for files of 5 kB, 600 kB and 12,445 kB (2004)",
    figures: &[],
    kind: Kind::Times,
    baseline: Baseline::None,
    jobs: alloc_cost,
    judge: best::judge,
};

pub(super) const THREADS: Experiment = Experiment {
    name: "threads",
    about: "1 to 64 threads allocating and freeing on one volume of 100 GiB",
    jobs: threads,
    ..ALLOC_COST
};

/// Clock rate in GHz as the processor states it.
fn gigahertz() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let rate = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    rate.unwrap_or(0.0) / 1_000.0
}

fn alloc_cost(plan: &Plan) -> Result<Vec<Job>, String> {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Single, BlockPolicyKind::Mballoc];
    let cases = [("5 kB", 2u32), ("600 kB", 150), ("12445 kB", 3_112)];
    let case = |(name, clusters): (&str, u32)| {
        let measure = move |policy, plan: &Plan| one(clusters, policy, plan);
        timed(&ALLOC_COST, name, plan, &own, measure)
    };
    Ok(cases.into_iter().flat_map(case).collect())
}

/// The jobs of a case that times calls of an engine, one for each policy and seed.
fn timed(
    experiment: &Experiment,
    case: &str,
    plan: &Plan,
    own: &[BlockPolicyKind],
    measure: impl Fn(BlockPolicyKind, &Plan) -> Result<(Stats, Values), String> + Copy + Send + 'static,
) -> Vec<Job> {
    let mut jobs = Vec::new();
    for policy in plan.policies(own).into_iter().filter(|_| plan.wants(case)) {
        for seed in plan.seeds(1) {
            let at = CellContext { table: experiment.name, system: policy.name(), seed, plan };
            let (key, plan) = (at.key(case, [("quick", plan.quick.into())]), plan.clone());
            let run = move |key: &Key| {
                let (stats, values) = measure(policy, &plan)?;
                let figures = values.into_iter().collect();
                let counted = of_key(key, Criteria::of(&stats));
                Ok(vec![counted.into(), Cell { figures, ..key.cell() }.into()])
            };
            jobs.push(Job { key, memory: 256 << 20, weight: 1, run: Box::new(run) });
        }
    }
    jobs
}

fn one(clusters: u32, policy: BlockPolicyKind, plan: &Plan) -> Result<(Stats, Values), String> {
    let engine = empty(128, policy, plan)?;
    let (batches, batch) = if plan.quick { (5u32, 20) } else { (51, (200_000 / clusters).clamp(20, 2_000)) };
    let mut times = Vec::new();
    let mut keys = 12..;
    for _ in 0..batches {
        let file = |key| File::new(key, 2);
        let mut files: Vec<File> = keys.by_ref().take(batch as usize).map(file).collect();
        let start = Instant::now();
        for file in &mut files {
            extend(&engine, file, clusters, Cluster(0), Writing::Whole);
        }
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.push(ratio(nanoseconds, u64::from(batch)));
        files.iter_mut().for_each(|file| cut(&engine, file, 0));
    }
    let stats = engine.stats();
    let calls = ratio(stats.get(Counter::Reqs), u64::from(batches) * u64::from(batch));
    let file = Summary::of(&times).map_or(0.0, |summary| summary.median);
    let values = vec![
        ("calls", calls),
        ("ns/call", file / calls),
        ("cycles/call", file / calls * gigahertz()),
        ("cycles/block", file / f64::from(clusters) * gigahertz()),
    ];
    Ok((stats, values))
}

/// An empty volume of groups of 32,768 clusters.
fn empty(groups: u32, policy: BlockPolicyKind, plan: &Plan) -> Result<Engine, String> {
    let engine = plan.engine(layout(groups, 32_768), policy, &[])?;
    describe_empty(&engine).ok_or("the engine refuses an empty volume")?;
    Ok(engine)
}

fn threads(plan: &Plan) -> Result<Vec<Job>, String> {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Mballoc];
    let counts: &[u32] = if plan.quick { &[1, 4] } else { &[1, 2, 4, 8, 16, 32, 64] };
    let case = |count: &u32| {
        let count = *count;
        let measure = move |policy, plan: &Plan| many(count, policy, plan);
        timed(&THREADS, &format!("{count} threads"), plan, &own, measure)
    };
    Ok(counts.iter().flat_map(case).collect())
}

/// Allocates 1 to 32 clusters at a time, keeps a few hundred, and frees the oldest, until the time is over: how often,
/// and the nanoseconds of the slowest 64.
fn allocating(thread: u32, engine: &Engine, until: Instant) -> (u64, u64) {
    let mut numbers = Numbers::new(u64::from(thread) + 1);
    let mut held = std::collections::VecDeque::new();
    let home = Group(thread * 12 % engine.layout().groups);
    let goal = engine.layout().group_start(home);
    let (mut done, mut longest) = (0, 0);
    while Instant::now() < until {
        let before = Instant::now();
        for _ in 0..64 {
            let request = Request {
                owner: numbers.next(),
                directory: u64::from(thread) + 2,
                ..Request::data(goal, numbers.between(1, 32))
            };
            held.extend(engine.allocate(&request));
            if held.len() > 400 {
                held.pop_front();
            }
            done += 1;
        }
        longest = longest.max(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    (done, longest)
}

/// Many threads that allocate at once, for a second.
fn many(threads: u32, policy: BlockPolicyKind, plan: &Plan) -> Result<(Stats, Values), String> {
    let engine = &empty(800, policy, plan)?;
    let (operations, worst) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let until = start + Duration::from_millis(if plan.quick { 50 } else { 1_000 });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (operations, worst) = (&operations, &worst);
            scope.spawn(move || {
                let (done, longest) = allocating(thread, engine, until);
                operations.fetch_add(done, Ordering::Relaxed);
                worst.fetch_max(longest, Ordering::Relaxed);
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let values = vec![
        ("allocations/s", float(operations.load(Ordering::Relaxed)) / seconds),
        ("lost races", float(engine.stats().get(Counter::Lost))),
        ("worst 64 us", float(worst.load(Ordering::Relaxed)) / 1_000.0),
    ];
    Ok((engine.stats(), values))
}
