//! The process outside of the cage of a mount's server: it does the few things that a cage forbids, for this mount only.
//!
//! Owns: its start, requests and answers, and its end, which is that of the server. It mounts and unmounts on one directory,
//! since Landlock keeps whom it restricts from changing the tree of mounts; and it looks at callers, since `/proc` shows a
//! call and a user namespace only to who could trace the program. Excludes what the answers lead to.
//!
//! Trust: the server may be in the hands of whoever made its image. How it mounts was said before it looked at that, but
//! for the right to write and who checks permissions. It learns of a caller two numbers of the call that a thread waits in, yes
//! or no, and a handle of its root directory, below which the cage lets nothing be opened: no bytes of its memory.
//!
//! Each kind of question has a channel and a thread of its own. One about a call can last as long as a stranger likes, who
//! keeps his memory from being read; one about rights is asked while the kernel unmounts. None waits for another kind.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use fuse::{Mounter, Options};
use nix::sys::signal::SigSet;
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use super::tree::callers::is_in_our_namespace;
use super::tree::calls::{self, Call};
use crate::control;
use crate::locks::locked;
use crate::sandbox;

/// The argument by which a process learns that it is the one outside.
const OUTSIDE: &str = "--outside";
/// Longest message: paths and options of a mount, or a complaint.
const LONGEST: usize = 64 << 10;

/// Terms of the mount, as the command line says them.
#[derive(Clone, Serialize, Deserialize)]
struct Terms {
    /// As the system has it, in whatever encoding.
    directory: Vec<u8>,
    source: String,
    subtype: String,
    allow_other: bool,
    suid: bool,
    dev: bool,
    exec: bool,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Terms(Terms),
    /// One more channel, which comes with it.
    Channel,
    Mount {
        read_only: bool,
        own_permissions: bool,
    },
    Unmount {
        lazy: bool,
    },
    /// The root directory of a thread.
    Root {
        thread: u32,
    },
    /// Comes with the directory of a thread in `/proc`.
    IsOurs,
    Call {
        thread: u32,
        inode: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done,
    Failed(Option<i32>, String),
    IsOurs(bool),
    Call(Call),
}

impl Answer {
    fn of<T>(done: io::Result<T>) -> Self {
        done.map_or_else(|why| Answer::Failed(why.raw_os_error(), why.to_string()), |_| Answer::Done)
    }

    fn done(self) -> io::Result<()> {
        match self {
            Answer::Done => Ok(()),
            Answer::Failed(Some(number), _) => Err(io::Error::from_raw_os_error(number)),
            Answer::Failed(None, why) => Err(io::Error::other(why)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends a message, maybe with an open file.
fn send(socket: &OwnedFd, message: &impl Serialize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message; nothing where the other end is gone.
fn receive<T: for<'de> Deserialize<'de>>(socket: &OwnedFd) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    if len == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(bytes.get(..len).unwrap_or_default())?, file)))
}

/// Channels: for the tree of mounts, for programs, and for calls.
const CHANNELS: usize = 3;
/// Longest that an answer is waited for: what is known of a call is waited for half a minute.
const PATIENCE: Duration = Duration::from_secs(40);

impl Ask {
    fn channel(&self) -> usize {
        match self {
            Ask::Terms(_) | Ask::Channel | Ask::Mount { .. } | Ask::Unmount { .. } => 0,
            Ask::Root { .. } | Ask::IsOurs => 1,
            Ask::Call { .. } => 2,
        }
    }
}

/// The server's end.
pub struct Outside {
    channels: [Mutex<Option<OwnedFd>>; CHANNELS],
    child: Mutex<Child>,
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    Ok(rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

static OUTSIDE_OF_THIS: OnceLock<Arc<Outside>> = OnceLock::new();

/// The process outside of this one's cage, if there is one.
pub(super) fn this() -> Option<&'static Arc<Outside>> {
    OUTSIDE_OF_THIS.get()
}

impl Outside {
    /// Starts it for a mount on a directory. Before the cage is entered, and before an image is looked at.
    ///
    /// # Errors
    /// The system's.
    pub fn start(directory: &Path, options: &Options) -> io::Result<Arc<Self>> {
        let (ours, theirs) = pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("plat")
            .args(["mount", OUTSIDE])
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let Options { source, subtype, allow_other, suid, dev, exec, .. } = options.clone();
        let directory = directory.as_os_str().as_bytes().to_vec();
        let terms = Terms { directory, source, subtype, allow_other, suid, dev, exec };
        send(&ours, &Ask::Terms(terms), None)?;
        let more = || -> io::Result<OwnedFd> {
            let (here, there) = pair()?;
            rustix::net::sockopt::set_socket_timeout(&here, Timeout::Recv, Some(PATIENCE))?;
            send(&ours, &Ask::Channel, Some(there.as_fd()))?;
            Ok(here)
        };
        let (programs, calls) = (more()?, more()?);
        let channels = [ours, programs, calls].map(|channel| Mutex::new(Some(channel)));
        let outside = Arc::new(Outside { channels, child: Mutex::new(child) });
        let _ = OUTSIDE_OF_THIS.set(Arc::clone(&outside));
        Ok(outside)
    }

