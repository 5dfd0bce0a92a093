//! Opening the image of a mount: for writing where it was asked for or is possible, else for reading,
//! and the warnings that go with it.

use std::ffi::OsStr;
use std::sync::Arc;

use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use platfs::device::{Device, SnapshotDevice};
use platfs::placement::Placing;
use platfs::{Key, OpenOptions, Volume, WriteOrder};

use super::error::{MountError, Why};
use super::options::MountOptions;
use crate::refusal::Refusal;
use platfs_image::clock;
use platfs_open::door::{self, Shared};
use platfs_open::explain::{no_superblock, not_writable};
use platfs_open::image::{self, ImageError};
use platfs_open::keys;
use platfs_open::memory;
use platfs_open::precheck;
use platfs_open::stores;

/// An image, open.
pub struct Opened {
    /// The volume.
    pub volume: Volume,
    /// The name of the image, as it is shown.
    pub name: String,
    /// It can be written.
    pub writable: bool,
    /// Warnings about the volume.
    pub warnings: Vec<String>,
    /// Keeps writers off while only this reads.
    pub shared: Option<Shared>,
    /// The device, where it is written: snapshots of it can be taken.
    pub keeping: Option<Arc<SnapshotDevice>>,
    /// The volume of a store below, where it is written; closed behind the volume.
    pub stored: stores::Written,
}

/// Opens an image as the options say.
///
/// # Errors
/// It is in use; it can't be read; `rw` was asked for and can't be had; what Linux would refuse to mount.
pub fn open(name: &OsStr, options: &MountOptions) -> Result<Opened, MountError> {
    let shown = image::shown(name).to_string();
    let mut warnings = Vec::new();
    let about = |why: Why| MountError { subject: shown.clone(), why };
    let keys = options
        .keys
        .iter()
        .map(|key| keys::read(OsStr::new(key), &mut |warning| warnings.push(format!("key {warning}"))));
    let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|error| about(error.into()))?;
    if !keys.is_empty() && options.read_write {
        return Err(about("keys are for reading: mount it with `ro`".into()));
    }
    if let Some(is_local) = options.flush_locally {
        if !stores::is_meant(name) {
            return Err(about("mount option `flush` is for volumes of stores".into()));
        }
        stores::flush_locally(is_local);
    }
    if let Some(limit) = options.patience {
        if !stores::is_meant(name) {
            return Err(about("mount option `patience` is for volumes of stores".into()));
        }
        stores::wait_at_most(limit);
    }
    if !options.read_only && keys.is_empty() {
        // Notes on volumes that this thread opened before are not about this one.
        drop(stores::notes());
        match open_to_write(name, options) {
            Ok((volume, keeping, stored)) => {
                warnings.extend(stores::notes());
                warnings.extend(options.warnings());
                warnings.extend(of_placement(&volume, options));
                warnings.extend(of_quota(&volume));
                let (name, keeping) = (shown, Some(keeping));
                return Ok(Opened { volume, name, writable: true, warnings, shared: None, keeping, stored });
            }
            Err(NotWritten::InUse(why)) => return Err(about(why.into())),
            Err(NotWritten::Else(why)) if options.read_write => return Err(about(why.into())),
            Err(NotWritten::Else(why)) => warnings.push(format!("mounted for reading only: {why}")),
        }
    }
    let shared = Some(door::share(name).map_err(|error| about(error.into()))?);
    let volume = open_to_read(name, options.noload, &keys).map_err(|why| about(remedied(why, name)))?;
    warnings.extend(what_to_know(&volume));
    Ok(Opened {
        volume,
        name: shown,
        writable: false,
        warnings,
        shared,
        keeping: None,
        stored: stores::Written::default(),
    })
}

fn open_to_read(name: &OsStr, noload: bool, keys: &[Key]) -> Result<Volume, Why> {
    let device = image::open_read(name)?;
    Volume::open(Arc::clone(&device), &OpenOptions::new().noload(noload).keys(keys))
        .map_err(|error| no_superblock(&*device, &image::shown(name).to_string(), &error).into())
}

/// Why an image is not open for writing.
enum NotWritten {
    /// Somebody else has it: it can't be read in peace either.
    InUse(ImageError),
    /// It could be read.
    Else(String),
}

/// A volume that is written, its device for snapshots, and the volume of a store below it.
type ToWrite = (Volume, Arc<SnapshotDevice>, stores::Written);

