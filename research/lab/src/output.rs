//! Standard output for everything in this crate: `print!` and `println!` here are these.
//!
//! Those of the standard library panic when there is no reader (`plat-lab ... | head`) or the disk is full. A run goes
//! on here, since its results may go to a file too; an error is reported at its end, except that a reader left.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// The first failure; nothing is written behind it.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) fn write(text: Arguments<'_>) {
    attempt(|| io::stdout().write_fmt(text));
}

fn attempt(write: impl FnOnce() -> io::Result<()>) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        *failed = write().err();
    }
}

/// Writes out all that is buffered.
///
/// # Errors
/// Something could not be written, though there is a reader.
pub(crate) fn end() -> Result<(), String> {
    attempt(|| io::stdout().flush());
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let reported = failed.filter(|error| error.kind() != ErrorKind::BrokenPipe);
    reported.map_or(Ok(()), |error| Err(format!("standard output: {error}")))
}
