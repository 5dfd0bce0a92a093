//! Delayed writes: what files hold that is not on the device yet, and the room it takes in memory.
//!
//! Owns: the table of files with dirty bytes, the locks between their writers and their write-back,
//! the space promised to them, the order in which they were dirtied, and which of them go first for lack of
//! memory. Excludes: when something is written back and how it is mapped (`ops::flush`); how a file grows
//! (`growth`).
//!
//! Locks of one file, in the order in which they are taken; all before the volume's writer:
//! - `gate`: shared by writers of bytes and by write-back, alone by verbs that change the map otherwise
//!   (truncate, fallocate, ...), so that a hole stays a hole until write-back has filled it;
//! - `flushing`: one write-back at a time;
//! - `state`: a moment only, never while the device is waited for.

mod ahead;
mod buffers;
mod failures;
mod folios;
mod growth;
mod pages;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ondisk::inode::Timestamp;
use ondisk::units::InodeNumber;
use placement::Promise;

use crate::charges::Reserved;
use crate::hashing::NumberMap;
use crate::ranges::FileBlocks;
pub(crate) use ahead::{AwaitedWrites, clusters};
pub(crate) use buffers::Buffers;
pub use failures::ErrorCursor;
pub(crate) use failures::Failures;
pub(crate) use folios::Folios;
pub(crate) use growth::{Growth, Reason};
pub(crate) use pages::{Pages, Run};

/// Files without dirty bytes that are remembered, for what is known of how they grow.
const IDLE_MAX: usize = 4096;

/// Commits after which a file without writes has stopped growing: half a minute, where none is asked for.
const IDLE: u8 = 6;

/// The part of what may be held from which on a file that grows is not left to wait: at this length, one more
/// extent costs nothing, and a writer of one long file would wait for the device else.
const LARGE_PART: u64 = 8;

/// Delayed writes of one file.
pub(crate) struct State {
    pub(crate) pages: Pages,
    /// Space for what is dirty and has none: clusters of data and blocks of the map.
    pub(crate) promise: Option<Promise>,
    /// Reservation for it within the limits of the owner.
    pub(crate) reserved: Option<Arc<Reserved>>,
    /// Clusters of data among the promised ones.
    pub(crate) clusters: u64,
    /// Space promised to bytes that are still to come.
    pub(crate) ahead: AwaitedWrites,
    /// How often bytes stopped being dirty: a reader during a write must see the same before and after.
    pub(crate) settled: u64,
    /// Stretches of file blocks that a write-back under way is giving up: what the map says of them does not count.
    pub(crate) leaving: Vec<FileBlocks>,
    /// How the file grows.
    pub(crate) growth: Growth,
    /// The folios of a kernel that is followed.
    pub(crate) folios: Folios,
    /// Write-backs that failed.
    pub(crate) failures: Failures,
    /// Its turn among the dirty files.
    turn: Option<u64>,
}

/// A file that is written to.
pub(crate) struct DirtyFile {
    number: InodeNumber,
    gate: RwLock<()>,
    flushing: Mutex<()>,
    state: Mutex<State>,
}

impl State {
    /// True if all of a file that is no longer open has its place.
    pub(crate) fn is_complete(&self) -> bool {
        self.growth.ended && self.pages.is_empty()
    }

    /// True if anything is known of it that must not be forgotten.
    fn is_remembered(&self) -> bool {
        !self.pages.is_empty() || !self.ahead.is_empty() || self.failures.any() || self.growth.room
    }

    /// True if any of some file blocks are being given up.
    pub(crate) fn is_leaving(&self, blocks: FileBlocks) -> bool {
        self.leaving.iter().any(|leaving| !leaving.within(blocks).is_empty())
    }
}

impl DirtyFile {
    pub(crate) fn number(&self) -> InodeNumber {
        self.number
    }

