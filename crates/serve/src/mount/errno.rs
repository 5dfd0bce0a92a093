//! The library's errors as the numbers that programs see.

use fuse::Errno;
use platfs::Error;

/// The number of an error.
#[must_use]
pub fn of(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// True if an error is the fault of the image, the device or this program, and must be logged beside the number.
#[must_use]
pub fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. } | Error::Corrupt(_) | Error::WriteFailed | Error::TakenOver | Error::Internal(_)
    )
}
