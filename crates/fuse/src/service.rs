//! What a transport asks of the file system behind it.

use rustix::io::Errno;

/// An answer, or the number of an error as programs see it.
pub type Result<T> = std::result::Result<T, Errno>;

/// The node of the root directory; every other number is the service's own choice.
pub const ROOT: u64 = 1;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, 0 where the kernel asks for itself.
    pub pid: u32,
}

/// What an inode is.
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

/// What `stat` shows.
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
}

/// A node that the kernel gets to know by a name. Each one it is given it gives back by
/// [`Service::forget`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The node: what the kernel calls it from now on.
    pub node: u64,
    /// Tells uses of the same node apart, for handles that outlive the kernel's memory.
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
    /// The position behind it: a listing from there on goes on with the next name. Never 0.
    pub next: u64,
    /// The node, where it was asked for and is known.
    pub entry: Option<Entry>,
}

/// What `statfs` shows.
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

/// What to look for from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte of data.
    Data,
    /// The next byte of a hole; the end of a file counts as one.
    Hole,
}

/// A file system, asked from many threads at once.
///
/// The kernel checks permissions by the modes and access control lists it is shown; the service need
/// not. Nodes stay valid until the kernel has forgotten them as often as it was given them.
#[expect(clippy::missing_errors_doc, reason = "every verb gives the errors that Linux documents for it")]
pub trait Service: Send + Sync {
    /// The node behind a name; `.` and `..` are asked for too, by way of handles.
    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry>;

    /// The kernel gives back a node that it was given `times` times.
    fn forget(&self, node: u64, times: u64);

    /// What `stat` shows of a node.
    fn attributes(&self, node: u64) -> Result<Attributes>;

    /// Target of a symbolic link.
    fn read_link(&self, node: u64) -> Result<Vec<u8>>;

    /// Reads at an offset; returns how many bytes, fewer than asked only at the end of file.
    fn read(&self, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize>;

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
    fn statistics(&self) -> Result<Statistics>;

    /// Value of an extended attribute by its full name.
    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>>;

    /// Full names of the extended attributes that the caller may see.
    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>>;

    /// The next byte of data or of a hole from an offset on.
    fn seek(&self, node: u64, offset: u64, what: Seek) -> Result<u64>;

    /// An `ioctl` by its number and argument; its answer fills at most `room` bytes.
    fn control(&self, node: u64, command: u32, argument: &[u8], room: usize) -> Result<Vec<u8>>;
}
