//! The names of a part of a directory in the order of their hashes.
//!
//! Owns: which position a name has (see `position`), and picking the least of many. Excludes: where names stand.

use ondisk::dirhash::NameHasher;
use ondisk::units::high_u32;

use super::DirEntry;
use super::position::{Batch, Sequence};

/// The positions of `.` and `..` come before those of names.
const DOTS: u64 = 2;
/// Bits that count the names of one hash.
const COUNTED: u64 = 0xFF;
/// Names that are picked at once, at most; a few more while a block is looked at.
const MOST: usize = 4096;

/// The hashes that some leaves have: even, and below the end, where there is one. A name in them with another hash, which
/// is damage, counts as the nearest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HashRange {
    pub(super) low: u32,
    pub(super) end: Option<u32>,
}

impl HashRange {
    /// All hashes.
    pub(super) const ALL: HashRange = HashRange { low: 0, end: None };

    fn nearest(self, hash: u32) -> u32 {
        let hash = hash.max(self.low);
        self.end.map_or(hash, |end| hash.min(end.saturating_sub(2)))
    }
}

/// The first position that names of a hash may have.
pub(super) fn first_of(hash: u32) -> u64 {
    DOTS + (u64::from(hash >> 1) << 32)
}

/// The hash of the names at a position before the end of the list.
pub(super) fn hash_at(position: u64) -> u32 {
    let half = high_u32(position.saturating_sub(DOTS));
    debug_assert!(half <= u32::MAX >> 1, "a position before the end has 31 bits of hash");
    half << 1
}

/// The least names from a position on.
pub(super) struct Picks {
    hasher: NameHasher,
    from: u64,
    found: Vec<Pick>,
    seen: u32,
    /// There are more behind those that were found.
    more: bool,
}

struct Pick {
    /// Its position, or that of the first of the names that agree with it.
    at: u64,
    /// Number of the entry among all that were seen.
    seen: u32,
    entry: DirEntry,
}

impl Picks {
    pub(super) fn new(hasher: NameHasher, from: u64) -> Self {
        Picks { hasher, from, found: Vec::new(), seen: 0, more: false }
    }

    /// True if the listing has not come to the names yet.
    pub(super) fn wants_dots(&self) -> bool {
        self.from < DOTS
    }

    /// Takes a name in, if it is not before the position.
    pub(super) fn add(&mut self, name: &[u8], reach: HashRange, entry: impl FnOnce() -> DirEntry) {
        self.seen = self.seen.wrapping_add(1);
        let (at, last) = match name {
            b"." => (0, 0),
            b".." => (1, 1),
            _ => {
                let first = self.position(name, reach);
                (first, first + COUNTED)
            }
        };
        if last >= self.from {
            self.found.push(Pick { at, seen: self.seen, entry: entry() });
        }
    }

    fn position(&self, name: &[u8], reach: HashRange) -> u64 {
        let hash = self.hasher.hash(name);
        // The oldest hash has one word only.
        let second = if hash.minor == 0 { spread(name) } else { hash.minor };
        let key = u64::from(reach.nearest(hash.major) >> 1) << 32 | u64::from(second);
        DOTS + (key & !COUNTED)
    }

    /// Forgets those that are too many, the last ones.
    pub(super) fn keep_least(&mut self) {
        if self.found.len() > 2 * MOST {
            self.sort();
            self.found.truncate(MOST);
            self.more = true;
        }
    }

    fn sort(&mut self) {
        self.found.sort_unstable_by(|a, b| (a.at, &a.entry.name).cmp(&(b.at, &b.entry.name)));
    }

    /// Ends the batch here: later entries can't be listed together with these.
    pub(super) fn stop_here(&mut self) {
        self.more = true;
    }

    /// Gives names that agree positions one behind the other, and drops what comes before the listing.
    fn number(&mut self) {
        self.sort();
        let (mut last, mut count) = (None, 0);
        for pick in &mut self.found {
            count = if last == Some(pick.at) { (count + 1).min(COUNTED) } else { 0 };
            last = Some(pick.at);
            if pick.at >= DOTS {
                pick.at += count;
            }
        }
        self.found.retain(|pick| pick.at >= self.from);
    }

    /// Takes the entries found so far; the names after them begin at `next`.
    pub(super) fn take_batch(&mut self, next: u64, sequence: Sequence) -> Batch {
        self.number();
        let mut found = std::mem::take(&mut self.found);
        let Some(last) = found.last().map(|pick| pick.at) else { return Batch::default() };
        let next = if self.more { last + 1 } else { next };
        if sequence == Sequence::Stored {
            found.sort_unstable_by_key(|pick| pick.seen);
        }
        let behind = |at| if at == last { next } else { at + 1 };
        let entries = found.into_iter().map(|pick| (pick.entry, behind(pick.at))).collect();
        Batch { entries, next }
    }
}

/// A number that differs between names (FNV-1a).
fn spread(name: &[u8]) -> u32 {
    name.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