/// Opens an image for writing; the error says why that can't be.
fn open_to_write(name: &OsStr, options: &MountOptions) -> Result<ToWrite, NotWritten> {
    if options.noload {
        return Err(NotWritten::Else("`noload` is for reading".into()));
    }
    let device = door::open_write(name).map_err(|error| match error {
        ImageError::InUse(_) => NotWritten::InUse(error),
        error => NotWritten::Else(error.to_string()),
    })?;
    let stored = if stores::is_meant(name) { stores::take_last() } else { stores::Written::default() };
    let now = clock::now();
    let shown = image::shown(name).to_string();
    precheck::sound(options.check, &device, &shown, now).map_err(NotWritten::Else)?;
    let seed = now.seconds.cast_unsigned().rotate_left(32) ^ u64::from(now.nanoseconds);
    let delay = if options.delay { delay(memory::of_machine().unwrap_or(0), memory::limit()) } else { 0 };
    let mut how = OpenOptions::new().write(true).now(now).seed(seed).ordering(order(&*device, options));
    // The kernel sends no request when a file is closed, since opening one needs none.
    how = how.expect_closes(false).delay(delay).discard(options.discard).data(options.data);
    how = how.limits(options.limits).placing(options.placing.clone());
    if let Some(blocks) = options.stripe {
        how = how.stripe(blocks);
    }
    let keeping = Arc::new(SnapshotDevice::new(device));
    let volume = Volume::open(Arc::clone(&keeping) as Arc<dyn Device>, &how)
        .map_err(|error| NotWritten::Else(not_writable(&*keeping, &shown, &error)))?;
    Ok((volume, keeping, stored))
}

/// In which order changes reach the device. What is to be stable at once is so in phases where there is no journal, if
/// the volume is one that soft updates know an order for.
fn order(device: &dyn Device, options: &MountOptions) -> WriteOrder {
    let is_plain = |raw: RawSuperblock| {
        let features = raw.features();
        let disordered = Incompat::INLINE_DATA | Incompat::EA_INODE;
        !features.compat.contains(Compat::HAS_JOURNAL) && !features.incompat.intersects(disordered)
    };
    let at_once = (options.sync || options.sync_names) && options.ordering == WriteOrder::default();
    if at_once && platfs::read_superblock(device).is_ok_and(is_plain) {
        return WriteOrder::Softdep;
    }
    options.ordering
}

/// Bytes that may wait in memory. Where the memory of this process is limited a sixteenth of that: what it needs otherwise
/// does not shrink with it.
fn delay(machine: u64, limit: Option<u64>) -> u64 {
    let suggested = OpenOptions::suggested_delay(machine);
    limit.map_or(suggested, |limit| suggested.min(limit / 16))
}

/// A failure to open, with the remedy if it is the journal's.
fn remedied(why: Why, name: &OsStr) -> Why {
    match why {
        Why::Said(why) if open_to_read(name, true, &[]).is_ok_and(|volume| volume.needs_recovery()) => {
            let words = format!("{why}; `-o ro,noload` mounts it without what its journal holds");
            Why::Said(Refusal { words, ..why })
        }
        why => why,
    }
}

/// Warnings about placement that is asked for and can't be had.
fn of_placement(volume: &Volume, options: &MountOptions) -> Vec<String> {
    let mut warnings = Vec::new();
    let kept = match platfs::placing::stored(volume) {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            warnings.push(format!("what the volume says of its placement counts for nothing: {error}"));
            Placing::default()
        }
        Err(_) => Placing::default(),
    };
    let policy = options.placing.over(&kept).completed().blocks.unwrap_or_default().row();
    if options.stripe.is_some() && policy.tunables.iter().all(|tunable| tunable.name != "stripe") {
        let (name, with) = (policy.name, "`alloc=mballoc` aligns by it");
        warnings.push(format!("mount option `stripe` has no effect with `alloc={name}`; {with}"));
    }
    warnings
}

/// Warnings about the files of quota after a crash.
fn of_quota(volume: &Volume) -> Vec<String> {
    let mended = volume.quota().mended();
    let words = mended.into_iter().map(|(kind, problem)| {
        format!("the quota file of {kind}s was damaged ({problem}): it is made again where there is room, with the limits that can be read")
    });
    words.collect()
}

/// Warnings that Linux would give.
fn what_to_know(volume: &Volume) -> Vec<String> {
    let raw = volume.superblock();
    let mut warnings = Vec::new();
    if let Some(recovery) = volume.recovery() {
        let warning = match recovery.missing() {
            Some(missing) => format!("{missing}; what that says is not seen"),
            None => format!("was not cleanly unmounted; its journal is replayed in memory: {recovery}"),
        };
        warnings.push(warning);
    }
    if volume.needs_recovery() {
        warnings.push("mounted without what its journal holds: files may be old or damaged".into());
    }
    if raw.s_state.get() & STATE_ERROR != 0 {
        warnings.push("marked as having errors; `plat check -n` shows more".into());
    } else if raw.s_state.get() & STATE_VALID == 0 && !volume.needs_recovery() {
        warnings.push("was not cleanly unmounted; `plat check -n` shows more".into());
    }
    let orphans = raw.s_last_orphan.get() != 0 || volume.format().has_ro_compat(RoCompat::ORPHAN_PRESENT);
    if orphans && !volume.needs_recovery() {
        warnings.push("has files that were deleted while open, and are not cleaned up".into());
    }
    warnings
}
