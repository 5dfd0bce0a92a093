//! A volume as the kernel asks for it: nodes to inodes, errors to numbers, and the log beside them.
//!
//! The number of a node is that of its inode, but for the root, which the kernel calls 1. Each node that
//! the kernel is given is a user of its inode until the kernel forgets it, so that an inode without a
//! name lives as long as somebody has it open.

mod asking;
mod beside;
pub(in crate::mount) mod callers;
pub(in crate::mount) mod calls;
pub(super) mod control;
mod counts;
mod guard;
mod nearly_full;
mod proofs;
mod read;
mod removed;
mod room;
mod taking;
mod write;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use fuse::{
    Access, Attributes, Cached, Caller, CatchUp, Entry, Errno, FlushPages, Listed, NewNode, Notifier, Opened,
    ReadFlags, Replace, Scheduling, Seek, Service, SetAttr, Statistics, WriteFlags, WritePos,
};
use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::device::SnapshotDevice;
use platfs::rights::READ;
use platfs::{AccessTimes, Error, Metadata, Reclaimed, Volume};
use serde_json::{Value, json};

use self::beside::Beside;
use self::counts::{Counts, Verb};
pub use self::guard::Guard;
use self::nearly_full::NearlyFull;
pub use self::nearly_full::is_roomy;
use self::removed::Removed;
use super::appearance::Appearance;
use super::errno;
use super::log::{Detail, Log};
use super::moving::{self, Announced};
use super::options::OnDamage;
use super::quotas;
use super::tuning::Limits;
use crate::control::Tickets;
use platfs_image::clock;
use platfs_image::text::Shown;
use platfs_open::locks::locked;

/// How long an unmount goes on reclaiming what a crash left.
const RECLAIMING: Duration = Duration::from_secs(10);

/// A volume, served.
pub struct Tree {
    volume: Volume,
    log: Arc<Log>,
    room: room::Room,
    first_inode: u32,
    terms: Terms,
    /// Checks permissions, where the kernel does not.
    guard: Option<Guard>,
    /// Nothing is written any more: damage was met.
    stopped: AtomicBool,
    counts: Counts,
    /// Files that have become immutable or append-only since the kernel knows them: it may have pages of them that were
    /// written before.
    flagged: Mutex<HashSet<InodeNumber>>,
    /// Space of files at their last sync, until it is known to have become less.
    synced_space: Mutex<HashMap<InodeNumber, u64>>,
    /// Ranges that programs are about to take out or put in.
    announced: Announced,
    nearly_full: NearlyFull,
    notifier: OnceLock<Arc<Notifier>>,
    /// How requests come, and what serves them; known once it is served.
    served_by: OnceLock<(&'static str, Scheduling)>,
    /// The way to what files without names still hold.
    catch_up: OnceLock<CatchUp>,
    removed: Removed,
    /// Tickets of the control channel.
    tickets: Arc<Tickets>,
    /// Work that changes names beside the kernel.
    beside: Beside,
    /// The device, of which snapshots can be taken.
    keeping: OnceLock<Arc<SnapshotDevice>>,
}

/// A request that changes something: the tree, and its volume at the time of the request.
struct Altering<'t> {
    tree: &'t Tree,
    volume: Volume,
}

impl Deref for Altering<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.tree
    }
}

/// How to serve a volume.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Lists of access control are shown.
    pub acl: bool,
    /// Attributes of users are shown.
    pub user_xattr: bool,
    /// There are extended attributes. Where not, the kernel asks for none after the first answer.
    pub xattr: bool,
    /// Reaction to damage.
    pub on_damage: OnDamage,
    /// It can be written.
    pub writable: bool,
    /// The kernel takes writes into its pages.
    pub writeback: bool,
    /// When reading changes the time of access.
    pub access_times: AccessTimes,
    /// How files look where the image does not say it.
    pub appearance: Appearance,
    /// All who come in are root here.
    pub fake_root: bool,
    /// Each change is stable when its request is answered.
    pub sync: bool,
    /// True if changes of names are synchronous.
    pub sync_names: bool,
}

/// Part that a request changes, for those that are to be stable at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changed {
    Names,
    Inode,
}

