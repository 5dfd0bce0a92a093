//! Names that nobody can know before: for what has a name only until it is whole.

use rustix::rand::GetRandomFlags;
use std::ffi::OsString;
use std::io;

/// A name of 16 random letters behind `prefix`: nobody can have put something there before.
///
/// # Errors
/// The system gives no random bytes.
pub(crate) fn name(prefix: &str) -> io::Result<OsString> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; 16];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        done += rustix::rand::getrandom(rest, GetRandomFlags::empty())?;
    }
    let letters = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(prefix.chars().chain(letters).collect::<String>().into())
}
