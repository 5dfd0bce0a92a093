//! Flushes that end in a log of this host, and the thread that makes objects of its records.
//!
//! Owns: which records there are and which of them the store has, waiting for room in the log, and when an object is
//! made. Records become objects in their order, so that the store's log is always one that the volume had; the loss of
//! this host loses records from the end.
//!
//! The store itself says what it has: each object which record is the last in it (`Header::local`), and the
//! manifest which one is the last that the map has.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::{Core, Slot, Unsent};
use crate::error::{Error, Result};
use crate::format::log::{DATA_MAX, EXTENTS_MAX, HEADER_MAX};
use crate::local::{Log, Parts, Record};

/// Time for which a record waits for others that would go into the same object.
const GATHER: Duration = Duration::from_millis(1000);
/// The pause after the store did not answer.
const PAUSE: Duration = Duration::from_secs(2);

/// A local log that is written.
pub(super) struct Local {
    log: Log,
    tail: Mutex<Tail>,
    /// Something of `tail` has changed.
    news: Condvar,
}

struct Tail {
    parts: Parts,
    /// The last record, the last that is stable, and the last that the store has.
    last: u64,
    stable: u64,
    sent: u64,
    /// Bytes of records that the store does not have, and when the first of them came.
    waiting: u64,
    since: Option<Instant>,
    /// A batch that has no record yet: none other gets one before it.
    unwritten: Option<(u32, Arc<Batch>)>,
    /// Somebody waits for the store to have all.
    hurry: bool,
    /// Error with which the store refused the last object; it is tried again.
    trouble: Option<Error>,
    /// Error after which nothing more is written.
    failed: Option<Error>,
    /// The thread ends.
    ends: bool,
}

type TailGuard<'l> = MutexGuard<'l, Tail>;

impl Local {
    /// The log, with the last record that the store has, and the last of all.
    pub(super) fn new(log: Log, parts: Parts, sent: u64, last: u64, waiting: u64) -> Self {
        let tail = Tail {
            parts,
            last,
            stable: last,
            sent,
            waiting,
            since: (last > sent).then(Instant::now),
            unwritten: None,
            hurry: false,
            trouble: None,
            failed: None,
            ends: false,
        };
        Local { log, tail: Mutex::new(tail), news: Condvar::new() }
    }

    /// Returns the log's token, its name in the manifest and in objects.
    pub(super) fn token(&self) -> u64 {
        self.log.token
    }

    fn tail(&self) -> TailGuard<'_> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'l>(&self, tail: TailGuard<'l>, most: Duration) -> TailGuard<'l> {
        self.news.wait_timeout(tail, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Makes a record of what was gathered.
    pub(super) fn gather(&self, core: &Core) -> Result<()> {
        self.written(core).map(drop)
    }

    /// Makes all that was written before stable on this host.
    pub(super) fn flush(&self, core: &Core) -> Result<()> {
        let mut tail = self.written(core)?;
        if tail.stable == tail.last {
            return Ok(());
        }
        if let Some(file) = tail.parts.file()
            && let Err(error) = file.sync_data()
        {
            // Nobody knows what the disk has after that.
            let why = tail.parts.failed("making stable", &error);
            tail.failed = Some(why.clone());
            return Err(why);
        }
        tail.stable = tail.last;
        Ok(())
    }

    fn written(&self, core: &Core) -> Result<TailGuard<'_>> {
        let mut tail = self.tail();
        let mut taken = false;
        loop {
            if let Some(why) = &tail.failed {
                return Err(why.clone());
            }
            if tail.unwritten.is_none() {
                if taken {
                    return Ok(tail);
                }
                taken = true;
                tail.unwritten = core.state_mut().take_batch();
            }
            let Some((slot, batch)) = tail.unwritten.take() else { return Ok(tail) };
            match self.record(&mut tail, &batch) {
                Ok(Some(record)) => {
                    core.state_mut().slots.insert(slot, Slot::Local(Arc::new(record)));
                    self.news.notify_all();
                }
                Ok(None) => {
                    tail.unwritten = Some((slot, batch));
                    tail = self.room(tail)?;
                }
                Err(error) => {
                    tail.unwritten = Some((slot, batch));
                    return Err(error);
                }
            }
        }
    }

    /// Writes a record; nothing if there is no room before the store has taken others.
    fn record(&self, tail: &mut Tail, batch: &Batch) -> Result<Option<Record>> {
        let most = u64::from(batch.data_len()) + HEADER_MAX.min(8192 + 16 * batch.contents().len()) as u64;
        let waits = tail.last > tail.sent;
        if waits && !tail.parts.have_room(most) {
            return Ok(None);
        }
        let (header, data) = batch.record(tail.last + 1, tail.stable);
        let record = match tail.parts.append(header, data) {
            Err(Error::Host { why, .. }) if waits && why.contains("os error 28") => return Ok(None),
            done => done?,
        };
        tail.last = record.number;
        tail.waiting += u64::from(record.data_len);
        tail.since.get_or_insert_with(Instant::now);
        Ok(Some(record))
    }

    /// Waits for the store to take something, so that the log has room.
    fn room<'l>(&self, mut tail: TailGuard<'l>) -> Result<TailGuard<'l>> {
        let sent = tail.sent;
        tail.hurry = true;
        self.news.notify_all();
        while tail.sent == sent && tail.last > sent {
            if let Some(why) = tail.failed.as_ref().or(tail.trouble.as_ref()) {
                return Err(why.clone());
            }
            if tail.ends {
                return Err(Error::Invalid("the volume is closed".into()));
            }
            tail = self.wait(tail, PAUSE);
        }
        Ok(tail)
    }

