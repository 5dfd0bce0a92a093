//! Pointers of C as references: the contract of all functions.
//!
//! A NULL where something must be is an error (`EINVAL`). That any other pointer is what the header says, and stays so
//! during the call, is the caller's part.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use crate::failure::Failure;

fn null(what: &str) -> Failure {
    Failure::new(libc::EINVAL, format!("{what} is NULL"))
}

/// A text, without its NUL.
///
/// # Safety
/// NULL, or a text that ends with NUL and lives as long as the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(null("a text"));
    }
    // SAFETY: not NULL, and a text by the contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path of the host.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: as this function.
    unsafe { text(path) }.map(|bytes| Path::new(OsStr::from_bytes(bytes)))
}

/// Something of ours, or a struct to read.
///
/// # Safety
/// NULL, or a valid pointer that nothing changes during the call.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: NULL, or valid by the contract.
    unsafe { pointer.as_ref() }.ok_or_else(|| null("a pointer"))
}

/// A struct to fill, or something of ours that only this call uses.
///
/// # Safety
/// NULL, or a valid pointer that nothing else uses during the call.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: NULL, or valid by the contract.
    unsafe { pointer.as_mut() }.ok_or_else(|| null("a pointer"))
}

/// Takes back what [`give`] gave away; nothing of NULL.
///
/// # Safety
/// NULL, or from [`give`] and not taken back before.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: not NULL, and a box of ours by the contract.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Gives something away.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

fn within(len: usize) -> Result<usize, Failure> {
    let legal = isize::try_from(len).is_ok();
    if legal { Ok(len) } else { Err(Failure::new(libc::EINVAL, "a length is beyond half of the memory")) }
}

/// Bytes to read.
///
/// # Safety
/// `len` bytes that nothing changes during the call; NULL if there are none.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    match within(len)? {
        0 => Ok(&[]),
        _ if data.is_null() => Err(null("a buffer")),
        // SAFETY: not NULL, and `len` bytes by the contract.
        len => Ok(unsafe { slice::from_raw_parts(data, len) }),
    }
}

/// Bytes to fill.
///
/// # Safety
/// `len` bytes that were written once and that nothing else uses during the call; NULL if there are none.
pub(crate) unsafe fn bytes_mut<'a>(data: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    match within(len)? {
        0 => Ok(&mut []),
        _ if data.is_null() => Err(null("a buffer")),
        // SAFETY: not NULL, and `len` bytes by the contract. C knows no more of bytes than that they are there.
        len => Ok(unsafe { slice::from_raw_parts_mut(data, len) }),
    }
}

/// Copies a value into a buffer of C as getxattr(2) does: the length is returned; `ERANGE` if the buffer is too short; only
/// the length if it is empty.
pub(crate) fn put(value: &[u8], buffer: &mut [u8]) -> Result<isize, Failure> {
    if !buffer.is_empty() {
        let room = buffer.get_mut(..value.len());
        room.ok_or_else(|| Failure::new(libc::ERANGE, format!("{} bytes don't fit", value.len())))?
            .copy_from_slice(value);
    }
    isize::try_from(value.len()).map_err(|_| Failure::new(libc::EOVERFLOW, "too long"))
}
