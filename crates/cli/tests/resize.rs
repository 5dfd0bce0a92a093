//! `plat resize`: output, plans, refusals, and runs that are killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod plat;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::scratch::Scratch;
use testkit::{fsck, tool};

const MIB: u64 = 1 << 20;

/// A volume of 64 MiB in small groups, with files in it.
fn volume(scratch: &Scratch) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..3000_u32 {
        let len = (number % 9 * 700) as usize;
        fs::write(tree.join(format!("many/file {number}")), vec![b'x'; len]).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 20 << 20]).unwrap();
    let mut command = tool::command("mke2fs");
    command
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "2048", "-d"])
        .arg(&tree)
        .arg(&image)
        .arg("64M");
    tool::run(&mut command);
    image
}

fn resized(image: &Path, arguments: &[&str]) -> plat::Ran {
    let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(std::ffi::OsStr::new).collect();
    plat::plat("resize", image, &arguments)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn len(image: &Path) -> u64 {
    fs::metadata(image).unwrap().len()
}

fn ready(test: &str) -> bool {
    tool::have_tools(test, &["mke2fs", "e2fsck"])
}

#[test]
fn a_volume_grows_and_shrinks_with_its_file() {
    if !ready("resize") {
        return;
    }
    let scratch = Scratch::new("resize-command");
    let image = volume(&scratch);
    let said = text(resized(&image, &["100M"]).fine());
    assert!(said.contains("has now 102400 blocks of 1024 bytes: 100 MiB (before: 64 MiB)"), "{said}");
    assert_eq!(len(&image), 100 * MIB);
    fsck::assert_clean(&image);
    let before = fs::read(&image).unwrap();
    let planned = text(resized(&image, &["-n", "--json", "40M"]).fine());
    let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
    assert_eq!((&planned["written"], &planned["blocks"]), (&false.into(), &40960.into()));
    let least = text(resized(&image, &["-P", "--json"]).fine());
    let least: serde_json::Value = serde_json::from_str(&least).unwrap();
    assert!(fs::read(&image).unwrap() == before, "a plan writes nothing");
    let said = text(resized(&image, &["--min", "--json"]).fine());
    let made: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(made["bytes"], least["bytes"]);
    assert_eq!(Some(len(&image)), made["bytes"].as_u64());
    fsck::assert_clean(&image);
    // Without a size the volume takes what its file has.
    File::options().write(true).open(&image).unwrap().set_len(80 * MIB).unwrap();
    let said = text(resized(&image, &[]).fine());
    assert!(said.contains("80 MiB"), "{said}");
    let said = text(resized(&image, &["80M"]).fine());
    assert!(said.contains("already"), "{said}");
    fsck::assert_clean(&image);
}

#[test]
fn what_can_not_be_is_refused_and_nothing_is_written() {
    if !ready("resize") {
        return;
    }
    let scratch = Scratch::new("resize-refused");
    let image = volume(&scratch);
    let before = fs::read(&image).unwrap();
    for (size, words) in [("0", "no volume"), ("1", "no volume"), ("10M", ""), ("16777215T", "")] {
        let said = resized(&image, &[size]).failed();
        assert!(said.contains(words), "{size}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{size}");
    }
}

/// Killed at any moment, the volume is sound after the same command, and has all its files.
#[test]
fn killed_runs_end_when_run_again() {
    if !ready("resize") {
        return;
    }
    let scratch = Scratch::new("resize-killed");
    let image = volume(&scratch);
    let files = |image: &Path| {
        let out =
            Command::new(env!("CARGO_BIN_EXE_plat")).arg("export").arg(image).arg("-").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let before = files(&image);
    for round in 0..16_u64 {
        let size = if round % 2 == 0 { "150M" } else { "48M" };
        let run = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plat"));
            command.arg("resize").arg(&image).arg(size).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let mut child = run();
        std::thread::sleep(Duration::from_millis(10 + round * 23));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(run().wait().unwrap().success(), "round {round}");
        fsck::assert_clean(&image);
        assert_eq!(len(&image) >> 20, if round % 2 == 0 { 150 } else { 48 });
    }
    assert!(files(&image) == before, "files changed");
}
