//! Writes the calls that a mount answers into a file, a line each (`plat mount --trace`, docs/trace.md).
//!
//! The thread that answers a call only hands it over; a thread of its own finds paths and writes. Excludes what
//! calls do: they go on to the service. A trace that can't be written never fails a call: the trace ends there,
//! and the unmount reports it.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use fuse::{
    Access, Attributes, Cached, Caller, Entry, FlushPages, Kind, Listed, NewNode, Opened, ROOT, ReadFlags,
    Replace, Result, Seek, Service, SetAttr, Statistics, WriteFlags, WritePos,
};

use super::moving::{self, Announced};
use platfs_open::locks::locked;

/// The first line of a trace.
pub(super) const HEAD: &str = "PLATCALLS 1\n";
/// Calls that may wait to be written: the memory that a slow disk can cost before calls wait for it.
const WAITING: usize = 1 << 14;
/// Bytes that are written at once.
const BUFFER: usize = 1 << 18;

type Name = Box<[u8]>;

/// A name in a directory.
type Place = (u64, Name);

/// Event of a trace, by nodes.
enum What {
    /// A node has this name, from whatever call: no line.
    Known(Place, u64),
    Made(&'static str, Place, u64, Name),
    Link(u64, Place),
    Gone(&'static str, Place),
    Renamed(Place, Place),
    Exchanged(Place, Place),
    /// A verb on a node, with its numbers.
    On(&'static str, u64, [Option<u64>; 3]),
    Copied((u64, u64), (u64, u64), u64),
    /// A verb on an attribute of a node.
    Attribute(&'static str, u64, Name, Option<u64>),
    SyncAll,
}

impl What {
    /// Returns true if it is about such a node, or a name in one.
    fn is_about(&self, is_such: impl Fn(u64) -> bool) -> bool {
        match self {
            What::Known(place, node) | What::Made(_, place, node, _) | What::Link(node, place) => {
                is_such(place.0) || is_such(*node)
            }
            What::Gone(_, place) => is_such(place.0),
            What::On(_, node, _) | What::Attribute(_, node, ..) => is_such(*node),
            What::Renamed(..) | What::Exchanged(..) | What::Copied(..) | What::SyncAll => false,
        }
    }
}

struct Event {
    nanoseconds: u64,
    process: u32,
    what: What,
}

thread_local! {
    /// The process whose call this thread answers.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
}

/// A service that writes down what it is asked.
pub struct Traced {
    service: Arc<dyn Service>,
    /// Moves that were announced, by which a change of space is understood.
    announced: Announced,
    sender: Mutex<Option<SyncSender<Event>>>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Traced {
    /// Makes the file of a trace, in place of what is there.
    ///
    /// # Errors
    /// Errors of the system about the file.
    pub fn file(path: &Path) -> io::Result<File> {
        let mut file = platfs_host::private_log(path, true)?;
        file.write_all(HEAD.as_bytes())?;
        Ok(file)
    }

    /// Begins a trace in its file.
    ///
    /// # Errors
    /// Errors of the system about the thread.
    pub fn new(service: Arc<dyn Service>, file: File) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let writer =
            std::thread::Builder::new().name("trace".into()).spawn(move || write(&receiver, file))?;
        let (sender, writer) = (Mutex::new(Some(sender)), Mutex::new(Some(writer)));
        Ok(Traced { service, announced: Announced::default(), sender, writer })
    }

    /// Ends the trace: all of it is in the file then.
    ///
    /// # Errors
    /// The system's error for the first line that could not be written; the later ones are missing.
    pub fn end(&self) -> io::Result<()> {
        drop(locked(&self.sender).take());
        let writer = locked(&self.writer).take();
        let panicked = || io::Error::other("the thread that writes it panicked");
        writer.map_or(Ok(()), |writer| writer.join().unwrap_or_else(|_| Err(panicked())))
    }

    fn hand_over(&self, what: What) {
        // Those are no files of the volume.
        if what.is_about(|node| self.service.is_passing(node)) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let event = Event { nanoseconds, process: PROCESS.get(), what };
        if let Some(sender) = &*locked(&self.sender) {
            // Nobody listens after a panic of the writer, which the unmount reports.
            let _ = sender.send(event);
        }
    }

    /// Hands over a call that succeeded.
    fn done<T>(&self, done: Result<T>, what: impl FnOnce(&T) -> What) -> Result<T> {
        if let Ok(answer) = &done {
            self.hand_over(what(answer));
        }
        done
    }

    fn on<T>(&self, done: Result<T>, verb: &'static str, node: u64, numbers: [Option<u64>; 3]) -> Result<T> {
        self.done(done, |_| What::On(verb, node, numbers))
    }
}

/// Writes what comes until nobody sends any more. After an error the rest is taken and dropped.
fn write(events: &Receiver<Event>, file: File) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    let (mut paths, mut done) = (Paths::default(), Ok(()));
    for event in events {
        if done.is_ok() {
            done = paths.line(&event).map_or(Ok(()), |line| out.write_all(line.as_bytes()));
        }
    }
    done.and_then(|()| out.flush())
}

/// Names of nodes. They grow with the files that are met, as the kernel's own memory of them does.
#[derive(Default)]
struct Paths {
    /// The names of each node, the latest last.
    names: HashMap<u64, Vec<Place>>,
    nodes: HashMap<Place, u64>,
}

impl Paths {
    fn name(&mut self, place: &Place, node: u64) {
        if node == ROOT || matches!(&*place.1, b"." | b"..") || self.nodes.get(place) == Some(&node) {
            return;
        }
        self.unname(place);
        self.nodes.insert(place.clone(), node);
        self.names.entry(node).or_default().push(place.clone());
    }

    fn unname(&mut self, place: &Place) -> Option<u64> {
        let node = self.nodes.remove(place)?;
        if let Some(names) = self.names.get_mut(&node) {
            names.retain(|name| name != place);
            if names.is_empty() {
                self.names.remove(&node);
            }
        }
        Some(node)
    }

    /// A node's path, escaped; `-` for one that has no name any more.
    fn path(&self, mut node: u64) -> String {
        let mut parts: Vec<&[u8]> = Vec::new();
        while node != ROOT {
            // No directory is below itself; a bound costs nothing.
            let Some((parent, name)) = self.names.get(&node).and_then(|names| names.last()) else {
                return "-".into();
            };
            if parts.len() > 4096 {
                return "-".into();
            }
            parts.push(name);
            node = *parent;
        }
        if parts.is_empty() {
            return "/".into();
        }
        parts.iter().rev().map(|name| format!("/{}", escaped(name))).collect()
    }

    fn place(&self, (parent, name): &Place) -> String {
        match &*self.path(*parent) {
            "/" => format!("/{}", escaped(name)),
            "-" => "-".into(),
            path => format!("{path}/{}", escaped(name)),
        }
    }

    /// The line of a call, and what becomes of names by it.
    fn line(&mut self, event: &Event) -> Option<String> {
        let text = match &event.what {
            What::Known(place, node) => {
                self.name(place, *node);
                return None;
            }
            What::Made(verb, place, node, target) => {
                self.name(place, *node);
                let path = self.place(place);
                if target.is_empty() {
                    format!("{verb} {path}")
                } else {
                    format!("{verb} {path} {}", escaped(target))
                }
            }
            What::Link(node, place) => {
                let old = self.path(*node);
                self.name(place, *node);
                format!("link {old} {}", self.place(place))
            }
            What::Gone(verb, place) => {
                let path = self.place(place);
                self.unname(place);
                format!("{verb} {path}")
            }
            What::Renamed(from, to) => {
                let text = format!("rename {} {}", self.place(from), self.place(to));
                let node = self.unname(from);
                self.unname(to);
                node.into_iter().for_each(|node| self.name(to, node));
                text
            }
            What::Exchanged(one, other) => {
                let text = format!("exchange {} {}", self.place(one), self.place(other));
                let (first, second) = (self.unname(one), self.unname(other));
                second.into_iter().for_each(|node| self.name(one, node));
                first.into_iter().for_each(|node| self.name(other, node));
                text
            }
            What::On(verb, node, numbers) => {
                let numbers: String = numbers.iter().flatten().map(|number| format!(" {number}")).collect();
                format!("{verb} {}{numbers}", self.path(*node))
            }
            What::Copied((from, at), (to, offset), len) => {
                format!("copy {} {at} {} {offset} {len}", self.path(*from), self.path(*to))
            }
            What::Attribute(verb, node, name, len) => {
                let len = len.map(|len| format!(" {len}")).unwrap_or_default();
                format!("{verb} {} {}{len}", self.path(*node), escaped(name))
            }
            What::SyncAll => "sync".into(),
        };
        let (seconds, rest) = (event.nanoseconds / 1_000_000_000, event.nanoseconds % 1_000_000_000);
        Some(format!("{seconds}.{rest:09} {} {text}\n", event.process))
    }
}

/// Bytes that stand for themselves; all others, blanks and backslashes among them, become three octal digits.
fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("\\{byte:03o}"));
        }
    }
    out
}

