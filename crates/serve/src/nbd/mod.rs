//! A device served by the NBD protocol, to virtual machines and to the kernel.
//!
//! | module | owns |
//! | --- | --- |
//! | `greeting` | what is agreed on before the first request |
//! | `contexts` | which kinds of block status clients ask for, and its name |
//! | `requests` | reading, writing, zeroing, flushing |
//! | `replies` | the forms of answers |
//! | `status` | what holds something, and what does not |
//! | [`Unused`] | free blocks of the volume that is served |
//!
//! Owns: connections and their end. Excludes which image is served. Up to 64 clients are connected at once; a flush of one
//! covers what all have written, as the protocol wants it for `CAN_MULTI_CONN`.
//!
//! Nothing that a client says is trusted: lengths are bounded before memory is taken, and a client that has not yet asked
//! for anything has its time. One that has agreed may stay for ever; what it takes by that is a connection (no user but the
//! server's own has more than 32), a thread, and a piece of the request that it is at: the next one is not read before that
//! is answered.

mod contexts;
mod greeting;
mod replies;
mod requests;
mod status;
mod unused;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use platfs::device::Device;
use platfs_open::locks::locked;
pub use unused::{Unused, ZeroedUnused};

/// Connections at once, and those of one user beside the server's own.
const CLIENTS: usize = 64;
const CLIENTS_OF_ONE: usize = 32;
/// Longest that a client may take to agree on the export. One that has agreed may be silent: a paused machine is.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long clients have to take the answers to what they have asked for.
const GOODBYE: Duration = Duration::from_secs(5);

/// Export that is served.
#[derive(Clone)]
pub struct Export {
    /// It.
    pub device: Arc<dyn Device>,
    /// Clients may write.
    pub writable: bool,
    /// Longest that a client may take to agree on the export.
    pub handshake: Duration,
    /// The free blocks of the volume on the device, if it does not change meanwhile.
    pub unused: Option<Arc<Unused>>,
    /// The user of the server.
    pub user: u32,
}

impl Export {
    /// An export to clients that have the usual time.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, writable: bool) -> Self {
        let user = rustix::process::geteuid().as_raw();
        Export { device, writable, handshake: HANDSHAKE, unused: None, user }
    }
}

/// The terms that a client has agreed on.
#[derive(Clone, Copy, Default)]
struct Terms {
    /// Answers with contents come in chunks.
    structured: bool,
    /// It may ask which blocks are allocated.
    allocation: bool,
}

/// A connection, whose it is, and the thread that serves it.
struct Client {
    stream: UnixStream,
    user: Option<u32>,
    thread: JoinHandle<()>,
}

struct Shared {
    export: Export,
    stopping: AtomicBool,
    clients: Mutex<Vec<Client>>,
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Vec<Client>> {
        locked(&self.clients)
    }
}

/// A server at work.
pub struct Server {
    shared: Arc<Shared>,
    waker: UnixListener,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves each client that connects.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(listener: UnixListener, export: Export) -> io::Result<Self> {
        let waker = listener.try_clone()?;
        let shared = Arc::new(Shared { export, stopping: AtomicBool::new(false), clients: Mutex::default() });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nbd".into()).spawn(move || accept(&listener, &own))?;
        Ok(Server { shared, waker, thread })
    }

    /// Ends all connections, each behind the request that it is at.
    pub fn stop(self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // A listener that is shut down wakes the thread that waits for a connection.
        let _ = rustix::net::shutdown(&self.waker, rustix::net::Shutdown::Both);
        let _ = self.thread.join();
        let clients = std::mem::take(&mut *self.shared.clients());
        for client in &clients {
            let _ = client.stream.shutdown(Shutdown::Read);
        }
        let begun = Instant::now();
        while begun.elapsed() < GOODBYE && clients.iter().any(|client| !client.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for client in clients {
            // One that takes no answer is not waited for.
            let _ = client.stream.shutdown(Shutdown::Both);
            let _ = client.thread.join();
        }
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let mut clients = shared.clients();
        clients.retain(|client| !client.thread.is_finished());
        let user = rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
        // One too many is closed: it sees an end where a greeting should be.
        if is_full(&clients, user, shared.export.user) {
            continue;
        }
        let export = shared.export.clone();
        let Ok(own) = stream.try_clone() else { continue };
        let serve = move || {
            // The end of a connection is no failure of the server.
            let _ = one(&own, &export);
            let _ = own.shutdown(Shutdown::Both);
        };
        if let Ok(thread) = std::thread::Builder::new().name("nbd client".into()).spawn(serve) {
            clients.push(Client { stream, user, thread });
        }
    }
}

/// True if no connection is left for a user.
fn is_full(clients: &[Client], user: Option<u32>, own: u32) -> bool {
    let of_one = || clients.iter().filter(|client| client.user == user).count();
    clients.len() >= CLIENTS || user != Some(own) && of_one() >= CLIENTS_OF_ONE
}

fn one(stream: &UnixStream, export: &Export) -> io::Result<()> {
    match greeting::agree(stream, export, export.handshake)? {
        Some(terms) => requests::serve(stream, export, terms),
        None => Ok(()),
    }
}

/// Bytes of a client's message, of a length that was looked at.
fn exactly<const N: usize>(from: &mut impl io::Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
