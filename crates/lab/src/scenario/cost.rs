//! What the allocator itself costs: calls and time per block for files of 5 kB, 600 kB and
//! 12,445 kB with bitmaps loaded (2004), and throughput of many threads on one volume.
//!
//! Time is that of the monotonic clock over batches, medians of them. Cycles are nanoseconds times
//! the clock rate the processor states; zero where it states none.

use super::Setup;
use crate::measure::ratio;
use crate::numbers::{Numbers, float};
use crate::table::{Row, Rows, Summary};
use crate::volume::Writing;
use ondisk::units::{Cluster, Group};
use placement::{BlockPolicyKind, Counter, Request};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clock rate in GHz as the processor states it.
fn gigahertz() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let rate = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    rate.unwrap_or(0.0) / 1_000.0
}

pub(crate) fn run(setup: &Setup) -> Rows {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Single, BlockPolicyKind::Mballoc];
    let mut rows = Vec::new();
    for (case, clusters) in [("5 kB", 2u32), ("600 kB", 150), ("12445 kB", 3_112)] {
        for policy in setup.policies(&own).into_iter().filter(|_| setup.wants(case)) {
            rows.extend(one(case, clusters, policy, setup));
        }
    }
    rows
}

fn one(case: &str, clusters: u32, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let mut volume = setup.volume(128, 32_768, policy)?;
    let (batches, batch) = if setup.quick { (5u32, 20) } else { (51, (200_000 / clusters).clamp(20, 2_000)) };
    let mut times = Vec::new();
    for _ in 0..batches {
        let mut files: Vec<_> = (0..batch).map(|_| volume.file(2)).collect();
        let start = Instant::now();
        for file in &mut files {
            volume.append(file, clusters, Cluster(0), Writing::Whole);
        }
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.push(ratio(nanoseconds, u64::from(batch)));
        for file in &files {
            volume.remove(file);
        }
    }
    let calls = ratio(volume.engine.stats().get(Counter::Reqs), u64::from(batches) * u64::from(batch));
    let file = Summary::of(&times)?.median;
    let values = vec![
        ("calls", calls),
        ("ns/call", file / calls),
        ("cycles/call", file / calls * gigahertz()),
        ("cycles/block", file / f64::from(clusters) * gigahertz()),
    ];
    setup.counters.note(case, policy, &volume.engine);
    Some(Row { case: case.into(), policy: policy.name().into(), values })
}

pub(crate) fn threads(setup: &Setup) -> Rows {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Mballoc];
    let counts: &[u32] = if setup.quick { &[1, 4] } else { &[1, 2, 4, 8, 16, 32, 64] };
    let mut rows = Vec::new();
    for &count in counts {
        let case = format!("{count} threads");
        for policy in setup.policies(&own).into_iter().filter(|_| setup.wants(&case)) {
            rows.extend(many(&case, count, policy, setup));
        }
    }
    rows
}

/// Threads that allocate 1 to 32 clusters, keep a few hundred, and free the oldest, for a second.
fn many(case: &str, threads: u32, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let volume = setup.volume(800, 32_768, policy)?;
    let engine = &volume.engine;
    let (operations, worst) = (AtomicU64::new(0), AtomicU64::new(0));
    let time = Duration::from_millis(if setup.quick { 50 } else { 1_000 });
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (operations, worst) = (&operations, &worst);
            scope.spawn(move || {
                let mut numbers = Numbers::new(u64::from(thread) + 1);
                let mut held = std::collections::VecDeque::new();
                let home = Group(thread * 12 % engine.layout().groups);
                let goal = engine.layout().group_start(home);
                let (mut done, mut longest) = (0, 0);
                while start.elapsed() < time {
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
                    let nanoseconds = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    longest = longest.max(nanoseconds);
                }
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
    setup.counters.note(case, policy, engine);
    Some(Row { case: case.into(), policy: policy.name().into(), values })
}
