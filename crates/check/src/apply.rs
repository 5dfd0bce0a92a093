//! The way of staged changes to the device, in an order that leaves something to repair wherever it
//! is cut off, and nothing that cannot be. Excludes what is changed ([`super::staged`]).
//!
//! | step | what is written | why then |
//! | --- | --- | --- |
//! | 1 | the superblock as it was, marked as having errors | a half-repaired volume does not pass for clean |
//! | 2 | contents of blocks without an owner | what refers to them comes later |
//! | 3 | all the rest | |
//! | 4 | the repaired superblock, a log that is empty now | they say that all is well |
//!
//! After each step that wrote something the device is flushed.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;

use ondisk::seal::Sealer;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use zerocopy::IntoBytes;

use platfs_device::Device;

use super::copies::Copies;
use super::staged::{PIECE, Pieces, Staged};

/// Bytes of a piece in which changes are reported.
pub const PIECE_LEN: usize = PIECE;

/// The piece that is the superblock.
const SUPERBLOCK_PIECE: u64 = SUPERBLOCK_OFFSET / PIECE as u64;

/// Most pieces of one write.
const RUN_MAX: usize = 1 << 10;

/// A piece as it is on the device, and what will be written there. The last piece of a device may be
/// shorter than the others.
#[derive(Debug)]
pub struct PieceChange<'c> {
    /// Where, in bytes; a multiple of [`PIECE_LEN`].
    pub offset: u64,
    /// Bytes on the device now.
    pub old: &'c [u8],
    /// Bytes after the write.
    pub new: &'c [u8],
}

/// Pieces on their way to a device, neighbours in one write.
struct Runs<'d> {
    device: &'d dyn Device,
    bytes: Vec<u8>,
    at: Range<u64>,
    wrote: bool,
}

impl<'d> Runs<'d> {
    fn of(device: &'d dyn Device) -> Self {
        Runs { device, bytes: Vec::new(), at: 0..0, wrote: false }
    }

