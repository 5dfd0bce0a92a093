//! Directories that names lead to, symbolic links followed inside a base: an absolute target begins there, and `..` ends
//! there, as when sources lie over each other in a build.
//!
//! Owns the rules by which links are followed. Excludes what is made there (`import`).

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::EXECUTE;
use platfs::{Error, Metadata};

use super::{Halt, Held, Job};

/// Symbolic links followed for one path, as Linux limits them.
const LINKS_MAX: usize = 40;

/// A place below the base.
pub(super) struct Way<'j> {
    job: &'j Job<'j>,
    base: InodeNumber,
    /// Directories from the base, which is not among them, down to the place.
    directories: Vec<Held<'j>>,
    links: usize,
}

impl<'j> Way<'j> {
    /// The base itself.
    pub(super) fn new(job: &'j Job<'j>, base: InodeNumber) -> Self {
        Way { job, base, directories: Vec::new(), links: 0 }
    }

    /// A second one to where this one leads.
    ///
    /// # Errors
    /// No number of a directory on it means one any more.
    pub(super) fn again(&self, path: &[u8]) -> Result<Self, Halt> {
        let mut way = Way { links: self.links, ..Way::new(self.job, self.base) };
        self.directories.iter().try_for_each(|held| way.down(held.facts.inode, path))?;
        Ok(way)
    }

    /// Goes down into a directory that is known to lie in this one.
    ///
    /// # Errors
    /// The number means no directory any more.
    pub(super) fn down(&mut self, number: InodeNumber, path: &[u8]) -> Result<(), Halt> {
        self.directories.push(self.job.child(number, b"", path)?);
        Ok(())
    }

    /// The directory that it leads to.
    pub(super) fn here(&self) -> InodeNumber {
        self.directories.last().map_or(self.base, |held| held.facts.inode)
    }

    /// Goes on by names of directories, and of links to some.
    ///
    /// # Errors
    /// No right; another kind of file; a link that leads nowhere, or that others may have put in the way.
    pub(super) fn go(&mut self, names: &[&[u8]], path: &[u8]) -> Result<(), Halt> {
        let mut todo: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        while let Some(name) = todo.pop() {
            if name == b".." {
                self.directories.pop();
                continue;
            }
            let held = match self.job.child(self.here(), &name, path) {
                Err(Halt::At { error: Error::NotFound, .. }) if self.links > 0 => {
                    return Err(Halt::refused(path, "leads through a symbolic link to what is not there"));
                }
                found => found?,
            };
            match held.facts.file_type {
                FileType::Directory => {
                    self.job.allowed(path, &held.facts, EXECUTE)?;
                    self.directories.push(held);
                }
                FileType::Symlink => todo.extend(self.follow(&held.facts, path)?.into_iter().rev()),
                _ => return Err(Halt::at(path)(Error::NotDirectory)),
            }
        }
        Ok(())
    }

    /// The names that a link in this directory stands for.
    fn follow(&mut self, link: &Metadata, path: &[u8]) -> Result<Vec<Vec<u8>>, Halt> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Halt::refused(path, "leads through more than 40 symbolic links"));
        }
        let here = self.job.volume.metadata(self.here()).map_err(Halt::at(path))?;
        if !self.is_trusted(&here, link) {
            let what = "leads through a symbolic link of another user in a directory that all may write";
            return Err(Halt::refused(path, what));
        }
        let target = self.job.volume.read_link(link.inode).map_err(Halt::at(path))?;
        if target.starts_with(b"/") {
            self.directories.clear();
        }
        let names = target.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Linux has this rule with `fs.protected_symlinks`: where all may put links, only one's own and those of the
    /// directory's owner are followed.
    fn is_trusted(&self, directory: &Metadata, link: &Metadata) -> bool {
        const STICKY_FOR_ALL: u16 = 0o1002;
        let is_shared = directory.permissions & STICKY_FOR_ALL == STICKY_FOR_ALL;
        !is_shared || link.uid == self.job.who().uid || link.uid == directory.uid
    }
}
