//! S0: extents, a multi-block allocator and delayed allocation for ext3, 2004, beside plain ext3, ext3 with
//! reservation windows, and XFS: dd, dbench, and tiobench's sequential writes.
//!
//! The disk's rate is that of the published single dd. Times include a sync at the end, as the disk's work is what is
//! compared. Processors are modelled, what an allocation costs them is not: the calls are counted instead.

use platfs::mkfs::FsType;
use platfs::placement::BlockPolicyKind;

use super::cell::{Spec, rate, seconds};
use super::{Scope, Table, mean, published, verdict};
use crate::drive::Drive;
use crate::jobs::Job;
use crate::results::{Cell, Verdict};
use crate::system::Mounting;
use crate::workload::Outcome;

pub(super) const TABLE: Table = Table {
    name: "S0",
    about: "multi-block, delayed allocation (2004): dd, dbench and tiobench on a SCSI disk of about 20 MB/s",
    figures: &["seconds", "MB/s", "allocator calls"],
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

/// What cases that count calls of the allocator begin with.
const CALLS_FOR: &str = "calls for";

/// Published, by system: kilobytes of a file and calls of the allocator; clients and threads with MB/s.
const CALLS: [(u64, [Option<f64>; 3]); 3] = [
    (5, [Some(2.0), None, Some(1.0)]),
    (600, [Some(151.0), None, Some(1.0)]),
    (12_445, [Some(3_117.0), None, Some(1.0)]),
];
const DBENCH: [(u64, [Option<f64>; 3]); 3] = [
    (8, [Some(136.0), None, Some(211.0)]),
    (16, [Some(64.0), None, Some(185.0)]),
    (32, [Some(61.0), None, Some(134.0)]),
];
const TIOBENCH: [(u64, [f64; 4]); 4] = [
    (4, [13.34, 23.77, 26.39, 27.22]),
    (8, [9.71, 23.62, 25.81, 27.06]),
    (16, [6.60, 23.04, 24.99, 24.84]),
    (32, [8.12, 22.72, 24.83, 25.47]),
];

/// Files at once, bytes of each, and published seconds.
const DD: [(&str, u64, u64, [Option<f64>; 3]); 2] = [
    ("dd of 2 GB", 1, 2_000_000_000, [Some(122.6), None, Some(109.7)]),
    ("nine dd of 20 MB", 9, 20_000_000, [Some(82.2), None, Some(9.66)]),
];

fn jobs(scope: &Scope) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    let nth = |figures: &[Option<f64>], at: usize| figures.get(at).copied().flatten();
    for (at, system) in SYSTEMS.into_iter().enumerate() {
        let mut add = |case: String,
                       workload,
                       settings: Vec<(&'static str, u64)>,
                       measure,
                       was: Option<(&'static str, f64)>,
                       weight| {
            // Calls were counted with bitmaps preloaded.
            let mounting = Mounting { prefetched: case.starts_with(CALLS_FOR), ..mounting(system, scope)? };
            let spec = Spec {
                table: TABLE.name,
                case,
                system: system.0,
                seed: scope.seed,
                quick: scope.quick,
                mounting,
                workload,
                settings,
                measure,
                published: was.into_iter().collect(),
                weight,
            };
            jobs.push(spec.job()?);
            Ok::<_, String>(())
        };
        for (kilobytes, was) in CALLS {
            let settings = vec![("files", 1), ("size", kilobytes * 1_000)];
            let was = nth(&was, at).map(|was| ("allocator calls", was));
            add(format!("{CALLS_FOR} {kilobytes} kB"), "dd", settings, |_| Vec::new(), was, 1)?;
        }
        for (case, files, size, was) in DD {
            let size = if scope.quick { size / 10 } else { size };
            let settings = vec![("files", files), ("size", size)];
            add(
                case.into(),
                "dd",
                settings,
                seconds,
                nth(&was, at).map(|was| ("seconds", was)),
                files.max(20) / files,
            )?;
        }
        for (clients, was) in DBENCH {
            let was = nth(&was, at).map(|was| ("MB/s", was));
            add(format!("dbench {clients}"), "dbench", vec![("clients", clients)], load, was, clients)?;
        }
        for (threads, was) in TIOBENCH {
            let was = was.get(at).map(|was| ("MB/s", *was));
            add(
                format!("tiobench {threads}"),
                "tiobench",
                vec![("threads", threads), ("phases", 1)],
                written,
                was,
                20,
            )?;
        }
    }
    Ok(jobs)
}

fn mounting((_, policy, at_once): (&str, BlockPolicyKind, bool), scope: &Scope) -> Result<Mounting, String> {
    let drive = Drive::named("scsi-2004")?;
    let size = if scope.quick { 1 << 30 } else { 10 << 30 };
    let plain = Mounting::new(drive, size, if at_once { FsType::Ext3 } else { FsType::Ext4 });
    Ok(Mounting { policy, delay: if at_once { 0 } else { plain.delay }, seed: scope.seed, ..plain })
}

fn load(outcomes: &[Outcome]) -> Vec<(&'static str, f64)> {
    rate(outcomes, "load")
}

fn written(outcomes: &[Outcome]) -> Vec<(&'static str, f64)> {
    rate(outcomes, "sequential write")
}

/// Where ours is behind by no more, the place on the disk decides, whose rate falls inwards.
const EVEN: f64 = 0.97;

fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let value =
        |case: &str, system: &str, figure: &str| mean(cells, case, system, figure).unwrap_or(f64::NAN);
    let was = |case: &str, system: &str| published(cells, case, system, "MB/s").unwrap_or(f64::NAN);
    let speed_up = |case: &str, system: &str| value(case, "ext3", "seconds") / value(case, system, "seconds");
    let nine = speed_up("nine dd of 20 MB", "lease");
    let as_published = speed_up("nine dd of 20 MB", "mballoc");
    let one = speed_up("dd of 2 GB", "lease");
    let mut verdicts = vec![
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
    ];
    for (clients, _) in DBENCH {
        let case = format!("dbench {clients}");
        let (is, then) = (
            value(&case, "lease", "MB/s") / value(&case, "ext3", "MB/s"),
            was(&case, "mballoc") / was(&case, "ext3"),
        );
        verdicts.push(verdict(
            "S0",
            format!("{case}: ours over ext3 by the published factor"),
            is >= then,
            format!("{is:.2}, published {then:.2}"),
        ));
    }
    for (threads, _) in TIOBENCH {
        let case = format!("tiobench {threads}");
        for (system, published_as) in [("lease", "mballoc"), ("ext3, windows", "ext3, windows")] {
            let (is, then) = (
                value(&case, system, "MB/s") / value(&case, "ext3", "MB/s"),
                was(&case, published_as) / was(&case, "ext3"),
            );
            verdicts.push(verdict(
                "S0",
                format!("{case}: {system} over ext3 by the published factor"),
                is >= then,
                format!("{is:.2}, published {then:.2}"),
            ));
        }
        let xfs = value(&case, "lease", "MB/s") / value(&case, "XFS-like", "MB/s");
        verdicts.push(verdict(
            "S0",
            format!("{case}: ours as fast as XFS-like"),
            xfs >= EVEN,
            format!("{xfs:.3}"),
        ));
    }
    let sixteen = value("tiobench 16", "lease", "MB/s") / value("tiobench 16", "ext3", "MB/s");
    verdicts.push(verdict(
        "S0",
        "tiobench 16: ours at least 3 times ext3",
        sixteen >= 3.0,
        format!("{sixteen:.2}, published 3.79"),
    ));
    for (kilobytes, figures) in CALLS {
        let case = format!("{CALLS_FOR} {kilobytes} kB");
        let (ours, plain) =
            (value(&case, "lease", "allocator calls"), value(&case, "ext3", "allocator calls"));
        let then = figures[0].unwrap_or(f64::NAN);
        let holds = ours <= 1.0 && plain >= then * 0.95;
        verdicts.push(verdict(
            "S0",
            format!("{case}: one, where ext3 needs one a block"),
            holds,
            format!("{ours:.0} and {plain:.0}, published 1 and {then:.0}"),
        ));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::founding::tests::{measured, scaled};

    #[test]
    fn shapes_are_judged_either_way() {
        let cells = measured(&TABLE);
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
