//! Times: which of them each call changes, and `utimensat`.

use crate::posix::transcript::{Result, Transcript, cases, tick};
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, OFlags as O, RenameFlags, StatxFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, XattrFlags,
};

cases![
    rules_of_contents,
    rules_of_reading,
    rules_of_attributes,
    rules_of_names,
    rules_of_removal,
    rules_of_renames,
    rules_of_ranges,
    rules_of_what_fails,
    set_both,
    set_now_and_omit,
    set_on_each_type,
    set_by_descriptor,
    set_before_1970_and_after_2038,
    set_beyond_what_is_kept,
    set_with_bad_nanoseconds,
    set_by_others,
    set_through_symlinks,
    set_survives_a_write_before,
    change_time_moves_on,
    birth_time_stays,
    statx_agrees_with_stat,
    statx_attributes,
];

fn rules_of_contents(t: &mut Transcript) {
    t.file("a", &[1; 10_000]);
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.changes(&["a"], "write", |t| t.pwrite(&fd, b"x", 0));
    t.changes(&["a"], "write of nothing", |t| t.pwrite(&fd, b"", 0));
    t.changes(&["a"], "write at the end", |t| t.pwrite(&fd, b"x", 10_000));
    t.changes(&["a"], "ftruncate shorter", |t| t.ftruncate(&fd, 5000));
    t.changes(&["a"], "ftruncate longer", |t| t.ftruncate(&fd, 50_000));
    t.changes(&["a"], "ftruncate to the same", |t| t.ftruncate(&fd, 50_000));
    t.changes(&["a"], "truncate to the same by name", |t| {
        t.record("truncate", truncate("a", 50_000));
    });
    t.changes(&["a"], "truncate shorter by name", |t| {
        t.record("truncate", truncate("a", 40_000));
    });
    t.changes(&["a"], "fsync", |t| {
        t.did("fsync", fs::fsync(&fd));
    });
    t.changes(&["a"], "open with O_TRUNC", |t| drop(t.open("a", O::WRONLY | O::TRUNC, 0)));
    t.changes(&["a"], "open with O_TRUNC of an empty file", |t| drop(t.open("a", O::WRONLY | O::TRUNC, 0)));
    t.changes(&["a"], "open with O_CREAT", |t| drop(t.open("a", O::WRONLY | O::CREATE, 0o644)));
}

fn truncate(path: &str, size: i64) -> Result<()> {
    nix::unistd::truncate(path, size).map_err(|e| rustix::io::Errno::from_raw_os_error(e as i32))
}

fn rules_of_reading(t: &mut Transcript) {
    t.file("a", &[1; 10_000]);
    t.mkdir("d", 0o755);
    t.file("d/x", b"");
    t.symlink("a", "s");
    t.changes(&["a"], "read", |t| t.contents("a"));
    t.changes(&["a"], "stat", |t| t.stat("a"));
    t.changes(&["d", "d/x"], "list", |t| t.list("d"));
    t.changes(&["d", "d/x"], "lookup", |t| t.stat("d/x"));
    t.changes(&["s"], "readlink", |t| t.readlink("s"));
    t.changes(&["s", "a"], "open through a symlink", |t| drop(t.open("s", O::RDONLY, 0)));
    t.changes(&["a"], "read at the end", |t| {
        let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
        t.pread(&fd, 10, 10_000);
    });
    t.changes(&["a"], "read of nothing", |t| {
        let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
        t.pread(&fd, 0, 0);
    });
    t.changes(&["a"], "access", |t| t.access("a", fs::Access::READ_OK));
}

