//! Memory for dirty bytes, used again.
//!
//! Owns: how many bytes are dirty, buffers that a write-back has emptied, and how long they are kept. Excludes: what is
//! in them.
//!
//! A small file takes a buffer for the short time until it is written back. The system would give and take that memory
//! page by page each time, and stop all processors to take it. So buffers that come free are kept, and those that were
//! not needed from one [`Buffers::trim`] to the next go back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::invariant_or;

/// The shortest buffer: enough that an allocator with that setting (`mallopt`'s `M_MMAP_THRESHOLD`) gives it pages of
/// its own, which go back to the system with it. Among small blocks that stay, they would not.
const LEAST_LOG2: u32 = 14;
/// The longest that is kept.
const MOST_LOG2: u32 = 20;
/// Of the shortest buffers only the pages that were written to take memory: a page is the least.
const PAGE_LOG2: u32 = 12;
const CLASSES: usize = (MOST_LOG2 - PAGE_LOG2 + 1) as usize;
/// Classes of the shortest buffers: those of which one page, two or all were written to.
const SHORT: usize = (LEAST_LOG2 - PAGE_LOG2 + 1) as usize;

/// Buffers of one length, or short ones with as many bytes written to.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Vec<u8>>,
    /// The fewest that were free since the last trim.
    fewest: usize,
}

#[derive(Debug, Default)]
struct SpareBuffers {
    classes: [Class; CLASSES],
    bytes: u64,
}

/// Memory for the dirty bytes of all files: how many there are, and buffers that are not in use.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: Mutex<SpareBuffers>,
    dirty: AtomicU64,
    /// Dirty bytes that may be held.
    bound: u64,
}

/// The class for bytes that need so much room.
fn class_for(len: usize) -> usize {
    let log2 = len.max(1).next_power_of_two().ilog2().clamp(PAGE_LOG2, MOST_LOG2);
    (log2 - PAGE_LOG2) as usize
}

/// The length of the buffers of a class.
fn length(class: usize) -> usize {
    1 << (PAGE_LOG2 as usize + class.max(SHORT - 1))
}

/// The class of a buffer that comes back. All short ones have the same length: how many of their
/// bytes were written to says the class.
fn class_of(buffer: &Vec<u8>) -> Option<usize> {
    if buffer.capacity() == length(0) {
        return Some(class_for(buffer.len()).min(SHORT - 1));
    }
    let log2 = buffer.capacity().checked_ilog2()?;
    let class = log2.checked_sub(PAGE_LOG2).filter(|_| (LEAST_LOG2..=MOST_LOG2).contains(&log2))?;
    Some(class as usize)
}

/// The memory that a buffer of a class takes.
fn memory(class: usize, buffer: &Vec<u8>) -> u64 {
    if class >= SHORT {
        return buffer.capacity() as u64;
    }
    // The allocator's own bytes in front of it begin a page of their own.
    let written = (1 << (PAGE_LOG2 as usize + class)) + (1 << PAGE_LOG2);
    written.min(buffer.capacity() as u64)
}

impl Buffers {
    /// No buffers yet; `bound` is of the dirty bytes.
    pub(crate) fn new(bound: u64) -> Self {
        Buffers { kept: Mutex::default(), dirty: AtomicU64::new(0), bound }
    }

    /// Bytes that are dirty.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Counts bytes that became dirty.
    pub(crate) fn became_dirty(&self, bytes: u64) {
        self.dirty.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that are no longer dirty.
    pub(crate) fn became_clean(&self, bytes: u64) {
        self.dirty.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// By how many bytes the dirty ones and `kept` others exceed what both may be. Most of what a write-back empties is
    /// used again right after it, so that kept buffers have no bound of their own.
    fn excess(&self, kept: u64) -> u64 {
        self.dirty().saturating_add(kept).saturating_sub(self.bound.saturating_add(self.bound / 8))
    }

    fn spare(&self) -> MutexGuard<'_, SpareBuffers> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer, with room for these bytes unless they are very many.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let class = class_for(len);
        let mut kept = self.spare();
        if let Some(found) = kept.take(class) {
            return found;
        }
        let length = length(class);
        let excess = self.excess(kept.bytes + length as u64);
        let others = kept.take_others(excess.min(length as u64));
        // The system takes its time to take them back: other threads want buffers meanwhile.
        drop(kept);
        drop(others);
        Vec::with_capacity(length)
    }

    /// True if a buffer is not much longer than what is in it needs.
    pub(crate) fn fits(buffer: &Vec<u8>) -> bool {
        buffer.capacity() <= length(class_for(buffer.len()))
    }

    /// Gives back a buffer that is no longer needed.
    pub(crate) fn put_back(&self, mut buffer: Vec<u8>) {
        let Some(class) = class_of(&buffer) else { return };
        let memory = memory(class, &buffer);
        let mut kept = self.spare();
        if self.excess(kept.bytes + memory) > 0 {
            return;
        }
        let class = invariant_or!(kept.classes.get_mut(class), return, "a size has a class");
        buffer.clear();
        class.free.push(buffer);
        kept.bytes += memory;
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.spare().bytes
    }

    /// Returns what was not needed since the last time to the system.
    pub(crate) fn trim(&self) {
        let mut unneeded = Vec::new();
        let mut kept = self.spare();
        let mut bytes = 0;
        for (index, class) in kept.classes.iter_mut().enumerate() {
            let rest = class.free.len() - class.fewest.min(class.free.len());
            let before = unneeded.len();
            unneeded.extend(class.free.drain(rest..));
            bytes += unneeded.iter().skip(before).map(|buffer| memory(index, buffer)).sum::<u64>();
            class.fewest = class.free.len();
        }
        kept.bytes -= bytes;
        // The system takes its time: others want their buffers meanwhile.
        drop(kept);
        drop(unneeded);
    }
}

impl SpareBuffers {
    /// A buffer of a class; instead of a short one any other that is as short, those with enough bytes first.
    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let (enough, fewer) = if class < SHORT { (class..SHORT, 0..class) } else { (class..class + 1, 0..0) };
        for index in enough.chain(fewer.rev()) {
            let class = self.classes.get_mut(index)?;
            let Some(buffer) = class.free.pop() else {
                class.fewest = 0;
                continue;
            };
            class.fewest = class.fewest.min(class.free.len());
            self.bytes -= memory(index, &buffer);
            return Some(buffer);
        }
        None
    }

