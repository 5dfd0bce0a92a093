//! The threads that bring what was written to the device: one as soon as much waits in memory, one by
//! the clock, which also makes it stable now and then. So memory and what a crash can take are bounded. And one that
//! reclaims what a crash left.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::tree::Tree;
use platfs_open::locks::locked;

/// How often everything is made stable, unless it is written back more rarely.
const STABLE: Duration = Duration::from_secs(30);

/// How long write-back waits for something to do before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Flag that ends the threads, and the signal of it.
type Stop = Arc<(Mutex<bool>, Condvar)>;

/// The threads; they end with this value.
pub struct Keeper {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to write back what is older than a time, as often as that; and to make all stable, at
    /// least twice a minute where it is shorter; a journal is committed each time.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(tree: Arc<Tree>, every: Duration) -> io::Result<Self> {
        let stop = Stop::default();
        let (seen, seen_ahead) = (Arc::clone(&stop), Arc::clone(&stop));
        let (ahead, kept) = (Arc::clone(&tree), Arc::clone(&tree));
        let keep = move || {
            let mut since = Duration::ZERO;
            while !waited(&seen, every) {
                since += every;
                // The log has what failed; programs meet it at their next change.
                if since >= STABLE {
                    since = Duration::ZERO;
                    let _ = kept.settle();
                } else {
                    kept.write_back(every);
                    kept.commit();
                }
            }
        };
        let mut keeper = Keeper { stop, threads: Vec::new() };
        keeper.spawn("keeper", keep)?;
        keeper.spawn("write-back", move || {
            while !waited(&seen_ahead, Duration::ZERO) {
                ahead.write_back_ahead(PATIENCE);
                ahead.look_at_room();
            }
        })?;
        let seen = Arc::clone(&keeper.stop);
        keeper.spawn("reclaim", move || while !waited(&seen, Duration::ZERO) && tree.reclaim_some() {})?;
        Ok(keeper)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }
}

/// Waits; whether it was cut short by the end.
fn waited(stop: &Stop, time: Duration) -> bool {
    let (ended, changed) = &**stop;
    let ended = locked(ended);
    let waited = changed.wait_timeout_while(ended, time, |ended| !*ended);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let (ended, changed) = &*self.stop;
        *locked(ended) = true;
        changed.notify_all();
        for thread in self.threads.drain(..) {
            // Its panic was printed already; what it held is whole.
            let _ = thread.join();
        }
    }
}
