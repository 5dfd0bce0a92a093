//! Signals that stop a check (Ctrl-C, SIGTERM, SIGHUP): the exit code is fsck(8)'s, and nothing is left half done.
//!
//! One thread waits for them. What must not be cut off holds [`busy`]: the process ends behind it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::fsck;
use crate::signals::StopSignals;

static BUSY: Mutex<()> = Mutex::new(());
static WATCHER: OnceLock<bool> = OnceLock::new();

/// While this lives, signals that stop end the process with fsck's code.
pub struct Stoppable(Option<StopSignals>);

/// Takes over signals that stop. Where the system refuses they end the process as ever.
#[must_use]
pub fn stoppable() -> Stoppable {
    let held = StopSignals::hold().ok();
    // The watcher inherits that they are held: they come to it alone.
    let watched = held.is_some() && *WATCHER.get_or_init(|| std::thread::Builder::new().spawn(watch).is_ok());
    match held {
        Some(signals) if !watched => {
            signals.release();
            Stoppable(None)
        }
        held => Stoppable(held),
    }
}

/// While this lives, a signal waits.
pub fn busy() -> MutexGuard<'static, ()> {
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        if let Some(signals) = self.0.take() {
            signals.release();
        }
    }
}

fn watch() {
    let Ok(signals) = StopSignals::hold() else { return };
    let Ok(name) = signals.wait() else { return };
    let _done = busy();
    // Behind a question or a bar; past the lock of standard error, which the command holds.
    let said = format!("\nplat: check: stopped by {name}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), said.as_bytes());
    std::process::exit(i32::from(fsck::CANCELLED));
}
