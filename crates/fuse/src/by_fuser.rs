//! The transport of the crate `fuser`: requests read from `/dev/fuse` by several threads.
//!
//! Bounds of that crate: in listings the number of a node and of its inode are one, so an inode that
//! can't be read loses its name there; creation times are not told; there are no files without a name
//! (`O_TMPFILE`); that a program may not keep special bits when it cuts a file is guessed by its user.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Config, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::attach::Options;
use crate::dispatch::BRINGS_ARGUMENT;
use crate::service::{
    Access, Attributes, Caller, Change, Entry, FileType, Kind, Known, Listed, NewNode, Replace, Seek,
    Service, SetTime, Time, WriteFlags, is_before_write,
};

/// How long the kernel may keep what it was told. Nobody else changes what is served, and each change
/// goes through the kernel: for ever, in the largest round number that no kernel turns into less.
const KEEP: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Most bytes of one read or write, the kernel's own limit without privileges.
const REQUEST_MAX: u32 = 1 << 20;
/// Reads that the kernel keeps under way for one reader. Read-ahead of 1 MiB pieces needs no more.
const BACKGROUND: u16 = 64;

/// Threads that serve.
pub(crate) struct Serving(std::thread::JoinHandle<io::Result<()>>);

/// Serves what is mounted at the other end of the connection, from threads of its own.
pub(crate) fn serve(
    service: Arc<dyn Service>,
    connection: OwnedFd,
    options: &Options,
) -> io::Result<Serving> {
    let mut config = Config::default();
    config.n_threads = Some(options.threads.max(1));
    let notifier = Arc::new(OnceLock::new());
    let told = Arc::clone(&notifier);
    let adapter = Adapter { service, acl: options.acl, writeback: options.writeback, notifier };
    // Who may ask is the kernel's to check.
    let session = fuser::Session::from_fd(adapter, connection, SessionACL::All, config)?;
    let _ = told.set(session.notifier());
    std::thread::Builder::new().name("serving".into()).spawn(move || session.run()).map(Serving)
}

impl Serving {
    pub(crate) fn wait(self) -> io::Result<()> {
        self.0.join().map_err(|_panic| io::Error::other("a serving thread panicked"))?
    }
}

struct Adapter {
    service: Arc<dyn Service>,
    acl: bool,
    writeback: bool,
    notifier: Arc<OnceLock<fuser::Notifier>>,
}

impl Adapter {
    /// Has the kernel ask for attributes again, where what it knows is too little. It knows no such node any
    /// more when that fails.
    fn tell(&self, node: INodeNo, known: Known) {
        if known == Known::Stale
            && let Some(notifier) = self.notifier.get()
        {
            let _ = notifier.inval_inode(node, -1, 0);
        }
    }
}

thread_local! {
    /// What this thread reads into.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let base = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    let base = base.unwrap_or(SystemTime::UNIX_EPOCH);
    base.checked_add(Duration::from_nanos(u64::from(time.nanoseconds))).unwrap_or(base)
}

/// The other way round. The kernel counts nanoseconds onward in time from the second, `fuser` 0.18 takes
/// those before 1970 the other way: what it made of them is undone.
fn from_time(time: SystemTime) -> Time {
    let whole = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: whole(since.as_secs()), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { seconds: -whole(before.as_secs()), nanoseconds: before.subsec_nanos() }
        }
    }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(from_time(time)),
    }
}

/// The lower twelve mode bits.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

/// What a mode says a new node is to be.
fn new_kind(mode: u32, device: u32) -> Option<Kind<'static>> {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => Kind::Regular,
        0o020_000 => Kind::CharDevice(major, minor),
        0o060_000 => Kind::BlockDevice(major, minor),
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        _ => return None,
    })
}

