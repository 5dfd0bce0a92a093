//! Our own transport over io_uring (Linux 6.14 and newer): a thread gives the kernel an answer and gets
//! the next request in one system call.
//!
//! Owns: which thread serves which of the kernel's queues, with how much memory, and when to do without.
//! The kernel has a queue for each processor that there could be, and wants something waiting at each.
//! Some requests (forgetting) still come over the device, so it is served too; it also is what is left
//! where rings can't be had.

mod device_reader;
mod raw;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::io::Errno;

use crate::attach::{GiveWay, Options, Transport};
use crate::by_device::{self, LARGEST};
use crate::dispatch::{Dispatcher, Outcome};
use crate::flush_pages::PageFlusher;
use crate::idle_scheduling::{self, SchedulingState, processors};
use crate::server_threads::ServerThread;
use crate::service::Service;
use crate::serving::{CatchUp, Serving};
use crate::wire::{self, Body, Header, Wish};

use device_reader::DeviceReader;
use raw::{HEADER_LEN, Ring, Slot};

/// Bytes that may wait in all slots together; of them only those count that were ever used.
const MEMORY: usize = 40 << 20;
/// Least bytes of a slot: what a read-ahead takes.
const LEAST: usize = 128 << 10;
/// Most threads that wait at queues.
const THREADS_MAX: usize = 32;
/// Requests whose answers may be long are at most so long themselves: names, arguments of `ioctl`. They
/// are copied out of the slot, so that their answers can be put there.
const SHORT: usize = 24 << 10;
/// Room for the answers to the others.
const ANSWER: usize = 4096;
/// How often a slot that the kernel refused to take back is offered again.
const TRIES: u32 = 8;

/// Where the parts of a slot's header are.
const OPERATION_AT: usize = 128;
const COMMIT_AT: usize = 264;
const PAYLOAD_LEN_AT: usize = 272;

/// Descriptors of a thread: its ring, and two by which the scheduler is watched.
const DESCRIPTORS: u64 = 3;
/// Descriptors that everything else of a server needs.
const OTHERS: u64 = 64;

/// Returns true if this process may have the descriptors of so many threads at rings.
fn may_have(threads: usize) -> bool {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.is_none_or(|most| most >= OTHERS + DESCRIPTORS * threads as u64)
}

/// For each thread the queues of its slots. Each queue has at least one slot, and where few threads can do that two:
/// one can then wait for what the other serves.
fn plan(queues: u16, threads: usize) -> Vec<Vec<u16>> {
    let least = if threads > 1 && usize::from(queues) * 2 <= THREADS_MAX { 2 } else { 1 };
    let each = (threads / usize::from(queues)).max(least);
    let total = (usize::from(queues) * each).min(THREADS_MAX);
    // Slots go round the threads queue by queue, so that the slots of one queue fall to different threads.
    let mut plan = vec![Vec::new(); total];
    for (index, queue) in (0..each).flat_map(|_| 0..queues).enumerate() {
        if let Some(slots) = plan.get_mut(index % total) {
            slots.push(queue);
        }
    }
    plan
}

/// Threads that may wait for what others serve: at each queue one is left.
fn may_wait(plan: &[Vec<u16>], threads: usize) -> usize {
    let queues = plan.iter().flatten().max().map_or(0, |last| usize::from(*last) + 1);
    let mut at = vec![0_usize; queues];
    for slots in plan {
        let mut slots = slots.clone();
        // Two slots of one queue at one thread can't wait for each other.
        slots.dedup();
        for queue in slots {
            if let Some(count) = at.get_mut(usize::from(queue)) {
                *count += 1;
            }
        }
    }
    at.into_iter().min().unwrap_or(threads).min(threads).saturating_sub(1)
}

/// Bytes for each of `slots` slots; a power of two.
fn payload(slots: usize) -> usize {
    let largest = usize::try_from(LARGEST).unwrap_or(LEAST);
    // Only pages that were used take memory, but the bound must hold when all were.
    let share = MEMORY / slots.max(1);
    let power = if share.is_power_of_two() { share } else { share.next_power_of_two() / 2 };
    power.clamp(LEAST, largest)
}

