//! The thread that brings what was written to the device, and makes it stable now and then, so that
//! memory and what a crash can take are bounded.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::tree::Tree;

/// How often everything is made stable, unless it is written back more rarely.
const STABLE: Duration = Duration::from_secs(30);

/// Whether it is to end, and the news of that.
type Stop = Arc<(Mutex<bool>, Condvar)>;

/// The thread; it ends with this value.
pub struct Keeper {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to write back what is older than a time, as often as that; and to make all stable, at
    /// least twice a minute where it is shorter.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(tree: Arc<Tree>, every: Duration) -> io::Result<Self> {
        let stop = Stop::default();
        let seen = Arc::clone(&stop);
        let keep = move || {
            let mut since = Duration::ZERO;
            while !waited(&seen, every) {
                since += every;
                // The log has what failed; programs meet it at their next change.
                if since >= STABLE {
                    since = Duration::ZERO;
                    let _ = tree.settle();
                } else {
                    tree.write_back(every);
                }
            }
        };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(keep)?;
        Ok(Keeper { stop, thread: Some(thread) })
    }
}

/// Waits; whether it was cut short by the end.
fn waited(stop: &Stop, time: Duration) -> bool {
    let (ended, news) = &**stop;
    let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = news.wait_timeout_while(ended, time, |ended| !*ended);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let (ended, news) = &*self.stop;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        news.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic has been told; what it held is whole.
            let _ = thread.join();
        }
    }
}
