//! Interface of a file system that a transport serves.

use std::ops::Range;

use rustix::io::Errno;

/// An answer, or the number of an error as programs see it.
pub type Result<T> = std::result::Result<T, Errno>;

/// The node of the root directory; every other number is the service's own choice.
pub const ROOT: u64 = 1;

/// Where the capabilities of a program stand.
const CAPABILITIES: &[u8] = b"security.capability";

/// Returns true if a request for an attribute, with `room` bytes for its value, is the one that the kernel makes before it
/// takes a write. [`Service::has_capabilities`] answers it.
pub(crate) fn is_before_write(name: &[u8], room: u32) -> bool {
    name == CAPABILITIES && room == 0
}

/// The program that makes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, 0 where the kernel asks for itself.
    pub pid: u32,
}

/// Type of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// A point in time: seconds since 1970, and nanoseconds onward from there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below a thousand million.
    pub nanoseconds: u32,
}

/// Attributes of a node, as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Inode number as programs see it.
    pub inode: u64,
    /// Type.
    pub file_type: FileType,
    /// The lower twelve mode bits.
    pub permissions: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device as (major, minor); zeros for all else.
    pub device: (u32, u32),
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub sectors: u64,
    /// Bytes that are best read and written at once.
    pub block_size: u32,
    /// Last access.
    pub access: Time,
    /// Last change of the contents.
    pub modify: Time,
    /// Last change of the inode.
    pub change: Time,
    /// Creation, where it is known.
    pub birth: Option<Time>,
}

/// A node that the kernel gets to know by a name. Each one it is given it gives back by
/// [`Service::forget`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The node: what the kernel calls it from now on.
    pub node: u64,
    /// Distinguishes uses of the same node, for handles that outlive the kernel's memory.
    pub generation: u32,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A name in a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Inode number as programs see it.
    pub inode: u64,
    /// Type.
    pub file_type: FileType,
    /// The position after it: a listing from there goes on with the next name. Never 0.
    pub next: u64,
    /// The node, where it was asked for and is known.
    pub entry: Option<Entry>,
}

/// Totals of a file system, as `statfs` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Blocks that are free for everybody.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
    /// Longest name.
    pub name_max: u32,
}

/// Goal of a search from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte of data.
    Data,
    /// The next byte of a hole; the end of a file counts as one.
    Hole,
}

/// Type of a new node, with its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'a> {
    /// Regular file.
    Regular,
    /// Directory.
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

/// A new node, as the program says that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNode<'a> {
    /// Type of the node.
    pub kind: Kind<'a>,
    /// The lower twelve mode bits, the mask not yet applied.
    pub permissions: u16,
    /// Mode bits that the program's files never get where its directory has no default list.
    pub umask: u16,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Now.
    Now,
    /// This one.
    To(Time),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// The lower twelve mode bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub access: Option<SetTime>,
    /// Last change of the contents.
    pub modify: Option<SetTime>,
    /// Last change of the inode, which only a kernel that keeps the times itself sends.
    pub change: Option<Time>,
    /// Set-user-id and set-group-id bits and capabilities go, as the rules for changed files say.
    pub drop_privileges: bool,
    /// It is done with an open file: whether that may be was decided when it was opened.
    pub by_handle: bool,
}

/// How bytes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// They come from the kernel's pages: times are the kernel's concern.
    pub cached: bool,
    /// Set-user-id and set-group-id bits and capabilities go.
    pub drop_privileges: bool,
    /// They must be stable when it returns.
    pub sync: bool,
    /// Handle that [`Service::open`] gave for the open file. Bytes from the kernel's pages carry that of any of the files that
    /// are open for writing.
    pub handle: u64,
}

/// How bytes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadFlags {
    /// The time of access stays (`O_NOATIME`).
    pub keep_access_time: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Writes go to the end.
    pub append: bool,
    /// To be run as a program.
    pub execute: bool,
    /// Reading leaves the time of access (`O_NOATIME`).
    pub keep_access_time: bool,
}