/// Serves what is mounted at the other end of the connection.
pub(crate) fn serve(
    service: Arc<dyn Service>,
    connection: OwnedFd,
    options: &Options,
) -> io::Result<Serving> {
    let device = Arc::new(connection);
    let offered = by_device::receive_offer(&device)?;
    let threads = options.threads.max(1);
    let queues = if offered.offer.has_rings() { processors::possible().unwrap_or(0) } else { 0 };
    let plan = if queues > 0 { plan(queues, threads) } else { Vec::new() };
    // Looked at before the first ring is made: a server that runs out of descriptors later can't open files.
    let plan = if may_have(plan.len()) { plan } else { Vec::new() };
    let dispatcher = Dispatcher::new(service, PageFlusher::new(&device, may_wait(&plan, threads)));
    let mut serving = Serving::new();
    let mut rings = Vec::new();
    let mut largest = LARGEST as usize;
    let device_reader = DeviceReader::new(&device, &dispatcher);
    if !plan.is_empty() {
        largest = payload(plan.iter().map(Vec::len).sum());
        // Where a ring can't be made, the device alone is used.
        let watched = Arc::new(SchedulingState::new(serving.scheduling.clone()));
        let made = waiting(&mut serving, &device_reader, &watched, plan, largest);
        rings = made.unwrap_or_else(|_| {
            // The threads end, and give back what they hold.
            let _ = std::mem::replace(&mut serving, Serving::new()).wait();
            Vec::new()
        });
        if !rings.is_empty() && options.give_way != GiveWay::Never {
            idle_scheduling::start(&mut serving, watched, options.give_way)?;
        }
    }
    let has_rings = !rings.is_empty();
    let wish = Wish::new(options, has_rings, u32::try_from(largest).unwrap_or(LARGEST));
    // Rings are made before the answer: once it has accepted, the kernel uses them, and there is no way back.
    if by_device::accept(&device, &offered, &wish)?.has_rings() {
        serving.transport = Transport::Ring;
    }
    for ring in rings {
        // One that has ended already says why by its result.
        let _ = ring.send(());
    }
    if serving.transport == Transport::Ring {
        let others = Arc::clone(&device_reader);
        serving.catch_up = CatchUp::by(move || others.catch_up());
        device_reader.start(&mut serving, threads)?;
    } else {
        by_device::spawn(&mut serving, &device, &dispatcher, options)?;
    }
    Ok(serving)
}

