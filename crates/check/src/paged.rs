//! Tables of small facts per block or inode that take memory only where they were touched, and are
//! shared by threads without locks.

use super::slices::as_index;
use ondisk::units::bounded;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Most pages of a table; tables that would need more have larger pages.
const PAGES_MAX: u64 = 1 << 30;
/// Pages in a chunk, as a power of two: where none of them was touched there is no list of them either.
const CHUNK_LOG2: u32 = 10;

/// Bytes that tables may take, all together.
pub(super) struct Budget {
    left: AtomicU64,
    over: AtomicBool,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Budget { left: AtomicU64::new(bytes), over: AtomicBool::new(false) })
    }

    /// No bound: for what is small.
    pub(super) fn endless() -> Arc<Self> {
        Budget::new(u64::MAX)
    }

    /// Returns true if a table wanted more than there was: it lacks facts since.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if taken.is_err() {
            self.over.store(true, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

type Page<T> = Box<[T]>;
type Chunk<T> = Box<[OnceLock<Page<T>>]>;

/// Cells in pages that appear, as zeros, when first written.
struct Paged<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    /// Pages, of which those of the last chunk behind the end of the table are never used.
    pages: u64,
    log2: u32,
    budget: Arc<Budget>,
}

impl<T: Default> Paged<T> {
    fn new(cells: u64, page_log2: u32, budget: &Arc<Budget>) -> Self {
        let mut log2 = page_log2;
        while cells.div_ceil(1 << log2) > PAGES_MAX {
            log2 += 1;
        }
        let pages = cells.div_ceil(1 << log2);
        let chunks = pages.div_ceil(1 << CHUNK_LOG2);
        let fits = budget.take(chunks * size_of::<OnceLock<Chunk<T>>>() as u64);
        let chunks = if fits { chunks } else { 0 };
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        Paged { chunks, pages, log2, budget: Arc::clone(budget) }
    }

    /// Chunk, page in it, and cell in that.
    fn split(&self, cell: u64) -> (usize, usize, usize) {
        let page = cell >> self.log2;
        let inside = |number: u64, log2: u32| as_index(number & ((1 << log2) - 1));
        let chunk = as_index(page >> CHUNK_LOG2);
        (chunk, inside(page, CHUNK_LOG2), inside(cell, self.log2))
    }

    /// The cell, if its page was ever written.
    fn seen(&self, cell: u64) -> Option<&T> {
        let (chunk, page, inside) = self.split(cell);
        self.chunks.get(chunk)?.get()?.get(page)?.get()?.get(inside)
    }

    /// The cell; `None` behind the end of the table, and where the budget is spent.
    fn cell(&self, cell: u64) -> Option<&T> {
        let (chunk, page, inside) = self.split(cell);
        if let Some(page) = self.chunks.get(chunk)?.get().and_then(|pages| pages.get(page)?.get()) {
            return page.get(inside);
        }
        if cell >> self.log2 >= self.pages {
            return None;
        }
        let pages = self.made(self.chunks.get(chunk)?, CHUNK_LOG2)?;
        self.made(pages.get(page)?, self.log2)?.get(inside)
    }

    /// Returns the values of a slot, which is filled where it is empty: as many as the power of two says.
    fn made<'s, V: Default>(&self, slot: &'s OnceLock<Box<[V]>>, log2: u32) -> Option<&'s [V]> {
        if slot.get().is_none() {
            if !self.budget.take((size_of::<V>() as u64) << log2) {
                return None;
            }
            // Another thread may have been faster: then its one counts, and ours twice in the budget.
            let _ = slot.set((0..1_u64 << log2).map(|_| V::default()).collect());
        }
        slot.get().map(|values| &**values)
    }

    /// Pages that were written, with the number of their first cell.
    fn written(&self) -> impl Iterator<Item = (u64, &[T])> {
        let log2 = self.log2;
        let chunks = self.chunks.iter().zip(0_u64..).filter_map(|(chunk, at)| Some((chunk.get()?, at)));
        chunks.flat_map(move |(pages, chunk)| {
            let pages = pages.iter().zip(chunk << CHUNK_LOG2..);
            pages.filter_map(move |(page, at)| Some((at << log2, &**page.get()?)))
        })
    }
}

/// A set of numbers below a bound.
pub(super) struct Bits(Paged<AtomicU64>);

impl Bits {
    /// An empty set of numbers below `bound`.
    pub(super) fn new(bound: u64) -> Self {
        Bits::within(bound, &Budget::endless())
    }

    /// Makes a bitmap whose pages count towards a budget.
    pub(super) fn within(bound: u64, budget: &Arc<Budget>) -> Self {
        Bits(Paged::new(bound.div_ceil(64), 9, budget))
    }

