//! The one table from the library's errors to the numbers that programs see.

use fuse::Errno;
use platfs::Error;

/// The number of an error.
#[must_use]
pub fn of(error: &Error) -> Errno {
    match error {
        Error::Io { source, .. } => source.raw_os_error().map_or(Errno::IO, |code| match code {
            // Of the device, not of the file: these would mislead the program.
            code if code == Errno::NOENT.raw_os_error() || code == Errno::ACCESS.raw_os_error() => Errno::IO,
            code => Errno::from_raw_os_error(code),
        }),
        // What Linux calls EFSCORRUPTED.
        Error::Corrupt(_) => Errno::UCLEAN,
        Error::Unsupported(_) | Error::TooLargeForLog { .. } => Errno::OPNOTSUPP,
        Error::NoSpace | Error::NoInodes | Error::XattrsTooLarge(_) | Error::DirectoryFull(_) => Errno::NOSPC,
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NotPermitted(_) => Errno::PERM,
        Error::CrossProject => Errno::XDEV,
        Error::NameTooLong(_) | Error::LinkTooLong(..) => Errno::NAMETOOLONG,
        Error::FileTooLarge(_) => Errno::FBIG,
        Error::TooManyLinks => Errno::MLINK,
        Error::SymlinkLoop => Errno::LOOP,
        Error::Invalid(_) => Errno::INVAL,
        Error::WriteFailed | Error::ReadOnly => Errno::ROFS,
        _ => Errno::IO,
    }
}

/// Whether an error is the image's or the device's fault, and must be logged beside the number.
#[must_use]
pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Corrupt(_) | Error::WriteFailed)
}
