//! Extended attributes, access control lists, file flags.

use crate::posix::transcript::{Result, Transcript, cases};
use rustix::fs::{self, AtFlags, CWD, FileType, IFlags, OFlags as O, RenameFlags, XattrFlags};

cases![
    set_get_list_remove,
    create_and_replace,
    sizes_and_ranges,
    empty_values,
    names_without_a_namespace,
    names_of_each_length,
    values_of_each_length,
    too_many,
    values_replaced_many_times,
    on_each_type,
    by_another_user,
    trusted_is_for_root,
    security_attributes,
    privileges_of_files,
    follow_links_or_not,
    stay_with_links_and_renames,
    by_descriptor,
    of_removed_files,
    same_values_on_many_files,
    default_lists_are_inherited,
    default_lists_like_a_mode,
    lists_and_modes,
    lists_are_obeyed,
    lists_refused,
    lists_removed,
    lists_of_the_kernel_names,
    flags_set_and_shown,
    flags_by_another_user,
    immutable_files,
    immutable_directories,
    append_only_files,
    append_only_directories,
    flags_are_inherited,
    flags_that_can_not_be_set,
    flags_of_other_types,
    projects,
    generations,
];

const NONE: XattrFlags = XattrFlags::empty();

fn set_get_list_remove(t: &mut Transcript) {
    t.file("a", b"x");
    t.listxattr("a");
    t.setxattr("a", "user.one", b"first", NONE);
    t.setxattr("a", "user.two", b"second", NONE);
    t.setxattr("a", "trusted.three", b"third", NONE);
    t.listxattr("a");
    for name in ["user.one", "user.two", "trusted.three", "user.none", "user.on", "user.onee"] {
        t.getxattr("a", name, 100);
    }
    t.setxattr("a", "user.one", b"changed to something longer", NONE);
    t.getxattr("a", "user.one", 100);
    t.removexattr("a", "user.one");
    t.removexattr("a", "user.one");
    t.listxattr("a");
    t.getxattr("a", "user.one", 100);
    t.removexattr("a", "user.two");
    t.removexattr("a", "trusted.three");
    t.listxattr("a");
    t.setxattr("missing", "user.x", b"y", NONE);
    t.getxattr("missing", "user.x", 10);
    t.listxattr("missing");
    t.removexattr("missing", "user.x");
}

fn create_and_replace(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.x", b"1", XattrFlags::REPLACE);
    t.setxattr("a", "user.x", b"2", XattrFlags::CREATE);
    t.setxattr("a", "user.x", b"3", XattrFlags::CREATE);
    t.setxattr("a", "user.x", b"4", XattrFlags::REPLACE);
    t.setxattr("a", "user.x", b"5", XattrFlags::CREATE | XattrFlags::REPLACE);
    t.setxattr("a", "user.x", b"6", XattrFlags::from_bits_retain(8));
    t.getxattr("a", "user.x", 10);
    let large = vec![b'l'; 900];
    t.setxattr("a", "user.large", &large, XattrFlags::REPLACE);
    t.setxattr("a", "user.large", &large, XattrFlags::CREATE);
    t.setxattr("a", "user.large", &large, XattrFlags::CREATE);
}

fn sizes_and_ranges(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.x", b"0123456789", NONE);
    for room in [0, 1, 9, 10, 11] {
        t.getxattr("a", "user.x", room);
    }
    let mut none: [u8; 0] = [];
    t.record("length of the list", fs::llistxattr("a", &mut none[..]));
    let mut little = [0_u8; 3];
    t.record("too little room", fs::llistxattr("a", &mut little[..]).map(drop));
    let mut exact = [0_u8; 7];
    t.record("exact room", fs::llistxattr("a", &mut exact[..]));
}

fn empty_values(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.empty", b"", NONE);
    t.getxattr("a", "user.empty", 10);
    t.listxattr("a");
    t.setxattr("a", "user.empty", b"no longer", NONE);
    t.getxattr("a", "user.empty", 10);
    t.setxattr("a", "user.empty", b"", XattrFlags::REPLACE);
    t.getxattr("a", "user.empty", 10);
    t.removexattr("a", "user.empty");
    t.listxattr("a");
}