fn reply_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// The number of a device in the kernel's form of 32 bits: 12 of major between 8 and 12 of minor.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn attr(node: u64, of: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: of.size,
        blocks: of.sectors,
        atime: time(of.access),
        mtime: time(of.modify),
        ctime: time(of.change),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(of.file_type),
        perm: of.permissions,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: device(of.device),
        blksize: of.block_size,
        flags: 0,
    }
}

fn reply_new(reply: ReplyEntry, made: Result<Entry, Errno>) {
    match made {
        Ok(entry) => {
            let attr = attr(entry.node, &entry.attributes);
            reply.entry(&KEEP, &attr, Generation(u64::from(entry.generation)));
        }
        Err(error) => reply.error(errno(error)),
    }
}

fn reply_entry(reply: ReplyEntry, found: Result<Entry, Errno>) {
    match found {
        // That there is no such name is worth keeping too: node 0 says so.
        Err(Errno::NOENT) => reply.entry(&KEEP, &nothing(), Generation(0)),
        found => reply_new(reply, found),
    }
}

fn nothing() -> FileAttr {
    let zero = Time::default();
    let attributes = Attributes {
        inode: 0,
        file_type: FileType::Regular,
        permissions: 0,
        links: 0,
        uid: 0,
        gid: 0,
        device: (0, 0),
        size: 0,
        sectors: 0,
        block_size: 0,
        access: zero,
        modify: zero,
        change: zero,
        birth: None,
    };
    attr(0, &attributes)
}

