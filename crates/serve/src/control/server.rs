//! The server's end: it waits for requests, and does each on a thread of its own.
//!
//! Trust: any program may connect. It has to belong to a user of the mount, to send a request in time, and to show a
//! ticket of its own. What it may do then is decided for each place (`admission`), and for each directory and file
//! (`bulk`).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuse::Notifier;
use ondisk::inode::Timestamp;
use ondisk::units::InodeNumber;
use platfs::device::Device;
use platfs::rights::Powers;
use platfs::{MapForm, Pin, Removed};
use platfs_image::Packing;
use platfs_image::source::Section;

use super::admission::{Gate, acts, node};
use super::ending::Ending;
use super::open::{Entry, Open};
use super::protocol::{Reply, Request, Verb, flag};
use super::resizing;
use super::seqpacket::Socket;
use super::served::Served;
use super::tickets::{Ticket, Tickets};
use super::tuning;
use crate::bulk::{
    Done, Halt, Job, Name, Watcher, convert, copy, defrag, export, import, put, remove, snapshot,
};
use crate::refusal::Refusal;
use platfs_image::clock;
use platfs_open::door::output::received;
use platfs_open::locks::locked;
use rustix::io::Errno;

/// How long a connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often progress is reported.
const REPORTED_EVERY: Duration = Duration::from_millis(200);
/// How long an unmount waits for work that was called off.
const ENDING: Duration = Duration::from_secs(10);

/// State that all connections share.
struct Shared {
    served: Arc<dyn Served>,
    tickets: Arc<Tickets>,
    notifier: Arc<Notifier>,
    /// Only these users may connect; everybody where there is none.
    owner: Option<u32>,
    /// The number by which the kernel knows the mount.
    device: u64,
    stopping: AtomicBool,
    open: Arc<Open>,
    ending: Arc<Ending>,
}

/// The server's end of the channel.
pub struct Server {
    shared: Arc<Shared>,
    listening: Socket,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    fn gate(&self) -> Gate<'_> {
        let Shared { served, tickets, notifier, device, .. } = self;
        Gate { served: &**served, tickets, notifier, device: *device }
    }
}

/// A socket at which nobody answers yet.
pub struct Listener {
    name: String,
    socket: Socket,
}

impl Listener {
    /// Makes it, under a name that nobody guesses.
    ///
    /// # Errors
    /// The system's.
    pub fn begin() -> io::Result<Self> {
        let mut name = [0; 16];
        rustix::rand::getrandom(&mut name[..], rustix::rand::GetRandomFlags::empty())?;
        let name = name.iter().fold(String::from("plat/"), |name, byte| format!("{name}{byte:02x}"));
        let socket = Socket::listen(name.as_bytes())?;
        Ok(Listener { name, socket })
    }
}

impl Server {
    /// Begins to wait for requests about the mount with this device number. With `for_all`, all users may use it; else its
    /// owner, and programs that may administer.
    ///
    /// # Errors
    /// The system's, where there can be no socket or thread.
    pub fn start(
        served: Arc<dyn Served>,
        tickets: Arc<Tickets>,
        notifier: Arc<Notifier>,
        (device, for_all): (u64, bool),
        Listener { name, socket: listening }: Listener,
    ) -> io::Result<Self> {
        let owner = (!for_all).then(|| rustix::process::getuid().as_raw());
        let shared = Arc::new(Shared {
            served,
            tickets,
            notifier,
            owner,
            device,
            stopping: AtomicBool::new(false),
            open: Arc::default(),
            ending: Arc::default(),
        });
        let (waiting, with) = (listening.copy()?, Arc::clone(&shared));
        let thread = thread::Builder::new().name("control".into()).spawn(move || accept(&waiting, &with))?;
        shared.tickets.await_at(name.as_bytes(), device);
        Ok(Server { shared, listening, thread: Some(thread) })
    }

    /// Those who wait for the end of the mount, also after that of the channel.
    #[must_use]
    pub fn ending(&self) -> Arc<Ending> {
        Arc::clone(&self.shared.ending)
    }
}

impl Drop for Server {
    /// Calls off what is being done, and waits for its end.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.listening.shut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.open.end(ENDING);
    }
}

