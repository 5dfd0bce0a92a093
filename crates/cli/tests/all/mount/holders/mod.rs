//! Every command that writes, tried on every kind of image in use, by every name that it has: each is refused, names
//! the user of the image, and leaves the volume as it was. Commands that only read name the user, too.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::mount::have_loop_mount;
use testkit::scratch::Scratch;
use testkit::{fsck, tool};

use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{build, commands, plat, succeed};

/// Commands that write, IMAGE and HOST in place of the image and a directory of the host with a `file`,
/// a `tree` and a mount point `m`.
const WRITING: [&str; 29] = [
    "put IMAGE HOST/file /new",
    "import IMAGE HOST/file",
    "cp IMAGE /file /new",
    "mkdir IMAGE /new",
    "ln IMAGE /file /new",
    "mv IMAGE /file /new",
    "rm IMAGE /file",
    "chmod IMAGE 600 /file",
    "chown IMAGE 7:7 /file",
    "xattr -s user.a=b IMAGE /file",
    "xattr -r user.a IMAGE /file",
    "fallocate -l 8k IMAGE /file",
    "quota --on user IMAGE",
    "resize IMAGE 20M",
    "tune -L new IMAGE",
    "tune -O ^has_journal IMAGE",
    "placement IMAGE --set lease_tight=4",
    "convert --to ext3 --all IMAGE",
    "defrag IMAGE",
    "trim IMAGE",
    "build --force HOST/tree IMAGE",
    "build --force --size 4M HOST/tree IMAGE",
    "build --force --size min HOST/tree IMAGE",
    "mkfs -F IMAGE",
    "mkfs -F IMAGE 4M",
    "check -y IMAGE",
    "check -f -p IMAGE",
    "check --undo-from HOST/file IMAGE",
    "mount -f -o rw IMAGE HOST/m",
];

/// Those of them that let another file take the name.
const REPLACING: [&str; 4] = [
    "build --force HOST/tree IMAGE",
    "build --force --size min HOST/tree IMAGE",
    "mkfs -F IMAGE",
    "mkfs -F IMAGE 4M",
];

/// Commands that read an image; those with `--json` print it.
const READING: [&str; 22] = [
    "ls IMAGE",
    "ls --json IMAGE",
    "tree IMAGE",
    "stat --json IMAGE /file",
    "cat IMAGE /file",
    "get IMAGE /file HOST/copy",
    "export IMAGE -",
    "info --json IMAGE",
    "frag --json IMAGE",
    "freefrag --json IMAGE",
    "map --json IMAGE",
    "map -e --json IMAGE /file",
    "xattr --json IMAGE /file",
    "check -n --json IMAGE",
    "quota --json IMAGE",
    "tune -l --json IMAGE",
    "journal --json IMAGE",
    "undelete --json IMAGE",
    "image --metadata IMAGE HOST/copy",
    "map --json --block 100 IMAGE",
    "placement --json IMAGE",
    "diff --json IMAGE HOST/other",
];

/// Commands without an image, one that reads an image only while nobody writes to it, and those of stores and of NBD, whose
/// tests have holders of their own.
const OTHERS: [&str; 11] = [
    "stats",
    "sync",
    "umount",
    "help",
    "version",
    "snapshot",
    "completions",
    "serve",
    "push",
    "pull",
    "store",
];

/// Requirements of a test on the host, and images of one small tree.
struct Host {
    scratch: Scratch,
}

impl Host {
    fn new(test: &str) -> Self {
        let host = Host { scratch: Scratch::new(test) };
        for directory in ["tree", "m"] {
            fs::create_dir(host.join(directory)).unwrap();
        }
        fs::write(host.join("file"), "of the host").unwrap();
        fs::write(host.join("tree/file"), "old").unwrap();
        build(&host.join("tree"), &host.join("other"), &["--size", "16M"]);
        host
    }

    fn join(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        let image = self.join(name);
        build(&self.join("tree"), &image, &["--size", "16M"]);
        image
    }

