//! Archives at known places: a whole file, or a section of one, read without a file position.

use crate::archive::Input;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A range of a file's bytes. Clones share the open file.
#[derive(Clone, Debug)]
pub struct Section {
    file: Arc<File>,
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
        Ok(Self { file: Arc::new(file), base: 0, len })
    }

    /// `len` bytes from `offset` of this section; `None` if they are not all inside.
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let inside = offset.checked_add(len)? <= self.len;
        let base = self.base.checked_add(offset)?;
        inside.then(|| Self { file: Arc::clone(&self.file), base, len })
    }

    /// The open file, for copies inside the kernel.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where in the file the byte `offset` of the section lies.
    #[must_use]
    pub fn position(&self, offset: u64) -> u64 {
        self.base.saturating_add(offset)
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// A stream over the section.
    #[must_use]
    pub fn stream(&self) -> SectionStream {
        SectionStream { section: self.clone(), offset: 0 }
    }
}

impl Input for Section {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, self.position(offset))
    }
}

/// Reads a section from its beginning.
#[derive(Debug)]
pub struct SectionStream {
    section: Section,
    offset: u64,
}

impl io::Read for SectionStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.section.len - self.offset).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let read = self
            .section
            .file
            .read_at(buf.get_mut(..len).unwrap_or_default(), self.section.position(self.offset))?;
        self.offset += read as u64;
        Ok(read)
    }
}
