//! S4: reservation windows for ext2, 2010: dbench and blogbench on FreeBSD, with no preallocation, windows of 8
//! blocks and growing ones, the old preallocation of 8, and growing windows with asynchronous metadata.
//!
//! Where metadata is not asynchronous what changes names is written in the call, inodes and bitmaps that follow from
//! writes and the data later: FreeBSD's way to mount ext2. Stable is what the disk's cache has, as ext2fs sent no flushes.
//!
//! The systems are file systems of their time, by their sources: in the summer of 2010 ext2fs without preallocation had lost
//! where a file's last block lay; windows lived as long as inodes were in memory; both placed directories by FFS's rule.
//! The old preallocation was that of FreeBSD 8.0, a port of Linux's ext2, which put each directory into the emptiest group.
//! A first version of the windows was given up because they were hit too rarely; what it did is not said, and here its windows
//! end with the close of a file. A notebook ran three of the systems.

use std::cmp::Ordering;

use platfs::mkfs::FsType;
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind};

use super::size::bounds;
use super::trial::{Case, CellContext, Measured, Values, numbers, rate};
use super::{Baseline, Experiment, Kind, verdict};
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
    baseline: Baseline::System(NONE),
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
const FIRST_EIGHT: &str = "window 8, first version";
const FIRST_DYNAMIC: &str = "dynamic, first version";

/// Files whose windows stay: inodes in 2 GiB of memory.
const KEPT: &[(&str, u32)] = &[("rsv_kept", 100_000), ("colour", 0)];
/// Files whose windows end with their close.
const CLOSED: &[(&str, u32)] = &[("rsv_kept", 0), ("colour", 0)];

/// Name, policy and its tunables, rule for directories, and what becomes of changes of names.
type Row = (&'static str, BlockPolicyKind, &'static [(&'static str, u32)], DirectoryPolicyKind, Names);
const SYSTEMS: [Row; 7] = [
    (
        NONE,
        BlockPolicyKind::Single,
        &[("rule", 1), ("colour", 0)],
        DirectoryPolicyKind::Dirpref,
        Names::Written,
    ),
    (EIGHT, BlockPolicyKind::Window, KEPT, DirectoryPolicyKind::Dirpref, Names::Written),
    (DYNAMIC, BlockPolicyKind::WindowDynamic, KEPT, DirectoryPolicyKind::Dirpref, Names::Written),
    (OLD, BlockPolicyKind::Prealloc8, &[], DirectoryPolicyKind::Spread, Names::Written),
    (ASYNC, BlockPolicyKind::WindowDynamic, KEPT, DirectoryPolicyKind::Dirpref, Names::Buffered),
    (FIRST_EIGHT, BlockPolicyKind::Window, CLOSED, DirectoryPolicyKind::Dirpref, Names::Written),
    (FIRST_DYNAMIC, BlockPolicyKind::WindowDynamic, CLOSED, DirectoryPolicyKind::Dirpref, Names::Written),
];

/// Seeds, where their number is not said: the document has means of five.
const SEEDS: u64 = 5;

/// A published mean and its standard deviation.
type EarlierRun = (f64, f64);

/// A machine: its drive, GiB of the volume, and what was published of each system on it, in their order.
struct Machine {
    /// In front of the names of its cases.
    name: &'static str,
    drive: &'static str,
    gib: u64,
    /// Runs of dbench, and of blogbench; one: no deviations were published.
    runs: [usize; 2],
    /// Clients, rounds of the load, and MB/s.
    dbench: &'static [(u64, u64, &'static [EarlierRun])],
    writes: &'static [EarlierRun],
    reads: &'static [EarlierRun],
}

/// A mean without its deviation.
const fn mean_of(mean: f64) -> EarlierRun {
    (mean, 0.0)
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "",
        drive: "sata-2010-bsd",
        // The whole disk.
        gib: 232,
        runs: [5, 10],
        dbench: &[
            (
                1,
                32,
                &[
                    (49.95, 2.39),
                    (90.57, 0.87),
                    (90.33, 1.14),
                    (81.51, 1.44),
                    (106.92, 1.44),
                    (86.93, 2.85),
                    (86.95, 2.89),
                ],
            ),
            (
                4,
                16,
                &[
                    (24.13, 1.87),
                    (30.22, 0.71),
                    (30.94, 2.23),
                    (27.96, 1.10),
                    (39.41, 4.83),
                    (29.81, 2.05),
                    (28.82, 1.64),
                ],
            ),
            (
                8,
                8,
                &[
                    (14.72, 0.42),
                    (20.70, 0.91),
                    (20.35, 0.34),
                    (19.42, 0.71),
                    (21.42, 0.80),
                    (19.79, 1.51),
                    (19.92, 1.74),
                ],
            ),
            (
                16,
                4,
                &[
                    (10.63, 0.31),
                    (13.71, 0.60),
                    (14.20, 0.33),
                    (13.28, 0.50),
                    (17.05, 0.65),
                    (14.10, 1.98),
                    (13.74, 1.33),
                ],
            ),
        ],
        writes: &[
            (32.9, 3.03),
            (38.3, 2.75),
            (38.2, 2.97),
            (35.4, 4.38),
            (40.1, 4.43),
            (32.0, 2.76),
            (34.2, 1.86),
        ],
        reads: &[
            (49_344.0, 7_644.0),
            (48_967.0, 6_511.0),
            (51_229.0, 7_279.0),
            (73_104.0, 10_791.0),
            (52_605.0, 8_880.0),
            (47_869.0, 8_840.0),
            (48_610.0, 6_169.0),
        ],
    },
    Machine {
        name: "notebook, ",
        drive: "note-2008-bsd",
        gib: 74,
        runs: [1, 1],
        dbench: &[
            (1, 32, &[mean_of(33.92), mean_of(38.20), mean_of(61.16)]),
            (2, 21, &[mean_of(22.98), mean_of(22.83), mean_of(40.44)]),
            (4, 16, &[mean_of(14.36), mean_of(15.14), mean_of(16.93)]),
            (8, 8, &[mean_of(9.42), mean_of(10.90), mean_of(12.02)]),
            (16, 4, &[mean_of(6.44), mean_of(7.42), mean_of(7.54)]),
        ],
        writes: &[mean_of(6.67), mean_of(7.33), mean_of(7.67)],
        reads: &[mean_of(70_437.0), mean_of(105_083.0), mean_of(96_844.0)],
    },
];

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (row, place) in SYSTEMS.into_iter().zip(0..).filter(|(row, _)| asked(plan, row)) {
        for seed in plan.seeds(SEEDS) {
            for machine in &MACHINES {
                for (case, measure) in machine.cases(place, plan.quick) {
                    if plan.wants(&case.name) {
                        let mounting = Mounting { seed, ..mounting(row, machine, plan)? };
                        let at = CellContext { table: TABLE.name, system: row.0, seed, plan };
                        jobs.push(case.on_library(at, mounting, measure)?);
                    }
                }
            }
        }
    }
    Ok(jobs)
}

