//! Volumes of object stores in the place of images, in a store that is a directory.

mod crashes;
mod ending;
#[cfg(feature = "s3")]
mod faults;
mod kills;
mod local;
mod rounds;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod server;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use platfs::device::Device;
use platfs_store::objects::{Files, Patience};
use platfs_store::{Store, Volume};
use rustix::process::Signal;
use testkit::fsck::assert_clean;
use testkit::scratch::Scratch;
use testkit::tool;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A store in a directory, and the address of a volume in it.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new(test: &str) -> Self {
        Place { scratch: Scratch::new(test) }
    }

    fn store(&self) -> String {
        format!("file://{}", self.scratch.join("store").display())
    }

    fn volume(&self, name: &str) -> String {
        format!("{}#{name}", self.store())
    }

    /// An image with some files.
    fn image(&self) -> PathBuf {
        let tree = self.scratch.join("tree");
        fs::create_dir_all(tree.join("etc")).unwrap();
        fs::write(tree.join("etc/os-release"), "ID=odd\n").unwrap();
        let noise: Vec<u8> =
            (0..3_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        fs::write(tree.join("large"), noise).unwrap();
        let image = self.scratch.join("disk.img");
        crate::support::build(&tree, &image, &["--size", "24M"]);
        image
    }
}

fn said(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).unwrap()
}

fn json(command: &mut Command) -> serde_json::Value {
    serde_json::from_slice(&succeed(command).stdout).unwrap()
}

#[test]
fn an_image_goes_into_a_store_is_used_there_and_comes_back() {
    let place = Place::new("an_image_goes_into_a_store_is_used_there_and_comes_back");
    let (image, one) = (place.image(), place.volume("one"));
    let pushed = json(&mut plat(&["push", "--json", text(&image), &one]));
    assert_eq!(pushed["chunks"], pushed["new_chunks"]);
    let again = json(&mut plat(&["push", "--json", text(&image), &place.volume("two")]));
    assert_eq!((&again["new_chunks"], &again["sent_bytes"]), (&0.into(), &0.into()));
    assert!(fail(&mut plat(&["push", text(&image), &one])).contains("--force"));
    assert_eq!(said(&mut plat(&["cat", &one, "/etc/os-release"])), "ID=odd\n");
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert!(fs::read(&back).unwrap() == fs::read(&image).unwrap());
    let other = place.scratch.join("other");
    fs::write(&other, "something new").unwrap();
    succeed(&mut plat(&["put", &one, text(&other), "/etc/other"]));
    succeed(&mut plat(&["check", "-n", &one]));
    assert_eq!(said(&mut plat(&["cat", &one, "/etc/other"])), "something new");
    succeed(&mut plat(&["pull", "--force", &one, text(&back)]));
    assert_clean(&back);
    assert!(fail(&mut plat(&["cat", &place.volume("two"), "/etc/other"])).contains("/etc/other"));
    assert!(said(&mut plat(&["store", "verify", &place.store()])).contains("all is well"));
}

/// A store can say that a volume has any size: what is zeros is not read, and the user may bound it.
#[test]
fn a_volume_of_many_zeros_is_pulled_at_once_and_a_larger_one_than_wanted_not_at_all() {
    let place = Place::new("a_volume_of_many_zeros_is_pulled_at_once");
    let (image, one, size) = (place.scratch.join("huge"), place.volume("one"), 8_u64 << 40);
    let store = Store::new(Arc::new(Files::new(place.scratch.join("store"))), Patience::default(), None);
    let store = Arc::new(store);
    let volume = Volume::create(&store, "one", size, "test").unwrap();
    volume.write_at(size - 4096, &[7; 4096]).unwrap();
    volume.close().unwrap();
    let refused = fail(&mut plat(&["pull", "--max-size", "1G", &one, text(&image)]));
    assert!(refused.contains("#one") && refused.contains("more than --max-size=1.0 GiB"), "{refused}");
    assert!(!image.exists());
    succeed(&mut plat(&["pull", &one, text(&image)]));
    let (file, mut end) = (fs::File::open(&image).unwrap(), [0; 4097]);
    file.read_exact_at(&mut end, size - 4097).unwrap();
    assert!(end[0] == 0 && end[1..] == [7; 4096]);
    assert!(file.metadata().unwrap().blocks() < 4096);
}

