//! The library without a mount. A [`Host`] is what a mount would have around it: a model device in virtual time,
//! or this machine ([`super::Computer`]).
//!
//! In virtual time, one thread runs everything; [`crate::workload::in_model_time`] says whose turn it is. Read-ahead of
//! files and the clock's work (old bytes written back, the journal committed) are the host's part, as Linux does
//! them, by the same rules on every machine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ondisk::inode::Timestamp;
use platfs::device::Device;
use platfs::mkfs::{FsType, Options, Plan};
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind, Stats};
use platfs::{
    Allocate, Attributes, DataMode, InodeNumber, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions,
    WriteOrder, for_process,
};

use super::directory::pieces;
use super::{Client, Modelled, Op, Slot, System};
use crate::drive::{Drive, Figures, Lock, ModelDevice};

/// How long bytes wait at most, and how often the clock looks: Linux's 30 and 5 seconds.
const OLD: u64 = 30;
const EVERY: u64 = 5_000_000_000;

/// Largest read-ahead of a file: Linux's default of 128 KiB.
const AHEAD: u64 = 128 << 10;

/// Largest single read or write.
const PIECE: u64 = 1 << 20;

/// A page of a host's memory.
const PAGE: u64 = 4096;

/// Memory of the library's own for metadata, where the machine has that much to spare: what it holds beyond
/// that, the model's buffer cache has. Half of it may be changed. What is known of free space may take an eighth.
const METADATA: u64 = 32 << 20;

/// Durability of a change of names in the call that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// It waits with all other metadata, and what it freed can't be used before.
    Wait,
    /// It is written to the host's buffers, from where the clock writes it: what it freed can be used at once, as
    /// everywhere where nothing orders writes.
    Buffered,
    /// It is written to the drive, as hosts of old did; the rest of metadata is not.
    Written,
}

/// A volume to be made, and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Mounting {
    pub(crate) drive: &'static Drive,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) format: Options,
    pub(crate) policy: BlockPolicyKind,
    pub(crate) tunables: Vec<(String, u32)>,
    pub(crate) directories: DirectoryPolicyKind,
    pub(crate) ordering: WriteOrder,
    pub(crate) data: DataMode,
    pub(crate) names: Names,
    /// All bitmaps are known from the start, as Linux has read them behind a mount by the time it is used
    /// (`prefetch_block_bitmaps`, the default since 5.13); else those that searches ask for.
    pub(crate) prefetched: bool,
    /// Bytes that may wait for their blocks; 0 is `nodelalloc`.
    pub(crate) delay: u64,
    pub(crate) seed: u64,
}

impl Mounting {
    /// An ext2, ext3 or ext4 as it is mounted when nothing is said: `lease`, `near`, ordered; without a journal async.
    pub(crate) fn new(drive: &'static Drive, size: u64, fs_type: FsType) -> Self {
        Mounting {
            drive,
            size,
            format: Options::new(fs_type),
            policy: BlockPolicyKind::default(),
            tunables: Vec::new(),
            directories: DirectoryPolicyKind::default(),
            ordering: if fs_type == FsType::Ext2 { WriteOrder::Async } else { WriteOrder::Journal },
            data: DataMode::Ordered,
            names: Names::Wait,
            prefetched: false,
            delay: drive.waiting,
            seed: 1,
        }
    }

    /// See [`METADATA`]. A host keeps whole pages, however small blocks are.
    fn metadata(&self) -> u64 {
        let block = self.format.block_size.map_or(PAGE, u64::from).min(PAGE);
        METADATA.min(self.drive.cache / 2) * block / PAGE
    }

    fn options(&self) -> OpenOptions {
        let tunables: Vec<(&str, u32)> =
            self.tunables.iter().map(|(name, value)| (&**name, *value)).collect();
        OpenOptions::new()
            .write(true)
            .policy(self.policy)
            .tunables(&tunables)
            .directories(self.directories)
            .ordering(self.ordering)
            .data(self.data)
            .delay(self.delay)
            .cache(self.metadata())
            .bitmaps(self.drive.cache / 8)
            .seed(self.seed)
            .now(time(0))
    }
}

