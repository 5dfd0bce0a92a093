//! Our own transport over `/dev/fuse`: each thread reads a request, has it served, and writes its answer.
//!
//! Owns: that, and the first exchange with the kernel. Excludes how many threads wait at the device, and where they run
//! ([`crate::idle_scheduling`]).

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use rustix::io::Errno;

use crate::attach::{GiveWay, Options};
use crate::dispatch::{Dispatcher, Outcome};
use crate::flush_pages::PageFlusher;
use crate::idle_scheduling::{self, SchedulingState};
use crate::server_threads::ServerThread;
use crate::service::Service;
use crate::serving::{Device, Serving};
use crate::wire::{self, Agreed, Body, HEADER_LEN, Header, Malformed, Offer, Out, Request, Wish};

/// Most bytes of one read or write, the kernel's own limit without privileges.
pub(crate) const LARGEST: u32 = 1 << 20;
/// Bytes of a request beside those of a write: headers, names, attributes.
const BESIDE: usize = 128 << 10;

/// Serves what is mounted at the other end of the connection.
pub(crate) fn serve(
    service: Arc<dyn Service>,
    connection: OwnedFd,
    options: &Options,
) -> io::Result<Serving> {
    let device = Arc::new(connection);
    let offered = receive_offer(&device)?;
    accept(&device, &offered, &Wish::new(options, false, LARGEST))?;
    let mut serving = Serving::new();
    let dispatcher = Dispatcher::new(service, PageFlusher::new(&device, options.threads.max(1) - 1));
    spawn(&mut serving, &device, &dispatcher, options)?;
    Ok(serving)
}

/// Adds threads that serve what comes over the device, and one that watches them.
pub(crate) fn spawn(
    serving: &mut Serving,
    device: &Device,
    dispatcher: &Dispatcher,
    options: &Options,
) -> io::Result<()> {
    let watched = Arc::new(SchedulingState::new(serving.scheduling.clone()));
    let threads = options.threads.max(1);
    let (report, ready) = mpsc::channel();
    for number in 0..threads {
        let (device, dispatcher) = (Arc::clone(device), dispatcher.clone());
        let (watched, report) = (Arc::clone(&watched), report.clone());
        serving.spawn(&format!("device-{number}"), move |server_thread| {
            watched.add(server_thread);
            // The receiver is gone if another thread could not be started.
            let _ = report.send(());
            drop(report);
            DeviceServer::new(&device, &dispatcher, &watched).serve_all(server_thread)
        })?;
    }
    drop(report);
    ready.iter().take(threads).for_each(drop);
    match options.give_way {
        GiveWay::Never => Ok(()),
        rule => idle_scheduling::start(serving, watched, rule),
    }
}

/// The first request, by which the kernel says what it can do.
pub(crate) struct Offered {
    unique: u64,
    pub(crate) offer: Offer,
}

/// Waits for the first request.
pub(crate) fn receive_offer(device: &OwnedFd) -> io::Result<Offered> {
    let mut input = buffer();
    loop {
        let (header, body) = match receive(device, &mut input)? {
            Received::Request(header, body) => (header, body),
            Received::Nothing => continue,
            Received::Over => {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "unmounted before it was served"));
            }
        };
        let unique = header.unique;
        match Request::decode(header.operation, Body::Whole(body)) {
            // A newer major version: the kernel speaks ours once it knows which that is.
            Ok(Request::Init(offer)) if offer.major > 7 => {
                let mut version = [0; 64];
                Out::new(&mut version).u32(7);
                send(device, unique, Ok(version.len()), &version)?;
            }
            Ok(Request::Init(offer)) => return Ok(Offered { unique, offer }),
            _ => send(device, unique, Err(Errno::IO), &[])?,
        }
    }
}

