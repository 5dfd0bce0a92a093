//! The workloads of the comparison: calls of one program, the same for the kernel and for the port.
//!
//! Owns: which calls there are and on which volume; every seed gives others. Excludes who carries them out.

use super::volume::Shape;
use crate::numbers::{Numbers, count};
use crate::system::{Op, Slot};

/// A workload.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Files that are made; hundredths of the free space that are filled, where it says so.
    pub(super) count: u64,
    /// Blocks get their places when the bytes are written back.
    pub(super) delays: bool,
    pub(super) shape: Shape,
    calls: fn(&mut Calls),
}

impl Workload {
    /// The calls for a seed, on a volume with so many free blocks.
    pub(super) fn calls(&self, seed: u64, count: u64, free: u64) -> Vec<Op> {
        let block = u64::from(self.shape.block);
        let mut calls = Calls { numbers: Numbers::new(seed), count, block, free, list: Vec::new() };
        (self.calls)(&mut calls);
        calls.list.push(Op::SyncAll);
        calls.list
    }
}

const fn plain(name: &'static str, about: &'static str, count: u64, calls: fn(&mut Calls)) -> Workload {
    Workload { name, about, count, delays: false, shape: Shape::PLAIN, calls }
}

const fn delayed(name: &'static str, about: &'static str, count: u64, calls: fn(&mut Calls)) -> Workload {
    Workload { delays: true, ..plain(name, about, count, calls) }
}

const fn shaped(
    name: &'static str,
    about: &'static str,
    count: u64,
    shape: Shape,
    calls: fn(&mut Calls),
) -> Workload {
    Workload { shape, ..plain(name, about, count, calls) }
}

/// All workloads.
pub(super) const WORKLOADS: &[Workload] = &[
    plain("small", "files of 16 blocks, a block a call", 3_000, |calls| calls.files(16, 16)),
    plain("small-mixed", "files of 1 to 16 blocks", 3_000, |calls| calls.files(1, 16)),
    plain("raised", "small files whose size is raised to 4,096 blocks first", 2_000, Calls::raised),
    plain("large", "files of 2,560 blocks", 100, |calls| calls.files(2_560, 2_560)),
    plain("middle", "files of 25 to 512 blocks", 400, |calls| calls.files(25, 512)),
    plain(
        "side-by-side",
        "files of 512 blocks, eight at once, a block each in turn",
        400,
        Calls::side_by_side,
    ),
    plain("reserve-turns", "fallocate of 16 blocks for eight files in turn", 200, Calls::reserve_turns),
    plain("reserve-once", "one fallocate a file", 400, Calls::reserve_once),
    delayed("append-sync", "16 files in turn: 16 blocks and fsync", 160, Calls::append_sync),
    delayed("write-sync", "files of 1 to 2,048 blocks, fsync", 1_500, |calls| calls.synced(None)),
    delayed("write-later", "the same, with a sync for every 50 files", 1_500, |calls| calls.synced(Some(50))),
    plain("random", "300 blocks of 2,048, in any order", 100, Calls::random),
    shaped("age", "files come, grow and go at 85 % of the free space", 85, Shape::SMALLER, |calls| {
        calls.age(1, None)
    }),
    Workload {
        delays: true,
        ..shaped("age-delayed", "the same, delayed, synced often", 85, Shape::SMALLER, |calls| {
            calls.age(16, Some(16));
        })
    },
    plain("direct-append", "files of 25 to 512 blocks by O_DIRECT, four blocks a call", 200, Calls::direct),
    plain("rename-over", "files that take the place of others", 1_000, Calls::rename_over),
    plain("sparse", "every third run of a file, rising", 300, Calls::sparse),
    plain("punch-refill", "holes are made in files and filled again", 100, Calls::punch_refill),
    shaped("bigalloc", "files of 1 to 512 blocks in clusters of 16 blocks", 400, Shape::BIGALLOC, |calls| {
        calls.files(1, 512);
    }),
    shaped("blocks-1k", "files of 1 to 512 blocks of 1 KiB", 400, Shape::SMALL_BLOCKS, |calls| {
        calls.files(1, 512);
    }),
    shaped("flex-1", "files of 1 to 512 blocks without flex groups", 400, Shape::NO_FLEX, |calls| {
        calls.files(1, 512);
    }),
    shaped("stripe", "files of 1 to 512 blocks on stripes of 48 blocks", 400, Shape::STRIPED, |calls| {
        calls.files(1, 512);
    }),
    shaped(
        "nearly-full",
        // Linux keeps up to 4,096 blocks for itself.
        "files of 1 to 256 blocks in 75 % of short free runs",
        75,
        Shape::NARROW,
        |calls| {
            calls.fill(256);
        },
    ),
    plain("directories", "files of 1 to 64 blocks in directories at two levels", 2_000, Calls::directories),
];

/// Calls as they are put together.
struct Calls {
    numbers: Numbers,
    count: u64,
    block: u64,
    free: u64,
    list: Vec<Op>,
}

