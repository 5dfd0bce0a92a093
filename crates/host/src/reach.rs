//! Opening what a path of the user leads to: as a file, a directory, the text of a link, or not at all.
//!
//! A path of the host leads through links as for any command. One inside a mount means what it means in the image: its
//! links stay below the mounted directory ([`inside`]). What is opened is looked at before, since opening a device can
//! have an effect and opening a pipe can wait; and after, since names change.

use crate::directory::Directory;
use crate::facts::{Facts, Kind};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Times that a path is opened again after names changed while it was followed. A machine that renames files all the time
/// disturbs one try of some; who does it to annoy gets an error in the end.
const RENAMED_MOST: u32 = 1000;

/// Contents of an entry.
#[derive(Debug)]
pub enum Opened {
    /// A regular file, open for reading.
    File(File),
    /// A directory.
    Directory(Directory),
    /// Target of a symbolic link.
    Link(OsString),
    /// A device, pipe or socket, which is not opened.
    Other,
}

/// A path as its directory and its last name; none if it ends in no name but a way on (`/`, `.`, `..`).
#[must_use]
pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (above, name) = bytes.split_at(at);
    let above = if above.is_empty() { b"." } else { above };
    let is_name = !matches!(name, b"" | b"." | b"..");
    is_name.then(|| (Path::new(OsStr::from_bytes(above)), OsStr::from_bytes(name)))
}

/// Opens what the user named: a link at the end of the path is an entry of its own, as for `cp -P`.
///
/// # Errors
/// There is nothing; the system's.
pub fn named(path: &Path) -> io::Result<(Facts, Opened)> {
    match split(path) {
        Some((above, name)) => entry_of(&Directory::open(above)?, name),
        None => target_of(path),
    }
}

/// Opens what the user named, through links at the end of the path, too.
///
/// # Errors
/// As [`named`].
pub fn target_of(path: &Path) -> io::Result<(Facts, Opened)> {
    let facts = Facts::from_stat(&rustix::fs::stat(path)?);
    opened(facts, |flags| rustix::fs::open(path, flags, Mode::empty()))
}

/// Opens the regular file or block device that the user named, through links; nothing is opened of another kind. A pipe that
/// took the place of a file is no reason to wait.
///
/// # Errors
/// There is nothing; the system's.
pub fn open_named(path: &Path, write: bool) -> io::Result<(Facts, Option<File>)> {
    let holds = |facts: &Facts| matches!(facts.kind, Kind::File | Kind::BlockDevice);
    // To open a device can have an effect, so it is looked at before; and after, since names change.
    let facts = Facts::from_stat(&rustix::fs::stat(path)?);
    if !holds(&facts) {
        return Ok((facts, None));
    }
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let facts = Facts::from_stat(&rustix::fs::fstat(&file)?);
    let file = holds(&facts).then_some(file);
    if let Some(file) = &file {
        rustix::fs::fcntl_setfl(file, OFlags::empty())?;
    }
    Ok((facts, file))
}

/// Reads a short file that the user named, or what a program says that writes to a pipe now, as `<(...)` does in a shell.
///
/// # Errors
/// It has more than `most` bytes; the system's.
pub fn read_named(path: &Path, most: u64) -> io::Result<(Facts, Vec<u8>)> {
    let mut bytes = Vec::new();
    let facts = read_into(&mut bytes, path, most)?;
    Ok((facts, bytes))
}

/// Reads a secret as [`read_named`] reads a file. It is wiped when it is dropped.
///
/// # Errors
/// As [`read_named`].
pub fn read_secret(path: &Path, most: u64) -> io::Result<(Facts, Zeroizing<Vec<u8>>)> {
    // Room for all of it from the beginning: a vector that grows leaves copies behind.
    let room = usize::try_from(most).map_err(|_| io::ErrorKind::FileTooLarge)?.saturating_add(ROOM_TO_END);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    let facts = read_into(&mut bytes, path, most)?;
    Ok((facts, bytes))
}

/// Bytes of room with which a reader finds the end of a file without making more.
const ROOM_TO_END: usize = 64;

fn read_into(bytes: &mut Vec<u8>, path: &Path, most: u64) -> io::Result<Facts> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // A pipe that nobody has opened for writing is empty; one that somebody has is waited for.
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    let facts = Facts::from_stat(&rustix::fs::fstat(&file)?);
    file.take(most.saturating_add(1)).read_to_end(bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("is longer than {most} bytes")));
    }
    Ok(facts)
}

