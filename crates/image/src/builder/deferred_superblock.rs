//! A device that gets its superblock last (I5).
//!
//! A file appears whole by renaming; a block device or partition can't. Here the old superblock is
//! wiped first and the new one is kept back until everything else is written, so that whatever ends
//! the build leaves nothing that could be mistaken for a volume.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use platfs::device::{Device, Protection};
use platfs::ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};

const RANGE: Range<u64> = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64;

/// The device below, without its superblock.
pub(super) struct DeferredSuperblock {
    inner: Arc<dyn Device>,
    superblock: Mutex<[u8; SUPERBLOCK_LEN]>,
}

/// The part of an access that falls on the superblock: in the access, and in the superblock.
fn overlap(offset: u64, len: usize) -> Option<(Range<usize>, Range<usize>)> {
    let start = offset.max(RANGE.start);
    let end = offset.checked_add(len as u64)?.min(RANGE.end);
    let at = |place: u64, base: u64| usize::try_from(place - base).ok();
    if start >= end {
        return None;
    }
    let access = at(start, offset)?..at(end, offset)?;
    Some((access, at(start, RANGE.start)?..at(end, RANGE.start)?))
}

impl DeferredSuperblock {
    /// Wipes the old superblock.
    ///
    /// # Errors
    /// The device's failure.
    pub(super) fn new(inner: Arc<dyn Device>) -> io::Result<Self> {
        let size = inner.size();
        if size >= RANGE.end {
            inner.write_at(RANGE.start, &[0; SUPERBLOCK_LEN])?;
            inner.flush()?;
        }
        Ok(DeferredSuperblock { inner, superblock: Mutex::new([0; SUPERBLOCK_LEN]) })
    }

    fn held(&self) -> MutexGuard<'_, [u8; SUPERBLOCK_LEN]> {
        self.superblock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the superblock, once all else is stable.
    ///
    /// # Errors
    /// The device's failure.
    pub(super) fn release(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.inner.write_at(RANGE.start, &*self.held())?;
        self.inner.flush()
    }
}

impl Device for DeferredSuperblock {
    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)?;
        if let Some((access, held)) = overlap(offset, buffer.len()) {
            buffer[access].copy_from_slice(&self.held()[held]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let Some((access, held)) = overlap(offset, data.len()) else {
            return self.inner.write_at(offset, data);
        };
        self.held()[held].copy_from_slice(&data[access.clone()]);
        let (before, behind) = (&data[..access.start], &data[access.end..]);
        if !before.is_empty() {
            self.inner.write_at(offset, before)?;
        }
        if behind.is_empty() { Ok(()) } else { self.inner.write_at(RANGE.end, behind) }
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platfs::device::MemoryDevice;

    #[test]
    fn the_superblock_comes_last_and_reads_see_it_before() {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&[7; 8192]));
        let device = DeferredSuperblock::new(Arc::clone(&memory)).unwrap();
        let data: Vec<u8> = (0..4096_u32).map(|i| i.to_le_bytes()[0] | 1).collect();
        device.write_at(0, &data).unwrap();
        device.write_at(1500, &[9; 10]).unwrap();
        let mut expected = data.clone();
        expected[1500..1510].fill(9);
        let mut seen = vec![0; 4096];
        device.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
        memory.read_at(0, &mut seen).unwrap();
        assert_eq!(seen[1024..2048], [0; 1024]);
        assert_eq!((&seen[..1024], &seen[2048..]), (&data[..1024], &data[2048..]));
        device.release().unwrap();
        memory.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, expected);
    }
}
