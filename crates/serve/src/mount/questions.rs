//! Questions on the calls of callers, which a server in its cage asks the process outside of it.
//!
//! A question can last as long as a stranger likes, who can keep his memory from being read. So each question has a number
//! and a thread that answers it. A question that hangs holds up its asker only, and takes one of the few places of its user.
//!
//! Owns: which answer belongs to which question, and the most questions at once, of one user and of all. Excludes how a
//! call is looked at (`tree::calls`).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use serde::{Deserialize, Serialize};

use super::passing::{receive, send};
use super::tree::calls::{self, Call};
use platfs_open::locks::locked;

/// Longest that an answer is waited for: what is known of a call is waited for half a minute.
const PATIENCE: Duration = Duration::from_secs(40);
/// A question that is not answered by then may never be.
const SLOW: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(2) };
/// Most questions at once that are about callers of one user, and of all: few of the threads that serve can wait.
const OF_ONE_USER: usize = 4;
const OF_ALL: usize = 12;

#[derive(Serialize, Deserialize)]
struct Question {
    number: u64,
    thread: u32,
    inode: u64,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    number: u64,
    call: Call,
}

/// A question that the process outside has not answered, whether or not somebody still waits.
struct Open {
    user: u32,
    since: Instant,
    asker: SyncSender<Call>,
}

/// Places for questions.
#[derive(Default)]
struct Places {
    last: u64,
    open: HashMap<u64, Open>,
    is_ended: bool,
}

impl Places {
    /// True if a place is free for a user, false if one may be soon; `None` if those that have the places seem to hang.
    fn has(&self, user: u32) -> Option<bool> {
        let of_user = || self.open.values().filter(|open| open.user == user);
        let hangs = |open: &Open| open.since.elapsed() > SLOW;
        if self.is_ended {
            None
        } else if of_user().count() >= OF_ONE_USER {
            (!of_user().any(hangs)).then_some(false)
        } else if self.open.len() >= OF_ALL {
            (!self.open.values().any(hangs)).then_some(false)
        } else {
            Some(true)
        }
    }
}

#[derive(Default)]
struct Desk {
    places: Mutex<Places>,
    freed: Condvar,
}

impl Desk {
    fn take(&self, user: u32) -> Option<(u64, Receiver<Call>)> {
        let mut places = locked(&self.places);
        while !places.has(user)? {
            let waited = self.freed.wait_timeout(places, SLOW);
            places = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        let (asker, answer) = mpsc::sync_channel(1);
        places.last += 1;
        let number = places.last;
        places.open.insert(number, Open { user, since: Instant::now(), asker });
        Some((number, answer))
    }

    fn give(&self, answer: &Answer) {
        if let Some(open) = locked(&self.places).open.remove(&answer.number) {
            // Who has waited long enough is gone.
            let _ = open.asker.try_send(answer.call);
        }
        self.freed.notify_all();
    }

    /// Nothing is answered from now on.
    fn end(&self) {
        let mut places = locked(&self.places);
        (places.is_ended, places.open) = (true, HashMap::new());
        self.freed.notify_all();
    }
}

/// The server's end.
pub(super) struct Questions {
    socket: Arc<OwnedFd>,
    desk: Arc<Desk>,
    /// A thread takes the answers. The first question starts it, in the cage.
    is_read: Mutex<bool>,
}

impl Questions {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Questions { socket: Arc::new(socket), desk: Arc::default(), is_read: Mutex::new(false) }
    }

    /// The call that a thread of a user waits in.
    pub(super) fn ask(&self, user: u32, thread: u32, inode: u64) -> Call {
        {
            let mut is_read = locked(&self.is_read);
            if !*is_read && self.read().is_err() {
                return Call::Hidden;
            }
            *is_read = true;
        }
        let Some((number, answer)) = self.desk.take(user) else { return Call::Hidden };
        if send(&self.socket, &Question { number, thread, inode }, None).is_err() {
            self.desk.end();
        }
        // A place that is not left keeps this user from filling others.
        answer.recv_timeout(PATIENCE).unwrap_or(Call::Hidden)
    }

    fn read(&self) -> io::Result<()> {
        let (socket, desk) = (Arc::clone(&self.socket), Arc::clone(&self.desk));
        let read = move || {
            while let Ok(Some((answer, _))) = receive::<Answer>(&socket) {
                desk.give(&answer);
            }
            desk.end();
        };
        thread::Builder::new().name("answers".into()).spawn(read).map(drop)
    }