/// Validity of the attributes that the kernel has of a node, after a verb whose answer does not carry them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cached {
    /// They stay valid, except times, size and space.
    #[default]
    Valid,
    /// Too little: it has to ask before it uses them again.
    Stale,
}

/// A file that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Validity of the kernel's attributes. With [`Cached::Stale`], [`Service::before_write`] is asked before the next
    /// write.
    pub known: Cached,
    /// A number of the service's own choice, which comes back with what is written through this open file. Files that are
    /// made and opened at once have 0.
    pub handle: u64,
}

/// A place in a file that is open for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePos {
    /// The node.
    pub node: u64,
    /// Where the bytes go.
    pub offset: u64,
    /// Handle that [`Service::open`] gave for the open file.
    pub handle: u64,
}

/// Treatment of an entry that has the new name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// It goes.
    Yes,
    /// The rename fails.
    No,
    /// Both change places.
    Exchange,
    /// It goes, and the old name comes to mean a whiteout.
    Whiteout,
    /// The rename fails, else the old name comes to mean a whiteout.
    NoButWhiteout,
}

/// Has the kernel hand over what it holds of a range of a file.
pub type FlushPages<'a> = &'a dyn Fn(Range<u64>) -> Result<()>;

/// A file system, asked from many threads at once.
///
/// The kernel checks permissions by the modes and access control lists it is shown, and the service need
/// not, unless [`Options::own_permissions`](crate::Options::own_permissions) leaves that to it. Nodes stay valid until the kernel has forgotten them as often as it was given them.
#[expect(clippy::missing_errors_doc, reason = "every verb gives the errors that Linux documents for it")]
pub trait Service: Send + Sync {
    /// Hears who asks, on the thread that then asks one of the others.
    fn begin(&self, caller: Caller) {
        let _ = caller;
    }

    /// The node behind a name; `.` and `..` are asked for too, by way of handles.
    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry>;

    /// The kernel gives back a node that it was given `times` times.
    fn forget(&self, node: u64, times: u64);

    /// Returns the attributes of a node.
    fn attributes(&self, node: u64) -> Result<Attributes>;

    /// A program may be about to write to a node, by way of an open file, and the kernel must ask first: where it may not
    /// keep the attributes ([`Service::keeps_attributes`]), after [`Cached::Stale`], and after a failed write of bytes from
    /// its pages. The error is that of the program's `write`. Where attributes are not kept, the kernel asks so before
    /// some reads too.
    fn before_write(&self, caller: Caller, node: u64) -> Result<()> {
        let _ = (caller, node);
        Ok(())
    }

    /// Returns true if the kernel may keep the attributes of a node that it hears of. Where not, it asks for them each time, and
    /// before each write that it takes into its pages.
    fn keeps_attributes(&self, node: u64) -> bool {
        let _ = node;
        true
    }

    /// An open file of a node is closed for good; `wrote` if it was open for writing.
    fn closed(&self, node: u64, wrote: bool) {
        let _ = (node, wrote);
    }

    /// A file is opened. `NOSYS` makes the kernel open all files by itself from now on: a service that never refuses should
    /// return it.
    fn open(&self, node: u64, access: Access) -> Result<Opened> {
        let _ = (node, access);
        Err(Errno::NOSYS)
    }

    /// A directory is opened to be read. `NOSYS` as for [`Service::open`].
    fn open_directory(&self, node: u64) -> Result<()> {
        let _ = node;
        Err(Errno::NOSYS)
    }

    /// Checks that the caller has the rights `wanted` (read 4, write 2, execute 1), as access(2) asks. After `NOSYS` the
    /// kernel says yes to all. It asks only where it does not check permissions itself.
    fn rights(&self, caller: Caller, node: u64, wanted: u16) -> Result<()> {
        let _ = (caller, node, wanted);
        Err(Errno::NOSYS)
    }

    /// Returns true if the kernel may keep the names that it hears of in a directory, and that there are none. Where not, it
    /// asks each time.
    fn keeps_names(&self, parent: u64) -> bool {
        let _ = parent;
        true
    }

