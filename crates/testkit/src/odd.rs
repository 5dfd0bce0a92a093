//! The odd tree: a source with every oddity that a directory or an archive may hold.
//!
//! Deterministic except for what the host decides (change times, inode numbers). What needs root (devices, owners, trusted attributes,
//! capabilities) is left out without it.

mod acl;

#[cfg(test)]
mod tests;

use crate::tool;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// How much of it; some target formats can't hold all.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Entries of the large directory.
    pub many: u32,
    /// Length of the longest symlink target, at most 4095. A volume holds targets shorter than a block.
    pub longest_symlink: usize,
    /// Largest total of attribute bytes on one file; 1 KiB blocks hold less than 4 KiB ones.
    pub xattr_bytes: usize,
    /// With extended attributes, ACLs and capabilities.
    pub xattrs: bool,
    /// With devices, foreign owners and whatever else needs root's capabilities; never without them.
    pub root: bool,
    /// With the file of 5 GiB, nearly all of it hole, and other large sparse files.
    pub huge: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            many: 20_000,
            longest_symlink: 4095,
            xattr_bytes: 3000,
            xattrs: true,
            root: tool::administers(),
            huge: true,
        }
    }
}

impl Options {
    /// Options that every format and tool can hold: small, with plain names' worth of attributes and no giant.
    pub fn modest() -> Self {
        Self { many: 300, longest_symlink: 1000, xattr_bytes: 600, huge: false, ..Self::default() }
    }
}

/// Makes the tree in `root`, which must exist.
///
/// # Panics
/// When the host can't make a part of it, or does not keep what was set (a premise).
pub fn make(root: &Path, options: &Options) {
    names(root);
    contents(root, options);
    kinds(root, options);
    symlinks(root, options);
    if options.xattrs {
        attributes(root, options);
    }
    modes_and_owners(root, options);
    deep(root);
    many(root, options);
    // Last, since making children changes the times of directories.
    times(root);
}

/// Packs the tree below `root` as a PAX archive, with attributes, ACLs and sparse maps. Sockets stay behind.
///
/// # Panics
/// When GNU tar is missing or fails.
pub fn pack(root: &Path, archive: &Path) {
    let mut tar = tool::command("tar");
    tar.args([
        "--format=posix",
        "--sort=name",
        "--numeric-owner",
        "--sparse",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
    ]);
    tool::run(tar.arg("-cf").arg(archive).arg("-C").arg(root).arg("."));
}

fn must<T, E: std::fmt::Display>(result: Result<T, E>, path: &Path) -> T {
    result.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn directory(path: PathBuf) -> PathBuf {
    must(fs::create_dir_all(&path), &path);
    path
}

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) -> PathBuf {
    must(fs::write(&path, bytes), &path);
    path
}

/// Bytes that differ from block to block and file to file.
fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut bytes = Vec::with_capacity(length + 3);
    while bytes.len() < length {
        // xorshift32 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn names(root: &Path) {
    let dir = directory(root.join("names"));
    let longest = vec![b'n'; 255];
    let names: [&[u8]; 14] = [
        b"not-utf8-\xff\xfe\x80",
        &longest,
        b"new\nline",
        b" leading and trailing space ",
        b"tab\tand\x01control\x7f",
        b"back\\slash",
        b"quote'\"quote",
        b"-dash",
        b"...",
        b"a",
        "\u{e9}\u{4e2d}\u{1f600}".as_bytes(),
        b"*?[x]{y}",
        b"trailing-dot.",
        b"UPPER-upper",
    ];
    for (index, name) in names.iter().enumerate() {
        let name = OsStr::from_bytes(name);
        write(dir.join(name), format!("name {index}"));
        directory(root.join("names-of-directories").join(name));
    }
}

