//! One page of the manual in the macros of man(7), made of what the parser of arguments knows of a command.
//!
//! Lines of the source are short and hold no text that could be taken for a macro: `mandoc -T lint` is silent.

use clap::{Arg, ArgAction, Command};

use super::examples;
use super::topics::{self, Part, TOPICS, Topic};

/// Columns of the page's source.
const WIDTH: usize = 78;

/// The page of `plat` itself.
pub(super) fn of_all(plat: &Command, date: &str) -> String {
    let mut page = Page::begin("plat", date);
    page.heading("NAME");
    page.text("plat - build, read, change, check and mount ext2, ext3 and ext4 images");
    page.synopsis(plat);
    page.heading("DESCRIPTION");
    page.text(
        "`plat` works on volumes of ext2, ext3 and ext4 in files, partitions and devices. Only mounting needs FUSE; \
         nothing needs root or a loop device.",
    );
    page.options(plat);
    page.heading("COMMANDS");
    for (heading, names) in super::groups::GROUPS {
        let commands: Vec<_> = names.iter().filter_map(|name| plat.find_subcommand(name)).collect();
        if commands.is_empty() {
            continue;
        }
        page.out.push_str(&format!(".SS \"{}\"\n", escaped(heading)));
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            page.item(&format!("`plat-{}`(1)", command.get_name()), &about);
        }
    }
    for topic in TOPICS {
        page.topic(topic);
    }
    page.heading("EXAMPLES");
    page.item("`plat build rootfs.tar disk.img`", "makes an image of a tar archive");
    page.item("`plat ls -l disk.img /etc`", "lists a directory of it");
    page.item("`plat check -n disk.img`", "looks whether anything is wrong with it");
    page.item("`plat mount disk.img /mnt`", "mounts it, without root if /mnt is yours");
    page.heading("SEE ALSO");
    page.text("`mke2fs`(8), `e2fsck`(8), `tune2fs`(8), `resize2fs`(8), `debugfs`(8), `ext4`(5)");
    page.out
}

/// The page of one command, with its words behind `plat`.
pub(super) fn of_command(words: &str, command: &Command, date: &str) -> String {
    let name = format!("plat-{}", words.replace(' ', "-"));
    let mut page = Page::begin(&name, date);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.heading("NAME");
    page.text(&format!("{name} - {}", lowered(&about)));
    page.synopsis(command);
    page.heading("DESCRIPTION");
    let long = command.get_long_about().map_or_else(|| format!("{about}."), ToString::to_string);
    page.paragraphs(&long);
    page.arguments(command);
    page.options(command);
    if let Some(after) = command.get_after_help() {
        page.after(&after.to_string());
    }
    page.exit_codes(words == "check");
    if words == "mount" {
        topics::find("mount-options").into_iter().for_each(|topic| page.topic(topic));
    }
    page.heading("EXAMPLES");
    for (line, meaning) in examples::of(words) {
        page.item(&format!("`{line}`"), meaning);
    }
    page.heading("SEE ALSO");
    let below = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    let below = below.map(|one| format!(", `{name}-{}`(1)", one.get_name()));
    page.text(&format!("`plat`(1){}", below.collect::<String>()));
    page.out
}

fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A page that grows.
struct Page {
    out: String,
}

impl Page {
    fn begin(name: &str, date: &str) -> Self {
        let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
        Page { out: format!(".TH {} 1 {date} \"plat {version}\" \"User Commands\"\n", escaped(&title)) }
    }

    fn heading(&mut self, title: &str) {
        let title = if title.contains(' ') { format!("\"{title}\"") } else { title.to_owned() };
        self.out.push_str(&format!(".SH {title}\n"));
    }

    /// Words in lines that are not too long; a word in backquotes is bold.
    fn text(&mut self, text: &str) {
        let mut line = String::new();
        for word in set(text).split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                self.line(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.line(&line);
        }
    }

    /// One line of text; what would be a macro is kept from being one.
    fn line(&mut self, line: &str) {
        if line.starts_with(['.', '\'']) {
            self.out.push_str("\\&");
        }
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn paragraphs(&mut self, text: &str) {
        for (nth, paragraph) in text.split("\n\n").enumerate() {
            if nth > 0 {
                self.out.push_str(".PP\n");
            }
            self.text(paragraph);
        }
    }

    fn item(&mut self, term: &str, text: &str) {
        self.out.push_str(".TP\n");
        self.line(&set(term));
        for (nth, paragraph) in text.split("\n\n").enumerate() {
            if nth > 0 {
                self.out.push_str(".IP\n");
            }
            self.text(paragraph);
        }
    }

    fn synopsis(&mut self, command: &Command) {
        self.heading("SYNOPSIS");
        let usage = command.clone().render_usage().to_string();
        let lines = usage.trim_start_matches("Usage:").lines().map(str::trim).filter(|line| !line.is_empty());
        for (nth, line) in lines.enumerate() {
            if nth > 0 {
                self.out.push_str(".br\n");
            }
            let name = command.get_bin_name().unwrap_or("plat");
            let rest = line.strip_prefix(name).unwrap_or(line);
            self.text(&format!("`{name}`{rest}"));
        }
    }

    fn arguments(&mut self, command: &Command) {
        let shown: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_hide_set()).collect();
        if shown.is_empty() {
            return;
        }
        self.heading("ARGUMENTS");
        for arg in shown {
            self.item(&italic(&values(arg)), &help(arg));
        }
    }

