//! Write-back: dirty bytes get their blocks, and go to the device.
//!
//! One write-back of a file takes all that is dirty of it: asks placement once for each run of blocks
//! that have none, maps them in one update, and writes large pieces. Bytes stay dirty until they are on
//! the device, so that a reader sees them in memory or there. In between the map points at blocks that
//! do not hold them yet; a sync writes back what is dirty, and so waits for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ondisk::inode::{Inode, Timestamp};
use ondisk::units::{Block, InodeNumber};

use super::sync::make_space;
use crate::bytes;
use crate::charges::Reserved;
use crate::context::Context;
use crate::dirty::{DirtyFile, Folios, Reason, Run};
use crate::error::{Error, Flow, Result};
use crate::file;
use crate::map::{LastLeaf, Segment, State};
use crate::ranges::{FileBlocks, in_parts};
use crate::tx::Tx;
use crate::txn::Account;
use crate::volume::Volume;

/// After so long it is looked again whether files that grow are complete, or what failed is tried again.
const RECONSIDER: Duration = Duration::from_millis(10);

/// Where a stretch of file blocks goes.
struct MappedRun {
    blocks: FileBlocks,
    /// The disk block of the first.
    start: Block,
    /// State of these blocks before.
    was: PriorState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PriorState {
    Mapped,
    Unwritten,
    Hole,
}

/// Most blocks that Linux asks for at once (`MAX_WRITEPAGES_EXTENT_LEN`). Where a run ends inside a folio it asks for the rest
/// of that folio alone (6.18, `mpage_process_folio`).
const LONGEST: u64 = 2048;

/// Dirty runs and reservations that one write-back takes.
struct WritebackBatch {
    runs: Vec<Run>,
    account: Option<Account>,
    /// Reservation within the owner's limits.
    reserved: Option<Arc<Reserved>>,
    clusters: u64,
    /// One past the last byte.
    end: u64,
    /// The file is one that grows.
    growing: bool,
    /// The folios in which a kernel that is followed would write back.
    follows: Option<Folios>,
    /// There is no space to cut extents: those that were preallocated pay for it.
    sparing: bool,
}

impl Volume {
    /// True if placement follows a kernel that writes back.
    fn follows_write_back(&self) -> bool {
        self.space.wants_file() && self.session.delayed.is_on()
    }

    /// True if that kernel keeps what is dirty in folios of many blocks. A write-back forgets them, so where nothing is
    /// delayed none are noted.
    pub(super) fn follows_folios(&self) -> bool {
        self.follows_write_back() && self.space.writes_folios()
    }

    /// Writes back all that became dirty at or before a time, or all; it need not be stable then.
    ///
    /// # Errors
    /// No space that was not promised; the device's failure. Other files were written back all the same.
    pub fn write_back(&self, before: Option<Timestamp>) -> Result<()> {
        let reason = if before.is_some() { Reason::Age } else { Reason::All };
        self.session.delayed.buffers().trim();
        WriteBack::new(self).files(&self.session.delayed.oldest(before), reason)
    }

    /// Blocks up to `patience` until half the delay budget is dirty, then writes back files that stopped growing. For
    /// a thread that does nothing else: writers then need not do it.
    ///
    /// # Errors
    /// As [`Volume::write_back`].
    pub fn write_back_ahead(&self, patience: Duration) -> Result<()> {
        self.session.delayed.wait_until_filling(patience);
        let files = self.session.delayed.ahead();
        let done = WriteBack::new(self).files(&files, Reason::Pressure);
        if (files.is_empty() || done.is_err()) && self.session.delayed.is_filling() {
            std::thread::sleep(patience.min(RECONSIDER));
        }
        done
    }

    /// Dirty bytes of all files.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.session.delayed.bytes()
    }
}

/// Mapping of a batch under way.
struct Mapping<'b> {
    file: &'b DirtyFile,
    batch: &'b WritebackBatch,
    /// Runs that are mapped so far.
    places: &'b mut Vec<MappedRun>,
    /// The leaf that was looked at last.
    near: LastLeaf,
}

/// Write-back at work on a volume.
#[derive(Clone, Copy)]
pub(super) struct WriteBack<'v> {
    volume: &'v Volume,
}

impl<'v> WriteBack<'v> {
    /// Write-back of delayed bytes, on a handle's terms.
    pub(super) fn new(volume: &'v Volume) -> Self {
        WriteBack { volume }
    }

    /// Writes back `bytes` bytes, for lack of memory or space.
    pub(crate) fn bytes(&self, bytes: u64) -> Result<()> {
        self.files(&self.volume.session.delayed.best(bytes, true), Reason::Pressure)
    }