fn contents(root: &Path, options: &Options) {
    let dir = directory(root.join("contents"));
    // Around the sizes of inline data, of small blocks and of large ones.
    for length in
        [0, 1, 59, 60, 61, 100, 159, 160, 161, 1023, 1024, 1025, 4095, 4096, 4097, 65_535, 65_537, 300_001]
    {
        write(dir.join(format!("{length}-bytes")), pattern(length, u32::try_from(length).unwrap_or(0)));
    }
    write(dir.join("zeros-not-holes"), vec![0; 70_000]);

    let sparse = directory(root.join("sparse"));
    let piece = pattern(8192, 77);
    let with = |name: &str, size: u64, at: &[u64]| {
        let path = sparse.join(name);
        let file = must(File::create(&path), &path);
        must(file.set_len(size), &path);
        for offset in at {
            must(file.write_all_at(&piece, *offset), &path);
        }
    };
    const MIB: u64 = 1 << 20;
    with("only-hole", 3 * MIB, &[]);
    with("trailing-hole", 3 * MIB, &[0]);
    with("leading-hole", 3 * MIB, &[3 * MIB - 8192]);
    with("middle", 4 * MIB, &[0, 2 * MIB]);
    with("comb", 8 * MIB, &(0..32).map(|tooth| tooth * MIB / 4).collect::<Vec<_>>());
    with("unaligned", MIB, &[300_001, 700_003]);
    if options.huge {
        with("five-gib", 5 << 30, &[0, 3 << 30, (5 << 30) - 8192]);
        with("nine-gib-hole", 9 << 30, &[8 << 30]);
    }
}

fn kinds(root: &Path, options: &Options) {
    let dir = directory(root.join("kinds"));
    directory(dir.join("empty-directory"));
    let make = |name: &str, kind: FileType, device: u64| {
        let path = dir.join(name);
        must(rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device), &path);
    };
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    if options.root {
        make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        make("disk", FileType::BlockDevice, rustix::fs::makedev(8, 17));
        // Beyond the 8 bits of the old encoding.
        make("large-major", FileType::CharacterDevice, rustix::fs::makedev(511, 70_000));
        make("large-minor", FileType::BlockDevice, rustix::fs::makedev(259, 1_048_575));
    }
    let linked = write(dir.join("linked-1"), "three names");
    must(fs::hard_link(&linked, dir.join("linked-2")), &linked);
    must(fs::hard_link(&linked, directory(dir.join("elsewhere")).join("linked-3")), &linked);
    must(fs::hard_link(dir.join("fifo"), dir.join("fifo-again")), &linked);
}

fn symlinks(root: &Path, options: &Options) {
    let dir = directory(root.join("symlinks"));
    // 59 bytes fit the inode, 60 do not; 61 shows code that is off by one.
    for length in
        [1, 59, 60, 61, 255, 1000, 1023, 4095].into_iter().filter(|length| *length <= options.longest_symlink)
    {
        let target: Vec<u8> = (0..length).map(|at| if at % 100 == 99 { b'/' } else { b't' }).collect();
        let path = dir.join(format!("{length}-bytes"));
        must(symlink(OsStr::from_bytes(&target), &path), &path);
    }
    for (name, target) in
        [("absolute", "/etc/passwd"), ("up", "../../../../etc"), ("self", "self"), ("directory", "../names")]
    {
        must(symlink(target, dir.join(name)), &dir);
    }
    must(symlink(OsStr::from_bytes(b"\xff\xfe"), dir.join("not-utf8")), &dir);
    must(fs::hard_link(dir.join("up"), dir.join("up-again")), &dir);
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    must(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()), path);
}

