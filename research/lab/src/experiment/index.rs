//! Cost of the free-space index: time of an allocation and of a free on fragmented volumes, memory
//! per TiB, and the time to build it from bitmaps.
//!
//! - *Latency*: volumes of 100 GiB and 16 TiB of 4 KiB clusters whose free runs have geometric
//!   lengths of a given mean, half of the volume free. Batches of allocations with lengths around the mean and goals at one of
//!   [`AREAS`] random places, and frees of older ones at random; medians over batches, with the
//!   policy and all counters in between. Every region of the volume is indexed from one of
//!   [`PATTERNS`] bitmaps.
//! - *Memory*: of the volume with every bitmap loaded (warm), and with all of them dropped (cold).
//!   Counted is all that depends on the volume's size: states, edges, bit planes, free counts,
//!   locks, directories, summaries with their unused room. Apart: the bitmaps themselves.
//! - *Build*: `load_group` for all groups of 1 TiB, from bitmaps in memory.

use std::sync::Arc;
use std::time::Instant;

use ondisk::units::{Cluster, ClusterRun, Group};
use placement::{BlockPolicyKind, Engine, GroupContent, Request};

use super::trial::{CellContext, Values};
use super::{Baseline, Experiment, Kind, best};
use crate::jobs::{Job, Key};
use crate::numbers::{Numbers, count, float};
use crate::plan::Plan;
use crate::results::Cell;
use crate::system::layout;

pub(super) const INDEX_COST: Experiment = Experiment {
    name: "index-cost",
    also: "",
    about: "time of an allocation and a free on fragmented volumes, memory per TiB, time to build",
    figures: &[],
    kind: Kind::Times,
    baseline: Baseline::None,
    jobs,
    judge: best::judge,
};

const PER_GROUP: u32 = 32_768;
/// Mean lengths of free runs.
const MEANS: [f64; 5] = [1.5, 4.0, 16.0, 64.0, 1_000.0];
/// Different bitmaps a volume is made of.
const PATTERNS: usize = 64;
/// Places over the whole volume at which files are created, as directories in use would be.
const AREAS: usize = 256;
/// Groups of a TiB.
const TIB: u32 = 8_192;
const MIB: f64 = 1_048_576.0;

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let sizes: &[(&str, u32)] =
        if plan.quick { &[("4 GiB", 32)] } else { &[("100 GiB", 800), ("16 TiB", 16 * TIB)] };
    let mut jobs = Vec::new();
    let mut add = |case: String, system: &str, measure: Measured| {
        for seed in plan.seeds(1).filter(|_| plan.wants(&case)) {
            let at = CellContext { table: INDEX_COST.name, system, seed, plan };
            let (key, quick) = (at.key(&case, [("quick", plan.quick.into())]), plan.quick);
            let measure = Arc::clone(&measure);
            let run = move |key: &Key| {
                let values = measure(quick, key.seed).ok_or("the engine refuses the volume")?;
                Ok(vec![Cell { figures: values.into_iter().collect(), ..key.cell() }.into()])
            };
            jobs.push(Job { key, memory: 512 << 20, weight: 1, run: Box::new(run) });
        }
    };
    for &(name, groups) in sizes {
        for mean in MEANS {
            for policy in plan.policies(&[BlockPolicyKind::Lease]) {
                let measure = move |quick, seed| latency(groups, mean, policy, quick, seed);
                add(format!("{name} mean {mean}"), policy.name(), Arc::new(measure));
            }
        }
    }
    for mean in MEANS {
        let groups = if plan.quick { 64 } else { TIB };
        let measure = move |_: bool, seed| size_and_build(groups, mean, seed);
        add(format!("1 TiB mean {mean}"), "index", Arc::new(measure));
    }
    Ok(jobs)
}

/// Measurement of a case, of small sizes or not, under a seed.
type Measured = Arc<dyn Fn(bool, u64) -> Option<Values> + Send + Sync>;

/// A length of geometric distribution.
fn geometric(numbers: &mut Numbers, mean: f64) -> u32 {
    count((1.0 - numbers.unit()).ln() / (1.0 - 1.0 / mean).ln(), PER_GROUP).max(1)
}

/// Bitmaps with free and used runs in turns, and their free counts.
fn patterns(numbers: &mut Numbers, mean: f64) -> Vec<(Vec<u8>, u32)> {
    let mut made = Vec::new();
    for _ in 0..PATTERNS {
        let (mut bitmap, mut at, mut free) = (vec![0xFF; PER_GROUP as usize / 8], 0, 0);
        while at < PER_GROUP {
            let end = (at + geometric(numbers, mean)).min(PER_GROUP);
            for bit in at..end {
                if let Some(byte) = bitmap.get_mut(bit as usize / 8) {
                    *byte &= !(1 << (bit % 8));
                }
            }
            free += end - at;
            at = end + geometric(numbers, mean);
        }
        made.push((bitmap, free));
    }
    made
}

