//! Walking a tree of directories: each once, in order, however an image ties them together.

use std::collections::HashSet;

use ondisk::corrupt::Place;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use crate::dir::DirEntry;
use crate::error::{Error, Result};
use crate::volume::{VersionedInode, Volume};

/// Most names held at once. Listing in order needs all names of a directory in memory.
const NAMES_MAX: usize = 1 << 22;
/// Longest path, in bytes. Deeper trees than this are made by mistake or malice; their paths would take
/// memory by the square of the depth.
const PATH_MAX: usize = 65_535;

struct Level {
    directory: InodeNumber,
    names: Vec<DirEntry>,
    /// The next to be visited.
    next: usize,
    /// Length of the path of the directory itself.
    path_len: usize,
}

/// A walk through a tree, directories sorted by name.
///
/// The caller steps: [`Walk::enter`] goes down into a directory and reads its names,
/// [`Walk::next_entry`] hands them out, [`Walk::leave`] goes up. Memory and work are bounded by what a
/// sound volume of this size can hold: a directory that was entered before, or more directory blocks
/// than the volume has blocks, are corruption.
///
/// ```
/// # use platfs::{InodeNumber, Result, Volume, Walk};
/// # fn count(volume: &Volume) -> Result<u64> {
/// let mut walk = Walk::new(volume);
/// let mut files = 0;
/// walk.enter(b"", InodeNumber::ROOT)?;
/// while walk.depth() > 0 {
///     let Some(entry) = walk.next_entry() else { walk.leave(); continue };
///     let entry = entry.clone();
///     if walk.is_directory(&entry)? {
///         walk.enter(&entry.name, entry.inode)?;
///     } else {
///         files += 1;
///     }
/// }
/// # Ok(files)
/// # }
/// ```
pub struct Walk<'v> {
    volume: &'v Volume,
    levels: Vec<Level>,
    path: Vec<u8>,
    seen: HashSet<InodeNumber>,
    blocks_left: u64,
    names: usize,
}

impl<'v> Walk<'v> {
    /// A walk that is nowhere yet.
    #[must_use]
    pub fn new(volume: &'v Volume) -> Self {
        Walk {
            volume,
            levels: Vec::new(),
            path: Vec::new(),
            seen: HashSet::new(),
            blocks_left: volume.format.geometry.blocks,
            names: 0,
        }
    }

    /// Directories entered and not left.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The path of the directory the walk is in: the names given to [`Walk::enter`], with slashes
    /// between.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Goes down into a directory and reads its names. If they can't all be read, what kept them is
    /// returned, and the walk goes through those that could.
    ///
    /// # Errors
    /// Not a directory, or one that can't be entered; the walk then stays where it is.
    pub fn enter(&mut self, name: &[u8], directory: InodeNumber) -> Result<Option<Error>> {
        let broken = |problem: &str| Err(Error::corrupt(Place::Directory(directory), problem));
        let facts = self.volume.metadata(directory)?;
        if facts.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if self.path.len() + 1 + name.len() > PATH_MAX {
            return Err(Error::Unsupported(format!("a path of more than {PATH_MAX} bytes")));
        }
        if !self.seen.insert(directory) {
            return broken("found under a second name: a cycle, or two parents");
        }
        if self.blocks_left == 0 {
            return broken("the directories before have more blocks than the volume");
        }
        let (mut names, complaint) = self.read(directory)?;
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.names += names.len();
        self.levels.push(Level { directory, names, next: 0, path_len: self.path.len() });
        if !self.path.is_empty() && !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        Ok(complaint)
    }

    fn read(&mut self, directory: InodeNumber) -> Result<(Vec<DirEntry>, Option<Error>)> {
        let (names, complaint, blocks) =
            VersionedInode::read(self.volume, directory)?.seqlock_read(|view, node| {
                let mut listing = view.entries(node.clone())?;
                let (mut names, mut complaint) = (Vec::new(), None);
                for entry in &mut listing {
                    match entry {
                        Ok(entry) if self.names + names.len() < NAMES_MAX => names.push(entry),
                        Ok(_) => {
                            let text = format!("more than {NAMES_MAX} names to be sorted at once");
                            complaint = Some(Error::Unsupported(text));
                            break;
                        }
                        Err(error) => complaint = Some(error),
                    }
                }
                Ok((names, complaint, listing.blocks_read()))
            })?;
        // The last directory may go over, by no more than the volume has.
        self.blocks_left = self.blocks_left.saturating_sub(blocks);
        Ok((names, complaint))
    }

    /// Reads the names of the directory the walk is in once more, for a caller that has removed those it had: there may
    /// be more than could be held at once.
    ///
    /// # Errors
    /// As [`Walk::enter`].
    pub fn read_again(&mut self) -> Result<Option<Error>> {
        let Some(directory) = self.directory() else { return Ok(None) };
        let blocks_left = self.blocks_left;
        self.names -= self.entries().len();
        if let Some(level) = self.levels.last_mut() {
            (level.names, level.next) = (Vec::new(), 0);
        }
        let (mut names, complaint) = self.read(directory)?;
        // These blocks were counted before.
        self.blocks_left = blocks_left;
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.names += names.len();
        if let Some(level) = self.levels.last_mut() {
            level.names = names;
        }
        Ok(complaint)
    }

    /// All names of the directory the walk is in, sorted.
    #[must_use]
    pub fn entries(&self) -> &[DirEntry] {
        self.levels.last().map(|level| &level.names[..]).unwrap_or_default()
    }

    /// The next name of the directory the walk is in, once each.
    pub fn next_entry(&mut self) -> Option<&DirEntry> {
        let level = self.levels.last_mut()?;
        level.next += 1;
        level.names.get(level.next - 1)
    }

    /// The directory the walk is in.
    #[must_use]
    pub fn directory(&self) -> Option<InodeNumber> {
        self.levels.last().map(|level| level.directory)
    }

    /// Goes up. Does nothing when the walk is nowhere.
    pub fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.names -= level.names.len();
            self.path.truncate(level.path_len);
        }
    }

    /// True if an entry names a directory, by the entry's own word where volumes store types.
    ///
    /// # Errors
    /// An inode that can't be read.
    pub fn is_directory(&self, entry: &DirEntry) -> Result<bool> {
        Ok(self.volume.entry_type(entry)? == FileType::Directory)
    }
}

impl Volume {
    /// Type of an entry's inode: from the entry, or from the inode where volumes do not store types in
    /// entries.
    ///
    /// # Errors
    /// An inode that can't be read.
    pub fn entry_type(&self, entry: &DirEntry) -> Result<FileType> {
        match entry.file_type {
            Some(file_type) => Ok(file_type),
            None => Ok(self.metadata(entry.inode)?.file_type),
        }
    }
}