impl Tree {
    /// Serves a volume.
    ///
    /// # Errors
    /// Broken group descriptors.
    pub fn new(volume: Volume, log: Arc<Log>, terms: Terms) -> platfs::Result<Self> {
        let room = room::Room::of(&volume)?;
        let first_inode = volume.format().geometry.first_inode;
        let (stopped, counts) = (AtomicBool::new(false), Counts::default());
        let (flagged, announced, served_by) = (Mutex::default(), Announced::default(), OnceLock::new());
        let (tickets, beside) = (Arc::default(), Beside::default());
        let (guard, nearly_full) = (None, NearlyFull::default());
        Ok(Tree {
            volume,
            log,
            room,
            first_inode,
            terms,
            guard,
            stopped,
            counts,
            flagged,
            synced_space: Mutex::default(),
            announced,
            nearly_full,
            notifier: OnceLock::new(),
            served_by,
            catch_up: OnceLock::new(),
            removed: Removed::default(),
            tickets,
            beside,
            keeping: OnceLock::new(),
        })
    }

    /// Lets it check permissions; without a guard the kernel does.
    #[must_use]
    pub fn guarded(self, guard: Option<Guard>) -> Self {
        Tree { guard, ..self }
    }

    /// Notes the device, so that snapshots of it can be taken.
    pub fn on(&self, keeping: Option<Arc<SnapshotDevice>>) {
        if let Some(keeping) = keeping {
            let _ = self.keeping.set(keeping);
        }
    }

    /// Notes how requests come and what serves them, for the statistics.
    pub fn served_by(&self, transport: &'static str, scheduling: Scheduling, catch_up: CatchUp) {
        let _ = self.served_by.set((transport, scheduling));
        let _ = self.catch_up.set(catch_up);
    }

    /// Notes what the kernel lets this mount have, from now on to be less where room is short.
    pub fn limited_by(&self, limits: Option<Limits>, notifier: Arc<Notifier>) {
        let _ = self.notifier.set(notifier);
        if let Some(limits) = limits.filter(|_| self.terms.writeback) {
            self.nearly_full.limited_by(limits);
        }
    }

    /// Looks how much room is left.
    pub fn look_at_room(&self) {
        self.little_is_left(self.nearly_full.look(&self.volume));
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Summary of the work on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        self.counts.summary()
    }