fn names_without_a_namespace(t: &mut Transcript) {
    t.file("a", b"x");
    for name in [
        "x",
        "user",
        "user.",
        "",
        ".x",
        "other.x",
        "USER.x",
        "system.x",
        "system.posix_acl",
        "trusted.",
        "security.",
    ] {
        t.setxattr("a", name, b"y", NONE);
        t.getxattr("a", name, 10);
        t.removexattr("a", name);
    }
    t.listxattr("a");
}

fn names_of_each_length(t: &mut Transcript) {
    t.file("a", b"x");
    for length in [6, 7, 100, 254, 255, 256, 300] {
        let name = format!("user.{}", "n".repeat(length - 5));
        t.setxattr("a", &name, b"y", NONE);
        t.getxattr("a", &name, 10);
        t.removexattr("a", &name);
    }
}

fn values_of_each_length(t: &mut Transcript) {
    t.file("a", b"x");
    for length in [1, 50, 90, 100, 500, 900] {
        let value = vec![b'v'; length];
        t.setxattr("a", "user.v", &value, NONE);
        t.getxattr("a", "user.v", 70_000);
    }
    // Above the limit of the kernel for all file systems.
    t.setxattr("a", "user.v", &vec![b'v'; 65_537], NONE);
    t.getxattr("a", "user.v", 70_000);
}

fn too_many(t: &mut Transcript) {
    // One that never fits, then as many as do: exactly as many as in the kernel.
    t.file("a", b"x");
    t.setxattr("a", "user.v", &vec![b'v'; 65_536], NONE);
    t.setxattr("a", "user.v", &vec![b'v'; 5000], NONE);
    for number in 0..120 {
        let set = fs::lsetxattr("a", format!("user.{number:03}"), &[b'v'; 60], NONE);
        if set.is_err() {
            t.did(format!("number {number}"), set);
            break;
        }
    }
    let mut list = vec![0_u8; 65_536];
    t.record("list", fs::llistxattr("a", &mut list[..]));
    t.removexattr("a", "user.000");
    t.setxattr("a", "user.new", &[b'w'; 60], NONE);
    t.getxattr("a", "user.new", 100);
    t.setxattr("a", "user.new", &[b'w'; 4000], NONE);
    t.getxattr("a", "user.new", 5000);
}

fn values_replaced_many_times(t: &mut Transcript) {
    t.file("a", b"x");
    for round in 0..60_usize {
        let value = vec![b'a' + u8::try_from(round % 26).unwrap(); (round * 37) % 400];
        t.check("set", fs::lsetxattr("a", format!("user.{}", round % 5), &value, NONE));
    }
    t.listxattr("a");
    for number in 0..5 {
        t.getxattr("a", &format!("user.{number}"), 1000);
    }
}

fn on_each_type(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.symlink("x", "s");
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("k", FileType::Socket, 0o644, (0, 0));
    t.mknod("c", FileType::CharacterDevice, 0o644, (1, 3));
    t.mknod("b", FileType::BlockDevice, 0o644, (7, 0));
    for path in ["d", "s", "p", "k", "c", "b"] {
        t.setxattr(path, "user.x", b"u", NONE);
        t.setxattr(path, "trusted.x", b"t", NONE);
        t.setxattr(path, "security.x", b"s", NONE);
        t.getxattr(path, "user.x", 10);
        t.getxattr(path, "trusted.x", 10);
        t.listxattr(path);
        t.removexattr(path, "user.x");
        t.removexattr(path, "trusted.x");
    }
}

fn by_another_user(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.x", b"roots", NONE);
    for mode in [0o600, 0o604, 0o602, 0o606] {
        t.chmod("a", mode);
        t.as_user(1001, |t| {
            t.getxattr("a", "user.x", 10);
            t.setxattr("a", "user.x", b"new", NONE);
            t.listxattr("a");
            t.removexattr("a", "user.none");
        });
    }
    t.mkdir("sticky", 0o1777);
    t.chmod("sticky", 0o1777);
    t.as_user(1001, |t| {
        t.setxattr("sticky", "user.x", b"y", NONE);
        t.getxattr("sticky", "user.x", 10);
    });
}

