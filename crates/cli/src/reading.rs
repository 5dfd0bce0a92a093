//! First steps of every reading command: open the image, say what must be known, find paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ondisk::units::{Block, InodeNumber};
use platfs::device::Device;
use platfs::journal::Recovery;
use platfs::{Error, Key, OpenOptions, Volume};
use platfs_forensics::RawImage;
use platfs_host::path;

use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::keys::KeyArgs;
use crate::paths;
use crate::stores;
use crate::text::Shown;

pub use crate::paths::joined;
pub use platfs_open::explain::{CHECK, INFO, explained, no_superblock, not_writable};

/// An image that is open for reading, with its name for messages.
pub struct OpenImage {
    /// The volume.
    pub volume: Volume,
    /// The name the user gave, as it is shown.
    pub name: String,
}

impl OpenImage {
    /// Opens an image, and warns if not all is seen that its journal holds. An unclean one is read as it will
    /// be after replay, which happens in memory; if that can't be, without what the journal holds.
    ///
    /// # Errors
    /// No such file or partition, or no volume that can be read.
    pub fn open(image: &OsStr, console: &mut Console<'_>) -> Result<Self, Failure> {
        Self::open_with(image, &KeyArgs::default(), console)
    }

    /// Opens an image with keys of encrypted files.
    ///
    /// # Errors
    /// As [`OpenImage::open`]; a key that can't be read.
    pub fn open_with(image: &OsStr, keys: &KeyArgs, console: &mut Console<'_>) -> Result<Self, Failure> {
        let keys = &keys.read(|what| console.warn(what))?;
        warn_of_writer(image, console);
        let opened = match Self::open_to_mount(image, false, keys) {
            Ok(opened) => match opened.volume.verify_descriptors() {
                Ok(()) => opened,
                Err(error) => {
                    let why = Failure::about(&opened.name, explained(&error));
                    return Self::open_damaged(image, keys, why, console);
                }
            },
            Err(why @ Failure::Failed(_)) => return Self::open_damaged(image, keys, why, console),
            Err(failure) => return Err(failure),
        };
        if let Some(missing) = opened.volume.recovery().and_then(Recovery::missing) {
            console.warn(format!("{}: {missing}; what follows is without what that says", opened.name));
        }
        Ok(opened)
    }

    /// Opens an image that can't be opened whole, for `why`, as far as it can be, and says what is missing.
    fn open_damaged(
        image: &OsStr,
        keys: &[Key],
        why: Failure,
        console: &mut Console<'_>,
    ) -> Result<Self, Failure> {
        let ways = [
            (true, false, "what follows is without what its journal holds"),
            (false, true, "what follows is what is there of it"),
            (true, true, "what follows is what is there of it, without what its journal holds"),
        ];
        for (noload, lenient, told) in ways {
            let way = OpenOptions::new().keys(keys).noload(noload).lenient(lenient);
            let Ok(opened) = Self::open_so(image, &way) else { continue };
            let volume = &opened.volume;
            if lenient || volume.needs_recovery() && volume.verify_descriptors().is_ok() {
                if let Failure::Failed(why) = why {
                    console.warn(why.and(told));
                }
                return Ok(opened);
            }
        }
        Err(why)
    }

    /// Opens an image for reading without a word about its state; with `noload` without what its journal
    /// holds.
    ///
    /// # Errors
    /// As [`OpenImage::open`]; a journal that can't be replayed.
    pub fn open_to_mount(image: &OsStr, noload: bool, keys: &[Key]) -> Result<Self, Failure> {
        Self::open_so(image, &OpenOptions::new().noload(noload).keys(keys))
    }

    fn open_so(image: &OsStr, how: &OpenOptions) -> Result<Self, Failure> {
        let name = image::shown(image).to_string();
        let device = open_device(image)?;
        let volume = Volume::open(Arc::clone(&device), how)
            .map_err(|error| Failure::about(&name, no_superblock(&*device, &name, &error)))?;
        Ok(OpenImage { volume, name })
    }

    /// The inode behind a path; a symbolic link in last place is followed if asked for.
    ///
    /// # Errors
    /// A failure that names image and path.
    pub fn find(&self, path: &OsStr, follow: bool) -> Result<InodeNumber, Failure> {
        let path = path.as_bytes();
        let found = match (self.look(path, follow), paths::unescaped(path)) {
            // A name as it was printed.
            (Err(Error::NotFound), Some(typed)) => self.look(&typed, follow),
            (found, _) => found,
        };
        found.map_err(|error| self.failure(path, &error))
    }