fn reply_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(errno(Errno::RANGE)),
        },
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DONT_MASK;
        if self.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // What the kernel does not know is left out: each of these only saves requests, but for lists
        // of access control, without which it decides by the mode alone.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.service.lookup(parent.0, name.as_bytes()));
    }

    fn forget(&self, _request: &Request, node: INodeNo, times: u64) {
        self.service.forget(node.0, times);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.service.attributes(node.0) {
            Ok(attributes) => reply.attr(&KEEP, &attr(attributes.inode, &attributes)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.service.read_link(node.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let access = Access {
            write: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            append: flags.contains(OFlags::APPEND),
        };
        match self.service.open(node.0, access) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let Some(part) = buffer.get_mut(..size) else { return reply.error(fuser::Errno::ENOMEM) };
            match self.service.read(node.0, offset, part) {
                Ok(count) => reply.data(part.get(..count).unwrap_or_default()),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut take = |listed: &Listed<'_>| {
            let name = OsStr::from_bytes(listed.name);
            !reply.add(INodeNo(listed.inode), listed.next, kind(listed.file_type), name)
        };
        match self.service.list(node.0, offset, false, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut take = |listed: &Listed<'_>| {
            let name = OsStr::from_bytes(listed.name);
            let (attr, generation) = match &listed.entry {
                Some(entry) => (attr(entry.node, &entry.attributes), entry.generation),
                None => (FileAttr { kind: kind(listed.file_type), ..nothing() }, 0),
            };
            let generation = Generation(u64::from(generation));
            !reply.add(attr.ino, listed.next, name, &KEEP, &attr, generation)
        };
        match self.service.list(node.0, offset, true, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match self.service.statistics() {
            Ok(room) => reply.statfs(
                room.blocks,
                room.free,
                room.available,
                room.inodes,
                room.free_inodes,
                room.block_size,
                room.name_max,
                room.block_size,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getxattr(&self, _request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        if !is_before_write(name, size) {
            return reply_xattr(reply, size, self.service.xattr(node.0, name));
        }
        match self.service.has_capabilities(node.0, name) {
            Ok(len) => reply.size(u32::try_from(len).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.service.xattr_names(caller(request), node.0);
        let list =
            names.map(|names| names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect());
        reply_xattr(reply, size, list);
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        argument: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        match self.service.control(caller(request), node.0, command, argument, room) {
            Ok(answer) => {
                let changes = command & BRINGS_ARGUMENT != 0;
                self.tell(node, if changes { Known::Stale } else { Known::Still });
                reply.ioctl(0, &answer);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel does the other kinds by itself.
        let what = match whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(fuser::Errno::ENXIO) };
        match self.service.seek(node.0, offset, what).map(i64::try_from) {
            Ok(Ok(found)) => reply.offset(found),
            Ok(Err(_)) => reply.error(fuser::Errno::EOVERFLOW),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = new_kind(mode, device) else { return reply.error(fuser::Errno::EINVAL) };
        let new = NewNode { kind, permissions: permissions(mode), umask: permissions(umask) };
        reply_new(reply, self.service.create(caller(request), parent.0, name.as_bytes(), &new));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new =
            NewNode { kind: Kind::Directory, permissions: permissions(mode), umask: permissions(umask) };
        reply_new(reply, self.service.create(caller(request), parent.0, name.as_bytes(), &new));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let new = NewNode { kind: Kind::Symlink(target), permissions: 0o777, umask: 0 };
        reply_new(reply, self.service.create(caller(request), parent.0, name.as_bytes(), &new));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = NewNode { kind: Kind::Regular, permissions: permissions(mode), umask: permissions(umask) };
        match self.service.create_open(caller(request), parent.0, name.as_bytes(), &new) {
            Ok(entry) => {
                let attr = attr(entry.node, &entry.attributes);
                let generation = Generation(u64::from(entry.generation));
                reply.created(&KEEP, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_new(reply, self.service.link(node.0, parent.0, name.as_bytes()));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.service.unlink(parent.0, name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.service.remove_directory(parent.0, name.as_bytes()));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let no_but_whiteout = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_WHITEOUT;
        let replace = match flags {
            RenameFlags::RENAME_NOREPLACE => Replace::No,
            RenameFlags::RENAME_EXCHANGE => Replace::Exchange,
            RenameFlags::RENAME_WHITEOUT => Replace::Whiteout,
            flags if flags == no_but_whiteout => Replace::NoButWhiteout,
            flags if flags.is_empty() => Replace::Yes,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        reply_empty(reply, self.service.rename(caller(request), from, to, replace));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        access: Option<TimeOrNow>,
        modify: Option<TimeOrNow>,
        change: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change {
            permissions: mode.map(permissions),
            uid,
            gid,
            size,
            access: access.map(set_time),
            modify: modify.map(set_time),
            change: change.map(from_time),
            drop_privileges: size.is_some() && request.uid() != 0,
        };
        match self.service.change(caller(request), node.0, &change) {
            Ok(attributes) => reply.attr(&KEEP, &attr(attributes.inode, &attributes)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let open = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let flags = WriteFlags {
            cached: write_flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
            drop_privileges: write_flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            sync: open.intersects(OFlags::DSYNC | OFlags::SYNC),
        };
        match (self.service.write(node.0, offset, data, flags), u32::try_from(data.len())) {
            (Ok(known), Ok(len)) => {
                self.tell(node, known);
                reply.written(len);
            }
            (Ok(_), Err(_)) => reply.error(fuser::Errno::EINVAL),
            (Err(error), _) => reply.error(errno(error)),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.service.sync(node.0, data_only));
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.service.sync(node.0, data_only));
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.service.allocate(caller(request), node.0, mode.cast_unsigned(), (offset, len));
        reply_empty(reply, done.map(|known| self.tell(node, known)));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // What is copied is told in 32 bits.
        let len = len.min(u64::from(u32::MAX));
        match self.service.copy(caller(request), (from.0, from_offset), (to.0, to_offset), len) {
            Ok((copied, known)) => {
                self.tell(to, known);
                reply.written(u32::try_from(copied).unwrap_or(u32::MAX));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = flags.cast_unsigned();
        let done = self.service.set_xattr(caller(request), node.0, name.as_bytes(), value, flags);
        reply_empty(reply, done);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.service.remove_xattr(caller(request), node.0, name.as_bytes()));
    }
}
