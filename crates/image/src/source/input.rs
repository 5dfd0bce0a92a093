//! Archives at known places: a whole file, bytes in memory, or a section of one, read without a file position.

use crate::archive::Input;
use ondisk::units::saturated;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Where bytes are kept.
#[derive(Debug)]
enum Bytes {
    /// A file of the host.
    File(File),
    /// A file of our own, without a name.
    Spool(File),
    Memory(Vec<u8>),
}

/// A range of bytes of a file or in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct Section {
    bytes: Arc<Bytes>,
    base: u64,
    len: u64,
}

impl Section {
    /// All of a regular file, as long as it is now.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn whole(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { bytes: Arc::new(Bytes::File(file)), base: 0, len })
    }

    /// A spool of `len` bytes.
    pub(super) fn spooled(file: File, len: u64) -> Self {
        Self { bytes: Arc::new(Bytes::Spool(file)), base: 0, len }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        Self { bytes: Arc::new(Bytes::Memory(bytes)), base: 0, len }
    }

    /// `len` bytes from `offset` of this section; `None` if they are not all inside.
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let inside = offset.checked_add(len)? <= self.len;
        let base = self.base.checked_add(offset)?;
        inside.then(|| Self { bytes: Arc::clone(&self.bytes), base, len })
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The file that holds the bytes; `None` if they are in memory.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &*self.bytes {
            Bytes::File(file) | Bytes::Spool(file) => Some(file),
            Bytes::Memory(_) => None,
        }
    }

    /// The file of the host in which the section lies; none if it was unpacked, or is in memory.
    pub(super) fn host_file(&self) -> Option<&File> {
        match &*self.bytes {
            Bytes::File(file) => Some(file),
            Bytes::Spool(_) | Bytes::Memory(_) => None,
        }
    }

    /// A stream over the section.
    pub(super) fn stream(&self) -> SectionStream {
        SectionStream { section: self.clone(), offset: 0 }
    }
}

impl Input for Section {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let position = self.base.saturating_add(offset);
        match &*self.bytes {
            Bytes::File(file) | Bytes::Spool(file) => file.read_exact_at(buf, position),
            Bytes::Memory(bytes) => bytes.as_slice().read_exact_at(position, buf),
        }
    }
}

/// Reads a section from its beginning.
#[derive(Debug)]
pub(super) struct SectionStream {
    section: Section,
    offset: u64,
}

impl io::Read for SectionStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = saturated::<usize>(self.section.len - self.offset);
        let len = buf.len().min(left);
        let buf = buf.get_mut(..len).unwrap_or_default();
        let read = match &*self.section.bytes {
            Bytes::File(file) | Bytes::Spool(file) => {
                file.read_at(buf, self.section.base.saturating_add(self.offset))?
            }
            Bytes::Memory(_) => self.section.read_exact_at(self.offset, buf).map(|()| len)?,
        };
        self.offset += read as u64;
        Ok(read)
    }
}
