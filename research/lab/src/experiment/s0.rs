//! S0: extents, a multi-block allocator and delayed allocation for ext3, 2004, beside plain ext3, ext3 with
//! reservation windows, and XFS: dd, dbench, and tiobench's sequential writes.
//!
//! The disk's rate is that of the published single dd. Times include a sync at the end, as the disk's work is what is
//! compared. Processors are modelled, what an allocation costs them is not: the calls are counted instead.

use platfs::mkfs::FsType;
use platfs::placement::BlockPolicyKind;

use super::size::{HIGH, LOW};
use super::trial::{Case, CellContext, Measured, Values, numbers, rate, seconds};
use super::{Baseline, Experiment, Kind, verdict};
use crate::jobs::Job;
use crate::numbers::float;
use crate::plan::Plan;
use crate::results::{Cell, Figures, Verdict};
use crate::system::Mounting;
use crate::table::{mean, published};
use crate::workload::Outcome;

pub(super) const TABLE: Experiment = Experiment {
    name: "S0",
    also: "",
    kind: Kind::Founding,
    baseline: Baseline::System("ext3"),
    about: "multi-block, delayed allocation (2004): dd, dbench and tiobench on a SCSI disk of about 20 MB/s",
    figures: &["seconds", "MB/s", LATENCY, "allocator calls"],
    jobs,
    judge,
};

/// Name, policy, and whether blocks are chosen at each write, on ext3, or late, on ext4.
const SYSTEMS: [(&str, BlockPolicyKind, bool); 5] = [
    ("ext3", BlockPolicyKind::Single, true),
    ("ext3, windows", BlockPolicyKind::WindowDynamic, true),
    ("mballoc", BlockPolicyKind::Mballoc, false),
    ("XFS-like", BlockPolicyKind::Xfs, false),
    ("lease", BlockPolicyKind::Lease, false),
];

/// Of a write, in milliseconds.
const LATENCY: &str = "mean latency ms";

/// Prefix of cases that count calls of the allocator.
const CALLS_FOR: &str = "calls for";

/// Published, by system: kilobytes of a file and calls of the allocator; clients and threads with MB/s.
const CALLS: [(u64, [Option<f64>; 3]); 3] = [
    (5, [Some(2.0), None, Some(1.0)]),
    (600, [Some(151.0), None, Some(1.0)]),
    (12_445, [Some(3_117.0), None, Some(1.0)]),
];
const DBENCH: [(u64, [Option<f64>; 3]); 3] = [
    (8, [Some(136.3), None, Some(211.3)]),
    (16, [Some(63.7), None, Some(184.6)]),
    (32, [Some(60.7), None, Some(134.4)]),
];
/// The slowest and the fastest of four runs.
const DBENCH_RANGES: [[Option<[f64; 2]>; 3]; 3] = [
    [Some([101.0, 153.0]), None, Some([192.0, 227.0])],
    [Some([48.0, 83.0]), None, Some([179.0, 197.0])],
    [Some([54.0, 67.0]), None, Some([131.0, 140.0])],
];
const TIOBENCH: [(u64, [f64; 4]); 4] = [
    (4, [13.34, 23.77, 26.39, 27.22]),
    (8, [9.71, 23.62, 25.81, 27.06]),
    (16, [6.60, 23.04, 24.99, 24.84]),
    (32, [8.12, 22.72, 24.83, 25.47]),
];

/// Mean milliseconds of a write.
const LATENCIES: [[f64; 4]; 4] = [
    [0.897, 0.529, 0.452, 0.373],
    [2.421, 1.006, 0.816, 0.763],
    [7.222, 1.849, 1.783, 1.300],
    [8.111, 3.282, 2.995, 2.247],
];

/// Files at once, bytes of each, and published seconds.
const DD: [(&str, u64, u64, [Option<f64>; 3]); 2] = [
    ("dd of 2 GB", 1, 2_000_000_000, [Some(122.6), None, Some(109.7)]),
    ("nine dd of 20 MB", 9, 20_000_000, [Some(82.2), None, Some(9.66)]),
];

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (at, system) in SYSTEMS.into_iter().enumerate().filter(|(_, system)| asked(plan, system)) {
        for (case, measure) in cases(at, plan.quick).into_iter().filter(|(case, _)| plan.wants(&case.name)) {
            for seed in plan.seeds(1) {
                // Calls were counted with bitmaps preloaded.
                let prefetched = case.name.starts_with(CALLS_FOR);
                let mounting = Mounting { prefetched, seed, ..mounting(system, plan)? };
                let at = CellContext { table: TABLE.name, system: system.0, seed, plan };
                jobs.push(case.clone().on_library(at, mounting, measure)?);
            }
        }
    }
    Ok(jobs)
}

