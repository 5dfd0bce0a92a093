//! A long array of which most is never touched: pages that appear when they are first written.
//!
//! Owns nothing but memory. An absent page reads as if it held defaults and costs one slot of a
//! directory, which itself appears by 64; so a volume of 1 EiB opens in a few megabytes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of a directory.
const FAN: u32 = 64;

type Directory<T> = [OnceLock<Box<T>>; FAN as usize];

/// Pages by number.
pub(crate) struct Sparse<T> {
    /// The first directory is always there: volumes of up to 4,096 regions have no other.
    first: Box<[OnceLock<Box<T>>]>,
    directories: Box<[OnceLock<Box<Directory<T>>>]>,
    pages: AtomicU64,
    directories_made: AtomicU64,
}

impl<T: Default> Sparse<T> {
    /// Room for `pages` pages, none of them there yet.
    pub(crate) fn new(pages: u32) -> Self {
        Sparse {
            first: (0..pages.min(FAN)).map(|_| OnceLock::new()).collect(),
            directories: (FAN..pages.max(FAN)).step_by(FAN as usize).map(|_| OnceLock::new()).collect(),
            pages: AtomicU64::new(0),
            directories_made: AtomicU64::new(0),
        }
    }

    /// The page, if it is there.
    #[inline]
    pub(crate) fn get(&self, page: u32) -> Option<&T> {
        if let Some(slot) = self.first.get(page as usize) {
            return slot.get().map(|boxed| &**boxed);
        }
        let directory = self.directories.get((page / FAN).checked_sub(1)? as usize)?.get()?;
        directory.get((page % FAN) as usize)?.get().map(|boxed| &**boxed)
    }

    /// The page, made if need be; `None` past the end.
    #[inline]
    pub(crate) fn make(&self, page: u32) -> Option<&T> {
        if let Some(there) = self.get(page) {
            return Some(there);
        }
        let slot = match self.first.get(page as usize) {
            Some(slot) => slot,
            None => self.directory(page)?.get((page % FAN) as usize)?,
        };
        Some(slot.get_or_init(|| {
            self.pages.fetch_add(1, Ordering::Relaxed);
            Box::default()
        }))
    }

    fn directory(&self, page: u32) -> Option<&Directory<T>> {
        let slot = self.directories.get((page / FAN).checked_sub(1)? as usize)?;
        let directory = slot.get_or_init(|| {
            self.directories_made.fetch_add(1, Ordering::Relaxed);
            Box::new(std::array::from_fn(|_| OnceLock::new()))
        });
        Some(directory)
    }

    /// Bytes in use: pages, directories, and what leads to them.
    pub(crate) fn bytes(&self) -> u64 {
        let pages = self.pages.load(Ordering::Relaxed) * bytes_of::<T>();
        let directories = self.directories_made.load(Ordering::Relaxed) * bytes_of::<Directory<T>>();
        let first = self.first.len() as u64 * bytes_of::<OnceLock<Box<T>>>();
        let top = first + self.directories.len() as u64 * bytes_of::<OnceLock<Box<Directory<T>>>>();
        pages + directories + top
    }
}

/// Size of a type.
pub(crate) fn bytes_of<T>() -> u64 {
    size_of::<T>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn only_what_is_written_is_there() {
        let sparse: Sparse<AtomicU32> = Sparse::new(u32::MAX / 64);
        assert!(sparse.get(5).is_none());
        let empty = sparse.bytes();
        sparse.make(60_000_000).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(sparse.get(60_000_000).unwrap().load(Ordering::Relaxed), 7);
        assert!(sparse.get(60_000_001).is_none());
        assert!(sparse.make(u32::MAX).is_none());
        let small: Sparse<AtomicU32> = Sparse::new(3);
        assert!(small.make(2).is_some() && small.make(3).is_none() && small.get(3).is_none());
        assert!(sparse.bytes() - empty < 2_048 && empty < 17 << 20, "{empty}");
    }
}
