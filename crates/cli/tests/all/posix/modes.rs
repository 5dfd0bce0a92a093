//! `chmod`, `chown`, and when set-user-id and set-group-id bits go.

use crate::posix::transcript::{Transcript, cases};
use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags as O, Uid};

cases![
    all_bits,
    of_each_type,
    by_who_does_not_own,
    by_the_owner,
    group_id_bit_needs_the_group,
    sticky_bit_on_files,
    through_symlinks,
    by_descriptor,
    what_is_missing,
    owners,
    owner_minus_one,
    large_owners,
    owners_of_each_type,
    owner_changes_by_the_owner,
    owner_changes_by_others,
    chown_clears_bits_for_root,
    chown_clears_bits_for_the_owner,
    chown_of_directories_keeps_bits,
    write_clears_bits,
    truncate_clears_bits,
    fallocate_clears_bits,
    write_by_root_keeps_bits,
    permission_by_class,
    permission_of_directories,
    access_of_root,
    access_by_users,
    owner_without_permission,
    group_by_supplementary_groups,
];

fn all_bits(t: &mut Transcript) {
    t.file("a", b"x");
    for bit in 0..12 {
        t.chmod("a", 1 << bit);
        t.stat("a");
    }
    t.chmod("a", 0o7777);
    t.stat("a");
    t.chmod("a", 0);
    t.stat("a");
    t.chmod("a", 0o170_644);
    t.stat("a");
}

fn of_each_type(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("s", FileType::Socket, 0o644, (0, 0));
    t.mknod("c", FileType::CharacterDevice, 0o644, (1, 3));
    for name in ["d", "p", "s", "c"] {
        t.chmod(name, 0o7123);
        t.stat(name);
    }
}

fn by_who_does_not_own(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o666);
    t.as_user(1001, |t| {
        t.chmod("a", 0o777);
        t.chmod("a", 0o666);
    });
    t.stat("a");
}

fn by_the_owner(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(1001));
    t.as_user(1001, |t| {
        for mode in [0o600, 0, 0o4755, 0o2755, 0o1755, 0o7777, 0o644] {
            t.chmod("a", mode);
            t.stat("a");
        }
    });
}

fn group_id_bit_needs_the_group(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(2002));
    t.mkdir("d", 0o755);
    t.chown("d", Some(1001), Some(2002));
    t.as_user(1001, |t| {
        t.chmod("a", 0o2755);
        t.stat("a");
        t.chmod("d", 0o2755);
        t.stat("d");
    });
    t.as_user_in(1001, 1001, &[2002], |t| {
        t.chmod("a", 0o2755);
        t.stat("a");
    });
}

fn sticky_bit_on_files(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(1001));
    t.as_user(1001, |t| t.chmod("a", 0o1644));
    t.stat("a");
}

fn through_symlinks(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("a", "s");
    t.chmod("s", 0o600);
    t.stat("a");
    t.stat("s");
    t.symlink("missing", "dangling");
    t.chmod("dangling", 0o600);
    t.chown("dangling", Some(5), None);
    t.lchown("dangling", Some(5), Some(6));
    t.stat("dangling");
    t.chown("s", Some(7), None);
    t.stat("a");
    t.stat("s");
    t.lchown("s", None, Some(8));
    t.stat("s");
}

fn by_descriptor(t: &mut Transcript) {
    t.file("a", b"x");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    t.did("fchmod", rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o4711)));
    t.did("fchown", rustix::fs::fchown(&fd, Some(Uid::from_raw(3)), Some(Gid::from_raw(4))));
    t.fstat(&fd);
    t.stat("a");
}

fn what_is_missing(t: &mut Transcript) {
    t.file("a", b"x");
    for path in ["missing", "a/b", "missing/b", ""] {
        t.chmod(path, 0o644);
        t.chown(path, Some(1), Some(1));
    }
}

fn owners(t: &mut Transcript) {
    t.file("a", b"x");
    for (uid, gid) in [(Some(1), Some(2)), (None, Some(3)), (Some(4), None), (None, None), (Some(0), Some(0))]
    {
        t.chown("a", uid, gid);
        t.stat("a");
    }
}

