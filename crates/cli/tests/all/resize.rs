//! `plat resize`: output, plans, refusals, and runs that are killed.

mod spread;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use rustix::fs::{FallocateFlags, fallocate};
use testkit::mapped::{Mapping, Sharing};
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

fn resized(image: &Path, arguments: &[&str]) -> crate::plat::Ran {
    let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(std::ffi::OsStr::new).collect();
    crate::plat::plat("resize", image, &arguments)
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

fn value(out: &[u8]) -> serde_json::Value {
    serde_json::from_slice(out).unwrap()
}

/// Through the server of a mount: the file, the volume, and what programs see of it.
#[test]
fn a_mounted_volume_grows() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-mounted");
    let image = volume(&scratch);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let root = mounted.path();
    let open = File::create(root.join("open")).unwrap();
    fs::write(root.join("gone"), "still here").unwrap();
    let gone = File::open(root.join("gone")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    let room = || rustix::fs::statvfs(root).unwrap().f_blocks >> 10;
    let before = room();
    let planned = value(&succeed(plat(&["resize", "-n", "--json"]).arg(root).arg("150M")).stdout);
    assert_eq!((&planned["written"], &planned["bytes"]), (&false.into(), &(150 * MIB).into()));
    assert_eq!((len(&image), room()), (64 * MIB, before), "a plan changes nothing");
    for wrong in ["10M", "16777215T"] {
        fail(plat(&["resize"]).arg(root).arg(wrong));
    }
    assert_eq!(plat(&["resize", "--grow-partition"]).arg(root).output().unwrap().status.code(), Some(2));
    assert_eq!(len(&image), 64 * MIB);
    let done = value(&succeed(plat(&["resize", "--json"]).arg(root).arg("150M")).stdout);
    assert_eq!((&done["written"], &done["groups"]), (&true.into(), &planned["groups"]));
    assert_eq!(len(&image), 150 * MIB);
    assert!(room() > before + 75, "{before} {}", room());
    fs::write(root.join("large too"), vec![9; 60 << 20]).unwrap();
    // Without a size it takes what its file has.
    File::options().write(true).open(&image).unwrap().set_len(180 * MIB).unwrap();
    let said = text(succeed(plat(&["resize"]).arg(root)).stdout);
    assert!(said.contains("180 MiB (before: 150 MiB)"), "{said}");
    let again = value(&succeed(plat(&["resize", "--json"]).arg(root)).stdout);
    assert_eq!(again["written"], false);
    assert_eq!(std::io::read_to_string(gone).unwrap(), "still here");
    drop(open);
    mounted.unmount();
    fsck::assert_clean(&image);
    let mounted = testkit::mount::Mounted::read_only(&image);
    if let Ok(mounted) = mounted {
        assert!(fs::read(mounted.path().join("large too")).unwrap().iter().all(|byte| *byte == 9));
    }
}

/// The server is killed at any moment: the volume has one size or the other, and the same command makes it the new one.
/// The source that the table of mounts names is a word of whoever mounted.
#[test]
fn a_change_of_the_size_of_a_mount_goes_by_its_own_volume() {
    let test = "a_change_of_the_size_of_a_mount_goes_by_its_own_volume";
    if !ready(test) || !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let [image, other] = ["disk.img", "other.img"].map(|name| scratch.join(name));
    succeed(plat(&["mkfs", "-q"]).arg(&image).arg("32M"));
    succeed(plat(&["mkfs", "-q"]).arg(&other).arg("128M"));
    let mounted = Mounted::new(&image, &["-o", &format!("rw,fsname={}", other.display())]).unwrap();
    succeed(plat(&["resize"]).arg(mounted.path()).arg("+8M"));
    mounted.unmount();
    assert_eq!(len(&image), 40 * MIB);
    fsck::assert_clean(&image);
}

#[test]
fn a_mounted_volume_whose_server_is_killed_grows_the_next_time() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-mount-killed");
    let image = volume(&scratch);
    for round in 0..6_u64 {
        let size = format!("{}M", 80 + round * 16);
        let mut mounted = Mounted::new(&image, &[]).unwrap();
        let mut command = plat(&["resize"]);
        command.arg(mounted.path()).arg(&size).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(5 + round * 9));
        mounted.signal(rustix::process::Signal::KILL);
        mounted.wait();
        let _ = child.wait();
        drop(mounted);
        let mounted = Mounted::new(&image, &[]).unwrap();
        succeed(plat(&["resize"]).arg(mounted.path()).arg(&size));
        assert_eq!(fs::read(mounted.path().join("large")).unwrap(), vec![7; 20 << 20]);
        mounted.unmount();
        fsck::assert_clean(&image);
    }
}

