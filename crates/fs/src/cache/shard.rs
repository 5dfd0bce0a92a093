//! A part of the cache under a lock of its own: which blocks it holds, which of them are to be
//! written, and which go when it is full.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::Outgoing;
use crate::hashing::NumberMap;
use crate::role::Role;

/// New bytes of a block, and what they were made of: nothing, if the block is new or order does not count.
pub(super) struct ChangedBlock {
    pub(super) bytes: Arc<[u8]>,
    pub(super) before: Option<Arc<[u8]>>,
}

/// How a block stands to what the device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// As on the device.
    Clean,
    /// Changed, and on the list of what is to be written.
    Changed,
    /// On its way to the device as it is now.
    Leaving,
    /// The journal has it as it is now, its place has not: it is not to be read from there.
    Logged,
}

pub(super) struct Entry {
    pub(super) bytes: Arc<[u8]>,
    /// On-device contents of a changed block, with writes in flight counted as done; kept where
    /// order counts. None of a block that is new.
    pub(super) before: Option<Arc<[u8]>>,
    pub(super) role: Role,
    pub(super) state: State,
    /// Looked at since the hand last passed.
    used: bool,
}

/// Steps of the hand for each block that comes: it makes room faster than blocks arrive, and no thread
/// waits for a walk through all of them.
const STEPS: usize = 16;

#[derive(Default)]
pub(super) struct Shard {
    entries: NumberMap<u64, Entry>,
    /// The blocks in the order in which the hand comes to them. Blocks that were dropped out of turn
    /// stay until then.
    ring: VecDeque<u64>,
    /// Blocks that were changed since the last time they were collected; maybe dropped again.
    changed: Vec<u64>,
    /// Blocks dropped so far. While it stands still, what a reader got from the device is no older
    /// than what was here.
    departures: u64,
}

impl Shard {
    pub(super) fn find(&mut self, block: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&block)?;
        entry.used = true;
        Some(entry)
    }

    pub(super) fn departures(&self) -> u64 {
        self.departures
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes in what was read from the device.
    pub(super) fn admit(&mut self, block: u64, role: Role, bytes: Arc<[u8]>, capacity: usize) {
        // Not used yet: a block that is read once goes when the hand first comes, before those that are read again.
        self.entries.insert(block, Entry { bytes, before: None, role, state: State::Clean, used: false });
        self.ring.push_back(block);
        self.shrink(capacity, STEPS);
    }

    /// Takes in what was changed, `before` being what it was made of; says by how many more blocks are
    /// changed and not on their way, and what the block was in memory.
    pub(super) fn change(
        &mut self,
        block: u64,
        role: Role,
        change: ChangedBlock,
        capacity: usize,
    ) -> (usize, Option<Arc<[u8]>>) {
        let ChangedBlock { bytes, mut before } = change;
        if let Some(entry) = self.entries.get_mut(&block).filter(|entry| entry.state == State::Changed) {
            // The device knows nothing of what was made in between.
            before = entry.before.take();
        }
        let entry = Entry { bytes, before, role, state: State::Changed, used: true };
        let replaced = self.entries.insert(block, entry);
        if replaced.is_none() {
            self.ring.push_back(block);
            self.shrink(capacity, STEPS);
        }
        let (was, bytes) = replaced.map(|entry| (entry.state, entry.bytes)).unzip();
        if was == Some(State::Changed) {
            return (0, bytes);
        }
        self.changed.push(block);
        (1, bytes)
    }

    /// Drops a block, changes included, and hands it out if they were not on their way.
    pub(super) fn drop_block(&mut self, block: u64) -> Option<Entry> {
        let entry = self.entries.remove(&block)?;
        self.departures += 1;
        (entry.state == State::Changed).then_some(entry)
    }

    /// Drops all blocks from one on, of which none may be changed.
    pub(super) fn drop_behind(&mut self, block: u64) {
        let before = self.entries.len();
        self.entries.retain(|at, _| *at < block);
        self.departures += (before - self.entries.len()) as u64;
    }

    /// Hands out what was changed, which is on its way from now on.
    pub(super) fn collect(&mut self, into: &mut Outgoing) {
        for block in std::mem::take(&mut self.changed) {
            // A block may have been dropped and changed again: then it stands in the list twice.
            if let Some(entry) = self.entries.get_mut(&block)
                && entry.state == State::Changed
            {
                entry.state = State::Leaving;
                into.blocks.push((block, entry.role, Arc::clone(&entry.bytes)));
                into.before.extend(entry.before.take().map(|before| (block, before)));
            }
        }
    }

    /// Marks a block that was handed out as written to the device.
    pub(super) fn written(&mut self, block: u64, bytes: &Arc<[u8]>) {
        self.pass(block, bytes, State::Leaving, State::Clean);
    }

    /// Marks a block that was handed out as written to the journal, and not to its place.
    pub(super) fn logged(&mut self, block: u64, bytes: &Arc<[u8]>) {
        self.pass(block, bytes, State::Leaving, State::Logged);
    }

    /// Marks a block that was in the journal as written to its place, too.
    pub(super) fn in_place(&mut self, block: u64, bytes: &Arc<[u8]>) {
        self.pass(block, bytes, State::Logged, State::Clean);
        // Bytes of files are better kept by the page cache of the reader.
        if self
            .entries
            .get(&block)
            .is_some_and(|entry| (entry.role, entry.state) == (Role::Data, State::Clean))
        {
            self.drop_block(block);
        }
    }

    /// From one state to the next, unless it was changed meanwhile.
    fn pass(&mut self, block: u64, bytes: &Arc<[u8]>, from: State, to: State) {
        if let Some(entry) = self.entries.get_mut(&block)
            && entry.state == from
            && Arc::ptr_eq(&entry.bytes, bytes)
        {
            entry.state = to;
        }
    }

    /// Lets the hand go some steps: what is clean and was not looked at since it last came goes.
    pub(super) fn shrink(&mut self, capacity: usize, steps: usize) {
        for _ in 0..steps {
            if self.entries.len() <= capacity {
                break;
            }
            let Some(block) = self.ring.pop_front() else { break };
            // One that was dropped out of turn loses its place in the ring here.
            let Some(entry) = self.entries.get_mut(&block) else { continue };
            if entry.state == State::Clean && !entry.used {
                // A reader that began before this may have older bytes from the device: the count keeps them out.
                self.entries.remove(&block);
                self.departures += 1;
                continue;
            }
            entry.used = false;
            self.ring.push_back(block);
        }
        // Blocks that are dropped out of turn and come again leave places behind: without this the ring grows with each.
        if self.ring.len() > 2 * self.entries.len() + 64 {
            let mut seen = HashSet::new();
            let entries = &self.entries;
            self.ring.retain(|block| entries.contains_key(block) && seen.insert(*block));
        }
    }

    /// Drops clean blocks until the bound holds.
    pub(super) fn trim(&mut self, capacity: usize) {
        self.shrink(capacity, 2 * self.ring.len());
    }
}