fn rules_of_attributes(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.symlink("a", "s");
    t.changes(&["a"], "chmod", |t| t.chmod("a", 0o600));
    t.changes(&["a"], "chmod to the same", |t| t.chmod("a", 0o600));
    t.changes(&["a"], "chown", |t| t.chown("a", Some(3), Some(4)));
    t.changes(&["a"], "chown to the same", |t| t.chown("a", Some(3), Some(4)));
    t.changes(&["s", "a"], "lchown", |t| t.lchown("s", Some(3), Some(4)));
    t.changes(&["a"], "chown to nobody", |t| t.chown("a", None, None));
    t.changes(&["d"], "chown to nobody", |t| t.chown("d", None, None));
    t.changes(&["s", "a"], "lchown to nobody", |t| t.lchown("s", None, None));
    t.changes(&["d", "."], "chmod of a directory", |t| t.chmod("d", 0o700));
    t.changes(&["a"], "setxattr", |t| t.setxattr("a", "user.x", b"y", XattrFlags::empty()));
    t.changes(&["a"], "setxattr of the same", |t| t.setxattr("a", "user.x", b"y", XattrFlags::empty()));
    t.changes(&["a"], "getxattr", |t| t.getxattr("a", "user.x", 10));
    t.changes(&["a"], "listxattr", |t| t.listxattr("a"));
    t.changes(&["a"], "removexattr", |t| t.removexattr("a", "user.x"));
    t.changes(&["a"], "utimensat of both", |t| {
        let time = Timespec { tv_sec: 5, tv_nsec: 6 };
        let times = Timestamps { last_access: time, last_modification: time };
        t.did("utimensat", fs::utimensat(CWD, "a", &times, AtFlags::empty()));
    });
}

fn rules_of_names(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/e", 0o755);
    t.file("a", b"x");
    t.changes(&["d", "d/e", "."], "create", |t| t.file("d/new", b""));
    t.changes(&["d", "d/e"], "mkdir", |t| t.mkdir("d/sub", 0o755));
    t.changes(&["d"], "mknod", |t| t.mknod("d/p", FileType::Fifo, 0o644, (0, 0)));
    t.changes(&["d"], "symlink", |t| t.symlink("x", "d/s"));
    t.changes(&["d", "a", "."], "link", |t| t.link("a", "d/l"));
    t.changes(&["d"], "an unnamed file", |t| drop(t.open("d", O::RDWR | O::TMPFILE, 0o644)));
    t.changes(&["d", "d/new"], "open of what is there", |t| {
        drop(t.open("d/new", O::WRONLY | O::CREATE, 0o644))
    });
    let now = [fs::lstat("d/sub"), fs::lstat("d/s"), fs::lstat("d/p")];
    for stat in now.into_iter().flatten() {
        let same = stat.st_atime == stat.st_mtime && stat.st_mtime == stat.st_ctime;
        t.say(format!("new: all the same: {same}"));
    }
}

fn rules_of_removal(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    t.link("d/a", "b");
    t.mkdir("d/sub", 0o755);
    t.file("d/last", b"x");
    t.changes(&["d", "b"], "unlink of one name", |t| t.unlink("d/a"));
    t.changes(&["d"], "unlink of the last name", |t| t.unlink("d/last"));
    t.changes(&["d", "."], "rmdir", |t| t.rmdir("d/sub"));
}

fn rules_of_renames(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("e", 0o755);
    t.file("d/a", b"x");
    t.mkdir("d/sub", 0o755);
    t.changes(&["d", "e", "."], "rename within", |t| {
        t.changes(&["d/a"], "itself", |_| {});
        t.rename("d/a", "d/b");
    });
    t.file("e/b", b"y");
    t.link("e/b", "e/b2");
    let times = |t: &mut Transcript, paths: &[&str], from: &str, to: &str| {
        t.changes(paths, "rename", |t| t.rename(from, to));
    };
    times(t, &["d", "e", "e/b2"], "d/b", "e/b");
    times(t, &["d", "e"], "d/sub", "e/sub");
    t.mkdir("d/x", 0o755);
    t.file("e/y", b"");
    t.changes(&["d", "e", "d/x", "e/y"], "exchange", |t| t.rename_with("d/x", "e/y", RenameFlags::EXCHANGE));
    // The change time of what was renamed.
    let before = fs::lstat("e/b");
    tick();
    t.rename("e/b", "e/c");
    let after = fs::lstat("e/c");
    if let (Ok(before), Ok(after)) = (before, after) {
        let of = |stat: &fs::Stat| (stat.st_ctime, stat.st_ctime_nsec);
        t.say(format!("change time of a renamed file moved on: {}", of(&before) != of(&after)));
    }
}