    /// A disk with two partitions of 16 MiB, at 1 and 17 MiB, that hold the tree.
    fn disk(&self) -> PathBuf {
        let volume = fs::read(self.image("volume")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        for (entry, first) in [(446, 2048_u32), (462, 2048 + 32768)] {
            bytes[entry + 4] = 0x83;
            bytes[entry + 8..entry + 12].copy_from_slice(&first.to_le_bytes());
            bytes[entry + 12..entry + 16].copy_from_slice(&32768_u32.to_le_bytes());
        }
        bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
        let disk = self.join("disk.img");
        fs::write(&disk, [bytes, volume.clone(), volume].concat()).unwrap();
        disk
    }

    fn run(&self, line: &str, image: &Path) -> Output {
        let words = line.split(' ').map(|word| match word.strip_prefix("HOST") {
            _ if word == "IMAGE" => image.as_os_str().to_owned(),
            Some(rest) => self.join(rest.trim_start_matches('/')).into_os_string(),
            None => OsString::from(word),
        });
        plat(&[]).args(words).stdin(std::process::Stdio::null()).output().unwrap()
    }

    /// Asserts that these commands are refused on `image`, and say each of `words`.
    fn refused(&self, lines: &[&str], image: &Path, words: &[&str]) {
        for line in lines {
            let output = self.run(line, image);
            let said = String::from_utf8_lossy(&output.stderr);
            let expected = if line.starts_with("check") { 8 } else { 1 };
            assert_eq!(output.status.code(), Some(expected), "{line} on {}: {said}", image.display());
            for word in ["in use"].iter().chain(words) {
                assert!(said.contains(word), "{line} on {}: no `{word}` in: {said}", image.display());
            }
            assert_eq!(said.lines().count(), 1, "{line}: {said}");
        }
    }

    /// Asserts that all that read succeed on `image`, and name the program that writes, if there is one.
    fn read(&self, image: &Path, writer: Option<&str>) {
        for line in READING {
            let _ = fs::remove_file(self.join("copy"));
            let output = self.run(line, image);
            let said = String::from_utf8_lossy(&output.stderr);
            // A check of a volume that is written finds it unclean.
            let checks = line.starts_with("check");
            assert!(output.status.success() || checks && writer.is_some(), "{line}: {said}");
            match writer {
                Some(who) => assert!(said.contains(who) && said.lines().count() == 1, "{line}: {said}"),
                None => assert_eq!(said, "", "{line}"),
            }
            if line.contains("--json") {
                let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
                assert!(parsed.is_ok(), "{line}");
            }
        }
    }
}

fn part(disk: &Path, part: &str) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(part);
    name.into()
}

/// Asserts that an image is sound and holds what it was made of, and nothing new.
fn untouched(image: &Path) {
    fsck::assert_clean(image);
    assert_eq!(succeed(plat(&["cat"]).arg(image).arg("/file")).stdout, b"old");
    assert_eq!(plat(&["stat"]).arg(image).arg("/new").output().unwrap().status.code(), Some(1));
}

/// A loop device; detached when this value goes.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path, options: &[&str]) -> Self {
        let made = tool::run(tool::command("losetup").args(["-f", "--show"]).args(options).arg(file));
        Loop(PathBuf::from(String::from_utf8(made.stdout).unwrap().trim()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tool::command("losetup").arg("-d").arg(&self.0).output();
    }
}

/// A mount by the kernel of a block device; unmounted when this value goes.
struct Kernel(PathBuf);

