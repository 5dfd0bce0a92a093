//! What every reading command does first: open the image, say what must be known, find paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ondisk::features::Incompat;
use ondisk::geometry::Geometry;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use ondisk::units::InodeNumber;
use platfs::device::Device;
use platfs::journal::Recovery;
use platfs::{Error, Key, OpenOptions, Volume};
use platfs_forensics::Ground;
use platfs_host::path;

use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::keys::KeyArgs;
use crate::paths;
use crate::stores;
use crate::text::Shown;

pub use crate::paths::joined;

/// The remedy for what breaks a rule of the format.
pub const CHECK: &str = "`plat check -n` shows more, `plat check` repairs";

/// The same for what is not supported.
pub const INFO: &str = "`plat info` shows what is known";

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

    /// The same with keys of encrypted files.
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
pub fn ground(image: &OsStr, console: &mut Console<'_>) -> Result<(Ground, String), Failure> {
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

/// The same as they stand on the device.
///
/// # Errors
/// As [`OpenImage::open`].
pub fn bare_ground(image: &OsStr, console: &mut Console<'_>) -> Result<(Ground, String), Failure> {
    warn_of_writer(image, console);
    let name = image::shown(image).to_string();
    Ok((ground_of(open_device(image)?, &name)?, name))
}

fn ground_of(device: Arc<dyn Device>, name: &str) -> Result<Ground, Failure> {
    let opened = Ground::open(Arc::clone(&device));
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

/// The complaint about a device that can't be opened as a volume, with the remedy: what it holds instead, if it has no
/// superblock; how long it should be, if its end is missing.
#[must_use]
pub fn no_superblock(device: &dyn Device, name: &str, error: &Error) -> String {
    if let Ok(raw) = platfs::read_superblock(device) {
        return match missing_end(device, &raw) {
            Some(bytes) => format!(
                "{error}; the volume takes {bytes} bytes: copy it again, or make the image as long (`truncate -s`) and \
                 `plat check` keeps what is there"
            ),
            None => explained(error),
        };
    }
    let hint = platfs::device::lookalike(device, name).map(|hint| format!("; {hint}")).unwrap_or_default();
    let error = error.to_string();
    let why = error.strip_suffix(": not an ext2, ext3 or ext4 volume").unwrap_or(&error);
    format!("is no ext2, ext3 or ext4 volume ({why}){hint}")
}

/// The complaint about a volume that can't be opened for writing, with the remedy that helps: a check where it was not
/// closed cleanly.
#[must_use]
pub fn not_writable(device: &dyn Device, name: &str, error: &Error) -> String {
    let Error::Unsupported(_) = error else { return no_superblock(device, name, error) };
    let is_unclean = platfs::read_superblock(device).is_ok_and(|raw| {
        let is_pending = raw.s_feature_incompat.get() & Incompat::RECOVER.bits() != 0;
        is_pending || raw.s_state.get() & (STATE_VALID | STATE_ERROR) != STATE_VALID
    });
    match is_unclean {
        true => format!("{error}; `plat check -p` brings a volume in order"),
        false => explained(error),
    }
}

/// The bytes that a volume takes, where the device ends before.
fn missing_end(device: &dyn Device, raw: &RawSuperblock) -> Option<u64> {
    let geometry = Geometry::from_superblock(raw).ok()?;
    let bytes = geometry.byte_offset(ondisk::units::Block(geometry.blocks));
    (bytes > device.size()).then_some(bytes)
}

/// The library's words, and what the user can do about it.
pub fn explained(error: &Error) -> String {
    match error {
        Error::Corrupt(_) => format!("{error}; {CHECK}"),
        Error::Unsupported(_) => format!("{error}; {INFO}"),
        _ => error.to_string(),
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
