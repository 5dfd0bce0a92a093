//! Requests that come over the device even where others come over rings: that nodes are forgotten.
//!
//! Owns: the thread that reads it, and when. Nobody waits for a node to be forgotten, and the kernel wakes a thread that
//! waits at the device for each. So the thread stays away for a while after it has read something, finds many in one
//! message, and waits at the device only when nothing comes any more. Where room is needed that forgotten nodes
//! give back, they are read at once ([`DeviceReader::catch_up`]).

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::by_device::{self, DeviceServer, Served};
use crate::dispatch::Dispatcher;
use crate::idle_scheduling::SchedulingState;
use crate::server_threads::ServerThread;
use crate::serving::{Device, Serving};

/// How long the thread stays away.
const AWAY: Duration = Duration::from_millis(10);
/// After how many looks in vain it waits at the device again, at most.
const PATIENCE: u32 = 8;

/// The device beside rings.
pub(super) struct DeviceReader {
    device: Device,
    dispatcher: Dispatcher,
    /// For a request and its answer. Only the thread that holds them reads.
    buffers: Mutex<[Vec<u8>; 2]>,
    /// The thread's own; it counts what others read in its stead, too.
    server_thread: OnceLock<Arc<ServerThread>>,
    /// Nobody watches how threads serve the device: few requests come over it.
    unwatched: Arc<SchedulingState>,
}

/// Counts of the messages read in one go.
#[derive(Clone, Copy, Default)]
struct DeviceMessages {
    messages: u32,
    /// Of these, requests with somebody who waits for an answer.
    requests: u32,
    is_over: bool,
}

impl DeviceReader {
    pub(super) fn new(device: &Device, dispatcher: &Dispatcher) -> Arc<Self> {
        let buffers = Mutex::new([by_device::buffer(), by_device::buffer()]);
        Arc::new(DeviceReader {
            device: Arc::clone(device),
            dispatcher: dispatcher.clone(),
            buffers,
            server_thread: OnceLock::new(),
            unwatched: Arc::default(),
        })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Starts the thread, and as many as `threads` for a kernel that sends everything over the device after all.
    pub(super) fn start(self: Arc<Self>, serving: &mut Serving, threads: usize) -> io::Result<()> {
        self.set_waiting(false)?;
        let mut others = Vec::new();
        for number in 1..threads {
            let (sender, go): (Sender<()>, Receiver<()>) = mpsc::channel();
            let (device, dispatcher) = (Arc::clone(&self.device), self.dispatcher.clone());
            let unwatched = Arc::clone(&self.unwatched);
            others.push(sender);
            serving.spawn(&format!("device-{number}"), move |server_thread| match go.recv() {
                Ok(()) => DeviceServer::new(&device, &dispatcher, &unwatched).serve_all(server_thread),
                // It ended without need of this one.
                Err(_) => Ok(()),
            })?;
        }
        serving.spawn("device-0", move |server_thread| {
            let _ = self.server_thread.set(Arc::clone(server_thread));
            self.run(server_thread, others)
        })
    }

    fn run(&self, server_thread: &ServerThread, others: Vec<Sender<()>>) -> io::Result<()> {
        // The first few come before the kernel has all rings.
        let few = others.len().saturating_add(1);
        let mut requests = 0_usize;
        loop {
            self.wait()?;
            let (mut patience, mut vain) = (0, 0);
            while vain < patience.max(1) {
                let came = self.drain(server_thread)?;
                if came.is_over {
                    return Ok(());
                }
                requests = requests.saturating_add(came.requests.try_into().unwrap_or(usize::MAX));
                if requests > few {
                    self.set_waiting(true)?;
                    for other in &others {
                        // One that has ended is not needed.
                        let _ = other.send(());
                    }
                    return DeviceServer::new(&self.device, &self.dispatcher, &self.unwatched)
                        .serve_all(server_thread);
                }
                vain = if came.messages == 0 { vain + 1 } else { 0 };
                patience = came.messages.saturating_add(patience).min(PATIENCE);
                std::thread::sleep(AWAY);
            }
        }
    }

    /// Has the nodes forgotten that the kernel has given back until now.
    pub(super) fn catch_up(&self) {
        if let Some(server_thread) = self.server_thread.get() {
            // The thread at the device meets the same error.
            let _ = self.drain(server_thread);
        }
    }

    /// Reads and serves what is there.
    fn drain(&self, server_thread: &ServerThread) -> io::Result<DeviceMessages> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let [input, output] = &mut *buffers;
        let mut came = DeviceMessages::default();
        let place = DeviceServer::new(&self.device, &self.dispatcher, &self.unwatched);
        loop {
            match place.serve_one(server_thread, input, output)? {
                Served::Answered => came.requests += 1,
                Served::Silently => {}
                Served::Nothing => return Ok(came),
                Served::Over => return Ok(DeviceMessages { is_over: true, ..came }),
            }
            came.messages += 1;
        }
    }

    /// Sets whether reading waits until there is something.
    fn set_waiting(&self, waits: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.device)?;
        flags.set(OFlags::NONBLOCK, !waits);
        Ok(fcntl_setfl(&self.device, flags)?)
    }

    /// Waits until something can be read, which it also can at the end.
    fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