/// Accepts connections until the socket is shut.
fn accept(listening: &Socket, shared: &Arc<Shared>) {
    while let Ok(socket) = listening.accept() {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let Ok(peer) = socket.caller() else { continue };
        let is_welcome = shared.owner.is_none_or(|owner| peer.uid == owner || shared.served.keeps(peer));
        if is_welcome && let Err(why) = begin(&socket, peer.uid, shared) {
            socket.try_send(&Reply::Failed(Done::default(), why).encode());
        }
    }
}

fn begin(socket: &Socket, user: u32, shared: &Arc<Shared>) -> Result<(), Refusal> {
    let (copy, with) = (socket.copy()?, Arc::clone(shared));
    let entry = shared.open.enter(user, socket.copy()?).map_err(|why| Refusal::new(Errno::AGAIN, why))?;
    let work = move || serve(&copy, &with, entry);
    let spawned = thread::Builder::new().name("bulk".into()).spawn(work);
    Ok(spawned.map(drop)?)
}

/// Serves one connection: one request.
fn serve(socket: &Socket, shared: &Shared, entry: Entry) {
    let _ = socket.wait_at_most(Some(PATIENCE));
    let done = match socket.receive() {
        Ok(Some((message, files))) => match Request::decode(&message) {
            Ok(request) if request.verb == Verb::End => match end(socket, shared, entry, &request) {
                Ok(()) => return,
                Err(why) => Err(why),
            },
            Ok(request) => answer(socket, shared, &request, files),
            Err(malformed) => Err(Refusal::new(Errno::PROTO, malformed.to_string())),
        },
        Ok(None) => return,
        Err(error) => Err(Refusal::from(error).at("a request that did not come")),
    };
    let reply = done.unwrap_or_else(|why| Reply::Failed(Done::default(), why));
    let _ = socket.send(&reply.encode(), &[]);
}

/// Has a program wait for the end of the mount; by force, nothing is waited for any more but that.
fn end(socket: &Socket, shared: &Shared, entry: Entry, request: &Request) -> Result<(), Refusal> {
    if request.flags & flag::FORCE != 0 {
        let peer = socket.caller()?;
        must_keep(shared.served.keeps(peer))?;
        shared.served.give_up();
    }
    shared.ending.wait(entry, socket.copy()?).map_err(|why| Refusal::new(Errno::AGAIN, why))
}

/// Does what a request asks, and makes it stable.
fn answer(
    socket: &Socket,
    shared: &Shared,
    request: &Request,
    mut files: Vec<OwnedFd>,
) -> Result<Reply, Refusal> {
    if files.len() < request.places.len() {
        return Err("a request without its directories".into());
    }
    let file = files.split_off(request.places.len()).into_iter().next();
    let gate = shared.gate();
    gate.must_lie_elsewhere(file.as_ref())?;
    if request.verb == Verb::Export {
        must_be_safe(socket, file.as_ref())?;
    }
    let peer = socket.peer()?;
    let tickets = gate.tickets(peer, request, &files)?;
    let Some((first, _)) = tickets.first() else { return Err("a request without a place".into()) };
    let (actor, thread) = (&first.place.actor, first.place.thread);
    if tickets.iter().any(|(ticket, _)| ticket.place.actor != *actor || ticket.place.thread != thread) {
        return Err("tickets of different programs".into());
    }
    let keeps = first.place.keeps(Powers::SYS_ADMIN);
    if matches!(request.verb, Verb::Tune | Verb::Resize) {
        must_keep(keeps)?;
    }
    let served = &*shared.served;
    let watcher = Live { shared, socket, told: Mutex::new(Instant::now()) };
    let job = Job::new(served.volume(), actor, &watcher, served.terms()).with_acts(acts(request, &tickets));
    let worked = match request.verb {
        Verb::Snapshot => taken(&job, shared, socket, file, keeps),
        Verb::Resize => resizing::resize(served, request, &watcher).map_err(Halt::Stream),
        _ => {
            let _beside = Beside::of(served);
            work(&job, request, &tickets, file)
        }
    };
    // What is only read may be changed by others meanwhile in ways that look like damage.
    if let (Err(Halt::At { error, .. }), true) = (&worked, request.verb.writes()) {
        served.failed(error);
    }
    // What was done before a failure stays, and is stable too.
    let settled = if request.verb.writes() { served.settle() } else { Ok(()) };
    Ok(match (worked, settled) {
        (Ok(lines), Ok(())) => Reply::Finished(job.done(), lines),
        (Err(halt), _) => Reply::Failed(job.done(), halt.into()),
        (Ok(_), Err(error)) => {
            Reply::Failed(job.done(), Refusal::from(error).at("what was done is not stable"))
        }
    })
}