fn owner_minus_one(t: &mut Transcript) {
    // (-1, -1) leaves both, but counts as a change.
    t.file("a", b"x");
    t.changes(&["a"], "chown to nobody", |t| t.chown("a", None, None));
    t.as_user(1001, |t| t.chown("a", None, None));
}

fn large_owners(t: &mut Transcript) {
    t.file("a", b"x");
    for id in [65_534, 65_535, 65_536, 100_000, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe] {
        t.chown("a", Some(id), Some(id));
        t.stat("a");
    }
}

fn owners_of_each_type(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.symlink("x", "l");
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("c", FileType::CharacterDevice, 0o644, (1, 3));
    for name in ["d", "l", "p", "c"] {
        t.lchown(name, Some(1001), Some(1002));
        t.stat(name);
    }
}

fn owner_changes_by_the_owner(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(1001));
    t.as_user_in(1001, 1001, &[1005], |t| {
        t.chown("a", Some(1002), None);
        t.chown("a", None, Some(1005));
        t.stat("a");
        t.chown("a", None, Some(1006));
        t.chown("a", Some(1001), Some(1001));
        t.chown("a", Some(1001), None);
        t.chown("a", Some(0), Some(1001));
        t.stat("a");
    });
}

fn owner_changes_by_others(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o777);
    t.as_user_in(1001, 1001, &[1005], |t| {
        t.chown("a", Some(1001), None);
        t.chown("a", None, Some(1005));
        t.chown("a", Some(0), None);
        t.chown("a", None, Some(0));
    });
    t.stat("a");
}

fn chown_clears_bits_for_root(t: &mut Transcript) {
    for mode in [0o6755, 0o6745, 0o6655, 0o2745, 0o4644] {
        t.file("a", b"x");
        t.chmod("a", mode);
        t.chown("a", Some(1), None);
        t.stat("a");
        t.chmod("a", mode);
        t.chown("a", None, Some(2));
        t.stat("a");
        t.chmod("a", mode);
        t.chown("a", None, None);
        t.stat("a");
        t.chmod("a", mode);
        t.chown("a", Some(1), Some(2));
        t.stat("a");
        t.unlink("a");
    }
}

fn chown_clears_bits_for_the_owner(t: &mut Transcript) {
    for mode in [0o6755, 0o6745, 0o2745] {
        t.file("a", b"x");
        t.chown("a", Some(1001), Some(1001));
        t.chmod("a", mode);
        t.as_user_in(1001, 1001, &[1005], |t| t.chown("a", None, Some(1005)));
        t.stat("a");
        t.chmod("a", mode);
        t.as_user(1001, |t| t.chown("a", Some(1001), None));
        t.stat("a");
        t.unlink("a");
    }
}

fn chown_of_directories_keeps_bits(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.chmod("d", 0o7755);
    t.chown("d", Some(1001), Some(1001));
    t.stat("d");
    t.as_user_in(1001, 1001, &[1005], |t| t.chown("d", None, Some(1005)));
    t.stat("d");
}

/// Records the bits of a file when another user than its owner changes it.
fn bits(t: &mut Transcript, what: &str, call: fn(&mut Transcript)) {
    for mode in [0o6777, 0o6767, 0o2767, 0o4666, 0o6776] {
        t.file("a", &[1; 8192]);
        t.chown("a", Some(1001), Some(1001));
        t.chmod("a", mode);
        t.say(what);
        t.as_user(1002, call);
        t.stat("a");
        t.chmod("a", mode);
        t.as_user(1001, call);
        t.stat("a");
        t.unlink("a");
    }
}

fn write_clears_bits(t: &mut Transcript) {
    bits(t, "write", |t| {
        let Some(fd) = t.open("a", O::RDWR, 0) else { return };
        t.pwrite(&fd, b"y", 0);
        t.fstat(&fd);
    });
}

fn truncate_clears_bits(t: &mut Transcript) {
    bits(t, "truncate", |t| t.truncate("a", 100));
    bits(t, "truncate to the same", |t| t.truncate("a", 8192));
    bits(t, "open with O_TRUNC", |t| drop(t.open("a", O::WRONLY | O::TRUNC, 0)));
}

fn fallocate_clears_bits(t: &mut Transcript) {
    bits(t, "fallocate", |t| {
        let Some(fd) = t.open("a", O::RDWR, 0) else { return };
        t.fallocate(&fd, FallocateFlags::empty(), 0, 20_000);
    });
    bits(t, "punch", |t| {
        let Some(fd) = t.open("a", O::RDWR, 0) else { return };
        t.fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096);
    });
}

