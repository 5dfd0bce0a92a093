//! The device while this host has the mark: a thread renews it, and nothing is written once another host has it.
//!
//! Reading the block through this device gives that of a volume that is not in use: copies and checks of a volume are
//! not about who has it now.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ondisk::mmp::{MmpUse, RawMmp};
use ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use ondisk::units::saturated;
use zerocopy::IntoBytes;

use super::acquisition::who;
use super::host::Host;
use super::mark::{Access, MmpBlock, NextSequence};
use crate::{Device, Protection, read_superblock};

/// A device whose volume bears the mark of this host. The mark is cleared when it is dropped.
pub struct MmpGuard {
    inner: Arc<dyn Device>,
    mark: Arc<MarkState>,
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    renewer: Option<JoinHandle<()>>,
}

/// The mark, for those who write and for the thread that renews it.
struct MarkState {
    access: Access,
    host: Arc<dyn Host>,
    state: Mutex<State>,
    /// Nothing is written any more.
    lost: AtomicBool,
    /// The byte at which the block begins; none is `u64::MAX`. Asked before the lock, which a renewal holds for long.
    at: AtomicU64,
    /// Milliseconds of the host's clock at the last renewal, and after it until others may think that this host is gone.
    renewed: AtomicU64,
    patience: AtomicU64,
}

struct State {
    /// Where it lies, and what was written there last.
    ours: Option<(MmpBlock, RawMmp)>,
    /// Reason for which nothing is written any more.
    why: String,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> u64 {
    saturated::<u64>(time.as_millis())
}

/// The part of both ranges, relative to the beginning of each.
fn common(a: &Range<u64>, b: &Range<u64>) -> Option<(Range<usize>, Range<usize>)> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    let within = |of: &Range<u64>| -> Option<Range<usize>> {
        Some(usize::try_from(start - of.start).ok()?..usize::try_from(end - of.start).ok()?)
    };
    if start < end { within(a).zip(within(b)) } else { None }
}

fn range(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

impl MarkState {
    fn refusal(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ReadOnlyFilesystem, lock(&self.state).why.clone())
    }

    /// Ends all writing.
    fn lose(&self, state: &mut State, why: String) {
        self.forget(state);
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.host.lost(&why);
            state.why = why;
        }
    }

    fn is_late(&self) -> bool {
        let now = millis(self.host.elapsed());
        now.saturating_sub(self.renewed.load(Ordering::Acquire)) > self.patience.load(Ordering::Acquire)
    }

    /// Asked before each write. A host that stood still for too long looks first: others may have thought it gone.
    fn may_write(&self) -> io::Result<()> {
        if !self.lost.load(Ordering::Acquire) && self.is_late() {
            self.renew(None);
        }
        if self.lost.load(Ordering::Acquire) { Err(self.refusal()) } else { Ok(()) }
    }

    /// Renews the mark, or writes the given one; says whether it is this host's.
    fn renew(&self, next: Option<NextSequence>) -> bool {
        let mut state = lock(&self.state);
        let Some((place, ours)) = state.ours else { return false };
        let done = self.access.read(&place).and_then(|seen| {
            if seen != ours.as_bytes() {
                let by = place.parse(&seen).map_or_else(
                    || "the mark of this host is gone".to_owned(),
                    |seen| format!("another host has taken it: {}", who(&seen, &*self.host)),
                );
                return Ok(Err(format!("{by} (multiple mount protection); nothing more is written")));
            }
            let following =
                if ours.usage() == MmpUse::Check { NextSequence::Check } else { NextSequence::Following };
            let raw = place.next(&ours, next.unwrap_or(following), &*self.host);
            self.access.write(&place, &raw).map(|()| Ok(raw))
        });
        match done {
            Ok(Ok(raw)) => self.note(&mut state, place, raw),
            Ok(Err(why)) => self.lose(&mut state, why),
            // The next renewal may succeed before others lose patience.
            Err(error) if self.is_late() => {
                let why = format!(
                    "its mark could not be renewed for too long ({error}), and another host may have taken it \
                     (multiple mount protection); nothing more is written"
                );
                self.lose(&mut state, why);
            }
            Err(_) => {}
        }
        !self.lost.load(Ordering::Acquire)
    }

    fn note(&self, state: &mut State, place: MmpBlock, raw: RawMmp) {
        state.ours = Some((place, raw));
        self.at.store(place.offset, Ordering::Release);
        self.patience.store(u64::from(place.patience()) * 1000, Ordering::Release);
        self.renewed.store(millis(self.host.elapsed()), Ordering::Release);
    }

    /// True if a range has bytes of the block.
    fn meets(&self, asked: &Range<u64>) -> bool {
        common(asked, &range(self.at.load(Ordering::Acquire), size_of::<RawMmp>() as u64)).is_some()
    }

    fn forget(&self, state: &mut State) {
        state.ours = None;
        self.at.store(u64::MAX, Ordering::Release);
    }

    /// Lays the block of a volume that is not in use over what was read.
    fn veil(&self, offset: u64, buffer: &mut [u8]) {
        let read = range(offset, buffer.len() as u64);
        if !self.meets(&read) {
            return;
        }
        let Some((place, ours)) = lock(&self.state).ours else { return };
        let block = range(place.offset, size_of::<RawMmp>() as u64);
        if let Some((to, from)) = common(&read, &block) {
            let clean = place.next(&ours, NextSequence::Clean, &*self.host);
            if let (Some(to), Some(from)) = (buffer.get_mut(to), clean.as_bytes().get(from)) {
                to.copy_from_slice(from);
            }
        }
    }

    /// Follows the mark behind a write of this host itself: a superblock says where it lies and how it is sealed, and a block
    /// that was written over is marked again, or is no mark any more.
    fn follow(&self, device: &dyn Device, written: &Range<u64>) -> io::Result<()> {
        let superblock = range(SUPERBLOCK_OFFSET, SUPERBLOCK_LEN as u64);
        let of_block = self.meets(written);
        if !of_block && common(written, &superblock).is_none() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        let ours = state.ours;
        let place = read_superblock(device).ok().as_ref().and_then(MmpBlock::from_superblock);
        if !of_block && place == ours.map(|(place, _)| place) {
            return Ok(());
        }
        let mut bytes = [0; size_of::<RawMmp>()];
        // One that is about to be sealed otherwise is a mark, too.
        let found = match place {
            Some(place) => {
                device.read_at(place.offset, &mut bytes)?;
                RawMmp::parse(place.block, &bytes).ok().map(|found| (place, found))
            }
            None => None,
        };
        let Some((place, found)) = found else {
            self.forget(&mut state);
            return Ok(());
        };
        let is_check = ours.is_some_and(|(_, ours)| ours.usage() == MmpUse::Check);
        let raw = place.next(
            &found,
            if is_check { NextSequence::Check } else { NextSequence::Random },
            &*self.host,
        );
        self.access.write(&place, &raw)?;
        self.note(&mut state, place, raw);
        Ok(())
    }
}

