//! Names: looking up, walking paths, listing directories, creating and linking.

use ondisk::dirhash::{HashVersion, NameHasher};
use ondisk::features::Compat;
use ondisk::features::RoCompat;
use ondisk::inode::{FileType, I_BLOCK_LEN, Inode, InodeFlags, LINKS_MAX, TimeField};
use ondisk::units::{Block, FileBlock, InodeNumber};
use placement::InodeRequest;

use super::attrs::{Attributes, file_type};
use super::changing::change;
use super::rules::{self, Operation};
use crate::bytes;
use crate::cache::Role;
use crate::dir::{Batch, DirEntry, Sequence};
use crate::error::{Error, Result};
use crate::tx::Tx;
use crate::volume::{VersionedInode, Volume};

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Symbolic links followed on one path before a loop is assumed, as Linux does.
pub(crate) const LINKS_FOLLOWED_MAX: u32 = 40;
/// Names an inode may have on ext2 and ext3.
const LINKS_MAX_OLD: u16 = 32_000;

/// Type of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'a> {
    /// Regular file, empty.
    File,
    /// Directory, empty.
    Directory,
    /// Symbolic link to a target.
    Symlink(&'a [u8]),
    /// Character device (major, minor).
    CharDevice(u32, u32),
    /// Block device (major, minor).
    BlockDevice(u32, u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// When a new directory gets its first block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstBlock {
    /// With its inode.
    Now,
    /// With all its names.
    Later,
}

impl Kind<'_> {
    pub(crate) fn file_type(self) -> FileType {
        match self {
            Kind::File => FileType::Regular,
            Kind::Directory => FileType::Directory,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::CharDevice(..) => FileType::CharDevice,
            Kind::BlockDevice(..) => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }
}

/// A new inode, whole: written once instead of being created and changed.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Type of the inode.
    pub kind: Kind<'a>,
    /// Owner, permissions, times.
    pub attributes: Attributes,
    /// Extended attributes by full name.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] | b"." | b".." => Err(Error::Invalid("a name can't be empty, '.' or '..'".into())),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong(name.len())),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => {
            Err(Error::Invalid("a name can't contain '/' or NUL".into()))
        }
        _ => Ok(()),
    }
}

/// An inode that must be a directory.
pub(super) fn directory_only(inode: &Inode) -> Result<&Inode> {
    if file_type(inode)? == FileType::Directory { Ok(inode) } else { Err(Error::NotDirectory) }
}

impl Volume {
    /// The inode behind a name of a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`]; a broken directory; the device's failure.
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        let found = VersionedInode::read(self, directory)?
            .seqlock_read(|view, node| view.dir(directory_only(node)?).lookup(name))?;
        found.map(|(found, _)| found).ok_or(Error::NotFound)
    }

    /// The inode behind a path from the root, every symbolic link followed.
    ///
    /// # Errors
    /// As [`Volume::lookup`]; [`Error::SymlinkLoop`].
    pub fn resolve(&self, path: &[u8]) -> Result<InodeNumber> {
        resolve_from(self, InodeNumber::ROOT, path, true)
    }

    /// The inode behind a path from the root; a symbolic link in last place is not followed.
    ///
    /// # Errors
    /// As [`Volume::resolve`].
    pub fn resolve_link(&self, path: &[u8]) -> Result<InodeNumber> {
        resolve_from(self, InodeNumber::ROOT, path, false)
    }

    /// The names in a directory, `.` and `..` left out, leaf by leaf, in each in the order in which they are stored. Names
    /// that are there all the time come once, whatever others do.
    ///
    /// # Errors
    /// Not a directory. Broken blocks are an error of the iterator, which then ends.
    pub fn read_dir(&self, directory: InodeNumber) -> Result<impl Iterator<Item = Result<DirEntry>> + '_> {
        directory_only(&self.view().inode(directory)?)?;
        let mut listing = Listing { volume: self, directory, position: 0, batch: Vec::new().into_iter() };
        Ok(std::iter::from_fn(move || listing.next()).fuse())
    }

    /// The names of a directory from a position on, for readers that come back: those of a block or of a few,
    /// each with the position behind it; none at the end. The first position is 0. `.` and `..` are
    /// listed as they are stored. Positions stay right while the directory changes, and when the volume is opened
    /// again.
    ///
    /// # Errors
    /// Not a directory. Damage is reported once all names before it were listed.
    pub fn read_dir_from(&self, directory: InodeNumber, position: u64) -> Result<Vec<(DirEntry, u64)>> {
        VersionedInode::read(self, directory)?
            .seqlock_read(|view, node| view.dir(directory_only(node)?).batch(position, Sequence::Positions))
            .map(|batch| batch.entries)
    }

    /// Creates an inode and names it.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::NoInodes`], [`Error::TooManyLinks`], a name
    /// that can't be one; broken structures on the way. Then nothing has changed.
    pub fn create(&self, directory: InodeNumber, name: &[u8], new: &NewInode<'_>) -> Result<InodeNumber> {
        check_name(name)?;
        change(self, |tx| tx.create_in(directory, name, new))
    }

    /// Gives an inode that is not a directory another name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::IsDirectory`], [`Error::TooManyLinks`], [`Error::NoSpace`]. Then
    /// nothing has changed.
    pub fn link(&self, number: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<()> {
        check_name(name)?;
        change(self, |tx| tx.link_in(number, directory, name))
    }
}

