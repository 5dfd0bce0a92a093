//! A volume that fills up: eight threads write until nothing more fits, half of it goes, they write again. Every byte whose write and sync
//! were answered with success must be there; the last block can be had, and one more can't; `statfs` reports
//! what dumpe2fs finds afterwards.

use crate::support::mounted::have_fuse;
use crate::support::volumes::{AT_ONCE, EXTENTS, POINTERS, Profile, SMALL_DELAYED, View, Who};
use rustix::fs::{self, Mode, OFlags as O};
use rustix::io::{self, Errno};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, mount, tool};

const THREADS: u64 = 8;
/// Size of the volumes.
const SIZE: &str = "40M";
/// Empty files that are there from the start: a block for one of these needs no other block.
const SPARES: u64 = 48;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A file, and how much of it was promised: it is made of bytes that follow from its seed.
struct Promised {
    path: PathBuf,
    seed: u64,
    len: u64,
}

impl Promised {
    fn bytes(&self) -> Vec<u8> {
        Random(self.seed).bytes(self.len)
    }

    /// Returns the fault, if it has one.
    fn wrong(&self) -> Option<String> {
        let found = match std::fs::read(&self.path) {
            Ok(found) => found,
            Err(error) => return Some(format!("{}: {error}", self.path.display())),
        };
        let expected = self.bytes();
        let kept = found.len().min(expected.len());
        let first = (0..kept).find(|at| found[*at] != expected[*at]);
        let right = first.is_none() && found.len() >= expected.len();
        (!right).then(|| {
            format!(
                "{}: {} bytes of {}, wrong from {first:?}",
                self.path.display(),
                found.len(),
                expected.len()
            )
        })
    }
}

/// Answers that were seen, for the test's output.
#[derive(Default)]
struct Counts {
    files: AtomicU64,
    full_at_write: AtomicU64,
    full_at_sync: AtomicU64,
}

/// Writes one file of at most `most` bytes and syncs it; what of it was promised, and whether the volume was full.
fn write_one(
    path: &Path,
    random: &mut Random,
    most: u64,
    counts: &Counts,
) -> Result<(Promised, bool), Errno> {
    let seed = random.next();
    let mut promised = Promised { path: path.to_owned(), seed, len: 0 };
    let bytes = Random(seed).bytes(1 + random.below(most));
    let fd = fs::open(path, O::WRONLY | O::CLOEXEC | O::CREATE | O::EXCL, Mode::from_raw_mode(0o644))?;
    let mut at = 0;
    let mut full = false;
    while at < bytes.len() && !full {
        let end = (at + 1 + random.below(40_000) as usize).min(bytes.len());
        match io::pwrite(&fd, &bytes[at..end], at as u64) {
            Ok(count) => at += count,
            Err(Errno::NOSPC) => {
                counts.full_at_write.fetch_add(1, Ordering::Relaxed);
                full = true;
            }
            Err(error) => return Err(error),
        }
    }
    match fs::fsync(&fd) {
        Ok(()) => promised.len = at as u64,
        Err(Errno::NOSPC) => {
            counts.full_at_sync.fetch_add(1, Ordering::Relaxed);
            full = true;
        }
        Err(error) => return Err(error),
    }
    counts.files.fetch_add(1, Ordering::Relaxed);
    Ok((promised, full))
}

/// One thread fills until small files do not fit either.
fn fill(root: &Path, mut random: Random, name: &str, counts: &Counts) -> Vec<Promised> {
    let mut kept = Vec::new();
    let mut most = 400_000;
    for number in 0.. {
        let path = root.join(format!("{name}-{number}"));
        match write_one(&path, &mut random, most, counts) {
            Ok((promised, full)) => {
                kept.push(promised);
                if full && most <= 4096 {
                    break;
                }
                most = if full { most / 4 } else { most };
            }
            // No block for the directory, or no inode.
            Err(Errno::NOSPC) => break,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    kept
}

fn free(root: &Path) -> u64 {
    // Where a mount's pages are written back late, this is when it is reported that they found no room.
    let fd = fs::open(root, O::RDONLY | O::CLOEXEC, Mode::empty()).unwrap();
    let synced = fs::syncfs(&fd);
    assert!(matches!(synced, Ok(()) | Err(Errno::NOSPC)), "{synced:?}");
    // Through FUSE that one does not reach the server: what was freed is free once its change is stable.
    fs::fsync(&fd).unwrap();
    fs::statvfs(root).unwrap().f_bfree
}

/// Gives single blocks to empty files: each takes one, until there is none.
fn take_the_last(root: &Path, exact: bool) {
    let block = fs::statvfs(root).unwrap().f_frsize as usize;
    let many = free(root).saturating_sub(SPARES / 2) as usize;
    if many > 0 {
        let fd = fs::open(root.join("spare-0"), O::WRONLY | O::CLOEXEC, Mode::empty()).unwrap();
        let filled = io::pwrite(&fd, &vec![2; many * block], 0).and_then(|_| fs::fsync(&fd));
        assert!(!exact || filled.is_ok(), "{many} blocks that are free: {filled:?}");
    }
    let mut left = free(root);
    let mut refused = false;
    for spare in 1..SPARES {
        let fd =
            fs::open(root.join(format!("spare-{spare}")), O::WRONLY | O::CLOEXEC, Mode::empty()).unwrap();
        let written = io::pwrite(&fd, &vec![1; block], 0);
        let done = written.and_then(|_| fs::fsync(&fd));
        let now = free(root);
        match done {
            Ok(()) => assert!(!exact || now + 1 == left, "one block was taken: {left} were free, {now} are"),
            Err(Errno::NOSPC) => {
                assert!(!exact || left == 0, "ENOSPC with {left} blocks free");
                assert_eq!(now, left, "a write that failed took room");
                refused = true;
                break;
            }
            Err(error) => panic!("{error}"),
        }
        left = now;
    }
    assert!(refused, "{SPARES} more blocks, and still {left} free");
}

fn empty_spares(root: &Path) {
    for spare in 0..SPARES {
        let path = root.join(format!("spare-{spare}"));
        let fd = fs::open(path, O::WRONLY | O::CLOEXEC | O::CREATE, Mode::from_raw_mode(0o644)).unwrap();
        fs::ftruncate(&fd, 0).unwrap();
    }
}

fn check_all(kept: &[Promised]) {
    let wrong: Vec<String> = kept.iter().filter_map(Promised::wrong).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} files: {:#?}",
        wrong.len(),
        kept.len(),
        &wrong[..wrong.len().min(10)]
    );
}

fn rounds(root: &Path, seed: u64, rounds: u64, exact: bool) -> Vec<Promised> {
    let mut random = Random(seed);
    let mut kept: Vec<Promised> = Vec::new();
    let counts = Counts::default();
    for round in 0..rounds {
        empty_spares(root);
        let more = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (random, more, counts) = (Random(random.next()), &more, &counts);
                scope.spawn(move || {
                    let made = fill(root, random, &format!("r{round}-t{number}"), counts);
                    more.lock().unwrap().extend(made);
                });
            }
        });
        kept.extend(more.into_inner().unwrap());
        let left = free(root);
        take_the_last(root, exact);
        check_all(&kept);
        println!("round {round}: {} files, {left} blocks left over by the threads", kept.len());
        if round + 1 < rounds {
            kept.retain(|file| {
                let stays = random.one_in(2);
                if !stays {
                    fs::unlink(&file.path).unwrap();
                }
                stays
            });
        }
    }
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (files, write, sync) = (of(&counts.files), of(&counts.full_at_write), of(&counts.full_at_sync));
    println!("{files} files written; full at a write {write} times, at a sync {sync} times");
    kept
}

