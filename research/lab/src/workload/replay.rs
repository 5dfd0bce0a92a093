//! Replay of what programs did, as `strace -f -ttt -y -e trace=file,desc` recorded it: the calls that succeeded, in the order in
//! which they ended, by one client, on paths below a directory that becomes the root.
//!
//! Files that a trace uses but does not make were there before: a phase of its own makes them, directories and files of the lengths that
//! were read. What can't follow from the trace alone (files made by programs that were not traced, below directories that
//! were) is made where it is first used. Lines that are no calls, or calls that change and read no file, are passed over.
//! Traces of `plat mount --trace` are known by their first line ([`mounted`]).

mod mounted;

use std::collections::{BTreeMap, BTreeSet};

use super::Scale;
use super::strace::{self, Call};
use crate::system::{Op, Phase, Slot, Stream};

pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("trace", "what strace -f -ttt -y -e trace=file,desc wrote, or plat mount --trace"),
    ("root", "the directory that becomes the root; / by default"),
    ("think", "1: the time between calls passes too"),
];

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let path = scale.settings.get("trace").ok_or("replay wants a trace: --set trace=FILE")?;
    let text = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let text = String::from_utf8_lossy(&text);
    let root = scale.settings.get("root").map_or("/", |root| root);
    let think = scale.number("think", 0, 0)? > 0;
    let mut replay = Replay { root: root.trim_end_matches('/').into(), ..Replay::default() };
    let mut before = None;
    let mut pause = |replay: &mut Replay, known: usize, time: u64| {
        let gap = time.saturating_sub(before.replace(time).unwrap_or(time));
        if think && replay.calls.len() > known && gap > 0 {
            replay.calls.insert(known, Op::Think(gap));
        }
    };
    if text.lines().next() == Some(mounted::HEAD) {
        mounted::read(&text, &mut replay, pause).map_err(|error| format!("{path}: {error}"))?;
    } else {
        for call in strace::calls(&text) {
            let known = replay.calls.len();
            replay.take(&call);
            pause(&mut replay, known, call.time);
        }
    }
    if replay.calls.is_empty() {
        return Err(format!("{path}: no call on a file below {root}"));
    }
    let before: Stream = Box::new(replay.before().into_iter());
    let sync: Stream = Box::new(std::iter::once(Op::SyncAll));
    let calls: Stream = Box::new(replay.calls.into_iter());
    Ok(vec![
        Phase::new("before", vec![before]),
        Phase::new("replay", vec![calls]),
        Phase::new("sync", vec![sync]),
    ])
}

/// Longest file that is taken.
const LARGEST: u64 = 1 << 44;

/// Something that exists.
#[derive(Clone, Copy, Debug)]
struct Node {
    directory: bool,
    /// It was there before the trace and has not been moved: its place among those.
    before: Option<usize>,
    len: u64,
}

/// A file that a process has open.
#[derive(Clone, Debug)]
struct Handle {
    slot: Slot,
    path: String,
    at: u64,
    append: bool,
}

#[derive(Default)]
struct Replay {
    root: String,
    /// By path below the root.
    nodes: BTreeMap<String, Node>,
    /// Paths that were there at any time.
    ever: BTreeSet<String>,
    /// Files that were there before: path, true for a directory, length.
    made_before: Vec<(String, bool, u64)>,
    /// By process and number.
    handles: BTreeMap<(u64, u64), Handle>,
    slots: Slot,
    free: Vec<Slot>,
    /// Handles of a mount that were opened so far.
    opened: u64,
    calls: Vec<Op>,
}

impl Replay {
    fn before(&self) -> Vec<Op> {
        let mut calls = Vec::new();
        for (path, directory, len) in &self.made_before {
            let path: Box<str> = path.as_str().into();
            if *directory {
                calls.push(Op::MakeDirectory(path));
                continue;
            }
            calls.push(Op::Open { slot: 0, path, create: true });
            calls.extend((*len > 0).then_some(Op::Write { slot: 0, offset: 0, len: *len }));
            calls.push(Op::Close(0));
        }
        calls
    }

