//! Versions of inodes: how readers that take no lock notice that what they read was changed meanwhile.
//!
//! Owns: two counters for each inode, shared by those whose numbers agree modulo [`SLOTS`]: sharing costs
//! a reader a needless second look and nothing else. Excludes: what is read, and how often it is tried
//! again (`volume::seqlock`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use ondisk::units::InodeNumber;

const SLOTS: usize = 4096;

/// Stand-in for bitmaps and descriptors: an inode that no reader looks at.
pub(crate) const SPACE: InodeNumber = InodeNumber::constant(1);

/// The versions of all inodes of a volume.
pub(crate) struct Versions {
    /// Odd while changes of the inode's record or of blocks that it leads to are published.
    changed: Box<[AtomicU64]>,
    /// Raised after data blocks left the file, and before bytes that are on the device now are dropped
    /// from memory.
    moved: Box<[AtomicU64]>,
}

fn counters() -> Box<[AtomicU64]> {
    (0..SLOTS).map(|_| AtomicU64::new(0)).collect()
}

#[expect(clippy::indexing_slicing, reason = "the remainder is below the number of slots")]
fn counter_of(counters: &[AtomicU64], number: InodeNumber) -> &AtomicU64 {
    &counters[number.get() as usize % SLOTS]
}

impl Versions {
    pub(crate) fn new() -> Self {
        Versions { changed: counters(), moved: counters() }
    }

    /// The version of an inode; `None` while it is being changed.
    pub(crate) fn changed(&self, number: InodeNumber) -> Option<u64> {
        Some(counter_of(&self.changed, number).load(Ordering::Acquire)).filter(|version| version % 2 == 0)
    }

    /// True if all that was read since [`Versions::changed`] belongs together.
    pub(crate) fn is_still(&self, number: InodeNumber, version: u64) -> bool {
        // What was read between the two looks must not be read after the second one.
        fence(Ordering::SeqCst);
        counter_of(&self.changed, number).load(Ordering::Acquire) == version
    }

    /// How often data of a file changed its place.
    pub(crate) fn moved(&self, number: InodeNumber) -> u64 {
        fence(Ordering::SeqCst);
        counter_of(&self.moved, number).load(Ordering::Acquire)
    }

    /// Data of a file changed its place.
    pub(crate) fn note_moved(&self, number: InodeNumber) {
        counter_of(&self.moved, number).fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Does what changes inodes; those whose data changes its place are given apart. One thread at a
    /// time: the writer.
    pub(crate) fn during<T>(
        &self,
        changed: &[InodeNumber],
        moved: &[InodeNumber],
        change: impl FnOnce() -> T,
    ) -> T {
        let mut slots: Vec<usize> = changed.iter().map(|number| number.get() as usize % SLOTS).collect();
        // Raised twice in one turn, a slot that two inodes share would be even, and seem at rest.
        slots.sort_unstable();
        slots.dedup();
        let turn = || {
            slots.iter().filter_map(|slot| self.changed.get(*slot)).for_each(|counter| {
                counter.fetch_add(1, Ordering::AcqRel);
            })
        };
        // Readers must see the odd count before they can see any byte of the change.
        turn();
        fence(Ordering::SeqCst);
        let done = change();
        moved.iter().for_each(|number| self.note_moved(*number));
        turn();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_has_no_version_and_then_another() {
        let versions = Versions::new();
        let [one, two, twin] = [1, 2, 4097].map(|number| InodeNumber::new(number).unwrap());
        let (before, other, place) = (versions.changed(one).unwrap(), versions.changed(two).unwrap(), 0);
        versions.during(&[one, twin, one], &[twin], || {
            assert_eq!(versions.changed(one), None);
            assert!(!versions.is_still(one, before) && versions.is_still(two, other));
        });
        assert!(versions.changed(one).is_some() && !versions.is_still(one, before));
        assert!(versions.moved(one) != place && versions.moved(two) == place);
    }
}
