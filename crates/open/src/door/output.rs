//! New files that take the place of what has their name: an image or archive in use is not replaced.
//!
//! That a file appears whole or not at all is [`platfs_host`]'s. Here it is asked whether the file that has
//! the name is an image in use.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use platfs::device::{Device, FileDevice};
use platfs_host::{Handle, OutputLocation, Privacy, followed};
use platfs_image::disk::Disk;
use platfs_image::{BuildError, Builder, Built};

use super::{Alone, Replacing, replace};
use crate::image::ImageError;

/// Permissions of a new file, less the umask.
const NEW_FILE: u32 = 0o666;

/// A file that is not there yet.
pub struct Output {
    new: platfs_host::Output,
    /// The file that has the name now is not an image in use.
    _replacing: Replacing,
}

impl Output {
    /// As [`Output::begin`], for a name that may be a symbolic link: the link stays, and what it leads to is
    /// replaced.
    ///
    /// # Errors
    /// As [`Output::begin`].
    pub fn through(target: &Path, size: u64, privacy: Privacy) -> io::Result<Self> {
        let replacing = replace(&followed(target)?)?;
        let new = platfs_host::Output::replacing(target, size, privacy)?;
        Ok(Output { new, _replacing: replacing })
    }

    /// Begins a file of `size` bytes that shall get a name: a free one, or with `force` that of another file,
    /// which it replaces.
    ///
    /// # Errors
    /// If what has the name is an image in use, or no file can be created beside it.
    pub fn begin(place: &OutputLocation, size: u64, privacy: Privacy, force: bool) -> io::Result<Self> {
        let replacing = replace(&place.path)?;
        let new = platfs_host::Output::below(place.directory.try_clone()?, &place.name, size, privacy)?;
        let new = if force { new.over_others() } else { new };
        Ok(Output { new, _replacing: replacing })
    }

    /// The open file.
    ///
    /// # Errors
    /// If the handle can't be duplicated.
    pub fn file(&self) -> io::Result<File> {
        self.new.file()
    }

    /// The file as a device.
    ///
    /// # Errors
    /// As [`Output::file`].
    pub fn device(&self) -> io::Result<FileDevice> {
        platfs_image::output::device_of(&self.new)
    }

    /// Gives the file its name, replacing what had it.
    ///
    /// # Errors
    /// If the file can't be named; then nothing of it is left.
    pub fn finish(self) -> io::Result<()> {
        self.new.finish()
    }
}

/// Makes a new file of zeros, and opens it to be written; others are kept off as long as the device lives.
///
/// # Errors
/// The name is taken; no file can be so long; the system's.
pub fn create(path: &Path, bytes: u64) -> Result<Arc<dyn Device>, ImageError> {
    let place = OutputLocation::of(path)?;
    let file = place.directory.create(&place.name, NEW_FILE)?;
    let id_of = |file: &File| Handle::of(file).and_then(|handle| handle.facts()).map(|facts| facts.id);
    let made = id_of(&file)?;
    let open = || -> Result<Arc<dyn Device>, ImageError> {
        file.set_len(bytes)?;
        let alone = Alone::open(path.as_os_str())?;
        // The door goes by the name: somebody may have put another file there.
        if id_of(alone.file())? != made {
            return Err(
                io::Error::new(io::ErrorKind::ResourceBusy, "another file got the name meanwhile").into()
            );
        }
        Ok(alone.into_device()?)
    };
    open().inspect_err(|_| {
        if place.directory.look(&place.name).is_ok_and(|facts| facts.id == made) {
            // The first error says more.
            let _ = place.remove();
        }
    })
}

/// A new, empty file that another program has made for a copy of a device, as a device of that size.
///
/// # Errors
/// It is no regular file, or not empty; the system's.
pub fn received(file: File, size: u64) -> io::Result<FileDevice> {
    let facts = file.metadata()?;
    if !facts.is_file() || facts.len() > 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the output is no empty file"));
    }
    file.set_len(size)?;
    FileDevice::new(file)
}

/// Opens a file once it is filled, for who made it.
///
/// # Errors
/// The system's.
pub fn filled(file: File) -> io::Result<FileDevice> {
    FileDevice::new(file)
}

/// Builds an image into a new file, and what `disk` puts beside it; with `force` they may take the place of other files
/// that are not in use.
///
/// # Errors
/// As [`Builder::build`]; what has the name is an image in use.
pub fn build_file(
    builder: Builder<'_>,
    target: &Path,
    force: bool,
    disk: &Disk,
) -> Result<Built, BuildError> {
    let mut replacing = Vec::new();
    for path in disk.beside().chain([target]) {
        let found = followed(path).and_then(|path| replace(&path));
        replacing.push(found.map_err(BuildError::output("create", path))?);
    }
    let built = builder.disk(disk.clone()).overwrite(force).build(target);
    drop(replacing);
    built
}
