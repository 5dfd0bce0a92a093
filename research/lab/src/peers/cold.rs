//! How long a program such as `tar c` would read a whole volume with nothing cached, on a drive in model time: what
//! layout alone is worth to its user. Every ext volume is read by the same reader, in the order of its directories. Excludes how
//! things lie (`census`), and what drives cost ([`crate::drive`]).

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ondisk::inode::FileType;
use platfs::device::{Device, FileDevice};
use platfs::{OpenOptions, Volume};

use super::census::each_entry;
use crate::drive::{Drive, ModelDevice};
use crate::numbers::float;

/// The drives, and the figures' names.
pub(super) const DRIVES: [(&str, &str); 2] =
    [("sata-2010", "cold read, disk s"), ("sata-ssd", "cold read, flash s")];

/// Bytes that a file is read by, as Linux reads ahead.
const AHEAD: usize = 128 << 10;

/// Bytes of metadata that the reader keeps.
const KEPT: u64 = 32 << 20;

/// An image whose reads take the time of a drive.
struct Timed {
    image: FileDevice,
    drive: ModelDevice,
}

impl Device for Timed {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // The drive knows how long, the image what.
        self.drive.read_at(offset, buffer)?;
        self.image.read_at(offset, buffer)
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Seconds in which all of an ext image is read on each of [`DRIVES`].
///
/// # Errors
/// It can't be read.
pub(super) fn figures(image: &Path) -> Result<Vec<(&'static str, f64)>, String> {
    let time = |(drive, name): (&str, &'static str)| {
        let nanoseconds = read(image, Drive::named(drive)?)?;
        Ok((name, float(nanoseconds) / 1e9))
    };
    DRIVES.into_iter().map(time).collect()
}

fn read(image: &Path, drive: &'static Drive) -> Result<u64, String> {
    let failure = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let file = File::open(image).map_err(|error| failure(&error))?;
    let file = FileDevice::new(file).map_err(|error| failure(&error))?;
    let timed = Arc::new(Timed { drive: ModelDevice::new(file.size(), drive), image: file });
    let device: Arc<dyn Device> = timed.clone();
    let volume = Volume::open(device, &OpenOptions::new().cache(KEPT)).map_err(|error| failure(&error))?;
    timed.drive.start();
    everything(&volume).map_err(|error| failure(&error))?;
    Ok(timed.drive.now())
}

/// Reads what `tar c` reads: each directory, and each entry's inode and bytes; hard links once.
fn everything(volume: &Volume) -> platfs::Result<()> {
    let mut seen = BTreeSet::new();
    let mut buffer = vec![0; AHEAD];
    each_entry(volume, &mut |number, file_type| {
        let facts = volume.metadata(number)?;
        if file_type != FileType::Regular || !seen.insert(number) {
            return Ok(());
        }
        let mut at = 0;
        while at < facts.size {
            let rest = usize::try_from(facts.size - at).unwrap_or(AHEAD).min(AHEAD);
            let piece = buffer.get_mut(..rest).unwrap_or_default();
            volume.read_at(number, at, piece)?;
            at += rest as u64;
        }
        Ok(())
    })
}
