//! New files: a file appears whole, under its name, or not at all (I4).
//!
//! The file has no name until it is finished, so that whatever ends the process, an error or a
//! signal, also ends the file. Where the file system can't do that, or `/proc` is not mounted, a name
//! beside the target is used, and removed on errors.
//!
//! Nothing here opens a file that exists. [`Output::replacing`] lets the new file take the name of another one;
//! the caller must know whether that other file is still in use.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use platfs::device::FileDevice;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Symbolic links behind each other, as Linux counts.
const LINKS_MAX: usize = 40;

/// A file that is not there yet.
#[derive(Debug)]
pub struct Output {
    file: File,
    target: PathBuf,
    /// The name it has meanwhile, if it needs one.
    temporary: Option<PathBuf>,
    replaces: bool,
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

/// A file without a name, that can be given one: by its path in `/proc`, which a small system may not have mounted.
fn nameless(directory: &Path) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, directory, flags, Mode::from_raw_mode(0o666)).ok()?;
    Path::new(&path_of(&opened)).exists().then(|| opened.into())
}

fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// A name beside the target that nothing else uses: the process number distinguishes runs. Only the start of the
/// target's name is in it, which may itself be as long as a name can be.
fn beside(target: &Path) -> PathBuf {
    let name: String = target.file_name().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    directory_of(target).join(format!(".{name}.plat-{}", std::process::id()))
}

impl Output {
    /// Begins a file of `size` bytes that shall get the name `target`, which must be free until then.
    ///
    /// # Errors
    /// If no file can be created beside the target.
    pub fn new(target: &Path, size: u64) -> io::Result<Self> {
        let (file, temporary) = match nameless(directory_of(target)) {
            Some(file) => (file, None),
            None => {
                let name = beside(target);
                let mut options = OpenOptions::new();
                (options.read(true).write(true).create_new(true).mode(0o666).open(&name)?, Some(name))
            }
        };
        let output = Output { file, target: target.to_owned(), temporary, replaces: false };
        output.file.set_len(size)?;
        Ok(output)
    }

    /// As [`Output::new`]; what has the name at the end is replaced.
    ///
    /// # Errors
    /// As [`Output::new`].
    pub fn replacing(target: &Path, size: u64) -> io::Result<Self> {
        let mut output = Self::new(target, size)?;
        output.replaces = true;
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

    /// Gives the file its name.
    ///
    /// # Errors
    /// If the file can't be named, or the name is taken and shall not be replaced; then nothing of it is left.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.replaces && self.temporary.is_none() {
            return self.link(&self.target);
        }
        let name = match self.temporary.take() {
            Some(name) => name,
            None => {
                let name = beside(&self.target);
                self.link(&name)?;
                name
            }
        };
        let renamed = match self.replaces {
            true => std::fs::rename(&name, &self.target),
            false => rename_to_free(&name, &self.target),
        };
        if renamed.is_err() {
            // Best effort: the error to report is that of renaming.
            let _ = std::fs::remove_file(&name);
        }
        renamed
    }

    /// Gives a nameless file a name, which must be free.
    fn link(&self, name: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(CWD, path_of(&self.file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// Renames a file to a name that must be free.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system knows how; a second name is refused just as surely.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Best effort: an error here has no one to be returned to.
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
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let target = directory.join("disk.img");
        let output = Output::replacing(&target, 100).unwrap();
        output.file().unwrap().write_all(b"new").unwrap();
        drop(output);
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
        std::fs::write(&target, b"old").unwrap();
        let output = Output::replacing(&target, 3).unwrap();
        output.file().unwrap().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        output.finish().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("disk.img");
        for named in [false, true] {
            let mut output = Output::new(&target, 3).unwrap();
            if named {
                let name = beside(&target);
                output.file = File::create(&name).unwrap();
                output.temporary = Some(name);
            }
            std::fs::write(&target, b"old").unwrap();
            assert_eq!(output.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&target).unwrap(), b"old");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
            std::fs::remove_file(&target).unwrap();
        }
    }
}
