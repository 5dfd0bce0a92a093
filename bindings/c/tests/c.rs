//! Programs in C: each function called by one, installed as users install it, with pkg-config alone, under valgrind where
//! there is one. And the header names what the library exports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// Where this build put the library.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let beside =
        |directory: &Path| directory.join("libplatfs_c.so").is_file().then(|| directory.to_path_buf());
    beside(deps).or_else(|| beside(deps.parent().unwrap())).expect("the library is built with its tests")
}

/// Installs library, header and pkg-config file into a directory.
fn install(scratch: &Scratch) -> PathBuf {
    let prefix = scratch.join("installed");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let words = ["-s", "install-c-files", &format!("PREFIX={}", prefix.display()), "DESTDIR="];
    let from = format!("LIBDIR={}", built().display());
    tool::run(tool::command("make").arg("-C").arg(root).args(words).arg(from));
    prefix
}

/// A program of one file, compiled with what pkg-config says and nothing else.
fn compiled(source: &str, prefix: &Path, to: &Path) -> PathBuf {
    let mut ask = tool::command("pkg-config");
    ask.args(["--cflags", "--libs", "platfs"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = String::from_utf8(tool::run(&mut ask).stdout).unwrap();
    let program = to.join(Path::new(source).file_stem().unwrap());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compiler = tool::command("cc");
    compiler
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
        .arg(source)
        .arg("-o")
        .arg(&program);
    tool::run(compiler.args(flags.split_whitespace()));
    program
}

/// The program under valgrind if there is one.
fn watched(program: &Path, prefix: &Path) -> Command {
    let mut command = if tool::find("valgrind").is_some() {
        let mut valgrind = tool::command("valgrind");
        valgrind.args([
            "-q",
            "--error-exitcode=9",
            "--leak-check=full",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
        ]);
        valgrind.arg(program);
        valgrind
    } else {
        tool::skip("programs in C under valgrind", "valgrind is not installed; they run without it");
        Command::new(program)
    };
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

#[test]
fn a_program_in_c_calls_every_function() {
    let test = "a_program_in_c_calls_every_function";
    if !tool::have_tools(test, &["cc", "make", "pkg-config"]) {
        return;
    }
    let scratch = Scratch::new("c");
    let prefix = install(&scratch);
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/note"), "in C").unwrap();
    let program = compiled("tests/api.c", &prefix, &scratch.join("installed"));
    let output = tool::run(watched(&program, &prefix).arg(scratch.join("")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all holds\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    for image in ["made.img", "built.img"] {
        fsck::assert_clean(&scratch.join(image));
    }
    let list = compiled("examples/list.c", &prefix, &scratch.join("installed"));
    let output = tool::run(watched(&list, &prefix).arg(scratch.join("built.img")).arg("/"));
    assert!(String::from_utf8_lossy(&output.stdout).contains(" 100000 note\n"));
    let refused = watched(&list, &prefix).arg(scratch.join("built.img")).arg("/note").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
    mounts(&scratch, &prefix);
}

/// Runs the example that mounts, and ends it by a signal.
fn mounts(scratch: &Scratch, prefix: &Path) {
    let program = compiled("examples/mount.c", prefix, &scratch.join("installed"));
    if !tool::administers() || !Path::new("/dev/fuse").exists() {
        return tool::skip("the example in C that mounts", "needs root and /dev/fuse");
    }
    let directory = scratch.join("mounted");
    fs::create_dir(&directory).unwrap();
    let image = scratch.join("built.img");
    let mut serving = Command::new(program);
    serving.env("LD_LIBRARY_PATH", prefix.join("lib")).arg(&image).arg(&directory).arg("noatime");
    let mut serving = serving.stdin(Stdio::piped()).spawn().unwrap();
    while !directory.join("note").exists() {
        assert!(serving.try_wait().unwrap().is_none(), "it ended early");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read(directory.join("note")).unwrap(), b"in C");
    fs::rename(directory.join("note"), directory.join("renamed")).unwrap();
    drop(serving.stdin.take());
    assert!(serving.wait().unwrap().success());
    assert!(!directory.join("renamed").exists());
    fsck::assert_clean(&image);
}

#[test]
fn what_programs_do_wrong_is_an_error() {
    let test = "what_programs_do_wrong_is_an_error";
    if !tool::have_tools(test, &["cc", "make", "pkg-config"]) {
        return;
    }
    let scratch = Scratch::new("c-misuse");
    let prefix = install(&scratch);
    let program = compiled("tests/misuse.c", &prefix, &scratch.join("installed"));
    let output = tool::run(watched(&program, &prefix).arg(scratch.join("")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all holds\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    fsck::assert_clean(&scratch.join("misused.img"));
}

#[test]
fn the_header_is_one_of_c_plus_plus_too() {
    if !tool::have_tools("the_header_is_one_of_c_plus_plus_too", &["c++"]) {
        return;
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/platfs.h");
    tool::run(tool::command("c++").args(["-x", "c++", "-Wall", "-Werror", "-fsyntax-only"]).arg(header));
}

/// Words that begin with `platfs_` and stand before an opening parenthesis.
fn calls(text: &str) -> BTreeSet<String> {
    let begun = text.match_indices("platfs_").filter(|(at, _)| {
        text[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_')
    });
    let names = begun.filter_map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        rest[end..].starts_with('(').then(|| rest[..end].to_owned())
    });
    names.collect()
}

#[test]
fn the_header_declares_what_the_library_exports_and_the_test_calls_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header: BTreeSet<String> =
        fs::read_to_string(root.join("include/platfs.h")).unwrap().lines().flat_map(calls_of_line).collect();
    let test = calls(&fs::read_to_string(root.join("tests/api.c")).unwrap());
    let uncalled: Vec<_> = header.difference(&test).collect();
    assert!(uncalled.is_empty(), "{uncalled:?}");
    if tool::have_tools("the_header_declares_what_the_library_exports", &["nm"]) {
        let library = built().join("libplatfs_c.so");
        let listed = tool::run(tool::command("nm").args(["-D", "--defined-only"]).arg(library));
        let text = String::from_utf8(listed.stdout).unwrap();
        // A build of the whole workspace has features that this library leaves out, and with them names of other crates.
        let names = text.lines().filter_map(|line| line.rsplit(' ').next());
        let exported: BTreeSet<String> =
            names.filter(|name| name.starts_with("platfs_")).map(String::from).collect();
        assert_eq!(exported, header);
    }
}

/// Functions that a line of the header declares; those that comments name don't count.
fn calls_of_line(line: &str) -> BTreeSet<String> {
    let is_comment = line.trim_start().starts_with("/*") || line.trim_start().starts_with('*');
    if is_comment { BTreeSet::new() } else { calls(line) }
}