    /// Keeps the map from being changed by others than write-back.
    pub(crate) fn share(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all other threads from writing and writing back.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn flush_alone(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Table {
    files: NumberMap<InodeNumber, Arc<DirtyFile>>,
    /// Dirty files by turn, with the time at which they became dirty.
    queue: BTreeMap<u64, (InodeNumber, Timestamp)>,
    turn: u64,
    /// The number of files that are remembered before idle ones are looked for.
    sweep_at: usize,
}

/// The delayed writes of one volume.
pub(crate) struct Delayed {
    block_log2: u32,
    /// Dirty bytes that may be held; none are delayed if it is 0.
    bound: u64,
    /// The caller reports when a file is closed.
    closes: bool,
    /// Bytes written to all files: the clock by which writes are recent or not.
    written: AtomicU64,
    table: Mutex<Table>,
    /// Half of what may be held is held: wakes the thread that writes back ahead of need.
    filling: (Mutex<()>, Condvar),
    buffers: Arc<Buffers>,
}

impl Delayed {
    pub(crate) fn new(block_log2: u32, bound: u64, closes: bool) -> Self {
        Delayed {
            block_log2,
            bound,
            closes,
            written: AtomicU64::default(),
            table: Mutex::default(),
            filling: Default::default(),
            buffers: Arc::new(Buffers::new(bound)),
        }
    }

    /// Memory for the bytes.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if delayed allocation is on.
    pub(crate) fn is_on(&self) -> bool {
        self.bound > 0
    }

    /// Dirty bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffers.dirty()
    }

    /// True if more bytes are dirty than the bound allows.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes() > self.bound
    }

    /// Bytes to write back when there is too much: enough that it pays, not all.
    pub(crate) fn excess(&self) -> u64 {
        self.bytes().saturating_sub(self.bound - self.bound / 4)
    }

    /// Waits until half of what may be held is, but no longer than so.
    pub(crate) fn wait_until_filling(&self, patience: Duration) {
        let (lock, told) = &self.filling;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Writers notify without the lock, again and again: a missed notice is repeated soon after.
        let waited = told.wait_timeout_while(guard, patience, |()| !self.is_filling());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// True if the dirty bytes exceed half of the bound.
    pub(crate) fn is_filling(&self) -> bool {
        self.bytes() > self.bound / 2
    }

    /// Files to write back early: above half of the bound those that stopped growing, near the bound any.
    pub(crate) fn ahead(&self) -> Vec<Arc<DirtyFile>> {
        if self.bytes() > self.bound - self.bound / 8 {
            self.best(self.excess(), true)
        } else if self.is_filling() {
            self.best(self.bytes().saturating_sub(self.bound / 4), false)
        } else {
            Vec::new()
        }
    }

    /// Finds the delayed writes of a file, if there are any.
    pub(crate) fn find(&self, number: InodeNumber) -> Option<Arc<DirtyFile>> {
        self.table().files.get(&number).map(Arc::clone)
    }

    /// A file to be written to.
    pub(crate) fn enter(&self, number: InodeNumber) -> Arc<DirtyFile> {
        let mut table = self.table();
        if table.files.len() > table.sweep_at.max(IDLE_MAX) {
            table.sweep();
        }
        let new = || {
            Arc::new(DirtyFile {
                number,
                gate: RwLock::default(),
                flushing: Mutex::default(),
                state: Mutex::new(State {
                    pages: Pages::new(self.block_log2, &self.buffers),
                    promise: None,
                    reserved: None,
                    clusters: 0,
                    ahead: AwaitedWrites::default(),
                    settled: 0,
                    leaving: Vec::new(),
                    growth: Growth::default(),
                    folios: Folios::default(),
                    failures: Failures::default(),
                    turn: None,
                }),
            })
        };
        Arc::clone(table.files.entry(number).or_insert_with(new))
    }

    /// Changes the dirty bytes of a file, and counts them.
    pub(crate) fn change<T>(
        &self,
        file: &DirtyFile,
        state: &mut State,
        now: Timestamp,
        change: impl FnOnce(&mut Pages) -> T,
    ) -> T {
        let before = state.pages.bytes();
        let done = change(&mut state.pages);
        let after = state.pages.bytes();
        if after >= before {
            self.buffers.became_dirty(after - before);
            if self.is_filling() {
                self.filling.1.notify_one();
            }
        } else {
            self.buffers.became_clean(before - after);
        }
        match (state.turn, state.pages.is_empty()) {
            (None, false) => {
                let mut table = self.table();
                table.turn += 1;
                let turn = table.turn;
                table.queue.insert(turn, (file.number, now));
                state.turn = Some(turn);
            }
            (Some(turn), true) => {
                self.table().queue.remove(&turn);
                state.turn = None;
            }
            _ => {}
        }
        done
    }

    /// Notes a write of `bytes` bytes, which may have made the file longer.
    pub(crate) fn note_write(&self, state: &mut State, bytes: u64, extends: bool) {
        (state.growth.ended, state.growth.commits) = (false, 0);
        let growth = &mut state.growth;
        growth.last = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if extends {
            if growth.writes == 0 {
                growth.first = growth.last;
            }
            growth.writes = growth.writes.saturating_add(1);
            growth.extensions = growth.extensions.saturating_add(1);
        }
    }

    /// True if a file seems to go on growing.
    fn goes_on(&self, state: &State, reason: Reason) -> bool {
        let (growth, now, patience) = (&state.growth, self.written.load(Ordering::Relaxed), self.bound / 2);
        if self.closes {
            !growth.ended && growth.goes_on(reason, now.saturating_sub(growth.last) <= patience)
        } else {
            growth.seems_to_go_on(reason, growth.keeps_rhythm(now, patience), state.pages.bytes())
        }
    }

    /// Notes a write-back; true if the file seems to go on growing.
    pub(crate) fn may_grow(&self, state: &mut State, reason: Reason) -> bool {
        // What comes behind bytes that were not held back is not known.
        let goes_on = self.goes_on(state, reason) || !self.is_on();
        (state.growth.extensions, state.growth.written_back) = (0, true);
        // A caller that reports closes gives it up then; it need not be remembered.
        state.growth.room |= goes_on && !self.closes;
        goes_on
    }

    /// Files that may have room set aside and were not written to for some commits, where closes are not
    /// reported. To be called once for each commit that an interval brings.
    pub(crate) fn gone_idle(&self) -> Vec<InodeNumber> {
        if self.closes {
            return Vec::new();
        }
        let files: Vec<_> = self.table().files.values().map(Arc::clone).collect();
        let idle = |file: &Arc<DirtyFile>| {
            let mut state = file.state();
            let waits = state.growth.room && state.pages.is_empty();
            state.growth.commits = if waits { state.growth.commits.saturating_add(1) } else { 0 };
            let idle = state.growth.commits >= IDLE;
            state.growth.room &= !idle;
            idle.then_some(file.number)
        };
        files.iter().filter_map(idle).collect()
    }

    /// A file is no longer open. Says whether the rest of it is to be written back at once: a part has its
    /// place, and room is kept behind it.
    pub(crate) fn end(&self, number: InodeNumber) -> bool {
        let Some(file) = self.find(number) else { return false };
        let mut state = file.state();
        state.growth.ended = true;
        state.growth.written_back && !state.pages.is_empty()
    }

    /// True if the caller reports when a file is closed.
    pub(crate) fn hears_closes(&self) -> bool {
        self.closes
    }

    /// True if bytes of a file have no place yet.
    pub(crate) fn waits(&self, number: InodeNumber) -> bool {
        self.find(number).is_some_and(|file| !file.state().pages.is_empty())
    }

    /// Drops all that is dirty of a file: it is gone, or can't be written.
    pub(crate) fn drop_bytes(&self, file: &DirtyFile) {
        let mut state = file.state();
        self.change(file, &mut state, Timestamp::default(), |pages| pages.cut(0));
        state.settled += 1;
        (state.promise, state.reserved) = (None, None);
        state.clusters = 0;
    }

    /// A file is gone.
    pub(crate) fn forget(&self, number: InodeNumber) {
        let gone = self.table().files.remove(&number);
        if let Some(file) = gone {
            self.drop_bytes(&file);
        }
    }

    /// The files that were dirty before a time, or all, in the order in which they became so.
    pub(crate) fn oldest(&self, before: Option<Timestamp>) -> Vec<Arc<DirtyFile>> {
        let table = self.table();
        let due = table.queue.values().take_while(|(_, since)| before.is_none_or(|time| *since <= time));
        due.filter_map(|(number, _)| table.files.get(number)).map(Arc::clone).collect()
    }

    /// Files that hold `bytes` bytes and are the best to write back for lack of memory: those that are complete,
    /// and large parts of others, in the order in which they became dirty. What goes on growing gets a better place
    /// when all of it is known: it is chosen only where nothing else is left, and if it `must`.
    pub(crate) fn best(&self, bytes: u64, must: bool) -> Vec<Arc<DirtyFile>> {
        let (mut missing, mut chosen, mut growing) = (bytes, Vec::new(), Vec::new());
        for file in self.oldest(None) {
            if missing == 0 {
                return chosen;
            }
            let state = file.state();
            let held = state.pages.bytes();
            let wait = held < self.bound / LARGE_PART && self.goes_on(&state, Reason::Pressure);
            drop(state);
            if wait {
                growing.push((file, held));
            } else {
                missing = missing.saturating_sub(held);
                chosen.push(file);
            }
        }
        for (file, held) in growing {
            if !must || missing == 0 {
                break;
            }
            missing = missing.saturating_sub(held);
            chosen.push(file);
        }
        chosen
    }
}

impl Table {
    /// Forgets files that are not in use and of which nothing is delayed.
    fn sweep(&mut self) {
        self.files.retain(|_, file| {
            Arc::strong_count(file) > 1 || file.state.try_lock().is_ok_and(|state| state.is_remembered())
        });
        self.sweep_at = 2 * self.files.len();
    }
}
