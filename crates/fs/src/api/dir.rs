//! A directory, and what is done by paths from it.

use std::sync::Arc;

use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use ondisk::units::bounded;

use super::entry::{ReadDir, Tree};
use super::file::File;
use super::handle::{Node, Shared};
use crate::error::{Error, Result};
use crate::ops::{CreateRequest, Kind, Metadata, NewInode, Replace, Walk, WriteOptions};
use crate::ops::{LINKS_FOLLOWED_MAX, resolve_from};
use crate::volume::Volume;

/// Permissions of new files and directories, before a default access control list of the directory has its say.
const FILE: u16 = 0o644;
const DIRECTORY: u16 = 0o755;

/// An open directory of an image. Paths begin here; with a slash in front at the root of the image, as with `openat`.
///
/// ```
/// let image = platfs::Image::in_memory(8 << 20)?;
/// image.create_dir_all("/srv/data")?;
/// let data = image.at("/srv/data")?;
/// data.write("notes", b"here")?;
/// data.rename("notes", "old-notes")?;
/// assert_eq!(image.read("/srv/data/old-notes")?, b"here");
/// # Ok::<(), platfs::Error>(())
/// ```
#[derive(Clone)]
pub struct Dir {
    node: Arc<Node>,
}

/// A regular file by its inode, to read and write.
pub(super) fn regular(shared: &Arc<Shared>, number: InodeNumber) -> Result<File> {
    let node = Node::new(shared, number)?;
    match shared.volume().metadata(number)?.file_type {
        FileType::Regular => Ok(File::new(node)),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("only regular files can be opened".into())),
    }
}

/// Refuses a path with a slash at its end, which names a directory, where something else is made.
fn no_slash(path: &[u8]) -> Result<()> {
    if path.len() > 1 && path.ends_with(b"/") { Err(Error::IsDirectory) } else { Ok(()) }
}

/// A path without the slashes at its end, cut into what leads to the directory and the name in it.
fn cut(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match path.split_at(at) {
        (_, b"" | b"." | b"..") => Err(Error::Invalid("the path has no name at its end".into())),
        parts => Ok(parts),
    }
}

impl Dir {
    /// Of an inode that is a directory.
    pub(super) fn new(node: Node) -> Self {
        Dir { node: Arc::new(node) }
    }

    pub(super) fn volume(&self) -> &Volume {
        self.node.volume()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.node.shared()
    }

    fn resolve(&self, path: &[u8], follow: bool) -> Result<InodeNumber> {
        resolve_from(self.volume(), self.node.number(), path, follow)
    }

