//! Memory for dirty bytes, used again.
//!
//! Owns: buffers that a write-back has emptied, and how long they are kept. Excludes: what is in them.
//!
//! A small file takes a buffer for the short time until it is written back. The system would give and take that memory
//! page by page each time, and stop all processors to take it. So buffers that come free are kept, and those that were
//! not needed from one [`Buffers::trim`] to the next go back.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The shortest buffer: enough that an allocator with that setting (`mallopt`'s `M_MMAP_THRESHOLD`) gives it pages of
/// its own, which go back to the system with it. Among small blocks that stay, they would not.
const LEAST_LOG2: u32 = 14;
/// The longest that is kept.
const MOST_LOG2: u32 = 20;
const CLASSES: usize = (MOST_LOG2 - LEAST_LOG2 + 1) as usize;

/// Buffers of one length.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Vec<u8>>,
    /// The fewest that were free since the last trim.
    fewest: usize,
}

#[derive(Debug, Default)]
struct Kept {
    classes: [Class; CLASSES],
    bytes: u64,
}

/// Buffers that are not in use.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: Mutex<Kept>,
    /// Most bytes that are kept.
    most: u64,
}

/// The class for bytes that need so much room, and its length.
fn class_for(len: usize) -> (usize, usize) {
    let log2 = len.max(1).next_power_of_two().ilog2().clamp(LEAST_LOG2, MOST_LOG2);
    ((log2 - LEAST_LOG2) as usize, 1 << log2)
}

impl Buffers {
    pub(crate) fn new(most: u64) -> Self {
        Buffers { kept: Mutex::default(), most }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer, with room for these bytes unless they are very many.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let (index, room) = class_for(len);
        let mut kept = self.kept();
        let found = kept.classes.get_mut(index).and_then(|class| {
            let found = class.free.pop();
            class.fewest = class.fewest.min(class.free.len());
            found
        });
        kept.bytes -= found.as_ref().map_or(0, |buffer| buffer.capacity() as u64);
        drop(kept);
        found.unwrap_or_else(|| Vec::with_capacity(room))
    }

    /// Gives back a buffer that is no longer needed.
    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let (room, log2) = (buffer.capacity() as u64, buffer.capacity().max(1).ilog2());
        let index = log2.checked_sub(LEAST_LOG2).filter(|_| log2 <= MOST_LOG2);
        let mut kept = self.kept();
        if kept.bytes + room > self.most {
            return;
        }
        if let Some(class) = index.and_then(|index| kept.classes.get_mut(index as usize)) {
            buffer.clear();
            class.free.push(buffer);
            kept.bytes += room;
        }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.kept().bytes
    }

    /// Returns what was not needed since the last time to the system.
    pub(crate) fn trim(&self) {
        let mut unneeded = Vec::new();
        let mut kept = self.kept();
        for class in &mut kept.classes {
            let rest = class.free.len() - class.fewest.min(class.free.len());
            unneeded.extend(class.free.drain(rest..));
            class.fewest = class.free.len();
        }
        kept.bytes -= unneeded.iter().map(|buffer| buffer.capacity() as u64).sum::<u64>();
        // The system takes its time: others want their buffers meanwhile.
        drop(kept);
        drop(unneeded);
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
            buffers.give(buffer);
        });
        assert_eq!(buffers.bytes(), 64 << 10);
        // They were not there all the time since the last trim.
        buffers.trim();
        assert_eq!(buffers.bytes(), 64 << 10);
        let again = buffers.take(16 << 10);
        assert!(again.is_empty() && places.contains(&again.as_ptr()));
        buffers.give(again);
        buffers.trim();
        assert_eq!(buffers.bytes(), 16 << 10);
        buffers.trim();
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let buffers = Buffers::new(100 << 10);
        for len in [64 << 10, 64 << 10, 37 << 10, 1, 3 << 20] {
            buffers.give(Vec::with_capacity(len));
        }
        // The first, and none that is too short or too long.
        buffers.give(Vec::with_capacity(20 << 10));
        assert_eq!(buffers.bytes(), 84 << 10);
        assert_eq!(buffers.take(64 << 10).capacity(), 64 << 10);
        assert_eq!(buffers.take(5 << 20).capacity(), 1 << 20);
        assert_eq!(buffers.bytes(), 20 << 10);
    }
}