#[test]
fn snapshots_and_forks_are_one_object_and_what_is_not_used_goes() {
    let place = Place::new("snapshots_and_forks_are_one_object_and_what_is_not_used_goes");
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let objects =
        || json(&mut plat(&["store", "stats", "--json", &place.store()]))["objects"].as_u64().unwrap();
    let before = objects();
    succeed(&mut plat(&["store", "snapshot", &one, "first"]));
    succeed(&mut plat(&["store", "fork", &place.volume("one@first"), "three"]));
    assert_eq!(objects(), before + 2);
    succeed(&mut plat(&["rm", &one, "/etc/os-release"]));
    for kept in ["one@first", "three"] {
        assert_eq!(said(&mut plat(&["cat", &place.volume(kept), "/etc/os-release"])), "ID=odd\n");
    }
    assert!(fail(&mut plat(&["rm", &place.volume("one@first"), "/large"])).contains("snapshot"));
    succeed(&mut plat(&["rm", &place.volume("three"), "/large"]));
    for gone in ["one", "one@first"] {
        succeed(&mut plat(&["store", "rm", &place.volume(gone)]));
    }
    let gc = |grace: &str| json(&mut plat(&["store", "gc", "--json", "--grace", grace, &place.store()]));
    let waiting = gc("24");
    assert_eq!(waiting["removed"], 0);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(gc("24")["removed"], 0);
    let removed = gc("0");
    assert!(
        removed["removed"].as_u64() > Some(0) && removed["removed"] == waiting["waiting"],
        "{removed} {waiting}"
    );
    succeed(&mut plat(&["check", "-n", &place.volume("three")]));
    assert!(said(&mut plat(&["store", "verify", &place.store()])).contains("all is well"));
    let listed = json(&mut plat(&["store", "ls", "--json", &place.store()]));
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &"three".into()));
    assert!(fail(&mut plat(&["cat", &one, "/large"])).contains("no volume of that name"));
}

#[test]
fn a_damaged_store_gives_errors_and_no_other_bytes() {
    let place = Place::new("a_damaged_store_gives_errors_and_no_other_bytes");
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let chunks = fs::read_dir(place.scratch.join("store/chunk")).unwrap();
    let largest = chunks
        .map(|entry| entry.unwrap())
        .max_by_key(|entry| entry.metadata().unwrap().len())
        .unwrap()
        .path();
    let mut bytes = fs::read(&largest).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&largest, &bytes).unwrap();
    let name = largest.file_name().unwrap().to_str().unwrap();
    let why = fail(&mut plat(&["pull", &one, text(&place.scratch.join("back.img"))]));
    assert!(why.contains(name) && why.contains("damaged"), "{why}");
    assert!(!place.scratch.join("back.img").exists());
    assert!(fail(&mut plat(&["store", "verify", &place.store()])).contains(name));
    fs::remove_file(&largest).unwrap();
    assert!(
        fail(&mut plat(&["export", &one, text(&place.scratch.join("out.tar"))])).contains("no such object")
    );
}

