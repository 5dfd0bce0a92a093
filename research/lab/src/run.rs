//! `plat-lab run`, `record` and `list`: the one way in which experiments are run, printed and kept.

use std::path::{Path, PathBuf};

use crate::drive::ParameterSetting;
use crate::experiment::{EXPERIMENTS, Experiment, Kind, cells, founding, sizes};
use crate::jobs::{self, Bounds};
use crate::plan::{Plan, Setting};
use crate::plot;
use crate::results::{Aging, Record, Results};
use crate::table;
use crate::tape::Tape;

#[derive(clap::Args)]
pub(crate) struct RunOptions {
    /// Names of experiments; `founding` is all tables of the founding documents.
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs under this many seeds and prints statistics; by default 1, and 5 for tables that were published so.
    #[arg(long)]
    seeds: Option<u64>,
    /// Small sizes.
    #[arg(long)]
    quick: bool,
    /// Policies instead of the experiment's own, separated by commas.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Only cases whose name contains this; of `founding`, only tables.
    #[arg(long, default_value = "")]
    case: String,
    /// One JSON value per experiment and seed.
    #[arg(long)]
    json: bool,
    /// One line per figure: experiment, seed, case, policy, figure, value.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Sets a tunable: name=value for every policy that has it, policy:name=value for one.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::read)]
    sets: Vec<Setting>,
    /// Sets a parameter of the founding documents' machines, where theirs is not known.
    #[arg(long, value_name = "NAME=VALUE", value_parser = ParameterSetting::read)]
    machine: Vec<ParameterSetting>,
    /// Prints the engines' counters after the figures, in the shape of the kernel's mb_stats.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    stats: bool,
    /// Writes plots of what happened over time into this directory, for experiments that age.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Appends every figure to this file, and what happened over time. What an earlier run left there is not measured
    /// again, unless it is a time of this machine.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Cells at once; by default one for each processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
}

#[derive(clap::Args)]
pub(crate) struct RecordOptions {
    /// Name of the experiment, one of the engine alone.
    scenario: String,
    /// The trace to write.
    #[arg(short, long)]
    output: PathBuf,
    /// The policy under which it is recorded.
    #[arg(long, default_value = "lease")]
    policy: String,
    /// Only the case whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Small sizes.
    #[arg(long)]
    quick: bool,
}

fn named(name: &str) -> Result<&'static Experiment, String> {
    Experiment::named(name)
        .ok_or_else(|| format!("no experiment is called {name}; `plat-lab list` names them"))
}

/// The experiments that are named, and the cases that are wanted of them.
fn chosen(options: &RunOptions) -> Result<Vec<(&'static Experiment, &str)>, String> {
    let mut chosen = Vec::new();
    for name in &options.scenarios {
        if name == "founding" {
            let tables = founding().filter(|table| table.name.contains(&options.case));
            chosen.extend(tables.map(|table| (table, "")));
        } else {
            chosen.push((named(name)?, &*options.case));
        }
    }
    Ok(chosen)
}

/// Runs experiments and prints each as soon as it is done; whether all that the founding documents say holds.
///
/// # Errors
/// A fault of the options; a cell that could not be measured; the file of results.
pub(crate) fn run(options: &RunOptions) -> Result<bool, String> {
    let chosen = chosen(options)?;
    let earlier = crate::results::earlier(options.results.as_deref())?;
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let mut all_hold = true;
    for (experiment, case) in chosen {
        let plan = Plan {
            seed: options.seed,
            seeds: options.seeds,
            quick: options.quick,
            policies: options.policies.clone(),
            case: case.into(),
            sets: options.sets.clone(),
            machine: options.machine.clone(),
            tape: Tape::default(),
            samples: options.plot.is_some() || results.is_some(),
        };
        all_hold &= run_one(experiment, &plan, options, (results.as_ref(), &earlier))?;
    }
    if !all_hold {
        eprintln!("plat-lab: not every shape holds");
    }
    Ok(all_hold)
}

