//! Directories: names to inodes.
//!
//! Owns: looking a name up, listing, inserting, the beginning of a new directory; for linear and indexed directories, and
//! those inside their inode. Excludes: links and times of inodes, checks of
//! permission, and whether a name exists before it is inserted: the verbs do that.
//!
//! The code reaches a directory's blocks only through [`BlockMap`] and [`Growth`], not through
//! extents or pointers.

mod bulk;
mod change;
mod htree;
mod inside;
mod linear;
mod moved;
mod picks;
mod position;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::dirent::{Layout, Name, Record};
use ondisk::dirhash::DirHash;
use ondisk::features::{Compat, Incompat};
use ondisk::htree::Kind;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::seal::InodeSeed;
use ondisk::units::{Block, FileBlock, InodeNumber, low_u32};

use crate::cache::{Blocks, Role};
use crate::crypt::{self, Meaning, NamesOf, StoredName};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::map::{Map, State};
use crate::order::LinkDelta;
use crate::ranges::FileBlocks;
use crate::session::{KnownNames, Names, WORTH};
use crate::tx::{Tx, View};

pub use bulk::{DirName, NameSizes};
pub(crate) use htree::Packed;
pub(crate) use position::{Batch, Sequence};

/// Largest directory without the feature `largedir`: its size has no high half.
const SMALL_DIR_MAX: u64 = 1 << 31;

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name as stored: any bytes; on broken volumes even `/` and NUL. In encrypted directories deciphered, or where
    /// there is no key as Linux shows it then.
    pub name: Vec<u8>,
    /// Inode that it names.
    pub inode: InodeNumber,
    /// The type as the entry states it; `None` where volumes do not store it.
    pub file_type: Option<FileType>,
}

