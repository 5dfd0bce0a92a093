//! Contents of files by inode number, for callers that keep no writer: reading, writing, making stable.

use ondisk::inode::{FileType, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::rules;
use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::{file, inode};

/// How bytes are written, beside where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// The times of the file stay: the caller sets them.
    pub keep_times: bool,
    /// Set-user-id and set-group-id bits go, as the rules for changed files say.
    pub drop_special_bits: bool,
}

impl Volume {
    /// Reads from a regular file at an offset; returns how many bytes, fewer than asked only at the
    /// end of file.
    ///
    /// # Errors
    /// Not a regular file; a broken map; the device's failure.
    pub fn read_at(&self, number: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let node = self.load(number)?;
        match file_type(&node)? {
            FileType::Regular => file::read_at(self, &node, offset, buffer),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only regular files can be read".into())),
        }
    }

    /// Writes all bytes into a regular file at an offset, of which nobody need have announced anything.
    ///
    /// # Errors
    /// Not a regular file, one that can't be changed, an end over what the map can hold, no space;
    /// broken structures; the device's failure.
    pub fn write_at(
        &self,
        number: InodeNumber,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let hint = file::WriteHint { end, growing: true };
        self.change(|update| {
            let mut node = self.load(number)?;
            if file_type(&node)? != FileType::Regular {
                return Err(Error::Invalid("only regular files can be written".into()));
            }
            rules::may_write(&node, offset)?;
            let mut ahead = file::Ahead::default();
            file::write_at_any(self, update, &mut node, &mut ahead, (offset, data), &hint, false)?;
            if options.drop_special_bits {
                let kept = rules::without_special_bits(node.raw().i_mode.get());
                node.raw_mut().i_mode.set(kept);
            }
            if !options.keep_times {
                self.touch(&mut node, &[TimeField::Modify, TimeField::Change]);
            }
            self.note_size(node.size());
            self.note_map(&node);
            inode::store(update, &self.format, &self.space, &mut node)
        })
    }

    /// Makes a file stable. `data_only` leaves out what is not needed to read the bytes again.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn sync_inode(&self, _number: InodeNumber, _data_only: bool) -> Result<()> {
        self.sync()
    }

    /// One more user of an inode, as [`Volume::pin`], for callers that count by themselves; each is
    /// ended by [`Volume::release`].
    ///
    /// # Errors
    /// As [`Volume::pin`].
    pub fn retain(&self, number: InodeNumber) -> Result<()> {
        if self.handles.pin(number) { Ok(()) } else { Err(Error::NotFound) }
    }

    /// So many users of an inode less.
    pub fn release(&self, number: InodeNumber, times: u64) {
        (0..times).for_each(|_| self.handles.unpin(number));
    }
}
