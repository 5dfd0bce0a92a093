//! Patience with a store: requests are tried again until a time is over, and what was asked of the store is counted.
//!
//! Owns: what is worth another try, how long an outage is waited out, and what an answer means after an earlier try may
//! have taken effect. A conditional write that is refused is read back: if the object holds our bytes, it was ours; if
//! nothing there explains the refusal, it is tried again. So no two programs ever write the same bytes conditionally:
//! each such object has a random number in it.
//!
//! An outage is one for all requests: after it has lasted for the whole patience, each further request is tried once.
//! Requests that the store has allowed before and refuses now are waited for, too: credentials expire and are renewed.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{LISTED_MAX, Listed, NAMES_MAX, Object, Objects, REPLACED_MAX, Version, endless};
use crate::error::{Error, Result};
use platfs_device::units::{bounded, saturated};

/// Time for which a store is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The pause after the first try, about; each is twice as long as the last.
    pub pause: Duration,
    /// Longest time for which a request is tried, and an outage is waited out.
    pub limit: Duration,
    /// Hears of an outage that lasts, and of its end.
    pub tell: Option<fn(&str)>,
    /// Nobody sleeps, and the pauses are the only time that passes: for tests and models.
    pub is_simulated: bool,
}

impl Patience {
    /// As by default, in simulated time.
    #[must_use]
    pub fn simulated() -> Self {
        Patience { is_simulated: true, ..Self::default() }
    }
}

impl Default for Patience {
    fn default() -> Self {
        let (pause, limit) = (Duration::from_millis(50), Duration::from_secs(300));
        Patience { pause, limit, tell: None, is_simulated: false }
    }
}

/// The longest pause, unless the store asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// An outage that lasts so long is told.
const TOLD_AFTER: Duration = Duration::from_secs(3);
/// A failure so long after the one before begins another outage: nobody knows what was between.
const APART: Duration = Duration::from_secs(60);

/// Counts of requests to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that read, each try.
    pub reads: u64,
    /// Requests that write or remove.
    pub writes: u64,
    /// Bytes that came.
    pub bytes_in: u64,
    /// Bytes that went.
    pub bytes_out: u64,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// Kind of a request, as a store's permissions tell them apart.
#[derive(Clone, Copy)]
enum RequestKind {
    Read = 1,
    Write = 2,
    List = 4,
    Remove = 8,
}

/// A store that does not answer, by the clock of its [`Patient`].
#[derive(Clone, Copy)]
struct Outage {
    since: Duration,
    last: Duration,
    is_told: bool,
}

/// State that the requests of one store share.
#[derive(Default)]
struct OutageState {
    outage: Option<Outage>,
    /// Nothing is waited for any more.
    given_up: bool,
}

/// A store that is asked again where it does not answer.
pub struct Patient {
    inner: Arc<dyn Objects>,
    patience: Patience,
    counters: Counters,
    line: Mutex<OutageState>,
    news: Condvar,
    /// Kinds of requests that the store has allowed: bits of [`RequestKind`].
    allowed: AtomicU8,
    begun: Instant,
    /// Nanoseconds of all pauses, where time is simulated.
    paused: AtomicU64,
}

impl Patient {
    /// Puts patience before a store.
    pub fn new(inner: Arc<dyn Objects>, patience: Patience) -> Self {
        Patient {
            inner,
            patience,
            counters: Counters::default(),
            line: Mutex::default(),
            news: Condvar::new(),
            allowed: AtomicU8::new(0),
            begun: Instant::now(),
            paused: AtomicU64::new(0),
        }
    }

