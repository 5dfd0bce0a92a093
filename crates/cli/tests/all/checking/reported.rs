//! Situations that users of other tools reported, and that no test of an area holds: docs/testing.md names the reports.
//!
//! Owns: volumes by mke2fs that commands change in these ways, and the edges of the process. e2fsck judges what they leave.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::checking::ready;
use crate::plat::plat;

/// A volume with 40 files, links of lengths at which their storage changes, and a file with holes.
fn made(scratch: &Scratch, options: &str, size: &str) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("made.img"));
    let _ = fs::remove_file(&image);
    if !tree.exists() {
        fs::create_dir_all(tree.join("d")).unwrap();
        for number in 0..40_usize {
            fs::write(tree.join(format!("d/{number}")), vec![number as u8; number * 1700]).unwrap();
        }
        for length in [58, 59, 60, 61, 62, 300] {
            std::os::unix::fs::symlink("x".repeat(length), tree.join(format!("link{length}"))).unwrap();
        }
        File::create(tree.join("holes")).unwrap().write_all_at(b"end", 900_000_000).unwrap();
    }
    let mut make = tool::command("mke2fs");
    make.args(["-q", "-F"]).args(options.split(' ')).arg("-d").arg(&tree).arg(&image).arg(size);
    let output = make.output().unwrap();
    assert!(output.status.success(), "{options}: {output:?}");
    image
}

/// All files and links are what they were, and e2fsck is silent.
fn assert_whole(scratch: &Scratch, image: &Path, what: &str) {
    fsck::assert_clean(image);
    let out = scratch.join("out");
    let _ = fs::remove_dir_all(&out);
    plat("export", image, &[out.as_os_str()]).fine();
    for number in 0..40_usize {
        let read = fs::read(out.join(format!("d/{number}"))).unwrap();
        assert!(read == vec![number as u8; number * 1700], "{what}: {number}");
    }
    for length in [58, 59, 60, 61, 62, 300] {
        let target = fs::read_link(out.join(format!("link{length}"))).unwrap();
        assert_eq!(target.as_os_str().len(), length, "{what}");
    }
    let mut end = [0; 3];
    File::open(out.join("holes")).unwrap().read_exact_at(&mut end, 900_000_000).unwrap();
    assert_eq!(&end, b"end", "{what}");
}

/// Options of mke2fs, the size, the length of the file after, and what is done one after the other.
type Case = (&'static str, &'static str, u64, &'static [&'static str]);

const MIB: u64 = 1 << 20;

#[test]
fn volumes_are_whole_after_what_harmed_others() {
    if !ready("volumes_are_whole_after_what_harmed_others") {
        return;
    }
    let scratch = Scratch::new("reported");
    let cases: [Case; 11] = [
        // Sizes.
        ("-t ext4 -O ^resize_inode,flex_bg", "200M", 2048 * MIB, &["resize", "resize -M"]),
        ("-b 4096 -I 256 -j -O extent,64bit,flex_bg", "64M", 65 << 30, &["resize"]),
        ("-t ext4 -b 1024 -O orphan_file,metadata_csum", "32M", 30 << 30, &["resize"]),
        // Checksums of groups, and the UUID.
        (
            "-t ext4 -O uninit_bg,^metadata_csum",
            "64M",
            64 * MIB,
            &["tune -O ^uninit_bg", "tune -U random", "tune -O uninit_bg", "tune -U random"],
        ),
        (
            "-t ext4 -O ^metadata_csum_seed",
            "32M",
            32 * MIB,
            &["tune -U random", "tune -O ^has_journal", "tune -j"],
        ),
        // Quota and projects.
        (
            "-t ext4 -I 256 -O project,^quota",
            "32M",
            32 * MIB,
            &["tune -O quota", "quota -P 2147487136 --block-hard 256M"],
        ),
        (
            "-t ext4 -I 256",
            "32M",
            32 * MIB,
            &["tune -O project", "quota -P 4294967294 --block-hard 1000000T"],
        ),
        (
            "-t ext4",
            "32M",
            32 * MIB,
            &[
                "tune -O quota",
                "quota -u 4242 --block-soft 10G --block-hard 11G",
                "quota -k user --grace 14d",
            ],
        ),
        // Maps.
        ("-t ext3", "32M", 32 * MIB, &["tune -O extents,uninit_bg,dir_index", "convert -q --to ext4 --all"]),
        (
            "-t ext4 -O orphan_file,metadata_csum_seed,metadata_csum",
            "32M",
            32 * MIB,
            &["convert -q --to ext4 --all"],
        ),
        (
            "-t ext2",
            "32M",
            32 * MIB,
            &["tune -j", "convert -q --to ext4 --all", "tune -O 64bit,metadata_csum,huge_file"],
        ),
    ];
    for (options, size, length, commands) in cases {
        let image = made(&scratch, options, size);
        File::options().write(true).open(&image).unwrap().set_len(length).unwrap();
        for command in commands {
            plat(command, &image, &[]).fine();
            fsck::assert_clean(&image);
        }
        assert_whole(&scratch, &image, options);
    }
}

