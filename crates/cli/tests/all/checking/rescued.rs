//! Volumes that lost what leads to their files: superblocks, descriptors, the end of the device, the mark of a journal.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use testkit::scratch::Scratch;
use testkit::{fsck, sparse, tool};

use crate::checking::{called, text};
use crate::plat::plat;

/// A volume by mke2fs, with the file `precious` in it.
fn made(scratch: &Scratch, options: &str, size: &str) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("made.img"));
    let _ = fs::remove_file(&image);
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("precious"), precious()).unwrap();
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F"]).args(options.split(' ')).arg("-d").arg(&tree).arg(&image).arg(size);
    let output = make.output().unwrap();
    assert!(output.status.success(), "{options}: {output:?}");
    image
}

fn precious() -> Vec<u8> {
    (0..30_000_u32).map(|at| (at / 7) as u8).collect()
}

fn overwrite(image: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, offset).unwrap();
}

/// The file reads as before, in a volume in which no one finds a fault.
fn assert_rescued(image: &Path, what: &str) {
    let ran = plat("cat", image, &["/precious".as_ref()]);
    assert!(ran.out == precious() && ran.err.is_empty(), "{what}: {}", ran.err);
    fsck::assert_clean(image);
}

fn repaired(image: &Path, options: &str, what: &str) {
    let ran = plat(&format!("check -y{options}"), image, &[]);
    assert_eq!(ran.code, ExitCode::from(1), "{what}: {}{}", text(&ran), ran.err);
    assert_rescued(image, what);
}

