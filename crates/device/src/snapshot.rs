//! A device of which a copy as of one moment can be taken while it is written: what a write would change is put into
//! the copy first.
//!
//! Owns: which parts of the copy are made, and the order of copying and writing. Excludes: which parts matter, which who
//! takes the copy says, and what the moment is good for.
//!
//! The moment lies between two writes: none is under way then. Each part is copied once, by the first that needs it:
//! the copier on its way, or a write before it changes the part. A part is not written before its copy is made.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use ondisk::units::{bounded, saturated};
use ondisk::{invariant, invariant_or};

use super::{Device, Protection, check_range};

/// Base-2 logarithm of the bytes of a part.
const PART_LOG2: u32 = 16;
const PART: u64 = 1 << PART_LOG2;
/// Locks that parts share.
const LOCKS: usize = 64;
/// Parts in one word of a set.
const WORD: u64 = 64;

/// Passes everything on to another device, and keeps what it was for a copy that is being taken.
pub struct SnapshotDevice {
    inner: Arc<dyn Device>,
    /// The copy; writes hold it while they are under way.
    copy: RwLock<Option<Arc<SnapshotView>>>,
}

impl SnapshotDevice {
    /// A device of which no copy is taken as yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        SnapshotDevice { inner, copy: RwLock::new(None) }
    }

    /// Begins a copy of what the device is now, into another of at least its size that reads as zeros.
    ///
    /// # Errors
    /// `ResourceBusy`: a copy is being taken already. `InvalidInput`: the other is too small.
    pub fn begin(self: &Arc<Self>, to: Arc<dyn Device>) -> io::Result<Snapshot> {
        let view = Arc::new(SnapshotView::new(Arc::clone(&self.inner), to)?);
        let mut copy = self.copy.write().unwrap_or_else(PoisonError::into_inner);
        if copy.is_some() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "a snapshot is being taken already"));
        }
        *copy = Some(Arc::clone(&view));
        Ok(Snapshot { of: Arc::clone(self), view })
    }

    /// Does what changes a range, after what was there is copied.
    fn change(&self, range: Range<u64>, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = &*copy {
            view.save(range);
        }
        work()
    }
}

impl Device for SnapshotDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn lengthen(&self, to: Option<u64>) -> io::Result<u64> {
        self.inner.lengthen(to)
    }

    fn shorten(&self, to: u64) -> io::Result<()> {
        self.change(to..self.size(), || self.inner.shorten(to))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        self.change(offset..end, || self.inner.write_at(offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset..offset.saturating_add(len), || self.inner.discard(offset, len))
    }

    fn discard_unit(&self) -> io::Result<u64> {
        self.inner.discard_unit()
    }

    fn protection(&self) -> Protection {
        self.inner.protection()
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset..offset.saturating_add(len), || self.inner.write_zeros(offset, len))
    }
}

/// A copy that is being taken. Ends with this value.
pub struct Snapshot {
    of: Arc<SnapshotDevice>,
    view: Arc<SnapshotView>,
}

impl Snapshot {
    /// The device as it was when the copy was begun, for reading.
    #[must_use]
    pub fn view(&self) -> Arc<dyn Device> {
        Arc::clone(&self.view) as Arc<dyn Device>
    }

    /// From now on only these ranges are copied; the rest of the copy stays as it is. May be called once.
    pub fn restrict_to(&self, ranges: impl IntoIterator<Item = Range<u64>>) {
        let mut needed = vec![0; self.view.done.len()];
        for range in ranges {
            for part in parts(&range, self.view.size) {
                let word = needed.get_mut(word_of(part));
                *invariant_or!(word, continue, "a part of the device has a bit") |= bit_of(part);
            }
        }
        // The first one has said what is needed.
        let _ = self.view.needed.set(needed);
    }

