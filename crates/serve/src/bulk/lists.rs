//! Default lists of directories that an archive makes. They are set late: a file of the archive has its own list, or none,
//! and the archive may leave a directory and enter it again.
//!
//! Owns: when a list is due, and the bound of those that wait. Excludes setting them.

use std::collections::HashSet;

use ondisk::units::InodeNumber;

use super::Xattr;

/// Most bytes of lists that wait: those of some hundred thousand directories with usual ones.
pub(super) const MOST: usize = 32 << 20;
/// Bytes of a list in memory beside its path and value.
const EACH: usize = 128;

/// The default list of a directory.
pub(super) struct List {
    /// The directory, by inode and generation.
    pub(super) of: (InodeNumber, u32),
    pub(super) path: Vec<u8>,
    pub(super) list: Xattr,
}

impl List {
    fn bytes(&self) -> usize {
        EACH + self.path.len() + self.list.1.len()
    }
}

/// Lists that wait.
pub(super) struct Lists {
    all: Vec<List>,
    bytes: usize,
    most: usize,
}

impl Lists {
    pub(super) fn new(most: usize) -> Self {
        Lists { all: Vec::new(), bytes: 0, most }
    }

    /// Adds a list, and returns those that are due. With too many that is every list of a directory that the archive has
    /// left, where it usually enters none again; if those of `open` directories alone take most of the room, all are.
    pub(super) fn add(&mut self, list: List, open: impl Iterator<Item = InodeNumber>) -> Vec<List> {
        self.bytes += list.bytes();
        self.all.push(list);
        if self.bytes <= self.most {
            return Vec::new();
        }
        let open: HashSet<InodeNumber> = open.collect();
        let (kept, due): (Vec<List>, Vec<List>) =
            self.rest().into_iter().partition(|list| open.contains(&list.of.0));
        let bytes = kept.iter().map(List::bytes).sum();
        if bytes > self.most / 2 {
            return due.into_iter().chain(kept).collect();
        }
        (self.all, self.bytes) = (kept, bytes);
        due
    }

    /// Returns all lists that wait: the archive has ended.
    pub(super) fn rest(&mut self) -> Vec<List> {
        self.bytes = 0;
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_wait_are_bounded_and_those_of_open_directories_wait_longest() {
        let list = |of| List {
            of: (InodeNumber::constant(of), 0),
            path: vec![b'p'; 72],
            list: (Vec::new(), vec![0; 200]),
        };
        let numbers = |due: &[List]| due.iter().map(|list| list.of.0.get()).collect::<Vec<_>>();
        let mut lists = Lists::new(4000);
        let open = || [11, 19].into_iter().map(InodeNumber::constant);
        for of in 11..21 {
            assert!(lists.add(list(of), open()).is_empty());
        }
        assert_eq!(numbers(&lists.add(list(21), open())), [12, 13, 14, 15, 16, 17, 18, 20, 21]);
        assert_eq!((lists.bytes, numbers(&lists.all)), (800, vec![11, 19]));
        // Nearly all lists are of open directories: if only the others went, there would soon be no room again.
        for of in 31..39 {
            assert!(lists.add(list(of), open()).is_empty());
        }
        assert_eq!(lists.add(list(39), (11..40).map(InodeNumber::constant)).len(), 11);
        assert_eq!((lists.bytes, lists.rest().len()), (0, 0));
        lists.add(list(11), open());
        assert_eq!(numbers(&lists.rest()), [11]);
    }
}