/// The inode behind a path from a directory; one that begins with a slash is from the root.
pub(crate) fn resolve_from(
    volume: &Volume,
    directory: InodeNumber,
    path: &[u8],
    follow_last: bool,
) -> Result<InodeNumber> {
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|byte| *byte == b'/').rev().filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
    };
    // A slash at the end says that a directory is meant, and a link to one is followed.
    let mut left = split(path);
    let mut wants_directory = path.last() == Some(&b'/') && !left.is_empty();
    let mut here = if path.first() == Some(&b'/') { InodeNumber::ROOT } else { directory };
    let mut followed = 0;
    while let Some(name) = left.pop() {
        let next = volume.lookup(here, &name)?;
        let is_link = volume.view().inode(next)?.file_type() == Some(FileType::Symlink);
        if !is_link || (left.is_empty() && !(follow_last || wants_directory)) {
            here = next;
            continue;
        }
        followed += 1;
        if followed > LINKS_FOLLOWED_MAX {
            return Err(Error::SymlinkLoop);
        }
        let target = volume.read_link(next)?;
        if target.first() == Some(&b'/') {
            here = InodeNumber::ROOT;
        }
        // So does a slash at the end of what the last link says.
        wants_directory |= left.is_empty() && target.ends_with(b"/");
        left.extend(split(&target));
    }
    if wants_directory && volume.view().inode(here)?.file_type() != Some(FileType::Directory) {
        return Err(Error::NotDirectory);
    }
    Ok(here)
}

impl<'v> Tx<'v> {
    fn create_in(&mut self, directory: InodeNumber, name: &[u8], new: &NewInode<'_>) -> Result<InodeNumber> {
        let mut parent = self.directory(directory)?;
        rules::may(&parent, Operation::AddName)?;
        if self.has_name(&parent, name)? {
            return Err(Error::Exists);
        }
        let (number, mut child) = self.new_child(&mut parent, name, new, FirstBlock::Now)?;
        self.dir(&mut parent).add(name, number, new.kind.file_type())?;
        self.store(&mut child)?;
        self.store_parent(&mut parent)?;
        Ok(number)
    }