fn attributes(root: &Path, options: &Options) {
    let dir = directory(root.join("attributes"));
    let file = |name: &str| write(dir.join(name), name);
    set_xattr(&file("user"), "user.comment", b"a value");
    set_xattr(&file("empty-value"), "user.empty", b"");
    set_xattr(&file("binary"), "user.binary", b"\x00\xff\n=\x00");
    set_xattr(&file("long-name"), &format!("user.{}", "n".repeat(240)), b"v");
    let several = file("several");
    for index in 0..12 {
        set_xattr(&several, &format!("user.key-{index}"), format!("value {index}").as_bytes());
    }
    for index in 0..3 {
        // Equal ones, so that a volume may share their block.
        set_xattr(&file(&format!("large-{index}")), "user.large", &pattern(options.xattr_bytes, 5));
    }
    set_xattr(&directory(dir.join("directory")), "user.on", b"a directory");
    for (name, access) in [("acl", acl::access(0)), ("acl-more", acl::access(12))] {
        set_xattr(&file(name), "system.posix_acl_access", &access);
    }
    let inherits = directory(dir.join("acl-default"));
    set_xattr(&inherits, "system.posix_acl_default", &acl::access(1));
    write(inherits.join("child"), "inherits");
    if options.root {
        set_xattr(&file("trusted"), "trusted.overlay.opaque", b"y");
        set_xattr(&file("security"), "security.ima", b"\x04\x02");
        set_xattr(&file("capability"), "security.capability", &acl::CAP_NET_RAW);
        let link = dir.join("symlink-with-attribute");
        must(symlink("user", &link), &link);
        set_xattr(&link, "trusted.on", b"a symlink");
    }
}

fn modes_and_owners(root: &Path, options: &Options) {
    let dir = directory(root.join("modes"));
    for mode in [0o000, 0o400, 0o444, 0o755, 0o4755, 0o2755, 0o1777, 0o7777, 0o6000] {
        let path = write(dir.join(format!("{mode:04o}")), "mode");
        must(fs::set_permissions(&path, Permissions::from_mode(mode)), &path);
    }
    let sticky = directory(dir.join("sticky"));
    must(fs::set_permissions(&sticky, Permissions::from_mode(0o1777)), &sticky);
    if options.root {
        for (uid, gid) in [(1000, 1000), (65_535, 65_534), (65_536, 70_000), (4_000_000_000, 4_294_967_294)] {
            let path = write(dir.join(format!("owner-{uid}-{gid}")), "owner");
            must(lchown(&path, Some(uid), Some(gid)), &path);
        }
        must(symlink("0755", dir.join("owned-link")), &dir);
        must(lchown(dir.join("owned-link"), Some(1001), Some(100_001)), &dir);
    }
}

fn deep(root: &Path) {
    let mut path = root.join("deep");
    for level in 0..60 {
        path.push(format!("level-{level}"));
    }
    write(directory(path).join("bottom"), "deep");
}

fn many(root: &Path, options: &Options) {
    let dir = directory(root.join("many"));
    for index in 0..options.many {
        // Every hundredth has a byte, so that the names are not all of empty files.
        let bytes: &[u8] = if index % 100 == 0 { b"x" } else { b"" };
        write(dir.join(format!("entry-number-{index:06}")), bytes);
    }
}

fn times(root: &Path) {
    let dir = directory(root.join("times"));
    let stamps: [(&str, i64, i64); 9] = [
        ("epoch", 0, 0),
        ("nanosecond", 1_500_000_000, 1),
        ("last-nanosecond", 1_500_000_000, 999_999_999),
        ("before-1970", -1, 500_000_000),
        ("year-1935", -1_100_000_000, 0),
        ("last-of-32-bits", 2_147_483_647, 999_999_999),
        ("first-after-2038", 2_147_483_648, 123_456_789),
        ("year-2106", 4_294_967_296, 7),
        ("year-2400", 13_569_465_600, 5),
    ];
    for (name, seconds, nanoseconds) in stamps {
        set_time(&write(dir.join(name), name), seconds, nanoseconds);
    }
    must(symlink("epoch", dir.join("link")), &dir);
    set_time(&dir.join("link"), 1_234_567_890, 42);
    set_time(&dir, 1_000_000_000, 1_000);
    set_time(root, 1_600_000_000, 987_654_321);
}

fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    must(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW), path);
    let kept = must(fs::symlink_metadata(path), path);
    let kept =
        (std::os::unix::fs::MetadataExt::mtime(&kept), std::os::unix::fs::MetadataExt::mtime_nsec(&kept));
    // A format with 128-byte inodes keeps 32 bits of seconds; comparisons on such a format leave out times.
    if kept != (seconds, nanoseconds) {
        eprintln!("{}: the host keeps {kept:?} of ({seconds}, {nanoseconds})", path.display());
    }
}
