//! All runs of a bitmap, counted in one pass.
//!
//! Where most runs are short, walking them one by one is what costs. So runs of one, two and three
//! clusters are recognised 64 at a time by shifting a word against itself; only the longer ones are
//! followed to their end.

use super::class::class_of;
use super::region::{CHUNK_WORDS, CHUNKS, INNER_CLASSES, short};
use ondisk::invariant_or;

/// Free clusters by the class of their run.
pub(crate) type Totals = [u32; INNER_CLASSES];

/// Counts of one pass over a bitmap.
pub(super) struct Census {
    /// Runs by class.
    pub(super) count: [u16; INNER_CLASSES],
    /// Longest run that starts in each chunk.
    pub(super) start_max: [u16; CHUNKS],
    pub(super) totals: Totals,
}

impl Census {
    /// Counts the runs of clear bits.
    pub(super) fn from_words(words: &[u64]) -> Census {
        let mut census =
            Census { count: [0; INNER_CLASSES], start_max: [0; CHUNKS], totals: [0; INNER_CLASSES] };
        let mut short_runs = [0u32; 3];
        let mut before = 0;
        for (index, word) in words.iter().enumerate() {
            let free = !word;
            let starts = free & !(free << 1 | before >> 63);
            before = free;
            if starts == 0 {
                continue;
            }
            let behind = words.get(index + 1).map_or(0, |next| !next);
            let [second, third, fourth] = [1, 2, 3].map(|n| free >> n | behind << (64 - n));
            let more = starts & second;
            let kinds = [starts & !second, more & !third, more & third & !fourth];
            let mut longest = 0;
            for ((kind, sum), length) in kinds.into_iter().zip(&mut short_runs).zip(1..) {
                if kind != 0 {
                    *sum += kind.count_ones();
                    longest = length;
                }
            }
            let mut long = more & third & fourth;
            while long != 0 {
                let run = run_length(words, index, long.trailing_zeros());
                long &= long - 1;
                longest = longest.max(run);
                census.add(run);
            }
            let most = census.start_max.get_mut(index / CHUNK_WORDS);
            let most = invariant_or!(most, break, "a word lies in a chunk of its region");
            *most = (*most).max(short(longest));
        }
        for (((runs, length), count), total) in
            short_runs.into_iter().zip(1..).zip(&mut census.count).zip(&mut census.totals)
        {
            *count = short(runs);
            *total = runs * length;
        }
        census
    }

    fn add(&mut self, run: u32) {
        let class = class_of(run) as usize;
        if let (Some(count), Some(total)) = (self.count.get_mut(class), self.totals.get_mut(class)) {
            *count += 1;
            *total += run;
        }
    }
}

/// Length of the run of clear bits that starts at bit `from` of word `index`.
fn run_length(words: &[u64], index: usize, from: u32) -> u32 {
    let here = words.get(index).map_or(0, |word| word >> from);
    if here != 0 {
        return here.trailing_zeros();
    }
    let mut length = 64 - from;
    for word in words.get(index + 1..).unwrap_or_default() {
        if *word != 0 {
            return length + word.trailing_zeros();
        }
        length += 64;
    }
    length
}
