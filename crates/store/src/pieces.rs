//! The pieces of a device that may hold something, so that work costs nothing where there is nothing.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use platfs_device::Device;

/// Pieces of `step` bytes, each at a multiple of that, but for those that surely are zeros. Several threads can take from
/// them.
pub struct Pieces<'d> {
    device: &'d dyn Device,
    step: u64,
    next: Mutex<u64>,
}

impl<'d> Pieces<'d> {
    /// The pieces of a device; `step` is not zero.
    #[must_use]
    pub fn new(device: &'d dyn Device, step: u64) -> Self {
        Pieces { device, step: step.max(1), next: Mutex::new(0) }
    }

    /// The next piece.
    pub fn take(&self) -> Option<Range<u64>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let size = self.device.size();
        let data = if *next < size { self.device.data_from(*next) } else { size };
        if data >= size {
            *next = size;
            return None;
        }
        let start = (data - data % self.step).max(*next);
        *next = start.saturating_add(self.step).min(size);
        Some(start..*next)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Data at some bytes, told as `data_from` does.
    struct Sparse(Vec<u64>, u64);

    impl Device for Sparse {
        fn size(&self) -> u64 {
            self.1
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
        fn data_from(&self, offset: u64) -> u64 {
            self.0.iter().copied().find(|at| *at >= offset).unwrap_or(self.1)
        }
    }

    #[test]
    fn only_pieces_with_data_are_taken_and_each_once() {
        let device = Sparse(vec![5, 6, 25, 1 << 40, (1 << 40) + 9], (1 << 40) + 15);
        let pieces = Pieces::new(&device, 10);
        let all: Vec<_> = std::iter::from_fn(|| pieces.take()).collect();
        let last = (1 << 40) - (1 << 40) % 10;
        assert_eq!(all, [0..10, 20..30, last..last + 10, last + 10..last + 20]);
        let empty = Sparse(Vec::new(), 1 << 50);
        assert_eq!(Pieces::new(&empty, 10).take(), None);
    }
}
