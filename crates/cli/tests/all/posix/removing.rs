//! `link`, `unlink` and `rmdir`, and files that are open without a name.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{AtFlags, FileType, OFlags as O, SeekFrom};

cases![
    links,
    links_that_can_not_be,
    links_of_symlinks,
    links_of_nodes,
    links_by_another_user,
    unlink_of_each_type,
    unlinks_that_can_not_be,
    unlink_of_one_of_two_names,
    unlink_by_another_user,
    rmdir_of_what_is_no_empty_directory,
    rmdir_of_dots_and_roots,
    rmdir_of_the_current_directory,
    sticky_directories,
    unnamed_and_open,
    unnamed_and_open_by_two,
    unnamed_and_truncated,
    replaced_and_open,
    name_used_again,
    room_comes_back,
];

fn links(t: &mut Transcript) {
    t.file("a", b"shared");
    t.link("a", "b");
    t.mkdir("d", 0o755);
    t.link("a", "d/c");
    t.stat("a");
    t.contents("d/c");
    t.truncate("b", 3);
    t.contents("a");
    t.chmod("d/c", 0o600);
    t.stat("a");
    t.unlink("a");
    t.stat("b");
    t.contents("b");
}

fn links_that_can_not_be(t: &mut Transcript) {
    t.file("a", b"x");
    t.file("b", b"y");
    t.mkdir("d", 0o755);
    t.symlink("nowhere", "s");
    t.link("missing", "l");
    t.link("a", "b");
    t.link("a", "a");
    t.link("a", "d");
    t.link("a", "s");
    t.link("d", "l");
    t.link("a", "missing/l");
    t.link("a", "b/l");
    t.link("a/x", "l");
    t.link("a", "");
    t.link("", "l");
    t.link("/proc/self/status", "l");
    t.stat("a");
    t.list(".");
}

fn links_of_symlinks(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("a", "s");
    t.link("s", "plain");
    t.link_with("s", "followed", AtFlags::SYMLINK_FOLLOW);
    t.stat("plain");
    t.stat("followed");
    t.stat("s");
    t.stat("a");
    t.symlink("missing", "dangling");
    t.link_with("dangling", "x", AtFlags::SYMLINK_FOLLOW);
    t.link("dangling", "y");
    t.list(".");
}

fn links_of_nodes(t: &mut Transcript) {
    for (name, kind) in [("p", FileType::Fifo), ("s", FileType::Socket), ("c", FileType::CharacterDevice)] {
        t.mknod(name, kind, 0o644, (1, 3));
        t.link(name, &format!("{name}2"));
        t.stat(name);
        t.unlink(name);
        t.stat(&format!("{name}2"));
    }
}

fn links_by_another_user(t: &mut Transcript) {
    t.chmod(".", 0o777);
    t.file("roots", b"x");
    t.file("theirs", b"x");
    t.chown("theirs", Some(1001), Some(1001));
    t.mkdir("closed", 0o755);
    t.as_user(1001, |t| {
        t.link("theirs", "l1");
        t.link("roots", "l2");
        t.link("theirs", "closed/l");
    });
    t.list(".");
}

fn unlink_of_each_type(t: &mut Transcript) {
    t.file("file", b"x");
    t.symlink("file", "link");
    t.mknod("fifo", FileType::Fifo, 0o644, (0, 0));
    t.mknod("socket", FileType::Socket, 0o644, (0, 0));
    t.mknod("char", FileType::CharacterDevice, 0o644, (1, 3));
    t.mknod("block", FileType::BlockDevice, 0o644, (7, 0));
    for name in ["link", "fifo", "socket", "char", "block"] {
        t.unlink(name);
        t.stat(name);
    }
    t.stat("file");
    t.unlink("file");
    t.list(".");
}

fn unlinks_that_can_not_be(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.unlink("missing");
    t.unlink("missing/x");
    t.unlink("a/x");
    t.unlink("d");
    t.unlink(".");
    t.unlink("..");
    t.unlink("");
    t.unlink("/");
    t.list(".");
}

