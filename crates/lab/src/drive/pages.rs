//! Pages of files that were written and have their place, but are not on the way to the drive yet: the
//! host's page cache, which writes files back one after the other, each in file order.
//!
//! This order is what makes scattered blocks slow to write: blocks of files that grew side by side
//! alternate on the device, and the elevator sees no more than its queue of them at once.

use std::collections::{BTreeMap, VecDeque};

/// Bytes that are written back of a file before the next has its turn: Linux's 1,024 pages.
const TURN: u64 = 4 << 20;

/// Where written bytes are to go: offset on the device and length, by place in the file.
type Places = BTreeMap<u64, (u64, u64)>;

/// Written bytes by file.
#[derive(Default)]
pub(crate) struct Pages {
    files: BTreeMap<u64, Places>,
    /// Files in the order of their turns.
    turns: VecDeque<u64>,
    bytes: u64,
}

impl Pages {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a file were written; again at the same place replaces what waited there.
    pub(crate) fn add(&mut self, file: u64, at: u64, offset: u64, len: u64) {
        let places = self.files.entry(file).or_insert_with(|| {
            self.turns.push_back(file);
            Places::new()
        });
        let before = places.insert(at, (offset, len)).map_or(0, |(_, len)| len);
        self.bytes = self.bytes - before + len;
    }

    /// The file is gone: what waited need not be written.
    pub(crate) fn forget(&mut self, file: u64) {
        self.take(file, u64::MAX);
    }

    /// Takes what waits of a file, in file order, up to so many bytes.
    pub(crate) fn take(&mut self, file: u64, most: u64) -> Vec<(u64, u64)> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let Some(places) = self.files.get_mut(&file) else { return taken };
        while bytes < most
            && let Some((_, (offset, len))) = places.pop_first()
        {
            bytes += len;
            taken.push((offset, len));
        }
        if places.is_empty() {
            self.files.remove(&file);
            self.turns.retain(|turn| *turn != file);
        }
        self.bytes -= bytes;
        taken
    }

    /// Takes a part of the file whose turn it is.
    pub(crate) fn take_next(&mut self) -> Vec<(u64, u64)> {
        let Some(file) = self.turns.front().copied() else { return Vec::new() };
        let taken = self.take(file, TURN);
        if self.turns.front() == Some(&file) {
            self.turns.rotate_left(1);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_turns_and_each_goes_out_in_file_order() {
        let mut pages = Pages::default();
        for at in [2u64, 0, 1] {
            pages.add(7, at * 4096, 1000 + at * 9, 4096);
            pages.add(8, at * (3 << 20), at, 3 << 20);
        }
        pages.add(7, 4096, 500, 4096);
        assert_eq!(pages.bytes(), 3 * 4096 + (9 << 20));
        assert_eq!(pages.take_next(), [(1000, 4096), (500, 4096), (1018, 4096)]);
        assert_eq!(pages.take_next(), [(0, 3 << 20), (1, 3 << 20)]);
        pages.add(9, 0, 3, 1);
        assert_eq!(pages.take_next(), [(2, 3 << 20)]);
        pages.forget(9);
        assert_eq!((pages.bytes(), pages.take_next()), (0, Vec::new()));
    }
}
