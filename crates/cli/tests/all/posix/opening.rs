//! `open`: each flag, and what it refuses.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{AtFlags, CWD, FileType, OFlags as O, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

cases![
    read_only_of_what_is_missing,
    create_makes_an_empty_file,
    create_of_what_is_there,
    create_exclusive,
    exclusive_does_not_follow,
    create_through_a_dangling_symlink,
    create_below_a_file,
    truncate_on_open,
    truncate_needs_no_write_flag,
    append_writes_at_the_end,
    append_by_two_descriptors,
    pwrite_with_append,
    directory_flag,
    directory_for_writing,
    create_a_directory_by_flag,
    nofollow,
    nofollow_in_the_middle,
    loops_of_symlinks,
    path_only,
    trailing_slashes,
    unnamed_file_is_linked,
    unnamed_file_exclusive_is_not_linked,
    unnamed_file_needs_a_directory,
    unnamed_file_vanishes,
    modes_of_new_files,
    no_access_time_for_others,
    synchronous_writes,
    direct_io,
    device_and_fifo,
    busy_program,
    reopening_by_descriptor,
    deep_paths,
    wrong_direction,
    seek_past_end_on_open_append,
];

fn read_only_of_what_is_missing(t: &mut Transcript) {
    t.open("missing", O::RDONLY, 0);
    t.open("missing/below", O::RDONLY, 0);
    t.open("", O::RDONLY, 0);
    t.open("", O::RDWR | O::CREATE, 0o644);
    t.list(".");
}

fn create_makes_an_empty_file(t: &mut Transcript) {
    for (name, flags) in [("r", O::RDONLY), ("w", O::WRONLY), ("rw", O::RDWR)] {
        let fd = t.open(name, flags | O::CREATE, 0o640);
        if let Some(fd) = fd {
            t.fstat(&fd);
            t.read(&fd, 10);
            t.write(&fd, b"abc");
        }
        t.stat(name);
    }
}

fn create_of_what_is_there(t: &mut Transcript) {
    t.file("a", b"before");
    t.chmod("a", 0o600);
    t.open("a", O::RDWR | O::CREATE, 0o777);
    t.stat("a");
    t.contents("a");
    t.mkdir("d", 0o755);
    t.open("d", O::RDONLY | O::CREATE, 0o644);
    t.open("d", O::WRONLY | O::CREATE, 0o644);
}

fn create_exclusive(t: &mut Transcript) {
    t.open("a", O::WRONLY | O::CREATE | O::EXCL, 0o644);
    t.open("a", O::WRONLY | O::CREATE | O::EXCL, 0o644);
    t.mkdir("d", 0o755);
    t.open("d", O::WRONLY | O::CREATE | O::EXCL, 0o644);
    t.open("b", O::WRONLY | O::EXCL, 0o644);
    t.open("a", O::WRONLY | O::CREATE | O::EXCL | O::TRUNC, 0o644);
    t.list(".");
}

fn exclusive_does_not_follow(t: &mut Transcript) {
    t.symlink("target", "s");
    t.open("s", O::WRONLY | O::CREATE | O::EXCL, 0o644);
    t.list(".");
    t.file("target", b"x");
    t.open("s", O::WRONLY | O::CREATE | O::EXCL, 0o644);
}

fn create_through_a_dangling_symlink(t: &mut Transcript) {
    t.symlink("target", "s");
    t.open("s", O::RDONLY, 0);
    t.open("s", O::WRONLY | O::CREATE, 0o644);
    t.stat("target");
    t.symlink("nowhere/target", "s2");
    t.open("s2", O::WRONLY | O::CREATE, 0o644);
    t.list(".");
}

fn create_below_a_file(t: &mut Transcript) {
    t.file("a", b"x");
    t.open("a/b", O::RDONLY, 0);
    t.open("a/b", O::WRONLY | O::CREATE, 0o644);
    t.open("a/", O::RDONLY, 0);
    t.open("a/.", O::RDONLY, 0);
    t.open("a/..", O::RDONLY, 0);
}

