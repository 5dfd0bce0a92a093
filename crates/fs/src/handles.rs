//! In-memory state of inodes: their users, which have lost their last name, which
//! directory they were made in.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::units::{InodeNumber, saturated};

use crate::hashing::{NumberMap, NumberSet};

/// Directories of new files that are remembered; when there are more, all are forgotten, which costs
/// some locality and nothing else.
const DIRECTORIES_MAX: usize = 1 << 16;

/// The uses of inodes of one volume.
#[derive(Default)]
pub(crate) struct Handles(Mutex<Uses>);

#[derive(Default)]
struct Uses {
    pins: NumberMap<InodeNumber, u32>,
    writers: NumberMap<InodeNumber, u32>,
    /// Inodes in use that have no name, in the order of the list on disk.
    orphans: Vec<InodeNumber>,
    /// Orphans that are no longer in use.
    deletable: Vec<InodeNumber>,
    /// Inodes that an update is about to destroy.
    deleting: NumberSet<InodeNumber>,
    directories: NumberMap<InodeNumber, InodeNumber>,
    untidy: BTreeSet<InodeNumber>,
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more user; `false` if the inode is being destroyed.
    pub(crate) fn pin(&self, number: InodeNumber) -> bool {
        let mut uses = self.lock();
        let alive = !uses.deleting.contains(&number);
        if alive {
            *uses.pins.entry(number).or_default() += 1;
        }
        alive
    }

    /// How many users an inode has.
    pub(crate) fn users(&self, number: InodeNumber) -> u32 {
        self.lock().pins.get(&number).copied().unwrap_or(0)
    }

    /// True if an update is about to destroy an inode.
    pub(crate) fn is_deleting(&self, number: InodeNumber) -> bool {
        self.lock().deleting.contains(&number)
    }

    /// One user less; whether it was the last. An orphan without users will be destroyed by the next verb or sync.
    pub(crate) fn unpin(&self, number: InodeNumber) -> bool {
        self.unpin_then(number, 1, || {})
    }

    /// Some users less. After the last, `ended` is done before the number can come to another file.
    pub(crate) fn unpin_then(&self, number: InodeNumber, times: u64, ended: impl FnOnce()) -> bool {
        let mut uses = self.lock();
        let Some(count) = uses.pins.get_mut(&number) else { return false };
        // The kernel says how many it forgets; it is not believed to have counted as we did.
        *count = count.saturating_sub(saturated::<u32>(times));
        let last = *count == 0;
        if last {
            ended();
            uses.pins.remove(&number);
            if uses.orphans.contains(&number) {
                uses.deletable.push(number);
            }
        }
        last
    }

    /// No users any more.
    pub(crate) fn unpin_all(&self) {
        let mut uses = self.lock();
        let Uses { pins, orphans, deletable, .. } = &mut *uses;
        deletable.extend(orphans.iter().filter(|orphan| pins.contains_key(orphan)));
        pins.clear();
    }

    /// Marks an inode without names as being deleted; false if it is in use. It can't come into use again.
    pub(crate) fn mark_deleting(&self, number: InodeNumber) -> bool {
        let mut uses = self.lock();
        !uses.pins.contains_key(&number) && uses.deleting.insert(number)
    }

    /// Ends [`Handles::mark_deleting`]: the inode is deleted, or deleting it was given up.
    pub(crate) fn unmark_deleting(&self, number: InodeNumber) {
        self.lock().deleting.remove(&number);
    }

    /// True if any inode is in use that has no name.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.lock().orphans.is_empty()
    }

    /// Inodes in use that have no name, and those that are being destroyed.
    pub(crate) fn nameless(&self) -> Vec<InodeNumber> {
        self.lock().orphans.clone()
    }

    /// True if there are orphans to be destroyed.
    pub(crate) fn has_deletable(&self) -> bool {
        !self.lock().deletable.is_empty()
    }

    /// Orphans to be destroyed.
    pub(crate) fn take_deletable(&self) -> Vec<InodeNumber> {
        std::mem::take(&mut self.lock().deletable)
    }

    /// Orphans that could not be destroyed yet.
    pub(crate) fn await_end(&self, orphans: impl Iterator<Item = InodeNumber>) {
        self.lock().deletable.extend(orphans);
    }

    /// Notes an orphan at the head of the list. Its last user may have left since it was found to have
    /// one.
    pub(crate) fn add_orphan(&self, number: InodeNumber) {
        let mut uses = self.lock();
        uses.orphans.insert(0, number);
        if !uses.pins.contains_key(&number) {
            uses.deletable.push(number);
        }
    }

    /// Takes over the list of a volume that was just opened.
    pub(crate) fn adopt_orphans(&self, listed: &[InodeNumber]) {
        self.lock().orphans = listed.to_vec();
    }

    pub(crate) fn remove_orphan(&self, number: InodeNumber) {
        self.lock().orphans.retain(|orphan| *orphan != number);
    }

    /// Returns the orphan before this one in the list: `None` if the inode is no orphan, `Some(None)` if it is the first.
    pub(crate) fn orphan(&self, number: InodeNumber) -> Option<Option<InodeNumber>> {
        let uses = self.lock();
        let at = uses.orphans.iter().position(|orphan| *orphan == number)?;
        Some(at.checked_sub(1).and_then(|before| uses.orphans.get(before)).copied())
    }

    pub(crate) fn add_writer(&self, number: InodeNumber) {
        *self.lock().writers.entry(number).or_default() += 1;
    }

    /// One writer less; says whether it was the last.
    pub(crate) fn forget_writer(&self, number: InodeNumber) -> bool {
        let mut uses = self.lock();
        let Some(count) = uses.writers.get_mut(&number) else { return true };
        *count -= 1;
        let last = *count == 0;
        if last {
            uses.writers.remove(&number);
        }
        last
    }

    /// Notes the directory in which a file was made.
    pub(crate) fn made_in(&self, number: InodeNumber, directory: InodeNumber) {
        let mut uses = self.lock();
        if uses.directories.len() >= DIRECTORIES_MAX {
            uses.directories.clear();
        }
        uses.directories.insert(number, directory);
    }

    pub(crate) fn directory_of(&self, number: InodeNumber) -> Option<InodeNumber> {
        self.lock().directories.get(&number).copied()
    }

    pub(crate) fn note_untidy(&self, number: InodeNumber) {
        self.lock().untidy.insert(number);
    }

    pub(crate) fn take_untidy(&self) -> BTreeSet<InodeNumber> {
        std::mem::take(&mut self.lock().untidy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_whose_user_leaves_while_it_becomes_one_is_destroyed() {
        let handles = Handles::default();
        let number = InodeNumber::new(12).unwrap();
        assert!(handles.pin(number) && !handles.mark_deleting(number));
        handles.unpin(number);
        handles.add_orphan(number);
        assert_eq!(handles.take_deletable(), [number]);
    }

    /// Nothing can destroy the inode, or pin it, before its end was told of: that would take the lock.
    #[test]
    fn the_last_user_is_gone_before_anything_else_can_have_the_number() {
        let handles = Handles::default();
        let number = InodeNumber::new(12).unwrap();
        let ended = std::cell::Cell::new(0);
        let leave = |times| {
            handles.unpin_then(number, times, || {
                assert!(handles.0.try_lock().is_err());
                ended.set(ended.get() + 1);
            })
        };
        assert!((0..3).all(|_| handles.pin(number)));
        assert!(!leave(2) && ended.get() == 0);
        assert!(leave(1) && ended.get() == 1);
        assert!(!leave(1) && ended.get() == 1);
    }
}