    /// A new inode for a directory, whole but for its name.
    pub(super) fn new_child(
        &mut self,
        parent: &mut Inode,
        name: &[u8],
        new: &NewInode<'_>,
        first_block: FirstBlock,
    ) -> Result<(InodeNumber, Inode)> {
        let file_type = new.kind.file_type();
        let directory = parent.number();
        let is_top = directory == InodeNumber::ROOT || parent.flags().contains(InodeFlags::TOPDIR);
        let is_directory = file_type == FileType::Directory;
        let request = InodeRequest {
            parent: self.format.physical_number(directory).index(),
            is_directory,
            top_level: is_top,
            name_hash: name_number(name),
            seeded_hash: if is_top && is_directory { seeded_number(self.format.hash_seed, name) } else { 0 },
            sequential: self.session.is_loading(),
        };
        let number = self.space_mut()?.allocate_inode(&request, file_type)?;
        let mut child = self.blank(number, new)?;
        if !self.session.is_loading() {
            self.inherit_flags(&mut child, parent, file_type);
        }
        self.fill(&mut child, parent, new, first_block)?;
        self.session.handles.made_in(number, directory);
        Ok((number, child))
    }

    /// Takes over the flags of a directory, and its project where its files belong to it.
    fn inherit_flags(&self, child: &mut Inode, parent: &Inode, file_type: FileType) {
        let flags = rules::inherited_flags(parent.flags(), file_type);
        child.set_flags(child.flags() | flags);
        if parent.flags().contains(InodeFlags::PROJINHERIT) && self.format.has_ro_compat(RoCompat::PROJECT) {
            child.edit_extra(|extra| extra.i_projid.set(parent.project()));
        }
    }

    /// The record of a new inode, before it has contents.
    fn blank(&self, number: InodeNumber, new: &NewInode<'_>) -> Result<Inode> {
        let mut inode = Inode::blank(number, self.format.geometry.inode_size);
        let file_type = new.kind.file_type();
        let raw = inode.raw_mut();
        raw.i_mode.set(file_type.mode_bits());
        raw.i_links_count.set(if file_type == FileType::Directory { 2 } else { 1 });
        raw.i_generation.set(self.session.generation(number));
        new.attributes.store(&mut inode);
        Ok(inode)
    }

