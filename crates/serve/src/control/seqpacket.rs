//! Messages over a socket of the abstract namespace, each whole, with a few open files.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

use super::protocol::MESSAGE_LEN;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Files that come with a message at most: two directories, and one that is read or written.
const FILES: usize = 3;

/// One end.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Socket {
    /// Waits for connections under a name.
    pub(super) fn listen(name: &[u8]) -> io::Result<Self> {
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Socket(socket))
    }

    /// Connects to who waits under a name.
    pub(super) fn connect(name: &[u8]) -> io::Result<Self> {
        let socket = socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Socket(socket))
    }

    /// The next connection.
    pub(super) fn accept(&self) -> io::Result<Self> {
        loop {
            match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                accepted => return Ok(Socket(accepted?)),
            }
        }
    }

    /// Another handle of the same end.
    pub(super) fn copy(&self) -> io::Result<Self> {
        Ok(Socket(self.0.try_clone()?))
    }

    /// Ends it for both sides.
    pub(super) fn shut(&self) {
        // Where it has ended already, nothing is left to do.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// The program at the other end, as it was when it connected.
    pub(super) fn caller(&self) -> io::Result<fuse::Caller> {
        let peer = socket_peercred(&self.0)?;
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        Ok(fuse::Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), pid })
    }

    /// The user at the other end.
    pub(super) fn peer(&self) -> io::Result<u32> {
        Ok(socket_peercred(&self.0)?.uid.as_raw())
    }

    /// How long a message is waited for, in either direction.
    pub(super) fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, time)?;
        Ok(set_socket_timeout(&self.0, Timeout::Send, time)?)
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Errno::NOBUFS.into());
        }
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Sends a message if that is possible at once.
    pub(super) fn try_send(&self, message: &[u8]) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.0, message, flags);
    }

    /// The next message and the files that came with it; `None` at the end.
    pub(super) fn receive(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut message = vec![0; MESSAGE_LEN];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut message)];
            match rustix::net::recvmsg(&self.0, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut files = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = part {
                files.extend(passed);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        message.truncate(received.bytes);
        Ok(Some((message, files)))
    }

    /// Returns true if the other end has gone, or says anything: both mean that the work is to end.
    pub(super) fn is_called_off(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(rustix::net::recv(&self.0, &mut byte[..], flags), Err(Errno::AGAIN | Errno::INTR))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_come_whole_with_their_file_and_ends_are_seen() {
        let name = format!("plat-test-{}", std::process::id());
        let listening = Socket::listen(name.as_bytes()).unwrap();
        let client = Socket::connect(name.as_bytes()).unwrap();
        let server = listening.accept().unwrap();
        assert_eq!(server.peer().unwrap(), rustix::process::getuid().as_raw());
        let file = File::open("/proc/self/status").unwrap();
        client.send(b"one", &[file.as_fd()]).unwrap();
        client.send(b"two", &[]).unwrap();
        let (message, passed) = server.receive().unwrap().unwrap();
        let mut text = String::new();
        File::from(passed.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
        assert!(message == b"one" && text.starts_with("Name:"));
        assert!(
            matches!(server.receive(), Ok(Some((message, files))) if message == b"two" && files.is_empty())
        );
        assert!(!server.is_called_off());
        client.send(&vec![0; MESSAGE_LEN + 1], &[]).unwrap();
        assert!(server.receive().is_err(), "too long");
        drop(client);
        assert!(server.is_called_off() && server.receive().unwrap().is_none());
    }
}
