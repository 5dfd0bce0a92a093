//! Calls on the kernel's ext4 and on `plat mount`: some hundreds of small cases, each of which records what
//! every call answered. Both must answer the same; what may differ stands in `excuses`, with the reason.
//!
//! Each side runs in a process of its own (the ignored test `worker` of this program), so that a mount that hangs is found out, and
//! working directory, mask and credentials belong to no other.

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
mod rights;
mod sides;
mod status;
mod times;
mod transcript;

use crate::support::mounted::have_fuse;
use crate::support::volumes::{
    DEFAULTS, EXTENTS, POINTERS, Profile, SMALL_BLOCKS, View, Who, all_modes, judge,
};
use excuses::{
    CACHE_EXCUSES, EXCUSES, Excuse, NO_ATTRIBUTES_EXCUSES, OWN_EXCUSES, OWN_RIGHTS_EXCUSES, RIGHTS_EXCUSES,
};
use sides::{As, compare, run_sequences, run_side};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
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
/// Random sequences in place of the cases: the first, and how many.
const SEQUENCES: &str = "PLATFS_POSIX_SEQUENCES";
/// Users are those of the file system only (setfsuid).
const FILE_USERS: &str = "PLATFS_POSIX_FILE_USERS";

/// The sequences that a worker runs, if it runs some.
fn sequences() -> Option<(u64, u64)> {
    let text = std::env::var(SEQUENCES).ok()?;
    let (first, count) = text.split_once(' ')?;
    Some((first.parse().ok()?, count.parse().ok()?))
}

/// Runs the cases in a directory. No test of its own: the others start it in another process.
#[test]
#[ignore = "the other tests start it"]
fn worker() {
    let (Ok(root), Ok(answers)) = (std::env::var(ROOT), std::env::var(ANSWERS)) else { return };
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut answers = File::create(answers).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut run = |name: &str, work: &dyn Fn(&mut Transcript)| {
        writeln!(answers, "case {name}").unwrap();
        let place = Path::new(&root).join(name);
        fs::create_dir(&place).unwrap();
        std::env::set_current_dir(&place).unwrap();
        let mut transcript = Transcript::default();
        work(&mut transcript);
        for line in transcript.lines {
            writeln!(answers, "  {}", line.replace(&root, "ROOT").replace('\n', "\\n")).unwrap();
        }
    };
    if let Some((first, count)) = sequences() {
        let for_others = std::env::var_os(FILE_USERS).is_some();
        let callers = if for_others { rights::Callers::ForOthers } else { rights::Callers::Users };
        for number in first..first + count {
            run(&format!("rights-{number}"), &|t| rights::run(t, number, callers));
        }
    } else {
        for case in all().filter(|case| case.name.contains(&only)) {
            run(&case.name.trim_start_matches("all::posix::").replace("::", "-"), &case.run);
        }
    }
    std::env::set_current_dir("/").unwrap();
    writeln!(answers, "end").unwrap();
}

/// Size of the volumes.
const SIZE: &str = "512M";

/// Runs a case twice on the kernel: a transcript that varies by itself would prove nothing.
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

/// Runs a case on the kernel's ext4 and on ours; what ours leaves must be sound, and be in the kernel what it was through us.
fn kernel_against_plat(test: &str, profile: &Profile) {
    sides_agree(test, profile, (Who::Plat, As::Users), &[EXCUSES, CACHE_EXCUSES].concat());
}

/// Runs a case where we check permissions ourselves.
fn kernel_against_own_checks(test: &str, callers: As) {
    if !tool::have_tools(test, &["setpriv"]) || !testkit::tool::administers() {
        return;
    }
    let excuses = [EXCUSES, CACHE_EXCUSES, OWN_EXCUSES].concat();
    sides_agree(test, &EXTENTS, (Who::PlatAlone, callers), &excuses);
}

/// Runs a case with a mount in one of the modes.
fn kernel_against_mode(test: &str, profile: &Profile, who: Who) {
    let (Who::PlatIn(mode) | Who::PlatByDefault(mode)) = who else { return };
    let own = mode.contains("own_permissions");
    if own && !testkit::tool::administers() {
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

/// Random sequences of rights on both sides, as many as `PLATFS_STEPS` says from `PLATFS_SEED` on.
fn rights_agree(test: &str, (first, count): (u64, u64), who: Who, callers: As) {
    if !have_loop_mount(test) || !have_fuse(test) || !testkit::tool::administers() {
        return;
    }
    let caches = "/proc/sys/vm/drop_caches";
    if callers == As::FileUsers && fs::OpenOptions::new().write(true).open(caches).is_err() {
        return tool::skip(test, &format!("needs {caches}"));
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("PLATFS_SEED").unwrap_or(first), number("PLATFS_STEPS").unwrap_or(count));
    println!("PLATFS_SEED={first} PLATFS_STEPS={count}, {who:?}");
    let scratch = Scratch::new(test);
    let images = [EXTENTS.make(&scratch, "theirs", SIZE), EXTENTS.make(&scratch, "ours", SIZE)];
    let run = |who, image| {
        let view = View::new(who, image, EXTENTS.options);
        let answers = run_sequences(test, &view, callers, (first, count));
        view.end();
        answers
    };
    let [theirs, ours] = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| run(Who::Kernel, &images[0]));
        let ours = scope.spawn(|| run(who, &images[1]));
        [theirs, ours].map(|side| side.join().unwrap())
    });
    let own: &[Excuse] = if callers == As::FileUsers { OWN_RIGHTS_EXCUSES } else { &[] };
    compare("rights", &theirs, &ours, &[RIGHTS_EXCUSES, own].concat());
    testkit::fsck::assert_clean(&images[1]);
}

#[test]
fn rights_of_random_sequences() {
    rights_agree("rights_of_random_sequences", (1, 25), Who::PlatByDefault(DEFAULTS[0]), As::Users);
}

/// As a server of NFS that acts for its users, in a mount that checks permissions itself.
#[test]
fn rights_of_random_sequences_by_own_checks() {
    rights_agree("rights_of_random_sequences_by_own_checks", (1, 25), Who::PlatAlone, As::FileUsers);
}

/// Two thousand sequences: `cargo test -p platfs-cli --test all posix::rights_for_long -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn rights_for_long() {
    rights_agree("rights_for_long", (1000, 2000), Who::PlatByDefault(DEFAULTS[0]), As::Users);
    rights_agree("rights_for_long", (1000, 2000), Who::PlatAlone, As::FileUsers);
}

/// `cargo test -p platfs-cli --test all posix::every_mode -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn every_mode() {
    for mode in all_modes() {
        kernel_against_mode("every_mode", &EXTENTS, mode);
    }
}
