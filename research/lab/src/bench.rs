//! `plat-lab bench-policy`: one page for one block policy, a score per goal, beside ten published policies.
//!
//! Owns the cases, small enough that a changed line of a policy is measured in seconds, and what a score is. It needs
//! the placement engine alone (see the feature `whole`). The experiments have the same workloads in full size.
//!
//! A score is 100 where nothing is lost: a file in one piece, all free space in long runs, every file where the one
//! before it ends. It is the mean over cases and seeds; a difference that the seeds do not bear out is marked.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use placement::policy::POLICIES;
use placement::{BlockPolicyKind, Engine};

use crate::measure;
use crate::summary::Summary;
use crate::system::{EngineAlone, Writing, describe_empty, layout};
use crate::workload::{Scale, Workload, in_model_time};

#[derive(clap::Args)]
pub(crate) struct BenchOptions {
    /// The policy; a name of the registry (`crates/placement/src/policy/mod.rs`).
    policy: String,
    /// Runs each case under this many seeds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Groups of 128 MiB of each volume.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=1024))]
    groups: u32,
    /// Sets a parameter of the policy.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Beside these policies only, separated by commas.
    #[arg(long, value_delimiter = ',')]
    beside: Vec<String>,
    /// A line per policy, goal and seed: policy,goal,seed,score.
    #[arg(long)]
    csv: bool,
    /// Small volumes and one seed, for tests.
    #[arg(long, hide = true)]
    quick: bool,
}

/// A policy that was published: its name here, the registry's, and what is set of it.
type Published = (&'static str, &'static str, &'static [(&'static str, u32)]);

/// The ten.
const PUBLISHED: [Published; 10] = [
    ("mballoc", "mballoc", &[]),
    ("mballoc-6.5", "mballoc-6.5", &[]),
    ("mballoc-6.4", "mballoc-6.4", &[]),
    // Until 5.10: groups one after the other.
    ("mballoc-5.10", "mballoc-6.4", &[("mb_optimize_scan", 0)]),
    ("xfs", "xfs", &[]),
    ("window", "window", &[]),
    ("window-dynamic", "window-dynamic", &[]),
    ("window-bsd", "window-dynamic", &[("rsv_kept", 1_000)]),
    ("prealloc8", "prealloc8", &[]),
    ("single", "single", &[]),
];

/// Result of a run, measured.
struct RunResult {
    extents: f64,
    large: f64,
    near: f64,
    follow: f64,
}

/// A goal, and how well it is met by what a run left.
struct Goal {
    name: &'static str,
    about: &'static str,
    /// The cases that count.
    cases: &'static [&'static str],
    score: fn(&RunResult) -> f64,
}

const AGED: &[&str] = &["agrawal 80", "git 80", "agrawal 97"];

/// The goals, in the order of the page.
const GOALS: [Goal; 6] = [
    Goal {
        name: "whole",
        about: "files in one piece: 100 over extents per file, on aged volumes that are 80 % full",
        cases: &["agrawal 80", "git 80"],
        score: |left| 100.0 / left.extents.max(1.0),
    },
    Goal {
        name: "full",
        about: "the same where 97 % are in use",
        cases: &["agrawal 97"],
        score: |left| 100.0 / left.extents.max(1.0),
    },
    Goal {
        name: "room",
        about: "free space in runs of at least 2 MiB, percent, on the aged volumes",
        cases: AGED,
        score: |left| left.large,
    },
    Goal {
        name: "near",
        about: "files that begin within 128 KiB of the one before them in their directory, percent, on the same",
        cases: AGED,
        score: |left| left.near,
    },
    Goal {
        name: "reading",
        about: "blocks that follow the one read before, directory by directory, percent, on the same",
        cases: AGED,
        score: |left| 100.0 * left.follow,
    },
    Goal {
        name: "beside",
        about: "files written side by side, a block at a time: 100 over extents per file",
        cases: &["clients", "writers"],
        score: |left| 100.0 / left.extents.max(1.0),
    },
];

/// A case: its workload with settings, and how files are written.
struct Case {
    name: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    writing: Writing,
}

const CASES: [Case; 5] = [
    Case {
        name: "agrawal 80",
        workload: "profile",
        settings: &[("profile", "agrawal"), ("fill", "80"), ("over", "300")],
        writing: Writing::Whole,
    },
    Case {
        name: "git 80",
        workload: "profile",
        settings: &[("profile", "git"), ("fill", "80"), ("over", "300")],
        writing: Writing::Whole,
    },
    Case {
        name: "agrawal 97",
        workload: "profile",
        settings: &[("profile", "agrawal"), ("fill", "97"), ("over", "200")],
        writing: Writing::Whole,
    },
    Case {
        name: "clients",
        workload: "windows",
        settings: &[("clients", "8"), ("blocks", "100000")],
        writing: Writing::Growing,
    },
    Case {
        name: "writers",
        workload: "dd",
        settings: &[("files", "9"), ("size", "20000000")],
        writing: Writing::Growing,
    },
];

