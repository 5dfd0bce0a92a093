//! Commands on a terminal, as a person runs them: nothing hangs, and the screen shows how far work is while it lasts.
//!
//! A command is as slow as the disk that its image lies on ([`slow`]); the screen is a terminal emulator's ([`screen`]).

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "terminal/screen.rs"]
mod screen;
#[path = "terminal/slow.rs"]
mod slow;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use screen::Terminal;
use slow::Slow;
use support::mounted::{Mounted, have_fuse};
use support::{plat, succeed};
use testkit::scratch::Scratch;
use testkit::tool;

fn have(test: &str) -> bool {
    have_fuse(test) && tool::have_tools(test, &["setsid"])
}

/// A tree of files, and an image of it with room.
fn image(scratch: &Scratch) -> PathBuf {
    let tree = scratch.join("tree");
    for number in 0..40 {
        let below = tree.join(format!("d{}", number % 4));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("f{number}")), vec![number; 20_000]).unwrap();
    }
    let image = scratch.join("fast.img");
    succeed(plat(&["build", "-q", "--size", "32M"]).arg(&tree).arg(&image));
    image
}

/// The arguments of a command, with paths for `m:`.
fn on(place: &Path, words: &[&str]) -> std::process::Command {
    let mut command = plat(&[]);
    for word in words {
        match word.strip_prefix("m:") {
            Some(path) => command.arg(place.join(path)),
            None => command.arg(word),
        };
    }
    command
}

/// The thread that draws how far a command is once waited for the lock of standard error, which the command held, and
/// the command for the thread.
#[test]
fn work_on_a_mount_that_lasts_comes_to_its_end_on_a_terminal() {
    if !have("work_on_a_mount_that_lasts_comes_to_its_end_on_a_terminal") {
        return;
    }
    let scratch = Scratch::new("terminal");
    let slow = Slow::new(&image(&scratch));
    let mounted = Mounted::new(&slow.path(), &[]).unwrap();
    for words in [&["cp", "-r", "m:d0", "m:copy"][..], &["rm", "-r", "m:copy"], &["sync", "m:"]] {
        slow.hold();
        let mut terminal = Terminal::run(&on(mounted.path(), words), 80);
        if words[0] != "sync" {
            terminal.wait_for("progress", |text| text.contains(" files, "));
        }
        slow.release();
        assert!(terminal.wait().success(), "{words:?}: {}", terminal.text());
        assert_eq!((terminal.text().trim(), terminal.cursor()), ("", (0, 0)), "{words:?}");
    }
    mounted.unmount();
}
