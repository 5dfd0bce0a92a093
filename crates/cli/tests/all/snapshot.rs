//! `plat snapshot`: of images, and of mounts while programs write.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use testkit::fsck::{assert_clean, complaints};
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::tool;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn volume(scratch: &Scratch, options: &[&str], size: &str) -> PathBuf {
    let image = scratch.join("disk.img");
    succeed(plat(&["mkfs"]).args(options).arg(&image).arg(size));
    image
}

/// Has replay brought in by e2fsck, and asserts that nothing else is wrong.
fn replayed(image: &Path) {
    let said = tool::command("e2fsck").args(["-p", "-E", "journal_only"]).arg(image).output().unwrap();
    assert!(said.status.code().is_some_and(|code| code <= 1), "{said:?}");
    assert_clean(image);
}

/// Programs that write, sync and remove until they are asked to stop.
fn load(place: &Path, writer: u64, stop: &AtomicBool, written: &AtomicU64) {
    let own = place.join(format!("writer {writer}"));
    fs::create_dir_all(&own).unwrap();
    let mut round = writer;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let path = own.join(format!("{}", round % 40));
        let len = 1000 + usize::try_from(round * 7919 % 300_000).unwrap();
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![round.to_le_bytes()[0]; len]).unwrap();
        if round.is_multiple_of(5) {
            file.sync_all().unwrap();
        }
        if round.is_multiple_of(7) {
            fs::remove_file(&path).unwrap();
        }
        if round.is_multiple_of(11) {
            let _ = fs::rename(own.join("3"), own.join(format!("moved {}", round % 5)));
        }
        written.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// How much was written in how long.
#[derive(Default)]
struct Speed {
    bytes: u64,
    time: Duration,
}

impl Speed {
    fn count(&mut self, written: &AtomicU64, work: impl FnOnce()) {
        let (before, begun) = (written.load(Ordering::Relaxed), Instant::now());
        work();
        self.bytes += written.load(Ordering::Relaxed) - before;
        self.time += begun.elapsed();
    }

    /// Megabytes in a second.
    fn of(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let bytes = self.bytes as f64;
        bytes / 1e6 / self.time.as_secs_f64()
    }
}

fn under_load(test: &str, rounds: u32) {
    if !have_fuse(test) || !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    for options in [&["-b", "4096"][..], &["-b", "1024"]] {
        let scratch = Scratch::new(test);
        let image = volume(&scratch, options, "512M");
        let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut meanwhile, mut alone) = (Speed::default(), Speed::default());
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (place, stop, written) = (mounted.path(), &stop, &written);
                scope.spawn(move || load(place, writer, stop, written));
            }
            for round in 0..rounds {
                let kept = mounted.path().join(format!("kept {round}"));
                fs::write(&kept, vec![round.to_le_bytes()[0]; 200_000]).unwrap();
                File::open(&kept).unwrap().sync_all().unwrap();
                let out = scratch.join("snapshot.img");
                meanwhile.count(&written, || {
                    succeed(&mut plat(&["snapshot", "--force", text(mounted.path()), text(&out)]));
                });
                replayed(&out);
                alone.count(&written, || {
                    succeed(&mut plat(&["sync", text(mounted.path())]));
                });
                for round in 0..=round {
                    let found = succeed(&mut plat(&["cat", text(&out), &format!("/kept {round}")])).stdout;
                    assert!(found == vec![round.to_le_bytes()[0]; 200_000], "{options:?}: round {round}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!(
            "{options:?}: {:.1} MB/s while a snapshot is taken, {:.1} MB/s while all is synced",
            meanwhile.of(),
            alone.of()
        );
        mounted.unmount();
        assert_clean(&image);
    }
}

#[test]
fn snapshots_under_load_are_sound_and_hold_what_was_synced() {
    under_load("snapshots_under_load_are_sound_and_hold_what_was_synced", 3);
}

#[test]
#[ignore = "fifty rounds of two volumes take minutes; docs/testing.md"]
fn fifty_snapshots_under_load() {
    under_load("fifty_snapshots_under_load", 50);
}

