//! All sequences of one and two calls over a small tree, with each kind of sync behind each, as in the ACE
//! method of CrashMonkey.

use platfs::Allocate;

use crate::calls::Workload;

/// A call; the file that it is about, or `None` if it can't be made.
type Call = fn(&mut Workload<'_>) -> Option<u32>;

fn foo(workload: &Workload<'_>) -> Option<u32> {
    workload.model.file(b"/foo")
}

fn bar(workload: &Workload<'_>) -> Option<u32> {
    workload.model.file(b"/A/bar")
}

fn is_free(workload: &Workload<'_>, path: &[u8]) -> Option<()> {
    let parent = &path[..path.iter().rposition(|byte| *byte == b'/')?];
    let possible = workload.directories.contains_key(parent) && !workload.model.names.contains_key(path);
    possible.then_some(())
}

/// A file to sync; 0 if there is none.
fn any(workload: &Workload<'_>) -> Option<u32> {
    foo(workload).or_else(|| bar(workload)).or(Some(0))
}

fn create(workload: &mut Workload<'_>, path: &[u8]) -> Option<u32> {
    is_free(workload, path)?;
    workload.create(path);
    workload.model.file(path)
}

fn write(workload: &mut Workload<'_>, from: u64, count: u64) -> Option<u32> {
    let id = foo(workload)?;
    workload.write(id, from, count);
    Some(id)
}

fn cut(workload: &mut Workload<'_>, size: u64) -> Option<u32> {
    let id = foo(workload)?;
    workload.truncate(id, size);
    Some(id)
}

fn space(workload: &mut Workload<'_>, mode: Allocate, from: u64, count: u64) -> Option<u32> {
    let id = foo(workload)?;
    let (len, unit) = (workload.model.pieces(id) as u64, workload.unit);
    let moves = matches!(mode, Allocate::CollapseRange | Allocate::InsertRange);
    let (from, count) = if moves { (unit, unit) } else { (from, count) };
    if moves && from + count >= len || mode != Allocate::PunchHole && !workload.extents {
        return None;
    }
    workload.allocate(id, mode, from, count);
    Some(id)
}

fn make(workload: &mut Workload<'_>, path: &[u8]) -> Option<u32> {
    is_free(workload, path)?;
    workload.make_directory(path);
    any(workload)
}

fn link(workload: &mut Workload<'_>, id: Option<u32>, path: &[u8]) -> Option<u32> {
    is_free(workload, path)?;
    workload.link(id?, path);
    id
}

fn unlink(workload: &mut Workload<'_>, path: &[u8]) -> Option<u32> {
    workload.model.file(path)?;
    workload.unlink(path);
    any(workload)
}

fn rename(workload: &mut Workload<'_>, from: &[u8], to: &[u8]) -> Option<u32> {
    let id = workload.model.file(from)?;
    if workload.model.file(to) == Some(id)
        || is_free(workload, to).is_none() && workload.model.file(to).is_none()
    {
        return None;
    }
    workload.rename(from, to);
    Some(id)
}

pub const CALLS: &[Call] = &[
    |w| create(w, b"/new"),
    |w| create(w, b"/A/new"),
    |w| create(w, b"/foo"),
    |w| make(w, b"/B"),
    |w| make(w, b"/A/C"),
    |w| {
        w.directories.contains_key(&b"/B"[..]).then_some(())?;
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
        w.directories.contains_key(&b"/A"[..]).then_some(())?;
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
pub const SYNCS: usize = 4;

/// What there is before.
pub fn prepare(workload: &mut Workload<'_>) {
    workload.make_directory(b"/A");
    workload.create(b"/foo");
    workload.create(b"/A/bar");
    let len = (3 * workload.unit + 1).max(12);
    for (path, len) in [(&b"/foo"[..], len), (b"/A/bar", 7)] {
        let id = workload.model.file(path).unwrap();
        workload.write(id, 0, len);
    }
}

/// Makes calls with their syncs; `None` if one can't be made.
pub fn run(workload: &mut Workload<'_>, calls: &[(usize, usize)]) -> Option<()> {
    for (call, sync) in calls {
        let id = CALLS[*call](workload)?;
        match sync {
            0 => {}
            1 | 2 if id > 0 => workload.fsync(id, *sync == 2),
            _ => workload.sync(),
        }
    }
    Some(())
}

/// Every sequence of one and of two calls; the last sync is one.
pub fn sequences() -> impl Iterator<Item = Vec<(usize, usize)>> {
    let ones = (0..CALLS.len()).flat_map(|call| (1..SYNCS).map(move |sync| vec![(call, sync)]));
    let firsts = (0..CALLS.len()).flat_map(|call| (0..SYNCS).map(move |sync| (call, sync)));
    let twos = firsts.flat_map(|first| {
        (0..CALLS.len()).flat_map(move |call| (1..SYNCS).map(move |sync| vec![first, (call, sync)]))
    });
    ones.chain(twos)
}
