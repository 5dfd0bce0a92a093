//! A volume of a store that is open for writing.
//!
//! | module | owns |
//! | --- | --- |
//! | `batch` | what was written since the last object of the log |
//! | `opening` | taking a volume over: the epoch, the seal of the one before |
//! | `checkpoint` | the log brought into the map |
//! | `packing` | small objects packed into one |
//! | `local` | a log on this host before the store's: flushes that don't wait for it, and the thread that sends |
//!
//! Between two flushes the order of writes is free. A flush ends with one object of the log that is created only where
//! none is: all that was written before it is stable then, or the flush fails. Objects are created one after the other,
//! so that those there are, up to the first that is missing, are a state that the volume had between two writes.
//!
//! With a local log a flush ends when that is stable, and a thread makes objects of its records, in order and several at
//! a time.
//!
//! Locks, in this order: `head`, then the local log's, then `state`. `head` is held while an object travels; the others
//! never. With a local log only that thread waits for the store with `head`.

use platfs_device::invariant;
use platfs_device::units::bounded;
mod batch;
mod checkpoint;
mod local;
mod opening;
mod packing;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

use platfs_device::{Device, Protection};

use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::Hash;
use crate::format::manifest::Manifest;
use crate::format::map::Target;
use crate::holder;
use crate::keys::key_of_log;
use crate::local::Record;
use crate::objects::Version;
use crate::store::Store;
use crate::view::{Base, Reader, Wanted, fill, inside, wanted};
use batch::Batch;
use local::Local;
use packing::Small;
pub(crate) use packing::{LEAST, SMALL};

/// Objects of the log after which a flush brings the log into the map.
const CHECKPOINT_OBJECTS: u64 = 128;
/// Objects of the log without which nothing more is written.
const LOG_MAX: u64 = 1 << 14;
/// Ranges in memory after which it does.
const CHECKPOINT_RANGES: usize = 200_000;

/// Where the bytes of a numbered source are.
enum Slot {
    /// In an object of the store.
    Stored(Target),
    /// In the batch that is gathered.
    Gathered,
    /// On their way, or waiting to be sent again.
    Sent(Arc<Batch>),
    /// In the local log.
    Local(Arc<Record>),
}

/// State that reads and writes use.
struct State {
    base: Arc<Base>,
    /// Writes since the map, the last on top.
    written: Extents,
    /// By number, which grows from one batch to the next.
    slots: BTreeMap<u32, Slot>,
    next_slot: u32,
    batch: Batch,
}

/// Head of the log, which the next object is made with.
struct Head {
    manifest: Manifest,
    version: Version,
    /// A manifest that was written, and the store did not answer.
    tried: Option<Manifest>,
    /// Words for the holder.
    words: String,
    /// Its number, and the hash of the header before it.
    seq: u64,
    before: Hash,
    /// Writes of all objects so far over the map.
    stable: Extents,
    targets: Vec<Target>,
    /// Those of them that are packed before they come into the map.
    small: Small,
    /// Objects since the map.
    since: u64,
    /// The last record of the local log that the store has.
    sent: u64,
    /// A batch that could not be sent: nothing else is, before it is.
    unsent: Option<Unsent>,
    /// Somebody else has the volume.
    fenced: Option<Error>,
}

/// A batch with the object that it becomes.
struct Unsent {
    /// The sources that it is of; several records of a local log become one.
    slots: Vec<u32>,
    /// The last of those records.
    last: u64,
    batch: Arc<Batch>,
    bytes: Vec<u8>,
    header: Hash,
}

/// State that all threads of a volume share.
struct Core {
    store: Arc<Store>,
    reader: Arc<Reader>,
    ahead: Ahead,
    size: u64,
    head: Mutex<Head>,
    state: RwLock<State>,
    local: Option<Local>,
}

/// A volume that is written.
pub struct Volume {
    core: Arc<Core>,
    sender: Mutex<Option<JoinHandle<()>>>,
    was_closed: AtomicBool,
    notes: Vec<String>,
}

