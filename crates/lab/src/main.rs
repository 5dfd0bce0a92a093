//! `plat-lab`: runs workloads on every placement policy and prints their figures side by side.

// First: the others print through it.
#[macro_use]
mod output;

mod counters;
mod crashes;
mod digest;
mod drive;
mod experiment;
mod file;
mod jobs;
mod layout;
mod matrix;
mod measure;
mod numbers;
mod peers;
mod plan;
mod plot;
mod replay;
mod report;
mod results;
mod run;
mod summary;
mod system;
mod table;
mod tape;
mod tar;
mod tree;
mod work;
mod workload;

use clap::{Parser, Subcommand};
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
    /// Lists experiments and policies.
    List,
    /// Runs experiments; `founding` is the tables of the founding documents on whole file systems in model time.
    Run(run::RunOptions),
    /// Runs a workload on a whole file system: the library in model time, or any directory.
    Work(work::WorkOptions),
    /// Runs every combination that a file lists: policies, orders, sizes, workloads, seeds.
    Matrix(matrix::MatrixOptions),
    /// Crashes, state by state: whether recovery makes of each what was promised.
    Crash(crashes::Options),
    /// The same workloads in real time on images: the library, `plat mount`, and the kernel's file systems.
    Peers(peers::PeersOptions),
    /// Records the requests of one case of an experiment under one policy.
    Record(run::RecordOptions),
    /// Makes a page of files of results.
    Report(report::Options),
    /// Replays a trace under policies and prints the same figures for each.
    Replay(replay::ReplayOptions),
}

fn main() -> ExitCode {
    let mut code = 0;
    let done = match Arguments::parse().command {
        Command::List => {
            run::list();
            Ok(())
        }
        Command::Run(options) => run::run(&options),
        Command::Work(options) => work::work(&options),
        Command::Matrix(options) => matrix::run(&options),
        Command::Crash(options) => crashes::crash(&options).map(|is_right| code = u8::from(!is_right)),
        Command::Report(options) => report::run(&options),
        Command::Peers(options) => peers::peers(&options),
        Command::Record(options) => run::record(&options),
        Command::Replay(options) => replay::run(&options),
    };
    match done.and(output::end()) {
        Ok(()) => ExitCode::from(code),
        Err(message) => {
            eprintln!("plat-lab: {message}");
            ExitCode::from(2)
        }
    }
}
