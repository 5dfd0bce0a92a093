//! Reading the contents of files while they are written, moved and cut.
//!
//! Three things are looked at, in this order: the map, the device, what is dirty in memory. A version
//! shows whether blocks that the map named left the file meanwhile (they may hold bytes of another file
//! by then), or whether bytes went from memory to the device behind the reader's back; then it begins
//! again (I20).

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{InodeNumber, saturated};

use super::attrs::file_type;
use crate::bytes;
use crate::crypt;
use crate::error::{Error, Result};
use crate::map::Segment;
use crate::ranges::ByteRange;
use crate::tx::View;
use crate::volume::{VersionedInode, Volume};
use crate::{file, inline};

/// Looks before a reader keeps writers of the file out.
const TRIES: u32 = 32;

/// Where bytes of a file lie, as of one moment.
enum DataLocation {
    Inside(Vec<u8>),
    Mapped(Vec<Segment>),
}

impl Volume {
    /// Reads from a regular file at an offset; returns how many bytes, fewer than asked only at the
    /// end of file.
    ///
    /// # Errors
    /// Not a regular file; a broken map; the device's failure.
    pub fn read_at(&self, number: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if !self.space.is_writable() {
            return self.read_once(number, offset, buffer);
        }
        let versions = self.cache.versions();
        for _ in 0..TRIES {
            let version = versions.moved(number);
            let done = self.read_once(number, offset, buffer);
            if versions.moved(number) == version {
                return done;
            }
        }
        let file = self.session.delayed.enter(number);
        let _alone = file.close();
        self.read_once(number, offset, buffer)
    }

    fn read_once(&self, number: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut seen = VersionedInode::read(self, number)?;
        let location = seen.seqlock_read(|view, node| match file_type(node)? {
            FileType::Regular if crypt::is_locked(view.blocks, view.format, node)? => Err(Error::Locked),
            FileType::Regular => data_location(view, node, offset, buffer.len()),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("only regular files can be read".into())),
        })?;
        let left = saturated::<usize>(seen.node().size().saturating_sub(offset));
        let stored = left.min(buffer.len());
        fetch(self.view(), seen.node(), &location, offset, bytes::part_mut(buffer, 0..stored)?)?;
        // Bytes in memory are newer than those on the device, and go over them; the file may end behind its stored size.
        let Some(file) = self.session.delayed.find(number) else { return Ok(stored) };
        let state = file.state();
        let left = saturated::<usize>(state.pages.end().saturating_sub(offset));
        let len = stored.max(left.min(buffer.len()));
        bytes::part_mut(buffer, stored..len)?.fill(0);
        state.pages.read(offset, bytes::part_mut(buffer, 0..len)?);
        Ok(len)
    }
}

/// Where bytes of an inode lie.
fn data_location(view: View<'_>, node: &Inode, offset: u64, len: usize) -> Result<DataLocation> {
    let end = node.size().min(offset.saturating_add(len as u64));
    if node.flags().contains(InodeFlags::INLINE_DATA) && offset < end {
        return Ok(DataLocation::Inside(inline::contents(node)?));
    }
    let blocks = ByteRange::new(offset, end.max(offset)).outer(view.format.geometry.block_size);
    let segments =
        if offset < end { view.map(node).segments(blocks).collect::<Result<_>>()? } else { Vec::new() };
    Ok(DataLocation::Mapped(segments))
}

/// Reads what was found.
fn fetch(
    view: View<'_>,
    node: &Inode,
    location: &DataLocation,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    match location {
        DataLocation::Inside(contents) => {
            file::fill(buffer, contents, offset);
            Ok(())
        }
        DataLocation::Mapped(segments) => {
            let contents = view.contents(node);
            contents.read_segments(segments.iter().copied().map(Ok), offset, buffer)
        }
    }
}
