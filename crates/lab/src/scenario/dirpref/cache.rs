//! The buffer cache of a machine of 2000 and the four ways of writing metadata.
//!
//! The cache holds 32 MiB (a quarter of a machine of 128 MB), contents and metadata alike, least
//! recently used out first. What is written later gathers until it is 8 MiB (a quarter of the
//! cache, the share FreeBSD 4 lets be dirty) or 30 seconds have passed; then all of it goes out.
//!
//! - normal: inodes and directories at once, in the order of the program; contents and group maps
//!   later, in one sweep.
//! - sync: contents at once, too.
//! - async: everything later, in one sweep.
//! - softdep: everything later, in three sweeps because each may only go out after the one before:
//!   when creating contents, group maps and the first blocks of new directories, then inodes, then
//!   directories; when removing directories, then inodes, then group maps.
//!
//! Group maps are written later in every mode, as in FFS, where a crash is repaired by fsck. The
//! work of the processor and reading the archive are left out.

use super::disk::Disk;
use std::collections::{BTreeMap, BTreeSet};

/// Kibibytes.
const CACHE: u64 = 32_768;
const DIRTY: u64 = CACHE / 4;
const AGE_MS: f64 = 30_000.0;

/// When metadata are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Normal,
    Async,
    Sync,
    Softdep,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Contents,
    Map,
    Inode,
    Directory,
}

impl Role {
    /// Kibibytes of one transfer: a fragment or a block of FFS.
    pub(super) fn len(self) -> u64 {
        match self {
            Role::Contents | Role::Directory => 1,
            Role::Map | Role::Inode => 8,
        }
    }
}

/// Whether the workload creates or removes, which decides the order of softdep's sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Creating,
    Removing,
}

/// The cache over the disk.
pub(super) struct Cache {
    pub(super) disk: Disk,
    pub(super) misses: u64,
    mode: Mode,
    phase: Phase,
    /// When each block was used last, and its length.
    stamps: BTreeMap<u64, (u64, u64)>,
    order: BTreeMap<u64, u64>,
    held: u64,
    clock: u64,
    dirty: BTreeMap<u64, Role>,
    waiting: u64,
    /// Directories whose first block is not on disk.
    born: BTreeSet<u64>,
    flushed_at: f64,
}

impl Cache {
    /// An empty cache.
    pub(super) fn new(mode: Mode) -> Cache {
        Cache {
            disk: Disk::default(),
            misses: 0,
            mode,
            phase: Phase::Creating,
            stamps: BTreeMap::new(),
            order: BTreeMap::new(),
            held: 0,
            clock: 0,
            dirty: BTreeMap::new(),
            waiting: 0,
            born: BTreeSet::new(),
            flushed_at: 0.0,
        }
    }

    /// Writes what is gathered and counts from zero for another workload. What is cached stays.
    pub(super) fn begin(&mut self, phase: Phase) {
        self.flush();
        self.phase = phase;
        self.disk = Disk::default();
        self.misses = 0;
        self.flushed_at = 0.0;
    }

    /// Has a block in the cache.
    pub(super) fn read(&mut self, block: u64, role: Role) {
        if !self.touch(block, role.len()) {
            self.misses += 1;
            self.disk.read(block, role.len());
        }
    }

    /// A directory's first block, which need not be read.
    pub(super) fn new_directory(&mut self, block: u64) {
        self.touch(block, Role::Directory.len());
        if self.mode == Mode::Softdep {
            self.born.insert(block);
        }
        self.write(block, Role::Directory);
    }

    /// A block of contents, which need not be read.
    pub(super) fn new_contents(&mut self, block: u64) {
        self.touch(block, Role::Contents.len());
        self.write(block, Role::Contents);
    }

    /// Reads a block and changes it, where order matters: at once if the mode says so.
    pub(super) fn change(&mut self, block: u64, role: Role) {
        self.read(block, role);
        self.write(block, role);
    }

