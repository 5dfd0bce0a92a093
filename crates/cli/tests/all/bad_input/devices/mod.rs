//! Builds into a partition that is there already: what does not fit is known before anything is written.
//! And what images are called: every odd name gives one clear line.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::scratch::Scratch;
use testkit::{fsck, odd, tool};

use crate::support::{build, fail, modest_tree, plat, succeed};

/// Where the partition begins.
const START: usize = 1 << 20;

/// A disk image with one partition of `size` bytes, which holds a volume, and bytes around it.
fn disk(scratch: &Scratch, size: usize) -> PathBuf {
    let path = scratch.join("disk.img");
    let mut bytes = vec![0xA5; START + size + 4096];
    bytes[446..510].fill(0);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&u32::try_from(size / 512).unwrap().to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(&path, bytes).unwrap();
    succeed(plat(&["mkfs", "-q", "-F"]).arg(part(&path, "@part1")));
    path
}

fn part(disk: &Path, part: &str) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(part);
    name.into()
}

/// The volume in the partition.
fn volume(disk: &Path, scratch: &Scratch) -> PathBuf {
    let bytes = fs::read(disk).unwrap();
    let inner = scratch.join("inner");
    fs::write(&inner, &bytes[START..bytes.len() - 4096]).unwrap();
    assert!(bytes[512..START].iter().chain(&bytes[bytes.len() - 4096..]).all(|byte| *byte == 0xA5));
    inner
}

/// Runs a build that must fail, and asserts that the disk is byte for byte what it was.
fn refused(command: &mut Command, disk: &Path, words: &[&str]) -> String {
    let before = fs::read(disk).unwrap();
    let said = fail(command);
    assert!(fs::read(disk).unwrap() == before, "{command:?}: the disk changed: {said}");
    for word in words {
        assert!(said.contains(word), "{command:?}: no `{word}` in: {said}");
    }
    said
}

#[test]
fn a_source_that_is_too_large_for_a_partition_leaves_it_as_it_is() {
    let scratch = Scratch::new("too-large");
    let disk = disk(&scratch, 4 << 20);
    let target = part(&disk, "@part1");
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("data"), vec![1; 5 << 20]).unwrap();
    let archive = scratch.join("a.tar");
    odd::pack(&tree, &archive);
    let words = ["4194304 bytes", "need ", "nothing was written"];
    for source in [&tree, &archive] {
        refused(plat(&["build", "--force"]).arg(source).arg(&target), &disk, &words);
        refused(plat(&["build", "--force", "--size", "min"]).arg(source).arg(&target), &disk, &words);
        refused(
            plat(&["build", "--force", "--size", "3M"]).arg(source).arg(&target),
            &disk,
            &["3145728 bytes", "need ", "nothing was written"],
        );
    }
    let stdin = File::open(&archive).unwrap();
    refused(plat(&["build", "--force", "-"]).arg(&target).stdin(stdin), &disk, &words);
    let large = ["build", "--force", "--size", "8M"];
    refused(plat(&large).arg(&tree).arg(&target), &disk, &["it has 4194304 bytes", "8388608"]);
    // Too many inodes, and what the format can't hold at any size.
    fs::remove_file(tree.join("data")).unwrap();
    for index in 0..100 {
        fs::write(tree.join(format!("{index}")), "").unwrap();
    }
    refused(plat(&["build", "--force", "-N", "40"]).arg(&tree).arg(&target), &disk, &["inode"]);
    File::create(tree.join("giant")).unwrap().set_len(5 << 40).unwrap();
    refused(plat(&["build", "--force", "-b", "1024"]).arg(&tree).arg(&target), &disk, &["giant"]);
    fs::remove_file(tree.join("giant")).unwrap();
    succeed(plat(&["build", "--force"]).arg(&tree).arg(&target));
    if tool::have_tools("too large", &["e2fsck"]) {
        fsck::assert_clean(&volume(&disk, &scratch));
    }
}

