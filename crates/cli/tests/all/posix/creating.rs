//! `mkdir`, `mknod`, `symlink`, and the names that they take.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{CWD, FileType, Mode, OFlags as O};

cases![
    directories,
    directories_that_can_not_be,
    link_counts_of_directories,
    nodes_of_every_type,
    device_numbers,
    nodes_by_another_user,
    symlinks,
    symlink_lengths,
    symlinks_that_can_not_be,
    symlinks_are_followed,
    names_of_255_bytes,
    names_too_long,
    paths_too_long,
    odd_names,
    dots,
    group_of_directory_is_inherited,
    set_group_id_of_new_files,
    owners_of_new_files,
    in_a_removed_directory,
    many_in_one_directory,
];

fn directories(t: &mut Transcript) {
    for mode in [0o755, 0o700, 0, 0o7777, 0o1777, 0o2755] {
        t.mkdir(&format!("d{mode:o}"), mode);
        t.stat(&format!("d{mode:o}"));
    }
    t.list("d755");
    t.mkdir("d755/below", 0o755);
    t.stat("d755");
    t.stat("d755/below/..");
}

fn directories_that_can_not_be(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("nowhere", "s");
    t.mkdir("a", 0o755);
    t.mkdir("s", 0o755);
    t.mkdir("a/b", 0o755);
    t.mkdir("missing/b", 0o755);
    t.mkdir("", 0o755);
    t.mkdir(".", 0o755);
    t.mkdir("..", 0o755);
    t.mkdir("/", 0o755);
    t.mkdir("d", 0o755);
    t.mkdir("d", 0o755);
    t.mkdir("d/.", 0o755);
    t.mkdir("e/.", 0o755);
    t.list(".");
}

fn link_counts_of_directories(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    for number in 0..5 {
        t.mkdir(&format!("d/{number}"), 0o755);
    }
    t.file("d/file", b"");
    t.stat("d");
    t.rmdir("d/3");
    t.stat("d");
    t.unlink("d/file");
    t.stat("d");
}

fn nodes_of_every_type(t: &mut Transcript) {
    let types = [
        FileType::RegularFile,
        FileType::Fifo,
        FileType::Socket,
        FileType::CharacterDevice,
        FileType::BlockDevice,
        FileType::Directory,
        FileType::Symlink,
    ];
    for (index, kind) in types.into_iter().enumerate() {
        let name = format!("n{index}");
        t.mknod(&name, kind, 0o640, (7, 9));
        t.stat(&name);
        t.mknod(&name, kind, 0o640, (7, 9));
    }
    t.file("a", b"x");
    t.mknod("a", FileType::Fifo, 0o644, (0, 0));
    t.mknod("a/b", FileType::Fifo, 0o644, (0, 0));
    t.mknod("missing/b", FileType::Fifo, 0o644, (0, 0));
    t.mknod("set", FileType::Fifo, 0o7777, (0, 0));
    t.stat("set");
}

fn device_numbers(t: &mut Transcript) {
    for device in [(0, 0), (1, 3), (255, 255), (256, 0), (8, 256), (4095, 1_048_575), (0, 1_048_575)] {
        let name = format!("c{}_{}", device.0, device.1);
        t.mknod(&name, FileType::CharacterDevice, 0o600, device);
        t.stat(&name);
    }
    t.mknod("b", FileType::BlockDevice, 0o600, (259, 70_000));
    t.stat("b");
}

fn nodes_by_another_user(t: &mut Transcript) {
    t.chmod(".", 0o777);
    t.as_user(1001, |t| {
        t.mknod("file", FileType::RegularFile, 0o644, (0, 0));
        t.mknod("fifo", FileType::Fifo, 0o644, (0, 0));
        t.mknod("socket", FileType::Socket, 0o644, (0, 0));
        t.mknod("char", FileType::CharacterDevice, 0o644, (1, 3));
        t.mknod("block", FileType::BlockDevice, 0o644, (7, 0));
    });
    for name in ["file", "fifo", "socket"] {
        t.stat(name);
    }
    t.list(".");
}

fn symlinks(t: &mut Transcript) {
    t.symlink("target", "s");
    t.stat("s");
    t.readlink("s");
    t.symlink("/absolute/and/missing", "abs");
    t.readlink("abs");
    t.symlink("..//x/./y/", "odd");
    t.readlink("odd");
    t.file("a", b"x");
    t.readlink("a");
    t.readlink(".");
    t.readlink("missing");
    t.readlink("a/x");
    t.stat("abs");
}

