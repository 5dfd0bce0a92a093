//! Signals that ask a process to end, for work that has to come to an end in order: a mount, a repair.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// The signals by which a person or the system asks a process to end.
pub struct StopSignals(SigSet);

impl StopSignals {
    /// Keeps SIGTERM, SIGINT and SIGHUP from ending this thread and those it starts: from now on they
    /// wait for [`StopSignals::wait`].
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn hold() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(StopSignals(set))
    }

    /// Waits for the next one; its name.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn wait(&self) -> io::Result<&'static str> {
        Ok(self.0.wait()?.as_str())
    }

    /// Lets them through again; one that came meanwhile ends the process now.
    pub fn release(self) {
        // Nothing can be done where the system refuses, and nothing is lost.
        let _ = self.0.thread_unblock();
    }
}