/// The feature `project` stays when `-O quota` is set behind it.
#[test]
fn quota_keeps_the_feature_of_projects() {
    if !ready("quota_keeps_the_feature_of_projects") {
        return;
    }
    let scratch = Scratch::new("reported-project");
    let image = made(&scratch, "-t ext4 -I 256 -O project,^quota", "32M");
    plat("tune -O quota", &image, &[]).fine();
    let features = tool::dumpe2fs_field(&image, "Filesystem features").unwrap();
    assert!(features.contains("quota") && features.contains("project"), "{features}");
}

/// Hosts without a battery begin in the past at each start.
#[test]
fn a_clock_that_is_behind_is_in_nobodys_way() {
    if !ready("a_clock_that_is_behind_is_in_nobodys_way") {
        return;
    }
    let scratch = Scratch::new("reported-clock");
    let image = made(&scratch, "-t ext4", "32M");
    tool::debugfs_write(&image, "set_super_value mtime 20990101");
    let looked = plat("check -n", &image, &[]);
    let said = crate::checking::text(&looked);
    assert!(said.contains("time-of-mount"), "{said}");
    assert!(looked.code == std::process::ExitCode::SUCCESS && !said.contains("NOT SOUND"), "{said}");
    let preened = String::from_utf8(plat("check -p", &image, &[]).fine()).unwrap();
    assert!(preened.contains("clean") && !preened.contains("checking"), "{preened}");
    plat("tune -O quota", &image, &[]).fine();
    tool::debugfs_write(&image, "set_super_value mtime 20990101");
    plat("resize -M", &image, &[]).fine();
    tool::debugfs_write(&image, "set_super_value mtime 20990101");
    // A repair writes what time it is.
    assert_eq!(plat("check -fp", &image, &[]).code, std::process::ExitCode::from(1));
    assert_whole(&scratch, &image, "clock");
}

/// Files that were removed while they were open are work left over, as after a power failure: nothing is broken.
#[test]
fn a_volume_with_orphans_only_is_not_called_broken() {
    if !ready("a_volume_with_orphans_only_is_not_called_broken") {
        return;
    }
    let scratch = Scratch::new("reported-orphans");
    let image = scratch.join("orphans.img");
    let mut make = tool::command("mke2fs");
    tool::run(make.args(["-q", "-F", "-t", "ext4", "-O", "^orphan_file"]).arg(&image).arg("32M"));
    let file = scratch.join("file");
    std::fs::write(&file, "removed").unwrap();
    tool::debugfs_write(&image, &format!("write {} file", file.display()));
    for request in ["unlink file", "set_inode_field <12> links_count 0", "set_super_value last_orphan 12"] {
        tool::debugfs_write(&image, request);
    }
    let looked = plat("check -n", &image, &[]);
    let said = crate::checking::text(&looked);
    assert_eq!(looked.code, std::process::ExitCode::from(4), "{said}");
    assert!(said.contains("none of them damage") && !said.contains("NOT SOUND"), "{said}");
    assert_eq!(plat("check -p", &image, &[]).code, std::process::ExitCode::from(1));
    tool::run(tool::command("e2fsck").arg("-fn").arg(&image));
}