fn trusted_is_for_root(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o666);
    t.setxattr("a", "trusted.x", b"y", NONE);
    t.chown("a", Some(1001), Some(1001));
    t.as_user(1001, |t| {
        t.getxattr("a", "trusted.x", 10);
        t.setxattr("a", "trusted.x", b"z", NONE);
        t.removexattr("a", "trusted.x");
        t.listxattr("a");
    });
    t.getxattr("a", "trusted.x", 10);
}

fn security_attributes(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o666);
    t.setxattr("a", "security.mine", b"y", NONE);
    t.as_user(1001, |t| {
        t.getxattr("a", "security.mine", 10);
        t.setxattr("a", "security.mine", b"z", NONE);
        t.setxattr("a", "security.other", b"z", NONE);
        t.removexattr("a", "security.mine");
        t.listxattr("a");
    });
    t.listxattr("a");
}

/// A file's capabilities as programs give them: `cap_net_raw+ep`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn privileges_of_files(t: &mut Transcript) {
    let again = |t: &mut Transcript| {
        t.setxattr("a", "security.capability", &CAPABILITY, NONE);
    };
    t.file("a", b"x");
    t.chmod("a", 0o777);
    again(t);
    t.getxattr("a", "security.capability", 100);
    t.setxattr("a", "security.capability", b"nonsense", NONE);
    t.chown("a", Some(1), None);
    t.listxattr("a");
    again(t);
    t.chmod("a", 0o766);
    t.listxattr("a");
    t.open("a", O::WRONLY, 0).map(|fd| t.write(&fd, b"y"));
    t.listxattr("a");
    again(t);
    t.as_user(1001, |t| t.open("a", O::WRONLY, 0).map_or((), |fd| t.write(&fd, b"z")));
    t.listxattr("a");
    again(t);
    t.truncate("a", 0);
    t.listxattr("a");
    t.as_user(1001, |t| t.setxattr("a", "security.capability", &CAPABILITY, NONE));
}

fn follow_links_or_not(t: &mut Transcript) {
    t.file("a", b"x");
    t.symlink("a", "s");
    t.did("through", fs::setxattr("s", "user.x", b"y", NONE));
    t.setxattr("s", "user.x", b"y", NONE);
    t.setxattr("s", "trusted.x", b"y", NONE);
    t.listxattr("a");
    t.listxattr("s");
}

fn stay_with_links_and_renames(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.x", b"kept", NONE);
    t.link("a", "b");
    t.rename("a", "c");
    t.getxattr("b", "user.x", 10);
    t.getxattr("c", "user.x", 10);
    t.file("d", b"y");
    t.rename("d", "c");
    t.listxattr("c");
    t.listxattr("b");
    t.unlink("b");
    t.file("b", b"z");
    t.listxattr("b");
}

fn by_descriptor(t: &mut Transcript) {
    t.file("a", b"x");
    let Some(fd) = t.open("a", O::RDONLY, 0) else { return };
    t.did("fsetxattr", fs::fsetxattr(&fd, "user.x", b"y", NONE));
    let mut value = [0_u8; 10];
    t.record("fgetxattr", fs::fgetxattr(&fd, "user.x", &mut value[..]));
    t.record("flistxattr", fs::flistxattr(&fd, &mut value[..]));
    t.did("fremovexattr", fs::fremovexattr(&fd, "user.x"));
    t.listxattr("a");
}

fn of_removed_files(t: &mut Transcript) {
    t.file("a", b"x");
    t.setxattr("a", "user.before", &[b'b'; 500], NONE);
    let Some(fd) = t.open("a", O::RDWR, 0) else { return };
    t.unlink("a");
    t.did("fsetxattr", fs::fsetxattr(&fd, "user.after", &[b'a'; 500], NONE));
    let mut list = [0_u8; 100];
    t.record("flistxattr", fs::flistxattr(&fd, &mut list[..]));
    t.did("fremovexattr", fs::fremovexattr(&fd, "user.before"));
}

