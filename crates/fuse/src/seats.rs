//! The threads that serve, and what the scheduler says of each.
//!
//! Owns: a seat for each serving thread, its count of requests, and the reading of `/proc` about it. Excludes what the
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
pub(crate) struct Seat {
    pub(crate) thread: Pid,
    served: AtomicU64,
    /// `None` where `/proc` does not say it.
    turns: Option<File>,
    state: Option<File>,
}

/// What the scheduler has counted for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turns {
    /// Nanoseconds on a processor.
    pub(crate) ran: u64,
    /// Nanoseconds that it could have run and waited for a processor.
    pub(crate) waited: u64,
    /// How often it got a processor.
    pub(crate) count: u64,
}

impl Seat {
    /// The calling thread's.
    fn of_this_thread() -> Self {
        #[expect(clippy::disallowed_methods, reason = "what the kernel shows of threads and processors")]
        let about = |name: &str| File::open(format!("/proc/thread-self/{name}")).ok();
        let (turns, state) = (about("schedstat"), about("stat"));
        Seat { thread: rustix::thread::gettid(), served: AtomicU64::new(0), turns, state }
    }

    /// Counts a request, on the thread of this seat; how many there were before.
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

    /// What the scheduler has counted; `None` where it does not, or once the thread has ended.
    pub(crate) fn turns(&self) -> Option<Turns> {
        line(self.turns.as_ref()?, |text| {
            let mut numbers = text.split_ascii_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(Turns { ran: next()?, waited: next()?, count: next()? })
        })
    }

    /// Whether it runs or waits for a processor at this moment.
    pub(crate) fn is_runnable(&self) -> bool {
        let state = |text: &str| text.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R'));
        self.state.as_ref().and_then(|file| line(file, state)).unwrap_or(false)
    }
}

/// What a parser finds in a file of one line.
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
    seats: Mutex<Vec<Arc<Seat>>>,
    gives_way: AtomicBool,
    lowered: AtomicU64,
    raised: AtomicU64,
    starved: AtomicU64,
}

/// What has been counted until now.
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
    /// Whether threads give way where that helps.
    pub gives_way: bool,
    /// Threads that began to give way.
    pub lowered: u64,
    /// Threads that ceased to.
    pub raised: u64,
    /// How often they ceased because one had to wait.
    pub starved: u64,
}

impl Scheduling {
    /// Gives the calling thread a seat.
    pub(crate) fn take(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::of_this_thread());
        self.seats().push(Arc::clone(&seat));
        seat
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

    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted until now. Times are 0 where the kernel does not count them.
    #[must_use]
    pub fn now(&self) -> Scheduled {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let All { gives_way, lowered, raised, starved, .. } = &*self.0;
        let gives_way = gives_way.load(Ordering::Relaxed);
        let (lowered, raised, starved) = (of(lowered), of(raised), of(starved));
        let seats = self.seats();
        let threads = seats.len();
        let none = Scheduled { threads, gives_way, lowered, raised, starved, ..Scheduled::default() };
        seats.iter().fold(none, |sum, seat| {
            let Turns { ran, waited, count } = seat.turns().unwrap_or_default();
            Scheduled {
                requests: sum.requests.saturating_add(seat.served()),
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
    fn a_seat_knows_its_thread() {
        let seats = Scheduling::default();
        let seat = seats.take();
        assert!(seat.is_runnable());
        assert_eq!((seat.count(), seat.count(), seat.served()), (0, 1, 2));
        let before = seat.turns().expect("this machine counts turns");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {}
        std::thread::sleep(Duration::from_millis(1));
        let after = seat.turns().expect("this machine counts turns");
        assert!(after.count > before.count && after.ran > before.ran, "{before:?} {after:?}");
        let now = seats.now();
        assert!(now.threads == 1 && now.requests == 2 && now.ran_ns >= after.ran, "{now:?}");
    }

    #[test]
    fn a_thread_that_sleeps_or_has_ended_does_not_wait_for_a_processor() {
        let seats = Scheduling::default();
        let (give, taken) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn({
            let seats = seats.clone();
            move || {
                give.send(seats.take()).expect("the test waits for it");
                let _ = ended.recv();
            }
        });
        let seat = taken.recv().expect("it sends its seat");
        while seat.is_runnable() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        thread.join().expect("it ends");
        assert!(!seat.is_runnable());
        assert_eq!(seat.turns(), None);
    }
}