/// The directory of all files but those of `directories`; every volume has it.
const HOME: &str = "d";

fn path(file: u64) -> Box<str> {
    format!("{HOME}/f{file:06}").into()
}

fn slot(number: u64) -> Slot {
    Slot::try_from(number).unwrap_or(0)
}

impl Calls {
    fn between(&mut self, low: u32, high: u32) -> u64 {
        u64::from(self.numbers.between(low, high))
    }

    /// From 1 to `high`, every octave as likely as any other.
    fn octaves(&mut self, high: u32) -> u64 {
        u64::from(count(self.numbers.log_uniform(1.0, f64::from(high)).floor(), high))
    }

    fn create(&mut self, slot: Slot, path: Box<str>) {
        self.list.push(Op::Open { slot, path, create: true });
    }

    /// Blocks of a file, `step` a call.
    fn write(&mut self, slot: Slot, from: u64, blocks: u64, step: u64) {
        let mut at = from;
        while at < from + blocks {
            let now = step.min(from + blocks - at);
            self.list.push(Op::Write { slot, offset: at * self.block, len: now * self.block });
            at += now;
        }
    }

    fn close(&mut self, slot: Slot) {
        self.list.push(Op::Close(slot));
    }

    fn whole(&mut self, path: Box<str>, blocks: u64, step: u64) {
        self.create(0, path);
        self.write(0, 0, blocks, step);
        self.close(0);
    }

    fn files(&mut self, low: u32, high: u32) {
        for file in 0..self.count {
            let blocks = self.between(low, high);
            self.whole(path(file), blocks, 1);
        }
    }

    fn raised(&mut self) {
        for file in 0..self.count {
            let blocks = self.between(9, 16);
            self.create(0, path(file));
            self.list.push(Op::Truncate { slot: 0, len: 4_096 * self.block });
            self.write(0, 0, blocks, 1);
            self.list.push(Op::Truncate { slot: 0, len: blocks * self.block });
            self.close(0);
        }
    }

    /// Opens eight files at a time, does something with them, and closes them.
    fn by_eights(&mut self, each: fn(&mut Calls)) {
        for first in (0..self.count).step_by(8) {
            (0..8).for_each(|file| self.create(slot(file), path(first + file)));
            each(self);
            (0..8).for_each(|file| self.close(slot(file)));
        }
    }

    fn side_by_side(&mut self) {
        self.by_eights(|calls| {
            let blocks = calls.between(384, 512);
            (0..blocks).for_each(|at| (0..8).for_each(|file| calls.write(slot(file), at, 1, 1)));
        });
    }

    fn reserve_turns(&mut self) {
        self.by_eights(|calls| {
            let len = 16 * calls.block;
            for at in 0..calls.between(48, 64) {
                let reserve = |file| Op::Reserve { slot: slot(file), offset: at * len, len };
                calls.list.extend((0..8).map(reserve));
            }
        });
    }

    fn reserve_once(&mut self) {
        const BLOCKS: [u64; 9] = [4, 16, 64, 100, 256, 1_024, 3_000, 5_000, 9_000];
        for file in 0..self.count {
            let blocks = BLOCKS[self.numbers.index(BLOCKS.len())];
            self.create(0, path(file));
            self.list.push(Op::Reserve { slot: 0, offset: 0, len: blocks * self.block });
            self.close(0);
        }
    }

    fn append_sync(&mut self) {
        for first in (0..self.count).step_by(16) {
            (0..16).for_each(|file| self.create(slot(file), path(first + file)));
            let rounds = self.between(12, 16);
            for (at, file) in (0..rounds).flat_map(|at| (0..16).map(move |file| (at, file))) {
                self.write(slot(file), at * 16, 16, 16);
                self.list.push(Op::Sync { slot: slot(file), data_only: false });
            }
            (0..16).for_each(|file| self.close(slot(file)));
        }
    }

    /// Files that get their places by fsync, or by a sync after some of them were closed.
    fn synced(&mut self, after: Option<u64>) {
        for file in 0..self.count {
            let blocks = self.octaves(2_048);
            self.create(0, path(file));
            self.write(0, 0, blocks, 16);
            if after.is_none() {
                self.list.push(Op::Sync { slot: 0, data_only: false });
            }
            self.close(0);
            if after.is_some_and(|after| file % after == after - 1) {
                self.list.push(Op::SyncAll);
            }
        }
    }