    /// Bytes that are to be copied at most.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let all = self.view.size;
        let count = |needed: &Vec<u64>| needed.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.view.needed.get().map_or(all, |needed| (count(needed) << PART_LOG2).min(all))
    }

    /// Copies all that is not copied yet; `go_on` gets the bytes that were looked at so far.
    ///
    /// # Errors
    /// Errors of `go_on`; a read or a write that failed, also one on behalf of others.
    pub fn copy<E: From<io::Error>>(&self, mut go_on: impl FnMut(u64) -> Result<(), E>) -> Result<(), E> {
        let mut copied = 0;
        for part in 0..self.view.parts() {
            if !self.view.is_needed(part) {
                continue;
            }
            copied += PART;
            let one = self.view.lock(part);
            self.view.copy(part, &one)?;
            drop(one);
            go_on(copied)?;
        }
        self.view.failure()?;
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        *self.of.copy.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A device as it was at a moment.
struct SnapshotView {
    now: Arc<dyn Device>,
    to: Arc<dyn Device>,
    size: u64,
    /// Parts that are copied or not needed; a bit each.
    done: Vec<AtomicU64>,
    /// Parts that are to be copied; all of them as long as nobody says so.
    needed: OnceLock<Vec<u64>>,
    locks: Vec<Mutex<()>>,
    /// First failure of a copy that a write had to make; the write itself goes on, and the copier reports it.
    failed: Mutex<Option<io::Error>>,
}

fn word_of(part: u64) -> usize {
    bounded::<usize>(part / WORD)
}

fn bit_of(part: u64) -> u64 {
    1 << (part % WORD)
}

/// The parts that a range touches.
fn parts(range: &Range<u64>, size: u64) -> Range<u64> {
    let end = range.end.min(size);
    if range.start >= end { 0..0 } else { range.start >> PART_LOG2..end.div_ceil(PART) }
}

/// A part that nobody else looks at.
struct PartLock<'m>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'m, ()>);

