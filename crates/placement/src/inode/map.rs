//! Inode bitmaps and counters of all groups.
//!
//! One lock per group, held for the change of one bit. A group that is filled in order needs no
//! bitmap in memory.

use super::InodeRefusal;
use super::policy::Goal;
use crate::index::region::{self, fill};
use crate::layout::Layout;
use crate::request::{Contradiction, Denial};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use ondisk::units::Group;

/// Content of a group's inode bitmap, as far as the caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeContent {
    /// The bitmap on disk must be read before any inode of the group is allocated or freed.
    Unknown,
    /// The bitmap on disk is not initialised (`INODE_UNINIT`): the first `used` inodes of the
    /// group are in use (the reserved ones of group 0), all others free.
    Uninitialised {
        /// Inodes in use at the start of the group.
        used: u32,
    },
}

/// Bits of one group.
enum Bits {
    Unknown,
    /// Inodes below the number are used, all others free.
    Prefix(u32),
    /// A set bit is used; no free bit lies below `first`.
    Mapped {
        words: Box<[u64]>,
        first: u32,
    },
    /// Bitmap and descriptor disagree.
    Broken,
}

struct GroupInodes {
    bits: Mutex<Bits>,
    free: AtomicU32,
    dirs: AtomicU32,
}

/// Inodes of a volume.
pub(crate) struct InodeMap {
    layout: Layout,
    groups: Box<[GroupInodes]>,
    free: AtomicU64,
    dirs: AtomicU64,
    /// Where the search in rising order goes on.
    cursor: AtomicU32,
    /// Groups policies have looked at.
    considered: AtomicU64,
    /// From this group on no inode is given out.
    end: AtomicU32,
}

impl InodeMap {
    pub(crate) fn new(layout: Layout) -> Self {
        let group = |_| GroupInodes {
            bits: Mutex::new(Bits::Unknown),
            free: AtomicU32::new(0),
            dirs: AtomicU32::new(0),
        };
        InodeMap {
            layout,
            groups: (0..layout.groups).map(group).collect(),
            free: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
            cursor: AtomicU32::new(0),
            considered: AtomicU64::new(0),
            end: AtomicU32::new(u32::MAX),
        }
    }

    fn per_group(&self) -> u32 {
        self.layout.inodes_per_group
    }

