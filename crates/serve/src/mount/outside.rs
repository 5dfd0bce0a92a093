//! The process outside of the cage of a mount's server: it does the few things that a cage forbids, for this mount only.
//!
//! Owns: its start, requests and answers, and its end, which is that of the server. It mounts and unmounts on one directory,
//! since Landlock keeps whom it restricts from changing the tree of mounts; and it looks at callers, since `/proc` shows a
//! call and a user namespace only to who could trace the program. Excludes what the answers lead to.
//!
//! Trust: the server may be in the hands of whoever made its image. How it mounts was said before it looked at that, but
//! for the right to write and who checks permissions. It learns of a caller two numbers of the call that a thread waits in, if
//! that is about a file of this mount, yes or no, and a handle of its root directory, below which the cage lets nothing be
//! opened: no bytes of its memory.
//!
//! Each kind of question has a channel and a thread of its own: one about rights is asked while the kernel unmounts. Those
//! about calls can last as long as a stranger likes, and wait for none of their kind either (`questions`).

use std::ffi::{OsStr, OsString};
use std::io;
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
use rustix::fs::FileType;
use rustix::net::Shutdown;
use rustix::net::sockopt::Timeout;
use serde::{Deserialize, Serialize};

use super::passing::{pair, receive, send};
use super::questions::{self, Questions};
use super::tree::callers::is_in_our_namespace;
use super::tree::calls::Call;
use super::tuning;
use crate::control;
use platfs_open::locks::locked;

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

/// Questions of a further channel.
#[derive(Serialize, Deserialize)]
enum Topic {
    Programs,
    Calls,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Terms(Terms),
    /// One more channel, which comes with it.
    Channel(Topic),
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
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done,
    Failed(Option<i32>, String),
    IsOurs(bool),
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

/// The argument by which a process learns that it is the one outside of a server's cage.
pub const OUTSIDE: &str = "--outside";

/// Channels: for the tree of mounts, and for programs.
const CHANNELS: usize = 2;
/// Longest that an answer is waited for. None of them waits for anything.
const PATIENCE: Duration = Duration::from_secs(40);

impl Ask {
    fn channel(&self) -> usize {
        match self {
            Ask::Terms(_) | Ask::Channel(_) | Ask::Mount { .. } | Ask::Unmount { .. } => 0,
            Ask::Root { .. } | Ask::IsOurs => 1,
        }
    }
}

/// The server's end.
pub struct Outside {
    channels: [Mutex<Option<OwnedFd>>; CHANNELS],
    calls: Questions,
    /// Where it is one of this process.
    child: Mutex<Option<Child>>,
}

/// Starts it, with its end of the channel.
fn spawn(channel: OwnedFd) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("plat")
        .args(["mount", OUTSIDE])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::from(channel))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Starts a server by `launch`, and beside it the process outside of its cage, so that neither waits for the other. The
/// server has its channel as standard input.
///
/// # Errors
/// Those of `launch`; the system's.
pub fn beside<T>(launch: impl FnOnce(Stdio, &dyn Fn()) -> io::Result<T>) -> io::Result<T> {
    let (ours, theirs) = pair()?;
    let theirs = Mutex::new(Some(theirs));
    launch(Stdio::from(ours), &|| {
        // A server whose channel ends says so.
        let _ = locked(&theirs).take().map(spawn);
    })
}

/// The channel that a server in the background has as standard input.
pub fn brought() -> Option<OwnedFd> {
    let input = rustix::stdio::stdin();
    let facts = rustix::fs::fstat(input).ok()?;
    let is_channel = FileType::from_raw_mode(facts.st_mode) == FileType::Socket;
    if is_channel { rustix::io::fcntl_dupfd_cloexec(input, 3).ok() } else { None }
}

static OUTSIDE_OF_THIS: OnceLock<Arc<Outside>> = OnceLock::new();

/// The process outside of this one's cage, if there is one.
pub(super) fn this() -> Option<&'static Arc<Outside>> {
    OUTSIDE_OF_THIS.get()
}

