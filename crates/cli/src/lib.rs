//! Everything behind the `plat` command: the library half exists so that tests and fuzz targets can
//! reach the adapters. It is no public interface; programs use the crate `platfs`.

pub mod archive;
pub mod build;
pub mod commands;
pub mod console;
pub mod export;
pub mod format;
pub mod image;
pub mod reading;
pub mod size;
pub mod source;
pub mod text;

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::process::ExitCode;

use clap::Parser;
use console::{Console, Failure};

/// Build, read and inspect ext2, ext3 and ext4 images.
#[derive(Parser, Debug)]
#[command(name = "plat", version, about, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs one command line, its output on standard output, its complaints on standard error.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let line = match CommandLine::try_parse_from(arguments) {
        Ok(line) => line,
        Err(error) => {
            // Nothing is left to do if even the usage can't be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut err = io::stderr().lock();
    let mut console = Console::new(&mut out, &mut err);
    let done = line.command.run(&mut console).and_then(|()| console.flush());
    console.finish(done)
}

impl From<io::Error> for Failure {
    /// Of writing to standard output: everything else is turned into a message where it happens.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Failed(format!("standard output: {error}"))
    }
}

impl Console<'_> {
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}
