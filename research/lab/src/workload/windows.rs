//! Clients that write one file after the other, a block at a time, all in one directory, and delete older ones again:
//! what windows of reserved blocks were made for (2004, 2010).

use std::collections::VecDeque;

use super::Scale;
use crate::numbers::{Numbers, count};
use crate::system::{Name, Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("clients", "clients at once"),
    ("blocks", "blocks that all write together"),
    ("largest", "blocks of the largest file; every octave is as likely"),
    ("kept", "files that all keep, before older ones are deleted"),
];

const BLOCK: u64 = 4096;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let clients = scale.number("clients", 8, 4)?.max(1);
    let blocks = scale.number("blocks", 300_000, 20_000)? / clients;
    let largest = u32::try_from(scale.number("largest", 512, 512)?.max(1)).unwrap_or(u32::MAX);
    let kept = usize::try_from(scale.number("kept", 50, 50)? / clients).unwrap_or(0).max(1);
    let writer = |client: u64| -> Stream {
        Box::new(Writer {
            client,
            blocks,
            largest,
            kept,
            next: 0,
            files: Vec::new(),
            numbers: Numbers::new(scale.seed.wrapping_mul(64).wrapping_add(client)),
            calls: VecDeque::new(),
        })
    };
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("write", (0..clients).map(writer).collect()), Phase::new("sync", vec![sync])])
}

struct Writer {
    client: u64,
    /// Blocks that are not written yet.
    blocks: u64,
    largest: u32,
    kept: usize,
    next: u64,
    files: Vec<Name>,
    numbers: Numbers,
    calls: VecDeque<Op>,
}

impl Writer {
    /// A whole file, then perhaps the end of others.
    fn file(&mut self) {
        let size = count(self.numbers.log_uniform(1.0, f64::from(self.largest)), self.largest).max(1);
        let size = u64::from(size).min(self.blocks);
        self.blocks -= size;
        let path: Name = format!("windows.{}.{}", self.client, self.next).into();
        self.next += 1;
        self.calls.push_back(Op::Open { slot: 0, path: path.clone(), create: true });
        let write = |block| Op::Write { slot: 0, offset: block * BLOCK, len: BLOCK };
        self.calls.extend((0..size).map(write));
        self.calls.push_back(Op::Close(0));
        self.files.push(path);
        while self.files.len() > self.kept && self.numbers.chance(0.2) {
            let victim = self.numbers.index(self.files.len());
            self.calls.push_back(Op::Remove(self.files.swap_remove(victim)));
        }
    }
}

impl Iterator for Writer {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while self.calls.is_empty() && self.blocks > 0 {
            self.file();
        }
        self.calls.pop_front()
    }
}
