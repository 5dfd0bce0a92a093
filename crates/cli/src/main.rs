//! `plat`: the command line of platfs. Everything it does is in the library half.

use std::process::ExitCode;

fn main() -> ExitCode {
    plat_cli::run(std::env::args_os())
}
