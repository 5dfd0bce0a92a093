//! A store as volumes use it: objects by what they are, verified, remembered and fetched once.
//!
//! Owns: verification, the cache of this process, and that of two threads that want the same object one asks for
//! it. Excludes what objects are called, and what a volume does with them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::fetching::{FetchTurn, Fetching};
use crate::format::log::{self, Header};
use crate::format::manifest::{MANIFEST_MAX, Manifest};
use crate::format::map::CHUNK_MAX;
use crate::format::{Hash, VolumeId, hex, packed};
use crate::keys::{Kind, id_of, key_of, key_of_log, key_of_manifest};
use crate::objects::{Counts, Objects, Patience, Patient, Version};

/// Bytes of contents that a process remembers, and what each takes beside them.
const REMEMBERED: usize = 64 << 20;
const BESIDE: usize = 160;
/// Bytes of the longest map that many threads read at the same time. Longer ones are rare, and are read one by one: a store
/// that makes all of them as long as may be has no more of this program's memory.
const USUAL: usize = 1 << 20;
/// Bytes of a log's object that are read first: the header of nearly every one.
const FIRST: u64 = 32 << 10;

/// Where the cache has what is named by its hash.
fn entry_of(kind: Kind, name: &Hash) -> String {
    format!("{}-{}", kind.word(), hex(name))
}

/// Where the cache has the header of an object of a log.
fn entry_of_header(sum: &Hash) -> String {
    format!("header-{}", hex(sum))
}

/// Where the cache has a part of an object of a log.
fn entry_of_unit(name: &Hash) -> String {
    format!("unit-{}", hex(name))
}

/// Objects that were fetched lately, by hash.
#[derive(Default)]
struct Recent {
    found: HashMap<Hash, (Arc<Vec<u8>>, u64)>,
    bytes: usize,
    clock: u64,
}

impl Recent {
    fn get(&mut self, name: &Hash) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let (bytes, used) = self.found.get_mut(name)?;
        *used = self.clock;
        Some(Arc::clone(bytes))
    }

    fn put(&mut self, name: Hash, bytes: &Arc<Vec<u8>>) {
        self.clock += 1;
        self.bytes += bytes.len() + BESIDE;
        if let Some((old, _)) = self.found.insert(name, (Arc::clone(bytes), self.clock)) {
            self.bytes -= old.len() + BESIDE;
        }
        while self.bytes > REMEMBERED {
            let Some((&oldest, _)) = self.found.iter().min_by_key(|(_, (_, used))| *used) else { return };
            if let Some((gone, _)) = self.found.remove(&oldest) {
                self.bytes -= gone.len() + BESIDE;
            }
        }
    }
}

/// A store, with what is remembered of it.
pub struct Store {
    objects: Arc<Patient>,
    cache: Option<Cache>,
    recent: Mutex<Recent>,
    fetching: Fetching,
    is_alone: bool,
    identity: String,
    /// Held by who reads a map that is longer than usual.
    long: Mutex<()>,
    /// Bytes of objects that were unpacked or taken from a log, as they are stored.
    taken: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads something, and again if it is damaged: what was damaged on its way is not damaged in the store.
fn looked_at_twice<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    match read() {
        Err(Error::Damaged { .. }) => read(),
        done => done,
    }
}

impl Store {
    /// A store over objects.
    #[must_use]
    pub fn new(objects: Arc<dyn Objects>, patience: Patience, cache: Option<Cache>) -> Self {
        Store {
            objects: Arc::new(Patient::new(objects, patience)),
            cache,
            recent: Mutex::default(),
            fetching: Fetching::default(),
            is_alone: false,
            identity: String::new(),
            long: Mutex::default(),
            taken: AtomicU64::new(0),
        }
    }

    /// The store, with an identity that tells it from all others.
    #[must_use]
    pub fn at(self, identity: String) -> Self {
        Store { identity, ..self }
    }

