//! Logical numbers of inodes, in use while a volume is open, and physical ones, used on disk.
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
    physical: NumberMap<InodeNumber, InodeNumber>,
    logical: NumberMap<InodeNumber, InodeNumber>,
}

fn exchanged_number(map: &NumberMap<InodeNumber, InodeNumber>, number: InodeNumber) -> InodeNumber {
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
    /// Returns the on-disk number of an inode.
    pub(crate) fn physical_number(&self, number: InodeNumber) -> InodeNumber {
        if self.turn.load(Ordering::Acquire) == 0 {
            return number;
        }
        exchanged_number(&locks::read(&self.exchanged).physical, number)
    }

    /// Returns the in-memory number of the inode with this number on disk.
    pub(crate) fn logical_number(&self, number: InodeNumber) -> InodeNumber {
        if self.turn.load(Ordering::Acquire) == 0 {
            return number;
        }
        exchanged_number(&locks::read(&self.exchanged).logical, number)
    }

    /// Has an inode stand behind another number on disk, whose inode stands behind its number from then on. `publish` brings
    /// what changes in blocks.
    pub(crate) fn exchange(&self, number: InodeNumber, to: InodeNumber, publish: impl FnOnce()) {
        let mut exchanged = locks::write(&self.exchanged);
        self.turn.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        publish();
        let (was, other) =
            (exchanged_number(&exchanged.physical, number), exchanged_number(&exchanged.logical, to));
        put(&mut exchanged.physical, number, to);
        put(&mut exchanged.logical, to, number);
        put(&mut exchanged.physical, other, was);
        put(&mut exchanged.logical, was, other);
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// Runs `read` until no exchange happened meanwhile; it may be called several times.
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
        assert_eq!(numbers.physical_number(number(7)), number(7));
        for (one, to) in [(90, 12), (91, 13), (90, 14), (12, 15), (14, 90), (91, 91), (90, 90), (3, 12)] {
            numbers.exchange(number(one), number(to), || {});
            assert_eq!(numbers.physical_number(number(one)), number(to));
            let mut seen: Vec<_> = (1..100).map(|at| numbers.physical_number(number(at))).collect();
            assert!(
                (1..100).all(|at| numbers.logical_number(numbers.physical_number(number(at))) == number(at))
            );
            seen.sort_unstable();
            assert_eq!(seen, (1..100).map(number).collect::<Vec<_>>());
        }
    }
}