#[test]
fn around_the_smallest_size_it_fits_or_nothing_is_written() {
    if !tool::have_tools("smallest", &["e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("smallest");
    let disk = disk(&scratch, 32 << 20);
    let target = part(&disk, "@part1");
    let tree = modest_tree(&scratch, &odd::Options::modest());
    // So long that its map takes blocks, and cut at the tables of groups.
    fs::write(tree.join("long"), vec![3; 9 << 20]).unwrap();
    for options in [["-b", "1024"], ["-t", "ext3"], ["-O", "inline_data,quota"]] {
        let made = succeed(
            plat(&["build", "--force", "--json", "--size", "min"]).args(options).arg(&tree).arg(&target),
        );
        let facts: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        let (least, block) = (facts["bytes"].as_u64().unwrap(), facts["block_size"].as_u64().unwrap());
        let inner = volume(&disk, &scratch);
        fsck::assert_clean(&inner);
        // With the inodes stated it may be a little smaller still; then it is refused.
        let inodes = facts["inodes"].to_string();
        let mut refusals = 0;
        for less in [1, 3, 13, 144, 987] {
            let size = least.saturating_sub(less * block).to_string();
            let mut command = plat(&["build", "--force", "-q", "--size", &size, "-N", &inodes]);
            let before = fs::read(&disk).unwrap();
            let output = command.args(options).arg(&tree).arg(&target).output().unwrap();
            if output.status.success() {
                assert_eq!(refusals, 0, "{options:?}: {less} blocks less fit, fewer did not");
                fsck::assert_clean(&volume(&disk, &scratch));
                continue;
            }
            refusals += 1;
            assert!(fs::read(&disk).unwrap() == before, "{options:?}: {less} blocks less: {output:?}");
        }
        assert!(refusals > 0, "{options:?}: nothing is too small");
    }
}

#[test]
fn a_forced_build_through_a_link_writes_what_it_leads_to() {
    let scratch = Scratch::new("link");
    let tree = scratch.join("tree");
    fs::create_dir_all(scratch.join("there")).unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(scratch.join("there/disk.img"), "").unwrap();
    let link = scratch.join("link.img");
    std::os::unix::fs::symlink("there/disk.img", &link).unwrap();
    build(&tree, &link, &["--force"]);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("there/disk.img"));
    assert!(fs::metadata(scratch.join("there/disk.img")).unwrap().len() > 100_000);
    succeed(plat(&["mkfs", "-q", "-F"]).arg(&link).arg("2M"));
    assert_eq!(fs::metadata(scratch.join("there/disk.img")).unwrap().len(), 2 << 20);
    let archive = scratch.join("a.tar");
    std::os::unix::fs::symlink("there/new.tar", &archive).unwrap();
    succeed(plat(&["export", "--force"]).arg(&link).arg(&archive));
    assert!(fs::symlink_metadata(&archive).unwrap().is_symlink());
    assert!(fs::metadata(scratch.join("there/new.tar")).unwrap().len() > 0);
    assert_eq!(fs::read_dir(scratch.join("there")).unwrap().count(), 2, "nothing is left beside");
}

#[test]
fn streams_without_an_end_are_no_archives() {
    let scratch = Scratch::new("endless");
    let image = scratch.join("image");
    for source in ["/dev/zero", "/dev/urandom"] {
        let said = fail(plat(&["build", source]).arg(&image));
        assert!(said.contains(source) && said.contains("no tar archive"), "{said}");
        let stdin = File::open(source).unwrap();
        let said = fail(plat(&["build", "-"]).arg(&image).stdin(stdin));
        assert!(said.contains("standard input") && said.contains("no tar archive"), "{said}");
    }
    // Packed zeros that go on for ever.
    let mut child =
        plat(&["build", "-"]).arg(&image).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let packed = gzip_of_zeros();
    let mut input = child.stdin.take().unwrap();
    while input.write_all(&packed).is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!image.exists());
}

/// A member of a gzip stream: any number of them is one, too.
fn gzip_of_zeros() -> Vec<u8> {
    let zeros = vec![0; 1 << 20];
    let mut child = tool::command("gzip");
    let mut child = child.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&zeros));
    let packed = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap().unwrap();
    packed
}

