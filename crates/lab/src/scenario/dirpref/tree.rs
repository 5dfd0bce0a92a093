//! The ports tree: 6,596 directories and 13,868 files, as checked out of CVS in 2001.
//!
//! What is known of the real one: the two counts, 45 categories with about 24 ports each, `files`
//! and `pkg` directories in the ports, and a `CVS` directory with three files at every level. With
//! those the shape is:
//!
//! - `ports`, with a Makefile, and in it 45 categories, each with a Makefile;
//! - 1,084 ports (24 in each category, 25 in four), each with a Makefile, `files` with one file
//!   and `pkg` with one, in 676 of the ports with two;
//! - in each of these 3,298 directories `CVS` with Entries, Repository and Root.
//!
//! Directories: 2 * (1 + 45 + 3 * 1,084) = 6,596. Files: 3 * 3,298 + 46 + 2 * 1,084 + 1,084 + 676 =
//! 13,868. Names are in the order of a checkout: `CVS`, files, then
//! directories; an archive holds them in that order, depth first.

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File,
    Directory(Tree),
}

/// A directory, its entries in the order of creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) entries: Vec<Entry>,
}

const CATEGORIES: u32 = 45;
const PORTS: u32 = 1_084;
/// Ports whose `pkg` holds two files.
const LONG_PACKAGES: u32 = 676;

impl Tree {
    /// A directory under CVS with this many files of its own.
    fn checked_out(files: u32) -> Tree {
        let cvs = Tree { entries: vec![Entry::File; 3] };
        let mut entries = vec![Entry::Directory(cvs)];
        entries.extend((0..files).map(|_| Entry::File));
        Tree { entries }
    }

    fn with(mut self, directory: Tree) -> Tree {
        self.entries.push(Entry::Directory(directory));
        self
    }

    /// Directories, this one included, and files.
    pub(super) fn counts(&self) -> (u32, u32) {
        self.entries.iter().fold((1, 0), |(dirs, files), entry| match entry {
            Entry::File => (dirs, files + 1),
            Entry::Directory(tree) => {
                let (below, inside) = tree.counts();
                (dirs + below, files + inside)
            }
        })
    }
}

/// The tree; with `part` above 1 only one port in so many.
pub(super) fn ports(part: u32) -> Tree {
    let mut root = Tree::checked_out(1);
    for category in 0..CATEGORIES {
        let mut tree = Tree::checked_out(1);
        for port in (category..PORTS).step_by(45).filter(|port| (port / CATEGORIES).is_multiple_of(part)) {
            let long = (port * LONG_PACKAGES) % PORTS < LONG_PACKAGES;
            let package = Tree::checked_out(if long { 2 } else { 1 });
            tree = tree.with(Tree::checked_out(1).with(Tree::checked_out(1)).with(package));
        }
        root = root.with(tree);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_2001() {
        assert_eq!(ports(1).counts(), (6_596, 13_868));
    }
}
