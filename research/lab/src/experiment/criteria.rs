//! The scans of mballoc's criteria (2023) on the engine alone: a volume of 100 GiB (test 1) or 500 GiB
//! (test 2) whose free runs are about 4 MiB, and 40,000 files of 64 KiB, each
//! request normalised to 8 MiB and its tail given back when the file is closed. Table S1 has the same of the library.
//!
//! The layout: free runs of 820 to 1,023 clusters (95 %) or 1,024 to 2,000, used gaps of 850 to
//! 1,199, in clusters of 4 KiB; with 64 KiB blocks a sixteenth of each.

use ondisk::units::{Cluster, ClusterRun, Group};
use placement::{BlockPolicyKind, Counter, Criterion, Engine, GroupContent, Layout};

use super::trial::{Case, CellContext, Values, numbers};
use super::{Baseline, Experiment, Kind, best};
use crate::jobs::Job;
use crate::measure;
use crate::numbers::{Numbers, float};
use crate::plan::Plan;
use crate::system::{EngineAlone, Writing, layout};

pub(super) const CRITERIA: Experiment = Experiment {
    name: "criteria",
    also: "",
    about: "40,000 small files with a goal of 8 MiB on free runs of 4 MiB: mballoc's criteria (2023)",
    figures: &[],
    kind: Kind::Counts,
    baseline: Baseline::None,
    jobs,
    judge: best::judge,
};

struct Row {
    name: &'static str,
    groups: u32,
    clusters_per_group: u32,
    /// Clusters of 4 KiB per cluster of this case.
    scale: u32,
}

const CASES: &[Row] = &[
    Row { name: "4 KiB test 1", groups: 800, clusters_per_group: 32_768, scale: 1 },
    Row { name: "4 KiB test 2", groups: 4_000, clusters_per_group: 32_768, scale: 1 },
    Row { name: "64 KiB test 1", groups: 4, clusters_per_group: 524_288, scale: 16 },
    Row { name: "64 KiB test 2", groups: 16, clusters_per_group: 524_288, scale: 16 },
];

const FILES: u64 = 40_000;
const STREAMS: u32 = 64;

const OWN: [BlockPolicyKind; 4] = [
    BlockPolicyKind::Lease,
    BlockPolicyKind::Mballoc64,
    BlockPolicyKind::Mballoc65,
    BlockPolicyKind::Mballoc,
];

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for row in CASES.iter().filter(|row| plan.wants(row.name)) {
        let case = Case {
            name: row.name.into(),
            workload: "fsmark",
            settings: settings(row, plan.quick),
            weight: 1,
            ..Case::default()
        };
        for policy in plan.policies(&OWN) {
            for seed in plan.seeds(1) {
                let at = CellContext { table: CRITERIA.name, system: policy.name(), seed, plan };
                let plan = plan.clone();
                let make = move || volume(row, policy, seed, &plan);
                jobs.push(case.clone().on_engine(at, make, figures)?);
            }
        }
    }
    Ok(jobs)
}

/// Files of 64 KiB, all in the root, none of them synced: each gets its blocks when it is closed.
fn settings(row: &Row, quick: bool) -> Vec<(&'static str, String)> {
    let files = if quick { FILES / 40 } else { FILES };
    let size = 4096 * row.scale * (16 / row.scale).max(1);
    let mut settings = numbers([
        ("threads", 1),
        ("files", files),
        ("size", size.into()),
        ("block", size.into()),
        ("per-directory", 0),
    ]);
    settings.push(("sync", "none".into()));
    settings
}

fn volume(row: &Row, policy: BlockPolicyKind, seed: u64, plan: &Plan) -> Result<EngineAlone, String> {
    let own = [("cpus", STREAMS), ("forced_goal", 2_048 / row.scale), ("mb_optimize_scan", 1)];
    let layout = Layout { block_bytes: 4_096 * row.scale, ..layout(row.groups, row.clusters_per_group) };
    let engine = plan.engine(layout, policy, &own)?;
    fragment(&engine, row, &mut Numbers::new(seed)).ok_or("the engine refuses the volume")?;
    engine.audit();
    Ok(EngineAlone::new(engine, 4096 * u64::from(row.scale), Writing::Whole))
}

/// Describes every group with the fragmented layout of the test.
fn fragment(engine: &Engine, row: &Row, numbers: &mut Numbers) -> Option<()> {
    let layout = *engine.layout();
    for group in (0..layout.groups).map(Group) {
        let (start, size) = (layout.group_start(group).0, layout.clusters_of(group));
        let mut used = Vec::new();
        let (mut at, mut free) = (0, size);
        while at < size {
            let gap = (numbers.between(850, 1_199) / row.scale).min(size - at);
            used.push(ClusterRun { start: Cluster(start + u64::from(at)), count: gap });
            free -= gap;
            let long = numbers.chance(0.05);
            let run = if long { numbers.between(1_024, 2_000) } else { numbers.between(820, 1_023) };
            at += gap + run / row.scale;
        }
        engine.describe_group(group, free, GroupContent::Uninitialised { used: &used }).ok()?;
    }
    Some(())
}

fn figures(alone: &EngineAlone) -> Values {
    let (stats, files) = (alone.engine().stats(), alone.files());
    let done = files.len() as u64;
    let extents = files.iter().map(|file| file.runs().len() as u64).sum();
    let scanned = stats.get(Counter::ExtentsScanned);
    let mut values = vec![("scanned", float(scanned)), ("scanned/file", measure::ratio(scanned, done))];
    values.extend(Criterion::ALL.map(|c| (c.name(), float(stats.criterion(c).hits))));
    values.push(("trims", float(stats.get(Counter::FalseTrims))));
    values.push(("extents/file", measure::ratio(extents, done)));
    values.extend(measure::free_runs(alone.engine().free_runs()));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::measured;

    #[test]
    fn trimming_early_saves_most_scans() {
        let cells = measured(&CRITERIA, "4 KiB test 1", &[]);
        let scanned = |policy| crate::table::mean(&cells, "4 KiB test 1", policy, "scanned/file").unwrap();
        let [ours, old, new] = ["lease", "mballoc-6.4", "mballoc-6.5"].map(scanned);
        assert!(ours <= 1.1, "ours scans {ours}");
        assert!(old > 200.0, "6.4 scans {old}");
        assert!(new < old / 4.0, "6.5 scans {new}");
    }
}
