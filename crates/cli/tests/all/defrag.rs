//! `plat defrag` and `plat convert`, on images and on mounts: e2fsck has nothing to say, and the kernel sees the tree that
//! was there before.

#![cfg(target_os = "linux")]
mod aged;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};
use serde_json::Value;
use testkit::fsck::assert_clean;
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::snapshot::{Rules, Snapshot, assert_same};
use testkit::{mount, tool};

fn have(test: &str) -> bool {
    tool::have_root(test)
        && mount::have_loop_mount(test)
        && tool::have_tools(test, &["mke2fs", "e2fsck", "filefrag"])
}

/// A volume that the kernel has torn: files that grow side by side, each write synced, and some that went.
fn torn(scratch: &Scratch, options: &str, mib: u64) -> PathBuf {
    let image = scratch.join("disk.img");
    let mut command = tool::command("mke2fs");
    command.args(["-q", "-F", "-E", "lazy_itable_init=0"]).args(options.split_whitespace());
    tool::run(command.arg(&image).arg(format!("{mib}M")));
    let mounted = mount::Mounted::kernel(&image, "nodelalloc").unwrap();
    let mut random = Random(mib);
    for round in 0..mib / 4 {
        let directory = mounted.path().join(format!("d{}", round % 7));
        fs::create_dir_all(&directory).unwrap();
        let path = |at: u64| directory.join(format!("f{round}-{at}"));
        let mut files: Vec<_> = (0..6).map(|at| File::create(path(at)).unwrap()).collect();
        for _ in 0..12 {
            for file in &mut files {
                let len = 4096 * (1 + random.below(8));
                file.write_all(&random.bytes(len)).unwrap();
                file.sync_data().unwrap();
            }
        }
        fs::remove_file(path(round % 6)).unwrap();
    }
    drop(mounted);
    image
}

/// The tree as the kernel shows it.
fn seen(image: &Path) -> Snapshot {
    let mounted = mount::Mounted::read_only(image).unwrap();
    Snapshot::of(mounted.path()).unwrap()
}

fn report(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(report: &Value, name: &str) -> u64 {
    report.get(name).unwrap_or_else(|| panic!("{name} in {report}")).as_u64().unwrap()
}

#[test]
fn files_of_an_image_become_whole() {
    if !have("files_of_an_image_become_whole") {
        return;
    }
    for options in
        ["-t ext4", "-t ext4 -b 1024 -J size=1", "-t ext4 -O ^has_journal", "-t ext3 -b 1024", "-t ext2"]
    {
        let scratch = Scratch::new("defrag");
        let image = torn(&scratch, options, 64);
        let before = seen(&image);
        let dry = report(&succeed(plat(&["defrag", "-n", "--json"]).arg(&image)));
        assert!(number(&dry, "files_in_pieces_before") > 40 && number(&dry, "files_moved") > 40, "{dry}");
        let done = report(&succeed(plat(&["defrag", "--json"]).arg(&image)));
        assert_eq!(number(&done, "files_in_pieces_before"), number(&dry, "files_in_pieces_before"));
        assert_eq!(
            (number(&done, "files_in_pieces"), number(&done, "too_long")),
            (0, 0),
            "{options}: {done}"
        );
        let (moved, torn) = (number(&done, "bytes_moved"), number(&done, "bytes_in_pieces"));
        assert!(moved <= torn + torn * 3 / 10, "{options}: {done}");
        assert_clean(&image);
        assert_same(&before, &seen(&image), &Rules::default());
        let again = report(&succeed(plat(&["defrag", "--json"]).arg(&image)));
        assert_eq!(number(&again, "files_moved"), 0, "{options}: {again}");
    }
}

/// Parts of a volume, with bounds; paths that are not there.
#[test]
fn work_is_bounded_as_asked() {
    if !have("work_is_bounded_as_asked") {
        return;
    }
    let scratch = Scratch::new("defrag-bounds");
    let image = torn(&scratch, "-t ext4", 48);
    let bounded = report(&succeed(plat(&["defrag", "--json", "--most", "1M", "--rate", "100M"]).arg(&image)));
    assert!((1..=1 << 20).contains(&number(&bounded, "bytes_moved")), "{bounded}");
    let one = report(&succeed(plat(&["defrag", "--json"]).arg(&image).args(["/d3"])));
    assert!(number(&one, "files") < 20 && number(&one, "files_in_pieces") == 0, "{one}");
    fail(plat(&["defrag"]).arg(&image).arg("/missing"));
    assert_clean(&image);
    let text = succeed(plat(&["defrag"]).arg(&image)).stdout;
    assert!(String::from_utf8_lossy(&text).contains("files in pieces"));
}

/// Killed again and again, and begun again: nothing is lost, and in the end all is whole. Without a journal, too.
#[test]
fn a_killed_defragmentation_is_taken_up_again() {
    if !have("a_killed_defragmentation_is_taken_up_again") {
        return;
    }
    for options in ["-t ext4", "-t ext2"] {
        let scratch = Scratch::new("defrag-killed");
        let image = torn(&scratch, options, 64);
        let before = seen(&image);
        for round in 0..6 {
            let mut command = plat(&["defrag", "-q", "--rate", "60M"]);
            let mut child = command.arg(&image).stdout(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_millis(60 + 40 * round));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let done = report(&succeed(plat(&["defrag", "--json"]).arg(&image)));
        assert_eq!(number(&done, "files_in_pieces"), 0, "{options}: {done}");
        assert_clean(&image);
        assert_same(&before, &seen(&image), &Rules::default());
    }
}

/// Four clients write while the mount is defragmented: each finds in the end what it wrote.
#[test]
fn a_mount_is_defragmented_beside_four_writers() {
    if !have("a_mount_is_defragmented_beside_four_writers") || !have_fuse("a_mount_is_defragmented") {
        return;
    }
    let scratch = Scratch::new("defrag-live");
    let image = torn(&scratch, "-t ext4", 128);
    let before = seen(&image);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let (root, ended) = (mounted.path().to_owned(), AtomicBool::new(false));
    let (root, ended) = (&root, &ended);
    let done = thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|at| scope.spawn(move || write_beside(root, at, ended))).collect();
        thread::sleep(Duration::from_millis(300));
        let done = report(&succeed(plat(&["defrag", "--json"]).arg(root)));
        ended.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| {
            let (path, bytes) = writer.join().unwrap();
            assert!(fs::read(&path).unwrap() == bytes, "{}", path.display());
            fs::remove_file(path).unwrap();
        });
        done
    });
    assert!(number(&done, "files_moved") > 100, "{done}");
    let again = report(&succeed(plat(&["defrag", "--json"]).arg(root)));
    assert_eq!(number(&again, "files_in_pieces"), 0, "{again}");
    let dry = report(&succeed(plat(&["defrag", "-n", "--json"]).arg(root).arg("d3")));
    assert_eq!(number(&dry, "files_in_pieces"), 0, "{dry}");
    mounted.unmount();
    assert_clean(&image);
    // The writers made names in the root.
    assert_same(&before, &seen(&image), &Rules { times: false, ..Rules::default() });
}

