//! Reading the contents of files while they are written, moved and cut.
//!
//! Three things are looked at, in this order: the map, the device, what is dirty in memory. A version
//! tells whether blocks that the map named left the file meanwhile (they may hold bytes of another file
//! by then), or whether bytes went from memory to the device behind the reader's back; then it begins
//! anew (I20).

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use crate::error::{Error, Result};
use crate::map::{Segment, Segments, State};
use crate::volume::Volume;
use crate::{file, inline};

/// Looks before a reader keeps writers of the file out.
const TRIES: u32 = 32;

/// Where bytes of a file lie, as of one moment.
struct Plan {
    /// Bytes of the file.
    size: u64,
    place: Place,
}

enum Place {
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
        let plan = self.steady(number, || {
            let node = self.load(number)?;
            match file_type(&node)? {
                FileType::Regular => self.plan(&node, offset, buffer.len()),
                FileType::Directory => Err(Error::IsDirectory),
                _ => Err(Error::Invalid("only regular files can be read".into())),
            }
        })?;
        let left = usize::try_from(plan.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let stored = left.min(buffer.len());
        self.fetch(number, &plan, offset, buffer.get_mut(..stored).unwrap_or_default())?;
        let Some(file) = self.session.delayed.find(number) else { return Ok(stored) };
        let state = file.state();
        let left = usize::try_from(state.pages.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = stored.max(left.min(buffer.len()));
        buffer.get_mut(stored..len).unwrap_or_default().fill(0);
        state.pages.read(offset, buffer.get_mut(..len).unwrap_or_default());
        Ok(len)
    }

    fn plan(&self, node: &Inode, offset: u64, len: usize) -> Result<Plan> {
        let size = node.size();
        let end = size.min(offset.saturating_add(len as u64));
        if node.flags().contains(InodeFlags::INLINE_DATA) && offset < end {
            return Ok(Plan { size, place: Place::Inside(inline::contents(node)?) });
        }
        let log2 = self.format.geometry.block_size.log2();
        let segments = if offset < end {
            let last = ((end - 1) >> log2) + 1;
            Segments::new(&*self.cache, &self.format, node, offset >> log2, last).collect::<Result<_>>()?
        } else {
            Vec::new()
        };
        Ok(Plan { size, place: Place::Mapped(segments) })
    }

    fn fetch(&self, number: InodeNumber, plan: &Plan, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let segments = match &plan.place {
            Place::Inside(contents) => {
                file::fill(buffer, contents, offset);
                return Ok(());
            }
            Place::Mapped(segments) => segments,
        };
        let log2 = self.format.geometry.block_size.log2();
        let end = offset + buffer.len() as u64;
        let mut rest = buffer;
        let mut at = offset;
        for segment in segments {
            let start = u64::from(segment.logical.0) << log2;
            let stop = (start + (segment.count << log2)).min(end);
            let len = usize::try_from(stop - at).unwrap_or(usize::MAX).min(rest.len());
            let (piece, later) = rest.split_at_mut(len);
            match segment.state {
                State::Hole | State::Unwritten(_) => piece.fill(0),
                State::Mapped(block) => {
                    let place = self.format.geometry.byte_offset(block) + (at - start);
                    let read = self.cache.read_data(place, piece);
                    read.map_err(|source| Error::io(format!("reading inode {number} at {at}"), source))?;
                }
            }
            rest = later;
            at = stop;
        }
        // Behind the last block a map can hold nothing was ever written.
        rest.fill(0);
        Ok(())
    }
}