    /// Adds a number; returns true if it is new. A number behind the bound changes nothing and is not new.
    pub(super) fn insert(&self, number: u64) -> bool {
        let bit = 1 << (number & 63);
        self.0.cell(number >> 6).is_some_and(|cell| cell.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// Takes a number out; returns true if it was there.
    pub(super) fn remove(&self, number: u64) -> bool {
        let bit = 1 << (number & 63);
        self.0.seen(number >> 6).is_some_and(|cell| cell.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let bit = 1 << (number & 63);
        self.0.seen(number >> 6).is_some_and(|cell| cell.load(Ordering::Relaxed) & bit != 0)
    }

    /// The 64 numbers from `64 * word` on, lowest bit first.
    pub(super) fn word(&self, word: u64) -> u64 {
        self.0.seen(word).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// The 64 numbers from `at` on, lowest bit first.
    pub(super) fn window(&self, at: u64) -> u64 {
        let (word, shift) = (at >> 6, at & 63);
        let low = self.word(word) >> shift;
        if shift == 0 { low } else { low | self.word(word + 1) << (64 - shift) }
    }

    /// The first of `len` numbers in `from..end` of which none is there.
    pub(super) fn gap(&self, from: u64, end: u64, len: u64) -> Option<u64> {
        let mut start = from;
        let mut at = from;
        while at < end {
            if at - start >= len {
                return Some(start);
            }
            let word = self.window(at);
            if word == 0 {
                at += 64;
            } else {
                at += u64::from(word.trailing_zeros());
                if at.min(end) - start >= len {
                    return Some(start);
                }
                at += u64::from((word >> (word.trailing_zeros())).trailing_ones());
                start = at;
            }
        }
        (end >= start && end - start >= len).then_some(start)
    }

    /// Adds `from..end`; calls `twice` with each number that was there already.
    pub(super) fn insert_range(&self, from: u64, end: u64, mut twice: impl FnMut(u64)) {
        let mut at = from;
        while at < end {
            let stop = ((at | 63) + 1).min(end);
            let width = stop - at;
            let mask = (u64::MAX >> (64 - width)) << (at & 63);
            let Some(cell) = self.0.cell(at >> 6) else { return };
            let mut old = cell.fetch_or(mask, Ordering::Relaxed) & mask;
            while old != 0 {
                twice((at & !63) + u64::from(old.trailing_zeros()));
                old &= old - 1;
            }
            at = stop;
        }
    }

    /// Counts them.
    pub(super) fn count(&self) -> u64 {
        let cells = self.0.written().flat_map(|(_, page)| page);
        cells.map(|cell| u64::from(cell.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// All numbers, rising.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.0.written().flat_map(|(first, page)| (first..).zip(page));
        words.flat_map(|(word, cell)| {
            let mut rest = cell.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| u64::from(rest.trailing_zeros()))?;
                rest &= rest - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

/// Half a byte for each number.
pub(super) struct Nibbles(Paged<AtomicU8>);

impl Nibbles {
    /// The largest value.
    pub(super) const MAX: u8 = 15;

    pub(super) fn within(bound: u64, budget: &Arc<Budget>) -> Self {
        Nibbles(Paged::new(bound.div_ceil(2), 10, budget))
    }

    fn shift(number: u64) -> u32 {
        if number & 1 == 0 { 0 } else { 4 }
    }

    pub(super) fn read(&self, number: u64) -> u8 {
        let both = self.0.seen(number >> 1).map_or(0, |cell| cell.load(Ordering::Relaxed));
        both >> Self::shift(number) & Self::MAX
    }

    /// Stores a value, of which the low half counts.
    pub(super) fn store(&self, number: u64, value: u8) {
        _ = self.update(number, |_| Some(value));
    }

    /// Changes a value unless that gives none; returns true if it did.
    fn update(&self, number: u64, change: impl Fn(u8) -> Option<u8>) -> bool {
        let (shift, Some(cell)) = (Self::shift(number), self.0.cell(number >> 1)) else { return false };
        let changed = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |both| {
            let value = change(both >> shift & Self::MAX)? & Self::MAX;
            Some(both & !(Self::MAX << shift) | value << shift)
        });
        changed.is_ok()
    }
}

/// A count for each number, which stays at its end when it gets there. Nearly all are small: what a nibble can't
/// count stands in a second table.
pub(super) struct Counters {
    low: Nibbles,
    /// Parts of the counts beyond [`Nibbles::MAX`].
    high: Paged<AtomicU16>,
}

impl Counters {
    /// A count behind the bound stays zero.
    pub(super) fn within(bound: u64, budget: &Arc<Budget>) -> Self {
        Counters { low: Nibbles::within(bound, budget), high: Paged::new(bound, 9, budget) }
    }

    pub(super) fn read(&self, number: u64) -> u16 {
        let low = self.low.read(number);
        if low < Nibbles::MAX {
            return low.into();
        }
        let high = self.high.seen(number).map_or(0, |cell| cell.load(Ordering::Relaxed));
        high.saturating_add(low.into())
    }

    pub(super) fn store(&self, number: u64, value: u16) {
        let low = value.min(Nibbles::MAX.into());
        let high = value - low;
        // Zeros need no page.
        if low != 0 || self.low.0.seen(number >> 1).is_some() {
            self.low.store(number, bounded::<u8>(low));
        }
        let cell = if high == 0 { self.high.seen(number) } else { self.high.cell(number) };
        if let Some(cell) = cell {
            cell.store(high, Ordering::Relaxed);
        }
    }

    /// Counts one more.
    pub(super) fn raise(&self, number: u64) {
        let one_more = |low: u8| (low < Nibbles::MAX).then_some(low + 1);
        if !self.low.update(number, one_more)
            && let Some(cell) = self.high.cell(number)
        {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
        }
    }

    /// Counts one less; not while others count the same number.
    pub(super) fn lower(&self, number: u64) {
        self.store(number, self.read(number).saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tell_what_was_there() {
        let bits = Bits::new(1 << 40);
        let mut twice = Vec::new();
        bits.insert_range(60, 200, |number| twice.push(number));
        bits.insert_range(199, 260, |number| twice.push(number));
        bits.insert_range(1 << 39, (1 << 39) + 1, |number| twice.push(number));
        assert_eq!(twice, [199]);
        assert_eq!(bits.count(), 201);
        assert_eq!(bits.iter().collect::<Vec<_>>(), (60..260).chain([1 << 39]).collect::<Vec<_>>());
        assert!(bits.contains(64) && bits.remove(64) && !bits.contains(64) && !bits.remove(64));
        assert!(!bits.insert(1 << 41), "behind the bound");
    }

    /// The largest volume there can be costs nothing where nothing is in use.
    #[test]
    fn memory_follows_what_is_written_and_is_bounded() {
        let budget = Budget::new(40 << 20);
        let bits = Bits::within(1 << 52, &budget);
        assert!(bits.insert(0) && bits.insert((1 << 52) - 1) && !budget.is_over());
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, (1 << 52) - 1]);
        let small = Budget::new(100_000);
        let bits = Bits::within(1 << 30, &small);
        assert!(bits.insert(7) && bits.insert(1 << 29) && !small.is_over());
        for number in 0..100 {
            bits.insert(number << 20);
        }
        assert!(small.is_over() && bits.contains(7) && bits.count() < 102);
    }

    #[test]
    fn gaps_are_found_wherever_they_lie() {
        let bits = Bits::new(1000);
        bits.insert_range(0, 70, |_| ());
        bits.insert_range(75, 300, |_| ());
        bits.insert_range(990, 995, |_| ());
        assert_eq!(bits.gap(0, 1000, 5), Some(70));
        assert_eq!(bits.gap(0, 1000, 6), Some(300));
        assert_eq!(bits.gap(71, 1000, 5), Some(300));
        assert_eq!(bits.gap(0, 1000, 690), Some(300));
        assert_eq!(bits.gap(0, 1000, 691), None);
        assert_eq!((bits.gap(980, 1000, 11), bits.gap(980, 1000, 10)), (None, Some(980)));
        assert_eq!((bits.gap(995, 1000, 5), bits.gap(995, 1000, 6)), (Some(995), None));
        assert_eq!(bits.window(68), 0b11 | u64::MAX << 7);
    }

    #[test]
    fn counts_stay_at_their_ends() {
        let counts = Counters::within(10, &Budget::endless());
        counts.store(3, u16::MAX);
        counts.raise(3);
        counts.lower(4);
        assert_eq!((counts.read(3), counts.read(4), counts.read(99)), (u16::MAX, 0, 0));
    }

    #[test]
    fn counts_beside_each_other_do_not_mix_at_any_size() {
        let counts = Counters::within(1000, &Budget::endless());
        for number in 0..1000 {
            let count = if number % 7 == 0 { number } else { number % 20 };
            (0..count).for_each(|_| counts.raise(number));
        }
        counts.store(8, 300);
        counts.store(8, 2);
        for number in 0..1000 {
            let count = if number % 7 == 0 { number } else { number % 20 };
            let expected = if number == 8 { 2 } else { u16::try_from(count).unwrap() };
            assert_eq!(counts.read(number), expected, "{number}");
            counts.lower(number);
            assert_eq!(counts.read(number), expected.saturating_sub(1), "{number}");
        }
    }
}
