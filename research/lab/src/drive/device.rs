//! The device of a volume in virtual time: a clock, a buffer cache, a queue of writes with an elevator,
//! and the mechanism. It is driven by one thread, which says whose time it is.
//!
//! Bytes of files wait in the page cache ([`Pages`]). From half of the dirty limit on, or when asked, the host's own
//! thread writes them back; a writer over the dirty limit blocks until it falls below. Written-back bytes, and metadata
//! at once, go through a queue of [`Drive::depth`] requests and [`Drive::running`] bytes at most. Neighbours in it are joined. While nothing else needs the drive,
//! it serves the nearest request behind the arm first and goes round (C-LOOK). A writer that finds the queue full
//! blocks. A read that misses the cache goes before the queue. A flush waits for the whole queue, unless the host takes
//! the drive's cache for stable, or waits for its own writes ([`Drive::stable`]). Where the host sends each write as a command of its own, one
//! after the other ([`Drive::command`]), a write arrives once those before it are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use platfs::device::Device;

use super::buffers::Buffers;
use super::pages::Pages;
use super::store::{PAGE, Store};
use super::{Drive, Figures, Lock, Mechanism, Request, Stable};

/// A device in virtual time.
pub(crate) struct ModelDevice {
    size: u64,
    drive: &'static Drive,
    state: Mutex<State>,
}

struct State {
    /// Time of the client that is served.
    now: u64,
    /// When each processor has done what it was given.
    processors: Vec<u64>,
    /// The one that the call which is served has.
    processor: usize,
    /// When locks are held, from and to.
    locks: BTreeMap<Lock, BTreeMap<u64, u64>>,
    /// When the mechanism has done what it was given, and when the last command is with the drive.
    free_at: u64,
    /// See [`Drive::gap`].
    gap: u64,
    channel: u64,
    /// Byte behind the last request: where the elevator is.
    head: u64,
    mechanism: Box<dyn Mechanism>,
    store: Store,
    buffers: Buffers,
    /// Writes that wait: from where, to where, since when. They don't overlap.
    queue: BTreeMap<u64, (u64, u64)>,
    queued: u64,
    pages: Pages,
    /// Since when the host moves bytes on, and how many it was asked to move beside those that are too many.
    moving: Option<u64>,
    asked: u64,
    /// While a direct call goes on: what it has written.
    direct: Option<Vec<(u64, u64)>>,
    /// The file whose bytes are being written, and the place in it of the next.
    file: Option<(u64, u64)>,
    /// Pages that were written to the buffer cache alone, and whether others are.
    held: BTreeSet<u64>,
    holding: bool,
    /// Metadata that was sent since the last flush, where a flush waits for it.
    unflushed: Vec<(u64, u64)>,
    /// Bytes that each file's writer has added since it looked at the limit.
    added: BTreeMap<u64, u64>,
    /// Nothing takes time: for making volumes.
    stopped: bool,
    figures: Figures,
}

impl ModelDevice {
    /// An empty device of `size` bytes, at time 0, whose clock stands until [`ModelDevice::start`].
    pub(crate) fn new(size: u64, drive: &'static Drive) -> Self {
        let state = State {
            now: 0,
            processors: vec![0; drive.cpus.max(1)],
            processor: 0,
            locks: BTreeMap::new(),
            free_at: 0,
            gap: drive.gap,
            channel: 0,
            head: 0,
            mechanism: drive.mechanism(size),
            store: Store::default(),
            buffers: Buffers::new(drive.cache / PAGE),
            queue: BTreeMap::new(),
            queued: 0,
            pages: Pages::default(),
            moving: None,
            asked: 0,
            direct: None,
            file: None,
            held: BTreeSet::new(),
            holding: false,
            unflushed: Vec::new(),
            added: BTreeMap::new(),
            stopped: true,
            figures: Figures::default(),
        };
        ModelDevice { size, drive, state: Mutex::new(state) }
    }

    pub(crate) fn drive(&self) -> &'static Drive {
        self.drive
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on everything takes time; the buffer cache is empty.
    pub(crate) fn start(&self) {
        let mut state = self.state();
        state.stopped = false;
        state.buffers.drop_all();
    }

