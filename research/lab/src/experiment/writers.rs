//! Sequential writers side by side on the engine alone, as in the comparisons of 2004 and 2010: each writes its file a
//! block at a time, in turns. What counts is how far the files are torn apart.
//!
//! - `nine-writers`: nine files of 20 MB, with and without delayed allocation.
//! - `stream-writers`: 1 GB in 4, 8, 16, 32 files, with and without delayed allocation.
//! - `windows`: 1, 4, 8, 16 clients, each writing many files of a few to a few hundred blocks into one directory and
//!   deleting some again.
//! - `appenders`: 64 files grown to 1 GiB by `fallocate` of 4 KiB on 200 GiB.

use placement::{BlockPolicyKind, Counter};

use super::trial::{Case, CellContext, Values, numbers};
use super::{Baseline, Experiment, Kind, best};
use crate::file::File;
use crate::jobs::Job;
use crate::measure::{self, ratio};
use crate::numbers::float;
use crate::plan::Plan;
use crate::system::{EngineAlone, Writing};

pub(super) const NINE: Experiment = Experiment {
    name: "nine-writers",
    also: "",
    about: "nine files of 20 MB written in turns, with and without delayed allocation (2004)",
    figures: &[],
    kind: Kind::Counts,
    baseline: Baseline::None,
    jobs: nine,
    judge: best::judge,
};

pub(super) const STREAMS: Experiment = Experiment {
    name: "stream-writers",
    about: "1 GB in 4 to 32 files written in turns (2004)",
    jobs: streams,
    ..NINE
};

pub(super) const WINDOWS: Experiment = Experiment {
    name: "windows",
    about: "1 to 16 clients writing files in turns: hits of reservation windows (2010)",
    jobs: windows,
    ..NINE
};

pub(super) const APPENDERS: Experiment = Experiment {
    name: "appenders",
    about: "64 files grown to 1 GiB by fallocate of 4 KiB on 200 GiB (2025)",
    jobs: appenders,
    ..NINE
};

const BASELINES: [BlockPolicyKind; 6] = [
    BlockPolicyKind::Lease,
    BlockPolicyKind::Single,
    BlockPolicyKind::Prealloc8,
    BlockPolicyKind::Window,
    BlockPolicyKind::WindowDynamic,
    BlockPolicyKind::Mballoc,
];

/// A volume, and what is measured of it.
#[derive(Clone, Copy)]
struct Volume {
    groups: u32,
    tunables: &'static [(&'static str, u32)],
    writing: Writing,
    measure: fn(&EngineAlone) -> Values,
}

const PLAIN: Volume = Volume { groups: 64, tunables: &[], writing: Writing::Growing, measure: figures };

/// A case under each of some policies and each seed.
fn each_policy(
    experiment: &Experiment,
    plan: &Plan,
    policies: &[BlockPolicyKind],
    case: &Case,
    volume: Volume,
) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for policy in plan.policies(policies).into_iter().filter(|_| plan.wants(&case.name)) {
        for seed in plan.seeds(1) {
            let at = CellContext { table: experiment.name, system: policy.name(), seed, plan };
            let plan = plan.clone();
            let make = move || plan.volume(volume.groups, policy, volume.tunables, volume.writing);
            jobs.push(case.clone().on_engine(at, make, volume.measure)?);
        }
    }
    Ok(jobs)
}

/// Name, files and blocks of each.
type Files = (String, u64, u64);

fn files_in_turns(experiment: &Experiment, plan: &Plan, cases: &[Files]) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (how, writing) in [("at once", Writing::Growing), ("delayed", Writing::Whole)] {
        for (name, files, blocks) in cases {
            let blocks = if plan.quick { blocks / 16 } else { *blocks };
            let settings = numbers([("files", *files), ("size", blocks * 4096)]);
            let (name, weight) = (format!("{name} {how}"), files * blocks);
            let case = Case { name, workload: "dd", settings, weight, ..Case::default() };
            let volume = Volume { writing, ..PLAIN };
            jobs.extend(each_policy(experiment, plan, &BASELINES, &case, volume)?);
        }
    }
    Ok(jobs)
}

