//! Filter for names that a long directory without an index surely does not hold.
//!
//! Before a name is added, every block of such a directory must be searched: for many names that
//! grows with their square. So the hashes of all names of the one directory that was last added to
//! are kept. They are a superset of what is stored (an update that was dropped leaves its name
//! behind), so that an absent hash proves an absent name, and any other answer comes from the
//! blocks.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::units::InodeNumber;

/// Sizes of directory, in bytes, for which it is worth it: searching a smaller one takes about as
/// long as the rest of adding a name, and the hashes of a larger one would take more than 24 MiB.
pub(crate) const WORTH: std::ops::RangeInclusive<u64> = 32 << 10..=16 << 20;

/// The names of the directory that was last added to. Only verbs that change the volume use it, and
/// they do one at a time.
#[derive(Default)]
pub(crate) struct KnownNames(Mutex<Option<Names>>);

/// The names of one directory, as hashes.
pub(crate) struct Names {
    dir: InodeNumber,
    hashes: HashSet<u64>,
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Names {
    pub(crate) fn new(dir: InodeNumber) -> Self {
        Names { dir, hashes: HashSet::new() }
    }

    pub(crate) fn add(&mut self, name: &[u8]) {
        self.hashes.insert(hash(name));
    }

    fn may_hold(&self, name: &[u8]) -> bool {
        self.hashes.contains(&hash(name))
    }
}

impl KnownNames {
    fn lock(&self) -> MutexGuard<'_, Option<Names>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the directory surely lacks the name; `None` if its names are not known.
    pub(crate) fn may_hold(&self, dir: InodeNumber, name: &[u8]) -> Option<bool> {
        let names = self.lock();
        names.as_ref().filter(|names| names.dir == dir).map(|names| names.may_hold(name))
    }

    /// Takes over all names of a directory, in place of those of another.
    pub(crate) fn replace(&self, names: Names) {
        *self.lock() = Some(names);
    }

    /// Forgets the names of a directory that gets others without being searched.
    pub(crate) fn forget(&self, dir: InodeNumber) {
        self.lock().take_if(|names| names.dir == dir);
    }

    /// Notes a name that is being added.
    pub(crate) fn add(&self, dir: InodeNumber, name: &[u8]) {
        if let Some(names) = self.lock().as_mut().filter(|names| names.dir == dir) {
            names.add(name);
        }
    }
}