fn rules_of_ranges(t: &mut Transcript) {
    t.file("a", &[1; 100_000]);
    t.file("b", b"");
    let (Some(fd), Some(to)) = (t.open("a", O::RDWR, 0), t.open("b", O::RDWR, 0)) else { return };
    let keep = FallocateFlags::KEEP_SIZE;
    let range = |t: &mut Transcript, what: &str, mode, at, len| {
        t.changes(&["a"], what, |t| t.fallocate(&fd, mode, at, len));
    };
    range(t, "allocate inside", FallocateFlags::empty(), 0, 1000);
    range(t, "allocate behind", FallocateFlags::empty(), 100_000, 50_000);
    range(t, "allocate behind, size kept", keep, 200_000, 50_000);
    range(t, "punch", FallocateFlags::PUNCH_HOLE | keep, 8192, 8192);
    range(t, "punch behind the end", FallocateFlags::PUNCH_HOLE | keep, 400_000, 8192);
    range(t, "zero", FallocateFlags::ZERO_RANGE, 8192, 8192);
    range(t, "collapse", FallocateFlags::COLLAPSE_RANGE, 8192, 8192);
    range(t, "insert", FallocateFlags::INSERT_RANGE, 8192, 8192);
    t.changes(&["a", "b"], "copy_file_range", |t| {
        t.record("copy_file_range", fs::copy_file_range(&fd, Some(&mut 0), &to, Some(&mut 0), 5000));
    });
}

fn rules_of_what_fails(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mkdir("d/e", 0o755);
    t.file("d/e/f", b"x");
    t.file("d/a", b"x");
    t.changes(&["d", "d/e"], "mkdir of what is there", |t| t.mkdir("d/e", 0o755));
    t.changes(&["d", "d/e"], "rmdir of what is full", |t| t.rmdir("d/e"));
    t.changes(&["d", "d/a"], "unlink of a directory", |t| t.unlink("d/e"));
    t.changes(&["d", "d/a"], "link over a name", |t| t.link("d/a", "d/e"));
    t.changes(&["d", "d/a"], "rename over a directory", |t| t.rename("d/a", "d/e"));
    t.changes(&["d/a"], "removexattr of none", |t| t.removexattr("d/a", "user.none"));
    t.changes(&["d/a"], "chmod by another", |t| t.as_user(1001, |t| t.chmod("d/a", 0o777)));
}

