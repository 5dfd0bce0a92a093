//! What inodes are called while a volume is open, and what they are called on disk.
//!
//! An inode that gets another number while the volume is in use keeps the one by which programs, the kernel and everything
//! in memory know it. Only what is read from the disk and written to it has the other: records, names, bitmaps, checksums.
//! The two numbers are exchanged, so that each number of either kind stands for exactly one of the other.
//!
//! Owns: the exchanged numbers, and how a reader without a lock notices an exchange. Excludes: the exchange on disk (`ops`).

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use ondisk::units::InodeNumber;

use crate::hashing::NumberMap;
use crate::locks;

/// The numbers of a volume's inodes.
#[derive(Default, Debug)]
pub(crate) struct Numbers {
    /// Twice the number of exchanges; odd while one is being published.
    turn: AtomicU64,
    exchanged: RwLock<Exchanged>,
}

#[derive(Default, Debug)]
struct Exchanged {
    on_disk: NumberMap<InodeNumber, InodeNumber>,
    known_as: NumberMap<InodeNumber, InodeNumber>,
}

fn of(map: &NumberMap<InodeNumber, InodeNumber>, number: InodeNumber) -> InodeNumber {
    map.get(&number).copied().unwrap_or(number)
}

fn put(map: &mut NumberMap<InodeNumber, InodeNumber>, from: InodeNumber, to: InodeNumber) {
    if from == to {
        map.remove(&from);
    } else {
        map.insert(from, to);
    }
}

impl Numbers {
    /// What an inode is called on disk.
    pub(crate) fn on_disk(&self, number: InodeNumber) -> InodeNumber {
        if self.turn.load(Ordering::Acquire) == 0 {
            return number;
        }
        of(&locks::read(&self.exchanged).on_disk, number)
    }

    /// What the inode of a number on disk is called.
    pub(crate) fn known_as(&self, number: InodeNumber) -> InodeNumber {
        if self.turn.load(Ordering::Acquire) == 0 {
            return number;
        }
        of(&locks::read(&self.exchanged).known_as, number)
    }

    /// Has an inode stand behind another number on disk, whose inode stands behind its number from then on. `publish` brings
    /// what changes in blocks.
    pub(crate) fn exchange(&self, number: InodeNumber, to: InodeNumber, publish: impl FnOnce()) {
        let mut exchanged = locks::write(&self.exchanged);
        self.turn.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        publish();
        let (was, other) = (of(&exchanged.on_disk, number), of(&exchanged.known_as, to));
        put(&mut exchanged.on_disk, number, to);
        put(&mut exchanged.known_as, to, number);
        put(&mut exchanged.on_disk, other, was);
        put(&mut exchanged.known_as, was, other);
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// What `read` finds between two exchanges; it may be called several times.
    pub(crate) fn between<T>(&self, mut read: impl FnMut() -> T) -> T {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn % 2 == 1 {
                std::thread::yield_now();
                continue;
            }
            let found = read();
            fence(Ordering::SeqCst);
            if self.turn.load(Ordering::Acquire) == turn {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u32) -> InodeNumber {
        InodeNumber::new(number).unwrap()
    }

    /// Whatever is exchanged, each number of one kind stands for one of the other.
    #[test]
    fn numbers_stay_a_permutation() {
        let numbers = Numbers::default();
        assert_eq!(numbers.on_disk(number(7)), number(7));
        for (one, to) in [(90, 12), (91, 13), (90, 14), (12, 15), (14, 90), (91, 91), (90, 90), (3, 12)] {
            numbers.exchange(number(one), number(to), || {});
            assert_eq!(numbers.on_disk(number(one)), number(to));
            let mut seen: Vec<_> = (1..100).map(|at| numbers.on_disk(number(at))).collect();
            assert!((1..100).all(|at| numbers.known_as(numbers.on_disk(number(at))) == number(at)));
            seen.sort_unstable();
            assert_eq!(seen, (1..100).map(number).collect::<Vec<_>>());
        }
    }
}