#[test]
fn a_snapshot_of_an_image_is_that_image() {
    let test = "a_snapshot_of_an_image_is_that_image";
    if !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    for options in
        [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"], &["-b", "4096", "-O", "bigalloc", "-C", "64K"]]
    {
        let scratch = Scratch::new(test);
        let image = volume(&scratch, options, "1G");
        let tree = scratch.join("tree");
        fs::create_dir_all(tree.join("directory")).unwrap();
        fs::write(tree.join("directory/file"), vec![5; 3_000_000]).unwrap();
        succeed(&mut plat(&["put", "-r", text(&image), text(&tree), "/"]));
        let out = scratch.join("out.img");
        succeed(&mut plat(&["snapshot", text(&image), text(&out)]));
        assert_eq!(complaints(&out), complaints(&image), "{options:?}");
        assert_eq!(fs::metadata(&out).unwrap().len(), 1 << 30);
        assert!(fs::metadata(&out).unwrap().blocks() << 9 < 100 << 20, "only what is in use");
        let exported = |image: &Path, name: &str| {
            let place = scratch.join(name);
            succeed(&mut plat(&["export", text(image), text(&place)]));
            place
        };
        let (one, other) = (exported(&image, "one"), exported(&out, "other"));
        let seen = |place: &Path| Snapshot::of(place).unwrap();
        assert_same(&seen(&one), &seen(&other), &Rules::default());
        let again = fail(&mut plat(&["snapshot", text(&image), text(&out)]));
        assert!(again.contains("exists"), "{again}");
    }
}

#[test]
fn what_can_not_be_taken_leaves_nothing() {
    let test = "what_can_not_be_taken_leaves_nothing";
    if !have_fuse(test) {
        return;
    }
    let scratch = Scratch::new(test);
    let image = volume(&scratch, &[], "64M");
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    let inside = mounted.path().join("snapshot.img");
    let said = fail(&mut plat(&["snapshot", text(mounted.path()), text(&inside)]));
    assert!(said.contains("in the mount that this is about"), "{said}");
    assert!(!inside.exists());
    let out = scratch.join("out.img");
    fs::write(mounted.path().join("file"), "contents").unwrap();
    let checked = succeed(&mut plat(&["check", "-n", "--json", text(mounted.path())])).stdout;
    let checked: serde_json::Value = serde_json::from_slice(&checked).unwrap();
    assert_eq!((&checked["issues"], &checked["outcome"]), (&0.into(), &"sound".into()), "{checked}");
    let repair = plat(&["check", "-y", text(mounted.path())]).output().unwrap();
    assert_eq!(repair.status.code(), Some(8), "{repair:?}");
    let said = fail(&mut plat(&["snapshot", text(&image), text(&out)]));
    assert!(said.contains("in use"), "{said}");
    let said = fail(&mut plat(&["snapshot", text(mounted.path()), "/dev/full/x"]));
    assert!(!said.is_empty());
    let empty = scratch.join("empty");
    fs::write(&empty, vec![0; 100_000]).unwrap();
    fail(&mut plat(&["snapshot", text(&empty), text(&out)]));
    assert!(!out.exists());
    mounted.unmount();
}

/// A loop device whose file was cut off behind its back: what lay there are bad sectors.
struct Worn(String);

impl Worn {
    fn of(image: &Path, len: u64) -> Self {
        let device = tool::text("losetup", &["-f", "--show", text(image)]);
        File::options().write(true).open(image).unwrap().set_len(len).unwrap();
        Worn(device.trim().to_owned())
    }
}

impl Drop for Worn {
    fn drop(&mut self) {
        let _ = tool::command("losetup").args(["-d", &self.0]).status();
    }
}

/// Nothing comes from a device with bad sectors without being asked for; then all that can be read, and the rest is named
/// and reads as zeros.
#[test]
fn a_device_with_bad_sectors_gives_what_can_be_read() {
    let test = "a_device_with_bad_sectors_gives_what_can_be_read";
    if !testkit::mount::have_loop_mount(test) {
        return;
    }
    const GOOD: usize = 3 << 20;
    let scratch = Scratch::new(test);
    let (tree, image) = (scratch.join("tree"), scratch.join("disk.img"));
    fs::create_dir(&tree).unwrap();
    (0..12_u8).for_each(|at| fs::write(tree.join(format!("{at:02}")), vec![b'a' + at; 256 << 10]).unwrap());
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-N", "64", "-d"])
        .arg(&tree)
        .arg(&image)
        .arg("4M");
    tool::run(&mut make);
    let whole = fs::read(&image).unwrap();
    let worn = Worn::of(&image, GOOD as u64);
    let out = scratch.join("out.img");
    let said = fail(plat(&["snapshot", &worn.0]).arg(&out));
    assert!(!out.exists() && said.contains(&worn.0), "{said}");
    let output = plat(&["snapshot", "--keep-going=zeros", &worn.0]).arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_told = said.contains("are zeros") && said.contains("parts can't be read");
    assert!(output.status.code() == Some(1) && is_told, "{said}");
    let copy = fs::read(&out).unwrap();
    assert!(copy.len() == whole.len() && copy[..GOOD] == whole[..GOOD], "{said}");
    assert!(copy[GOOD..].iter().all(|byte| *byte == 0), "{said}");
    // Files that lie in front of it are whole.
    let files = scratch.join("files");
    succeed(plat(&["get", "-r"]).arg(&out).arg("/").arg(&files));
    let same = |at: &u8| fs::read(files.join(format!("{at:02}"))).unwrap() == vec![b'a' + at; 256 << 10];
    assert!((0..12).filter(same).count() >= 8);
}