impl Kernel {
    fn new(device: &Path, directory: &Path, options: &str) -> Self {
        let mut command = tool::command("mount");
        tool::run(command.args(["-t", "ext4", "-o", options]).arg(device).arg(directory));
        Kernel(directory.to_owned())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for _ in 0..50 {
            let done = tool::command("umount").arg(&self.0).output();
            if done.is_ok_and(|done| done.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

fn able(test: &str) -> bool {
    tool::have_tools(test, &["losetup", "e2fsck"]) && have_loop_mount(test)
}

#[test]
fn every_command_is_in_a_table() {
    let first = |line: &&str| line.split(' ').next().map(str::to_owned);
    let known: Vec<String> = WRITING.iter().chain(&READING).chain(&OTHERS).filter_map(first).collect();
    let mut count = 0;
    for command in commands() {
        count += 1;
        assert!(known.contains(&command), "{command}: does it write? it belongs in a table");
    }
    assert!(count > 20, "{count} commands");
}

#[test]
fn what_the_kernel_has_mounted() {
    let test = "what_the_kernel_has_mounted";
    if !able(test) {
        return;
    }
    let host = Host::new(test);
    let image = host.image("disk.img");
    let [hard, soft, bound] = ["hard", "soft", "bound"].map(|name| host.join(name));
    fs::hard_link(&image, &hard).unwrap();
    symlink("disk.img", &soft).unwrap();
    File::create(&bound).unwrap();
    tool::run(tool::command("mount").arg("--bind").arg(&image).arg(&bound));
    let _bound = Kernel(bound.clone());
    let device = Loop::new(&image, &[]);
    let directory = host.join("kernel");
    fs::create_dir(&directory).unwrap();
    let words = [&*format!("the kernel has it mounted on {}", directory.display()), "`umount "];
    let mounted = Kernel::new(&device.0, &directory, "rw");
    for name in [&device.0, &image, &hard, &soft, &bound] {
        host.refused(&WRITING, name, &words);
    }
    host.refused(&["mount -f -o ro IMAGE HOST/m", "snapshot IMAGE HOST/copy"], &image, &words);
    host.read(&image, Some(words[0]));
    host.read(&device.0, Some(words[0]));
    fs::write(directory.join("kernel"), "writes on").unwrap();
    drop(mounted);
    untouched(&image);
    // Read-only it would mix what it has read with what is new; a mount that only reads may share it.
    let mounted = Kernel::new(&device.0, &directory, "ro");
    for name in [&device.0, &image] {
        host.refused(&WRITING, name, &["mounted read-only on"]);
        host.read(name, None);
    }
    drop(mounted);
    untouched(&image);
    // With a loop device alone it can be changed in place, by either name, but not be replaced.
    host.refused(&REPLACING, &image, &["stands on it", "`losetup -d "]);
    assert!(host.run("mkdir IMAGE /one", &image).status.success());
    assert!(host.run("mkdir IMAGE /two", &device.0).status.success());
    untouched(&image);
    // Another program that has taken the device.
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let taken = OpenOptions::new().read(true).custom_flags(exclusive).open(&device.0).unwrap();
    host.refused(&WRITING[..1], &image, &["is taken"]);
    host.refused(&WRITING[..1], &device.0, &["is taken"]);
    drop(taken);
    drop(device);
    assert!(host.run("build --force --size 4M HOST/tree IMAGE", &image).status.success());
    untouched(&image);
}

#[test]
fn what_a_mount_of_ours_holds() {
    let test = "what_a_mount_of_ours_holds";
    if !have_fuse(test) || !tool::have_tools(test, &["e2fsck"]) {
        return;
    }
    let host = Host::new(test);
    let image = host.image("disk.img");
    let [hard, soft] = ["hard", "soft"].map(|name| host.join(name));
    fs::hard_link(&image, &hard).unwrap();
    symlink("disk.img", &soft).unwrap();
    for options in ["rw", "ro"] {
        let mounted = Mounted::new(&image, &["-o", options]).unwrap();
        let words = [&*format!("mounted on {}", mounted.path().display()), "`plat umount "];
        let words = if options == "ro" { ["plat has it mounted read-only", "`plat umount "] } else { words };
        for name in [&image, &hard, &soft] {
            host.refused(&WRITING, name, &words);
        }
        host.read(&image, (options == "rw").then_some(words[0]));
        drop(mounted.unmount());
        untouched(&image);
    }
    if !able(test) {
        return;
    }
    // By the name of a loop device: the file below is the same image.
    let device = Loop::new(&image, &[]);
    let mounted = Mounted::new(&device.0, &["-o", "rw"]).unwrap();
    for name in [&image, &device.0] {
        host.refused(&WRITING, name, &["plat has it mounted on"]);
    }
    drop(mounted.unmount());
    let mounted = Mounted::new(&image, &["-o", "rw"]).unwrap();
    host.refused(&WRITING, &device.0, &["plat has it mounted on"]);
    drop(mounted.unmount());
    drop(device);
    untouched(&image);
}

/// Linux opens such a device for writing, and only writes fail: too late for whom a mount has accepted bytes from.
#[test]
fn a_write_protected_device_is_mounted_for_reading() {
    let test = "a_write_protected_device_is_mounted_for_reading";
    if !have_fuse(test) || !able(test) {
        return;
    }
    let host = Host::new(test);
    let image = host.image("disk.img");
    let device = Loop::new(&image, &["-r"]);
    let refused = Mounted::new(&device.0, &["-o", "rw"]).err().unwrap_or_default();
    assert!(refused.contains("write-protected"), "{refused}");
    let mounted = Mounted::new(&device.0, &[]).unwrap();
    let error = fs::write(mounted.path().join("new"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let log = mounted.unmount().join(" ");
    assert!(log.contains("mounted for reading only") && log.contains("write-protected"), "{log}");
    let refused = plat(&["mkdir"]).arg(&device.0).arg("/new").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    untouched(&image);
}

#[test]
fn parts_of_a_disk() {
    let test = "parts_of_a_disk";
    if !able(test) || !have_fuse(test) {
        return;
    }
    let host = Host::new(test);
    let disk = host.disk();
    let directory = host.join("kernel");
    fs::create_dir(&directory).unwrap();
    let first = Loop::new(&disk, &["-o", "1M", "--sizelimit", "16M"]);
    let mounted = Kernel::new(&first.0, &directory, "rw");
    let meeting = ["", "@part1", "@1M", "@0x100000", "@512", "@2M"].map(|name| part(&disk, name));
    for name in &meeting {
        host.refused(&WRITING, name, &["the kernel has it mounted on"]);
    }
    // The other partition is another matter, for commands and mounts.
    let second = part(&disk, "@part2");
    assert!(host.run("mkdir IMAGE /one", &second).status.success());
    let ours = Mounted::new(&second, &["-o", "rw"]).unwrap();
    fs::write(ours.path().join("two"), "2").unwrap();
    host.refused(&WRITING, &second, &["plat has it mounted on"]);
    host.refused(&WRITING[..1], &part(&disk, "@17M"), &[]);
    fs::write(directory.join("kernel"), "writes on").unwrap();
    drop(mounted);
    drop(first);
    // Now the second is held by us, the first is free, and the whole is not.
    assert!(host.run("mkdir IMAGE /one", &meeting[1]).status.success());
    host.refused(&WRITING, &disk, &["plat has it mounted on"]);
    host.refused(&WRITING, &meeting[2], &["plat has it mounted on"]);
    drop(ours.unmount());
    let bytes = fs::read(&disk).unwrap();
    for start in [1 << 20, 17 << 20] {
        let inner = host.join("inner");
        fs::write(&inner, &bytes[start..start + (16 << 20)]).unwrap();
        untouched(&inner);
    }
}

#[test]
fn partitions_that_the_kernel_knows() {
    let test = "partitions_that_the_kernel_knows";
    if !able(test) {
        return;
    }
    let host = Host::new(test);
    let disk = host.disk();
    let device = Loop::new(&disk, &["-P"]);
    let [one, two] = ["p1", "p2"].map(|name| part(&device.0, name));
    if !one.exists() || !two.exists() {
        tool::skip(test, "the kernel makes no partitions of loop devices here");
        return;
    }
    let directory = host.join("kernel");
    fs::create_dir(&directory).unwrap();
    let mounted = Kernel::new(&one, &directory, "rw");
    let whole = [device.0.clone(), disk.clone(), part(&device.0, "@part1"), part(&disk, "@part1")];
    for name in whole.iter().chain([&one, &part(&device.0, "@1M")]) {
        host.refused(&WRITING, name, &["the kernel has it mounted on"]);
    }
    for name in [&two, &part(&device.0, "@part2"), &part(&disk, "@part2")] {
        assert!(host.run("mkdir IMAGE /one", name).status.success(), "{}", name.display());
        assert!(host.run("rm -r IMAGE /one", name).status.success(), "{}", name.display());
    }
    drop(mounted);
    let mounted = Kernel::new(&device.0, &directory, "loop,offset=17825792,rw");
    for name in [&two, &part(&device.0, "@part2"), &part(&disk, "@part2"), &device.0, &disk] {
        host.refused(&WRITING, name, &["the kernel has it mounted on"]);
    }
    drop(mounted);
    for name in [&one, &two] {
        untouched(name);
    }
}