impl SnapshotView {
    fn new(now: Arc<dyn Device>, to: Arc<dyn Device>) -> io::Result<Self> {
        let size = now.size();
        if to.size() < size {
            let what = format!("the copy has {} bytes of {size}", to.size());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let words = bounded::<usize>(size.div_ceil(PART).div_ceil(WORD));
        Ok(SnapshotView {
            now,
            to,
            size,
            done: (0..words).map(|_| AtomicU64::new(0)).collect(),
            needed: OnceLock::new(),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            failed: Mutex::default(),
        })
    }

    fn parts(&self) -> u64 {
        self.size.div_ceil(PART)
    }

    fn lock(&self, part: u64) -> PartLock<'_> {
        let at = bounded::<usize>(part % LOCKS as u64);
        PartLock(self.locks[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_needed(&self, part: u64) -> bool {
        let needed = self.needed.get();
        needed.is_none_or(|needed| needed.get(word_of(part)).is_some_and(|word| word & bit_of(part) != 0))
    }

    fn is_done(&self, part: u64) -> bool {
        let word = self.done.get(word_of(part));
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit_of(part) != 0)
    }

    /// Copies a part, unless that was done or is not needed.
    fn copy(&self, part: u64, _one: &PartLock<'_>) -> io::Result<()> {
        if self.is_done(part) || !self.is_needed(part) {
            return Ok(());
        }
        let offset = part << PART_LOG2;
        let len = invariant!(usize::try_from(PART.min(self.size - offset)), "a part fits memory");
        let mut bytes = vec![0; len];
        self.now.read_at(offset, &mut bytes)?;
        // The copy reads as zeros where nothing is written.
        if bytes.iter().any(|byte| *byte != 0) {
            self.to.write_at(offset, &bytes)?;
        }
        let word = self.done.get(word_of(part));
        let word = invariant!(word, "a part of the device has a bit");
        word.fetch_or(bit_of(part), Ordering::Release);
        Ok(())
    }

    /// Copies what a write will change. It must not fail for that.
    fn save(&self, range: Range<u64>) {
        for part in parts(&range, self.size) {
            if self.is_done(part) {
                continue;
            }
            let one = self.lock(part);
            if let Err(error) = self.copy(part, &one) {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    }

    fn failure(&self) -> io::Result<()> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

impl Device for SnapshotView {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check_range(self.size, offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let part = at >> PART_LOG2;
            let room = saturated::<usize>(((part + 1) << PART_LOG2) - at);
            let len = room.min(rest.len());
            let (piece, behind) = std::mem::take(&mut rest).split_at_mut(len);
            let _one = self.lock(part);
            let from = if self.is_done(part) { &self.to } else { &self.now };
            from.read_at(at, piece)?;
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "what was is not changed"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::MemoryDevice;

    const SIZE: u64 = 40 * PART + 1000;

    fn device() -> Arc<SnapshotDevice> {
        let inner = MemoryDevice::new(SIZE);
        for part in 0..40_u8 {
            inner.write_at(u64::from(part) * PART, &vec![part + 1; usize::try_from(PART).unwrap()]).unwrap();
        }
        Arc::new(SnapshotDevice::new(Arc::new(inner)))
    }

    fn bytes(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_copy_is_of_one_moment_whatever_is_written_meanwhile() {
        let device = device();
        let before = bytes(&*device);
        let to: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3_u64 {
                let (device, stop) = (Arc::clone(&device), &stop);
                scope.spawn(move || {
                    let mut at = writer * 7919;
                    while !stop.load(Ordering::Relaxed) {
                        at = (at * 31 + 12_345) % (SIZE - 5000);
                        match at % 5 {
                            0 => device.write_zeros(at, 4000).unwrap(),
                            1 => device.discard(at, 3000).unwrap(),
                            _ => device.write_at(at, &[200; 5000]).unwrap(),
                        }
                    }
                });
            }
            let snapshot = device.begin(Arc::clone(&to)).unwrap();
            let seen = bytes(&*snapshot.view());
            assert!(device.begin(Arc::new(MemoryDevice::new(SIZE))).is_err(), "one at a time");
            snapshot.copy(|_| Ok::<_, io::Error>(())).unwrap();
            // The writers had begun before.
            assert!(bytes(&*to) == seen && bytes(&*snapshot.view()) == seen);
            stop.store(true, Ordering::Relaxed);
        });
        assert_ne!(bytes(&*device), before);
        assert!(device.begin(to).is_ok(), "the first has ended");
    }

    #[test]
    fn only_what_is_needed_is_copied() {
        let device = device();
        let to: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
        let snapshot = device.begin(Arc::clone(&to)).unwrap();
        device.write_at(5 * PART + 3, &[99]).unwrap();
        snapshot.restrict_to([PART..PART + 1, 7 * PART - 1..7 * PART + 1, SIZE - 1..u64::MAX]);
        assert_eq!(snapshot.bytes(), 4 * PART);
        device.write_at(7 * PART, &[98; 100]).unwrap();
        device.write_at(9 * PART, &[97; 100]).unwrap();
        let mut steps = 0;
        let counted = |_| {
            steps += 1;
            Ok::<_, io::Error>(())
        };
        snapshot.copy(counted).unwrap();
        assert_eq!(steps, 4);
        let copied = bytes(&*to);
        let part = |part: u64| copied[usize::try_from(part * PART).unwrap()];
        // The fifth was copied before it was known that nobody needs it.
        assert_eq!((part(0), part(1), part(5), part(6), part(7), part(9)), (0, 2, 6, 7, 8, 0));
    }

    #[test]
    fn a_copy_that_fails_does_no_harm_to_writes() {
        let device = device();
        let snapshot = device.begin(Arc::new(Full(SIZE))).unwrap();
        device.write_at(5 * PART + 3, &[99]).unwrap();
        assert!(snapshot.copy(|_| Ok::<_, io::Error>(())).is_err());
        drop(snapshot);
        let mut byte = [0];
        device.read_at(5 * PART + 3, &mut byte).unwrap();
        assert_eq!(byte, [99]);
        assert!(device.begin(Arc::new(MemoryDevice::new(SIZE - 1))).is_err(), "it would not fit");
    }

    struct Full(u64);

    impl Device for Full {
        fn size(&self) -> u64 {
            self.0
        }

        fn read_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.fill(0);
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }
}