fn write_beside(root: &Path, at: u64, ended: &AtomicBool) -> (PathBuf, Vec<u8>) {
    use std::os::unix::fs::FileExt;
    let path = root.join(format!("writer{at}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let (mut random, mut bytes) = (Random(at), Vec::new());
    while !ended.load(Ordering::Relaxed) {
        let offset = random.below(2_000_000);
        let len = 1 + random.below(60_000);
        let piece = random.bytes(len);
        file.write_all_at(&piece, offset).unwrap();
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset + len).unwrap());
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(&piece);
        if random.one_in(10) {
            file.sync_all().unwrap();
        }
    }
    (path, bytes)
}

fn has_extents(image: &Path) -> bool {
    let features = tool::dumpe2fs_field(image, "Filesystem features").unwrap();
    features.split_whitespace().any(|feature| feature == "extent" || feature == "extents")
}

#[test]
fn an_image_is_converted_and_back() {
    if !have("an_image_is_converted_and_back") {
        return;
    }
    for options in ["-t ext2", "-t ext3 -b 1024"] {
        let scratch = Scratch::new("convert");
        let image = torn(&scratch, options, 48);
        let before = seen(&image);
        let convert = |image: &Path, words: &[&str]| {
            let mut command = plat(&["convert"]);
            report(&succeed(command.arg(image).args(words).arg("--json")))
        };
        let dry = convert(&image, &["--to", "ext4", "--all", "-n"]);
        assert!(!has_extents(&image));
        let there = convert(&image, &["--to", "ext4", "--all"]);
        assert_eq!(number(&there, "converted"), number(&there, "inodes"), "{options}: {there}");
        assert_eq!(number(&dry, "converted"), number(&there, "converted"), "{options}: {dry}");
        assert!(has_extents(&image));
        assert_clean(&image);
        assert_same(&before, &seen(&image), &Rules::default());
        let back = convert(&image, &["--to", "ext3", "--all"]);
        assert_eq!((number(&back, "converted"), number(&back, "left")), (number(&there, "converted"), 0));
        assert!(!has_extents(&image), "{options}");
        assert_clean(&image);
        assert_same(&before, &seen(&image), &Rules::default());
    }
}

/// An empty file has a form too, and no form may be left that the volume has no feature for.
#[test]
fn empty_files_are_converted_too() {
    if !have("empty_files_are_converted_too") {
        return;
    }
    let scratch = Scratch::new("convert-empty");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("directory/empty"), "").unwrap();
    let options = ["-q", "-F", "-t", "ext4", "-O", "^64bit,^has_journal", "-d"];
    tool::run(tool::command("mke2fs").args(options).arg(&tree).arg(&image).arg("8M"));
    succeed(plat(&["convert", "--to", "ext2", "--all"]).arg(&image));
    let features = tool::dumpe2fs_field(&image, "Filesystem features").unwrap();
    assert!(!features.contains("extent"), "{features}");
    assert_clean(&image);
}

/// Files of a mount are converted while it is used; what clusters can't be is named.
#[test]
fn files_of_a_mount_are_converted() {
    if !have("files_of_a_mount_are_converted") || !have_fuse("files_of_a_mount_are_converted") {
        return;
    }
    let scratch = Scratch::new("convert-live");
    let image = torn(&scratch, "-t ext4 -O ^metadata_csum", 48);
    let before = seen(&image);
    let mounted = Mounted::new(&image, &[]).unwrap();
    let convert =
        |words: &[&str]| report(&succeed(plat(&["convert", "--json"]).arg(mounted.path()).args(words)));
    let there = convert(&["--to", "ext2", "d1"]);
    assert!(number(&there, "converted") > 3, "{there}");
    assert!(!flags_of(mounted.path().join("d1").as_os_str()).contains('e'));
    let back = convert(&["--to", "ext4", "--all"]);
    assert_eq!(number(&back, "converted"), number(&there, "converted"), "{back}");
    mounted.unmount();
    assert_clean(&image);
    assert_same(&before, &seen(&image), &Rules::default());
}

/// The flags of a directory, as lsattr shows them.
fn flags_of(directory: &OsStr) -> String {
    let text = tool::text("lsattr", &[OsStr::new("-d"), directory]);
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