#[test]
fn a_backup_of_the_superblock_is_found_in_every_layout() {
    if !tool::have_tools("a_backup_of_the_superblock_is_found_in_every_layout", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("check-backups");
    for (options, size) in [
        ("-t ext4 -b 65536", "5G"),
        ("-t ext4 -b 32768", "3G"),
        ("-t ext4 -b 8192", "1G"),
        ("-t ext4 -b 4096 -O bigalloc -C 65536", "3G"),
        ("-t ext4 -b 1024 -O bigalloc -C 16384", "300M"),
        ("-t ext4 -b 4096 -g 2048 -O sparse_super2", "64M"),
        ("-t ext2 -b 2048", "64M"),
        ("-t ext4 -b 1024 -g 4096 -O meta_bg,^resize_inode", "64M"),
    ] {
        let image = made(&scratch, options, size);
        overwrite(&image, 1024, &[0; 1024]);
        repaired(&image, "", options);
    }
    // Of two backups only that of the last group is left.
    let image = made(&scratch, "-t ext4 -b 1024 -O sparse_super2", "64M");
    for offset in [1024, 8193 * 1024] {
        overwrite(&image, offset, &[0; 1024]);
    }
    repaired(&image, "", "the last group");
    // One that is named is written over the primary, too.
    let image = made(&scratch, "-t ext4 -b 1024", "64M");
    overwrite(&image, 1024, &[0; 1024]);
    repaired(&image, " -b 8193", "-b");
    let ran = plat("check -y -b 8193", &image, &[]);
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", text(&ran));
}

#[test]
fn descriptors_are_found_without_the_first_two_copies_and_without_any() {
    let test = "descriptors_are_found_without_the_first_two_copies_and_without_any";
    if !tool::have_tools(test, &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("check-descriptors");
    // Descriptors of 64 bytes in blocks of 1 KiB: a meta group is 16 groups of 8 MiB.
    let image = made(&scratch, "-t ext4 -b 1024 -O meta_bg,^resize_inode", "200M");
    for block in [2, 8194] {
        overwrite(&image, block * 1024, &[0xA5; 1024]);
    }
    repaired(&image, "", "meta_bg");
    // Where the only copy is lost, the table lies where programs put it.
    for options in
        ["-t ext4 -b 4096", "-t ext4 -b 4096 -G 1", "-t ext2 -b 4096", "-t ext3 -b 4096 -O ^resize_inode"]
    {
        for bytes in [[0; 4096], [0xA5; 4096]] {
            let image = made(&scratch, options, "64M");
            overwrite(&image, 4096, &bytes);
            repaired(&image, "", options);
        }
    }
}

/// Makes the differences between two images a transaction in the journal of the first, and takes the mark away that
/// asks for its replay.
fn unmarked_log(scratch: &Scratch, image: &Path, after: &Path, block: usize) {
    let (old, new) = (fs::read(image).unwrap(), fs::read(after).unwrap());
    let mut blocks = Vec::new();
    let mut numbers = Vec::new();
    for (number, (old, new)) in old.chunks(block).zip(new.chunks(block)).enumerate().skip(2) {
        if old != new {
            numbers.push(number.to_string());
            blocks.extend_from_slice(new);
        }
    }
    let (data, commands) = (scratch.join("blocks"), scratch.join("commands"));
    fs::write(&data, blocks).unwrap();
    let lines = format!("jo\njw -b {} {}\njc\nfeature -needs_recovery\n", numbers.join(","), data.display());
    fs::write(&commands, lines).unwrap();
    let mut run = tool::command("debugfs");
    assert!(run.arg("-w").arg("-f").arg(&commands).arg(image).output().unwrap().status.success());
}

#[test]
fn a_log_is_replayed_though_no_mark_asks_for_it() {
    if !tool::have_tools("a_log_is_replayed_though_no_mark_asks_for_it", &["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let scratch = Scratch::new("check-unmarked");
    let image = made(&scratch, "-t ext3 -b 1024", "16M");
    let after = scratch.join("after.img");
    sparse::copy(&image, &after).unwrap();
    tool::debugfs_write(&after, "mkdir only-in-the-log");
    unmarked_log(&scratch, &image, &after, 1024);
    let theirs = scratch.join("theirs.img");
    sparse::copy(&image, &theirs).unwrap();
    let there = |image: &Path| plat("ls", image, &["/only-in-the-log".as_ref()]).code == ExitCode::SUCCESS;
    assert!(!there(&image), "nothing is in its place yet");
    let _ = tool::command("e2fsck").arg("-fy").arg(&theirs).output();
    assert!(there(&theirs), "e2fsck replays it");

    let preened = called("fsck.ext4", &["-a"], &image);
    assert_eq!(preened.status.code(), Some(4), "{preened:?}");
    let ran = plat("check -y", &image, &[]);
    assert_eq!(ran.code, ExitCode::from(1), "{}", text(&ran));
    assert!(text(&ran).contains("journal-has-data"), "{}", text(&ran));
    assert!(there(&image));
    assert_rescued(&image, "replayed");
}

/// An image that was cut off is read as far as it goes, with a warning.
#[test]
fn an_image_that_was_cut_off_is_read() {
    if !tool::have_tools("an_image_that_was_cut_off_is_read", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("check-cut");
    // The journal lies in the middle: behind the second cut.
    for len in [31 << 20, 9 << 20] {
        let image = made(&scratch, "-t ext4 -b 1024 -G 1", "32M");
        File::options().write(true).open(&image).unwrap().set_len(len).unwrap();
        let ran = plat("cat", &image, &["/precious".as_ref()]);
        assert!(ran.out == precious(), "{}", ran.err);
        assert!(ran.err.contains("its end is cut off") && ran.err.contains("what is there"), "{}", ran.err);
        assert_eq!(plat("check -n", &image, &[]).code, ExitCode::from(4));
        assert_ne!(plat("rm", &image, &["/precious".as_ref()]).code, ExitCode::SUCCESS, "nothing is written");
        // As the plan says.
        File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
        let _ = plat("check -y", &image, &[]);
        assert_rescued(&image, "with its length back");
    }
}

/// Linux reads on if the checksum of a descriptor is wrong; so do we, and say so.
#[test]
fn a_wrong_checksum_of_a_descriptor_keeps_nothing_from_being_read() {
    let test = "a_wrong_checksum_of_a_descriptor_keeps_nothing_from_being_read";
    if !tool::have_tools(test, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("check-descriptor-sum");
    let image = made(&scratch, "-t ext4 -b 1024", "16M");
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 2048 + 0x1E).unwrap();
    file.write_all_at(&[byte[0] ^ 0xFF], 2048 + 0x1E).unwrap();
    let ran = plat("cat", &image, &["/precious".as_ref()]);
    assert!(ran.out == precious(), "{}", ran.err);
    assert!(ran.err.contains("checksum is wrong"), "{}", ran.err);
    assert_ne!(plat("rm", &image, &["/precious".as_ref()]).code, ExitCode::SUCCESS, "nothing is written");
}