/// Answers the kernel's offer with what holds from now on.
pub(crate) fn accept(device: &OwnedFd, offered: &Offered, wish: &Wish) -> io::Result<Agreed> {
    let Some(agreed) = wire::agree(&offered.offer, wish) else {
        let Offer { major, minor, .. } = offered.offer;
        send(device, offered.unique, Err(Errno::PROTO), &[])?;
        let what = format!("the kernel's FUSE is too old: version {major}.{minor}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    };
    let mut answer = [0; 64];
    let mut out = Out::new(&mut answer);
    agreed.encode(&mut out);
    let len = out.finish()?;
    send(device, offered.unique, Ok(len), &answer)?;
    Ok(agreed)
}

/// Room for the longest request or answer. Zeroed by the system as it is touched, so that only what is used takes
/// memory.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; LARGEST as usize + BESIDE]
}

/// Result of an attempt to serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// It has its answer.
    Answered,
    /// It wants none.
    Silently,
    /// There is none now, and the device is not to be waited for (`O_NONBLOCK`).
    Nothing,
    /// There will be none: it is unmounted.
    Over,
}

/// Where a thread serves the device.
pub(crate) struct DeviceServer<'a> {
    device: &'a OwnedFd,
    dispatcher: &'a Dispatcher,
    watched: &'a SchedulingState,
}

impl Drop for DeviceServer<'_> {
    fn drop(&mut self) {
        self.watched.end();
    }
}

impl<'a> DeviceServer<'a> {
    pub(crate) fn new(device: &'a OwnedFd, dispatcher: &'a Dispatcher, watched: &'a SchedulingState) -> Self {
        DeviceServer { device, dispatcher, watched }
    }

    /// Serves until the file system is unmounted.
    pub(crate) fn serve_all(&self, server_thread: &ServerThread) -> io::Result<()> {
        let (mut input, mut output) = (buffer(), buffer());
        while self.serve_one(server_thread, &mut input, &mut output)? != Served::Over {}
        Ok(())
    }

    /// Reads a request and serves it.
    pub(crate) fn serve_one(
        &self,
        server_thread: &ServerThread,
        input: &mut [u8],
        output: &mut [u8],
    ) -> io::Result<Served> {
        let reader_gate = self.watched.reader_gate();
        reader_gate.enter();
        let received = receive(self.device, input);
        reader_gate.leave();
        let (header, body) = match received? {
            Received::Request(header, body) => (header, body),
            Received::Nothing => return Ok(Served::Nothing),
            Received::Over => return Ok(Served::Over),
        };
        self.watched.count(server_thread);
        reader_gate.note(header.caller.pid);
        if wire::may_take_long(header.operation) {
            reader_gate.pass_on();
        }
        let done = match self.dispatcher.serve(&header, Body::Whole(body), output) {
            Outcome::Silence => return Ok(Served::Silently),
            Outcome::Answer(done) => done,
            Outcome::Stale(node, done) => {
                tell_stale(self.device, node);
                done
            }
        };
        send(self.device, header.unique, done, output)?;
        Ok(Served::Answered)
    }
}

enum Received<'a> {
    Request(Header, &'a [u8]),
    Nothing,
    Over,
}

/// The next request.
fn receive<'a>(device: &OwnedFd, input: &'a mut [u8]) -> io::Result<Received<'a>> {
    let count = loop {
        match rustix::io::read(device, &mut *input) {
            // Some threads meet an unmount as a connection that is aborted.
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Over),
            Ok(count) => break count,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // The caller was killed in between, or this thread has got a signal.
            Err(Errno::NOENT | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let bytes = input.get(..count).unwrap_or_default();
    let nonsense = |Malformed| io::Error::new(io::ErrorKind::InvalidData, "a request without a header");
    let header = Header::decode(bytes).map_err(nonsense)?;
    if usize::try_from(header.len) != Ok(count) {
        return Err(nonsense(Malformed));
    }
    Ok(Received::Request(header, bytes.get(HEADER_LEN..).unwrap_or_default()))
}

/// Sends an answer, of which `output` holds the bytes at its beginning.
fn send(device: &OwnedFd, unique: u64, done: Result<usize, Errno>, output: &[u8]) -> io::Result<()> {
    let head = wire::out_header(unique, done);
    let body = output.get(..done.unwrap_or(0)).unwrap_or_default();
    loop {
        match rustix::io::writev(device, &[IoSlice::new(&head), IoSlice::new(body)]) {
            // Nobody waits any more: the caller was killed, or all was unmounted.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
            Err(Errno::INTR) => {}
            // The kernel rejects such an answer, and the caller has its error already.
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the kernel ask for attributes again. If that fails, it has forgotten the node.
pub(crate) fn tell_stale(device: &OwnedFd, node: u64) {
    let _ = rustix::io::write(device, &wire::invalidate_attributes(node));
}
