//! The file that a build makes: it appears whole, under its name, or not at all.
//!
//! The file has no name until it is finished, so that whatever ends the process, an error or a
//! signal, also ends the file. Where the file system can't do that, a name beside the target is
//! used, and removed on errors.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use platfs::device::FileDevice;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::door::{self, Replacing};

/// Symbolic links behind each other, as Linux counts.
const LINKS_MAX: usize = 40;

/// A file that is not there yet.
pub struct Output {
    file: File,
    target: PathBuf,
    /// The name it has meanwhile, if it needs one.
    temporary: Option<PathBuf>,
    /// What has the name now is no image that somebody uses.
    _replacing: Replacing,
}

/// Where a name leads that may be a symbolic link, also to what is not there yet.
#[must_use]
pub fn followed(target: &Path) -> PathBuf {
    let mut path = target.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = std::fs::read_link(&path) else { return path };
        path = directory_of(&path).join(to);
    }
    // A circle: the system will say so.
    target.to_owned()
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name beside the target that nothing else uses: the process number tells runs apart. Only the start of the
/// target's name is in it, which may itself be as long as a name can be.
fn beside(target: &Path) -> PathBuf {
    let name: String = target.file_name().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    directory_of(target).join(format!(".{name}.plat-{}", std::process::id()))
}

impl Output {
    /// As [`Output::begin`], for a name that may be a symbolic link: the link stays, and what it leads to is
    /// replaced.
    ///
    /// # Errors
    /// As [`Output::begin`].
    pub fn through(target: &Path, size: u64) -> io::Result<Self> {
        Self::begin(&followed(target), size)
    }

    /// Begins a file of `size` bytes that shall get the name `target`.
    ///
    /// # Errors
    /// If what has the name is an image in use, or no file can be created beside it.
    pub fn begin(target: &Path, size: u64) -> io::Result<Self> {
        let replacing = door::replace(target)?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let (file, temporary) = match rustix::fs::openat(CWD, directory_of(target), flags, mode) {
            Ok(fd) => (File::from(fd), None),
            Err(_) => {
                let name = beside(target);
                let mut options = OpenOptions::new();
                (options.read(true).write(true).create_new(true).mode(0o666).open(&name)?, Some(name))
            }
        };
        let output = Output { file, target: target.to_owned(), temporary, _replacing: replacing };
        output.file.set_len(size)?;
        Ok(output)
    }

    /// The open file.
    ///
    /// # Errors
    /// If the handle can't be duplicated.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The file as a device.
    ///
    /// # Errors
    /// As [`Output::file`].
    pub fn device(&self) -> io::Result<FileDevice> {
        FileDevice::new(self.file()?)
    }

    /// Gives the file its name, replacing what had it.
    ///
    /// # Errors
    /// If the file can't be named; then nothing of it is left.
    pub fn finish(mut self) -> io::Result<()> {
        let name = match self.temporary.take() {
            Some(name) => name,
            None => self.link()?,
        };
        let renamed = std::fs::rename(&name, &self.target);
        if renamed.is_err() {
            // Best effort: the error to tell is that of renaming.
            let _ = std::fs::remove_file(&name);
        }
        renamed
    }

    /// Gives a nameless file a name beside the target, so that renaming can replace what is there.
    fn link(&self) -> io::Result<PathBuf> {
        use std::os::fd::AsRawFd;
        let name = beside(&self.target);
        let itself = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
        rustix::fs::linkat(CWD, itself, CWD, &name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(name)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Best effort: there is nobody left to tell.
            let _ = std::fs::remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_appears_only_when_finished_and_replaces_the_old_one() {
        let directory = std::env::temp_dir().join(format!("plat-output-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let target = directory.join("disk.img");
        let output = Output::begin(&target, 100).unwrap();
        output.file().unwrap().write_all(b"new").unwrap();
        drop(output);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::write(&target, b"old").unwrap();
        let output = Output::begin(&target, 3).unwrap();
        output.file().unwrap().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        output.finish().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
