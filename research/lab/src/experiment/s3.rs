//! S3: allocation in clusters, 2011: a file server after days of work, with blocks of 4 KiB alone and in clusters of
//! 64 KiB, 256 KiB and 1 MiB.
//!
//! The published server's size and memory are not known; what counts is how much of the metadata memory holds. Here the
//! volume has 128 GiB (4 MiB of bitmaps with blocks alone), what is known of free space may take 256 KiB of memory,
//! a share of a 16th, and all other metadata 2 MiB. Metadata reads are requests that read from the drive within a call.

use platfs::mkfs::{FsType, Usage, parse_features};
use platfs::placement::BlockPolicyKind;

use super::trial::CellContext;
use super::{Baseline, Experiment, Kind, verdict};
use crate::drive::{DRIVES, Drive};
use crate::jobs::{Found, Job, Key};
use crate::numbers::float;
use crate::plan::Plan;
use crate::results::{Cell, Figures, Verdict};
use crate::system::{Library, Mounting};
use crate::table::{mean, published};
use crate::workload::{Kinds, Scale, Timing, Workload, in_model_time};

pub(super) const TABLE: Experiment = Experiment {
    name: "S3",
    also: "bigalloc",
    kind: Kind::Founding,
    baseline: Baseline::Case("4 KiB"),
    about: "allocation in clusters (2011): calls of a file server after days of work",
    figures: &[
        "fallocate us",
        "fallocate reads",
        "fallocate most",
        "truncate us",
        "truncate reads",
        "truncate most",
        "slow direct reads %",
        "slow direct writes %",
    ],
    jobs,
    judge,
};

const VOLUME: u64 = 128 << 30;
/// The size of the volume in quick runs.
const QUICK: u64 = 4 << 30;

/// The server's drive: a disk of 2010, and the memory that is left for metadata.
static SERVER: Drive = Drive { cache: 2 << 20, ..DRIVES[2] };
/// For small sizes, as much less.
static SMALL: Drive = Drive { cache: 64 << 10, ..DRIVES[2] };

/// Bytes of a cluster, and what was published, in the order of the table's figures.
const CLUSTERS: [(&str, u64, [f64; 8]); 4] = [
    ("4 KiB", 4 << 10, [14_262.0, 1.1494, 11.0, 12_944.0, 0.8256, 27.0, 0.498, 0.202]),
    ("64 KiB", 64 << 10, [895.0, 0.0417, 2.0, 6_911.0, 0.4877, 3.0, 0.228, 0.134]),
    ("256 KiB", 256 << 10, [318.0, 0.0084, 2.0, 4_541.0, 0.2822, 3.0, 0.257, 0.109]),
    ("1 MiB", 1 << 20, [122.0, 0.000_77, 1.0, 4_558.0, 0.2744, 3.0, 0.269, 0.0582]),
];

/// The kernel's of then, which was published, and ours.
const POLICIES: [BlockPolicyKind; 2] = [BlockPolicyKind::Mballoc64, BlockPolicyKind::Lease];

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for row in CLUSTERS.into_iter().filter(|(case, ..)| plan.wants(case)) {
        let (case, cluster, _) = row;
        for policy in plan.policies(&POLICIES) {
            for seed in plan.seeds(1) {
                let at = CellContext { table: TABLE.name, system: policy.name(), seed, plan };
                let parameters = [("cluster", cluster.into()), ("quick", plan.quick.into())];
                let (key, plan) = (at.key(case, parameters), plan.clone());
                let run = Box::new(move |key: &Key| measure(key, row, policy, &plan));
                let weight = if cluster == 4 << 10 { 2 } else { 1 };
                jobs.push(Job { key, memory: 768 << 20, weight, run });
            }
        }
    }
    Ok(jobs)
}