impl Core {
    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what was gathered, and what waits.
    fn commit(&self, head: &mut Head) -> Result<()> {
        if let Some(why) = &head.fenced {
            return Err(why.clone());
        }
        if let Some(unsent) = head.unsent.take() {
            self.send(head, unsent)?;
        }
        let taken = self.state_mut().take_batch();
        let Some((slot, batch)) = taken else { return Ok(()) };
        let (bytes, header) = batch.object(&head.manifest, head.seq, head.before, None);
        self.send(head, Unsent { slots: vec![slot], last: 0, batch, bytes, header })
    }

    /// Creates the next object of the log. If that fails it waits for the next commit, as the same object.
    fn send(&self, head: &mut Head, unsent: Unsent) -> Result<()> {
        let (id, epoch, seq) = (head.manifest.id, head.manifest.epoch, head.seq);
        match self.store.objects().create(&key_of_log(&id, epoch, seq), &unsent.bytes) {
            Ok(_) => {}
            Err(Error::Exists(key)) => {
                let fenced = Error::Fenced(key);
                head.fenced = Some(fenced.clone());
                head.unsent = Some(unsent);
                return Err(fenced);
            }
            Err(error) => {
                head.unsent = Some(unsent);
                return Err(error);
            }
        }
        let target =
            Target::Log { volume: id, epoch, seq, header: unsent.header, len: unsent.batch.data_len() };
        head.seq += 1;
        head.since += 1;
        head.sent = unsent.last;
        head.before = unsent.header;
        let object = bounded::<u32>(head.targets.len());
        head.targets.push(target);
        unsent.batch.lay(&mut head.stable, object);
        head.small.add(object, &unsent.batch);
        if let Some(header) = unsent.batch.header(&head.manifest, seq) {
            self.reader.remember(unsent.header, header);
        }
        self.state_mut().mark_sent(&unsent, target);
        Ok(())
    }

    /// Text for the holder in the manifest.
    fn named(&self, head: &Head) -> String {
        holder::named(&head.words, self.local.as_ref().map(|local| (local.token(), head.sent)))
    }

