//! One region's bitmap and the exact summary of its free runs.
//!
//! A chunk is 512 clusters: one cache line of bitmap. For each chunk `start_max` holds the longest
//! maximal free run that *starts* in it (and may extend beyond it), so a search compares 64 small
//! numbers and then walks one cache line. Runs are clipped to the region; joining over its edges is
//! the business of [`super::map`]. Positions and lengths are clusters inside the region.

use super::Scan;
use super::census::{Census, Totals};
use super::class::{class_floor, class_of};
use ondisk::invariant_or;
use ondisk::units::saturated;

/// Clusters of a chunk.
pub(crate) const CHUNK: u32 = 512;
/// Chunks of a full region.
pub(super) const CHUNKS: usize = 64;
/// Shortest rest of a run that is left rather than a shorter one.
const SLIVER: u32 = 64;
/// Classes a run inside a region can have.
pub(super) const INNER_CLASSES: usize = 30;
/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = 8;

/// A free run: first cluster and the one past its last.
pub(crate) type Span = (u32, u32);

/// Bitmap of one region (a set bit is used) with its summary.
pub(crate) struct RunMap {
    words: Box<[u64]>,
    /// Completely free chunks of 512.
    virgin: u64,
    mask: u32,
    start_max: [u16; CHUNKS],
    count: [u16; INNER_CLASSES],
    len: u16,
    free: u16,
    /// True if a bit changed since the map was made or [`RunMap::mark_stored`].
    changed: bool,
}

/// Limits of a search for a run near a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearLimits {
    /// Clusters to the place at most, on either side.
    pub(crate) within: u32,
    /// The run is shorter.
    pub(crate) below: u32,
}

impl RunMap {
    /// Indexes `words`; bits from `len` on are ignored.
    pub(crate) fn from_words(words: Box<[u64]>, len: u32) -> Self {
        Self::counted(words, len).0
    }

    /// Indexes `words`, and returns the free clusters by the class of their run.
    pub(crate) fn counted(mut words: Box<[u64]>, len: u32) -> (Self, Totals) {
        if !len.is_multiple_of(64)
            && let Some(last) = words.get_mut((len / 64) as usize)
        {
            *last |= u64::MAX << (len % 64);
        }
        let Census { count, start_max, totals } = Census::from_words(&words);
        let (mut mask, mut free, mut virgin) = (0, 0, 0);
        for (class, &total) in totals.iter().enumerate() {
            mask |= u32::from(total > 0) << class;
            free += total;
        }
        for (chunk, words) in (0..).zip(words.as_chunks::<CHUNK_WORDS>().0) {
            // A chunk cut short by the region's end has used bits behind it.
            virgin |= u64::from(words.iter().all(|&word| word == 0)) << chunk;
        }
        let (len, free) = (short(len), short(free));
        (RunMap { words, virgin, mask, start_max, count, len, free, changed: false }, totals)
    }

    /// Free clusters by the class of their run.
    pub(crate) fn totals(&self) -> Totals {
        Census::from_words(&self.words).totals
    }

