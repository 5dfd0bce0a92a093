//! Lying images with right checksums under work by the commands and through mounts: nothing of the volume itself is
//! overwritten. The images and their judge are those of the library's tests (`crates/fs/tests/all/check/lying`).
//!
//! `PLATFS_STEPS=400` looks at more images, `PLATFS_SEED=17 PLATFS_STEPS=1` at one, and prints everything.

mod contents;
#[path = "../../../../../fs/tests/all/check/lying/lie.rs"]
mod lie;
#[path = "../../../../../fs/tests/all/check/lying/owners.rs"]
mod owners;
#[path = "../../../../../fs/tests/all/check/lying/trial.rs"]
mod trial;
mod work;

use std::collections::BTreeSet;
use std::fs;

use platfs::ondisk::inode::FileType;
use platfs::{InodeNumber, Volume};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{sparse, tool};

use crate::hostile::plant::{Image, ready};
use crate::support::mounted::{Mounted, have_fuse, unmount_with};
use crate::support::plat;
use owners::{DATA, Owner, Owners};
use trial::{Bench, Finding, judge, judge_strictly};
use work::Work;

/// The inodes that work on paths of an image may change: those of the paths, of all directories on their way, and, if
/// the path ends with a slash, of all below.
fn touched(image: &Image, paths: &[&str]) -> BTreeSet<u32> {
    let mut touched = BTreeSet::from([InodeNumber::ROOT.get()]);
    let Ok(volume) = image.try_volume() else { return touched };
    for path in paths {
        let whole = path.trim_end_matches('/');
        let ends = whole.match_indices('/').map(|(at, _)| at).skip(1).chain([whole.len()]);
        let all = ends.filter_map(|end| volume.resolve_link(&whole.as_bytes()[..end]).ok());
        let all: Vec<InodeNumber> = all.collect();
        touched.extend(all.iter().map(|number| number.get()));
        if let Some(last) = all.last().filter(|_| path.ends_with('/')) {
            below(&volume, *last, &mut touched, &mut BTreeSet::new());
        }
    }
    touched
}

/// Adds what stands in a directory and below.
fn below(volume: &Volume, directory: InodeNumber, all: &mut BTreeSet<u32>, entered: &mut BTreeSet<u32>) {
    let is_directory = volume.metadata(directory).is_ok_and(|facts| facts.file_type == FileType::Directory);
    if !is_directory || !entered.insert(directory.get()) {
        return;
    }
    for entry in volume.read_dir(directory).into_iter().flatten().flatten() {
        all.insert(entry.inode.get());
        below(volume, entry.inode, all, entered);
    }
}

/// Bytes that the superblock calls free, but for some.
fn nearly_all_free(image: &Image) -> u64 {
    let free = image.superblock_now().free_blocks_count();
    let bytes = free.saturating_mul(u64::from(image.format.geometry.block_size.bytes()));
    // A count may lie too.
    (bytes - bytes / 20).min(image.bytes.len() as u64)
}

/// Lets commands work on the image of a number, each with further options.
fn by_commands(bench: &mut Bench, number: u64, further: &[&str]) -> Option<Finding> {
    let mut random = Random(number);
    let trial = bench.trial(&mut random)?;
    let scratch = Scratch::new("lying");
    let image = scratch.join("image");
    sparse::write(&image, &trial.image.bytes).unwrap();
    let sources = work::sources(&scratch, random.one_in(4).then(|| nearly_all_free(&trial.image)));
    let mut paths = Vec::new();
    for _ in 0..3 + random.below(4) {
        let Work { command, options, before, inside } = random.pick(work::COMMANDS)?;
        paths.extend_from_slice(inside);
        let before = before.iter().map(|word| match word.strip_prefix("HOST/") {
            Some(name) => sources.join(name).into_os_string(),
            None => word.into(),
        });
        let inside = inside.iter().map(|path| if path.len() > 1 { path.trim_end_matches('/') } else { path });
        let mut ran = plat(&[command]);
        ran.args(*options).args(further).arg(&image).args(before).args(inside);
        let output = ran.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{number}: {ran:?}: {said}");
        assert!(!said.contains("panicked"), "{number}: {ran:?}: {said}");
        if !said.is_empty() && std::env::var_os("PLATFS_STEPS").is_some_and(|steps| steps == "1") {
            println!("{ran:?}: {said}");
        }
    }
    let touched = touched(&trial.image, &paths);
    let after = fs::read(&image).unwrap();
    Some(if after == trial.image.bytes { trial.refused(&after) } else { trial.end(after, touched, true) })
}