/// Where the file blocks of a directory lie.
pub(crate) trait BlockMap {
    /// The disk block behind a file block, which must exist.
    fn block_at(&self, map: Map<'_>, at: FileBlock) -> Result<Block>;
}

/// How a directory grows.
pub(crate) trait Growth: BlockMap {
    /// Allocates, maps and charges file block `at`, the one behind the last.
    fn append(&self, tx: &mut Tx<'_>, dir: &mut Inode, at: FileBlock) -> Result<Block>;

    /// Moves file blocks to new disk blocks, the first of which it returns; their contents are the caller's.
    fn renew(&self, tx: &mut Tx<'_>, dir: &mut Inode, blocks: FileBlocks) -> Result<Block>;

    /// True if an inode is in use on the device.
    fn was_in_use(&self, tx: &Tx<'_>, number: InodeNumber) -> Result<bool>;

    /// Frees the blocks from `at` on.
    fn cut(&self, tx: &mut Tx<'_>, dir: &mut Inode, at: FileBlock) -> Result<()>;
}

/// Directories whose blocks lie where their maps say.
struct Mapped;

impl BlockMap for Mapped {
    fn block_at(&self, map: Map<'_>, at: FileBlock) -> Result<Block> {
        // Unlike those of files, blocks of directories are never holes.
        match map.lookup(at)?.state {
            State::Mapped(block) => Ok(block),
            _ => {
                let problem = format!("its block {at} lies nowhere on disk; check the volume");
                Err(Error::corrupt(Place::Directory(map.number()), problem))
            }
        }
    }
}

impl Growth for Mapped {
    fn append(&self, tx: &mut Tx<'_>, dir: &mut Inode, at: FileBlock) -> Result<Block> {
        tx.map(dir).append_block(at)
    }

    fn renew(&self, tx: &mut Tx<'_>, dir: &mut Inode, blocks: FileBlocks) -> Result<Block> {
        tx.map(dir).renew(blocks)
    }

    fn was_in_use(&self, tx: &Tx<'_>, number: InodeNumber) -> Result<bool> {
        tx.was_in_use(number)
    }

    fn cut(&self, tx: &mut Tx<'_>, dir: &mut Inode, at: FileBlock) -> Result<()> {
        tx.map(dir).unmap(FileBlocks::behind(u64::from(at.0)))
    }
}

impl<'a> View<'a> {
    /// A directory.
    pub(crate) fn dir(self, dir: &'a Inode) -> Dir<'a> {
        Dir::new(self.blocks, self.format, dir, &Mapped)
    }

    /// The entries of a directory but `.` and `..`, in the order in which they are stored. One block is
    /// held at a time. A broken block ends the listing with its complaint.
    ///
    /// # Errors
    /// A directory larger than the volume; contents in the inode that are broken.
    pub(crate) fn entries(self, dir: Inode) -> Result<linear::Listing<'a>> {
        linear::Listing::new(self.blocks, self.format, &Mapped, dir)
    }
}

impl<'v> Tx<'v> {
    /// A directory, to change.
    pub(crate) fn dir<'t>(&'t mut self, dir: &'t mut Inode) -> DirMut<'t, 'v> {
        DirMut::new(self, dir, &Mapped)
    }
}

/// A directory, to read.
#[derive(Clone, Copy)]
pub(crate) struct Dir<'a> {
    blocks: &'a dyn Blocks,
    format: &'a Format,
    dir: &'a Inode,
    map: &'a dyn BlockMap,
    layout: Layout,
    seed: InodeSeed,
}

impl<'a> Dir<'a> {
    fn new(blocks: &'a dyn Blocks, format: &'a Format, dir: &'a Inode, map: &'a dyn BlockMap) -> Self {
        let layout = Layout::new(format.geometry.block_size, &format.features);
        Dir { blocks, format, dir, map, layout, seed: format.seed_of(dir) }
    }

    /// A complaint about one of its blocks.
    fn broken(&self, at: FileBlock, problem: impl fmt::Display) -> Error {
        Error::corrupt(Place::Directory(self.dir.number()), format!("file block {at}: {problem}"))
    }

    /// Number of its blocks. Without any it is damaged, unless it was removed.
    fn count(&self) -> Result<u32> {
        if self.dir.size() == 0 && self.dir.links() > 0 {
            let problem = "it has a size of 0 bytes, and no block for names; check the volume";
            return Err(Error::corrupt(Place::Directory(self.dir.number()), problem));
        }
        self.len()
    }

    /// Number of its blocks, or none yet. A directory can't have more than the volume, which bounds every walk.
    fn len(&self) -> Result<u32> {
        let count = self.dir.size().div_ceil(u64::from(self.layout.block_size.bytes()));
        match u32::try_from(count) {
            Ok(small) if count <= self.format.geometry.blocks => Ok(small),
            _ => Err(Error::corrupt(
                Place::Directory(self.dir.number()),
                format!("size of {} bytes is larger than the volume", self.dir.size()),
            )),
        }
    }

    fn block_at(&self, at: FileBlock) -> Result<Block> {
        self.map.block_at(Map::new(self.blocks, self.format, self.dir), at)
    }

    fn leaf_role(&self) -> Role {
        Role::DirectoryLeaf(self.seed)
    }

    fn index_role(&self, kind: Kind) -> Role {
        Role::IndexNode(self.seed, kind.entries_offset())
    }

    fn leaf(&self, at: FileBlock) -> Result<(Block, Arc<[u8]>)> {
        let block = self.block_at(at)?;
        Ok((block, self.blocks.read(block, self.leaf_role())?))
    }

    /// True if names are found through the index. Those that ignore case are hashed in a folded
    /// form, which this code does not compute.
    fn is_indexed(&self) -> bool {
        let flags = self.dir.flags();
        self.format.features.compat.contains(Compat::DIR_INDEX)
            && flags.contains(InodeFlags::INDEX)
            && !flags.contains(InodeFlags::CASEFOLD)
    }

    /// The inode behind a name, and its type where the volume stores types. `.` and `..` are found as
    /// they are stored. A broken index is passed over by reading every block.
    ///
    /// # Errors
    /// A broken directory, a name of an inode that the volume keeps for itself; the device's failure.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Option<(InodeNumber, Option<FileType>)>> {
        let Some(stored) = self.stored_name(name)? else { return Ok(None) };
        let found = self.stored(&stored)?;
        match found.filter(|(number, _)| self.format.is_kept(*number)) {
            None => Ok(found),
            Some((number, _)) => {
                let name = String::from_utf8_lossy(name);
                let problem = format!("'{name}' leads to inode {number}, which the volume keeps for itself");
                Err(Error::corrupt(Place::Directory(self.dir.number()), problem))
            }
        }
    }

    /// Target of a name and its type as the entry states them, unchecked.
    fn stored(&self, name: &[u8]) -> Result<Option<(InodeNumber, Option<FileType>)>> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            let entries = linear::entries_inside(self.format, self.dir)?;
            let found = entries.into_iter().find(|entry| entry.name == name);
            return Ok(found.map(|entry| (entry.inode, entry.file_type)));
        }
        self.search(name)
    }

