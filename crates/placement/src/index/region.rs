//! One region's bitmap and the exact summary of its free runs.
//!
//! A chunk is 512 clusters: one cache line of bitmap. For each chunk `start_max` holds the longest
//! maximal free run that *starts* in it (and may extend beyond it), so a search compares 64 small
//! numbers and then walks one cache line. Runs are clipped to the region; joining over its edges is
//! the business of [`super::map`]. Positions and lengths are clusters inside the region.

use super::class::{class_floor, class_of};

/// Clusters of a chunk.
const CHUNK: u32 = 512;
/// Chunks of a full region.
const CHUNKS: usize = 64;
/// Words of a chunk.
const CHUNK_WORDS: usize = 8;

/// A free run: first cluster and the one past its last.
pub(crate) type Span = (u32, u32);

/// Bitmap of one region (a set bit is used) with its summary.
pub(crate) struct RunMap {
    words: Box<[u64]>,
    len: u32,
    free: u32,
    mask: u32,
    /// Completely free chunks of 512.
    virgin: u64,
    count: [u16; 32],
    start_max: [u16; CHUNKS],
}

impl RunMap {
    /// Indexes `words`; bits from `len` on are ignored.
    pub(crate) fn from_words(mut words: Box<[u64]>, len: u32) -> Self {
        if !len.is_multiple_of(64)
            && let Some(last) = words.get_mut((len / 64) as usize)
        {
            *last |= u64::MAX << (len % 64);
        }
        let mut map =
            RunMap { words, len, free: 0, mask: 0, virgin: 0, count: [0; 32], start_max: [0; CHUNKS] };
        let mut at = map.next_free(0);
        while at < len {
            let end = map.next_used_slow(at);
            map.add(at, end);
            map.free += end - at;
            at = map.next_free(end);
        }
        map.refresh_virgin(0, len);
        map
    }