fn measure(
    key: &Key,
    (_, cluster, published): (&str, u64, [f64; 8]),
    policy: BlockPolicyKind,
    plan: &Plan,
) -> Result<Found, String> {
    let (size, drive) = if plan.quick { (QUICK, &SMALL) } else { (VOLUME, &SERVER) };
    let plain = Mounting::new(drive.changed(&plan.machine), size, FsType::Ext4);
    // Requests for whole files are not raised, as the kernel's fallocate has it. Until Linux 5.12 groups were looked at one
    // after the other.
    let own: &[_] = &[("no_normalize", 1), ("mb_optimize_scan", 0)];
    let tunables = plan.tunables(policy, own);
    let mut mounting = Mounting { policy, tunables, delay: 0, seed: key.seed, ..plain };
    let format = &mut mounting.format;
    (format.block_size, format.usage) = (Some(4096), vec![Usage::Largefile]);
    if cluster > 4096 {
        (format.features, format.cluster_size) = (parse_features("bigalloc")?, Some(cluster));
    }
    let library = Library::new(&mounting)?;
    let mut scale = Scale { seed: key.seed, quick: plan.quick, ..Scale::default() };
    scale.settings.insert("volume".into(), size.to_string());
    if plan.quick {
        // Small files waste much of large clusters.
        scale.settings.insert("fill".into(), "40".into());
    }
    let mut kinds = Kinds::new();
    for phase in (Workload::named("service")?.phases)(&scale)? {
        // The days before take no time here.
        let before = ["fill", "churn"].contains(&&*phase.name);
        if before {
            library.device().stop();
        } else if phase.name == "warm" {
            library.device().start();
        }
        kinds = in_model_time(&library, phase)?.kinds;
    }
    let figures = Figures::from_iter(TABLE.figures.iter().copied().zip(figures(&kinds)));
    let published =
        (policy == POLICIES[0]).then(|| Figures::from_iter(TABLE.figures.iter().copied().zip(published)));
    Ok(vec![Cell { figures, published: published.unwrap_or_default(), ..key.cell() }.into()])
}

fn figures(kinds: &Kinds) -> [f64; 8] {
    let of = |kind| kinds.get(kind).copied().unwrap_or_default();
    let share = |part: u64, timing: Timing| float(part) / float(timing.calls.max(1));
    let (reserve, cut) = (of("fallocate"), of("truncate"));
    let (read, write) = (of("direct read"), of("direct write"));
    [
        share(reserve.time, reserve) / 1e3,
        share(reserve.reads, reserve),
        float(reserve.most_reads),
        share(cut.time, cut) / 1e3,
        share(cut.reads, cut),
        float(cut.most_reads),
        100.0 * share(read.slow, read),
        100.0 * share(write.slow, write),
    ]
}

/// Each column falls from 4 KiB on by the published factor, or is at most what was published: for times and
/// metadata reads of both calls, and for both policies.
fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let columns = ["fallocate us", "fallocate reads", "truncate us", "truncate reads"];
    let mut verdicts = Vec::new();
    for policy in POLICIES {
        for column in columns {
            let mut details = Vec::new();
            let mut holds = true;
            let value = |case| mean(cells, case, policy.name(), column);
            let was = |case| published(cells, case, POLICIES[0].name(), column);
            for (case, ..) in &CLUSTERS[1..] {
                let all = (value(CLUSTERS[0].0), value(case), was(CLUSTERS[0].0), was(case));
                let (Some(first), Some(value), Some(first_was), Some(was)) = all else {
                    holds = false;
                    continue;
                };
                holds &= value <= was || value * first_was <= first * was;
                details.push(format!("{case} {value:.4} of {first:.4} for {was:.4} of {first_was:.4}"));
            }
            let text = format!("{}: {column} fall with the cluster as published or better", policy.name());
            verdicts.push(verdict(TABLE.name, text, holds, details.join("; ")));
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::measured;

    #[test]
    fn calls_read_less_with_larger_clusters() {
        let ends = ["4 KiB", "1 MiB"];
        // The name of each occurs in no other's.
        let cells = ends.map(|case| measured(&TABLE, case, &[])).concat();
        for (policy, column) in [("mballoc-6.4", "fallocate reads"), ("lease", "truncate reads")] {
            let [first, last] = ends.map(|case| mean(&cells, case, policy, column).unwrap());
            assert!(last < first, "{policy}: {column} {last} {first}");
        }
    }

    #[test]
    fn columns_that_do_not_fall_are_reported() {
        let cells = |fall: f64| -> Vec<Cell> {
            let cell = |at: usize, policy: BlockPolicyKind| {
                let (case, _, was) = CLUSTERS[at];
                let own = was.map(|value| if at == 0 { value * 10.0 } else { value * 10.0 * fall });
                let named = |values: [f64; 8]| Figures::from_iter(TABLE.figures.iter().copied().zip(values));
                let (case, system) = (case.into(), policy.name().into());
                Cell { case, system, figures: named(own), published: named(was), ..Cell::default() }
            };
            (0..4).flat_map(|at| POLICIES.map(|policy| cell(at, policy))).collect()
        };
        assert!(judge(&cells(0.99)).iter().all(|verdict| verdict.holds));
        assert!(judge(&cells(1.2)).iter().all(|verdict| !verdict.holds));
        assert!(judge(&[]).iter().all(|verdict| !verdict.holds));
    }
}
