//! Contents of files by inode number: a reader, and a writer to which the size can be given.

use std::io::{self, Read, Seek, SeekFrom, Write};

use ondisk::inode::{FileType, Inode, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::changing::change;
use super::extents::FileMap;
use super::flush::WriteBack;
use super::handles::Pin;
use super::resize::Reshape;
use super::rules::{self, Operation};
use crate::bytes;
use crate::error::{Error, Result};
use crate::file;
use crate::map::Segment;
use crate::ranges::in_parts;
use crate::volume::{VersionedInode, Volume};

/// A file, open to read.
///
/// ```
/// # use platfs::{Volume, Result};
/// # use std::io::Read;
/// # fn show(volume: &Volume) -> Result<(), Box<dyn std::error::Error>> {
/// let mut text = String::new();
/// volume.open_file(volume.resolve(b"/etc/os-release")?)?.read_to_string(&mut text)?;
/// # Ok(())
/// # }
/// ```
pub struct Reader<'v> {
    volume: &'v Volume,
    inode: Inode,
    size: u64,
    position: u64,
    _pin: Pin<'v>,
}

impl<'v> Reader<'v> {
    /// Bytes of contents, when the file was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads at an offset; returns how many bytes, fewer than asked only at the end of file.
    ///
    /// # Errors
    /// A broken map; the device's failure.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if self.volume.space.is_writable() {
            // The file may have changed since it was opened.
            return self.volume.read_at(self.inode.number(), offset, buffer);
        }
        self.volume.view().contents(&self.inode).read(offset, buffer)
    }

    /// First byte and number of bytes of a stretch of this file, cut at the file's end.
    #[must_use]
    pub fn bytes_of(&self, segment: &Segment) -> (u64, u64) {
        let log2 = self.volume.format.geometry.block_size.log2();
        let start = u64::from(segment.logical.0) << log2;
        (start, (segment.count << log2).min(self.size().saturating_sub(start)))
    }

    /// The stretches of the file's map up to its size, in file order. Contents kept in the inode
    /// have none.
    #[must_use]
    pub fn segments(&self) -> FileMap<'v> {
        let end = self.volume.format.blocks_for(self.size);
        let inode = WriteBack::new(self.volume)
            .written_back(self.inode.number())
            .unwrap_or_else(|| self.inode.clone());
        FileMap::new(VersionedInode::unversioned(self.volume, inode), end)
    }

    /// The flags of its inode.
    #[must_use]
    pub fn flags(&self) -> ondisk::inode::InodeFlags {
        self.inode.flags()
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

/// Writes into a regular file. Space is taken ahead, up to the size that was announced; what was
/// taken and not used goes back when the writer is dropped.
pub struct Writer<'v> {
    volume: &'v Volume,
    inode: InodeNumber,
    announced: u64,
    /// Where the data that is being written ends and a hole begins: space is taken ahead up to here.
    stretch: u64,
    ahead: file::Allocation,
    position: u64,
    _pin: Pin<'v>,
}

impl Writer<'_> {
    /// Says that the data written next goes on up to `end`, and that a hole or the end of the file
    /// follows. Without it all data up to the announced size is expected, and space is taken ahead
    /// for it, which sparse files would never use.
    pub fn begin_stretch(&mut self, end: u64) {
        if end != self.stretch {
            self.ahead = file::Allocation::default();
            self.stretch = end;
        }
    }

    /// Writes all of `data` at an offset.
    ///
    /// # Errors
    /// No space, a file larger than its map can hold, a broken map, the device's failure. The file
    /// is then as before, but for data in blocks that it already had.
    pub fn write_all_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if self.volume.session.is_loading() {
            return self.write_alone(offset, data);
        }
        let volume = self.volume;
        let block = u64::from(volume.format.geometry.block_size.bytes());
        let end = offset.saturating_add(data.len() as u64);
        Reshape::new(volume, self.inode).alone(|| {
            in_parts(offset..end, block, u64::MAX, |part| {
                let inside = bytes::length(part.start - offset)?..bytes::length(part.end - offset)?;
                self.write_alone(part.start, bytes::part(data, inside)?)
            })
        })
    }

    fn write_alone(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let (volume, number, announced) = (self.volume, self.inode, self.announced);
        let end = offset.saturating_add(data.len() as u64);
        let hint = file::WriteHint { end: self.stretch.max(end), growing: end > announced, reserved: false };
        let ahead = &mut self.ahead;
        let mut again = false;
        change(volume, |tx| {
            if std::mem::replace(&mut again, true) {
                // What the dropped update used of it is free again, and the best place.
                *ahead = file::Allocation::default();
            }
            let mut node = tx.inode(number)?;
            rules::may(&node, Operation::Write { offset, overwrites: false })?;
            if !volume.session.is_loading() {
                tx.lose_privileges(&mut node, false)?;
            }
            let complete = offset == 0 && node.size() == 0 && end >= announced;
            tx.contents(&mut node).write_any(ahead, (offset, data), &hint, complete)?;
            tx.touch(&mut node, &[TimeField::Modify, TimeField::Change]);
            tx.note_size(node.size());
            tx.note_map(&node);
            tx.store(&mut node)
        })
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.ahead = file::Allocation::default();
        if self.volume.session.handles.forget_writer(self.inode) {
            self.volume.space.closed(self.inode);
        }
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_all_at(self.position, data)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Volume {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// A directory, link or special file; a broken inode; [`Error::Locked`] for one whose key is not known.
    pub fn open_file(&self, number: InodeNumber) -> Result<Reader<'_>> {
        let _pin = self.pin(number)?;
        let size = self.metadata(number)?.size;
        let inode = self.view().inode(number)?;
        match file_type(&inode)? {
            FileType::Regular if self.inode(number).is_locked()? => Err(Error::Locked),
            FileType::Regular => Ok(Reader { volume: self, inode, size, position: 0, _pin }),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only regular files can be read".into())),
        }
    }

    /// Opens a regular file for writing. `announced` is the size it is going to have, or 0 if that
    /// is not known; a known size is laid out as a whole.
    ///
    /// # Errors
    /// Not a regular file; a volume open for reading only.
    pub fn writer(&self, number: InodeNumber, announced: u64) -> Result<Writer<'_>> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        let _pin = self.pin(number)?;
        let inode = self.view().inode(number)?;
        if file_type(&inode)? != FileType::Regular {
            return Err(Error::Invalid("only regular files can be written".into()));
        }
        rules::may(&inode, Operation::Open { append: true })?;
        let ahead = file::Allocation::default();
        self.session.handles.add_writer(number);
        Ok(Writer { volume: self, inode: number, announced, stretch: announced, ahead, position: 0, _pin })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Not a symbolic link; a target longer than a block allows; a broken map.
    pub fn read_link(&self, number: InodeNumber) -> Result<Vec<u8>> {
        VersionedInode::read(self, number)?.seqlock_read(|view, inode| {
            if file_type(inode)? != FileType::Symlink {
                return Err(Error::Invalid("not a symbolic link".into()));
            }
            view.contents(inode).link_target()
        })
    }
}