/// Runs one experiment; whether what was published of it holds.
fn run_one(
    experiment: &Experiment,
    plan: &Plan,
    options: &RunOptions,
    (results, earlier): (Option<&Results>, &[Record]),
) -> Result<bool, String> {
    let keep = |found: &[Record]| {
        // Most policies have no criteria; lines of zeros would only lengthen the file.
        let worth = found.iter().filter(|record| match record {
            Record::Criteria(criteria) => criteria.has_hits(),
            _ => true,
        });
        results.map_or(Ok(()), |results| worth.cloned().try_for_each(|record| results.add(record)))
    };
    let default = Bounds::default();
    let times = experiment.kind == Kind::Times;
    // Times of this machine are worth nothing where cells run side by side, or were measured before.
    let bounds = Bounds {
        jobs: if times { 1 } else { options.jobs.unwrap_or(default.jobs) },
        memory: options.memory.saturating_mul(1 << 20),
    };
    let earlier = if times { &[][..] } else { earlier };
    let found = jobs::run((experiment.jobs)(plan)?, bounds, earlier, &keep)?;
    let records: Vec<Record> = found.into_iter().flatten().collect();
    let cells = cells(records.iter().cloned());
    // What was published is judged by the whole table.
    let is_whole = plan.case.is_empty() && plan.policies.is_empty();
    let judged = is_whole || experiment.kind != Kind::Founding;
    let verdicts = if judged { (experiment.judge)(&cells) } else { Vec::new() };
    keep(&verdicts.iter().cloned().map(Record::from).collect::<Vec<_>>())?;
    let sizes = sizes(experiment.baseline, &cells);
    keep(&sizes.iter().cloned().map(Record::from).collect::<Vec<_>>())?;
    if options.json {
        print!("{}", table::json(experiment.name, &cells));
    } else if options.csv {
        print!("{}", table::csv(&cells));
    } else {
        let (name, about) = (experiment.name, experiment.about);
        println!("{name}: {about}");
        if !sizes.is_empty() {
            println!("{}", table::counts(&sizes));
        }
        print!("{}", table::text(&cells, experiment.figures));
        if !sizes.is_empty() {
            print!("\n{}\n", table::sizes(&sizes));
        }
        println!("{}", table::verdicts(&verdicts));
    }
    if options.stats {
        let criteria = |record: &Record| if let Record::Criteria(c) = record { Some(c.text()) } else { None };
        print!("{}", records.iter().filter_map(criteria).collect::<String>());
    }
    if let Some(dir) = &options.plot {
        draw(experiment, &records, dir)?;
    }
    Ok(experiment.kind != Kind::Founding || verdicts.iter().all(|verdict| verdict.holds))
}

fn draw(experiment: &Experiment, records: &[Record], dir: &Path) -> Result<(), String> {
    let frame = |record: &Record| if let Record::Aging(aging) = record { Some(aging.clone()) } else { None };
    let frames: Vec<Aging> = records.iter().filter_map(frame).collect();
    let names = plot::write(dir, &frames).map_err(|error| format!("{}: {error}", dir.display()))?;
    eprintln!("{}: {} plots in {}", experiment.name, names.len(), dir.display());
    Ok(())
}

/// Records the requests of one case under one policy.
///
/// # Errors
/// There is no such experiment; it has no engine of its own, or several; the file.
pub(crate) fn record(options: &RecordOptions) -> Result<(), String> {
    let experiment = named(&options.scenario)?;
    let output = &options.output;
    let named = |error: std::io::Error| format!("{}: {error}", output.display());
    let tape = Tape::create(output).map_err(named)?;
    let plan = Plan {
        seed: options.seed,
        quick: options.quick,
        policies: vec![options.policy.clone()],
        case: options.case.clone(),
        tape: tape.clone(),
        ..Plan::default()
    };
    let bounds = Bounds { jobs: 1, ..Bounds::default() };
    jobs::run((experiment.jobs)(&plan)?, bounds, &[], &|_| Ok(()))?;
    tape.finish()?;
    let bytes = std::fs::metadata(output).map_err(named)?.len();
    println!("{}: {bytes} bytes", output.display());
    Ok(())
}

/// Prints experiments, policies and what can be set.
pub(crate) fn list() {
    for (title, kinds) in [
        ("experiments", &[Kind::Counts, Kind::Times][..]),
        ("founding tables (all: run founding)", &[Kind::Founding]),
    ] {
        println!("{title}");
        for experiment in EXPERIMENTS.iter().filter(|experiment| kinds.contains(&experiment.kind)) {
            let also =
                if experiment.also.is_empty() { String::new() } else { format!(", {}", experiment.also) };
            println!("  {:16} {}", format!("{}{also}", experiment.name), experiment.about);
        }
    }
    println!("block policies");
    for row in placement::policy::POLICIES {
        println!("  {:16} {}", row.name, row.summary);
    }
    println!("directory policies");
    for row in placement::inode::policy::DIRECTORY_POLICIES {
        println!("  {:16} {}", row.name, row.summary);
    }
    println!("parameters: default, range, meaning, the policies that have them");
    for placement::parameters::Parameter { tunable, policies, .. } in placement::parameters::parameters() {
        let range = format!("{}..{}", tunable.least, tunable.most);
        let of = policies.join(", ");
        println!("  {:28} {:>6} {range:>14}  {} ({of})", tunable.name, tunable.default, tunable.about);
    }
}
