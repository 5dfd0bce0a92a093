//! Fast commits that the kernel left: the tree is the one that its mount showed when a sync had returned.

use std::fs::{self, File, OpenOptions as Host};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use platfs::journal;
use platfs::{OpenOptions, Volume};
use testkit::mount::Mounted;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, differences};
use testkit::{fsck, tool};

use super::{Walk, able, copy, device};

/// Volumes of which Linux would write fast commits.
const KINDS: [(&str, &[&str]); 4] = [
    ("4k", &["-b", "4096", "-O", "fast_commit"]),
    ("1k", &["-b", "1024", "-O", "fast_commit,64bit,metadata_csum", "-J", "size=4"]),
    ("clusters", &["-b", "4096", "-C", "16384", "-O", "fast_commit,bigalloc"]),
    ("inline", &["-b", "4096", "-I", "256", "-O", "fast_commit,inline_data,^metadata_csum"]),
];

struct Volumes {
    scratch: Scratch,
    mounted: Mounted,
}

impl Volumes {
    fn new(mke2fs: &[&str]) -> Self {
        let scratch = Scratch::new("fast-commits");
        let image = scratch.join("image");
        let mut make = tool::command("mke2fs");
        tool::run(make.args(["-q", "-F", "-t", "ext4"]).args(mke2fs).arg(&image).arg("48M"));
        // No transaction but those that are asked for.
        let mounted = Mounted::kernel(&image, "loop,rw,acl,user_xattr,commit=3000").unwrap();
        for directory in 0..3 {
            fs::create_dir(mounted.path().join(format!("dir{directory}"))).unwrap();
            for file in 0..10 {
                let path = mounted.path().join(format!("dir{directory}/old-{file}"));
                fs::write(path, vec![file; 3000 * usize::from(file) + 10]).unwrap();
            }
        }
        rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
        Volumes { scratch, mounted }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.mounted.path().join(name)
    }

    /// A copy of the image at a moment at which nothing is written.
    fn copied(&self) -> std::path::PathBuf {
        let (from, to) = (self.scratch.join("image"), self.scratch.join("copy"));
        let mut before = fs::read(&from).unwrap();
        loop {
            let now = fs::read(&from).unwrap();
            if now == before {
                break;
            }
            before = now;
        }
        fs::write(&to, before).unwrap();
        to
    }
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn rules() -> Rules {
    Rules { hole_granularity: 4096, ..Rules::default() }
}

/// Fast commits know no times of directories, and none of a directory that is made later.
fn without_times_of_directories(mut tree: Snapshot) -> Snapshot {
    tree.entries.values_mut().filter(|entry| entry.is_directory()).for_each(|entry| entry.mtime = (0, 0));
    tree
}

fn assert_tree(what: &str, expected: &Snapshot, found: Snapshot) {
    let found = without_times_of_directories(found);
    let differ = differences(&without_times_of_directories(expected.clone()), &found, &rules());
    assert!(differ.is_empty(), "{what}:\n{}", differ.into_iter().take(8).collect::<Vec<_>>().join("\n"));
}

/// Reads an image as it is, then brings it in order: both show the tree, e2fsck has nothing to say, and the kernel
/// shows it too.
fn judge(what: &str, image: &Path, expected: &Snapshot) -> u32 {
    let volume = Volume::open(device(image), &OpenOptions::new()).unwrap();
    let recovery = volume.recovery().unwrap().clone();
    assert_eq!(recovery.missing(), None, "{what}");
    assert_tree(what, expected, Walk::tree(&volume));
    drop(volume);
    journal::replay(&device(image)).unwrap();
    let said = fsck::complaints(image);
    assert!(said.is_empty(), "{what}: {said}");
    let mounted = Mounted::read_only(image).unwrap();
    assert_tree(what, expected, Snapshot::of(mounted.path()).unwrap());
    recovery.fast_commits
}

/// One change after the other, each synced: of names, contents and inodes.
fn work(volumes: &Volumes, random: &mut Random, steps: u64) {
    for step in 0..steps {
        let old = volumes.at(&format!("dir{}/old-{}", random.below(3), random.below(10)));
        let new = volumes.at(&format!("dir{}/new-{}", random.below(3), random.below(6)));
        let len = random.below(30_000);
        let _ = match random.below(10) {
            0..=2 => fs::write(&new, random.bytes(len)),
            3 => fs::remove_file(&new),
            4 => fs::remove_file(&old),
            5 => fs::rename(&old, &new),
            6 => fs::hard_link(&old, &new),
            7 => Host::new().write(true).open(&old).and_then(|file| file.set_len(len)),
            8 => Host::new()
                .write(true)
                .open(&old)
                .and_then(|file| file.write_all_at(&random.bytes(9000), len)),
            _ => fs::create_dir(volumes.at(&format!("dir{}/made-{step}", random.below(3))))
                .and_then(|()| fs::write(volumes.at(&format!("inside-{step}")), b"x")),
        };
        for path in [&old, &new] {
            if path.exists() {
                sync(path);
            }
        }
    }
    let last = volumes.at("last");
    fs::write(&last, b"all before is with it").unwrap();
    sync(&last);
}

fn many(seeds: std::ops::Range<u64>, steps: u64) -> u32 {
    let mut commits = 0;
    for seed in seeds {
        for (name, mke2fs) in KINDS {
            let volumes = Volumes::new(mke2fs);
            work(&volumes, &mut Random(seed), steps);
            let image = volumes.copied();
            let expected = Snapshot::of(volumes.mounted.path()).unwrap();
            commits += judge(&format!("{name}, seed {seed}"), &image, &expected);
        }
    }
    commits
}

#[test]
fn what_was_synced_is_there() {
    if able("fast commits") {
        assert!(many(1..2, 12) > 10);
    }
}

/// `cargo test -p platfs --test all many_fast_commits -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn many_fast_commits() {
    if able("fast commits") {
        println!("{} fast commits", many(2..50, 30));
    }
}

