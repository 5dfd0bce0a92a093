//! The same calls on the kernel's ext4 and on `plat mount`: some hundreds of small cases, each of which records what
//! every call answered. Both must answer the same; what may differ stands in `excuses`, with the reason.
//!
//! Each side runs in a process of its own (the ignored test `worker` of this program), so that a mount that hangs is found out, and
//! working directory, mask and credentials belong to no other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::option_map_unit_fn, reason = "what could not be opened was recorded already")]

mod attributes;
mod contents;
mod creating;
mod excuses;
mod listing;
mod modes;
mod opening;
mod ranges;
mod removing;
mod renaming;
mod sides;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod times;
mod transcript;

use excuses::{CACHE_EXCUSES, EXCUSES, Excuse, NO_ATTRIBUTES_EXCUSES, OWN_EXCUSES};
use sides::{As, compare, run_side};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use support::mounted::have_fuse;
use support::volumes::{DEFAULTS, EXTENTS, POINTERS, Profile, SMALL_BLOCKS, View, Who, all_modes, judge};
use testkit::mount::have_loop_mount;
use testkit::scratch::Scratch;
use testkit::snapshot::Snapshot;
use testkit::tool;
use transcript::{Case, Transcript};

/// All cases, in the order in which they run.
fn all() -> impl Iterator<Item = &'static Case> {
    let modules = [
        opening::CASES,
        creating::CASES,
        removing::CASES,
        renaming::CASES,
        modes::CASES,
        times::CASES,
        contents::CASES,
        ranges::CASES,
        listing::CASES,
        attributes::CASES,
        status::CASES,
    ];
    modules.into_iter().flatten()
}

/// Where a worker works, and where it writes the answers.
const ROOT: &str = "PLATFS_POSIX_ROOT";
const ANSWERS: &str = "PLATFS_POSIX_ANSWERS";
/// Only cases whose name has this in it.
const ONLY: &str = "PLATFS_POSIX_ONLY";
/// Users are those of the file system only (setfsuid).
const FILE_USERS: &str = "PLATFS_POSIX_FILE_USERS";

/// Runs the cases in a directory. No test of its own: the others start it in another process.
#[test]
#[ignore = "the other tests start it"]
fn worker() {
    let (Ok(root), Ok(answers)) = (std::env::var(ROOT), std::env::var(ANSWERS)) else { return };
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut answers = File::create(answers).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    for case in all().filter(|case| case.name.contains(&only)) {
        let name = case.name.trim_start_matches("posix::").replace("::", "-");
        writeln!(answers, "case {name}").unwrap();
        let place = Path::new(&root).join(&name);
        fs::create_dir(&place).unwrap();
        std::env::set_current_dir(&place).unwrap();
        let mut transcript = Transcript::default();
        (case.run)(&mut transcript);
        for line in transcript.lines {
            writeln!(answers, "  {}", line.replace(&root, "ROOT").replace('\n', "\\n")).unwrap();
        }
    }
    std::env::set_current_dir("/").unwrap();
    writeln!(answers, "end").unwrap();
}

/// Size of the volumes.
const SIZE: &str = "512M";

/// The same twice: a transcript that varies by itself would prove nothing.
fn kernel_against_kernel(test: &str, profile: &Profile) {
    if !have_loop_mount(test) || !tool::have_tools(test, sides::TOOLS) {
        return;
    }
    let scratch = Scratch::new(test);
    let images = [profile.make(&scratch, "one", SIZE), profile.make(&scratch, "other", SIZE)];
    let [one, other] = std::thread::scope(|scope| {
        let run = |image| run_side(test, &View::new(Who::Kernel, image, profile.options), As::Users);
        let sides = images.each_ref().map(|image| scope.spawn(move || run(image)));
        sides.map(|side| side.join().unwrap())
    });
    compare(profile.name, &one, &other, &[]);
}

/// The same on the kernel's ext4 and on ours; what ours leaves must be sound, and be in the kernel what it was through us.
fn kernel_against_plat(test: &str, profile: &Profile) {
    sides_agree(test, profile, (Who::Plat, As::Users), &[EXCUSES, CACHE_EXCUSES].concat());
}

