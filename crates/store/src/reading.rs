//! A volume of a store as a device that is only read, as it is at one moment.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use platfs_device::Device;

use crate::ahead::Ahead;
use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::format::map::LEAF_SPAN;
use crate::replay::replay;
use crate::store::Store;
use crate::view::{Reader, View, fill, inside, wanted};

/// Bytes that are looked at first for a change from data to holes, or back.
const FIRST_SPAN: u64 = 64 << 10;

/// A volume that is read: lazily, each byte verified.
pub struct Stored {
    view: View,
    reader: Arc<Reader>,
    ahead: Ahead,
    manifest: Manifest,
}

impl Stored {
    /// Opens the volume of that name as its manifest and its log have it now.
    ///
    /// # Errors
    /// [`Error::NoVolume`](crate::Error::NoVolume); damage; the store's.
    pub fn open(store: &Arc<Store>, name: &str) -> Result<Self> {
        let (manifest, _) = store.named(name)?;
        Self::with_manifest(store, manifest)
    }

    /// The volume of a manifest.
    ///
    /// # Errors
    /// Damage of its log; the store's.
    pub fn with_manifest(store: &Arc<Store>, manifest: Manifest) -> Result<Self> {
        let mut view = View::new(store, &manifest);
        let reader = Arc::new(Reader::new(Arc::clone(store)));
        replay(store, &manifest, &mut view, &reader, false)?;
        let ahead = Ahead::new(Arc::clone(&reader), manifest.size);
        Ok(Stored { view, reader, ahead, manifest })
    }

    /// Has bytes fetched that will be read soon, all at once and in the background. What can't be fetched fails when it
    /// is read.
    pub fn will_read(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let end = range.end.min(self.manifest.size);
            if let Ok(runs) = self.view.pieces(range.start.min(end), end.saturating_sub(range.start)) {
                self.ahead.fetch(wanted(&runs));
            }
        }
    }

    /// Bytes of the store's objects that were read so far, compressed as they are there.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.reader.taken()
    }

    /// Where what is stored from `offset` on changes to something, or to nothing; looked for in one leaf of the map, by
    /// steps that double, so that it takes no longer than the way is long.
    fn changes_from(&self, offset: u64, to_something: bool) -> Option<u64> {
        let end = self.manifest.size.min((offset / LEAF_SPAN + 1) * LEAF_SPAN);
        let (mut at, mut span) = (offset, FIRST_SPAN);
        while at < end {
            let len = span.min(end - at);
            let runs = self.view.pieces(at, len).ok()?;
            if let Some((start, ..)) = runs.iter().find(|(_, _, place)| place.is_some() == to_something) {
                return Some(*start);
            }
            at += len;
            span = span.saturating_mul(2);
        }
        Some(at)
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
        let runs = self.view.pieces(offset, buffer.len() as u64)?;
        // What lies in several objects is fetched from all of them at once.
        self.ahead.fetch(wanted(&runs).skip(1));
        if let Some(behind) = self.ahead.behind(offset, buffer.len() as u64) {
            self.will_read(&[behind]);
        }
        Ok(fill(&self.reader, &runs, buffer, self.manifest.size)?)
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the volume is open for reading only"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn data_from(&self, offset: u64) -> u64 {
        self.changes_from(offset, true).unwrap_or(offset)
    }

    fn hole_from(&self, offset: u64) -> u64 {
        self.changes_from(offset, false).unwrap_or(self.manifest.size)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use platfs_device::MemoryDevice;

    use super::*;
    use crate::cache::Cache;
    use crate::objects::{Memory, Patience};
    use crate::pushing::{Push, push};

    #[test]
    fn what_is_not_stored_is_known_to_be_nothing() {
        let device = MemoryDevice::new(5 << 30);
        for at in [3 << 20, (4 << 30) - 1] {
            device.write_at(at, &[1]).unwrap();
        }
        let store = Arc::new(Store::new(Arc::new(Memory::new()) as _, Patience::default(), None));
        let pushed = push(&store, &device, "one", &Push::default()).unwrap();
        assert_eq!(pushed.chunks, 2);
        let volume = Stored::open(&store, "one").unwrap();
        let (mut at, mut data) = (0, Vec::new());
        while at < volume.size() {
            let start = volume.data_from(at);
            assert!(start >= at && volume.hole_from(at) > at || start > at);
            if start == at {
                let end = volume.hole_from(at);
                data.push(at..end);
                at = end;
            } else {
                at = start;
            }
        }
        let chunk = 512 << 10;
        let last = (4_u64 << 30) - chunk;
        assert_eq!(data, [3 << 20..(3 << 20) + chunk, last..4 << 30]);
        let pieces = crate::Pieces::new(&volume, chunk);
        let with_data = std::iter::from_fn(|| pieces.take()).filter(|piece| {
            let mut bytes = vec![0; usize::try_from(chunk).unwrap()];
            volume.read_at(piece.start, &mut bytes).unwrap();
            bytes.iter().any(|byte| *byte != 0)
        });
        assert_eq!(with_data.collect::<Vec<_>>(), data);
    }

    #[test]
    fn what_the_cache_has_is_not_fetched_ahead() {
        let (directory, objects) = (tempfile::tempdir().unwrap(), Arc::new(Memory::new()));
        let device = MemoryDevice::new(8 << 20);
        (0..8_u8).for_each(|at| device.write_at(u64::from(at) << 20, &vec![at + 1; 1 << 20]).unwrap());
        let open = || {
            let cache = Cache::new(directory.path().to_owned(), 1 << 30);
            let store = Store::new(Arc::clone(&objects) as _, Patience::default(), Some(cache));
            Arc::new(store)
        };
        push(&open(), &device, "one", &Push::default()).unwrap();
        let mut bytes = vec![0; 8 << 20];
        let read = |volume: &Stored, bytes: &mut [u8]| {
            volume.will_read(std::slice::from_ref(&(0..8 << 20)));
            volume.read_at(0, bytes).unwrap();
            volume.ahead.threads()
        };
        assert!(read(&Stored::open(&open(), "one").unwrap(), &mut bytes) > 0);
        assert_eq!(read(&Stored::open(&open(), "one").unwrap(), &mut bytes), 0);
        assert!(bytes.chunks(1 << 20).zip(1..).all(|(part, at)| part.iter().all(|byte| *byte == at)));
    }
}
