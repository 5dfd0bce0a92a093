//! Where the bytes of a file lie, as another process asks a mount for it.
//!
//! Owns: the form of question and answer, asking, and answering from a volume. Excludes how places are shown.
//!
//! The question is the form's version, four bytes of zeros, and the first file block that is asked for (64 bits). The
//! answer is the version, a count of places and flags (32 bits each), the size of blocks (32 bits), the size of the
//! file (64 bits), and the places: first file block, first disk block, and count, each of 64 bits. All numbers are
//! little-endian.

use std::fs::File;
use std::io;

use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, InodeNumber};
use platfs::{State, Volume};
use rustix::io::Errno;

/// The number of the question, in which the length of the answer stands.
pub(in crate::mount) const PLACES: u32 = 0xfff0_706d;
/// Bytes of question and answer.
const LEN: usize = 0x3ff0;
const VERSION: u32 = 1;
const HEAD: usize = 24;
const EACH: usize = 24;
/// Places in one answer.
const MOST: usize = (LEN - HEAD) / EACH;
/// Flags: there are more places behind the last; the contents are in the inode.
const MORE: u32 = 1;
const INSIDE: u32 = 2;
/// In a count: allocated, but reads as zeros.
const UNWRITTEN: u64 = 1 << 63;

/// File blocks that lie together on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// First file block.
    pub logical: u64,
    /// First disk block.
    pub start: Block,
    /// Blocks.
    pub count: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// A part of what a file's map says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of the file.
    pub size: u64,
    /// The contents are in the inode.
    pub inside: bool,
    /// Places, in the order of the file.
    pub places: Vec<Place>,
    /// There are more behind the last.
    more: bool,
}

/// The first place of a file from a file block on, as [`Part`] of an answer.
///
/// # Errors
/// Why there is none, without the name of the file.
pub fn of(file: &File) -> Result<Part, String> {
    let mut all = Part::default();
    let mut from = 0;
    loop {
        let part = ask(file, from).map_err(|error| why(&error))?.ok_or("the answer can't be understood")?;
        let next = part.places.last().map(|place| place.logical.saturating_add(place.count));
        (all.block_size, all.size, all.inside) = (part.block_size, part.size, part.inside);
        all.places.extend(part.places);
        match next {
            Some(next) if part.more && next > from => from = next,
            _ => return Ok(all),
        }
    }
}

/// Returns true if a file lies in a mount that answers.
#[must_use]
pub fn knows(file: &File) -> bool {
    ask(file, u64::MAX).is_ok()
}

fn ask(file: &File, from: u64) -> io::Result<Option<Part>> {
    let mut room = [0; LEN];
    let question = [u64::from(VERSION), from].map(u64::to_le_bytes);
    room[..16].copy_from_slice(question.as_flattened());
    Ok(Part::decode(&fuse::exchange::<PLACES, LEN>(file, room)?))
}

fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            "not in a mount by this version of `plat mount`".to_owned()
        }
        _ => error.to_string(),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied()
}

impl Part {
    fn decode(bytes: &[u8]) -> Option<Part> {
        let word = |at| number(bytes, at).map(u32::from_le_bytes);
        let long = |at| number(bytes, at).map(u64::from_le_bytes);
        let (count, flags) = (usize::try_from(word(4)?).ok()?, word(8)?);
        if word(0)? != VERSION || count > MOST {
            return None;
        }
        let place = |index: usize| {
            let at = HEAD + index * EACH;
            let (logical, start, count) = (long(at)?, Block(long(at + 8)?), long(at + 16)?);
            Some(Place { logical, start, count: count & !UNWRITTEN, unwritten: count & UNWRITTEN != 0 })
        };
        Some(Part {
            block_size: word(12)?,
            size: long(16)?,
            inside: flags & INSIDE != 0,
            more: flags & MORE != 0,
            places: (0..count).map(place).collect::<Option<_>>()?,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let flags = u32::from(self.more) * MORE + u32::from(self.inside) * INSIDE;
        let count = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let head = [VERSION, count, flags, self.block_size].map(u32::to_le_bytes);
        let mut bytes = head.as_flattened().to_vec();
        bytes.extend(self.size.to_le_bytes());
        for place in &self.places {
            let count = place.count | if place.unwritten { UNWRITTEN } else { 0 };
            bytes.extend([place.logical, place.start.0, count].map(u64::to_le_bytes).as_flattened());
        }
        bytes
    }
}

/// The answer to a question; `None` if that is of another form.
///
/// # Errors
/// A broken map; the device's failure.
pub(in crate::mount) fn answer(
    volume: &Volume,
    inode: InodeNumber,
    question: &[u8],
) -> platfs::Result<Option<Vec<u8>>> {
    let version = number(question, 0).map(u32::from_le_bytes);
    let Some(from) = number(question, 8).map(u64::from_le_bytes).filter(|_| version == Some(VERSION)) else {
        return Ok(None);
    };
    let facts = volume.metadata(inode)?;
    let mut part = Part {
        block_size: volume.format().geometry.block_size.bytes(),
        size: facts.size,
        inside: facts.flags.contains(InodeFlags::INLINE_DATA),
        ..Part::default()
    };
    if !matches!(facts.file_type, FileType::Regular | FileType::Directory) {
        return Ok(Some(part.encode()));
    }
    for segment in volume.map(inode)?.starting_at(from) {
        let segment = segment?;
        let (start, unwritten) = match segment.state {
            State::Hole => continue,
            State::Mapped(start) => (start, false),
            State::Unwritten(start) => (start, true),
        };
        if part.places.len() == MOST {
            part.more = true;
            break;
        }
        let logical = u64::from(segment.logical.0);
        part.places.push(Place { logical, start, count: segment.count, unwritten });
    }
    Ok(Some(part.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written_and_nothing_else_is() {
        let place = |logical| Place { logical, start: Block(9), count: 5, unwritten: logical % 2 == 1 };
        let places = (0..MOST as u64).map(place).collect();
        let part = Part { block_size: 1024, size: 1 << 40, inside: false, places, more: true };
        let mut bytes = part.encode();
        assert!(bytes.len() <= LEN);
        assert_eq!(Part::decode(&bytes), Some(part));
        assert_eq!(Part::decode(&bytes[..bytes.len() - 1]), None);
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Part::decode(&bytes), None);
        assert_eq!(Part::decode(&[2; LEN]), None);
        assert_eq!(Part::decode(&[]), None);
    }
}
