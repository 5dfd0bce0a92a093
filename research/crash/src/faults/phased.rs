//! Faults that a writer of soft updates could have: what was recorded of a right one, with something left out,
//! changed or moved. Volumes have no checksums, so that changed blocks are whole.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use platfs::device::{Event, MemoryDevice};
use platfs::ondisk::units::Group;
use platfs::{OpenOptions, Volume};

use crate::run::{Mark, copy};

/// Places in bytes by which the faults know what a write is.
pub(crate) struct WriteAreas {
    pub(crate) bitmaps: Vec<u64>,
    pub(crate) inodes: Range<u64>,
    pub(crate) inode_size: usize,
}

/// The places of a volume of one group.
pub(crate) fn places(device: &MemoryDevice) -> WriteAreas {
    let volume = Volume::open(Arc::new(copy(device)), &OpenOptions::new()).unwrap();
    let format = volume.format();
    let raw = volume.space().descriptor(Group(0)).unwrap();
    let at = |block| format.geometry.byte_offset(block);
    let table = at(raw.inode_table());
    let len = u64::from(format.geometry.inode_table_blocks()) * u64::from(format.geometry.block_size.bytes());
    WriteAreas {
        bitmaps: vec![at(raw.block_bitmap()), at(raw.inode_bitmap())],
        inodes: table..table + len,
        inode_size: usize::from(format.geometry.inode_size),
    }
}

/// An epoch: what was written between two flushes, phase by phase.
type Phases = Vec<Vec<Event>>;
/// A fault of an epoch, and the first phase of the next.
pub(crate) type Tampering = fn(&WriteAreas, &mut Phases, &mut Vec<Event>);

const SUPERBLOCK: u64 = 1024;
/// Bytes that test files begin with.
const OF_A_FILE: [u8; 4] = 0x5441_4C50_u32.to_le_bytes();

pub(crate) const FAULTS: &[(&str, &str, Tampering)] = &[
    ("no-flush-before-records", "a flush is left out before records", |_, phases, _| join(phases, 1)),
    ("no-flush-before-names", "a flush is left out before names", |_, phases, _| join(phases, 2)),
    ("no-flush-before-bits", "a flush is left out before bits are cleared", |_, phases, _| {
        join(phases, phases.len() - 1)
    }),
    ("early-records", "records come before their bits and blocks", |_, phases, _| exchange(phases, 0, 1)),
    ("early-names", "names come before records", |_, phases, _| exchange(phases, 1, 2)),
    ("early-clear", "bits are cleared before names vanish and records go", |places, phases, _| {
        let last = move_out(phases.last_mut().unwrap(), |event| is_bitmap(places, event));
        phases[1].splice(0..0, last);
    }),
    ("early-removal", "records go before names vanish", |places, phases, _| {
        let count = phases.len();
        if count > 3 {
            let gone = move_out(&mut phases[count - 2], |event| is_of(event, &places.inodes));
            phases[1].extend(gone);
        }
    }),
    ("late-bits", "bits are set last", |places, phases, _| {
        let first = move_out(&mut phases[0], |event| is_bitmap(places, event));
        let last = phases.last_mut().unwrap();
        last.splice(0..0, first);
    }),
    ("final-links", "links are counted as they end", |places, phases, _| {
        as_they_end(
            phases,
            |event| is_of(event, &places.inodes),
            |now, end| {
                for (now, end) in now.chunks_mut(places.inode_size).zip(end.chunks(places.inode_size)) {
                    if end[26] != 0 && now[26] > end[26] {
                        now[26] = end[26];
                    }
                }
            },
        );
    }),
    ("early-directories", "new directories show their names at once", |places, phases, _| {
        let others: Vec<_> =
            phases[0].iter().filter(|event| is_bitmap(places, event)).filter_map(offset).collect();
        let is_plain = |event: &Event| {
            offset(event).is_some_and(|at| at > 3 * SUPERBLOCK && !others.contains(&at))
                && !is_of(event, &places.inodes)
        };
        let mut last: HashMap<u64, Arc<[u8]>> = HashMap::new();
        for event in phases[1..].iter().flatten() {
            if let Event::Write { offset, data } = event {
                last.insert(*offset, data.clone());
            }
        }
        for event in phases[0].iter_mut().filter(|event| is_plain(event)) {
            if let Event::Write { offset, data } = event
                && let Some(end) = last.get(offset)
            {
                *data = end.clone();
            }
        }
    }),
    ("early-vanish", "names that move vanish at once", |places, phases, _| {
        as_they_end(&mut phases[1..], |event| !is_of(event, &places.inodes), <[u8]>::copy_from_slice);
    }),
    ("late-bytes", "bytes of files come last", |_, phases, _| {
        let bytes = move_out(&mut phases[0], is_of_a_file);
        phases.last_mut().unwrap().extend(bytes);
    }),
    ("early-reuse-in-phases", "blocks are used again before what freed them is stable", |_, phases, next| {
        let bytes = move_out(next, is_of_a_file);
        phases[0].extend(bytes);
    }),
];

