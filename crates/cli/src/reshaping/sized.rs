//! Images that get another length: the file grows before the volume does, and is cut when the volume has become shorter.

use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;

use platfs::device::Device;
use platfs::device::mmp::Purpose;

use super::Held;
use crate::console::{Console, Failure};
use crate::door::{self, Alone};
use crate::image::{self, ImageError};
use crate::size::human;

/// An image that is open to be changed and to get another length, alone.
pub struct Sized {
    held: Held,
    alone: Alone,
}

/// Device that is made as long as it has to be.
pub struct Ready {
    /// The image, with room for both volumes.
    pub held: Held,
    /// Bytes there were; those behind read as zeros.
    pub had: u64,
    /// The file whose end may be moved.
    end: Option<File>,
    _alone: Alone,
}

impl Sized {
    /// Opens and locks an image, and takes back a change of it that was cut off.
    ///
    /// # Errors
    /// As [`Held::open`].
    pub fn open(image: &OsStr, console: &mut Console<'_>) -> Result<Self, Failure> {
        let name = image::shown(image).to_string();
        let alone = Alone::open(image).map_err(|error| Failure::about(&name, error))?;
        let failed = |error: ImageError| Failure::about(&name, error);
        let device = alone.view().map_err(ImageError::from).map_err(failed)?;
        let device = door::take_mark(device, image, Purpose::Write).map_err(failed)?;
        let held = Held { name, device, beside: door::way_back(image) };
        held.begin(console)?;
        Ok(Sized { held, alone })
    }

    /// The image as it is.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.held.device
    }

    /// Bytes of what is meant.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.alone.room()
    }

    /// Makes room for a volume of `bytes`.
    ///
    /// # Errors
    /// A device or partition that ends before; the file can't grow.
    pub fn with_room(self, bytes: u64) -> Result<Ready, Failure> {
        let Sized { held, alone } = self;
        let had = alone.room();
        let failed = |error: std::io::Error| Failure::about(&held.name, error);
        let end = alone.is_growable().then(|| alone.file().try_clone()).transpose().map_err(failed)?;
        if bytes > had && end.is_none() {
            let (have, need) = (human(had), human(bytes));
            let what = format!("{need} are asked for, but it ends after {have} ({had} bytes)");
            return Err(Failure::about(&held.name, what));
        }
        if bytes > had {
            held.device.lengthen(Some(bytes)).map_err(failed)?;
        }
        Ok(Ready { held, had, end, _alone: alone })
    }
}

impl Ready {
    /// Cuts the file behind `bytes`, if it is one.
    ///
    /// # Errors
    /// The system says no.
    pub fn cut(&self, bytes: u64) -> Result<(), Failure> {
        let Some(file) = &self.end else { return Ok(()) };
        let failed = |error: std::io::Error| {
            Failure::about(&self.held.name, format!("the volume is done, but its file was not cut: {error}"))
        };
        if file.metadata().map_err(failed)?.len() > bytes {
            file.set_len(bytes).map_err(failed)?;
        }
        Ok(())
    }
}
