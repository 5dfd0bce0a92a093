//! A device with changes that wait in memory. Excludes their way to the device ([`super::apply`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::copies::Copies;
use super::slices::as_index;
use ondisk::invariant;
use platfs_device::{Device, Error, Protection};

/// Bytes of a piece in which changes are kept: the smallest block there is.
pub(super) const PIECE: usize = 1024;

/// Makes the error of a failed edit: repairs take more memory than they may, or what they edit can't be read.
pub(super) fn staging(what: &'static str) -> impl Fn(io::Error) -> Error + Copy {
    move |source| Error::io(format!("staging {what}"), source)
}

fn too_much() -> io::Error {
    io::Error::other("the repairs do not fit into the memory they may take")
}

/// Lays what a piece has over bytes that were read from `offset` on.
fn lay_over(offset: u64, buffer: &mut [u8], piece: u64, bytes: &[u8]) {
    let (start, end) = (piece * PIECE as u64, offset.saturating_add(buffer.len() as u64));
    let (from, until) = (start.max(offset), (start + PIECE as u64).min(end));
    let inside = |at: u64, base: u64| as_index(at - base);
    if let (Some(to), Some(from)) = (
        buffer.get_mut(inside(from, offset)..inside(until, offset)),
        bytes.get(inside(from, start)..inside(until, start)),
    ) {
        to.copy_from_slice(from);
    }
}

/// Runs of copies that take as much memory as a piece.
const RUNS_PER_PIECE: u64 = 16;

/// The pieces that differ from the device.
pub(super) type Pieces = BTreeMap<u64, Box<[u8; PIECE]>>;

/// A device as it is after changes that were not written to it yet. Reads see the changes.
pub struct Staged {
    pub(super) base: Arc<dyn Device>,
    pub(super) pieces: RwLock<Pieces>,
    /// Pieces that become what others are on the device, where no piece of its own says otherwise.
    pub(super) copies: RwLock<Copies>,
    /// Pieces of blocks that had no owner before; see [`Staged::note_fresh`].
    pub(super) fresh: RwLock<BTreeSet<u64>>,
    /// Pieces that say that all is well; see [`Staged::note_last`].
    pub(super) last: RwLock<BTreeSet<u64>>,
    /// True if there are pieces at all: most checks find none, and read without a lock.
    any: AtomicBool,
    most: u64,
}

impl Staged {
    /// The device without changes, of which `memory` bytes at most may come.
    #[must_use]
    pub fn new(base: Arc<dyn Device>, memory: u64) -> Self {
        Staged {
            base,
            pieces: RwLock::default(),
            copies: RwLock::default(),
            fresh: RwLock::default(),
            last: RwLock::default(),
            any: AtomicBool::new(false),
            most: memory / PIECE as u64,
        }
    }

    /// Notes that a range (of whole blocks) had no owner before the repairs: what is staged there
    /// reaches the device before anything that refers to it.
    pub(super) fn note_fresh(&self, offset: u64, len: u64) {
        let mut fresh = self.fresh.write().unwrap_or_else(PoisonError::into_inner);
        fresh.extend(offset / PIECE as u64..(offset + len).div_ceil(PIECE as u64));
    }

    /// Says that what is staged in a range reaches the device after everything else, beside the
    /// superblock: a log that is empty from then on.
    pub(super) fn note_last(&self, offset: u64, len: u64) {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        last.extend(offset / PIECE as u64..(offset + len).div_ceil(PIECE as u64));
    }

    /// Returns true if nothing was changed.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Offsets of what was changed, rising: of pieces of 1,024 bytes.
    #[must_use]
    pub fn offsets(&self) -> Vec<u64> {
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let all: BTreeSet<u64> =
            pieces.keys().copied().chain(copies.iter().map(|(piece, _)| piece)).collect();
        all.into_iter().map(|piece| piece * PIECE as u64).collect()
    }

    /// Offsets and new bytes of what was changed, rising; each inside one piece of 1,024 bytes.
    ///
    /// # Errors
    /// The source of a copy can't be read any more.
    pub fn changes(&self) -> io::Result<Vec<(u64, Box<[u8; PIECE]>)>> {
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeMap<u64, Box<[u8; PIECE]>> = pieces.clone();
        for (piece, from) in copies.iter().filter(|(piece, _)| !pieces.contains_key(piece)) {
            all.insert(piece, self.piece_from_base(from)?);
        }
        Ok(all.into_iter().map(|(piece, bytes)| (piece * PIECE as u64, bytes)).collect())
    }