/// Returns true if a system was asked for, by its name or its policy's, or none was.
fn asked(plan: &Plan, (name, policy, ..): &Row) -> bool {
    plan.policies.is_empty() || plan.asks_for(name) || plan.asks_for(policy.name())
}

fn mounting(
    (_, policy, own, directories, names): Row,
    machine: &Machine,
    plan: &Plan,
) -> Result<Mounting, String> {
    let drive = plan.drive(machine.drive)?;
    let size = if plan.quick { 1 << 30 } else { machine.gib << 30 };
    let (tunables, plain) = (plan.tunables(policy, own), Mounting::new(drive, size, FsType::Ext2));
    Ok(Mounting { policy, tunables, directories, names, delay: 0, ..plain })
}

impl Machine {
    /// The cases of a system by its place, of which something was published, and what is measured of each.
    fn cases(&self, place: usize, quick: bool) -> Vec<Measured> {
        let mut cases: Vec<Measured> = Vec::new();
        for &(clients, rounds, was) in self.dbench {
            let Some(was) = was.get(place) else { continue };
            let rounds = if quick { 2 } else { rounds };
            let case = Case {
                name: self.dbench_case(clients),
                workload: "dbench",
                settings: numbers([("clients", clients), ("rounds", rounds)]),
                published: published("MB/s", self.runs[0], was).into_iter().collect(),
                weight: clients * rounds,
                ..Case::default()
            };
            cases.push((case, load));
        }
        if let Some((writes, reads)) = self.writes.get(place).zip(self.reads.get(place)) {
            let scores_were = [("write score", writes), ("read score", reads)];
            let case = Case {
                name: self.blogbench_case(),
                workload: "blogbench",
                settings: numbers([("seconds", if quick { 1 } else { 4 })]),
                published: scores_were
                    .into_iter()
                    .flat_map(|(score, was)| published(score, self.runs[1], was))
                    .collect(),
                weight: 200,
                ..Case::default()
            };
            cases.push((case, scores));
        }
        cases
    }

