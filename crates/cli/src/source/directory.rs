//! A directory of the host into a catalogue.
//!
//! Every file is looked at through an open directory and without following symbolic links, so that nobody
//! who changes the tree meanwhile leads the walk out of it. Names of one file are found by device and
//! inode number, holes are asked of the file system, attributes come with ACLs and capabilities. Contents are
//! read later, by [`super::DataReader`].
//!
//! Times: only that of contents is taken; the others would make the image depend on who looked at the
//! directory before.

use super::catalogue::{Attributes, Builder, CatalogueError, Ids, NewNode, NodeId, Origin};
use super::error::{SourceError, SourceWarning};
use crate::archive::{Device, Run, Times, Timestamp, Xattr};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What Linux answers where a file system has no attributes.
const NO_XATTRS: [Errno; 2] = [Errno::OPNOTSUPP, Errno::PERM];

/// Reads the directory `root` into `builder`.
///
/// # Errors
/// [`SourceError::Host`] with the file that failed, [`SourceError::Tree`].
pub fn read(
    builder: &mut Builder,
    root: &Path,
    warnings: &mut Vec<SourceWarning>,
) -> Result<(), SourceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root, flags, Mode::empty());
    let directory = opened.map_err(|error| SourceError::host("open", root, error))?;
    let host_directory = builder.host_root(root);
    let mut scan =
        Scan { builder, root, path: Vec::new(), links: HashMap::new(), warnings, buffer: vec![0; 64 << 10] };
    scan.root_attributes(&directory)?;
    scan.walk(directory, host_directory)
}

/// A directory whose names are being gone through.
struct Level {
    /// Kept open for the files and directories in it.
    directory: OwnedFd,
    node: NodeId,
    host: u32,
    /// The subdirectories still to be entered.
    todo: Vec<Found>,
    /// The length of its path.
    path_len: usize,
}

/// A subdirectory found while reading another.
struct Found {
    name: Vec<u8>,
    node: NodeId,
    host: u32,
}

struct Scan<'a> {
    builder: &'a mut Builder,
    root: &'a Path,
    /// The path of the file at hand below the root.
    path: Vec<u8>,
    /// Files of several names met before.
    links: HashMap<(u64, u64), NodeId>,
    warnings: &'a mut Vec<SourceWarning>,
    /// Room for one attribute's value, or the list of names.
    buffer: Vec<u8>,
}

