//! The threads that serve, and what the scheduler says of each.
//!
//! Owns: a record of each serving thread, its count of requests, and the reading of `/proc` about it. Excludes what the
//! threads do, and which class of the scheduler they are in.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::Pid;

/// Bytes that a line about a thread has at most: some forty numbers and a name.
const LINE: usize = 1024;

/// A serving thread. On a line of the processor's cache of its own: its thread counts in it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ServerThread {
    pub(crate) thread: Pid,
    served: AtomicU64,
    /// `None` where `/proc` does not say it.
    turns: Option<File>,
    state: Option<File>,
}

/// Counters of the scheduler for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SchedStats {
    /// Nanoseconds on a processor.
    pub(crate) ran: u64,
    /// Nanoseconds that it could have run and waited for a processor.
    pub(crate) waited: u64,
    /// How often it got a processor.
    pub(crate) count: u64,
}

impl ServerThread {
    /// The calling thread's.
    fn of_this_thread() -> Self {
        #[expect(clippy::disallowed_methods, reason = "what the kernel shows of threads and processors")]
        let about = |name: &str| File::open(format!("/proc/thread-self/{name}")).ok();
        let (turns, state) = (about("schedstat"), about("stat"));
        ServerThread { thread: rustix::thread::gettid(), served: AtomicU64::new(0), turns, state }
    }

    /// Counts a request, on this thread; returns how many there were before.
    pub(crate) fn count(&self) -> u64 {
        // Nobody else writes it.
        let served = self.served.load(Ordering::Relaxed);
        self.served.store(served.wrapping_add(1), Ordering::Relaxed);
        served
    }

    /// Requests that were counted.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Reads the scheduler's counters; `None` where it does not count, or once the thread has ended.
    pub(crate) fn turns(&self) -> Option<SchedStats> {
        line(self.turns.as_ref()?, |text| {
            let mut numbers = text.split_ascii_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(SchedStats { ran: next()?, waited: next()?, count: next()? })
        })
    }

    /// Returns true if the thread runs or waits for a processor at this moment.
    pub(crate) fn is_runnable(&self) -> bool {
        let state = |text: &str| text.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R'));
        self.state.as_ref().and_then(|file| line(file, state)).unwrap_or(false)
    }
}

/// Parses a file of one line.
fn line<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; LINE];
    let len = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(text.get(..len)?).ok()?)
}

/// The threads that serve a mount, and what the scheduler does with them.
#[derive(Clone, Debug, Default)]
pub struct Scheduling(Arc<All>);

#[derive(Debug, Default)]
struct All {
    server_threads: Mutex<Vec<Arc<ServerThread>>>,
    gives_way: AtomicBool,
    lowered: AtomicU64,
    raised: AtomicU64,
    starved: AtomicU64,
}

/// Counts of all serving threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Scheduled {
    /// Threads that serve.
    pub threads: usize,
    /// Requests that came, whether or not they have an answer.
    pub requests: u64,
    /// Nanoseconds that the threads had a processor.
    pub ran_ns: u64,
    /// Nanoseconds that they could run and waited for one.
    pub waited_ns: u64,
    /// How often they got one.
    pub turns: u64,
    /// True if threads give way where that helps.
    pub gives_way: bool,
    /// Threads that began to give way.
    pub lowered: u64,
    /// Threads that ceased to.
    pub raised: u64,
    /// How often they ceased because one had to wait.
    pub starved: u64,
}

impl Scheduling {
    /// Registers the calling thread.
    pub(crate) fn register(&self) -> Arc<ServerThread> {
        let server_thread = Arc::new(ServerThread::of_this_thread());
        self.server_threads().push(Arc::clone(&server_thread));
        server_thread
    }

    /// Notes that threads give way from now on.
    pub(crate) fn gives_way(&self) {
        self.0.gives_way.store(true, Ordering::Relaxed);
    }

    /// Counts a thread that began to give way, or ceased.
    pub(crate) fn changed(&self, gives_way: bool) {
        let counter = if gives_way { &self.0.lowered } else { &self.0.raised };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that all ceased because one had to wait.
    pub(crate) fn starved(&self) {
        self.0.starved.fetch_add(1, Ordering::Relaxed);
    }

    fn server_threads(&self) -> MutexGuard<'_, Vec<Arc<ServerThread>>> {
        self.0.server_threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts until now. Times are 0 where the kernel does not count them.
    #[must_use]
    pub fn now(&self) -> Scheduled {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let All { gives_way, lowered, raised, starved, .. } = &*self.0;
        let gives_way = gives_way.load(Ordering::Relaxed);
        let (lowered, raised, starved) = (of(lowered), of(raised), of(starved));
        let server_threads = self.server_threads();
        let threads = server_threads.len();
        let none = Scheduled { threads, gives_way, lowered, raised, starved, ..Scheduled::default() };
        server_threads.iter().fold(none, |sum, server_thread| {
            let SchedStats { ran, waited, count } = server_thread.turns().unwrap_or_default();
            Scheduled {
                requests: sum.requests.saturating_add(server_thread.served()),
                ran_ns: sum.ran_ns.saturating_add(ran),
                waited_ns: sum.waited_ns.saturating_add(waited),
                turns: sum.turns.saturating_add(count),
                ..sum
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn counters_are_those_of_the_registered_thread() {
        let server_threads = Scheduling::default();
        let server_thread = server_threads.register();
        assert!(server_thread.is_runnable());
        assert_eq!((server_thread.count(), server_thread.count(), server_thread.served()), (0, 1, 2));
        let before = server_thread.turns().expect("this machine counts turns");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {}
        std::thread::sleep(Duration::from_millis(1));
        let after = server_thread.turns().expect("this machine counts turns");
        assert!(after.count > before.count && after.ran > before.ran, "{before:?} {after:?}");
        let now = server_threads.now();
        assert!(now.threads == 1 && now.requests == 2 && now.ran_ns >= after.ran, "{now:?}");
    }

    #[test]
    fn a_thread_that_sleeps_or_has_ended_does_not_wait_for_a_processor() {
        let server_threads = Scheduling::default();
        let (give, taken) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn({
            let server_threads = server_threads.clone();
            move || {
                give.send(server_threads.register()).expect("the test waits for it");
                let _ = ended.recv();
            }
        });
        let server_thread = taken.recv().expect("it sends its record");
        while server_thread.is_runnable() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        thread.join().expect("it ends");
        assert!(!server_thread.is_runnable());
        assert_eq!(server_thread.turns(), None);
    }
}
