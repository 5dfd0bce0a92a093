//! Aging: files are created, appended to, rewritten, cut short and deleted until the volume is full to a level, and
//! then until that much was written over again. Each client ages its share of the volume in directories of its own,
//! so that its calls are the same whatever the others do.
//!
//! Ageing that takes months elsewhere takes seconds here, in which all of it could stay in memory and nothing would age: so
//! everything is synced again and again.
//!
//! Sizes: lognormal(9.48, 2.46) up to 8 MiB, as fitted to file systems in use (Agrawal et al. 2007, Impressions 2009).
//! Half of the victims are among the youngest third, the others anywhere.

use std::collections::VecDeque;

use super::Scale;
use crate::numbers::{Numbers, count};
use crate::system::{Name, Op, Phase, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("volume", "bytes of the volume"),
    ("fill", "percent of it in use at the end"),
    ("over", "percent of these bytes that are written again and again behind that"),
    ("clients", "clients at once"),
    ("directories", "directories of each"),
    ("sync", "percent of the closes that have an fsync before them"),
    ("settle", "bytes a client writes from one sync of all to its next: what passes as time; 0: none"),
];

/// Bytes of a block: what a file takes is a multiple of it.
const BLOCK: u64 = 4096;
/// Largest file, and bytes of a write.
const LARGEST: u32 = 2_048;
const PIECE: u64 = 64 << 10;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let volume = scale.number("volume", 1 << 30, 96 << 20)?;
    let used = volume / 100 * scale.number("fill", 80, 50)?.min(95);
    let over = scale.number("over", 200, 100)?;
    let clients = scale.number("clients", 4, 4)?.max(1);
    let directories = scale.number("directories", 25, 8)?.max(1);
    let sync = scale.number("sync", 10, 10)?;
    let settle = scale.number("settle", 32 << 20, 8 << 20)? / BLOCK;
    let make = |client: u64| {
        let share = used / clients / BLOCK;
        Churn {
            client,
            directories,
            sync,
            settle,
            settled: 0,
            share,
            goal: share + share * over / 100,
            used: 0,
            written: 0,
            next: 0,
            files: Vec::new(),
            numbers: Numbers::new(scale.seed * 64 + client),
            calls: VecDeque::new(),
            begun: false,
        }
    };
    let streams = (0..clients).map(|client| Box::new(make(client)) as Stream).collect();
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    Ok(vec![Phase::new("age", streams), Phase::new("sync", vec![sync])])
}

/// A file that exists, with its blocks.
struct LiveFile {
    path: Name,
    blocks: u64,
}

struct Churn {
    client: u64,
    directories: u64,
    sync: u64,
    /// Blocks that are written between two syncs of all, and how many were when it was last done.
    settle: u64,
    settled: u64,
    /// Blocks that its files may take, and how many it writes in all.
    share: u64,
    goal: u64,
    used: u64,
    written: u64,
    /// Number of the next file.
    next: u64,
    /// In the order of creation.
    files: Vec<LiveFile>,
    numbers: Numbers,
    calls: VecDeque<Op>,
    begun: bool,
}

impl Churn {
    fn directory(&self, number: u64) -> String {
        format!("age.{}.{number}", self.client)
    }

    fn blocks(&mut self) -> u64 {
        let bytes = self.numbers.lognormal(9.48, 2.46);
        u64::from(count((bytes / 4096.0).ceil(), LARGEST).max(1))
    }

    /// Writes blocks and closes.
    fn write(&mut self, from: u64, blocks: u64) {
        let (mut offset, end) = (from * BLOCK, (from + blocks) * BLOCK);
        while offset < end {
            let len = PIECE.min(end - offset);
            self.calls.push_back(Op::Write { slot: 0, offset, len });
            offset += len;
        }
        if self.numbers.below(100) < self.sync {
            self.calls.push_back(Op::Sync { slot: 0, data_only: false });
        }
        self.calls.push_back(Op::Close(0));
        self.written += blocks;
    }

    fn create(&mut self, directory: u64) {
        let blocks = self.blocks();
        self.make_room(blocks);
        let path: Name = format!("{}/{}", self.directory(directory), self.next).into();
        self.next += 1;
        self.calls.push_back(Op::Open { slot: 0, path: path.clone(), create: true });
        self.write(0, blocks);
        self.used += blocks;
        self.files.push(LiveFile { path, blocks });
    }

