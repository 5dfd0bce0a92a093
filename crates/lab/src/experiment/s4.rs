//! S4: reservation windows for ext2, 2010: dbench and blogbench on FreeBSD, with no preallocation, windows of 8
//! blocks and growing ones, the old preallocation of 8, and growing windows with asynchronous metadata.
//!
//! Where metadata is not asynchronous what changes names is written in the call, inodes and bitmaps that follow from
//! writes and the data later: FreeBSD's way to mount ext2. Stable is what the disk's cache has, as ext2fs sent no flushes.
//!
//! The systems are file systems of their time, by their sources: in the summer of 2010 ext2fs without preallocation had lost
//! where a file's last block lay; windows lived as long as inodes were in memory; both placed directories by FFS's rule.
//! The old preallocation was that of FreeBSD 8.0, a port of Linux's ext2, which put each directory into the emptiest group.

use platfs::mkfs::FsType;
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind};

use super::trial::{At, Case, Measured, Values, numbers, rate};
use super::{Experiment, Kind, verdict};
use crate::drive::Drive;
use crate::jobs::Job;
use crate::numbers::float;
use crate::plan::Plan;
use crate::results::{Cell, Verdict};
use crate::summary::Summary;
use crate::system::{Mounting, Names};
use crate::table::summary;
use crate::workload::Outcome;

pub(super) const TABLE: Experiment = Experiment {
    name: "S4",
    also: "",
    kind: Kind::Founding,
    about: "reservation windows for ext2 (2010): dbench in MB/s and blogbench's scores, means over seeds",
    figures: &["MB/s", "write score", "read score"],
    jobs,
    judge,
};

const NONE: &str = "none";
const EIGHT: &str = "window 8";
const DYNAMIC: &str = "dynamic";
const OLD: &str = "old prealloc";
const ASYNC: &str = "dynamic, async";

/// Files whose windows stay: inodes in 2 GiB of memory.
const KEPT: &[(&str, u32)] = &[("rsv_kept", 100_000)];