/// Opens what a path means where `root` is the root directory: no link leads out of it, as in an image.
///
/// # Errors
/// As [`named`]. Where the system can't resolve such paths, a link on the way is an error.
pub fn inside(root: &Directory, path: &Path) -> io::Result<(Facts, Opened)> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open = |flags| settled(|| rustix::fs::openat2(root, path, flags, Mode::empty(), resolve));
    if let (Some(name), 1) = (path.file_name(), path.components().count())
        && root.look(name)?.kind != Kind::Symlink
    {
        return entry_of(root, name);
    }
    match open(OFlags::PATH | OFlags::CLOEXEC) {
        // Linux before 5.6, and sandboxes that don't know the call.
        Err(Errno::NOSYS | Errno::PERM) => without_links(root, path),
        found => opened(Facts::from_stat(&rustix::fs::fstat(found?)?), open),
    }
}

/// Asks again where the kernel can't say that a path stayed below its root: something was renamed meanwhile, anywhere on the
/// machine, while `..` was followed.
fn settled<T>(open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..RENAMED_MOST {
        match open() {
            Err(Errno::AGAIN) => std::thread::yield_now(),
            done => return done,
        }
    }
    open()
}

fn without_links(root: &Directory, path: &Path) -> io::Result<(Facts, Opened)> {
    let path = path.strip_prefix("/").unwrap_or(path);
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => entry_of(&root.descend(above)?, name),
        _ => {
            let directory = root.descend(path)?;
            Ok((directory.facts()?, Opened::Directory(directory)))
        }
    }
}

/// Opens what was looked at, if it is to be opened, and takes care that it is of that kind still.
fn opened(facts: Facts, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> io::Result<(Facts, Opened)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let descriptor = match facts.kind {
        Kind::Directory => open(flags | OFlags::DIRECTORY)?,
        Kind::File => open(flags)?,
        _ => return Ok((facts, Opened::Other)),
    };
    let now = Facts::from_stat(&rustix::fs::fstat(&descriptor)?);
    match now.kind {
        Kind::Directory => Ok((now, Opened::Directory(Directory::from(descriptor)))),
        Kind::File => Ok((now, Opened::File(descriptor.into()))),
        _ => Err(io::Error::other("was replaced while it was opened")),
    }
}

/// Opens an entry of a directory.
pub(crate) fn entry_of(above: &Directory, name: &OsStr) -> io::Result<(Facts, Opened)> {
    let facts = above.look(name)?;
    match facts.kind {
        Kind::Directory => {
            let directory = above.enter(name)?;
            Ok((directory.facts()?, Opened::Directory(directory)))
        }
        Kind::File => {
            let (file, facts) = above.open_listed(name)?;
            Ok((facts, Opened::File(file)))
        }
        Kind::Symlink => Ok((facts, Opened::Link(above.read_link(name)?))),
        _ => Ok((facts, Opened::Other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_named_is_never_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        std::fs::write(path("file"), "bytes").unwrap();
        let directory = Directory::open(top.path()).unwrap();
        directory.make_node("pipe", Kind::Fifo, (0, 0)).unwrap();
        directory.symlink(b"file", "link").unwrap();
        assert_eq!(read_named(&path("link"), 5).unwrap().1, b"bytes");
        assert!(read_named(&path("file"), 4).unwrap_err().to_string().contains("longer than 4"));
        // Nobody writes to the pipe.
        assert_eq!(read_named(&path("pipe"), 5).unwrap().1, b"");
        assert!(open_named(&path("pipe"), false).unwrap().1.is_none());
        assert!(open_named(top.path(), false).unwrap().1.is_none());
        let (facts, file) = open_named(&path("link"), true).unwrap();
        assert_eq!((facts.kind, facts.size), (Kind::File, 5));
        file.unwrap().write_all(b"other").unwrap();
        assert_eq!(read_named(&path("file"), 5).unwrap().1, b"other");
    }

    #[test]
    fn a_pipe_with_a_writer_is_read_to_its_end() {
        let (read, mut write) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        let writer = std::thread::spawn(move || {
            std::thread::yield_now();
            write.write_all(b"said").unwrap();
        });
        assert_eq!(read_named(Path::new(&path), 100).unwrap().1, b"said");
        writer.join().unwrap();
    }
}
