//! The commands in groups, as `plat --help` lists them: the most used first.
//!
//! Owns: which command stands in which group, and the text of the list. Excludes what a command says of itself.

use std::fmt::Write as _;

use clap::Command;

use super::topics::{self, TOPICS};

/// A heading with its commands.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    ("Most used", &["build", "ls", "get", "check", "mount"]),
    ("Make images, and take them apart", &["mkfs", "import", "export", "snapshot", "diff"]),
    ("Read", &["tree", "stat", "cat", "info"]),
    (
        "Change files",
        &["put", "cp", "mv", "rm", "mkdir", "ln", "chmod", "chown", "xattr", "fallocate", "quota"],
    ),
    ("Change volumes", &["resize", "tune", "convert", "defrag", "trim", "placement"]),
    ("Look inside, and rescue", &["map", "frag", "freefrag", "journal", "undelete", "image"]),
    ("Mounts and servers", &["umount", "sync", "stats", "serve"]),
    ("Object stores", &["push", "pull", "store"]),
    ("This program", &["help", "completions", "version"]),
];

/// The help of the program around its options, as a template of the parser.
pub(super) fn template(plat: &Command) -> String {
    let mut out = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let shown = |name: &&&str| plat.find_subcommand(name).is_some_and(|command| !command.is_hide_set());
    let widest = plat.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    for (heading, names) in GROUPS {
        let names: Vec<_> = names.iter().filter(shown).collect();
        if names.is_empty() {
            continue;
        }
        // Writing into a string does not fail.
        let _ = writeln!(out, "\n{heading}:");
        for name in names {
            let about = plat.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let begun = format!("  {name:widest$}  ");
            out.push_str(&topics::wrapped(&about.unwrap_or_default(), begun.len(), &begun));
        }
    }
    let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    let topics = format!("Topics of `plat help TOPIC`: {}", names.join(", "));
    out + "\nOptions:\n{options}\n\n" + &topics::wrapped(&topics, 0, "")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let plat = crate::CommandLine::command();
        for command in plat.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let count = GROUPS.iter().flat_map(|(_, names)| *names).filter(|other| **other == name).count();
            assert_eq!(count, 1, "{name}");
        }
    }
}
