//! Quota costs of inodes: usage of one record, changes by an update, reservations for dirty bytes that
//! wait.
//!
//! Owns: holdings as numbers. Excludes: quota files and limits (`usage`), and records (`inode`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ondisk::features::RoCompat;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::quota::QuotaKind;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, BlockSize, InodeNumber};

use crate::hashing::NumberMap;
use crate::locks::lock;

/// Ids of a file: owner, group, project.
pub(crate) type Ids = [u32; 3];

/// An id of a kind.
pub(crate) type Whose = (QuotaKind, u32);

/// Owners of one record, and bytes that it is charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holding {
    pub(crate) ids: Ids,
    pub(crate) bytes: u64,
}

impl Holding {
    /// Usage of a record; `None` if it is not in use, or is charged to others. One on the orphan list, where an inode
    /// of the `inodes` of the volume follows, is in use.
    pub(crate) fn of_inode(inode: &Inode, size: BlockSize, inodes: u32) -> Option<Self> {
        let raw = inode.raw();
        let was_deleted = inode.links() == 0 && raw.i_dtime.get() > inodes;
        if inode.mode() == 0 || was_deleted || inode.flags().contains(InodeFlags::EA_INODE) {
            return None;
        }
        let ids = [inode.uid(), inode.gid(), inode.project()];
        Some(Holding { ids, bytes: inode.sectors(size).saturating_mul(512) })
    }
}

/// By how much the usage of an id changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct UsageDelta {
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

/// Usage changes by an update, for all ids.
#[derive(Default)]
pub(crate) struct Charges {
    changes: BTreeMap<Whose, UsageDelta>,
    /// Attributes with values in inodes of their own that an inode got or lost since its record was stored.
    values: BTreeMap<InodeNumber, i64>,
    /// Charges were reserved before, or are not the caller's: limits do not apply.
    pub(crate) is_paid: bool,
}

impl Charges {
    /// Notes that an inode got, or lost, attributes with values in inodes of their own.
    pub(crate) fn note_values(&mut self, number: InodeNumber, more: i64) {
        if more != 0 {
            *self.values.entry(number).or_default() += more;
        }
    }

