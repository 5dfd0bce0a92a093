//! Everything behind the `plat` command: the library half exists so that tests and fuzz targets can
//! reach it. It is no public interface; programs use the crates `platfs` and `platfs-image`.

pub mod bulk;
pub mod check;
pub mod clock;
pub mod commands;
pub mod console;
pub mod control;
pub mod door;
pub mod format;
mod free_runs;
pub mod image;
pub mod keys;
mod locks;
pub mod manual;
pub mod marks;
pub mod memory;
pub mod mount;
pub mod nbd;
pub mod owner;
pub mod progress;
pub mod reading;
pub mod reshaping;
pub mod sandbox;
pub mod signals;
pub mod size;
#[cfg(feature = "store")]
pub mod stores;
#[cfg(not(feature = "store"))]
#[path = "stores_left_out.rs"]
pub mod stores;
pub mod text;
mod usage;
pub mod writing;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use console::{Console, Failure};

/// The version, with the commit where the build knew it.
pub const VERSION: &str = env!("PLATFS_VERSION");

/// Build, read, change and inspect ext2, ext3 and ext4 images.
#[derive(Parser, Debug)]
#[command(name = "plat", version = VERSION, about, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = manual::topics::HINT)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
    /// Cage of servers and of commands on an image, entered before they look at it: as much as the kernel has (auto), none
    /// (off), or no work without all of it (require).
    #[arg(long, global = true, value_name = "MODE", default_value = "auto", hide_default_value = true)]
    #[arg(help_heading = "Safety")]
    sandbox: sandbox::Mode,
}

/// Runs one command line, its output on standard output, its complaints on standard error.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    signals::limits_are_errors();
    memory::panics_without_calls();
    mount::daemon::begin(&arguments);
    #[cfg(feature = "mount")]
    if let Some(code) = mount::outside::run_if_meant(&arguments) {
        return code;
    }
    sandbox::begin();
    let mut out = BufWriter::with_capacity(64 << 10, progress::stdout());
    let code = run_after(arguments, &mut out, &mut progress::stderr(), begin);
    progress::end();
    code
}

/// Enters the cage of a command, and starts the threads that stand beside each. Servers enter theirs themselves, and start
/// none before.
fn begin(line: &CommandLine) -> Result<(), Failure> {
    if line.command.is_server() {
        return Ok(());
    }
    if let Some(plan) = line.command.cage() {
        sandbox::enter(&plan, line.sandbox).map_err(Failure::Failed)?;
    } else if line.sandbox == sandbox::Mode::Require {
        return Err(Failure::Failed(commands::NO_CAGE.to_owned()));
    }
    // Without the thread that hears them, signals do what they always do.
    let _ = signals::watch();
    progress::begin();
    Ok(())
}

/// Runs one command line with its output and its complaints going where the caller says.
#[must_use]
pub fn run_with<'a>(
    arguments: impl IntoIterator<Item = OsString>,
    out: &'a mut (dyn Write + 'a),
    err: &'a mut (dyn Write + 'a),
) -> ExitCode {
    run_after(arguments, out, err, |_| Ok(()))
}

fn run_after<'a>(
    arguments: impl IntoIterator<Item = OsString>,
    out: &'a mut (dyn Write + 'a),
    err: &'a mut (dyn Write + 'a),
    begin: impl FnOnce(&CommandLine) -> Result<(), Failure>,
) -> ExitCode {
    let arguments = check::fsck::by_name(mount::helper::by_name(arguments));
    match CommandLine::try_parse_from(&arguments) {
        Ok(line) => {
            let command = usage::command_of(&arguments);
            progress::named(&command);
            let mut console = Console::new(out, err).of(&command);
            let done = begin(&line).and_then(|()| line.command.run(&mut console, line.sandbox));
            let done = done.and_then(|()| console.flush());
            let closed =
                stores::close_all().map_err(|error| Failure::about("closing the volume of the store", error));
            let done = done.and(closed);
            stores::notes().into_iter().for_each(|note| console.warn(note));
            console.finish(done)
        }
        Err(error) => {
            let to = if error.use_stderr() { err } else { out };
            // Nothing is left to do if even the usage can't be printed.
            let _ = to.write_all(usage::worded(&error, &arguments).as_bytes()).and_then(|()| to.flush());
            if error.use_stderr() {
                ExitCode::from(check::fsck::usage_code(&arguments))
            } else {
                ExitCode::SUCCESS
            }
        }
    }
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