    /// A name as the blocks have it; `None` if no name here can be shown so.
    fn stored_name<'n>(&self, name: &'n [u8]) -> Result<Option<StoredName<'n>>> {
        let Some(names) = NamesOf::for_directory(self.blocks, self.format, self.dir)? else {
            return Ok(Some(Cow::Borrowed(name)));
        };
        match names.meaning(name) {
            Meaning::Stored(stored) => Ok(Some(Cow::Owned(stored))),
            Meaning::Nothing => Ok(None),
            Meaning::Long(shown) => {
                let mut found = None;
                linear::visit(self, |stored| {
                    if found.is_none() && crypt::means(&shown, stored) {
                        found = Some(Cow::Owned(stored.to_vec()));
                    }
                })?;
                Ok(found)
            }
        }
    }

    /// Gives entries the names that are shown.
    fn show<'e>(&self, entries: impl Iterator<Item = &'e mut DirEntry>) -> Result<()> {
        let Some(names) = NamesOf::for_directory(self.blocks, self.format, self.dir)? else { return Ok(()) };
        let hasher = self.hashes().map(|version| htree::hasher(self.format, version));
        let hash =
            |stored: &[u8]| hasher.map_or(DirHash { major: 0, minor: 0 }, |hasher| hasher.hash(stored));
        for entry in entries {
            entry.name = names.shown(&entry.name, hash);
        }
        Ok(())
    }

    /// The block in which a name stands; none if it stands in the directory's record.
    ///
    /// # Errors
    /// [`Error::NotFound`]; a broken directory.
    pub(crate) fn block_of(&self, name: &[u8]) -> Result<Option<Block>> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(None);
        }
        let name = self.stored_name(name)?.ok_or(Error::NotFound)?;
        let location = change::locate(self, &name)?;
        location.map(|location| Some(location.block)).ok_or(Error::NotFound)
    }

    /// Role of the first block.
    pub(crate) fn first_role(&self) -> Role {
        match self.dir.flags().contains(InodeFlags::INDEX) {
            true => self.index_role(Kind::Root),
            false => self.leaf_role(),
        }
    }

    fn search(&self, name: &[u8]) -> Result<Option<(InodeNumber, Option<FileType>)>> {
        if self.is_indexed() && !matches!(name, b"." | b"..") {
            match htree::lookup(self, name) {
                // A reader can do without the index.
                Err(Error::Corrupt(_)) => {}
                answer => return answer,
            }
        }
        linear::lookup(self, name)
    }

    /// True if a name exists, for a verb that is about to add it if not. Of long directories without an index all
    /// names are learned on the way.
    ///
    /// # Errors
    /// As [`Dir::lookup`].
    pub(crate) fn exists(&self, known: &KnownNames, name: &[u8]) -> Result<bool> {
        if self.dir.flags().intersects(InodeFlags::INLINE_DATA | InodeFlags::INDEX | InodeFlags::ENCRYPT)
            || !WORTH.contains(&self.dir.size())
        {
            return Ok(self.lookup(name)?.is_some());
        }
        self.is_known(known, name)
    }

    fn is_known(&self, known: &KnownNames, name: &[u8]) -> Result<bool> {
        match known.may_hold(self.dir.number(), name) {
            Some(false) => Ok(false),
            Some(true) => Ok(self.search(name)?.is_some()),
            None => {
                let mut names = Names::new(self.dir.number());
                linear::visit(self, |entry| names.add(entry))?;
                known.replace(names);
                Ok(self.search(name)?.is_some())
            }
        }
    }
}