fn unlink_of_one_of_two_names(t: &mut Transcript) {
    t.file("a", b"x");
    t.link("a", "b");
    t.unlink("a");
    t.stat("b");
    t.unlink("a");
    t.link("b", "a");
    t.stat("a");
    t.unlink("b");
    t.unlink("a");
    t.list(".");
}

fn unlink_by_another_user(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.as_user(1001, |t| {
        t.unlink("a");
        t.unlink("missing");
        t.rmdir("d");
    });
    t.chmod(".", 0o777);
    t.as_user(1001, |t| {
        t.unlink("a");
        t.rmdir("d");
    });
    t.list(".");
}

fn rmdir_of_what_is_no_empty_directory(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/sub", 0o755);
    t.file("a", b"x");
    t.symlink("d", "s");
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    for name in ["d", "a", "s", "p", "missing", "a/x", "missing/x", ""] {
        t.rmdir(name);
    }
    t.rmdir("d/sub");
    t.file("d/x", b"");
    t.rmdir("d");
    t.unlink("d/x");
    t.rmdir("d");
    t.rmdir("d");
    t.list(".");
}

fn rmdir_of_dots_and_roots(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/e", 0o755);
    t.rmdir(".");
    t.rmdir("..");
    t.rmdir("/");
    t.rmdir("d/e/.");
    t.rmdir("d/e/..");
    t.list("d");
}

fn rmdir_of_the_current_directory(t: &mut Transcript) {
    let here = rustix::fs::open(".", O::PATH | O::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    t.mkdir("d", 0o755);
    t.check("chdir", rustix::process::chdir("d"));
    t.rmdir("../d");
    t.stat(".");
    t.stat("..");
    t.open("a", O::WRONLY | O::CREATE, 0o644);
    t.mkdir("e", 0o755);
    t.list(".");
    t.check("back", rustix::process::fchdir(&here));
    t.list(".");
}

fn sticky_directories(t: &mut Transcript) {
    t.mkdir("d", 0o777);
    t.chmod("d", 0o1777);
    t.as_user(1001, |t| {
        for name in ["d/a", "d/b", "d/c", "d/e"] {
            t.file(name, b"x");
        }
        t.mkdir("d/sub", 0o777);
    });
    t.as_user(1002, |t| {
        t.file("d/mine", b"x");
        t.unlink("d/a");
        t.rmdir("d/sub");
        t.rename("d/a", "d/new");
        t.rename("d/mine", "d/b");
        t.rename("d/mine", "d/own");
        t.unlink("d/own");
        t.link("d/c", "d/c2");
    });
    t.as_user(1001, |t| {
        t.unlink("d/a");
        t.rename("d/b", "d/c");
        t.rmdir("d/sub");
    });
    t.unlink("d/c");
    t.chown("d", Some(1002), Some(1002));
    t.as_user(1002, |t| t.unlink("d/e"));
    t.list("d");
}

fn unnamed_and_open(t: &mut Transcript) {
    t.file("a", b"still here");
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.unlink("a");
    t.fstat(&fd);
    t.read(&fd, 5);
    t.pwrite(&fd, &[b'z'; 20_000], 100);
    t.fstat(&fd);
    t.pread(&fd, 30, 90);
    t.did("fsync", rustix::fs::fsync(&fd));
    t.did("fchmod", rustix::fs::fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o600)));
    t.fstat(&fd);
    t.seek(&fd, SeekFrom::End(0));
    t.write(&fd, b"end");
    t.fstat(&fd);
    t.stat("a");
}

fn unnamed_and_open_by_two(t: &mut Transcript) {
    t.file("a", b"both");
    let (Some(one), Some(two)) = (t.open("a", O::RDWR, 0), t.open("a", O::RDONLY, 0)) else { return };
    t.unlink("a");
    t.write(&one, b"BO");
    drop(one);
    t.read(&two, 10);
    t.fstat(&two);
    t.file("a", b"other");
    t.pread(&two, 10, 0);
    t.contents("a");
}

