//! A volume of a store as a device that is only read, as it is at one moment.

use std::io;
use std::sync::Arc;

use platfs_device::Device;

use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::replay::replay;
use crate::store::Store;
use crate::view::{Reader, View, inside};

/// A volume that is read: lazily, each byte verified.
pub struct Stored {
    view: View,
    reader: Reader,
    manifest: Manifest,
}

impl Stored {
    /// Opens the volume of that name as its manifest and its log have it now.
    ///
    /// # Errors
    /// [`Error::NoVolume`](crate::Error::NoVolume); damage; the store's.
    pub fn open(store: &Arc<Store>, name: &str) -> Result<Self> {
        let (manifest, _) = store.named(name)?;
        Self::of(store, manifest)
    }

    /// The volume of a manifest.
    ///
    /// # Errors
    /// Damage of its log; the store's.
    pub fn of(store: &Arc<Store>, manifest: Manifest) -> Result<Self> {
        let mut view = View::new(store, &manifest);
        let reader = Reader::new(Arc::clone(store));
        replay(store, &manifest, (&mut view, &reader), false)?;
        Ok(Stored { view, reader, manifest })
    }

    /// The manifest that it was opened by.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

impl Device for Stored {
    fn size(&self) -> u64 {
        self.manifest.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        inside(self.manifest.size, offset, buffer.len() as u64, io::ErrorKind::UnexpectedEof)?;
        Ok(self.view.read(&self.reader, offset, buffer, self.manifest.size)?)
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the volume is open for reading only"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard_unit(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
