//! Everything behind the `plat` command: the library half exists so that tests and fuzz targets can
//! reach it. It is no public interface; programs use the crates `platfs`, `platfs-image`, `platfs-open` and
//! `platfs-serve`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod check;
pub mod clock;
pub mod commands;
pub mod console;
pub mod daemon;
pub mod format;
pub mod helper;
mod hints;
pub mod keys;
pub mod larger;
pub mod manual;
pub mod owner;
mod panics;
pub mod progress;
pub mod reading;
pub mod reshaping;
pub mod signals;
pub mod size;
pub mod text;
mod usage;
pub mod writing;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{FromArgMatches, Parser};
use console::{Console, Failure, Form};
pub use platfs_open::{door, image, marks, stores};
use platfs_open::{locks, memory, paths};
use platfs_serve::free_runs;
pub use platfs_serve::{bulk, control, mount, nbd, sandbox};

/// The version, with the commit where the build knew it.
pub const VERSION: &str = env!("PLATFS_VERSION");

#[derive(Parser, Debug)]
#[command(name = "plat", version = VERSION, about = ABOUT, max_term_width = 80, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
    /// Cage of servers and of commands on an image, entered before they look at it: as much as the kernel has (auto), none
    /// (off), or no work without all of it (require).
    #[arg(long, global = true, value_name = "MODE", default_value = "auto", hide_default_value = true)]
    #[arg(help_heading = "For all commands", value_parser = sandbox_modes())]
    sandbox: sandbox::Mode,
    /// No progress, no summary.
    #[arg(short, long, global = true, help_heading = "For all commands")]
    quiet: bool,
    /// Report as JSON, messages too.
    #[arg(long, global = true, help_heading = "For all commands")]
    json: bool,
}

/// The modes of a cage, by name.
fn sandbox_modes() -> impl TypedValueParser<Value = sandbox::Mode> {
    const WORDS: [(&str, &str); 3] = [
        ("off", "None"),
        ("auto", "As much as this kernel has"),
        ("require", "All of it: without, nothing is done"),
    ];
    let words = WORDS.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(words).map(|name| {
        let named = sandbox::Mode::NAMES.into_iter().find(|(other, _)| *other == name);
        named.map_or_else(sandbox::Mode::default, |(_, mode)| mode)
    })
}

/// One line about the program.
const ABOUT: &str = "Build, read, change, check and mount ext2, ext3 and ext4 images";

/// Reads a command line.
fn parsed(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
    let mut parser = manual::parser();
    let matches = parser.try_get_matches_from_mut(arguments)?;
    CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut parser))
}

/// Runs one command line, its output on standard output, its complaints on standard error.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    signals::limits_are_errors();
    panics::without_calls();
    daemon::begin(&arguments);
    #[cfg(feature = "mount")]
    if let Some(code) = mount::outside::run_if_meant(&arguments) {
        return code;
    }
    platfs_open::process::begin();
    hear();
    let mut out = BufWriter::with_capacity(64 << 10, progress::stdout());
    let code = run_after(arguments, &mut out, &mut progress::stderr(), begin);
    progress::end();
    code
}

/// Has what happens on other threads said on standard error. A mount says it in its log.
fn hear() {
    stores::tell_to(|text| {
        // There is nobody else to tell.
        let _ = progress::stderr().write_all(format!("plat: {text}\n").as_bytes());
    });
    marks::tell_to(|text| {
        // Past the lock of standard error, which a command holds.
        let _ = rustix::io::write(rustix::stdio::stderr(), format!("plat: {text}\n").as_bytes());
    });
}

/// Enters the cage of a command, and starts the threads that stand beside each. Servers enter theirs themselves, and start
/// none before.
fn begin(line: &CommandLine) -> Result<(), Failure> {
    if line.command.is_server() {
        return Ok(());
    }
    if let Some(plan) = line.command.cage() {
        sandbox::enter(&plan, line.sandbox).map_err(|why| Failure::Failed(why.into()))?;
    } else if line.sandbox == sandbox::Mode::Require {
        return Err(Failure::Failed(commands::NO_CAGE.into()));
    } else if line.command.runs_alone() {
        sandbox::give_up_others(line.sandbox);
    }
    // Without the thread that hears them, signals do what they always do.
    let _ = signals::watch();
    if !line.quiet {
        progress::begin();
    }
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
    let arguments = check::fsck::by_name(helper::by_name(arguments));
    let form = if usage::wants_json(&arguments) { Form::Json } else { Form::Text };
    match parsed(arguments.clone()) {
        Ok(line) => {
            let command = usage::command_of(&arguments);
            progress::named(&command);
            let mut console = Console::new(out, err).of(&command).form(form);
            console.be_quiet(line.quiet);
            let whole = hints::Line::of(&arguments);
            let done = begin(&line).and_then(|()| line.command.run(&mut console, line.sandbox));
            let done = done.map_err(|failure| whole.hinted(failure));
            let done = done.and_then(|()| console.flush());
            let closed =
                stores::close_all().map_err(|error| Failure::about("closing the volume of the store", error));
            let done = done.and(closed);
            stores::notes().into_iter().for_each(|note| console.warn(note));
            console.finish(done)
        }
        // The whole help, since nothing was asked for.
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = err.write_all(error.to_string().as_bytes()).and_then(|()| err.flush());
            ExitCode::from(check::fsck::usage_code(&arguments))
        }
        Err(error) if error.use_stderr() => {
            Console::new(out, err).form(form).say_usage(&usage::problem(&error), &usage::help_of(&arguments));
            ExitCode::from(check::fsck::usage_code(&arguments))
        }
        Err(error) => {
            // Nothing is left to do if even the help can't be printed.
            let _ = out.write_all(error.to_string().as_bytes()).and_then(|()| out.flush());
            ExitCode::SUCCESS
        }
    }
}

impl From<io::Error> for Failure {
    /// Of writing to standard output: everything else is turned into a message where it happens.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::about("standard output", error)
    }
}

impl Console<'_> {
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}