fn no_names(what: &str) -> Error {
    Error::Unsupported(format!("adding a name to {what}"))
}

/// A directory, to change. Its inode is changed in memory only.
pub(crate) struct DirMut<'a, 'v> {
    tx: &'a mut Tx<'v>,
    dir: &'a mut Inode,
    growth: &'a dyn Growth,
    layout: Layout,
}

impl<'a, 'v> DirMut<'a, 'v> {
    fn new(tx: &'a mut Tx<'v>, dir: &'a mut Inode, growth: &'a dyn Growth) -> Self {
        let layout = Layout::new(tx.format.geometry.block_size, &tx.format.features);
        DirMut { tx, dir, growth, layout }
    }

    fn reader(&self) -> Dir<'_> {
        Dir::new(&*self.tx, self.tx.format, self.dir, self.growth)
    }

    /// True if blocks come and go as in Linux.
    fn is_as_linux(&self) -> bool {
        self.tx.space.keeps_directories_as_linux()
    }

    /// Adds a name that the caller knows to be absent.
    ///
    /// # Errors
    /// [`Error::DirectoryFull`], [`Error::NoSpace`]; [`Error::Unsupported`] for directories whose
    /// contents this code must not write; a broken directory.
    pub(crate) fn add(&mut self, name: &[u8], child: InodeNumber, file_type: FileType) -> Result<()> {
        self.tx.session.known_names.add(self.dir.number(), name);
        self.tx.session.followed.note(child, self.dir.number());
        let delta = LinkDelta::Name { directory: self.dir.number(), inode: child, appears: true };
        self.tx.note(|notes| {
            notes.name(child);
            notes.add_delta(delta);
        });
        self.insert(name, child, file_type)
    }

    /// Takes a name out of the directory; returns where it led.
    ///
    /// # Errors
    /// [`Error::NotFound`]; a broken directory.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<InodeNumber> {
        let name = self.reader().stored_name(name)?.ok_or(Error::NotFound)?;
        let inode = change::remove(self, &name)?.ok_or(Error::NotFound)?;
        let directory = self.dir.number();
        self.tx.note(|notes| notes.add_delta(LinkDelta::Name { directory, inode, appears: false }));
        Ok(inode)
    }

    /// Lets a name that exists (also `..`) lead to another inode; returns where it led.
    ///
    /// # Errors
    /// [`Error::NotFound`]; a broken directory.
    pub(crate) fn retarget(
        &mut self,
        name: &[u8],
        to: InodeNumber,
        file_type: FileType,
    ) -> Result<InodeNumber> {
        self.tx.note(|notes| notes.name(to));
        self.tx.session.followed.note(to, self.dir.number());
        let stored = self.reader().stored_name(name)?.ok_or(Error::NotFound)?;
        let from = change::retarget(self, &stored, to, file_type)?.ok_or(Error::NotFound)?;
        if name != b".." {
            let directory = self.dir.number();
            self.tx.note(|notes| {
                notes.add_delta(LinkDelta::Name { directory, inode: from, appears: false });
                notes.add_delta(LinkDelta::Name { directory, inode: to, appears: true });
            });
        }
        Ok(from)
    }

    /// Gives back what holds no names: of an index, blocks of the first leaves from a hash on that can be joined, or
    /// that are empty; else the empty blocks at the end.
    ///
    /// # Errors
    /// [`Error::NoSpace`], where blocks have to move to be changed; a broken directory.
    pub(crate) fn pack(&mut self, from: u32) -> Result<Packed> {
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(Packed::All);
        }
        if self.reader().is_indexed() {
            return htree::pack(self, from);
        }
        let last = self.reader().count()?.saturating_sub(1);
        change::drop_empty_tail(self, FileBlock(last)).map(|()| Packed::All)
    }

    /// Sees to it that what changes in the block of a name comes to be with the directory's record.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; a broken directory.
    pub(crate) fn own_block_of(&mut self, name: &[u8]) -> Result<()> {
        let name = self.reader().stored_name(name)?.ok_or(Error::NotFound)?;
        let location = change::locate(&self.reader(), &name)?;
        location.map_or(Ok(()), |location| self.make_own(location.at))
    }

    /// Begins a new directory, whose map is empty: in its inode, or with a first block.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn begin(&mut self, parent: InodeNumber) -> Result<()> {
        self.tx.note(|notes| notes.name(parent));
        if inside::begin(self, parent)? { Ok(()) } else { self.init(parent) }
    }

    /// Makes room for one more block; the caller creates its contents.
    fn append(&mut self) -> Result<(FileBlock, Block)> {
        let at = self.reader().len()?;
        let size = self.dir.size() + u64::from(self.layout.block_size.bytes());
        if at >= ondisk::htree::MAX_BLOCKS
            || size >= SMALL_DIR_MAX && !self.tx.format.has_incompat(Incompat::LARGEDIR)
        {
            return Err(Error::DirectoryFull(format!("it can't grow to {size} bytes")));
        }
        let block = self.growth.append(self.tx, self.dir, FileBlock(at))?;
        self.dir.set_size(size);
        Ok((FileBlock(at), block))
    }

    fn init(&mut self, parent: InodeNumber) -> Result<()> {
        let (_, block) = self.append()?;
        self.hide_until_link(block)?;
        let role = self.reader().leaf_role();
        let (own, parent) =
            (self.tx.format.physical_number(self.dir.number()), self.tx.format.physical_number(parent));
        ondisk::dirent::init_directory(self.tx.create(block, role), self.layout, own, parent);
        Ok(())
    }

    fn insert(&mut self, name: &[u8], child: InodeNumber, file_type: FileType) -> Result<()> {
        let name = Name::new(name).map_err(|bad| match bad {
            ondisk::dirent::BadName::TooLong(len) => Error::NameTooLong(len),
            bad => Error::Invalid(bad.to_string()),
        })?;
        self.refuse_meanings()?;
        let record = Record::new(name, self.tx.format.physical_number(child), file_type, self.layout);
        if self.dir.flags().contains(InodeFlags::INLINE_DATA) {
            if inside::add(self, &record)? {
                return Ok(());
            }
            inside::grow_out(self)?;
        }
        self.refuse_foreign()?;
        if self.dir.flags().contains(InodeFlags::INDEX) {
            htree::insert(self, &record)
        } else {
            linear::insert(self, &record)
        }
    }

    /// Refuses names that mean something else than their bytes.
    fn refuse_meanings(&self) -> Result<()> {
        let flags = self.dir.flags();
        if flags.contains(InodeFlags::ENCRYPT) {
            return Err(no_names("an encrypted directory"));
        }
        if flags.contains(InodeFlags::CASEFOLD) {
            return Err(no_names("a directory whose names ignore case"));
        }
        Ok(())
    }

    /// Refuses layouts that are only read, and would be damaged.
    fn refuse_foreign(&self) -> Result<()> {
        if self.dir.flags().contains(InodeFlags::INDEX) && !self.reader().is_indexed() {
            return Err(no_names("an indexed directory of a volume without dir_index"));
        }
        let size = self.dir.size();
        if self.reader().count()? == 0 || !size.is_multiple_of(u64::from(self.layout.block_size.bytes())) {
            let problem = format!("its size of {size} bytes is not a number of blocks; check the volume");
            return Err(Error::corrupt(Place::Directory(self.dir.number()), problem));
        }
        Ok(())
    }

    /// Notes a block of a directory that is new itself: its names wait for what they lead to.
    fn hide_until_link(&mut self, block: Block) -> Result<()> {
        if self.tx.order().takes_notes() && !self.growth.was_in_use(self.tx, self.dir.number())? {
            self.tx.note(|notes| notes.hide_until_link(block.0));
        }
        Ok(())
    }

    /// Role of a block of the directory.
    fn role_of(&self, at: FileBlock, bytes: &[u8]) -> Role {
        let reader = self.reader();
        match self.dir.flags().contains(InodeFlags::INDEX) {
            true if at.0 == 0 => reader.index_role(Kind::Root),
            true if ondisk::htree::looks_like_node(bytes, self.layout) => reader.index_role(Kind::Node),
            _ => reader.leaf_role(),
        }
    }

    /// Sees to it that a block may be rewritten: one that the device leads to moves, with the rest of its
    /// cluster, to a new place, so that names go from block to block all at once, with the directory's record.
    /// Blocks found before may have moved.
    fn make_own(&mut self, at: FileBlock) -> Result<()> {
        if self.tx.is_own(self.reader().block_at(at)?) {
            return Ok(());
        }
        self.renew(at)
    }

    /// Moves those of its blocks that lie at a block of the device or behind it, at most about as many; how many moved.
    /// Where they go is the choice of the volume.
    pub(crate) fn leave(&mut self, end: Block, most: u32) -> Result<u32> {
        let ratio = self.tx.format.geometry.blocks_per_cluster();
        let (count, mut at, mut moved) = (self.reader().count()?, 0, 0);
        while at < count && moved < most {
            if self.reader().block_at(FileBlock(at))? >= end {
                self.renew(FileBlock(at))?;
                moved += ratio;
            }
            at = at.saturating_add(ratio);
        }
        Ok(moved)
    }

    /// Moves a block, with the rest of its cluster.
    fn renew(&mut self, at: FileBlock) -> Result<()> {
        let ratio = self.tx.format.geometry.blocks_per_cluster();
        let first = at.0 - at.0 % ratio;
        let all = first..self.reader().count()?.min(first + ratio);
        let blocks = FileBlocks::new(u64::from(all.start), u64::from(all.end));
        let mut contents = Vec::with_capacity(all.len());
        for at in all.map(FileBlock) {
            let block = self.reader().block_at(at)?;
            self.tx.refuse_kept(block)?;
            let bytes = self.tx.read(block, Role::Plain)?;
            contents.push((self.role_of(at, &bytes), bytes));
        }
        let start = self.growth.renew(self.tx, self.dir, blocks)?;
        for (block, (role, bytes)) in (start.0..).map(Block).zip(contents) {
            self.tx.create(block, role).copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Refills a leaf that may be rewritten, or whose names stay. The caller has computed that the records fit.
    fn refill_leaf<'r>(
        &mut self,
        at: FileBlock,
        block: Block,
        records: impl IntoIterator<Item = Record<'r>>,
    ) -> Result<()> {
        let role = self.reader().leaf_role();
        self.tx.note(|notes| notes.add(block.0));
        if ondisk::dirent::fill(self.tx.rewrite(block, role)?, self.layout, records) {
            Ok(())
        } else {
            Err(self.reader().broken(at, "entries take more than a block"))
        }
    }

    /// Fills a new leaf. That the records fit was computed before.
    fn fill_leaf<'r>(
        &mut self,
        at: FileBlock,
        block: Block,
        records: impl IntoIterator<Item = Record<'r>>,
    ) -> Result<()> {
        let role = self.reader().leaf_role();
        self.hide_until_link(block)?;
        if ondisk::dirent::fill(self.tx.create(block, role), self.layout, records) {
            Ok(())
        } else {
            Err(self.reader().broken(at, "entries take more than a block"))
        }
    }
}

/// The name as the verbs hand it out.
fn listed(format: &Format, layout: Layout, entry: &ondisk::dirent::Entry<'_>) -> Option<DirEntry> {
    let inode = format.logical_number(entry.inode?);
    Some(DirEntry { name: entry.name.to_vec(), inode, file_type: entry.file_type(layout) })
}

/// A position in an index as the usual number; positions are below 8,192.
fn position_u16(position: usize) -> u16 {
    ondisk::units::low_u16(low_u32(position as u64))
}