/// A row of the page: a name and a policy with what is set of it.
struct Row {
    name: String,
    policy: BlockPolicyKind,
    values: Vec<(String, u32)>,
}

/// A run to be made: row, case, seed.
type Run = (usize, usize, u64);

/// Results of a row and a case, of each seed.
type Found = Vec<(Run, RunResult)>;

/// Runs all cases under the policy and the published ones, and prints the page.
///
/// # Errors
/// There is no such policy or parameter; an engine refuses what is asked of it.
pub(crate) fn run(options: &BenchOptions) -> Result<(), String> {
    let begun = Instant::now();
    let rows = rows(options)?;
    let found = measured(options, &rows)?;
    let seeds = seeds(options);
    let scores: Vec<Vec<Vec<f64>>> = (0..rows.len())
        .map(|row| {
            let of_goal = |goal: &Goal| seeds.clone().map(|seed| score(&found, row, goal, seed)).collect();
            GOALS.iter().map(of_goal).collect()
        })
        .collect();
    if options.csv {
        println!("policy,goal,seed,score");
        for (row, scores) in rows.iter().zip(&scores) {
            for (goal, scores) in GOALS.iter().zip(scores) {
                for (seed, score) in seeds.clone().zip(scores) {
                    println!("{},{},{seed},{score:.4}", row.name, goal.name);
                }
            }
        }
        return Ok(());
    }
    page(options, &rows, &scores);
    println!("\n{} runs in {:.1} s", found.len(), begun.elapsed().as_secs_f64());
    Ok(())
}

fn seeds(options: &BenchOptions) -> std::ops::Range<u64> {
    1..1 + if options.quick { 1 } else { options.seeds }
}

/// The policy that is asked for, then those beside it.
fn rows(options: &BenchOptions) -> Result<Vec<Row>, String> {
    let names = || POLICIES.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
    let wrong = |name: &str| format!("no policy is called {name}; there are {}", names());
    let policy = BlockPolicyKind::named(&options.policy).ok_or_else(|| wrong(&options.policy))?;
    let mut values = Vec::new();
    for set in &options.sets {
        let (name, value) = set.split_once('=').ok_or_else(|| format!("--set {set}: say NAME=VALUE"))?;
        let value = value.parse().map_err(|_| format!("--set {set}: {value} is not a whole number"))?;
        values.push((name.to_owned(), value));
    }
    let mut rows = vec![Row { name: format!("> {}", options.policy), policy, values }];
    for wanted in &options.beside {
        if PUBLISHED.iter().all(|(name, ..)| name != wanted) && wanted != "lease" {
            return Err(wrong(wanted));
        }
    }
    let wanted = |name: &str| options.beside.is_empty() || options.beside.iter().any(|wanted| wanted == name);
    for (name, policy, values) in [("lease", "lease", &[][..])].into_iter().chain(PUBLISHED) {
        let is_asked_for = name == options.policy && options.sets.is_empty();
        if let Some(policy) = BlockPolicyKind::named(policy).filter(|_| wanted(name) && !is_asked_for) {
            let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            rows.push(Row { name: name.into(), policy, values });
        }
    }
    Ok(rows)
}

/// Makes all runs, as many at once as there are processors. What comes out does not depend on that.
fn measured(options: &BenchOptions, rows: &[Row]) -> Result<Found, String> {
    let mut runs = VecDeque::new();
    for case in 0..CASES.len() {
        for row in 0..rows.len() {
            runs.extend(seeds(options).map(|seed| (row, case, seed)));
        }
    }
    let (runs, found) = (Mutex::new(runs), Mutex::new((Found::new(), None)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || runs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(run) = next() {
                    let left = left(options, &rows[run.0], &CASES[run.1], run.2);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    match left {
                        Ok(left) => found.0.push((run, left)),
                        Err(error) => _ = found.1.get_or_insert(error),
                    }
                }
            });
        }
    });
    let (mut found, failed) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(run, _)| *run);
    failed.map_or(Ok(found), Err)
}

/// One run.
fn left(options: &BenchOptions, row: &Row, case: &Case, seed: u64) -> Result<RunResult, String> {
    let values: Vec<(&str, u32)> = row.values.iter().map(|(name, value)| (&**name, *value)).collect();
    let policy = row.policy.tuned(&values).map_err(|error| error.to_string())?;
    let groups = if options.quick { 2 } else { options.groups };
    let engine = Engine::with_policy(layout(groups, 32_768), policy).map_err(|error| error.to_string())?;
    describe_empty(&engine).ok_or("the engine refuses an empty volume")?;
    let alone = EngineAlone::new(engine, 4096, case.writing);
    let mut scale = Scale { seed, quick: options.quick, ..Scale::default() };
    for (name, value) in case.settings {
        scale.settings.insert((*name).into(), (*value).into());
    }
    if case.workload == "profile" {
        scale.settings.insert("volume".into(), (u64::from(groups) << 27).to_string());
    }
    for phase in (Workload::named(case.workload)?.phases)(&scale)? {
        in_model_time(&alone, phase)?;
    }
    alone.engine().release_claims();
    let files = alone.files();
    let of = |values: Vec<(&'static str, f64)>, wanted| {
        values.into_iter().find(|(name, _)| *name == wanted).map_or(0.0, |(_, value)| value)
    };
    Ok(RunResult {
        extents: of(measure::files(files.iter()), "extents/file"),
        large: of(measure::free_runs(alone.engine().free_runs()), ">=512 %"),
        near: measure::neighbours(files.iter()),
        follow: of(measure::reading(alone.engine().layout(), files.iter()), "dynamic layout"),
    })
}