/// Name, policy and its tunables, rule for directories, and what becomes of changes of names.
type Row = (&'static str, BlockPolicyKind, &'static [(&'static str, u32)], DirectoryPolicyKind, Names);
const SYSTEMS: [Row; 5] = [
    (NONE, BlockPolicyKind::Single, &[("rule", 1)], DirectoryPolicyKind::Dirpref, Names::Written),
    (EIGHT, BlockPolicyKind::Window, KEPT, DirectoryPolicyKind::Dirpref, Names::Written),
    (DYNAMIC, BlockPolicyKind::WindowDynamic, KEPT, DirectoryPolicyKind::Dirpref, Names::Written),
    (OLD, BlockPolicyKind::Prealloc8, &[], DirectoryPolicyKind::Spread, Names::Written),
    (ASYNC, BlockPolicyKind::WindowDynamic, KEPT, DirectoryPolicyKind::Dirpref, Names::Buffered),
];

/// Seeds, where their number is not said: the document has means of five.
const SEEDS: u64 = 5;

/// The whole disk, as published.
const GIB: u64 = 232;

/// Clients, rounds of the load, and published MB/s by system.
const DBENCH: [(u64, u64, [f64; 5]); 4] = [
    (1, 96, [49.9, 90.6, 90.3, 81.5, 106.9]),
    (4, 48, [24.1, 30.2, 30.9, 28.0, 39.4]),
    (8, 24, [14.7, 20.7, 20.3, 19.4, 21.4]),
    (16, 12, [10.6, 13.7, 14.2, 13.3, 17.1]),
];
const BLOGBENCH: [(f64, f64); 5] =
    [(32.9, 49_300.0), (38.3, 49_000.0), (38.2, 51_200.0), (35.4, 73_100.0), (40.1, 52_600.0)];

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (row, place) in SYSTEMS.into_iter().zip(0..).filter(|(row, _)| asked(plan, row)) {
        for seed in plan.seeds(SEEDS) {
            for (case, measure) in cases(place, plan.quick) {
                if plan.wants(&case.name) {
                    let mounting = Mounting { seed, ..mounting(row, plan)? };
                    let at = At { table: TABLE.name, system: row.0, seed, plan };
                    jobs.push(case.on_library(at, mounting, measure)?);
                }
            }
        }
    }
    Ok(jobs)
}

/// Whether a system was asked for, by its name or its policy's, or none was.
fn asked(plan: &Plan, (name, policy, ..): &Row) -> bool {
    plan.policies.is_empty() || plan.asks_for(name) || plan.asks_for(policy.name())
}

fn mounting((_, policy, own, directories, names): Row, plan: &Plan) -> Result<Mounting, String> {
    let drive = Drive::named("sata-2010-bsd")?;
    let size = if plan.quick { 1 << 30 } else { GIB << 30 };
    let (tunables, plain) = (plan.tunables(policy, own), Mounting::new(drive, size, FsType::Ext2));
    Ok(Mounting { policy, tunables, directories, names, delay: 0, ..plain })
}

/// The cases of a system by its place, and what is measured of each.
fn cases(place: usize, quick: bool) -> Vec<Measured> {
    let mut cases: Vec<Measured> = Vec::new();
    for (clients, rounds, was) in DBENCH {
        let rounds = if quick { 2 } else { rounds };
        let case = Case {
            name: dbench(clients),
            workload: "dbench",
            settings: numbers([("clients", clients), ("rounds", rounds)]),
            published: was.get(place).map(|was| ("MB/s", *was)).into_iter().collect(),
            weight: clients * rounds,
            ..Case::default()
        };
        cases.push((case, load));
    }
    let was = BLOGBENCH.get(place).map(|(write, read)| [("write score", *write), ("read score", *read)]);
    let case = Case {
        name: "blogbench".into(),
        workload: "blogbench",
        settings: numbers([("seconds", if quick { 1 } else { 4 })]),
        published: was.into_iter().flatten().collect(),
        weight: 200,
        ..Case::default()
    };
    cases.push((case, scores));
    cases
}

fn dbench(clients: u64) -> String {
    format!("dbench {clients}")
}

fn load(outcomes: &[Outcome]) -> Values {
    rate(outcomes, "load")
}

/// Calls of the kind a second.
fn scores(outcomes: &[Outcome]) -> Values {
    let Some(serve) = outcomes.iter().find(|outcome| outcome.name == "serve") else { return Vec::new() };
    let calls = |kinds: &[&str]| -> f64 {
        let calls: u64 =
            kinds.iter().filter_map(|kind| serve.kinds.get(kind)).map(|timing| timing.calls).sum();
        float(calls) / serve.seconds()
    };
    vec![
        ("write score", calls(&["write", "create", "mkdir", "rename"])),
        ("read score", calls(&["read", "open", "readdir"])),
    ]
}

/// How two systems compare: below, no significant difference, above.
fn compare(a: &Summary, b: &Summary) -> std::cmp::Ordering {
    if a.differs(b) { a.avg.total_cmp(&b.avg) } else { std::cmp::Ordering::Equal }
}

/// Pairs of the published table that are at least this far apart have an order; its deviations are not known.
const APART: f64 = 1.05;

fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (clients, _, was) in DBENCH {
        let case = dbench(clients);
        verdicts.extend(order(cells, &case, "MB/s", was));
    }
    let scores = BLOGBENCH.map(|(write, _)| write);
    verdicts.extend(order(cells, "blogbench", "write score", scores));
    verdicts
}

/// One verdict for each claim of the published table on a case: none is last, growing windows are not behind those of 8
/// or the old preallocation, asynchronous metadata is not behind.
fn order(cells: &[Cell], case: &str, figure: &str, was: [f64; 5]) -> Vec<Verdict> {
    let of = |name: &str| summary(cells, case, name, figure);
    let published = |name: &str| {
        SYSTEMS.iter().zip(was).find(|(system, _)| system.0 == name).map_or(f64::NAN, |(_, was)| was)
    };
    let pairs = [(EIGHT, NONE), (DYNAMIC, NONE), (OLD, NONE), (DYNAMIC, OLD), (ASYNC, DYNAMIC)];
    let judged = pairs.into_iter().filter_map(|(better, worse)| {
        let (a, b) = (of(better)?, of(worse)?);
        let ratio = published(better) / published(worse);
        let wanted = if ratio >= APART { "above" } else { "not behind" };
        let found = compare(&a, &b);
        let holds = if ratio >= APART { found.is_gt() } else { found.is_ge() };
        let detail = format!(
            "{:.1} \u{b1} {:.1} and {:.1} \u{b1} {:.1}, published {:.1} and {:.1}",
            a.avg,
            a.stddev,
            b.avg,
            b.stddev,
            published(better),
            published(worse)
        );
        Some(verdict("S4", format!("{case}: {better} {wanted} {worse}"), holds, detail))
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::records;
    use crate::results::Figures;

    /// The cells with other values, a little apart by seed.
    fn with_values(cells: &[Cell], values: [f64; 5]) -> Vec<Cell> {
        let changed = |cell: &Cell| {
            let value = SYSTEMS.iter().zip(values).find(|(system, _)| system.0 == cell.system).unwrap().1;
            let value = value + float(cell.seed) / 1e3;
            let figures = cell.figures.0.iter().map(|(name, _)| (name.clone(), value));
            Cell { figures: Figures(figures.collect()), ..cell.clone() }
        };
        cells.iter().map(changed).collect()
    }

    #[test]
    fn orders_are_judged_either_way() {
        let plan = Plan { seed: 1, seeds: Some(2), quick: true, ..Plan::default() };
        let cells = super::super::cells(records(&TABLE, &plan));
        assert_eq!(judge(&cells).len(), 5 * 5);
        assert!(judge(&with_values(&cells, [1.0, 3.0, 3.0, 2.0, 4.0])).iter().all(|verdict| verdict.holds));
        assert!(judge(&with_values(&cells, [4.0, 3.0, 1.5, 2.0, 1.0])).iter().all(|verdict| !verdict.holds));
    }
}