    /// Makes everything stable that was written so far.
    ///
    /// # Errors
    /// As [`Volume::sync`]; it is logged too.
    pub fn settle(&self) -> fuse::Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        self.answer(Verb::SyncFs, fuse::ROOT, b"", || self.stable(|| Ok(self.volume_now().sync()?)))
    }

    /// Commits what was changed, where that is more than to hope for.
    pub fn commit(&self) {
        if self.is_writable()
            && self.volume.keeps_order()
            && let Err(error) = self.volume_now().commit()
        {
            self.after_damage(&error);
            self.log.complain(error);
        }
    }

    /// Writes back what is older than `age`. A failure is reported to the next sync of that file.
    pub fn write_back(&self, age: Duration) {
        if self.is_writable() {
            let mut before = clock::now();
            before.seconds -= i64::try_from(age.as_secs()).unwrap_or(0);
            if let Err(error) = self.volume_now().write_back(Some(before)) {
                self.after_damage(&error);
                self.log.complain(error);
            }
        }
    }

    /// Waits up to `patience` until much is dirty, and writes back the oldest of it. A failure is reported to
    /// the next sync of that file.
    pub fn write_back_ahead(&self, patience: Duration) {
        if !self.is_writable() || self.volume_now().write_back_ahead(patience).is_err() {
            std::thread::sleep(patience);
        }
    }

    /// Does a part of what has to be reclaimed after a crash; says whether anything is left.
    pub fn reclaim_some(&self) -> bool {
        if !self.is_writable() {
            return false;
        }
        let was_pending = self.volume.leftovers().left().is_some();
        match self.volume_now().leftovers().reclaim_some() {
            Ok(true) => return true,
            Ok(false) if was_pending => {
                let Reclaimed { inodes, blocks, .. } = self.volume.leftovers().reclaimed();
                let reclaimed = format!("reclaimed what a crash left: {inodes} inodes, {blocks} blocks");
                self.log.say(Detail::Lifecycle, reclaimed);
            }
            Ok(false) => {}
            Err(error) => {
                self.after_damage(&error);
                self.log.complain(format!("reclaiming what a crash left: {error}"));
            }
        }
        false
    }

    /// Puts the volume in order, once nobody asks any more. What is still to be reclaimed after some time is left to
    /// the next mount.
    ///
    /// # Errors
    /// As [`Volume::close`].
    pub fn close(&self) -> platfs::Result<()> {
        if !self.volume.is_writable() {
            return Ok(());
        }
        self.volume.uses().release_all();
        let begun = Instant::now();
        while begun.elapsed() < RECLAIMING && self.reclaim_some() {}
        self.volume.leftovers().stop();
        self.volume_now().put_in_order()
    }

    /// The volume at this moment: what is done with it gets the time of now.
    fn volume_now(&self) -> Volume {
        self.volume.at_time(clock::now())
    }

    fn is_writable(&self) -> bool {
        self.terms.writable && !self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the counts, for `plat stats`.
    fn statistics_now(&self) -> Value {
        let room = room::now(&self.volume, &self.room);
        json!({
            "requests": self.counts.requests(),
            "amounts": self.counts.amounts(),
            "space": {
                "block_size": room.block_size,
                "blocks": room.blocks,
                "free_blocks": room.free,
                "available_blocks": room.available,
                "inodes": room.inodes,
                "free_inodes": room.free_inodes,
                "looks_for_removed": self.removed.looks(),
            },
            "reclaimed": self.reclaimed(),
            "memory": { "dirty_bytes": self.volume.dirty_bytes() },
            "placement": self.placement(),
            "writable": self.is_writable(),
            "own_permissions": self.guard.is_some(),
            "cage": crate::sandbox::account(),
            "transport": self.served_by.get().map(|(transport, _)| transport),
            "scheduling": self.served_by.get().map(|(_, scheduling)| counts::scheduled(&scheduling.now())),
        })
    }

    /// Returns what was reclaimed after a crash, and if that goes on.
    fn reclaimed(&self) -> Value {
        let Reclaimed { seen, total, inodes, blocks } = self.volume.leftovers().reclaimed();
        let is_over = self.volume.leftovers().left().is_none();
        json!({ "seen": seen, "of": total, "inodes": inodes, "blocks": blocks, "done": is_over })
    }

    /// How blocks were chosen, with the names of the kernel's `mb_stats` where it has them.
    fn placement(&self) -> Value {
        let Some(counts) = self.volume.space().statistics() else { return json!({}) };
        Value::Object(counts.iter().map(|(name, count)| (name.to_owned(), count.into())).collect())
    }

    /// Does, counts and logs a request, and turns its error into a number; damage is logged in words too.
    fn answer<T>(
        &self,
        verb: Verb,
        node: u64,
        name: &[u8],
        work: impl FnOnce() -> Result<T, Failed>,
    ) -> fuse::Result<T> {
        let begun = Instant::now();
        let done = work().map_err(|failed| match failed {
            Failed::Errno(number) => number,
            Failed::Error(error) => {
                if errno::is_damage(&error) {
                    self.complain(verb, node, name, &error);
                }
                errno::of(&error)
            }
        });
        self.counts.took(verb, begun.elapsed(), done.is_err());
        if self.log.covers(Detail::Requests) {
            let outcome = done.as_ref().err().map_or(Cow::Borrowed("done"), |error| error.to_string().into());
            self.log.say(Detail::Requests, format!("{} {node} {}: {outcome}", verb.name(), Shown(name)));
        }
        done
    }

    fn complain(&self, verb: Verb, node: u64, name: &[u8], error: &Error) {
        let name = if name.is_empty() { String::new() } else { format!(" `{}`", Shown(name)) };
        self.log.complain(format!("{} of inode {}{name}: {error}", verb.name(), inode_number(node)));
        if self.terms.on_damage == OnDamage::Stop {
            self.log.complain("errors=panic: stopped");
            std::process::abort();
        }
    }

    /// As [`Tree::answer`], for what changes the volume.
    fn alter<T>(
        &self,
        verb: Verb,
        (node, name): (u64, &[u8]),
        what: Changed,
        work: impl Fn(&Altering<'_>) -> Result<T, Failed>,
    ) -> fuse::Result<T> {
        self.answer(verb, node, name, || self.altered(what, work))
    }

    /// Changes the volume.
    fn altered<T>(
        &self,
        what: Changed,
        work: impl Fn(&Altering<'_>) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        if !self.is_writable() {
            return Err(Errno::ROFS.into());
        }
        let altering = Altering { tree: self, volume: self.volume_now() };
        let done = self.with_room(|| work(&altering));
        if let Err(Failed::Error(error)) = &done {
            self.after_damage(error);
        }
        // What was met and gone around is damage too.
        if let Some(wrong) = self.volume.space().damage().into_iter().next() {
            self.after_damage(&wrong.into());
        }
        let stable = self.terms.sync || self.terms.sync_names && what == Changed::Names;
        if stable && done.is_ok() {
            altering.volume.sync()?;
        }
        done
    }

    /// Has the nodes forgotten that the kernel has given back.
    fn catch_up(&self) {
        if let Some(catch_up) = self.catch_up.get() {
            catch_up.now();
        }
    }

    /// After damage that was met while writing, a check is due; and nothing more is written, if so asked.
    fn after_damage(&self, error: &Error) {
        if !matches!(error, Error::Corrupt(_)) {
            return;
        }
        self.volume.note_damage();
        if self.terms.on_damage == OnDamage::ReadOnly && !self.stopped.swap(true, Ordering::Relaxed) {
            self.log.complain("damage was met while writing: nothing more is written");
        }
    }

    /// Does what makes things stable.
    fn stable(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        let done = work();
        if let Err(Failed::Error(error)) = &done {
            self.after_damage(error);
        }
        done
    }

    /// The inode of a node. Those that the volume keeps for itself are not for anybody to see.
    fn inode(&self, node: u64) -> Result<InodeNumber, Failed> {
        let number = u32::try_from(inode_number(node)).ok().and_then(InodeNumber::new);
        match number {
            Some(number) if number == InodeNumber::ROOT || number.get() >= self.first_inode => Ok(number),
            _ => Err(Failed::Errno(Errno::STALE)),
        }
    }

    fn attributes_of(&self, found: &Metadata) -> Attributes {
        let shown = &self.terms.appearance;
        Attributes {
            inode: u64::from(found.inode.get()),
            file_type: type_of(found.file_type),
            permissions: shown.permissions(found.file_type, found.permissions),
            links: u32::from(found.links),
            uid: shown.uid.unwrap_or(found.uid),
            gid: shown.gid.unwrap_or(found.gid),
            device: found.device.unwrap_or_default(),
            size: found.size,
            sectors: found.sectors,
            block_size: self.volume.format().geometry.block_size.bytes(),
            access: time(found.times.access),
            modify: time(found.times.modify),
            change: time(found.times.change),
            birth: found.times.create.map(time),
        }
    }

    /// Makes the kernel a user of an inode, which it is from the answer on until it forgets it.
    fn hand_out(
        &self,
        number: InodeNumber,
        facts: impl FnOnce() -> Result<Metadata, Failed>,
    ) -> Result<Entry, Failed> {
        let node = if number == InodeNumber::ROOT { fuse::ROOT } else { u64::from(number.get()) };
        if self.terms.writable {
            self.volume.uses().retain(number)?;
        }
        match facts() {
            Ok(facts) => {
                Ok(Entry { node, generation: facts.generation, attributes: self.attributes_of(&facts) })
            }
            Err(failed) => {
                self.take_back(node, 1);
                Err(failed)
            }
        }
    }

    /// The kernel gives back what it was handed.
    fn take_back(&self, node: u64, times: u64) {
        if let (true, Ok(number)) = (self.terms.writable, self.inode(node)) {
            // A moment later the number may be that of another file, which a program has open.
            self.volume_now().uses().release_then(number, times, || {
                self.flagged().remove(&number);
                self.synced_space().remove(&number);
                self.nearly_full.forget(number);
                self.removed.left(number);
            });
        }
    }

    /// Judges what the kernel knows of the space of a file that was synced: it asks for it only after a file was closed. It is
    /// made to ask where the space is another than at the last sync.
    fn space_known(&self, number: InodeNumber) -> Result<Cached, Failed> {
        let sectors = self.volume.metadata(number)?.sectors;
        let before = self.synced_space().insert(number, sectors);
        Ok(if before == Some(sectors) { Cached::Valid } else { Cached::Stale })
    }

    fn synced_space(&self) -> MutexGuard<'_, HashMap<InodeNumber, u64>> {
        locked(&self.synced_space)
    }

    fn flagged(&self) -> MutexGuard<'_, HashSet<InodeNumber>> {
        locked(&self.flagged)
    }
}

