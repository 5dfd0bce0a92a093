//! Everything the host reports about the entries of one directory.

use super::Failed;
use crate::archive::{Run, Xattr};
use crate::source::filter::Excludes;
use ondisk::inode::InodeFlags;
use platfs_host::{Directory, Facts, Kind, XattrReader, Xattrs, XattrsOf};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An entry as the host reports it.
pub(super) struct ListedEntry {
    pub(super) name: Vec<u8>,
    pub(super) facts: Facts,
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
    /// Directories on which another file system is mounted are not entered.
    stays: bool,
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
        Self { exclude, stays, reader: XattrReader::default() }
    }

    /// Tells if the attributes of everything can be asked for.
    pub(super) fn has_paths(&self) -> bool {
        self.reader.has_paths()
    }

    /// Returns the reason for which the contents of a directory are left out: its file system (`device`) is another than
    /// that of the directory above (`above`). `None` where they are read.
    pub(super) fn stops_at(&self, above: u64, device: u64, directory: &Directory) -> Option<&'static str> {
        if device == above {
            return None;
        }
        let kind = rustix::fs::fstatfs(directory).ok().and_then(|found| u32::try_from(found.f_type).ok());
        match kind {
            Some(kind) if KERNELS.contains(&kind) => Some(OF_THE_KERNEL),
            _ => self.stays.then_some(MOUNTED),
        }
    }

    /// Lists the directory whose path below the root is `path`, with what vanished meanwhile.
    pub(super) fn list(
        &mut self,
        directory: &mut Directory,
        path: &[u8],
    ) -> Result<(Vec<ListedEntry>, LeftOut), Failed> {
        let names = directory.names().map_err(|error| Failed::new("list", path, error))?;
        let (mut found, mut left_out) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names.into_iter().map(OsString::into_vec) {
            let path = super::join(path, &name);
            if self.exclude.matches(&path, &name) {
                continue;
            }
            match self.look(directory, name, &path) {
                Err(failed) if failed.is_gone() => left_out.push((path, GONE)),
                looked => found.push(looked?),
            }
        }
        Ok((found, left_out))
    }

    fn look(&mut self, directory: &Directory, name: Vec<u8>, path: &[u8]) -> Result<ListedEntry, Failed> {
        let failed = |action| move |error| Failed::new(action, path, error);
        let at = OsStr::from_bytes(&name);
        let facts = directory.look(at).map_err(failed("look at"))?;
        let xattrs = directory.xattrs(at, facts.kind, &mut self.reader);
        let xattrs = xattrs.map_err(|(action, error)| Failed::new(action, path, error))?;
        let (mut runs, mut target, mut flags) = (Vec::new(), Vec::new(), InodeFlags::empty());
        match facts.kind {
            Kind::File => {
                runs = file_runs(directory, at, &facts).map_err(failed("find the holes of"))?;
                if runs.is_empty() {
                    // One that may not be opened shows none.
                    let opened = directory.open_listed(at);
                    flags = opened.map_or(InodeFlags::empty(), |(file, _)| flags_of(file));
                }
            }
            Kind::Symlink => target = directory.read_link(at).map_err(failed("read"))?.into_vec(),
            _ => {}
        }
        Ok(ListedEntry { name, facts, xattrs: owned(xattrs), runs, target, flags })
    }

    /// The attributes of the directory that the source is.
    pub(super) fn xattrs_of_root(&mut self, directory: &Directory) -> Result<Vec<Xattr>, Failed> {
        let read = self.reader.read(XattrsOf::Open(directory.as_fd()));
        read.map(owned).map_err(|(action, error)| Failed::new(action, b"", error.into()))
    }
}

fn owned(xattrs: Xattrs) -> Vec<Xattr> {
    xattrs.into_iter().map(|(name, value)| Xattr { name: name.into(), value: value.into() }).collect()
}

/// The runs of a file's data. Only a file with fewer blocks than its length needs is opened.
fn file_runs(directory: &Directory, name: &OsStr, facts: &Facts) -> io::Result<Vec<Run>> {
    if facts.size == 0 {
        return Ok(Vec::new());
    }
    if facts.blocks.saturating_mul(512) >= facts.size {
        return Ok(vec![Run { file_offset: 0, len: facts.size, archive_offset: 0 }]);
    }
    let (file, _) = directory.open_listed(name)?;
    let runs = platfs_host::runs(file, facts.size);
    let run = |(start, len)| Run { file_offset: start, len, archive_offset: start };
    Ok(runs.map(|found| found.map(run)).collect::<Result<_, _>>()?)
}
