//! The bytes of one file that were written and are not on the device yet.
//!
//! Owns: which whole blocks they fill, and merging, reading, cutting them. Excludes: where they go,
//! and what lies around them.
//!
//! Bytes stand in runs of adjacent blocks, each a growing buffer of at most [`RUN_MAX`] bytes, so that
//! a file written in small pieces becomes a few large writes. Buffers are shared with a write-back
//! under way: changing one that is being written makes a copy, and what was changed meanwhile stays
//! dirty.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::buffers::Buffers;
use crate::ranges::FileBlocks;
use ondisk::invariant_or;
use ondisk::units::saturated;

/// Bytes of a run: one large write of the device. A longer run would be copied whole when a part of
/// it changes during its write-back.
const RUN_MAX: u64 = 1 << 20;
/// Least that a run counts for: the memory of a small file is not that of its bytes alone.
const COST_MIN: u64 = 4096;

/// A run as it is given out for write-back: its first file block and its bytes.
pub(crate) type Run = (u64, Arc<Vec<u8>>);

/// Dirty bytes of one file, in runs that begin at block boundaries and do not overlap. The bytes of
/// the last block of a run may end early: what is missing reads as zeros.
#[derive(Debug)]
pub(crate) struct Pages {
    log2: u32,
    runs: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: u64,
    buffers: Arc<Buffers>,
}

fn cost(data: &[u8]) -> u64 {
    (data.len() as u64).max(COST_MIN)
}

fn at(bytes: u64) -> usize {
    // Offsets from the beginning of a run or a buffer. Of one far behind its end, the largest number lies behind it, too.
    saturated::<usize>(bytes)
}

impl Pages {
    pub(crate) fn new(block_log2: u32, buffers: &Arc<Buffers>) -> Self {
        Pages { log2: block_log2, runs: BTreeMap::new(), bytes: 0, buffers: Arc::clone(buffers) }
    }

