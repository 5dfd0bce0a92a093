//! The manual as `plat` brings it along: pages for man(1), topics for `plat help`, completions for shells.
//!
//! Owns: what of it is made of the parser's description of each command, and in which files it lies. Excludes what a
//! command's own help says, which stands beside its arguments.

mod completions;
pub mod conventions;
mod examples;
mod groups;
mod mount_options;
mod page;
pub mod topics;
mod values;

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use platfs_host::{Directory, Output, Privacy};
use std::ffi::OsStr;
use std::io::Write;

use crate::CommandLine;

/// The parser, whose help has groups and examples.
pub(crate) fn parser() -> Command {
    let plat = CommandLine::command();
    let template = groups::template(&plat);
    // What is taken as a whole or not at all can't be said of what a derived parser flattens.
    let plat =
        plat.mut_subcommand("placement", |command| command.mut_arg("image", |image| image.required(false)));
    with_examples(plat, "").help_template(template)
}

/// A command with the examples of those below it.
fn with_examples(command: Command, above: &str) -> Command {
    command.mut_subcommands(|command| {
        let name = format!("{above}{}", command.get_name());
        if command.is_hide_set() {
            return command;
        }
        let after = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
        let command = command.after_long_help(after + &examples::text(&name));
        with_examples(command, &format!("{name} "))
    })
}

/// Calls for a command and all below it that are shown, with their names behind `plat`.
fn each(command: &Command, call: &mut impl FnMut(&str, &Command)) {
    fn below(command: &Command, name: &str, call: &mut impl FnMut(&str, &Command)) {
        call(name, command);
        let above = if name == "plat" { String::new() } else { format!("{name} ") };
        // The parser adds a `help` of its own to commands that have others below them.
        let is_own = |one: &&Command| name == "plat" || one.get_name() != "help";
        for one in command.get_subcommands().filter(is_own).filter(|one| !one.is_hide_set()) {
            below(one, &format!("{above}{}", one.get_name()), call);
        }
    }
    below(command, "plat", call);
}

/// The parser with the usage of each command filled in.
fn described() -> Command {
    let mut plat = parser();
    plat.build();
    plat
}

/// Writes the page of `plat` and one of each command into a directory; `date` as `2026-01-31`.
///
/// # Errors
/// Of the file system.
pub fn write_pages(directory: &Path, date: &str) -> io::Result<()> {
    let place = Directory::open_or_make(directory)?;
    let write = |name: &str, text: String| {
        let page = Output::below(place.try_clone()?, OsStr::new(name), 0, Privacy::Ordinary)?.over_others();
        page.file()?.write_all(text.as_bytes())?;
        page.finish()
    };
    let plat = described();
    write("plat.1", page::of_all(&plat, date))?;
    let mut pages = Vec::new();
    each(&plat, &mut |name, command| pages.push((name.to_owned(), command.clone())));
    for (name, command) in pages.iter().filter(|(name, _)| name != "plat") {
        let file = format!("plat-{}.1", name.replace(' ', "-"));
        write(&file, page::of_command(name, command, date))?;
    }
    Ok(())
}

/// The script that completes words of `plat` in a shell.
#[must_use]
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut completions::described(), "plat", &mut script);
    completions::finished(shell, script)
}

/// The help of `plat`, or of the command that words name; nothing if there is none of that name.
#[must_use]
pub fn help(words: &[String]) -> Option<String> {
    let plat = parser();
    words.iter().try_fold(&plat, |command, name| command.find_subcommand(name))?;
    let line = ["plat"].into_iter().chain(words.iter().map(String::as_str)).chain(["--help"]);
    // The parser gives help as the reason why there is nothing to run.
    plat.clone().try_get_matches_from(line).err().map(|help| help.to_string())
}
