//! Errors as the system knows them: numbers for programs that speak to a kernel, and `std::io::Error`.

use std::io::{self, ErrorKind};

use crate::error::Error;

/// Numbers of Linux, which are the same on all of its processors that Rust's standard library knows but MIPS and SPARC.
mod number {
    pub(super) const PERM: i32 = 1;
    pub(super) const NOENT: i32 = 2;
    pub(super) const IO: i32 = 5;
    pub(super) const ACCES: i32 = 13;
    pub(super) const BUSY: i32 = 16;
    pub(super) const EXIST: i32 = 17;
    pub(super) const XDEV: i32 = 18;
    pub(super) const NOTDIR: i32 = 20;
    pub(super) const ISDIR: i32 = 21;
    pub(super) const INVAL: i32 = 22;
    pub(super) const FBIG: i32 = 27;
    pub(super) const NOSPC: i32 = 28;
    pub(super) const ROFS: i32 = 30;
    pub(super) const MLINK: i32 = 31;
    pub(super) const NAMETOOLONG: i32 = 36;
    pub(super) const NOTEMPTY: i32 = 39;
    pub(super) const LOOP: i32 = 40;
    pub(super) const OPNOTSUPP: i32 = 95;
    pub(super) const UCLEAN: i32 = 117;
    pub(super) const NOKEY: i32 = 126;
    pub(super) const DQUOT: i32 = 122;
}

impl Error {
    /// The number that Linux would give for it (`ENOENT`, `ENOSPC`, ...), on every system. What Linux calls
    /// `EFSCORRUPTED` is `EUCLEAN`.
    ///
    /// ```
    /// let image = platfs::Image::in_memory(8 << 20)?;
    /// let error = image.read("/missing").unwrap_err();
    /// assert_eq!(error.errno(), 2);
    /// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().map_or(number::IO, |code| match code {
                // Of the device, not of the file: these would be untrue of the file.
                number::NOENT | number::ACCES => number::IO,
                code => code,
            }),
            Error::Corrupt(_) => number::UCLEAN,
            Error::Unsupported(_) | Error::TooLargeForLog { .. } => number::OPNOTSUPP,
            Error::NoSpace | Error::NoInodes | Error::XattrsTooLarge(_) | Error::DirectoryFull(_) => {
                number::NOSPC
            }
            Error::QuotaExceeded { .. } => number::DQUOT,
            Error::NotFound => number::NOENT,
            Error::Exists => number::EXIST,
            Error::NotDirectory => number::NOTDIR,
            Error::IsDirectory => number::ISDIR,
            Error::NotEmpty => number::NOTEMPTY,
            Error::NotPermitted(_) => number::PERM,
            Error::CrossProject => number::XDEV,
            Error::NameTooLong(_) | Error::LinkTooLong(..) => number::NAMETOOLONG,
            Error::FileTooLarge(_) => number::FBIG,
            Error::TooManyLinks => number::MLINK,
            Error::SymlinkLoop => number::LOOP,
            Error::Invalid(_) => number::INVAL,
            Error::InUse(_) => number::BUSY,
            Error::WriteFailed | Error::TakenOver | Error::ReadOnly => number::ROFS,
            Error::Locked => number::NOKEY,
            _ => number::IO,
        }
    }

    /// Kind of the error in `std::io`.
    fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { source, .. } => source.kind(),
            Error::Corrupt(_) => ErrorKind::InvalidData,
            Error::Unsupported(_) | Error::TooLargeForLog { .. } => ErrorKind::Unsupported,
            Error::NoSpace | Error::NoInodes | Error::XattrsTooLarge(_) | Error::DirectoryFull(_) => {
                ErrorKind::StorageFull
            }
            Error::QuotaExceeded { .. } => ErrorKind::QuotaExceeded,
            Error::NotFound => ErrorKind::NotFound,
            Error::Exists => ErrorKind::AlreadyExists,
            Error::NotDirectory => ErrorKind::NotADirectory,
            Error::IsDirectory => ErrorKind::IsADirectory,
            Error::NotEmpty => ErrorKind::DirectoryNotEmpty,
            Error::NotPermitted(_) | Error::Locked => ErrorKind::PermissionDenied,
            Error::CrossProject => ErrorKind::CrossesDevices,
            Error::NameTooLong(_) | Error::LinkTooLong(..) | Error::Invalid(_) | Error::BadOption { .. } => {
                ErrorKind::InvalidInput
            }
            Error::FileTooLarge(_) => ErrorKind::FileTooLarge,
            Error::TooManyLinks => ErrorKind::TooManyLinks,
            Error::InUse(_) => ErrorKind::ResourceBusy,
            Error::WriteFailed | Error::TakenOver | Error::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            _ => ErrorKind::Other,
        }
    }
}

/// The words are kept: [`io::Error::downcast`] gives the error back.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_words_and_comes_back() {
        let error = io::Error::from(Error::NameTooLong(300));
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("300"));
        assert!(matches!(error.downcast::<Error>(), Ok(Error::NameTooLong(300))));
    }

    #[test]
    fn a_device_says_nothing_of_files() {
        let of = |code| Error::io("reading", io::Error::from_raw_os_error(code)).errno();
        assert_eq!((of(number::NOENT), of(number::ACCES)), (number::IO, number::IO));
        assert_eq!(of(number::NOSPC), number::NOSPC);
        assert_eq!(Error::io("reading", ErrorKind::Other.into()).errno(), number::IO);
    }
}
