//! Volumes of 8 GiB that age by profiles, on the engine alone: each is filled to a level, written over four times, and
//! then files and free space are measured. `open` is `agrawal` placed while the files are still open for writing, as
//! without delayed allocation. The experiment `geriatrix` does the same by the profiles that were published with that name.

use placement::policy::POLICIES;
use placement::{BlockPolicyKind, Counter};

use super::trial::{Case, CellContext, Values, numbers};
use super::{Baseline, Experiment, Kind, best};
use crate::jobs::Job;
use crate::measure;
use crate::numbers::float;
use crate::plan::Plan;
use crate::system::{EngineAlone, Writing};

pub(super) const AGE: Experiment = Experiment {
    name: "age",
    also: "",
    about: "create, append and delete until the volume is old: fragmentation of files and of free space",
    figures: &[],
    kind: Kind::Counts,
    baseline: Baseline::None,
    jobs,
    judge: best::judge,
};

pub(super) const GERIATRIX: Experiment = Experiment {
    name: "geriatrix",
    about: "volumes aged by Geriatrix's published profiles (2018): fragmentation of files and of free space",
    jobs: published_jobs,
    ..AGE
};

/// Name, profile, and how files are written.
type Row = (&'static str, &'static str, Writing);
const PROFILES: [Row; 5] = [
    ("agrawal", "agrawal", Writing::Whole),
    ("open", "agrawal", Writing::Growing),
    ("geriatrix", "geriatrix", Writing::Whole),
    ("git", "git", Writing::Whole),
    ("large", "large", Writing::Whole),
];

/// Files are reserved whole, as the original does it.
const PUBLISHED: [Row; 4] = [
    ("agrawal", "agrawal", Writing::Whole),
    ("douceur", "douceur", Writing::Whole),
    ("meyer", "meyer", Writing::Whole),
    ("wang-lanl", "wang-lanl", Writing::Whole),
];

const FILLS: &[u64] = &[50, 70, 80, 90, 95];
/// Percent of the used space that is written over after it is reached.
const OVER: u64 = 400;
/// Samples of a run, for plots.
const SAMPLES: u32 = 48;

fn jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    ageing(plan, AGE.name, "profile", &PROFILES)
}

fn published_jobs(plan: &Plan) -> Result<Vec<Job>, String> {
    ageing(plan, GERIATRIX.name, "geriatrix", &PUBLISHED)
}

/// A cell for each profile, level, system and seed.
fn ageing(
    plan: &Plan,
    table: &'static str,
    workload: &'static str,
    rows: &[Row],
) -> Result<Vec<Job>, String> {
    let own: Vec<BlockPolicyKind> = POLICIES.iter().map(|row| row.kind).collect();
    let fills = if plan.quick { &[80][..] } else { FILLS };
    let groups = if plan.quick { 16 } else { 64 };
    let mut jobs = Vec::new();
    for &(name, profile, writing) in rows {
        for &fill in fills {
            let mut settings = numbers([("volume", u64::from(groups) << 27), ("fill", fill), ("over", OVER)]);
            settings.push(("profile", profile.into()));
            let name = format!("{name} {fill} %");
            let case = Case { name, workload, settings, weight: fill, samples: SAMPLES, ..Case::default() };
            for policy in plan.policies(&own).into_iter().filter(|_| plan.wants(&case.name)) {
                for seed in plan.seeds(1) {
                    let at = CellContext { table, system: policy.name(), seed, plan };
                    let plan = plan.clone();
                    let make = move || plan.volume(groups, policy, &[], writing);
                    jobs.push(case.clone().on_engine(at, make, figures)?);
                }
            }
        }
    }
    Ok(jobs)
}

fn figures(alone: &EngineAlone) -> Values {
    let (files, engine) = (alone.files(), alone.engine());
    let stats = engine.stats();
    let mut values = measure::files(files.iter());
    values.push(("refused", float(alone.refused())));
    values.push(("near %", measure::neighbours(files.iter())));
    values.extend(measure::reading(engine.layout(), files.iter()));
    values.extend(measure::free_runs(engine.free_runs()));
    values
        .push(("scanned/req", measure::ratio(stats.get(Counter::ExtentsScanned), stats.get(Counter::Reqs))));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::records;
    use crate::experiment::tests::measured;
    use crate::results::Record;

    /// One seed on a small volume; the figures over five seeds are in research/docs/placement-results.md.
    #[test]
    fn files_are_whole_and_free_space_is_in_longer_runs_than_mballoc_leaves() {
        for case in ["geriatrix", "open", "large"] {
            let cells = measured(&AGE, case, &["lease", "mballoc"]);
            let [ours, kernels] = cells.as_slice() else { panic!("two cells") };
            assert!(ours.figures.get("extents/file").unwrap() <= 1.02, "{case}");
            for name in [">=512 %", ">=2048 %", "aligned %"] {
                assert!(
                    ours.figures.get(name).unwrap() >= kernels.figures.get(name).unwrap(),
                    "{case}: {name}"
                );
            }
            // Among short runs the kernel's are a little longer: its files take them in more pieces.
            let mean = |cell: &crate::results::Cell| cell.figures.get("mean run").unwrap();
            assert!(mean(ours) >= 0.9 * mean(kernels), "{case}: {} {}", mean(ours), mean(kernels));
        }
    }

    #[test]
    fn samples_of_the_first_seed_come_along_the_way_where_they_are_wanted() {
        for (samples, expected) in [(true, 48), (false, 0)] {
            let plan = Plan {
                seed: 1,
                seeds: Some(2),
                quick: true,
                case: "git".into(),
                policies: vec!["lease".into()],
                samples,
                ..Plan::default()
            };
            let aging = |record| if let Record::Aging(aging) = record { Some(aging) } else { None };
            let frames: Vec<_> = records(&AGE, &plan).into_iter().filter_map(aging).collect();
            assert_eq!(frames.len(), expected);
            assert!(frames.iter().all(|frame| frame.seed == 1));
            assert!(frames.is_sorted_by(|a, b| a.step < b.step && a.operations < b.operations));
            for frame in &frames {
                let free: u64 = frame.free_bins.iter().sum();
                let share = 1.0 - float(free) / float(frame.clusters);
                assert!((share - frame.fullness).abs() < 1e-9 && frame.groups.len() == 16);
            }
        }
    }
}
