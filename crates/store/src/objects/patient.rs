//! Patience with a store: requests are tried again, within limits, and what was asked of the store is counted.
//!
//! Owns: what an answer means after an earlier try may have taken effect. A conditional write that is refused is read
//! back: if the object holds our bytes, it was ours. So no two programs ever write the same bytes conditionally: each
//! such object has a random number in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Listed, Object, Objects, Version};
use crate::error::{Error, Result};

/// How long a store is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Tries of one request.
    pub tries: u32,
    /// The pause after the first; each is twice as long as the last.
    pub pause: Duration,
    /// No further try begins after this.
    pub limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { tries: 6, pause: Duration::from_millis(50), limit: Duration::from_secs(60) }
    }
}

/// What was asked of a store.
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

/// A store that is asked again where it does not answer.
pub struct Patient {
    inner: Arc<dyn Objects>,
    patience: Patience,
    counters: Counters,
}

/// Most bytes of what is written conditionally.
const READ_BACK: u64 = 64 << 20;

impl Patient {
    /// Puts patience before a store.
    pub fn new(inner: Arc<dyn Objects>, patience: Patience) -> Self {
        Patient { inner, patience, counters: Counters::default() }
    }

    /// What was asked of the store so far.
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

    fn tried<T>(&self, counter: &AtomicU64, mut work: impl FnMut(u32) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let mut pause = self.patience.pause;
        for number in 0.. {
            counter.fetch_add(1, Ordering::Relaxed);
            match work(number) {
                Err(error) if error.is_passing() => {
                    let is_last = number.saturating_add(1) >= self.patience.tries;
                    if is_last || begun.elapsed() + pause > self.patience.limit {
                        return Err(error);
                    }
                }
                done => return done,
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2).min(Duration::from_secs(5));
        }
        Err(Error::Unavailable("no try was made".into()))
    }

    fn read<T>(&self, len: impl Fn(&T) -> usize, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let done = self.tried(&self.counters.reads, |_| work())?;
        self.counters.bytes_in.fetch_add(len(&done) as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write<T>(&self, bytes: &[u8], work: impl FnMut(u32) -> Result<T>) -> Result<T> {
        let done = self.tried(&self.counters.writes, work)?;
        self.counters.bytes_out.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Whether a refused write was an earlier try of ours.
    fn ours(&self, key: &str, bytes: &[u8], refusal: Error) -> Result<Version> {
        match self.inner.get(key, READ_BACK) {
            Ok(object) if object.bytes == bytes => Ok(object.version),
            Err(error) if error.is_passing() => Err(error),
            _ => Err(refusal),
        }
    }
}

impl Objects for Patient {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.read(|object: &Object| object.bytes.len(), || self.inner.get(key, most))
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.read(Vec::len, || self.inner.range(key, offset, len))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.write(bytes, |_| self.inner.put(key, bytes))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.write(bytes, |_| match self.inner.create(key, bytes) {
            Err(refusal @ Error::Exists(_)) => self.ours(key, bytes, refusal),
            done => done,
        })
    }

    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.write(bytes, |_| match self.inner.replace(key, bytes, version) {
            Err(refusal @ Error::Conflict(_)) => self.ours(key, bytes, refusal),
            done => done,
        })
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.read(|_| 0, || self.inner.head(key))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        // What was handed over once is not handed over again.
        let found = self.read(
            |_| 0,
            || {
                let mut found = Vec::new();
                self.inner.list(prefix, &mut |listed| {
                    found.push(listed);
                    Ok(())
                })?;
                Ok(found)
            },
        )?;
        found.into_iter().try_for_each(each)
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.read(|_| 0, || self.inner.names(prefix))
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.write(&[], |_| self.inner.remove(key))
    }

    fn lingers(&self) -> Duration {
        self.inner.lingers()
    }
}