/// `is_exact` where the last block can be had: the kernel keeps some clusters back for itself, and where it takes bytes
/// into its pages, a map of pointers is promised what it may need at most.
fn run(test: &str, profile: &Profile, who: Who, is_exact: bool, count: u64) {
    let ready = tool::have_root(test) && tool::have_tools(test, &["mke2fs", "e2fsck", "dumpe2fs"]);
    if !ready || !mount::have_loop_mount(test) || (who.is_ours() && !have_fuse(test)) {
        return;
    }
    let seed = number("PLATFS_SEED").unwrap_or(1);
    println!("PLATFS_SEED={seed} profile {} of {who:?}", profile.name);
    let scratch = Scratch::new(test);
    let image = profile.make(&scratch, "image", SIZE);
    let view = View::new(who, &image, profile.options);
    let kept = rounds(view.path(), seed, count, is_exact);
    let stated = (free(view.path()), fs::statvfs(view.path()).unwrap().f_ffree);
    let root = view.path().to_owned();
    view.end();
    let field = |name| tool::dumpe2fs_field(&image, name).unwrap().parse::<u64>().unwrap();
    assert_eq!(
        stated,
        (field("Free blocks"), field("Free inodes")),
        "blocks and inodes by statfs and by dumpe2fs"
    );
    if who.is_ours() {
        // No tree is compared: a file that lost its pages keeps its size in the kernel's memory until that is given up.
        fsck::assert_clean(&image);
    }
    let after = mount::Mounted::read_only(&image).unwrap();
    let moved = kept.into_iter().map(|file| {
        let path = after.path().join(file.path.strip_prefix(&root).unwrap());
        Promised { path, ..file }
    });
    check_all(&moved.collect::<Vec<_>>());
}

/// A mount as volumes of this size have it by default.
const OURS: Who = Who::PlatIn("allow_other,nowriteback_cache");

#[test]
fn the_kernel_keeps_what_it_promised() {
    run("the_kernel_keeps_what_it_promised", &EXTENTS, Who::Kernel, false, 2);
}

#[test]
fn extents() {
    run("extents", &EXTENTS, OURS, true, 3);
}

#[test]
fn at_once() {
    run("at_once", &AT_ONCE, OURS, true, 3);
}

#[test]
fn small_delayed() {
    run("small_delayed", &SMALL_DELAYED, OURS, true, 2);
}

#[test]
fn pointers() {
    run("pointers", &POINTERS, OURS, true, 2);
}

#[test]
fn own_permissions_by_device() {
    let who = Who::PlatIn("own_permissions,transport=device,nowriteback_cache");
    run("own_permissions_by_device", &EXTENTS, who, true, 2);
}

/// As large volumes are mounted by default: the kernel takes bytes into its pages, and asks before.
#[test]
fn with_the_kernels_cache() {
    run("with_the_kernels_cache", &EXTENTS, Who::Plat, true, 2);
    run("with_the_kernels_cache", &SMALL_DELAYED, Who::Plat, true, 2);
    run("with_the_kernels_cache", &POINTERS, Who::Plat, false, 1);
}

/// `cargo test --release -p platfs-cli --test all full:: -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn fifty_rounds() {
    for profile in [EXTENTS, SMALL_DELAYED] {
        for who in [OURS, Who::Plat] {
            run("fifty_rounds", &profile, who, true, 50);
        }
    }
}