/// Through the server of a mount, while programs write: the volume, its file, and what programs see of both.
#[test]
fn a_mounted_volume_shrinks_while_it_is_written() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-mounted-smaller");
    let image = volume(&scratch);
    let mut mounted = Mounted::new(&image, &[]).unwrap();
    // What comes now lies at the end.
    fs::write(mounted.path().join("last"), vec![5; 8 << 20]).unwrap();
    fs::remove_file(mounted.path().join("large")).unwrap();
    let planned = value(&succeed(plat(&["resize", "-n", "--json"]).arg(mounted.path()).arg("40M")).stdout);
    assert_eq!((&planned["written"], &planned["blocks"]), (&false.into(), &40960.into()));
    assert_eq!(len(&image), 64 * MIB);
    let why = fail(plat(&["resize"]).arg(mounted.path()).arg("7M"));
    assert!(why.contains("KiB"), "{why}");
    for round in 0..4_u64 {
        let root = mounted.path().to_owned();
        let open = File::options().read(true).write(true).open(root.join("last")).unwrap();
        let mut command = plat(&["resize", "--json"]);
        let mut child =
            command.arg(&root).arg("40M").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        if round < 3 {
            std::thread::sleep(Duration::from_millis(3 + round * 15));
            drop(open);
            mounted.signal(rustix::process::Signal::KILL);
            mounted.wait();
            let _ = child.wait();
            drop(mounted);
            mounted = Mounted::new(&image, &[]).unwrap();
            continue;
        }
        for number in 0..40_u8 {
            fs::write(root.join(format!("while {number}")), vec![number; 100_000]).unwrap();
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(len(&image), 40 * MIB);
        let room = rustix::fs::statvfs(&root).unwrap().f_blocks >> 10;
        assert!(room < 40, "{room}");
    }
    let root = mounted.path();
    assert!(fs::read(root.join("last")).unwrap() == vec![5; 8 << 20]);
    for number in 0..40_u8 {
        assert!(fs::read(root.join(format!("while {number}"))).unwrap() == vec![number; 100_000]);
    }
    // And larger again, which finds nothing of what was there.
    succeed(plat(&["resize"]).arg(root).arg("64M"));
    fs::write(root.join("more"), vec![3; 20 << 20]).unwrap();
    mounted.unmount();
    fsck::assert_clean(&image);
}

/// A full volume, whose files are open: each with room kept ahead, every second one mapped, every third one removed.
#[test]
fn what_is_open_mapped_or_kept_ahead_leaves_the_end_too() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-open-files");
    let image = volume(&scratch);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let root = mounted.path().to_owned();
    let held = full_of_open_files(&root);
    let mapped = |open: &File| Mapping::new(open, 0, HALF, Sharing::Shared).unwrap();
    let mappings: Vec<_> = held.iter().step_by(2).map(mapped).collect();
    mappings.iter().for_each(|mapping| mapping.write(10, b"before"));
    fs::remove_file(root.join("large")).unwrap();
    // The write that found no space is reported once more, to the first sync of all.
    let _ = rustix::fs::syncfs(&held[0]);
    let planned = value(&succeed(plat(&["resize", "-n", "--json"]).arg(&root).arg("52M")).stdout);
    assert!(planned["blocks_moved"].as_u64().unwrap() > 8 << 10, "{planned}");
    succeed(plat(&["resize"]).arg(&root).arg("52M"));
    assert_eq!(len(&image), 52 * MIB);
    mappings.iter().for_each(|mapping| mapping.write(100_000, b"after"));
    drop(mappings);
    let wanted = |number: usize| {
        let mut wanted = vec![u8::try_from(number).unwrap(); HALF];
        if number.is_multiple_of(2) {
            wanted[10..16].copy_from_slice(b"before");
            wanted[100_000..100_005].copy_from_slice(b"after");
        }
        wanted
    };
    for (number, open) in held.iter().enumerate() {
        let mut bytes = vec![0; HALF];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == wanted(number), "{number}");
        assert!(open.metadata().unwrap().blocks() >= (2 * HALF as u64) >> 9, "{number}");
        open.write_all_at(&bytes, HALF as u64).unwrap();
    }
    let count = held.len();
    drop(held);
    mounted.unmount();
    fsck::assert_clean(&image);
    for number in (0..count).filter(|number| number % 3 != 0) {
        let bytes = succeed(plat(&["cat"]).arg(&image).arg(format!("/file {number}"))).stdout;
        assert!(bytes == wanted(number).repeat(2), "{number}");
    }
}

/// Bytes of a file of [`full_of_open_files`], and bytes that are kept ahead of it.
const HALF: usize = 512 << 10;

/// Makes files until there is no space, and removes the name of every third.
fn full_of_open_files(root: &Path) -> Vec<File> {
    let mut held = Vec::new();
    loop {
        let number = held.len();
        let path = root.join(format!("file {number}"));
        let open = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let bytes = vec![u8::try_from(number).unwrap(); HALF];
        // What the kernel keeps has no blocks yet.
        let written = open.write_all_at(&bytes, 0).and_then(|()| open.sync_all());
        let kept = |()| Ok(fallocate(&open, FallocateFlags::KEEP_SIZE, HALF as u64, HALF as u64)?);
        let filled: std::io::Result<()> = written.and_then(kept);
        if filled.is_err() {
            fs::remove_file(path).unwrap();
            return held;
        }
        if number.is_multiple_of(3) {
            fs::remove_file(path).unwrap();
        }
        held.push(open);
    }
}