fn fragmented(
    groups: u32,
    mean: f64,
    policy: BlockPolicyKind,
    numbers: &mut Numbers,
) -> Option<(Engine, f64)> {
    let patterns = patterns(numbers, mean);
    let engine = Engine::new(layout(groups, PER_GROUP), policy).ok()?;
    let of = |group: u32| patterns.get(group as usize * 7 % PATTERNS);
    for group in 0..groups {
        engine.describe_group(Group(group), of(group)?.1, GroupContent::Unknown).ok()?;
    }
    let start = Instant::now();
    for group in 0..groups {
        engine.load_group(Group(group), &of(group)?.0).ok()?;
    }
    Some((engine, start.elapsed().as_secs_f64()))
}

fn latency(groups: u32, mean: f64, policy: BlockPolicyKind, quick: bool, seed: u64) -> Option<Values> {
    let mut numbers = Numbers::new(seed);
    let (engine, _) = fragmented(groups, mean, policy, &mut numbers)?;
    let (batches, batch) = if quick { (5, 100) } else { (201, 500) };
    let goals: Vec<Cluster> = (0..AREAS).map(|_| Cluster(numbers.below(engine.layout().clusters))).collect();
    let (mut taking, mut giving) = (Vec::new(), Vec::new());
    let mut held: Vec<ClusterRun> = Vec::new();
    for _ in 0..batches {
        for _ in 0..batch {
            let goal = goals.get(numbers.index(goals.len())).copied().unwrap_or(Cluster(0));
            let want = geometric(&mut numbers, mean).min(count(2.0 * mean, PER_GROUP));
            let request = Request { owner: numbers.next(), ..Request::data(goal, want) };
            let start = Instant::now();
            let grant = engine.allocate(&request);
            taking.push(nanoseconds(start));
            held.extend(grant.map(placement::Grant::into_run));
        }
        while held.len() > 4 * batch {
            let run = held.swap_remove(numbers.index(held.len()));
            let start = Instant::now();
            // Every one was granted and kept, so none can fail.
            let _ = engine.free(run);
            giving.push(nanoseconds(start));
        }
    }
    let clock = clock();
    let [(allocate, slow), (free, slow_free)] = [&mut taking, &mut giving].map(|times| spread(times, clock));
    let names = ["allocate ns", "p99 ns", "free ns", "free p99 ns"];
    Some(names.into_iter().zip([allocate, slow, free, slow_free]).collect())
}

/// Median and 99th percentile, without what the clock takes.
fn spread(times: &mut [u64], clock: u64) -> (f64, f64) {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
    (float(at(50).saturating_sub(clock)), float(at(99).saturating_sub(clock)))
}

/// Time that reading the clock takes: the median of many readings.
fn clock() -> u64 {
    let mut times: Vec<u64> = (0..1_001).map(|_| nanoseconds(Instant::now())).collect();
    times.sort_unstable();
    times.get(500).copied().unwrap_or(0)
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn size_and_build(groups: u32, mean: f64, seed: u64) -> Option<Values> {
    let mut numbers = Numbers::new(seed);
    let (engine, build) = fragmented(groups, mean, BlockPolicyKind::Lease, &mut numbers)?;
    let warm = engine.memory();
    let regions = warm.warm_regions;
    engine.shrink_to(0);
    let cold = engine.memory();
    let scale = float(u64::from(groups)) / float(u64::from(TIB));
    Some(vec![
        ("build s/TiB", build / scale),
        ("warm MiB/TiB", float(warm.index()) / MIB / scale),
        ("cold MiB/TiB", float(cold.index()) / MIB / scale),
        ("bitmaps MiB/TiB", float(warm.bitmaps) / MIB / scale),
        ("warm regions", float(regions)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_small_warm_and_cold() {
        let row = size_and_build(TIB, 16.0, 1).unwrap();
        let figure = |name: &str| row.iter().find(|(figure, _)| *figure == name).unwrap().1;
        assert!(figure("warm MiB/TiB") <= 2.1, "{row:?}");
        assert!(figure("cold MiB/TiB") <= 0.2, "{row:?}");
        assert_eq!(figure("bitmaps MiB/TiB"), 32.0);
    }
}
