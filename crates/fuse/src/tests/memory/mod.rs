//! A file system in memory, for tests and measurements of transports: small, and with the rules that a
//! transport can break. What it does not check, the kernel does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use fuse::{
    Access, Attributes, Cached, Caller, CatchUp, Entry, Errno, FileType, FlushPages, Kind, Listed, NewNode,
    Opened, ROOT, ReadFlags, Replace, Result, Seek, Service, SetAttr, SetTime, Statistics, Time, WriteFlags,
    WritePos,
};

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.
pub const GET_FLAGS: u32 = 0x8008_6601;
pub const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`, which the kernel asks for before it sets flags.
pub const GET_XATTR_FLAGS: u32 = 0x801c_581f;

/// The names of a directory. Each has a place in listings that is never another's, so that those that go
/// shift none of the rest.
#[derive(Default)]
struct Names {
    by_name: HashMap<Vec<u8>, (u64, u64)>,
    by_place: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

/// The places of `.` and `..`.
const DOTS: [(u64, &[u8]); 2] = [(1, b"."), (2, b"..")];

impl Names {
    fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|(node, _)| *node)
    }

    fn insert(&mut self, name: &[u8], node: u64) {
        self.remove(name);
        self.last = self.last.max(DOTS.len() as u64) + 1;
        self.by_name.insert(name.to_vec(), (node, self.last));
        self.by_place.insert(self.last, name.to_vec());
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((_, place)) = self.by_name.remove(name) {
            self.by_place.remove(&place);
        }
    }

    fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names behind a place, each with its own.
    fn behind(&self, place: u64) -> impl Iterator<Item = (u64, Vec<u8>, u64)> + '_ {
        self.by_place.range(place + 1..).map(|(place, name)| (*place, name.clone(), self.by_name[name].0))
    }
}

struct Node {
    attributes: Attributes,
    generation: u32,
    data: Vec<u8>,
    names: Names,
    parent: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    flags: u32,
    known: u64,
}

struct Nodes {
    all: HashMap<u64, Node>,
    last: u64,
    now: u32,
}

/// The file system.
pub struct Memory {
    nodes: Mutex<Nodes>,
    /// Requests, by anything.
    pub requests: AtomicU64,
    /// `sync_all` and `sync`.
    pub syncs: AtomicU64,
    /// Bytes that a file can have.
    pub room: AtomicU64,
    /// Files that were to have more, until a writer heard of it.
    failed: Mutex<HashSet<u64>>,
    /// How many nodes there is room for.
    pub limit: AtomicUsize,
    /// Asked before it is full.
    pub catch_up: OnceLock<CatchUp>,
    /// Opening is a request, as where opening may be refused.
    pub opens: bool,
    /// There are no extended attributes.
    pub without_xattr: bool,
    /// Gate at which lookups of [`SLOW`] wait.
    #[allow(dead_code, reason = "measurements wait for nothing")]
    pub gate: Gate,
}

/// Something to wait at.
#[derive(Default)]
pub struct Gate {
    /// True once somebody has come, and true once it is open.
    state: Mutex<(bool, bool)>,
    news: Condvar,
}

#[allow(dead_code, reason = "measurements wait for nothing")]
impl Gate {
    fn state(&self) -> MutexGuard<'_, (bool, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is open.
    fn pass(&self) {
        self.state().0 = true;
        self.news.notify_all();
        drop(self.news.wait_while(self.state(), |(_, open)| !*open));
    }

    /// Waits until somebody waits.
    pub fn wait_for_somebody(&self) {
        drop(self.news.wait_while(self.state(), |(came, _)| !*came));
    }

    /// Lets all pass.
    pub fn open(&self) {
        self.state().1 = true;
        self.news.notify_all();
    }
}

/// A name whose node can't be read.
pub const DAMAGED: &[u8] = b"damaged";
/// A name that makes a lookup panic.
pub const PANIC: &[u8] = b"panic";
/// A name whose lookup waits until the gate is opened.
pub const SLOW: &[u8] = b"slow";

fn attributes(
    inode: u64,
    file_type: FileType,
    permissions: u16,
    caller: (u32, u32),
    now: Time,
) -> Attributes {
    Attributes {
        inode,
        file_type,
        permissions,
        links: if file_type == FileType::Directory { 2 } else { 1 },
        uid: caller.0,
        gid: caller.1,
        device: (0, 0),
        size: 0,
        sectors: 0,
        block_size: 4096,
        access: now,
        modify: now,
        change: now,
        birth: Some(now),
    }
}

impl Nodes {
    fn tick(&mut self) -> Time {
        self.now += 1;
        Time { seconds: 1_700_000_000, nanoseconds: self.now % 1_000_000_000 }
    }

    fn node(&mut self, node: u64) -> Result<&mut Node> {
        self.all.get_mut(&node).ok_or(Errno::STALE)
    }

    fn entry(&mut self, node: u64) -> Result<Entry> {
        let found = self.node(node)?;
        found.known += 1;
        Ok(Entry { node, generation: found.generation, attributes: found.attributes })
    }

    fn child(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.node(parent)?.names.get(name).ok_or(Errno::NOENT)
    }

    fn add(&mut self, caller: Caller, parent: u64, new: &NewNode<'_>) -> u64 {
        let now = self.tick();
        self.last += 1;
        let number = self.last;
        let (file_type, device, target): (_, _, &[u8]) = match new.kind {
            Kind::Regular => (FileType::Regular, (0, 0), b""),
            Kind::Directory => (FileType::Directory, (0, 0), b""),
            Kind::Symlink(target) => (FileType::Symlink, (0, 0), target),
            Kind::CharDevice(major, minor) => (FileType::CharDevice, (major, minor), b""),
            Kind::BlockDevice(major, minor) => (FileType::BlockDevice, (major, minor), b""),
            Kind::Fifo => (FileType::Fifo, (0, 0), b""),
            Kind::Socket => (FileType::Socket, (0, 0), b""),
        };
        let permissions = new.permissions & !new.umask;
        let mut attributes = attributes(number, file_type, permissions, (caller.uid, caller.gid), now);
        attributes.device = device;
        attributes.size = target.len() as u64;
        let node = Node {
            attributes,
            generation: 7,
            data: target.to_vec(),
            names: Names::default(),
            parent,
            xattrs: BTreeMap::new(),
            flags: 0,
            known: 0,
        };
        self.all.insert(number, node);
        number
    }

    /// One name less.
    fn drop_name(&mut self, node: u64) {
        let now = self.tick();
        let Ok(found) = self.node(node) else { return };
        let is_directory = found.attributes.file_type == FileType::Directory;
        found.attributes.links = if is_directory { 0 } else { found.attributes.links - 1 };
        found.attributes.change = now;
        self.reap(node);
    }

    fn reap(&mut self, node: u64) {
        if self.all.get(&node).is_some_and(|found| found.known == 0 && found.attributes.links == 0) {
            self.all.remove(&node);
        }
    }

    fn touch(&mut self, node: u64) {
        let now = self.tick();
        if let Ok(found) = self.node(node) {
            (found.attributes.modify, found.attributes.change) = (now, now);
        }
    }

    fn resize(&mut self, node: u64, size: usize) -> Result<()> {
        let found = self.node(node)?;
        found.data.resize(size, 0);
        found.attributes.size = size as u64;
        found.attributes.sectors = size.div_ceil(512) as u64;
        Ok(())
    }
}

impl Default for Memory {
    fn default() -> Self {
        let caller = Caller { uid: 0, gid: 0, pid: 0 };
        let mut nodes = Nodes { all: HashMap::new(), last: ROOT - 1, now: 0 };
        let new = NewNode { kind: Kind::Directory, permissions: 0o755, umask: 0 };
        nodes.add(caller, ROOT, &new);
        let (requests, syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        let (nodes, limit, gate) = (Mutex::new(nodes), AtomicUsize::new(usize::MAX), Gate::default());
        let (room, failed) = (AtomicU64::new(u64::MAX), Mutex::default());
        let (opens, without_xattr) = (false, false);
        Memory {
            nodes,
            requests,
            syncs,
            room,
            failed,
            limit,
            catch_up: OnceLock::new(),
            opens,
            without_xattr,
            gate,
        }
    }
}

impl Memory {
    /// Answers a request to open something.
    fn opened(&self) -> Result<()> {
        if !self.opens {
            return Err(Errno::NOSYS);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes that are remembered.
    pub fn remembered(&self) -> usize {
        self.nodes().all.len()
    }

    /// How many times the kernel knows nodes other than the root.
    pub fn known(&self) -> u64 {
        self.nodes().all.iter().filter(|(node, _)| **node != ROOT).map(|(_, found)| found.known).sum()
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Service for Memory {
    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry> {
        assert_ne!(name, PANIC, "asked for");
        if name == SLOW {
            self.gate.pass();
        }
        let mut nodes = self.nodes();
        if name == DAMAGED {
            return Err(Errno::UCLEAN);
        }
        let node = match name {
            b"." => parent,
            b".." => nodes.node(parent)?.parent,
            name => nodes.child(parent, name)?,
        };
        nodes.entry(node)
    }

    fn forget(&self, node: u64, times: u64) {
        let mut nodes = self.nodes();
        if node != ROOT
            && let Ok(found) = nodes.node(node)
        {
            found.known = found.known.checked_sub(times).expect("forgotten more often than it was given");
            nodes.reap(node);
        }
    }

    fn before_write(&self, _: Caller, node: u64) -> Result<()> {
        if self.failed().remove(&node) { Err(Errno::NOSPC) } else { Ok(()) }
    }

    fn attributes(&self, node: u64) -> Result<Attributes> {
        Ok(self.nodes().node(node)?.attributes)
    }

    fn open(&self, _: u64, _: Access) -> Result<Opened> {
        self.opened().map(|()| Opened::default())
    }

    fn open_directory(&self, _: u64) -> Result<()> {
        self.opened()
    }

    fn rights(&self, _: Caller, _: u64, _: u16) -> Result<()> {
        self.opened()
    }

    fn create_open(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        self.opened()?;
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.create(caller, parent, name, new)
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>> {
        Ok(self.nodes().node(node)?.data.clone())
    }

    fn read(&self, node: u64, offset: u64, buffer: &mut [u8], _: ReadFlags) -> Result<usize> {
        let mut nodes = self.nodes();
        let data = &nodes.node(node)?.data;
        let rest = data.get(at(offset)..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn list(
        &self,
        node: u64,
        position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let mut nodes = self.nodes();
        let found = nodes.node(node)?;
        let dots = DOTS.iter().zip([node, found.parent]);
        let dots = dots.map(|((place, name), node)| (*place, name.to_vec(), node));
        let mut names: Vec<_> = dots.filter(|(place, ..)| *place > position).collect();
        names.extend(found.names.behind(position));
        for (place, name, child) in &names {
            let is_dots = matches!(&name[..], b"." | b"..");
            let file_type = nodes.node(*child).map_or(FileType::Regular, |found| found.attributes.file_type);
            let entry =
                if with_entries && !is_dots && name != DAMAGED { nodes.entry(*child).ok() } else { None };
            let listed = Listed { name, inode: *child, file_type, next: *place, entry };
            if !take(&listed) {
                if entry.is_some() {
                    nodes.node(*child)?.known -= 1;
                }
                break;
            }
        }
        Ok(())
    }

    fn statistics(&self, _node: u64) -> Result<Statistics> {
        let (free, inodes) = (1 << 20, 1 << 16);
        Ok(Statistics {
            block_size: 4096,
            blocks: 1 << 21,
            free,
            available: free - 5,
            inodes,
            free_inodes: inodes - self.nodes().all.len() as u64,
            name_max: 255,
        })
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if self.without_xattr {
            return Err(Errno::NOSYS);
        }
        self.nodes().node(node)?.xattrs.get(name).cloned().ok_or(Errno::NODATA)
    }

    fn xattr_names(&self, _: Caller, node: u64) -> Result<Vec<Vec<u8>>> {
        Ok(self.nodes().node(node)?.xattrs.keys().cloned().collect())
    }

    fn seek(&self, node: u64, offset: u64, what: Seek, flush_pages: Option<FlushPages<'_>>) -> Result<u64> {
        flush_pages.ok_or(Errno::NOSYS)?(offset..u64::MAX)?;
        // Zeros in whole blocks are holes.
        let mut nodes = self.nodes();
        let data = &nodes.node(node)?.data;
        if offset >= data.len() as u64 {
            return Err(Errno::NXIO);
        }
        let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let wanted = what == Seek::Hole;
        let first = offset / 4096;
        let blocks = (first..).zip(data[at(first * 4096)..].chunks(4096));
        let found = blocks.into_iter().find(|(_, block)| is_hole(block) == wanted);
        match found {
            Some((block, _)) => Ok((block * 4096).max(offset)),
            None if wanted => Ok(data.len() as u64),
            None => Err(Errno::NXIO),
        }
    }

    fn control(&self, _: Caller, node: u64, command: u32, argument: &[u8], room: usize) -> Result<Vec<u8>> {
        let mut nodes = self.nodes();
        let now = nodes.tick();
        let found = nodes.node(node)?;
        match command {
            GET_XATTR_FLAGS => Ok(vec![0; room]),
            GET_FLAGS => {
                let mut word = found.flags.to_ne_bytes().to_vec();
                word.resize(room, 0);
                Ok(word)
            }
            SET_FLAGS => {
                found.flags = u32::from_ne_bytes(argument[..4].try_into().unwrap());
                found.attributes.change = now;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn create(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let mut nodes = self.nodes();
        if nodes.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        if nodes.all.len() >= limit {
            drop(nodes);
            self.catch_up.get().into_iter().for_each(CatchUp::now);
            nodes = self.nodes();
        }
        if nodes.all.len() >= limit {
            return Err(Errno::NOSPC);
        }
        let made = nodes.add(caller, parent, new);
        nodes.node(parent)?.names.insert(name, made);
        if new.kind == Kind::Directory {
            nodes.node(parent)?.attributes.links += 1;
        }
        nodes.touch(parent);
        nodes.entry(made)
    }

    fn create_unnamed(&self, caller: Caller, parent: u64, new: &NewNode<'_>) -> Result<Entry> {
        let mut nodes = self.nodes();
        let made = nodes.add(caller, parent, new);
        nodes.node(made)?.attributes.links = 0;
        nodes.entry(made)
    }

    fn link(&self, _caller: Caller, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut nodes = self.nodes();
        if nodes.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let now = nodes.tick();
        let found = nodes.node(node)?;
        found.attributes.links += 1;
        found.attributes.change = now;
        nodes.node(parent)?.names.insert(name, node);
        nodes.touch(parent);
        nodes.entry(node)
    }

    fn unlink(&self, parent: u64, name: &[u8]) -> Result<()> {
        let mut nodes = self.nodes();
        let node = nodes.child(parent, name)?;
        if nodes.node(node)?.attributes.file_type == FileType::Directory {
            return Err(Errno::ISDIR);
        }
        nodes.node(parent)?.names.remove(name);
        nodes.touch(parent);
        nodes.drop_name(node);
        Ok(())
    }

    fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<()> {
        let mut nodes = self.nodes();
        let node = nodes.child(parent, name)?;
        let found = nodes.node(node)?;
        if found.attributes.file_type != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        if !found.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let parent_node = nodes.node(parent)?;
        parent_node.names.remove(name);
        parent_node.attributes.links -= 1;
        nodes.touch(parent);
        nodes.drop_name(node);
        Ok(())
    }

    fn rename(&self, caller: Caller, from: (u64, &[u8]), to: (u64, &[u8]), replace: Replace) -> Result<()> {
        let mut nodes = self.nodes();
        let node = nodes.child(from.0, from.1)?;
        let other = nodes.child(to.0, to.1).ok();
        match (replace, other) {
            (Replace::No | Replace::NoButWhiteout, Some(_)) => return Err(Errno::EXIST),
            (Replace::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if other == Some(node) {
            return Ok(());
        }
        nodes.node(from.0)?.names.remove(from.1);
        nodes.node(to.0)?.names.insert(to.1, node);
        nodes.node(node)?.parent = to.0;
        match (replace, other) {
            (Replace::Exchange, Some(other)) => {
                nodes.node(from.0)?.names.insert(from.1, other);
                nodes.node(other)?.parent = from.0;
            }
            (_, Some(other)) => nodes.drop_name(other),
            _ => {}
        }
        if matches!(replace, Replace::Whiteout | Replace::NoButWhiteout) {
            let new = NewNode { kind: Kind::CharDevice(0, 0), permissions: 0, umask: 0 };
            let made = nodes.add(caller, from.0, &new);
            nodes.node(from.0)?.names.insert(from.1, made);
        }
        nodes.touch(from.0);
        nodes.touch(to.0);
        Ok(())
    }

    fn change(&self, _: Caller, node: u64, change: &SetAttr) -> Result<(Attributes, Cached)> {
        let mut nodes = self.nodes();
        let now = nodes.tick();
        if let Some(size) = change.size {
            nodes.resize(node, at(size))?;
            nodes.node(node)?.attributes.modify = now;
        }
        let found = nodes.node(node)?;
        let of = &mut found.attributes;
        let to = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        if change.drop_privileges && of.file_type != FileType::Directory {
            of.permissions &= if of.permissions & 0o010 != 0 { 0o1777 } else { 0o3777 };
        }
        of.permissions = change.permissions.unwrap_or(of.permissions);
        of.uid = change.uid.unwrap_or(of.uid);
        of.gid = change.gid.unwrap_or(of.gid);
        of.access = change.access.map_or(of.access, to);
        of.modify = change.modify.map_or(of.modify, to);
        of.change = change.change.unwrap_or(now);
        let attributes = *of;
        Ok((attributes, if self.failed().contains(&node) { Cached::Stale } else { Cached::Valid }))
    }

    fn write(&self, node: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Cached> {
        let mut nodes = self.nodes();
        let (from, end) = (at(offset), at(offset) + data.len());
        if end as u64 > self.room.load(Ordering::Relaxed) {
            self.failed().insert(node);
            return Err(Errno::NOSPC);
        }
        if !flags.cached {
            nodes.touch(node);
        }
        let found = nodes.node(node)?;
        if found.data.len() < end {
            // What is written below is not filled with zeros first.
            found.data.resize(from, 0);
            found.data.extend_from_slice(data);
            found.attributes.size = end as u64;
            found.attributes.sectors = end.div_ceil(512) as u64;
        } else {
            found.data[from..end].copy_from_slice(data);
        }
        if flags.drop_privileges {
            found.attributes.permissions &= 0o1777;
        }
        Ok(if flags.drop_privileges { Cached::Stale } else { Cached::Valid })
    }

    fn allocate(&self, _: Caller, node: u64, mode: u32, (offset, len): (u64, u64)) -> Result<Cached> {
        let mut nodes = self.nodes();
        let (from, end) = (at(offset), at(offset + len));
        match mode {
            0 if nodes.node(node)?.data.len() < end => nodes.resize(node, end)?,
            0 | 1 => {}
            3 => {
                let data = &mut nodes.node(node)?.data;
                let end = end.min(data.len());
                data[from.min(end)..end].fill(0);
            }
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(Cached::Valid)
    }

    fn copy(&self, _: Caller, from: (u64, u64), to: WritePos, len: u64) -> Result<(u64, Cached)> {
        let mut nodes = self.nodes();
        let to = (to.node, to.offset);
        let rest = nodes.node(from.0)?.data.get(at(from.1)..).unwrap_or_default();
        let bytes = rest[..rest.len().min(at(len))].to_vec();
        let end = at(to.1) + bytes.len();
        if nodes.node(to.0)?.data.len() < end {
            nodes.resize(to.0, end)?;
        }
        nodes.node(to.0)?.data[at(to.1)..end].copy_from_slice(&bytes);
        nodes.touch(to.0);
        Ok((bytes.len() as u64, Cached::Valid))
    }

    fn sync(&self, _: u64, _: bool) -> Result<Cached> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(Cached::Valid)
    }

    fn sync_all(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn set_xattr(&self, _: Caller, node: u64, name: &[u8], value: &[u8], _: u32) -> Result<()> {
        self.nodes().node(node)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove_xattr(&self, _: Caller, node: u64, name: &[u8]) -> Result<()> {
        self.nodes().node(node)?.xattrs.remove(name).map(drop).ok_or(Errno::NODATA)
    }
}
