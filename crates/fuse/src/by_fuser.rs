//! The transport of the crate `fuser`: requests read from `/dev/fuse` by several threads.
//!
//! Bounds of that crate: in listings the number of a node and of its inode are one, so an inode that
//! can't be read loses its name there; creation times are not told.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Config, FileAttr, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request, SessionACL,
};
use rustix::io::Errno;

use crate::attach::Options;
use crate::service::{Attributes, Caller, Entry, FileType, Listed, Seek, Service, Time};

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
    let adapter = Adapter { service, acl: options.acl };
    // Who may ask is the kernel's to check.
    let session = fuser::Session::from_fd(adapter, connection, SessionACL::All, config)?;
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

fn reply_entry(reply: ReplyEntry, found: Result<Entry, Errno>) {
    match found {
        Ok(entry) => {
            let attr = attr(entry.node, &entry.attributes);
            reply.entry(&KEEP, &attr, Generation(u64::from(entry.generation)));
        }
        // That there is no such name is worth keeping too: node 0 says so.
        Err(Errno::NOENT) => reply.entry(&KEEP, &nothing(), Generation(0)),
        Err(error) => reply.error(errno(error)),
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
            | InitFlags::FUSE_ASYNC_DIO;
        if self.acl {
            wanted |= InitFlags::FUSE_POSIX_ACL;
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

    /// That opening is not implemented tells the kernel that it need not: files have no state beside
    /// their inode's.
    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(fuser::Errno::ENOSYS);
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
        reply_xattr(reply, size, self.service.xattr(node.0, name.as_bytes()));
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
            Ok(answer) => reply.ioctl(0, &answer),
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
}
