//! Rules for the options of all commands, as docs/conventions.md says them for users.
//!
//! Owns: the table of letters, the exceptions with their reasons, and the walk over all commands that compares them.

/// Letters that mean one thing in all commands, with the long name that goes with them.
pub const LETTERS: &[(char, &str)] = &[
    ('f', "force"),
    ('n', "dry-run"),
    ('o', "output"),
    ('q', "quiet"),
    ('r', "recursive"),
    ('R', "recursive"),
    ('v', "verbose"),
    ('V', "version"),
    ('y', "yes"),
];

/// Commands that have a letter for something else, with what they have it for, and why.
pub const EXCEPTIONS: &[(&str, char, &str, &str)] = &[
    ("mount", 'f', "foreground", "all programs that mount by FUSE have it"),
    ("mount", 'o', "options", "mount(8)"),
    ("trim", 'o', "offset", "fstrim(8)"),
    ("fallocate", 'o', "offset", "fallocate(1)"),
    ("stat", 'r', "raw", "the record's bytes; nothing is recursive there"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Arg, Command};

    use super::*;

    /// Long names that stand for a choice that others make by a letter of the table: each has the letter, or none.
    const WITH_LETTER: &[&str] = &["force", "dry-run", "quiet", "recursive", "yes"];

    /// Options that are those of mke2fs, by their heading.
    fn is_of_mke2fs(arg: &Arg) -> bool {
        arg.get_help_heading()
            .is_some_and(|heading| heading.contains("mke2fs") || heading.contains("tune2fs"))
    }

    fn options(command: &Command) -> impl Iterator<Item = &Arg> {
        command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set() && !is_of_mke2fs(arg))
    }

    /// All commands but the program itself.
    fn commands() -> Vec<(String, Command)> {
        let mut all = Vec::new();
        let mut plat = crate::manual::parser();
        plat.build();
        crate::manual::each(&plat, &mut |name, command| all.push((name.to_owned(), command.clone())));
        all.retain(|(name, _)| name != "plat");
        all
    }

    #[test]
    fn a_letter_means_one_thing() {
        let mut used = BTreeSet::new();
        for (name, command) in commands() {
            // `tune` has the letters of tune2fs, where `-r` and `-o` are others.
            let is_own = |letter: &char| name != "tune" || !"ro".contains(*letter);
            for arg in options(&command) {
                let long = arg.get_long().unwrap_or(arg.get_id().as_str());
                for letter in
                    arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().filter(is_own)
                {
                    let meant = LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, long)| *long);
                    let exception =
                        EXCEPTIONS.iter().find(|(of, known, _, _)| *of == name && *known == letter);
                    match (exception, meant) {
                        (Some(exception), _) => {
                            assert_eq!(exception.2, long, "plat {name} -{letter}");
                            used.insert(exception);
                        }
                        (None, Some(meant)) => assert_eq!(meant, long, "plat {name} -{letter}"),
                        (None, None) => {}
                    }
                }
            }
        }
        assert_eq!(used.len(), EXCEPTIONS.len(), "an exception that nobody needs");
    }

    #[test]
    fn the_same_choice_has_the_same_letter() {
        for (name, command) in commands() {
            for arg in
                options(&command).filter(|arg| arg.get_long().is_some_and(|long| WITH_LETTER.contains(&long)))
            {
                let long = arg.get_long().unwrap();
                let letters = arg.get_short_and_visible_aliases().unwrap_or_default();
                let has = letters.iter().any(|letter| LETTERS.contains(&(*letter, long)));
                assert!(has, "plat {name} --{long} has {letters:?}");
            }
        }
    }

    #[test]
    fn every_command_has_help_page_and_quiet() {
        let page =
            |name: &str, command: &Command| crate::manual::page::of_command(name, command, "2026-01-01");
        for (name, command) in commands() {
            let words: Vec<String> = name.split(' ').map(str::to_owned).collect();
            let (help, page) = (crate::manual::help(&words).unwrap(), page(&name, &command));
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_long().is_some()) {
                let long = arg.get_long().unwrap();
                assert!(help.contains(&format!("--{long}")), "plat help {name}: no --{long}");
                let in_page = format!("\\fB\\-\\-{}\\fR", long.replace('-', "\\-"));
                assert!(
                    page.contains(&in_page) || ["help", "version"].contains(&long),
                    "plat-{name}(1): no --{long}"
                );
            }
            assert!(help.contains("Examples:") && page.contains(".SH EXAMPLES"), "{name}");
            let quiet = command.get_arguments().any(|arg| arg.get_long() == Some("quiet"));
            assert!(quiet || name.starts_with("store "), "{name}");
            assert!(
                help.lines().all(|line| line.chars().count() <= 80),
                "plat help {name} is wider than 80 columns"
            );
        }
    }

    #[test]
    fn every_option_is_completed() {
        let script = |shell| String::from_utf8(crate::manual::completions(shell)).unwrap();
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let script = script(shell);
            for (name, command) in commands() {
                for long in options(&command).filter_map(Arg::get_long) {
                    assert!(script.contains(long), "{shell}: plat {name} --{long}");
                }
            }
        }
    }
}
