//! Directories that get names of inodes which are about to get other numbers.
//!
//! All names of such an inode must be known when its number changes. A scan of all directories finds those that are there;
//! what comes beside it is noted here. A name that left, or whose update was dropped, leaves its directory behind: what is
//! noted is where to look.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::units::InodeNumber;

use crate::locks::lock;

/// The inodes that are followed, and directories that got a name of one.
#[derive(Default)]
pub(crate) struct Followed {
    is_on: AtomicBool,
    places: Mutex<HashMap<InodeNumber, BTreeSet<InodeNumber>>>,
}

impl Followed {
    /// Follows these inodes from now on, in place of others.
    pub(crate) fn begin(&self, inodes: impl IntoIterator<Item = InodeNumber>) {
        *lock(&self.places) = inodes.into_iter().map(|inode| (inode, BTreeSet::new())).collect();
        self.is_on.store(true, Ordering::Release);
    }

    /// Follows none any more.
    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::Release);
        lock(&self.places).clear();
    }

    /// An inode may get a name in a directory.
    pub(crate) fn note(&self, inode: InodeNumber, directory: InodeNumber) {
        if self.is_on.load(Ordering::Acquire)
            && let Some(places) = lock(&self.places).get_mut(&inode)
        {
            places.insert(directory);
        }
    }

    /// Where names of an inode may have come since it is followed.
    pub(crate) fn places(&self, inode: InodeNumber) -> Vec<InodeNumber> {
        lock(&self.places).get(&inode).map(|places| places.iter().copied().collect()).unwrap_or_default()
    }
}
