//! A device of which some places can't be read: zeros stand for these, and are noted.
//!
//! Owns: the search for what can't be read, to the sector, and its ranges. Excludes whether they are told. Only for copies
//! of a device as it is: zeros must not be taken for structures of a volume.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use platfs::device::Device;

use platfs_open::locks::locked;

/// The least that devices read alone.
const SECTOR: u64 = 512;
/// Ranges that are noted; behind more the device fails.
const RANGES: usize = 100_000;

/// A device that only reads.
pub struct Forgiving {
    under: Arc<dyn Device>,
    unread: Mutex<Vec<(Range<u64>, String)>>,
}

impl Forgiving {
    /// Reads `under`.
    pub fn new(under: Arc<dyn Device>) -> Self {
        Forgiving { under, unread: Mutex::default() }
    }

    /// True as long as everything could be read.
    pub fn is_whole(&self) -> bool {
        locked(&self.unread).is_empty()
    }

    /// Ranges that could not be read, rising, each with the reason.
    pub fn unread(&self) -> Vec<(Range<u64>, String)> {
        locked(&self.unread).clone()
    }

    /// Adds a sector to the ranges, which stay rising and apart.
    fn note(&self, sector: Range<u64>, error: &io::Error) -> io::Result<()> {
        let mut unread = locked(&self.unread);
        let at = unread.partition_point(|(range, _)| range.start <= sector.start);
        if let Some((before, _)) = at.checked_sub(1).and_then(|before| unread.get_mut(before))
            && before.end >= sector.start
        {
            before.end = before.end.max(sector.end);
            return Ok(());
        }
        if unread.len() >= RANGES {
            return Err(io::Error::other(format!("more than {RANGES} places of the device can't be read")));
        }
        unread.insert(at, (sector, error.to_string()));
        Ok(())
    }
}

impl Device for Forgiving {
    fn size(&self) -> u64 {
        self.under.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let len = buffer.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.size()) {
            return self.under.read_at(offset, buffer);
        }
        let whole = offset..offset + len;
        let mut open = vec![whole];
        while let Some(part) = open.pop() {
            let at = usize::try_from(part.start - offset).unwrap_or(usize::MAX);
            let end = usize::try_from(part.end - offset).unwrap_or(usize::MAX);
            let Some(piece) = buffer.get_mut(at..end) else { continue };
            let Err(error) = self.under.read_at(part.start, piece) else { continue };
            let middle = (part.start + (part.end - part.start) / 2).next_multiple_of(SECTOR);
            if middle > part.start && middle < part.end {
                open.extend([middle..part.end, part.start..middle]);
            } else {
                piece.fill(0);
                self.note(part, &error)?;
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platfs::device::MemoryDevice;

    /// Fails in the sectors from 3 to 5, and 40.
    struct Bad(MemoryDevice);

    impl Device for Bad {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let (first, end) = (offset / SECTOR, (offset + buffer.len() as u64).div_ceil(SECTOR));
            match (first..end).any(|sector| matches!(sector, 3..=5 | 40)) {
                true => Err(io::Error::other("a bad sector")),
                false => self.0.read_at(offset, buffer),
            }
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, data)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_bad_sectors_are_zeros() {
        let device = Forgiving::new(Arc::new(Bad(MemoryDevice::from_bytes(&[7; 64 * 512]))));
        assert!(device.is_whole());
        let mut bytes = vec![1; 64 * 512];
        for _ in 0..2 {
            device.read_at(0, &mut bytes).unwrap();
        }
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            let wanted = if matches!(sector, 3..=5 | 40) { 0 } else { 7 };
            assert!(bytes.iter().all(|byte| *byte == wanted), "sector {sector}");
        }
        let ranges: Vec<_> = device.unread().into_iter().map(|(range, _)| range).collect();
        assert_eq!(ranges, [1536..3072, 20480..20992]);
        assert!(device.read_at(64 * 512, &mut bytes).is_err(), "behind the end");
    }
}
