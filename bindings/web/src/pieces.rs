//! A disk that is read in large pieces, of which the last are kept: a call into the browser costs as much as copying
//! hundreds of kilobytes.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use platfs::device::Device;

/// Bytes of a piece.
const PIECE: u64 = 64 << 10;
/// Most pieces that are kept.
const KEPT: usize = 512;

/// Where bytes come from.
pub trait Source: Send + Sync {
    /// Bytes there are.
    fn size(&self) -> u64;

    /// Fills a buffer from a place that lies inside.
    ///
    /// # Errors
    /// Why it could not.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A source as a device that can't be written.
pub struct Pieces<S> {
    source: S,
    kept: Mutex<CachedPieces>,
}

#[derive(Default)]
struct CachedPieces {
    /// The bytes of a piece by its number, and when they were last wanted.
    pieces: HashMap<u64, (u64, Box<[u8]>)>,
    clock: u64,
}

impl CachedPieces {
    fn drop_oldest(&mut self) {
        let oldest = self.pieces.iter().min_by_key(|(_, (used, _))| *used).map(|(number, _)| *number);
        if let Some(number) = oldest {
            self.pieces.remove(&number);
        }
    }
}

impl<S: Source> Pieces<S> {
    /// A device on a source.
    pub fn new(source: S) -> Self {
        Pieces { source, kept: Mutex::default() }
    }

    /// Copies what lies in one piece.
    fn copy(&self, number: u64, from: usize, to: &mut [u8]) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        if !kept.pieces.contains_key(&number) {
            let start = number * PIECE;
            let len = PIECE.min(self.source.size().saturating_sub(start));
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)].into_boxed_slice();
            self.source.read(start, &mut bytes)?;
            if kept.pieces.len() >= KEPT {
                kept.drop_oldest();
            }
            kept.pieces.insert(number, (now, bytes));
        }
        let piece = kept.pieces.get_mut(&number).ok_or(io::ErrorKind::UnexpectedEof)?;
        piece.0 = now;
        let bytes = piece.1.get(from..from + to.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(bytes);
        Ok(())
    }
}

impl<S: Source> Device for Pieces<S> {
    fn size(&self) -> u64 {
        self.source.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size());
        let end = end.ok_or_else(|| {
            let what = format!("{} bytes at {offset} are behind the end ({})", buffer.len(), self.size());
            io::Error::new(io::ErrorKind::UnexpectedEof, what)
        })?;
        if buffer.len() as u64 >= PIECE {
            return self.source.read(offset, buffer);
        }
        let (mut at, mut rest) = (offset, buffer);
        while at < end {
            let (number, from) = (at / PIECE, at % PIECE);
            let len = usize::try_from((PIECE - from).min(end - at)).unwrap_or(0);
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(len);
            self.copy(number, usize::try_from(from).unwrap_or(0), part)?;
            at += len as u64;
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the image is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Bytes that say where they are, and count how often they are asked for.
    struct Numbers(u64, AtomicUsize);

    fn number(at: u64) -> u8 {
        (at / 251 % 256).to_le_bytes()[0]
    }

    impl Source for Numbers {
        fn size(&self) -> u64 {
            self.0
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            assert!(offset + buffer.len() as u64 <= self.0);
            buffer.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = number(at));
            Ok(())
        }
    }

    #[test]
    fn any_range_is_read_and_pieces_are_read_once() {
        let size = 3 * PIECE + 1000;
        let disk = Pieces::new(Numbers(size, AtomicUsize::new(0)));
        for (at, len) in [(0, 1), (PIECE - 3, 7), (size - 5, 5), (10, 2 * PIECE), (PIECE, 0), (0, size)] {
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            disk.read_at(at, &mut bytes).unwrap();
            assert!(bytes.iter().zip(at..).all(|(byte, at)| *byte == number(at)), "{len} at {at}");
        }
        // The first three took pieces 0, 1 and 3; two were too large to be kept.
        assert_eq!(disk.source.1.load(Ordering::Relaxed), 5);
        assert!(disk.read_at(size, &mut [0]).is_err() && disk.read_at(u64::MAX, &mut [0, 0]).is_err());
        assert!(disk.write_at(0, &[1]).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let count = KEPT as u64 + 20;
        let disk = Pieces::new(Numbers(count * PIECE, AtomicUsize::new(0)));
        (0..count).for_each(|piece| disk.read_at(piece * PIECE, &mut [0]).unwrap());
        assert_eq!(disk.kept.lock().unwrap().pieces.len(), KEPT);
        disk.read_at((count - 1) * PIECE, &mut [0]).unwrap();
        assert_eq!(disk.source.1.load(Ordering::Relaxed), KEPT + 20);
    }
}