    fn fill(
        &mut self,
        child: &mut Inode,
        parent: &mut Inode,
        new: &NewInode<'_>,
        first_block: FirstBlock,
    ) -> Result<()> {
        match new.kind {
            Kind::File => self.map(child).init(),
            Kind::Directory => {
                self.raise_links(parent)?;
                self.map(child).init();
                if first_block == FirstBlock::Now {
                    self.dir(child).begin(parent.number())?;
                }
            }
            Kind::Symlink(target) => self.store_target(child, target)?,
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                check_device(major, minor)?;
                child.set_device(major, minor);
            }
            Kind::Fifo | Kind::Socket => {}
        }
        if new.xattrs.is_empty() { Ok(()) } else { self.xattrs(child).set_all(new.xattrs) }
    }

    /// Short targets stand in the inode, long ones in a block of their own.
    fn store_target(&mut self, child: &mut Inode, target: &[u8]) -> Result<()> {
        let block_len = self.format.geometry.block_size.bytes_usize();
        if target.len() >= block_len {
            return Err(Error::LinkTooLong(target.len(), block_len - 1));
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid(format!(
                "a symbolic link's target has 1 to {} bytes and no NUL, not {}",
                block_len - 1,
                target.len()
            )));
        }
        child.set_size(target.len() as u64);
        if target.len() < I_BLOCK_LEN {
            return Ok(bytes::put(&mut child.raw_mut().i_block, 0, target)?);
        }
        self.map(child).init();
        let block = self.metadata_block(child)?;
        Ok(bytes::put(self.create(block, Role::Plain), 0, target)?)
    }

    /// Gives an inode without blocks its first one.
    fn metadata_block(&mut self, inode: &mut Inode) -> Result<Block> {
        self.map(inode).append_block(FileBlock(0))
    }

    pub(super) fn links_max(&self) -> u16 {
        use ondisk::features::Incompat;
        if self.format.has_incompat(Incompat::EXTENTS) { LINKS_MAX } else { LINKS_MAX_OLD }
    }

    /// One more subdirectory. With `dir_nlink` a directory of too many stops counting, if it has an index: one link then
    /// means "unknown". Without an index Linux takes no more.
    pub(super) fn raise_links(&self, directory: &mut Inode) -> Result<()> {
        let links = directory.links();
        let has_feature = self.format.has_ro_compat(RoCompat::DIR_NLINK);
        // A directory that is loaded gets its index with its names, which come later.
        let has_index = directory.flags().contains(InodeFlags::INDEX)
            || self.session.is_loading() && self.format.features.compat.contains(Compat::DIR_INDEX);
        let may_stop = has_feature && has_index;
        let next = match links {
            1 if has_feature => 1,
            _ if links < self.links_max() => links + 1,
            _ if may_stop => 1,
            _ => return Err(Error::TooManyLinks),
        };
        directory.raw_mut().i_links_count.set(next);
        Ok(())
    }

    pub(super) fn link_in(&mut self, number: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let mut parent = self.directory(directory)?;
        rules::may(&parent, Operation::AddName)?;
        if self.has_name(&parent, name)? {
            return Err(Error::Exists);
        }
        let child = self.one_more_link(number, &parent)?;
        self.dir(&mut parent).add(name, number, file_type(&child)?)?;
        self.store_parent(&mut parent)
    }

    /// Counts one more name of a file, which it gets in a directory.
    pub(super) fn one_more_link(&mut self, number: InodeNumber, parent: &Inode) -> Result<Inode> {
        let mut child = self.inode(number)?;
        if file_type(&child)? == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        rules::may(&child, Operation::Link)?;
        if child.links() >= self.links_max() {
            return Err(Error::TooManyLinks);
        }
        if parent.flags().contains(InodeFlags::PROJINHERIT) && parent.project() != child.project() {
            return Err(Error::CrossProject);
        }
        let links = child.links() + 1;
        if links == 1 {
            self.revive(&mut child)?;
        }
        child.raw_mut().i_links_count.set(links);
        self.touch(&mut child, &[TimeField::Change]);
        self.store(&mut child)?;
        Ok(child)
    }

    /// Stores a directory whose names changed. A loader states the times of directories itself.
    pub(super) fn store_parent(&mut self, parent: &mut Inode) -> Result<()> {
        self.touch(parent, &[TimeField::Modify, TimeField::Change]);
        self.store(parent)
    }
}

/// The names of a directory, leaf by leaf, each as it is when it is read.
struct Listing<'v> {
    volume: &'v Volume,
    directory: InodeNumber,
    /// Behind the batch.
    position: u64,
    batch: std::vec::IntoIter<(DirEntry, u64)>,
}

impl Listing<'_> {
    /// The names of the next block.
    fn load(&self) -> Result<Batch> {
        VersionedInode::read(self.volume, self.directory)?
            .seqlock_read(|view, node| view.dir(directory_only(node)?).batch(self.position, Sequence::Stored))
    }

    /// The next name; an error is the last that comes.
    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some((entry, _)) = self.batch.find(|(entry, _)| !matches!(&entry.name[..], b"." | b"..")) {
                return Some(Ok(entry));
            }
            match self.load() {
                Ok(batch) if batch.entries.is_empty() => return None,
                Ok(batch) => {
                    self.position = batch.next;
                    self.batch = batch.entries.into_iter();
                }
                Err(error) => {
                    self.position = u64::MAX;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The format keeps 12 bits of major and 20 of minor.
fn check_device(major: u32, minor: u32) -> Result<()> {
    if major < 1 << 12 && minor < 1 << 20 {
        return Ok(());
    }
    Err(Error::Invalid(format!("device number {major}:{minor} is over 4095:1048575")))
}

/// A number that differs between names (FNV-1a); only spreads top-level directories.
fn name_number(name: &[u8]) -> u32 {
    name.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A number that differs between names and volumes, as Linux has it for the same purpose whatever the volume's
/// directories are hashed by. Source: Linux 6.18, `find_group_orlov`.
fn seeded_number(seed: [u32; 4], name: &[u8]) -> u32 {
    NameHasher::new(HashVersion::HalfMd4, false, seed).hash(name).major
}