fn nine(plan: &Plan) -> Result<Vec<Job>, String> {
    files_in_turns(&NINE, plan, &[("9 x 20 MB".to_string(), 9, 4_883)])
}

fn streams(plan: &Plan) -> Result<Vec<Job>, String> {
    files_in_turns(&STREAMS, plan, &[4, 8, 16, 32].map(|n| (format!("{n} writers"), n, 262_144 / n)))
}

fn windows(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for clients in [1, 4, 8, 16] {
        let (name, settings) = (format!("{clients} clients"), numbers([("clients", clients)]));
        let case = Case { name, workload: "windows", settings, weight: 1, ..Case::default() };
        let volume = Volume { groups: 16, ..PLAIN };
        jobs.extend(each_policy(&WINDOWS, plan, &BASELINES, &case, volume)?);
    }
    Ok(jobs)
}

/// The kernel's `fallocate` forbids raising the request, so mballoc runs with `no_normalize`.
fn appenders(plan: &Plan) -> Result<Vec<Job>, String> {
    let own = [BlockPolicyKind::Lease, BlockPolicyKind::Mballoc, BlockPolicyKind::Mballoc65];
    let blocks: u64 = if plan.quick { 4_096 } else { 262_144 };
    let name = format!("64 x {} MiB", blocks / 256);
    let settings = numbers([("files", 64), ("size", blocks * 4096), ("append", 4096), ("reserve", 1)]);
    let case = Case { name, workload: "append", settings, weight: 1, ..Case::default() };
    let tunables = &[("no_normalize", 1), ("cpus", 64)];
    let volume = Volume { groups: 1_600, tunables, measure: with_free_runs, ..PLAIN };
    each_policy(&APPENDERS, plan, &own, &case, volume)
}

/// Distance the head travels between runs when every file is read in order.
fn seek_sum(files: &[File]) -> u64 {
    let gap = |pair: &[ondisk::units::ClusterRun]| match pair {
        [a, b] => b.start.0.abs_diff(a.end()),
        _ => 0,
    };
    files.iter().flat_map(|file| file.runs().windows(2)).map(gap).sum()
}

fn figures(alone: &EngineAlone) -> Values {
    let (stats, files) = (alone.engine().stats(), alone.files());
    let number = u64::try_from(files.len()).unwrap_or(0);
    let extents: u64 = files.iter().map(|f| u64::try_from(f.runs().len()).unwrap_or(0)).sum();
    let (hits, misses) = (stats.get(Counter::WindowHits), stats.get(Counter::WindowMisses));
    vec![
        ("extents/file", ratio(extents, number)),
        ("seek sum", float(seek_sum(&files))),
        ("calls/file", ratio(stats.get(Counter::Reqs), number)),
        ("window hits %", 100.0 * ratio(hits, hits + misses)),
        ("scanned", float(stats.get(Counter::ExtentsScanned))),
    ]
}

fn with_free_runs(alone: &EngineAlone) -> Values {
    let free = measure::free_runs(alone.engine().free_runs());
    figures(alone).into_iter().chain(free.into_iter().take(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::measured;
    use crate::table::mean;

    #[test]
    fn delayed_writers_get_one_extent_each_and_ours_is_best_at_once() {
        let cells = measured(&NINE, "", &[]);
        let extents = |how: &str, policy: &str| {
            mean(&cells, &format!("9 x 20 MB {how}"), policy, "extents/file").unwrap()
        };
        assert_eq!(extents("delayed", "lease"), 1.0);
        for how in ["delayed", "at once"] {
            for policy in BASELINES.map(BlockPolicyKind::name) {
                assert!(extents(how, "lease") <= extents(how, policy), "{how} {policy}");
            }
        }
        assert!(extents("at once", "window") < extents("at once", "single"));
    }

    #[test]
    fn appenders_stay_whole() {
        let cells = measured(&APPENDERS, "", &["lease"]);
        let extents = cells[0].figures.get("extents/file").unwrap();
        assert!(extents <= 9.0, "{extents}");
    }
}
