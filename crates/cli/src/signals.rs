//! Signals by which a person or the system asks a process to end or to stop, for work that has to come to an end in order.
//!
//! Owns: the thread that hears them, for the whole process. What is to be done is said by [`hear`]; if nobody says
//! anything the process ends or stops as if nothing were here, but for the line of progress and what outputs have named,
//! which go first.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use nix::sys::signal::{SigSet, Signal, raise};

use crate::locks::locked;
use crate::progress;

/// The signals that ask to end.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// One who wants to know, by a number.
type Hearer = (u64, Arc<dyn Fn(&'static str) + Send + Sync>);

static HEARERS: Mutex<Vec<Hearer>> = Mutex::new(Vec::new());
static WATCHED: OnceLock<Result<(), i32>> = OnceLock::new();

fn hearers() -> MutexGuard<'static, Vec<Hearer>> {
    locked(&HEARERS)
}

/// Has a write behind the limit of a file's size (`ulimit -f`) fail with an error, as all other writes fail, instead of
/// ending the process: a server would take with it what programs have written, and a change would be cut off. To be called
/// before there are threads: all leave the signal alone then. Programs that are started do not.
pub fn limits_are_errors() {
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
}

/// Has a thread hear all signals from now on. Threads that begin later leave them to it, as this one does.
///
/// # Errors
/// The system has no thread for it. Signals do then what they always do.
pub fn watch() -> io::Result<()> {
    let begin = || {
        let set = asking();
        set.thread_block().map_err(|error| error as i32)?;
        let spawned = std::thread::Builder::new().name("signals".into()).spawn(move || attend(&set));
        spawned.map(drop).map_err(|error| {
            let _ = set.thread_unblock();
            error.raw_os_error().unwrap_or_default()
        })
    };
    WATCHED.get_or_init(begin).map_err(io::Error::from_raw_os_error)
}

/// The signals that are asked with. What the parent has the process ignore, as `nohup` does, stays ignored.
fn asking() -> SigSet {
    let ignored = ignored();
    let heard = ENDING.iter().chain([&Signal::SIGTSTP]);
    heard.filter(|signal| ignored & (1 << (**signal as u32 - 1)) == 0).copied().collect()
}

/// A bit for each signal that is ignored.
fn ignored() -> u64 {
    let status = platfs_host::system::text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn attend(set: &SigSet) {
    while let Ok(signal) = set.wait() {
        let hearer = hearers().last().map(|(_, hearer)| Arc::clone(hearer));
        match hearer {
            Some(hearer) if ENDING.contains(&signal) => hearer(signal.as_str()),
            _ => let_through(signal),
        }
    }
}

/// Has a signal do what it does to a process that does not care: end it, or stop it until it is to go on.
fn let_through(signal: Signal) {
    progress::aside(|_| {
        if ENDING.contains(&signal) {
            platfs_host::abandon();
        }
        let only = SigSet::from(signal);
        let _ = only.thread_unblock();
        let _ = raise(signal);
        let _ = only.thread_block();
    });
}

/// While this lives, signals that ask to end are heard by somebody.
pub struct Heard(u64);

/// Has signals that ask to end come to `hearer`, on the thread that hears them, while what is returned lives. The last
/// one who says so gets them.
///
/// # Errors
/// See [`watch`].
pub fn hear(hearer: impl Fn(&'static str) + Send + Sync + 'static) -> io::Result<Heard> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    watch()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    hearers().push((number, Arc::new(hearer)));
    Ok(Heard(number))
}

impl Drop for Heard {
    fn drop(&mut self) {
        hearers().retain(|(number, _)| *number != self.0);
    }
}

/// Signals that wait for one who serves.
pub struct StopSignals {
    names: Receiver<&'static str>,
    _heard: Heard,
}

impl StopSignals {
    /// Keeps SIGTERM, SIGINT and SIGHUP from ending the process: they wait for [`StopSignals::wait`].
    ///
    /// # Errors
    /// See [`watch`].
    pub fn hold() -> io::Result<Self> {
        let (tell, names) = channel();
        let heard = hear(move |name| {
            let _ = tell.send(name);
        })?;
        Ok(StopSignals { names, _heard: heard })
    }

    /// Waits for the next one; its name.
    ///
    /// # Errors
    /// Nobody hears them any more.
    pub fn wait(&self) -> io::Result<&'static str> {
        self.names.recv().map_err(io::Error::other)
    }
}