fn offset(event: &Event) -> Option<u64> {
    if let Event::Write { offset, .. } = event { Some(*offset) } else { None }
}

fn is_of(event: &Event, range: &Range<u64>) -> bool {
    offset(event).is_some_and(|offset| range.contains(&offset))
}

fn is_bitmap(places: &WriteAreas, event: &Event) -> bool {
    offset(event).is_some_and(|offset| places.bitmaps.contains(&offset))
}

fn is_of_a_file(event: &Event) -> bool {
    matches!(event, Event::Write { data, .. } if data.starts_with(&OF_A_FILE))
}

fn move_out(from: &mut Vec<Event>, which: impl Fn(&Event) -> bool) -> Vec<Event> {
    let (out, rest) = std::mem::take(from).into_iter().partition(which);
    *from = rest;
    out
}

fn join(phases: &mut Phases, at: usize) {
    let later = phases.remove(at);
    phases[at - 1].extend(later);
}

fn exchange(phases: &mut Phases, one: usize, other: usize) {
    // What is not a write stays where it was.
    let of_one = move_out(&mut phases[one], |event| offset(event).is_some());
    let of_other = move_out(&mut phases[other], |event| offset(event).is_some());
    phases[one].extend(of_other);
    phases[other].extend(of_one);
}

/// Changes each write of a place that is written again later in the epoch, with what it is to be then.
fn as_they_end(phases: &mut [Vec<Event>], which: impl Fn(&Event) -> bool, change: impl Fn(&mut [u8], &[u8])) {
    let mut last: HashMap<u64, Arc<[u8]>> = HashMap::new();
    for event in phases.iter_mut().rev().flat_map(|phase| phase.iter_mut().rev()) {
        if !which(event) {
            continue;
        }
        if let Event::Write { offset, data } = event {
            if let Some(end) = last.get(offset).filter(|end| end.len() == data.len()) {
                let mut changed = data.to_vec();
                change(&mut changed, end);
                *data = Arc::from(changed);
            } else {
                last.insert(*offset, data.clone());
            }
        }
    }
}

/// Lets calls promise before the last flush that they wait for.
pub(crate) fn promise_early(events: Vec<Event>) -> Vec<Event> {
    let mut put: Vec<Event> = Vec::new();
    for event in events {
        let flush = put.iter().rposition(|event| *event == Event::Flush);
        match (&event, flush) {
            (Event::Mark(word), Some(flush)) if !matches!(Mark::of(*word), Mark::Started(_)) => {
                put.insert(flush, event);
            }
            _ => put.push(event),
        }
    }
    put
}

/// Puts a fault into every epoch that has at least three phases. The superblock is written first and last in each.
pub(crate) fn put(fault: Tampering, places: &WriteAreas, events: Vec<Event>) -> Vec<Event> {
    let mut groups: Vec<Vec<Event>> = vec![Vec::new()];
    for event in events {
        match event {
            Event::Flush => groups.push(Vec::new()),
            event => groups.last_mut().unwrap().push(event),
        }
    }
    let has_superblock = |group: &[Event]| group.iter().any(|event| offset(event) == Some(SUPERBLOCK));
    // The first write marks the volume as in use.
    let mut at = 1;
    while at < groups.len() {
        let end = (at + 1..groups.len()).find(|end| has_superblock(&groups[*end]));
        let Some(end) = end.filter(|_| has_superblock(&groups[at])) else {
            // An epoch that changes no count leaves it out.
            at += 1;
            continue;
        };
        let mut epoch: Phases = groups.drain(at..=end).collect();
        if epoch.len() >= 3 {
            let mut none = Vec::new();
            fault(places, &mut epoch, groups.get_mut(at).unwrap_or(&mut none));
        }
        let count = epoch.len();
        groups.splice(at..at, epoch);
        at += count;
    }
    let mut put = Vec::new();
    for (index, group) in groups.into_iter().enumerate() {
        if index > 0 {
            put.push(Event::Flush);
        }
        put.extend(group);
    }
    put
}
