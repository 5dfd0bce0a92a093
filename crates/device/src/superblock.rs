//! Reading the primary superblock, and which volumes this code can't read at all.

use ondisk::corrupt::Place;
use ondisk::features::{Features, Incompat};
use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};

use crate::{Device, Error, Result};

/// Reads the primary superblock of a device.
///
/// # Errors
/// The device's failure, or bytes that are no superblock.
pub fn read_superblock(device: &dyn Device) -> Result<RawSuperblock> {
    if device.size() < SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64 {
        return Err(Error::corrupt(
            Place::Superblock,
            format!("the device ends before it, after {} bytes", device.size()),
        ));
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    device
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|source| Error::io("reading the superblock", source))?;
    Ok(RawSuperblock::parse(&bytes)?)
}

/// Refuses volumes whose features say that they can't even be read.
///
/// # Errors
/// [`Error::Unsupported`] names the features.
pub fn refuse_unreadable(features: Features) -> Result<()> {
    let unknown = features.unreadable();
    if unknown.contains(Incompat::JOURNAL_DEV) {
        return Err(Error::Unsupported("this is an external journal, not a file system".into()));
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let names = Features { incompat: unknown, ..Features::default() }.names().join(", ");
    Err(Error::Unsupported(format!("the volume uses features that can't be read: {names}")))
}

/// The facts of a superblock that reading takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) geometry: Geometry,
    pub(crate) features: Features,
    pub(crate) sealer: Sealer,
}

impl Format {
    /// Takes the facts from a superblock.
    ///
    /// # Errors
    /// Whatever contradicts itself in the geometry.
    pub(crate) fn from_superblock(raw: &RawSuperblock) -> Result<Self> {
        let geometry = Geometry::from_superblock(raw)?;
        Ok(Format { geometry, features: raw.features(), sealer: Sealer::from_superblock(raw) })
    }
}