    /// The directory and the name that a path ends with.
    fn parent_and_name<'p>(&self, path: &'p [u8]) -> Result<(InodeNumber, &'p [u8])> {
        let (above, name) = cut(path)?;
        Ok((self.resolve(above, true)?, name))
    }

    /// The inode that a path leads to, for the verbs of [`Volume`]. Symbolic links are followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// assert_eq!(image.inode_of("/")?, platfs::InodeNumber::ROOT);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`] on the way, [`Error::SymlinkLoop`]; broken structures; the device's
    /// failure.
    pub fn inode_of(&self, path: impl AsRef<[u8]>) -> Result<InodeNumber> {
        self.resolve(path.as_ref(), true)
    }

    /// True if a path leads to something.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// assert!(image.exists("/lost+found")? && !image.exists("/missing")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::inode_of`], but for what is not there.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.resolve(path.as_ref(), true) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The directory at a path.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.create_dir("/etc")?;
    /// image.at("/etc")?.create("hostname")?;
    /// assert!(image.exists("/etc/hostname")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; as [`Dir::inode_of`].
    pub fn at(&self, path: impl AsRef<[u8]>) -> Result<Dir> {
        let node = Node::new(self.shared(), self.resolve(path.as_ref(), true)?)?;
        if self.volume().metadata(node.number())?.is_dir() {
            Ok(Dir::new(node))
        } else {
            Err(Error::NotDirectory)
        }
    }

    /// Opens a regular file that exists, to read, and to write if the image was opened for that.
    ///
    /// ```
    /// use std::io::Read;
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// let mut text = String::new();
    /// image.file("/a")?.read_to_string(&mut text)?;
    /// assert_eq!(text, "abc");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`]; [`Error::Invalid`] for anything else that is no regular file; as [`Dir::inode_of`].
    pub fn file(&self, path: impl AsRef<[u8]>) -> Result<File> {
        regular(self.shared(), self.resolve(path.as_ref(), true)?)
    }

    /// Opens a regular file, which is emptied, or made if it is not there.
    ///
    /// ```
    /// use std::io::Write;
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// writeln!(image.create("/log")?, "{} files", 3)?;
    /// assert_eq!(image.read("/log")?, b"3 files\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`] for a path with a slash at its end; as [`Dir::file`] and [`Dir::create_new`].
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<File> {
        let path = path.as_ref();
        match self.file(path) {
            Ok(file) => file.set_len(0).map(|()| file),
            Err(Error::NotFound) => {
                no_slash(path)?;
                let (directory, name) = self.place_behind_links(path)?;
                let number = self.new_at(directory, &name, Kind::File, FILE)?;
                regular(self.shared(), number)
            }
            Err(error) => Err(error),
        }
    }

    /// The directory and the name that a new file gets: links at the end of the path that lead nowhere are followed.
    fn place_behind_links(&self, path: &[u8]) -> Result<(InodeNumber, Vec<u8>)> {
        let (volume, mut from, mut path) = (self.volume(), self.node.number(), path.to_vec());
        for _ in 0..=LINKS_FOLLOWED_MAX {
            let (above, name) = cut(&path)?;
            let directory = resolve_from(volume, from, above, true)?;
            let inode = match volume.lookup(directory, name) {
                Ok(inode) => inode,
                Err(Error::NotFound) => return Ok((directory, name.to_vec())),
                Err(error) => return Err(error),
            };
            if volume.metadata(inode)?.file_type != FileType::Symlink {
                return Ok((directory, name.to_vec()));
            }
            (from, path) = (directory, volume.read_link(inode)?);
            no_slash(&path)?;
        }
        Err(Error::SymlinkLoop)
    }

    /// Makes a new regular file and opens it. It belongs to root and has the mode 644; a default access control list
    /// and the set-group-id bit of its directory count.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_new("/a")?;
    /// assert!(matches!(image.create_new("/a"), Err(platfs::Error::Exists)));
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::ReadOnly`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::NameTooLong`],
    /// [`Error::DirectoryFull`]; as [`Dir::inode_of`] for its directory.
    pub fn create_new(&self, path: impl AsRef<[u8]>) -> Result<File> {
        no_slash(path.as_ref())?;
        let number = self.new_inode(path.as_ref(), Kind::File, FILE)?;
        regular(self.shared(), number)
    }

    /// Makes a new file of any kind, with owner, permissions, times and extended attributes as they are given.
    ///
    /// ```
    /// use platfs::{Attributes, Kind, NewInode};
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// let attributes = Attributes { permissions: 0o666, ..Attributes::default() };
    /// image.make("/null", &NewInode { kind: Kind::CharDevice(1, 3), attributes, xattrs: &[] })?;
    /// assert_eq!(image.metadata("/null")?.device, Some((1, 3)));
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::create_new`].
    pub fn make(&self, path: impl AsRef<[u8]>, new: &NewInode<'_>) -> Result<InodeNumber> {
        if new.kind.file_type() != FileType::Directory {
            no_slash(path.as_ref())?;
        }
        let (directory, name) = self.parent_and_name(path.as_ref())?;
        self.volume().create(directory, name, new)
    }

    /// A new inode with what it gets of its directory.
    fn new_inode(&self, path: &[u8], kind: Kind<'_>, permissions: u16) -> Result<InodeNumber> {
        let (directory, name) = self.parent_and_name(path)?;
        self.new_at(directory, name, kind, permissions)
    }

    fn new_at(
        &self,
        directory: InodeNumber,
        name: &[u8],
        kind: Kind<'_>,
        permissions: u16,
    ) -> Result<InodeNumber> {
        let wanted = CreateRequest { file_type: kind.file_type(), permissions, umask: 0, uid: 0, gid: 0 };
        let inherited = self.volume().inherit(directory, &wanted)?;
        let new = NewInode { kind, attributes: inherited.attributes, xattrs: &inherited.xattrs };
        self.volume().create(directory, name, &new)
    }

    /// All bytes of a file.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// assert_eq!(image.read("/a")?, b"abc");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::file`] and [`File::read_at`]; [`Error::Unsupported`] for more bytes than memory has room for.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        // A hostile image may announce any size: what is read is taken in pieces, and most of it would be holes.
        const PIECE: u64 = 1 << 20;
        let file = self.file(path)?;
        let size = file.metadata()?.size;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let start = bytes.len();
            let len = bounded::<usize>(PIECE.min(size - start as u64));
            let full = |_| Error::Unsupported(format!("{size} bytes in memory at once"));
            bytes.try_reserve(len).map_err(full)?;
            bytes.resize(start + len, 0);
            let count = file.read_at(start as u64, bytes.get_mut(start..).unwrap_or_default())?;
            if count < len {
                // It became shorter meanwhile.
                bytes.truncate(start + count);
                break;
            }
        }
        Ok(bytes)
    }

    /// All of a file, which must be UTF-8.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", "text")?;
    /// assert_eq!(image.read_to_string("/a")?, "text");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else; as [`Dir::read`].
    pub fn read_to_string(&self, path: impl AsRef<[u8]>) -> Result<String> {
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|error| Error::Invalid(format!("the file is not UTF-8: {}", error.utf8_error())))
    }

    /// Writes a whole file, new or in place of its contents.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.write("/a", b"long contents")?;
    /// image.write("/a", "short")?;
    /// assert_eq!(image.read("/a")?, b"short");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::create`] and [`File::write_at`]; the file may then have a part of it.
    pub fn write(&self, path: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path)?;
        self.volume().write_at(file.inode(), 0, contents.as_ref(), WriteOptions::default())
    }

    /// The metadata of a file. Symbolic links are followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// let known = image.metadata("/a")?;
    /// assert_eq!((known.size, known.permissions, known.links), (3, 0o644, 1));
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::inode_of`].
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.volume().metadata(self.resolve(path.as_ref(), true)?)
    }

    /// The metadata of a file. A symbolic link at the end of the path is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.symlink("nowhere", "/link")?;
    /// assert!(image.symlink_metadata("/link")?.is_symlink());
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::inode_of`].
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.volume().metadata(self.resolve(path.as_ref(), false)?)
    }

    /// The names in a directory, `.` and `..` left out, in the order in which they are stored.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// for entry in image.read_dir("/")? {
    ///     let entry = entry?;
    ///     println!("{} {}", entry.metadata()?.size, String::from_utf8_lossy(entry.name()));
    /// }
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; as [`Dir::inode_of`]. The iterator reports a block that can't be read, and then
    /// ends.
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<ReadDir<'_>> {
        ReadDir::new(self.shared(), self.resolve(path.as_ref(), true)?)
    }

    /// All that is below a directory, by name, each directory before what it holds. Symbolic links are not followed; a
    /// directory that an image leads to twice is an error, so that the walk ends.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/a/b")?;
    /// image.write("/a/b/c", b"")?;
    /// image.write("/a/d", b"")?;
    /// let mut paths = Vec::new();
    /// for entry in image.walk("/a")? {
    ///     paths.push(entry?.path());
    /// }
    /// assert_eq!(paths, [&b"b"[..], b"b/c", b"d"]);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::read_dir`]. The iterator reports what can't be read, and goes on with the rest.
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<Tree<'_>> {
        Tree::new(self.shared(), self.resolve(path.as_ref(), true)?)
    }

    /// Makes a directory, which belongs to root and has the mode 755; see [`Dir::create_new`].
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir("/srv")?;
    /// assert!(image.metadata("/srv")?.is_dir());
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::create_new`]; [`Error::TooManyLinks`].
    pub fn create_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.new_inode(path.as_ref(), Kind::Directory, DIRECTORY).map(|_| ())
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/usr/share/doc")?;
    /// image.create_dir_all("/usr/share/man")?;
    /// assert_eq!(image.read_dir("/usr/share")?.count(), 2);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`] where something else has a name of the path; as [`Dir::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let mut end = 0;
        for part in path.split_inclusive(|byte| *byte == b'/') {
            end += part.len();
            if matches!(part, b"/" | b"./" | b"." | b"../" | b"..") {
                continue;
            }
            let above = path.get(..end).unwrap_or_default();
            match self.create_dir(above) {
                Err(Error::Exists) if self.metadata(above)?.is_dir() => {}
                Err(Error::Exists) => return Err(Error::NotDirectory),
                done => done?,
            }
        }
        Ok(())
    }

    /// Makes a symbolic link.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.symlink("a", "/link")?;
    /// assert_eq!(image.read("/link")?, b"abc");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LinkTooLong`]; as [`Dir::create_new`].
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        no_slash(path.as_ref())?;
        self.new_inode(path.as_ref(), Kind::Symlink(target.as_ref()), 0o777).map(|_| ())
    }

    /// The target of a symbolic link.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.symlink("../lib", "/link")?;
    /// assert_eq!(image.read_link("/link")?, b"../lib");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else; as [`Dir::inode_of`].
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.volume().read_link(self.resolve(path.as_ref(), false)?)
    }

    /// Gives a file that is no directory another name. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.hard_link("/a", "/b")?;
    /// assert_eq!(image.metadata("/b")?.links, 2);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Volume::link`] and [`Dir::inode_of`].
    pub fn hard_link(&self, original: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let number = self.resolve(original.as_ref(), false)?;
        no_slash(path.as_ref())?;
        let (directory, name) = self.parent_and_name(path.as_ref())?;
        self.volume().link(number, directory, name)
    }

    /// Gives a file or directory another name, in place of what has it.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.write("/new", b"new")?;
    /// image.write("/name", b"old")?;
    /// image.rename("/new", "/name")?;
    /// assert_eq!(image.read("/name")?, b"new");
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Volume::rename`] and [`Dir::inode_of`].
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (directory, name) = self.parent_and_name(from.as_ref())?;
        // With a slash at its end a path names a directory.
        if [from.as_ref(), to.as_ref()].iter().any(|path| path.ends_with(b"/")) {
            self.must_be_directory(directory, name)?;
        }
        let (new_directory, new_name) = self.parent_and_name(to.as_ref())?;
        self.volume().rename(directory, name, new_directory, new_name, Replace::Yes)
    }

    /// Removes a name of a file that is no directory. A file without names goes when the last handle of it is dropped.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.remove_file("/a")?;
    /// assert!(!image.exists("/a")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::NotFound`], [`Error::ReadOnly`], [`Error::NotPermitted`]; as [`Dir::inode_of`].
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (directory, name) = self.parent_and_name(path.as_ref())?;
        if path.as_ref().ends_with(b"/") {
            return self.must_be_directory(directory, name).and(Err(Error::IsDirectory));
        }
        self.volume().unlink(directory, name)
    }

    /// Refuses a name with a slash behind it that is no directory; a link to one is none.
    fn must_be_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let inode = self.volume().lookup(directory, name)?;
        match self.volume().metadata(inode)?.file_type {
            FileType::Directory => Ok(()),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/a/b")?;
    /// assert!(matches!(image.remove_dir("/a"), Err(platfs::Error::NotEmpty)));
    /// image.remove_dir("/a/b")?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotDirectory`]; as [`Dir::remove_file`].
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (directory, name) = self.parent_and_name(path.as_ref())?;
        self.volume().rmdir(directory, name)
    }

    /// Removes a directory with all that is below it. Symbolic links are removed, not followed, the path's own too.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// image.create_dir_all("/a/b/c")?;
    /// image.write("/a/b/d", b"")?;
    /// image.remove_dir_all("/a")?;
    /// assert!(!image.exists("/a")?);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::remove_dir`]; what was removed before stays removed. [`Error::Corrupt`] for a directory whose `..` leads
    /// elsewhere.
    pub fn remove_dir_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let (directory, name) = self.parent_and_name(path.as_ref())?;
        let volume = self.volume();
        let first = volume.lookup(directory, name)?;
        if volume.metadata(first)?.file_type == FileType::Symlink {
            return volume.unlink(directory, name);
        }
        let mut walk = Walk::new(volume);
        let mut names = Vec::new();
        descend(volume, &mut walk, directory, name, first)?;
        names.push((directory, name.to_vec()));
        while let Some(here) = walk.directory() {
            match walk.next_entry().cloned() {
                Some(entry) if walk.is_directory(&entry)? => {
                    descend(volume, &mut walk, here, &entry.name, entry.inode)?;
                    names.push((here, entry.name));
                }
                Some(entry) => volume.unlink(here, &entry.name)?,
                None => {
                    walk.leave();
                    if let Some((above, name)) = names.pop() {
                        volume.rmdir(above, &name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the lower twelve bits of the mode; an access control list follows.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_permissions("/a", 0o4755)?;
    /// assert_eq!(image.metadata("/a")?.permissions, 0o4755);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Node::set_permissions`](crate::Node::set_permissions) and [`Dir::inode_of`].
    pub fn set_permissions(&self, path: impl AsRef<[u8]>, permissions: u16) -> Result<()> {
        self.volume().inode(self.resolve(path.as_ref(), true)?).set_permissions(permissions)
    }

    /// Sets owner and group. Files other than directories lose their set-id bits and capabilities. A symbolic link is not
    /// followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_owner("/a", 1000, 100)?;
    /// assert_eq!(image.metadata("/a")?.uid, 1000);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Node::set_owner`](crate::Node::set_owner) and [`Dir::inode_of`].
    pub fn set_owner(&self, path: impl AsRef<[u8]>, uid: u32, gid: u32) -> Result<()> {
        self.volume().inode(self.resolve(path.as_ref(), false)?).set_owner(Some(uid), Some(gid))
    }

    /// Sets the times of access and modification. A symbolic link is not followed.
    ///
    /// ```
    /// use platfs::Timestamp;
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_times("/a", Timestamp::from_seconds(7), Timestamp::from_seconds(5))?;
    /// let Times { access, modify, .. } = image.metadata("/a")?.times;
    /// assert_eq!((access.seconds, modify.seconds), (7, 5));
    /// # use platfs::Times;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Node::set_times`](crate::Node::set_times) and [`Dir::inode_of`].
    pub fn set_times(&self, path: impl AsRef<[u8]>, access: Timestamp, modify: Timestamp) -> Result<()> {
        let number = self.resolve(path.as_ref(), false)?;
        self.volume().inode(number).set_times(Some(access), Some(modify))
    }

    /// The value of an extended attribute by its full name; `None` where there is none. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_xattr("/a", "user.origin", b"example")?;
    /// assert_eq!(image.xattr("/a", "user.origin")?.as_deref(), Some(&b"example"[..]));
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Broken attributes; as [`Dir::inode_of`].
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.volume().inode(self.resolve(path.as_ref(), false)?).xattr(name.as_ref())
    }

    /// The full names of all extended attributes. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_xattr("/a", "trusted.x", b"1")?;
    /// assert_eq!(image.xattr_names("/a")?, [b"trusted.x"]);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dir::xattr`].
    pub fn xattr_names(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        self.volume().inode(self.resolve(path.as_ref(), false)?).xattr_names()
    }

    /// Sets an extended attribute by its full name, new or not. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_xattr("/a", "user.origin", b"example")?;
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Node::set_xattr`](crate::Node::set_xattr) and [`Dir::inode_of`].
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let number = self.resolve(path.as_ref(), false)?;
        self.volume().inode(number).set_xattr(name.as_ref(), value.as_ref())
    }

    /// Removes an extended attribute by its full name. A symbolic link is not followed.
    ///
    /// ```
    /// # let image = platfs::Image::in_memory(8 << 20)?;
    /// # image.write("/a", b"abc")?;
    /// image.set_xattr("/a", "user.origin", b"example")?;
    /// image.remove_xattr("/a", "user.origin")?;
    /// assert_eq!(image.xattr("/a", "user.origin")?, None);
    /// # Ok::<(), platfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none; as [`Dir::set_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        self.volume().inode(self.resolve(path.as_ref(), false)?).remove_xattr(name.as_ref())
    }
}

/// Goes down into a directory that is to be removed. One that says that its parent is another has a name that does not
/// belong to it; what it holds is not taken away by that name.
fn descend(
    volume: &Volume,
    walk: &mut Walk<'_>,
    above: InodeNumber,
    name: &[u8],
    number: InodeNumber,
) -> Result<()> {
    if !volume.metadata(number)?.is_dir() {
        return Err(Error::NotDirectory);
    }
    let parent = volume.lookup(number, b"..")?;
    if parent != above {
        let problem = format!("calls inode {parent} its parent, and stands in inode {above}");
        return Err(Error::corrupt(ondisk::corrupt::Place::Directory(number), problem));
    }
    walk.enter(name, number)?.map_or(Ok(()), Err)
}
