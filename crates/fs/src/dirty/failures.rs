//! Write-backs of a file that failed: each failure is told to everybody who has the file open, once.
//!
//! As in Linux: one that nobody has heard of yet is also told to who opens the file later.

use std::io;

use crate::error::Error;

/// What an open file has heard of write-backs that failed ([`Volume::heard`](crate::Volume::heard)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard(u64);

/// The failures of one file.
#[derive(Default)]
pub(crate) struct Failures {
    count: u64,
    /// Somebody has heard of the last one.
    told: bool,
    last: Option<Error>,
}

impl Failures {
    pub(crate) fn note(&mut self, error: &Error) {
        self.count += 1;
        self.told = false;
        self.last = Some(again(error));
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// What a file that is opened now is to be taken to have heard.
    pub(crate) fn heard(&self) -> Heard {
        Heard(if self.told { self.count } else { 0 })
    }

    /// What an open file has not heard.
    pub(crate) fn tell(&mut self, heard: &mut Heard) -> Option<Error> {
        if *heard == Heard(self.count) {
            return None;
        }
        *heard = Heard(self.count);
        self.told = true;
        self.last.as_ref().map(again)
    }

    /// What nobody has heard.
    pub(crate) fn tell_anybody(&mut self) -> Option<Error> {
        let mut heard = Heard(if self.told { self.count } else { 0 });
        self.tell(&mut heard)
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
