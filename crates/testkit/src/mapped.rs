//! A part of a file in memory, for tests that compare what is mapped with what is read and written.
//!
//! The one module of the workspace's tests that needs `unsafe`: the language has no safe way to map a file. It returns
//! copies of bytes only, so no caller holds a reference into memory that other programs change.
#![allow(unsafe_code, reason = "mapping a file; each block says why it is sound")]

use rustix::fd::AsFd;
use rustix::io::Result;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::ptr;

/// Effect of writes into a mapping on the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Yes: every reader of the file sees them.
    Shared,
    /// No: only this mapping sees them.
    Private,
}

/// A part of a file in memory, for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and is reached by raw pointers only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(file: impl AsFd, offset: u64, len: usize, sharing: Sharing) -> Result<Self> {
        let flags = match sharing {
            Sharing::Shared => MapFlags::SHARED,
            Sharing::Private => MapFlags::PRIVATE,
        };
        // SAFETY: the kernel chooses the place, so no memory in use is replaced.
        let base =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset)? };
        Ok(Self { base, len })
    }

    /// A copy of `len` bytes at `at`. Pages after the end of the file end the process (SIGBUS).
    ///
    /// # Panics
    /// When that is not inside the mapping.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "{at} + {len} of {}", self.len);
        let mut bytes = vec![0; len];
        // SAFETY: source and target are as long as `len`, by the assertion and by the allocation, and distinct.
        unsafe { ptr::copy_nonoverlapping(self.base.cast::<u8>().add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Panics
    /// As [`Mapping::read`].
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "{at} + {} of {}", bytes.len(), self.len);
        // SAFETY: as in `read`; the mapping is writable, and no reference into it exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.cast::<u8>().add(at), bytes.len()) };
    }

    /// Waits until what was written is in the file.
    ///
    /// # Errors
    /// Those of `msync`.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is this mapping.
        unsafe { msync(self.base, self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and no reference to it is left.
        let unmapped = unsafe { munmap(self.base, self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    #[test]
    fn shared_is_seen_and_private_is_not() {
        let scratch = Scratch::new("mapped");
        let path = scratch.join("file");
        fs::write(&path, [1; 10_000]).unwrap();
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let shared = Mapping::new(&file, 0, 10_000, Sharing::Shared).unwrap();
        let private = Mapping::new(&file, 4096, 100, Sharing::Private).unwrap();
        shared.write(5000, &[2; 4]);
        private.write(0, &[3]);
        shared.sync().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[4999..5005], [1, 2, 2, 2, 2, 1]);
        assert_eq!((bytes[4096], private.read(0, 1)[0]), (1, 3));
    }

    #[test]
    #[should_panic(expected = "9 + 2 of 10")]
    fn nothing_outside() {
        let scratch = Scratch::new("mapped-outside");
        let path = scratch.join("file");
        fs::write(&path, [1; 100]).unwrap();
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        Mapping::new(&file, 0, 10, Sharing::Shared).unwrap().read(9, 2);
    }
}
