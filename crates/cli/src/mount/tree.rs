//! A volume as the kernel asks for it: nodes to inodes, errors to numbers, and the log beside them.
//!
//! The number of a node is that of its inode, but for the root, which the kernel calls 1. Nothing is
//! remembered of nodes: while a volume is only read, an inode stays what it is.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::{
    Attributes, Caller, Change, Entry, Errno, Listed, NewNode, Replace, Seek, Service, Statistics, WriteFlags,
};
use ondisk::corrupt::Place;
use ondisk::features::Incompat;
use ondisk::inode::{FileType, InodeFlags, Timestamp};
use ondisk::units::{Group, InodeNumber};
use platfs::{Error, Metadata, Volume};

use super::errno;
use super::log::{Detail, Log};
use super::options::OnDamage;
use crate::text::Shown;

/// Numbers of the ioctls that are answered; those of this kernel's word size.
const GET_FLAGS: u32 = 0x8008_6601;
const GET_VERSION: u32 = 0x8008_7601;
const GET_VERSION_OLD: u32 = 0x8008_6603;
const GET_LABEL: u32 = 0x8100_9431;
const GET_XATTR_FLAGS: u32 = 0x801c_581f;
/// Longest volume label, in the room that the kernel gives it.
const LABEL_ROOM: usize = 256;

/// A volume, served.
pub struct Tree {
    volume: Volume,
    log: Log,
    statistics: Statistics,
    first_inode: u32,
    acl: bool,
    user_xattr: bool,
    on_damage: OnDamage,
    counts: Counts,
}