    /// Returns the counts of requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let own = &self.counters;
        Counts {
            reads: read(&own.reads),
            writes: read(&own.writes),
            bytes_in: read(&own.bytes_in),
            bytes_out: read(&own.bytes_out),
        }
    }

    /// Waits for nothing any more: what fails from now on has failed.
    pub fn give_up(&self) {
        self.line().given_up = true;
        self.news.notify_all();
    }

    /// The time since the beginning.
    fn now(&self) -> Duration {
        match self.patience.is_simulated {
            true => Duration::from_nanos(self.paused.load(Ordering::Relaxed)),
            false => self.begun.elapsed(),
        }
    }

    fn line(&self) -> MutexGuard<'_, OutageState> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tried<T>(
        &self,
        asked: RequestKind,
        counter: &AtomicU64,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let (begun, mut pause) = (self.now(), self.patience.pause);
        for tries in 1_u32.. {
            counter.fetch_add(1, Ordering::Relaxed);
            let failure = match work() {
                Ok(done) => {
                    self.allowed.fetch_or(asked as u8, Ordering::Relaxed);
                    self.answered();
                    return Ok(done);
                }
                Err(error) if self.may_pass(asked, &error) => error,
                Err(error) => {
                    self.answered();
                    return Err(error);
                }
            };
            if !self.waited(begun, pause, &failure) {
                return Err(tired(failure, tries, self.now().saturating_sub(begun)));
            }
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
        Err(Error::Unavailable("no try was made".into()))
    }

    /// True if the same request may succeed later.
    fn may_pass(&self, asked: RequestKind, error: &Error) -> bool {
        let was_allowed = || self.allowed.load(Ordering::Relaxed) & asked as u8 != 0;
        error.is_passing() || matches!(error, Error::Refused(_)) && was_allowed()
    }

    /// The store has answered.
    fn answered(&self) {
        let Some(outage) = self.line().outage.take() else { return };
        if let Some(tell) = self.patience.tell.filter(|_| outage.is_told) {
            let lasted = self.now().saturating_sub(outage.since);
            tell(&format!("the store answers again, after {} seconds", lasted.as_secs()));
        }
    }

    /// Waits before another try; false if there is none any more.
    fn waited(&self, begun: Duration, pause: Duration, failure: &Error) -> bool {
        let now = self.now();
        let mut line = self.line();
        let fresh = Outage { since: begun, last: now, is_told: false };
        let mut outage =
            line.outage.filter(|outage| now.saturating_sub(outage.last) < APART).unwrap_or(fresh);
        outage.last = now;
        let lasts = now.saturating_sub(outage.since);
        let left = self.patience.limit.saturating_sub(lasts.max(now.saturating_sub(begun)));
        let is_news = !outage.is_told && lasts >= TOLD_AFTER && !left.is_zero();
        outage.is_told |= is_news;
        line.outage = Some(outage);
        if line.given_up || left.is_zero() {
            return false;
        }
        let pause = match failure {
            Error::Busy { after, .. } => jittered(pause).max(*after),
            _ => jittered(pause),
        };
        if let Some(tell) = self.patience.tell.filter(|_| is_news) {
            tell(&format!("{failure}; it is tried again for {} seconds more", left.as_secs()));
        }
        if self.patience.is_simulated {
            let nanoseconds = saturated::<u64>(pause.min(left).as_nanos());
            self.paused.fetch_add(nanoseconds.max(1), Ordering::Relaxed);
            return true;
        }
        // The end of the patience is a try, too.
        let waited = self.news.wait_timeout_while(line, pause.min(left), |line| !line.given_up);
        !waited.unwrap_or_else(PoisonError::into_inner).0.given_up
    }

    fn read<T>(
        &self,
        asked: RequestKind,
        len: impl Fn(&T) -> usize,
        work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let done = self.tried(asked, &self.counters.reads, work)?;
        self.counters.bytes_in.fetch_add(len(&done) as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write<T>(&self, asked: RequestKind, bytes: &[u8], work: impl FnMut() -> Result<T>) -> Result<T> {
        let done = self.tried(asked, &self.counters.writes, work)?;
        self.counters.bytes_out.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Returns the version if a refused write was an earlier try of ours. A refusal that nothing in the store explains was none: stores
    /// refuse a conditional write also while another is under way. `before` is the version that was to be replaced.
    fn own_earlier_try(
        &self,
        key: &str,
        bytes: &[u8],
        before: Option<&Version>,
        refusal: Error,
    ) -> Result<Version> {
        match self.inner.get(key, REPLACED_MAX) {
            Ok(object) if object.bytes == bytes => Ok(object.version),
            Ok(object) if before != Some(&object.version) => Err(refusal),
            Err(Error::Missing(_)) if before.is_some() => Err(refusal),
            Ok(_) | Err(Error::Missing(_)) => {
                Err(Error::Unavailable(format!("{refusal}, it says, and a look at it shows nothing of that")))
            }
            Err(error) => Err(error),
        }
    }
}

/// The part of a list that was handed over: a list may break off and be asked for again. Stores list in the order of
/// keys. So the last key says where to go on, and no other is kept: there can be any number.
#[derive(Default)]
struct ListProgress {
    count: u64,
    /// The last key that was handed over.
    last: String,
    is_unsorted: bool,
    /// Keys were handed over before this try.
    is_again: bool,
    /// The last key that this try met.
    met: Option<String>,
}

impl ListProgress {
    /// A try begins.
    fn begin(&mut self, prefix: &str) -> Result<()> {
        self.is_again = self.count > 0;
        self.met = None;
        self.checked(prefix)
    }

    /// True if no earlier try handed this key over.
    fn is_new(&mut self, key: &str, prefix: &str) -> Result<bool> {
        self.is_unsorted |= self.met.as_deref().is_some_and(|before| key < before);
        self.checked(prefix)?;
        key.clone_into(self.met.get_or_insert_default());
        if self.is_again && key <= self.last.as_str() {
            return Ok(false);
        }
        self.count += 1;
        if self.count > LISTED_MAX {
            return Err(endless(prefix, LISTED_MAX));
        }
        key.clone_into(&mut self.last);
        Ok(true)
    }

    /// Refuses to go on with a list without order: nobody knows which of its keys an earlier try handed over.
    fn checked(&self, prefix: &str) -> Result<()> {
        match self.is_again && self.is_unsorted {
            true => Err(Error::Invalid(format!(
                "{prefix}: the list broke off, and has no order by which to go on"
            ))),
            false => Ok(()),
        }
    }
}

/// Between a half and all of a pause: those who wait for the same store don't come back together.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let parts = bounded::<u32>(crate::random::number() % 1024);
    half + half * parts / 1024
}

/// The failure of the last try, with what was done about it.
fn tired(failure: Error, tries: u32, time: Duration) -> Error {
    let words = |why: &str| match tries {
        1 => why.to_owned(),
        _ => format!("{why} (tried {tries} times in {} seconds)", time.as_secs()),
    };
    match failure {
        Error::Unavailable(why) => Error::Unavailable(words(&why)),
        Error::Busy { why, after } => Error::Busy { why: words(&why), after },
        Error::Refused(why) => Error::Refused(words(&why)),
        other => other,
    }
}

impl Objects for Patient {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.read(RequestKind::Read, |object: &Object| object.bytes.len(), || self.inner.get(key, most))
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.read(RequestKind::Read, Vec::len, || self.inner.range(key, offset, len))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.write(RequestKind::Write, bytes, || self.inner.put(key, bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.write(RequestKind::Write, bytes, || match self.inner.create(key, bytes) {
            Err(refusal @ Error::Exists(_)) => self.own_earlier_try(key, bytes, None, refusal),
            done => done,
        })
    }

    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.write(RequestKind::Write, bytes, || match self.inner.replace(key, bytes, version) {
            Err(refusal @ Error::Conflict(_)) => self.own_earlier_try(key, bytes, Some(version), refusal),
            done => done,
        })
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.read(RequestKind::Read, |_| 0, || self.inner.head(key))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let (mut handed, mut stopped) = (ListProgress::default(), None);
        let done = self.read(
            RequestKind::List,
            |()| 0,
            || {
                handed.begin(prefix)?;
                self.inner.list(prefix, &mut |listed| {
                    if handed.is_new(&listed.key, prefix)? {
                        // Any failure that is not tried again; the caller's own is in `stopped`.
                        each(listed).map_err(|why| {
                            stopped = Some(why);
                            Error::NoVolume
                        })?;
                    }
                    Ok(())
                })
            },
        );
        stopped.map_or(done, Err)
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let names = self.read(RequestKind::List, |_| 0, || self.inner.names(prefix))?;
        if names.len() > NAMES_MAX { Err(endless(prefix, NAMES_MAX)) } else { Ok(names) }
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.write(RequestKind::Remove, &[], || self.inner.remove(key))
    }

    fn lingers(&self) -> Duration {
        self.inner.lingers()
    }
}

#[cfg(test)]
mod tests;