    /// Stops the clock: what is done until the next start takes no time and is not counted.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
    }

    /// Forgets what the buffer cache holds, as a fresh mount would.
    pub(crate) fn drop_caches(&self) {
        self.state().buffers.drop_all();
    }

    /// The time of the client that was served last.
    pub(crate) fn now(&self) -> u64 {
        self.state().now
    }

    /// The next client has this time.
    pub(crate) fn set_now(&self, now: u64) {
        self.state().now = now;
    }

    /// A processor computes, as soon as one is free. A client calls this before it waits for anything else in a
    /// call: what comes later is served later.
    pub(crate) fn compute(&self, time: u64) {
        let mut state = self.state();
        let state = &mut *state;
        if !state.stopped {
            state.begin_computing();
            state.now += time;
            state.figures.computed += time;
            state.processors[state.processor] = state.now;
        }
    }

    /// A processor computes under a lock, once nobody else has it.
    pub(crate) fn under(&self, lock: Lock, time: u64) {
        let mut state = self.state();
        let state = &mut *state;
        if state.stopped || time == 0 {
            return;
        }
        let asked = state.now;
        // Who sleeps gets a processor when it has the lock.
        let begun = held(state.locks.entry(lock).or_default(), asked, time);
        state.now = begun;
        if let Lock::Group(_) = lock {
            state.figures.held += time;
            state.figures.spun += begun - asked;
        } else {
            state.begin_computing();
            state.figures.computed += time;
        }
        state.now += time;
        state.processors[state.processor] = state.now;
    }

    /// Says that writes from now on are bytes of a file, from a place in it on; or metadata.
    pub(crate) fn writing(&self, file: Option<(u64, u64)>) {
        self.state().file = file;
    }

    /// Keeps writes from now on in the buffer cache, until [`ModelDevice::let_go`].
    pub(crate) fn hold(&self, holding: bool) {
        self.state().holding = holding;
    }

    /// Queues what the buffer cache has held back.
    pub(crate) fn let_go(&self) {
        let mut state = self.state();
        let held: Vec<_> =
            std::mem::take(&mut state.held).into_iter().map(|page| (page * PAGE, PAGE)).collect();
        state.send(&held, self.drive);
    }

    /// A direct call begins: what is read and written goes past the buffer cache, but for single pages, which are metadata.
    pub(crate) fn begin_direct(&self) {
        self.state().direct = Some(Vec::new());
    }

    /// It ends: what it wrote is on its medium then.
    pub(crate) fn end_direct(&self) {
        let mut state = self.state();
        for (offset, len) in state.direct.take().unwrap_or_default() {
            state.wait_for(offset, len, self.drive);
        }
    }

    /// A file's bytes need not be written any more.
    pub(crate) fn forget(&self, file: u64) {
        let mut state = self.state();
        state.pages.forget(file);
        state.added.remove(&file);
        state.asked = state.asked.min(state.pages.bytes());
    }

    /// Queues the bytes of one file, and blocks while the queue is full; or has the host's thread write back all.
    pub(crate) fn write_back(&self, file: Option<u64>) {
        let mut state = self.state();
        match file {
            Some(file) => {
                let taken = state.pages.take(file);
                state.asked = state.asked.min(state.pages.bytes());
                state.send(&taken, self.drive);
            }
            None => {
                state.asked = state.pages.bytes();
                state.moves(self.drive);
            }
        }
    }

    /// Returns what the drive did until now.
    pub(crate) fn figures(&self) -> Figures {
        self.state().figures
    }
}

impl State {
    /// The client that is served gets a processor, as soon as one is free.
    fn begin_computing(&mut self) {
        let first = self.processors.iter().enumerate().min_by_key(|(_, free_at)| **free_at);
        let (processor, free_at) = first.map_or((0, 0), |(at, free_at)| (at, *free_at));
        (self.processor, self.now) = (processor, self.now.max(free_at));
    }

    fn serve(&mut self, start: u64, request: Request) {
        let begun = start.max(self.free_at + self.gap);
        let (end, moved) = self.mechanism.serve(begun, request);
        self.figures.busy += end - begun;
        self.figures.seeks += u64::from(moved);
        if request.write {
            self.figures.writes += 1;
            self.figures.written_bytes += request.len;
        } else {
            self.figures.reads += 1;
            self.figures.read_bytes += request.len;
        }
        self.free_at = end;
        self.head = request.offset + request.len;
    }