/// Virtual time as the volume knows it; it begins in 2001.
fn time(now: u64) -> Timestamp {
    let seconds = 1_000_000_000 + i64::try_from(now / 1_000_000_000).unwrap_or(0);
    Timestamp { seconds, nanoseconds: u32::try_from(now % 1_000_000_000).unwrap_or(0) }
}

/// Surroundings of a volume: they keep the time, and hear what happens to files.
pub(crate) trait Host: Send + Sync {
    /// The time for the volume.
    fn time(&self) -> Timestamp;
    /// A client computes or waits.
    fn spend(&self, time: u64);
    /// A call is made, for which bytes are copied between a client and the volume.
    fn call(&self, _bytes: u64) {}
    /// Most bytes that are read ahead of a client that reads in order.
    fn ahead(&self) -> u64;
    /// Says that writes from now on are bytes of a file, from a place in it on; or metadata.
    fn writing(&self, _file: Option<(u64, u64)>) {}
    /// Bytes of a file, or of all, are to go on their way.
    fn write_back(&self, _file: Option<u64>) {}
    /// A file's bytes need not be written any more.
    fn forget(&self, _file: u64) {}
    /// Drops from memory what was read.
    fn drop_caches(&self) {}
    /// Keeps writes from now on in the host's buffers; or no longer.
    fn hold(&self, _holding: bool) {}
    /// Sends everything until the end of it past the host's memory, straight to the medium.
    fn begin_direct(&self) {}
    fn end_direct(&self) {}
    /// Names are changed in a directory, which others can't do meanwhile.
    fn renames(&self, _directory: u32) {}
    /// Time to look at one free run under the lock of its group; 0: nobody needs to know of them.
    fn scan(&self) -> u64 {
        0
    }
    /// A client computes under the lock of a group.
    fn scanned(&self, _group: Option<u32>, _time: u64) {}
}

impl Host for ModelDevice {
    fn time(&self) -> Timestamp {
        time(self.now())
    }

    fn spend(&self, time: u64) {
        self.set_now(self.now() + time);
    }

    fn call(&self, bytes: u64) {
        self.compute(self.drive().call + self.drive().page * bytes.div_ceil(4096));
    }

    fn ahead(&self) -> u64 {
        AHEAD
    }

    fn writing(&self, file: Option<(u64, u64)>) {
        ModelDevice::writing(self, file);
    }

    fn write_back(&self, file: Option<u64>) {
        ModelDevice::write_back(self, file);
    }

    fn forget(&self, file: u64) {
        ModelDevice::forget(self, file);
    }

    fn drop_caches(&self) {
        ModelDevice::drop_caches(self);
    }

    fn hold(&self, holding: bool) {
        ModelDevice::hold(self, holding);
    }

    fn begin_direct(&self) {
        ModelDevice::begin_direct(self);
    }

    fn end_direct(&self) {
        ModelDevice::end_direct(self);
    }

    fn renames(&self, directory: u32) {
        self.under(Lock::Directory(directory), self.drive().names);
    }

    fn scan(&self) -> u64 {
        self.drive().scan
    }

    fn scanned(&self, group: Option<u32>, time: u64) {
        self.under(Lock::Group(group), time);
    }
}

/// A volume and its host.
pub(crate) struct Library<H = ModelDevice> {
    device: Arc<H>,
    volume: Volume,
    /// Directories by path, as the kernel's name cache has them.
    directories: Mutex<HashMap<Box<str>, InodeNumber>>,
    /// Bytes of files go before each commit.
    ordered: bool,
    /// See [`Mounting`].
    names: Names,
    /// Bytes that may wait in the library for their places, and are on their way once they have them. With none they
    /// get them in the call that writes them, and wait in the page cache of the model.
    delay: u64,
    /// When the clock works next.
    due: Mutex<u64>,
    /// Until when the host's own thread is busy with writing back ahead of need.
    ahead: Mutex<u64>,
    /// Clients so far: each is a process of its own.
    clients: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// Makes and opens a volume; the clock starts then.
    ///
    /// # Errors
    /// Formats that can't be, tunables that the policy doesn't have.
    pub(crate) fn new(mounting: &Mounting) -> Result<Library, String> {
        let device = Arc::new(ModelDevice::new(mounting.size, mounting.drive));
        let failure = |error: platfs::Error| error.to_string();
        Plan::new(&mounting.format, mounting.size).map_err(failure)?.write(&*device).map_err(failure)?;
        Self::open(device, mounting)
    }

