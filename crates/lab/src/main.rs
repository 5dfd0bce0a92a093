//! `plat-lab`: runs workloads on every placement policy and prints their figures side by side.

mod measure;
mod numbers;
mod scenario;
mod table;
mod volume;

use clap::{Parser, Subcommand};
use scenario::{SCENARIOS, Scenario, Setup};
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
    /// Runs scenarios.
    Run {
        /// Names of scenarios.
        #[arg(required = true)]
        scenarios: Vec<String>,
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Runs under this many seeds and prints statistics.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
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
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::List => list(),
        Command::Run { scenarios, seed, seeds, quick, policies, case, json, csv } => {
            let setup = Setup { seed, quick, policies, case };
            let known = |name: &String| SCENARIOS.iter().find(|scenario| scenario.name == name);
            for name in &scenarios {
                let Some(scenario) = known(name) else {
                    eprintln!("plat-lab: no scenario is called {name}; `plat-lab list` names them");
                    return ExitCode::from(2);
                };
                run(scenario, &setup, seeds.max(1), json, csv);
            }
        }
    }
    ExitCode::SUCCESS
}

fn list() {
    println!("scenarios");
    for scenario in SCENARIOS {
        println!("  {:16} {}", scenario.name, scenario.summary);
    }
    println!("block policies");
    for row in placement::policy::POLICIES {
        println!("  {:16} {}", row.name, row.summary);
    }
    println!("directory policies");
    for row in placement::inode::policy::DIRECTORY_POLICIES {
        println!("  {:16} {}", row.name, row.summary);
    }
}

fn run(scenario: &Scenario, setup: &Setup, seeds: u64, json: bool, csv: bool) {
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
}
