//! A part of another device: a partition inside a disk image.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::{Device, Protection, check_range};
use ondisk::units::saturated;

/// A range of bytes of another device, addressed from zero.
pub struct Window {
    inner: Arc<dyn Device>,
    start: u64,
    size: u64,
}

impl Window {
    /// The `size` bytes from `start` on.
    ///
    /// # Errors
    /// `InvalidInput` if the range leaves the device.
    pub fn new(inner: Arc<dyn Device>, start: u64, size: u64) -> io::Result<Self> {
        match start.checked_add(size) {
            Some(end) if end <= inner.size() => Ok(Window { inner, start, size }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{size} bytes at {start} leave the device of {} bytes", inner.size()),
            )),
        }
    }
}

impl Device for Window {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(self.size, offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        self.inner.read_at(self.start + offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.size, offset, data.len(), io::ErrorKind::WriteZero)?;
        self.inner.write_at(self.start + offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let checked = saturated::<usize>(len);
        check_range(self.size, offset, checked, io::ErrorKind::WriteZero)?;
        self.inner.discard(self.start + offset, len)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        self.inner.discard_unit()
    }

    fn data_from(&self, offset: u64) -> u64 {
        match self.start.checked_add(offset).filter(|_| offset < self.size) {
            Some(at) => self.inner.data_from(at).saturating_sub(self.start).clamp(offset, self.size),
            None => offset,
        }
    }

    fn hole_from(&self, offset: u64) -> u64 {
        match self.start.checked_add(offset).filter(|_| offset < self.size) {
            Some(at) => self.inner.hole_from(at).saturating_sub(self.start).clamp(offset, self.size),
            None => self.size,
        }
    }

    fn zero_fast(&self, offset: u64, len: u64, keeps: bool) -> io::Result<()> {
        let checked = saturated::<usize>(len);
        check_range(self.size, offset, checked, io::ErrorKind::WriteZero)?;
        self.inner.zero_fast(self.start + offset, len, keeps)
    }

    fn lies_in(&self) -> Option<(&File, u64)> {
        let (file, begin) = self.inner.lies_in()?;
        Some((file, begin.checked_add(self.start)?))
    }

    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let checked = saturated::<usize>(len);
        check_range(self.size, offset, checked, io::ErrorKind::WriteZero)?;
        self.inner.write_zeros(self.start + offset, len)
    }
}