    fn add(&mut self, piece: u64, bytes: &[u8]) -> io::Result<()> {
        if piece != self.at.end || self.bytes.len() >= RUN_MAX * PIECE {
            self.write()?;
            self.at = piece..piece;
        }
        self.at.end += 1;
        self.bytes.extend_from_slice(bytes);
        self.wrote = true;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.bytes.is_empty() {
            self.device.write_at(self.at.start * PIECE as u64, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    /// Writes the rest, and flushes if anything was written.
    fn end(mut self) -> io::Result<()> {
        self.write()?;
        if self.wrote { self.device.flush() } else { Ok(()) }
    }
}

impl Staged {
    /// Reports every piece that [`Staged::apply`] would write; one that is written twice is reported twice.
    ///
    /// # Errors
    /// The device can't be read; errors of `tell` are passed on.
    pub fn each_change(&self, mut tell: impl FnMut(PieceChange<'_>) -> io::Result<()>) -> io::Result<()> {
        let copies = self.copies.read().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mark = self.mark()?;
        let marked = mark.iter().map(|bytes| (SUPERBLOCK_PIECE, &**bytes));
        for (piece, new) in marked.chain(pieces.iter().map(|(piece, bytes)| (*piece, &bytes[..]))) {
            let (offset, len) = self.extent_of(piece);
            let old = self.piece_from_base(piece)?;
            if let (Some(old), Some(new)) = (old.get(..len), new.get(..len)) {
                tell(PieceChange { offset, old, new })?;
            }
        }
        for (piece, from) in copies.iter().filter(|(piece, _)| !pieces.contains_key(piece)) {
            let (offset, len) = self.extent_of(piece);
            let (old, new) = (self.piece_from_base(piece)?, self.piece_from_base(from)?);
            if let (Some(old), Some(new)) = (old.get(..len), new.get(..len)) {
                tell(PieceChange { offset, old, new })?;
            }
        }
        Ok(())
    }

    /// Writes all changes to the device. Cut off at any point it leaves a volume that the next check
    /// does not take for clean, and repairs.
    ///
    /// # Errors
    /// The device's own words.
    pub fn apply(&self) -> io::Result<()> {
        let mut copies = self.copies.write().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(mark) = self.mark()? {
            self.base.write_at(SUPERBLOCK_OFFSET, &mark)?;
            self.base.flush()?;
        }
        let fresh = self.fresh.read().unwrap_or_else(PoisonError::into_inner);
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        let is_last = |piece: u64| piece == SUPERBLOCK_PIECE || last.contains(&piece);
        // Copies come before anything is written to what they are copies of.
        self.write_copies(&copies, |piece| fresh.contains(&piece))?;
        self.write_those(&pieces, |piece| fresh.contains(&piece) && !is_last(piece))?;
        self.write_copies(&copies, |piece| !fresh.contains(&piece))?;
        copies.clear();
        self.write_those(&pieces, |piece| !fresh.contains(&piece) && !is_last(piece))?;
        self.write_those(&pieces, is_last)
    }

    /// Writes the copies that are wanted, neighbours together, and flushes.
    fn write_copies(&self, copies: &Copies, wanted: impl Fn(u64) -> bool) -> io::Result<()> {
        let mut writer = Runs::of(&*self.base);
        for (piece, from) in copies.iter().filter(|(piece, _)| wanted(*piece)) {
            writer.add(piece, &self.piece_from_base(from)?[..self.extent_of(piece).1])?;
        }
        writer.end()
    }

    /// Writes the pieces that are wanted, neighbours together, and flushes.
    fn write_those(&self, pieces: &Pieces, wanted: impl Fn(u64) -> bool) -> io::Result<()> {
        let mut writer = Runs::of(&*self.base);
        for (piece, bytes) in pieces.iter().filter(|(piece, _)| wanted(**piece)) {
            writer.add(*piece, &bytes[..self.extent_of(*piece).1])?;
        }
        writer.end()
    }

    /// Offset and length of a piece.
    fn extent_of(&self, piece: u64) -> (u64, usize) {
        let offset = piece.saturating_mul(PIECE as u64);
        let rest = self.base.size().saturating_sub(offset);
        (offset, usize::try_from(rest).unwrap_or(PIECE).min(PIECE))
    }

    /// The superblock of the device, marked as having errors; `None` where there are no changes, or
    /// where it is marked already or is no superblock, so that no one takes the volume for clean.
    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        if self.is_unchanged() || self.base.size() < SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64 {
            return Ok(None);
        }
        let mut bytes = [0; SUPERBLOCK_LEN];
        self.base.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let Ok(mut raw) = RawSuperblock::parse(&bytes) else { return Ok(None) };
        let state = raw.s_state.get();
        if state & STATE_ERROR != 0 {
            return Ok(None);
        }
        let sealer = Sealer::from_superblock(&raw);
        let right = sealer.superblock_is_right(&raw);
        raw.s_state.set(state & !STATE_VALID | STATE_ERROR);
        if right {
            sealer.seal_superblock(&mut raw);
        }
        Ok(Some(raw.as_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use platfs::mkfs::{FsType, Options, Plan};
    use platfs_device::{Device, MemoryDevice};

    /// A device that notes offsets of writes, and flushes as `None`.
    struct Noting(MemoryDevice, Mutex<Vec<Option<u64>>>);

    impl Device for Noting {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.1.lock().unwrap().push(Some(offset));
            self.0.write_at(offset, data)
        }
        fn flush(&self) -> io::Result<()> {
            self.1.lock().unwrap().push(None);
            Ok(())
        }
    }

    fn noting() -> Arc<Noting> {
        let device = MemoryDevice::new((8 << 20) + 100);
        Plan::new(&Options::new(FsType::Ext4), 8 << 20).unwrap().write(&device).unwrap();
        Arc::new(Noting(device, Mutex::default()))
    }

    #[test]
    fn new_contents_come_first_and_the_superblock_last() {
        let device = noting();
        let staged = Staged::new(Arc::clone(&device) as Arc<dyn Device>, 1 << 20);
        staged.note_fresh(1 << 20, 2048);
        staged.note_last(2 << 20, 1024);
        staged.write_at(2 << 20, &[5; 1024]).unwrap();
        staged.write_at(4 << 20, &[1; 1024]).unwrap();
        staged.write_at(1 << 20, &[2; 2048]).unwrap();
        staged.write_at(SUPERBLOCK_OFFSET + 1000, &[3]).unwrap();
        staged.write_at(8 << 20, &[4; 100]).unwrap();
        let mut reported = Vec::new();
        staged
            .each_change(|change| {
                assert_ne!(change.old, change.new);
                reported.push((change.offset, change.new.len()));
                Ok(())
            })
            .unwrap();
        let (mib, sb) = (1 << 20, SUPERBLOCK_OFFSET);
        let places = [sb, sb, mib, mib + 1024, 2 * mib, 4 * mib, 8 * mib];
        let pieces: Vec<_> = places.iter().map(|at| (*at, if *at == 8 * mib { 100 } else { 1024 })).collect();
        assert_eq!(reported, pieces);
        staged.apply().unwrap();
        let log = device.1.lock().unwrap();
        let (a, b, c) = (Some(mib), Some(4 * mib), Some(8 * mib));
        assert_eq!(*log, [Some(sb), None, a, None, b, c, None, Some(sb), Some(2 * mib), None]);
        let mut seen = [0; 100];
        device.read_at(8 << 20, &mut seen).unwrap();
        assert_eq!(seen, [4; 100]);
    }

    #[test]
    fn nothing_is_written_where_nothing_changed() {
        let device = noting();
        let staged = Staged::new(Arc::clone(&device) as Arc<dyn Device>, 1 << 20);
        staged.each_change(|_| panic!("nothing has changed")).unwrap();
        staged.apply().unwrap();
        assert!(device.1.lock().unwrap().is_empty());
    }
}