/// The score of a row for a goal under one seed: the mean over the goal's cases.
fn score(found: &Found, row: usize, goal: &Goal, seed: u64) -> f64 {
    let mine = found
        .iter()
        .filter(|((at, case, of), _)| *at == row && *of == seed && goal.cases.contains(&CASES[*case].name));
    let scores: Vec<f64> = mine.map(|(_, left)| (goal.score)(left)).collect();
    Summary::of(&scores).map_or(0.0, |summary| summary.avg)
}

fn page(options: &BenchOptions, rows: &[Row], scores: &[Vec<Vec<f64>>]) {
    let seeds = seeds(options);
    let count = seeds.end - seeds.start;
    let plural = if count == 1 { "" } else { "s" };
    let size = if options.quick { 2 } else { options.groups } * 128;
    println!("{}: {count} seed{plural}, volumes of {size} MiB\n", options.policy);
    let names: String = GOALS.iter().map(|goal| format!("{:>10}", goal.name)).collect();
    println!("{:18}{names}{:>10}", "", "mean");
    let first: Vec<_> = scores.first().into_iter().flatten().map(|scores| Summary::of(scores)).collect();
    let mut lines = Vec::new();
    for (row, scores) in rows.iter().zip(scores) {
        let mut line = format!("{:18}", row.name);
        let mut sum = 0.0;
        for (scores, first) in scores.iter().zip(&first) {
            let summary = Summary::of(scores);
            let average = summary.map_or(0.0, |summary| summary.avg);
            let is_noise = summary.zip(*first).is_some_and(|(one, first)| count > 1 && !one.differs(&first));
            let mark = if is_noise && !row.name.starts_with('>') { "~" } else { " " };
            line += &format!("{average:>9.1}{mark}");
            sum += average;
        }
        #[expect(clippy::cast_precision_loss, reason = "six")]
        let mean = sum / GOALS.len() as f64;
        lines.push((mean, format!("{line}{mean:>9.1}")));
    }
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, line) in lines {
        println!("{line}");
    }
    println!("");
    for goal in &GOALS {
        println!("{:10} {}", goal.name, goal.about);
    }
    if count > 1 {
        println!("~          no difference to {} that the seeds bear out (95 %, Welch)", options.policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(policy: &str) -> BenchOptions {
        let policy = policy.into();
        BenchOptions { policy, seeds: 3, groups: 2, sets: vec![], beside: vec![], csv: false, quick: true }
    }

    #[test]
    fn ten_published_policies_stand_beside_and_scores_follow_from_what_is_left() {
        assert_eq!(rows(&options("lease")).unwrap().len(), 11);
        let options = BenchOptions { beside: vec!["single".into(), "mballoc".into()], ..options("lease") };
        let rows = rows(&options).unwrap();
        let found = measured(&options, &rows).unwrap();
        let scores = |row: usize| GOALS.each_ref().map(|goal| score(&found, row, goal, 1));
        let of = |name: &str| scores(rows.iter().position(|row| row.name.ends_with(name)).unwrap());
        let (lease, mballoc, single) = (of("> lease"), of("mballoc"), of("single"));
        for scores in [lease, mballoc, single] {
            assert!(scores.iter().all(|score| (0.0..=100.0).contains(score)), "{scores:?}");
        }
        let [whole, .., beside] = lease;
        assert!(
            whole >= mballoc[0] && lease[1] > mballoc[1] && beside > single[5] * 10.0,
            "{lease:?} {mballoc:?} {single:?}"
        );
        let again = measured(&options, &rows).unwrap();
        assert!(found.iter().zip(&again).all(|(a, b)| a.0 == b.0 && a.1.extents == b.1.extents));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = |options: &BenchOptions| run(options).unwrap_err();
        assert!(error(&options("best")).contains("lease, mballoc"));
        let sets = vec!["lease_tight=0".into()];
        assert!(error(&BenchOptions { sets, ..options("lease") }).contains("from 1 to 1000"));
        let sets = vec!["lease_tight".into()];
        assert!(error(&BenchOptions { sets, ..options("lease") }).contains("NAME=VALUE"));
        let beside = vec!["far".into()];
        assert!(error(&BenchOptions { beside, ..options("lease") }).contains("far"));
    }
}