    /// Brings a long log into the map. What was sent is stable without that, so that only the loss of the volume is a
    /// failure.
    fn shortened(&self, head: &mut Head) -> Result<()> {
        let is_long = head.since >= CHECKPOINT_OBJECTS || head.stable.len() >= CHECKPOINT_RANGES;
        let done = match is_long {
            true => self.checkpoint(head, true),
            false if head.small.is_full() => self.pack(head),
            false => return Ok(()),
        };
        match done {
            Err(error @ Error::Fenced(_)) => Err(error),
            // An opening follows no longer log than this.
            Err(error) if head.since >= LOG_MAX => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes bytes, or zeros where there are none.
    fn write(&self, start: u64, len: u64, data: Option<&[u8]>) -> io::Result<()> {
        let (mut at, end) = (start, start + len);
        while at < end {
            let done = {
                let mut state = self.state_mut();
                let rest = match data {
                    None => None,
                    // No data would mean zeros.
                    Some(data) => {
                        let rest = data.get(bounded::<usize>(at - start)..);
                        Some(invariant!(rest, "the range is as long as its data"))
                    }
                };
                state.write(at, end - at, rest)
            };
            if done == 0 {
                match &self.local {
                    Some(local) => local.gather(self)?,
                    None => self.stored()?,
                }
            }
            at += done;
        }
        Ok(())
    }

    /// Has the store have all that was written.
    fn stored(&self) -> Result<()> {
        let mut head = self.head();
        self.commit(&mut head)?;
        self.shortened(&mut head)
    }

    /// The bytes of one source in memory, or the object that has them.
    fn fill(&self, piece: &Piece, buffer: &mut [u8]) -> Result<()> {
        match piece {
            Piece::Zeros => buffer.fill(0),
            Piece::Bytes(bytes) => buffer.copy_from_slice(bytes),
            Piece::Sent(batch, offset) => batch.read(*offset, buffer),
            Piece::Local(record, offset) => return record.read(*offset, buffer),
            Piece::Object(target, offset) => return self.reader.read(target, *offset, buffer, self.size),
            Piece::Map(base, start) => {
                let runs = base.pieces(*start, buffer.len() as u64)?;
                return fill(&self.reader, &runs, buffer, self.size);
            }
        }
        Ok(())
    }

    /// Ends the log in the map, and says that nobody has the volume open.
    fn end(&self) -> Result<()> {
        let mut head = self.head();
        if self.local.is_none() {
            self.commit(&mut head)?;
        }
        self.checkpoint(&mut head, false)
    }

    /// Has all but the first pieces fetched in the background.
    fn fetch(&self, pieces: &[(u64, Piece)], but: usize) {
        let mut all: Vec<Wanted> = Vec::new();
        for (len, piece) in pieces {
            match piece {
                Piece::Zeros | Piece::Bytes(_) | Piece::Sent(..) | Piece::Local(..) => {}
                Piece::Object(target, offset) => all.extend(wanted(&[(0, *len, Some((*target, *offset)))])),
                Piece::Map(base, start) => {
                    // What can't be found fails where it is read.
                    all.extend(base.pieces(*start, *len).iter().flat_map(|runs| wanted(runs)));
                }
            }
        }
        self.ahead.fetch(all.into_iter().skip(but));
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let end = range.end.min(self.size);
            let pieces = self.state().pieces(range.start.min(end), end.saturating_sub(range.start));
            // What can't be found fails where it is read.
            if let Ok(pieces) = pieces {
                self.fetch(&pieces, 0);
            }
        }
    }
}

impl Volume {
    /// The volume, with the thread that sends what lies in its local log.
    fn start(core: Arc<Core>, notes: Vec<String>) -> Result<Self> {
        let mut sender = None;
        if core.local.is_some() {
            let core = Arc::clone(&core);
            let thread = std::thread::Builder::new().name("sender".to_owned());
            let begun = thread.spawn(move || core.local.iter().for_each(|local| local.run(&core)));
            sender = Some(begun.map_err(|error| Error::host("starting a thread", &error))?);
        }
        Ok(Volume { core, sender: Mutex::new(sender), was_closed: AtomicBool::new(false), notes })
    }

    /// Returns notes for the user of the volume.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Has bytes fetched that will be read soon, all at once and in the background.
    pub fn will_read(&self, ranges: &[Range<u64>]) {
        self.core.will_read(ranges);
    }

    /// Waits until the store has all that was written.
    ///
    /// # Errors
    /// The store's; another program has the volume.
    pub fn drain(&self) -> Result<()> {
        match &self.core.local {
            Some(local) => local.drain(&self.core),
            None => self.core.stored(),
        }
    }

    /// Ends the log in the map, and says that nobody has the volume open. What the store did not take of a local log stays
    /// there, for the next opening.
    ///
    /// # Errors
    /// The store's; another program has the volume.
    pub fn close(&self) -> Result<()> {
        self.was_closed.store(true, Ordering::Relaxed);
        let mut done = Ok(());
        if let Some(local) = &self.core.local {
            // A log that is empty tells nobody later that something of it may be missing.
            done = local.drain(&self.core).inspect(|()| local.empty());
        }
        let done = done.and_then(|()| self.core.end());
        if done.is_ok() {
            self.core.local.iter().for_each(Local::close);
        }
        self.core.local.iter().for_each(Local::end);
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        sender.into_iter().for_each(|thread| drop(thread.join()));
        done.map_err(|why| self.unclosed(why))
    }