fn write_by_root_keeps_bits(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o6755);
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.write(&fd, b"y");
    t.fstat(&fd);
    t.ftruncate(&fd, 0);
    t.fstat(&fd);
    t.fallocate(&fd, FallocateFlags::empty(), 0, 20_000);
    t.fstat(&fd);
    // A write of nothing changes nothing.
    t.chmod("a", 0o6777);
    t.as_user(1001, |t| {
        let Some(fd) = t.open("a", O::RDWR, 0) else { return };
        t.write(&fd, b"");
    });
    t.stat("a");
}

/// Which of reading, writing and running a user may do.
fn may(t: &mut Transcript, name: &str) {
    for access in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
        t.access(name, access);
    }
    t.open(name, O::RDONLY, 0);
    t.open(name, O::WRONLY, 0);
    t.open(name, O::RDWR, 0);
    t.truncate(name, 0);
}

fn permission_by_class(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(1002));
    for mode in [0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001, 0o077, 0o707, 0o770] {
        t.chmod("a", mode);
        for (uid, gid) in [(1001, 1001), (1003, 1002), (1003, 1003)] {
            t.as_user_in(uid, gid, &[], |t| may(t, "a"));
        }
    }
}

fn permission_of_directories(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    t.chmod("d/a", 0o666);
    for mode in [0o700, 0o701, 0o702, 0o703, 0o704, 0o705, 0o706, 0o707] {
        t.chmod("d", mode);
        t.as_user(1001, |t| {
            t.stat("d/a");
            t.stat("d/missing");
            t.list("d");
            t.open("d/a", O::RDWR, 0);
            t.open("d/new", O::WRONLY | O::CREATE, 0o644);
            t.mkdir("d/sub", 0o755);
            t.unlink("d/new");
            t.rmdir("d/sub");
            t.access("d/a", Access::EXISTS);
            t.chmod("d/a", 0o666);
            t.readlink("d/a");
        });
    }
}

fn access_of_root(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0);
    for mode in [0, 0o111, 0o100, 0o001, 0o666] {
        t.chmod("a", mode);
        may(t, "a");
    }
    t.list("d");
    t.file("d/a", b"x");
    t.access("d", Access::EXEC_OK);
}

fn access_by_users(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    t.file("d/b", b"x");
    t.chmod("d", 0o700);
    t.symlink("a", "s");
    t.as_user(1001, |t| {
        for name in ["a", "d", "d/b", "missing", "a/b", "s"] {
            t.access(name, Access::EXISTS);
            t.access(name, Access::READ_OK | Access::WRITE_OK);
            t.access(name, Access::EXEC_OK);
        }
    });
    let real = rustix::fs::accessat(CWD, "a", Access::WRITE_OK, AtFlags::empty());
    t.did("by the real user", real);
}

fn owner_without_permission(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(1001), Some(1001));
    t.chmod("a", 0o077);
    t.as_user(1001, |t| {
        t.open("a", O::RDONLY, 0);
        t.chmod("a", 0o400);
        t.open("a", O::RDONLY, 0);
        t.open("a", O::WRONLY, 0);
    });
    // A new file that its maker may not write is still open for writing.
    t.chmod(".", 0o777);
    t.as_user(1001, |t| {
        let Some(fd) = t.open("new", O::WRONLY | O::CREATE, 0o444) else { return };
        t.write(&fd, b"once");
        t.open("new", O::WRONLY, 0);
        t.open("none", O::RDWR | O::CREATE, 0).map(|fd| t.write(&fd, b"y"));
        t.open("none", O::RDONLY, 0);
    });
    t.contents("new");
}

fn group_by_supplementary_groups(t: &mut Transcript) {
    t.file("a", b"x");
    t.chown("a", Some(0), Some(2000));
    t.chmod("a", 0o060);
    t.as_user_in(1001, 1001, &[1999, 2000, 2001], |t| may(t, "a"));
    t.as_user_in(1001, 1001, &[1999, 2001], |t| may(t, "a"));
    t.as_user_in(1001, 2000, &[], |t| may(t, "a"));
}