impl MmpGuard {
    /// Holds what was taken.
    pub(super) fn new(
        inner: Arc<dyn Device>,
        access: Access,
        place: MmpBlock,
        ours: RawMmp,
        host: Arc<dyn Host>,
    ) -> io::Result<Self> {
        let state = Mutex::new(State { ours: None, why: String::new() });
        let (lost, at) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let (renewed, patience) = (AtomicU64::new(0), AtomicU64::new(0));
        let mark = MarkState { access, host, state, lost, at, renewed, patience };
        mark.note(&mut lock(&mark.state), place, ours);
        let mark = Arc::new(mark);
        let (stop, stopped) = channel();
        let (its, every) = (Arc::clone(&mark), place.between());
        let renewer =
            std::thread::Builder::new().name("mmp".into()).spawn(move || renewals(&its, &stopped, every))?;
        Ok(MmpGuard { inner, mark, stop: Some(stop), renewer: Some(renewer) })
    }

    /// Clears the mark; nothing is written through this device any more. For a process that ends before it drops this.
    pub fn release(&self) {
        // What was written is stable before another host may have the volume. Where the device fails, the mark stays, and
        // the next that opens the volume waits.
        if self.mark.lost.load(Ordering::Acquire) || self.inner.flush().is_err() {
            return;
        }
        if self.mark.renew(Some(NextSequence::Clean)) {
            let mut state = lock(&self.mark.state);
            self.mark.forget(&mut state);
            "the volume was closed".clone_into(&mut state.why);
            self.mark.lost.store(true, Ordering::Release);
        }
    }

    /// Renews the mark now.
    #[cfg(test)]
    pub(super) fn renew(&self) -> bool {
        self.mark.renew(None)
    }

    fn write(
        &self,
        written: &Range<u64>,
        work: impl FnOnce(&dyn Device) -> io::Result<()>,
    ) -> io::Result<()> {
        self.mark.may_write()?;
        work(&*self.inner)?;
        self.mark.follow(&*self.inner, written)
    }
}

/// The work of the thread.
fn renewals(mark: &MarkState, stopped: &Receiver<()>, every: Duration) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if mark.lost.load(Ordering::Acquire) {
            return;
        }
        mark.renew(None);
    }
}

impl Drop for MmpGuard {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(renewer) = self.renewer.take() {
            let _ = renewer.join();
        }
        self.release();
    }
}

impl Device for MmpGuard {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn protection(&self) -> Protection {
        if self.mark.lost.load(Ordering::Acquire) { Protection::Lost } else { Protection::Alone }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)?;
        self.mark.veil(offset, buffer);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(&range(offset, data.len() as u64), |inner| inner.write_at(offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        self.mark.may_write()?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write(&range(offset, len), |inner| inner.discard(offset, len))
    }

    fn discard_unit(&self) -> io::Result<u64> {
        self.inner.discard_unit()
    }

    fn data_from(&self, offset: u64) -> u64 {
        self.inner.data_from(offset)
    }

    fn hole_from(&self, offset: u64) -> u64 {
        self.inner.hole_from(offset)
    }

    fn zero_fast(&self, offset: u64, len: u64, keeps: bool) -> io::Result<()> {
        self.write(&range(offset, len), |inner| inner.zero_fast(offset, len, keeps))
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        self.inner.lengthen(to)
    }

    fn shorten(&self, to: u64) -> io::Result<()> {
        self.mark.may_write()?;
        self.inner.shorten(to)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write(&range(offset, len), |inner| inner.write_zeros(offset, len))
    }
}