    /// Takes out buffers that have at least `bytes` bytes together, or all: one after the other from the class that has
    /// the most bytes then.
    fn take_others(&mut self, bytes: u64) -> Vec<Vec<u8>> {
        let mut others = Vec::new();
        let mut found = 0;
        while found < bytes {
            let classes = self.classes.iter_mut().enumerate();
            let fullest = classes
                .max_by_key(|(index, class)| (class.free.len() as u64) << (PAGE_LOG2 as usize + index));
            let Some((index, class)) = fullest else { break };
            let Some(buffer) = class.free.pop() else { break };
            class.fewest = class.fewest.min(class.free.len());
            found += memory(index, &buffer);
            others.push(buffer);
        }
        self.bytes -= found;
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_go_when_they_are_not_needed() {
        let buffers = Buffers::new(1 << 20);
        let all: Vec<_> = (0..4).map(|_| buffers.take(100)).collect();
        assert!(all.iter().all(|buffer| buffer.capacity() == 16 << 10));
        let places: Vec<_> = all.iter().map(|buffer| buffer.as_ptr()).collect();
        all.into_iter().for_each(|mut buffer| {
            buffer.push(7);
            buffers.put_back(buffer);
        });
        // Of each one page was written to, and the one before it that the allocator writes to.
        assert_eq!(buffers.bytes(), 32 << 10);
        // They were not there all the time since the last trim.
        buffers.trim();
        assert_eq!(buffers.bytes(), 32 << 10);
        let again = buffers.take(4 << 10);
        assert!(again.is_empty() && places.contains(&again.as_ptr()));
        buffers.put_back(again);
        buffers.trim();
        assert_eq!(buffers.bytes(), 8 << 10);
        buffers.trim();
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn a_short_buffer_serves_again_whatever_was_in_it() {
        let buffers = Buffers::new(1 << 20);
        let mut buffer = buffers.take(4 << 10);
        let place = buffer.as_ptr();
        // As where a file is appended to in small pieces.
        buffer.resize(16 << 10, 7);
        buffers.put_back(buffer);
        assert_eq!(buffers.bytes(), 16 << 10);
        let again = buffers.take(100);
        assert_eq!(again.as_ptr(), place);
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn many_single_pages_are_kept_with_what_they_take() {
        // A write-back of 1 MiB in single pages.
        let buffers = Buffers::new(2 << 20);
        let all: Vec<_> = (0..256)
            .map(|_| vec![7; 4 << 10])
            .map(|page| {
                let mut buffer = buffers.take(page.len());
                buffer.extend_from_slice(&page);
                buffer
            })
            .collect();
        all.into_iter().for_each(|buffer| buffers.put_back(buffer));
        assert_eq!(buffers.bytes(), 2 << 20);
        (0..256).for_each(|_| assert_eq!(buffers.take(4096).capacity(), 16 << 10));
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let buffers = Buffers::new(75 << 10);
        for len in [64 << 10, 64 << 10, 37 << 10, 1, 3 << 20] {
            buffers.put_back(Vec::with_capacity(len));
        }
        // The first, and none that is too short or too long.
        buffers.put_back(Vec::with_capacity(20 << 10));
        assert_eq!(buffers.bytes(), 84 << 10);
        assert_eq!(buffers.take(64 << 10).capacity(), 64 << 10);
        assert_eq!(buffers.bytes(), 20 << 10);
        // More than all: nothing is kept beside it.
        assert_eq!(buffers.take(5 << 20).capacity(), 1 << 20);
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn dirty_bytes_and_kept_buffers_together_are_bounded() {
        let buffers = Buffers::new(1 << 20);
        buffers.became_dirty(1 << 20);
        (0..4).for_each(|_| buffers.put_back(Vec::with_capacity(64 << 10)));
        // An eighth of what may be dirty.
        assert_eq!(buffers.bytes(), 128 << 10);
        // A buffer of another length takes the place of one that is kept.
        assert_eq!(buffers.take(32 << 10).capacity(), 32 << 10);
        assert_eq!(buffers.bytes(), 64 << 10);
        buffers.became_clean(512 << 10);
        (0..12).for_each(|_| buffers.put_back(Vec::with_capacity(64 << 10)));
        assert_eq!(buffers.bytes(), 640 << 10);
    }

    #[test]
    fn a_bound_may_be_any_number() {
        let buffers = Buffers::new(u64::MAX);
        buffers.put_back(Vec::with_capacity(64 << 10));
        assert_eq!(buffers.bytes(), 64 << 10);
        let none = Buffers::new(0);
        none.put_back(Vec::with_capacity(64 << 10));
        assert_eq!(none.bytes(), 0);
        assert_eq!(none.take(64 << 10).capacity(), 64 << 10);
    }
}