    fn dbench_case(&self, clients: u64) -> String {
        format!("{}dbench {clients}", self.name)
    }

    fn blogbench_case(&self) -> String {
        format!("{}blogbench", self.name)
    }
}

/// A figure's mean, and its bounds where there are deviations.
fn published(figure: &str, runs: usize, was: &EarlierRun) -> Vec<(String, f64)> {
    let mut named = vec![(figure.to_string(), was.0)];
    if runs > 1 {
        named.extend(bounds(figure, runs, was.0, was.1));
    }
    named
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
fn compare(a: &Summary, b: &Summary) -> Ordering {
    if a.differs(b) { a.avg.total_cmp(&b.avg) } else { Ordering::Equal }
}

fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    // Without deviations no order is known to be one.
    for machine in MACHINES.iter().filter(|machine| machine.runs[0] > 1) {
        for &(clients, _, was) in machine.dbench {
            verdicts.extend(order(cells, &machine.dbench_case(clients), "MB/s", machine.runs[0], was));
        }
        let case = machine.blogbench_case();
        verdicts.extend(order(cells, &case, "write score", machine.runs[1], machine.writes));
        verdicts.extend(order(cells, &case, "read score", machine.runs[1], machine.reads));
    }
    verdicts
}

/// Pairs whose order is judged.
const PAIRS: [(&str, &str); 9] = [
    (EIGHT, NONE),
    (DYNAMIC, NONE),
    (OLD, NONE),
    (DYNAMIC, OLD),
    (ASYNC, DYNAMIC),
    (FIRST_EIGHT, NONE),
    (FIRST_DYNAMIC, NONE),
    (EIGHT, FIRST_EIGHT),
    (DYNAMIC, FIRST_DYNAMIC),
];

/// One verdict for each order of the published table on a case: only pairs that differ there by Welch's test at 95 % have
/// one.
fn order(cells: &[Cell], case: &str, figure: &str, runs: usize, was: &[EarlierRun]) -> Vec<Verdict> {
    let of = |name: &str| summary(cells, case, name, figure);
    let then = |name: &str| {
        let was = SYSTEMS.iter().zip(was).find(|(system, _)| system.0 == name).map(|(_, was)| *was);
        let (avg, stddev) = was.unwrap_or((f64::NAN, 0.0));
        Summary { n: runs, min: avg, max: avg, median: avg, avg, stddev }
    };
    let judged = PAIRS.into_iter().filter_map(|(one, other)| {
        let wanted = compare(&then(one), &then(other));
        let (a, b) = (of(one)?, of(other)?);
        let word = match wanted {
            Ordering::Less => "below",
            Ordering::Equal => return None,
            Ordering::Greater => "above",
        };
        let detail = format!(
            "{:.1} \u{b1} {:.1} and {:.1} \u{b1} {:.1}, published {:.1} and {:.1}",
            a.avg,
            a.stddev,
            b.avg,
            b.stddev,
            then(one).avg,
            then(other).avg
        );
        let text = format!("{case}, {figure}: {one} {word} {other}");
        Some(verdict("S4", text, compare(&a, &b) == wanted, detail))
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::records;
    use crate::results::Figures;

    /// The cells with other values, a little apart by seed.
    fn with_values(cells: &[Cell], values: [f64; 7]) -> Vec<Cell> {
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
        // By Welch's test all pairs of dbench differ in the document, and two of each score of blogbench's; of the first version
        // both from none, and from the later one in dbench with one client and in what is written of blogbench.
        let all = judge(&cells).len();
        assert_eq!(all, 4 * 5 + 2 + 2 + 4 * 2 + 1 + 2);
        let holding = |values| {
            let verdicts = judge(&with_values(&cells, values));
            verdicts.iter().filter(|verdict| verdict.holds).count()
        };
        let scores = |verdict: &Verdict| verdict.text.contains("read score");
        let reads = judge(&cells).iter().filter(|verdict| scores(verdict)).count();
        assert_eq!(
            holding([1.0, 3.0, 3.0, 2.0, 4.0, 2.5, 2.5]),
            all - 1,
            "reading is below the old preallocation"
        );
        assert!(holding([4.0, 3.0, 1.5, 2.0, 1.0, 3.5, 3.5]) <= reads);
    }
}