    /// Stages a range as what another is now, both of whole pieces. No bytes are kept where both ranges are as on the
    /// device.
    ///
    /// # Errors
    /// As reads and writes.
    pub(super) fn copy(&self, from: u64, to: u64, len: usize) -> io::Result<()> {
        let mut bytes = vec![0; len];
        self.read_at(from, &mut bytes)?;
        let (first, target) = (from / PIECE as u64, to / PIECE as u64);
        let count = (len / PIECE) as u64;
        let mut copies = self.copies.write().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let is_untouched = |start: u64| {
            pieces.range(start..start + count).next().is_none()
                && copies.within(start..start + count).next().is_none()
        };
        if !(is_untouched(first) && is_untouched(target)) {
            drop((pieces, copies));
            return self.write_at(to, &bytes);
        }
        if pieces.len() as u64 + copies.runs() as u64 / RUNS_PER_PIECE >= self.most {
            return Err(too_much());
        }
        (0..count).for_each(|at| copies.insert(target + at, first + at));
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// A piece as it is before pieces of its own: a copy, or what the device has.
    fn piece_below(&self, copies: &Copies, piece: u64) -> io::Result<Box<[u8; PIECE]>> {
        self.piece_from_base(copies.source(piece).unwrap_or(piece))
    }

    /// Reads copies over what was read of the device.
    fn read_copies(
        &self,
        copies: &Copies,
        touched: Range<u64>,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        for (piece, from) in copies.within(touched) {
            lay_over(offset, buffer, piece, &self.piece_from_base(from)?[..]);
        }
        Ok(())
    }

    pub(super) fn piece_from_base(&self, piece: u64) -> io::Result<Box<[u8; PIECE]>> {
        let mut bytes = Box::new([0; PIECE]);
        let start = piece * PIECE as u64;
        let len = usize::try_from(self.base.size().saturating_sub(start)).unwrap_or(PIECE).min(PIECE);
        self.base.read_at(start, invariant!(bytes.get_mut(..len), "a piece is as long as its buffer"))?;
        Ok(bytes)
    }
}

impl Device for Staged {
    /// Writes stay in this process until they are applied.
    fn protection(&self) -> Protection {
        Protection::Alone
    }

    fn size(&self) -> u64 {
        self.base.size()
    }