fn truncate_on_open(t: &mut Transcript) {
    t.file("a", &[7; 10_000]);
    t.open("a", O::WRONLY | O::TRUNC, 0);
    t.stat("a");
    t.file("b", b"contents");
    t.open("b", O::RDWR | O::CREATE | O::TRUNC, 0o600);
    t.stat("b");
    t.mkdir("d", 0o755);
    t.open("d", O::RDONLY | O::TRUNC, 0);
    t.open("missing", O::RDWR | O::TRUNC, 0);
}

fn truncate_needs_no_write_flag(t: &mut Transcript) {
    t.file("a", b"contents");
    t.open("a", O::RDONLY | O::TRUNC, 0);
    t.stat("a");
}

fn append_writes_at_the_end(t: &mut Transcript) {
    t.file("a", b"one");
    let Some(fd) = t.open("a", O::RDWR | O::APPEND, 0) else { return };
    t.seek(&fd, SeekFrom::Current(0));
    t.write(&fd, b"two");
    t.seek(&fd, SeekFrom::Current(0));
    t.seek(&fd, SeekFrom::Start(0));
    t.read(&fd, 2);
    t.write(&fd, b"three");
    t.seek(&fd, SeekFrom::Current(0));
    t.contents("a");
    t.ftruncate(&fd, 4);
    t.write(&fd, b"!");
    t.contents("a");
}

fn append_by_two_descriptors(t: &mut Transcript) {
    let flags = O::WRONLY | O::APPEND | O::CREATE;
    let (Some(one), Some(two)) = (t.open("a", flags, 0o644), t.open("a", flags, 0o644)) else { return };
    for round in 0..3_u8 {
        t.write(&one, &[b'a' + round; 3]);
        t.write(&two, &[b'A' + round; 5]);
    }
    t.contents("a");
}

fn pwrite_with_append(t: &mut Transcript) {
    t.file("a", b"0123456789");
    let Some(fd) = t.open("a", O::RDWR | O::APPEND, 0) else { return };
    t.pwrite(&fd, b"xyz", 2);
    t.contents("a");
    t.pread(&fd, 20, 8);
}

fn directory_flag(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.symlink("d", "to_d");
    t.symlink("a", "to_a");
    for name in ["a", "d", "to_d", "to_a", "missing", "d/", "to_d/"] {
        t.open(name, O::RDONLY | O::DIRECTORY, 0);
    }
    t.open("to_d", O::RDONLY | O::DIRECTORY | O::NOFOLLOW, 0);
    t.open("new", O::RDONLY | O::DIRECTORY | O::CREATE, 0o755);
    t.open("d", O::RDONLY | O::DIRECTORY | O::CREATE, 0o755);
    t.list(".");
}

fn directory_for_writing(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.open("d", O::WRONLY, 0);
    t.open("d", O::RDWR, 0);
    t.open(".", O::RDWR, 0);
    let Some(fd) = t.open("d", O::RDONLY, 0) else { return };
    t.read(&fd, 10);
    t.write(&fd, b"x");
    t.ftruncate(&fd, 0);
    t.did("fsync of a directory", rustix::fs::fsync(&fd));
    t.did("fdatasync of a directory", rustix::fs::fdatasync(&fd));
}

fn create_a_directory_by_flag(t: &mut Transcript) {
    t.open("d/", O::WRONLY | O::CREATE, 0o644);
    t.open("d/", O::RDONLY, 0);
    t.list(".");
}

fn nofollow(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("a", "s");
    t.open("s", O::RDONLY | O::NOFOLLOW, 0);
    t.open("s", O::WRONLY | O::CREATE | O::NOFOLLOW, 0o644);
    t.open("a", O::RDONLY | O::NOFOLLOW, 0);
    let Some(fd) = t.open("s", O::PATH | O::NOFOLLOW, 0) else { return };
    t.fstat(&fd);
}

fn nofollow_in_the_middle(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    t.symlink("d", "s");
    t.open("s/a", O::RDONLY | O::NOFOLLOW, 0);
    t.open("s/.", O::RDONLY | O::NOFOLLOW, 0);
    t.open("s/", O::RDONLY | O::NOFOLLOW, 0);
}

