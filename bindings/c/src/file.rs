//! Open files: bytes at offsets.

use std::ffi::{c_char, c_int, c_uint};

use crate::facts::PlatfsStat;
use crate::failure::{Failure, guard};
use crate::image::{PlatfsImage, WRITE};
use crate::raw;

/// An open file. It keeps its image open.
pub struct PlatfsFile {
    file: platfs::File,
}

/// `PLATFS_CREATE`
const CREATE: c_uint = 4;
/// `PLATFS_EXCLUSIVE`
const EXCLUSIVE: c_uint = 8;
/// `PLATFS_TRUNCATE`
const TRUNCATE: c_uint = 16;

/// Opens or makes a file of an image that is open for writing if the flags ask for it.
fn opened(image: &platfs::Image, path: &[u8], flags: c_uint) -> Result<platfs::File, Failure> {
    if flags & !(WRITE | CREATE | EXCLUSIVE | TRUNCATE) != 0 {
        return Err(Failure::new(libc::EINVAL, format!("unknown flags {flags:#x}")));
    }
    if flags & EXCLUSIVE != 0 {
        return Ok(image.create_new(path)?);
    }
    let found = image.exists(path)?;
    if !found && flags & CREATE != 0 {
        return Ok(image.create_new(path)?);
    }
    let file = image.file(path)?;
    if flags & TRUNCATE != 0 {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_open(
    image: *const PlatfsImage,
    path: *const c_char,
    flags: c_uint,
) -> *mut PlatfsFile {
    guard(std::ptr::null_mut(), || {
        // SAFETY: an image of ours by the header.
        let image = unsafe { raw::reference(image) }?.now()?;
        // SAFETY: a text by the header.
        let path = unsafe { raw::text(path) }?;
        let file =
            opened(&image, path, flags).map_err(|failure| failure.at(String::from_utf8_lossy(path)))?;
        Ok(raw::give(PlatfsFile { file }))
    })
}

/// Reads from an offset; 0 at the end.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_read(
    file: *const PlatfsFile,
    offset: u64,
    buffer: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        // SAFETY: a file of ours, and `len` bytes, by the header.
        let (file, buffer) = unsafe { (raw::reference(file)?, raw::bytes_mut(buffer, len)?) };
        let done = file.file.read_at(offset, buffer)?;
        isize::try_from(done).map_err(|_| Failure::new(libc::EOVERFLOW, "too long"))
    })
}

/// Writes all bytes at an offset.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_write(
    file: *const PlatfsFile,
    offset: u64,
    data: *const u8,
    len: usize,
) -> c_int {
    guard(-1, || {
        // SAFETY: a file of ours, and `len` bytes, by the header.
        let (file, data) = unsafe { (raw::reference(file)?, raw::bytes(data, len)?) };
        file.file.write_at(offset, data)?;
        Ok(0)
    })
}

/// Cuts or lengthens.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_truncate(file: *const PlatfsFile, size: u64) -> c_int {
    guard(-1, || {
        // SAFETY: a file of ours by the header.
        unsafe { raw::reference(file) }?.file.set_len(size)?;
        Ok(0)
    })
}

/// Makes the file stable.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_sync(file: *const PlatfsFile) -> c_int {
    guard(-1, || {
        // SAFETY: a file of ours by the header.
        unsafe { raw::reference(file) }?.file.sync_all()?;
        Ok(0)
    })
}

/// The facts of an open file.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_stat(file: *const PlatfsFile, stat: *mut PlatfsStat) -> c_int {
    guard(-1, || {
        // SAFETY: a file of ours, and a struct to fill, by the header.
        let (file, stat) = unsafe { (raw::reference(file)?, raw::exclusive(stat)?) };
        *stat = PlatfsStat::of(&file.file.metadata()?);
        Ok(0)
    })
}

/// Closes a file.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_file_close(file: *mut PlatfsFile) {
    guard((), || {
        // SAFETY: a file of ours by the header, not used afterwards.
        drop(unsafe { raw::take(file) });
        Ok(())
    });
}
