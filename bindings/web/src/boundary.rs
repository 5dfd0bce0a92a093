//! Functions that JavaScript calls, and those that it provides. Numbers above 32 bits travel as `f64`, which is exact below 2^53;
//! texts travel as an address and a length in this module's memory.
//!
//! Owns: the one session of an instance, and turning addresses into slices. Excludes: what questions mean.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use crate::pieces::{Pieces, Source};
use crate::session::{Events, Session};

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    /// Puts bytes of the file into memory; 0 when it did.
    fn read(offset: f64, to: *mut u8, len: usize) -> i32;
    /// Takes an event of the call that is under way.
    fn event(text: *const u8, len: usize);
    /// Takes the last words of a panic.
    fn panicked(text: *const u8, len: usize);
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file that the user chose.
struct Chosen {
    size: u64,
}

impl Source for Chosen {
    fn size(&self) -> u64 {
        self.size
    }

    #[expect(clippy::cast_precision_loss, reason = "sizes come as f64, and offsets lie below them")]
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // SAFETY: the page writes `len` bytes at this address and nothing else, before it returns; the buffer is ours.
        let code = unsafe { read(offset as f64, buffer.as_mut_ptr(), buffer.len()) };
        if code == 0 {
            return Ok(());
        }
        Err(io::Error::other("the browser can't read the file any more: was it changed, moved or removed?"))
    }
}

struct Page;

impl Events for Page {
    fn event(&mut self, text: &str) {
        // SAFETY: the page reads these bytes before it returns, and keeps no address.
        unsafe { event(text.as_ptr(), text.len()) }
    }
}

fn answer(bytes: Vec<u8>) {
    ANSWER.with(|answer| *answer.borrow_mut() = bytes);
}

/// A file of this size is there to be read; the calls after it are about it.
#[unsafe(no_mangle)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size: whole and not negative")]
pub extern "C" fn begin(size: f64) {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        // SAFETY: as for events.
        unsafe { panicked(text.as_ptr(), text.len()) }
    }));
    let session = Session::new(Arc::new(Pieces::new(Chosen { size: size as u64 })));
    SESSION.with(|slot| *slot.borrow_mut() = Some(session));
}

/// Memory for bytes that come from the page, to be given to [`call`] or to be read into by [`read_file`].
#[unsafe(no_mangle)]
pub extern "C" fn take(len: usize) -> *mut u8 {
    Box::into_raw(vec![0_u8; len].into_boxed_slice()).cast()
}

/// Gives memory back.
///
/// # Safety
/// It was taken with this length, and is given back once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn give(at: *mut u8, len: usize) {
    // SAFETY: by the contract, the box of `take`.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, len)) });
}

/// Asks a question; gives the length of the answer.
///
/// # Safety
/// `len` bytes were taken at this address and not given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn call(at: *const u8, len: usize) -> usize {
    // SAFETY: by the contract; JavaScript waits for this call, so that nothing else touches them.
    let question = unsafe { std::slice::from_raw_parts(at, len) };
    let text = SESSION.with(|slot| match slot.borrow_mut().as_mut() {
        Some(session) => session.ask(question, &mut Page),
        None => r#"{"error":"no file was chosen"}"#.to_owned(),
    });
    let len = text.len();
    answer(text.into_bytes());
    len
}

/// Where the last answer stands, until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn answered() -> *const u8 {
    ANSWER.with(|answer| answer.borrow().as_ptr())
}

/// Reads of a file of the volume into memory that was taken; gives the bytes that were read, 0 at the end, and -1 with a
/// text as the answer (its length as by [`failure_len`]) where it can't.
///
/// # Safety
/// `len` bytes were taken at this address and not given back.
#[unsafe(no_mangle)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an offset: whole and not negative"
)]
pub unsafe extern "C" fn read_file(inode: u32, offset: f64, at: *mut u8, len: usize) -> i32 {
    // SAFETY: as for `call`.
    let buffer = unsafe { std::slice::from_raw_parts_mut(at, len) };
    let done = SESSION.with(|slot| match slot.borrow().as_ref() {
        Some(session) => session.read(inode, offset as u64, buffer),
        None => Err("no file was chosen".to_owned()),
    });
    match done {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(text) => {
            answer(text.into_bytes());
            -1
        }
    }
}

/// The length of the text that a failed [`read_file`] left.
#[unsafe(no_mangle)]
pub extern "C" fn failure_len() -> usize {
    ANSWER.with(|answer| answer.borrow().len())
}