fn loops_of_symlinks(t: &mut Transcript) {
    t.symlink("self", "self");
    t.open("self", O::RDONLY, 0);
    t.open("self", O::WRONLY | O::CREATE, 0o644);
    t.open("self/x", O::RDONLY, 0);
    t.symlink("b", "a");
    t.symlink("a", "b");
    t.open("a", O::RDONLY, 0);
    t.file("end", b"reached");
    t.symlink("end", "l0");
    for number in 1..45 {
        let made = rustix::fs::symlink(format!("l{}", number - 1), format!("l{number}"));
        t.check("chain", made);
    }
    for number in [38, 39, 40, 41] {
        t.open(&format!("l{number}"), O::RDONLY, 0);
    }
    t.stat("self");
    t.unlink("self");
    t.rename("a", "c");
    t.list(".");
}

fn path_only(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0);
    t.as_user(1001, |t| {
        let Some(fd) = t.open("a", O::PATH, 0) else { return };
        t.fstat(&fd);
        t.read(&fd, 1);
        t.write(&fd, b"y");
        t.ftruncate(&fd, 0);
        t.did("fchmod", rustix::fs::fchmod(&fd, rustix::fs::Mode::empty()));
    });
    t.open("missing", O::PATH, 0);
    t.open("missing", O::PATH | O::CREATE, 0o644);
    t.list(".");
}

fn trailing_slashes(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.symlink("d", "s");
    t.stat("d/");
    t.stat("s/");
    t.stat("a/");
    t.stat("missing/");
    t.mkdir("new/", 0o755);
    t.mknod("node/", FileType::RegularFile, 0o644, (0, 0));
    t.symlink("x", "link/");
    t.link("a", "hard/");
    t.rename("d/", "e/");
    t.rename("a", "f/");
    t.rename("a/", "f");
    t.unlink("a/");
    t.unlink("s/");
    t.rmdir("e/");
    t.list(".");
}

/// Gives an unnamed file a name by way of `/proc`.
fn link_unnamed(t: &mut Transcript, fd: &OwnedFd, name: &str) {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW);
    t.did(format!("linkat of the unnamed file to {name}"), linked);
}

fn unnamed_file_is_linked(t: &mut Transcript) {
    let Some(fd) = t.open(".", O::RDWR | O::TMPFILE, 0o640) else { return };
    t.fstat(&fd);
    t.write(&fd, b"hidden");
    t.list(".");
    link_unnamed(t, &fd, "shown");
    t.fstat(&fd);
    t.contents("shown");
    link_unnamed(t, &fd, "again");
    link_unnamed(t, &fd, "again");
    t.stat("shown");
    t.list(".");
    t.unlink("shown");
    t.unlink("again");
    t.fstat(&fd);
    link_unnamed(t, &fd, "back");
    t.list(".");
}

fn unnamed_file_exclusive_is_not_linked(t: &mut Transcript) {
    let Some(fd) = t.open(".", O::RDWR | O::TMPFILE | O::EXCL, 0o640) else { return };
    t.write(&fd, b"hidden");
    link_unnamed(t, &fd, "shown");
    t.list(".");
}

fn unnamed_file_needs_a_directory(t: &mut Transcript) {
    t.file("a", b"x");
    t.open("a", O::RDWR | O::TMPFILE, 0o600);
    t.open("missing", O::RDWR | O::TMPFILE, 0o600);
    t.open(".", O::RDONLY | O::TMPFILE, 0o600);
    t.open(".", O::WRONLY | O::TMPFILE, 0o600);
    t.mkdir("closed", 0o755);
    t.as_user(1001, |t| {
        t.open("closed", O::RDWR | O::TMPFILE, 0o600);
    });
}

fn unnamed_file_vanishes(t: &mut Transcript) {
    let Some(fd) = t.open(".", O::RDWR | O::TMPFILE, 0o600) else { return };
    for at in 0..64 {
        t.check("write", rustix::io::pwrite(&fd, &[3; 4096], at * 8192));
    }
    t.fstat(&fd);
    t.pread(&fd, 8192, 8192 * 63);
    t.ftruncate(&fd, 5000);
    t.pread(&fd, 8192, 0);
    drop(fd);
    t.list(".");
}