/// The usual reason to grow: programs met a full volume. What had no room stays their affair.
#[test]
fn a_full_mount_grows_at_once() {
    if !ready("resize") || !have_fuse("resize") {
        return;
    }
    let scratch = Scratch::new("resize-full");
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("64M"));
    let mounted = Mounted::new(&image, &[]).unwrap();
    let piece = vec![7; 1 << 20];
    let mut file = File::create(mounted.path().join("filler")).unwrap();
    while std::io::Write::write_all(&mut file, &piece).is_ok() {}
    let said = text(succeed(plat(&["resize"]).arg(mounted.path()).arg("128M")).stdout);
    assert!(said.contains("128 MiB (before: 64 MiB)"), "{said}");
    fs::write(mounted.path().join("more"), vec![9; 30 << 20]).unwrap();
    drop(file);
    mounted.unmount();
    fsck::assert_clean(&image);
}

/// A partition at the end becomes smaller with its volume, and its disk with it; others stay as they are.
#[test]
fn a_partition_and_its_disk_shrink_with_the_volume() {
    if !ready("resize") || !tool::have_tools("resize", &["sfdisk"]) {
        return;
    }
    let scratch = Scratch::new("resize-partition");
    let content = scratch.join("content");
    fs::write(&content, vec![3; 3 << 20]).unwrap();
    for label in ["dos", "gpt"] {
        let disk = scratch.join(label);
        File::create(&disk).unwrap().set_len(96 * MIB).unwrap();
        let table = format!("label: {label}\nstart=2048,size=16384\nstart=18432,size=172032\n");
        let mut command = Command::new("sfdisk");
        let mut child = command.arg("-q").arg(&disk).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), table.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        let part = |number: u32| PathBuf::from(format!("{}@part{number}", disk.display()));
        for number in [1, 2] {
            succeed(plat(&["mkfs", "-q"]).arg(part(number)));
        }
        succeed(plat(&["put"]).arg(part(2)).arg(&content).arg("/"));
        let before = fs::read(&disk).unwrap();
        let words = ["--min", "--shrink-partition", "--json"];
        let planned = value(&succeed(plat(&["resize", "-n"]).args(words).arg(part(2))).stdout);
        assert!(fs::read(&disk).unwrap() == before, "a plan writes nothing");
        let done = value(&succeed(plat(&["resize"]).args(words).arg(part(2))).stdout);
        for field in ["bytes", "partition_bytes", "disk_bytes"] {
            assert_eq!(done[field], planned[field], "{label}: {field}");
        }
        let ends = ["bytes", "partition_bytes", "disk_bytes"].map(|field| done[field].as_u64().unwrap());
        assert!(ends[0] <= ends[1] && ends[1] < ends[0] + MIB, "{label}: {ends:?}");
        assert_eq!(ends[2], len(&disk));
        assert!(ends[2] <= 18432 * 512 + ends[1] + if label == "gpt" { MIB } else { 0 }, "{label}: {ends:?}");
        // The kernel's tools have nothing to say about the table.
        let verified = Command::new("sfdisk").arg("--verify").arg(&disk).output().unwrap();
        let said = String::from_utf8_lossy(&[verified.stdout, verified.stderr].concat()).into_owned();
        assert!(verified.status.success() && said.contains("No errors"), "{label}: {said}");
        for number in [1, 2] {
            let volume = scratch.join("volume");
            let out = succeed(plat(&["check", "-n"]).arg(part(number))).stdout;
            assert!(!out.is_empty());
            let (start, size) = if number == 1 { (MIB, 8 * MIB) } else { (18432 * 512, ends[0]) };
            let mut bytes = vec![0; usize::try_from(size).unwrap()];
            File::open(&disk).unwrap().read_exact_at(&mut bytes, start).unwrap();
            fs::write(&volume, bytes).unwrap();
            fsck::assert_clean(&volume);
        }
        assert_eq!(succeed(plat(&["cat"]).arg(part(2)).arg("/content")).stdout, vec![3; 3 << 20]);
        // The first one is not the last: its disk stays as long as it is.
        let done = value(&succeed(plat(&["resize"]).args(words).arg(part(1))).stdout);
        assert_eq!(done["disk_bytes"].as_u64(), Some(len(&disk)), "{label}");
        assert!(done["partition_bytes"].as_u64() < Some(8 * MIB), "{label}: {done}");
        assert_eq!(len(&disk), ends[2]);
        succeed(plat(&["check", "-n"]).arg(part(2)));
        // And back, with a longer disk.
        File::options().write(true).open(&disk).unwrap().set_len(120 * MIB).unwrap();
        let words = ["--grow-partition", "--json"];
        let done = value(&succeed(plat(&["resize"]).args(words).arg(part(2))).stdout);
        assert!(done["bytes"].as_u64() > Some(100 * MIB), "{label}: {done}");
        succeed(plat(&["check", "-n"]).arg(part(2)));
    }
    let whole = scratch.join("dos");
    assert_eq!(
        plat(&["resize", "--min", "--shrink-partition"]).arg(&whole).output().unwrap().status.code(),
        Some(2)
    );
}
