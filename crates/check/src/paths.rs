//! The paths of inodes, found after a check, for messages to people.

use std::collections::{HashMap, HashSet};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::Outcome;
use super::directories::edit;

/// Directories above one another that a path is followed through; the longest path that a system call
/// takes has half as many.
const DEPTH_MAX: usize = 4096;

/// An inode's directory and its name there.
type Named = HashMap<InodeNumber, (InodeNumber, Vec<u8>)>;

impl Outcome {
    /// A path from the root directory to each inode, as the volume is after the repairs; `None` for one
    /// that has no name or does not exist. Of several names one is taken. Costs a look at the
    /// directories on the way for directories, and at every directory once if files are among the inodes.
    #[must_use]
    pub fn paths(&self, inodes: &[InodeNumber]) -> Vec<Option<Vec<u8>>> {
        let wanted: HashSet<_> = inodes.iter().copied().collect();
        let mut named = self.files(&wanted);
        let above: HashSet<_> =
            wanted.iter().copied().chain(named.values().map(|(parent, _)| *parent)).collect();
        self.directories(above, &mut named);
        inodes.iter().map(|inode| path(*inode, &named)).collect()
    }

    /// Names of those that are no directories.
    fn files(&self, wanted: &HashSet<InodeNumber>) -> Named {
        let mut named = Named::new();
        // Also what has no type: names may still lead to what is damaged.
        let is_file = |inode: &InodeNumber| self.facts.file_type(*inode) != Some(FileType::Directory);
        let files: HashSet<_> = wanted.iter().filter(|inode| is_file(inode)).collect();
        for directory in &self.facts.directories {
            if named.len() == files.len() {
                break;
            }
            edit::each_name(&self.subject, directory.inode, |name, inode| {
                if files.contains(&inode) {
                    named.entry(inode).or_insert_with(|| (directory.inode, name.to_vec()));
                }
            });
        }
        named
    }

    /// Names of directories and of all above them.
    fn directories(&self, wanted: HashSet<InodeNumber>, named: &mut Named) {
        let mut children: HashMap<InodeNumber, HashSet<InodeNumber>> = HashMap::new();
        for start in wanted {
            let mut at = start;
            // Ends at the root, and in a circle at what is known already.
            while let Some(row) = self.facts.directory(at).and_then(|row| self.facts.directories.get(row)) {
                match row.parent.filter(|parent| *parent != at) {
                    Some(parent) if children.entry(parent).or_default().insert(at) => at = parent,
                    _ => break,
                }
            }
        }
        for (parent, children) in children {
            edit::each_name(&self.subject, parent, |name, inode| {
                if children.contains(&inode) {
                    named.insert(inode, (parent, name.to_vec()));
                }
            });
        }
    }
}

fn path(inode: InodeNumber, named: &Named) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = inode;
    while at != InodeNumber::ROOT {
        let (parent, name) = named.get(&at)?;
        if names.len() == DEPTH_MAX {
            return None;
        }
        names.push(name);
        at = *parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(if path.is_empty() { b"/".to_vec() } else { path })
}