fn same_values_on_many_files(t: &mut Transcript) {
    // Such attributes may share a block: each file must still have its own.
    for number in 0..30 {
        let name = format!("f{number}");
        t.check("create", fs::open(name.as_str(), O::WRONLY | O::CREATE, fs::Mode::from_raw_mode(0o644)));
        t.check("set", fs::lsetxattr(name.as_str(), "user.same", &[b's'; 700], NONE));
    }
    t.setxattr("f3", "user.same", &[b'o'; 700], NONE);
    t.removexattr("f4", "user.same");
    t.setxattr("f5", "user.more", b"m", NONE);
    t.unlink("f6");
    for name in ["f2", "f3", "f4", "f5", "f6", "f7"] {
        t.getxattr(name, "user.same", 1000);
        t.listxattr(name);
    }
}

/// Runs a tool with arguments in the case's directory; what it says.
fn tool(t: &mut Transcript, line: &str) {
    let mut words = line.split(' ');
    let mut command = testkit::tool::command(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    t.say(format!("{line} -> {}", output.status.code().unwrap_or(-1)));
    let said = [output.stdout, output.stderr].concat();
    for line in String::from_utf8_lossy(&said).lines() {
        t.say(format!("  {line}"));
    }
}

fn default_lists_are_inherited(t: &mut Transcript) {
    t.mkdir("d", 0o750);
    tool(t, "setfacl -d -m u:1001:rwx,g:1002:rx,o::- d");
    tool(t, "getfacl -n d");
    t.stat("d");
    let before = rustix::process::umask(fs::Mode::from_raw_mode(0o077));
    t.open("d/file", O::WRONLY | O::CREATE, 0o666);
    t.open("d/less", O::WRONLY | O::CREATE, 0o640);
    t.mkdir("d/sub", 0o777);
    t.mknod("d/fifo", FileType::Fifo, 0o666, (0, 0));
    t.symlink("x", "d/link");
    t.mkdir("d/sub/sub", 0o700);
    rustix::process::umask(before);
    for path in ["d/file", "d/less", "d/sub", "d/fifo", "d/sub/sub"] {
        tool(t, &format!("getfacl -n {path}"));
        t.stat(path);
    }
    t.stat("d/link");
    let before = rustix::process::umask(fs::Mode::from_raw_mode(0o077));
    t.open("d", O::RDWR | O::TMPFILE, 0o666).map(|fd| t.fstat(&fd));
    rustix::process::umask(before);
}

fn default_lists_like_a_mode(t: &mut Transcript) {
    // One that says no more than a mode can leaves no list behind.
    t.mkdir("e", 0o755);
    tool(t, "setfacl -d -m u::rwx,g::rx,o::x e");
    t.open("e/file", O::WRONLY | O::CREATE, 0o666);
    t.stat("e/file");
    t.listxattr("e/file");
}

fn lists_and_modes(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o640);
    tool(t, "setfacl -m u:1001:rw a");
    t.stat("a");
    tool(t, "getfacl -n a");
    t.chmod("a", 0o604);
    tool(t, "getfacl -n a");
    t.chmod("a", 0o777);
    tool(t, "getfacl -n a");
    tool(t, "setfacl -m m::r a");
    t.stat("a");
    tool(t, "setfacl -m u::rwx,g::-,o::- a");
    t.stat("a");
    t.listxattr("a");
    // A list that says just what the mode says becomes the mode.
    t.file("b", b"x");
    tool(t, "setfacl -m u::rwx,g::rx,o::r b");
    t.stat("b");
    t.listxattr("b");
    t.changes(&["a"], "setting a list", |t| tool(t, "setfacl -m u:1003:r a"));
}

fn lists_are_obeyed(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o600);
    t.chown("a", Some(0), Some(1000));
    tool(t, "setfacl -m u:1001:r,u:1002:rw,u:1003:-,g:1004:w,g::r,m::rw,o::- a");
    for (uid, gid, groups) in [
        (1001, 1001, vec![]),
        (1002, 1002, vec![]),
        (1003, 1000, vec![]),
        (1005, 1000, vec![]),
        (1005, 1005, vec![1004]),
        (1005, 1004, vec![1000]),
        (1006, 1006, vec![]),
    ] {
        t.as_user_in(uid, gid, &groups, |t| {
            t.open("a", O::RDONLY, 0);
            t.open("a", O::WRONLY, 0);
            t.open("a", O::RDWR, 0);
            t.access("a", fs::Access::READ_OK);
        });
    }
    t.chmod("a", 0o640);
    t.as_user(1002, |t| {
        t.open("a", O::RDONLY, 0);
        t.open("a", O::WRONLY, 0);
    });
    t.mkdir("d", 0o700);
    t.file("d/in", b"x");
    tool(t, "setfacl -m u:1001:x d");
    t.as_user(1001, |t| {
        t.contents("d/in");
        t.list("d");
    });
}

