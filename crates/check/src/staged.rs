//! A device with changes that wait in memory. Excludes their way to the device ([`super::apply`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use platfs_device::{Device, Error, Protection};

/// Bytes of a piece in which changes are kept: the smallest block there is.
pub(super) const PIECE: usize = 1024;

/// What a failure of staging is: repairs take more memory than they may, or what they edit can't be read.
pub(super) fn staging(what: &'static str) -> impl Fn(io::Error) -> Error + Copy {
    move |source| Error::io(format!("staging {what}"), source)
}

/// The pieces that differ from the device.
pub(super) type Pieces = BTreeMap<u64, Box<[u8; PIECE]>>;

/// A device as it is after changes that were not written to it yet. Reads see the changes.
pub struct Staged {
    pub(super) base: Arc<dyn Device>,
    pub(super) pieces: RwLock<Pieces>,
    /// Pieces of blocks that had no owner before; see [`Staged::note_fresh`].
    pub(super) fresh: RwLock<BTreeSet<u64>>,
    /// Pieces that say that all is well; see [`Staged::note_last`].
    pub(super) last: RwLock<BTreeSet<u64>>,
    /// Whether there are pieces at all: most checks find none, and read without a lock.
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

    /// Whether nothing was changed.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Offsets and new bytes of what was changed, rising; each inside one piece of 1,024 bytes.
    #[must_use]
    pub fn changes(&self) -> Vec<(u64, Box<[u8; PIECE]>)> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        pieces.iter().map(|(piece, bytes)| (piece * PIECE as u64, bytes.clone())).collect()
    }

    pub(super) fn piece_from_base(&self, piece: u64) -> io::Result<Box<[u8; PIECE]>> {
        let mut bytes = Box::new([0; PIECE]);
        let start = piece * PIECE as u64;
        let len = usize::try_from(self.base.size().saturating_sub(start)).unwrap_or(PIECE).min(PIECE);
        if let Some(part) = bytes.get_mut(..len) {
            self.base.read_at(start, part)?;
        }
        Ok(bytes)
    }
}

impl Device for Staged {
    /// What is written stays in this process until it is applied.
    fn protection(&self) -> Protection {
        Protection::Alone
    }

    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.base.read_at(offset, buffer);
        if self.is_unchanged() {
            return read;
        }
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(buffer.len() as u64);
        let touched = offset / PIECE as u64..end.div_ceil(PIECE as u64);
        if read.is_err() && pieces.range(touched.clone()).count() as u64 != touched.end - touched.start {
            // Only what changes cover wholly can do without the device.
            return read;
        }
        for (piece, bytes) in pieces.range(touched) {
            let start = piece * PIECE as u64;
            let (from, until) = (start.max(offset), (start + PIECE as u64).min(end));
            let inside = |at: u64, base: u64| usize::try_from(at - base).unwrap_or(usize::MAX);
            if let (Some(to), Some(from)) = (
                buffer.get_mut(inside(from, offset)..inside(until, offset)),
                bytes.get(inside(from, start)..inside(until, start)),
            ) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.size());
        let Some(end) = end else { return Err(io::ErrorKind::WriteZero.into()) };
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        for piece in offset / PIECE as u64..end.div_ceil(PIECE as u64) {
            if !pieces.contains_key(&piece) {
                if pieces.len() as u64 >= self.most {
                    return Err(io::Error::other("the repairs do not fit into the memory they may take"));
                }
                // What is written whole need not be readable: that may be why it is written.
                let whole = offset <= piece * PIECE as u64 && (piece + 1) * PIECE as u64 <= end;
                let bytes = if whole { Box::new([0; PIECE]) } else { self.piece_from_base(piece)? };
                pieces.insert(piece, bytes);
            }
            let start = piece * PIECE as u64;
            let (from, until) = (start.max(offset), (start + PIECE as u64).min(end));
            let inside = |at: u64, base: u64| usize::try_from(at - base).unwrap_or(usize::MAX);
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
        assert_eq!(staged.changes().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1024, 2048, 9216]);
        assert!(staged.write_at(9999, &[0; 2]).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let staged = Staged::new(Arc::new(MemoryDevice::new(1 << 20)), 4096);
        assert!(staged.write_at(0, &[1; 8192]).is_err());
    }
}