    /// Returns true if the host has bytes to move, and remembers since when.
    fn moves(&mut self, drive: &Drive) -> bool {
        let moves = self.asked > 0 || self.pages.bytes() > drive.waiting / 2;
        self.moving = moves.then(|| self.moving.unwrap_or(self.now));
        moves
    }

    fn is_full(&self, drive: &Drive) -> bool {
        self.queue.len() as u64 + self.queued / drive.request >= drive.depth || self.queued >= drive.running
    }

    /// The host fills the queue, as soon as there is room.
    fn feed(&mut self, drive: &Drive) {
        while !self.is_full(drive) && self.moves(drive) {
            let Some((offset, len)) = self.pages.next() else {
                self.asked = 0;
                return;
            };
            self.asked = self.asked.saturating_sub(len);
            let since = self.moving.unwrap_or(self.now).max(self.free_at);
            self.enqueue(offset, len, since, drive.joins);
        }
    }

    /// Serves the next queued write, of those too that the host brings; `false` if none waits.
    fn serve_queued(&mut self, drive: &Drive) -> bool {
        self.feed(drive);
        self.serve_next(drive)
    }

    /// The queued write that the drive takes next, and when at the earliest: of those that have arrived once it is
    /// free, the nearest behind the arm; else the first to arrive. Clients' times run apart, so that some arrive later.
    fn next(&self) -> Option<(u64, u64)> {
        let from_arm = self.queue.range(self.head..).chain(self.queue.range(..self.head));
        let all = from_arm.map(|(&offset, &(_, since))| (offset, since.max(self.free_at)));
        // The first of the earliest; most often the very first.
        let mut found: Option<(u64, u64)> = None;
        for (offset, begin) in all {
            if begin == self.free_at {
                return Some((offset, begin));
            }
            if found.is_none_or(|(_, earliest)| begin < earliest) {
                found = Some((offset, begin));
            }
        }
        found
    }

    fn serve_next(&mut self, drive: &Drive) -> bool {
        let Some((offset, begin)) = self.next() else { return false };
        let Some((end, since)) = self.queue.remove(&offset) else { return false };
        let stop = end.min(offset + drive.request);
        if stop < end {
            self.queue.insert(stop, (end, since));
        }
        self.queued -= stop - offset;
        self.serve(begin, Request { write: true, offset, len: stop - offset });
        true
    }

    /// The drive works while the host does something else.
    fn catch_up(&mut self, drive: &Drive) {
        loop {
            self.feed(drive);
            if self.next().is_none_or(|(_, begin)| begin >= self.now) {
                return;
            }
            self.serve_next(drive);
        }
    }

    /// Puts a range in the queue, joined with what it overlaps, and with its neighbours where they are.
    fn enqueue(&mut self, offset: u64, len: u64, since: u64, joins: bool) {
        let (mut from, mut to, mut since) = (offset, offset + len, since);
        let touch = u64::from(joins);
        while let Some((&start, &(end, before))) = self.queue.range(..to + touch).next_back() {
            if end + touch <= from {
                break;
            }
            self.queue.remove(&start);
            self.queued -= end - start;
            (from, to, since) = (from.min(start), to.max(end), since.min(before));
        }
        self.queued += to - from;
        self.queue.insert(from, (to, since));
    }

    /// Queues ranges; the caller blocks while the queue is full.
    fn send(&mut self, ranges: &[(u64, u64)], drive: &Drive) {
        for (offset, len) in commands(ranges, drive) {
            self.catch_up(drive);
            let with_drive = self.command(drive);
            while self.is_full(drive) && self.serve_queued(drive) {
                self.now = self.now.max(self.free_at);
            }
            self.enqueue(offset, len, with_drive.max(self.now), drive.joins);
        }
    }

    /// When a command is with the drive, if commands take time. The sender waits for the oldest of [`Drive::depth`].
    fn command(&mut self, drive: &Drive) -> u64 {
        if drive.command == 0 {
            return self.now;
        }
        self.channel = self.channel.max(self.now) + drive.command;
        self.now = self.now.max(self.channel.saturating_sub(drive.depth.saturating_mul(drive.command)));
        self.channel
    }

