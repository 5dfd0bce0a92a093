//! The same calls on the kernel's ext4 and on `plat mount`: some hundreds of small cases, each of which tells what every call
//! answered. Both must tell the same; what may differ stands in `excuses`, with the reason.
//!
//! Each side runs in a process of its own (the ignored test `worker` of this program), so that a mount that hangs is found out, and
//! working directory, mask and credentials are nobody else's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::option_map_unit_fn, reason = "what could not be opened was told of already")]

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

use sides::{Side, compare, run_side};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use testkit::mount::have_loop_mount;
use testkit::scratch::Scratch;
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

/// Where a worker works, and where it tells what it saw.
const ROOT: &str = "PLATFS_POSIX_ROOT";
const TOLD: &str = "PLATFS_POSIX_TOLD";
/// Only cases whose name has this in it.
const ONLY: &str = "PLATFS_POSIX_ONLY";

/// Runs the cases in a directory. No test of its own: the others start it in another process.
#[test]
#[ignore = "the other tests start it"]
fn worker() {
    let (Ok(root), Ok(told)) = (std::env::var(ROOT), std::env::var(TOLD)) else { return };
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut told = File::create(told).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    for case in all().filter(|case| case.name.contains(&only)) {
        let name = case.name.trim_start_matches("posix::").replace("::", "-");
        writeln!(told, "case {name}").unwrap();
        let place = Path::new(&root).join(&name);
        fs::create_dir(&place).unwrap();
        std::env::set_current_dir(&place).unwrap();
        let mut transcript = Transcript::default();
        (case.run)(&mut transcript);
        for line in transcript.lines {
            writeln!(told, "  {}", line.replace(&root, "ROOT").replace('\n', "\\n")).unwrap();
        }
    }
    std::env::set_current_dir("/").unwrap();
    writeln!(told, "end").unwrap();
}

/// A volume to run on: its name, and the options of mke2fs and of mount.
struct Profile {
    name: &'static str,
    mke2fs: &'static [&'static str],
    options: &'static str,
}

const EXTENTS: Profile = Profile {
    name: "extents",
    mke2fs: &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    options: "relatime",
};

const SMALL_BLOCKS: Profile = Profile {
    name: "small-blocks",
    mke2fs: &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    options: "relatime,nodelalloc",
};

const POINTERS: Profile = Profile {
    name: "pointers",
    mke2fs: &["-t", "ext2", "-b", "4096", "-I", "256", "-O", "extra_isize,dir_nlink"],
    options: "relatime",
};

/// An empty volume of a profile.
fn make(scratch: &Scratch, profile: &Profile, name: &str) -> std::path::PathBuf {
    let image = scratch.join(name);
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-N", "60000", "-U", "5d1a1c0e-8d2f-4a52-9d5e-6a7a32d5a001"]);
    command.args(["-E", "hash_seed=5d1a1c0e-8d2f-4a52-9d5e-6a7a32d5a002,root_owner=0:0"]);
    tool::run(command.args(profile.mke2fs).arg(&image).arg("512M"));
    image
}

/// The same twice: a transcript that varies by itself would prove nothing.
fn kernel_against_kernel(test: &str, profile: &Profile) {
    if !have_loop_mount(test) || !tool::have_tools(test, sides::TOOLS) {
        return;
    }
    let scratch = Scratch::new(test);
    let images = [make(&scratch, profile, "one"), make(&scratch, profile, "other")];
    let [one, other] = std::thread::scope(|scope| {
        let run = |image| run_side(test, &Side::kernel(image, profile.options));
        let sides = images.each_ref().map(|image| scope.spawn(move || run(image)));
        sides.map(|side| side.join().unwrap())
    });
    compare(profile.name, &one, &other, &[]);
}

#[test]
fn the_kernel_agrees_with_itself() {
    kernel_against_kernel("the_kernel_agrees_with_itself", &EXTENTS);
}

#[test]
fn the_kernel_agrees_with_itself_on_small_blocks() {
    kernel_against_kernel("the_kernel_agrees_with_itself_on_small_blocks", &SMALL_BLOCKS);
}

#[test]
fn the_kernel_agrees_with_itself_on_block_pointers() {
    kernel_against_kernel("the_kernel_agrees_with_itself_on_block_pointers", &POINTERS);
}
