//! The partition of a volume that gets another size: it takes the room behind it, or ends behind its volume, and the file
//! of the disk with it.
//!
//! Owns: which disks that is done to. Excludes: the table (`platfs_device`), and the volume.

use std::ffi::OsStr;

use platfs::device::Device;
use platfs::device::partitions::Growth;
use platfs_host::{Kind, path};
use platfs_image::named::{grown, shrunk};

use crate::console::Failure;
use crate::door;
use crate::image::{self, ImageError, Part};
use crate::reading::open_device;

/// New size of a partition.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// All that is free behind it.
    Grow,
    /// So many bytes, rounded up.
    Shrink(u64),
}

/// Where a partition and its disk end.
pub(super) struct Ends {
    /// Bytes of the partition.
    pub(super) bytes: u64,
    /// Bytes of the disk.
    pub(super) disk: u64,
}

impl Ends {
    fn of(growth: &Growth) -> Self {
        Ends { bytes: growth.partition.size, disk: growth.needed }
    }
}

fn failed(name: &OsStr) -> impl Fn(&dyn std::fmt::Display) -> Failure {
    move |error| Failure::about(image::shown(name), error.to_string())
}

/// Plans the new table.
fn table(name: &OsStr, disk: &dyn Device, change: Change) -> Result<Growth, Failure> {
    let spec = image::parse(name);
    let planned = match change {
        Change::Grow => grown(&spec, disk),
        Change::Shrink(bytes) => shrunk(&spec, disk, bytes),
    };
    planned.map_err(|error| failed(name)(&ImageError::from(error)))
}

/// The path of the disk of a partition.
fn disk_of(name: &OsStr, change: Change) -> Result<std::path::PathBuf, Failure> {
    let spec = image::parse(name);
    if matches!(spec.part, Part::Whole | Part::From(_)) {
        let option = if matches!(change, Change::Grow) { "--grow-partition" } else { "--shrink-partition" };
        let what = format!("{option} takes a partition of an image: {}@part1", image::shown(name));
        return Err(Failure::Usage(what));
    }
    Ok(spec.path)
}

/// Refuses a name for which there is nothing to change, before anything is done.
pub(super) fn refuse_others(name: &OsStr, change: Change) -> Result<(), Failure> {
    let path = disk_of(name, change)?;
    let is_device = path::facts(&path).is_ok_and(|facts| facts.kind != Kind::File);
    if is_device {
        let what = "partitions of a disk that the kernel has are changed by its own tools (growpart, parted)";
        return Err(failed(name)(&what));
    }
    Ok(())
}

/// Plans the change of the table; nothing is changed.
pub(super) fn planned(name: &OsStr, change: Change) -> Result<Ends, Failure> {
    let disk = open_device(disk_of(name, change)?.as_os_str())?;
    Ok(Ends::of(&table(name, &*disk, change)?))
}

/// Changes the table, and cuts the file behind what is needed then.
pub(super) fn change(name: &OsStr, change: Change) -> Result<Ends, Failure> {
    refuse_others(name, change)?;
    let failed = failed(name);
    let alone = door::Alone::open(disk_of(name, change)?.as_os_str()).map_err(|error| failed(&error))?;
    let end =
        alone.is_growable().then(|| alone.file().try_clone()).transpose().map_err(|error| failed(&error))?;
    let disk = alone.into_device().map_err(|error| failed(&error))?;
    let growth = table(name, &*disk, change)?;
    growth.write(&*disk).map_err(|error| failed(&error))?;
    if let Some(file) = end.filter(|_| growth.needed < disk.size()) {
        file.set_len(growth.needed).map_err(|error| failed(&error))?;
    }
    Ok(Ends::of(&growth))
}