    /// Paths in place of patterns.
    ///
    /// # Errors
    /// A directory that can't be read to its end; a pattern that matches too much.
    pub fn matching(&self, paths: &[OsString]) -> Result<Vec<OsString>, Failure> {
        let found = paths::expanded(&self.volume, paths);
        found.map_err(|(path, error)| self.failure(path.as_bytes(), &error))
    }

    fn look(&self, path: &[u8], follow: bool) -> platfs::Result<InodeNumber> {
        // A slash at the end asks for the directory behind a link, as everywhere.
        let found = if follow || path.ends_with(b"/") {
            self.volume.resolve(path)
        } else {
            self.volume.resolve_link(path)
        };
        found.and_then(|inode| {
            let is_directory = !path.ends_with(b"/")
                || self.volume.metadata(inode)?.file_type == ondisk::inode::FileType::Directory;
            if is_directory { Ok(inode) } else { Err(Error::NotDirectory) }
        })
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let geometry = &self.volume.format().geometry;
        geometry.byte_offset(Block(geometry.blocks))
    }

    /// A failure of the library with the image as a whole.
    #[must_use]
    pub fn whole(&self, error: &Error) -> Failure {
        Failure::of(&self.name, error, explained(error))
    }

    /// A failure of the library with something inside the image.
    #[must_use]
    pub fn failure(&self, path: &[u8], error: &Error) -> Failure {
        Failure::of(format!("{}: {}", self.name, Shown(path)), error, explained(error))
    }
}

/// The bytes of an image as they will be after replay, which happens in memory, and its name as it is shown.
///
/// # Errors
/// As [`OpenImage::open`].
pub fn ground(image: &OsStr, console: &mut Console<'_>) -> Result<(RawImage, String), Failure> {
    warn_of_writer(image, console);
    let name = image::shown(image).to_string();
    let device = open_device(image)?;
    let device = match platfs::journal::replayed(Arc::clone(&device)) {
        Ok((device, recovery)) => {
            if let Some(missing) = recovery.missing() {
                console.warn(format!("{name}: {missing}; what follows is without what that says"));
            }
            device
        }
        Err(error) => {
            if platfs::read_superblock(&*device).is_ok() {
                console.warn(format!("{name}: {error}; what follows is without what its journal holds"));
            }
            device
        }
    };
    Ok((ground_of(device, &name)?, name))
}

/// Opens the bytes as they stand on the device.
///
/// # Errors
/// As [`OpenImage::open`].
pub fn bare_ground(image: &OsStr, console: &mut Console<'_>) -> Result<(RawImage, String), Failure> {
    warn_of_writer(image, console);
    let name = image::shown(image).to_string();
    Ok((ground_of(open_device(image)?, &name)?, name))
}

fn ground_of(device: Arc<dyn Device>, name: &str) -> Result<RawImage, Failure> {
    let opened = RawImage::open(Arc::clone(&device));
    opened.map_err(|error| Failure::about(name, no_superblock(&*device, name, &error.into())))
}

/// Opens the device of an image for reading.
///
/// # Errors
/// A failure that names the image.
pub fn open_device(image: &OsStr) -> Result<Arc<dyn Device>, Failure> {
    image::open_read(image).map_err(|error| {
        match (Failure::about(image::shown(image), error), with_colon(image)) {
            (Failure::Failed(trouble), Some(hint)) => Failure::Failed(trouble.and(hint)),
            (failure, _) => failure,
        }
    })
}

/// The hint for `disk.img:/etc`, where there is no file of that name.
fn with_colon(image: &OsStr) -> Option<String> {
    let text = image.to_str().filter(|text| !stores::is_meant(OsStr::new(text)))?;
    let (file, path) = text.split_once(':')?;
    let is_meant = path.starts_with('/') && path::is_there(file) && !path::is_there(image);
    is_meant.then(|| format!("image and path are words of their own: `{file} {path}`"))
}

/// Warns if another program may be changing the image meanwhile.
pub fn warn_of_writer(image: &OsStr, console: &mut Console<'_>) {
    if let Some(user) = door::writer_of(image) {
        console.warn(format!(
            "{}: may be changing: {user}; what it has not written yet is missing here",
            image::shown(image)
        ));
    }
}

/// The paths of a command line, or the root if there are none.
#[must_use]
pub fn paths_or_root(paths: &[OsString]) -> Vec<OsString> {
    if paths.is_empty() { vec![OsString::from("/")] } else { paths.to_vec() }
}

/// A path in an image from its root: one slash before each name.
#[must_use]
pub fn absolute(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 1);
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}
