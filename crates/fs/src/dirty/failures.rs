//! Write-back errors of a file: each is reported once by every open file, as errseq does in Linux.
//!
//! An error that no open file has reported yet is also reported by files that are opened later.

use std::io;

use crate::error::Error;

/// Up to which write-back error an open file has reported ([`Node::error_cursor`](crate::Node::error_cursor)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCursor(u64);

/// The write-back errors of one file.
#[derive(Default)]
pub(crate) struct Failures {
    count: u64,
    /// The last one was reported.
    reported: bool,
    last: Option<Error>,
}

impl Failures {
    pub(crate) fn note(&mut self, error: &Error) {
        self.count += 1;
        self.reported = false;
        self.last = Some(again(error));
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Where a file that is opened now begins.
    pub(crate) fn cursor(&self) -> ErrorCursor {
        ErrorCursor(if self.reported { self.count } else { 0 })
    }

    /// Error that an open file has not reported yet; marks it as reported.
    pub(crate) fn report(&mut self, cursor: &mut ErrorCursor) -> Option<Error> {
        if *cursor == ErrorCursor(self.count) {
            return None;
        }
        *cursor = ErrorCursor(self.count);
        self.reported = true;
        self.last.as_ref().map(again)
    }

    /// The failure that was not reported yet.
    pub(crate) fn take_unreported(&mut self) -> Option<Error> {
        let mut cursor = self.cursor();
        self.report(&mut cursor)
    }
}

fn again(error: &Error) -> Error {
    match error {
        Error::NoSpace => Error::NoSpace,
        Error::WriteFailed => Error::WriteFailed,
        Error::Io { action, source } => {
            let source = match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            };
            Error::io(action.clone(), source)
        }
        other => Error::io("writing back", io::Error::other(other.to_string())),
    }
}