    /// A region with one free run.
    pub(crate) fn with_run(len: u32, run: Span) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64) as usize].into_boxed_slice();
        fill(&mut words, run.0, run.1, false);
        Self::from_words(words, len)
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
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
        let mut index = at / 64;
        let mut word = !self.word(index) & (u64::MAX << (at % 64));
        let words = self.len.div_ceil(64);
        while word == 0 {
            index += 1;
            if index >= words {
                return self.len;
            }
            word = !self.word(index);
        }
        (index * 64 + word.trailing_zeros()).min(self.len)
    }

    /// End of the free run that contains `at`, without the help of the summary.
    fn next_used_slow(&self, at: u32) -> u32 {
        let mut index = at / 64;
        let mut word = self.word(index) & (u64::MAX << (at % 64));
        let words = self.len.div_ceil(64);
        while word == 0 {
            index += 1;
            if index >= words {
                return self.len;
            }
            word = self.word(index);
        }
        (index * 64 + word.trailing_zeros()).min(self.len)
    }

    /// End of the free run that contains the free cluster `at`. Walks two chunks at most: between
    /// them lie only completely free ones.
    pub(crate) fn next_used(&self, at: u32) -> u32 {
        let chunk = at / CHUNK;
        let word = self.word(at / 64) & (u64::MAX << (at % 64));
        if word != 0 {
            return (at / 64 * 64 + word.trailing_zeros()).min(self.len);
        }
        for index in at / 64 + 1..(chunk + 1) * 8 {
            let word = self.word(index);
            if word != 0 {
                return (index * 64 + word.trailing_zeros()).min(self.len);
            }
        }
        let behind = chunk + 1;
        if behind >= 64 {
            return self.len;
        }
        let skip = behind + (self.virgin >> behind).trailing_ones();
        if skip * CHUNK >= self.len { self.len } else { self.next_used_slow(skip * CHUNK) }
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
        (at < self.len && !self.is_used(at)).then(|| (self.run_start(at), self.next_used(at)))
    }

    /// Takes `start..end`; `false`, and nothing changed, unless all of it is free.
    pub(crate) fn take(&mut self, start: u32, end: u32) -> bool {
        let Some((low, high)) = self.run_at(start) else { return false };
        if high < end || end <= start {
            return false;
        }
        fill(&mut self.words, start, end, true);
        for chunk in start / CHUNK..end.div_ceil(CHUNK) {
            self.virgin &= !(1 << chunk);
        }
        self.free -= end - start;
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
        true
    }

    /// Gives `start..end` back; `false`, and nothing changed, unless all of it is used.
    pub(crate) fn give(&mut self, start: u32, end: u32) -> bool {
        if end > self.len || end <= start || !self.all_used(start, end) {
            return false;
        }
        let left = start.checked_sub(1).and_then(|at| self.run_at(at));
        let right = self.run_at(end);
        fill(&mut self.words, start, end, false);
        self.free += end - start;
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
        true
    }

    fn all_used(&self, start: u32, end: u32) -> bool {
        self.next_free(start) >= end
    }

    /// Enters the maximal run `low..high`.
    fn add(&mut self, low: u32, high: u32) {
        let length = high - low;
        let class = class_of(length);
        if let Some(count) = self.count.get_mut(class as usize) {
            *count += 1;
        }
        self.mask |= 1 << class;
        if let Some(longest) = self.start_max.get_mut((low / CHUNK) as usize) {
            *longest = (*longest).max(short(length));
        }
    }

    /// Removes the maximal run `low..high`; `true` if its chunk's longest run must be found anew.
    fn remove(&mut self, low: u32, high: u32) -> bool {
        let length = high - low;
        let class = class_of(length);
        if let Some(count) = self.count.get_mut(class as usize) {
            *count -= 1;
            if *count == 0 {
                self.mask &= !(1 << class);
            }
        }
        self.start_max.get((low / CHUNK) as usize) == Some(&short(length))
    }

    fn refresh_start_max(&mut self, chunk: u32) {
        let mut longest = 0;
        let mut at = self.first_start(chunk * CHUNK);
        while at < ((chunk + 1) * CHUNK).min(self.len) {
            let end = self.next_used(at);
            longest = longest.max(short(end - at));
            at = self.next_free(end);
        }
        if let Some(entry) = self.start_max.get_mut(chunk as usize) {
            *entry = longest;
        }
    }

    fn refresh_virgin(&mut self, start: u32, end: u32) {
        for chunk in start / CHUNK..end.div_ceil(CHUNK) {
            let from = chunk as usize * CHUNK_WORDS;
            let whole = self.words.get(from..from + CHUNK_WORDS);
            let free = (chunk + 1) * CHUNK <= self.len && whole.is_some_and(|w| w.iter().all(|&w| w == 0));
            if free {
                self.virgin |= 1 << chunk;
            }
        }
    }

    /// First start of a maximal run at or after `at`.
    pub(crate) fn first_start(&self, at: u32) -> u32 {
        if at > 0 && at < self.len && !self.is_used(at) && !self.is_used(at - 1) {
            return self.next_free(self.next_used(at));
        }
        if at >= self.len { self.len } else { self.next_free(at) }
    }

    /// Chunks in which a maximal run of at least `low` and at most `high` is the longest to start.
    fn chunks_within(&self, low: u32, high: u32) -> u64 {
        let (low, high) = (short(low), short(high));
        let mut set = 0u64;
        for (chunk, &longest) in self.start_max.iter().enumerate() {
            set |= u64::from(longest >= low && longest <= high) << chunk;
        }
        set
    }

    /// First place at or after `from` where `count` clusters are free and `align`ed (see
    /// [`aligned`]), counting visited runs in `scanned`.
    pub(crate) fn first_fit(&self, from: u32, count: u32, fit: Fit, scanned: &mut u64) -> Option<u32> {
        if from >= self.len || count > self.len {
            return None;
        }
        let mut behind = from;
        if !self.is_used(from) {
            let end = self.next_used(from);
            *scanned += 1;
            if let Some(start) = fit.place((from, end), count) {
                return Some(start);
            }
            behind = end;
        }
        let mut chunks = self.chunks_within(count, u32::MAX) & (u64::MAX << (behind / CHUNK).min(63));
        while chunks != 0 {
            let chunk = chunks.trailing_zeros();
            chunks &= chunks - 1;
            let mut at = self.first_start(behind.max(chunk * CHUNK));
            while at < ((chunk + 1) * CHUNK).min(self.len) {
                let end = self.next_used(at);
                *scanned += 1;
                if let Some(start) = fit.place((at, end), count) {
                    return Some(start);
                }
                at = self.next_free(end);
            }
        }
        None
    }

    /// A run of at least `count` and less than `below` clusters: from the chunks whose longest run
    /// is up to one and a half times as long, else from any that has one; nearest to `near`, and
    /// there the tightest run.
    pub(crate) fn best_fit(
        &self,
        near: u32,
        count: u32,
        below: u32,
        fit: Fit,
        scanned: &mut u64,
    ) -> Option<u32> {
        if count > self.len {
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
                if let Some(start) = self.tightest_in(chunk, count, below, fit, scanned) {
                    return Some(start);
                }
            }
        }
        None
    }

    fn tightest_in(&self, chunk: u32, count: u32, below: u32, fit: Fit, scanned: &mut u64) -> Option<u32> {
        let mut best: Option<(u32, u32)> = None;
        let mut at = self.first_start(chunk * CHUNK);
        while at < ((chunk + 1) * CHUNK).min(self.len) {
            let end = self.next_used(at);
            *scanned += 1;
            if end - at < below
                && let Some(start) = fit.snug((at, end), count)
                && best.is_none_or(|(length, _)| end - at < length)
            {
                best = Some((end - at, start));
                if end - at == count {
                    break;
                }
            }
            at = self.next_free(end);
        }
        best.map(|(_, start)| start)
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
            let mut at = self.first_start(chunk * CHUNK);
            while at < ((chunk + 1) * CHUNK).min(self.len) {
                let end = self.next_used(at);
                if end - at < below && best.is_none_or(|(a, b)| end - at > b - a) {
                    best = Some((at, end));
                }
                at = self.next_free(end);
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
        let mut at = self.first_start(chunk * CHUNK);
        while at < ((chunk + 1) * CHUNK).min(self.len) {
            let end = self.next_used(at);
            if end - at == u32::from(longest) {
                return Some((at, end));
            }
            at = self.next_free(end);
        }
        None
    }

    /// Free clusters at the region's start and at its end.
    pub(crate) fn edges(&self) -> (u32, u32) {
        let prefix = if self.len == 0 || self.is_used(0) { 0 } else { self.next_used(0) };
        let last = self.len.saturating_sub(1);
        let suffix = if self.len == 0 || self.is_used(last) { 0 } else { self.len - self.run_start(last) };
        (prefix, suffix)
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
    pub(crate) fn place(self, run: Span, count: u32) -> Option<u32> {
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

    /// A start in `run` that leaves `count` clusters: the run's own, or the one that ends with it
    /// if that leaves more whole aligned chunks of 512 free.
    fn snug(self, run: Span, count: u32) -> Option<u32> {
        let first = self.place(run, count)?;
        if self.align > 1 || run.1 - run.0 < CHUNK {
            return Some(first);
        }
        let chunks = |from: u32, to: u32| (to / CHUNK).saturating_sub(from.div_ceil(CHUNK));
        let last = run.1 - count;
        Some(if chunks(run.0, last) > chunks(first + count, run.1) { last } else { first })
    }
}

/// A length inside a region as stored in the summary.
fn short(length: u32) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
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

/// Sets or clears the bits `start..end`.
pub(crate) fn fill(words: &mut [u64], start: u32, end: u32, used: bool) {
    let mut at = start;
    while at < end {
        let upto = ((at / 64 + 1) * 64).min(end);
        let bits = (u64::MAX >> (64 - (upto - at))) << (at % 64);
        if let Some(word) = words.get_mut((at / 64) as usize) {
            if used { *word |= bits } else { *word &= !bits }
        }
        at = upto;
    }
}

#[cfg(test)]
mod tests;