    /// A path below the root; none for others and for the root itself.
    fn below(&self, path: &str) -> Option<String> {
        let path = strace::plain(path)?;
        let path = path.strip_prefix(&*self.root)?.strip_prefix('/')?;
        (!path.is_empty()).then(|| path.to_string())
    }

    /// Makes sure that a path is there, as what it is used as: makes it if the trace doesn't know it. `false` where it can't be.
    fn there(&mut self, path: &str, directory: bool) -> bool {
        if let Some(node) = self.nodes.get(path) {
            return node.directory == directory;
        }
        let above = path.rsplit_once('/').map(|(above, _)| above.to_string());
        if above.as_deref().is_some_and(|above| !self.there(above, true)) {
            return false;
        }
        let above =
            above.is_none_or(|above| self.nodes.get(&above).is_some_and(|node| node.before.is_some()));
        let still = above && self.ever.insert(path.into());
        let before = still.then_some(self.made_before.len());
        if still {
            self.made_before.push((path.into(), directory, 0));
        } else if directory {
            self.calls.push(Op::MakeDirectory(path.into()));
        } else {
            let slot = self.slot();
            self.calls.extend([Op::Open { slot, path: path.into(), create: true }, Op::Close(slot)]);
            self.free.push(slot);
        }
        self.nodes.insert(path.into(), Node { directory, before, len: 0 });
        true
    }

    /// Returns true if a new name can be made: its directory is there, or can be, and it is not.
    fn room(&mut self, path: &str) -> bool {
        let above = path.rsplit_once('/').map(|(above, _)| above.to_string());
        !self.nodes.contains_key(path) && above.is_none_or(|above| self.there(&above, true))
    }

    fn make(&mut self, path: &str, directory: bool) {
        self.ever.insert(path.into());
        self.nodes.insert(path.into(), Node { directory, before: None, len: 0 });
    }

    fn slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn take(&mut self, call: &Call) {
        match &*call.name {
            "open" | "openat" | "openat2" | "creat" => self.open(call),
            "close" => self.close((call.process, call.number(0))),
            "dup" | "dup2" | "dup3" | "fcntl" | "fcntl64" => self.duplicate(call),
            "lseek" => {
                let slot = self.handle(call, 0).map(|handle| handle.slot);
                self.handles
                    .values_mut()
                    .filter(|handle| Some(handle.slot) == slot)
                    .for_each(|handle| handle.at = call.result);
            }
            "read" | "readv" | "pread64" | "preadv" | "write" | "writev" | "pwrite64" | "pwritev" => {
                self.transfer(call)
            }
            "copy_file_range" | "sendfile" | "sendfile64" => self.copy(call),
            "exited" => {
                let own: Vec<_> =
                    self.handles.keys().filter(|(process, _)| *process == call.process).copied().collect();
                own.into_iter().for_each(|number| self.close(number));
            }
            "fsync" | "fdatasync" | "ftruncate" | "fallocate" => self.of_file(call),
            "sync" | "syncfs" => self.calls.push(Op::SyncAll),
            "getdents64" | "getdents" if call.result == 0 => {
                if let Some(path) = call.file(0).and_then(|path| self.below(&path))
                    && self.there(&path, true)
                {
                    self.calls.push(Op::List(path.into()));
                }
            }
            _ => self.of_paths(call),
        }
    }

