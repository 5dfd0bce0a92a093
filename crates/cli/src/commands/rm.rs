//! `plat rm`: takes files out of an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{DirEntry, Error, Walk};

use crate::console::{Console, Failure};
use crate::reading::{OpenImage, joined};
use crate::writing::{self, Place, Target};

/// Arguments of `plat rm`.
#[derive(Args, Debug)]
pub struct Rm {
    #[command(flatten)]
    image: Target,
    /// Files to remove. A symbolic link goes itself.
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Empty directories, too.
    #[arg(short, long)]
    dir: bool,
    /// What does not exist is no failure.
    #[arg(short, long)]
    force: bool,
}

impl Rm {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change_each(&self.image, &self.paths, console, |image, path| self.one(image, path))
    }

    fn one(&self, image: &OpenImage, path: &OsStr) -> Result<(), Failure> {
        let failed = |error: &Error| image.failure(path.as_bytes(), error);
        let Place { directory, name } = writing::place(image, path)?;
        let inode = match image.volume.lookup(directory, name) {
            Err(Error::NotFound) if self.force => return Ok(()),
            found => found.map_err(|error| failed(&error))?,
        };
        let facts = image.volume.metadata(inode).map_err(|error| failed(&error))?;
        let removed = match facts.file_type {
            FileType::Directory if self.recursive => {
                return Removal::of(image).all(path.as_bytes(), (directory, name), inode);
            }
            FileType::Directory if self.dir => image.volume.rmdir(directory, name),
            FileType::Directory => {
                let subject = format!("{}: {}", image.name, crate::text::Shown(path.as_bytes()));
                return Err(Failure::about(subject, "is a directory; --recursive removes it"));
            }
            _ => image.volume.unlink(directory, name),
        };
        removed.map_err(|error| failed(&error))
    }
}

/// A directory that is being emptied.
struct Level {
    /// Where its name stands.
    parent: InodeNumber,
    name: Vec<u8>,
    /// It has more names than were read.
    more: bool,
}

/// Removes a directory with all below it, without recursion: trees of an image can be deep. Each directory is listed
/// once, and one that was met before, or that calls another one its parent, is damage: what is in it belongs
/// elsewhere.
struct Removal<'i> {
    image: &'i OpenImage,
    walk: Walk<'i>,
    levels: Vec<Level>,
}

impl<'i> Removal<'i> {
    fn of(image: &'i OpenImage) -> Self {
        Removal { image, walk: Walk::new(&image.volume), levels: Vec::new() }
    }

    fn all(
        &mut self,
        path: &[u8],
        (parent, name): (InodeNumber, &[u8]),
        inode: InodeNumber,
    ) -> Result<(), Failure> {
        self.enter(path, parent, name, inode)?;
        while let Some(directory) = self.walk.directory() {
            match self.walk.next_entry().cloned() {
                Some(entry) => self.entry(directory, &entry)?,
                None => self.end()?,
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        shown: &[u8],
        parent: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
    ) -> Result<(), Failure> {
        let failed = |error: &Error| self.image.failure(shown, error);
        let up = self.image.volume.lookup(inode, b"..").map_err(|error| failed(&error))?;
        if up != parent {
            let problem = format!("calls inode {up} its parent, and stands in inode {parent}");
            return Err(failed(&Error::corrupt(ondisk::corrupt::Place::Directory(inode), problem)));
        }
        // The walk begins with the path as it was given, so that messages show it so.
        let entered = if self.levels.is_empty() { shown } else { name };
        let more = match self.walk.enter(entered, inode) {
            Ok(None) => false,
            Ok(Some(Error::Unsupported(_))) => true,
            Ok(Some(error)) | Err(error) => return Err(failed(&error)),
        };
        self.levels.push(Level { parent, name: name.to_vec(), more });
        Ok(())
    }

    fn entry(&mut self, directory: InodeNumber, entry: &DirEntry) -> Result<(), Failure> {
        let path = joined(self.walk.path(), &entry.name);
        let failed = |error: &Error| self.image.failure(&path, error);
        if self.walk.is_directory(entry).map_err(|error| failed(&error))? {
            return self.enter(&path, directory, &entry.name, entry.inode);
        }
        self.image.volume.unlink(directory, &entry.name).map_err(|error| failed(&error))
    }

    /// All names that were read of a directory are gone: so is it, unless there are more.
    fn end(&mut self) -> Result<(), Failure> {
        let path = self.walk.path().to_vec();
        let failed = |error: &Error| self.image.failure(&path, error);
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if std::mem::take(&mut level.more) {
            match self.walk.read_again() {
                Ok(None) => {}
                Ok(Some(Error::Unsupported(_))) => level.more = true,
                Ok(Some(error)) | Err(error) => return Err(failed(&error)),
            }
            return Ok(());
        }
        self.walk.leave();
        let Some(level) = self.levels.pop() else { return Ok(()) };
        self.image.volume.rmdir(level.parent, &level.name).map_err(|error| failed(&error))
    }
}