    /// Options under the headings that their help has.
    fn options(&mut self, command: &Command) {
        let shown: Vec<&Arg> =
            command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()).collect();
        // In their order, those without one first, as in the help.
        let mut headings: Vec<Option<&str>> = vec![None];
        for heading in shown.iter().map(|arg| arg.get_help_heading()) {
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        if !shown.is_empty() {
            self.heading("OPTIONS");
        }
        for heading in headings {
            if let Some(heading) = heading {
                self.out.push_str(&format!(".SS \"{}\"\n", escaped(heading)));
            }
            for arg in shown.iter().filter(|arg| arg.get_help_heading() == heading) {
                self.item(&names(arg), &help(arg));
            }
        }
    }

    /// Text behind the options in the help. Exit codes are left to their own section.
    fn after(&mut self, text: &str) {
        if let Some(variables) = text.strip_prefix("Environment:\n") {
            self.heading("ENVIRONMENT");
            for line in variables.lines() {
                let (name, meaning) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                self.item(&format!("`{name}`"), meaning.trim());
            }
        } else if !text.starts_with("Exit codes") {
            self.heading("NOTES");
            self.paragraphs(text);
        }
    }

    /// The codes of a check, or those of all other commands.
    fn exit_codes(&mut self, of_check: bool) {
        self.heading("EXIT STATUS");
        let parts = topics::find("exit-codes").map_or(&[][..], |topic| topic.parts);
        let at = parts.iter().position(|part| matches!(part, Part::Text(_))).unwrap_or(parts.len());
        let (ours, rest) = parts.split_at(at);
        self.parts(if of_check { rest } else { ours });
    }

    fn topic(&mut self, topic: &Topic) {
        self.heading(&topic.title.to_uppercase());
        self.parts(topic.parts);
    }

    fn parts(&mut self, parts: &[Part]) {
        for (nth, part) in parts.iter().enumerate() {
            match part {
                Part::Text(text) => {
                    if nth > 0 {
                        self.out.push_str(".PP\n");
                    }
                    self.text(text);
                }
                Part::Item(word, text) => self.item(&format!("`{word}`"), text),
            }
        }
    }
}

/// Value of an option, as the help writes it.
fn values(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let words: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let more = if arg.is_positional() && matches!(arg.get_action(), ArgAction::Append) { " ..." } else { "" };
    words.join(" ") + more
}

/// The names of an option, and of its value.
fn names(arg: &Arg) -> String {
    let short = arg.get_short_and_visible_aliases().unwrap_or_default();
    let long = arg.get_long_and_visible_aliases().unwrap_or_default();
    let names =
        short.iter().map(|name| format!("`-{name}`")).chain(long.iter().map(|name| format!("`--{name}`")));
    let names = names.collect::<Vec<_>>().join(", ");
    if !arg.get_action().takes_values() {
        return names;
    }
    let optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    let value = italic(&values(arg));
    if optional { format!("{names} [{value}]") } else { format!("{names} {value}") }
}

/// Help of an argument, with its values and its default.
fn help(arg: &Arg) -> String {
    let said = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = said.trim_end_matches('.').to_owned() + ".";
    let possible: Vec<String> = if arg.is_hide_possible_values_set() || !arg.get_action().takes_values() {
        Vec::new()
    } else {
        arg.get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|v| v.get_name().into())
            .collect()
    };
    if !possible.is_empty() {
        text.push_str(&format!(" One of: {}.", possible.join(", ")));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        text.push_str(&format!(" The default is {}.", defaults.join(" ")));
    }
    text
}

/// A mark for words in italics, which no text of ours holds.
const ITALIC: char = '\u{1}';

fn italic(text: &str) -> String {
    format!("{ITALIC}{text}{ITALIC}")
}

/// Text with fonts: what stands in backquotes is bold.
fn set(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut bold, mut italic) = (false, false);
    for letter in text.chars() {
        match letter {
            '`' => {
                bold = !bold;
                out.push_str(if bold { "\\fB" } else { "\\fR" });
            }
            ITALIC => {
                italic = !italic;
                out.push_str(if italic { "\\fI" } else { "\\fR" });
            }
            letter => put(&mut out, letter),
        }
    }
    if bold || italic {
        out.push_str("\\fR");
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|letter| put(&mut out, letter));
    out
}

/// A letter as it is meant, not as troff would take it.
fn put(out: &mut String, letter: char) {
    match letter {
        '\\' => out.push_str("\\e"),
        '-' => out.push_str("\\-"),
        '\'' => out.push_str("\\(aq"),
        '^' => out.push_str("\\(ha"),
        '~' => out.push_str("\\(ti"),
        '"' => out.push_str("\\(dq"),
        letter => out.push(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_a_macro() {
        let mut page = Page { out: String::new() };
        page.text(".TH `a-b` \\ 'x");
        assert_eq!(page.out, "\\&.TH \\fBa\\-b\\fR \\e \\(aqx\n");
        let mut page = Page { out: String::new() };
        page.text(&"word ".repeat(100));
        assert!(page.out.lines().all(|line| line.len() <= WIDTH && !line.ends_with(' ')));
    }
}
