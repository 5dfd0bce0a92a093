//! Requests of the kernel.

use super::fields::Fields;
use super::init::Offer;
use super::{HEADER_LEN, Malformed};
use crate::service::{
    Access, Caller, Kind, NewNode, ReadFlags, Replace, Seek, SetAttr, SetTime, Time, WriteFlags, WritePos,
};

/// Numbers of operations.
mod operation {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const SYNCFS: u32 = 50;
    pub(super) const TMPFILE: u32 = 51;
    pub(super) const STATX: u32 = 52;
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Fields of an attribute change that count.
mod valid {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const CTIME: u32 = 1 << 10;
    pub(super) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Header of each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Bytes with the header.
    pub(crate) len: u32,
    /// Number of the operation.
    pub(crate) operation: u32,
    /// Names the request in its answer.
    pub(crate) unique: u64,
    /// Node that the request is about.
    pub(crate) node: u64,
    /// The caller.
    pub(crate) caller: Caller,
}

impl Header {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes.get(..HEADER_LEN).ok_or(Malformed)?);
        Ok(Header {
            len: fields.u32()?,
            operation: fields.u32()?,
            unique: fields.u64()?,
            node: fields.u64()?,
            caller: Caller { uid: fields.u32()?, gid: fields.u32()?, pid: fields.u32()? },
        })
    }
}

/// Arguments of a request, behind its header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// The operation's own fields apart from the names and bytes after them; `fixed` may be longer.
    Parted { fixed: &'a [u8], rest: &'a [u8] },
}

impl<'a> Body<'a> {
    /// The operation's own fields, `len` bytes, and what follows.
    fn split(self, len: usize) -> Result<(Fields<'a>, Fields<'a>), Malformed> {
        let (fixed, rest) = match self {
            Body::Whole(bytes) => bytes.split_at_checked(len).ok_or(Malformed)?,
            Body::Parted { fixed, rest } => (fixed.get(..len).ok_or(Malformed)?, rest),
        };
        Ok((Fields(fixed), Fields(rest)))
    }

    fn fixed(self, len: usize) -> Result<Fields<'a>, Malformed> {
        self.split(len).map(|(fixed, _)| fixed)
    }

    fn rest(self) -> Result<Fields<'a>, Malformed> {
        self.split(0).map(|(_, rest)| rest)
    }
}