/// How to serve a volume.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Lists of access control are shown.
    pub acl: bool,
    /// Attributes of users are shown.
    pub user_xattr: bool,
    /// What happens on damage.
    pub on_damage: OnDamage,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    lookups: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    listed: AtomicU64,
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Tree {
    /// Serves a volume.
    ///
    /// # Errors
    /// Broken group descriptors.
    pub fn new(volume: Volume, log: Log, terms: Terms) -> platfs::Result<Self> {
        let statistics = statistics(&volume)?;
        let first_inode = volume.format().geometry.first_inode;
        let Terms { acl, user_xattr, on_damage } = terms;
        let counts = Counts::default();
        Ok(Tree { volume, log, statistics, first_inode, acl, user_xattr, on_damage, counts })
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What was done, on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { requests, lookups, reads, bytes, listed } = &self.counts;
        format!(
            "{} requests: {} lookups, {} names listed, {} reads of {} bytes",
            of(requests),
            of(lookups),
            of(listed),
            of(reads),
            of(bytes)
        )
    }

    /// Counts and tells a request, and turns its error into a number; damage is told in words too.
    fn answer<T>(&self, what: &str, node: u64, name: &[u8], done: Result<T, Failed>) -> fuse::Result<T> {
        add(&self.counts.requests, 1);
        let done = done.map_err(|failed| match failed {
            Failed::Errno(number) => number,
            Failed::Error(error) => {
                if errno::is_damage(&error) {
                    let name = if name.is_empty() { String::new() } else { format!(" `{}`", Shown(name)) };
                    self.log.complain(format!("{what} of inode {}{name}: {error}", inode_number(node)));
                    if self.on_damage == OnDamage::Stop {
                        self.log.complain("errors=panic: stopped");
                        std::process::abort();
                    }
                }
                errno::of(&error)
            }
        });
        if self.log.tells(Detail::Requests) {
            let outcome = done.as_ref().err().map_or(Cow::Borrowed("done"), |error| error.to_string().into());
            self.log.say(Detail::Requests, format!("{what} {node} {}: {outcome}", Shown(name)));
        }
        done
    }

    /// The inode of a node. Those that the volume keeps for itself are not for anybody to see.
    fn inode(&self, node: u64) -> Result<InodeNumber, Failed> {
        let number = u32::try_from(inode_number(node)).ok().and_then(InodeNumber::new);
        match number {
            Some(number) if number == InodeNumber::ROOT || number.get() >= self.first_inode => Ok(number),
            _ => Err(Failed::Errno(Errno::STALE)),
        }
    }

    fn attributes_of(&self, found: &Metadata) -> Attributes {
        Attributes {
            inode: u64::from(found.inode.get()),
            file_type: type_of(found.file_type),
            permissions: found.permissions,
            links: u32::from(found.links),
            uid: found.uid,
            gid: found.gid,
            device: found.device.unwrap_or_default(),
            size: found.size,
            sectors: found.sectors,
            block_size: self.statistics.block_size,
            access: time(found.times.access),
            modify: time(found.times.modify),
            change: time(found.times.change),
            birth: found.times.create.map(time),
        }
    }

    fn entry(&self, metadata: &Metadata) -> Entry {
        let number = u64::from(metadata.inode.get());
        let node = if metadata.inode == InodeNumber::ROOT { fuse::ROOT } else { number };
        Entry { node, generation: metadata.generation, attributes: self.attributes_of(metadata) }
    }

    /// What a name leads to; it must be an inode in use that names may lead to.
    fn named(&self, directory: InodeNumber, number: InodeNumber) -> Result<Metadata, Failed> {
        let broken = |problem: String| Err(Error::corrupt(Place::Directory(directory), problem).into());
        if number != InodeNumber::ROOT && number.get() < self.first_inode {
            return broken(format!("names inode {number}, which is reserved"));
        }
        let metadata = self.volume.metadata(number)?;
        if metadata.links == 0 {
            return broken(format!("names inode {number}, which is deleted"));
        }
        Ok(metadata)
    }

    fn find(&self, parent: u64, name: &[u8]) -> Result<Entry, Failed> {
        let directory = self.inode(parent)?;
        if name == b"." {
            // A handle from before: is the inode still there?
            let metadata = self.volume.metadata(directory).map_err(|_| Failed::Errno(Errno::STALE))?;
            return if metadata.links == 0 { Err(Errno::STALE.into()) } else { Ok(self.entry(&metadata)) };
        }
        let found = self.volume.lookup(directory, name)?;
        Ok(self.entry(&self.named(directory, found)?))
    }

    fn list_from(
        &self,
        node: u64,
        mut position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<(), Failed> {
        let directory = self.inode(node)?;
        let mut taken = 0;
        loop {
            let batch = match self.volume.read_dir_from(directory, position) {
                // What was taken is told first; the next call meets the damage again.
                Err(_) if taken > 0 => break,
                batch => batch?,
            };
            let Some((_, end)) = batch.last() else { break };
            position = *end;
            for (entry, next) in &batch {
                if entry.name.is_empty() || entry.name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                    // The kernel would refuse the whole listing.
                    self.log.complain(format!(
                        "directory inode {directory}: the name `{}` can't be shown",
                        Shown(&entry.name)
                    ));
                    continue;
                }
                let is_dots = matches!(&entry.name[..], b"." | b"..");
                let metadata = if is_dots || !with_entries && entry.file_type.is_some() {
                    None
                } else {
                    // A name whose inode is damaged is a name still; a look at it tells.
                    self.named(directory, entry.inode).ok()
                };
                let known = entry.file_type.or_else(|| metadata.as_ref().map(|found| found.file_type));
                let fallback = if is_dots { FileType::Directory } else { FileType::Regular };
                let listed = Listed {
                    name: &entry.name,
                    inode: u64::from(entry.inode.get()),
                    file_type: type_of(known.unwrap_or(fallback)),
                    next: *next,
                    entry: metadata.filter(|_| with_entries).map(|found| self.entry(&found)),
                };
                if !take(&listed) {
                    add(&self.counts.listed, taken);
                    return Ok(());
                }
                taken += 1;
            }
        }
        add(&self.counts.listed, taken);
        Ok(())
    }

    fn read_into(&self, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, Failed> {
        let number = self.inode(node)?;
        let file = self.volume.open_file(number)?;
        if file.flags().contains(InodeFlags::ENCRYPT) {
            return Err(Errno::NOKEY.into());
        }
        let count = file.read_at(offset, buffer)?;
        add(&self.counts.reads, 1);
        add(&self.counts.bytes, count as u64);
        Ok(count)
    }

    fn target(&self, node: u64) -> Result<Vec<u8>, Failed> {
        let number = self.inode(node)?;
        if self.volume.metadata(number)?.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Errno::NOKEY.into());
        }
        Ok(self.volume.read_link(number)?)
    }

    fn seek_to(&self, node: u64, offset: u64, what: Seek) -> Result<u64, Failed> {
        let what = match what {
            Seek::Data => platfs::Seek::Data,
            Seek::Hole => platfs::Seek::Hole,
        };
        self.volume.seek(self.inode(node)?, offset, what)?.ok_or(Failed::Errno(Errno::NXIO))
    }

    fn is_hidden(&self, name: &[u8]) -> bool {
        !self.acl && name.starts_with(b"system.posix_acl_") || !self.user_xattr && name.starts_with(b"user.")
    }

    fn attribute(&self, node: u64, name: &[u8]) -> Result<Vec<u8>, Failed> {
        let number = self.inode(node)?;
        let known = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
        if self.is_hidden(name) || !known.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.volume.xattr(number, name)?.ok_or(Failed::Errno(Errno::NODATA))
    }

    fn attribute_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Failed> {
        let mut names = self.volume.xattr_names(self.inode(node)?)?;
        names.retain(|name| !self.is_hidden(name) && (caller.uid == 0 || !name.starts_with(b"trusted.")));
        Ok(names)
    }

    fn answer_control(&self, node: u64, command: u32) -> Result<Vec<u8>, Failed> {
        let metadata = self.volume.metadata(self.inode(node)?)?;
        Ok(match command {
            GET_FLAGS => visible(metadata.flags).to_ne_bytes().to_vec(),
            GET_VERSION | GET_VERSION_OLD => metadata.generation.to_ne_bytes().to_vec(),
            GET_LABEL => {
                let mut label = self.volume.superblock().label().to_vec();
                label.resize(LABEL_ROOM, 0);
                label
            }
            GET_XATTR_FLAGS => {
                let words = [extended(metadata.flags), 0, 0, metadata.project, 0];
                words.iter().flat_map(|word| word.to_ne_bytes()).chain([0; 8]).collect()
            }
            _ => return Err(Errno::NOTTY.into()),
        })
    }
}

