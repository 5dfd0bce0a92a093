//! Errors as C meets them: -1 or NULL, errno, and a text for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use platfs_host::errno_of;
use platfs_serve::mount::error::MountError;

/// Failure of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Failure { errno, text: text.into() }
    }

    /// Of opening or making an image: what the host says of the file counts.
    pub(crate) fn opening(error: &platfs::Error) -> Self {
        let host = if let platfs::Error::Io { source, .. } = error { Some(errno_of(source)) } else { None };
        Failure::new(host.unwrap_or(error.errno()), error.to_string())
    }

    /// A failure with its place in front.
    pub(crate) fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }
}

impl From<platfs::Error> for Failure {
    fn from(error: platfs::Error) -> Self {
        Failure::new(error.errno(), error.to_string())
    }
}

impl From<platfs_open::image::ImageError> for Failure {
    fn from(error: platfs_open::image::ImageError) -> Self {
        Failure::new(error.errno(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(errno_of(&error), error.to_string())
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        Failure::new(error.errno(), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call: its failure is remembered, and `failed` is returned for it. A panic becomes a failure, too.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    let done = catch_unwind(AssertUnwindSafe(call));
    let failure = match done {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(libc::EIO, "an error in the library itself: it panicked; please report it"),
    };
    remember(failure);
    failed
}

fn remember(failure: Failure) {
    let text = failure.text.replace('\0', "\u{FFFD}");
    // A text without NUL is always one of C.
    let text = CString::new(text).unwrap_or_default();
    // In a thread that is ending there is no place for the text any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    set_errno(failure.errno);
}

fn set_errno(number: i32) {
    #[cfg(any(target_os = "linux", target_os = "emscripten"))]
    // SAFETY: the C library gives the address of this thread's errno, which is always there.
    unsafe {
        *libc::__errno_location() = number;
    }
    #[cfg(any(target_os = "macos", target_os = "freebsd"))]
    // SAFETY: as above.
    unsafe {
        *libc::__error() = number;
    }
    #[cfg(not(any(
        target_os = "linux",
        target_os = "emscripten",
        target_os = "macos",
        target_os = "freebsd"
    )))]
    let _ = number;
}

/// The text of this thread's last failure; empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn platfs_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn platfs_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        let value = guard(-1, || if std::hint::black_box(true) { panic!("on purpose") } else { Ok(0) });
        assert_eq!((value, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EIO)));
        let text = LAST.with(|last| last.borrow().to_string_lossy().into_owned());
        assert!(text.contains("panicked"), "{text}");
        assert_eq!(guard(-1, || Err(Failure::new(libc::ENOENT, "a\0b").at("c"))), -1);
        assert_eq!(LAST.with(|last| last.borrow().to_string_lossy().into_owned()), "c: a\u{FFFD}b");
    }
}