/// Nodes that the kernel gives back, each with how many times.
#[derive(Clone, Debug)]
pub(crate) struct Forgets<'a> {
    fields: Fields<'a>,
    left: u32,
}

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((self.fields.u64().ok()?, self.fields.u64().ok()?))
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request<'a> {
    Init(Offer),
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    Forget {
        times: u64,
    },
    ForgetMany(Forgets<'a>),
    /// `writes`: a write is about to follow.
    Attributes {
        writes: bool,
    },
    AttributesWithBirth,
    SetAttr(SetAttr),
    ReadLink,
    /// A new node, with the name it gets.
    Create {
        name: &'a [u8],
        new: NewNode<'a>,
    },
    CreateUnnamed {
        new: NewNode<'a>,
    },
    /// A new regular file, which is open then.
    CreateOpen {
        name: &'a [u8],
        new: NewNode<'a>,
    },
    Open {
        access: Access,
    },
    OpenDirectory,
    /// Checks the caller's rights, by the bits of a mode's class.
    Rights {
        wanted: u16,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    /// `None`: in a way that is not known.
    Rename {
        name: &'a [u8],
        to: u64,
        new_name: &'a [u8],
        replace: Option<Replace>,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Read {
        offset: u64,
        size: u32,
        flags: ReadFlags,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        flags: WriteFlags,
    },
    Statistics,
    Sync {
        data_only: bool,
    },
    SyncAll,
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        drop_setgid: bool,
    },
    Xattr {
        name: &'a [u8],
        size: u32,
    },
    XattrNames {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    List {
        position: u64,
        size: u32,
        with_entries: bool,
    },
    /// `None`: one that the kernel should have done by itself.
    Seek {
        offset: u64,
        what: Option<Seek>,
    },
    Control {
        command: u32,
        argument: &'a [u8],
        room: u32,
        restricted: bool,
    },
    Allocate {
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// With `long`, the answer has 64 bits.
    Copy {
        offset: u64,
        to: WritePos,
        len: u64,
        long: bool,
    },
    /// `wrote`: a file that was open for writing.
    Release {
        wrote: bool,
    },
    Interrupt,
    /// One that is not served.
    Unknown,
}

impl<'a> Request<'a> {
    pub(crate) fn decode(operation: u32, body: Body<'a>) -> Result<Self, Malformed> {
        use self::operation as is;
        Ok(match operation {
            is::INIT => Request::Init(Offer::decode(body.rest()?)?),
            is::DESTROY => Request::Destroy,
            is::LOOKUP => Request::Lookup { name: body.rest()?.name()? },
            is::FORGET => Request::Forget { times: body.fixed(8)?.u64()? },
            is::BATCH_FORGET => forget_many(body)?,
            is::GETATTR => attributes(body.fixed(16)?)?,
            is::STATX => Request::AttributesWithBirth,
            is::SETATTR => Request::SetAttr(change(body.fixed(88)?)?),
            is::READLINK => Request::ReadLink,
            is::SYMLINK => symlink(body.rest()?)?,
            is::MKNOD => make_node(body)?,
            is::MKDIR => make_directory(body)?,
            is::TMPFILE => unnamed(body.fixed(16)?)?,
            is::UNLINK => Request::Unlink { name: body.rest()?.name()? },
            is::RMDIR => Request::RemoveDirectory { name: body.rest()?.name()? },
            is::RENAME => rename(body, false)?,
            is::RENAME2 => rename(body, true)?,
            is::LINK => link(body)?,
            is::OPEN => Request::Open { access: access(body.fixed(8)?.u32()?) },
            is::OPENDIR => Request::OpenDirectory,
            is::ACCESS => Request::Rights { wanted: rights(body.fixed(8)?.u32()?) },
            is::CREATE => create_open(body)?,
            is::READ => read(body.fixed(40)?)?,
            is::WRITE => write(body)?,
            is::STATFS => Request::Statistics,
            is::FSYNC | is::FSYNCDIR => sync(body.fixed(16)?)?,
            is::SYNCFS => Request::SyncAll,
            is::SETXATTR => set_xattr(body)?,
            is::GETXATTR => xattr(body)?,
            is::LISTXATTR => Request::XattrNames { size: body.fixed(8)?.u32()? },
            is::REMOVEXATTR => Request::RemoveXattr { name: body.rest()?.text()? },
            is::READDIR => list(body.fixed(40)?, false)?,
            is::READDIRPLUS => list(body.fixed(40)?, true)?,
            is::LSEEK => seek(body.fixed(24)?)?,
            is::IOCTL => control(body)?,
            is::FALLOCATE => allocate(body.fixed(32)?)?,
            is::COPY_FILE_RANGE => copy(body.fixed(56)?, false)?,
            is::COPY_FILE_RANGE_64 => copy(body.fixed(56)?, true)?,
            is::RELEASE => release(body.fixed(24)?)?,
            is::RELEASEDIR => Request::Release { wrote: false },
            is::INTERRUPT => Request::Interrupt,
            _ => Request::Unknown,
        })
    }
}

/// Returns true if the answer to an operation may be longer than attributes and names are.
pub(crate) fn may_answer_at_length(number: u32) -> bool {
    use self::operation as is;
    [is::READ, is::READDIR, is::READDIRPLUS, is::READLINK, is::GETXATTR, is::LISTXATTR, is::IOCTL]
        .contains(&number)
}

/// Returns true if an operation may wait for the device, for other requests or for much work.
pub(crate) fn may_take_long(number: u32) -> bool {
    use self::operation as is;
    [
        is::FSYNC,
        is::FSYNCDIR,
        is::SYNCFS,
        is::FALLOCATE,
        is::COPY_FILE_RANGE,
        is::LSEEK,
        is::IOCTL,
        is::STATFS,
    ]
    .contains(&number)
}

/// Returns true if an operation asks how much room there is.
pub(crate) fn is_about_room(number: u32) -> bool {
    number == operation::STATFS
}

fn forget_many(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, rest) = body.split(8)?;
    Ok(Request::ForgetMany(Forgets { fields: rest, left: fixed.u32()? }))
}

/// Nanoseconds over a second are none.
fn time(seconds: u64, nanoseconds: u32) -> Result<Time, Malformed> {
    if nanoseconds < 1_000_000_000 {
        Ok(Time { seconds: seconds.cast_signed(), nanoseconds })
    } else {
        Err(Malformed)
    }
}

/// The lower twelve bits of a mode.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777).try_into().unwrap_or_default()
}

/// The kernel asks by way of an open file (bit 0) before a write into its pages, and where attributes expire also before
/// it looks for the end of a file, to read there or to move to it.
fn attributes(mut fields: Fields<'_>) -> Result<Request<'static>, Malformed> {
    Ok(Request::Attributes { writes: fields.u32()? & 1 != 0 })
}

fn change(mut fields: Fields<'_>) -> Result<SetAttr, Malformed> {
    let set = fields.u32()?;
    fields.skip(4 + 8)?;
    let size = fields.u64()?;
    fields.skip(8)?;
    let seconds = [fields.u64()?, fields.u64()?, fields.u64()?];
    let nanoseconds = [fields.u32()?, fields.u32()?, fields.u32()?];
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let has = |bit: u32| set & bit != 0;
    let at =
        |index: usize| time(*seconds.get(index).ok_or(Malformed)?, *nanoseconds.get(index).ok_or(Malformed)?);
    let time_to_set = |index: usize, bit: u32, now: u32| match (has(now), has(bit)) {
        (true, _) => Ok(Some(SetTime::Now)),
        (false, true) => at(index).map(|time| Some(SetTime::To(time))),
        (false, false) => Ok(None),
    };
    Ok(SetAttr {
        permissions: has(valid::MODE).then(|| permissions(mode)),
        uid: has(valid::UID).then_some(uid),
        gid: has(valid::GID).then_some(gid),
        size: has(valid::SIZE).then_some(size),
        access: time_to_set(0, valid::ATIME, valid::ATIME_NOW)?,
        modify: time_to_set(1, valid::MTIME, valid::MTIME_NOW)?,
        change: if has(valid::CTIME) { Some(at(2)?) } else { None },
        // A new owner takes them without being asked to; the kernel says so for all else.
        drop_privileges: has(valid::KILL_SUIDGID | valid::UID | valid::GID),
        by_handle: has(valid::HANDLE),
    })
}

fn symlink(mut rest: Fields<'_>) -> Result<Request<'_>, Malformed> {
    let name = rest.name()?;
    let new = NewNode { kind: Kind::Symlink(rest.text()?), permissions: 0o777, umask: 0 };
    Ok(Request::Create { name, new })
}

/// The number of a device from the kernel's form of 32 bits: 12 of major between 8 and 12 of minor.
fn device(number: u32) -> (u32, u32) {
    (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00)
}

fn make_node(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(16)?;
    let (mode, number, umask) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
    let (major, minor) = device(number);
    let kind = match mode >> 12 {
        0o10 => Kind::Regular,
        0o2 => Kind::CharDevice(major, minor),
        0o6 => Kind::BlockDevice(major, minor),
        0o1 => Kind::Fifo,
        0o14 => Kind::Socket,
        _ => return Err(Malformed),
    };
    let new = NewNode { kind, permissions: permissions(mode), umask: permissions(umask) };
    Ok(Request::Create { name: rest.name()?, new })
}

fn make_directory(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(8)?;
    let (mode, umask) = (fixed.u32()?, fixed.u32()?);
    let new = NewNode { kind: Kind::Directory, permissions: permissions(mode), umask: permissions(umask) };
    Ok(Request::Create { name: rest.name()?, new })
}

fn unnamed(mut fields: Fields<'_>) -> Result<Request<'_>, Malformed> {
    fields.skip(4)?;
    let (mode, umask) = (fields.u32()?, fields.u32()?);
    let new = NewNode { kind: Kind::Regular, permissions: permissions(mode), umask: permissions(umask) };
    Ok(Request::CreateUnnamed { new })
}

/// How a file is opened, by the flags of open(2).
fn access(flags: u32) -> Access {
    const APPEND: u32 = 0o2000;
    const NO_ACCESS_TIME: u32 = 0o1_000_000;
    /// Set by the kernel alone, in a place that no flag of programs has.
    const EXECUTE: u32 = 0o40;
    let how = flags & 3;
    let execute = flags & EXECUTE != 0;
    Access {
        read: how != 1 && !execute,
        write: how != 0,
        append: flags & APPEND != 0,
        execute,
        keep_access_time: flags & NO_ACCESS_TIME != 0,
    }
}

fn release(mut fields: Fields<'_>) -> Result<Request<'static>, Malformed> {
    fields.skip(8)?;
    Ok(Request::Release { wrote: access(fields.u32()?).write })
}

/// The rights that access(2) asks for.
fn rights(mask: u32) -> u16 {
    (mask & 7).try_into().unwrap_or_default()
}

fn create_open(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(16)?;
    fixed.skip(4)?;
    let (mode, umask) = (fixed.u32()?, fixed.u32()?);
    let new = NewNode { kind: Kind::Regular, permissions: permissions(mode), umask: permissions(umask) };
    Ok(Request::CreateOpen { name: rest.name()?, new })
}

fn rename(body: Body<'_>, with_flags: bool) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(if with_flags { 16 } else { 8 })?;
    let to = fixed.u64()?;
    let replace = match if with_flags { fixed.u32()? } else { 0 } {
        0 => Some(Replace::Yes),
        1 => Some(Replace::No),
        2 => Some(Replace::Exchange),
        4 => Some(Replace::Whiteout),
        5 => Some(Replace::NoButWhiteout),
        _ => None,
    };
    Ok(Request::Rename { name: rest.name()?, to, new_name: rest.name()?, replace })
}

fn link(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(8)?;
    Ok(Request::Link { node: fixed.u64()?, name: rest.name()? })
}

fn read(mut fields: Fields<'_>) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    let (offset, size) = (fields.u64()?, fields.u32()?);
    fields.skip(4 + 8)?;
    let Access { keep_access_time, .. } = access(fields.u32()?);
    Ok(Request::Read { offset, size, flags: ReadFlags { keep_access_time } })
}

fn write(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(40)?;
    let (handle, offset) = (fixed.u64()?, fixed.u64()?);
    let (size, how) = (fixed.u32()?, fixed.u32()?);
    fixed.skip(8)?;
    let open_flags = fixed.u32()?;
    let cached = how & 1 != 0;
    let flags = WriteFlags {
        cached,
        drop_privileges: how & 4 != 0,
        // The file is open with O_SYNC or O_DSYNC. Writes from the kernel's pages carry the flags of any
        // of the open files, and are made stable by a request of their own.
        sync: !cached && open_flags & 0o10_000 != 0,
        handle,
    };
    Ok(Request::Write { offset, data: rest.bytes(size)?, flags })
}

fn sync(mut fields: Fields<'_>) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    Ok(Request::Sync { data_only: fields.u32()? & 1 != 0 })
}

fn set_xattr(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(16)?;
    let (size, flags, how) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
    let (name, value) = (rest.text()?, rest.bytes(size)?);
    Ok(Request::SetXattr { name, value, flags, drop_setgid: how & 1 != 0 })
}

fn xattr(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(8)?;
    Ok(Request::Xattr { size: fixed.u32()?, name: rest.text()? })
}

fn list(mut fields: Fields<'_>, with_entries: bool) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    Ok(Request::List { position: fields.u64()?, size: fields.u32()?, with_entries })
}

fn seek(mut fields: Fields<'_>) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    let offset = fields.u64()?;
    let what = match fields.u32()? {
        3 => Some(Seek::Data),
        4 => Some(Seek::Hole),
        _ => None,
    };
    Ok(Request::Seek { offset, what })
}

fn control(body: Body<'_>) -> Result<Request<'_>, Malformed> {
    let (mut fixed, mut rest) = body.split(32)?;
    fixed.skip(8)?;
    let (flags, command) = (fixed.u32()?, fixed.u32()?);
    fixed.skip(8)?;
    let (size, room) = (fixed.u32()?, fixed.u32()?);
    // Those of other word sizes and those that would look into the caller's memory are not served.
    let restricted = flags & (1 | 1 << 1) == 0;
    Ok(Request::Control { command, argument: rest.bytes(size)?, room, restricted })
}

fn allocate(mut fields: Fields<'_>) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    let (offset, len) = (fields.u64()?, fields.u64()?);
    Ok(Request::Allocate { mode: fields.u32()?, offset, len })
}

fn copy(mut fields: Fields<'_>, long: bool) -> Result<Request<'_>, Malformed> {
    fields.skip(8)?;
    let (offset, node) = (fields.u64()?, fields.u64()?);
    let (handle, to) = (fields.u64()?, fields.u64()?);
    let to = WritePos { node, offset: to, handle };
    Ok(Request::Copy { offset, to, len: fields.u64()?, long })
}
