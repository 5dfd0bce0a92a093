//! A device together with what keeps others off it.
//!
//! Owns: their common life. Excludes what is held: locks of files, volumes of stores.

use std::io;
use std::sync::Arc;

use platfs::device::{Device, Protection};

/// A device, and what keeps others off it while it lives.
pub(crate) struct Kept<H> {
    // Dropped first: the mark in it is cleared while others are kept off.
    inner: Arc<dyn Device>,
    _held: H,
}

impl<H> Kept<H> {
    pub(crate) fn new(inner: Arc<dyn Device>, held: H) -> Self {
        Kept { inner, _held: held }
    }
}

impl<H: Send + Sync> Device for Kept<H> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        self.inner.lengthen(to)
    }

    fn shorten(&self, to: u64) -> io::Result<()> {
        self.inner.shorten(to)
    }

    fn data_from(&self, offset: u64) -> u64 {
        self.inner.data_from(offset)
    }

    fn hole_from(&self, offset: u64) -> u64 {
        self.inner.hole_from(offset)
    }

    fn zero_fast(&self, offset: u64, len: u64, keeps: bool) -> io::Result<()> {
        self.inner.zero_fast(offset, len, keeps)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        self.inner.discard_unit()
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.write_zeros(offset, len)
    }
}