    /// Takes in a record that is stored; `values` is called for how many values in inodes of their own it has now, where that matters.
    pub(crate) fn stored<E>(
        &mut self,
        number: InodeNumber,
        was: Option<Holding>,
        is: Option<Holding>,
        values: impl FnOnce() -> Result<i64, E>,
    ) -> Result<(), E> {
        let more = self.values.remove(&number).unwrap_or(0);
        match (was, is) {
            (Some(was), Some(is)) if was.ids == is.ids => {
                let bytes = signed(is.bytes).saturating_sub(signed(was.bytes));
                self.add(is.ids, UsageDelta { bytes, inodes: more });
            }
            (Some(was), Some(is)) => {
                let now = values()?;
                for at in (0..is.ids.len()).filter(|at| was.ids.get(*at) != is.ids.get(*at)) {
                    let gone = UsageDelta { bytes: -signed(was.bytes), inodes: more - 1 - now };
                    self.add_at(at, was.ids, gone);
                    self.add_at(at, is.ids, UsageDelta { bytes: signed(is.bytes), inodes: 1 + now });
                }
                let bytes = signed(is.bytes).saturating_sub(signed(was.bytes));
                for at in (0..is.ids.len()).filter(|at| was.ids.get(*at) == is.ids.get(*at)) {
                    self.add_at(at, is.ids, UsageDelta { bytes, inodes: more });
                }
            }
            (None, Some(is)) => self.add(is.ids, UsageDelta { bytes: signed(is.bytes), inodes: 1 + more }),
            (Some(was), None) => {
                self.add(was.ids, UsageDelta { bytes: -signed(was.bytes), inodes: more - 1 })
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn add(&mut self, ids: Ids, change: UsageDelta) {
        (0..ids.len()).for_each(|at| self.add_at(at, ids, change));
    }

    fn add_at(&mut self, at: usize, ids: Ids, change: UsageDelta) {
        if let (Some(kind), Some(id)) = (QuotaKind::ALL.get(at), ids.get(at)) {
            let sum = self.changes.entry((*kind, *id)).or_default();
            sum.bytes = sum.bytes.saturating_add(change.bytes);
            sum.inodes = sum.inodes.saturating_add(change.inodes);
        }
    }

    /// True if no change waits to be written to the quota files.
    pub(crate) fn is_settled(&self) -> bool {
        self.changes.is_empty()
    }

    /// Takes the changes, to be written to the quota files.
    pub(crate) fn take(&mut self) -> BTreeMap<Whose, UsageDelta> {
        std::mem::take(&mut self.changes)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes that are reserved for each id.
type Sums = Mutex<BTreeMap<Whose, u64>>;

/// Bytes reserved for what a file has in memory; given up when it is dropped.
pub(crate) struct Reserved {
    ids: Ids,
    bytes: AtomicU64,
    sums: Arc<Sums>,
}

impl Reserved {
    /// Gives up a part: those bytes are charged to the file now.
    pub(crate) fn pay(&self, bytes: u64) {
        let taken = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        let taken = taken.unwrap_or(0).min(bytes);
        let mut sums = lock(&self.sums);
        for (kind, id) in QuotaKind::ALL.into_iter().zip(self.ids) {
            if let Entry::Occupied(mut sum) = sums.entry((kind, id)) {
                *sum.get_mut() = sum.get().saturating_sub(taken);
                if *sum.get() == 0 {
                    sum.remove();
                }
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pay(u64::MAX);
    }
}

/// In-memory state of the quota files of an open volume.
#[derive(Default)]
pub(crate) struct QuotaFiles {
    /// The inode of each file; none where usage is not counted.
    files: [AtomicU32; 3],
    /// The orphan file, which belongs to no one.
    orphans: u32,
    first_inode: u32,
    /// Limits count.
    enforced: bool,
    /// Where records were met: the block, and the offset in it.
    places: [Mutex<NumberMap<u32, (Block, usize)>>; 3],
    reserved: Arc<Sums>,
    /// Files that a crash had left damaged, and what was wrong with each.
    mended: Mutex<Vec<(QuotaKind, String)>>,
}

/// Places of records that are remembered for each kind.
const PLACES_MOST: usize = 1 << 16;

impl QuotaFiles {
    /// Of a volume whose superblock names quota files.
    pub(crate) fn new(raw: &RawSuperblock, first_inode: u32, enforced: bool) -> Self {
        let files = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let has = raw.features().ro_compat.contains(RoCompat::QUOTA);
        let files = files.map(|number| AtomicU32::new(if has { number.get() } else { 0 }));
        let orphans = raw.s_orphan_file_inum.get();
        QuotaFiles { files, orphans, first_inode, enforced, ..QuotaFiles::default() }
    }

    /// True if any usage is counted.
    pub(crate) fn is_on(&self) -> bool {
        self.files.iter().any(|file| file.load(Ordering::Acquire) != 0)
    }

    /// True if limits count.
    pub(crate) fn is_enforced(&self) -> bool {
        self.is_on() && self.enforced
    }

    /// The inode of the file for a kind of ids.
    pub(crate) fn file(&self, kind: QuotaKind) -> Option<InodeNumber> {
        InodeNumber::new(self.files.get(kind as usize)?.load(Ordering::Acquire))
    }

    /// Another inode is the file for a kind of ids, or none any more.
    pub(crate) fn set_file(&self, kind: QuotaKind, number: Option<InodeNumber>) {
        if let (Some(file), Some(places)) = (self.files.get(kind as usize), self.places.get(kind as usize)) {
            lock(places).clear();
            file.store(number.map_or(0, InodeNumber::get), Ordering::Release);
        }
    }

    /// True if what an inode holds is counted.
    pub(crate) fn counts(&self, number: InodeNumber) -> bool {
        let is_named = number == InodeNumber::ROOT || number.get() >= self.first_inode;
        let is_own = |file: &AtomicU32| file.load(Ordering::Acquire) == number.get();
        is_named && self.is_on() && number.get() != self.orphans && !self.files.iter().any(is_own)
    }

    /// Notes that a file was damaged.
    pub(crate) fn note_mended(&self, kind: QuotaKind, problem: String) {
        lock(&self.mended).push((kind, problem));
    }

    /// Files that were damaged, and what was wrong with each.
    pub(crate) fn mended(&self) -> Vec<(QuotaKind, String)> {
        lock(&self.mended).clone()
    }

    /// Where a record was met.
    pub(crate) fn record_location(&self, (kind, id): Whose) -> Option<(Block, usize)> {
        lock(self.places.get(kind as usize)?).get(&id).copied()
    }

    /// Remembers where a record is; for the writer alone, as of a commit.
    pub(crate) fn remember(&self, (kind, id): Whose, place: (Block, usize)) {
        if let Some(places) = self.places.get(kind as usize) {
            let mut places = lock(places);
            if places.len() >= PLACES_MOST {
                places.clear();
            }
            places.insert(id, place);
        }
    }

    /// Bytes reserved for an id.
    pub(crate) fn reserved(&self, whose: Whose) -> u64 {
        lock(&self.reserved).get(&whose).copied().unwrap_or(0)
    }

    /// Reserves bytes for a file in addition to what it has reserved.
    pub(crate) fn reserve(&self, held: &mut Option<Arc<Reserved>>, ids: Ids, bytes: u64) {
        let mut before = 0;
        if let Some(held) = held.take_if(|held| held.ids != ids) {
            // Its owner has changed.
            before = held.bytes.load(Ordering::Relaxed);
        }
        let bytes = bytes.saturating_add(before);
        let none = || Reserved { ids, bytes: AtomicU64::new(0), sums: Arc::clone(&self.reserved) };
        let held = held.get_or_insert_with(|| Arc::new(none()));
        held.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut sums = lock(&self.reserved);
        for whose in QuotaKind::ALL.into_iter().zip(ids) {
            let sum = sums.entry(whose).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Result<i64, ()> = Ok(0);

    fn number(number: u32) -> InodeNumber {
        InodeNumber::new(number).unwrap()
    }

    #[test]
    fn what_comes_and_goes_in_one_update_is_nothing() {
        let mut charges = Charges::default();
        let held = Holding { ids: [1, 2, 3], bytes: 4096 };
        charges.stored(number(12), None, Some(held), || NONE).unwrap();
        charges.stored(number(12), Some(held), None, || NONE).unwrap();
        assert!(charges.take().values().all(|change| *change == UsageDelta::default()));
    }

    #[test]
    fn a_new_owner_takes_over_all_of_a_file() {
        let mut charges = Charges::default();
        let (was, is) = (Holding { ids: [1, 2, 3], bytes: 4096 }, Holding { ids: [5, 2, 3], bytes: 8192 });
        // One value more: two before, three now.
        charges.note_values(number(12), 1);
        charges.stored(number(12), Some(was), Some(is), || Ok::<_, ()>(3)).unwrap();
        let changes = charges.take();
        assert_eq!(changes[&(QuotaKind::User, 1)], UsageDelta { bytes: -4096, inodes: -3 });
        assert_eq!(changes[&(QuotaKind::User, 5)], UsageDelta { bytes: 8192, inodes: 4 });
        assert_eq!(changes[&(QuotaKind::Group, 2)], UsageDelta { bytes: 4096, inodes: 1 });
    }

    #[test]
    fn what_is_reserved_is_paid_or_given_up() {
        let quota_files = QuotaFiles::default();
        let mut held = None;
        quota_files.reserve(&mut held, [1, 2, 3], 100);
        quota_files.reserve(&mut held, [4, 2, 3], 50);
        let sum = |kind, id| quota_files.reserved((kind, id));
        assert_eq!(
            (sum(QuotaKind::User, 1), sum(QuotaKind::User, 4), sum(QuotaKind::Group, 2)),
            (0, 150, 150)
        );
        held.as_ref().unwrap().pay(70);
        assert_eq!(sum(QuotaKind::Project, 3), 80);
        drop(held);
        assert_eq!(sum(QuotaKind::Project, 3), 0);
        assert!(lock(&quota_files.reserved).is_empty());
    }
}