/// Returns true if a system was asked for, by its name or its policy's, or none was.
fn asked(plan: &Plan, (name, policy, _): &(&str, BlockPolicyKind, bool)) -> bool {
    plan.policies.is_empty() || plan.asks_for(name) || plan.asks_for(policy.name())
}

/// The cases of a system by its place, and what is measured of each.
fn cases(at: usize, quick: bool) -> Vec<Measured> {
    let was = |figure: &'static str, published: &[Option<f64>]| -> Figures {
        published.get(at).copied().flatten().map(|was| (figure, was)).into_iter().collect()
    };
    let mut cases: Vec<Measured> = Vec::new();
    for (kilobytes, published) in CALLS {
        let (name, settings) =
            (format!("{CALLS_FOR} {kilobytes} kB"), numbers([("files", 1), ("size", kilobytes * 1_000)]));
        let published = was("allocator calls", &published);
        let case = Case { name, workload: "dd", settings, published, weight: 1, ..Case::default() };
        cases.push((case, |_| Vec::new()));
    }
    for (name, files, size, published) in DD {
        let settings = numbers([("files", files), ("size", if quick { size / 10 } else { size })]);
        let (name, published, weight) = (name.into(), was("seconds", &published), files.max(20) / files);
        let case = Case { name, workload: "dd", settings, published, weight, ..Case::default() };
        cases.push((case, seconds));
    }
    for ((clients, published), ranges) in DBENCH.into_iter().zip(DBENCH_RANGES) {
        let (name, settings) = (format!("dbench {clients}"), numbers([("clients", clients)]));
        let mut published = was("MB/s", &published);
        if let Some([low, high]) = ranges.get(at).copied().flatten() {
            published.0.extend([(LOW, low), (HIGH, high)].map(|(end, value)| (format!("MB/s{end}"), value)));
        }
        let case = Case { name, workload: "dbench", settings, published, weight: clients, ..Case::default() };
        cases.push((case, load));
    }
    for ((threads, published), latencies) in TIOBENCH.into_iter().zip(LATENCIES) {
        let settings = numbers([("threads", threads), ("phases", 1)]);
        let (name, mut published) = (format!("tiobench {threads}"), was("MB/s", &published.map(Some)));
        published.0.extend(was(LATENCY, &latencies.map(Some)).0);
        let case = Case { name, workload: "tiobench", settings, published, weight: 20, ..Case::default() };
        cases.push((case, written));
    }
    cases
}

fn mounting((_, policy, at_once): (&str, BlockPolicyKind, bool), plan: &Plan) -> Result<Mounting, String> {
    let drive = plan.drive("scsi-2004")?;
    let size = if plan.quick { 1 << 30 } else { 10 << 30 };
    let plain = Mounting::new(drive, size, if at_once { FsType::Ext3 } else { FsType::Ext4 });
    let delay = if at_once { 0 } else { plain.delay };
    Ok(Mounting { policy, delay, tunables: plan.tunables(policy, &[]), ..plain })
}

fn load(outcomes: &[Outcome]) -> Values {
    rate(outcomes, "load")
}

fn written(outcomes: &[Outcome]) -> Values {
    let phase = "sequential write";
    let writes = outcomes.iter().find(|outcome| outcome.name == phase);
    let writes = writes.and_then(|outcome| outcome.kinds.get("write")).copied().unwrap_or_default();
    let latency = (LATENCY, float(writes.time) / float(writes.calls.max(1)) / 1e6);
    rate(outcomes, phase).into_iter().chain([latency]).collect()
}

/// Where ours is behind by no more, the place on the disk decides, whose rate falls inwards.
const EVEN: f64 = 0.97;

/// Ratios of the cells. What was not measured is no number, so that no verdict holds by it.
struct Ratios<'c>(&'c [Cell]);

impl Ratios<'_> {
    fn value(&self, case: &str, system: &str, figure: &str) -> f64 {
        mean(self.0, case, system, figure).unwrap_or(f64::NAN)
    }

    /// How many times as fast one system is as another, by its rate.
    fn rate(&self, case: &str, system: &str, other: &str) -> f64 {
        self.value(case, system, "MB/s") / self.value(case, other, "MB/s")
    }

    /// How many times as fast as ext3 a system was published to be.
    fn published(&self, case: &str, system: &str) -> f64 {
        let was = |system| published(self.0, case, system, "MB/s").unwrap_or(f64::NAN);
        was(system) / was("ext3")
    }

    /// How many times as fast as ext3 a system is, by its time.
    fn time(&self, case: &str, system: &str) -> f64 {
        self.value(case, "ext3", "seconds") / self.value(case, system, "seconds")
    }
}

fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let ratios = Ratios(cells);
    let dbench = DBENCH.iter().map(|(clients, _)| judge_dbench(&ratios, &format!("dbench {clients}")));
    let tiobench =
        TIOBENCH.iter().flat_map(|(threads, _)| judge_tiobench(&ratios, &format!("tiobench {threads}")));
    let sixteen = ratios.rate("tiobench 16", "lease", "ext3");
    let sixteen = verdict(
        "S0",
        "tiobench 16: ours at least 3 times ext3",
        sixteen >= 3.0,
        format!("{sixteen:.2}, published 3.79"),
    );
    let calls = CALLS.iter().map(|(kilobytes, was)| judge_calls(&ratios, *kilobytes, was));
    judge_dd(&ratios).into_iter().chain(dbench).chain(tiobench).chain([sixteen]).chain(calls).collect()
}

fn judge_dd(ratios: &Ratios<'_>) -> [Verdict; 2] {
    let [nine, as_published] = ["lease", "mballoc"].map(|system| ratios.time("nine dd of 20 MB", system));
    let one = ratios.time("dd of 2 GB", "lease");
    [
        verdict(
            "S0",
            "nine dd at once: ours at least 8 times as fast as ext3",
            nine >= 8.0,
            format!("{nine:.2}; mballoc {as_published:.2}, published 8.51"),
        ),
        verdict(
            "S0",
            "one dd: ours as fast as ext3",
            one >= EVEN,
            format!("{one:.3}, published 1.12, of which processor 0.04"),
        ),
    ]
}

/// Ours over ext3, where the published allocator was `mballoc`.
fn judge_dbench(ratios: &Ratios<'_>, case: &str) -> Verdict {
    let (is, then) = (ratios.rate(case, "lease", "ext3"), ratios.published(case, "mballoc"));
    let text = format!("{case}: ours over ext3 by the published factor");
    verdict("S0", text, is >= then, format!("{is:.2}, published {then:.2}"))
}

fn judge_tiobench(ratios: &Ratios<'_>, case: &str) -> [Verdict; 3] {
    let factor = |system: &str, as_published: &str| {
        let (is, then) = (ratios.rate(case, system, "ext3"), ratios.published(case, as_published));
        let text = format!("{case}: {system} over ext3 by the published factor");
        verdict("S0", text, is >= then, format!("{is:.2}, published {then:.2}"))
    };
    let xfs = ratios.rate(case, "lease", "XFS-like");
    let as_xfs = verdict("S0", format!("{case}: ours as fast as XFS-like"), xfs >= EVEN, format!("{xfs:.3}"));
    [factor("lease", "mballoc"), factor("ext3, windows", "ext3, windows"), as_xfs]
}

fn judge_calls(ratios: &Ratios<'_>, kilobytes: u64, was: &[Option<f64>; 3]) -> Verdict {
    let case = format!("{CALLS_FOR} {kilobytes} kB");
    let [ours, plain] = ["lease", "ext3"].map(|system| ratios.value(&case, system, "allocator calls"));
    let then = was[0].unwrap_or(f64::NAN);
    // Published counts are up to 3 % above the number of data and indirect blocks.
    let holds = ours <= 1.0 && plain >= then * 0.95;
    let detail = format!("{ours:.0} and {plain:.0}, published 1 and {then:.0}");
    verdict("S0", format!("{case}: one, where ext3 needs one a block"), holds, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{measured, scaled};

    #[test]
    fn shapes_are_judged_either_way() {
        let cells = measured(&TABLE, "", &[]);
        let verdicts = judge(&cells);
        assert_eq!(verdicts.len(), 2 + 3 + 3 * 4 + 1 + 3);
        let nine = |system| mean(&cells, "nine dd of 20 MB", system, "seconds").unwrap();
        assert!(nine("ext3") > nine("lease"));
        let better = scaled(&cells, "ext3", &[("seconds", 1_000.0), ("MB/s", 0.001)]);
        let times: Vec<_> =
            judge(&better).into_iter().filter(|verdict| !verdict.text.contains("XFS")).collect();
        assert!(times.iter().all(|verdict| verdict.holds || verdict.text.contains("calls")), "{times:?}");
        let worse =
            scaled(&cells, "lease", &[("seconds", 1_000.0), ("MB/s", 0.001), ("allocator calls", 1e6)]);
        let ours: Vec<_> =
            judge(&worse).into_iter().filter(|verdict| !verdict.text.contains("windows")).collect();
        assert!(ours.iter().all(|verdict| !verdict.holds), "{ours:?}");
    }
}