    fn open(device: Arc<ModelDevice>, mounting: &Mounting) -> Result<Library, String> {
        let on: Arc<dyn Device> = device.clone();
        let volume = Volume::open(on, &mounting.options()).map_err(|error| error.to_string())?;
        if mounting.prefetched {
            volume.space().load_bitmaps().map_err(|error| error.to_string())?;
        }
        if mounting.drive.scan > 0 {
            volume.space().keep_scans();
        }
        device.start();
        let ordered = volume.uses_journal() && mounting.data == DataMode::Ordered;
        Ok(Library {
            device,
            volume,
            directories: Mutex::default(),
            ordered,
            names: mounting.names,
            delay: mounting.delay,
            due: Mutex::new(EVERY),
            ahead: Mutex::new(0),
            clients: AtomicU32::default(),
        })
    }

    /// Unmounts and mounts again, perhaps otherwise, without taking time; nothing is in memory then.
    ///
    /// # Errors
    /// The volume can't be opened so.
    pub(crate) fn remount(self, mounting: &Mounting) -> Result<Library, String> {
        let device = self.close()?;
        let now = device.now();
        let mut library = Self::open(device, mounting)?;
        *lock(&library.due) = now + EVERY;
        library.volume.set_now(time(now));
        Ok(library)
    }

    /// Unmounts without taking time.
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn close(self) -> Result<Arc<ModelDevice>, String> {
        let Library { device, volume, .. } = self;
        device.flush().map_err(|error| error.to_string())?;
        device.stop();
        volume.close().map_err(|error| error.to_string())?;
        Ok(device)
    }

    pub(crate) fn device(&self) -> &Arc<ModelDevice> {
        &self.device
    }

    /// The host's own thread writes back ahead of need, in time of its own: from half of what may wait on, as that of
    /// `plat mount` does and as the page cache of the model.
    fn write_ahead(&self, now: u64) -> Result<(), String> {
        let mut busy = lock(&self.ahead);
        if now < *busy || self.volume.dirty_bytes() <= self.delay / 2 {
            return Ok(());
        }
        self.device.set_now(now);
        self.volume.at_time(time(now)).write_back_ahead(Duration::ZERO).map_err(|error| error.to_string())?;
        *busy = self.device.now();
        Ok(())
    }
}

impl Modelled for Library {
    fn now(&self) -> u64 {
        self.device.now()
    }

    fn set_now(&self, now: u64) {
        self.device.set_now(now);
    }

    fn figures(&self) -> Figures {
        self.device.figures()
    }

    /// The clock and the host's own thread: what they do takes the device's time, not that of clients.
    fn tick(&self, until: u64) -> Result<(), String> {
        self.write_ahead(until)?;
        let mut due = lock(&self.due);
        while *due <= until {
            self.device.set_now(*due);
            let volume = self.volume.at_time(time(*due));
            let mut before = time(*due);
            before.seconds -= i64::try_from(OLD).unwrap_or(0);
            volume.write_back(Some(before)).map_err(|error| error.to_string())?;
            let all_old = (*due / EVERY).is_multiple_of(OLD * 1_000_000_000 / EVERY);
            if self.ordered || all_old {
                self.device.write_back(None);
            }
            if volume.keeps_order() {
                volume.commit().map_err(|error| error.to_string())?;
            } else if all_old {
                // Metadata in any order waits for as long as the bytes of files do.
                volume.sync().map_err(|error| error.to_string())?;
            }
            if all_old {
                self.device.let_go();
            }
            *due += EVERY;
        }
        Ok(())
    }
}

