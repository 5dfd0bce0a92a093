//! Files in which the kernel shows and takes settings, devices that it makes, and files of the system's own.
//!
//! Their paths are the program's own words, never a user's.

use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Directories that are the system's.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/etc"];
/// The most that is read of one file: lists of mounts have a line for each.
const MOST: u64 = 64 << 20;

fn own(path: &Path) -> io::Result<&Path> {
    let is_own = OWN.iter().any(|own| path.starts_with(own))
        && !path.components().any(|part| part.as_os_str() == "..");
    is_own
        .then_some(path)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "is no file of the system"))
}

/// Opens a file of the system.
///
/// # Errors
/// The path does not begin with a directory of the system, or has `..` in it; the system's.
pub fn open(path: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
    crate::path::open(own(path.as_ref())?, flags)
}

/// Bytes of a file of the system.
///
/// # Errors
/// As [`open`]; the file is larger than any list of the system.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OFlags::RDONLY)?.take(MOST + 1).read_to_end(&mut bytes)?;
    // A list whose end is missing would say that something is not there.
    if bytes.len() as u64 > MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Text of a file of the system.
///
/// # Errors
/// As [`open`]; it is no text.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Names in a directory of the system.
///
/// # Errors
/// As [`open`].
pub fn names(path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    crate::Directory::open(own(path.as_ref())?)?.names()
}

/// Target of a link of the system.
///
/// # Errors
/// As [`open`].
pub fn link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::read_link(own(path.as_ref())?)
}

/// Leaves the working directory for the root, as a process does that shall keep no mount in use.
///
/// # Errors
/// The system's.
pub fn work_at_the_root() -> io::Result<()> {
    std::env::set_current_dir("/")
}

/// A socket to the system's log.
///
/// # Errors
/// There is none; the system's.
pub fn log() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect("/dev/log")?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_systems_is_reached() {
        assert!(text("/proc/self/status").unwrap().contains("Uid:"));
        assert!(names("/proc/self/fd").unwrap().contains(&"0".into()));
        let here = std::env::current_dir().unwrap();
        let elsewhere = format!("/proc/..{}", here.join("Cargo.toml").display());
        for path in [elsewhere.as_str(), "Cargo.toml", "/procfs"] {
            assert!(read(path).unwrap_err().to_string().contains("no file of the system"), "{path}");
        }
    }
}