    /// Reads a block and changes it where no mode minds when it is written.
    pub(super) fn change_later(&mut self, block: u64, role: Role) {
        self.read(block, role);
        self.gather(block, role);
    }

    fn write(&mut self, block: u64, role: Role) {
        let at_once = match self.mode {
            Mode::Normal => matches!(role, Role::Inode | Role::Directory),
            Mode::Sync => role != Role::Map,
            Mode::Async | Mode::Softdep => false,
        };
        if at_once {
            self.disk.write(block, role.len());
            self.waiting -= self.dirty.remove(&block).map_or(0, Role::len);
        } else {
            self.gather(block, role);
        }
    }

    fn gather(&mut self, block: u64, role: Role) {
        if self.dirty.insert(block, role).is_none() {
            self.waiting += role.len();
        }
        if self.waiting >= DIRTY || self.disk.milliseconds - self.flushed_at >= AGE_MS {
            self.flush();
        }
    }

    /// Writes all that is gathered.
    pub(super) fn flush(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let born = std::mem::take(&mut self.born);
        self.waiting = 0;
        let of = |roles: &[Role]| -> BTreeMap<u64, u64> {
            let chosen = dirty.iter().filter(|(_, role)| roles.contains(role));
            chosen.map(|(block, role)| (*block, role.len())).collect()
        };
        let (inodes, directories) = (of(&[Role::Inode]), of(&[Role::Directory]));
        match (self.mode, self.phase) {
            (Mode::Softdep, Phase::Creating) => {
                let mut first = of(&[Role::Contents, Role::Map]);
                first.extend(born.iter().map(|block| (*block, Role::Directory.len())));
                self.disk.sweep(&first);
                self.disk.sweep(&inodes);
                self.disk.sweep(&directories);
            }
            (Mode::Softdep, Phase::Removing) => {
                self.disk.sweep(&directories);
                self.disk.sweep(&inodes);
                self.disk.sweep(&of(&[Role::Contents, Role::Map]));
            }
            _ => self.disk.sweep(&of(&[Role::Contents, Role::Map, Role::Inode, Role::Directory])),
        }
        self.flushed_at = self.disk.milliseconds;
    }

    /// Marks a block as used just now; whether it was there.
    fn touch(&mut self, block: u64, len: u64) -> bool {
        self.clock += 1;
        let before = self.stamps.insert(block, (self.clock, len));
        match before {
            Some((stamp, _)) => {
                self.order.remove(&stamp);
            }
            None => self.held += len,
        }
        self.order.insert(self.clock, block);
        while self.held > CACHE
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.held -= self.stamps.remove(&oldest).map_or(0, |(_, len)| len);
            if self.dirty.contains_key(&oldest) {
                self.flush();
            }
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_differ_in_what_is_written_at_once() {
        let requests = |mode| {
            let mut cache = Cache::new(mode);
            cache.new_contents(1);
            cache.new_directory(2);
            cache.change_later(3, Role::Map);
            cache.disk.requests
        };
        // The map is read in each.
        assert_eq!([Mode::Normal, Mode::Async, Mode::Sync, Mode::Softdep].map(requests), [2, 1, 3, 1]);
    }

    #[test]
    fn the_block_used_longest_ago_leaves_and_is_written_first() {
        let mut cache = Cache::new(Mode::Async);
        cache.change(0, Role::Inode);
        for block in 1..=4_096 {
            cache.read(block * 8, Role::Inode);
        }
        assert_eq!((cache.misses, cache.disk.requests), (4_097, 4_098));
        cache.read(0, Role::Inode);
        assert_eq!(cache.misses, 4_098);
    }

    #[test]
    fn soft_updates_write_a_new_directory_twice() {
        let mut cache = Cache::new(Mode::Softdep);
        cache.new_directory(7);
        cache.flush();
        assert_eq!(cache.disk.requests, 2);
    }
}