    /// Opens a file that exists.
    fn open(&mut self) -> Option<usize> {
        let at = self.numbers.index(self.files.len());
        let path = self.files.get(at)?.path.clone();
        self.calls.push_back(Op::Open { slot: 0, path, create: false });
        Some(at)
    }

    fn append(&mut self) {
        let more = self.blocks().div_ceil(4);
        self.make_room(more);
        let Some(at) = self.open() else { return };
        let blocks = self.files[at].blocks;
        self.write(blocks, more);
        self.files[at].blocks += more;
        self.used += more;
    }

    /// Writes a part of a file again, where it lies.
    fn rewrite(&mut self) {
        let Some(at) = self.open() else { return };
        let blocks = self.files[at].blocks;
        let from = self.numbers.below(blocks);
        let some = 1 + self.numbers.below((blocks - from).min(16));
        self.write(from, some);
    }

    fn truncate(&mut self) {
        let Some(at) = self.open() else { return };
        let blocks = self.files[at].blocks.div_ceil(2);
        self.calls.push_back(Op::Truncate { slot: 0, len: blocks * BLOCK });
        self.calls.push_back(Op::Close(0));
        self.used -= self.files[at].blocks - blocks;
        self.files[at].blocks = blocks;
    }

    /// Deletes files until `blocks` more fit in.
    fn make_room(&mut self, blocks: u64) {
        while self.used + blocks > self.share && !self.files.is_empty() {
            let len = self.files.len();
            let third = len.div_ceil(3);
            let young = self.numbers.chance(0.5);
            let at = if young { len - 1 - self.numbers.index(third) } else { self.numbers.index(len) };
            let victim = self.files.remove(at);
            self.used -= victim.blocks;
            self.calls.push_back(Op::Remove(victim.path));
        }
    }

    fn step(&mut self) {
        if self.settle > 0 && self.written - self.settled >= self.settle {
            self.settled = self.written;
            self.calls.push_back(Op::SyncAll);
        }
        match self.numbers.below(20) {
            0 => self.truncate(),
            1 => self.rewrite(),
            2..=4 => self.append(),
            _ => {
                let directory = self.numbers.below(self.directories);
                for _ in 0..self.numbers.between(1, 16) {
                    self.create(directory);
                }
            }
        }
    }
}

impl Iterator for Churn {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        if !self.begun {
            self.begun = true;
            let names = (0..self.directories).map(|number| Op::MakeDirectory(self.directory(number).into()));
            self.calls = names.collect();
        }
        while self.calls.is_empty() && self.written < self.goal {
            self.step();
        }
        self.calls.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Blocks that the files take when all calls are done, and the most they took on the way.
    fn replayed(calls: &[Op]) -> (u64, u64) {
        let (mut files, mut open, mut most) = (BTreeMap::<Name, u64>::new(), Name::default(), 0);
        for call in calls {
            match call {
                Op::Open { path, create, .. } => {
                    assert_eq!(files.contains_key(path), !create, "{path}");
                    files.entry(path.clone()).or_default();
                    open = path.clone();
                }
                Op::Write { offset, len, .. } => {
                    let size = files.get_mut(&open).unwrap();
                    assert!(*offset <= *size);
                    *size = (*size).max(offset + len);
                }
                Op::Truncate { len, .. } => *files.get_mut(&open).unwrap() = *len,
                Op::Remove(path) => assert!(files.remove(path).is_some()),
                _ => {}
            }
            most = most.max(files.values().sum());
        }
        (files.values().sum(), most)
    }

    #[test]
    fn a_share_is_filled_and_never_more_and_calls_follow_from_the_seed() {
        let scale = Scale { seed: 3, quick: true, ..Scale::default() };
        let calls = || -> Vec<Op> { phases(&scale).unwrap()[0].clients.remove(1).collect() };
        let all = calls();
        let share = (96 << 20) / 100 * 50 / 4;
        let (end, most) = replayed(&all);
        assert!(most <= share && end > share / 100 * 60, "{end} of {share}, at most {most}");
        for kind in ["mkdir", "create", "open", "write", "truncate", "unlink", "fsync", "sync"] {
            assert!(all.iter().any(|op| op.kind() == kind), "{kind}");
        }
        assert_eq!(all, calls());
    }
}