fn symlink_lengths(t: &mut Transcript) {
    for length in [1, 58, 59, 60, 61, 255, 1000, 1023, 1024, 2047, 4000, 4094, 4095, 4096, 5000] {
        let name = format!("s{length}");
        t.symlink(&"t".repeat(length), &name);
        t.stat(&name);
        t.readlink(&name);
    }
}

fn symlinks_that_can_not_be(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("x", "a");
    t.symlink("", "empty");
    t.symlink("x", "");
    t.symlink("x", "a/b");
    t.symlink("x", "missing/b");
    t.symlink("x", "s");
    t.symlink("y", "s");
    t.readlink("s");
    t.list(".");
}

fn symlinks_are_followed(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"inside");
    t.symlink("d", "s");
    t.symlink("../d/a", "d/up");
    t.contents("s/a");
    t.contents("s/up");
    t.mkdir("s/new", 0o755);
    t.file("s/b", b"y");
    t.chmod("s", 0o700);
    t.stat("s");
    t.stat("d");
    t.list("d");
    t.list("s");
    t.rmdir("s");
    t.unlink("s");
    t.list(".");
}

fn names_of_255_bytes(t: &mut Transcript) {
    for length in [100, 254, 255] {
        let of = |letter: &str| letter.repeat(length);
        t.file(&of("f"), b"x");
        t.contents(&of("f"));
        t.mkdir(&of("d"), 0o755);
        t.file(&format!("{}/{}", of("d"), of("i")), b"y");
        t.symlink("x", &of("s"));
        t.link(&of("f"), &of("l"));
        t.rename(&of("l"), &of("r"));
    }
    t.list(".");
    t.unlink(&"f".repeat(255));
    t.stat(&"r".repeat(255));
}

fn names_too_long(t: &mut Transcript) {
    let name = "n".repeat(256);
    t.file("a", b"x");
    t.open(&name, O::RDONLY, 0);
    t.open(&name, O::WRONLY | O::CREATE, 0o644);
    t.mkdir(&name, 0o755);
    t.mknod(&name, FileType::Fifo, 0o644, (0, 0));
    t.symlink("x", &name);
    t.link("a", &name);
    t.rename("a", &name);
    t.rename(&name, "a");
    t.stat(&name);
    t.unlink(&name);
    t.rmdir(&name);
    t.chmod(&name, 0o644);
    t.stat(&format!("{name}/x"));
    t.list(".");
}