impl Scan<'_> {
    fn root_attributes(&mut self, directory: &OwnedFd) -> Result<(), SourceError> {
        let stat = rustix::fs::fstat(directory).map_err(|error| self.failed("look at", error))?;
        let xattrs = self.xattrs(directory.as_fd(), b".")?;
        let put = self.builder.put(b"", attributes(&stat, xattrs), NewNode::Directory);
        put.map(|_| ()).map_err(|error| self.tree(error))
    }

    /// Goes through the tree without recursion.
    fn walk(&mut self, directory: OwnedFd, host: u32) -> Result<(), SourceError> {
        let node = self.builder.base();
        let mut levels = vec![self.level(directory, node, host)?];
        while let Some(level) = levels.last_mut() {
            self.path.truncate(level.path_len);
            let Some(next) = level.todo.pop() else {
                levels.pop();
                continue;
            };
            self.push_name(&next.name);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&level.directory, next.name.as_slice(), flags, Mode::empty());
            let directory = opened.map_err(|error| self.failed("open", error))?;
            let level = self.level(directory, next.node, next.host)?;
            levels.push(level);
        }
        Ok(())
    }

    /// Reads one directory: files at once, subdirectories noted.
    fn level(&mut self, directory: OwnedFd, node: NodeId, host: u32) -> Result<Level, SourceError> {
        let path_len = self.path.len();
        let mut level = Level { directory, node, host, todo: Vec::new(), path_len };
        let listing = Dir::read_from(&level.directory).map_err(|error| self.failed("list", error))?;
        for name in listing {
            let name = name.map_err(|error| self.failed("list", error))?;
            let name = name.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.push_name(name);
            if !self.builder.options().exclude.matches(&self.path, name) {
                self.file(&mut level, name)?;
            }
            self.path.truncate(path_len);
        }
        Ok(level)
    }

    fn file(&mut self, level: &mut Level, name: &[u8]) -> Result<(), SourceError> {
        let directory = level.directory.as_fd();
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|error| self.failed("look at", error))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let inode = (stat.st_dev, stat.st_ino);
        let several = kind != FileType::Directory && stat.st_nlink > 1;
        if let Some(&node) = self.links.get(&inode).filter(|_| several) {
            let linked = self.builder.link_at(level.node, name, node);
            return linked.map_err(|error| self.tree(error));
        }
        let xattrs = self.xattrs(directory, name)?;
        let attributes = attributes(&stat, xattrs);
        if kind == FileType::Directory {
            let place = (level.node, level.host);
            let put = self.builder.put_host_directory(place, name, attributes);
            let (node, host) = put.map_err(|error| self.tree(error))?;
            level.todo.push(Found { name: name.to_vec(), node, host });
            return Ok(());
        }
        if let Some(node) = self.leaf(level, name, &stat, attributes)?.filter(|_| several) {
            self.links.insert(inode, node);
        }
        Ok(())
    }

    /// Puts a file that is no directory. `None` for a kind that no file system of ours has.
    fn leaf(
        &mut self,
        level: &Level,
        name: &[u8],
        stat: &Stat,
        attributes: Attributes,
    ) -> Result<Option<NodeId>, SourceError> {
        let number =
            Device { major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
        let (runs, target);
        let new = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                runs = self.runs(level.directory.as_fd(), name, stat, size)?;
                let origin = match runs.is_empty() {
                    true => Origin::Section(0),
                    false => {
                        self.builder.add_host_file(level.host, name).map_err(|error| self.tree(error))?
                    }
                };
                NewNode::File { size, runs: &runs, origin }
            }
            FileType::Symlink => {
                let read = rustix::fs::readlinkat(&level.directory, name, Vec::new());
                target = read.map_err(|error| self.failed("read", error))?;
                NewNode::Symlink(target.as_bytes())
            }
            FileType::CharacterDevice => NewNode::CharDevice(number),
            FileType::BlockDevice => NewNode::BlockDevice(number),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::Directory | FileType::Unknown => {
                let reason = "its kind is unknown";
                self.warnings.push(SourceWarning::LeftOut { path: self.path.clone(), reason });
                return Ok(None);
            }
        };
        let put = self.builder.put_at(level.node, name, attributes, new);
        put.map(Some).map_err(|error| self.tree(error))
    }

    /// The runs of a file's data. Only a file with fewer blocks than its length needs is opened.
    fn runs(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
        size: u64,
    ) -> Result<Vec<Run>, SourceError> {
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        if size == 0 {
            return Ok(Vec::new());
        }
        if allocated >= size {
            return Ok(vec![Run { file_offset: 0, len: size, archive_offset: 0 }]);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty());
        let file = opened.map_err(|error| self.failed("open", error))?;
        data_runs(file.as_fd(), size).map_err(|error| self.failed("find the holes of", error))
    }

    /// The attributes of `name` in `directory`, whatever its kind. They are asked for by a path through the
    /// open directory: Linux before 6.13 has no call relative to one.
    fn xattrs(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<Xattr>, SourceError> {
        let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        path.extend_from_slice(name);
        let path = Path::new(OsStr::from_bytes(&path));
        let len = match rustix::fs::llistxattr(path, self.buffer.as_mut_slice()) {
            Ok(0) => return Ok(Vec::new()),
            Ok(len) => len,
            Err(error) if NO_XATTRS.contains(&error) => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("list the attributes of", error)),
        };
        let list = self.buffer.get(..len).unwrap_or_default().to_vec();
        let mut xattrs = Vec::new();
        for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let key = OsStr::from_bytes(name);
            match rustix::fs::lgetxattr(path, key, self.buffer.as_mut_slice()) {
                Ok(len) => xattrs.push(Xattr {
                    name: name.into(),
                    value: self.buffer.get(..len).unwrap_or_default().into(),
                }),
                // Listed, but gone or not for us: trusted attributes belong to the administrator.
                Err(error) if error == Errno::NODATA || NO_XATTRS.contains(&error) => {}
                Err(error) => return Err(self.failed("read the attributes of", error)),
            }
        }
        Ok(xattrs)
    }

    fn push_name(&mut self, name: &[u8]) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    fn failed(&self, action: &'static str, error: Errno) -> SourceError {
        let path: PathBuf = match self.path.is_empty() {
            true => self.root.to_owned(),
            false => self.root.join(OsStr::from_bytes(&self.path)),
        };
        SourceError::host(action, path, error)
    }

    fn tree(&self, error: CatalogueError) -> SourceError {
        SourceError::Tree { archive: self.root.display().to_string(), error }
    }
}

fn attributes(stat: &Stat, xattrs: Vec<Xattr>) -> Attributes {
    // Linux keeps nanoseconds below 10^9.
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    let modified = Timestamp { seconds: stat.st_mtime, nanos };
    Attributes {
        mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        ids: Ids { uid: stat.st_uid, gid: stat.st_gid },
        times: Times { modified, ..Times::default() },
        xattrs,
    }
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

#[cfg(test)]
mod tests;