    /// A region with one free run.
    pub(crate) fn with_run(len: u32, run: Span) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64) as usize].into_boxed_slice();
        fill(&mut words, run.0, run.1, false);
        let mut map = Self::from_words(words, len);
        map.changed = true;
        map
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Clusters of the region.
    fn len(&self) -> u32 {
        u32::from(self.len)
    }

    pub(crate) fn free(&self) -> u32 {
        u32::from(self.free)
    }

    /// The only free run (empty when nothing is free); `None` if there are several.
    pub(crate) fn only_run(&self) -> Option<Span> {
        if self.free == 0 {
            return Some((0, 0));
        }
        if !self.mask.is_power_of_two() || self.runs() != 1 {
            return None;
        }
        let low = self.next_free(0);
        Some((low, self.next_used(low)))
    }

    /// True if a bit changed since the map was made or stored.
    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    /// Notes that the disk has the bitmap as it is here.
    pub(crate) fn mark_stored(&mut self) {
        self.changed = false;
    }

    /// Bytes of the bitmap.
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Classes of which a maximal run exists.
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// Number of maximal free runs.
    pub(crate) fn runs(&self) -> u32 {
        self.count.iter().map(|&n| u32::from(n)).sum()
    }

    fn word(&self, index: u32) -> u64 {
        self.words.get(index as usize).copied().unwrap_or(u64::MAX)
    }

    pub(crate) fn is_used(&self, at: u32) -> bool {
        self.word(at / 64) >> (at % 64) & 1 != 0
    }

    /// First free cluster at or after `at`, or the region's length.
    pub(crate) fn next_free(&self, at: u32) -> u32 {
        let index = at / 64;
        let word = !self.word(index) & (u64::MAX << (at % 64));
        if word != 0 {
            return (index * 64 + word.trailing_zeros()).min(self.len());
        }
        let behind = self.words.get(index as usize + 1..).unwrap_or_default();
        (index + 1..)
            .zip(behind)
            .find(|(_, word)| **word != u64::MAX)
            .map_or(self.len(), |(index, word)| (index * 64 + word.trailing_ones()).min(self.len()))
    }

    /// End of the free run that contains `at`, without the help of the summary.
    fn next_used_slow(&self, at: u32) -> u32 {
        let index = at / 64;
        let word = self.word(index) & (u64::MAX << (at % 64));
        if word != 0 {
            return (index * 64 + word.trailing_zeros()).min(self.len());
        }
        let behind = self.words.get(index as usize + 1..).unwrap_or_default();
        (index + 1..)
            .zip(behind)
            .find(|(_, word)| **word != 0)
            .map_or(self.len(), |(index, word)| (index * 64 + word.trailing_zeros()).min(self.len()))
    }

    /// End of the free run that contains the free cluster `at`. Walks two chunks at most: between
    /// them lie only completely free ones.
    pub(crate) fn next_used(&self, at: u32) -> u32 {
        let chunk = at / CHUNK;
        let word = self.word(at / 64) & (u64::MAX << (at % 64));
        if word != 0 {
            return (at / 64 * 64 + word.trailing_zeros()).min(self.len());
        }
        for index in at / 64 + 1..(chunk + 1) * 8 {
            let word = self.word(index);
            if word != 0 {
                return (index * 64 + word.trailing_zeros()).min(self.len());
            }
        }
        let behind = chunk + 1;
        if behind >= 64 {
            return self.len();
        }
        let skip = behind + (self.virgin >> behind).trailing_ones();
        if skip * CHUNK >= self.len() { self.len() } else { self.next_used_slow(skip * CHUNK) }
    }

    /// Start of the free run that contains the free cluster `at`.
    pub(crate) fn run_start(&self, at: u32) -> u32 {
        let chunk = at / CHUNK;
        let word = self.word(at / 64) & (u64::MAX >> (63 - at % 64));
        if word != 0 {
            return at / 64 * 64 + 64 - word.leading_zeros();
        }
        for index in (chunk * 8..at / 64).rev() {
            let word = self.word(index);
            if word != 0 {
                return index * 64 + 64 - word.leading_zeros();
            }
        }
        if chunk == 0 {
            return 0;
        }
        let skip = (self.virgin << (64 - chunk)).leading_ones().min(chunk);
        let mut index = (chunk - skip) * 8;
        while index > 0 {
            index -= 1;
            let word = self.word(index);
            if word != 0 {
                return index * 64 + 64 - word.leading_zeros();
            }
        }
        0
    }

    /// The maximal free run that contains `at`; `None` when `at` is used or outside.
    pub(crate) fn run_at(&self, at: u32) -> Option<Span> {
        (at < self.len() && !self.is_used(at)).then(|| (self.run_start(at), self.next_used(at)))
    }

    /// Takes `start..end` and returns the free run it was in; `None`, and nothing changed, unless all
    /// of it is free.
    pub(crate) fn take(&mut self, start: u32, end: u32) -> Option<Span> {
        let (low, high) = self.run_at(start)?;
        if high < end || end <= start {
            return None;
        }
        fill(&mut self.words, start, end, true);
        self.changed = true;
        self.virgin &= !bits(start / CHUNK, end.div_ceil(CHUNK));
        self.free -= short(end - start);
        let stale = self.remove(low, high);
        if low < start {
            self.add(low, start);
        }
        if end < high {
            self.add(end, high);
        }
        if stale {
            self.refresh_start_max(low / CHUNK);
        }
        Some((low, high))
    }

    /// Gives `start..end` back and returns the free run it is in now; `None`, and nothing changed,
    /// unless all of it is used.
    pub(crate) fn give(&mut self, start: u32, end: u32) -> Option<Span> {
        if end > self.len() || end <= start || !self.all_used(start, end) {
            return None;
        }
        let left = start.checked_sub(1).and_then(|at| self.run_at(at));
        let right = self.run_at(end);
        fill(&mut self.words, start, end, false);
        self.changed = true;
        self.free += short(end - start);
        if let Some((low, high)) = left {
            // The joined run starts where this one did and is longer: no rescan needed.
            self.remove(low, high);
        }
        let low = left.map_or(start, |run| run.0);
        let high = right.map_or(end, |run| run.1);
        let stale = right.is_some_and(|(a, b)| self.remove(a, b) && a / CHUNK != low / CHUNK);
        self.add(low, high);
        self.refresh_virgin(start, end);
        if stale {
            self.refresh_start_max(end / CHUNK);
        }
        Some((low, high))
    }

    fn all_used(&self, start: u32, end: u32) -> bool {
        self.next_free(start) >= end
    }

    /// Enters the maximal run `low..high`.
    fn add(&mut self, low: u32, high: u32) {
        let length = high - low;
        let class = class_of(length);
        *invariant_or!(self.count.get_mut(class as usize), return, "a run's class has a counter") += 1;
        self.mask |= 1 << class;
        let longest = self.start_max.get_mut((low / CHUNK) as usize);
        let longest = invariant_or!(longest, return, "a run begins in a chunk of its region");
        *longest = (*longest).max(short(length));
    }

    /// Removes the maximal run `low..high`; `true` if its chunk's longest run must be found again.
    fn remove(&mut self, low: u32, high: u32) -> bool {
        let length = high - low;
        let class = class_of(length);
        let count =
            invariant_or!(self.count.get_mut(class as usize), return true, "a run's class has a counter");
        *count = invariant_or!(count.checked_sub(1), 0, "a run that goes was counted");
        if *count == 0 {
            self.mask &= !(1 << class);
        }
        self.start_max.get((low / CHUNK) as usize) == Some(&short(length))
    }

    fn refresh_start_max(&mut self, chunk: u32) {
        let longest = self.starting_in(chunk).map(|(low, high)| high - low).max();
        let entry = self.start_max.get_mut(chunk as usize);
        // No run starts here: nothing is the longest.
        *invariant_or!(entry, return, "a chunk lies in its region") = short(longest.unwrap_or(0));
    }

    /// The maximal free runs that start in a chunk, rising.
    fn starting_in(&self, chunk: u32) -> Starting<'_> {
        let index = chunk * (CHUNK / 64);
        Starting { map: self, index, behind: index + CHUNK / 64, starts: self.starts(index) }
    }

    /// The free run of at least a chunk that starts in this one, whose longest run is that long. No
    /// two can start in one chunk.
    fn long_run_in(&self, chunk: u32) -> Span {
        let low = self.run_start(chunk * CHUNK + CHUNK - 1);
        let length = *invariant_or!(self.start_max.get(chunk as usize), &0, "a chunk lies in its region");
        (low, low + u32::from(length))
    }

    /// Starts of maximal free runs in a word.
    fn starts(&self, index: u32) -> u64 {
        let free = !self.word(index);
        let before = index.checked_sub(1).map_or(0, |last| !self.word(last) >> 63);
        free & !(free << 1 | before)
    }

    fn refresh_virgin(&mut self, start: u32, end: u32) {
        // Chunks wholly inside are free now; those at the ends must be looked at.
        let (first, last) = (start / CHUNK, end.div_ceil(CHUNK));
        if last - first > 2 {
            self.virgin |= bits(first + 1, last - 1);
        }
        for chunk in [first, last - 1] {
            let from = chunk as usize * CHUNK_WORDS;
            let whole = self.words.get(from..from + CHUNK_WORDS);
            let free = (chunk + 1) * CHUNK <= self.len() && whole.is_some_and(|w| w.iter().all(|&w| w == 0));
            if free {
                self.virgin |= bits(chunk, chunk + 1);
            }
        }
    }

    /// First start of a maximal run at or after `at`.
    pub(crate) fn first_start(&self, at: u32) -> u32 {
        if at > 0 && at < self.len() && !self.is_used(at) && !self.is_used(at - 1) {
            return self.next_free(self.next_used(at));
        }
        if at >= self.len() { self.len() } else { self.next_free(at) }
    }

    /// Chunks in which a maximal run of at least `low` and at most `high` is the longest to start.
    fn chunks_within(&self, low: u32, high: u32) -> u64 {
        let (low, high) = (short(low), short(high));
        // Compared lane by lane, then eight lanes of one bit each gathered by a multiplication.
        let lanes = self.start_max.map(|longest| u8::from(longest >= low && longest <= high));
        let mut set = 0;
        for (at, eight) in lanes.as_chunks::<8>().0.iter().enumerate() {
            let bits = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            set |= bits << (8 * at);
        }
        set
    }

    /// First place at or after `from` where `count` clusters are free and begin where they may
    /// ([`Fit`]), counting visited runs in `scan`.
    pub(crate) fn first_fit(&self, from: u32, count: u32, fit: Fit, scan: &mut Scan) -> Option<u32> {
        if from >= self.len() || count > self.len() {
            return None;
        }
        let mut behind = from;
        if !self.is_used(from) {
            let end = self.next_used(from);
            scan.runs += 1;
            scan.bytes += u64::from(end - from).div_ceil(64) * 8;
            if let Some(start) = fit.start_in((from, end), count) {
                return Some(start);
            }
            behind = end;
        }
        let mut chunks = self.chunks_within(count, u32::MAX) & (u64::MAX << (behind / CHUNK).min(63));
        while chunks != 0 {
            let chunk = chunks.trailing_zeros();
            chunks &= chunks - 1;
            scan.bytes += Scan::CHUNK;
            for run in self.starting_in(chunk).filter(|run| run.0 >= behind) {
                scan.runs += 1;
                if let Some(start) = fit.start_in(run, count) {
                    return Some(start);
                }
            }
        }
        None
    }

    /// A run of at least `count` and less than `below` clusters: from the chunks whose longest run
    /// is up to one and a half times as long, else from any that has one; nearest to `near`, and
    /// there the tightest run.
    pub(crate) fn best_fit(&self, near: u32, count: u32, below: u32, scan: &mut Scan) -> Option<u32> {
        if count > self.len() {
            return None;
        }
        let snug = count.saturating_add(count / 2);
        let mut seen = 0u64;
        for high in [snug, u32::MAX] {
            let mut chunks = self.chunks_within(count, high) & !seen;
            seen |= chunks;
            while chunks != 0 {
                let chunk = nearest_bit(chunks, (near / CHUNK).min(63));
                chunks &= !(1 << chunk);
                if let Some(start) = self.tightest_in(chunk, count, below, scan) {
                    return Some(start);
                }
            }
        }
        None
    }

    fn tightest_in(&self, chunk: u32, count: u32, below: u32, scan: &mut Scan) -> Option<u32> {
        scan.bytes += Scan::CHUNK;
        if count >= CHUNK {
            scan.runs += 1;
            let run = self.long_run_in(chunk);
            let length = run.1 - run.0;
            return (length >= count && length < below).then(|| snug(run, count));
        }
        let mut best: Option<(u32, u32)> = None;
        for run in self.starting_in(chunk) {
            scan.runs += 1;
            let length = run.1 - run.0;
            if length >= count && length < below && best.is_none_or(|(shortest, _)| length < shortest) {
                best = Some((length, snug(run, count)));
                if length == count {
                    break;
                }
            }
        }
        best.map(|(_, start)| start)
    }

    /// The tightest place for `count` clusters in a run of less than `below` that begins, or has its end cut off, at most
    /// `within` clusters from `near` on either side; of equals the one that comes first. What is free at `near` itself
    /// counts as a run from there on.
    pub(crate) fn tightest_beside(
        &self,
        near: u32,
        count: u32,
        limits: NearLimits,
        scan: &mut Scan,
    ) -> Option<u32> {
        let NearLimits { within, below } = limits;
        let (from, upto) = (near.saturating_sub(within), near.saturating_add(within).min(self.len() - 1));
        let mut best: Option<(u32, u32)> = None;
        let mut at = self.run_at(from).map_or_else(|| self.next_free(from), |run| run.0);
        while at <= upto {
            let end = self.next_used(at);
            scan.runs += 1;
            scan.bytes += u64::from(end - at).div_ceil(64) * 8;
            let length = end - at;
            if length >= count && length < below {
                let places = [at, end - count].into_iter().find(|place| (from..=upto).contains(place));
                if let Some(place) = places
                    && best.is_none_or(|(shortest, _)| length < shortest)
                {
                    best = Some((length, place));
                }
            }
            if length == count && best.is_some_and(|(shortest, _)| shortest == count) {
                break;
            }
            at = self.next_free(end);
        }
        best.map(|(_, place)| place)
    }

    /// Where `count` clusters cost the fewest completely free chunks, in a run of at least a chunk
    /// and as `among` says: the first that costs none, of others the least as [`Spare`] orders them.
    pub(crate) fn sparing(&self, count: u32, among: Lengths, scan: &mut Scan) -> Option<Spare> {
        let mut chunks = self.chunks_within(count.max(CHUNK), among.limit);
        let mut best: Option<Spare> = None;
        while chunks != 0 {
            let chunk = chunks.trailing_zeros();
            chunks &= chunks - 1;
            scan.bytes += Scan::CHUNK;
            scan.runs += 1;
            let Some(found) = among.spare(self.long_run_in(chunk), count) else { continue };
            if best.is_none_or(|best| found < best) {
                best = Some(found);
            }
            if found.lost == 0 {
                break;
            }
        }
        best
    }

    /// The longest run below `below` clusters that starts in the chunk nearest to `near` which
    /// has one of the longest class below it.
    pub(crate) fn longest_below(&self, near: u32, below: u32) -> Option<Span> {
        let classes = self.mask & ((1 << class_of(below).min(31)) - 1);
        let class = classes.checked_ilog2()?;
        let mut chunks = self.chunks_within(class_floor(class), u32::MAX);
        let mut best: Option<Span> = None;
        while chunks != 0 {
            let chunk = nearest_bit(chunks, (near / CHUNK).min(63));
            chunks &= !(1 << chunk);
            for (at, end) in self.starting_in(chunk) {
                if end - at < below && best.is_none_or(|(a, b)| end - at > b - a) {
                    best = Some((at, end));
                }
            }
            if best.is_some_and(|(a, b)| class_of(b - a) == class) {
                break;
            }
        }
        best
    }

    /// The longest run, the nearest to `near` of equals.
    pub(crate) fn longest(&self, near: u32) -> Option<Span> {
        let longest = self.start_max.iter().copied().max().filter(|&n| n > 0)?;
        let chunks = self.chunks_within(u32::from(longest), u32::MAX);
        let chunk = nearest_bit(chunks, (near / CHUNK).min(63));
        self.starting_in(chunk).find(|(low, high)| high - low == u32::from(longest))
    }

    /// Free clusters at the region's start and at its end.
    pub(crate) fn edges(&self) -> (u32, u32) {
        let prefix = if self.len() == 0 || self.is_used(0) { 0 } else { self.next_used(0) };
        let last = self.len().saturating_sub(1);
        let suffix =
            if self.len() == 0 || self.is_used(last) { 0 } else { self.len() - self.run_start(last) };
        (prefix, suffix)
    }
}

