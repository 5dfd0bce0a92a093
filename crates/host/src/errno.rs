//! Numbers of errors, for programs that know errors by them.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// Number that Linux has for an error: the system's own, else that of its kind, else `EIO`.
#[must_use]
pub fn errno_of(error: &io::Error) -> i32 {
    let of_kind = || match error.kind() {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::PermissionDenied => Errno::ACCESS,
        ErrorKind::AlreadyExists => Errno::EXIST,
        ErrorKind::ResourceBusy => Errno::BUSY,
        ErrorKind::NotADirectory => Errno::NOTDIR,
        ErrorKind::IsADirectory => Errno::ISDIR,
        ErrorKind::InvalidInput => Errno::INVAL,
        ErrorKind::StorageFull => Errno::NOSPC,
        ErrorKind::ReadOnlyFilesystem => Errno::ROFS,
        ErrorKind::CrossesDevices => Errno::XDEV,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::TimedOut => Errno::TIMEDOUT,
        ErrorKind::QuotaExceeded => Errno::DQUOT,
        ErrorKind::FileTooLarge => Errno::FBIG,
        ErrorKind::DirectoryNotEmpty => Errno::NOTEMPTY,
        ErrorKind::TooManyLinks => Errno::MLINK,
        ErrorKind::InvalidFilename => Errno::NAMETOOLONG,
        ErrorKind::Interrupted => Errno::INTR,
        ErrorKind::WouldBlock => Errno::AGAIN,
        ErrorKind::BrokenPipe => Errno::PIPE,
        _ => Errno::IO,
    };
    error.raw_os_error().unwrap_or_else(|| of_kind().raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_words_keep_the_number_of_their_kind() {
        assert_eq!(errno_of(&Errno::NOTTY.into()), Errno::NOTTY.raw_os_error());
        let busy = io::Error::from(Errno::BUSY);
        assert_eq!(errno_of(&io::Error::new(busy.kind(), "in words")), Errno::BUSY.raw_os_error());
        assert_eq!(errno_of(&io::Error::other("?")), Errno::IO.raw_os_error());
    }
}
