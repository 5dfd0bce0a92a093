//! An archive that is read in order: headers and small files come from one large read.
//!
//! Owns: the bytes read ahead. Excludes: what they mean.

use std::cell::RefCell;
use std::io;

use platfs_image::archive::Input;

/// Bytes read at once.
const AT_ONCE: usize = 256 << 10;
/// Size up to which a file is read ahead with others; a longer one is read by itself.
const SMALL: usize = AT_ONCE / 4;

/// An input, and what was read of it ahead of need.
pub(super) struct Ahead<'i, I> {
    input: &'i I,
    window: RefCell<Window>,
}

#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn part(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..at.checked_add(len)?)
    }
}

impl<'i, I: Input> Ahead<'i, I> {
    pub(super) fn new(input: &'i I) -> Self {
        Ahead { input, window: RefCell::default() }
    }

    /// Reads as much as is good from an offset on.
    fn fill(&self, window: &mut Window, offset: u64) -> io::Result<()> {
        let left = usize::try_from(self.input.size().saturating_sub(offset)).unwrap_or(AT_ONCE);
        window.start = offset;
        window.bytes.resize(left.min(AT_ONCE), 0);
        let read = self.input.read_exact_at(offset, &mut window.bytes);
        if read.is_err() {
            window.bytes.clear();
        }
        read
    }
}

impl<I: Input> Input for Ahead<'_, I> {
    fn size(&self) -> u64 {
        self.input.size()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if buf.len() > SMALL {
            return self.input.read_exact_at(offset, buf);
        }
        let mut window = self.window.borrow_mut();
        // Where what is ahead can't be read, what is asked for may.
        if window.part(offset, buf.len()).is_none() && self.fill(&mut window, offset).is_err() {
            return self.input.read_exact_at(offset, buf);
        }
        match window.part(offset, buf.len()) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => self.input.read_exact_at(offset, buf)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts its reads; those that reach behind `whole` fail.
    struct Counting {
        bytes: Vec<u8>,
        whole: usize,
        reads: Cell<u32>,
    }

    impl Input for Counting {
        fn size(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.reads.set(self.reads.get() + 1);
            if usize::try_from(offset).unwrap() + buf.len() > self.whole {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.bytes[..].read_exact_at(offset, buf)
        }
    }

    fn counting(whole: usize) -> Counting {
        let bytes = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        Counting { bytes, whole, reads: Cell::new(0) }
    }

    #[test]
    fn small_pieces_in_order_are_few_reads() {
        let input = counting(1_000_000);
        let ahead = Ahead::new(&input);
        let mut piece = [0; 512];
        for offset in (0..999_936).step_by(512) {
            ahead.read_exact_at(offset, &mut piece).unwrap();
            let at = usize::try_from(offset).unwrap();
            assert_eq!(piece, input.bytes[at..at + 512]);
        }
        assert_eq!(input.reads.get(), 4);
        let mut large = vec![0; SMALL + 1];
        ahead.read_exact_at(7, &mut large).unwrap();
        assert_eq!((input.reads.get(), &large[..]), (5, &input.bytes[7..SMALL + 8]));
        assert!(ahead.read_exact_at(999_990, &mut piece).is_err(), "behind the end");
    }

    #[test]
    fn what_fails_ahead_does_not_fail_what_is_asked_for() {
        let input = counting(1000);
        let ahead = Ahead::new(&input);
        let mut piece = [0; 500];
        ahead.read_exact_at(500, &mut piece).unwrap();
        assert_eq!(piece, input.bytes[500..1000]);
        assert!(ahead.read_exact_at(501, &mut piece).is_err());
    }
}
