//! A volume of a store that is open for writing.
//!
//! | module | owns |
//! | --- | --- |
//! | `batch` | what was written since the last object of the log |
//! | `opening` | taking a volume over: the epoch, the seal of the one before |
//! | `checkpoint` | the log brought into the map |
//!
//! Between two flushes the order of writes is free. A flush ends with one object of the log that is created only where
//! none is: all that was written before it is stable then, or the flush fails. Objects are created one after the other,
//! so that those there are, up to the first that is missing, are a state that the volume had between two writes.
//!
//! Locks, in this order: `head`, then `state`. `head` is held while an object travels; `state` never.

mod batch;
mod checkpoint;
mod opening;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use platfs_device::Device;

use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::Hash;
use crate::format::manifest::Manifest;
use crate::format::map::Target;
use crate::objects::Version;
use crate::store::{Store, key_of_log};
use crate::view::{Base, Reader, Wanted, fill, inside, wanted};
use batch::Batch;

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
}

/// What reads and writes look at.
struct State {
    base: Arc<Base>,
    /// What was written since the map, the last on top.
    written: Extents,
    slots: HashMap<u32, Slot>,
    next_slot: u32,
    batch: Batch,
}

/// What the next object of the log is made with.
struct Head {
    manifest: Manifest,
    version: Version,
    /// Its number, and the hash of the header before it.
    seq: u64,
    before: Hash,
    /// What all objects so far wrote over the map.
    stable: Extents,
    targets: Vec<Target>,
    /// Objects since the map.
    since: u64,
    /// A batch that could not be sent: nothing else is, before it is.
    unsent: Option<Unsent>,
    /// Somebody else has the volume.
    fenced: Option<Error>,
}

/// A batch with the object that it becomes.
struct Unsent {
    slot: u32,
    batch: Arc<Batch>,
    bytes: Vec<u8>,
    header: Hash,
}

/// A volume that is written.
pub struct Volume {
    store: Arc<Store>,
    reader: Arc<Reader>,
    ahead: Ahead,
    size: u64,
    head: Mutex<Head>,
    state: RwLock<State>,
}

impl Volume {
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
        let (bytes, header) = batch.object(&head.manifest, head.seq, head.before);
        self.send(head, Unsent { slot, batch, bytes, header })
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
        head.before = unsent.header;
        let object = u32::try_from(head.targets.len()).unwrap_or(u32::MAX);
        head.targets.push(target);
        unsent.batch.lay(&mut head.stable, object);
        if let Some(header) = unsent.batch.header(&head.manifest, seq) {
            self.reader.remember(unsent.header, header);
        }
        if let Some(slot) = self.state_mut().slots.get_mut(&unsent.slot) {
            *slot = Slot::Stored(target);
        }
        Ok(())
    }

    /// Brings a long log into the map. What was sent is stable without that, so that only the loss of the volume is a
    /// failure.
    fn shortened(&self, head: &mut Head) -> Result<()> {
        if head.since < CHECKPOINT_OBJECTS && head.stable.len() < CHECKPOINT_RANGES {
            return Ok(());
        }
        match self.checkpoint(head, true) {
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
                let rest = data.and_then(|data| data.get(usize::try_from(at - start).unwrap_or(0)..));
                state.write(at, end - at, rest)
            };
            if done == 0 {
                let mut head = self.head();
                self.commit(&mut head)?;
                self.shortened(&mut head)?;
            }
            at += done;
        }
        Ok(())
    }

    /// The bytes of one source in memory, or the object that has them.
    fn fill(&self, piece: &Piece, buffer: &mut [u8]) -> Result<()> {
        match piece {
            Piece::Zeros => buffer.fill(0),
            Piece::Bytes(bytes) => buffer.copy_from_slice(bytes),
            Piece::Sent(batch, offset) => batch.read(*offset, buffer),
            Piece::Object(target, offset) => return self.reader.read(target, *offset, buffer, self.size),
            Piece::Map(base, start) => {
                let runs = base.pieces(*start, buffer.len() as u64)?;
                return fill(&self.reader, &runs, buffer, self.size);
            }
        }
        Ok(())
    }

    /// Has all but the first pieces fetched in the background.
    fn fetch(&self, pieces: &[(u64, Piece)], but: usize) {
        let mut all: Vec<Wanted> = Vec::new();
        for (len, piece) in pieces {
            match piece {
                Piece::Zeros | Piece::Bytes(_) | Piece::Sent(..) => {}
                Piece::Object(target, offset) => all.extend(wanted(&[(0, *len, Some((*target, *offset)))])),
                Piece::Map(base, start) => {
                    // What can't be found fails where it is read.
                    all.extend(base.pieces(*start, *len).iter().flat_map(|runs| wanted(runs)));
                }
            }
        }
        self.ahead.fetch(all.into_iter().skip(but));
    }

    /// Has bytes fetched that will be read soon, all at once and in the background.
    pub fn will_read(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            let end = range.end.min(self.size);
            let pieces = self.state().pieces(range.start.min(end), end.saturating_sub(range.start));
            self.fetch(&pieces, 0);
        }
    }

    /// Ends the log in the map, and says that nobody has the volume open.
    ///
    /// # Errors
    /// The store's; another program has the volume.
    pub fn close(&self) -> Result<()> {
        let mut head = self.head();
        self.commit(&mut head)?;
        self.checkpoint(&mut head, false)
    }

    /// Brings all that was written into the map, in which it stays open.
    pub(crate) fn shorten(&self) -> Result<()> {
        let mut head = self.head();
        self.commit(&mut head)?;
        self.checkpoint(&mut head, true)
    }

    /// The map as it is now.
    pub(crate) fn map(&self) -> Arc<Base> {
        Arc::clone(&self.state().base)
    }

    /// Objects of the log that are not in the map.
    #[must_use]
    pub fn log_objects(&self) -> u64 {
        self.head().since
    }
}