    /// Returns true if a node is there for a moment only, so that the kernel may not keep its name.
    fn is_passing(&self, node: u64) -> bool {
        let _ = node;
        false
    }

    /// Makes a regular file, names it and opens it. `NOSYS` has the kernel use [`Service::create`] and then
    /// [`Service::open`], from now on.
    fn create_open(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let _ = (caller, parent, name, new);
        Err(Errno::NOSYS)
    }

    /// Target of a symbolic link.
    fn read_link(&self, node: u64) -> Result<Vec<u8>>;

    /// Reads at an offset; returns how many bytes, fewer than asked only at the end of file.
    fn read(&self, node: u64, offset: u64, buffer: &mut [u8], flags: ReadFlags) -> Result<usize>;

    /// Hands out the names of a directory from a position on (0 is the first), until `take` says
    /// `false` (it then did not take that name) or there are no more.
    fn list(
        &self,
        node: u64,
        position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()>;

    /// The room there is.
    fn statistics(&self, node: u64) -> Result<Statistics>;

    /// Value of an extended attribute by its full name.
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>>;

    /// Returns the size of the capabilities that running a node may lend, as far as a write to it is concerned: the kernel asks before
    /// each that it takes into its pages, and if they are there has them removed by
    /// [`Service::remove_xattr`], whose failure is that of the write.
    fn has_capabilities(&self, node: u64, attribute: &[u8]) -> Result<usize> {
        self.xattr(node, attribute).map(|value| value.len())
    }

    /// Full names of the extended attributes that the caller may see.
    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>>;

    /// The next byte of data or of a hole from an offset on. `flush_pages` has the kernel hand over what is dirty in its
    /// pages of a range, by [`Service::write`] on other threads, before it returns; so no lock may be held that these
    /// need. Clean pages of the range leave the kernel's cache. It is missing where no other thread would serve that.
    fn seek(&self, node: u64, offset: u64, what: Seek, flush_pages: Option<FlushPages<'_>>) -> Result<u64>;

    /// An `ioctl` by its number and argument; its answer fills at most `room` bytes.
    fn control(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        argument: &[u8],
        room: usize,
    ) -> Result<Vec<u8>>;

    /// Makes a node and names it.
    fn create(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry>;

    /// Makes a regular file without a name.
    fn create_unnamed(&self, caller: Caller, parent: u64, new: &NewNode<'_>) -> Result<Entry>;

    /// Gives a node another name.
    fn link(&self, caller: Caller, node: u64, parent: u64, name: &[u8]) -> Result<Entry>;

    /// Takes a name that is no directory's.
    fn unlink(&self, parent: u64, name: &[u8]) -> Result<()>;

    /// Takes an empty directory.
    fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<()>;

    /// Gives what has one name another one.
    fn rename(&self, caller: Caller, from: (u64, &[u8]), to: (u64, &[u8]), replace: Replace) -> Result<()>;

    /// Changes attributes; what they are then. With [`Cached::Stale`], [`Service::before_write`] is asked before the
    /// next write.
    fn change(&self, caller: Caller, node: u64, change: &SetAttr) -> Result<(Attributes, Cached)>;

    /// Writes all bytes at an offset.
    fn write(&self, node: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Cached>;

    /// Changes the space of a range, by the mode bits of `fallocate`.
    fn allocate(&self, caller: Caller, node: u64, mode: u32, range: (u64, u64)) -> Result<Cached>;

    /// Copies bytes from one file to another, or within one; how many, at least one unless the end is met,
    /// and what is known of the second.
    fn copy(&self, caller: Caller, from: (u64, u64), to: WritePos, len: u64) -> Result<(u64, Cached)>;

    /// Makes a file or a directory stable; `data_only` leaves out what is not needed to read it again.
    fn sync(&self, node: u64, data_only: bool) -> Result<Cached>;

    /// Makes all of it stable.
    fn sync_all(&self) -> Result<()>;

    /// Sets an extended attribute by its full name; `flags` are those of `setxattr`.
    fn set_xattr(&self, caller: Caller, node: u64, name: &[u8], value: &[u8], flags: u32) -> Result<()>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<()>;
}