impl<H: Host> Library<H> {
    /// A volume that is open, on another host.
    pub(super) fn around(volume: Volume, host: H) -> Library<H> {
        let directories = Mutex::default();
        let due = Mutex::new(u64::MAX);
        Library {
            device: Arc::new(host),
            volume,
            ordered: false,
            names: Names::Wait,
            delay: u64::MAX,
            directories,
            due,
            ahead: Mutex::new(0),
            clients: AtomicU32::default(),
        }
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(super) fn host(&self) -> &H {
        &self.device
    }

    /// Ends with the volume alone.
    pub(super) fn into_volume(self) -> Volume {
        self.volume
    }

    /// Counters of the placement engine.
    pub(crate) fn statistics(&self) -> Stats {
        self.volume.space().statistics().unwrap_or_default()
    }

    /// The directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p str) -> platfs::Result<(InodeNumber, &'p [u8])> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.directory(directory)?, name.as_bytes()))
    }

    fn directory(&self, path: &str) -> platfs::Result<InodeNumber> {
        if path.is_empty() {
            return Ok(InodeNumber::ROOT);
        }
        if let Some(number) = lock(&self.directories).get(path) {
            return Ok(*number);
        }
        let (above, name) = self.place(path)?;
        let number = self.volume.lookup(above, name)?;
        lock(&self.directories).insert(path.into(), number);
        Ok(number)
    }
}

impl<H: Host> System for Library<H> {
    fn client(&self) -> Box<dyn Client + '_> {
        let piece = usize::try_from(PIECE).unwrap_or(0);
        let process = 1 + self.clients.fetch_add(1, Ordering::Relaxed);
        let (now, bytes) = (self.volume.now(), vec![0; piece]);
        Box::new(Program { library: self, process, now, open: Vec::new(), bytes })
    }
}

/// A file that is open: its number, the end of the last read, and how far and how much is read ahead.
#[derive(Clone, Copy)]
struct Opened {
    number: InodeNumber,
    next: u64,
    ahead: u64,
    window: u64,
}

struct Program<'l, H: Host> {
    library: &'l Library<H>,
    /// Its number.
    process: u32,
    /// When the current call began: all that it changes gets this time.
    now: Timestamp,
    open: Vec<Option<Opened>>,
    bytes: Vec<u8>,
}