    fn open(&mut self, call: &Call) {
        let Some(path) = call.path(0).and_then(|path| self.below(&path)) else { return };
        let how = if call.name == "creat" { "O_CREAT|O_TRUNC" } else { call.flags() };
        // What a link leads to comes with the result; a directory is no file to be opened here.
        let Some(path) = call.opened().map_or(Some(path), |path| self.below(path)) else { return };
        if how.contains("O_DIRECTORY") || how.contains("O_PATH") || how.contains("O_TMPFILE") {
            return;
        }
        let new = how.contains("O_CREAT") && self.room(&path);
        if new {
            self.make(&path, false);
        } else if self.nodes.get(&path).is_some_and(|node| node.directory) || !self.there(&path, false) {
            return;
        }
        let create = new || how.contains("O_TRUNC");
        if let Some(node) = self.nodes.get_mut(&path).filter(|_| create) {
            node.len = 0;
        }
        let slot = self.slot();
        self.calls.push(Op::Open { slot, path: path.as_str().into(), create });
        let handle = Handle { slot, path, at: 0, append: how.contains("O_APPEND") };
        self.close((call.process, call.result));
        self.handles.insert((call.process, call.result), handle);
    }

    fn close(&mut self, number: (u64, u64)) {
        let Some(handle) = self.handles.remove(&number) else { return };
        if self.handles.values().all(|other| other.slot != handle.slot) {
            self.calls.push(Op::Close(handle.slot));
            self.free.push(handle.slot);
        }
    }

    fn duplicate(&mut self, call: &Call) {
        if call.name.starts_with("fcntl") && !call.argument(1).starts_with("F_DUPFD") {
            return;
        }
        let from = (call.process, call.number(0));
        if from.1 != call.result {
            let handle = self.handles.get(&from).cloned();
            self.close((call.process, call.result));
            handle.map(|handle| self.handles.insert((call.process, call.result), handle));
        }
    }

    /// The handle of a call: opened by this process, or by the one that made it, or before the trace began.
    fn handle(&mut self, call: &Call, at: usize) -> Option<Handle> {
        let key = (call.process, call.number(at));
        if let Some(handle) = self.handles.get(&key) {
            return Some(handle.clone());
        }
        let path = call.file(at).and_then(|path| self.below(&path))?;
        let inherited =
            self.handles.iter().find(|((_, number), handle)| *number == key.1 && handle.path == path);
        if let Some(handle) = inherited.map(|(_, handle)| handle.clone()) {
            self.handles.insert(key, handle.clone());
            return Some(handle);
        }
        if !self.there(&path, false) {
            return None;
        }
        let slot = self.slot();
        self.calls.push(Op::Open { slot, path: path.as_str().into(), create: false });
        let handle = Handle { slot, path, at: 0, append: false };
        self.handles.insert(key, handle.clone());
        Some(handle)
    }

    fn transfer(&mut self, call: &Call) {
        let (placed, write) = (call.name.starts_with('p'), call.name.contains("write"));
        self.move_bytes(call, 0, write, placed.then(|| call.number(3)));
    }

    /// Bytes from one file to another; places given by pointers are in memory and not known.
    fn copy(&mut self, call: &Call) {
        let [from, to] = if call.name == "sendfile" || call.name == "sendfile64" { [1, 0] } else { [0, 2] };
        self.move_bytes(call, from, false, None);
        self.move_bytes(call, to, true, None);
    }

    fn move_bytes(&mut self, call: &Call, which: usize, write: bool, place: Option<u64>) {
        let Some(handle) = self.handle(call, which).filter(|_| call.result > 0) else { return };
        let end = self.nodes.get(&handle.path).map_or(0, |node| node.len);
        let offset = place.unwrap_or(if write && handle.append { end } else { handle.at });
        let Some(stop) = offset.checked_add(call.result).filter(|stop| *stop < LARGEST) else { return };
        self.reach(&handle.path, stop, write);
        let (slot, len) = (handle.slot, call.result);
        self.calls.push(if write { Op::Write { slot, offset, len } } else { Op::Read { slot, offset, len } });
        // Handles that share a description share its position.
        for other in self.handles.values_mut().filter(|other| place.is_none() && other.slot == slot) {
            other.at = stop;
        }
    }