    /// Asks nothing more.
    pub(super) fn end(&self) {
        self.desk.end();
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

/// Answers, outside of the cage, until the channel ends. The mount has this device, once it stands.
pub(super) fn answer(channel: OwnedFd, device: &Arc<OnceLock<u64>>) -> io::Result<()> {
    let (channel, busy) = (Arc::new(channel), Arc::new(AtomicUsize::new(0)));
    while let Some((Question { number, thread, inode }, _)) = receive(&channel)? {
        let (to, place) = (Arc::clone(&channel), Arc::clone(&busy));
        let has_place = busy.fetch_add(1, Ordering::Relaxed) < OF_ALL;
        let device = device.get().copied().filter(|_| has_place);
        let look = move || {
            let call = device.map_or(Call::Hidden, |device| calls::seen(thread, (device, inode)));
            place.fetch_sub(1, Ordering::Relaxed);
            // The server may have ended.
            let _ = send(&to, &Answer { number, call }, None);
        };
        // Where there is no thread for this question, the next one may have one.
        if thread::Builder::new().spawn(look).is_err() {
            busy.fetch_sub(1, Ordering::Relaxed);
            send(&channel, &Answer { number, call: Call::Hidden }, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::passing::pair;

    /// Answers that are asked of a made-up process outside: those about the inode 0 hang until they are let go.
    fn with_outside(work: impl FnOnce(&Questions, &dyn Fn())) {
        let (here, there) = pair().unwrap();
        let questions = Questions::new(here);
        let hung = Mutex::new(Vec::new());
        let said = |Question { number, inode, .. }: Question| {
            let call = Call::Writes { offset: None, len: inode };
            send(&there, &Answer { number, call }, None).unwrap();
        };
        let let_go = || std::mem::take(&mut *locked(&hung)).into_iter().for_each(said);
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok(Some((question, _))) = receive::<Question>(&there) {
                    if question.inode == 0 { locked(&hung).push(question) } else { said(question) }
                }
            });
            work(&questions, &let_go);
            questions.end();
        });
    }

    fn answered(inode: u64) -> Call {
        Call::Writes { offset: None, len: inode }
    }

    #[test]
    fn a_question_that_hangs_hurts_only_who_waits_for_it() {
        with_outside(|questions, let_go| {
            thread::scope(|scope| {
                let hung: Vec<_> = (0..OF_ONE_USER).map(|_| scope.spawn(|| questions.ask(1, 1, 0))).collect();
                while locked(&questions.desk.places).open.len() < OF_ONE_USER {
                    thread::yield_now();
                }
                // Of the same user there is no place, and after a while nobody waits for one.
                assert_eq!(questions.ask(1, 1, 5), Call::Hidden);
                for inode in 1..100 {
                    assert_eq!(questions.ask(2, 1, inode), answered(inode));
                }
                let_go();
                for hung in hung {
                    assert_eq!(hung.join().unwrap(), answered(0));
                }
            });
            assert_eq!(questions.ask(1, 1, 6), answered(6), "its places are free again");
        });
    }

    #[test]
    fn all_users_together_have_some_places_and_none_after_the_end() {
        with_outside(|questions, let_go| {
            thread::scope(|scope| {
                for (user, _) in (0_u32..).zip(0..OF_ALL) {
                    scope.spawn(move || questions.ask(user, 1, 0));
                }
                while locked(&questions.desk.places).open.len() < OF_ALL {
                    thread::yield_now();
                }
                assert_eq!(questions.ask(99, 1, 5), Call::Hidden);
                let_go();
            });
            questions.end();
            assert_eq!(questions.ask(99, 1, 5), Call::Hidden);
        });
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn nothing_is_told_before_the_mount_stands() {
        use std::io::Write;

        let (here, there) = pair().unwrap();
        let device: Arc<OnceLock<u64>> = Arc::default();
        thread::scope(|scope| {
            scope.spawn(|| answer(there, &device));
            let questions = Questions::new(here);
            let _ended = Ended(&questions);
            let (mut read, mut write) = io::pipe().unwrap();
            let facts = rustix::fs::fstat(&write).unwrap();
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || {
                sender.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                // Longer than a pipe holds: it waits.
                write.write_all(&[1; 300_000]).unwrap();
            });
            let writer = receiver.recv().unwrap();
            let is_seen = (0..30_000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                calls::seen(writer, (facts.st_dev, facts.st_ino)) != Call::Hidden
            });
            assert!(is_seen, "the call of a thread is not seen");
            assert_eq!(questions.ask(0, writer, facts.st_ino), Call::Hidden);
            device.set(facts.st_dev).unwrap();
            let told = questions.ask(0, writer, facts.st_ino);
            assert!(matches!(told, Call::Writes { len: 300_000, .. }), "{told:?}");
            io::copy(&mut read, &mut io::sink()).unwrap();
        });
    }

    /// Ends the channel when a test ends, also when it fails: a thread waits for that.
    struct Ended<'q>(&'q Questions);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
}