/// Why a request fails.
enum Failed {
    Errno(Errno),
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

impl From<Errno> for Failed {
    fn from(number: Errno) -> Self {
        Failed::Errno(number)
    }
}

fn inode_number(node: u64) -> u64 {
    if node == fuse::ROOT { u64::from(InodeNumber::ROOT.get()) } else { node }
}

fn type_of(file_type: FileType) -> fuse::FileType {
    match file_type {
        FileType::Regular => fuse::FileType::Regular,
        FileType::Directory => fuse::FileType::Directory,
        FileType::Symlink => fuse::FileType::Symlink,
        FileType::CharDevice => fuse::FileType::CharDevice,
        FileType::BlockDevice => fuse::FileType::BlockDevice,
        FileType::Fifo => fuse::FileType::Fifo,
        FileType::Socket => fuse::FileType::Socket,
    }
}

fn time(time: Timestamp) -> fuse::Time {
    fuse::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Service for Tree {
    fn begin(&self, caller: Caller) {
        callers::begin(caller);
        if let Some(guard) = &self.guard {
            guard.begin(caller);
        }
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> fuse::Result<Entry> {
        self.answer(Verb::Lookup, parent, name, || match self.proof(parent) {
            Some(proof) => Ok(proof.find(name)?),
            None => self.find(parent, name),
        })
    }

    fn forget(&self, node: u64, times: u64) {
        let begun = Instant::now();
        self.take_back(node, times);
        self.counts.took(Verb::Forget, begun.elapsed(), false);
    }

    fn attributes(&self, node: u64) -> fuse::Result<Attributes> {
        self.answer(Verb::GetAttr, node, b"", || match self.proof(node) {
            Some(proof) => Ok(proof.attributes()?),
            None => Ok(self.attributes_of(&self.volume.metadata(self.inode(node)?)?)),
        })
    }

    fn before_write(&self, caller: Caller, node: u64) -> fuse::Result<()> {
        if self.keeps_attributes(node) {
            return Ok(());
        }
        match self.altered(Changed::Inode, |at| at.make_room(caller, self.inode(node)?)) {
            Ok(()) => Ok(()),
            refused => self.answer(Verb::GetAttr, node, b"", || refused),
        }
    }

    fn keeps_attributes(&self, node: u64) -> bool {
        self.inode(node).map_or(true, |number| !self.asks(number))
    }

    fn closed(&self, node: u64, wrote: bool) {
        let Ok(number) = self.inode(node) else { return };
        if wrote {
            self.closed_after_writing(number);
        }
        self.removed.left(number);
    }

    fn open(&self, node: u64, access: Access) -> fuse::Result<Opened> {
        self.answer(Verb::Open, node, b"", || match self.proof(node) {
            Some(proof) => Ok(proof.open(access).map(|()| Opened::default())?),
            None => self.may_open(node, access),
        })
    }

    fn open_directory(&self, node: u64) -> fuse::Result<()> {
        if self.guard.is_none() {
            return Err(Errno::NOSYS);
        }
        self.answer(Verb::OpenDir, node, b"", || match proofs::is_one(node) {
            true => Ok(()),
            false => self.guard(self.inode(node)?, READ),
        })
    }

    fn rights(&self, _caller: Caller, node: u64, wanted: u16) -> fuse::Result<()> {
        self.answer(Verb::Access, node, b"", || self.answer_access(node, wanted))
    }

    fn is_passing(&self, node: u64) -> bool {
        proofs::is_one(node)
    }

    fn keeps_names(&self, parent: u64) -> bool {
        self.is_open(parent)
    }

    fn create_open(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> fuse::Result<Entry> {
        let made = self.create(caller, parent, name, new)?;
        self.open_from_birth(made.node);
        Ok(made)
    }

    fn read_link(&self, node: u64) -> fuse::Result<Vec<u8>> {
        self.answer(Verb::ReadLink, node, b"", || self.target(node))
    }

    fn read(&self, node: u64, offset: u64, buffer: &mut [u8], flags: ReadFlags) -> fuse::Result<usize> {
        self.answer(Verb::Read, node, b"", || match self.proof(node) {
            Some(proof) => Ok(proof.read(offset, buffer)?),
            None => self.read_into(node, offset, buffer, flags),
        })
    }

    fn list(
        &self,
        node: u64,
        position: u64,
        with_entries: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> fuse::Result<()> {
        self.answer(Verb::ReadDir, node, b"", || match self.proof(node) {
            Some(proof) => Ok(proof.list()?),
            None => self.list_from(node, position, with_entries, take),
        })
    }

    fn statistics(&self, node: u64) -> fuse::Result<Statistics> {
        self.answer(Verb::StatFs, node, b"", || {
            if self.is_writable() {
                self.volume_now().uses().clear_away()?;
            }
            let room = room::now(&self.volume, &self.room);
            Ok(room::of_project(&self.volume, self.inode(node)?, room)?)
        })
    }

    fn xattr(&self, node: u64, name: &[u8]) -> fuse::Result<Vec<u8>> {
        self.answer(Verb::GetXattr, node, name, || {
            self.must_have_attributes()?;
            self.attribute(node, name)
        })
    }

    fn has_capabilities(&self, node: u64, attribute: &[u8]) -> fuse::Result<usize> {
        self.answer(Verb::GetXattr, node, attribute, || {
            self.must_have_attributes()?;
            self.capabilities(node, attribute)
        })
    }

    fn xattr_names(&self, caller: Caller, node: u64) -> fuse::Result<Vec<Vec<u8>>> {
        let caller = self.taken_for(caller);
        self.answer(Verb::ListXattr, node, b"", || {
            self.must_have_attributes()?;
            self.attribute_names(caller, node)
        })
    }

    fn seek(&self, node: u64, offset: u64, what: Seek, flush: Option<FlushPages<'_>>) -> fuse::Result<u64> {
        self.answer(Verb::Lseek, node, b"", || self.seek_to(node, offset, what, flush))
    }

    fn control(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        argument: &[u8],
        room: usize,
    ) -> fuse::Result<Vec<u8>> {
        let caller = self.taken_for(caller);
        if control::changes(command) {
            return self.alter(Verb::Ioctl, (node, b""), Changed::Inode, |at| {
                at.do_control(caller, node, command, argument).map(|()| Vec::new())
            });
        }
        if command == moving::MOVE {
            return self.alter(Verb::Ioctl, (node, b""), Changed::Inode, |at| {
                let is_known = at.announced.note(caller, node, argument);
                if is_known { Ok(Vec::new()) } else { Err(Errno::INVAL.into()) }
            });
        }
        if command == control::TRIM {
            return self.alter(Verb::Ioctl, (node, b""), Changed::Inode, |at| at.trim(caller, argument));
        }
        if command == quotas::QUOTA {
            return self.quota_asked(caller, node, argument);
        }
        if command == crate::control::protocol::TICKET {
            return self.answer(Verb::Ioctl, node, b"", || self.ticket(caller, node));
        }
        self.answer(Verb::Ioctl, node, b"", || {
            let answer = self.answer_control(node, command, argument)?;
            if answer.len() <= room { Ok(answer) } else { Err(Errno::INVAL.into()) }
        })
    }

    fn create(&self, caller: Caller, parent: u64, name: &[u8], new: &NewNode<'_>) -> fuse::Result<Entry> {
        if let Some(proof) = self.proof(parent) {
            return self.answer(Verb::Create, parent, name, || Ok(proof.create(new.kind)?));
        }
        let caller = self.taken_for(caller);
        self.alter(Verb::Create, (parent, name), Changed::Names, |at| at.make(caller, parent, name, new))
    }

    fn create_unnamed(&self, caller: Caller, parent: u64, new: &NewNode<'_>) -> fuse::Result<Entry> {
        let caller = self.taken_for(caller);
        let made = self
            .alter(Verb::TmpFile, (parent, b""), Changed::Inode, |at| at.make_unnamed(caller, parent, new))?;
        self.open_from_birth(made.node);
        Ok(made)
    }

    fn link(&self, who: Caller, of: u64, parent: u64, name: &[u8]) -> fuse::Result<Entry> {
        if let Some(proof) = self.proof(parent) {
            return self.answer(Verb::Link, parent, name, || Ok(proof.link(of)?));
        }
        self.alter(Verb::Link, (parent, name), Changed::Names, |at| at.give_name(who, of, (parent, name)))
    }

    fn unlink(&self, parent: u64, name: &[u8]) -> fuse::Result<()> {
        if let Some(proof) = self.proof(parent) {
            return self.answer(Verb::Unlink, parent, name, || Ok(proof.unlink(name)?));
        }
        self.alter(Verb::Unlink, (parent, name), Changed::Names, |at| {
            let directory = self.inode(parent)?;
            self.guard_removal(directory, name)?;
            Ok(at.volume.unlink(directory, name)?)
        })
    }

    fn remove_directory(&self, parent: u64, name: &[u8]) -> fuse::Result<()> {
        if let Some(proof) = self.proof(parent) {
            return self.answer(Verb::RmDir, parent, name, || Ok(proof.remove_directory(name)?));
        }
        self.alter(Verb::RmDir, (parent, name), Changed::Names, |at| {
            let directory = self.inode(parent)?;
            self.guard_removal(directory, name)?;
            Ok(at.volume.rmdir(directory, name)?)
        })
    }

    fn rename(
        &self,
        caller: Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        replace: Replace,
    ) -> fuse::Result<()> {
        let caller = self.taken_for(caller);
        self.alter(Verb::Rename, from, Changed::Names, |at| at.move_name(caller, from, to, replace))
    }

    fn change(&self, caller: Caller, node: u64, change: &SetAttr) -> fuse::Result<(Attributes, Cached)> {
        if let Some(proof) = self.proof(node) {
            let changed = || Ok((proof.change(change)?, Cached::Valid));
            return self.answer(Verb::SetAttr, node, b"", changed);
        }
        let caller = self.taken_for(caller);
        let work = |at: &Altering<'_>| at.change_attributes(caller, node, change);
        let attributes = self.alter(Verb::SetAttr, (node, b""), Changed::Inode, work)?;
        Ok((attributes, if self.keeps_attributes(node) { Cached::Valid } else { Cached::Stale }))
    }

    fn write(&self, node: u64, offset: u64, data: &[u8], flags: WriteFlags) -> fuse::Result<Cached> {
        let work = |at: &Altering<'_>| at.write_from(node, offset, data, flags);
        let done = self.alter(Verb::Write, (node, b""), Changed::Inode, work);
        self.little_is_left(self.nearly_full.took(&self.volume, data.len() as u64));
        if let (true, Err(errno), Ok(number)) = (flags.cached, &done, self.inode(node)) {
            self.nearly_full.lost(number, *errno);
            // Once for a file: a program can have any number of writes lost.
            self.log.complain(format!(
                "inode {number}: bytes that the kernel had taken from a program are lost: {errno}"
            ));
        }
        done
    }

    fn allocate(&self, caller: Caller, node: u64, mode: u32, range: (u64, u64)) -> fuse::Result<Cached> {
        let caller = self.taken_for(caller);
        let work = |at: &Altering<'_>| at.change_space(caller, node, mode, range);
        let done = self.alter(Verb::Fallocate, (node, b""), Changed::Inode, work);
        self.little_is_left(self.nearly_full.took(&self.volume, range.1));
        done
    }

    fn copy(&self, caller: Caller, from: (u64, u64), to: WritePos, len: u64) -> fuse::Result<(u64, Cached)> {
        let caller = self.taken_for(caller);
        let work = |at: &Altering<'_>| at.copy_range(caller, from, to, len);
        let done = self.alter(Verb::CopyRange, (to.node, b""), Changed::Inode, work);
        let copied = done.as_ref().map_or(0, |(copied, _)| *copied);
        self.little_is_left(self.nearly_full.took(&self.volume, copied));
        done
    }

    fn sync(&self, node: u64, data_only: bool) -> fuse::Result<Cached> {
        self.answer(Verb::Fsync, node, b"", || {
            if !self.terms.writable {
                return Ok(Cached::Valid);
            }
            if node == fuse::ROOT {
                // For `plat sync`: the kernel does not pass on `syncfs`.
                self.stable(|| Ok(self.volume_now().sync()?))?;
                return Ok(Cached::Valid);
            }
            let number = self.inode(node)?;
            // The kernel reports to the caller what became of its pages.
            self.nearly_full.report(number);
            self.stable(|| {
                let volume = self.volume_now();
                if data_only {
                    volume.inode(number).sync_data()?
                } else {
                    volume.sync_inode(number)?
                }
                Ok(())
            })?;
            self.space_known(number)
        })
    }

    fn sync_all(&self) -> fuse::Result<()> {
        self.settle()
    }

    fn set_xattr(
        &self,
        caller: Caller,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> fuse::Result<()> {
        let work = |at: &Altering<'_>| at.set_attribute(caller, node, (name, value), flags);
        self.alter(Verb::SetXattr, (node, name), Changed::Inode, work)
    }

    fn remove_xattr(&self, _caller: Caller, node: u64, name: &[u8]) -> fuse::Result<()> {
        let work = |at: &Altering<'_>| at.remove_attribute(node, name);
        self.alter(Verb::RemoveXattr, (node, name), Changed::Inode, work)
    }
}
