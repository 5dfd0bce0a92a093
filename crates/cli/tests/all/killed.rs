//! A mount with a journal, or with soft updates, whose server is killed at work: what was synced is there, and no
//! repair is needed.

#![cfg(target_os = "linux")]
mod kernel;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::mounted::{Mounted, have_fuse, unmount_with};
use crate::support::volumes::MODES;
use rustix::process::Signal;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::{fsck, mount, sparse, tool};

/// Kinds of volumes for mke2fs, and how they are mounted.
const KINDS: [(&str, &str); 9] = [
    ("-t ext4 -b 4096 -J size=4", "rw"),
    ("-t ext3 -b 1024 -J size=1", "rw,data=ordered"),
    ("-t ext4 -b 1024 -J size=1", "rw,data=writeback,commit=1"),
    ("-t ext4 -b 1024 -J size=1", "rw,data=journal"),
    ("-t ext4 -b 1024 -O inline_data,^metadata_csum -J size=1", "rw,nodelalloc"),
    ("-t ext4 -b 4096 -O ^has_journal", "rw,softdep"),
    ("-t ext2 -b 1024", "rw,softdep,commit=1"),
    ("-t ext4 -b 1024 -J size=1", "rw,normal"),
    ("-t ext2 -b 1024", "rw,sync"),
];

/// `plat sync` makes stable what any program wrote, whether the file is closed or not.
#[test]
fn what_plat_sync_covered_is_there_after_a_kill() {
    let test = "what_plat_sync_covered_is_there_after_a_kill";
    if !have_fuse(test) || !tool::have_root(test) || !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    for (kind, options) in KINDS {
        let scratch = Scratch::new(test);
        let image = scratch.join("image");
        tool::run(tool::command("mke2fs").arg("-qF").args(kind.split(' ')).arg(&image).arg("24M"));
        let mut mounted = Mounted::new(&image, &["-o", options]).unwrap();
        let below = mounted.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let mut open = File::create(below.join("open")).unwrap();
        open.write_all(&[1; 100_000]).unwrap();
        fs::write(mounted.path().join("closed"), [2; 300_000]).unwrap();
        tool::run(tool::command(env!("CARGO_BIN_EXE_plat")).arg("sync").arg(&below));
        mounted.signal(Signal::KILL);
        mounted.wait();
        drop((open, mounted));
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        assert!(fs::read(mounted.path().join("a/b/open")).unwrap() == [1; 100_000], "{kind} {options}");
        assert!(fs::read(mounted.path().join("closed")).unwrap() == [2; 300_000], "{kind} {options}");
        mounted.unmount();
        fsck::assert_clean(&image);
    }
}