    fn data_from(&self, offset: u64) -> u64 {
        let base = self.base.data_from(offset);
        if self.is_unchanged() {
            return base;
        }
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let first = offset / PIECE as u64;
        let copied = copies.within(first..u64::MAX).next().map(|(piece, _)| piece);
        let staged = pieces.range(first..).next().map(|(piece, _)| *piece);
        let known = staged.into_iter().chain(copied).min().map(|piece| piece * PIECE as u64);
        known.map_or(base, |known| base.min(known.max(offset)))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.base.read_at(offset, buffer);
        if self.is_unchanged() {
            return read;
        }
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(buffer.len() as u64);
        let touched = offset / PIECE as u64..end.div_ceil(PIECE as u64);
        let changed = |piece: &u64| pieces.contains_key(piece) || copies.source(*piece).is_some();
        if read.is_err() && !touched.clone().all(|piece| changed(&piece)) {
            // Only what changes cover wholly can do without the device.
            return read;
        }
        self.read_copies(&copies, touched.clone(), offset, buffer)?;
        for (piece, bytes) in pieces.range(touched) {
            lay_over(offset, buffer, *piece, &bytes[..]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.size());
        let Some(end) = end else { return Err(io::ErrorKind::WriteZero.into()) };
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        for piece in offset / PIECE as u64..end.div_ceil(PIECE as u64) {
            if !pieces.contains_key(&piece) {
                if pieces.len() as u64 >= self.most {
                    return Err(too_much());
                }
                // What is written whole need not be readable: that may be why it is written.
                let whole = offset <= piece * PIECE as u64 && (piece + 1) * PIECE as u64 <= end;
                let bytes = if whole { Box::new([0; PIECE]) } else { self.piece_below(&copies, piece)? };
                pieces.insert(piece, bytes);
            }
            let start = piece * PIECE as u64;
            let (from, until) = (start.max(offset), (start + PIECE as u64).min(end));
            let inside = |at: u64, base: u64| as_index(at - base);
            if let (Some(to), Some(from)) = (
                pieces
                    .get_mut(&piece)
                    .and_then(|piece| piece.get_mut(inside(from, start)..inside(until, start))),
                data.get(inside(from, offset)..inside(until, offset)),
            ) {
                to.copy_from_slice(from);
            }
        }
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Nothing is stable before the changes are applied.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platfs_device::MemoryDevice;

    #[test]
    fn changes_are_seen_and_the_device_is_not_touched() {
        let base = Arc::new(MemoryDevice::new(10_000));
        base.write_at(0, &[1; 10_000]).unwrap();
        let staged = Staged::new(Arc::clone(&base) as Arc<dyn Device>, 1 << 20);
        assert!(staged.is_unchanged());
        staged.write_at(1000, &[2; 2000]).unwrap();
        staged.write_at(9990, &[3; 10]).unwrap();
        let mut seen = [0; 10_000];
        staged.read_at(0, &mut seen).unwrap();
        assert!(seen[..1000].iter().all(|byte| *byte == 1) && seen[3000..9990].iter().all(|byte| *byte == 1));
        assert!(seen[1000..3000].iter().all(|byte| *byte == 2) && seen[9990..] == [3; 10]);
        let mut part = [0; 3];
        staged.read_at(999, &mut part).unwrap();
        assert_eq!(part, [1, 2, 2]);
        base.read_at(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 1));
        assert_eq!(staged.offsets(), [0, 1024, 2048, 9216]);
        assert!(staged.write_at(9999, &[0; 2]).is_err());
    }

    /// A device that fails to read its first bytes from the moment that a test says so.
    struct Failing(MemoryDevice, AtomicBool);

    impl Device for Failing {
        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            if self.1.load(Ordering::Relaxed) && offset < 4096 {
                return Err(io::Error::other("a bad sector"));
            }
            self.0.read_at(offset, buffer)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, data)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A copy keeps no bytes. Where its source can't be read any more, that is an error, and nothing is written in its place.
    #[test]
    fn copies_whose_source_fails_are_no_zeros() {
        let base = Arc::new(Failing(MemoryDevice::new(1 << 20), AtomicBool::new(false)));
        base.write_at(0, &[5; 4096]).unwrap();
        base.write_at(65_536, &[6; 8192]).unwrap();
        let staged = Staged::new(Arc::clone(&base) as Arc<dyn Device>, 1 << 20);
        staged.copy(0, 65_536, 4096).unwrap();
        base.1.store(true, Ordering::Relaxed);
        let mut seen = [0; 8192];
        for (at, len) in [(65_536, 1024), (65_536 + 100, 10), (65_536, 8192), (65_536 + 3072, 2048)] {
            let failed = staged.read_at(at, &mut seen[..len]).unwrap_err();
            assert_eq!(failed.to_string(), "a bad sector", "{len} bytes at {at}");
        }
        assert!(staged.write_at(65_536 + 10, &[1]).is_err(), "the rest of the piece is not known");
        assert!(staged.copy(65_536, 131_072, 1024).is_err());
        assert!(staged.each_change(|_| Ok(())).is_err());
        assert!(staged.apply().is_err());
        base.read_at(65_536, &mut seen).unwrap();
        assert!(seen == [6; 8192], "nothing was written");
    }

    #[test]
    fn copies_are_what_their_source_was() {
        let base = Arc::new(MemoryDevice::new(1 << 20));
        let bytes: Vec<u8> = (0..8192_u32).map(|at| u8::try_from(at / 1024 + 1).unwrap()).collect();
        base.write_at(0, &bytes).unwrap();
        let staged = Staged::new(Arc::clone(&base) as Arc<dyn Device>, 8192);
        let read = |at: u64, len: usize| {
            let mut seen = vec![0; len];
            staged.read_at(at, &mut seen).unwrap();
            seen
        };
        staged.copy(0, 65_536, 4096).unwrap();
        assert!(!staged.is_unchanged());
        assert!(staged.data_from(9000) <= 65_536 && staged.data_from(66_000) <= 66_000, "a copy is data");
        // What becomes of the source later does not matter.
        staged.write_at(1024, &[9; 1024]).unwrap();
        assert_eq!(read(65_536, 4096), bytes[..4096]);
        // A copy of what was changed is of the change; a change of a copy is one.
        staged.copy(1024, 70_000 / 1024 * 1024, 1024).unwrap();
        staged.write_at(65_536 + 2048 + 10, &[7; 4]).unwrap();
        let expected: Vec<u8> = {
            let mut piece = bytes[2048..3072].to_vec();
            piece[10..14].fill(7);
            piece
        };
        assert_eq!(read(65_536 + 2048, 1024), expected);
        let before: Vec<Vec<u8>> = staged.changes().unwrap().iter().map(|(at, _)| read(*at, 1024)).collect();
        assert_eq!(before.len(), 6);
        let mut reported = 0;
        staged
            .each_change(|_| {
                reported += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(reported, 6);
        let places = staged.offsets();
        staged.apply().unwrap();
        for (at, wanted) in places.into_iter().zip(before) {
            let mut seen = vec![0; 1024];
            base.read_at(at, &mut seen).unwrap();
            assert_eq!((seen, read(at, 1024)), (wanted.clone(), wanted));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let staged = Staged::new(Arc::new(MemoryDevice::new(1 << 20)), 4096);
        assert!(staged.write_at(0, &[1; 8192]).is_err());
    }
}