    /// `count` of the first numbers below `bound`, each once, in any order.
    fn some_of(&mut self, count: usize, bound: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..bound).collect();
        for at in 0..count.min(all.len()) {
            let other = at + self.numbers.index(all.len() - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all
    }

    fn random(&mut self) {
        for file in 0..self.count {
            self.create(0, path(file));
            for at in self.some_of(300, 2_048) {
                self.write(0, at, 1, 1);
            }
            self.close(0);
        }
    }

    /// Files of 1 to 1,024 blocks come, and some grow; when the volume is as full as it is to be, one in twelve goes.
    /// Three times as much is written as fits. With `part` a sync follows whenever that part of the limit was written:
    /// Linux writes back by itself, beside the writer, once the delayed blocks are half as many as the free ones
    /// (`ext4_nonda_switch`), and where files lie then is a matter of the moment.
    fn age(&mut self, step: u64, part: Option<u64>) {
        let (limit, mut used, mut total, mut next) = (self.free * self.count / 100, 0, 0, 0);
        let mut waits = 0;
        let mut live: Vec<(u64, u64)> = Vec::new();
        while total < 3 * limit {
            while used < limit {
                let blocks = self.octaves(1_024);
                self.whole(path(next), blocks, step);
                live.push((next, blocks));
                let mut added = blocks;
                if self.numbers.chance(0.2) {
                    let at = self.numbers.index(live.len());
                    let more = self.octaves(64);
                    let (file, size) = live[at];
                    self.list.push(Op::Open { slot: 0, path: path(file), create: false });
                    self.write(0, size, more, step);
                    self.close(0);
                    live[at].1 += more;
                    added += more;
                }
                (used, total, next) = (used + added, total + added, next + 1);
                waits += added;
                if part.is_some_and(|part| waits > limit / part) {
                    self.list.push(Op::SyncAll);
                    waits = 0;
                }
            }
            for _ in 0..(live.len() / 12).max(1) {
                let at = self.numbers.index(live.len());
                let (file, size) = live.swap_remove(at);
                self.list.push(Op::Remove(path(file)));
                used -= size;
            }
            self.list.push(Op::SyncAll);
        }
    }

    fn direct(&mut self) {
        for file in 0..self.count {
            let pieces = self.between(6, 128);
            let len = 4 * self.block;
            self.create(0, path(file));
            let write = |at| Op::Direct { slot: 0, offset: at * len, len, write: true };
            self.list.extend((0..pieces).map(write));
            self.close(0);
        }
    }

    /// With a sync after each file: an inode that lost its name can be used again only after a commit here, in Linux at
    /// once, and its number decides the stream of the file that takes it.
    fn rename_over(&mut self) {
        for _ in 0..self.count {
            let blocks = self.octaves(256);
            let target = self.numbers.below((self.count / 5).max(1));
            self.whole(format!("{HOME}/new").into(), blocks, 1);
            self.list.push(Op::Rename(format!("{HOME}/new").into(), path(target)));
            self.list.push(Op::SyncAll);
        }
    }

    fn sparse(&mut self) {
        for file in 0..self.count {
            self.create(0, path(file));
            let mut at = self.octaves(64);
            for _ in 0..self.between(4, 40) {
                let run = self.octaves(32);
                self.write(0, at, run, 1);
                at += run + self.octaves(256);
            }
            self.close(0);
        }
    }

    fn punch_refill(&mut self) {
        for file in 0..self.count {
            let blocks = self.between(64, 512);
            self.whole(path(file), blocks, 1);
            self.list.push(Op::Open { slot: 0, path: path(file), create: false });
            let holes: Vec<u64> = self.some_of(6, blocks / 10);
            let hole = 5 * self.block;
            for at in &holes {
                self.list.push(Op::Punch { slot: 0, offset: at * 2 * hole, len: hole });
            }
            self.list.push(Op::SyncAll);
            for at in holes {
                self.write(0, at * 10, 5, 1);
            }
            self.close(0);
        }
    }

    fn fill(&mut self, most: u32) {
        let (mut used, mut file) = (0, 0);
        while used < self.free * self.count / 100 {
            let blocks = self.octaves(most);
            self.whole(path(file), blocks, 1);
            (used, file) = (used + blocks, file + 1);
        }
    }

    fn directories(&mut self) {
        let mut all: Vec<String> = Vec::new();
        for file in 0..self.count {
            if file % 20 == 0 {
                let above = match all.is_empty() || self.numbers.chance(0.4) {
                    true => String::new(),
                    false => format!("{}/", all[self.numbers.index(all.len())].clone()),
                };
                let name = format!("{above}n{:x}", self.numbers.below(1 << 40));
                self.list.push(Op::MakeDirectory(name.as_str().into()));
                all.push(name);
            }
            let blocks = self.octaves(64);
            let directory = all[self.numbers.index(all.len())].clone();
            self.whole(format!("{directory}/f{file:06}").into(), blocks, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_gives_calls_of_its_own_and_a_seed_the_same_ones_again() {
        for workload in WORKLOADS {
            let calls = |seed| workload.calls(seed, 64, 2_000);
            assert!(calls(1).len() > 64 && calls(1) == calls(1), "{}", workload.name);
            let is_fixed = ["small", "large"].contains(&workload.name);
            assert_eq!(calls(1) == calls(2), is_fixed, "{}", workload.name);
        }
    }
}
