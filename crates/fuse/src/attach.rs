//! Attaching a file system to a directory and detaching it: by mount(2) where that is allowed, else
//! by fusermount3, which is allowed to do it for everybody.

#![expect(
    clippy::disallowed_methods,
    reason = "the place of a mount has no other name than its path, and the device has one"
)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// The program that mounts for users without privileges.
const FUSERMOUNT: &str = "fusermount3";

/// How requests come from the kernel and answers go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// The best one that works here.
    #[default]
    Auto,
    /// `/dev/fuse`.
    Device,
    /// io_uring; where it can't be had, as `Device`.
    Ring,
}

/// Rule by which serving threads give way to the programs they answer (`SCHED_IDLE`), so that the kernel leaves
/// these on their processors. Nothing changes where the process may not take it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GiveWay {
    /// While processors are idle, where processors share a cache.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Whenever requests come close together, until a thread has to wait. For measuring.
    Always,
}

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Source of the mount, as `findmnt` shows it.
    pub source: String,
    /// Kind of file system, as `findmnt` shows it after `fuse.`.
    pub subtype: String,
    /// Nothing can be written.
    pub read_only: bool,
    /// Other users than the one who mounts may look.
    pub allow_other: bool,
    /// Set-user-id bits and file capabilities count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// POSIX access control lists are honoured.
    pub acl: bool,
    /// The service checks permissions, and the kernel asks it. Only for mounts without `allow_other`: names that the
    /// kernel has cached are passed without a question.
    pub own_permissions: bool,
    /// The kernel collects writes in its pages, and keeps size and times of what it has written to.
    pub writeback: bool,
    /// Nanoseconds that times are kept to: a power of ten, up to a second.
    pub time_unit: u32,
    /// How requests come and answers go.
    pub transport: Transport,
    /// Rule by which the threads give way.
    pub give_way: GiveWay,
    /// Threads that serve requests.
    pub threads: usize,
}

/// Has statx ask a file's server (`AT_STATX_FORCE_SYNC`, linux/fcntl.h; the crate has no name for it where the C library is
/// musl).
const ASKED: AtFlags = AtFlags::from_bits_retain(0x2000);

/// The directory to mount on, as an absolute path without symbolic links.
///
/// # Errors
/// It does not exist, or is no directory; `ENOTCONN` for a mount whose server is gone.
pub fn mount_point(directory: &Path) -> io::Result<PathBuf> {
    let path = fs::canonicalize(directory)?;
    // A server that is gone may have left attributes in the kernel: they are asked for again.
    let facts = statx(CWD, &path, ASKED, StatxFlags::TYPE)?;
    match FileType::from_raw_mode(facts.stx_mode.into()) {
        FileType::Directory => Ok(path),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Changes the tree of mounts for a session. A process that may not do so itself has another do it.
pub trait Mounter: Send + Sync {
    /// Mounts on a directory, and returns the connection to the kernel.
    ///
    /// # Errors
    /// The message of the kernel or of fusermount3.
    fn mount(&self, directory: &Path, options: &Options) -> io::Result<OwnedFd>;

    /// As [`unmount`].
    ///
    /// # Errors
    /// It is in use, or not ours to unmount.
    fn unmount(&self, directory: &Path, lazy: bool) -> io::Result<()>;
}

/// This process does it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Mounter for InProcess {
    fn mount(&self, directory: &Path, options: &Options) -> io::Result<OwnedFd> {
        mount(directory, options)
    }

    fn unmount(&self, directory: &Path, lazy: bool) -> io::Result<()> {
        unmount(directory, lazy)
    }
}

/// Mounts on a directory and returns the connection to the kernel.
fn mount(directory: &Path, options: &Options) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| {
        io::Error::new(error.kind(), format!("/dev/fuse: {error}{}", remedy(error.kind())))
    })?;
    match by_system_call(&device, directory, options) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM) => by_fusermount(directory, options),
        Err(error) => Err(error.into()),
    }
}

/// The remedy where the device of FUSE can't be opened.
fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => {
            " (as root, `modprobe fuse` loads its module; `plat ls`, `plat get` and `plat put` need no mount)"
        }
        io::ErrorKind::PermissionDenied => {
            " (it is usually open to all users: root can install fuse3, or `chmod 666 /dev/fuse`)"
        }
        _ => "",
    }
}

fn by_system_call(device: &File, directory: &Path, options: &Options) -> Result<(), Errno> {
    let root_mode = fs::metadata(directory).map_err(|_| Errno::NOENT)?.mode() & 0o170_000;
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let mut data =
        format!("fd={},rootmode={root_mode:o},user_id={user},group_id={group}", device.as_fd().as_raw_fd());
    if !options.own_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    for (set, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
    ] {
        flags.set(flag, set);
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let source = CString::new(options.source.as_str()).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(source, directory, format!("fuse.{}", options.subtype), flags, data.as_c_str())
}

/// The helper gets one end of a socket, and sends the open device through it once it has mounted. It
/// finds the socket as its standard input, so that no other child can inherit it.
fn by_fusermount(directory: &Path, options: &Options) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(words(options))
        .arg("--")
        .arg(directory)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{FUSERMOUNT}: {error}")))?;
    let received = receive(&ours);
    let said = complaint(&mut child)?;
    match received? {
        Some(device) => Ok(device),
        None => Err(io::Error::other(said)),
    }
}

fn words(options: &Options) -> String {
    let on = |set: bool, yes: &'static str, no: &'static str| if set { yes } else { no };
    // What a comma or backslash would end is escaped, as fusermount3 wants it.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![
        format!("fsname={source}"),
        format!("subtype={}", options.subtype),
        on(options.read_only, "ro", "rw").to_owned(),
        on(options.suid, "suid", "nosuid").to_owned(),
        on(options.dev, "dev", "nodev").to_owned(),
        on(options.exec, "exec", "noexec").to_owned(),
    ];
    for (set, word) in
        [(!options.own_permissions, "default_permissions"), (options.allow_other, "allow_other")]
    {
        if set {
            words.push(word.to_owned());
        }
    }
    words.join(",")
}

/// The device that came through the socket; `None` if the other end closed it instead.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut found| found.next()))
}

/// Waits for the helper; what it said on one line.
fn complaint(child: &mut Child) -> io::Result<String> {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        // It is short, and what is no text in it helps nobody.
        let _ = stderr.take(4096).read_to_string(&mut text);
    }
    let status = child.wait()?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(if lines.is_empty() { format!("{FUSERMOUNT}: {status}") } else { lines.join("; ") })
}

/// Detaches what is mounted on a directory. If `lazy`, it vanishes from sight even if it is in use, and
/// ends when the last file of it is closed.
///
/// # Errors
/// It is in use, or not ours to unmount.
pub fn unmount(directory: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut child = Command::new(FUSERMOUNT)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{FUSERMOUNT}: {error}")))?;
    let said = complaint(&mut child)?;
    if child.wait()?.success() { Ok(()) } else { Err(io::Error::other(said)) }
}