fn place(parent: u64, name: &[u8]) -> Place {
    (parent, name.into())
}

fn count(len: usize) -> Option<u64> {
    u64::try_from(len).ok()
}

impl Service for Traced {
    fn begin(&self, caller: Caller) {
        PROCESS.set(caller.pid);
        self.service.begin(caller);
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry> {
        self.done(self.service.lookup(parent, name), |entry| What::Known(place(parent, name), entry.node))
    }

    fn forget(&self, node: u64, times: u64) {
        self.service.forget(node, times);
    }

    fn attributes(&self, node: u64) -> Result<Attributes> {
        self.on(self.service.attributes(node), "stat", node, [None; 3])
    }

    fn open(&self, node: u64, access: Access) -> Result<Opened> {
        self.service.open(node, access)
    }

    fn before_write(&self, caller: Caller, node: u64) -> Result<()> {
        self.service.before_write(caller, node)
    }

    fn keeps_attributes(&self, node: u64) -> bool {
        self.service.keeps_attributes(node)
    }

    fn closed(&self, node: u64, wrote: bool) {
        self.service.closed(node, wrote);
    }

    fn open_directory(&self, node: u64) -> Result<()> {
        self.service.open_directory(node)
    }

    fn rights(&self, caller: Caller, node: u64, wanted: u16) -> Result<()> {
        self.service.rights(caller, node, wanted)
    }

    fn keeps_names(&self, parent: u64) -> bool {
        self.service.keeps_names(parent)
    }

    fn is_passing(&self, node: u64) -> bool {
        self.service.is_passing(node)
    }

    fn create_open(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let done = self.service.create_open(caller, parent, name, new);
        self.done(done, |entry| What::Made("create", place(parent, name), entry.node, [].into()))
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>> {
        self.on(self.service.read_link(node), "readlink", node, [None; 3])
    }

    fn read(&self, node: u64, offset: u64, buffer: &mut [u8], flags: ReadFlags) -> Result<usize> {
        let done = self.service.read(node, offset, buffer, flags);
        self.done(done, |len| What::On("read", node, [Some(offset), count(*len), None]))
    }

    fn list(
        &self,
        node: u64,
        position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let mut seen = |listed: &Listed<'_>| {
            let took = take(listed);
            if let Some(entry) = listed.entry.filter(|_| took) {
                self.hand_over(What::Known(place(node, listed.name), entry.node));
            }
            took
        };
        let done = self.service.list(node, position, with_entries, &mut seen);
        if position > 0 { done } else { self.on(done, "list", node, [None; 3]) }
    }

    fn statistics(&self, node: u64) -> Result<Statistics> {
        self.service.statistics(node)
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.service.xattr(node, name)
    }

    fn has_capabilities(&self, node: u64, attribute: &[u8]) -> Result<usize> {
        self.service.has_capabilities(node, attribute)
    }

    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>> {
        self.service.xattr_names(caller, node)
    }

    fn seek(&self, node: u64, offset: u64, what: Seek, flush: Option<FlushPages<'_>>) -> Result<u64> {
        self.service.seek(node, offset, what, flush)
    }

    fn control(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        argument: &[u8],
        room: usize,
    ) -> Result<Vec<u8>> {
        if command == moving::MOVE {
            self.announced.note(caller, node, argument);
        }
        self.service.control(caller, node, command, argument, room)
    }

    fn create(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let (verb, target) = match new.kind {
            Kind::Regular => ("create", &[][..]),
            Kind::Directory => ("mkdir", &[][..]),
            Kind::Symlink(target) => ("symlink", target),
            Kind::CharDevice(..) | Kind::BlockDevice(..) | Kind::Fifo | Kind::Socket => ("mknod", &[][..]),
        };
        let done = self.service.create(caller, parent, name, new);
        self.done(done, |entry| What::Made(verb, place(parent, name), entry.node, target.into()))
    }

    fn create_unnamed(&self, caller: Caller, parent: u64, new: &NewNode<'_>) -> Result<Entry> {
        self.service.create_unnamed(caller, parent, new)
    }

    fn link(&self, caller: Caller, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        self.done(self.service.link(caller, node, parent, name), |_| What::Link(node, place(parent, name)))
    }

    fn unlink(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.done(self.service.unlink(parent, name), |()| What::Gone("unlink", place(parent, name)))
    }

    fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.done(self.service.remove_directory(parent, name), |()| What::Gone("rmdir", place(parent, name)))
    }