/// A list in the form in which the kernel takes it: version 2, then tag, permissions and id of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn lists_refused(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    let good = list(&[(1, 6, NOBODY), (2, 6, 1001), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY)]);
    for (what, bytes) in [
        ("no mask", list(&[(1, 6, NOBODY), (2, 6, 1001), (4, 4, NOBODY), (32, 4, NOBODY)])),
        ("no owner", list(&[(4, 4, NOBODY), (32, 4, NOBODY)])),
        ("no others", list(&[(1, 6, NOBODY), (4, 4, NOBODY)])),
        ("wrong order", list(&[(32, 4, NOBODY), (4, 4, NOBODY), (1, 6, NOBODY)])),
        (
            "twice",
            list(&[(1, 6, NOBODY), (2, 6, 5), (2, 6, 5), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY)]),
        ),
        ("permission bits", list(&[(1, 15, NOBODY), (4, 4, NOBODY), (32, 4, NOBODY)])),
        ("tag", list(&[(1, 6, NOBODY), (3, 6, 5), (4, 4, NOBODY), (32, 4, NOBODY)])),
        ("cut", good[..good.len() - 1].to_vec()),
        ("version", [&[1, 0, 0, 0], &good[4..]].concat()),
        ("empty", list(&[])),
        ("nothing", Vec::new()),
        ("good", good.clone()),
    ] {
        t.say(what);
        t.setxattr("a", ACCESS, &bytes, NONE);
        t.setxattr("a", DEFAULT, &bytes, NONE);
        t.setxattr("d", DEFAULT, &bytes, NONE);
        t.stat("a");
    }
    t.chmod("a", 0o666);
    t.as_user(1001, |t| t.setxattr("a", ACCESS, &good, NONE));
    t.symlink("a", "s");
    t.setxattr("s", ACCESS, &good, NONE);
}

fn lists_removed(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    tool(t, "setfacl -m u:1001:rw a");
    tool(t, "setfacl -d -m u:1001:rw d");
    t.listxattr("a");
    t.listxattr("d");
    t.removexattr("a", ACCESS);
    t.stat("a");
    t.listxattr("a");
    t.removexattr("a", ACCESS);
    t.removexattr("d", DEFAULT);
    t.listxattr("d");
    t.removexattr("d", DEFAULT);
    t.removexattr("a", DEFAULT);
    tool(t, "setfacl -m u:1001:rw a");
    t.as_user(1001, |t| t.removexattr("a", ACCESS));
    tool(t, "setfacl -b a");
    t.listxattr("a");
    t.stat("a");
}

fn lists_of_the_kernel_names(t: &mut Transcript) {
    t.file("a", b"x");
    t.getxattr("a", ACCESS, 100);
    t.getxattr("a", DEFAULT, 100);
    let good = list(&[(1, 6, NOBODY), (2, 5, 70_000), (4, 4, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)]);
    t.setxattr("a", ACCESS, &good, NONE);
    t.getxattr("a", ACCESS, 200);
    t.getxattr("a", ACCESS, 0);
    t.getxattr("a", ACCESS, 10);
    t.stat("a");
}

/// The flags that differ from file to file by what programs ask for.
const OURS: IFlags = IFlags::IMMUTABLE
    .union(IFlags::APPEND)
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::SYNC)
    .union(IFlags::DIRSYNC)
    .union(IFlags::TOPDIR);

fn flags(path: &str) -> Result<IFlags> {
    let fd = fs::open(path, O::RDONLY, fs::Mode::empty())?;
    fs::ioctl_getflags(&fd).map(|flags| flags & OURS)
}