    /// Sends a file's waiting bytes once they are enough, or the next bytes don't lie behind them.
    fn write_behind(&mut self, file: u64, at: u64, offset: u64, drive: &Drive) {
        if drive.together == u64::MAX {
            return;
        }
        let (bytes, end) = self.pages.before(file, at);
        if bytes >= drive.together || end.is_some_and(|end| end != offset) {
            let taken = self.pages.take(file);
            self.send(&taken, drive);
        }
    }

    /// Takes a write in: bytes of files wait, and stop their writer where too many do.
    fn accept(&mut self, offset: u64, len: u64, drive: &Drive) {
        let Some((file, at)) = self.file else {
            if drive.stable == Stable::Own || drive.stable == Stable::Taken && drive.command > 0 {
                self.unflushed.push((offset, len));
            }
            return self.send(&[(offset, len)], drive);
        };
        self.catch_up(drive);
        self.file = Some((file, at + len));
        self.write_behind(file, at, offset, drive);
        self.pages.add(file, at, offset, len);
        self.moves(drive);
        if self.looks(file, len, drive) {
            while self.pages.bytes() + self.queued > drive.waiting && self.serve_queued(drive) {
                self.now = self.now.max(self.free_at);
            }
        }
    }

    /// Returns true if the writer of a file looks at the limit of bytes that may wait.
    fn looks(&mut self, file: u64, len: u64, drive: &Drive) -> bool {
        if drive.burst == 0 {
            return true;
        }
        let added = self.added.entry(file).or_default();
        *added += len;
        let looks = *added >= drive.burst;
        if looks {
            self.added.remove(&file);
        }
        looks
    }

    /// Waits until everything that a flush covers is on the medium.
    fn flush(&mut self, drive: &Drive) {
        match drive.stable {
            // Where commands take time, the host waits until the drive has its own.
            Stable::Taken => {
                if !std::mem::take(&mut self.unflushed).is_empty() {
                    self.now = self.now.max(self.channel);
                }
            }
            Stable::Own => {
                for (offset, len) in std::mem::take(&mut self.unflushed) {
                    self.wait_for(offset, len, drive);
                }
            }
            Stable::All => {
                while self.asked > 0 {
                    self.serve_queued(drive);
                }
                while self.serve_next(drive) {}
                self.now = self.now.max(self.free_at);
            }
        }
    }

    /// Waits until nothing of a range waits.
    fn wait_for(&mut self, offset: u64, len: u64, drive: &Drive) {
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        while pages.clone().any(|page| self.waits(page)) && self.serve_queued(drive) {
            self.now = self.now.max(self.free_at);
        }
    }

    /// Returns true if a page still waits to be written: it is in memory then.
    fn waits(&self, page: u64) -> bool {
        let end = (page + 1) * PAGE;
        self.queue.range(..end).next_back().is_some_and(|(_, &(to, _))| to > page * PAGE)
    }

    /// Reads a range from the drive.
    fn fetch(&mut self, mut at: u64, end: u64, largest: u64) {
        while at < end {
            let step = (end - at).min(largest);
            self.serve(self.now, Request { write: false, offset: at, len: step });
            self.now = self.free_at;
            at += step;
        }
    }

    /// The runs of pages of a range that are not in memory; they are from now on.
    fn missing(&mut self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
            if self.buffers.has(page) || self.waits(page) || self.held.contains(&page) {
                continue;
            }
            self.buffers.keep(page);
            match runs.last_mut() {
                Some((_, end)) if *end == page => *end += 1,
                _ => runs.push((page, page + 1)),
            }
        }
        runs
    }
}

