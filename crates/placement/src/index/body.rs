//! What is known of one region: nothing, one free run, or an indexed bitmap.
//!
//! A region whose free space is a single run (untouched, filled in order, or full) needs no bitmap.
//! It is indexed the moment a second run appears; so a volume of 16 TiB opens without allocating
//! and one that is loaded in order never does.

use super::class::class_of;
use super::region::{Fit, RunMap, Span};

/// State of a region.
pub(crate) enum Body {
    /// The bitmap was not read yet.
    Unknown,
    /// Everything is used but one run, which may be empty.
    Plain(Span),
    /// Indexed.
    Mapped(Box<RunMap>),
    /// Bitmap and descriptor disagree: nothing may be taken or given.
    Broken,
}

/// What other regions need to know of one.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// Classes of which a maximal run exists.
    pub(crate) mask: u32,
    /// Free clusters at the start.
    pub(crate) prefix: u32,
    /// Free clusters at the end.
    pub(crate) suffix: u32,
}

impl Body {
    pub(crate) fn summary(&self, len: u32) -> Summary {
        match self {
            Body::Unknown | Body::Broken => Summary::default(),
            Body::Plain((from, to)) if from == to => Summary::default(),
            Body::Plain((from, to)) => Summary {
                mask: 1 << class_of(to - from),
                prefix: if *from == 0 { *to } else { 0 },
                suffix: if *to == len { len - from } else { 0 },
            },
            Body::Mapped(map) => {
                let (prefix, suffix) = map.edges();
                Summary { mask: map.mask(), prefix, suffix }
            }
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Body::Unknown)
    }

    /// The maximal free run that contains `at`.
    pub(crate) fn run_at(&self, at: u32) -> Option<Span> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => (run.0 <= at && at < run.1).then_some(*run),
            Body::Mapped(map) => map.run_at(at),
        }
    }

    /// First maximal free run that begins at or after `at`.
    pub(crate) fn run_from(&self, at: u32, len: u32) -> Option<Span> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => (run.0 >= at && run.0 < run.1).then_some(*run),
            Body::Mapped(map) => {
                let start = map.first_start(at);
                (start < len).then(|| (start, map.next_used(start)))
            }
        }
    }

    /// Takes `start..end`; `false`, and nothing changed, unless all of it is free.
    pub(crate) fn take(&mut self, start: u32, end: u32, len: u32) -> bool {
        if let Body::Plain((from, to)) = self {
            if start < *from || end > *to || end <= start {
                return false;
            }
            if start == *from {
                *from = end;
                return true;
            }
            if end == *to {
                *to = start;
                return true;
            }
            *self = Body::Mapped(Box::new(RunMap::with_run(len, (*from, *to))));
        }
        match self {
            Body::Mapped(map) => map.take(start, end),
            _ => false,
        }
    }

    /// Gives `start..end` back; `false`, and nothing changed, unless all of it is used.
    pub(crate) fn give(&mut self, start: u32, end: u32, len: u32) -> bool {
        if let Body::Plain((from, to)) = self {
            let (low, high) = (*from, *to);
            let apart = end <= low || start >= high || low == high;
            if !apart || end <= start || end > len {
                return false;
            }
            if low == high {
                *self = Body::Plain((start, end));
                return true;
            }
            if end == low {
                *from = start;
                return true;
            }
            if start == high {
                *to = end;
                return true;
            }
            *self = Body::Mapped(Box::new(RunMap::with_run(len, (low, high))));
        }
        match self {
            Body::Mapped(map) => map.give(start, end),
            _ => false,
        }
    }

    /// See [`RunMap::first_fit`].
    pub(crate) fn first_fit(&self, from: u32, count: u32, fit: Fit, scanned: &mut u64) -> Option<u32> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => {
                *scanned += u64::from(run.0 < run.1);
                fit.place((run.0.max(from), run.1.max(from)), count)
            }
            Body::Mapped(map) => map.first_fit(from, count, fit, scanned),
        }
    }

    /// See [`RunMap::best_fit`].
    pub(crate) fn best_fit(
        &self,
        near: u32,
        count: u32,
        below: u32,
        fit: Fit,
        scanned: &mut u64,
    ) -> Option<u32> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => {
                *scanned += u64::from(run.0 < run.1);
                if run.1 - run.0 < below { fit.place(*run, count) } else { None }
            }
            Body::Mapped(map) => map.best_fit(near, count, below, fit, scanned),
        }
    }

    /// See [`RunMap::longest_below`].
    pub(crate) fn longest_below(&self, near: u32, below: u32) -> Option<Span> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => (run.0 < run.1 && run.1 - run.0 < below).then_some(*run),
            Body::Mapped(map) => map.longest_below(near, below),
        }
    }

    /// The longest run, the nearest to `near` of equals.
    pub(crate) fn longest(&self, near: u32) -> Option<Span> {
        match self {
            Body::Unknown | Body::Broken => None,
            Body::Plain(run) => (run.0 < run.1).then_some(*run),
            Body::Mapped(map) => map.longest(near),
        }
    }

    /// Number of maximal free runs.
    pub(crate) fn runs(&self) -> u32 {
        match self {
            Body::Unknown | Body::Broken => 0,
            Body::Plain(run) => u32::from(run.0 < run.1),
            Body::Mapped(map) => map.runs(),
        }
    }

    /// Word `index` of the bitmap, a set bit being used; all ones where nothing is known.
    pub(crate) fn word(&self, index: u32) -> u64 {
        match self {
            Body::Unknown | Body::Broken => u64::MAX,
            Body::Mapped(map) => map.words().get(index as usize).copied().unwrap_or(u64::MAX),
            Body::Plain((from, to)) => {
                let (low, high) = (index * 64, index * 64 + 64);
                let (from, to) = ((*from).max(low), (*to).min(high));
                if from >= to { u64::MAX } else { !((u64::MAX >> (64 - (to - from))) << (from - low)) }
            }
        }
    }
}