/// Refuses an output that somebody else has opened, unless it is a pipe: what the kernel allows and does when a file is
/// written (quotas, reserved space, set-user-id bits) goes by the writer, which is this process.
fn must_be_safe(socket: &Socket, file: Option<&OwnedFd>) -> Result<(), Refusal> {
    let peer = socket.peer()?;
    let facts = file.map(rustix::fs::fstat).transpose()?;
    let is_pipe = facts.is_some_and(|facts| rustix::fs::FileType::from_raw_mode(facts.st_mode).is_fifo());
    match is_pipe || peer == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Refusal::new(Errno::PERM, "the output of another user must be a pipe")),
    }
}

/// Takes a snapshot. It shows everything, so that only the owner of the mount may have one: where that is root, as an
/// administrator.
fn taken(
    job: &Job<'_>,
    shared: &Shared,
    socket: &Socket,
    file: Option<OwnedFd>,
    keeps: bool,
) -> Result<Vec<String>, Halt> {
    let refused = |errno, what: &str| Halt::Stream(Refusal::new(errno, what));
    let is_owner = socket.peer()? == rustix::process::geteuid().as_raw();
    if !is_owner || !keeps {
        return Err(refused(
            Errno::PERM,
            "only the owner of the mount may take a snapshot of it, root with CAP_SYS_ADMIN",
        ));
    }
    let keeping = shared.served.keeping();
    let keeping = keeping
        .ok_or_else(|| refused(Errno::ROFS, "the mount only reads: take the snapshot of the image itself"))?;
    let file = file.ok_or_else(|| refused(Errno::INVAL, "a request without its file"))?;
    let to = received(File::from(file), keeping.size())?;
    shared.served.settle().map_err(|error| Halt::Stream(error.into()))?;
    snapshot::snapshot(job, &keeping, Arc::new(to))
}

/// Refuses all but administrators and the user whose mount it is: what they ask for is about all of the volume.
fn must_keep(keeps: bool) -> Result<(), Refusal> {
    let why = "only the owner of the mount and programs with CAP_SYS_ADMIN change the volume itself";
    if keeps { Ok(()) } else { Err(Refusal::new(Errno::PERM, why)) }
}

