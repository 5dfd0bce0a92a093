//! Listings of a directory in a mount, by small pieces, while others add and remove names: names that are there all the
//! time come once, on both transports, also from a place that was noted before the directory was opened again, or the
//! volume mounted again.

use crate::support::mounted::{Mounted, have_fuse};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, SeekFrom};
use std::collections::BTreeSet;
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

/// Names that stay.
const STAY: usize = 1500;

fn plat(arguments: &[&str]) {
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_plat")).args(arguments).output().unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
}

fn opened(directory: &Path) -> OwnedFd {
    fs::open(directory, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
}

/// The next few names, and the place behind them; none at the end.
fn few(directory: &OwnedFd) -> Option<(Vec<String>, u64)> {
    let mut room = [MaybeUninit::uninit(); 512];
    let mut list = fs::RawDir::new(directory, &mut room);
    let (mut names, mut place) = (Vec::new(), None);
    while let Some(entry) = list.next() {
        let entry = entry.unwrap();
        names.push(entry.file_name().to_string_lossy().into_owned());
        place = Some(entry.next_entry_cookie());
        if list.is_buffer_empty() {
            break;
        }
    }
    place.map(|place| (names, place))
}

/// All names, each piece from a directory that was just opened and set to the place behind the last.
fn listed(directory: &Path, reopens: bool, mut between: impl FnMut()) -> Vec<String> {
    let (mut all, mut fd) = (Vec::new(), opened(directory));
    while let Some((names, place)) = few(&fd) {
        all.extend(names);
        between();
        if reopens {
            fd = opened(directory);
            fs::seek(&fd, SeekFrom::Start(place)).unwrap();
        }
    }
    all
}

fn judge(mut all: Vec<String>, what: &str) {
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "{what}: a name came twice");
    let stayed = all.iter().filter(|name| name.starts_with("stays")).count();
    assert_eq!(stayed, STAY, "{what}: names are missing");
}

fn made(scratch: &Scratch, features: &str) -> PathBuf {
    let image = scratch.join("image");
    plat(&["mkfs", "-q", "-b", "1024", "-O", features, &image.to_string_lossy(), "64M"]);
    image
}

/// A few clients that add, rename and remove names, in waves, so that leaves split and empty.
fn change(directory: &Path, client: usize, ends: &AtomicBool) {
    let path = |kind: &str, number: usize| directory.join(format!("{kind}-{client}-{number:0>40}"));
    for wave in 0.. {
        for number in 0..300 {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            let number = wave * 300 + number;
            File::create(path("comes", number)).unwrap();
            if number % 3 == 0 {
                std::fs::rename(path("comes", number), path("moves", number)).unwrap();
            }
        }
        for number in (0..300).rev() {
            let number = wave * 300 + number;
            let kind = if number % 3 == 0 { "moves" } else { "comes" };
            std::fs::remove_file(path(kind, number)).unwrap();
        }
    }
}

fn while_others_change(test: &str, options: &str, reopens: bool) {
    if !have_fuse(test) || !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = made(&scratch, "dir_index");
    let mounted = Mounted::new(&image, &["-o", options]).unwrap();
    let directory = mounted.path().join("d");
    std::fs::create_dir(&directory).unwrap();
    (0..STAY).for_each(|number| drop(File::create(directory.join(format!("stays-{number:05}"))).unwrap()));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..3 {
            let (directory, ends) = (&directory, &ends);
            scope.spawn(move || change(directory, client, ends));
        }
        let lists = (0..6).map(|_| listed(&directory, reopens, thread::yield_now)).collect::<Vec<_>>();
        ends.store(true, Ordering::Relaxed);
        lists.into_iter().for_each(|all| judge(all, options));
    });
    mounted.unmount();
    fsck::assert_clean(&image);
}

#[test]
fn names_come_once_while_others_change_by_ring() {
    while_others_change("names_come_once_while_others_change_by_ring", "transport=uring", false);
}

#[test]
fn names_come_once_while_others_change_by_device() {
    while_others_change("names_come_once_while_others_change_by_device", "transport=device", false);
}

#[test]
fn places_are_those_of_the_directory_not_of_the_descriptor() {
    let test = "places_are_those_of_the_directory_not_of_the_descriptor";
    while_others_change(test, "transport=device", true);
}

/// From one block to an index, which then grows: every file comes once in each listing that began before.
#[test]
fn names_come_once_while_a_directory_gets_an_index() {
    let test = "names_come_once_while_a_directory_gets_an_index";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let mounted = Mounted::new(&made(&scratch, "dir_index"), &[]).unwrap();
    let names = |count: usize| (0..count).map(|number| format!("name-{number:05}")).collect::<BTreeSet<_>>();
    for first in [1, 10, 30, 45] {
        let directory = mounted.path().join(format!("d{first}"));
        std::fs::create_dir(&directory).unwrap();
        let create = |name: &String| drop(File::create(directory.join(name)).unwrap());
        names(first).iter().for_each(create);
        let mut next = first;
        let all = listed(&directory, false, || {
            (next..next + 40).for_each(|number| create(&format!("name-{number:05}")));
            next += 40;
        });
        let once: BTreeSet<_> = all.iter().cloned().collect();
        assert_eq!(once.len(), all.len(), "of {first}: a name came twice");
        assert!(names(first).is_subset(&once), "of {first}: names are missing");
    }
    mounted.unmount();
}

/// A place that was noted is still the same after the volume was mounted again, and other blocks have the names.
#[test]
fn places_outlive_the_mount() {
    let test = "places_outlive_the_mount";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = made(&scratch, "dir_index");
    let mounted = Mounted::new(&image, &[]).unwrap();
    let directory = mounted.path().join("d");
    std::fs::create_dir(&directory).unwrap();
    (0..STAY).for_each(|number| drop(File::create(directory.join(format!("stays-{number:05}"))).unwrap()));
    let fd = opened(&directory);
    let (mut all, mut place) = (Vec::new(), 0);
    while all.len() < STAY / 2 {
        let (names, behind) = few(&fd).unwrap();
        all.extend(names);
        place = behind;
    }
    drop(fd);
    mounted.unmount();
    let mounted = Mounted::new(&image, &[]).unwrap();
    let directory = mounted.path().join("d");
    (0..STAY).for_each(|number| drop(File::create(directory.join(format!("new-{number:05}"))).unwrap()));
    let fd = opened(&directory);
    fs::seek(&fd, SeekFrom::Start(place)).unwrap();
    while let Some((names, _)) = few(&fd) {
        all.extend(names);
    }
    judge(all, "mounted again");
    drop(fd);
    mounted.unmount();
}