fn set_flags(t: &mut Transcript, path: &str, wanted: IFlags) {
    let set = || {
        let fd = fs::open(path, O::RDONLY, fs::Mode::empty())?;
        let now = fs::ioctl_getflags(&fd)?;
        fs::ioctl_setflags(&fd, (now - OURS) | wanted)
    };
    t.did(format!("flags of {path}: {wanted:?}"), set());
}

fn flags_set_and_shown(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    for path in ["a", "d"] {
        for flag in
            [IFlags::NODUMP, IFlags::NOATIME, IFlags::SYNC, IFlags::DIRSYNC, IFlags::TOPDIR, IFlags::empty()]
        {
            set_flags(t, path, flag);
            t.record("flags", flags(path));
        }
    }
    t.changes(&["a"], "flags", |t| set_flags(t, "a", IFlags::NODUMP));
    tool(t, "lsattr -d a d");
}

fn flags_by_another_user(t: &mut Transcript) {
    t.file("a", b"x");
    t.chmod("a", 0o666);
    t.as_user(1001, |t| {
        set_flags(t, "a", IFlags::NODUMP);
        t.record("flags", flags("a"));
    });
    t.chown("a", Some(1001), Some(1001));
    t.as_user(1001, |t| {
        set_flags(t, "a", IFlags::NODUMP);
        set_flags(t, "a", IFlags::APPEND);
        set_flags(t, "a", IFlags::IMMUTABLE);
        t.record("flags", flags("a"));
    });
}

/// All calls that change a file.
fn try_all(t: &mut Transcript, path: &str) {
    t.open(path, O::RDONLY, 0);
    t.open(path, O::WRONLY, 0);
    t.open(path, O::WRONLY | O::APPEND, 0);
    t.open(path, O::RDWR | O::TRUNC, 0);
    t.open(path, O::WRONLY | O::APPEND | O::TRUNC, 0);
    t.chmod(path, 0o600);
    t.chown(path, Some(1), None);
    t.truncate(path, 1);
    t.setxattr(path, "user.x", b"y", NONE);
    t.setxattr(path, "trusted.x", b"y", NONE);
    t.removexattr(path, "user.x");
    let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
    let then = fs::Timespec { tv_sec: 7, tv_nsec: 7 };
    for (what, time) in [("now", now), ("then", then)] {
        let times = fs::Timestamps { last_access: time, last_modification: time };
        t.did(format!("utimensat {what}"), fs::utimensat(CWD, path, &times, AtFlags::empty()));
    }
    t.link(path, "other-name");
    t.rename(path, "renamed");
    t.rename("renamed", path);
    t.rename("replaces", path);
    t.rename_with("replaces", path, RenameFlags::EXCHANGE);
    t.access(path, fs::Access::WRITE_OK);
    t.unlink(path);
    t.stat(path);
}

fn immutable_files(t: &mut Transcript) {
    t.file("a", b"x");
    t.file("replaces", b"y");
    let open = t.open("a", O::RDWR, 0);
    set_flags(t, "a", IFlags::IMMUTABLE);
    t.record("flags", flags("a"));
    // What was opened before: the rule is checked at each change.
    if let Some(fd) = open {
        t.write(&fd, b"z");
        t.ftruncate(&fd, 0);
        t.did("fchmod", fs::fchmod(&fd, fs::Mode::from_raw_mode(0o600)));
    }
    try_all(t, "a");
    set_flags(t, "a", IFlags::empty());
    t.unlink("a");
}

fn immutable_directories(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    t.mkdir("d/sub", 0o755);
    t.file("b", b"y");
    set_flags(t, "d", IFlags::IMMUTABLE);
    t.file("d/new", b"");
    t.mkdir("d/newdir", 0o755);
    t.symlink("x", "d/link");
    t.mknod("d/fifo", FileType::Fifo, 0o644, (0, 0));
    t.link("b", "d/b");
    t.unlink("d/a");
    t.rmdir("d/sub");
    t.rename("d/a", "d/c");
    t.rename("d/a", "c");
    t.rename("b", "d/a");
    t.open("d", O::RDWR | O::TMPFILE, 0o600);
    t.open("d/a", O::RDWR | O::CREATE, 0o644).map(|fd| t.write(&fd, b"z"));
    t.chmod("d", 0o700);
    t.rmdir("d");
    t.rename("d", "e");
    t.rename("d/sub", "sub");
    set_flags(t, "d", IFlags::empty());
    t.list("d");
}

