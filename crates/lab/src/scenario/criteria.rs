//! Reproduces the scans of mballoc's criteria (2023): a volume of 100 GiB (test 1) or 500 GiB
//! (test 2) whose free runs are about 4 MiB, and 40,000 files of 64 KiB in 64 streams, each
//! request normalised to 8 MiB and its tail given back when the file is closed.
//!
//! The layout: free runs of 820 to 1,023 clusters (95 %) or 1,024 to 2,000, used gaps of 850 to
//! 1,199, in clusters of 4 KiB; with 64 KiB blocks a sixteenth of each.

use super::Setup;
use crate::measure;
use crate::numbers::{Numbers, float};
use crate::table::{Row, Rows};
use crate::volume::{Volume, Writing, layout};
use ondisk::units::{Cluster, ClusterRun, Group};
use placement::{BlockPolicyKind, Counter, Criterion, Engine, GroupContent};

struct Case {
    name: &'static str,
    groups: u32,
    clusters_per_group: u32,
    /// Clusters of 4 KiB per cluster of this case.
    scale: u32,
}

const CASES: &[Case] = &[
    Case { name: "4 KiB test 1", groups: 800, clusters_per_group: 32_768, scale: 1 },
    Case { name: "4 KiB test 2", groups: 4_000, clusters_per_group: 32_768, scale: 1 },
    Case { name: "64 KiB test 1", groups: 4, clusters_per_group: 524_288, scale: 16 },
    Case { name: "64 KiB test 2", groups: 16, clusters_per_group: 524_288, scale: 16 },
];

const FILES: u32 = 40_000;
const STREAMS: u32 = 64;

pub(crate) fn run(setup: &Setup) -> Rows {
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| setup.wants(case.name)) {
        let own = [
            BlockPolicyKind::Lease,
            BlockPolicyKind::Mballoc64,
            BlockPolicyKind::Mballoc65,
            BlockPolicyKind::Mballoc,
        ];
        for policy in setup.policies(&own) {
            rows.extend(one(case, policy, setup));
        }
    }
    rows
}

fn engine(case: &Case, policy: BlockPolicyKind, setup: &Setup) -> Option<Engine> {
    let own = [("cluster_bytes", 4_096 * case.scale), ("cpus", STREAMS), ("forced_goal", 2_048 / case.scale)];
    setup.engine(layout(case.groups, case.clusters_per_group), policy, &own)
}

/// Describes every group with the fragmented layout of the test.
fn fragment(engine: &Engine, case: &Case, numbers: &mut Numbers) -> Option<()> {
    let layout = *engine.layout();
    for group in (0..layout.groups).map(Group) {
        let (start, size) = (layout.group_start(group).0, layout.clusters_of(group));
        let mut used = Vec::new();
        let (mut at, mut free) = (0, size);
        while at < size {
            let gap = (numbers.between(850, 1_199) / case.scale).min(size - at);
            used.push(ClusterRun { start: Cluster(start + u64::from(at)), count: gap });
            free -= gap;
            let long = numbers.chance(0.05);
            let run = if long { numbers.between(1_024, 2_000) } else { numbers.between(820, 1_023) };
            at += gap + run / case.scale;
        }
        engine.describe_group(group, free, GroupContent::Uninitialised { used: &used }).ok()?;
    }
    Some(())
}

fn one(case: &Case, policy: BlockPolicyKind, setup: &Setup) -> Option<Row> {
    let mut numbers = Numbers::new(setup.seed);
    let engine = engine(case, policy, setup)?;
    fragment(&engine, case, &mut numbers)?;
    engine.audit();
    let mut volume = Volume::on(engine);
    let files = if setup.quick { FILES / 40 } else { FILES };
    let count = (16 / case.scale).max(1);
    let (mut done, mut extents) = (0u32, 0u64);
    for _ in 0..files {
        let mut file = volume.file(2);
        if volume.append(&mut file, count, Cluster(0), Writing::Whole) {
            done += 1;
            extents += u64::try_from(file.runs.len()).unwrap_or(0);
        }
        volume.close(&file);
    }
    let stats = volume.engine.stats();
    setup.counters.note(case.name, policy, &volume.engine);
    volume.engine.settle();
    let mut values = vec![
        ("scanned", float(stats.get(Counter::ExtentsScanned))),
        ("scanned/file", measure::ratio(stats.get(Counter::ExtentsScanned), u64::from(done))),
    ];
    values.extend(Criterion::ALL.map(|c| (c.name(), float(stats.criterion(c).hits))));
    values.push(("trims", float(stats.get(Counter::FalseTrims))));
    values.push(("extents/file", measure::ratio(extents, u64::from(done))));
    values.extend(measure::free_space(&volume));
    Some(Row { case: case.name.into(), policy: policy.name().into(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimming_early_saves_most_scans() {
        let setup = Setup { seed: 1, quick: true, case: "4 KiB test 1".into(), ..Setup::default() };
        let rows = run(&setup);
        let scanned = |at: usize| rows[at].values[1].1;
        assert!(scanned(0) <= 1.1, "ours scans {}", scanned(0));
        assert!(scanned(1) > 200.0, "6.4 scans {}", scanned(1));
        assert!(scanned(2) < scanned(1) / 4.0, "6.5 scans {}", scanned(2));
    }
}