    fn rename(&self, caller: Caller, from: (u64, &[u8]), to: (u64, &[u8]), replace: Replace) -> Result<()> {
        self.done(self.service.rename(caller, from, to, replace), |()| {
            let (from, to) = (place(from.0, from.1), place(to.0, to.1));
            if replace == Replace::Exchange { What::Exchanged(from, to) } else { What::Renamed(from, to) }
        })
    }

    fn change(&self, caller: Caller, node: u64, change: &SetAttr) -> Result<(Attributes, Cached)> {
        let done = self.service.change(caller, node, change);
        let verb = if change.size.is_some() { "truncate" } else { "attributes" };
        self.on(done, verb, node, [change.size, None, None])
    }

    fn write(&self, node: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Cached> {
        let done = self.service.write(node, offset, data, flags);
        self.on(done, "write", node, [Some(offset), count(data.len()), None])
    }

    fn allocate(&self, caller: Caller, node: u64, mode: u32, (offset, len): (u64, u64)) -> Result<Cached> {
        let done = self.service.allocate(caller, node, mode, (offset, len));
        let announced =
            || self.announced.take(caller, node).map(|move_| (move_.mode(), move_.offset, move_.len));
        let moved = if moving::is_announced(mode, offset, len) { announced() } else { None };
        let (mode, offset, len) = moved.unwrap_or((mode, offset, len));
        self.on(done, "allocate", node, [Some(u64::from(mode)), Some(offset), Some(len)])
    }

    fn copy(&self, caller: Caller, from: (u64, u64), to: WritePos, len: u64) -> Result<(u64, Cached)> {
        let done = self.service.copy(caller, from, to, len);
        self.done(done, |(count, _)| What::Copied(from, (to.node, to.offset), *count))
    }

    fn sync(&self, node: u64, data_only: bool) -> Result<Cached> {
        let verb = if data_only { "fdatasync" } else { "fsync" };
        self.on(self.service.sync(node, data_only), verb, node, [None; 3])
    }

    fn sync_all(&self) -> Result<()> {
        self.done(self.service.sync_all(), |()| What::SyncAll)
    }

    fn set_xattr(&self, caller: Caller, node: u64, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let done = self.service.set_xattr(caller, node, name, value, flags);
        self.done(done, |()| What::Attribute("setxattr", node, name.into(), count(value.len())))
    }

    fn remove_xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<()> {
        let done = self.service.remove_xattr(caller, node, name);
        self.done(done, |()| What::Attribute("removexattr", node, name.into(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_links_renames_and_exchanges() {
        let mut paths = Paths::default();
        let mut line = |what| {
            let event = Event { nanoseconds: 1_500_000_000, process: 7, what };
            paths.line(&event).unwrap_or_default()
        };
        let at = |parent, name: &str| place(parent, name.as_bytes());
        assert_eq!(line(What::Made("mkdir", at(1, "a b"), 12, [].into())), "1.500000000 7 mkdir /a\\040b\n");
        assert_eq!(
            line(What::Made("create", at(12, "f"), 13, [].into())),
            "1.500000000 7 create /a\\040b/f\n"
        );
        assert_eq!(line(What::Renamed(at(1, "a b"), at(1, "d"))), "1.500000000 7 rename /a\\040b /d\n");
        assert_eq!(line(What::On("write", 13, [Some(0), Some(9), None])), "1.500000000 7 write /d/f 0 9\n");
        assert_eq!(line(What::Link(13, at(1, "g"))), "1.500000000 7 link /d/f /g\n");
        assert_eq!(line(What::Gone("unlink", at(1, "g"))), "1.500000000 7 unlink /g\n");
        assert_eq!(line(What::On("stat", 13, [None; 3])), "1.500000000 7 stat /d/f\n");
        assert_eq!(line(What::Known(at(1, "e"), 14)), "");
        assert_eq!(line(What::Exchanged(at(12, "f"), at(1, "e"))), "1.500000000 7 exchange /d/f /e\n");
        assert_eq!(line(What::On("stat", 14, [None; 3])), "1.500000000 7 stat /d/f\n");
        assert_eq!(line(What::Gone("unlink", at(1, "e"))), "1.500000000 7 unlink /e\n");
        assert_eq!(line(What::On("write", 13, [Some(5), Some(6), None])), "1.500000000 7 write - 5 6\n");
        assert_eq!(line(What::On("list", 1, [None; 3])), "1.500000000 7 list /\n");
    }
}