fn modes_of_new_files(t: &mut Transcript) {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0));
    for (index, mode) in [0, 0o777, 0o7777, 0o4755, 0o2755, 0o1777, 0o444].into_iter().enumerate() {
        let name = format!("f{index}");
        let Some(fd) = t.open(&name, O::RDWR | O::CREATE, mode) else { continue };
        t.write(&fd, b"x");
        t.stat(&name);
    }
    for mask in [0o077, 0o777, 0o022, 0o7] {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        t.open(&format!("m{mask:o}"), O::RDWR | O::CREATE, 0o6777);
        t.stat(&format!("m{mask:o}"));
        t.mkdir(&format!("d{mask:o}"), 0o7777);
        t.stat(&format!("d{mask:o}"));
        t.mknod(&format!("p{mask:o}"), FileType::Fifo, 0o666, (0, 0));
        t.stat(&format!("p{mask:o}"));
        t.symlink("x", &format!("s{mask:o}"));
        t.stat(&format!("s{mask:o}"));
    }
    rustix::process::umask(before);
}

fn no_access_time_for_others(t: &mut Transcript) {
    t.file("a", b"x");
    t.open("a", O::RDONLY | O::NOATIME, 0);
    t.as_user(1001, |t| {
        t.open("a", O::RDONLY, 0);
        t.open("a", O::RDONLY | O::NOATIME, 0);
    });
    t.changes(&["a"], "reading with O_NOATIME", |t| {
        let Some(fd) = t.open("a", O::RDONLY | O::NOATIME, 0) else { return };
        t.read(&fd, 1);
    });
}

fn synchronous_writes(t: &mut Transcript) {
    for (name, flag) in [("sync", O::SYNC), ("dsync", O::DSYNC)] {
        let Some(fd) = t.open(name, O::RDWR | O::CREATE | flag, 0o644) else { continue };
        t.write(&fd, &[1; 5000]);
        t.pwrite(&fd, &[2; 3], 100_000);
        t.pread(&fd, 5, 99_998);
        t.stat(name);
    }
}

/// A part of `room` with the start and length that direct I/O needs.
fn aligned(room: &mut [u8], len: usize) -> &mut [u8] {
    let skip = room.as_ptr().align_offset(4096);
    &mut room[skip..skip + len]
}

fn direct_io(t: &mut Transcript) {
    let Some(fd) = t.open("a", O::RDWR | O::CREATE | O::DIRECT, 0o644) else { return };
    let mut room = vec![0; 70_000];
    let buffer = aligned(&mut room, 16_384);
    buffer.fill(5);
    t.pwrite(&fd, buffer, 0);
    t.pwrite(&fd, &buffer[..4096], 65_536);
    buffer.fill(0);
    let read = rustix::io::pread(&fd, &mut *buffer, 8192);
    t.record("aligned read", read);
    t.say(format!("{:?}", (buffer[0], buffer[8191], buffer[8192])));
    let read = rustix::io::pread(&fd, &mut *buffer, 65_536);
    t.record("read up to the end", read);
    let read = rustix::io::pread(&fd, &mut *buffer, 1 << 20);
    t.record("read behind the end", read);
    t.fstat(&fd);
    // Beside the cache: both see the same bytes.
    let Some(other) = t.open("a", O::RDWR, 0) else { return };
    t.pwrite(&other, &[9; 100], 4090);
    let read = rustix::io::pread(&fd, &mut buffer[..8192], 0);
    t.record("direct read after a cached write", read);
    t.say(format!("{:?}", (buffer[4089], buffer[4090], buffer[4189], buffer[4190])));
    buffer.fill(6);
    t.pwrite(&fd, &buffer[..4096], 4096);
    t.pread(&other, 12, 4090);
    t.ftruncate(&fd, 5000);
    let read = rustix::io::pread(&fd, &mut buffer[..8192], 0);
    t.record("direct read of an odd size", read);
}

