//! Record of a case: one line for each call, with its result or the name of its error. Values that differ from
//! run to run (inode numbers, devices, points in time) never gets in.

use nix::time::ClockId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    self, Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::thread as credentials;
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Errno>;

/// One case: it works in the current directory, which is its own and empty.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Transcript),
}

/// The cases of a module, by their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[crate::posix::transcript::Case] =
            &[$(crate::posix::transcript::Case { name: concat!(module_path!(), "::", stringify!($name)), run: $name }),*];
    };
}
pub(crate) use cases;

#[derive(Default)]
pub struct Transcript {
    pub lines: Vec<String>,
    indent: usize,
}

/// Waits until the clock by which the kernel gives files their times has passed this moment. On a busy machine that
/// can take longer than one of its steps.
pub fn tick() {
    let read = |clock: ClockId| clock.now().map(Duration::from).unwrap_or_default();
    let begun = read(ClockId::CLOCK_REALTIME);
    while read(ClockId::CLOCK_REALTIME_COARSE) <= begun {
        thread::sleep(Duration::from_millis(2));
    }
}

/// A time long ago, so that what sets a time to now is seen.
const OLD: i64 = 1_000_000_000;

const NAMES: &[(Errno, &str)] = &[
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::TOOBIG, "E2BIG"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::FAULT, "EFAULT"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::ROFS, "EROFS"),
    (Errno::MLINK, "EMLINK"),
    (Errno::RANGE, "ERANGE"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::LOOP, "ELOOP"),
    (Errno::NODATA, "ENODATA"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::STALE, "ESTALE"),
    (Errno::UCLEAN, "EUCLEAN"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::NOTCONN, "ENOTCONN"),
];

pub fn error_name(error: Errno) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == error);
    known.map_or_else(|| format!("errno {}", error.raw_os_error()), |(_, name)| (*name).to_owned())
}

/// A path as the transcript shows it: long ones by their length.
fn short(path: &str) -> String {
    if path.len() > 60 { format!("{}..({} bytes)", &path[..12], path.len()) } else { path.to_owned() }
}

/// Bytes as the transcript shows them: runs of the same byte by their length.
pub fn show_bytes(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    let shown = runs.map(|run| {
        let shown = run[0].escape_ascii().to_string();
        if run.len() < 4 { shown.repeat(run.len()) } else { format!("<{shown}*{}>", run.len()) }
    });
    shown.collect()
}

pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "char",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}

/// Fields of `stat`, without those that vary. The size of a directory is the file system's affair.
pub fn facts(stat: &Stat) -> String {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let mut line = format!(
        "{} {:04o} {}:{} links {}",
        type_name(file_type),
        stat.st_mode & 0o7777,
        stat.st_uid,
        stat.st_gid,
        stat.st_nlink
    );
    if file_type != FileType::Directory {
        line += &format!(" size {}", stat.st_size);
    }
    if matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice) {
        line += &format!(" device {}:{}", fs::major(stat.st_rdev), fs::minor(stat.st_rdev));
    }
    line
}