    fn ask(&self, ask: &Ask, file: Option<BorrowedFd<'_>>) -> io::Result<(Answer, Option<OwnedFd>)> {
        let gone = || io::Error::other("the process that mounts for this server has ended");
        let mut channel = locked(self.channels.get(ask.channel()).ok_or_else(gone)?);
        let socket = channel.as_ref().ok_or_else(gone)?;
        let answer = send(socket, ask, file).and_then(|()| receive(socket));
        // An answer that comes too late would be taken for that of the next question.
        let answer = answer.inspect_err(|_| *channel = None).map_err(|_| gone())?;
        answer.ok_or_else(gone)
    }

    /// Whether a thread, given by its directory in `/proc`, is in the user namespace of this process.
    pub(super) fn is_ours(&self, thread: &OwnedFd) -> bool {
        let answer = self.ask(&Ask::IsOurs, Some(thread.as_fd()));
        matches!(answer, Ok((Answer::IsOurs(true), _)))
    }

    /// The call that a thread waits in.
    pub(super) fn call(&self, thread: u32, inode: u64) -> Call {
        match self.ask(&Ask::Call { thread, inode }, None) {
            Ok((Answer::Call(call), _)) => call,
            _ => Call::Hidden,
        }
    }

    /// Ends it.
    pub fn end(&self) {
        self.channels.iter().for_each(|channel| drop(locked(channel).take()));
        let _ = locked(&self.child).wait();
    }
}

impl Mounter for Outside {
    fn mount(&self, _: &Path, options: &Options) -> io::Result<OwnedFd> {
        let Options { read_only, own_permissions, .. } = *options;
        let (answer, connection) = self.ask(&Ask::Mount { read_only, own_permissions }, None)?;
        answer.done()?;
        connection.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn unmount(&self, _: &Path, lazy: bool) -> io::Result<()> {
        self.ask(&Ask::Unmount { lazy }, None)?.0.done()
    }
}

/// The root directory of a thread, as the process outside sees it, or else this one.
pub(super) fn root_of(thread: u32) -> Option<OwnedFd> {
    match this() {
        Some(outside) => outside.ask(&Ask::Root { thread }, None).ok()?.1,
        None => control::root_of(thread),
    }
}

/// Is the process outside, if the arguments say so.
pub fn run_if_meant(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1..).is_none_or(|rest| rest != ["mount", OUTSIDE].map(OsStr::new)) {
        return None;
    }
    // It ends with the server, and by nothing else.
    let _ = SigSet::all().thread_block();
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    sandbox::leave_no_core();
    let served = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(io::Error::from)
        .and_then(|it| serve(&it));
    Some(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let Some((Ask::Terms(terms), _)) = receive(socket)? else { return Ok(()) };
    let directory = Path::new(OsStr::from_bytes(&terms.directory));
    // It unmounts what it has mounted, once.
    let (mut may_mount, mut is_mounted) = (true, false);
    while let Some((ask, file)) = receive(socket)? {
        let mut passed = None;
        let answer = match ask {
            Ask::Mount { read_only, own_permissions } if std::mem::take(&mut may_mount) => {
                let mounted = fuse::Here.mount(directory, &terms.options(read_only, own_permissions));
                is_mounted = mounted.is_ok();
                let (opened, done) = mounted.map_or_else(|why| (None, Err(why)), |it| (Some(it), Ok(())));
                passed = opened;
                Answer::of(done)
            }
            Ask::Channel => {
                let Some(channel) = file else { continue };
                thread::Builder::new().spawn(move || answer(&channel))?;
                continue;
            }
            Ask::Mount { .. } | Ask::Terms(_) => Answer::Failed(None, "it was mounted already".into()),
            Ask::Unmount { lazy } if is_mounted => {
                let done = fuse::unmount(directory, lazy);
                is_mounted = done.is_err();
                Answer::of(done)
            }
            Ask::Unmount { .. } => Answer::Failed(None, "it is not mounted".into()),
            Ask::Root { .. } | Ask::IsOurs | Ask::Call { .. } => Answer::Failed(None, OTHER_CHANNEL.into()),
        };
        send(socket, &answer, passed.as_ref().map(AsFd::as_fd))?;
    }
    Ok(())
}

const OTHER_CHANNEL: &str = "is asked on another channel";

/// Answers about callers, until the channel ends.
fn answer(channel: &OwnedFd) -> io::Result<()> {
    while let Some((ask, file)) = receive(channel)? {
        let mut passed = None;
        let answer = match ask {
            Ask::Root { thread } => {
                passed = control::root_of(thread);
                Answer::Done
            }
            Ask::IsOurs => Answer::IsOurs(file.is_some_and(|thread| is_in_our_namespace(&thread))),
            Ask::Call { thread, inode } => Answer::Call(calls::seen(thread, inode)),
            Ask::Terms(_) | Ask::Channel | Ask::Mount { .. } | Ask::Unmount { .. } => {
                Answer::Failed(None, OTHER_CHANNEL.into())
            }
        };
        send(channel, &answer, passed.as_ref().map(AsFd::as_fd))?;
    }
    Ok(())
}

impl Terms {
    fn options(&self, read_only: bool, own_permissions: bool) -> Options {
        let Terms { source, subtype, allow_other, suid, dev, exec, .. } = self.clone();
        // The rest is between the server and the kernel.
        let (acl, writeback, time_unit, threads) = (false, false, 1, 1);
        let (transport, give_way) = (fuse::Transport::default(), fuse::GiveWay::default());
        Options {
            source,
            subtype,
            read_only,
            allow_other,
            suid,
            dev,
            exec,
            acl,
            own_permissions,
            writeback,
            time_unit,
            transport,
            give_way,
            threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_not_answered_keeps_no_other_waiting() {
        let [tree, programs, calls] = [pair().unwrap(), pair().unwrap(), pair().unwrap()];
        let channels = [tree.0, programs.0, calls.0].map(|channel| Mutex::new(Some(channel)));
        let outside = Outside { channels, child: Mutex::new(Command::new("true").spawn().unwrap()) };
        thread::scope(|scope| {
            scope.spawn(|| answer(&programs.1));
            let waiting = scope.spawn(|| outside.call(1, 1));
            let asked = receive::<Ask>(&calls.1).unwrap();
            assert!(matches!(asked, Some((Ask::Call { thread: 1, inode: 1 }, _))));
            let this = std::fs::File::open("/proc/thread-self").unwrap();
            assert!(outside.is_ours(&this.into()));
            // Its channel is gone, and it is said once more at once.
            drop(calls.1);
            assert_eq!(waiting.join().unwrap(), Call::Hidden);
            assert_eq!(outside.call(1, 1), Call::Hidden);
            outside.end();
        });
    }
}
