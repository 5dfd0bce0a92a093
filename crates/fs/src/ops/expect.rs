//! Space for bytes that a caller has taken from their writer and will write later: a kernel that keeps what programs write
//! in its pages.
//!
//! Owns: how much such bytes need, and the moment from which it is theirs. Excludes: the write that brings them
//! (`ops::write`), which finds what was promised.

use ondisk::inode::Inode;
use ondisk::units::InodeNumber;

use super::write::{WriteOptions, bytes_of, find_space, holes, keep_limits, limits_of, regular};
use crate::dirty::{DirtyFile, State, clusters};
use crate::error::{Error, Result};
use crate::ranges::{ByteRange, FileBlocks};
use crate::volume::{VersionedInode, Volume};

/// Tries to have space promised while write-back and sync may yet find some.
const TRIES: u32 = 3;
/// More blocks than an inode has room for, and few of a map.
const SOME: u64 = 64;

impl Volume {
    /// Promises space for bytes of a regular file that will be written later, and keeps the limits of their owner.
    /// Bytes in blocks that the file has need none. Only a [`Volume::write_at`] of those bytes uses what is promised,
    /// or [`Volume::expect_no_more`] ends it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::QuotaExceeded`], with nothing promised; not a regular file; broken structures; the
    /// device's failure.
    pub fn expect(&self, number: InodeNumber, offset: u64, len: u64) -> Result<()> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        let _pin = self.pin(number)?;
        let mut seen = VersionedInode::read(self, number)?;
        regular(seen.node(), "written")?;
        let file = self.session.delayed.enter(number);
        let range = ByteRange::new(offset, offset.saturating_add(len));
        let blocks = range.outer(self.format.geometry.block_size).within(FileBlocks::ALL);
        let mut tried = 1;
        loop {
            let free_generation = self.space.free_generation();
            match self.expect_once(&mut seen, &file, blocks) {
                Err(Error::NoSpace) if tried < TRIES => find_space(self, free_generation)?,
                // What has lost its last name and its last user is still its owner's.
                Err(Error::QuotaExceeded { .. }) if tried == 1 => self.uses().clear_away()?,
                done => return done,
            }
            tried += 1;
        }
    }

    /// Ends what was promised to bytes that have not come: nobody has any more of them.
    pub fn expect_no_more(&self, number: InodeNumber) {
        if let Some(file) = self.session.delayed.find(number) {
            file.state().ahead = Default::default();
        }
    }

    /// Writes bytes of which only a part may have been promised space: whole pages, of which a program wrote a few bytes. Blocks
    /// of zeros where the file has a hole, and of which nothing was promised, stay holes.
    ///
    /// # Errors
    /// As [`Volume::write_at`].
    pub fn write_expected(
        &self,
        number: InodeNumber,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        let size = self.format.geometry.block_size;
        let range = ByteRange::new(offset, offset.saturating_add(data.len() as u64));
        let inside = |from: u64, to: u64| {
            let place = |at: u64| usize::try_from(at - offset).ok();
            data.get(place(from)?..place(to)?)
        };
        let mut next = range.start;
        for part in self.unexpected(number, range.outer(size))? {
            for block in part.start..part.end {
                let block = FileBlocks::new(block, block + 1).bytes(size);
                let (start, end) = (block.start.max(range.start), block.end.min(range.end));
                if inside(start, end).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
                    self.write_some(number, next, inside(next, start), options)?;
                    next = end;
                }
            }
        }
        self.write_some(number, next, inside(next, range.end), options)
    }

    fn write_some(
        &self,
        number: InodeNumber,
        offset: u64,
        data: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        match data.filter(|data| !data.is_empty()) {
            Some(data) => self.write_at(number, offset, data, options),
            None => Ok(()),
        }
    }

    /// The parts of some blocks of a file that are holes, have no bytes in memory, and wait for none.
    fn unexpected(&self, number: InodeNumber, blocks: FileBlocks) -> Result<Vec<FileBlocks>> {
        let _pin = self.pin(number)?;
        let mut seen = VersionedInode::read(self, number)?;
        regular(seen.node(), "written")?;
        let file = self.session.delayed.enter(number);
        let holes = seen.seqlock_read(|view, node| holes(view, node, blocks))?;
        let state = file.state();
        let clean = holes.iter().flat_map(|hole| state.pages.clean_parts(*hole));
        Ok(clean.flat_map(|part| state.ahead.missing(part)).collect())
    }

    fn expect_once(&self, seen: &mut VersionedInode<'_>, file: &DirtyFile, blocks: FileBlocks) -> Result<()> {
        let _shared = file.share();
        loop {
            let settled = file.state().settled;
            let holes = seen.seqlock_read(|view, node| holes(view, node, blocks))?;
            if holes.is_empty() {
                return Ok(());
            }
            let node = seen.node();
            let limits = limits_of(self, [node.uid(), node.gid(), node.project()])?;
            let mut state = file.state();
            if state.settled != settled {
                // A write-back ended meanwhile.
                continue;
            }
            if state.is_leaving(blocks) {
                drop(state);
                drop(file.flush_alone());
                continue;
            }
            let clean = holes.iter().flat_map(|hole| state.pages.clean_parts(*hole));
            let parts: Vec<_> = clean.flat_map(|part| state.ahead.missing(part)).collect();
            let log2 = self.format.geometry.cluster_log2;
            let more = parts.iter().map(|part| clusters(*part, log2)).sum();
            keep_limits(self, &limits, bytes_of(self, more))?;
            return self.promise_ahead(&mut state, node, &parts, more);
        }
    }

    /// Has space promised to some stretches of holes, of `more` clusters.
    fn promise_ahead(&self, state: &mut State, node: &Inode, parts: &[FileBlocks], more: u64) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let log2 = self.format.geometry.cluster_log2;
        let (runs, waiting) = state.ahead.size();
        let runs = runs + parts.len() as u64;
        // Each may come alone, and have the map grow by itself, unless the inode has room for all of them.
        let all = (state.clusters + waiting + more) << log2;
        let alone = self.view().map(node).blocks_needed_at_most(all.min(SOME), 1);
        let wanted = self.needed_ahead(node, 1, waiting + more) + runs * alone;
        let lacking = wanted.saturating_sub(state.ahead.promised());
        if lacking > 0 {
            state.ahead.join(self.space.promise(lacking, self.context().spared)?);
        }
        let quota_files = &self.session.quota_files;
        if quota_files.is_on() {
            let owner = [node.uid(), node.gid(), node.project()];
            quota_files.reserve(&mut state.ahead.reserved, owner, bytes_of(self, more));
        }
        parts.iter().for_each(|part| state.ahead.add(*part, log2));
        Ok(())
    }

    /// Clusters that stretches of holes need, with those of their map in the worst case.
    pub(super) fn needed_ahead(&self, node: &Inode, runs: u64, clusters: u64) -> u64 {
        if clusters == 0 {
            return 0;
        }
        let blocks = clusters << self.format.geometry.cluster_log2;
        clusters + self.view().map(node).blocks_needed_at_most(blocks, runs)
    }
}