impl Transcript {
    /// A line of its own.
    pub fn say(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "  ".repeat(self.indent), text.as_ref()));
    }

    /// The result of a call.
    pub fn record<T: Debug>(&mut self, call: impl AsRef<str>, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.say(format!("{} -> {value:?}", call.as_ref()));
                Some(value)
            }
            Err(error) => {
                self.say(format!("{} -> {}", call.as_ref(), error_name(error)));
                None
            }
        }
    }

    /// Records that a call worked; its value varies.
    pub fn did<T>(&mut self, call: impl AsRef<str>, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.say(format!("{} -> ok", call.as_ref()));
                Some(value)
            }
            Err(error) => {
                self.say(format!("{} -> {}", call.as_ref(), error_name(error)));
                None
            }
        }
    }

    pub fn open(&mut self, path: &str, flags: OFlags, mode: u32) -> Option<OwnedFd> {
        let result = fs::open(path, flags, Mode::from_raw_mode(mode));
        self.did(format!("open {} {} {mode:o}", short(path), flag_names(flags)), result)
    }

    /// A new file with these contents, made in one go; the whole is one line.
    pub fn file(&mut self, path: &str, bytes: &[u8]) {
        let make = || {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
            let fd = fs::open(path, flags, Mode::from_raw_mode(0o644))?;
            let mut left = bytes;
            while !left.is_empty() {
                left = &left[rustix::io::write(&fd, left)?..];
            }
            Ok(())
        };
        self.did(format!("file {} of {}", short(path), bytes.len()), make());
    }

    pub fn mkdir(&mut self, path: &str, mode: u32) {
        let result = fs::mkdir(path, Mode::from_raw_mode(mode));
        self.did(format!("mkdir {} {mode:o}", short(path)), result);
    }

    pub fn mknod(&mut self, path: &str, kind: FileType, mode: u32, device: (u32, u32)) {
        let made = fs::makedev(device.0, device.1);
        let result = fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), made);
        self.did(format!("mknod {} {} {mode:o} {device:?}", short(path), type_name(kind)), result);
    }

    pub fn symlink(&mut self, target: &str, path: &str) {
        let result = fs::symlink(target, path);
        self.did(format!("symlink {} {}", short(target), short(path)), result);
    }

    pub fn readlink(&mut self, path: &str) {
        let result = fs::readlink(path, Vec::new()).map(|target| short(&target.to_string_lossy()));
        self.record(format!("readlink {}", short(path)), result);
    }

    pub fn link(&mut self, from: &str, to: &str) {
        let result = fs::link(from, to);
        self.did(format!("link {} {}", short(from), short(to)), result);
    }

    pub fn link_with(&mut self, from: &str, to: &str, flags: AtFlags) {
        let result = fs::linkat(CWD, from, CWD, to, flags);
        self.did(format!("linkat {} {} {flags:?}", short(from), short(to)), result);
    }

    pub fn unlink(&mut self, path: &str) {
        let result = fs::unlink(path);
        self.did(format!("unlink {}", short(path)), result);
    }

    pub fn rmdir(&mut self, path: &str) {
        let result = fs::rmdir(path);
        self.did(format!("rmdir {}", short(path)), result);
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        let result = fs::rename(from, to);
        self.did(format!("rename {} {}", short(from), short(to)), result);
    }

    pub fn rename_with(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let result = fs::renameat_with(CWD, from, CWD, to, flags);
        self.did(format!("renameat2 {} {} {flags:?}", short(from), short(to)), result);
    }

    pub fn chmod(&mut self, path: &str, mode: u32) {
        let result = fs::chmod(path, Mode::from_raw_mode(mode));
        self.did(format!("chmod {} {mode:o}", short(path)), result);
    }

    pub fn chown(&mut self, path: &str, uid: Option<u32>, gid: Option<u32>) {
        let result = fs::chown(path, uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        self.did(format!("chown {} {uid:?} {gid:?}", short(path)), result);
    }

    pub fn lchown(&mut self, path: &str, uid: Option<u32>, gid: Option<u32>) {
        let (user, group) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        let result = fs::chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW);
        self.did(format!("lchown {} {uid:?} {gid:?}", short(path)), result);
    }

    pub fn access(&mut self, path: &str, access: Access) {
        let result = fs::accessat(CWD, path, access, AtFlags::EACCESS);
        self.did(format!("access {} {access:?}", short(path)), result);
    }

    /// `truncate` by name: through a descriptor opened for writing.
    pub fn truncate(&mut self, path: &str, size: u64) {
        let result = fs::open(path, OFlags::WRONLY, Mode::empty()).and_then(|fd| fs::ftruncate(&fd, size));
        self.did(format!("truncate {} {size}", short(path)), result);
    }

    pub fn ftruncate(&mut self, fd: impl AsFd, size: u64) {
        let result = fs::ftruncate(fd, size);
        self.did(format!("ftruncate {size}"), result);
    }

    pub fn fallocate(&mut self, fd: impl AsFd, mode: FallocateFlags, at: u64, len: u64) {
        let result = fs::fallocate(fd, mode, at, len);
        self.did(format!("fallocate {mode:?} {at} {len}"), result);
    }

    pub fn write(&mut self, fd: impl AsFd, bytes: &[u8]) {
        self.record(format!("write of {}", bytes.len()), rustix::io::write(fd, bytes));
    }

    pub fn pwrite(&mut self, fd: impl AsFd, bytes: &[u8], at: u64) {
        self.record(format!("pwrite of {} at {at}", bytes.len()), rustix::io::pwrite(fd, bytes, at));
    }

    pub fn read(&mut self, fd: impl AsFd, len: usize) {
        let mut buffer = vec![0; len];
        let result = rustix::io::read(fd, &mut buffer[..]).map(|count| show_bytes(&buffer[..count]));
        self.record(format!("read of {len}"), result);
    }

    pub fn pread(&mut self, fd: impl AsFd, len: usize, at: u64) {
        let mut buffer = vec![0; len];
        let result = rustix::io::pread(fd, &mut buffer[..], at).map(|count| show_bytes(&buffer[..count]));
        self.record(format!("pread of {len} at {at}"), result);
    }

    /// The whole of a file.
    pub fn contents(&mut self, path: &str) {
        let whole = std::fs::read(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
        self.record(format!("contents of {}", short(path)), whole.map(|bytes| show_bytes(&bytes)));
    }

    pub fn seek(&mut self, fd: impl AsFd, to: SeekFrom) {
        let result = fs::seek(fd, to);
        self.record(format!("seek {to:?}"), result);
    }

    pub fn stat(&mut self, path: &str) {
        let result = fs::lstat(path).map(|stat| facts(&stat));
        self.record(format!("lstat {}", short(path)), result);
    }

    pub fn fstat(&mut self, fd: impl AsFd) {
        let result = fs::fstat(fd).map(|stat| facts(&stat));
        self.record("fstat", result);
    }

    /// Space taken, in units of 512 bytes, once it is all written.
    pub fn sectors(&mut self, fd: impl AsFd) {
        let result = fs::fsync(&fd).and_then(|()| fs::fstat(&fd)).map(|stat| stat.st_blocks);
        self.record("sectors", result);
    }

    pub fn setxattr(&mut self, path: &str, name: &str, value: &[u8], flags: XattrFlags) {
        let result = fs::lsetxattr(path, name, value, flags);
        self.did(format!("setxattr {} {} {} {flags:?}", short(path), short(name), value.len()), result);
    }

    pub fn getxattr(&mut self, path: &str, name: &str, room: usize) {
        let mut value = vec![0_u8; room];
        let result = if room == 0 {
            let mut none: [u8; 0] = [];
            fs::lgetxattr(path, name, &mut none[..]).map(|length| format!("{length} bytes"))
        } else {
            fs::lgetxattr(path, name, &mut value[..]).map(|length| show_bytes(&value[..length]))
        };
        self.record(format!("getxattr {} {} {room}", short(path), short(name)), result);
    }

    pub fn listxattr(&mut self, path: &str) {
        let mut list = vec![0_u8; 65_536];
        let result = fs::llistxattr(path, &mut list[..]).map(|length| {
            let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let mut names: Vec<String> = names.map(|name| short(&String::from_utf8_lossy(name))).collect();
            names.sort();
            names
        });
        self.record(format!("listxattr {}", short(path)), result);
    }

    pub fn removexattr(&mut self, path: &str, name: &str) {
        let result = fs::lremovexattr(path, name);
        self.did(format!("removexattr {} {}", short(path), short(name)), result);
    }

    /// The names in a directory, sorted.
    pub fn list(&mut self, path: &str) {
        let names =
            names_of(path).map(|names| names.into_iter().map(|name| short(&name)).collect::<Vec<_>>());
        self.record(format!("list {}", short(path)), names);
    }

    /// Runs `body` as another user, with no groups but one.
    pub fn as_user(&mut self, id: u32, body: impl FnOnce(&mut Transcript) + Send) {
        self.as_user_in(id, id, &[], body);
    }

    /// Runs `body` as another user, with a group and further ones.
    pub fn as_user_in(
        &mut self,
        uid: u32,
        gid: u32,
        groups: &[u32],
        body: impl FnOnce(&mut Transcript) + Send,
    ) {
        self.say(format!("as {uid}:{gid} {groups:?}"));
        self.indent += 1;
        let inner = &mut *self;
        thread::scope(|scope| {
            scope.spawn(move || {
                let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
                // Of this thread only, which ends here: the kernel keeps credentials by thread.
                credentials::set_thread_groups(&groups).unwrap();
                if std::env::var_os(crate::posix::FILE_USERS).is_some() {
                    // A mount that only root may look into lets it act as others.
                    nix::unistd::setfsgid(gid.into());
                    nix::unistd::setfsuid(uid.into());
                } else {
                    credentials::set_thread_res_gid(group, group, group).unwrap();
                    credentials::set_thread_res_uid(user, user, user).unwrap();
                }
                body(inner);
            });
        });
        self.indent -= 1;
    }

    /// Which of the times of `paths` a call sets to now: `a`, `m`, `c`, or `-` for what stays. All are long ago before.
    pub fn changes(&mut self, paths: &[&str], what: &str, call: impl FnOnce(&mut Transcript)) {
        let old = Timespec { tv_sec: OLD, tv_nsec: 0 };
        let times = Timestamps { last_access: old, last_modification: old };
        for path in paths {
            let set = fs::utimensat(CWD, *path, &times, AtFlags::SYMLINK_NOFOLLOW);
            self.check(&format!("old times of {path}"), set);
        }
        let before: Vec<_> = paths.iter().map(|path| fs::lstat(*path)).collect();
        tick();
        self.say(format!("times by {what}"));
        self.indent += 1;
        call(self);
        for (path, before) in paths.iter().zip(before) {
            let after = fs::lstat(*path);
            let changes = before.and_then(|before| after.map(|after| changed(&before, &after)));
            self.record(*path, changes);
        }
        self.indent -= 1;
    }

    /// A step that is no case of its own: a line only when it fails.
    pub fn check<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.say(format!("{what} -> {}", error_name(error)));
                None
            }
        }
    }
}

