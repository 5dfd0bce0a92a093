//! Complaints about a command line, in our words and our form: `plat: what is wrong`, and below it where the usage stands.
//! Errors of the parser of arguments, and of numbers, in words that help a user.
//!
//! Owns: these words, and hints for words that are no command or option. Excludes what commands say of values together.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

use crate::CommandLine;
use crate::text::Shown;

/// Commands of other programs, and what does the same here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["df", "du"], "`plat info IMAGE` shows how full a volume is"),
    (
        &["fsck", "fsck.ext2", "fsck.ext3", "fsck.ext4", "e2fsck", "repair", "verify"],
        "`plat check IMAGE` checks and repairs",
    ),
    (
        &["format", "create", "mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "new"],
        "`plat mkfs IMAGE SIZE` makes an empty volume, `plat build` a full one",
    ),
    (&["unmount", "eject"], "`plat umount DIR` unmounts"),
    (
        &["extract", "unpack", "untar"],
        "`plat export IMAGE DIR/` takes out everything, `plat get` single files",
    ),
    (&["pack", "tar"], "`plat build SOURCE IMAGE` makes an image, `plat export IMAGE OUT.tar` an archive"),
    (&["add", "copy", "touch", "upload"], "`plat put IMAGE FILE PATH` copies in, `plat get IMAGE PATH` out"),
    (&["remove", "delete", "rmdir", "unlink"], "`plat rm IMAGE PATH` removes; directories with -d or -r"),
    (&["cd", "dir", "find", "list"], "`plat ls IMAGE PATH` and `plat tree IMAGE` list"),
    (&["grow", "shrink", "resize2fs", "extend"], "`plat resize IMAGE SIZE` makes it larger or smaller"),
    (&["tune2fs", "label", "e2label"], "`plat tune` changes parameters: `plat tune -L LABEL IMAGE`"),
    (&["dumpe2fs", "show", "status"], "`plat info IMAGE` shows what a volume is"),
    (&["setfattr", "getfattr", "attr"], "`plat xattr IMAGE PATH` shows and sets attributes"),
    (&["e4defrag", "filefrag"], "`plat defrag` brings files together, `plat frag` counts their pieces"),
    (&["fstrim", "discard", "sparsify"], "`plat trim IMAGE` gives free space back"),
    (&["debugfs"], "`plat stat`, `plat map` and `plat journal` show what it shows"),
];

/// The command that a line names, whatever options of all commands stand before it; nothing if it names none.
pub(crate) fn command_of(arguments: &[OsString]) -> String {
    let mut words = arguments.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    while let Some(word) = words.next() {
        if word == "--sandbox" {
            words.next();
        } else if !word.starts_with('-') {
            let is_known = CommandLine::command().get_subcommands().any(|command| command.get_name() == word);
            return if is_known { word.to_owned() } else { String::new() };
        }
    }
    String::new()
}

/// Tells if what is printed is to be JSON: the line need not be right for that.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// The error in one line, with a hint where there is one. Not to be called for help and version.
pub(crate) fn problem(error: &Error) -> String {
    if let Some(problem) = number_problem(error) {
        return problem;
    }
    let rendered = error.to_string();
    let rendered = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    // The first paragraph says what is wrong; below are tips about values, and the usage.
    let lines: Vec<&str> = rendered.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let problem = lines.join(" ");
    match meant(error) {
        Some(meant) => format!("{problem}; {meant}"),
        None => problem,
    }
}

/// The command that shows the help for a command line.
pub(crate) fn help_of(arguments: &[OsString]) -> String {
    let command = command_of(arguments);
    if command.is_empty() { "plat --help".to_owned() } else { format!("plat {command} --help") }
}

/// The command that somebody meant with a word that is none.
fn meant(error: &Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let known = ELSEWHERE.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| *hint);
            let known = known.map(str::to_owned);
            let known = known.or_else(|| similar(error, ContextKind::SuggestedSubcommand, word));
            known.or_else(|| image_alone(word))
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            unneeded(error, word).or_else(|| similar(error, ContextKind::SuggestedArg, word))
        }
        ErrorKind::InvalidValue => {
            similar(error, ContextKind::SuggestedValue, text(ContextKind::InvalidValue)?)
        }
        // Whoever left out the image sees where it stands.
        ErrorKind::MissingRequiredArgument => {
            let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
            let usage = usage.to_string();
            let words: Vec<&str> = usage.strip_prefix("Usage:")?.split_whitespace().collect();
            Some(format!("the line is `{}`", words.join(" ")))
        }
        _ => None,
    }
}

/// The command for an image that stands where a command should.
fn image_alone(word: &str) -> Option<String> {
    platfs_host::path::is_there(word).then(|| format!("`plat info {word}` shows what it is"))
}

/// Options of mke2fs that have nothing to do here.
const UNNEEDED: &[(&str, &str)] = &[
    ("-c", "blocks are not tested here: leave it out"),
    ("-K", "unused blocks are never touched: leave it out"),
    ("-v", "the summary is printed anyway: leave it out"),
];

fn unneeded(error: &Error, word: &str) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let is_mkfs = usage.to_string().contains("plat mkfs");
    let hint = UNNEEDED.iter().find(|(option, _)| is_mkfs && *option == word);
    hint.map(|(_, hint)| (*hint).to_owned())
}

/// A word that differs in one letter, or in two of many: what is less alike misleads.
fn similar(error: &Error, kind: ContextKind, word: &str) -> Option<String> {
    let words = match error.get(kind)? {
        ContextValue::String(one) => std::slice::from_ref(one),
        ContextValue::Strings(all) => all,
        _ => return None,
    };
    let most = if word.len() < 5 { 1 } else { 2 };
    let near = words.iter().map(|other| (distance(word.as_bytes(), other.as_bytes()), other));
    let (_, near) = near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far)?;
    Some(format!("did you mean `{near}`?"))
}

/// Letters that are put in, taken out or changed from one word to the other.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (nth, letter) in one.iter().enumerate() {
        let mut before = nth;
        let mut left = nth + 1;
        for (cell, against) in row.iter_mut().skip(1).zip(other) {
            let changed = before + usize::from(letter != against);
            before = *cell;
            left = changed.min(before + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = nth + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Describes a value that should be a number and is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_far_apart_as_their_letters() {
        for (one, other, count) in
            [("", "abc", 3), ("df", "diff", 2), ("chekc", "check", 2), ("mout", "mount", 1)]
        {
            assert_eq!(distance(one.as_bytes(), other.as_bytes()), count, "{one} {other}");
            assert_eq!(distance(other.as_bytes(), one.as_bytes()), count, "{other} {one}");
        }
    }

    #[test]
    fn hints_name_commands_that_there_are() {
        let plat = CommandLine::command();
        for (words, hint) in ELSEWHERE {
            assert!(words.iter().all(|word| plat.find_subcommand(word).is_none()), "{words:?}");
            for named in hint.split("plat ").skip(1) {
                let named = named.split([' ', '`']).next().unwrap();
                assert!(plat.find_subcommand(named).is_some(), "{hint}");
            }
        }
    }
}