/// Holds a lock for some time, from when it is free for so long, and returns since when. Calls are made one after the other:
/// one that was made before may hold it later.
fn held(times: &mut BTreeMap<u64, u64>, asked: u64, time: u64) -> u64 {
    let before = times.range(..=asked).next_back().map_or(0, |(_, end)| *end);
    let mut begin = asked.max(before);
    for (&start, &end) in times.range(asked..) {
        if begin + time <= start {
            break;
        }
        begin = begin.max(end);
    }
    // What touches is one.
    let (mut from, mut to) = (begin, begin + time);
    if let Some((&start, &end)) = times.range(..=from).next_back()
        && end == from
    {
        from = start;
    }
    if let Some(end) = times.remove(&to) {
        to = end;
    }
    times.insert(from, to);
    begin
}

/// Ranges of one file as the commands they become: those that lie one behind the other are one, up to the largest.
fn commands(ranges: &[(u64, u64)], drive: &Drive) -> Vec<(u64, u64)> {
    let mut commands: Vec<(u64, u64)> = Vec::new();
    for &(offset, len) in ranges {
        match commands.last_mut() {
            Some((start, all)) if *start + *all == offset && *all + len <= drive.request => *all += len,
            _ => commands.push((offset, len)),
        }
    }
    commands
}

fn check(size: u64, offset: u64, len: u64, kind: io::ErrorKind) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(kind, format!("{len} bytes at {offset} are behind the end ({size})"))),
    }
}