/// After `plat umount`, and after the helper that umount(8) calls, the image is whole.
#[test]
fn an_image_is_whole_when_the_umount_helper_returns() {
    let test = "an_image_is_whole_when_the_umount_helper_returns";
    if !have_fuse(test) || !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    for (kind, options) in KINDS {
        let scratch = Scratch::new(test);
        let (image, copy, helper) =
            (scratch.join("image"), scratch.join("copy"), scratch.join("umount.fuse.plat"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plat"), &helper).unwrap();
        tool::run(tool::command("mke2fs").arg("-qF").args(kind.split(' ')).arg(&image).arg("24M"));
        let mut mounted = Mounted::new(&image, &["-o", options]).unwrap();
        for number in 0..200 {
            fs::write(mounted.path().join(format!("file-{number}")), contents("some")).unwrap();
        }
        unmount_with(std::process::Command::new(&helper).arg(mounted.path()).args(["-n", "-t", "fuse.plat"]));
        sparse::copy(&image, &copy).unwrap();
        mounted.wait();
        fsck::assert_clean(&copy);
        assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap(), "{kind} {options}: written later");
    }
}

/// Contents of a file, by its name.
fn contents(name: &str) -> Vec<u8> {
    let len = 100 + name.bytes().map(usize::from).sum::<usize>() * 37 % 30_000;
    name.bytes().cycle().take(len).collect()
}

/// Files that come, are synced, get other names and go, until the server is gone. What was synced and stays
/// is noted once the sync has returned.
fn work(
    root: &Path,
    thread: u64,
    seed: u64,
    synced: &Mutex<Vec<PathBuf>>,
    count: &AtomicUsize,
) -> Option<()> {
    let mut random = Random(seed * 100 + thread);
    let directory = root.join(format!("t{thread}"));
    fs::create_dir(&directory).ok()?;
    for number in 0_u64.. {
        let name = format!("{thread}-{number}");
        let fresh = directory.join(format!("{name}.new"));
        let mut file = File::create(&fresh).ok()?;
        file.write_all(&contents(&name)).ok()?;
        if random.one_in(3) {
            drop(file);
            // What was not synced may be there or not.
            fs::remove_file(&fresh).ok()?;
            continue;
        }
        file.sync_all().ok()?;
        let kept = directory.join(&name);
        fs::rename(&fresh, &kept).ok()?;
        File::open(&directory).ok()?.sync_all().ok()?;
        synced.lock().unwrap().push(kept.strip_prefix(root).unwrap().to_owned());
        count.fetch_add(1, Ordering::Relaxed);
    }
    None
}

fn there(root: &Path, synced: &[PathBuf]) {
    for path in synced {
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = fs::read(root.join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(found == contents(name), "{}: other contents", path.display());
    }
}

/// e2fsck does no more than replay the journal and clear orphans.
fn assert_only_replayed(image: &Path) {
    let done = tool::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(!said.contains("? yes") && !said.contains("corrupt"), "{said}");
    fsck::assert_clean(image);
}

/// Soft updates leave something to reclaim, which e2fsck does without a question that matters.
fn assert_reclaimed(image: &Path) {
    let done = tool::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    assert!(done.status.code().is_some_and(|code| code <= 1), "{}", String::from_utf8_lossy(&done.stdout));
    fsck::assert_clean(image);
}

fn killed_once(seed: u64) {
    let turn = usize::try_from(seed).unwrap();
    let (options, order) = KINDS[turn % KINDS.len()];
    let mount_options = &format!("{order},{}", MODES[turn % MODES.len()]);
    println!("PLATFS_SEED={seed} PLATFS_STEPS=1 {options}, {mount_options}");
    let scratch = Scratch::new("killed");
    let image = scratch.join("disk.img");
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options.split(' ')).arg(&image).arg("48M"));
    let mut mounted = Mounted::new(&image, &["-o", mount_options]).unwrap();
    let root = mounted.path().to_owned();
    let (synced, count, over) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
    let wanted = 10 + usize::try_from(Random(seed).below(60)).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (root, synced, count, over) = (&root, &synced, &count, &over);
            scope.spawn(move || {
                let _ = work(root, thread, seed, synced, count);
                over.store(true, Ordering::Relaxed);
            });
        }
        while count.load(Ordering::Relaxed) < wanted {
            assert!(!over.load(Ordering::Relaxed), "the work ended before the server");
            thread::sleep(Duration::from_millis(1));
        }
        mounted.signal(Signal::KILL);
        mounted.wait();
    });
    mounted.take_away();
    let synced = synced.into_inner().unwrap();
    let [checked, ours] = ["checked.img", "ours.img"].map(|name| scratch.join(name));
    sparse::copy(&image, &checked).unwrap();
    sparse::copy(&image, &ours).unwrap();
    let phased = ["softdep", "normal", "sync"].iter().any(|word| mount_options.contains(word));
    if phased {
        assert_reclaimed(&checked)
    } else {
        assert_only_replayed(&checked)
    }
    let again = Mounted::new(&ours, &["-o", mount_options]).unwrap();
    there(again.path(), &synced);
    again.unmount();
    fsck::assert_clean(&ours);
    if tool::administers() && !phased {
        let kernel = mount::Mounted::read_write(&image).unwrap();
        there(kernel.path(), &synced);
    }
    println!("{options}, seed {seed}: {} files synced", synced.len());
}

fn able(test: &str) -> bool {
    have_fuse(test) && tool::have_tools(test, &["mke2fs", "e2fsck"]) && mount::have_loop_mount(test)
}

#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    if able("a_killed_server_loses_nothing_that_was_synced") {
        (0..9).for_each(killed_once);
    }
}

/// `cargo test -p platfs-cli --test all killed:: -- --ignored --nocapture`; others than these fifty with `PLATFS_SEED` and `PLATFS_STEPS`.
#[test]
#[ignore = "takes minutes"]
fn fifty_killed_servers() {
    if able("fifty_killed_servers") {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let first = number("PLATFS_SEED").unwrap_or(100);
        (first..first + number("PLATFS_STEPS").unwrap_or(50)).for_each(killed_once);
    }
}
