//! `plat-lab`: runs workloads on every placement policy and prints their figures side by side.

#![cfg_attr(not(feature = "whole"), allow(dead_code, unused, reason = "of a part of the laboratory"))]

// First: the others print through it.
#[macro_use]
mod output;

mod bench;
mod better;
#[cfg(feature = "whole")]
mod counters;
#[cfg(feature = "whole")]
mod crashes;
#[cfg(feature = "whole")]
mod digest;
#[cfg(feature = "whole")]
mod drive;
#[cfg(feature = "whole")]
mod experiment;
#[cfg(feature = "whole")]
mod fidelity;
mod file;
#[cfg(feature = "whole")]
mod jobs;
#[cfg(feature = "whole")]
mod layout;
#[cfg(feature = "whole")]
mod matrix;
mod measure;
mod numbers;
#[cfg(feature = "whole")]
mod peers;
#[cfg(feature = "whole")]
mod plan;
#[cfg(feature = "whole")]
mod plot;
#[cfg(feature = "whole")]
mod replay;
#[cfg(feature = "whole")]
mod report;
#[cfg(feature = "whole")]
mod results;
#[cfg(feature = "whole")]
mod run;
mod summary;
mod system;
#[cfg(feature = "whole")]
mod table;
#[cfg(feature = "whole")]
mod tape;
#[cfg(feature = "whole")]
mod tar;
mod traffic;
#[cfg(feature = "whole")]
mod tree;
#[cfg(feature = "whole")]
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
    /// One page for one block policy: a score per goal, beside ten published policies.
    BenchPolicy(bench::BenchOptions),
    /// Lists experiments and policies.
    #[cfg(feature = "whole")]
    List,
    /// Runs experiments; `founding` is the tables of the founding documents on whole file systems in model time.
    #[cfg(feature = "whole")]
    Run(run::RunOptions),
    /// Runs a workload on a whole file system: the library in model time, or any directory.
    #[cfg(feature = "whole")]
    Work(work::WorkOptions),
    /// Runs every combination that a file lists: policies, orders, sizes, workloads, seeds.
    #[cfg(feature = "whole")]
    Matrix(matrix::MatrixOptions),
    /// Crashes, state by state: whether recovery makes of each what was promised.
    #[cfg(feature = "whole")]
    Crash(crashes::Options),
    /// Workloads in real time on images: the library, `plat mount`, and the kernel's file systems.
    #[cfg(feature = "whole")]
    Peers(peers::PeersOptions),
    /// The port of mballoc beside the kernel's: counters, and the place of every file.
    #[cfg(feature = "whole")]
    Fidelity(fidelity::FidelityOptions),
    /// Records the requests of one case of an experiment under one policy.
    #[cfg(feature = "whole")]
    Record(run::RecordOptions),
    /// Makes a page of files of results.
    #[cfg(feature = "whole")]
    Report(report::Options),
    /// Replays a trace under policies and prints the same figures for each.
    #[cfg(feature = "whole")]
    Replay(replay::ReplayOptions),
}

fn main() -> ExitCode {
    let mut code = 0;
    let done = work(Arguments::parse().command, &mut code);
    match done.and(output::end()) {
        Ok(()) => ExitCode::from(code),
        Err(message) => {
            eprintln!("plat-lab: {message}");
            ExitCode::from(2)
        }
    }
}

fn work(command: Command, code: &mut u8) -> Result<(), String> {
    match command {
        Command::BenchPolicy(options) => bench::run(&options),
        #[cfg(feature = "whole")]
        Command::List => {
            run::list();
            Ok(())
        }
        #[cfg(feature = "whole")]
        Command::Run(options) => run::run(&options).map(|all_hold| *code = u8::from(!all_hold)),
        #[cfg(feature = "whole")]
        Command::Work(options) => work::work(&options),
        #[cfg(feature = "whole")]
        Command::Matrix(options) => matrix::run(&options),
        #[cfg(feature = "whole")]
        Command::Crash(options) => crashes::crash(&options).map(|is_right| *code = u8::from(!is_right)),
        #[cfg(feature = "whole")]
        Command::Report(options) => report::run(&options),
        #[cfg(feature = "whole")]
        Command::Peers(options) => peers::peers(&options),
        #[cfg(feature = "whole")]
        Command::Fidelity(options) => fidelity::run(&options),
        #[cfg(feature = "whole")]
        Command::Record(options) => run::record(&options),
        #[cfg(feature = "whole")]
        Command::Replay(options) => replay::run(&options),
    }
}