/// Runs that start in a chunk.
struct Starting<'a> {
    map: &'a RunMap,
    index: u32,
    /// Word behind the chunk.
    behind: u32,
    /// Starts in the current word that are still to come.
    starts: u64,
}

impl Iterator for Starting<'_> {
    type Item = Span;

    #[inline]
    fn next(&mut self) -> Option<Span> {
        while self.starts == 0 {
            self.index += 1;
            if self.index >= self.behind {
                return None;
            }
            self.starts = self.map.starts(self.index);
        }
        let bit = self.starts.trailing_zeros();
        self.starts &= self.starts - 1;
        let low = self.index * 64 + bit;
        let rest = self.map.word(self.index) >> bit;
        Some((low, if rest == 0 { self.map.next_used(low) } else { low + rest.trailing_zeros() }))
    }
}

/// Where inside a free run a request may begin: `base + start` is a multiple of `align`.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    pub(crate) base: u64,
    pub(crate) align: u32,
}

impl Fit {
    /// First allowed start in `run` that leaves `count` clusters.
    pub(crate) fn start_in(self, run: Span, count: u32) -> Option<u32> {
        let mut start = run.0;
        if self.align > 1 {
            let align = u64::from(self.align);
            let rest = (self.base + u64::from(start)) % align;
            if rest != 0 {
                start = start.checked_add(u32::try_from(align - rest).ok()?)?;
            }
        }
        (run.1 >= start && run.1 - start >= count).then_some(start)
    }
}