/// Where the bytes of one part of a read are.
enum Piece {
    Zeros,
    Bytes(Vec<u8>),
    Sent(Arc<Batch>, u32),
    Object(Target, u32),
    Map(Arc<Base>, u64),
}

impl State {
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

    /// What a range is made of, with its length.
    fn pieces(&self, start: u64, len: u64) -> Vec<(u64, Piece)> {
        let found = |piece: crate::extents::Piece| {
            let place = match piece.source {
                None => Piece::Map(Arc::clone(&self.base), piece.start),
                Some(Source::Zeros) => Piece::Zeros,
                Some(Source::At { object, offset }) => match self.slots.get(&object) {
                    Some(Slot::Stored(target)) => Piece::Object(*target, offset),
                    Some(Slot::Sent(batch)) => Piece::Sent(Arc::clone(batch), offset),
                    Some(Slot::Gathered) | None => {
                        let mut bytes = vec![0; usize::try_from(piece.len).unwrap_or(0)];
                        self.batch.read(offset, &mut bytes);
                        Piece::Bytes(bytes)
                    }
                },
            };
            (piece.len, place)
        };
        self.written.pieces(start, len).into_iter().map(found).collect()
    }
}

impl Device for Volume {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        inside(self.size, offset, buffer.len() as u64, io::ErrorKind::UnexpectedEof)?;
        let pieces = self.state().pieces(offset, buffer.len() as u64);
        self.fetch(&pieces, 1);
        if let Some(behind) = self.ahead.behind(offset, buffer.len() as u64) {
            self.will_read(&[behind]);
        }
        let mut rest = buffer;
        for (len, piece) in pieces {
            let (own, behind) = rest.split_at_mut(usize::try_from(len).unwrap_or(0).min(rest.len()));
            self.fill(&piece, own)?;
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        inside(self.size, offset, data.len() as u64, io::ErrorKind::WriteZero)?;
        self.write(offset, data.len() as u64, Some(data))
    }

    fn flush(&self) -> io::Result<()> {
        let mut head = self.head();
        self.commit(&mut head)?;
        Ok(self.shortened(&mut head)?)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_zeros(offset, len)
    }

    fn discard_unit(&self) -> io::Result<u64> {
        Ok(4096)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        inside(self.size, offset, len, io::ErrorKind::WriteZero)?;
        self.write(offset, len, None)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Everything that was flushed is stable; the next opening brings in order what this can't.
        let _ = self.close();
    }
}
