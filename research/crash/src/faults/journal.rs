//! Faults of a log writer: what was recorded of a right one, with something left out, changed or moved.

use std::sync::Arc;

use platfs::device::Event;

use crate::order::Order;

const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
const DESCRIPTOR: u8 = 1;
const COMMIT: u8 = 2;
const SUPERBLOCK: u8 = 4;
const REVOCATION: u8 = 5;

/// Makes a fault of events, with the bytes of a block.
pub(crate) type Tampering = fn(Vec<Event>, usize) -> Vec<Event>;

/// Each with the order in which it shows.
pub(crate) const FAULTS: &[(Order, &str, &str, Tampering)] = &[
    (Order::Ordered, "no-flush-before-commit", "no flush before the commit", |events, _| {
        without_flush(events, |_, after| is(after, COMMIT))
    }),
    (Order::Ordered, "no-flush-behind-commit", "no flush behind the commit", |events, _| {
        without_flush(events, |before, _| is(before, COMMIT))
    }),
    (Order::Ordered, "no-flush-before-checkpoint", "no flush before the log is emptied", |events, _| {
        without_flush(events, |_, after| is(after, SUPERBLOCK))
    }),
    (Order::Ordered, "no-revocations", "revocations are left out", |events, size| {
        change_blocks(events, size, REVOCATION, |block| block[12..16].copy_from_slice(&16_u32.to_be_bytes()))
    }),
    (Order::Ordered, "no-escapes", "nothing is escaped", |events, size| {
        change_blocks(events, size, DESCRIPTOR, unescape)
    }),
    (Order::Ordered, "no-commit", "a commit is left out", |events, _| {
        let mut number = 0;
        events.into_iter().filter(|event| !(is(Some(event), COMMIT) && nth(&mut number, 5))).collect()
    }),
    (Order::Ordered, "no-recovery-mark", "the mark for recovery is left out", |events, _| {
        events.into_iter().map(without_mark).collect()
    }),
    (Order::Ordered, "early-checkpoint", "the log is emptied before all is in place", |events, _| {
        moved_before_flush(events, SUPERBLOCK)
    }),
    (Order::Ordered, "early-commit", "the commit comes before its copies", |events, _| {
        moved_before_flush(events, COMMIT)
    }),
    (Order::Ordered, "wrong-sequence", "a commit has a wrong number", |events, size| {
        change_blocks(events, size, COMMIT, |block| block[11] ^= u8::from(block[11] % 7 == 3))
    }),
    (Order::Journal, "no-escapes-of-bytes", "bytes of files are not escaped", |events, size| {
        change_blocks(events, size, DESCRIPTOR, unescape)
    }),
    (
        Order::Ordered,
        "early-reuse",
        "blocks are used again before what freed them is committed",
        |events, _| used_early(events),
    ),
];

fn nth(number: &mut u32, wanted: u32) -> bool {
    *number += 1;
    number.is_multiple_of(wanted)
}

fn is(event: Option<&Event>, kind: u8) -> bool {
    matches!(event, Some(Event::Write { data, .. }) if data.starts_with(&MAGIC) && data[4..8] == [0, 0, 0, kind])
}

/// Leaves out flushes between such writes.
fn without_flush(
    events: Vec<Event>,
    leave_out: impl Fn(Option<&Event>, Option<&Event>) -> bool,
) -> Vec<Event> {
    let is_write = |event: &&Event| matches!(event, Event::Write { .. });
    let kept = |(at, event): &(usize, &Event)| {
        let (before, after) =
            (events[..*at].iter().rev().find(is_write), events[*at..].iter().find(is_write));
        **event != Event::Flush || !leave_out(before, after)
    };
    events.iter().enumerate().filter(kept).map(|(_, event)| event.clone()).collect()
}

/// Changes blocks of the log of one kind.
fn change_blocks(events: Vec<Event>, size: usize, kind: u8, change: impl Fn(&mut [u8])) -> Vec<Event> {
    let changed = |event| match event {
        Event::Write { offset, data } if data.len() % size == 0 => {
            let mut data = data.to_vec();
            for block in data.chunks_mut(size) {
                if block.starts_with(&MAGIC) && block[4..8] == [0, 0, 0, kind] {
                    change(block);
                }
            }
            Event::Write { offset, data: Arc::from(data) }
        }
        other => other,
    };
    events.into_iter().map(changed).collect()
}

/// Takes the mark of an escaped block from the tags of 8 bytes; the first has a UUID behind it.
fn unescape(block: &mut [u8]) {
    let mut at = 12;
    while at + 8 <= block.len() {
        let flags = block[at + 7];
        block[at + 7] &= !1;
        at += if flags & 2 == 0 { 24 } else { 8 };
        if flags & 8 != 0 {
            break;
        }
    }
}

/// The superblock of the volume never asks for recovery.
fn without_mark(event: Event) -> Event {
    match event {
        Event::Write { offset: 1024, data } if data.len() == 1024 => {
            let mut data = data.to_vec();
            data[0x60] &= !4;
            Event::Write { offset: 1024, data: Arc::from(data) }
        }
        other => other,
    }
}

/// Moves such writes before the flush that comes before them.
fn moved_before_flush(mut events: Vec<Event>, kind: u8) -> Vec<Event> {
    for at in 1..events.len() {
        if is(Some(&events[at]), kind) && events[at - 1] == Event::Flush {
            events.swap(at - 1, at);
        }
    }
    events
}

/// Moves what is written into blocks of files before the last commit.
fn used_early(events: Vec<Event>) -> Vec<Event> {
    let is_data = |event: &Event| matches!(event, Event::Write { data, .. } if data.starts_with(b"PLAT"));
    let mut moved: Vec<Event> = Vec::new();
    let mut commit = 0;
    for event in events {
        if is(Some(&event), COMMIT) {
            // Before the flush that comes before it.
            commit = moved.len().saturating_sub(1);
        }
        if is_data(&event) {
            moved.insert(commit, event);
            commit += 1;
        } else {
            moved.push(event);
        }
    }
    moved
}
