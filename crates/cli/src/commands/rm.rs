//! `plat rm`: takes files out of an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::Error;

use crate::console::{Console, Failure};
use crate::reading::{OpenImage, joined};
use crate::writing::{self, Place};

/// Arguments of `plat rm`.
#[derive(Args, Debug)]
pub struct Rm {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
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

/// A directory on the way down.
struct Level {
    path: Vec<u8>,
    parent: InodeNumber,
    name: Vec<u8>,
    inode: InodeNumber,
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
                let path = path.as_bytes().to_vec();
                return all_below(image, Level { path, parent: directory, name: name.to_vec(), inode });
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

/// Removes a directory with all below it, without recursion: trees of an image can be deep.
fn all_below(image: &OpenImage, top: Level) -> Result<(), Failure> {
    let mut levels = vec![top];
    while let Some(level) = levels.last() {
        match empty(image, level)? {
            Some(deeper) => levels.push(deeper),
            None => {
                let done = image.volume.rmdir(level.parent, &level.name);
                done.map_err(|error| image.failure(&level.path, &error))?;
                levels.pop();
            }
        }
    }
    Ok(())
}

/// Removes the files of a directory; the first directory met in it is returned instead.
fn empty(image: &OpenImage, level: &Level) -> Result<Option<Level>, Failure> {
    let failed = |path: &[u8], error: &Error| image.failure(path, error);
    let listing = image.volume.read_dir(level.inode).map_err(|error| failed(&level.path, &error))?;
    // Listed before anything goes: removing changes the blocks that are read.
    let entries: platfs::Result<Vec<_>> = listing.collect();
    for entry in entries.map_err(|error| failed(&level.path, &error))? {
        let path = joined(&level.path, &entry.name);
        let file_type = image.volume.entry_type(&entry).map_err(|error| failed(&path, &error))?;
        if file_type == FileType::Directory {
            return Ok(Some(Level { path, parent: level.inode, name: entry.name, inode: entry.inode }));
        }
        let done = image.volume.unlink(level.inode, &entry.name);
        done.map_err(|error| failed(&path, &error))?;
    }
    Ok(None)
}
