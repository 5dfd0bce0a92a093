//! Everything the host reports about the entries of one directory.

use super::Failed;
use crate::archive::{Run, Xattr};
use crate::source::filter::Excludes;
use ondisk::inode::InodeFlags;
use platfs_host::{XattrReader, XattrsOf};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An entry as the host reports it.
pub(super) struct Found {
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    pub(super) xattrs: Vec<Xattr>,
    /// A regular file's data.
    pub(super) runs: Vec<Run>,
    /// A symbolic link's target.
    pub(super) target: Vec<u8>,
    /// The flags of a regular file without data, which is not opened later.
    pub(super) flags: InodeFlags,
}

/// Flags that a copy keeps: those that users set, with a meaning on every file system.
const KEPT: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR);

/// The flags of a file of the host as `lsattr` shows them; none where its file system has none.
pub(in crate::source) fn flags_of(file: impl AsFd) -> InodeFlags {
    let bits = rustix::fs::ioctl_getflags(file).map_or(0, |flags| flags.bits());
    InodeFlags::from_bits_truncate(bits).intersection(KEPT)
}

/// Looks at entries, one thread's worth of it.
pub(super) struct Lister<'a> {
    exclude: &'a Excludes,
    reader: XattrReader,
    /// Open files have paths: `/proc` is mounted.
    has_paths: bool,
    /// Directories on which another file system is mounted are not entered.
    stays: bool,
}

/// Tells if open files have paths, by which the attributes of everything can be asked for.
pub(super) fn has_paths() -> bool {
    Path::new("/proc/self/fd").exists()
}

/// Paths that are left out, each with the reason.
pub(super) type LeftOut = Vec<(Vec<u8>, &'static str)>;

/// A program removed it.
pub(super) const GONE: &str = "it was removed meanwhile";
const MOUNTED: &str = "another file system is mounted there (--one-file-system)";
const OF_THE_KERNEL: &str = "the kernel makes up what is there (proc, sysfs and the like)";
/// Types of such file systems (`linux/magic.h`): proc, sysfs, devpts, cgroup, cgroup2, debugfs, tracefs, securityfs, bpf,
/// efivarfs, pstore, binfmt_misc, mqueue, configfs, selinuxfs, fusectl.
const KERNELS: [u32; 16] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0xde5e_81e4,
    0x6165_676c,
    0x4249_4e4d,
    0x1980_0202,
    0x6265_6570,
    0xf97c_ff8c,
    0x6573_5543,
];

impl<'a> Lister<'a> {
    pub(super) fn new(exclude: &'a Excludes, stays: bool) -> Self {
        Self { exclude, stays, reader: XattrReader::default(), has_paths: has_paths() }
    }

    /// Why the contents of a directory are left out, where another file system is mounted on it.
    pub(super) fn stops_at(&self, parent: &OwnedFd, directory: &OwnedFd) -> Option<&'static str> {
        let device = |of| rustix::fs::fstat(of).map(|stat| stat.st_dev).ok();
        if device(parent) == device(directory) {
            return None;
        }
        let kind = rustix::fs::fstatfs(directory).ok().and_then(|found| u32::try_from(found.f_type).ok());
        match kind {
            Some(kind) if KERNELS.contains(&kind) => Some(OF_THE_KERNEL),
            _ => self.stays.then_some(MOUNTED),
        }
    }

    /// Lists the directory whose path below the root is `path`, with what vanished meanwhile.
    pub(super) fn list(&mut self, directory: &OwnedFd, path: &[u8]) -> Result<(Vec<Found>, LeftOut), Failed> {
        let listing = Dir::read_from(directory).map_err(|error| Failed::new("list", path, error))?;
        let (mut found, mut left_out) = (Vec::new(), Vec::new());
        for entry in listing {
            let entry = entry.map_err(|error| Failed::new("list", path, error))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let path = super::join(path, name);
            if self.exclude.matches(&path, name) {
                continue;
            }
            match self.look(directory.as_fd(), name, &path) {
                Err(failed) if failed.is_gone() => left_out.push((path, GONE)),
                looked => found.push(looked?),
            }
        }
        Ok((found, left_out))
    }

    fn look(&mut self, directory: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> Result<Found, Failed> {
        let failed = |action| move |error| Failed::new(action, path, error);
        let stat =
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look at"))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let xattrs = self.xattrs(directory, name, path, kind)?;
        let (mut runs, mut target, mut flags) = (Vec::new(), Vec::new(), InodeFlags::empty());
        match kind {
            FileType::RegularFile => {
                runs = file_runs(directory, name, &stat).map_err(failed("find the holes of"))?;
                if runs.is_empty() {
                    // One that may not be opened shows none.
                    flags = open_file(directory, name).map_or(InodeFlags::empty(), flags_of);
                }
            }
            FileType::Symlink => {
                let read = rustix::fs::readlinkat(directory, name, Vec::new()).map_err(failed("read"))?;
                target = read.into_bytes();
            }
            _ => {}
        }
        Ok(Found { name: name.to_vec(), stat, xattrs, runs, target, flags })
    }

    /// The attributes of `name` in `directory`, whatever its kind. They are asked for by a path through the
    /// open directory: Linux before 6.13 has no call relative to one. Without such paths, files and directories are
    /// opened, and all else seems to have none.
    pub(super) fn xattrs(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        kind: FileType,
    ) -> Result<Vec<Xattr>, Failed> {
        let read = match kind {
            _ if self.has_paths => {
                let above = format!("/proc/self/fd/{}/", directory.as_raw_fd());
                let entry = [above.as_bytes(), name].concat();
                self.reader.read(XattrsOf::Entry(OsStr::from_bytes(&entry)))
            }
            FileType::RegularFile | FileType::Directory => {
                let opened = open_file(directory, name);
                let opened = opened.map_err(|error| Failed::new("open", path, error))?;
                self.reader.read(XattrsOf::Open(opened.as_fd()))
            }
            _ => return Ok(Vec::new()),
        };
        let read = read.map_err(|(action, error)| Failed::new(action, path, error))?;
        Ok(read.into_iter().map(|(name, value)| Xattr { name: name.into(), value: value.into() }).collect())
    }
}

/// The runs of a file's data. Only a file with fewer blocks than its length needs is opened.
fn file_runs(directory: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Result<Vec<Run>, Errno> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    if size == 0 {
        return Ok(Vec::new());
    }
    if allocated >= size {
        return Ok(vec![Run { file_offset: 0, len: size, archive_offset: 0 }]);
    }
    data_runs(open_file(directory, name)?.as_fd(), size)
}

fn open_file(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Asks the file system for the runs of data in the first `size` bytes of a file.
fn data_runs(file: BorrowedFd<'_>, size: u64) -> Result<Vec<Run>, Errno> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data from here to the end.
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(Errno::INVAL) if runs.is_empty() => {
                return Ok(vec![Run { file_offset: 0, len: size, archive_offset: 0 }]);
            }
            Err(error) => return Err(error),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            break;
        }
        runs.push(Run { file_offset: start, len: end - start, archive_offset: start });
        at = end;
    }
    Ok(runs)
}