/// The same where we check permissions ourselves.
fn kernel_against_own_checks(test: &str, callers: As) {
    if !tool::have_tools(test, &["setpriv"]) || !rustix::process::geteuid().is_root() {
        return;
    }
    let excuses = [EXCUSES, CACHE_EXCUSES, OWN_EXCUSES].concat();
    sides_agree(test, &EXTENTS, (Who::PlatAlone, callers), &excuses);
}

/// The same with a mount in one of the modes.
fn kernel_against_mode(test: &str, profile: &Profile, who: Who) {
    let (Who::PlatIn(mode) | Who::PlatByDefault(mode)) = who else { return };
    let own = mode.contains("own_permissions");
    if own && !rustix::process::geteuid().is_root() {
        return;
    }
    let cached = matches!(who, Who::PlatIn(_));
    let more =
        [(own, OWN_EXCUSES), (mode.contains("noxattr"), NO_ATTRIBUTES_EXCUSES), (cached, CACHE_EXCUSES)];
    let more = more.into_iter().filter(|(given, _)| *given).flat_map(|(_, excuses)| excuses);
    let excuses: Vec<Excuse> = EXCUSES.iter().chain(more).copied().collect();
    let callers = if own { As::FileUsers } else { As::Users };
    println!("{who:?}");
    sides_agree(test, profile, (who, callers), &excuses);
}

fn sides_agree(test: &str, profile: &Profile, (plat, callers): (Who, As), excuses: &[Excuse]) {
    if !have_loop_mount(test) || !have_fuse(test) || !tool::have_tools(test, sides::TOOLS) {
        return;
    }
    let scratch = Scratch::new(test);
    let images = [profile.make(&scratch, "theirs", SIZE), profile.make(&scratch, "ours", SIZE)];
    let run = |who, image| {
        let view = View::new(who, image, profile.options);
        let answers = run_side(test, &view, callers);
        view.end();
        answers
    };
    let [theirs, ours] = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| run(Who::Kernel, &images[0]));
        let ours = scope.spawn(|| run(plat, &images[1]));
        [theirs, ours].map(|side| side.join().unwrap())
    });
    compare(profile.name, &theirs, &ours, excuses);
    // By a mount that knows nothing of what the kernel kept of the other, and could not write.
    let view = View::new(Who::Plat, &images[1], "ro");
    let shown = Snapshot::of(view.path()).unwrap();
    view.end();
    judge(test, &images[1], &shown, true);
}

#[test]
fn the_kernel_agrees_with_itself() {
    kernel_against_kernel("the_kernel_agrees_with_itself", &EXTENTS);
}

#[test]
fn extents() {
    kernel_against_plat("extents", &EXTENTS);
}

#[test]
fn own_permissions() {
    kernel_against_own_checks("own_permissions", As::FileUsers);
}

#[test]
fn own_permissions_without_capabilities() {
    kernel_against_own_checks("own_permissions_without_capabilities", As::Bounded);
}

#[test]
fn small_blocks() {
    kernel_against_plat("small_blocks", &SMALL_BLOCKS);
}

#[test]
fn pointers() {
    kernel_against_plat("pointers", &POINTERS);
}

#[test]
fn without_attributes() {
    let mode = Who::PlatIn("allow_other,noxattr,transport=uring");
    kernel_against_mode("without_attributes", &EXTENTS, mode);
}

#[test]
fn own_permissions_without_attributes_by_device() {
    let mode = Who::PlatIn("own_permissions,noxattr,transport=device");
    kernel_against_mode("own_permissions_without_attributes_by_device", &EXTENTS, mode);
}

#[test]
fn by_default() {
    for mode in DEFAULTS {
        kernel_against_mode("by_default", &EXTENTS, Who::PlatByDefault(mode));
    }
}

#[test]
fn by_default_with_small_blocks() {
    kernel_against_mode("by_default_with_small_blocks", &SMALL_BLOCKS, Who::PlatByDefault(DEFAULTS[0]));
}

#[test]
fn by_default_with_pointers() {
    kernel_against_mode("by_default_with_pointers", &POINTERS, Who::PlatByDefault(DEFAULTS[0]));
}

/// `cargo test -p platfs-cli --test posix every_mode -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn every_mode() {
    for mode in all_modes() {
        kernel_against_mode("every_mode", &EXTENTS, mode);
    }
}
