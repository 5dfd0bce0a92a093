//! Gate of the device: it bounds how many threads wait there, where requests come over it.
//!
//! Owns: how many may, and whether the requests come from one program. Excludes what is done with a request, and when
//! the door is narrow ([`super`] says).
//!
//! The kernel hands a request to the thread that has waited longest at the device, and moves it to an idle processor.
//! A thread that gives way and gets the next request of the same program, too, is on the program's processor already,
//! and need not be woken at all: it goes on as soon as the program waits. So while threads give way, one waits at the
//! device, on the program's processor, and the others wait here.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Of this many requests, at most one may come from another program than the one before it.
const ALONE: u64 = 8;

/// The door to the device.
#[derive(Debug, Default)]
pub(crate) struct ReaderGate {
    narrow: AtomicBool,
    /// Threads that wait at the device, or are about to.
    inside: AtomicUsize,
    /// Held by those that go to sleep here or wake one.
    outside: Mutex<()>,
    turn: Condvar,
    /// The program that asked last.
    last: AtomicU32,
    asked: AtomicU64,
    changes: AtomicU64,
}

impl ReaderGate {
    /// Waits until this thread may wait at the device.
    pub(crate) fn enter(&self) {
        if self.may_enter() {
            return;
        }
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.may_enter() {
            outside = self.turn.wait(outside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn may_enter(&self) -> bool {
        if self.narrow.load(Ordering::SeqCst) {
            return self.inside.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        }
        self.inside.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// This thread has got a request, or something else.
    pub(crate) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets another thread in, if none is inside: the one that was may not come back soon.
    pub(crate) fn pass_on(&self) {
        if self.narrow.load(Ordering::SeqCst) && self.is_empty() {
            let _outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
            self.turn.notify_one();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }

    /// Lets one thread in at a time, or all.
    pub(super) fn set_narrow(&self, narrow: bool) {
        if self.narrow.swap(narrow, Ordering::SeqCst) && !narrow {
            let _outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
            self.turn.notify_all();
        }
    }

    /// Notes the program that asks; 0 where nobody waits for the answer. Threads that count at the same moment may lose
    /// one.
    pub(crate) fn note(&self, program: u32) {
        if program == 0 {
            return;
        }
        let add = |counter: &AtomicU64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        };
        add(&self.asked);
        if self.last.load(Ordering::Relaxed) != program {
            self.last.store(program, Ordering::Relaxed);
            add(&self.changes);
        }
    }

    /// The program that asked last; 0 if there was none.
    pub(super) fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    /// Returns true if nearly all that was noted since the last call came from one program, or from one after the other.
    pub(super) fn one_asks(&self) -> bool {
        let (asked, changes) =
            (self.asked.swap(0, Ordering::Relaxed), self.changes.swap(0, Ordering::Relaxed));
        changes.saturating_mul(ALONE) <= asked.saturating_add(ALONE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_thread_at_a_time_enters_a_narrow_door() {
        let reader_gate = Arc::new(ReaderGate::default());
        reader_gate.enter();
        reader_gate.enter();
        reader_gate.set_narrow(true);
        let (entered, seen) = mpsc::channel();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (reader_gate, entered) = (Arc::clone(&reader_gate), entered.clone());
                thread::spawn(move || {
                    reader_gate.enter();
                    entered.send(()).expect("the test waits for it");
                })
            })
            .collect();
        let nobody = || seen.recv_timeout(Duration::from_millis(30)) == Err(RecvTimeoutError::Timeout);
        assert!(nobody());
        reader_gate.leave();
        reader_gate.pass_on();
        assert!(nobody(), "there is still one");
        reader_gate.leave();
        reader_gate.pass_on();
        seen.recv().expect("one has entered");
        assert!(nobody());
        reader_gate.set_narrow(false);
        seen.recv().expect("all have entered");
        seen.recv().expect("all have entered");
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        assert_eq!(reader_gate.inside.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn programs_that_take_turns_are_noticed() {
        let reader_gate = ReaderGate::default();
        let ask = |programs: &[u32]| programs.iter().for_each(|program| reader_gate.note(*program));
        ask(&[1, 0, 1, 0, 1, 1, 1, 1, 1, 1]);
        assert!(reader_gate.one_asks());
        (0..100).for_each(|number| reader_gate.note(number % 2 + 1));
        assert!(!reader_gate.one_asks());
        // One after the other, each with twenty requests.
        (0..200).for_each(|number| reader_gate.note(number / 20 + 1));
        assert!(reader_gate.one_asks());
        assert!(reader_gate.one_asks(), "nobody asks");
    }
}
