//! Ranges of a file in a mount that are taken out or put in: `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`,
//! which the kernel's FUSE refuses.
//!
//! Owns: the way around that, on both sides. Excludes what then happens to the file.
//!
//! The bytes behind the range move, so the kernel's pages of them must go, and nobody may use the file meanwhile. The
//! kernel does both for a hole: it locks the file, writes what is dirty, asks the mount, and drops its pages. So a
//! program announces by an `ioctl` what it wants, and then asks for a hole from there to the end of all files, which is
//! refused to everybody else. The kernel goes by its own idea of a file's size, which only `ftruncate` changes: before a
//! range is put in, and after one is taken out.
//!
//! The announcement is its form's version and the mode of `fallocate` (32 bits each), offset, length, and the size that
//! the program sees (64 bits each). All numbers are little-endian.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use fuse::Caller;
use platfs_open::locks::locked;
use rustix::fs::FallocateFlags as Flags;
use rustix::io::Errno;

/// The number of the announcement, in which its length stands.
pub(in crate::mount) const MOVE: u32 = 0xc020_7066;
const LEN: usize = 32;
const VERSION: u32 = 1;
/// Largest page of any machine: the kernel must drop whole pages, as it fills parts of a page with zeros.
const PAGE_MAX: u64 = 64 << 10;
/// Announcements that are kept: one for each program that is between its two calls.
const MOST: usize = 64;

/// A range that is to be taken out or put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// It is put in; else taken out.
    pub inserts: bool,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// Bytes of the file; with those that are to be put in.
    pub size: u64,
}

/// Takes a range out of a file, or puts one in.
///
/// # Errors
/// Errors of the kernel, also of other file systems; `EINVAL` for a range that does not fit the file or its blocks;
/// `EAGAIN` if others changed the file's size meanwhile, and then nothing has moved.
pub fn shift(file: &File, inserts: bool, offset: u64, len: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno::INVAL)?;
    if offset >= size || !inserts && end >= size {
        return Err(Errno::INVAL.into());
    }
    let after = if inserts { size.checked_add(len).ok_or(Errno::FBIG)? } else { size - len };
    let asked = Move { inserts, offset, len, size: size.max(after) };
    match asked.announce(file) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::NOTTY.raw_os_error()) => {
            let mode = if inserts { Flags::INSERT_RANGE } else { Flags::COLLAPSE_RANGE };
            return Ok(rustix::fs::fallocate(file, mode, offset, len)?);
        }
        Err(error) => return Err(error),
    }
    if inserts {
        file.set_len(after)?;
    }
    let start = offset - offset % PAGE_MAX;
    let done = rustix::fs::fallocate(file, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, start, END - start);
    let is_as_before = file.metadata()?.len() == asked.size;
    match done {
        Err(error) if inserts && is_as_before => file.set_len(size).and(Err(error.into())),
        Err(error) => Err(error.into()),
        Ok(()) if !inserts && is_as_before => file.set_len(after),
        Ok(()) => Ok(()),
    }
}

/// The end of all files, as the kernel counts.
const END: u64 = i64::MAX.cast_unsigned();

/// Returns true if a change of space is what follows an announcement. Nobody else needs such a hole: it is refused.
#[must_use]
pub fn is_announced(mode: u32, offset: u64, len: u64) -> bool {
    mode == (Flags::PUNCH_HOLE | Flags::KEEP_SIZE).bits() && offset.checked_add(len) == Some(END)
}

impl Move {
    fn announce(self, file: &File) -> io::Result<()> {
        let mode = if self.inserts { Flags::INSERT_RANGE } else { Flags::COLLAPSE_RANGE };
        let mut room = [0; LEN];
        room[..8].copy_from_slice([VERSION, mode.bits()].map(u32::to_le_bytes).as_flattened());
        room[8..].copy_from_slice([self.offset, self.len, self.size].map(u64::to_le_bytes).as_flattened());
        fuse::exchange::<MOVE, LEN>(file, room).map(|_| ())
    }

    fn decode(bytes: &[u8]) -> Option<Move> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let mode = Flags::from_bits_retain(word(4)?);
        let inserts = mode == Flags::INSERT_RANGE;
        if word(0)? != VERSION || !inserts && mode != Flags::COLLAPSE_RANGE {
            return None;
        }
        Some(Move { inserts, offset: long(8)?, len: long(16)?, size: long(24)? })
    }

    /// As a mode of `fallocate`.
    #[must_use]
    pub fn mode(&self) -> u32 {
        if self.inserts { Flags::INSERT_RANGE.bits() } else { Flags::COLLAPSE_RANGE.bits() }
    }
}

/// Moves that programs have announced and not made yet.
#[derive(Default)]
pub struct Announced(Mutex<Vec<(u64, u32, Move)>>);

impl Announced {
    /// Notes what a program wants of a node, in place of what it wanted before; `false` if that can't be understood.
    pub fn note(&self, caller: Caller, node: u64, announcement: &[u8]) -> bool {
        let Some(wanted) = Move::decode(announcement) else { return false };
        let mut all = locked(&self.0);
        all.retain(|(of, by, _)| (*of, *by) != (node, caller.pid));
        if all.len() == MOST {
            // Its program does not come back, or is refused.
            all.remove(0);
        }
        all.push((node, caller.pid, wanted));
        true
    }

    /// Takes the move that a program has announced of a node.
    pub fn take(&self, caller: Caller, node: u64) -> Option<Move> {
        let mut all = locked(&self.0);
        let at = all.iter().position(|(of, by, _)| (*of, *by) == (node, caller.pid))?;
        Some(all.remove(at).2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(mode: u32, numbers: [u64; 3]) -> Vec<u8> {
        [[1, mode].map(u32::to_le_bytes).as_flattened(), numbers.map(u64::to_le_bytes).as_flattened()]
            .concat()
    }

    #[test]
    fn an_announcement_holds_for_its_program_and_node_once() {
        let (announced, one) = (Announced::default(), Caller { uid: 0, gid: 0, pid: 1 });
        let other = Caller { pid: 2, ..one };
        assert!(announced.note(one, 12, &bytes(8, [1, 2, 3])));
        assert!(announced.note(one, 12, &bytes(32, [4, 5, 6])));
        assert_eq!((announced.take(other, 12), announced.take(one, 13)), (None, None));
        assert_eq!(announced.take(one, 12), Some(Move { inserts: true, offset: 4, len: 5, size: 6 }));
        assert_eq!(announced.take(one, 12), None);
        for wrong in [bytes(2, [1, 2, 3]), bytes(40, [1, 2, 3]), bytes(8, [1, 2, 3])[..31].to_vec(), vec![]] {
            assert!(!announced.note(one, 12, &wrong));
        }
        for pid in 0..1000 {
            assert!(announced.note(Caller { pid, ..one }, 12, &bytes(8, [1, 2, 3])));
        }
        assert_eq!(announced.0.lock().unwrap().len(), MOST);
    }
}
