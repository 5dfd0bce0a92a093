//! All sequences of one and two calls over a small tree, with each kind of sync behind each, as in the ACE
//! method of CrashMonkey.

use platfs::Allocate;

use crate::calls::Caller;

/// A call; the file that it is about, or `None` if it can't be made.
type Call = fn(&mut Caller<'_>) -> Option<u32>;

fn foo(caller: &Caller<'_>) -> Option<u32> {
    caller.model.file(b"/foo")
}

fn bar(caller: &Caller<'_>) -> Option<u32> {
    caller.model.file(b"/A/bar")
}

fn is_free(caller: &Caller<'_>, path: &[u8]) -> Option<()> {
    let parent = &path[..path.iter().rposition(|byte| *byte == b'/')?];
    let possible = caller.model.directory(parent).is_some() && !caller.model.names.contains_key(path);
    possible.then_some(())
}

/// A file to sync; 0 if there is none.
fn any(caller: &Caller<'_>) -> Option<u32> {
    foo(caller).or_else(|| bar(caller)).or(Some(0))
}

fn create(caller: &mut Caller<'_>, path: &[u8]) -> Option<u32> {
    is_free(caller, path)?;
    caller.create(path);
    caller.model.file(path)
}

fn write(caller: &mut Caller<'_>, from: u64, count: u64) -> Option<u32> {
    let id = foo(caller)?;
    caller.write(id, from, count);
    Some(id)
}

fn cut(caller: &mut Caller<'_>, size: u64) -> Option<u32> {
    let id = foo(caller)?;
    caller.truncate(id, size);
    Some(id)
}

fn space(caller: &mut Caller<'_>, mode: Allocate, from: u64, count: u64) -> Option<u32> {
    let id = foo(caller)?;
    let (len, unit) = (caller.model.pieces(id) as u64, caller.unit);
    let moves = matches!(mode, Allocate::CollapseRange | Allocate::InsertRange);
    let (from, count) = if moves { (unit, unit) } else { (from, count) };
    if moves && from + count >= len || mode != Allocate::PunchHole && !caller.extents {
        return None;
    }
    caller.allocate(id, mode, from, count);
    Some(id)
}

fn make(caller: &mut Caller<'_>, path: &[u8]) -> Option<u32> {
    is_free(caller, path)?;
    caller.make_directory(path);
    any(caller)
}

fn link(caller: &mut Caller<'_>, id: Option<u32>, path: &[u8]) -> Option<u32> {
    is_free(caller, path)?;
    caller.link(id?, path);
    id
}

fn unlink(caller: &mut Caller<'_>, path: &[u8]) -> Option<u32> {
    caller.model.file(path)?;
    caller.unlink(path);
    any(caller)
}

fn rename(caller: &mut Caller<'_>, from: &[u8], to: &[u8]) -> Option<u32> {
    let id = caller.model.file(from)?;
    if caller.model.file(to) == Some(id) || is_free(caller, to).is_none() && caller.model.file(to).is_none() {
        return None;
    }
    caller.rename(from, to);
    Some(id)
}

const CALLS: &[Call] = &[
    |w| create(w, b"/new"),
    |w| create(w, b"/A/new"),
    |w| create(w, b"/foo"),
    |w| make(w, b"/B"),
    |w| make(w, b"/A/C"),
    |w| {
        w.model.directory(b"/B")?;
        w.remove_directory(b"/B");
        any(w)
    },
    |w| write(w, 12, 5),
    |w| write(w, 1, 3),
    |w| write(w, 9, 8),
    |w| write(w, 30, 2),
    |w| space(w, Allocate::Extend, 10, 20),
    |w| space(w, Allocate::KeepSize, 10, 20),
    |w| space(w, Allocate::ZeroRange, 3, 12),
    |w| space(w, Allocate::ZeroRangeKeepSize, 3, 12),
    |w| space(w, Allocate::PunchHole, 3, 6),
    |w| space(w, Allocate::CollapseRange, 0, 0),
    |w| space(w, Allocate::InsertRange, 0, 0),
    |w| {
        let id = foo(w);
        link(w, id, b"/A/link")
    },
    |w| {
        let id = bar(w);
        link(w, id, b"/link")
    },
    |w| unlink(w, b"/foo"),
    |w| unlink(w, b"/A/bar"),
    |w| unlink(w, b"/A/link"),
    |w| rename(w, b"/foo", b"/A/bar"),
    |w| rename(w, b"/A/bar", b"/foo"),
    |w| rename(w, b"/foo", b"/moved"),
    |w| {
        w.model.directory(b"/A")?;
        is_free(w, b"/D")?;
        w.rename(b"/A", b"/D");
        any(w)
    },
    |w| cut(w, 8),
    |w| cut(w, 3),
    |w| cut(w, 0),
    |w| cut(w, 21),
    |w| {
        is_free(w, b"/A/symlink")?;
        w.symlink(b"/A/symlink");
        any(w)
    },
    |w| {
        let id = foo(w)?;
        w.set_attribute(id, 20);
        Some(id)
    },
    |w| {
        let id = foo(w)?;
        w.set_attribute(id, 300);
        Some(id)
    },
    |w| {
        let id = foo(w)?;
        w.model.files[&id].attribute.as_ref()?;
        w.remove_attribute(id);
        Some(id)
    },
];

/// Ways to sync behind a call.
const SYNCS: usize = 4;

/// Makes the files that exist before the sequence.
pub(crate) fn prepare(caller: &mut Caller<'_>) {
    caller.make_directory(b"/A");
    caller.create(b"/foo");
    caller.create(b"/A/bar");
    let len = (3 * caller.unit + 1).max(12);
    for (path, len) in [(&b"/foo"[..], len), (b"/A/bar", 7)] {
        let id = caller.model.file(path).unwrap();
        caller.write(id, 0, len);
    }
}

/// Makes calls with their syncs; `None` if one can't be made.
pub(crate) fn run(caller: &mut Caller<'_>, calls: &[(usize, usize)]) -> Option<()> {
    for (call, sync) in calls {
        let id = CALLS[*call](caller)?;
        match sync {
            0 => {}
            1 | 2 if id > 0 => caller.fsync(id),
            _ => caller.sync(),
        }
    }
    Some(())
}

/// One call with a sync behind it; or two, where the first may be without.
const ONES: usize = CALLS.len() * (SYNCS - 1);
const TWOS: usize = CALLS.len() * SYNCS * ONES;
/// Sequences are numbered in steps of this, so that the first few differ in everything.
const STRIDE: usize = 7919;

/// Sequences of one and of two calls.
pub(crate) const SEQUENCES: usize = ONES + TWOS;

/// A sequence by its number, from 0 on.
pub(crate) fn sequence(number: usize) -> Vec<(usize, usize)> {
    let number = number % SEQUENCES * STRIDE % SEQUENCES;
    let last = |number: usize| (number / (SYNCS - 1), 1 + number % (SYNCS - 1));
    match number.checked_sub(ONES) {
        None => vec![last(number)],
        Some(two) => {
            let (first, second) = (two / ONES, two % ONES);
            vec![(first / SYNCS, first % SYNCS), last(second)]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CALLS, ONES, SEQUENCES, SYNCS, sequence};

    #[test]
    fn every_sequence_has_one_number() {
        let all: BTreeSet<_> = (0..SEQUENCES).map(sequence).collect();
        assert_eq!(all.len(), SEQUENCES);
        assert_eq!(all.iter().filter(|calls| calls.len() == 1).count(), ONES);
        assert!(all.iter().flatten().all(|(call, sync)| *call < CALLS.len() && *sync < SYNCS));
        assert!(
            all.iter().all(|calls| calls.last().is_some_and(|(_, sync)| *sync > 0)),
            "the last sync is one"
        );
    }
}