#[test]
fn the_cache_answers_where_the_store_is_gone() {
    let place = Place::new("the_cache_answers_where_the_store_is_gone");
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let cache = place.scratch.join("cache");
    let cat = || {
        let mut command = plat(&["cat", &one, "/large"]);
        command.env("PLAT_CACHE", &cache);
        command
    };
    let wanted = succeed(&mut cat()).stdout;
    // The manifest is asked for each time: it is what can change.
    fs::rename(place.scratch.join("store/chunk"), place.scratch.join("store/none")).unwrap();
    assert!(succeed(&mut cat()).stdout == wanted);
    for directory in fs::read_dir(&cache).unwrap() {
        for entry in fs::read_dir(directory.unwrap().path()).unwrap() {
            fs::write(entry.unwrap().path(), "nonsense").unwrap();
        }
    }
    assert!(fail(&mut cat()).contains("no such object"));
    fs::rename(place.scratch.join("store/none"), place.scratch.join("store/chunk")).unwrap();
    assert!(succeed(&mut cat()).stdout == wanted);
}

#[test]
fn a_cache_on_a_full_disk_keeps_less_and_nothing_fails() {
    let test = "a_cache_on_a_full_disk_keeps_less_and_nothing_fails";
    if !tool::have_root(test) || !tool::have_tools(test, &["mount", "umount"]) {
        return;
    }
    let place = Place::new(test);
    let one = place.volume("one");
    succeed(&mut plat(&["push", text(&place.image()), &one]));
    let cache = place.scratch.join("cache");
    fs::create_dir(&cache).unwrap();
    tool::run(tool::command("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&cache));
    let cat = || plat(&["cat", &one, "/large"]).env("PLAT_CACHE", &cache).output().unwrap();
    let (first, second) = (cat(), cat());
    tool::run(tool::command("umount").arg(&cache));
    assert!(first.status.success() && first.stdout.len() == 3_000_000 && second.stdout == first.stdout);
}

#[test]
fn a_mount_of_a_store_that_is_killed_keeps_what_was_synced() {
    let test = "a_mount_of_a_store_that_is_killed_keeps_what_was_synced";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let (image, one) = (place.image(), place.volume("one"));
    succeed(&mut plat(&["push", text(&image), &one]));
    let mut mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("synced"), vec![7; 2_000_000]).unwrap();
    succeed(plat(&["sync"]).arg(mounted.path()));
    assert!(fail(&mut plat(&["rm", &one, "/large"])).contains("is open for writing"));
    fs::write(mounted.path().join("lost"), vec![8; 100_000]).unwrap();
    mounted.signal(Signal::KILL);
    mounted.wait();
    drop(mounted);
    // The holder was a process of this host, and is gone.
    succeed(&mut plat(&["rm", &one, "/etc/os-release"]));
    assert!(succeed(&mut plat(&["cat", &one, "/synced"])).stdout == vec![7; 2_000_000]);
    let mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("again"), "here").unwrap();
    mounted.unmount();
    let listed = json(&mut plat(&["store", "ls", "--json", &place.store()]));
    assert_eq!(listed[0]["open"], false, "an unmount closes the volume");
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert_clean(&back);
    assert_eq!(said(&mut plat(&["cat", text(&back), "/again"])), "here");
}

/// The unmount waited until nobody wrote the volume, for a minute, asking for its manifest all the time.
#[test]
fn a_reader_is_unmounted_while_another_writes() {
    let test = "a_reader_is_unmounted_while_another_writes";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let one = place.volume("one");
    succeed(&mut plat(&["push", text(&place.image()), &one]));
    let writer = Mounted::new(Path::new(&one), &[]).unwrap();
    let directory = place.scratch.join("reader");
    fs::create_dir(&directory).unwrap();
    succeed(&mut plat(&["mount", "-o", "ro", &one, text(&directory)]));
    assert_eq!(fs::read(directory.join("etc/os-release")).unwrap(), b"ID=odd\n");
    let done = succeed(&mut plat(&["umount", text(&directory)]));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    drop(writer);
}

