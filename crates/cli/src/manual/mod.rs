//! The manual as `plat` brings it along: pages for man(1), topics for `plat help`, completions for shells.
//!
//! Owns: what of it is made of the parser's description of each command, and in which files it lies. Excludes what a
//! command's own help says, which stands beside its arguments.

mod page;
pub mod topics;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::CommandLine;

/// The parser with the usage of each command filled in.
fn described() -> Command {
    let mut plat = CommandLine::command();
    plat.build();
    plat
}

/// Writes the page of `plat` and one of each command into a directory; `date` as `2026-01-31`.
///
/// # Errors
/// Of the file system.
pub fn write_pages(directory: &Path, date: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let plat = described();
    fs::write(directory.join("plat.1"), page::of_all(&plat, date))?;
    for command in plat.get_subcommands().filter(|command| !command.is_hide_set()) {
        let file = format!("plat-{}.1", command.get_name());
        fs::write(directory.join(file), page::of_command(command, date))?;
    }
    Ok(())
}

/// The script that completes words of `plat` in a shell.
#[must_use]
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "plat", &mut script);
    script
}

/// The help of `plat`, or of the command that is named; nothing if there is none of that name.
#[must_use]
pub fn help(command: Option<&str>) -> Option<String> {
    let known = |name: &str| CommandLine::command().get_subcommands().any(|one| one.get_name() == name);
    if command.is_some_and(|name| !known(name)) {
        return None;
    }
    let line = ["plat"].into_iter().chain(command).chain(["--help"]);
    // The parser gives help as the reason why there is nothing to run.
    CommandLine::command().try_get_matches_from(line).err().map(|help| help.to_string())
}