    /// A failure to close, with what the store does not have.
    fn unclosed(&self, why: Error) -> Error {
        if matches!(why, Error::Fenced(_) | Error::Invalid(_)) {
            return why;
        }
        let what = match &self.core.local {
            Some(local) => local.kept(),
            None => {
                // What is only packed has no source of its own: it is stored already.
                let unsent = |unsent: &Unsent| !unsent.slots.is_empty();
                let head = self.core.head();
                let unsent =
                    head.unsent.as_ref().filter(|one| unsent(one)).map_or(0, |one| one.batch.data_len());
                let lost = unsent + self.core.state().batch.data_len();
                match lost {
                    0 => "what was written is stored, but nobody is told that the volume is free".to_owned(),
                    _ => {
                        format!("{lost} bytes that were written since its last sync are not stored, and lost")
                    }
                }
            }
        };
        Error::Unclosed { why: Box::new(why), what }
    }

    /// Leaves the volume as a process does that is killed: what is in memory is lost, and nothing more is sent.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.head().fenced = Some(Error::Invalid("the volume was abandoned".into()));
        self.core.local.iter().for_each(Local::end);
    }

    /// Brings all that was written into the map, in which it stays open.
    ///
    /// # Errors
    /// The store's; another program has the volume.
    #[doc(hidden)]
    pub fn shorten(&self) -> Result<()> {
        self.drain()?;
        let mut head = self.core.head();
        self.core.checkpoint(&mut head, true)
    }

    /// The map as it is now.
    pub(crate) fn map(&self) -> Arc<Base> {
        Arc::clone(&self.core.state().base)
    }

    /// Objects of the log that are not in the map.
    #[must_use]
    pub fn log_objects(&self) -> u64 {
        self.core.head().since
    }
}

/// Where the bytes of one part of a read are.
enum Piece {
    Zeros,
    Bytes(Vec<u8>),
    Sent(Arc<Batch>, u32),
    Local(Arc<Record>, u32),
    Object(Target, u32),
    Map(Arc<Base>, u64),
}

impl State {
    /// Makes a state of a map and the writes of stored objects over it.
    fn new(base: Base, written: Extents, targets: &[Target]) -> Self {
        let next_slot = bounded::<u32>(targets.len());
        let stored = (0..).zip(targets).map(|(slot, target)| (slot, Slot::Stored(*target)));
        let mut slots: BTreeMap<u32, Slot> = stored.collect();
        slots.insert(next_slot, Slot::Gathered);
        State { base: Arc::new(base), written, slots, next_slot, batch: Batch::default() }
    }

    /// Lays a record that waits for the store over what there is.
    fn wait(&mut self, record: Record) {
        let slot = self.next_slot;
        record.lay(&mut self.written, slot);
        self.slots.insert(slot, Slot::Local(Arc::new(record)));
        self.next_slot = slot.wrapping_add(1);
        self.slots.insert(self.next_slot, Slot::Gathered);
    }

    /// An object is in the store: its bytes are read from there.
    fn mark_sent(&mut self, unsent: &Unsent, target: Target) {
        let Some((first, others)) = unsent.slots.split_first() else { return };
        if !others.is_empty() {
            // Each record's bytes lie elsewhere in the object of them all.
            for extent in unsent.batch.contents() {
                let Some(offset) = extent.offset else { continue };
                for piece in self.written.pieces(extent.start, extent.len.into()) {
                    let Some(Source::At { object, .. }) = piece.source else { continue };
                    if unsent.slots.contains(&object) {
                        let more = bounded::<u32>(piece.start - extent.start);
                        let source = Source::At { object: *first, offset: offset.saturating_add(more) };
                        self.written.insert(piece.start, piece.len, source);
                    }
                }
            }
        }
        others.iter().for_each(|slot| drop(self.slots.remove(slot)));
        self.slots.insert(*first, Slot::Stored(target));
    }

    /// The batch, if there is anything in it; the next is empty.
    fn take_batch(&mut self) -> Option<(u32, Arc<Batch>)> {
        if self.batch.is_empty() {
            return None;
        }
        let slot = self.next_slot;
        let batch = Arc::new(std::mem::take(&mut self.batch));
        self.slots.insert(slot, Slot::Sent(Arc::clone(&batch)));
        self.next_slot = slot.wrapping_add(1);
        self.slots.insert(self.next_slot, Slot::Gathered);
        Some((slot, batch))
    }

