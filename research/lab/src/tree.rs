//! The ports tree: 6,596 directories and 13,868 files, as checked out of CVS in 2001.
//!
//! Known of the real one are the two counts, 45 categories with about 24 ports each, `files`
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
//! directories; an archive holds them in that order, depth first. Lengths are as such files have them: all
//! below 1 KiB.

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Name and length.
    File(&'static str, u64),
    Directory(Tree),
}

/// A directory, its entries in the order of creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
}

const CATEGORIES: u32 = 45;
const PORTS: u32 = 1_084;
/// Ports whose `pkg` holds two files.
const LONG_PACKAGES: u32 = 676;
const MAKEFILE: (&str, u64) = ("Makefile", 780);
const PACKAGE: [(&str, u64); 2] = [("DESCR", 420), ("PLIST", 910)];

impl Tree {
    /// A directory under CVS with files of its own.
    fn checked_out(name: impl Into<String>, files: &[(&'static str, u64)]) -> Tree {
        let file = |&(name, len): &(&'static str, u64)| Entry::File(name, len);
        let own = [("Entries", 190), ("Repository", 38), ("Root", 44)];
        let cvs = Tree { name: "CVS".into(), entries: own.iter().map(file).collect() };
        let entries = std::iter::once(Entry::Directory(cvs)).chain(files.iter().map(file)).collect();
        Tree { name: name.into(), entries }
    }

    fn with(mut self, directory: Tree) -> Tree {
        self.entries.push(Entry::Directory(directory));
        self
    }

    /// Directories, this one included, and files.
    #[cfg(test)]
    fn counts(&self) -> (u32, u32) {
        self.entries.iter().fold((1, 0), |(dirs, files), entry| match entry {
            Entry::File(..) => (dirs, files + 1),
            Entry::Directory(tree) => {
                let (below, inside) = tree.counts();
                (dirs + below, files + inside)
            }
        })
    }
}

/// The tree; with `part` above 1 only every n-th port.
pub(crate) fn ports(part: u32) -> Tree {
    let mut root = Tree::checked_out("ports", &[MAKEFILE]);
    for category in 0..CATEGORIES {
        let mut tree = Tree::checked_out(format!("category{category:02}"), &[MAKEFILE]);
        for port in (category..PORTS).step_by(45).filter(|port| (port / CATEGORIES).is_multiple_of(part)) {
            let long = (port * LONG_PACKAGES) % PORTS < LONG_PACKAGES;
            let package = Tree::checked_out("pkg", if long { &PACKAGE } else { &PACKAGE[..1] });
            let files = Tree::checked_out("files", &[("md5", 62)]);
            tree =
                tree.with(Tree::checked_out(format!("port{port:04}"), &[MAKEFILE]).with(files).with(package));
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