impl<H: Host> Program<'_, H> {
    /// The volume at the time of the current call.
    fn volume(&self) -> Volume {
        for_process(&self.library.volume.at_time(self.now), self.process)
    }

    fn file(&mut self, slot: Slot) -> platfs::Result<&mut Opened> {
        let file = self.open.get_mut(slot as usize).and_then(Option::as_mut);
        file.ok_or_else(|| platfs::Error::Invalid("no file is open in this slot".into()))
    }

    fn close(&mut self, slot: Slot) {
        if let Some(opened) = self.open.get_mut(slot as usize).and_then(Option::take) {
            self.volume().uses().release(opened.number, 1);
        }
    }

    fn open(&mut self, slot: Slot, path: &str, create: bool) -> platfs::Result<()> {
        let volume = &self.volume();
        let (directory, name) = self.library.place(path)?;
        let number = match volume.lookup(directory, name) {
            Ok(number) => {
                // An open file's inode is in memory.
                volume.metadata(number)?;
                if create {
                    volume.truncate(number, 0)?;
                }
                number
            }
            Err(platfs::Error::NotFound) if create => {
                self.library.device.renames(directory.0.get());
                volume.create(directory, name, &new(Kind::File))?
            }
            Err(error) => return Err(error),
        };
        volume.uses().retain(number)?;
        self.close(slot);
        let slot = slot as usize;
        if self.open.len() <= slot {
            self.open.resize(slot + 1, None);
        }
        self.open[slot] = Some(Opened { number, next: 0, ahead: 0, window: 0 });
        Ok(())
    }

    fn write(&mut self, slot: Slot, offset: u64, len: u64) -> platfs::Result<u64> {
        let number = self.file(slot)?.number;
        for (at, step) in pieces(offset, len, PIECE) {
            // The buffer may hold what was read.
            self.bytes[..step].fill(0);
            let file = (self.library.delay == 0).then_some((u64::from(number.0.get()), at));
            self.library.device.writing(file);
            let done = self.volume().write_at(number, at, &self.bytes[..step], WriteOptions::default());
            self.library.device.writing(None);
            done?;
        }
        Ok(len)
    }

    fn read(&mut self, slot: Slot, offset: u64, len: u64) -> platfs::Result<u64> {
        let most = self.library.device.ahead();
        let opened = self.file(slot)?;
        let number = opened.number;
        // Readers in order get more and more ahead of need; others what they ask for.
        let in_order = offset == opened.next;
        opened.next = offset + len;
        let end = if in_order && most > 0 && offset + len > opened.ahead {
            opened.window = (opened.window * 2).clamp(len.max(16 << 10), most.max(len).max(16 << 10));
            opened.ahead = offset + opened.window.max(len);
            opened.ahead
        } else if in_order {
            offset + len
        } else {
            (opened.window, opened.ahead) = (0, 0);
            offset + len
        };
        for (at, step) in pieces(offset, end - offset, PIECE) {
            if self.volume().read_at(number, at, &mut self.bytes[..step])? < step {
                break;
            }
        }
        Ok(len)
    }

    /// Delayed bytes go with those of a write, all of them.
    fn direct(&mut self, slot: Slot, offset: u64, len: u64, write: bool) -> platfs::Result<u64> {
        let number = self.file(slot)?.number;
        let volume = &self.volume();
        if write {
            self.bytes.fill(0);
        }
        for (at, step) in pieces(offset, len, PIECE) {
            self.library.device.begin_direct();
            let done = if write {
                let done = volume.write_at(number, at, &self.bytes[..step], WriteOptions::default());
                done.and_then(|()| volume.write_back(None))
            } else {
                volume.read_at(number, at, &mut self.bytes[..step]).map(drop)
            };
            self.library.device.end_direct();
            done?;
        }
        Ok(len)
    }

    /// Charges the time of the free runs that the call looked at under locks of groups.
    fn pay_for_scans(&self) {
        let library = self.library;
        let each = library.device.scan();
        if each > 0 {
            for (group, runs) in library.volume.space().take_scans() {
                library.device.scanned(group.map(|group| group.0), runs * each);
            }
        }
    }

    fn commit_names(&self) -> platfs::Result<()> {
        let Library { device, names, .. } = self.library;
        device.hold(*names == Names::Buffered);
        let done = self.volume().commit();
        device.hold(false);
        done
    }

    /// Runs a call on names: no file is open for it.
    fn call_by_path(&self, op: &Op) -> platfs::Result<()> {
        let library = self.library;
        let volume = &self.volume();
        match op {
            Op::MakeDirectory(path) => {
                let (directory, name) = library.place(path)?;
                let number = volume.create(directory, name, &new(Kind::Directory))?;
                lock(&library.directories).insert(path.clone(), number);
            }
            Op::Remove(path) => {
                let (directory, name) = library.place(path)?;
                let number = volume.lookup(directory, name)?;
                if volume.metadata(number)?.links == 1 {
                    library.device.forget(u64::from(number.0.get()));
                }
                volume.unlink(directory, name)?;
            }
            Op::RemoveDirectory(path) => {
                let (directory, name) = library.place(path)?;
                volume.rmdir(directory, name)?;
                lock(&library.directories).remove(path);
            }
            Op::Rename(from, to) => {
                let ((from, name), (to, new_name)) = (library.place(from)?, library.place(to)?);
                volume.rename(from, name, to, new_name, Replace::Yes)?;
                // Paths below a renamed directory are looked up again.
                lock(&library.directories).clear();
            }
            Op::Link(from, to) => {
                let ((from, name), (to, new_name)) = (library.place(from)?, library.place(to)?);
                volume.link(volume.lookup(from, name)?, to, new_name)?;
            }
            Op::Symlink { target, path } => {
                let (directory, name) = library.place(path)?;
                volume.create(directory, name, &new(Kind::Symlink(target.as_bytes())))?;
            }
            Op::Status(path) if path.is_empty() => {
                volume.metadata(InodeNumber::ROOT)?;
            }
            Op::Status(path) => {
                let (directory, name) = library.place(path)?;
                volume.metadata(volume.lookup(directory, name)?)?;
            }
            Op::Look(path) => {
                let found = library.place(path).and_then(|(directory, name)| volume.lookup(directory, name));
                match found {
                    Ok(_) | Err(platfs::Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Op::List(path) => {
                for entry in volume.read_dir(library.directory(path)?)? {
                    entry?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, op: &Op) -> platfs::Result<u64> {
        let library = self.library;
        let volume = &self.volume();
        library.device.call(copied(op));
        match op {
            Op::Open { slot, path, create } => self.open(*slot, path, *create)?,
            Op::Write { slot, offset, len } => return self.write(*slot, *offset, *len),
            Op::Read { slot, offset, len } => return self.read(*slot, *offset, *len),
            Op::Direct { slot, offset, len, write } => return self.direct(*slot, *offset, *len, *write),
            Op::Sync { slot, .. } => {
                let number = self.file(*slot)?.number;
                // What the commit holds of other files goes with it, where bytes go before commits.
                library.device.write_back((!library.ordered).then_some(u64::from(number.0.get())));
                volume.sync_inode(number)?;
            }
            Op::Truncate { slot, len } => volume.truncate(self.file(*slot)?.number, *len)?,
            Op::Reserve { slot, offset, len } => {
                volume.allocate(self.file(*slot)?.number, Allocate::Extend, *offset, *len)?;
            }
            Op::Punch { slot, offset, len } => {
                volume.allocate(self.file(*slot)?.number, Allocate::PunchHole, *offset, *len)?;
            }
            Op::Close(slot) => self.close(*slot),
            Op::DropCaches => library.device.drop_caches(),
            Op::SyncAll => {
                library.device.write_back(None);
                volume.sync()?;
            }
            Op::Think(time) => library.device.spend(*time),
            Op::MakeDirectory(_) | Op::Remove(_) | Op::RemoveDirectory(_) | Op::Rename(..) | Op::Link(..) => {
                self.call_by_path(op)?;
            }
            Op::Symlink { .. } | Op::Status(_) | Op::Look(_) | Op::List(_) => self.call_by_path(op)?,
        }
        Ok(0)
    }
}

/// Bytes that a call copies.
fn copied(op: &Op) -> u64 {
    match op {
        Op::Write { len, .. } | Op::Read { len, .. } => *len,
        _ => 0,
    }
}

fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes { permissions: 0o755, ..Attributes::default() }, xattrs: &[] }
}

impl<H: Host> Client for Program<'_, H> {
    fn perform(&mut self, op: &Op) -> Result<u64, String> {
        self.now = self.library.device.time();
        let done = self.call(op);
        self.pay_for_scans();
        let named = op.changes_names() && self.library.names != Names::Wait;
        let done = done.and_then(|bytes| if named { self.commit_names().map(|()| bytes) } else { Ok(bytes) });
        done.map_err(|error| format!("{op:?}: {error}"))
    }
}

impl<H: Host> Drop for Program<'_, H> {
    fn drop(&mut self) {
        (0..self.open.len()).for_each(|slot| self.close(u32::try_from(slot).unwrap_or(0)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Modelled, Name};
    use super::*;

    #[test]
    fn changes_of_names_wait_or_are_buffered_or_written() {
        let outcome = |names| {
            let drive = Drive::named("sata-2010-bsd").unwrap();
            let mounting = Mounting { names, delay: 0, ..Mounting::new(drive, 64 << 20, FsType::Ext2) };
            let library = Library::new(&mounting).unwrap();
            let mut client = library.client();
            let path: Name = "file".into();
            for op in [
                Op::Open { slot: 0, path: path.clone(), create: true },
                Op::Write { slot: 0, offset: 0, len: 4096 },
                Op::Close(0),
                Op::Remove(path),
            ] {
                client.perform(&op).unwrap();
            }
            let freed = !library.volume.space().holds_freed();
            let written = |at| {
                library.tick(at).unwrap();
                library.device.set_now(at + EVERY);
                library.device.flush().unwrap();
                // One marks the volume as mounted.
                library.figures().writes > 1
            };
            (freed, written(EVERY), written(7 * EVERY))
        };
        assert_eq!(outcome(Names::Wait), (false, false, true));
        assert_eq!(outcome(Names::Buffered), (true, false, true));
        assert_eq!(outcome(Names::Written), (true, true, true));
    }

    #[test]
    fn small_blocks_take_a_page_of_the_host_s_memory_each() {
        let metadata = |drive: &str, block: u32| {
            let drive = Drive::named(drive).unwrap();
            let mut mounting = Mounting::new(drive, 1 << 30, FsType::Ext2);
            mounting.format.block_size = Some(block);
            mounting.metadata()
        };
        assert_eq!([1024, 4096, 65_536].map(|block| metadata("ide-2000", block) >> 20), [4, 16, 16]);
        assert_eq!([1024, 4096].map(|block| metadata("nvme", block) >> 20), [8, 32]);
    }

    #[test]
    fn bytes_that_wait_are_on_their_way_from_half_of_what_may_on_and_nobody_waits_for_that() {
        let drive = Drive::named("scsi-2004").unwrap();
        let library = Library::new(&Mounting::new(drive, 1 << 30, FsType::Ext4)).unwrap();
        let mut client = library.client();
        client.perform(&Op::Open { slot: 0, path: "file".into(), create: true }).unwrap();
        let half = drive.waiting / 2;
        client.perform(&Op::Write { slot: 0, offset: 0, len: half }).unwrap();
        let now = library.device().now();
        library.tick(now).unwrap();
        assert_eq!(library.volume().dirty_bytes(), half);
        client.perform(&Op::Write { slot: 0, offset: half, len: PAGE }).unwrap();
        library.tick(now).unwrap();
        assert!(library.volume().dirty_bytes() <= half / 2);
        // Until the queue of the drive has taken that, it does nothing else.
        let busy = *lock(&library.ahead);
        assert!(busy > now, "{busy} {now}");
        client.perform(&Op::Write { slot: 0, offset: half + PAGE, len: half + PAGE }).unwrap();
        library.tick(busy - 1).unwrap();
        assert!(library.volume().dirty_bytes() > half);
        library.tick(busy).unwrap();
        assert!(library.volume().dirty_bytes() <= half / 2);
    }

    /// With what Linux has read behind a mount, the first request finds its bitmap known.
    #[test]
    fn prefetched_bitmaps_are_read_before_time_begins() {
        let drive = Drive::named("scsi-2004").unwrap();
        let requests = |prefetched| {
            let plain = Mounting::new(drive, 1 << 30, FsType::Ext4);
            let library = Library::new(&Mounting { prefetched, ..plain }).unwrap();
            let mut client = library.client();
            client.perform(&Op::Open { slot: 0, path: "file".into(), create: true }).unwrap();
            client.perform(&Op::Write { slot: 0, offset: 0, len: 40_960 }).unwrap();
            client.perform(&Op::Close(0)).unwrap();
            client.perform(&Op::SyncAll).unwrap();
            library.statistics().get(platfs::placement::Counter::Reqs)
        };
        assert_eq!([requests(true), requests(false)], [1, 2]);
        let mounting = Mounting { prefetched: true, ..Mounting::new(drive, 1 << 30, FsType::Ext4) };
        assert_eq!(Library::new(&mounting).unwrap().figures(), Figures::default());
    }
}