impl Outside {
    /// Has the process outside for a mount on a directory: the one whose channel the caller brought along, or a new one.
    /// Before the cage is entered, and before an image is looked at.
    ///
    /// # Errors
    /// The system's.
    pub fn start(directory: &Path, options: &Options, brought: Option<OwnedFd>) -> io::Result<Arc<Self>> {
        let (ours, child) = match brought {
            Some(channel) => (channel, None),
            None => {
                let (ours, theirs) = pair()?;
                (ours, Some(spawn(theirs)?))
            }
        };
        let Options { source, subtype, allow_other, suid, dev, exec, .. } = options.clone();
        let directory = directory.as_os_str().as_bytes().to_vec();
        let terms = Terms { directory, source, subtype, allow_other, suid, dev, exec };
        send(&ours, &Ask::Terms(terms), None)?;
        let more = |topic: Topic| -> io::Result<OwnedFd> {
            let (here, there) = pair()?;
            send(&ours, &Ask::Channel(topic), Some(there.as_fd()))?;
            Ok(here)
        };
        let (programs, calls) = (more(Topic::Programs)?, Questions::new(more(Topic::Calls)?));
        rustix::net::sockopt::set_socket_timeout(&programs, Timeout::Recv, Some(PATIENCE))?;
        let channels = [ours, programs].map(|channel| Mutex::new(Some(channel)));
        let outside = Arc::new(Outside { channels, calls, child: Mutex::new(child) });
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

    /// Returns true if a thread, given by its directory in `/proc`, is in the user namespace of this process.
    pub(super) fn is_ours(&self, thread: impl AsFd) -> bool {
        let answer = self.ask(&Ask::IsOurs, Some(thread.as_fd()));
        matches!(answer, Ok((Answer::IsOurs(true), _)))
    }

    /// The call that a thread of a user waits in, if that is about a file of the mount.
    pub(super) fn call(&self, user: u32, thread: u32, inode: u64) -> Call {
        self.calls.ask(user, thread, inode)
    }

    /// Ends it.
    pub fn end(&self) {
        self.calls.end();
        let [tree, programs] = &self.channels;
        drop(locked(programs).take());
        if let Some(tree) = locked(tree).take() {
            let _ = rustix::net::shutdown(&tree, Shutdown::Write);
            // It says no more, and is gone.
            let _ = receive::<Answer>(&tree);
        }
        if let Some(mut child) = locked(&self.child).take() {
            let _ = child.wait();
        }
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
    let _ = platfs_host::system::work_at_the_root();
    platfs_open::process::leave_no_core();
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
    let device = Arc::new(OnceLock::new());
    while let Some((ask, file)) = receive(socket)? {
        let mut passed = None;
        let answer = match ask {
            Ask::Mount { read_only, own_permissions } if std::mem::take(&mut may_mount) => {
                let mounted = fuse::InProcess.mount(directory, &terms.options(read_only, own_permissions));
                is_mounted = mounted.is_ok();
                if let Some(found) = mounted.is_ok().then(|| tuning::device_of(directory).ok()).flatten() {
                    let _ = device.set(found);
                }
                let (opened, done) = mounted.map_or_else(|why| (None, Err(why)), |it| (Some(it), Ok(())));
                passed = opened;
                Answer::of(done)
            }
            Ask::Channel(topic) => {
                let (Some(channel), device) = (file, Arc::clone(&device)) else { continue };
                thread::Builder::new().spawn(move || match topic {
                    Topic::Programs => answer(&channel),
                    Topic::Calls => questions::answer(channel, &device),
                })?;
                continue;
            }
            Ask::Mount { .. } | Ask::Terms(_) => Answer::Failed(None, "it was mounted already".into()),
            Ask::Unmount { lazy } if is_mounted => {
                let done = fuse::unmount(directory, lazy);
                is_mounted = done.is_err();
                Answer::of(done)
            }
            Ask::Unmount { .. } => Answer::Failed(None, "it is not mounted".into()),
            Ask::Root { .. } | Ask::IsOurs => Answer::Failed(None, OTHER_CHANNEL.into()),
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
            Ask::Terms(_) | Ask::Channel(_) | Ask::Mount { .. } | Ask::Unmount { .. } => {
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

    /// Ends the channels when a test ends, also when it fails: its threads wait for that.
    struct Ended<'o>(&'o Outside);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }

    #[test]
    fn one_about_rights_waits_for_no_unmount() {
        let [tree, programs, calls] = [pair().unwrap(), pair().unwrap(), pair().unwrap()];
        let channels = [tree.0, programs.0].map(|channel| Mutex::new(Some(channel)));
        let child = Mutex::new(None);
        let outside = Outside { channels, calls: Questions::new(calls.0), child };
        thread::scope(|scope| {
            let _ended = Ended(&outside);
            scope.spawn(|| answer(&programs.1));
            let waiting = scope.spawn(|| outside.unmount(Path::new("/"), false));
            let asked = receive::<Ask>(&tree.1).unwrap();
            assert!(matches!(asked, Some((Ask::Unmount { lazy: false }, _))));
            let this = std::fs::File::open("/proc/thread-self").unwrap();
            assert!(outside.is_ours(&this));
            // Its channel is gone, and it is said once more at once.
            drop(tree.1);
            assert!(waiting.join().unwrap().is_err() && outside.unmount(Path::new("/"), false).is_err());
        });
    }
}