#[test]
fn each_kind_of_record_has_its_effect() {
    if !able("records of fast commits") {
        return;
    }
    let volumes = Volumes::new(KINDS[0].1);
    let at = |name: &str| volumes.at(name);
    fs::write(at("dir0/new"), vec![7; 20_000]).unwrap();
    sync(&at("dir0/new"));
    fs::rename(at("dir0/old-1"), at("dir1/moved")).unwrap();
    fs::remove_file(at("dir1/old-2")).unwrap();
    fs::hard_link(at("dir0/old-3"), at("dir2/linked")).unwrap();
    let file = Host::new().write(true).open(at("dir0/old-9")).unwrap();
    file.set_len(5000).unwrap();
    fs::create_dir(at("dir2/directory")).unwrap();
    fs::write(at("dir2/directory/inside"), b"inside").unwrap();
    symlink("short", at("dir0/link")).unwrap();
    for name in ["dir0/old-9", "dir2/directory/inside"] {
        sync(&at(name));
    }
    let image = volumes.copied();
    let expected = Snapshot::of(volumes.mounted.path()).unwrap();
    assert!(judge("records", &image, &expected) > 0);
}

#[test]
fn a_name_that_was_synced_is_in_what_e2fsck_makes_of_it_too() {
    if !able("fast commits by e2fsck") {
        return;
    }
    let volumes = Volumes::new(KINDS[0].1);
    fs::write(volumes.at("dir0/new"), vec![7; 20_000]).unwrap();
    sync(&volumes.at("dir0/new"));
    let image = volumes.copied();
    let theirs = volumes.scratch.join("theirs");
    copy(&image, &theirs);
    tool::command("e2fsck").args(["-fy"]).arg(&theirs).output().unwrap();
    let expected = Walk::tree(&Volume::open(device(&theirs), &OpenOptions::new()).unwrap());
    assert!(expected.entries.contains_key(&b"dir0/new"[..]));
    assert!(judge("as e2fsck", &image, &expected) > 0);
}
