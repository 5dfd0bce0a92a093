//! Fetches what will be read before anybody waits for it, many requests side by side.
//!
//! Owns: the threads that fetch, what waits for them, and which reads go forward through a volume. Excludes what is
//! fetched and how it is verified: that is `view`'s and the store's. What can't be fetched here fails where it is read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::format::map::CHUNK;
use crate::view::{Reader, Wanted};

/// Requests side by side.
const THREADS: usize = 32;
/// Most pieces that wait; what waits longest is dropped for more.
const WAITING: usize = 256;
/// Places in a volume that are read forward at the same time.
const STREAMS: usize = 16;
/// Chunks that a stream may leave out and still go forward: other files lie between.
const SKIPPED: u64 = 4;
/// Chunks between two places that are taken for parts of one work.
const NEAR: u64 = 256;
/// Chunks ahead of a stream when it goes on for the first time, and by what that grows with each further step: each step
/// costs a whole delay of the store.
const FIRST: u64 = 4;
const GROWTH: u64 = 4;
/// Most chunks ahead of a stream, half of what a process remembers.
const WINDOW: u64 = 48;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Wanted>,
    threads: usize,
    /// Threads that have nothing to do.
    idle: usize,
    closed: bool,
}

struct Shared {
    reader: Arc<Reader>,
    size: u64,
    queue: Mutex<Queue>,
    more: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reading ahead for one volume.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
}

impl Ahead {
    pub(crate) fn new(reader: Arc<Reader>, size: u64) -> Self {
        let shared = Shared { reader, size, queue: Mutex::default(), more: Condvar::new() };
        Ahead { shared: Arc::new(shared), streams: Mutex::default() }
    }

    /// Has parts of objects fetched.
    pub(crate) fn fetch(&self, wanted: impl IntoIterator<Item = Wanted>) {
        if self.shared.reader.at_once(THREADS) == 1 {
            return;
        }
        let is_missing = |one: &Wanted| !self.shared.reader.is_at_hand(one);
        let wanted: Vec<Wanted> = wanted.into_iter().filter(is_missing).collect();
        if wanted.is_empty() {
            return;
        }
        let mut queue = lock(&self.shared.queue);
        let mut added = 0;
        for one in wanted {
            if queue.waiting.contains(&one) {
                continue;
            }
            if queue.waiting.len() >= WAITING {
                queue.waiting.pop_front();
            }
            queue.waiting.push_back(one);
            added += 1;
        }
        let mut free = queue.idle;
        while queue.threads < THREADS && queue.waiting.len() > free {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("ahead".to_owned()).spawn(move || shared.work());
            queue.threads += 1;
            free += 1;
            if thread.is_err() {
                // With fewer threads, or none, reads wait for what they read.
                queue.threads = THREADS;
            }
        }
        let woken = queue.idle.min(added);
        drop(queue);
        // Most reads add nothing: waking everybody each time took more of the processor than unpacking.
        (0..woken).for_each(|_| self.shared.more.notify_one());
    }

    /// Threads that were begun.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        lock(&self.shared.queue).threads
    }

    /// Returns the range to fetch now that another is read: bytes of the volume behind it, if it goes on where another ended.
    pub(crate) fn behind(&self, start: u64, len: u64) -> Option<Range<u64>> {
        let chunks = start / CHUNK as u64..(start + len).div_ceil(CHUNK as u64);
        let found = lock(&self.streams).note(chunks)?;
        let end = found.end.saturating_mul(CHUNK as u64).min(self.shared.size);
        let start = (found.start * CHUNK as u64).min(end);
        (start < end).then_some(start..end)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.waiting.clear();
        drop(queue);
        self.shared.more.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        while let Some((target, range)) = self.next() {
            // A read of it asks again, and reports what is wrong.
            let _ = self.reader.fetch(&target, range, self.size);
        }
    }

    fn next(&self) -> Option<Wanted> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(wanted) = queue.waiting.pop_front() {
                return Some(wanted);
            }
            queue.idle += 1;
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// A place that is read forward.
#[derive(Clone, Copy)]
struct Stream {
    /// The chunk behind the last that was read.
    next: u64,
    /// The chunk behind the last that was asked for.
    asked: u64,
    window: u64,
    used: u64,
}

#[derive(Default)]
struct Streams {
    all: Vec<Stream>,
    clock: u64,
}

impl Streams {
    /// Notes that chunks are read: which others should be fetched.
    fn note(&mut self, read: Range<u64>) -> Option<Range<u64>> {
        self.clock += 1;
        let used = self.clock;
        let is_next = |stream: &&mut Stream| {
            read.start + 1 >= stream.next && read.start <= stream.next + SKIPPED && read.end >= stream.next
        };
        let Some(stream) = self.all.iter_mut().find(is_next) else {
            return self.begin(read);
        };
        stream.used = used;
        if read.end <= stream.next {
            return None;
        }
        stream.next = read.end;
        stream.window = (stream.window * GROWTH).clamp(FIRST, WINDOW);
        let wanted = stream.asked.max(read.end)..read.end + stream.window;
        stream.asked = stream.asked.max(wanted.end);
        (!wanted.is_empty()).then_some(wanted)
    }

    /// A new place. Near one that goes forward it is taken for a part of the same work, whose order is another: what is
    /// before it will be read, too.
    fn begin(&mut self, read: Range<u64>) -> Option<Range<u64>> {
        let near = |stream: &&Stream| stream.next.abs_diff(read.start) <= NEAR;
        let window = self.all.iter().filter(near).map(|stream| stream.window / 2).max().unwrap_or(0);
        if self.all.len() >= STREAMS {
            self.all.sort_unstable_by_key(|stream| std::cmp::Reverse(stream.used));
            self.all.pop();
        }
        let asked = read.end + window;
        self.all.push(Stream { next: read.end, asked, window, used: self.clock });
        (window > 0).then(|| read.start.saturating_sub(window)..asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_forward_is_fetched_ahead_more_each_time_and_once() {
        let mut streams = Streams::default();
        let mut asked = Vec::new();
        for chunk in 100..200 {
            assert_eq!(streams.note(chunk * 7919..chunk * 7919 + 1), None, "reads all over the volume");
            asked.extend(streams.note(chunk..chunk + 1));
        }
        assert_eq!(asked[..4], [102..106, 106..119, 119..152, 152..153]);
        let together: u64 = asked.iter().map(|range| range.end - range.start).sum();
        assert_eq!(together, 199 + 1 + WINDOW - 102);
        // The same chunk again, one that was left out, another direction.
        assert_eq!(streams.note(199..200), None);
        assert_eq!(streams.note(202..203), Some(248..251));
        // Near it, and far away.
        assert_eq!(streams.note(150..151), Some(150 - WINDOW / 2..151 + WINDOW / 2));
        assert_eq!(streams.note(1500..1501), None);
    }
}