fn paths_too_long(t: &mut Transcript) {
    for length in [4094, 4095, 4096] {
        let path = "./".repeat(length / 2) + if length % 2 == 0 { "" } else { "." };
        t.stat(&path);
        t.open(&path, O::RDONLY, 0);
        t.mkdir(&path, 0o755);
    }
    // A relative path leads further than an absolute one can.
    let name = "n".repeat(250);
    let here = rustix::fs::open(".", O::PATH | O::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20 {
        t.check("mkdir", rustix::fs::mkdir(name.as_str(), Mode::from_raw_mode(0o755)));
        t.check("chdir", rustix::process::chdir(name.as_str()));
    }
    t.file("deep", b"reached");
    t.contents("deep");
    t.unlink("deep");
    // Others look at the tree by absolute paths.
    for _ in 0..20 {
        t.check("up", rustix::process::chdir(".."));
        t.check("rmdir", rustix::fs::rmdir(name.as_str()));
    }
    t.check("back", rustix::process::fchdir(&here));
}

fn odd_names(t: &mut Transcript) {
    let names: [&[u8]; 9] =
        [b" ", b"a\nb", b"\x01", b"\x7f", b"\xff\xfe", b"\xc3\xa9", b"-rf", b"...", b"a\\b*?"];
    for name in names {
        let made = rustix::fs::open(name, O::WRONLY | O::CREATE | O::EXCL, Mode::from_raw_mode(0o644));
        t.did(name.escape_ascii().to_string(), made);
        let directory = [name, b".d"].concat();
        t.did("directory", rustix::fs::mkdir(directory.as_slice(), Mode::from_raw_mode(0o755)));
    }
    t.list(".");
    for name in names {
        t.did(name.escape_ascii().to_string(), rustix::fs::unlink(name));
    }
    t.list(".");
}

fn dots(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    for path in ["d/.", "d/..", ".", "..", "d/./.", "d/../d"] {
        t.stat(path);
    }
    t.unlink("d/.");
    t.unlink("d/..");
    t.rmdir("d/.");
    t.rmdir("d/..");
    t.rename("d/.", "e");
    t.rename("d", "e/.");
    t.rename("d/..", "e");
    t.link("d/.", "l");
    t.list(".");
}

fn group_of_directory_is_inherited(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.chown("d", Some(1001), Some(2002));
    t.chmod("d", 0o2775);
    t.stat("d");
    t.file("d/a", b"x");
    t.mkdir("d/sub", 0o755);
    t.mknod("d/fifo", FileType::Fifo, 0o644, (0, 0));
    t.symlink("x", "d/link");
    t.mkdir("d/sub/sub", 0o700);
    for name in ["d/a", "d/sub", "d/fifo", "d/link", "d/sub/sub"] {
        t.stat(name);
    }
    t.open("d", O::RDWR | O::TMPFILE, 0o640).map(|fd| t.fstat(&fd));
}

fn set_group_id_of_new_files(t: &mut Transcript) {
    t.mkdir("d", 0o777);
    t.chown("d", Some(0), Some(2002));
    t.chmod("d", 0o2777);
    // A file gets the bit only if its maker is in the group, or is privileged.
    t.as_user(1001, |t| {
        t.open("d/a", O::WRONLY | O::CREATE, 0o2775);
        t.stat("d/a");
        t.open("d/b", O::WRONLY | O::CREATE, 0o2765);
        t.stat("d/b");
        t.mkdir("d/sub", 0o2775);
        t.stat("d/sub");
    });
    t.as_user_in(1001, 1001, &[2002], |t| {
        t.open("d/c", O::WRONLY | O::CREATE, 0o2775);
        t.stat("d/c");
    });
    t.open("d/e", O::WRONLY | O::CREATE, 0o2775);
    t.stat("d/e");
}

fn owners_of_new_files(t: &mut Transcript) {
    t.chmod(".", 0o777);
    t.as_user_in(1001, 1002, &[1003], |t| {
        t.file("a", b"x");
        t.mkdir("d", 0o755);
        t.symlink("x", "s");
        t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    });
    for name in ["a", "d", "s", "p"] {
        t.stat(name);
    }
    t.as_user(70_000, |t| t.file("large", b"x"));
    t.stat("large");
}

fn in_a_removed_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    let Some(fd) = t.open("d", O::RDONLY | O::DIRECTORY, 0) else { return };
    t.rmdir("d");
    t.fstat(&fd);
    let mode = Mode::from_raw_mode(0o755);
    t.did("create", rustix::fs::openat(&fd, "a", O::WRONLY | O::CREATE, mode));
    t.did("mkdir", rustix::fs::mkdirat(&fd, "a", mode));
    t.did("symlink", rustix::fs::symlinkat("x", &fd, "a"));
    t.did("mknod", rustix::fs::mknodat(&fd, "a", FileType::Fifo, mode, 0));
    t.file("b", b"x");
    t.did("link", rustix::fs::linkat(CWD, "b", &fd, "b", rustix::fs::AtFlags::empty()));
    t.did("rename", rustix::fs::renameat(CWD, "b", &fd, "b"));
    t.did("unnamed", rustix::fs::openat(&fd, ".", O::RDWR | O::TMPFILE, mode));
    let listed = crate::posix::transcript::entries_from(&fd, usize::MAX).map(|found| found.len());
    t.record("list", listed);
    t.did("lookup", rustix::fs::openat(&fd, "missing", O::RDONLY, mode));
    t.did("again", rustix::fs::openat(&fd, ".", O::RDONLY, mode));
}

fn many_in_one_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    for number in 0..1500 {
        let name = format!("d/{number:04}{}", "x".repeat(number % 60));
        t.check(
            "create",
            rustix::fs::open(name, O::WRONLY | O::CREATE | O::EXCL, Mode::from_raw_mode(0o644)),
        );
    }
    t.record("how many", crate::posix::transcript::names_of("d").map(|names| names.len()));
    t.stat(&format!("d/{:04}{}", 777, "x".repeat(777 % 60)));
    t.stat("d/missing");
    for number in (0..1500).filter(|number| number % 3 != 0) {
        let name = format!("d/{number:04}{}", "x".repeat(number % 60));
        t.check("unlink", rustix::fs::unlink(name));
    }
    let left = crate::posix::transcript::names_of("d").map(|names| (names.len(), names.first().cloned()));
    t.record("how many", left);
    t.rmdir("d");
}
