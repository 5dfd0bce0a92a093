//! Names that nobody can know before: for what has a name only until it is whole.

use rustix::rand::GetRandomFlags;
use std::ffi::OsString;
use std::io;

/// Letters of random names.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Letters of one.
const LENGTH: usize = 16;

/// True if [`name`] could have made this, behind its prefix.
pub(crate) fn is_random(letters: &[u8]) -> bool {
    letters.len() == LENGTH && letters.iter().all(|letter| LETTERS.contains(letter))
}

/// A name of 16 random letters behind `prefix`: nobody can have put something there before.
///
/// # Errors
/// The system gives no random bytes.
pub(crate) fn name(prefix: &str) -> io::Result<OsString> {
    let mut bytes = [0_u8; LENGTH];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::rand::getrandom(rest, GetRandomFlags::empty())?;
    }
    let letters = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(prefix.chars().chain(letters).collect::<String>().into())
}
