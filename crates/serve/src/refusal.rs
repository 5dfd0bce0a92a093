//! A refusal in words, with the number that Linux has for it.
//!
//! Owns: that pair, from the errors it is made of. Excludes the paths that refusals are about.

use std::io;

use platfs_host::errno_of;
use rustix::io::Errno;

/// A refusal, or a failure, for a program as a number and for a person in words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{words}")]
pub struct Refusal {
    /// The number, as errno has it.
    pub errno: i32,
    /// The reason, with the remedy.
    pub words: String,
}

impl Refusal {
    /// A refusal with the number of an error of the system.
    #[must_use]
    pub fn new(errno: Errno, words: impl Into<String>) -> Self {
        Refusal { errno: errno.raw_os_error(), words: words.into() }
    }

    /// The refusal with words in front.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        Refusal { words: format!("{place}: {}", self.words), ..self }
    }
}

impl From<String> for Refusal {
    /// A request that can't be followed: `EINVAL`.
    fn from(words: String) -> Self {
        Refusal::new(Errno::INVAL, words)
    }
}

impl From<&str> for Refusal {
    fn from(words: &str) -> Self {
        words.to_owned().into()
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal { errno: errno_of(&error), words: error.to_string() }
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<platfs::Error> for Refusal {
    fn from(error: platfs::Error) -> Self {
        Refusal { errno: error.errno(), words: error.to_string() }
    }
}
