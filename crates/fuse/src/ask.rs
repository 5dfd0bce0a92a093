//! Asking the server of a mount by `ioctl`, from a program that has a file of it open.
//!
//! Owns: the one system call for which there is no safe wrapper. Excludes what is asked and answered.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::ioctl;

/// The file system type of FUSE, as `statfs` gives it.
const FUSE: rustix::fs::FsWord = 0x6573_5546;
/// Of an `ioctl`'s number: the direction (the kernel writes), and where the length begins.
const READS: u32 = 2;
const LEN_AT: u32 = 16;
const LEN_MASK: u32 = (1 << 14) - 1;

/// Returns the answer of a mount's server to an `ioctl` on one of its files. The number must say that the answer has `LEN`
/// bytes.
///
/// # Errors
/// `ENOTTY` for files of other file systems, and of servers that don't know the number; what the server says.
pub fn ask<const COMMAND: u32, const LEN: usize>(file: impl AsFd) -> io::Result<[u8; LEN]> {
    const {
        assert!(COMMAND >> 30 == READS);
    }
    exchange::<COMMAND, LEN>(file, [0; LEN])
}

/// As [`ask`], with a question of as many bytes as the answer. The number must say which of the two there are.
///
/// # Errors
/// As [`ask`].
pub fn exchange<const COMMAND: u32, const LEN: usize>(
    file: impl AsFd,
    question: [u8; LEN],
) -> io::Result<[u8; LEN]> {
    const {
        assert!((COMMAND >> LEN_AT & LEN_MASK) as usize == LEN);
    }
    let file = file.as_fd();
    // Other drivers may mean something else by the number.
    if rustix::fs::fstatfs(file)?.f_type != FUSE {
        return Err(Errno::NOTTY.into());
    }
    // SAFETY: the kernel's FUSE copies at most as many bytes of a question from the caller, and of an answer to the
    // caller, as the number says, which are `LEN`; any bytes are an array of bytes.
    Ok(unsafe { ioctl(file, Filled::<COMMAND, LEN>(question)) }?)
}

/// As `Getter`, but with room that has been filled before.
struct Filled<const COMMAND: u32, const LEN: usize>([u8; LEN]);

// SAFETY: the room is owned, and as long as the number says.
unsafe impl<const COMMAND: u32, const LEN: usize> rustix::ioctl::Ioctl for Filled<COMMAND, LEN> {
    type Output = [u8; LEN];

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        COMMAND as rustix::ioctl::Opcode
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(
        _: rustix::ioctl::IoctlOutput,
        room: *mut std::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: it is the room of this value, whole and aligned for bytes.
        Ok(unsafe { room.cast::<[u8; LEN]>().read() })
    }
}