    /// Notes that a file has at least `stop` bytes.
    fn reach(&mut self, path: &str, stop: u64, write: bool) {
        let Some(node) = self.nodes.get_mut(path).filter(|node| node.len < stop) else { return };
        // What is read of a file that was there before was there before.
        let before = node.before.and_then(|at| self.made_before.get_mut(at)).filter(|_| !write);
        if let Some((_, _, len)) = before {
            *len = (*len).max(stop);
        }
        node.len = stop;
    }

    fn of_file(&mut self, call: &Call) {
        let Some(Handle { slot, path, .. }) = self.handle(call, 0) else { return };
        let len = call.number(1);
        match &*call.name {
            "ftruncate" => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    node.len = len;
                }
                self.calls.push(Op::Truncate { slot, len });
            }
            "fallocate" if call.argument(1) == "0" => {
                let (offset, len) = (call.number(2), call.number(3));
                self.calls.push(Op::Reserve { slot, offset, len });
            }
            "fallocate" => {}
            name => self.calls.push(Op::Sync { slot, data_only: name == "fdatasync" }),
        }
    }

    fn of_paths(&mut self, call: &Call) {
        let path = |at| call.path(at).and_then(|path| self.below(&path));
        let (first, second) = (path(0), path(1));
        match (&*call.name, first, second) {
            ("mkdir" | "mkdirat", Some(path), _) if self.room(&path) => {
                self.make(&path, true);
                self.calls.push(Op::MakeDirectory(path.into()));
            }
            ("rmdir", Some(path), _) => self.remove(&path, true),
            ("unlinkat", Some(path), _) => self.remove(&path, call.text.contains("AT_REMOVEDIR")),
            ("unlink", Some(path), _) => self.remove(&path, false),
            ("rename" | "renameat" | "renameat2", Some(from), Some(to)) => self.rename(&from, &to),
            ("link" | "linkat", Some(from), Some(to)) if self.there(&from, false) && self.room(&to) => {
                self.make(&to, false);
                self.calls.push(Op::Link(from.into(), to.into()));
            }
            ("symlink" | "symlinkat", _, _) => self.symlink(call),
            (name, Some(path), _)
                if name.contains("stat") || name.contains("access") || name.contains("readlink") =>
            {
                let directory =
                    self.nodes.get(&path).map_or(call.text.contains("S_IFDIR"), |node| node.directory);
                if self.there(&path, directory) {
                    self.calls.push(Op::Status(path.into()));
                }
            }
            _ => {}
        }
    }

    /// The target is what it says, no path of a call.
    fn symlink(&mut self, call: &Call) {
        let Some(path) = call.path(1).and_then(|path| self.below(&path)) else { return };
        if self.room(&path) {
            self.make(&path, false);
            self.calls.push(Op::Symlink { target: call.string(0).into(), path: path.into() });
        }
    }

    fn remove(&mut self, path: &str, directory: bool) {
        let inside = format!("{path}/");
        let full =
            self.nodes.range(inside.clone()..).next().is_some_and(|(other, _)| other.starts_with(&inside));
        if full || !self.there(path, directory) {
            return;
        }
        self.nodes.remove(path);
        let path = path.into();
        self.calls.push(if directory { Op::RemoveDirectory(path) } else { Op::Remove(path) });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let directory = self.nodes.get(from).is_some_and(|node| node.directory);
        let replaced = self.nodes.contains_key(to);
        let fits = if replaced { !directory && self.there(to, false) } else { self.room(to) };
        if from == to || to.starts_with(&format!("{from}/")) || !self.there(from, directory) || !fits {
            return;
        }
        let inside = format!("{from}/");
        let moved: Vec<String> =
            self.nodes.keys().filter(|path| *path == from || path.starts_with(&inside)).cloned().collect();
        for path in moved {
            if let Some(node) = self.nodes.remove(&path) {
                let new = format!("{to}{}", &path[from.len()..]);
                for handle in self.handles.values_mut().filter(|handle| handle.path == path) {
                    handle.path.clone_from(&new);
                }
                self.nodes.insert(new, Node { before: None, ..node });
            }
        }
        self.calls.push(Op::Rename(from.into(), to.into()));
    }
}
