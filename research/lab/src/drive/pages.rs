//! Pages of files that were written and have their place, but are not on the way to the drive yet: the
//! host's page cache, which writes files back one after the other, each in file order.
//!
//! This order is what makes scattered blocks slow to write: blocks of files that grew side by side
//! alternate on the device, and the elevator sees no more than its queue of them at once.

use std::collections::{BTreeMap, VecDeque};

/// Bytes that are written back of a file before the next has its turn: Linux's 1,024 pages.
const TURN: u64 = 4 << 20;

/// Where written bytes are to go: offset on the device and length, by place in the file.
type PagePositions = BTreeMap<u64, (u64, u64)>;

/// Written bytes by file.
pub(crate) struct Pages {
    files: BTreeMap<u64, PagePositions>,
    /// Files in the order of their turns, and what is left of the first one's.
    turns: VecDeque<u64>,
    left: u64,
    bytes: u64,
}

impl Default for Pages {
    fn default() -> Self {
        Pages { files: BTreeMap::new(), turns: VecDeque::new(), left: TURN, bytes: 0 }
    }
}

impl Pages {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the file that wait, and where on the device the last of them before `at` end.
    pub(crate) fn before(&self, file: u64, at: u64) -> (u64, Option<u64>) {
        let Some(places) = self.files.get(&file) else { return (0, None) };
        let last = places.range(..at).next_back().map(|(_, (offset, len))| offset + len);
        (places.values().map(|(_, len)| len).sum(), last)
    }

    /// Bytes of a file were written; again at the same place replaces what waited there.
    pub(crate) fn add(&mut self, file: u64, at: u64, offset: u64, len: u64) {
        let places = self.files.entry(file).or_insert_with(|| {
            self.turns.push_back(file);
            PagePositions::new()
        });
        let before = places.insert(at, (offset, len)).map_or(0, |(_, len)| len);
        self.bytes = self.bytes - before + len;
    }

    /// The file is gone: what waited need not be written.
    pub(crate) fn forget(&mut self, file: u64) {
        drop(self.take(file));
    }

    /// Takes what waits of a file, in file order.
    pub(crate) fn take(&mut self, file: u64) -> Vec<(u64, u64)> {
        let taken: Vec<_> = self.files.remove(&file).unwrap_or_default().into_values().collect();
        self.bytes -= taken.iter().map(|(_, len)| len).sum::<u64>();
        self.end_turn(file);
        taken
    }

    /// Takes the next bytes of the file whose turn it is.
    pub(crate) fn next(&mut self) -> Option<(u64, u64)> {
        let file = *self.turns.front()?;
        let places = self.files.get_mut(&file)?;
        let (_, place) = places.pop_first()?;
        self.bytes -= place.1;
        self.left = self.left.saturating_sub(place.1);
        if places.is_empty() {
            self.files.remove(&file);
            self.end_turn(file);
        } else if self.left == 0 {
            self.turns.rotate_left(1);
            self.left = TURN;
        }
        Some(place)
    }

    fn end_turn(&mut self, file: u64) {
        if self.turns.front() == Some(&file) {
            self.left = TURN;
        }
        self.turns.retain(|turn| *turn != file);
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
        let mut next = |count: usize| (0..count).filter_map(|_| pages.next()).collect::<Vec<_>>();
        assert_eq!(next(3), [(1000, 4096), (500, 4096), (1018, 4096)]);
        assert_eq!(next(1), [(0, 3 << 20)]);
        pages.add(9, 0, 3, 1);
        pages.add(9, 1, 4, 1);
        // A turn is over with the bytes that reach its length.
        let mut next = |count: usize| (0..count).filter_map(|_| pages.next()).collect::<Vec<_>>();
        assert_eq!(next(2), [(1, 3 << 20), (3, 1)]);
        pages.forget(9);
        assert_eq!(pages.next(), Some((2, 3 << 20)));
        assert_eq!((pages.bytes(), pages.next()), (0, None));
    }
}
