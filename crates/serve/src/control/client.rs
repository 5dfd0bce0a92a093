//! The client's end: finds the server of a mount, sends a request, and waits for what becomes of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use platfs_host::Directory;
use platfs_host::path;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::needs::Needs;
use super::protocol::{GRANT_LEN, Grant, Place, Reply, Request, TICKET, Verb, flag};
use super::proving::prove;
use super::seqpacket::Socket;
use crate::bulk::{Done, Name};
use crate::refusal::Refusal;
use platfs_image::text::Shown;

/// A place in a mount, with the directory open as long as it is meant.
#[derive(Debug)]
pub struct Found {
    directory: File,
    name: Option<Name>,
    shown: Vec<u8>,
}

/// Result of a request.
#[derive(Debug)]
pub struct Outcome {
    /// Counts of the work done.
    pub done: Done,
    /// Warnings, or the reason why it ended early.
    pub said: Result<Vec<String>, Refusal>,
}

/// Returns true if a path lies in a mount by `plat mount`, or would if it existed.
#[must_use]
pub fn is_mounted(path: &Path) -> bool {
    let here = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
    let mut above = path.ancestors().map(|above| if above.as_os_str().is_empty() { here } else { above });
    // The nearest directory that there is.
    above.find_map(|above| Found::itself(above).ok()).is_some_and(|found| found.grant().is_ok())
}

impl Found {
    /// A directory itself.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn itself(path: &Path) -> io::Result<Self> {
        Self::whole(path, OFlags::empty())
    }

    fn whole(path: &Path, flags: OFlags) -> io::Result<Self> {
        let directory = open(path, flags)?;
        Ok(Found { directory, name: None, shown: path.as_os_str().as_bytes().to_vec() })
    }

    /// The file that a path leads to, all of which is to be read: a directory itself, whatever lies above it; else its name.
    ///
    /// # Errors
    /// As [`Found::itself`] and [`Found::name`].
    pub fn tree(path: &Path) -> io::Result<Self> {
        let no_directory = [Errno::NOTDIR, Errno::LOOP, Errno::NOENT].map(Errno::raw_os_error);
        match Self::whole(path, OFlags::NOFOLLOW) {
            Err(error) if error.raw_os_error().is_some_and(|number| no_directory.contains(&number)) => {
                Self::name(path)
            }
            found => found,
        }
    }

    /// The last name of a path, in its directory; the path need not exist.
    ///
    /// # Errors
    /// A path without a name; a directory that can't be opened.
    pub fn name(path: &Path) -> io::Result<Self> {
        let text = path.as_os_str().as_bytes();
        let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let text = text.get(..end).unwrap_or_default();
        let at = text.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = text.split_at(at);
        let name = Some(named(name)?);
        let above = if above.is_empty() { PathBuf::from(".") } else { OsStr::from_bytes(above).into() };
        Ok(Found { directory: open(&above, OFlags::empty())?, name, shown: text.to_vec() })
    }

    /// A name in a directory that is open already; the path is for messages.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn below(directory: &Directory, name: &OsStr, shown: &Path) -> io::Result<Self> {
        let directory = OwnedFd::from(directory.try_clone()?).into();
        let (name, shown) = (Some(named(name.as_bytes())?), shown.as_os_str().as_bytes().to_vec());
        Ok(Found { directory, name, shown })
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// The path as it was given.
    #[must_use]
    pub fn shown(&self) -> &[u8] {
        &self.shown
    }

    /// Tells if the server is this program's own user's: of others it takes no file to write to. In a user namespace a
    /// user's number says nothing about that.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn is_served_by_own_user(&self) -> io::Result<bool> {
        let socket = connect(&self.grant().map_err(explained)?.address)?;
        Ok(socket.peer()? == rustix::process::geteuid().as_raw())
    }

    /// The ticket for the directory.
    ///
    /// # Errors
    /// No mount of plat; a server that speaks another version, or none.
    fn grant(&self) -> io::Result<Grant> {
        let answer = fuse::ask::<TICKET, GRANT_LEN>(&self.directory)?;
        Grant::decode(&answer).map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))
    }
}

/// The end of a mount, as its server will tell it. Nothing in the mount is held meanwhile.
#[derive(Debug)]
pub struct Awaited(Socket);

impl Awaited {
    /// Asks the server of the mount on a directory to tell; by force it waits for no store any more.
    ///
    /// # Errors
    /// No mount of plat, a server that can't be asked, or one that refuses.
    pub fn of(directory: &Path, by_force: bool) -> io::Result<Self> {
        let address = Found::itself(directory)?.grant().map_err(explained)?.address;
        let socket = Socket::connect(&address)?;
        let flags = if by_force { flag::FORCE } else { 0 };
        let request = Request { verb: Verb::End, flags, places: Vec::new(), numbers: Vec::new() };
        socket.send(&request.encode(), &[])?;
        match heard(&socket, None)? {
            Some(Reply::Progress(_)) => Ok(Awaited(socket)),
            Some(Reply::Failed(_, why)) => Err(io::Error::other(why)),
            _ => Err(io::Error::other("the server of the mount does not say how it ends")),
        }
    }