    /// Returns the store's identity.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns a store of the same objects without this host's copies: for checks of the store itself.
    pub(crate) fn itself(&self) -> Self {
        Store {
            objects: Arc::clone(&self.objects),
            cache: None,
            recent: Mutex::default(),
            fetching: Fetching::default(),
            is_alone: self.is_alone,
            identity: self.identity.clone(),
            long: Mutex::default(),
            taken: AtomicU64::new(0),
        }
    }

    /// The store, which asks for one thing at a time, in the thread of whoever wants it: models decide what comes next.
    #[must_use]
    pub fn one_at_a_time(self) -> Self {
        Store { is_alone: true, ..self }
    }

    /// Requests side by side where `most` would be good.
    pub(crate) fn at_once(&self, most: usize) -> usize {
        if self.is_alone { 1 } else { most }
    }

    /// The objects themselves, with patience.
    #[must_use]
    pub fn objects(&self) -> &dyn Objects {
        &*self.objects
    }

    /// Waits for the store no longer: what fails from now on has failed.
    pub fn give_up(&self) {
        self.objects.give_up();
    }

    /// Returns the counts of requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.objects.counts()
    }

    /// The manifest of a volume, and its version.
    ///
    /// # Errors
    /// [`Error::Missing`] also for one that was removed; damage; the store's.
    pub fn manifest(&self, id: &VolumeId) -> Result<(Manifest, Version)> {
        let (manifest, version) = self.manifest_or_trace(id)?;
        if manifest.flags.removed {
            return Err(Error::Missing(manifest.name));
        }
        Ok((manifest, version))
    }

    /// The manifest of the volume of that name, and its version.
    ///
    /// # Errors
    /// [`Error::NoVolume`]; damage; the store's.
    pub fn named(&self, name: &str) -> Result<(Manifest, Version)> {
        self.manifest(&id_of(name)).map_err(|error| match error {
            Error::Missing(_) => Error::NoVolume,
            error => error,
        })
    }

    /// As [`Store::manifest`], also that of a volume that was removed.
    ///
    /// # Errors
    /// See there.
    pub fn manifest_or_trace(&self, id: &VolumeId) -> Result<(Manifest, Version)> {
        let key = key_of_manifest(id);
        looked_at_twice(|| {
            let object = self.objects.get(&key, MANIFEST_MAX as u64)?;
            let manifest = Manifest::decode(&object.bytes).map_err(|why| Error::damaged(&key, why))?;
            if manifest.id != *id {
                return Err(Error::damaged(&key, "is the manifest of another volume"));
            }
            Ok((manifest, object.version))
        })
    }

    /// Writes contents, and gives their name.
    ///
    /// # Errors
    /// The store's.
    pub fn put_contents(&self, kind: Kind, contents: &[u8]) -> Result<Hash> {
        let name = crate::format::hash(contents);
        self.objects.put(&key_of(kind, &name), &packed::pack(contents))?;
        Ok(name)
    }

    /// Contents by their name, verified.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the store has other bytes, twice; the store's.
    pub fn contents(&self, kind: Kind, name: &Hash, most: usize) -> Result<Arc<Vec<u8>>> {
        let usual = if kind == Kind::Map { most.min(USUAL) } else { most };
        let key = key_of(kind, name);
        // The lock of long contents: one is in memory at a time. It is taken once a length is found to be unusual, and kept
        // until the contents are here; its holder waits for no other contents.
        let held = RefCell::new(None);
        let is_long = || {
            held.borrow_mut().get_or_insert_with(|| lock(&self.long));
        };
        let fetch = || match self.objects.get(&key, packed::bound(usual)) {
            Err(Error::Damaged { .. }) if usual < most => {
                is_long();
                Ok(self.objects.get(&key, packed::bound(most))?.bytes)
            }
            got => Ok(got?.bytes),
        };
        self.once(
            name,
            &entry_of(kind, name),
            packed::bound(most),
            &key,
            fetch,
            |stored| match packed::unpack(stored, name, usual) {
                Err(_) if usual < most => {
                    is_long();
                    // The next step may wait for other processes, and the other threads of this one must not wait for that.
                    packed::unpack(stored, name, most).inspect_err(|_| drop(held.take()))
                }
                done => done,
            },
        )
    }

    /// A chunk by its name.
    ///
    /// # Errors
    /// As [`Store::contents`].
    pub fn chunk(&self, name: &Hash) -> Result<Arc<Vec<u8>>> {
        self.contents(Kind::Chunk, name, CHUNK_MAX)
    }

    /// The header of an object of a log and its hash, of a volume of `size` bytes; fetched each time.
    ///
    /// # Errors
    /// [`Error::Missing`]; damage; the store's.
    pub fn log_header(&self, place: (&VolumeId, u64, u64), size: u64) -> Result<(Header, Hash)> {
        self.read_header(place, size).map(|(header, sum, _)| (header, sum))
    }

    /// As that, with its bytes.
    fn read_header(&self, place: (&VolumeId, u64, u64), size: u64) -> Result<(Header, Hash, Vec<u8>)> {
        looked_at_twice(|| self.read_header_once(place, size))
    }

    fn read_header_once(&self, place: (&VolumeId, u64, u64), size: u64) -> Result<(Header, Hash, Vec<u8>)> {
        let key = key_of_log(place.0, place.1, place.2);
        let damaged = |why: String| Error::damaged(&key, why);
        let mut bytes = self.objects.range(&key, 0, FIRST)?;
        let len = Header::len(&bytes).map_err(damaged)?;
        if len > bytes.len() {
            let more = self.objects.range(&key, bytes.len() as u64, (len - bytes.len()) as u64)?;
            bytes.extend(more);
        }
        let (header, sum) = Header::decode(&bytes, size).map_err(damaged)?;
        if (&header.volume, header.epoch, header.seq) != place {
            return Err(damaged("is another object of a log".to_owned()));
        }
        bytes.truncate(len);
        Ok((header, sum, bytes))
    }

    /// The header of an object of a log by its hash, from the cache if that has it.
    pub(crate) fn known_header(&self, place: (&VolumeId, u64, u64), sum: &Hash, size: u64) -> Result<Header> {
        let entry = entry_of_header(sum);
        let kept = self.cache.as_ref().and_then(|cache| cache.get(&entry, log::HEADER_MAX as u64));
        let kept = kept.and_then(|bytes| Header::decode(&bytes, size).ok());
        if let Some((header, found)) = kept
            && found == *sum
            && (&header.volume, header.epoch, header.seq) == place
        {
            return Ok(header);
        }
        let (header, found, bytes) = self.read_header(place, size)?;
        if found != *sum {
            let key = key_of_log(place.0, place.1, place.2);
            return Err(Error::damaged(key, "is not the object that the map names"));
        }
        self.cache.iter().for_each(|cache| cache.put(&entry, &bytes));
        Ok(header)
    }

    /// Reads all data of an object of a log in one request, and verifies them.
    pub(crate) fn verified_log(&self, place: (&VolumeId, u64, u64), header: &Header) -> Result<()> {
        let key = key_of_log(place.0, place.1, place.2);
        let front = log::header_len(header) as u64;
        let is_right = || -> Result<bool> {
            let bytes = self.objects.range(&key, front, header.data_len.into())?;
            let units = bytes.chunks(log::UNIT).map(crate::format::hash);
            Ok(bytes.len() == header.data_len as usize && units.eq(header.units.iter().copied()))
        };
        // A second look: what was damaged on its way is not damaged in the store.
        match is_right()? || is_right()? {
            true => Ok(()),
            false => Err(Error::damaged(key, "its contents don't have the checksums that its header names")),
        }
    }

    /// One part of the data of an object of a log, by its checksum.
    ///
    /// # Errors
    /// As [`Store::contents`].
    pub fn log_unit(
        &self,
        place: (&VolumeId, u64, u64),
        header: &Header,
        unit: usize,
    ) -> Result<Arc<Vec<u8>>> {
        let key = key_of_log(place.0, place.1, place.2);
        let name =
            header.units.get(unit).ok_or_else(|| Error::damaged(&key, format!("has no part {unit}")))?;
        let front = log::header_len(header) as u64;
        let start = unit * log::UNIT;
        let len = (header.data_len as usize).saturating_sub(start).min(log::UNIT);
        let fetch = || self.objects.range(&key, front + start as u64, len as u64);
        self.once(name, &entry_of_unit(name), len as u64, &key, fetch, |stored| {
            if crate::format::hash(stored) == *name {
                return Ok(stored.to_vec());
            }
            Err("its contents don't have the checksum that its header names".to_owned())
        })
    }

    /// Has parts of the data of an object remembered: those that are not here yet come together.
    pub(crate) fn log_units(
        &self,
        place: (&VolumeId, u64, u64),
        header: &Header,
        units: Range<usize>,
    ) -> Result<()> {
        let key = key_of_log(place.0, place.1, place.2);
        let wanted: Vec<(usize, Hash)> =
            units.filter_map(|unit| Some((unit, *header.units.get(unit)?))).collect();
        let is_missing = |(_, name): &(usize, Hash)| !self.has(name, &entry_of_unit(name));
        let mut missing: Vec<(usize, Hash)> = wanted.into_iter().filter(is_missing).collect();
        // What others fetch comes with them.
        let mut held = BTreeMap::new();
        missing.retain(|(_, name)| {
            let at = Fetching::lock_index(name);
            let own = held.entry(at).or_insert_with(|| self.fetching.try_alone(at));
            own.is_some() && !self.is_remembered(name)
        });
        let missing: Vec<usize> = missing.into_iter().map(|(unit, _)| unit).collect();
        for run in missing.chunk_by(|one, next| one + 1 == *next) {
            let Some(first) = run.first() else { continue };
            let start = first * log::UNIT;
            let len = (header.data_len as usize).saturating_sub(start).min(run.len() * log::UNIT);
            let front = log::header_len(header) as u64;
            let bytes = self.objects.range(&key, front + start as u64, len as u64)?;
            for (unit, bytes) in run.iter().zip(bytes.chunks(log::UNIT)) {
                // A read of a damaged one asks again.
                if let Some(name) = header.units.get(*unit)
                    && crate::format::hash(bytes) == *name
                {
                    self.cache.iter().for_each(|cache| cache.put(&entry_of_unit(name), bytes));
                    self.taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.remember(name, bytes.to_vec());
                }
            }
        }
        Ok(())
    }

    /// True if something is in memory or in the cache.
    fn has(&self, name: &Hash, entry: &str) -> bool {
        self.is_remembered(name) || self.cache.as_ref().is_some_and(|cache| cache.has(entry))
    }

    /// True if parts of an object of a log are on this host.
    pub(crate) fn has_units(&self, header: &Header, mut units: Range<usize>) -> bool {
        units.all(|unit| header.units.get(unit).is_none_or(|name| self.has(name, &entry_of_unit(name))))
    }

    /// Does something for a name that one thread at a time does.
    pub(crate) fn alone_with(&self, name: &Hash) -> FetchTurn<'_> {
        self.fetching.alone(name)
    }

    /// Bytes of objects that were read so far, as they are stored: each counts again only when it was forgotten.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// True if contents are in memory.
    pub(crate) fn is_remembered(&self, name: &Hash) -> bool {
        lock(&self.recent).found.contains_key(name)
    }

    /// True if a chunk is on this host.
    pub(crate) fn is_kept(&self, name: &Hash) -> bool {
        self.has(name, &entry_of(Kind::Chunk, name))
    }

    /// Returns the bytes of a name: remembered, in the cache, or fetched by one of those who want it.
    fn once(
        &self,
        name: &Hash,
        entry: &str,
        most: u64,
        key: &str,
        fetch: impl Fn() -> Result<Vec<u8>>,
        verified: impl Fn(&[u8]) -> Result<Vec<u8>, String>,
    ) -> Result<Arc<Vec<u8>>> {
        if let Some(found) = lock(&self.recent).get(name) {
            return Ok(found);
        }
        let mut alone = self.fetching.alone(name);
        if let Some(found) = lock(&self.recent).get(name) {
            return Ok(found);
        }
        let taken = |stored: &[u8]| self.taken.fetch_add(stored.len() as u64, Ordering::Relaxed);
        alone.fetched(|| {
            if let Some(stored) = self.cache.as_ref().and_then(|cache| cache.get(entry, most)) {
                if let Ok(bytes) = verified(&stored) {
                    taken(&stored);
                    return Ok(self.remember(name, bytes));
                }
                self.cache.iter().for_each(|cache| cache.remove(entry));
            }
            // Of many processes that want it at the same time one fetches it for all.
            let only = self.cache.as_ref().and_then(|cache| cache.alone(entry));
            if only.is_some()
                && let Some(stored) = self.cache.as_ref().and_then(|cache| cache.get(entry, most))
                && let Ok(bytes) = verified(&stored)
            {
                taken(&stored);
                return Ok(self.remember(name, bytes));
            }
            let mut stored = fetch()?;
            let mut bytes = verified(&stored);
            if bytes.is_err() {
                // A second look: what was damaged on its way is not damaged in the store.
                stored = fetch()?;
                bytes = verified(&stored);
            }
            let bytes = bytes.map_err(|why| Error::damaged(key, why))?;
            self.cache.iter().for_each(|cache| cache.put(entry, &stored));
            taken(&stored);
            Ok(self.remember(name, bytes))
        })
    }

    fn remember(&self, name: &Hash, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        lock(&self.recent).put(*name, &bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::format::map::MAP_MAX;
    use crate::objects::{Fault, Memory};

    #[test]
    fn a_long_map_that_is_packed_well_is_fetched_once_and_stays_in_the_cache() {
        let (objects, place) = (Arc::new(Memory::new()), tempfile::tempdir().unwrap());
        let store = || {
            let cache = Cache::new(place.path().to_owned(), 1 << 30);
            Store::new(Arc::clone(&objects) as _, Patience::default(), Some(cache))
        };
        let (first, bytes) = (store(), vec![7; 3 << 20]);
        let name = first.put_contents(Kind::Map, &bytes).unwrap();
        assert_eq!(*first.contents(Kind::Map, &name, MAP_MAX).unwrap(), bytes);
        assert_eq!(first.counts().reads, 1);
        let second = store();
        assert_eq!(*second.contents(Kind::Map, &name, MAP_MAX).unwrap(), bytes);
        assert_eq!(second.counts().reads, 0);
    }

    #[test]
    fn readers_of_one_object_share_the_failure_to_fetch_it() {
        let (objects, asked) = (Arc::new(Memory::new()), Arc::new(AtomicUsize::new(0)));
        let patience = Patience { limit: Duration::ZERO, ..Patience::default() };
        let store = Store::new(Arc::clone(&objects) as _, patience, None);
        let name = store.put_contents(Kind::Chunk, b"something").unwrap();
        let (counter, all) = (Arc::clone(&asked), 8);
        objects.fail(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            // A store that hangs: everybody has come before it fails.
            std::thread::sleep(Duration::from_millis(300));
            Some(Fault::Lost)
        });
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..all).map(|_| scope.spawn(|| store.chunk(&name))).collect();
            readers.into_iter().for_each(|reader| assert!(reader.join().unwrap().is_err()));
        });
        // One that comes late asks for itself.
        assert!(asked.load(Ordering::Relaxed) < all / 2, "{asked:?}");
        objects.heal();
        assert_eq!(*store.chunk(&name).unwrap(), b"something");
    }
}
