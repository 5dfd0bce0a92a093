//! `plat-lab`: runs workloads on every placement policy and prints their figures side by side.

// First: the others print through it.
#[macro_use]
mod output;

mod counters;
mod crashes;
mod drive;
mod founding;
mod jobs;
mod keeping;
mod layout;
mod matrix;
mod measure;
mod numbers;
mod peers;
mod plot;
mod replay;
mod report;
mod results;
mod scenario;
mod series;
mod system;
mod table;
mod tar;
mod tree;
mod verdict;
mod volume;
mod work;
mod workload;

use clap::{Parser, Subcommand};
use counters::Ledger;
use replay::Tape;
use results::Results;
use scenario::{SCENARIOS, Scenario, Setting, Setup};
use series::Series;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Workloads on the placement policies of ext2/3/4.
#[derive(Parser)]
#[command(name = "plat-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists scenarios and policies.
    List,
    /// Runs scenarios; `founding` is the tables of the founding documents on whole file systems in model time.
    Run(RunOptions),
    /// Runs a workload on a whole file system: the library in model time, or any directory.
    Work(work::WorkOptions),
    /// Runs every combination that a file lists: policies, orders, sizes, workloads, seeds.
    Matrix(matrix::MatrixOptions),
    /// Crashes, state by state: whether recovery makes of each what was promised.
    Crash(crashes::Options),
    /// The same workloads in real time on images: the library, `plat mount`, and the kernel's file systems.
    Peers(peers::PeersOptions),
    /// Records the requests of one case of a scenario under one policy.
    Record {
        /// Name of the scenario.
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
    },
    /// Makes a page of files of results.
    Report(report::Options),
    /// Replays a trace under policies and prints the same figures for each.
    Replay {
        /// The trace.
        trace: PathBuf,
        /// Policies, separated by commas; all if none is named.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<String>,
        /// Sets a tunable, as for `run`.
        #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::read)]
        sets: Vec<Setting>,
        /// One line per figure.
        #[arg(long)]
        csv: bool,
    },
}

#[derive(clap::Args)]
struct RunOptions {
    /// Names of scenarios.
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs under this many seeds and prints statistics; 1 if not told, and 5 for founding tables that give statistics.
    #[arg(long)]
    seeds: Option<u64>,
    /// Small sizes.
    #[arg(long)]
    quick: bool,
    /// Policies instead of the scenario's own, separated by commas.
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// One JSON value per run.
    #[arg(long)]
    json: bool,
    /// One line per figure: scenario, seed, case, policy, figure, value.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Sets a tunable: name=value for every policy that has it, policy:name=value for one.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::read)]
    sets: Vec<Setting>,
    /// Prints the engines' counters after the figures, in the shape of the kernel's mb_stats.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    stats: bool,
    /// Writes plots of what happened over time into this directory, for scenarios that age.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Appends every figure to this file, and what happened over time of scenarios that age. `founding` takes
    /// over what an earlier run left there.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Cells of `founding` at once; one for each processor if not told.
    #[arg(long)]
    jobs: Option<usize>,
    /// Memory of `founding` in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
}

