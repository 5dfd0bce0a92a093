//! Signals that stop a check (Ctrl-C, SIGTERM, SIGHUP): the exit code is fsck(8)'s, and nothing is left half done.
//!
//! Work that must not be cut off holds [`busy`]: the process ends behind it.

use std::io::Write;
use std::sync::{Mutex, MutexGuard};

use super::fsck;
use crate::locks::locked;
use crate::marks;
use crate::progress;
use crate::signals::{self, Heard};

static BUSY: Mutex<()> = Mutex::new(());

/// While this lives, signals that stop end the process with fsck's code. Where the system refuses they end it as ever.
#[must_use]
pub fn stoppable() -> Option<Heard> {
    signals::hear(stop).ok()
}

/// While this lives, a signal waits.
pub fn busy() -> MutexGuard<'static, ()> {
    locked(&BUSY)
}

fn stop(name: &'static str) {
    let _done = busy();
    // Of a check the next one can't wait for the end.
    marks::release_all();
    progress::aside(|was_drawn| {
        // Else behind a question, or behind the `^C` of the terminal.
        let start = if was_drawn { "" } else { "\n" };
        let _ = std::io::stderr().write_all(format!("{start}plat: check: stopped by {name}\n").as_bytes());
        std::process::exit(i32::from(fsck::CANCELLED));
    });
}