#[test]
fn a_mount_fetches_what_an_earlier_run_has_read() {
    let test = "a_mount_fetches_what_an_earlier_run_has_read";
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let (one, tree, image) = (place.volume("one"), place.scratch.join("far"), place.scratch.join("far.img"));
    let noise: Vec<u8> =
        (0..8 << 20_u32).map(|at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), &noise).unwrap();
    crate::support::build(&tree, &image, &["--size", "24M"]);
    succeed(&mut plat(&["push", text(&image), &one]));
    let (cache, trace) = (place.scratch.join("cache"), place.scratch.join("trace"));
    // The chunk with the end of the file: a mount alone does not fetch it.
    let end = fs::read(&image).unwrap();
    let end = end
        .chunks(512 << 10)
        .rfind(|chunk| chunk.chunks(1024).any(|block| *block == noise[noise.len() - 1024..]))
        .map(|chunk| platfs_store::format::hex(&platfs_store::format::hash(chunk)))
        .unwrap();
    let kept = cache.join(&end[62..]).join(format!("chunk-{end}"));
    let directory = place.scratch.join("m");
    fs::create_dir(&directory).unwrap();
    let mount = |option: &str, file: &Path| {
        let words = ["mount", "-o", "ro", option, text(file), &one, text(&directory)];
        let mut command = plat(&words);
        command.env("PLAT_CACHE", &cache);
        command
    };
    let umount = || succeed(&mut plat(&["umount", text(&directory)]));
    succeed(&mut mount("--trace", &trace));
    assert!(fs::read(directory.join("large")).unwrap() == noise);
    umount();
    assert!(kept.exists());
    fs::remove_dir_all(&cache).unwrap();
    succeed(&mut mount("--log", &place.scratch.join("log")));
    umount();
    assert!(!kept.exists());
    succeed(&mut mount("--prefetch", &trace));
    let begun = Instant::now();
    while !kept.exists() && begun.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(5));
    }
    umount();
    assert!(kept.exists());
    fs::write(&trace, "nonsense").unwrap();
    assert!(fail(&mut mount("--prefetch", &trace)).contains("is no trace"));
}

#[test]
fn an_image_is_served_as_a_block_device() {
    let test = "an_image_is_served_as_a_block_device";
    let place = Place::new(test);
    let (image, socket) = (place.image(), place.scratch.join("socket"));
    if !tool::have_tools(test, &["qemu-img", "qemu-io"]) {
        return;
    }
    let mut server =
        plat(&["serve", "--nbd", text(&socket), text(&image)]).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(5));
    }
    let address = format!("nbd+unix:///?socket={}", socket.display());
    let run = |words: &[&str]| {
        let (first, rest) = words.split_first().unwrap();
        String::from_utf8(tool::run(tool::command(first).args(rest)).stdout).unwrap()
    };
    let reference = place.scratch.join("reference.img");
    fs::copy(&image, &reference).unwrap();
    assert!(run(&["qemu-img", "info", &address]).contains("24 MiB"));
    run(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &address, text(&reference)]);
    run(&[
        "qemu-io",
        "-f",
        "raw",
        "-c",
        "write -P 9 20M 64k",
        "-c",
        "flush",
        "-c",
        "read -P 9 20M 64k",
        &address,
    ]);
    assert!(fail(&mut plat(&["rm", text(&image), "/large"])).contains("in use"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success() && !socket.exists());
    let bytes = fs::read(&image).unwrap();
    assert!(bytes[20 << 20..(20 << 20) + 65_536].iter().all(|byte| *byte == 9));
}

#[test]
fn what_is_no_store_is_said_and_left_alone() {
    let place = Place::new("what_is_no_store_is_said_and_left_alone");
    place.image();
    let (none, tree) = (place.scratch.join("none"), place.scratch.join("tree"));
    for verb in ["ls", "stats", "verify", "gc"] {
        for directory in [&none, &tree] {
            let said = fail(&mut plat(&["store", verb, &format!("file://{}", text(directory))]));
            assert!(said.contains("is no store"), "{verb}: {said}");
        }
    }
    assert!(!none.exists(), "a clean-up made a directory of a wrong address");
    fail(&mut plat(&["push", text(&place.scratch.join("no.img")), &format!("file://{}#v", text(&none))]));
    assert!(!none.exists(), "a push without an image began a store");
}