/// Why a request fails.
enum Failed {
    Errno(Errno),
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

impl From<Errno> for Failed {
    fn from(number: Errno) -> Self {
        Failed::Errno(number)
    }
}

fn inode_number(node: u64) -> u64 {
    if node == fuse::ROOT { u64::from(InodeNumber::ROOT.get()) } else { node }
}

fn type_of(file_type: FileType) -> fuse::FileType {
    match file_type {
        FileType::Regular => fuse::FileType::Regular,
        FileType::Directory => fuse::FileType::Directory,
        FileType::Symlink => fuse::FileType::Symlink,
        FileType::CharDevice => fuse::FileType::CharDevice,
        FileType::BlockDevice => fuse::FileType::BlockDevice,
        FileType::Fifo => fuse::FileType::Fifo,
        FileType::Socket => fuse::FileType::Socket,
    }
}

fn time(time: Timestamp) -> fuse::Time {
    fuse::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// The flags that Linux shows: all but those that are about the record itself.
fn visible(flags: InodeFlags) -> u32 {
    flags.bits() & 0x725B_DFFF
}

/// The flags in the words of `FS_IOC_FSGETXATTR`.
fn extended(flags: InodeFlags) -> u32 {
    let words = [
        (InodeFlags::IMMUTABLE, 0x8),
        (InodeFlags::APPEND, 0x10),
        (InodeFlags::SYNC, 0x20),
        (InodeFlags::NOATIME, 0x40),
        (InodeFlags::NODUMP, 0x80),
        (InodeFlags::PROJINHERIT, 0x200),
        (InodeFlags::DAX, 0x8000),
        (InodeFlags::VERITY, 0x2_0000),
    ];
    words.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, word)| word).sum()
}

/// What `statfs` shows, counted as Linux does: without what the format itself takes, and with a
/// reserve for conversions that Linux keeps of volumes with extents.
fn statistics(volume: &Volume) -> platfs::Result<Statistics> {
    let (format, raw) = (volume.format(), volume.superblock());
    let geometry = &format.geometry;
    let (mut free, mut free_inodes) = (0_u64, 0_u64);
    let descriptors = volume.space().descriptors();
    for group in (0..geometry.groups).map(Group) {
        let descriptor = descriptors.get(format, group)?;
        free += u64::from(descriptor.free_clusters());
        free_inodes += u64::from(descriptor.free_inodes());
    }
    let clusters = geometry.clusters();
    let reserve = if format.has_incompat(Incompat::EXTENTS) { (clusters / 50).min(4096) } else { 0 };
    let log2 = geometry.cluster_log2;
    let overhead = u64::from(raw.s_overhead_clusters.get());
    let overhead = if overhead > 0 { overhead << log2 } else { taken_by_format(volume) };
    let free = free.min(clusters) << log2;
    let kept = raw.reserved_blocks_count() + (reserve << log2);
    Ok(Statistics {
        block_size: geometry.block_size.bytes(),
        blocks: geometry.blocks.saturating_sub(overhead),
        free,
        available: free.saturating_sub(kept),
        inodes: u64::from(geometry.inodes()),
        free_inodes,
        name_max: 255,
    })
}