fn append_only_files(t: &mut Transcript) {
    t.file("a", b"x");
    t.file("replaces", b"y");
    let open = t.open("a", O::RDWR, 0);
    set_flags(t, "a", IFlags::APPEND);
    if let Some(fd) = open {
        t.pwrite(&fd, b"z", 0);
        t.ftruncate(&fd, 0);
        t.open("replaces", O::RDONLY, 0).map(|from| {
            t.record("copied", fs::copy_file_range(&from, Some(&mut 0), &fd, Some(&mut 0), 1));
        });
        t.pwrite(&fd, b"behind the end", 4);
    }
    t.open("a", O::WRONLY | O::APPEND, 0).map(|fd| {
        t.write(&fd, b"more");
        t.ftruncate(&fd, 0);
        t.did("without append", fs::fcntl_setfl(&fd, O::empty()));
    });
    try_all(t, "a");
    t.contents("a");
    set_flags(t, "a", IFlags::empty());
    t.unlink("a");
}

fn append_only_directories(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    t.file("d/a", b"x");
    t.mkdir("d/sub", 0o755);
    t.file("b", b"y");
    set_flags(t, "d", IFlags::APPEND);
    t.file("d/new", b"");
    t.mkdir("d/newdir", 0o755);
    t.link("b", "d/b");
    t.unlink("d/a");
    t.rmdir("d/sub");
    t.rename("d/a", "d/c");
    t.rename("d/a", "c");
    t.rename("b", "d/moved");
    t.rename("replaces", "d/a");
    t.chmod("d", 0o700);
    set_flags(t, "d", IFlags::empty());
    t.list("d");
}

fn flags_are_inherited(t: &mut Transcript) {
    t.mkdir("d", 0o755);
    set_flags(t, "d", OURS - IFlags::IMMUTABLE - IFlags::APPEND);
    t.file("d/a", b"x");
    t.mkdir("d/sub", 0o755);
    for path in ["d", "d/a", "d/sub"] {
        t.record(path, flags(path));
    }
}

fn flags_that_can_not_be_set(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    for path in ["a", "d"] {
        let Some(fd) = t.open(path, O::RDONLY, 0) else { continue };
        let Some(now) = t.check("flags", fs::ioctl_getflags(&fd)) else { continue };
        for bit in [1 << 4, 1 << 11, 1 << 12, 1 << 18, 1 << 21, 1 << 25, 1 << 28, 1 << 30, 1 << 31] {
            let wanted = IFlags::from_bits_retain(now.bits() | bit);
            t.did(format!("{path} {bit:x}"), fs::ioctl_setflags(&fd, wanted));
            let shown = fs::ioctl_getflags(&fd).map(|flags| (flags.bits() ^ now.bits()) & bit);
            t.record("shown", shown.map(|bits| format!("{bits:x}")));
            t.check("back", fs::ioctl_setflags(&fd, now));
        }
    }
}

fn flags_of_other_types(t: &mut Transcript) {
    t.mknod("p", FileType::Fifo, 0o644, (0, 0));
    t.mknod("null", FileType::CharacterDevice, 0o666, (1, 3));
    for path in ["p", "null"] {
        let Some(fd) = t.open(path, O::RDONLY | O::NONBLOCK, 0) else { continue };
        t.record("flags", fs::ioctl_getflags(&fd).map(|flags| flags & OURS));
    }
}

fn projects(t: &mut Transcript) {
    t.file("a", b"x");
    t.mkdir("d", 0o755);
    tool(t, "chattr -p 42 a");
    tool(t, "lsattr -p a");
    tool(t, "chattr +P d");
    tool(t, "lsattr -pd d");
}

fn generations(t: &mut Transcript) {
    // They are part of checksums, where there are any, and stay as they are then.
    t.file("a", b"x");
    tool(t, "chattr -v 12345 a");
    let shown = testkit::tool::text("lsattr", &["-v", "a"]);
    t.say(format!("set: {}", shown.split_whitespace().next() == Some("12345")));
}
