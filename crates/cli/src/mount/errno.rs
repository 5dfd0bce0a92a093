//! The library's errors as the numbers that programs see.

use fuse::Errno;
use platfs::Error;

/// The number of an error.
#[must_use]
pub fn of(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Whether an error is the image's or the device's fault, and must be logged beside the number.
#[must_use]
pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Corrupt(_) | Error::WriteFailed | Error::TakenOver)
}