impl Device for ModelDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let len = buffer.len() as u64;
        check(self.size, offset, len, io::ErrorKind::UnexpectedEof)?;
        let mut state = self.state();
        let state = &mut *state;
        state.store.read(offset, buffer);
        if state.stopped {
            return Ok(());
        }
        state.catch_up(self.drive);
        if state.direct.is_some() && len > PAGE {
            state.fetch(offset, offset + len, self.drive.request);
            return Ok(());
        }
        for (first, end) in state.missing(offset, len) {
            state.fetch(first * PAGE, (end * PAGE).min(self.size), self.drive.request);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        check(self.size, offset, len, io::ErrorKind::WriteZero)?;
        let mut state = self.state();
        let state = &mut *state;
        state.store.write(offset, data);
        if state.stopped || len == 0 {
            return Ok(());
        }
        if len > PAGE
            && let Some(direct) = &mut state.direct
        {
            direct.push((offset, len));
            state.send(&[(offset, len)], self.drive);
            return Ok(());
        }
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        pages.clone().for_each(|page| state.buffers.keep(page));
        if state.holding {
            state.held.extend(pages);
            return Ok(());
        }
        state.accept(offset, len, self.drive);
        Ok(())
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        check(self.size, offset, len, io::ErrorKind::WriteZero)?;
        let mut state = self.state();
        state.store.write_zeros(offset, len);
        if !state.stopped && len > 0 {
            state.send(&[(offset, len)], self.drive);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.stopped {
            return Ok(());
        }
        state.catch_up(self.drive);
        state.flush(self.drive);
        state.figures.flushes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::MS;
    use super::*;

    fn device(name: &str) -> ModelDevice {
        let device = ModelDevice::new(1 << 30, Drive::named(name).unwrap());
        device.start();
        device
    }

    #[test]
    fn scattered_writes_go_out_in_order_and_reads_go_before_them() {
        let device = device("sata-2010");
        let mut numbers = crate::numbers::Numbers::new(1);
        device.writing(Some((12, 0)));
        for _ in 0..500 {
            device.write_at(numbers.below(200_000) * 4096, &[1; 4096]).unwrap();
        }
        assert_eq!(device.now(), 0);
        device.writing(None);
        for _ in 0..100 {
            device.write_at(numbers.below(200_000) * 4096, &[1; 4096]).unwrap();
        }
        assert_eq!(device.now(), 0);
        device.read_at(900 << 20, &mut [0; 4096]).unwrap();
        assert!(device.now() < 30 * MS, "{}", device.now());
        device.write_back(Some(12));
        device.flush().unwrap();
        // One after the other they would take some 10 ms each.
        assert!(device.now() < 600 * 6 * MS, "{}", device.now());
        let figures = device.figures();
        assert_eq!((figures.reads, figures.flushes), (1, 1));
        assert!(figures.writes <= 600 && figures.written_bytes <= 600 * 4096);
    }

    #[test]
    fn neighbours_become_one_request_and_what_was_read_is_remembered() {
        let device = device("scsi-2004");
        for i in [3u64, 1, 0, 2] {
            device.write_at(i * 4096 + (1 << 20), &[1; 4096]).unwrap();
        }
        device.flush().unwrap();
        assert_eq!((device.figures().writes, device.figures().written_bytes), (1, 4 * 4096));
        let mut bytes = [0; 8192];
        device.read_at(1 << 20, &mut bytes).unwrap();
        device.read_at(5 << 20, &mut bytes).unwrap();
        device.read_at(5 << 20, &mut bytes).unwrap();
        assert_eq!(device.figures().reads, 1);
        device.drop_caches();
        device.read_at(5 << 20, &mut bytes).unwrap();
        assert_eq!(device.figures().reads, 2);
    }

    #[test]
    fn what_is_held_is_in_memory_and_written_once_however_often_it_changed() {
        let device = device("sata-2010-bsd");
        device.hold(true);
        for round in 0..9 {
            device.write_at((round % 3) * 8192, &[1; 4096]).unwrap();
        }
        device.hold(false);
        device.drop_caches();
        let mut bytes = [0; 4096];
        device.read_at(8192, &mut bytes).unwrap();
        device.flush().unwrap();
        device.set_now(100 * MS);
        device.read_at(900 << 20, &mut bytes).unwrap();
        assert_eq!((bytes, device.figures().reads, device.figures().writes), ([0; 4096], 1, 0));
        device.let_go();
        device.set_now(900 * MS);
        device.flush().unwrap();
        assert_eq!((device.figures().writes, device.figures().written_bytes), (3, 3 * 4096));
    }

    #[test]
    fn writers_wait_once_too_much_is_queued() {
        let device = device("ide-2000");
        for i in 0..64 {
            device.writing(Some((12, i << 20)));
            device.write_at(i << 20, &vec![1; 1 << 20]).unwrap();
        }
        let seconds = crate::numbers::float(device.now()) / 1e9;
        // At 37 MB/s; 16 MiB wait.
        assert!((1.3..1.45).contains(&seconds), "{seconds}");
        device.write_back(None);
        device.set_now(device.now() + 10_000 * MS);
        device.read_at(0, &mut [0; 1]).unwrap();
        assert_eq!(device.figures().written_bytes, 64 << 20);
        assert!(device.read_at(1 << 30, &mut [0; 1]).is_err() && device.write_at(u64::MAX, &[1]).is_err());
    }

    #[test]
    fn bytes_that_lie_together_are_on_their_way_and_a_flush_need_not_wait_for_them() {
        let device = device("sata-2010-bsd");
        let write = |at: u64, offset: u64| {
            device.writing(Some((12, at)));
            device.write_at(offset, &[1; 65_536]).unwrap();
            device.writing(None);
        };
        // Two pieces lie together, the third elsewhere, the last behind it.
        for (at, offset) in [(0, 0), (65_536, 65_536), (131_072, 1 << 25), (196_608, (1 << 25) + 65_536)] {
            write(at, offset);
        }
        device.flush().unwrap();
        assert!(device.now() < MS, "{}", device.now());
        // Reads come after what was on its way: the first pieces; the others wait.
        device.set_now(100 * MS);
        device.read_at(1 << 29, &mut [0; 4096]).unwrap();
        assert_eq!((device.figures().writes, device.figures().written_bytes), (1, 131_072));
        device.write_back(Some(12));
        device.set_now(200 * MS);
        device.read_at((1 << 29) + 8192, &mut [0; 4096]).unwrap();
        assert_eq!((device.figures().writes, device.figures().written_bytes), (2, 262_144));
    }

    #[test]
    fn writes_wait_for_commands_of_other_clients_only_where_these_take_time() {
        for (name, arrives) in [("sata-2010", 0), ("sata-2010-bsd", 500 * MS + 140_000)] {
            let device = device(name);
            device.set_now(500 * MS);
            device.write_at(1 << 20, &[1; 4096]).unwrap();
            // A client that is behind.
            device.set_now(0);
            device.write_at(1 << 29, &[1; 4096]).unwrap();
            assert_eq!(device.state().queue[&(1 << 29)], ((1 << 29) + 4096, arrives), "{name}");
        }
    }

    #[test]
    fn what_arrives_later_waits_behind_what_is_there() {
        let device = device("sata-2010");
        let write = |now: u64, megabyte: u64| {
            device.set_now(now);
            device.write_at(megabyte << 20, &[1; 4096]).unwrap();
        };
        write(400 * MS, 1);
        write(0, 500);
        write(0, 200);
        let waiting = || device.state().queue.keys().map(|offset| offset >> 20).collect::<Vec<_>>();
        // The drive has done what came first, nearest to the arm first, though the third is nearer; then it is idle.
        device.set_now(100 * MS);
        assert!(device.state().serve_next(device.drive));
        assert_eq!(waiting(), [1, 500]);
        device.read_at(900 << 20, &mut [0; 4096]).unwrap();
        assert_eq!(waiting(), [1]);
        assert!(device.now() < 120 * MS);
        device.set_now(400 * MS);
        device.read_at(600 << 20, &mut [0; 4096]).unwrap();
        assert_eq!((waiting(), device.figures().writes), (vec![1], 2));
        device.flush().unwrap();
        assert!(waiting().is_empty() && device.now() > 400 * MS);
    }

    #[test]
    fn clients_wait_for_a_processor() {
        let device = device("scsi-2004");
        for (client, end) in [7, 7, 14, 14, 21].into_iter().enumerate() {
            device.set_now(0);
            device.compute(7);
            assert_eq!(device.now(), end, "client {client}");
        }
        device.set_now(100);
        device.compute(7);
        assert_eq!(device.now(), 107);
    }

    #[test]
    fn one_client_has_a_lock_and_others_spin_or_sleep() {
        let device = device("nvme");
        let at = |now, lock| {
            device.set_now(now);
            device.compute(1);
            device.under(lock, 10);
            device.now()
        };
        let group = |number| Lock::Group(Some(number));
        assert_eq!([at(0, group(1)), at(0, group(1)), at(0, group(2))], [11, 21, 11]);
        assert_eq!([at(100, Lock::Directory(2)), at(100, Lock::Directory(2))], [111, 121]);
        let figures = device.figures();
        assert_eq!((figures.computed, figures.held, figures.spun), (5 + 20, 30, 10));
        // A client that looks at one group after the other has one processor, and lets others follow it.
        for round in 0..7 {
            device.set_now(1_000);
            device.compute(1);
            (10..20).for_each(|number| device.under(group(number), 10));
            assert_eq!(device.now(), 1_101 + round * 10, "round {round}");
        }
        // Who looks at the first group again keeps nobody from it before.
        for round in 0..7 {
            device.set_now(9_000);
            device.compute(1);
            (10..20).chain([10]).for_each(|number| device.under(group(number), 10));
            assert!(device.now() < 9_301, "round {round}: {}", device.now());
        }
    }

    #[test]
    fn a_flush_waits_for_the_medium_only_where_hosts_had_it_so() {
        for (name, waits) in [("ide-2000", false), ("sata-2010", true)] {
            let device = device(name);
            device.write_at(1 << 20, &[1; 4096]).unwrap();
            device.flush().unwrap();
            assert_eq!((device.now() > MS, device.figures().flushes), (waits, 1));
        }
    }

    #[test]
    fn direct_calls_end_on_the_medium_and_leave_no_pages_behind() {
        let device = device("sata-2010");
        device.begin_direct();
        device.write_at(1 << 20, &[1; 65_536]).unwrap();
        device.end_direct();
        let written = device.now();
        assert!(written > MS && device.figures().writes == 1);
        for reads in 1..=2 {
            device.begin_direct();
            device.read_at(1 << 20, &mut [0; 65_536]).unwrap();
            device.read_at(1 << 19, &mut [0; 4096]).unwrap();
            device.end_direct();
            // The single page is metadata and is remembered.
            assert_eq!(device.figures().reads, reads + 1);
        }
    }

    #[test]
    fn nothing_takes_time_while_the_clock_stands() {
        let device = ModelDevice::new(1 << 30, Drive::named("nvme").unwrap());
        device.write_at(0, &[7; 4096]).unwrap();
        device.flush().unwrap();
        device.compute(5);
        assert_eq!((device.now(), device.figures()), (0, Figures::default()));
    }
}
