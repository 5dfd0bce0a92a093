//! The guides of the manual: each command in them is run, in order, and prints what the guide shows.
//!
//! In blocks marked `console` a line that begins with `$ ` is a command, and the lines behind it are what it prints.
//! `...` stands for any text of a line, and alone on a line for any lines. `(exit code N)` stands last; without it the
//! command succeeds.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::mounted::{have_fuse, is_advice};
use testkit::scratch::Scratch;
use testkit::tool;

const EXIT: &str = "(exit code ";

/// A command of a guide, with what it is to print.
struct Shown<'g> {
    command: &'g str,
    lines: Vec<&'g str>,
    code: i32,
}

fn shown(guide: &str) -> Vec<Shown<'_>> {
    let (mut all, mut inside) = (Vec::<Shown<'_>>::new(), false);
    for line in guide.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            all.push(Shown { command, lines: Vec::new(), code: 0 });
        } else if inside {
            let last = all.last_mut().expect("a block begins with a command");
            match line.strip_prefix(EXIT).and_then(|rest| rest.strip_suffix(')')) {
                Some(code) => last.code = code.parse().unwrap(),
                None => last.lines.push(line),
            }
        }
    }
    all
}

/// Whether a line is what a pattern shows.
fn is_line(line: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once("...") else { return line == pattern };
    let Some(line) = line.strip_prefix(first) else { return false };
    (0..=line.len()).any(|at| line.is_char_boundary(at) && is_line(&line[at..], rest))
}

/// Whether lines are what patterns show, one of them standing for any number.
fn are_lines(lines: &[&str], patterns: &[&str]) -> bool {
    match (lines, patterns) {
        (_, []) => lines.is_empty(),
        (_, ["...", rest @ ..]) => (0..=lines.len()).any(|at| are_lines(&lines[at..], rest)),
        ([line, lines @ ..], [pattern, rest @ ..]) => is_line(line, pattern) && are_lines(lines, rest),
        ([], _) => false,
    }
}

fn run(name: &str) {
    let guide =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides").join(name).with_extension("md");
    let guide = fs::read_to_string(guide).unwrap();
    let all = shown(&guide);
    assert!(all.len() > 5, "{name}: {} commands", all.len());
    let scratch = Scratch::new(name);
    let bin = Path::new(env!("CARGO_BIN_EXE_plat")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", bin.display(), std::env::var("PATH").unwrap());
    for Shown { command, lines, code } in all {
        let output = Command::new("bash")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(scratch.path())
            .env("PATH", &path)
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let found: Vec<_> = printed.lines().filter(|line| !is_advice(line)).collect();
        assert_eq!(output.status.code(), Some(code), "{name}: $ {command}\n{printed}");
        assert!(are_lines(&found, &lines), "{name}: $ {command}\n{printed}\nis not\n{}", lines.join("\n"));
    }
}

#[test]
fn patterns_stand_for_what_they_show() {
    assert!(is_line("a: 12 files", "a: ... files") && !is_line("a: 12 file", "a: ... files"));
    assert!(is_line("a", "a") && !is_line("ab", "a") && is_line("ab", "a..."));
    assert!(are_lines(&["a", "b", "c"], &["a", "..."]) && are_lines(&["c"], &["...", "c"]));
    assert!(!are_lines(&["a", "b"], &["a"]) && !are_lines(&[], &["a"]) && are_lines(&[], &["..."]));
}

#[test]
fn images_are_built() {
    if tool::have_tools("images_are_built", &["bash", "e2fsck"]) {
        run("images");
    }
}

#[test]
fn a_broken_disk_is_rescued() {
    if tool::have_tools("a_broken_disk_is_rescued", &["bash", "dd", "tar"]) {
        run("rescue");
    }
}

#[test]
fn an_image_is_mounted() {
    let test = "an_image_is_mounted";
    if tool::have_tools(test, &["bash", "tar", "split"]) && have_fuse(test) {
        run("rootless");
    }
}
