//! Where a new volume goes: a new file, which appears whole or not at all; or in place, on a block
//! device, in a part of a disk image, or in a file that holds nothing yet.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::{Device, Window};
use platfs::mkfs::Storage;
use platfs_host::Privacy;
use platfs_host::{Handle, path};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::commands::replaced::{Becomes, may_replace};
use crate::console::Failure;
use crate::door::Alone;
use crate::door::output::Output;
use crate::image::{self, Part, shown};

/// Bytes at the start of a device that are looked at for an older content.
const PROBE: usize = 128 * 1024;

/// The place, with nothing written yet.
pub(super) struct Target<'a> {
    name: &'a OsStr,
    size: u64,
    storage: Storage,
    place: Place,
}

enum Place {
    /// A file beside, which takes the name in the end; all of its length, and where the volume begins.
    New { path: PathBuf, len: u64, offset: u64, mode: Option<u32> },
    /// File or device that exists, from a byte on.
    Existing { image: Box<Alone>, offset: u64 },
}

impl<'a> Target<'a> {
    /// Looks at the target. `size` is what the volume shall have, `offset` the byte of the target where
    /// it begins.
    ///
    /// # Errors
    /// No size known, something that would be lost, or in use.
    pub(super) fn find(
        name: &'a OsStr,
        size: Option<u64>,
        offset: u64,
        force: bool,
    ) -> Result<Self, Failure> {
        let spec = image::parse(name);
        let about = |what: &dyn std::fmt::Display| Failure::about(shown(name), what.to_string());
        if crate::stores::is_meant(name) {
            return Err(about(&crate::image::ImageError::Remote));
        }
        let facts = match path::facts(&spec.path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound && spec.part == Part::Whole => {
                return Self::new_file(name, spec.path, size, offset, None);
            }
            Err(error) => return Err(about(&error)),
        };
        let image = Alone::open(name).map_err(|error| about(&error))?;
        let (is_block, growable) = (image.is_block_device(), image.is_growable());
        let start = image.start().checked_add(offset).ok_or_else(|| about(&"the offset is too large"))?;
        let room = image.room().checked_sub(offset);
        let size = match (size, room) {
            (Some(size), Some(room)) if size <= room || growable => size,
            (Some(size), None) if growable => size,
            (Some(size), room) => {
                let room = room.unwrap_or(0);
                return Err(about(&format!("has {room} bytes, and the volume shall have {size}")));
            }
            (None, Some(room)) if room > 0 => room,
            (None, _) => {
                return Err(Failure::Usage(format!(
                    "{0}: a size is needed, as in `plat mkfs {0} 64M`",
                    shown(name)
                )));
            }
        };
        let end = start.checked_add(size).ok_or_else(|| about(&"the size is too large"))?;
        let holds = holds_data(image.file(), start, end, is_block).map_err(|e| about(&e))?;
        let replaces = holds && growable && offset == 0;
        if replaces {
            may_replace(&spec.path, Becomes::Image, true)?;
        }
        if holds && !force {
            return Err(about(&"is not empty; -F writes over it"));
        }
        if replaces {
            // The new file asks for itself whether the old one may go.
            drop(image);
            return Self::new_file(name, spec.path, Some(size), 0, Some(facts.mode));
        }
        let storage = if holds || is_block { Storage::Unknown } else { Storage::Zeroed };
        Ok(Target { name, size, storage, place: Place::Existing { image: Box::new(image), offset } })
    }

    fn new_file(
        name: &'a OsStr,
        path: PathBuf,
        size: Option<u64>,
        offset: u64,
        mode: Option<u32>,
    ) -> Result<Self, Failure> {
        let Some(size) = size else {
            return Err(Failure::Usage(format!(
                "{0}: does not exist yet, so a size is needed, as in `plat mkfs {0} 64M`",
                shown(name)
            )));
        };
        let len = size.checked_add(offset).filter(|len| i64::try_from(*len).is_ok());
        let Some(len) = len else {
            return Err(Failure::about(shown(name), "the size is too large for a file"));
        };
        let place = Place::New { path, len, offset, mode };
        Ok(Target { name, size, storage: Storage::Zeroed, place })
    }

    /// Bytes the volume may have.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns what is known of the contents.
    pub(super) fn storage(&self) -> Storage {
        self.storage
    }

    /// Lets `fill` write the volume.
    ///
    /// # Errors
    /// Those of `fill` and of the system.
    pub(super) fn write(self, fill: impl FnOnce(&dyn Device) -> Result<(), Failure>) -> Result<(), Failure> {
        let name = self.name;
        let failed = |error: io::Error| Failure::about(shown(name), error);
        match self.place {
            Place::New { path, len, offset, mode } => {
                let output = Output::through(&path, len, Privacy::Ordinary).map_err(failed)?;
                if let Some(mode) = mode {
                    let set = output.file().and_then(|file| Handle::from(file).set_mode(mode));
                    set.map_err(failed)?;
                }
                let whole = Arc::new(output.device().map_err(failed)?);
                fill(&Window::new(whole, offset, self.size).map_err(failed)?)?;
                output.finish().map_err(failed)
            }
            Place::Existing { image, offset } => {
                fill(&*image.into_window(offset, self.size).map_err(failed)?)
            }
        }
    }
}

/// Returns true if something would be lost: data that is no hole in a file, anything but zeros at the start
/// of a block device.
fn holds_data(file: &File, start: u64, end: u64, is_block_device: bool) -> io::Result<bool> {
    if !is_block_device {
        return match seek(file, SeekFrom::Data(start)) {
            Ok(at) => Ok(at < end),
            // Behind the last data.
            Err(Errno::NXIO) => Ok(false),
            // A file system without holes: all of the file counts.
            Err(_) => Ok(start < file.metadata()?.len()),
        };
    }
    let len = usize::try_from(end - start).unwrap_or(PROBE).min(PROBE);
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.iter().any(|byte| *byte != 0))
}