/// Works on the image of a number through a mount with further options.
fn by_a_mount(bench: &mut Bench, number: u64, further: &str) -> Option<Finding> {
    let mut random = Random(number);
    let trial = bench.trial(&mut random)?;
    let scratch = Scratch::new("lying");
    let image = scratch.join("image");
    sparse::write(&image, &trial.image.bytes).unwrap();
    let options = random.pick(&["rw", "rw,nodelalloc", "rw,async,noatime", "rw,normal", "rw,softdep"])?;
    let options = format!("{options}{further}");
    let Ok(mut mounted) = Mounted::new(&image, &["-o", &options]) else {
        return Some(trial.refused(&fs::read(&image).unwrap()));
    };
    let fill = random.one_in(3).then(|| nearly_all_free(&trial.image));
    let paths = work::through(mounted.path(), &mut random, fill);
    unmount_with(tool::command("fusermount3").arg("-u").arg(mounted.path()));
    let (status, log) = mounted.wait();
    assert!(status.code().is_some_and(|code| code < 2), "{number}: {status}: {log:?}");
    assert!(!log.iter().any(|line| line.contains("panicked")), "{number}: {log:?}");
    let touched = touched(&trial.image, &paths);
    Some(trial.end(fs::read(&image).unwrap(), touched, true))
}

#[test]
fn commands_harm_no_volume_that_lies() {
    if ready("commands_harm_no_volume_that_lies") {
        judge(2_000_000, 16, |bench, number| by_commands(bench, number, &["--no-check-first"]));
    }
}

#[test]
fn mounts_harm_no_volume_that_lies() {
    const TEST: &str = "mounts_harm_no_volume_that_lies";
    if ready(TEST) && have_fuse(TEST) && tool::have_root(TEST) {
        judge(3_000_000, 8, |bench, number| by_a_mount(bench, number, ",nocheck"));
    }
}

/// A bitmap that calls blocks of a file free, and maps that share blocks, are found by a check of all owners only.
#[test]
fn commands_harm_no_file_by_default() {
    if ready("commands_harm_no_file_by_default") {
        judge_strictly(4_000_000, 20, |bench, number| by_commands(bench, number, &[]));
    }
}

#[test]
fn mounts_harm_no_file_by_default() {
    const TEST: &str = "mounts_harm_no_file_by_default";
    if ready(TEST) && have_fuse(TEST) && tool::have_root(TEST) {
        judge_strictly(5_000_000, 10, |bench, number| by_a_mount(bench, number, ""));
    }
}

#[test]
fn what_checks_all_first_harms_no_file() {
    const TEST: &str = "what_checks_all_first_harms_no_file";
    if ready(TEST) && have_fuse(TEST) && tool::have_root(TEST) {
        judge_strictly(6_000_000, 8, |bench, number| by_commands(bench, number, &["--check-first"]));
        judge_strictly(7_000_000, 4, |bench, number| by_a_mount(bench, number, ",check"));
    }
}

/// The message names the fault and the remedy, nothing is written, and after the remedy the work is done.
#[test]
fn a_file_whose_blocks_a_bitmap_calls_free_is_reported_first() {
    const TEST: &str = "a_file_whose_blocks_a_bitmap_calls_free_is_reported_first";
    if !ready(TEST) {
        return;
    }
    let scratch = Scratch::new("reported-first");
    let path = scratch.join("image");
    let mut image = Image::of("ext4");
    let owners = Owners::of(&mut image);
    let is_of_a_file = |(block, owner): (&u64, &Owner)| match owner {
        Owner::File(number) if *number > 11 => Some(*block),
        _ => None,
    };
    let block = owners.blocks.iter().find_map(is_of_a_file).unwrap();
    lie::free_block(&mut image, block);
    sparse::write(&path, &image.bytes).unwrap();
    let mkdir = || {
        let output = plat(&["mkdir", "--check-first"]).arg(&path).arg("/new").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = mkdir();
    assert_eq!(code, Some(1), "{said}");
    let shown = path.display();
    for part in [
        "not sound, and nothing was changed: a block bitmap is wrong",
        &format!("blocks {block}"),
        &format!("`plat check -y {shown}`"),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(fs::read(&path).unwrap() == image.bytes, "nothing was written");
    let repaired = plat(&["check", "-y"]).arg(&path).output().unwrap();
    assert_eq!(repaired.status.code(), Some(1), "{repaired:?}");
    assert_eq!(mkdir(), (Some(0), String::new()));
}