    /// Waits until the store has all that was written.
    pub(super) fn drain(&self, core: &Core) -> Result<()> {
        // A failure before this says nothing of now: the store is asked again at once.
        self.tail().trouble = None;
        self.flush(core)?;
        let mut tail = self.tail();
        let last = tail.last;
        while tail.sent < last {
            tail.hurry = true;
            self.news.notify_all();
            if let Some(why) = tail.failed.as_ref().or(tail.trouble.as_ref()) {
                return Err(why.clone());
            }
            tail = self.wait(tail, PAUSE);
        }
        Ok(())
    }

    /// Says which data the store does not have, and where they are.
    pub(super) fn kept(&self) -> String {
        let (waiting, place) = (self.tail().waiting, self.log.directory().display());
        format!("{waiting} bytes are kept in {place}, from where the next opening on this host sends them")
    }

    /// Removes all that the store has.
    pub(super) fn empty(&self) {
        let mut tail = self.tail();
        let sent = tail.sent;
        tail.parts.forget(sent, true);
    }

    /// The volume is closed.
    pub(super) fn close(&self) {
        self.log.close();
    }

    /// Ends the thread; nothing more is written.
    pub(super) fn end(&self) {
        let mut tail = self.tail();
        tail.ends = true;
        tail.failed.get_or_insert_with(|| Error::Invalid("the volume is closed".into()));
        drop(tail);
        self.news.notify_all();
    }

    /// The work of the thread: sends what waits, until the volume is closed.
    pub(super) fn run(&self, core: &Core) {
        while self.until_due() {
            let done = core.ship(self);
            let mut tail = self.tail();
            match done {
                Ok((sent, bytes)) => {
                    self.log.note(sent);
                    tail.took(sent, bytes);
                }
                Err(why @ Error::Fenced(_)) => {
                    tail.failed = Some(why);
                    self.news.notify_all();
                    return;
                }
                Err(why) => {
                    tail.trouble = Some(why);
                    self.news.notify_all();
                    let pause = Instant::now() + PAUSE;
                    while !tail.ends && tail.trouble.is_some() && Instant::now() < pause {
                        tail = self.wait(tail, PAUSE);
                    }
                }
            }
            self.news.notify_all();
        }
    }

    /// Waits until an object is due; false at the end.
    fn until_due(&self) -> bool {
        let mut tail = self.tail();
        loop {
            if tail.ends {
                return false;
            }
            let age = tail.since.map(|since| since.elapsed());
            let is_large = tail.waiting >= DATA_MAX as u64;
            match age {
                Some(age) if tail.hurry || is_large || age >= GATHER => return true,
                Some(age) => tail = self.wait(tail, GATHER - age),
                None => tail = self.wait(tail, Duration::from_secs(60)),
            }
        }
    }
}

impl Tail {
    /// The store has all records up to that one.
    fn took(&mut self, sent: u64, bytes: u64) {
        self.sent = sent;
        self.waiting = self.waiting.saturating_sub(bytes);
        self.trouble = None;
        self.parts.forget(sent, false);
        if sent >= self.last {
            (self.since, self.hurry, self.waiting) = (None, false, 0);
        } else {
            self.since = Some(Instant::now());
        }
    }
}

impl Core {
    /// Makes an object of the records that wait longest: the last that is in it, and the bytes of all of them.
    fn ship(&self, local: &Local) -> Result<(u64, u64)> {
        let mut head = self.head();
        if let Some(why) = &head.fenced {
            return Err(why.clone());
        }
        let mut bytes = 0;
        if let Some(unsent) = head.unsent.take() {
            self.send(&mut head, unsent)?;
        } else {
            let records = self.waiting();
            if let Some((_, last)) = records.last() {
                let last = last.number;
                bytes = records.iter().map(|(_, record)| u64::from(record.data_len)).sum();
                let batch = Arc::new(Batch::join(&records)?);
                let own = Some((local.token(), last));
                let (bytes, header) = batch.object(&head.manifest, head.seq, head.before, own);
                let slots = records.into_iter().map(|(slot, _)| slot).collect();
                self.send(&mut head, Unsent { slots, last, batch, bytes, header })?;
            }
        }
        self.shortened(&mut head)?;
        Ok((head.sent, bytes))
    }

    /// The records that wait longest, as many as fit into one object.
    fn waiting(&self) -> Vec<(u32, Arc<Record>)> {
        let state = self.state();
        let (mut found, mut data, mut extents) = (Vec::new(), 0, 0);
        for (slot, place) in &state.slots {
            let Slot::Local(record) = place else { continue };
            data += record.data_len as usize;
            extents += record.extents.len();
            if !found.is_empty() && (data > DATA_MAX || extents > EXTENTS_MAX / 2) {
                break;
            }
            found.push((*slot, Arc::clone(record)));
        }
        found
    }
}