/// The work of a request.
fn work<'r>(
    job: &Job<'_>,
    request: &'r Request,
    places: &[(Ticket, Pin<'_>)],
    file: Option<OwnedFd>,
) -> Result<Vec<String>, Halt> {
    let has = |bit: u32| request.flags & bit != 0;
    let place = |at: usize| match (places.get(at), request.places.get(at)) {
        (Some((ticket, _)), Some(place)) => Ok((ticket.place.inode, place.name.as_ref(), &place.shown[..])),
        _ => Err(Halt::Stream("a request without a place".into())),
    };
    let file = || file.map(File::from).ok_or_else(|| Halt::Stream("a request without its file".into()));
    let (directory, name, shown) = place(0)?;
    let child = || job.child(directory, name.map_or(&[], Name::bytes), shown);
    let named = |name: Option<&'r Name>| name.ok_or_else(|| Halt::Stream("a request without a name".into()));
    match request.verb {
        Verb::Import => {
            let archive = Section::whole(file()?)?;
            import::import(job, directory, &archive, import::Options { force: has(flag::FORCE) })
        }
        Verb::Export => {
            let packing = match () {
                () if has(flag::GZIP) => Packing::Gzip,
                () if has(flag::ZSTD) => Packing::Zstd,
                () => Packing::Plain,
            };
            export::export(job, directory, file()?, packing)
        }
        Verb::Copy => {
            let (to, name_there, shown_there) = place(1)?;
            let source = child()?;
            let number = source.facts.inode;
            let (recursive, force, preserve) = (has(flag::RECURSIVE), has(flag::FORCE), has(flag::PRESERVE));
            let target = copy::Target { directory: to, name: named(name_there)?, path: shown_there };
            copy::copy(job, number, shown, target, copy::Options { recursive, force, preserve })?;
            Ok(Vec::new())
        }
        Verb::Remove => {
            let options = remove::Options {
                recursive: has(flag::RECURSIVE),
                dir: has(flag::DIRECTORY),
                force: has(flag::FORCE),
            };
            remove::remove(job, directory, named(name)?, shown, options)?;
            Ok(Vec::new())
        }
        Verb::Defrag => {
            let start = child()?;
            let number = |at: usize| request.numbers.get(at).copied().unwrap_or(0);
            let (free, dry_run) = (has(flag::FREE), has(flag::DRY_RUN));
            let options = defrag::Options { free, dry_run, rate: number(0), most: number(1) };
            let report = defrag::defrag(job, &[(start.facts.inode, shown)], options)?;
            Ok(defrag::report::lines(&report.object()))
        }
        Verb::Convert => {
            let start = child()?;
            let form = if has(flag::POINTERS) { MapForm::Pointers } else { MapForm::Extents };
            let options = convert::Options { form, dry_run: has(flag::DRY_RUN) };
            let report = convert::convert(job, (start.facts.inode, shown), options)?;
            Ok(defrag::report::lines(&report.object()))
        }
        Verb::Tune => tuning::tune(job.volume, &file()?).map_err(Halt::Stream),
        Verb::Put => {
            let target = copy::Target { directory, name: named(name)?, path: shown };
            let made = put::put(job, &file()?, target, has(flag::FORCE))?;
            Ok(vec![made.get().to_string()])
        }
        Verb::Snapshot | Verb::Resize | Verb::End => Err(Halt::Stream("no work on files".into())),
    }
}

/// While it lives, names change beside the kernel.
struct Beside<'s>(&'s dyn Served);

impl<'s> Beside<'s> {
    fn of(served: &'s dyn Served) -> Self {
        served.begin_beside();
        Beside(served)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.end_beside();
    }
}

/// Work on a volume that the kernel uses meanwhile.
struct Live<'s> {
    shared: &'s Shared,
    socket: &'s Socket,
    told: Mutex<Instant>,
}

impl Live<'_> {
    /// Returns true if the kernel may know a directory that this work uses once.
    fn is_known(&self, directory: InodeNumber) -> bool {
        directory == InodeNumber::ROOT || self.shared.served.volume().bulk().users(directory) > 1
    }
}

impl Watcher for Live<'_> {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn added(&self, directory: InodeNumber, name: &[u8]) {
        if self.is_known(directory) {
            // The connection has ended where this fails: nobody knows anything any more.
            let _ = self.shared.notifier.name(node(directory), name);
        }
    }

    fn removed(&self, directory: InodeNumber, removed: &Removed) {
        let is_used = self.shared.served.volume().bulk().users(removed.inode) > 0;
        if is_used || removed.links > 0 {
            let _ = self.shared.notifier.name(node(directory), &removed.name);
            // A program that still uses a directory sees that it is empty; a file keeps its bytes.
            let _ = self.shared.notifier.node(node(removed.inode), removed.is_directory);
        }
    }

    fn touched(&self, directory: InodeNumber) {
        if self.is_known(directory) {
            // A listing that is under way is of before, and would be kept: the first message waits for its end.
            let _ = self.shared.notifier.name(node(directory), b".");
            let _ = self.shared.notifier.node(node(directory), true);
        }
    }

    fn relinked(&self, number: InodeNumber) {
        let _ = self.shared.notifier.node(node(number), false);
    }

    fn go_on(&self, done: &Done) -> Result<(), Halt> {
        if self.shared.stopping.load(Ordering::Relaxed) || self.socket.is_called_off() {
            return Err(Halt::Stopped);
        }
        let mut told = locked(&self.told);
        if told.elapsed() >= REPORTED_EVERY {
            *told = Instant::now();
            self.socket.try_send(&Reply::Progress(*done).encode());
        }
        Ok(())
    }
}