    pub(crate) fn group_of(&self, index: u32) -> Group {
        Group(index.checked_div(self.per_group()).unwrap_or(0))
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    pub(crate) fn dirs(&self) -> u64 {
        self.dirs.load(Ordering::Acquire)
    }

    fn group(&self, group: Group) -> Option<&GroupInodes> {
        self.groups.get(group.0 as usize)
    }

    /// True if the inodes of a group are given out.
    fn is_open(&self, group: Group) -> bool {
        group.0 < self.end.load(Ordering::Acquire)
    }

    /// From now on no inode of this group and those behind it is given out. What is free there does not count any more.
    pub(crate) fn close(&self, first: Group) {
        self.open();
        self.end.store(first.0, Ordering::Release);
        self.free.fetch_sub(self.free_from(first), Ordering::AcqRel);
    }

    /// Inodes of all groups are given out again.
    pub(crate) fn open(&self) {
        let end = Group(self.end.swap(u32::MAX, Ordering::AcqRel));
        self.free.fetch_add(self.free_from(end), Ordering::AcqRel);
    }

    fn free_from(&self, first: Group) -> u64 {
        let groups = self.groups.get(first.0 as usize..).unwrap_or_default();
        groups.iter().map(|group| u64::from(group.free.load(Ordering::Acquire))).sum()
    }

    pub(crate) fn group_free(&self, group: Group) -> u32 {
        if !self.is_open(group) {
            return 0;
        }
        self.group(group).map_or(0, |g| g.free.load(Ordering::Acquire))
    }

    pub(crate) fn group_dirs(&self, group: Group) -> u32 {
        self.group(group).map_or(0, |g| g.dirs.load(Ordering::Acquire))
    }

    fn lock(&self, group: Group) -> Option<MutexGuard<'_, Bits>> {
        self.group(group).map(|g| g.bits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn describe(
        &self,
        group: Group,
        free: u32,
        dirs: u32,
        content: InodeContent,
    ) -> Result<(), Contradiction> {
        let size = self.per_group();
        let slot = self.group(group).ok_or(Contradiction::NoSuchGroup(group))?;
        if free > size {
            return Err(Contradiction::TooManyFree { group, free, size });
        }
        let mut bits = slot.bits.lock().unwrap_or_else(PoisonError::into_inner);
        if let InodeContent::Uninitialised { used } = content
            && size.checked_sub(used) != Some(free)
        {
            *bits = Bits::Broken;
            self.set_counts(slot, 0, dirs);
            let counted = size.saturating_sub(used);
            return Err(Contradiction::FreeCount { group, counted, described: free });
        }
        *bits = match content {
            InodeContent::Unknown => Bits::Unknown,
            InodeContent::Uninitialised { used } => Bits::Prefix(used),
        };
        self.set_counts(slot, free, dirs);
        Ok(())
    }

    fn set_counts(&self, slot: &GroupInodes, free: u32, dirs: u32) {
        // Added first: between the two the sum is too large, but never below zero.
        let before = slot.free.swap(free, Ordering::AcqRel);
        self.free.fetch_add(u64::from(free), Ordering::AcqRel);
        self.free.fetch_sub(u64::from(before), Ordering::AcqRel);
        let before = slot.dirs.swap(dirs, Ordering::AcqRel);
        self.dirs.fetch_add(u64::from(dirs), Ordering::AcqRel);
        self.dirs.fetch_sub(u64::from(before), Ordering::AcqRel);
    }

    /// Takes a group out of service, whatever is known of it.
    pub(crate) fn retire(&self, group: Group) {
        let Some(slot) = self.group(group) else { return };
        let mut bits = slot.bits.lock().unwrap_or_else(PoisonError::into_inner);
        *bits = Bits::Broken;
        self.set_counts(slot, 0, slot.dirs.load(Ordering::Acquire));
    }

    pub(crate) fn load(&self, group: Group, bitmap: &[u8]) -> Result<(), Contradiction> {
        let size = self.per_group();
        let slot = self.group(group).ok_or(Contradiction::NoSuchGroup(group))?;
        let needed = size.div_ceil(8) as usize;
        let Some(bytes) = bitmap.get(..needed) else {
            return Err(Contradiction::ShortBitmap { group, bytes: bitmap.len(), needed });
        };
        let mut bits = slot.bits.lock().unwrap_or_else(PoisonError::into_inner);
        // Two may have read the bitmap: what the first one brought has been changed since.
        if !matches!(*bits, Bits::Unknown) {
            return Ok(());
        }
        let words = words_of(bytes, size);
        let counted: u32 = words.iter().map(|word| word.count_zeros()).sum();
        let described = slot.free.load(Ordering::Acquire);
        if counted != described {
            *bits = Bits::Broken;
            self.set_counts(slot, 0, slot.dirs.load(Ordering::Acquire));
            return Err(Contradiction::FreeCount { group, counted, described });
        }
        *bits = Bits::Mapped { words, first: 0 };
        Ok(())
    }

    pub(crate) fn consider(&self) {
        self.considered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn considered(&self) -> u64 {
        self.considered.load(Ordering::Relaxed)
    }

    /// The first free inode of a loaded group at or after `from`.
    pub(crate) fn peek(&self, group: Group, from: u32) -> Option<u32> {
        let bits = self.lock(group).filter(|_| self.is_open(group))?;
        let at = match &*bits {
            Bits::Unknown | Bits::Broken => return None,
            Bits::Prefix(used) => (*used).max(from),
            Bits::Mapped { words, first } => next_free(words, (*first).max(from)),
        };
        (at < self.per_group()).then_some(at)
    }

    /// The first run of free inodes of a loaded group at or after `from`: its first, and one past its
    /// last.
    pub(crate) fn peek_run(&self, group: Group, from: u32) -> Option<(u32, u32)> {
        let size = self.per_group();
        let bits = self.lock(group).filter(|_| self.is_open(group))?;
        let (start, end) = match &*bits {
            Bits::Unknown | Bits::Broken => return None,
            Bits::Prefix(used) => ((*used).max(from), size),
            Bits::Mapped { words, first } => {
                let start = next_free(words, (*first).max(from));
                (start, next_used(words, start).min(size))
            }
        };
        (start < end).then_some((start, end))
    }

    /// Takes the first free inode of a group from a number on; `None` if it has none.
    fn take_first(&self, group: Group, from: u32) -> Result<Option<u32>, InodeRefusal> {
        let size = self.per_group();
        let Some(slot) = self.group(group).filter(|_| self.is_open(group)) else { return Ok(None) };
        // A full group costs no lock, and its bitmap need not be loaded.
        if slot.free.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let mut bits = slot.bits.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match &*bits {
            Bits::Unknown => return Err(InodeRefusal::NeedBitmap(group)),
            Bits::Broken => return Ok(None),
            Bits::Prefix(used) => (*used).max(from),
            Bits::Mapped { words, first } => next_free(words, (*first).max(from)),
        };
        if at >= size || !bits.set(at, true, size) {
            return Ok(None);
        }
        self.count(group, slot, true);
        drop(bits);
        Ok(Some(group.0.saturating_mul(size).saturating_add(at)))
    }

    /// Takes the next free inode in rising order, around the volume.
    pub(crate) fn take_next(&self) -> Result<u32, InodeRefusal> {
        let start = self.cursor.load(Ordering::Acquire);
        let home = self.group_of(start);
        let from = start.checked_rem(self.per_group()).unwrap_or(0);
        let first = if from > 0 { self.take_first(home, from)? } else { None };
        let index = match first {
            Some(index) => index,
            None => {
                let next = if from > 0 { home.0.saturating_add(1) } else { home.0 };
                let order = (next..self.layout.groups).chain(0..next.min(self.layout.groups));
                self.take_in_order(order.map(Group))?
            }
        };
        self.cursor.store(index.saturating_add(1), Ordering::Release);
        Ok(index)
    }

    /// Takes an inode in the goal's group, from its number on if there is one.
    pub(crate) fn take_at(&self, goal: Goal) -> Result<Option<u32>, InodeRefusal> {
        let behind = if goal.from > 0 { self.take_first(goal.group, goal.from)? } else { None };
        if behind.is_some() { Ok(behind) } else { self.take_first(goal.group, 0) }
    }

    /// Takes an inode in the first of these groups that has one, else in any.
    pub(crate) fn take_among(&self, groups: &[Group]) -> Result<u32, InodeRefusal> {
        self.take_in_order(groups.iter().copied().chain((0..self.layout.groups).map(Group)))
    }

    fn take_in_order(&self, groups: impl Iterator<Item = Group>) -> Result<u32, InodeRefusal> {
        for group in groups {
            if let Some(index) = self.take_first(group, 0)? {
                return Ok(index);
            }
        }
        Err(InodeRefusal::NoInodes)
    }

    /// Returns true if an inode is used; `None` where the bitmap is not loaded.
    pub(crate) fn is_used(&self, index: u32) -> Option<bool> {
        let inside = index.checked_rem(self.per_group())?;
        match &*self.lock(self.group_of(index))? {
            Bits::Unknown | Bits::Broken => None,
            Bits::Prefix(used) => Some(inside < *used),
            Bits::Mapped { words, .. } => {
                words.get((inside / 64) as usize).map(|word| word >> (inside % 64) & 1 == 1)
            }
        }
    }

    /// Marks an inode used or free.
    pub(crate) fn set(&self, index: u32, used: bool) -> Result<(), Denial> {
        let group = self.group_of(index);
        let expected = if used { "free" } else { "used" };
        let wrong = Denial::Inode { index, expected };
        let slot = self.group(group).ok_or(wrong)?;
        let inside = index.checked_rem(self.per_group()).ok_or(wrong)?;
        let mut bits = slot.bits.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*bits, Bits::Unknown) {
            return Err(Denial::NeedBitmap(group));
        }
        if !bits.set(inside, used, self.per_group()) {
            return Err(wrong);
        }
        self.count(group, slot, used);
        drop(bits);
        Ok(())
    }

    /// Counts an inode in or out, with the group's lock held: a group that is retired in between would lose it twice.
    fn count(&self, group: Group, slot: &GroupInodes, used: bool) {
        let all = self.is_open(group).then_some(&self.free);
        if used {
            slot.free.fetch_sub(1, Ordering::AcqRel);
            all.map(|all| all.fetch_sub(1, Ordering::AcqRel));
        } else {
            slot.free.fetch_add(1, Ordering::AcqRel);
            all.map(|all| all.fetch_add(1, Ordering::AcqRel));
        }
    }

    /// Counts a directory in or out of its group; never below zero, whatever the descriptor said.
    pub(crate) fn count_directory(&self, index: u32, appears: bool) {
        let Some(slot) = self.group(self.group_of(index)) else { return };
        if appears {
            slot.dirs.fetch_add(1, Ordering::AcqRel);
            self.dirs.fetch_add(1, Ordering::AcqRel);
        } else if slot.dirs.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok() {
            self.dirs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn render(&self, group: Group, out: &mut [u8]) -> Result<(), Denial> {
        let size = self.per_group();
        out.fill(0xFF);
        let Some(bits) = self.lock(group) else { return Ok(()) };
        let words = match &*bits {
            Bits::Unknown => return Err(Denial::NeedBitmap(group)),
            Bits::Broken => return Ok(()),
            Bits::Prefix(used) => prefix_words(*used, size),
            Bits::Mapped { words, .. } => words.clone(),
        };
        for (bytes, word) in out.chunks_mut(8).zip(&words) {
            let raw = word.to_le_bytes();
            bytes.copy_from_slice(raw.get(..bytes.len()).unwrap_or_default());
        }
        Ok(())
    }
}

impl Bits {
    /// Changes one bit; `false`, and nothing changed, if it has that state or lies outside.
    fn set(&mut self, at: u32, used: bool, size: u32) -> bool {
        if at >= size {
            return false;
        }
        if let Bits::Prefix(end) = self {
            if (at < *end) == used {
                return false;
            }
            if used && at == *end {
                *end += 1;
                return true;
            }
            if !used && at + 1 == *end {
                *end -= 1;
                return true;
            }
            // A hole: from now on the group needs a bit for each inode.
            *self = Bits::Mapped { words: prefix_words(*end, size), first: 0 };
        }
        let Bits::Mapped { words, first } = self else { return false };
        let Some(word) = words.get_mut((at / 64) as usize) else { return false };
        let bit = 1 << (at % 64);
        if (*word & bit != 0) == used {
            return false;
        }
        *word ^= bit;
        if !used {
            *first = (*first).min(at);
        } else if *first == at {
            *first = at + 1;
        }
        true
    }
}

fn prefix_words(used: u32, size: u32) -> Box<[u64]> {
    let mut words = vec![u64::MAX; size.div_ceil(64) as usize].into_boxed_slice();
    fill(&mut words, used.min(size), size, false);
    words
}

/// Words of a bitmap; bits from `size` on are set.
fn words_of(bytes: &[u8], size: u32) -> Box<[u64]> {
    let mut words = region::words_of(bytes, size);
    let rest = size.next_multiple_of(64);
    fill(&mut words, size, rest, true);
    words
}

fn next_free(words: &[u64], from: u32) -> u32 {
    next_set(words.iter().map(|word| !word), from)
}

fn next_used(words: &[u64], from: u32) -> u32 {
    next_set(words.iter().copied(), from)
}

/// The first set bit at or after `from`; the largest number if there is none.
fn next_set(words: impl Iterator<Item = u64>, from: u32) -> u32 {
    let mut mask = u64::MAX << (from % 64);
    for (index, word) in (from / 64..).zip(words.skip((from / 64) as usize)) {
        let found = word & mask;
        if found != 0 {
            return index * 64 + found.trailing_zeros();
        }
        mask = u64::MAX;
    }
    u32::MAX
}
