//! Listing directories: one of them, or a whole tree.

use std::sync::Arc;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::dir::{Dir, regular};
use super::file::File;
use super::handle::{Node, Shared};
use crate::dir::DirEntry;
use crate::error::{Error, Result};
use crate::ops::{Metadata, Walk};

/// A name found in a directory.
#[derive(Clone)]
pub struct Entry {
    shared: Arc<Shared>,
    entry: DirEntry,
    /// The path from where the listing began to the directory of the name, with a slash at its end; empty there.
    above: Vec<u8>,
}

impl Entry {
    /// The name, any bytes but `/` and NUL (on broken volumes these too).
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"")?;
    /// let mut names = Vec::new();
    /// for entry in image.read_dir("/")? {
    ///     names.push(entry?.name().to_vec());
    /// }
    /// assert_eq!(names, [&b"lost+found"[..], b"a"]);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.entry.name
    }

    /// The path from the directory that was listed or walked through.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/a/b/c")?;
    /// let last = image.walk("/a")?.last().unwrap()?;
    /// assert_eq!(last.path(), b"b/c");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        [&self.above[..], &self.entry.name].concat()
    }

    /// The inode that it names.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// let entry = image.read_dir("/")?.next().unwrap()?;
    /// assert_eq!(entry.inode(), image.inode_of("/lost+found")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.entry.inode
    }

    /// The type of the inode. It is read from the directory entry if the volume stores it there.
    ///
    /// ```
    /// use platfs::FileType;
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// assert_eq!(image.read_dir("/")?.next().unwrap()?.file_type()?, FileType::Directory);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// A broken inode; the device's failure.
    pub fn file_type(&self) -> Result<FileType> {
        self.shared.volume().entry_type(&self.entry)
    }

    /// The metadata of the inode. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// assert!(image.read_dir("/")?.next().unwrap()?.metadata()?.is_dir());
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// A broken inode; the device's failure.
    pub fn metadata(&self) -> Result<Metadata> {
        self.shared.volume().metadata(self.entry.inode)
    }

    /// Opens it, if it is a regular file.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// let entry = image.read_dir("/")?.last().unwrap()?;
    /// assert_eq!(entry.open()?.metadata()?.size, 3);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`]; [`Error::Invalid`] for anything else that is no regular file.
    pub fn open(&self) -> Result<File> {
        regular(&self.shared, self.entry.inode)
    }

    /// The directory that it names.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// let below = image.read_dir("/")?.next().unwrap()?.enter()?;
    /// assert_eq!(below.read_dir("")?.count(), 0);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn enter(&self) -> Result<Dir> {
        match self.file_type()? {
            FileType::Directory => Ok(Dir::new(Node::new(&self.shared, self.entry.inode)?)),
            _ => Err(Error::NotDirectory),
        }
    }
}

/// The names in a directory, in the order in which they are stored; see [`Dir::read_dir`].
pub struct ReadDir<'d> {
    shared: &'d Arc<Shared>,
    entries: Box<dyn Iterator<Item = Result<DirEntry>> + 'd>,
}

impl<'d> ReadDir<'d> {
    pub(super) fn new(shared: &'d Arc<Shared>, directory: InodeNumber) -> Result<Self> {
        Ok(ReadDir { shared, entries: Box::new(shared.volume().read_dir(directory)?) })
    }
}

impl Iterator for ReadDir<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let shared = self.shared;
        let found = self.entries.next()?;
        Some(found.map(|entry| Entry { shared: Arc::clone(shared), entry, above: Vec::new() }))
    }
}

/// All that is below a directory, each directory before what it holds; see [`Dir::walk`].
pub struct Tree<'d> {
    shared: &'d Arc<Shared>,
    walk: Walk<'d>,
    /// The directory that was handed out last, to be entered next.
    next: Option<DirEntry>,
    /// Error that ended the listing of the directory that was entered last.
    complaint: Option<Error>,
}

impl<'d> Tree<'d> {
    pub(super) fn new(shared: &'d Arc<Shared>, directory: InodeNumber) -> Result<Self> {
        let mut walk = Walk::new(shared.volume());
        let complaint = walk.enter(b"", directory)?;
        Ok(Tree { shared, walk, next: None, complaint })
    }

    fn entry(&self, entry: DirEntry) -> Entry {
        let mut above = self.walk.path().to_vec();
        if !above.is_empty() {
            above.push(b'/');
        }
        Entry { shared: Arc::clone(self.shared), entry, above }
    }
}

impl Iterator for Tree<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(directory) = self.next.take() {
            match self.walk.enter(&directory.name, directory.inode) {
                Ok(complaint) => self.complaint = complaint,
                Err(error) => return Some(Err(error)),
            }
        }
        loop {
            if let Some(error) = self.complaint.take() {
                return Some(Err(error));
            }
            if self.walk.depth() == 0 {
                return None;
            }
            let Some(entry) = self.walk.next_entry().cloned() else {
                self.walk.leave();
                continue;
            };
            let is_directory = match self.walk.is_directory(&entry) {
                Ok(is_directory) => is_directory,
                Err(error) => return Some(Err(error)),
            };
            self.next = is_directory.then(|| entry.clone());
            return Some(Ok(self.entry(entry)));
        }
    }
}