fn code_and_words(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Commands that open an image first, to read and to write.
const OPENING: [&str; 8] = [
    "ls IMAGE",
    "info IMAGE",
    "cat IMAGE /x",
    "export IMAGE -",
    "check -n IMAGE",
    "check -y IMAGE",
    "mkdir IMAGE /x",
    "put IMAGE /etc/hostname /x",
];

#[test]
fn odd_names_of_images_are_reported_in_one_line() {
    let scratch = Scratch::new("odd");
    let (tree, image) = (scratch.join("tree"), scratch.join("sound.img"));
    fs::create_dir(&tree).unwrap();
    build(&tree, &image, &["--size", "4M"]);
    disk(&scratch, 4 << 20);
    tool::run(tool::command("mkfifo").arg(scratch.join("fifo")));
    for (name, contents) in other_files(&image) {
        fs::write(scratch.join(name), contents).unwrap();
    }
    let long = "n".repeat(300);
    let none = "is no ext2, ext3 or ext4 volume";
    let cases = [
        ("", "o such file"),
        ("missing", "o such file"),
        ("missing@part1", "o such file"),
        (&long, "too long"),
        ("sound.img/x", "ot a directory"),
        ("tree", "is a directory"),
        ("fifo", "is a special file"),
        ("/dev/null", "is a special file"),
        ("sound.img@", "names no part"),
        ("sound.img@root", "names no part"),
        ("sound.img@part", "names no part"),
        ("sound.img@part-1", "names no part"),
        ("sound.img@0x", "names no part"),
        ("sound.img@0xG", "names no part"),
        ("sound.img@part99999999999999999999", "names no part"),
        ("sound.img@part1", "no partition table"),
        ("sound.img@part:root", "no partition table"),
        ("sound.img@2", "no multiple of 512"),
        ("sound.img@0x7", "no multiple of 512"),
        ("sound.img@1T", "behind its end"),
        ("sound.img@0xfffffffffffffe00", "behind its end"),
        ("sound.img@1M", none),
        ("disk.img", "disk.img@part1"),
        ("disk.img@part0", "has no partition 0; it has part1"),
        ("disk.img@part2", "has no partition 2; it has part1"),
        ("disk.img@part4294967295", "it has part1"),
        ("disk.img@part:x", "0 partitions with the name `x`"),
        ("empty", none),
        ("text", none),
        ("a.tar", "a tar archive"),
        ("a.gz", "compressed with gzip"),
        ("a.qcow2", "a qcow2 image"),
        ("a.xfs", "an XFS volume"),
        ("a.zip", "a zip archive"),
    ];
    for (name, expected) in cases {
        for line in OPENING {
            let path = if name.starts_with('/') { PathBuf::from(name) } else { scratch.join(name) };
            let path = if name.is_empty() { PathBuf::new() } else { path };
            let words = line.split(' ').map(|word| match word {
                "IMAGE" => path.as_os_str().as_bytes().to_vec(),
                word => word.as_bytes().to_vec(),
            });
            let mut command = plat(&[]);
            for word in words {
                command.arg(std::ffi::OsStr::from_bytes(&word));
            }
            let (code, said) = code_and_words(&command.output().unwrap());
            let failed = if line.starts_with("check") { 8 } else { 1 };
            assert_eq!(code, Some(failed), "{line}, {name}: {said}");
            assert!(said.contains(expected), "{line}, {name}: no `{expected}` in: {said}");
            assert_eq!(said.lines().count(), 1, "{line}, {name}: {said}");
            assert!(!said.contains("panicked"), "{line}, {name}: {said}");
        }
    }
    if tool::have_tools("odd names", &["e2fsck"]) {
        fsck::assert_clean(&image);
    }
}

/// Files that are taken for images.
fn other_files(image: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let padded = |start: &[u8]| {
        let mut bytes = start.to_vec();
        bytes.resize(100_000, 0);
        bytes
    };
    let mut tar = vec![0; 100_000];
    tar[257..262].copy_from_slice(b"ustar");
    let mut cut = fs::read(image).unwrap();
    cut.truncate(1446);
    vec![
        ("empty", Vec::new()),
        ("text", cut.iter().map(|byte| byte % 26 + b'a').collect()),
        ("a.tar", tar),
        ("a.gz", padded(b"\x1f\x8b\x08")),
        ("a.qcow2", padded(b"QFI\xfb")),
        ("a.xfs", padded(b"XFSB")),
        ("a.zip", padded(b"PK\x03\x04")),
    ]
}

#[test]
fn partitions_of_a_gpt_are_found_by_name() {
    if !tool::have_tools("gpt", &["sfdisk"]) {
        return;
    }
    let scratch = Scratch::new("gpt");
    let disk = scratch.join("disk.img");
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    let table = "label: gpt\nsize=8M, name=root\nsize=8M, name=\"my data\"\nsize=4M, name=root2\nsize=2M, name=root2\n";
    let mut child = tool::command("sfdisk");
    let mut child = child.arg("-q").arg(&disk).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("x"), "by name").unwrap();
    for (name, number) in [("@part:root", "@part1"), ("@part:my data", "@part2")] {
        succeed(plat(&["build", "--force"]).arg(&tree).arg(part(&disk, name)));
        let read = succeed(plat(&["cat"]).arg(part(&disk, number)).arg("/x"));
        assert_eq!(read.stdout, b"by name");
        succeed(plat(&["rm"]).arg(part(&disk, name)).arg("/x"));
        fail(plat(&["cat"]).arg(part(&disk, number)).arg("/x"));
    }
    let known = "it has part1 (root), part2 (my data), part3 (root2), part4 (root2)";
    let said = fail(plat(&["ls"]).arg(part(&disk, "@part:root2")));
    assert!(said.contains("2 partitions with the name `root2`") && said.contains(known), "{said}");
    let said = fail(plat(&["mkfs", "-F"]).arg(part(&disk, "@part:Root")));
    assert!(said.contains("0 partitions") && said.contains(known), "{said}");
}