/// Blocks of superblocks, descriptors, bitmaps, tables and journal, where the superblock does not say.
fn taken_by_format(volume: &Volume) -> u64 {
    let (format, raw) = (volume.format(), volume.superblock());
    let geometry = &format.geometry;
    let copies = (0..geometry.groups).filter(|group| geometry.backups.has_superblock(Group(*group))).count();
    let meta_bg = format.has_incompat(Incompat::META_BG);
    let descriptors = if meta_bg {
        u64::from(geometry.descriptor_blocks()) * 3
    } else {
        let each = geometry.descriptor_blocks() + u32::from(geometry.reserved_descriptor_blocks);
        u64::from(each) * copies as u64
    };
    let tables = u64::from(geometry.groups) * (2 + u64::from(geometry.inode_table_blocks()));
    let journal = InodeNumber::new(raw.s_journal_inum.get())
        .filter(|_| format.features.compat.contains(ondisk::features::Compat::HAS_JOURNAL))
        .and_then(|inode| volume.metadata(inode).ok())
        .map_or(0, |metadata| geometry.block_size.blocks_for(metadata.size));
    u64::from(geometry.first_data_block) + copies as u64 + descriptors + tables + journal
}

impl Service for Tree {
    fn lookup(&self, parent: u64, name: &[u8]) -> fuse::Result<Entry> {
        add(&self.counts.lookups, 1);
        self.answer("lookup", parent, name, self.find(parent, name))
    }

    fn forget(&self, _node: u64, _times: u64) {}

    fn attributes(&self, node: u64) -> fuse::Result<Attributes> {
        let found = self.inode(node).and_then(|inode| Ok(self.volume.metadata(inode)?));
        self.answer("getattr", node, b"", found.map(|metadata| self.attributes_of(&metadata)))
    }

    fn read_link(&self, node: u64) -> fuse::Result<Vec<u8>> {
        self.answer("readlink", node, b"", self.target(node))
    }

    fn read(&self, node: u64, offset: u64, buffer: &mut [u8]) -> fuse::Result<usize> {
        self.answer("read", node, b"", self.read_into(node, offset, buffer))
    }

    fn list(
        &self,
        node: u64,
        position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> fuse::Result<()> {
        self.answer("readdir", node, b"", self.list_from(node, position, with_entries, take))
    }

    fn statistics(&self) -> fuse::Result<Statistics> {
        self.answer("statfs", fuse::ROOT, b"", Ok(self.statistics))
    }

    fn xattr(&self, node: u64, name: &[u8]) -> fuse::Result<Vec<u8>> {
        self.answer("getxattr", node, name, self.attribute(node, name))
    }

    fn xattr_names(&self, caller: Caller, node: u64) -> fuse::Result<Vec<Vec<u8>>> {
        self.answer("listxattr", node, b"", self.attribute_names(caller, node))
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> fuse::Result<u64> {
        self.answer("lseek", node, b"", self.seek_to(node, offset, what))
    }

    fn control(
        &self,
        _caller: Caller,
        node: u64,
        command: u32,
        _argument: &[u8],
        room: usize,
    ) -> fuse::Result<Vec<u8>> {
        let answer = self
            .answer_control(node, command)
            .and_then(|answer| if answer.len() <= room { Ok(answer) } else { Err(Errno::INVAL.into()) });
        self.answer("ioctl", node, b"", answer)
    }

    fn create(&self, _: Caller, _: u64, _: &[u8], _: &NewNode<'_>) -> fuse::Result<Entry> {
        Err(Errno::ROFS)
    }

    fn create_unnamed(&self, _: Caller, _: u64, _: &NewNode<'_>) -> fuse::Result<Entry> {
        Err(Errno::ROFS)
    }

    fn link(&self, _: u64, _: u64, _: &[u8]) -> fuse::Result<Entry> {
        Err(Errno::ROFS)
    }

    fn unlink(&self, _: u64, _: &[u8]) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn remove_directory(&self, _: u64, _: &[u8]) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn rename(&self, _: (u64, &[u8]), _: (u64, &[u8]), _: Replace) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn change(&self, _: Caller, _: u64, _: &Change) -> fuse::Result<Attributes> {
        Err(Errno::ROFS)
    }

    fn write(&self, _: u64, _: u64, _: &[u8], _: WriteFlags) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn allocate(&self, _: u64, _: u32, _: u64, _: u64) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn copy(&self, _: (u64, u64), _: (u64, u64), _: u64) -> fuse::Result<u64> {
        Err(Errno::ROFS)
    }

    fn sync(&self, _: u64, _: bool) -> fuse::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> fuse::Result<()> {
        Ok(())
    }

    fn set_xattr(&self, _: Caller, _: u64, _: &[u8], _: &[u8], _: u32) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }

    fn remove_xattr(&self, _: Caller, _: u64, _: &[u8]) -> fuse::Result<()> {
        Err(Errno::ROFS)
    }
}
