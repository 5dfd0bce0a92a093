//! Knowledge of one region, in four bytes: nothing, one free run, or where its bitmap is.
//!
//! A region whose free space is a single run (untouched, filled in order, or full) needs no bitmap.
//! It is indexed the moment a second run appears; so a volume of 16 TiB opens without allocating
//! and one that is loaded in order never does.

use super::Scan;
use super::class::class_of;
use super::region::{Fit, Lengths, NearLimits, RunMap, Span, Spare};

/// State of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The bitmap was never read.
    Unknown,
    /// The bitmap was known and is so no more; this many clusters are free.
    Cold(u32),
    /// Bitmap and descriptor disagree: nothing may be taken or given.
    Broken,
    /// Everything is used but one run, which may be empty.
    Plain(Span),
    /// Indexed: entry of this number in the region's stripe.
    Mapped(u32),
}

const TAG: u32 = 30;
const LOW: u32 = (1 << TAG) - 1;

impl State {
    /// Packs the state; a fresh slot of zero is [`State::Unknown`].
    pub(crate) fn pack(self) -> u32 {
        match self {
            State::Unknown => 0,
            State::Broken => 1,
            State::Cold(free) => 1 << 20 | free,
            State::Plain((from, to)) if from >= to => 2,
            State::Plain((from, to)) => 1 << TAG | from << 15 | (to - from - 1),
            State::Mapped(entry) => 2 << TAG | entry & LOW,
        }
    }

    pub(crate) fn unpack(slot: u32) -> Self {
        match (slot >> TAG, slot & LOW) {
            (0, 0) => State::Unknown,
            (0, 1) => State::Broken,
            (0, 2) => State::Plain((0, 0)),
            (0, low) => State::Cold(low & 0xFFFF),
            (1, low) => State::Plain((low >> 15, (low >> 15) + (low & 0x7FFF) + 1)),
            (_, low) => State::Mapped(low),
        }
    }

    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, State::Unknown | State::Cold(_))
    }
}

/// Facts of a region that searches of other regions need.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// Classes of which a maximal run exists.
    pub(crate) mask: u32,
    /// Free clusters at the start.
    pub(crate) prefix: u32,
    /// Free clusters at the end.
    pub(crate) suffix: u32,
}

/// A region as searches see it.
#[derive(Clone, Copy)]
pub(crate) enum Look<'a> {
    /// The bitmap must be loaded.
    Unknown,
    /// One free run, which may be empty; a region out of service has an empty one.
    Plain(Span),
    /// Indexed.
    Mapped(&'a RunMap),
}

impl Look<'_> {
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self, Look::Unknown)
    }

    pub(crate) fn summary(self, len: u32) -> Summary {
        match self {
            Look::Unknown => Summary::default(),
            Look::Plain((from, to)) if from == to => Summary::default(),
            Look::Plain((from, to)) => Summary {
                mask: 1 << class_of(to - from),
                prefix: if from == 0 { to } else { 0 },
                suffix: if to == len { len - from } else { 0 },
            },
            Look::Mapped(map) => {
                let (prefix, suffix) = map.edges();
                Summary { mask: map.mask(), prefix, suffix }
            }
        }
    }

    /// Classes of which a maximal run exists.
    pub(crate) fn mask(self) -> u32 {
        match self {
            Look::Unknown => 0,
            Look::Plain((from, to)) => u32::from(from < to).checked_shl(class_of(to - from)).unwrap_or(0),
            Look::Mapped(map) => map.mask(),
        }
    }

    /// The maximal free run that contains `at`.
    pub(crate) fn run_at(self, at: u32) -> Option<Span> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => (run.0 <= at && at < run.1).then_some(run),
            Look::Mapped(map) => map.run_at(at),
        }
    }

    /// First maximal free run that begins at or after `at`.
    pub(crate) fn run_from(self, at: u32, len: u32) -> Option<Span> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => (run.0 >= at && run.0 < run.1).then_some(run),
            Look::Mapped(map) => {
                let start = map.first_start(at);
                (start < len).then(|| (start, map.next_used(start)))
            }
        }
    }

    /// See [`RunMap::first_fit`].
    pub(crate) fn first_fit(self, from: u32, count: u32, fit: Fit, scan: &mut Scan) -> Option<u32> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => {
                scan.runs += u64::from(run.0 < run.1);
                fit.start_in((run.0.max(from), run.1.max(from)), count)
            }
            Look::Mapped(map) => map.first_fit(from, count, fit, scan),
        }
    }

    /// See [`RunMap::best_fit`].
    pub(crate) fn best_fit(self, near: u32, count: u32, below: u32, scan: &mut Scan) -> Option<u32> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => {
                scan.runs += u64::from(run.0 < run.1);
                let length = run.1 - run.0;
                (length >= count && length < below).then_some(run.0)
            }
            Look::Mapped(map) => map.best_fit(near, count, below, scan),
        }
    }

    /// See [`RunMap::beside`].
    pub(crate) fn tightest_beside(
        self,
        near: u32,
        count: u32,
        limits: NearLimits,
        scan: &mut Scan,
    ) -> Option<u32> {
        match self {
            // One run, which is long or the last.
            Look::Unknown | Look::Plain(_) => None,
            Look::Mapped(map) => map.tightest_beside(near, count, limits, scan),
        }
    }

    /// See [`RunMap::sparing`].
    pub(crate) fn sparing(self, count: u32, among: Lengths, scan: &mut Scan) -> Option<Spare> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => {
                scan.runs += u64::from(run.0 < run.1);
                among.spare(run, count)
            }
            Look::Mapped(map) => map.sparing(count, among, scan),
        }
    }

    /// See [`RunMap::longest_below`].
    pub(crate) fn longest_below(self, near: u32, below: u32) -> Option<Span> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => (run.0 < run.1 && run.1 - run.0 < below).then_some(run),
            Look::Mapped(map) => map.longest_below(near, below),
        }
    }

    /// The longest run, the nearest to `near` of equals.
    pub(crate) fn longest(self, near: u32) -> Option<Span> {
        match self {
            Look::Unknown => None,
            Look::Plain(run) => (run.0 < run.1).then_some(run),
            Look::Mapped(map) => map.longest(near),
        }
    }

    /// Word `index` of the bitmap, a set bit being used; all ones where nothing is known.
    pub(crate) fn word(self, index: u32) -> u64 {
        match self {
            Look::Unknown => u64::MAX,
            Look::Mapped(map) => map.words().get(index as usize).copied().unwrap_or(u64::MAX),
            Look::Plain((from, to)) => {
                let (low, high) = (index * 64, index * 64 + 64);
                let (from, to) = (from.max(low), to.min(high));
                if from >= to { u64::MAX } else { !((u64::MAX >> (64 - (to - from))) << (from - low)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_packing() {
        let spans = [(0, 1), (0, 32_768), (5, 6), (32_767, 32_768), (17, 30_000), (0, 0)];
        let states = spans.map(State::Plain).into_iter();
        let others = [State::Unknown, State::Broken, State::Cold(0), State::Cold(32_768), State::Mapped(0)];
        for state in states.chain(others).chain([State::Mapped(LOW)]) {
            assert_eq!(State::unpack(state.pack()), state);
        }
        assert_eq!(State::unpack(0), State::Unknown);
    }
}