fn device_and_fifo(t: &mut Transcript) {
    t.mknod("null", FileType::CharacterDevice, 0o666, (1, 3));
    t.mknod("none", FileType::CharacterDevice, 0o666, (511, 77));
    t.mknod("pipe", FileType::Fifo, 0o666, (0, 0));
    t.mknod("socket", FileType::Socket, 0o666, (0, 0));
    if let Some(fd) = t.open("null", O::RDWR, 0) {
        t.write(&fd, b"gone");
        t.read(&fd, 10);
    }
    t.open("none", O::RDWR, 0);
    t.open("socket", O::RDWR, 0);
    t.open("pipe", O::WRONLY | O::NONBLOCK, 0);
    let Some(reader) = t.open("pipe", O::RDONLY | O::NONBLOCK, 0) else { return };
    let Some(writer) = t.open("pipe", O::WRONLY | O::NONBLOCK, 0) else { return };
    t.write(&writer, b"through");
    t.read(&reader, 20);
    t.seek(&reader, SeekFrom::Start(0));
    t.ftruncate(&writer, 0);
    for name in ["null", "pipe", "socket"] {
        t.stat(name);
    }
}

fn busy_program(t: &mut Transcript) {
    let copied = std::fs::copy("/bin/sleep", "program");
    let copied = copied.map(|_| ()).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
    t.check("copy", copied);
    t.chmod("program", 0o755);
    let run = || std::process::Command::new("./program").arg("0").status();
    let errno = |e: &std::io::Error| Errno::from_io_error(e).unwrap_or(Errno::IO);
    let writer = t.open("program", O::WRONLY, 0);
    t.record("run while it is open for writing", run().map(|status| status.success()).map_err(|e| errno(&e)));
    drop(writer);
    t.record("run", run().map(|status| status.success()).map_err(|e| errno(&e)));
    let child = std::process::Command::new("./program").arg("5").spawn();
    if let Ok(mut child) = child {
        crate::posix::transcript::tick();
        t.open("program", O::WRONLY, 0);
        t.unlink("program");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    t.list(".");
}

fn reopening_by_descriptor(t: &mut Transcript) {
    t.file("a", b"contents");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    t.unlink("a");
    let result =
        rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), O::RDWR, rustix::fs::Mode::empty());
    let Some(again) = t.did("open again what has no name", result) else { return };
    t.pwrite(&again, b"C", 0);
    t.pread(&fd, 10, 0);
    t.ftruncate(&again, 3);
    t.fstat(&fd);
}

fn deep_paths(t: &mut Transcript) {
    let mut path = String::from("d");
    t.mkdir(&path, 0o755);
    for _ in 0..60 {
        path += "/dddddddd";
        t.check("mkdir", rustix::fs::mkdir(path.as_str(), rustix::fs::Mode::from_raw_mode(0o755)));
    }
    t.file(&format!("{path}/f"), b"deep");
    t.contents(&format!("{path}/f"));
    t.contents(&format!("{path}/../../../dddddddd/dddddddd/dddddddd/f"));
    t.stat(&format!("{path}/.."));
}

fn wrong_direction(t: &mut Transcript) {
    t.file("a", b"contents");
    if let Some(fd) = t.open("a", O::RDONLY, 0) {
        t.write(&fd, b"x");
        t.pwrite(&fd, b"x", 0);
        t.ftruncate(&fd, 0);
        t.fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, 100);
        t.did("fsync of a file opened for reading", rustix::fs::fsync(&fd));
    }
    if let Some(fd) = t.open("a", O::WRONLY, 0) {
        t.read(&fd, 1);
        t.pread(&fd, 1, 0);
        t.seek(&fd, SeekFrom::End(0));
    }
    t.contents("a");
}

fn seek_past_end_on_open_append(t: &mut Transcript) {
    t.file("a", b"abc");
    let Some(fd) = t.open("a", O::RDWR | O::APPEND, 0) else { return };
    t.seek(&fd, SeekFrom::Start(100));
    t.write(&fd, b"d");
    t.contents("a");
    t.did("without append", rustix::fs::fcntl_setfl(&fd, O::empty()));
    t.seek(&fd, SeekFrom::Start(1));
    t.write(&fd, b"X");
    t.contents("a");
}
