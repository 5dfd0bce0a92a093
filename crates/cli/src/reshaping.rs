//! Around a change of an image that is made in memory first (`platfs_reshape`): locks, the undo file, and taking back a
//! change that was cut off.
//!
//! A change that is not atomic is undone from a file beside the image, which is whole and stable before the image is
//! touched, and removed when the image is stable. The next command that changes the shape of the image finds it there,
//! takes back what was done, and begins again.

mod sized;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platfs::device::Device;
use platfs::ondisk::features::Incompat;
use platfs::ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use platfs::{OpenOptions, Volume};
use platfs_host::OutputLocation;
use platfs_reshape::draft::{Change, Limits};

use crate::check::stop;
use crate::clock;
use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::reading::{CHECK, INFO};
use crate::text::Shown;
use platfs_open::memory;
use platfs_open::precheck::{self, When};
use platfs_open::undo;

pub use platfs_serve::sizes::Sizes;
pub use sized::{Ready, Sized};

/// Limits of what a change may take.
#[must_use]
pub fn limits() -> Limits {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Limits { memory: memory::for_check(), threads, now: clock::now() }
}

/// The words of a refusal: what no volume could be changed to is wrong usage.
pub fn failed(name: &str, error: &platfs_reshape::Error) -> Failure {
    match error {
        platfs_reshape::Error::Usage(why) => Failure::Usage(why.clone()),
        platfs_reshape::Error::Volume(platfs::device::Error::Corrupt(_)) => {
            Failure::about(name, format!("{error}; {CHECK}"))
        }
        platfs_reshape::Error::Volume(platfs::device::Error::Unsupported(_)) => {
            Failure::about(name, format!("{error}; {INFO}"))
        }
        other => Failure::about(name, other.to_string()),
    }
}

/// An image that is open to be changed, alone.
pub struct Held {
    name: String,
    device: Arc<dyn Device>,
    /// Where the way back is kept while a change is under way.
    beside: PathBuf,
}

impl Held {
    /// Opens and locks an image, and takes back a change of it that was cut off.
    ///
    /// # Errors
    /// It can't be opened or is in use; the change can't be taken back.
    pub fn open(image: &OsStr, console: &mut Console<'_>) -> Result<Self, Failure> {
        let name = image::shown(image).to_string();
        let device = door::open_unfinished(image).map_err(|error| Failure::about(&name, error))?;
        Held::on(name, device, door::way_back(image), console)
    }

    /// As [`Held::open`], also where another host left its mark (`mmp`); with `force` whatever that host does now.
    ///
    /// # Errors
    /// As [`Held::open`].
    pub fn open_deserted(image: &OsStr, force: bool, console: &mut Console<'_>) -> Result<Self, Failure> {
        let name = image::shown(image).to_string();
        let device = door::open_deserted(image, force).map_err(|error| Failure::about(&name, error))?;
        Held::on(name, device, door::way_back(image), console)
    }

    /// Begins a change of a device that nobody else has, with the path of the file that keeps the way back.
    ///
    /// # Errors
    /// A change that was cut off can't be taken back.
    pub fn on(
        name: String,
        device: Arc<dyn Device>,
        beside: PathBuf,
        console: &mut Console<'_>,
    ) -> Result<Self, Failure> {
        let held = Held { name, device, beside };
        held.begin(console)?;
        Ok(held)
    }

    /// Takes back a change that was cut off, and brings a journal that waits to its end.
    fn begin(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        self.take_back(console)?;
        self.replay(console)
    }

    /// Replays the journal of a volume that is sound with it, as a mount does.
    fn replay(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let waits = |raw: &RawSuperblock| {
            raw.features().incompat.contains(Incompat::RECOVER) && raw.s_journal_inum.get() != 0
        };
        if !platfs::read_superblock(&*self.device).is_ok_and(|raw| waits(&raw)) {
            return Ok(());
        }
        let failed = |what: &dyn std::fmt::Display| Failure::about(&self.name, what.to_string());
        precheck::sound(When::ForAll, &self.device, &self.name, platfs_image::clock::now())
            .map_err(|why| failed(&why))?;
        let _busy = stop::busy();
        let options = OpenOptions::new().write(true).now(clock::now());
        let volume = Volume::open(Arc::clone(&self.device), &options);
        volume.and_then(Volume::close).map_err(|error| failed(&error))?;
        console.warn(format!("{}: its journal was replayed", self.name));
        Ok(())
    }

    /// The image.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn take_back(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let shown = Shown(self.beside.as_os_str().as_encoded_bytes()).to_string();
        // A volume of a store has nothing beside it.
        let Some(place) = OutputLocation::of(&self.beside).ok().filter(OutputLocation::is_taken) else {
            return Ok(());
        };
        let _busy = stop::busy();
        match undo::restore_own(&place, &*self.device) {
            Ok(_) => console.warn(format!("{}: a change that was cut off is taken back", self.name)),
            // It had come to its end, and the volume was in use since.
            Err(_) if self.is_clean() => {}
            Err(why) => {
                let what = format!("a change was cut off, and can't be taken back from {shown}: {why}");
                return Err(Failure::about(&self.name, what));
            }
        }
        place.remove().map_err(|error| Failure::about(shown, error))
    }

    fn is_clean(&self) -> bool {
        platfs::read_superblock(&*self.device)
            .is_ok_and(|raw| raw.s_state.get() & (STATE_VALID | STATE_ERROR) == STATE_VALID)
    }

    /// Writes a change, with the way back beside the image until it is stable; `keep` gets a copy that stays.
    ///
    /// # Errors
    /// The way back can't be written, and nothing is; the image can't be written, and the way back stays.
    pub fn write(&self, change: &Change, keep: Option<&Path>) -> Result<(), Failure> {
        if change.is_empty() {
            return Ok(());
        }
        let _stoppable = stop::stoppable();
        let _busy = stop::busy();
        let save = |path: &Path| {
            undo::save(path, change.staged()).map_err(|error| {
                let path = Shown(path.as_os_str().as_encoded_bytes());
                Failure::about(&self.name, format!("nothing was written: {path}: {error}"))
            })
        };
        if let Some(path) = keep {
            save(path)?;
        }
        if !change.is_atomic() {
            save(&self.beside)?;
        }
        change.apply().map_err(|error| {
            let how =
                if change.is_atomic() { "" } else { "; the same command takes it back and begins again" };
            Failure::about(&self.name, format!("{error}{how}"))
        })?;
        if !change.is_atomic() {
            let shown = Shown(self.beside.as_os_str().as_encoded_bytes()).to_string();
            let removed = OutputLocation::of(&self.beside).and_then(|place| place.remove());
            removed.map_err(|error| Failure::about(shown, error))?;
        }
        Ok(())
    }
}