    /// Waits until the server has left the mount; false if it has not after that time.
    ///
    /// # Errors
    /// It went away.
    pub fn begun(&self, most: Duration) -> io::Result<bool> {
        match heard(&self.0, Some(most)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Ok(Some(Reply::Progress(_))) => Ok(true),
            Ok(_) => Err(gone()),
            Err(error) => Err(error),
        }
    }

    /// Waits until the process of the server has ended, too.
    pub fn is_gone(&self, most: Duration) -> bool {
        matches!(heard(&self.0, Some(most)), Ok(None))
    }

    /// Waits for the end: what the server was not able to store; nothing after that time.
    ///
    /// # Errors
    /// It went away.
    pub fn ended(&self, most: Option<Duration>) -> io::Result<Option<Result<(), String>>> {
        match heard(&self.0, most) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Ok(Some(Reply::Finished(..))) => Ok(Some(Ok(()))),
            Ok(Some(Reply::Failed(_, why))) => Ok(Some(Err(why.words))),
            Ok(_) => Err(gone()),
            Err(error) => Err(error),
        }
    }
}

/// The next message of a server; nothing at its end.
fn heard(socket: &Socket, most: Option<Duration>) -> io::Result<Option<Reply>> {
    socket.wait_at_most(most)?;
    let Some((message, _)) = socket.receive()? else { return Ok(None) };
    let reply = Reply::decode(&message);
    reply.map(Some).map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))
}

fn gone() -> io::Error {
    io::Error::other("the server of the mount went away before it was done")
}

/// Opens a directory, as one is opened to be listed.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    path::open(path, flags | OFlags::DIRECTORY)
}

/// The last part of a path, which must be a name.
fn named(bytes: &[u8]) -> io::Result<Name> {
    Name::new(bytes).ok_or_else(|| match bytes.len() {
        256.. => Errno::NAMETOOLONG.into(),
        _ => io::Error::new(io::ErrorKind::InvalidInput, "the path has no name that can be changed"),
    })
}

/// Has the server of a mount do something; `tell` gets how far it is.
///
/// # Errors
/// No server can be found, or it went away.
pub fn ask(
    request: Request,
    places: &[Found],
    file: Option<&dyn AsFd>,
    tell: &mut dyn FnMut(&Done),
) -> io::Result<Outcome> {
    let mut request = request;
    let mut address = Vec::new();
    for (at, found) in places.iter().enumerate() {
        let grant = found.grant().map_err(explained)?;
        let needs = Needs::of(request.verb, at, request.flags);
        if let Err(error) = prove(&found.directory, &grant.proof_name(), needs) {
            let why = Refusal::from(error).at(Shown(&found.shown));
            return Ok(Outcome { done: Done::default(), said: Err(why) });
        }
        if !address.is_empty() && address != grant.address {
            return Err(Errno::XDEV.into());
        }
        address = grant.address;
        request.places.push(Place {
            token: grant.token,
            name: found.name.clone(),
            shown: found.shown.clone(),
        });
    }
    let socket = connect(&address)?;
    // One that is refused has an answer waiting.
    let directories = places.iter().map(|found| found.directory.as_fd());
    let files: Vec<_> = directories.chain(file.map(AsFd::as_fd)).collect();
    let sent = socket.send(&request.encode(), &files);
    loop {
        let Some((message, _)) = socket.receive()? else {
            return Err(sent.err().unwrap_or_else(gone));
        };
        let reply = Reply::decode(&message);
        match reply.map_err(|malformed| io::Error::new(io::ErrorKind::InvalidData, malformed))? {
            Reply::Progress(done) => tell(&done),
            Reply::Finished(done, said) => return Ok(Outcome { done, said: Ok(said) }),
            Reply::Failed(done, why) => return Ok(Outcome { done, said: Err(why) }),
        }
    }
}

fn connect(address: &[u8]) -> io::Result<Socket> {
    Socket::connect(address).map_err(|error| {
        let what = format!("the mount's control channel can't be reached from here: {error}");
        io::Error::new(error.kind(), what)
    })
}

fn explained(error: io::Error) -> io::Error {
    let is_other = [Errno::NOTTY, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP];
    if error.raw_os_error().is_some_and(|number| is_other.iter().any(|other| other.raw_os_error() == number))
    {
        return io::Error::new(io::ErrorKind::Unsupported, "not in a mount by `plat mount`");
    }
    error
}