fn unnamed_and_truncated(t: &mut Transcript) {
    t.file("a", &[1; 100_000]);
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.unlink("a");
    t.ftruncate(&fd, 0);
    t.fstat(&fd);
    t.ftruncate(&fd, 50_000);
    t.pread(&fd, 60_000, 0);
    t.pwrite(&fd, b"x", 40_000);
    t.fstat(&fd);
}

fn replaced_and_open(t: &mut Transcript) {
    t.file("a", b"old");
    t.file("b", b"new");
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.rename("b", "a");
    t.read(&fd, 10);
    t.fstat(&fd);
    t.write(&fd, b"er");
    t.pread(&fd, 10, 0);
    t.contents("a");
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    let Some(directory) = t.open("d", O::RDONLY, 0) else { return };
    t.rename("e", "d");
    t.fstat(&directory);
    let listed = crate::posix::transcript::entries_from(&directory, usize::MAX).map(|found| found.len());
    t.record("list", listed);
}

fn name_used_again(t: &mut Transcript) {
    for round in 0..40_u8 {
        t.check("mkdir", rustix::fs::mkdir("x", rustix::fs::Mode::from_raw_mode(0o755)));
        t.check("rmdir", rustix::fs::rmdir("x"));
        t.check("write", std::fs::write("x", [round; 3000]).map_err(|_| rustix::io::Errno::IO));
        let found = std::fs::read("x").is_ok_and(|bytes| bytes == [round; 3000]);
        if !found {
            t.say(format!("round {round}: other bytes"));
        }
        t.check("unlink", rustix::fs::unlink("x"));
        t.check("symlink", rustix::fs::symlink("y", "x"));
        t.check("unlink", rustix::fs::unlink("x"));
    }
    t.list(".");
}

/// Files that another case removed can be given up late (another process may be the last user of a file for a moment),
/// so one round may see more room during or after it than before. The first round that goes as it should counts; what
/// leaks never comes back in any.
fn room_comes_back(t: &mut Transcript) {
    let mut found = None;
    for _ in 0..20 {
        found = round_of_room(t);
        if found.is_none_or(|found| found == (true, Some(1), true)) {
            break;
        }
    }
    if let Some((plausible, inodes, back)) = found {
        t.say(format!("blocks as the data needs: {plausible}, inodes {inodes:?}"));
        t.say(format!("all back: {back}"));
    }
}

/// Returns true if a file took the blocks it needs, how many inodes it took, and true if all of it came back.
fn round_of_room(t: &mut Transcript) -> Option<(bool, Option<u64>, bool)> {
    let synced = |t: &mut Transcript| {
        let synced = rustix::fs::open(".", O::RDONLY, rustix::fs::Mode::empty()).and_then(rustix::fs::syncfs);
        t.check("syncfs", synced);
        let room = t.check("statvfs", rustix::fs::statvfs("."))?;
        Some((room.f_bfree, room.f_ffree, room.f_frsize))
    };
    let before = synced(t)?;
    t.check("write", std::fs::write("a", vec![1; 1_000_000]).map_err(|_| rustix::io::Errno::IO));
    let during = synced(t)?;
    t.check("unlink", rustix::fs::unlink("a"));
    let mut after = synced(t)?;
    for _ in 0..20 {
        if after == before {
            break;
        }
        crate::posix::transcript::tick();
        after = synced(t)?;
    }
    // How many blocks of the map there are beside those of the data depends on where these lie.
    let data = 1_000_000_u64.div_ceil(before.2.max(1));
    let plausible = before.0.checked_sub(during.0).is_some_and(|taken| (data..=data + 8).contains(&taken));
    Some((plausible, before.1.checked_sub(during.1), after == before))
}
