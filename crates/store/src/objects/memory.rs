//! A store in memory: for tests, and for volumes that end with their program.
//!
//! Owns: faults on demand, so that what stands above can be tested against a store that is away, damaged, or takes
//! effect and then fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Listed, Object, Objects, Version, checked};
use crate::error::{Error, Result};
use platfs_device::units::saturated;

/// Failure of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is not carried out, and fails.
    Lost,
    /// It is carried out, and fails.
    Unanswered,
}

/// Decides what goes wrong: the name of the operation and the key.
type Faults = Box<dyn FnMut(&str, &str) -> Option<Fault> + Send>;

struct StoredObject {
    bytes: Vec<u8>,
    number: u64,
    modified: SystemTime,
}

/// A store in memory.
#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, StoredObject>>,
    faults: Mutex<Option<Faults>>,
    written: AtomicU64,
    /// Seconds that its clock is ahead.
    ahead: AtomicU64,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory of {} objects", self.lock().len())
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has requests fail from now on as `faults` says.
    pub fn fail(&self, faults: impl FnMut(&str, &str) -> Option<Fault> + Send + 'static) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(faults));
    }

    /// Has no request fail from now on.
    pub fn heal(&self) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Moves its clock.
    pub fn pass(&self, time: Duration) {
        self.ahead.fetch_add(time.as_secs(), Ordering::Relaxed);
    }

    /// Everything there is, as it is.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.lock().iter().map(|(key, kept)| (key.clone(), kept.bytes.clone())).collect()
    }

    /// A store that holds just that.
    #[must_use]
    pub fn holding(contents: BTreeMap<String, Vec<u8>>) -> Self {
        let store = Memory::new();
        contents.into_iter().for_each(|(key, bytes)| drop(store.write(&mut store.lock(), &key, &bytes)));
        store
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StoredObject>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, objects: &mut BTreeMap<String, StoredObject>, key: &str, bytes: &[u8]) -> Version {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let modified = SystemTime::now() + Duration::from_secs(self.ahead.load(Ordering::Relaxed));
        objects.insert(key.to_owned(), StoredObject { bytes: bytes.to_vec(), number, modified });
        version(number)
    }

    /// Carries a request out, or not, as the faults say.
    fn answer<T>(&self, what: &str, key: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        checked(key)?;
        let fault = match &mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(faults) => faults(what, key),
            None => None,
        };
        let gone = || Error::Unavailable(format!("{what} {key}: no answer"));
        match fault {
            Some(Fault::Lost) => Err(gone()),
            Some(Fault::Unanswered) => work().and_then(|_| Err(gone())),
            None => work(),
        }
    }
}

fn version(number: u64) -> Version {
    Version { tag: None, number: Some(number.to_string()) }
}

impl Objects for Memory {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.answer("get", key, || match self.lock().get(key) {
            None => Err(Error::Missing(key.to_owned())),
            Some(kept) if kept.bytes.len() as u64 > most => {
                Err(Error::damaged(key, format!("has more than {most} bytes")))
            }
            Some(kept) => Ok(Object { bytes: kept.bytes.clone(), version: version(kept.number) }),
        })
    }

    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.answer("range", key, || {
            let objects = self.lock();
            let kept = objects.get(key).ok_or_else(|| Error::Missing(key.to_owned()))?;
            let size = kept.bytes.len();
            let start = saturated::<usize>(offset).min(size);
            let end = start.saturating_add(saturated::<usize>(len)).min(size);
            Ok(kept.bytes.get(start..end).unwrap_or_default().to_vec())
        })
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.answer("put", key, || {
            self.write(&mut self.lock(), key, bytes);
            Ok(())
        })
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.answer("create", key, || {
            let mut objects = self.lock();
            if objects.contains_key(key) {
                return Err(Error::Exists(key.to_owned()));
            }
            Ok(self.write(&mut objects, key, bytes))
        })
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Version) -> Result<Version> {
        self.answer("replace", key, || {
            let mut objects = self.lock();
            if objects.get(key).is_none_or(|kept| version(kept.number) != *expected) {
                return Err(Error::Conflict(key.to_owned()));
            }
            Ok(self.write(&mut objects, key, bytes))
        })
    }

    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.answer("head", key, || Ok(self.lock().get(key).map(|kept| listed(key, kept))))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let found = self.answer("list", prefix, || {
            let objects = self.lock();
            let found = objects.iter().filter(|(key, _)| key.starts_with(prefix));
            Ok(found.map(|(key, kept)| listed(key, kept)).collect::<Vec<_>>())
        })?;
        found.into_iter().try_for_each(each)
    }

    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.answer("names", prefix, || {
            let objects = self.lock();
            let rest = objects.keys().filter_map(|key| key.strip_prefix(prefix));
            let mut names: Vec<String> =
                rest.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
            names.dedup();
            Ok(names)
        })
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.answer("remove", key, || {
            self.lock().remove(key);
            Ok(())
        })
    }

    fn lingers(&self) -> Duration {
        Duration::ZERO
    }
}

fn listed(key: &str, kept: &StoredObject) -> Listed {
    Listed { key: key.to_owned(), size: kept.bytes.len() as u64, modified: kept.modified }
}