    fn files(&self, files: &[Arc<DirtyFile>], reason: Reason) -> Result<()> {
        // The limits of this thread's caller do not apply: the bytes were promised their space.
        let entitled = self.volume.with(Context { spared: 0, limited: false, ..self.volume.context() });
        let mut first = Ok(());
        for file in files {
            // Truncation and moves of the file wait until its write-back has ended.
            let _shared = file.share();
            if let Err(error) = WriteBack::new(&entitled).file(file, reason) {
                // Returned here, and once more by a sync of that file.
                file.state().failures.note(&error);
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Writes back one file, if anything of it is dirty.
    pub(crate) fn inode(&self, number: InodeNumber) -> Result<()> {
        let Some(file) = self.volume.session.delayed.find(number) else { return Ok(()) };
        let _shared = file.share();
        self.file(&file, Reason::Asked)
    }

    /// An inode after its write-back, if anything of it was dirty. A failure is reported by a sync of the file.
    pub(crate) fn written_back(&self, number: InodeNumber) -> Option<Inode> {
        let file = self.volume.session.delayed.find(number)?;
        let _shared = file.share();
        if let Err(error) = self.file(&file, Reason::Asked) {
            file.state().failures.note(&error);
        }
        self.volume.view().inode(number).ok()
    }

    /// Writes back a file whose gate the caller holds.
    pub(crate) fn file(&self, file: &DirtyFile, reason: Reason) -> Result<()> {
        let _one = file.flush_alone();
        // First: what is taken off is then of an inode that lives until it is on the device. The number
        // of one that is gone may be another file's already, but its bytes are gone too.
        let Ok(_pin) = self.volume.pin(file.number()) else {
            // It is being destroyed, and its bytes go with it; or stay, if that fails.
            return Ok(());
        };
        let Some(mut batch) = self.take_off(file, reason) else { return Ok(()) };
        if self.volume.space.holds_most() {
            // What can't be had so is no worse than before.
            make_space(self.volume, self.volume.space.free_generation())?;
        }
        let free_generation = self.volume.space.free_generation();
        let mut done = self.map_and_write(file, &batch);
        let _need = if matches!(done, Err(Error::NoSpace)) { self.volume.space.low_space() } else { None };
        if matches!(done, Err(Error::NoSpace)) && make_space(self.volume, free_generation)? {
            done = self.map_and_write(file, &batch);
        }
        if matches!(done, Err(Error::NoSpace)) {
            batch.sparing = true;
            done = self.map_and_write(file, &batch);
            file.state().leaving.clear();
        }
        if matches!(done, Err(Error::NoSpace)) {
            // It stays dirty, and may find space later.
            put_back(file, batch);
            return done;
        }
        let mut state = file.state();
        // Readers that missed the bytes on the device must not miss them here too (I20).
        self.volume.cache.versions().note_moved(file.number());
        self.volume
            .session
            .delayed
            .change(file, &mut state, Timestamp::default(), |pages| pages.note_written(batch.runs));
        state.settled += 1;
        let complete = state.is_complete();
        drop(state);
        let held = self.volume.space.wants_file()
            && self.volume.session.delayed.hears_closes()
            && self.volume.session.handles.users(file.number()) > 1;
        if complete || (!batch.growing && !held) {
            self.volume.space.closed(file.number());
        }
        done
    }

    /// Takes all that is dirty of a file, with what was promised to it; it stays visible.
    fn take_off(&self, file: &DirtyFile, reason: Reason) -> Option<WritebackBatch> {
        let mut state = file.state();
        if state.pages.is_empty() {
            return None;
        }
        let growing = self.volume.session.delayed.may_grow(&mut state, reason);
        let account = state.promise.take().map(|promise| Arc::new(Mutex::new(promise)));
        let clusters = std::mem::take(&mut state.clusters);
        Some(WritebackBatch {
            runs: state.pages.snapshot(),
            account,
            reserved: state.reserved.take(),
            clusters,
            end: state.pages.end(),
            growing,
            follows: self.volume.follows_write_back().then(|| std::mem::take(&mut state.folios)),
            sparing: false,
        })
    }

    /// Maps what has no blocks, then writes the bytes.
    fn map_and_write(&self, file: &DirtyFile, batch: &WritebackBatch) -> Result<()> {
        self.volume.syncing().mark_changed()?;
        self.volume.uses().reap()?;
        let dirty = stretches(&batch.runs, self.volume.format.geometry.block_size.log2());
        let count = dirty.iter().map(|stretch| stretch.len()).sum();
        let most = self.volume.order.blocks_at_once();
        in_parts(0..count, 1, most, |part| {
            self.part(file, batch, FileBlocks::new(nth(&dirty, part.start), nth(&dirty, part.end - 1) + 1))
        })?;
        self.volume.syncing().relieve()
    }

    /// Writes the part of a batch in a range of file blocks.
    fn part(&self, file: &DirtyFile, batch: &WritebackBatch, blocks: FileBlocks) -> Result<()> {
        loop {
            match self.part_once(file, batch, blocks) {
                Err(Flow::Full) => self.volume.syncing().commit()?,
                Err(flow) => return Err(flow.into_error()),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn part_once(&self, file: &DirtyFile, batch: &WritebackBatch, blocks: FileBlocks) -> Result<(), Flow> {
        let _write = self.volume.order.begin_data_write();
        let mut places = Vec::new();
        let mut map = |tx: &mut Tx<'_>| {
            places.clear();
            if let Some(account) = &batch.account {
                tx.draw_on(account);
            }
            tx.charges.is_paid = true;
            tx.map_batch(file, batch, blocks, &mut places)?;
            tx.pay_reserved(batch, &places);
            if !tx.journals_data() {
                return Ok(());
            }
            self.each_piece(&batch.runs, &places, |place, piece| tx.put_data(file.number(), place, piece))
        };
        self.volume.attempt(&mut map, true)?;
        if self.volume.order.journals_data() {
            return Ok(());
        }
        let done = self.each_piece(&batch.runs, &places, |place, piece| {
            let written = self.volume.cache.device().write_at(place, piece);
            written.map_err(|source| Error::io(format!("writing inode {}", file.number()), source))
        });
        if done.is_err() {
            // Else they would show what others left there.
            let gone = self.take_back(file.number(), &places);
            self.volume.syncing().or_fail(gone)?;
        }
        Ok(done?)
    }

    /// Makes blocks that did not get their bytes what they were before, as part of the same transaction.
    fn take_back(&self, number: InodeNumber, places: &[MappedRun]) -> Result<()> {
        let mut undo = |tx: &mut Tx<'_>| {
            let mut node = tx.inode(number)?;
            for place in places {
                match place.was {
                    PriorState::Mapped => {}
                    PriorState::Unwritten => {
                        tx.map(&mut node).set_unwritten(place.blocks, true)?;
                    }
                    PriorState::Hole => {
                        tx.map(&mut node).unmap(place.blocks)?;
                    }
                }
            }
            tx.store(&mut node)
        };
        let done = self.volume.attempt_at_once(&self.volume.begin()?, &mut undo, true);
        done.map_err(Flow::into_error)
    }

    /// The bytes of runs for their places, the last block of each filled up with zeros.
    fn each_piece(
        &self,
        runs: &[Run],
        places: &[MappedRun],
        mut write: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = self.volume.format.geometry.block_size;
        let mut runs = runs.iter().peekable();
        for MappedRun { blocks, start, .. } in places {
            while let Some((first, data)) = runs.peek() {
                let run_end = first + size.blocks_for(data.len() as u64);
                let (low, high) = (blocks.start.max(*first), blocks.end.min(run_end));
                if low < high {
                    let (from, to) = (
                        bytes::length((low - first) << size.log2())?,
                        bytes::length((high - first) << size.log2())?,
                    );
                    let piece = bytes::part(data, from..to.min(data.len()))?;
                    let place =
                        self.volume.format.geometry.byte_offset(Block(start.0 + (low - blocks.start)));
                    let len = to - from;
                    if piece.len() == len {
                        write(place, piece)?;
                    } else {
                        let buffers = self.volume.session.delayed.buffers();
                        let whole = filled_up(buffers.take(len), piece, len);
                        let written = write(place, &whole);
                        buffers.put_back(whole);
                        written?;
                    }
                }
                if run_end > blocks.end {
                    break;
                }
                runs.next();
            }
        }
        Ok(())
    }
}

impl<'v> Tx<'v> {
    /// Turns the reservation of blocks that were mapped into a charge of this update.
    fn pay_reserved(&mut self, batch: &WritebackBatch, places: &[MappedRun]) {
        if let Some(reserved) = batch.reserved.clone() {
            let new = places.iter().filter(|place| place.was == PriorState::Hole);
            let blocks: u64 = new.map(|place| place.blocks.len()).sum();
            let bytes = blocks << self.format.geometry.block_size.log2();
            self.on_commit(move || reserved.pay(bytes));
        }
    }

    fn map_batch(
        &mut self,
        file: &DirtyFile,
        batch: &WritebackBatch,
        part: FileBlocks,
        places: &mut Vec<MappedRun>,
    ) -> Result<()> {
        let mut node = self.inode(file.number())?;
        let bytes = part.bytes(self.format.geometry.block_size);
        let mut contents = self.contents(&mut node);
        contents.grow_out()?;
        contents.zero_behind_end(bytes.start.max(contents.size()))?;
        let mut mapping = Mapping { file, batch, places, near: LastLeaf::default() };
        for stretch in stretches(&batch.runs, self.format.geometry.block_size.log2()) {
            self.map_stretch(&mut node, stretch.within(part), &mut mapping)?;
        }
        if !batch.sparing {
            let unwritten = places.iter().filter(|place| place.was == PriorState::Unwritten);
            let converted: Vec<FileBlocks> = unwritten.map(|place| place.blocks).collect();
            // What holds the map to change it has the next sync of the bytes wait for a commit.
            if !converted.is_empty() {
                self.map(&mut node).set_all_written(&converted)?;
            }
        }
        // What zeros were written to belongs to the file with this part.
        let end = if batch.sparing { batch.end } else { batch.end.min(bytes.end) };
        if end > node.size() {
            node.set_size(end);
        }
        self.note_size(node.size());
        self.note_map(&node);
        self.store(&mut node)
    }

    /// Gives each block of a dirty stretch its place. Those that were preallocated stay unwritten, but where nothing
    /// is left for the map to grow by.
    fn map_stretch(
        &mut self,
        node: &mut Inode,
        mut left: FileBlocks,
        mapping: &mut Mapping<'_>,
    ) -> Result<()> {
        let Mapping { file, batch, places, near } = mapping;
        let log2 = self.format.geometry.block_size.log2();
        let mut ahead = file::Allocation::default();
        let (mut hole_end, mut rest) = (0, None);
        while !left.is_empty() {
            let found = self.view().map(node).lookup_near(near, left.first())?;
            let mut blocks = FileBlocks::from_count(found.logical, found.count).within(left);
            let (start, was) = match found.state {
                State::Mapped(block) => (block, PriorState::Mapped),
                State::Unwritten(block) => {
                    if batch.sparing {
                        *near = LastLeaf::default();
                        let limit = self.format.blocks_for(batch.end.max(node.size()));
                        self.set_written_sparing(node, file, blocks, limit)?;
                    }
                    (block, PriorState::Unwritten)
                }
                State::Hole => {
                    if batch.follows.is_some() {
                        // Each is asked for by itself.
                        hole_end = 0;
                        blocks.end = blocks.end.min(rest.take().unwrap_or(blocks.start + LONGEST));
                    }
                    let asked = blocks.end;
                    if blocks.start >= hole_end {
                        ahead = file::Allocation::default();
                        hole_end = blocks.end;
                    }
                    *near = LastLeaf::default();
                    let hint =
                        file::WriteHint { end: hole_end << log2, growing: batch.growing, reserved: false };
                    let hole = Segment { count: blocks.len(), ..found };
                    let (start, count) = self.contents(node).map_hole(&mut ahead, hole, &hint, false)?;
                    blocks.end = blocks.start + count;
                    let short = batch.follows.as_ref().filter(|_| blocks.end < asked);
                    rest = short.and_then(|folios| folios.rest(blocks.end));
                    (start, PriorState::Hole)
                }
            };
            places.push(MappedRun { blocks, start, was });
            left.start = blocks.end;
        }
        Ok(())
    }
}

fn filled_up(mut whole: Vec<u8>, piece: &[u8], len: usize) -> Vec<u8> {
    whole.extend_from_slice(piece);
    whole.resize(len, 0);
    whole
}

/// The bytes could not be written: what is left of their promise is theirs again.
fn put_back(file: &DirtyFile, batch: WritebackBatch) {
    let mut state = file.state();
    state.clusters += batch.clusters;
    state.reserved = state.reserved.take().or(batch.reserved);
    if let Some(Ok(account)) = batch.account.map(Arc::try_unwrap) {
        let promise = account.into_inner().unwrap_or_else(PoisonError::into_inner);
        match &mut state.promise {
            Some(held) => held.join(promise),
            none => *none = Some(promise),
        }
    }
}

/// The n-th block of some stretches.
fn nth(stretches: &[FileBlocks], mut n: u64) -> u64 {
    for stretch in stretches {
        if n < stretch.len() {
            return stretch.start + n;
        }
        n -= stretch.len();
    }
    0
}

/// Runs joined where they touch.
fn stretches(runs: &[Run], log2: u32) -> Vec<FileBlocks> {
    let mut joined: Vec<FileBlocks> = Vec::new();
    for (first, data) in runs {
        let end = first + (data.len() as u64).div_ceil(1 << log2);
        match joined.last_mut() {
            Some(last) if last.end == *first => last.end = end,
            _ => joined.push(FileBlocks::new(*first, end)),
        }
    }
    joined
}