    /// Bytes held, small runs counted as [`COST_MIN`].
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Runs held.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// One past the last dirty byte of the file; 0 if there is none.
    pub(crate) fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(first, data)| (first << self.log2) + data.len() as u64)
    }

    fn blocks_of(&self, data: &[u8]) -> u64 {
        (data.len() as u64).div_ceil(1 << self.log2)
    }

    /// The run that holds a block.
    fn run_of(&self, block: u64) -> Option<u64> {
        let (first, data) = self.runs.range(..=block).next_back()?;
        (first + self.blocks_of(data) > block).then_some(*first)
    }

    /// True if a block is dirty.
    pub(crate) fn holds(&self, block: u64) -> bool {
        self.run_of(block).is_some()
    }

    /// The parts of some blocks that are not dirty, in order.
    pub(crate) fn clean_parts(&self, blocks: FileBlocks) -> Vec<FileBlocks> {
        let FileBlocks { start: from, end } = blocks;
        let mut parts = Vec::new();
        let mut next = from;
        let before = self.runs.range(..=from).next_back().map_or(from, |(first, _)| *first);
        for (first, data) in self.runs.range(before..end) {
            if *first > next {
                parts.push(FileBlocks::new(next, *first));
            }
            next = next.max(first + self.blocks_of(data));
        }
        if next < end {
            parts.push(FileBlocks::new(next, end));
        }
        parts
    }

    /// Dirty blocks among some.
    pub(crate) fn dirty_blocks(&self, blocks: FileBlocks) -> u64 {
        let clean: u64 = self.clean_parts(blocks).iter().map(|part| part.len()).sum();
        blocks.len() - clean
    }

    /// Blocks at the edges of a write that it changes only in part and that are not dirty: their old
    /// contents are to be [`Pages::fill`]ed in first, or count as zeros.
    pub(crate) fn missing_edges(&self, offset: u64, len: u64) -> Vec<u64> {
        let mask = (1 << self.log2) - 1;
        let end = offset + len;
        let mut edges = Vec::new();
        if offset & mask != 0 && len > 0 {
            edges.push(offset >> self.log2);
        }
        if end & mask != 0 && len > 0 && edges.last() != Some(&(end >> self.log2)) {
            edges.push(end >> self.log2);
        }
        edges.retain(|block| !self.holds(*block));
        edges
    }

    /// Takes the old contents of a block that is about to change; a block that is dirty already
    /// keeps what it has.
    pub(crate) fn fill(&mut self, block: u64, contents: &[u8]) {
        if !self.holds(block) && !contents.is_empty() {
            self.write(block << self.log2, contents);
        }
    }

    /// Writes bytes. Parts of blocks that were not dirty before become zeros.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut offset = offset;
        let mut data = data;
        while !data.is_empty() {
            let len = self.write_some(offset, data);
            offset += len as u64;
            data = data.get(len..).unwrap_or_default();
        }
    }

    /// Takes a buffer as it is for bytes that begin a block and touch no run. Says whether it did, and it is empty then.
    pub(crate) fn adopt(&mut self, offset: u64, buffer: &mut Vec<u8>) -> bool {
        let first = offset >> self.log2;
        let blocks = FileBlocks::new(first, first + self.blocks_of(buffer));
        let fits = offset == first << self.log2
            && (1..=RUN_MAX).contains(&(buffer.len() as u64))
            && Buffers::fits(buffer)
            && self.dirty_blocks(blocks) == 0
            && self.run_with_room_before(first).is_none();
        if fits {
            let buffer = std::mem::take(buffer);
            self.bytes += cost(&buffer);
            self.runs.insert(first, Arc::new(buffer));
        }
        fits
    }

    /// Writes what fits the run that holds, ends before, or begins at the offset.
    fn write_some(&mut self, offset: u64, data: &[u8]) -> usize {
        let block = offset >> self.log2;
        let first = self.run_of(block).or_else(|| self.run_with_room_before(block)).unwrap_or(block);
        let start = first << self.log2;
        let next = self.runs.range(first + 1..).next().map_or(u64::MAX, |(next, _)| *next << self.log2);
        let run = self.runs.entry(first).or_insert_with(|| {
            self.bytes += COST_MIN;
            Arc::new(self.buffers.take(data.len()))
        });
        // The blocks a run has are its own even where it is longer than new runs may become.
        let room = RUN_MAX.max((run.len() as u64).next_multiple_of(1 << self.log2)).max(1 << self.log2);
        let limit = (next - start).min(room);
        let from = at(offset - start);
        let len = data.len().min(at(limit) - from);
        let bytes = Arc::make_mut(run);
        let before = cost(bytes);
        if bytes.len() < from {
            bytes.resize(from, 0);
        }
        let over = len.min(bytes.len() - from);
        let parts = data.get(..len).and_then(|data| data.split_at_checked(over));
        let (changed, added) = invariant_or!(parts, return 0, "a part of the data is in them");
        let to = bytes.get_mut(from..from + over);
        invariant_or!(to, return 0, "what is written over is there").copy_from_slice(changed);
        bytes.extend_from_slice(added);
        self.bytes += cost(bytes) - before;
        len
    }

    /// The run that ends where a block begins, if it may grow.
    fn run_with_room_before(&self, block: u64) -> Option<u64> {
        let first = self.run_of(block.checked_sub(1)?)?;
        ((block - first) << self.log2 < RUN_MAX).then_some(first)
    }

    /// Copies what is dirty of the bytes from `offset` on into `buffer`; returns the ranges of
    /// `buffer` that are not dirty. What a dirty block does not state is zeros.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Vec<Range<usize>> {
        let end = offset.saturating_add(buffer.len() as u64);
        let mut clean = Vec::new();
        let mut done = 0;
        let begin = self.runs.range(..=offset >> self.log2).next_back().map_or(0, |(first, _)| *first);
        for (first, data) in self.runs.range(begin..end.div_ceil(1 << self.log2)) {
            let start = first << self.log2;
            let stop = start + (self.blocks_of(data) << self.log2);
            if stop <= offset {
                continue;
            }
            let (low, high) = (start.max(offset), stop.min(end));
            let (to, until) = (at(low - offset), at(high - offset));
            if to > done {
                clean.push(done..to);
            }
            // A run may end inside of its last block: the rest of that block reads as zeros.
            let stated = data.get(at(low - start)..).unwrap_or_default();
            let into =
                invariant_or!(buffer.get_mut(to..until), break, "a run that is read lies in the buffer");
            let (head, tail) = into.split_at_mut(stated.len().min(until - to));
            head.iter_mut().zip(stated).for_each(|(to, from)| *to = *from);
            tail.fill(0);
            done = until;
        }
        if done < buffer.len() {
            clean.push(done..buffer.len());
        }
        clean
    }

    /// Drops what lies at or behind a byte; the rest of its block becomes zeros.
    pub(crate) fn cut(&mut self, size: u64) {
        let first = size.div_ceil(1 << self.log2);
        for (_, data) in self.runs.split_off(&first) {
            self.bytes -= cost(&data);
        }
        if let Some((first, data)) = self.runs.last_key_value() {
            let (first, len) = (*first, at(size.saturating_sub(*first << self.log2)));
            if len < data.len()
                && let Some(data) = self.runs.get_mut(&first)
            {
                self.bytes -= cost(data);
                Arc::make_mut(data).truncate(len);
                self.bytes += cost(data);
            }
        }
    }

    /// All runs, in order, to be written back.
    pub(crate) fn snapshot(&self) -> Vec<Run> {
        self.runs.iter().map(|(first, data)| (*first, Arc::clone(data))).collect()
    }

    /// These runs were written back: those that have not changed since are clean.
    pub(crate) fn note_written(&mut self, written: Vec<Run>) {
        for (first, data) in written {
            if self.runs.get(&first).is_some_and(|held| Arc::ptr_eq(held, &data)) {
                self.runs.remove(&first);
                self.bytes -= cost(&data);
            }
            if let Ok(buffer) = Arc::try_unwrap(data) {
                self.buffers.put_back(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Give(u64, Vec<u8>),
        Cut(u64),
        Snapshot,
        Settle,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..9000_u64, proptest::collection::vec(1..=255_u8, 1..3000));
        let given = (0..9_u64, 0..2_u64, proptest::collection::vec(1..=255_u8, 1..3000));
        let step = prop_oneof![
            3 => given.prop_map(|(block, more, data)| Step::Give((block << 10) + more, data)),
            5 => write.prop_map(|(offset, data)| Step::Write(offset, data)),
            1 => (0..12_000_u64).prop_map(Step::Cut),
            1 => Just(Step::Snapshot),
            1 => Just(Step::Settle),
        ];
        proptest::collection::vec(step, 1..40)
    }

    fn buffers() -> Arc<Buffers> {
        Arc::new(Buffers::new(1 << 20))
    }

    /// Device contents (by write-back) and dirty pages, against one plain buffer.
    struct Twin {
        pages: Pages,
        device: Vec<u8>,
        model: Vec<u8>,
        taken: Vec<Run>,
    }

    impl Twin {
        fn write(&mut self, offset: u64, data: &[u8]) {
            for block in self.pages.missing_edges(offset, data.len() as u64) {
                let start = at(block) << 10;
                self.pages.fill(block, &self.device[start..start + 1024]);
            }
            self.pages.write(offset, data);
            self.model[at(offset)..at(offset) + data.len()].copy_from_slice(data);
        }

        /// As `write`, of a buffer that may become a run.
        fn give(&mut self, offset: u64, data: &[u8]) {
            let mut buffer = self.pages.buffers.take(data.len());
            buffer.extend_from_slice(data);
            for block in self.pages.missing_edges(offset, data.len() as u64) {
                let start = at(block) << 10;
                self.pages.fill(block, &self.device[start..start + 1024]);
            }
            if !self.pages.adopt(offset, &mut buffer) {
                self.pages.write(offset, &buffer);
            }
            self.model[at(offset)..at(offset) + data.len()].copy_from_slice(data);
        }

        fn cut(&mut self, size: u64) {
            // A verb that cuts waits for write-back.
            self.taken.clear();
            self.pages.cut(size);
            self.device[at(size)..].fill(0);
            self.model[at(size)..].fill(0);
        }

        fn settle(&mut self) {
            for (first, data) in &self.taken {
                let start = at(*first) << 10;
                let stop = start + data.len().next_multiple_of(1024);
                self.device[start..stop].fill(0);
                self.device[start..start + data.len()].copy_from_slice(data);
            }
            self.pages.note_written(std::mem::take(&mut self.taken));
        }

        fn check(&self) {
            let mut seen = vec![7; 5000];
            for offset in [0, 1, 1023, 3000, 7000] {
                for part in self.pages.read(offset, &mut seen) {
                    let from = at(offset) + part.start;
                    let len = part.len();
                    seen[part].copy_from_slice(&self.device[from..from + len]);
                }
                assert_eq!(seen, self.model[at(offset)..at(offset) + 5000]);
            }
            let held: u64 = self.pages.runs.values().map(|data| cost(data)).sum();
            assert_eq!(self.pages.bytes(), held);
            let ends: Vec<_> =
                self.pages.runs.iter().map(|(a, d)| (*a, a + self.pages.blocks_of(d))).collect();
            assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ends:?}");
            assert!(self.pages.runs.values().all(|data| !data.is_empty()));
            let dirty = ends.iter().map(|(from, end)| end - from).sum::<u64>();
            assert_eq!(self.pages.dirty_blocks(FileBlocks::new(0, 100)), dirty);
        }
    }

    proptest! {
        #[test]
        fn dirty_bytes_over_those_on_the_device_are_what_was_written(steps in steps()) {
            let zeros = vec![0; 16 << 10];
            let mut twin =
                Twin { pages: Pages::new(10, &buffers()), device: zeros.clone(), model: zeros, taken: Vec::new() };
            for step in steps {
                match step {
                    Step::Write(offset, data) => twin.write(offset, &data),
                    Step::Give(offset, data) => twin.give(offset, &data),
                    Step::Cut(size) => twin.cut(size),
                    Step::Snapshot => twin.taken = twin.pages.snapshot(),
                    Step::Settle => twin.settle(),
                }
                twin.check();
            }
        }
    }

    #[test]
    fn reading_behind_all_files_finds_nothing_dirty() {
        let mut pages = Pages::new(12, &buffers());
        pages.write(0, &[1; 10]);
        assert_eq!(pages.read(u64::MAX - 3, &mut [0; 10]).first(), Some(&(0..10)));
    }

    #[test]
    fn small_appends_become_long_runs() {
        let mut pages = Pages::new(12, &buffers());
        for piece in 0..400_u64 {
            pages.write(piece * 8192, &[1; 8192]);
        }
        assert_eq!((pages.runs(), pages.bytes(), pages.end()), (4, 400 * 8192, 400 * 8192));
    }
}
