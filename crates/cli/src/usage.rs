//! Complaints about a command line, in our words: what the parser of arguments and the standard library say of numbers is
//! put so that a user can do something with it, and hints name the help of the command that was meant.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

use crate::CommandLine;
use crate::text::Shown;

/// The command that a line names; nothing if it names none.
pub(crate) fn command_of(arguments: &[OsString]) -> String {
    let named = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let known = CommandLine::command().get_subcommands().any(|command| command.get_name() == named);
    if known { named.to_owned() } else { String::new() }
}

/// A complaint as it is printed. Help and version come as they are.
pub(crate) fn worded(error: &Error, arguments: &[OsString]) -> String {
    if !error.use_stderr() {
        return error.to_string();
    }
    let command = command_of(arguments);
    let help = if command.is_empty() { "plat --help".to_owned() } else { format!("plat {command} --help") };
    match number_problem(error) {
        Some(problem) => format!("error: {problem}\n\nFor more information, try `{help}`.\n"),
        None => error.to_string().replace("try '--help'", &format!("try `{help}`")),
    }
}

/// What is wrong with a value that should be a number.
fn number_problem(error: &Error) -> Option<String> {
    let (ErrorKind::ValueValidation, Some(source)) = (error.kind(), error.source()) else { return None };
    let problem = match source.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::Empty => "a number is missing",
        IntErrorKind::Zero => "must be at least 1",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "too large",
        _ => "not a whole number",
    };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (option, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    Some(format!("{option}: '{}': {problem}", Shown(value.as_bytes())))
}