/// A start in a run of at least `count` clusters: the run's own, or the one that ends with it if that
/// leaves more whole aligned chunks of 512 free.
fn snug(run: Span, count: u32) -> u32 {
    let (first, last) = (run.0, run.1 - count);
    let is_long = run.1 - run.0 >= CHUNK;
    if is_long && whole_chunks(first, last) > whole_chunks(first + count, run.1) { last } else { first }
}

/// Lengths of runs a search may use: less than `below`, at most `limit`.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) below: u32,
    pub(crate) limit: u32,
}

/// A place and what it costs, the cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spare {
    /// Completely free chunks that are lost.
    pub(crate) lost: u32,
    /// 2 if what is left of the run is too short to be of use to most files, 1 if to large ones.
    pub(crate) sliver: u8,
    /// Length of the run.
    pub(crate) length: u32,
    pub(crate) start: u32,
}

impl Lengths {
    /// The cheaper end of a run, unless the run is too short or too long.
    pub(crate) fn spare(self, run: Span, count: u32) -> Option<Spare> {
        let length = run.1 - run.0;
        let allowed = length >= count.max(CHUNK) && length < self.below && length <= self.limit;
        let all = whole_chunks(run.0, run.1);
        let ends = [(run.0, run.0 + count), (run.1.saturating_sub(count), run.1)].into_iter();
        let cost = |(start, end)| all - whole_chunks(run.0, start) - whole_chunks(end, run.1);
        let sliver = match length.wrapping_sub(count) {
            1..SLIVER => 2,
            SLIVER..CHUNK => 1,
            _ => 0,
        };
        let spares = ends.map(|place| Spare { lost: cost(place), sliver, length, start: place.0 });
        if allowed { spares.min() } else { None }
    }
}