    /// Writes as much as fits into the batch; how much that was.
    fn write(&mut self, start: u64, len: u64, data: Option<&[u8]>) -> u64 {
        let Some(data) = data.filter(|data| data.iter().any(|byte| *byte != 0)) else {
            let len = len.min(u64::from(u32::MAX));
            let is_room = self.batch.zeros(start, len);
            if is_room {
                self.written.insert(start, len, Source::Zeros);
            }
            return if is_room { len } else { 0 };
        };
        // What is written twice between two flushes travels once.
        if let [only] = self.written.pieces(start, data.len() as u64)[..]
            && let Some(Source::At { object, offset }) = only.source
            && object == self.next_slot
        {
            self.batch.overwrite(offset, data);
            return data.len() as u64;
        }
        let (offset, count) = self.batch.append(start, data);
        let source = Source::At { object: self.next_slot, offset };
        self.written.insert(start, count, source);
        count
    }

    /// Returns the pieces of a range, with their lengths.
    fn pieces(&self, start: u64, len: u64) -> Result<Vec<(u64, Piece)>> {
        let found = |piece: crate::extents::Piece| -> Result<(u64, Piece)> {
            let place = match piece.source {
                None => Piece::Map(Arc::clone(&self.base), piece.start),
                Some(Source::Zeros) => Piece::Zeros,
                Some(Source::At { object, offset }) => {
                    match invariant!(self.slots.get(&object), "what was written has a slot") {
                        Slot::Stored(target) => Piece::Object(*target, offset),
                        Slot::Sent(batch) => Piece::Sent(Arc::clone(batch), offset),
                        Slot::Local(record) => Piece::Local(Arc::clone(record), offset),
                        Slot::Gathered => {
                            let len = invariant!(
                                usize::try_from(piece.len),
                                "a piece is part of the reader's buffer"
                            );
                            let mut bytes = vec![0; len];
                            self.batch.read(offset, &mut bytes);
                            Piece::Bytes(bytes)
                        }
                    }
                }
            };
            Ok((piece.len, place))
        };
        self.written.pieces(start, len).into_iter().map(found).collect()
    }
}

impl Device for Volume {
    fn size(&self) -> u64 {
        self.core.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let own = &self.core;
        inside(own.size, offset, buffer.len() as u64, io::ErrorKind::UnexpectedEof)?;
        let pieces = own.state().pieces(offset, buffer.len() as u64)?;
        own.fetch(&pieces, 1);
        if let Some(behind) = own.ahead.behind(offset, buffer.len() as u64) {
            own.will_read(&[behind]);
        }
        let mut rest = buffer;
        for (len, piece) in pieces {
            let split = usize::try_from(len).ok().and_then(|len| rest.split_at_mut_checked(len));
            let (part, behind) = invariant!(split, "the pieces of a range are as long as it");
            own.fill(&piece, part)?;
            rest = behind;
        }
        Ok(())
    }

    /// A store has one writer, and fences off those before it.
    fn protection(&self) -> Protection {
        Protection::Alone
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        inside(self.core.size, offset, data.len() as u64, io::ErrorKind::WriteZero)?;
        self.core.write(offset, data.len() as u64, Some(data))
    }

    fn flush(&self) -> io::Result<()> {
        match &self.core.local {
            Some(local) => Ok(local.flush(&self.core)?),
            None => Ok(self.core.stored()?),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        Ok(4096)
    }

    /// A volume of a store keeps no room for anything.
    fn zero_fast(&self, offset: u64, len: u64, _keeps: bool) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        inside(self.core.size, offset, len, io::ErrorKind::WriteZero)?;
        self.core.write(offset, len, None)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Everything that was flushed is stable; the next opening brings in order what this can't. A failure to close was
        // said already, and a store that is away is not waited for once more.
        if !self.was_closed.load(Ordering::Relaxed) {
            let _ = self.close();
        }
    }
}
