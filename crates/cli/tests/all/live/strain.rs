//! Work on mounts at odd moments: two at once on one tree, an unmount in between, directories in use, deep trees.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use testkit::fsck::assert_clean;
use testkit::scratch::Scratch;
use testkit::tool;

use super::{PATIENCE, archive_of, begun, contents, have, judge, many, on, volume, whole};
use crate::support::mounted::Mounted;
use crate::support::{fail, plat, succeed};

#[test]
fn works_on_one_tree_at_once_leave_it_sound() {
    let test = "works_on_one_tree_at_once_leave_it_sound";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 12, 80);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let out = scratch.join("out.tar");
    for options in ["rw", "rw,softdep", "rw,async"] {
        let image = volume(&scratch, "-t ext4 -b 4096", "512M");
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        for round in 0..3 {
            fs::create_dir_all(mounted.path().join("sub")).unwrap();
            let mut children: Vec<_> = [
                vec!["import", "-q", "-f", "m:sub", archive.to_str().unwrap()],
                vec!["cp", "-r", "m:sub", &format!("m:copy{round}")],
                vec!["import", "-q", "-f", "m:sub", archive.to_str().unwrap()],
                vec!["export", "m:", out.to_str().unwrap(), "-f"],
                vec!["rm", "-r", "m:sub"],
            ]
            .iter()
            .map(|words| {
                let child = on(&mounted, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                thread::sleep(Duration::from_millis(20));
                child
            })
            .collect();
            // Each may fail over what another did.
            for child in &mut children {
                child.wait().unwrap();
            }
            if out.exists() {
                tool::run(tool::command("tar").arg("-tf").arg(&out));
            }
            let copy = mounted.path().join(format!("copy{round}"));
            if copy.exists() {
                whole(&copy);
            }
            if mounted.path().join("sub").exists() {
                whole(&mounted.path().join("sub"));
                succeed(&mut on(&mounted, &["rm", "-r", "m:sub"]));
            }
        }
        judge(mounted, &image);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn an_unmount_lets_work_end_and_leaves_it_sound() {
    let test = "an_unmount_lets_work_end_and_leaves_it_sound";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 60, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "512M");
    let mut mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let sub = mounted.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let mut child = begun(on(&mounted, &["import", "m:sub"]).arg(&archive), &sub);
    // Its directory is in use: the signal unmounts it as soon as that has ended.
    mounted.signal(rustix::process::Signal::TERM);
    let was_whole = child.wait().unwrap().success();
    mounted.wait();
    drop(mounted);
    assert_clean(&image);
    let again = Mounted::new(&image, &["-o", "ro"]).unwrap();
    let files = whole(&again.path().join("sub"));
    assert!(!was_whole || files == 6000, "{files}");
    again.unmount();
}

#[test]
fn a_directory_in_use_is_empty_and_stays_so() {
    let test = "a_directory_in_use_is_empty_and_stays_so";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    many(mounted.path(), 1, 30);
    let held = File::open(mounted.path().join("d0")).unwrap();
    let file = File::open(mounted.path().join("d0/f0-7")).unwrap();
    succeed(&mut on(&mounted, &["rm", "-r", "m:d0"]));
    assert_eq!(rustix::fs::Dir::read_from(&held).unwrap().count(), 2, "`.` and `..`");
    let make = OFlags::CREATE | OFlags::WRONLY;
    let made = rustix::fs::openat(&held, "new", make, Mode::RWXU);
    assert_eq!(made.err(), Some(rustix::io::Errno::NOENT));
    let made = rustix::fs::mkdirat(&held, "new", Mode::RWXU);
    assert_eq!(made.err(), Some(rustix::io::Errno::NOENT));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut found = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut found).unwrap();
    assert!(found == contents("f0-7"));
    drop((held, file));
    judge(mounted, &image);
}

#[test]
fn files_that_lose_a_name_to_new_ones_are_known_to() {
    let test = "files_that_lose_a_name_to_new_ones_are_known_to";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 1, 3);
    // One that is too large for one update.
    fs::write(tree.join("d0/large"), vec![7; 3 << 20]).unwrap();
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let at = |name: &str| mounted.path().join(name);
    fs::create_dir(at("d0")).unwrap();
    for (name, other) in [("d0/f0-1", "small"), ("d0/large", "other")] {
        fs::write(at(name), "old").unwrap();
        fs::hard_link(at(name), at(other)).unwrap();
        assert_eq!(fs::metadata(at(other)).unwrap().nlink(), 2);
    }
    fs::write(at("d0/f0-2"), "old").unwrap();
    let open = File::open(at("d0/f0-2")).unwrap();
    let said = fail(on(&mounted, &["import", "-q", "m:"]).arg(&archive));
    assert!(said.contains("exists; --force"), "{said}");
    succeed(on(&mounted, &["import", "-q", "-f", "m:"]).arg(&archive));
    for other in ["small", "other"] {
        assert_eq!(fs::metadata(at(other)).unwrap().nlink(), 1, "{other}");
        assert_eq!(fs::read(at(other)).unwrap(), b"old");
    }
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert!(fs::read(at("d0/large")).unwrap() == vec![7; 3 << 20]);
    assert!(fs::read(at("d0/f0-1")).unwrap() == contents("f0-1"));
    let names: Vec<_> = fs::read_dir(at("d0")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    drop(open);
    judge(mounted, &image);
}

#[test]
fn trees_deeper_than_any_path_go() {
    const DEPTH: usize = 5000;
    let test = "trees_deeper_than_any_path_go";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, "-t ext4 -b 4096 -N 20000", "256M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let name = "n".repeat(200);
    let open = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(mounted.path(), open, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&here, &*name, Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, &*name, open, Mode::empty()).unwrap();
    }
    drop(here);
    let said = plat(&["rm", "-r", "--json"]).arg(mounted.path().join(&name)).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && text.contains(&DEPTH.to_string()), "{said:?}");
    judge(mounted, &image);
}

/// How long the slowest of a program's own small requests takes while work goes on, and how many there are.
fn beside(root: &Path, mut is_over: impl FnMut() -> bool) -> (Duration, u32) {
    let (mut slowest, mut count) = (Duration::ZERO, 0);
    while !is_over() {
        let begun = Instant::now();
        fs::create_dir(root.join("mine")).unwrap();
        fs::remove_dir(root.join("mine")).unwrap();
        slowest = slowest.max(begun.elapsed());
        count += 1;
    }
    (slowest, count)
}

#[test]
fn requests_of_others_are_not_kept_waiting() {
    let test = "requests_of_others_are_not_kept_waiting";
    if !have(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    many(&tree, 60, 100);
    let archive = archive_of(&scratch, &tree, "tree.tar");
    let image = volume(&scratch, "-t ext4 -b 4096", "1G");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    fs::create_dir(mounted.path().join("sub")).unwrap();
    for words in [
        ["import", "-q", "m:sub", archive.to_str().unwrap()],
        ["cp", "-r", "m:sub", "m:copy"],
        ["rm", "-r", "m:sub", "m:copy"],
    ] {
        let mut child = on(&mounted, &words).spawn().unwrap();
        let mut ended = None;
        let (slowest, count) = beside(mounted.path(), || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success());
        eprintln!("{}: {count} beside it, the slowest took {slowest:?}", words[0]);
        assert!(count >= 5, "{}: {count} requests beside it, the slowest {slowest:?}", words[0]);
        assert!(slowest < PATIENCE / 6, "{}: {slowest:?}", words[0]);
    }
    judge(mounted, &image);
}