const fn at(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

fn set(path: &str, access: Timespec, modify: Timespec) -> Result<()> {
    let times = Timestamps { last_access: access, last_modification: modify };
    fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// Times of access and modification as they are.
fn times(t: &mut Transcript, path: &str) {
    let stat = fs::lstat(path);
    let times = stat.map(|stat| ((stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec)));
    t.record(format!("times of {path}"), times);
}

fn set_both(t: &mut Transcript) {
    t.file("a", b"x");
    t.did("set", set("a", at(1, 2), at(3, 4)));
    times(t, "a");
    t.did("set", set("a", at(0, 0), at(0, 999_999_999)));
    times(t, "a");
    t.did("missing", set("missing", at(0, 0), at(0, 0)));
    t.did("below a file", set("a/b", at(0, 0), at(0, 0)));
}

fn set_now_and_omit(t: &mut Transcript) {
    t.file("a", b"x");
    let (now, omit) = (at(0, UTIME_NOW), at(0, UTIME_OMIT));
    for (what, access, modify) in [
        ("now now", now, now),
        ("omit omit", omit, omit),
        ("now omit", now, omit),
        ("omit now", omit, now),
        ("set omit", at(7, 8), omit),
        ("omit set", omit, at(9, 10)),
        ("now set", now, at(11, 12)),
    ] {
        t.changes(&["a"], what, |t| {
            t.did("set", set("a", access, modify));
        });
        let stat = fs::lstat("a");
        t.say(format!(
            "{:?}",
            stat.map(|stat| (stat.st_atime < 2_000_000, stat.st_mtime < 2_000_000))
                .map_err(crate::posix::transcript::error_name)
        ));
    }
}

fn set_on_each_type(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.symlink("missing", "s");
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("c", FileType::CharacterDevice, 0o644, (1, 3));
    for name in ["d", "s", "p", "c"] {
        t.did("set", set(name, at(100, 1), at(200, 2)));
        times(t, name);
    }
}

fn set_by_descriptor(t: &mut Transcript) {
    t.file("a", b"x");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    let set = Timestamps { last_access: at(10, 20), last_modification: at(30, 40) };
    t.did("futimens", fs::futimens(&fd, &set));
    times(t, "a");
}

fn set_before_1970_and_after_2038(t: &mut Transcript) {
    t.file("a", b"x");
    let seconds = [
        -1,
        -1_000_000_000,
        -2_147_483_648,
        2_147_483_647,
        2_147_483_648,
        4_294_967_295,
        4_294_967_296,
        10_000_000_000,
        15_032_385_535,
    ];
    for seconds in seconds {
        t.did(format!("{seconds}"), set("a", at(seconds, 123_456_789), at(seconds, 999_999_999)));
        times(t, "a");
    }
}

fn set_beyond_what_is_kept(t: &mut Transcript) {
    t.file("a", b"x");
    for seconds in [-2_147_483_649, -10_000_000_000, 15_032_385_536, 1 << 40] {
        t.did(format!("{seconds}"), set("a", at(seconds, 5), at(seconds, 5)));
        times(t, "a");
    }
}

fn set_with_bad_nanoseconds(t: &mut Transcript) {
    t.file("a", b"x");
    t.did("set", set("a", at(1, 1), at(1, 1)));
    for nanoseconds in [-1, 1_000_000_000, 2_000_000_000] {
        t.did(format!("{nanoseconds}"), set("a", at(5, nanoseconds), at(5, 0)));
        t.did(format!("{nanoseconds}"), set("a", at(5, 0), at(5, nanoseconds)));
    }
    times(t, "a");
}

fn set_by_others(t: &mut Transcript) {
    t.file("a", b"x");
    let (now, omit) = (at(0, UTIME_NOW), at(0, UTIME_OMIT));
    for mode in [0o644, 0o666] {
        t.chmod("a", mode);
        t.as_user(1001, |t| {
            t.did("to a time", set("a", at(1, 1), at(1, 1)));
            t.did("to now", set("a", now, now));
            t.did("one to now", set("a", now, omit));
            t.did("none", set("a", omit, omit));
        });
    }
    t.chown("a", Some(1001), Some(1001));
    t.chmod("a", 0);
    t.as_user(1001, |t| {
        t.did("to a time", set("a", at(1, 1), at(1, 1)));
        t.did("to now", set("a", now, now));
    });
    t.mkdir("closed", 0o700);
    t.file("closed/a", b"x");
    t.as_user(1001, |t| {
        t.did("unreachable", set("closed/a", now, now));
    });
}

fn set_through_symlinks(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("a", "s");
    let set = Timestamps { last_access: at(10, 20), last_modification: at(30, 40) };
    t.did("through", fs::utimensat(CWD, "s", &set, AtFlags::empty()));
    times(t, "a");
    let set = Timestamps { last_access: at(50, 60), last_modification: at(70, 80) };
    t.did("the link", fs::utimensat(CWD, "s", &set, AtFlags::SYMLINK_NOFOLLOW));
    times(t, "s");
    times(t, "a");
}

/// Bytes that are written before the time is set must not set it again when they reach the file system later.
fn set_survives_a_write_before(t: &mut Transcript) {
    let Some(fd) = t.open("a", O::RDWR | O::CREATE, 0o644) else { return };
    t.write(&fd, &[1; 20_000]);
    t.did("set", set("a", at(1000, 1), at(2000, 2)));
    times(t, "a");
    t.did("fsync", fs::fsync(&fd));
    times(t, "a");
    t.pwrite(&fd, &[2; 20_000], 20_000);
    let both = Timestamps { last_access: at(3000, 1), last_modification: at(4000, 2) };
    t.did("futimens", fs::futimens(&fd, &both));
    drop(fd);
    times(t, "a");
    t.did("syncfs", fs::open(".", O::RDONLY, fs::Mode::empty()).and_then(fs::syncfs));
    times(t, "a");
}

fn change_time_moves_on(t: &mut Transcript) {
    t.file("a", b"x");
    let mut before = None;
    for _ in 0..5 {
        tick();
        t.check("chmod", fs::chmod("a", fs::Mode::from_raw_mode(0o644)));
        let now = fs::lstat("a").map(|stat| (stat.st_ctime, stat.st_ctime_nsec)).ok();
        if before.is_some() && before >= now {
            t.say("stood still");
        }
        before = now;
    }
    let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let close = before.is_some_and(|(seconds, _)| (real.as_secs().cast_signed() - seconds).abs() <= 2);
    t.say(format!("is the clock's: {close}"));
}

fn birth_time_stays(t: &mut Transcript) {
    t.file("a", b"x");
    let born = || {
        let stat = fs::statx(CWD, "a", AtFlags::empty(), StatxFlags::BTIME)?;
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Ok((known, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
    };
    let first = born();
    tick();
    t.chmod("a", 0o600);
    t.check("set", set("a", at(1, 1), at(1, 1)));
    let same = born() == first;
    t.record("known", first.map(|first| first.0));
    t.say(format!("same: {same}"));
}

fn statx_agrees_with_stat(t: &mut Transcript) {
    t.file("a", &[1; 12_345]);
    t.did("set", set("a", at(-5, 7), at(5_000_000_000, 9)));
    t.mknod("c", FileType::CharacterDevice, 0o600, (9, 300));
    for name in ["a", "c", "."] {
        let (Ok(stat), Ok(x)) =
            (fs::lstat(name), fs::statx(CWD, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS))
        else {
            t.say("no stat");
            continue;
        };
        t.say(format!(
            "{} {:o} {} {} {} {:?} {:?} {}:{}",
            x.stx_nlink,
            x.stx_mode,
            x.stx_uid,
            x.stx_size == u64::try_from(stat.st_size).unwrap(),
            x.stx_ino == stat.st_ino,
            x.stx_atime.tv_sec == stat.st_atime,
            i64::from(x.stx_mtime.tv_nsec) == stat.st_mtime_nsec,
            x.stx_rdev_major,
            x.stx_rdev_minor,
        ));
        t.say(format!("blocks the same: {}", x.stx_blocks == u64::try_from(stat.st_blocks).unwrap()));
    }
}

fn statx_attributes(t: &mut Transcript) {
    t.file("a", b"x");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    for flags in [fs::IFlags::APPEND, fs::IFlags::IMMUTABLE, fs::IFlags::NODUMP, fs::IFlags::empty()] {
        t.did(format!("flags {flags:?}"), change_flags(&fd, flags));
        let stat = fs::statx(CWD, "a", AtFlags::empty(), StatxFlags::BASIC_STATS);
        t.record("statx", stat.map(|x| format!("{:x}", x.stx_attributes.bits() & 0x70)));
    }
}

/// Sets these of the flags that programs set, and clears the others of them.
fn change_flags(fd: impl rustix::fd::AsFd, flags: fs::IFlags) -> Result<()> {
    let ours = fs::IFlags::APPEND | fs::IFlags::IMMUTABLE | fs::IFlags::NODUMP;
    let now = fs::ioctl_getflags(&fd)?;
    fs::ioctl_setflags(&fd, (now - ours) | flags)
}