fn main() -> ExitCode {
    let mut code = 0;
    let done = match Arguments::parse().command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(options) => run_all(&options),
        Command::Work(options) => work::work(&options),
        Command::Matrix(options) => matrix::run(&options),
        Command::Crash(options) => crashes::crash(&options).map(|is_right| code = u8::from(!is_right)),
        Command::Report(options) => report::run(&options),
        Command::Peers(options) => peers::peers(&options),
        Command::Record { scenario, output, policy, case, seed, quick } => record(
            &scenario,
            &output,
            Setup { policies: vec![policy], case, seed, quick, ..Setup::default() },
        ),
        Command::Replay { trace, policies, sets, csv } => replay_all(&trace, &policies, sets, csv),
    };
    match done.and(output::end()) {
        Ok(()) => ExitCode::from(code),
        Err(message) => {
            eprintln!("plat-lab: {message}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Result<&'static Scenario, String> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("no scenario is called {name}; `plat-lab list` names them"))
}

/// Runs the founding tables whose name contains `--case`.
fn run_founding(options: &RunOptions) -> Result<(), String> {
    if options.scenarios.len() > 1 || options.json || options.csv || options.plot.is_some() {
        return Err("`founding` runs alone and prints text; `--results FILE` keeps every figure".into());
    }
    let earlier = matrix::earlier(options.results.as_deref())?;
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let bounds = jobs::Bounds {
        jobs: options.jobs.unwrap_or(jobs::Bounds::default().jobs),
        memory: options.memory.saturating_mul(1 << 20),
    };
    let scope = founding::Scope {
        seed: options.seed,
        seeds: options.seeds.unwrap_or(founding::SEEDS).max(1),
        quick: options.quick,
    };
    let results = results.as_ref().map(|results| (results, &*earlier));
    if founding::run(founding::TABLES, &scope, &options.case, bounds, results)? {
        Ok(())
    } else {
        Err("not every shape holds".into())
    }
}

fn run_all(options: &RunOptions) -> Result<(), String> {
    if options.scenarios.iter().any(|name| name == "founding") {
        return run_founding(options);
    }
    let scenarios = options.scenarios.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
    let results = options.results.as_deref().map(Results::append).transpose()?;
    let wanted = options.plot.is_some() || results.is_some();
    let series = if wanted { Series::collecting() } else { Series::default() };
    let setup = Setup {
        seed: options.seed,
        quick: options.quick,
        policies: options.policies.clone(),
        case: options.case.clone(),
        series: series.clone(),
        counters: if options.stats || results.is_some() { Ledger::keeping() } else { Ledger::default() },
        sets: options.sets.clone(),
        tape: Tape::default(),
    };
    for scenario in scenarios {
        let runs = run(scenario, &setup, options.seeds.unwrap_or(1).max(1), options.json, options.csv);
        let points = series.take();
        if let Some(results) = &results {
            keeping::keep(results, scenario, &setup, &runs, &points)?;
        }
        let counters = setup.counters.text();
        if options.stats {
            print!("{counters}");
        }
        let Some(dir) = &options.plot else { continue };
        let names = plot::write(dir, &points).map_err(|error| format!("{}: {error}", dir.display()))?;
        eprintln!("{}: {} plots in {}", scenario.name, names.len(), dir.display());
    }
    Ok(())
}

fn record(scenario: &str, output: &Path, setup: Setup) -> Result<(), String> {
    let scenario = named(scenario)?;
    let told = |error: std::io::Error| format!("{}: {error}", output.display());
    let tape = Tape::create(output).map_err(told)?;
    (scenario.run)(&Setup { tape: tape.clone(), ..setup });
    tape.finish()?;
    let bytes = std::fs::metadata(output).map_err(told)?.len();
    println!("{}: {bytes} bytes", output.display());
    Ok(())
}

fn replay_all(trace: &Path, policies: &[String], sets: Vec<Setting>, csv: bool) -> Result<(), String> {
    let setup = Setup { policies: policies.to_vec(), sets, ..Setup::default() };
    let all: Vec<_> = placement::policy::POLICIES.iter().map(|row| row.kind).collect();
    if let Some(name) = policies.iter().find(|name| placement::BlockPolicyKind::named(name).is_none()) {
        return Err(format!("no policy is called {name}; `plat-lab list` names them"));
    }
    let mut rows = Vec::new();
    for policy in setup.policies(&all) {
        rows.push(replay::replay(trace, policy, &setup)?);
    }
    print!("{}", if csv { table::csv("replay", 0, &rows) } else { table::columns(&rows) });
    Ok(())
}

fn list() {
    println!("scenarios");
    for scenario in SCENARIOS {
        println!("  {:16} {}", scenario.name, scenario.summary);
    }
    println!("founding tables (run founding --case NAME)");
    for table in founding::TABLES {
        println!("  {:16} {}", table.name, table.about);
    }
    println!("block policies");
    for row in placement::policy::POLICIES {
        println!("  {:16} {}", row.name, row.summary);
        for tunable in row.tunables {
            println!("    {:30} {:>6}  {}", tunable.name, tunable.default, tunable.about);
        }
    }
    println!("directory policies");
    for row in placement::inode::policy::DIRECTORY_POLICIES {
        println!("  {:16} {}", row.name, row.summary);
    }
}

/// Runs a scenario under each seed, prints what comes of it and returns it.
fn run(scenario: &Scenario, setup: &Setup, seeds: u64, json: bool, csv: bool) -> Vec<table::Rows> {
    let mut runs = Vec::new();
    for seed in setup.seed..setup.seed.saturating_add(seeds) {
        let rows = (scenario.run)(&Setup { seed, ..setup.clone() });
        if json {
            println!("{}", table::json(scenario.name, seed, &rows));
        } else if csv {
            print!("{}", table::csv(scenario.name, seed, &rows));
        }
        runs.push(rows);
    }
    match runs.as_slice() {
        _ if json || csv => {}
        [rows] => print!("{}\n{}", scenario.summary, table::text(rows)),
        runs => print!("{}\n{}", scenario.summary, table::summarise(runs)),
    }
    if !json && !csv {
        print!("{}", verdict::text(&runs));
    }
    runs
}
