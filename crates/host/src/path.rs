//! Looks at, and openings of, what the user's own word leads to, links and all, as for any command.
//!
//! A look says what kind of thing is meant; whoever opens it afterwards looks again at what was opened. An entry of a
//! mount is opened here by its name, since the server of the mount judges what the caller may.

use crate::facts::{Facts, Kind};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Has statx give what the kernel knows without asking a file's server (`AT_STATX_DONT_SYNC`, linux/fcntl.h; the crate has no
/// name for it where the C library is musl).
pub const UNASKED: AtFlags = AtFlags::from_bits_retain(0x4000);

/// Facts of what a path leads to.
///
/// # Errors
/// There is nothing; the system's.
pub fn facts(path: impl AsRef<Path>) -> io::Result<Facts> {
    Ok(Facts::from_stat(&rustix::fs::stat(path.as_ref())?))
}

/// Facts of the entry that has the name, be it a link.
///
/// # Errors
/// As [`facts`].
pub fn entry(path: impl AsRef<Path>) -> io::Result<Facts> {
    Ok(Facts::from_stat(&rustix::fs::lstat(path.as_ref())?))
}

/// True if a path leads to something.
#[must_use]
pub fn is_there(path: impl AsRef<Path>) -> bool {
    facts(path).is_ok()
}

/// True if the name is taken, be it by a link to nothing.
#[must_use]
pub fn is_taken(path: impl AsRef<Path>) -> bool {
    entry(path).is_ok()
}

/// True if a path leads to a directory.
#[must_use]
pub fn is_directory(path: impl AsRef<Path>) -> bool {
    facts(path).is_ok_and(|facts| facts.kind == Kind::Directory)
}

/// True if a path leads to a regular file.
#[must_use]
pub fn is_file(path: impl AsRef<Path>) -> bool {
    facts(path).is_ok_and(|facts| facts.kind == Kind::File)
}

/// The path without links, from the root on.
///
/// # Errors
/// There is nothing; the system's.
pub fn whole(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// Opens what a path leads to, of any kind.
///
/// # Errors
/// There is nothing; the system's.
pub fn open(path: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
    Ok(rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Parts of a file's facts, without the server's answer where the flags say so: a server must not wait for itself.
///
/// # Errors
/// There is nothing; the system's.
pub fn parts(path: impl AsRef<Path>, flags: AtFlags, wanted: StatxFlags) -> io::Result<Statx> {
    Ok(rustix::fs::statx(rustix::fs::CWD, path.as_ref(), flags, wanted)?)
}

/// [`parts`] of an open file, as the kernel has them without asking the file's server.
///
/// # Errors
/// The system's.
pub fn parts_of(file: impl AsFd, wanted: StatxFlags) -> io::Result<Statx> {
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | UNASKED, wanted)?)
}