/// Starts the threads, and waits until each has its ring. They go on when their sender says so.
fn waiting(
    serving: &mut Serving,
    device_reader: &Arc<DeviceReader>,
    watched: &Arc<SchedulingState>,
    plan: Vec<Vec<u16>>,
    payload: usize,
) -> io::Result<Vec<Sender<()>>> {
    let mut begin = Vec::new();
    let (report, ready) = mpsc::channel();
    let threads = plan.len();
    for (number, queues) in plan.into_iter().enumerate() {
        let (sender, go) = mpsc::channel();
        begin.push(sender);
        let (device_reader, watched, report) =
            (Arc::clone(device_reader), Arc::clone(watched), report.clone());
        serving.spawn(&format!("ring-{number}"), move |server_thread| {
            let at = RingThread { server_thread: Arc::clone(server_thread), watched, device_reader };
            at.watched.add(server_thread);
            stay_at(&queues);
            let (ring, result) = match Ring::new(Arc::clone(at.device_reader.device()), &queues, payload) {
                Ok(ring) => (Some(ring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The receiver is gone if another thread could not be started.
            let _ = report.send(result);
            drop(report);
            ring.map_or(Ok(()), |ring| Server::new(ring, at).run(&go))
        })?;
    }
    drop(report);
    let made: Vec<io::Result<()>> = ready.iter().take(threads).collect();
    made.into_iter().collect::<io::Result<()>>()?;
    Ok(begin)
}

/// Keeps this thread on the processor whose queue it serves: the caller waits there for the answer, and
/// handing over on one processor costs a fraction of waking another.
fn stay_at(queues: &[u16]) {
    if let [queue] = queues
        && usize::from(*queue) < rustix::thread::CpuSet::MAX_CPU
    {
        let mut processor = rustix::thread::CpuSet::new();
        processor.set(usize::from(*queue));
        // It is only slower elsewhere, and not every process may choose.
        let _ = rustix::thread::sched_setaffinity(None, &processor);
    }
}

/// Thread at a ring: its counters, the watcher's state, and the reader of the device.
struct RingThread {
    server_thread: Arc<ServerThread>,
    watched: Arc<SchedulingState>,
    device_reader: Arc<DeviceReader>,
}

impl Drop for RingThread {
    fn drop(&mut self) {
        self.watched.end();
    }
}

/// A thread that serves what comes over its ring.
struct Server {
    ring: Ring,
    short: Vec<u8>,
    answer: Vec<u8>,
    tries: u32,
    at: RingThread,
}

impl Server {
    fn new(ring: Ring, at: RingThread) -> Self {
        Server { ring, short: vec![0; SHORT], answer: vec![0; ANSWER], tries: TRIES, at }
    }

    /// Serves until all slots have come back without a request.
    fn run(mut self, go: &Receiver<()>) -> io::Result<()> {
        // Nobody says so where rings are not used after all.
        if go.recv().is_err() {
            return Ok(());
        }
        // A slot that the kernel gives back with an error is not registered again. With the last one this thread ends.
        let mut live = self.ring.slots();
        let mut was_used = vec![false; live];
        for slot in 0..live {
            self.ring.register(slot)?;
        }
        while live > 0 {
            self.ring.wait()?;
            while let Some((slot, result)) = self.ring.completed()? {
                let is_used = was_used.get_mut(slot).ok_or(io::ErrorKind::InvalidData)?;
                if result >= 0 {
                    *is_used = true;
                    self.serve(slot)?;
                } else if *is_used && self.may_try_again(result) {
                    self.ring.register(slot)?;
                } else {
                    live -= 1;
                }
            }
        }
        Ok(())
    }

    /// Returns true if a slot that served already and came back with an error is worth another try. That it was
    /// unmounted is the usual reason, and then it is not. Where the kernel takes no slots at the very
    /// beginning it turns to the device by itself.
    fn may_try_again(&mut self, result: i32) -> bool {
        let is_over = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV]
            .iter()
            .any(|error| error.raw_os_error() == -result);
        if is_over || self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        true
    }

    /// Serves the request in a slot and gives it back with the answer.
    fn serve(&mut self, slot: usize) -> io::Result<()> {
        self.at.watched.count(&self.at.server_thread);
        let Some(memory) = self.ring.slot(slot) else { return Err(io::ErrorKind::InvalidData.into()) };
        let Slot { header: fields, payload } = memory;
        let commit = u64::from_ne_bytes(word(fields, COMMIT_AT));
        let (unique, done) = match Header::decode(fields) {
            Ok(header) => {
                let outcome = Work { at: &self.at, short: &mut self.short, answer: &mut self.answer }
                    .run(&header, fields, payload);
                if let Outcome::Stale(node, _) = outcome {
                    by_device::tell_stale(self.at.device_reader.device(), node);
                }
                match outcome {
                    Outcome::Answer(done) | Outcome::Stale(_, done) => (header.unique, done),
                    Outcome::Silence => (header.unique, Ok(0)),
                }
            }
            // The header can't be trusted for its number. The slot's own is known, and without an answer it is lost.
            Err(_) => (commit, Err(Errno::IO)),
        };
        set(fields, 0, &wire::out_header(unique, done));
        let len = u32::try_from(done.unwrap_or(0)).unwrap_or(0);
        set(fields, PAYLOAD_LEN_AT, &len.to_ne_bytes());
        self.ring.commit(slot, commit)
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Parts that serving one request takes.
struct Work<'a> {
    at: &'a RingThread,
    short: &'a mut [u8],
    answer: &'a mut [u8],
}

impl Work<'_> {
    /// Serves a request whose own fields are in `fields` and whose names and bytes are in `payload`; the
    /// answer is then at the beginning of `payload`.
    fn run(self, header: &Header, fields: &[u8; HEADER_LEN], payload: &mut [u8]) -> Outcome {
        const MALFORMED: Outcome = Outcome::Answer(Err(Errno::INVAL));
        let len = u32::from_ne_bytes(word(fields, PAYLOAD_LEN_AT));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let fixed = fields.get(OPERATION_AT..OPERATION_AT + 128).unwrap_or_default();
        let Some(request) = payload.get(..len) else { return MALFORMED };
        let dispatcher = self.at.device_reader.dispatcher();
        // Request and answer share the payload. A long answer is written there at once, so the short request moves away; else
        // the short answer is kept apart until the request is no longer needed.
        if wire::may_answer_at_length(header.operation) {
            let Some(copy) = self.short.get_mut(..len) else { return MALFORMED };
            copy.copy_from_slice(request);
            return dispatcher.serve(header, Body::Parted { fixed, rest: copy }, payload);
        }
        // Nodes that the kernel has forgotten may be removed files whose space `statfs` must count.
        if wire::is_about_room(header.operation) {
            self.at.device_reader.catch_up();
        }
        let outcome = dispatcher.serve(header, Body::Parted { fixed, rest: request }, self.answer);
        if let Outcome::Answer(Ok(len)) | Outcome::Stale(_, Ok(len)) = outcome
            && let Some((place, answer)) = payload.get_mut(..len).zip(self.answer.get(..len))
        {
            place.copy_from_slice(answer);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_is_waited_at_and_memory_is_bounded() {
        for (queues, threads) in [(1, 1), (2, 4), (2, 16), (3, 4), (8, 8), (16, 4), (48, 4), (512, 256)] {
            let plan = plan(queues, threads);
            assert!(plan.len() <= THREADS_MAX, "{queues} {threads}");
            assert!(plan.iter().all(|slots| !slots.is_empty()), "{queues} {threads}");
            let slots = plan.iter().map(Vec::len).sum();
            let mut found = vec![0; usize::from(queues)];
            plan.iter().flatten().for_each(|queue| found[usize::from(*queue)] += 1);
            assert!(found.iter().all(|count| *count > 0), "{queues} {threads}");
            let payload = payload(slots);
            assert!(payload.is_power_of_two() && payload <= LARGEST as usize);
            assert!(payload * slots <= MEMORY || payload == LEAST, "{queues} {threads}: {payload}");
        }
        // Where a queue has several threads, one can wait for what another serves.
        let waits = |queues, threads| may_wait(&plan(queues, threads), threads);
        assert_eq!((waits(2, 16), waits(8, 8), waits(16, 16), waits(48, 16), waits(1, 1)), (7, 1, 1, 0, 0));
        assert_eq!(may_wait(&[], 4), 3, "all of them serve the device");
        // On a small machine several threads wait at each queue: one that waits for the disk stops nobody.
        assert_eq!(plan(2, 4), [[0], [1], [0], [1]]);
    }
}
