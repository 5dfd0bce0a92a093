//! One open file: reads, writes and seeks.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use ondisk::units::InodeNumber;

use super::handle::Node;
use crate::dirty::ErrorCursor;
use crate::error::Result;
use crate::ops::{Metadata, WriteOptions};
use crate::volume::Volume;

/// An open regular file of an image. It reads, and writes if the image was opened for writing; what it holds stays
/// until it is dropped, even if it loses its name.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// let image = platfs::Image::in_memory(8 << 20)?;
/// let mut file = image.create("/notes")?;
/// file.write_all(b"first, second")?;
/// file.seek(SeekFrom::Start(7))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "second");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    node: Node,
    position: u64,
    /// Up to which failed write-back it has reported.
    reported: Mutex<ErrorCursor>,
}

impl File {
    /// Of an inode that is a regular file.
    pub(super) fn new(node: Node) -> Self {
        let reported = Mutex::new(node.volume().inode(node.number()).error_cursor());
        File { node, position: 0, reported }
    }

    fn volume(&self) -> &Volume {
        self.node.volume()
    }

    /// Its inode number, for the verbs of [`Volume`].
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// let file = image.create("/large")?;
    /// image.volume().allocate(file.inode(), platfs::Allocate::KeepSize, 0, 1 << 20)?;
    /// assert!(file.metadata()?.sectors >= 2048);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.node.number()
    }

    /// Its metadata.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// assert_eq!(image.file("/a")?.metadata()?.size, 3);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// A broken inode; the device's failure.
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume().metadata(self.inode())
    }

    /// Reads at an offset; returns how many bytes, fewer than asked only at the end of the file. The position stays.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"0123456789")?;
    /// let mut bytes = [0; 4];
    /// assert_eq!(image.file("/a")?.read_at(8, &mut bytes)?, 2);
    /// assert_eq!(&bytes[..2], b"89");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.volume().read_at(self.inode(), offset, buffer)
    }

    /// Writes all bytes at an offset. The position stays.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"0123456789")?;
    /// image.file("/a")?.write_at(2, b"--")?;
    /// assert_eq!(image.read("/a")?, b"01--456789");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::NotPermitted`](crate::Error::NotPermitted) by its flags,
    /// [`Error::NoSpace`](crate::Error::NoSpace); broken structures; the device's failure.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.volume().write_at(self.inode(), offset, data, WriteOptions::default())
    }

    /// Cuts it, or makes it longer by a hole.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"0123456789")?;
    /// image.file("/a")?.set_len(4)?;
    /// assert_eq!(image.read("/a")?, b"0123");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`]; [`Error::FileTooLarge`](crate::Error::FileTooLarge).
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.volume().truncate(self.inode(), size)
    }

    /// Makes it stable: all that was written to it outlives a crash.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.file("/a")?.sync_all()?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device's failure, also an earlier one by which bytes of this file were lost; each handle reports it once.
    pub fn sync_all(&self) -> Result<()> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        self.volume().inode(self.inode()).sync_opened(&mut reported)
    }

    /// Makes its bytes stable, and all that is needed to read them again; its times may be older after a crash. Cheaper
    /// than [`File::sync_all`] where bytes were written over others.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// let file = image.file("/a")?;
    /// file.write_at(1, b"B")?;
    /// file.sync_data()?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        self.volume().inode(self.inode()).sync_opened_data(&mut reported)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_at(self.position, data)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    /// Nothing waits in the handle; [`File::sync_all`] makes bytes stable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.metadata()?.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