/// Which times two looks at the same file do not share.
fn changed(before: &Stat, after: &Stat) -> String {
    let same = [
        (before.st_atime, before.st_atime_nsec) == (after.st_atime, after.st_atime_nsec),
        (before.st_mtime, before.st_mtime_nsec) == (after.st_mtime, after.st_mtime_nsec),
        (before.st_ctime, before.st_ctime_nsec) == (after.st_ctime, after.st_ctime_nsec),
    ];
    same.iter().zip("amc".chars()).map(|(same, letter)| if *same { '-' } else { letter }).collect()
}

/// The names in a directory but `.` and `..`, sorted.
pub fn names_of(path: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = entries(path)?.into_iter().map(|(name, _, _)| name).collect();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    Ok(names)
}

/// Name, type and the position behind each entry of a directory, in its order.
pub fn entries(path: &str) -> Result<Vec<(String, FileType, u64)>> {
    let fd = fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    entries_from(&fd, usize::MAX)
}

/// The next entries of an open directory: at least `most` if there are that many, and what else came with them.
pub fn entries_from(fd: impl AsFd, most: usize) -> Result<Vec<(String, FileType, u64)>> {
    let mut room = vec![MaybeUninit::uninit(); if most < 100 { 512 } else { 4096 }];
    let mut list = fs::RawDir::new(fd, &mut room);
    let mut found = Vec::new();
    // What is in the buffer would be lost.
    while found.len() < most || !list.is_buffer_empty() {
        let Some(entry) = list.next() else { break };
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push((name, entry.file_type(), entry.next_entry_cookie()));
    }
    Ok(found)
}

/// Flags of `open` by their names in the standard.
fn flag_names(flags: OFlags) -> String {
    format!("{flags:?}").trim_start_matches("OFlags(").trim_end_matches(')').to_owned()
}