/// Runs `plat` with a limit of a file's size, in units of 512 bytes.
fn limited(limit: u64, arguments: &[&str], image: &Path, rest: &[&Path]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f {limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_plat")]);
    command.args(arguments).arg(image).args(rest).output().unwrap()
}

/// `ulimit -f` fails a write as a full disk does: nothing is cut off, and nothing is left behind.
#[test]
fn a_limit_of_a_files_size_is_an_error_and_no_end() {
    if !ready("a_limit_of_a_files_size_is_an_error_and_no_end") {
        return;
    }
    let scratch = Scratch::new("reported-limit");
    let image = made(&scratch, "-t ext4", "64M");
    let (file, len) = (scratch.join("file"), fs::metadata(&image).unwrap().len());
    fs::write(&file, vec![7; 40 << 20]).unwrap();
    let new = scratch.join("new.img");
    let tries: [(&[&str], &Path, &[&Path]); 4] = [
        (&["put"], &image, &[&file, Path::new("/file")]),
        (&["resize", "-M"], &image, &[]),
        (&["tune", "-I", "512"], &image, &[]),
        (&["mkfs", "-q"], &new, &[Path::new("64M")]),
    ];
    for (arguments, of, rest) in tries {
        let output = limited(4096, arguments, of, rest);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("File too large"), "{arguments:?}: {said}");
        assert_eq!(fs::metadata(&image).unwrap().len(), len, "{arguments:?}");
    }
    assert!(!new.exists());
    // A repair that can't be written is none.
    tool::debugfs_write(&image, "set_super_value free_blocks_count 5");
    let output = limited(2, &["check", "-fy"], &image, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("File too large"), "{said}");
    plat("check -fy", &image, &[]);
    assert_whole(&scratch, &image, "limit");
    assert_eq!(fs::metadata(&image).unwrap().len(), len);
}

#[test]
fn unknown_features_keep_a_volume_from_being_changed() {
    if !ready("unknown_features_keep_a_volume_from_being_changed") {
        return;
    }
    let scratch = Scratch::new("reported-features");
    let image = made(&scratch, "-t ext4", "32M");
    tool::debugfs_write(&image, "feature FEATURE_R20");
    let before = fs::read(&image).unwrap();
    for command in ["tune -L other", "tune -O quota", "resize -M", "mkdir"] {
        let rest: &[&std::ffi::OsStr] = if command == "mkdir" { &["/new".as_ref()] } else { &[] };
        let said = plat(command, &image, rest).failed();
        assert!(said.contains("FEATURE_R20"), "{command}: {said}");
    }
    assert!(fs::read(&image).unwrap() == before);
    plat("tune -l", &image, &[]).fine();
}

/// Partitions of vendors are of any size: a volume of 64 KiB has sixteen inodes.
#[test]
fn small_volumes_have_as_many_inodes_as_any_needs() {
    if !ready("small_volumes_have_as_many_inodes_as_any_needs") {
        return;
    }
    let scratch = Scratch::new("reported-small");
    let (tree, image) = (scratch.join("tree"), scratch.join("a.img"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("build.prop"), "a").unwrap();
    for size in ["64K", "100K", "500K", "1M"] {
        plat("mkfs -q -F -O ^has_journal", &image, &[size.as_ref()]).fine();
        fsck::assert_clean(&image);
        fs::remove_file(&image).unwrap();
        plat(&format!("build -q -O ^has_journal --size {size}"), &tree, &[image.as_os_str()]).fine();
        fsck::assert_clean(&image);
        fs::remove_file(&image).unwrap();
    }
}

/// Files that are recovered into their own volume take the blocks of those that are not yet.
#[test]
fn nothing_is_recovered_into_the_volume_itself() {
    let test = "nothing_is_recovered_into_the_volume_itself";
    if !ready(test) || !tool::have_root(test) {
        return;
    }
    let scratch = Scratch::new("reported-itself");
    let (image, place) = (made(&scratch, "-t ext4", "32M"), scratch.join("mounted"));
    fs::create_dir(&place).unwrap();
    tool::run(tool::command("mount").args(["-o", "loop"]).arg(&image).arg(&place));
    let into = |path: &Path| plat("undelete --into", path, &[image.as_os_str()]);
    let (new, there, outside) = (into(&place.join("new")), into(&place), into(&scratch.join("outside")));
    let made = place.join("new").exists();
    tool::run(tool::command("umount").arg(&place));
    for ran in [new, there] {
        let said = ran.failed();
        assert!(said.contains("lies in the volume that is to be recovered from"), "{said}");
    }
    assert!(!made && outside.code == std::process::ExitCode::SUCCESS, "{}", outside.err);
}
