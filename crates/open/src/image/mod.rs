//! From what a user calls an image to a device: a file, a block device, a part of either, or a volume of a store.
//!
//! Excludes what names mean (`platfs_image::named`), what is on the device, and opening it to write: that is the door's.

mod user;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use platfs::device::{Device, FileDevice, Window};
use platfs_host::{Kind, Privacy, errno_of, path};
use platfs_image::text::Shown;

use rustix::io::Errno;

use crate::stores;

pub use platfs_image::named::{ImageSpec, Part, PartError};
pub use user::User;

/// Takes a name apart. The address of a store has no parts.
#[must_use]
pub fn parse(name: &OsStr) -> ImageSpec {
    if stores::is_meant(name) { ImageSpec::whole(name) } else { ImageSpec::parse(name) }
}

/// Permission bits of a copy of the image: no more than a file has, and of all else only its owner's.
#[must_use]
pub fn privacy(name: &OsStr) -> Privacy {
    match path::facts(parse(name).path) {
        Ok(facts) if facts.kind == Kind::File => Privacy::As(facts.mode),
        _ => Privacy::Private,
    }
}

/// Why an image can't be opened. The message does not repeat the image's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No such file, and what stands behind its `@` is no part of one.
    #[error(
        "no such file, and `{0}` names no part: IMAGE@part2 is the second partition, IMAGE@part:NAME the one \
         with that name, IMAGE@1M what begins at that byte"
    )]
    NoPart(String),
    /// Another program uses it in a conflicting way.
    #[error("is in use: {0}")]
    InUse(User),
    /// A change of the volume was cut off.
    #[error(
        "a change of it was cut off: the same command takes it back and begins again; or `plat check --undo-from {0} \
         IMAGE` takes it back"
    )]
    Unfinished(String),
    /// A volume of an object store.
    #[error(transparent)]
    Store(#[from] stores::Error),
    /// The command works in a file or block device.
    #[error(
        "is in an object store, and this command needs a file: `plat pull` makes one, `plat push` brings it back"
    )]
    Remote,
    /// A part of a disk, where a new file is to be made.
    #[error("is a part of a disk, and no name for a new file")]
    NotWhole,
    /// It holds no image, or has no such part.
    #[error(transparent)]
    Part(#[from] PartError),
}

impl ImageError {
    /// The number that Linux has for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            ImageError::Io(error) => errno_of(error),
            ImageError::NoPart(_) => Errno::NOENT.raw_os_error(),
            ImageError::InUse(_) => Errno::BUSY.raw_os_error(),
            ImageError::Unfinished(_) => Errno::UCLEAN.raw_os_error(),
            ImageError::Store(error) => stores::errno(error),
            ImageError::Remote => Errno::OPNOTSUPP.raw_os_error(),
            ImageError::NotWhole => Errno::INVAL.raw_os_error(),
            ImageError::Part(error) => error.errno(),
        }
    }
}

/// Opens a regular file or block device. Only the door opens to write.
pub(crate) fn open_file(spec: &ImageSpec, write: bool) -> Result<File, ImageError> {
    if stores::is_meant(spec.path.as_os_str()) {
        return Err(ImageError::Remote);
    }
    spec.file(write).map_err(|error| match error {
        PartError::Io(error) if error.kind() == io::ErrorKind::NotFound => not_found(spec, error),
        PartError::Io(error) => error.into(),
        error => error.into(),
    })
}

/// Explains a file that was not found: only what is behind the last `@` may be wrong.
fn not_found(spec: &ImageSpec, error: io::Error) -> ImageError {
    let name = spec.path.as_os_str().as_bytes();
    let at = name.iter().rposition(|byte| *byte == b'@').filter(|at| *at > 0);
    let parts = at.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?)));
    match parts {
        Some((path, part)) if path::is_there(OsStr::from_bytes(path)) => {
            ImageError::NoPart(Shown(part).to_string())
        }
        _ => error.into(),
    }
}

/// Opens an image for reading.
///
/// # Errors
/// See [`ImageError`].
pub fn open_read(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    if stores::is_meant(name) {
        return Ok(stores::open_read(name)?);
    }
    let spec = parse(name);
    let whole: Arc<dyn Device> = Arc::new(FileDevice::new(open_file(&spec, false)?)?);
    let (start, len) = spec.readable(&*whole)?;
    if spec.part == Part::Whole {
        return Ok(whole);
    }
    Ok(Arc::new(Window::new(whole, start, len)?))
}

/// An image's name for messages, of an address with credentials no more than its beginning.
#[must_use]
pub fn shown(name: &OsStr) -> Shown<'_> {
    Shown(stores::public(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_with_an_at_in_its_name_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk@part1");
        File::create(&path).unwrap().write_all(&[7; 524]).unwrap();
        assert_eq!(parse(path.as_os_str()).part, Part::Whole);
        let mut with_offset = path.into_os_string();
        with_offset.push("@512");
        let device = open_read(&with_offset).unwrap();
        assert_eq!(device.size(), 12);
    }

    #[test]
    fn what_is_no_device_is_reported() {
        let error = |name: &str| match open_read(OsStr::new(name)) {
            Ok(_) => panic!("{name} opened"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error("/"), "is a directory, not a file or block device");
        assert_eq!(error("/dev/null"), "is a special file, not a file or block device");
        assert!(error("/nowhere@part1").contains("No such file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = |part: &str| format!("{}@{part}", file.path().display());
        assert_eq!(error(&name("512")), "byte 512 lies behind its end, at 0");
        assert!(
            error(&name("2")).contains("byte 2 is no multiple of 512")
                && error(&name("2")).contains("@part2")
        );
        assert!(
            error(&name("root")).contains("`root` names no part")
                && error(&name("root")).contains("@part:NAME")
        );
        assert!(error(&name("part1")).contains("no partition table"));
    }
}