/// Whole aligned chunks between two places.
fn whole_chunks(from: u32, to: u32) -> u32 {
    (to / CHUNK).saturating_sub(from.div_ceil(CHUNK))
}

/// The words of the first `len` bits of a bitmap; missing bits count as used.
pub(crate) fn words_of(bitmap: &[u8], len: u32) -> Box<[u64]> {
    let mut words = vec![u64::MAX; len.div_ceil(64) as usize].into_boxed_slice();
    for (word, bytes) in words.iter_mut().zip(bitmap.chunks(8)) {
        let mut raw = [0xFF; 8];
        raw.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(raw);
    }
    words
}

/// A length inside a region as stored in the summary.
pub(super) fn short(length: u32) -> u16 {
    saturated::<u16>(length)
}

/// The bits `from..to` of a word; `from` is below `to`.
fn bits(from: u32, to: u32) -> u64 {
    (u64::MAX >> (64 - (to - from))) << from
}

/// The set bit nearest to bit `near`, the higher one on a tie; `set` is not empty.
fn nearest_bit(set: u64, near: u32) -> u32 {
    let after = set & (u64::MAX << near);
    let before = set & !(u64::MAX << near);
    let up = after.trailing_zeros();
    if before == 0 {
        return up;
    }
    let down = 63 - before.leading_zeros();
    if after == 0 || near - down < up - near { down } else { up }
}

/// Set bits of `start..end`.
pub(crate) fn ones(words: &[u64], start: u32, end: u32) -> u32 {
    let (mut at, mut count) = (start, 0);
    while at < end {
        let upto = ((at / 64 + 1) * 64).min(end);
        let bits = (u64::MAX >> (64 - (upto - at))) << (at % 64);
        count += words.get((at / 64) as usize).map_or(0, |word| (word & bits).count_ones());
        at = upto;
    }
    count
}

/// Sets or clears the bits `start..end`, if all of them are there.
pub(crate) fn fill(words: &mut [u64], start: u32, end: u32, used: bool) {
    if start >= end {
        return;
    }
    let last = end - 1;
    let set = |word: &mut u64, bits: u64| if used { *word |= bits } else { *word &= !bits };
    let (head, tail) = (u64::MAX << (start % 64), u64::MAX >> (63 - last % 64));
    match words.get_mut((start / 64) as usize..=(last / 64) as usize) {
        Some([word]) => set(word, head & tail),
        Some([first, middle @ .., behind]) => {
            set(first, head);
            middle.fill(if used { u64::MAX } else { 0 });
            set(behind, tail);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
