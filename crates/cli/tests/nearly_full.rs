//! A volume that gets full under a writer: `write` itself says so, within 8 MiB, with the kernel's writeback cache, on each transport, for
//! reserved blocks too, and to programs that look at no other call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use rustix::fs;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;
use support::mounted::{Mounted, have_fuse};
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// What docs/mount.md promises.
const AHEAD: u64 = 8 << 20;
/// What it promises of each further program that writes at the same time.
const BESIDE: u64 = 1 << 20;
/// Size of the volumes.
const SIZE: u64 = 128 << 20;
/// A user without rights, whom fusermount3 can find by name (`nobody`).
const USER: u32 = 65534;

const TRANSPORTS: [&str; 2] = ["device", "uring"];

fn ready(test: &str) -> bool {
    tool::have_root(test) && have_fuse(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "dd"])
}

/// An empty volume with a part of it reserved, mounted for all.
fn mounted(scratch: &Scratch, reserved: &str, options: &str) -> (std::path::PathBuf, Mounted) {
    let image = scratch.join(format!("image-{options}-{reserved}"));
    let size = format!("{}K", SIZE >> 10);
    tool::run(tool::command("mke2fs").args(["-q", "-F", "-t", "ext4", "-m", reserved]).arg(&image).arg(size));
    let options = format!("rw,allow_other,{options}");
    let mounted = Mounted::new(&image, &["-o", &options]).unwrap();
    std::fs::set_permissions(mounted.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    (image, mounted)
}

/// Bytes of room for everybody and for root. What is deleted is free once it is stable.
fn room(root: &Path) -> (u64, u64) {
    File::open(root).unwrap().sync_all().unwrap();
    let found = fs::statvfs(root).unwrap();
    (found.f_bavail * found.f_frsize, found.f_bfree * found.f_frsize)
}

fn end(image: &Path, mounted: Mounted) {
    mounted.unmount();
    fsck::assert_clean(image);
}

/// Runs dd until it fails; what it said. One that goes on for long is stopped.
fn dd(target: &Path, piece: &str, user: u32) -> String {
    let mut command = tool::command("timeout");
    command.args(["60", "dd", "if=/dev/zero", &format!("bs={piece}")]);
    let output = command.arg(format!("of={}", target.display())).uid(user).gid(user).output().unwrap();
    assert_ne!(output.status.code(), Some(124), "dd never heard of it");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn dd_is_reported_within_the_bound() {
    let test = "dd_is_reported_within_the_bound";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    for transport in TRANSPORTS {
        for (reserved, user) in [("0", 0), ("20", 0), ("20", USER)] {
            let (image, mounted) = mounted(&scratch, reserved, &format!("transport={transport}"));
            for piece in ["512", "4k", "1M"] {
                let target = mounted.path().join("target");
                let (ordinary, all) = room(mounted.path());
                let room = if user == 0 { all } else { ordinary };
                let said = dd(&target, piece, user);
                let accepted = std::fs::metadata(&target).unwrap().len();
                println!("{transport} -m {reserved} user {user} bs={piece}: {room} there, {accepted} taken");
                assert!(said.contains("error writing"), "{said}");
                assert!(accepted <= room + AHEAD, "{accepted} bytes were taken, with room for {room}");
                // Maps and the kernel's reserve take some; the rest was filled.
                assert!(accepted >= room - room / 8, "{accepted} bytes were taken, with room for {room}");
                std::fs::remove_file(&target).unwrap();
            }
            end(&image, mounted);
        }
    }
}

/// Bytes of written pages that the kernel lets all disks have.
fn most_held() -> u64 {
    let counts = std::fs::read_to_string("/proc/vmstat").unwrap();
    let pages = counts.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold ")).unwrap();
    pages.parse::<u64>().unwrap() * 4096
}

#[test]
fn dd_of_a_user_who_mounts_is_reported_within_a_part_of_memory() {
    let test = "dd_of_a_user_who_mounts_is_reported_within_a_part_of_memory";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = scratch.join("image");
    let size = format!("{}K", SIZE >> 10);
    let owner = format!("root_owner={USER}:{USER}");
    let mut make = tool::command("mke2fs");
    tool::run(make.args(["-q", "-F", "-t", "ext4", "-m", "0", "-E", &owner]).arg(&image).arg(size));
    std::os::unix::fs::chown(&image, Some(USER), Some(USER)).unwrap();
    let mounted = match Mounted::by_user(USER, &image, &["-o", "rw"]) {
        Ok(mounted) => mounted,
        Err(why) => return tool::skip(test, &format!("a user can't mount here: {why}")),
    };
    let target = mounted.path().join("target");
    let said = dd(&target, "1M", USER);
    assert!(said.contains("error writing"), "{said}");
    // Only the user may look.
    let stat = tool::command("stat").args(["-c", "%s"]).arg(&target).uid(USER).gid(USER).output().unwrap();
    let taken: u64 = String::from_utf8(stat.stdout).unwrap().trim().parse().unwrap();
    let bound = most_held() / 100 + AHEAD;
    println!("{taken} bytes taken by a volume of {SIZE}, bound {bound}");
    assert!(taken <= SIZE + bound, "{taken} bytes were taken");
    mounted.unmount();
    fsck::assert_clean(&image);
}

/// Writes files of `len` bytes, each at once, and does not look at the result of closing them, until a call fails; the bytes that were
/// taken while the volume had no room for one more file.
fn lost_until_reported(root: &Path, len: usize, reuse: bool) -> (u64, io::Error) {
    let bytes = vec![7; len];
    let mut lost = 0;
    for number in 0.. {
        let found = fs::statvfs(root).unwrap();
        let is_full = found.f_bfree * found.f_frsize < len as u64;
        let name =
            root.join(if reuse { format!("empty-{}", number % 2000) } else { format!("new-{number}") });
        let written = OpenOptions::new().write(true).create(!reuse).truncate(reuse).open(name);
        match written.and_then(|mut file| file.write_all(&bytes)) {
            Ok(()) if is_full => lost += len as u64,
            Ok(()) => {}
            Err(error) => return (lost, error),
        }
        assert!(lost <= 10 * AHEAD, "never reported");
    }
    unreachable!()
}

#[test]
fn a_program_that_ignores_close_is_reported_within_the_bound() {
    let test = "a_program_that_ignores_close_is_reported_within_the_bound";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    for transport in TRANSPORTS {
        let (image, mounted) = mounted(&scratch, "0", &format!("transport={transport}"));
        let root = mounted.path();
        for number in 0..2000 {
            File::create(root.join(format!("empty-{number}"))).unwrap();
        }
        let fill = File::create(root.join("fill")).unwrap();
        fs::fallocate(&fill, fs::FallocateFlags::empty(), 0, room(root).1 - (6 << 20)).unwrap();
        for reuse in [true, false] {
            for len in [20_000, 200_000] {
                let (lost, error) = lost_until_reported(root, len, reuse);
                println!("{transport}: {lost} bytes were taken before `{error}`");
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                assert!(lost <= AHEAD, "{lost} bytes were taken without room");
            }
        }
        drop(fill);
        end(&image, mounted);
    }
}

#[test]
fn writers_side_by_side_are_told_within_the_bound() {
    let test = "writers_side_by_side_are_told_within_the_bound";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    for transport in TRANSPORTS {
        let (image, mounted) = mounted(&scratch, "0", &format!("transport={transport}"));
        let there = room(mounted.path()).1;
        let write = &|number: usize| {
            let mut file = File::create(mounted.path().join(format!("file-{number}"))).unwrap();
            let mut taken = 0;
            while taken < 2 * SIZE {
                match file.write(&[7; 65_536]) {
                    Ok(count) => taken += count as u64,
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                        break;
                    }
                }
            }
            taken
        };
        let taken: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..16).map(|number| scope.spawn(move || write(number))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        println!("{transport}: room for {there}, 16 writers, {taken} taken");
        assert!(taken <= there + AHEAD + 16 * BESIDE, "{taken} bytes were taken, with room for {there}");
        end(&image, mounted);
    }
}

#[test]
fn what_needs_no_room_goes_on() {
    let test = "what_needs_no_room_goes_on";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, mounted) = mounted(&scratch, "0", "relatime");
    let root = mounted.path();
    let kept = File::create(root.join("kept")).unwrap();
    kept.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    kept.sync_all().unwrap();
    let said = dd(&root.join("target"), "64k", 0);
    assert!(said.contains("error writing"), "{said}");
    lost_until_reported(root, 100_000, false);
    for piece in 0..256_u32 {
        kept.write_all_at(&[2; 4096], u64::from(piece) * 4096).unwrap();
    }
    kept.sync_all().unwrap();
    let again = OpenOptions::new().write(true).open(root.join("kept")).unwrap();
    again.write_all_at(&[3; 4096], 0).unwrap();
    again.sync_all().unwrap();
    drop((kept, again));
    // With room again the past is not reported.
    std::fs::remove_file(root.join("target")).unwrap();
    File::open(root).unwrap().sync_all().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..100 {
        std::fs::write(root.join(format!("later-{number}")), [4; 50_000]).unwrap();
    }
    let found = std::fs::read(root.join("kept")).unwrap();
    assert!(found[..4096] == [3; 4096] && found[4096..].iter().all(|byte| *byte == 2));
    end(&image, mounted);
}

#[test]
fn a_file_that_was_open_all_the_time_is_reported_too() {
    let test = "a_file_that_was_open_all_the_time_is_reported_too";
    if !ready(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let (image, mounted) = mounted(&scratch, "0", "relatime");
    let root = mounted.path();
    let log = File::create(root.join("log")).unwrap();
    let fill = File::create(root.join("fill")).unwrap();
    fs::fallocate(&fill, fs::FallocateFlags::empty(), 0, room(root).1 - (64 << 10)).unwrap();
    let (mut taken, mut at) = (0, 0);
    let error = loop {
        match log.write_at(&[5; 30_000], at) {
            Ok(count) => (taken, at) = (taken + count as u64, at + count as u64),
            Err(error) => break error,
        }
        assert!(taken <= 10 * AHEAD, "never reported");
    };
    println!("{taken} bytes were taken before `{error}`");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    assert!(taken <= AHEAD, "{taken} bytes were taken without room");
    drop((log, fill));
    end(&image, mounted);
}
