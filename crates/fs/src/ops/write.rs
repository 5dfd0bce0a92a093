//! Contents of files by inode number: reading, writing, delayed and not, making stable.

use std::ops::Deref;

use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::quota::QuotaKind;
use ondisk::quota::parts::Record;
use ondisk::units::InodeNumber;
use placement::Promise;

use super::attrs::file_type;
use super::changing::change;
use super::flush::WriteBack;
use super::rules::{self, Operation};
use super::sync::sync_metadata;
use crate::bytes;
use crate::charges::{Ids, Whose};
use crate::dirty::{AwaitedWrites, DirtyFile, Reason, State};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::map::{self, MapForm, State as Mapping};
use crate::ranges::{ByteRange, FileBlocks};
use crate::tx::View;
use crate::usage::LimitRequest;
use crate::volume::{VersionedInode, Volume};
use crate::{file, inline};

/// Most bytes that are copied at once.
const COPY_PIECE: u64 = 1 << 20;
/// Tries to get space for a write while write-back and sync may yet find some.
const TRIES: u32 = 3;

/// How bytes are written, beside where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteOptions {
    /// The times of the file stay: the caller sets them.
    pub keep_times: bool,
    /// Set-user-id and set-group-id bits go, as the rules for changed files say.
    pub drop_special_bits: bool,
    /// The bytes were taken from their writer before, when the rules allowed it and took what they take:
    /// the file may have become immutable since, and got its privileges back.
    pub taken: bool,
    /// The writer may replace bytes of an append-only file too: it opened the file before it became so, and Linux judges
    /// that at the opening.
    pub overwrites: bool,
}

pub(super) fn regular(node: &Inode, verb: &str) -> Result<()> {
    match file_type(node)? {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid(format!("only regular files can be {verb}"))),
    }
}

impl Volume {
    /// Writes all bytes into a regular file at an offset. Where writes are delayed, the bytes stay in
    /// memory, with space promised to them, until they are written back: together, in long runs.
    ///
    /// # Errors
    /// Not a regular file, one that can't be changed, an end over what the map can hold, no space;
    /// broken structures; the device's failure. Bytes of blocks that the file had already may have
    /// been written then.
    pub fn write_at(
        &self,
        number: InodeNumber,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        self.write_bytes(number, offset, Bytes::Lent(data), options)
    }

    /// Copies bytes of a regular file into another one, or to another place of it: up to the end of the file, or as
    /// many as are asked for. Says how many. They go where the bytes of [`Volume::write_at`] go.
    ///
    /// # Errors
    /// As [`Volume::read_at`] and [`Volume::write_at`], unless bytes were copied before.
    pub fn copy_at(
        &self,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        len: u64,
        options: WriteOptions,
    ) -> Result<u64> {
        let mut done = 0;
        while done < len {
            let want = (len - done).min(COPY_PIECE);
            match self.copy_piece(
                (from.0, from.1.saturating_add(done)),
                (to.0, to.1.saturating_add(done)),
                want,
                options,
            ) {
                Ok(copied) => {
                    done += copied;
                    // Behind its end a file may have become longer by what was copied.
                    if copied < want {
                        break;
                    }
                }
                // The next call meets it again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn copy_piece(
        &self,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        len: u64,
        options: WriteOptions,
    ) -> Result<u64> {
        let len = bytes::length(len)?;
        let mut piece = self.session.delayed.buffers().take(len);
        piece.resize(len, 0);
        let copied = self.read_at(from.0, from.1, &mut piece)?;
        piece.truncate(copied);
        if copied > 0 {
            self.write_bytes(to.0, to.1, Bytes::Given(piece), options)?;
        }
        Ok(copied as u64)
    }

    fn write_bytes(
        &self,
        number: InodeNumber,
        offset: u64,
        data: Bytes<'_>,
        options: WriteOptions,
    ) -> Result<()> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        let _pin = self.pin(number)?;
        let mut seen = VersionedInode::read(self, number)?;
        regular(seen.node(), "written")?;
        if !options.taken {
            rules::may(seen.node(), Operation::Write { offset, overwrites: options.overwrites })?;
            if !data.is_empty() {
                seen.lose_privileges(options.drop_special_bits)?;
            }
        }
        let file = self.session.delayed.enter(number);
        let mut write = Write { volume: self, file: &file, seen, offset, data };
        let done = write.until_there_is_space();
        if let Bytes::Given(buffer) = std::mem::replace(&mut write.data, Bytes::Lent(&[])) {
            self.session.delayed.buffers().put_back(buffer);
        }
        done?;
        write.seen.note_write(options)?;
        if self.order.syncs_data() {
            return self.sync_inode(number);
        }
        if self.session.delayed.is_on() && self.session.delayed.is_over() {
            // The bytes of this write are taken; failures of other files are reported when those are synced.
            let _ = WriteBack::new(self).bytes(self.session.delayed.excess());
        }
        Ok(())
    }
}

impl VersionedInode<'_> {
    /// Sets the times of a file that was written to, unless they are those of now.
    pub(super) fn note_write(&mut self, options: WriteOptions) -> Result<()> {
        let (volume, number) = (self.volume(), self.number());
        let (node, now) = (self.refreshed()?, volume.now());
        let is_touched = [TimeField::Modify, TimeField::Change]
            .iter()
            .all(|field| node.time(*field).is_none_or(|time| time == now));
        if options.keep_times || is_touched {
            return Ok(());
        }
        change(volume, |tx| {
            let mut node = tx.inode(number)?;
            tx.touch(&mut node, &[TimeField::Modify, TimeField::Change]);
            tx.store(&mut node)
        })
    }
}

/// Bytes on their way into a regular file.
struct Write<'w> {
    volume: &'w Volume,
    file: &'w DirtyFile,
    seen: VersionedInode<'w>,
    offset: u64,
    data: Bytes<'w>,
}

/// Bytes to be written.
enum Bytes<'w> {
    Lent(&'w [u8]),
    /// In a buffer that may become the memory of what is dirty.
    Given(Vec<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Lent(data) => data,
            Bytes::Given(data) => data,
        }
    }
}

/// State of a range before bytes go into it.
struct Before {
    /// Blocks that the bytes cover only in part, with what they hold.
    edges: Vec<(u64, Vec<u8>)>,
    holes: Vec<FileBlocks>,
}

impl Write<'_> {
    fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.offset + self.data.len() as u64)
    }

    fn until_there_is_space(&mut self) -> Result<()> {
        let (mut tried, mut need) = (1, None);
        loop {
            let free_generation = self.volume.space.free_generation();
            match self.once(tried == TRIES) {
                Err(Error::NoSpace) if tried < TRIES => {
                    need = need.or_else(|| self.volume.space.low_space());
                    find_space(self.volume, free_generation)?;
                }
                // What has lost its last name and its last user is still its owner's.
                Err(Error::QuotaExceeded { .. }) if tried == 1 => self.volume.uses().clear_away()?,
                done => return done,
            }
            tried += 1;
        }
    }

    /// One try at a write. In the last one space is not promised but taken, to the last block.
    fn once(&mut self, last: bool) -> Result<()> {
        let node = self.seen.refreshed()?;
        let limit = map::size_limit(&self.volume.format, MapForm::of_inode(node));
        let end = self.offset.checked_add(self.data.len() as u64).filter(|end| *end <= limit);
        let Some(end) = end else { return Err(Error::FileTooLarge(format!("at most {limit} bytes"))) };
        if self.data.is_empty() {
            return Ok(());
        }
        if may_stay_inside(&self.volume.format, node, end) {
            let _alone = self.file.close();
            if self.file.state().pages.is_empty() {
                return self.inside();
            }
        }
        if last {
            let _alone = self.file.close();
            self.through()
        } else {
            let _shared = self.file.share();
            self.hold(true)?;
            if self.volume.session.delayed.is_on() {
                Ok(())
            } else {
                WriteBack::new(self.volume).file(self.file, Reason::Asked)
            }
        }
    }

    /// Writes contents that are, or may come to stand, in the inode itself.
    fn inside(&self) -> Result<()> {
        let (number, offset, data) = (self.file.number(), self.offset, &*self.data);
        let hint = file::WriteHint { end: self.range().end, growing: true, reserved: false };
        change(self.volume, |tx| {
            let mut node = tx.inode(number)?;
            let complete = offset == 0 && node.size() == 0;
            let mut ahead = file::Allocation::default();
            tx.contents(&mut node).write_any(&mut ahead, (offset, data), &hint, complete)?;
            tx.note_size(node.size());
            tx.store(&mut node)
        })
    }

    /// Writes without a promise: what was dirty is written back first, so that bytes for which there
    /// is no space can be dropped and nothing else.
    fn through(&mut self) -> Result<()> {
        let delayed = &self.volume.session.delayed;
        let before = WriteBack::new(self.volume).file(self.file, Reason::Asked);
        if before.is_err() && !delayed.is_on() {
            // They are those of this write, from a try before.
            delayed.drop_bytes(self.file);
        }
        before?;
        self.hold(false)?;
        let done = WriteBack::new(self.volume).file(self.file, Reason::Asked);
        if done.is_err() {
            delayed.drop_bytes(self.file);
        }
        done
    }

    /// Takes bytes into memory, and has space promised for blocks that have none.
    fn hold(&mut self, promised: bool) -> Result<()> {
        let (volume, range) = (self.volume, self.range());
        let counts = volume.session.quota_files.is_on();
        let blocks = range.outer(volume.format.geometry.block_size);
        loop {
            let (edges, settled) = {
                let state = self.file.state();
                (state.pages.missing_edges(range.start, range.len()), state.settled)
            };
            // Before the promise: what is a hole now stays one, or is mapped by a write-back.
            let before = self.seen.seqlock_read(|view, node| {
                let old = |block: u64| Ok((block, old_contents(view, node, block)?));
                let edges = edges.iter().map(|block| old(*block)).collect::<Result<_>>()?;
                let holes = if promised || counts { holes(view, node, blocks)? } else { Vec::new() };
                Ok(Before { edges, holes })
            })?;
            let node = self.seen.node();
            let owner = [node.uid(), node.gid(), node.project()];
            let limits = if before.holes.is_empty() { Vec::new() } else { limits_of(volume, owner)? };
            let mut state = self.file.state();
            if state.settled != settled {
                // A write-back ended meanwhile: what was read may be older than what it wrote.
                continue;
            }
            if state.is_leaving(blocks) {
                drop(state);
                drop(self.file.flush_alone());
                continue;
            }
            let clusters = self.new_clusters(&state, &before.holes);
            let bytes = bytes_of(volume, clusters);
            let expected = bytes_of(volume, state.ahead.waiting(blocks, volume.format.geometry.cluster_log2));
            keep_limits(volume, &limits, bytes.saturating_sub(expected))?;
            if promised {
                self.promise_space(&mut state, clusters)?;
            }
            if counts && bytes > 0 {
                volume.session.quota_files.reserve(&mut state.reserved, owner, bytes);
            }
            self.no_longer_expected(&mut state, expected, promised);
            let node = self.seen.node();
            let extends = range.end > node.size().max(state.pages.end());
            volume.session.delayed.note_write(&mut state, range.len(), extends);
            // Without a delay it may be written once more.
            let is_last = promised && volume.session.delayed.is_on();
            if volume.follows_folios() {
                state.folios.note(blocks);
            }
            volume.session.delayed.change(self.file, &mut state, volume.now(), |pages| {
                for (block, contents) in &before.edges {
                    pages.fill(*block, contents);
                }
                let is_taken = match &mut self.data {
                    Bytes::Given(buffer) => is_last && pages.adopt(self.offset, buffer),
                    Bytes::Lent(_) => false,
                };
                if !is_taken {
                    pages.write(self.offset, &self.data);
                }
            });
            return Ok(());
        }
    }

    /// Clusters that clean blocks of holes take, once they are dirty.
    fn new_clusters(&self, state: &State, holes: &[FileBlocks]) -> u64 {
        let log2 = self.volume.format.geometry.cluster_log2;
        let mut clusters = 0;
        for hole in holes {
            for part in state.pages.clean_parts(*hole) {
                let (first, last) = (part.start >> log2, (part.end - 1) >> log2);
                clusters += last - first + 1;
                // A cluster that has dirty blocks already has its promise, or a place.
                let is_begun = |cluster: u64| {
                    let inside = FileBlocks::new(cluster << log2, (cluster + 1) << log2);
                    log2 > 0 && state.pages.dirty_blocks(inside) > 0
                };
                clusters -= u64::from(is_begun(first)) + u64::from(last > first && is_begun(last));
            }
        }
        clusters
    }

    /// Promises clusters, and what their map may need in the worst case.
    fn promise_space(&self, state: &mut State, clusters: u64) -> Result<()> {
        let (volume, node) = (self.volume, self.seen.node());
        let log2 = volume.format.geometry.cluster_log2;
        let blocks = (state.clusters + clusters) << log2;
        let runs = state.pages.runs() as u64 + 1;
        let wanted = state.clusters + clusters + volume.view().map(node).blocks_needed_at_most(blocks, runs);
        let held = state.promise.as_ref().map_or(0, Promise::count);
        if clusters > 0 && wanted > held {
            let more = self.promised(&mut state.ahead, wanted - held)?;
            match &mut state.promise {
                Some(promise) => promise.join(more),
                none => *none = Some(more),
            }
        }
        state.clusters += clusters;
        Ok(())
    }

    /// Clusters that stay promised to bytes still to come, once those of this write are here.
    fn kept_ahead(&self, ahead: &AwaitedWrites) -> u64 {
        let geometry = &self.volume.format.geometry;
        let own = self.range().outer(geometry.block_size);
        let ((runs, all), came) = (ahead.size(), ahead.waiting(own, geometry.cluster_log2));
        self.volume.needed_ahead(self.seen.node(), runs, all.saturating_sub(came))
    }

    /// Promises clusters to this write: first those that were promised when its bytes were taken.
    fn promised(&self, ahead: &mut AwaitedWrites, clusters: u64) -> Result<Promise> {
        let (volume, kept) = (self.volume, self.kept_ahead(ahead));
        let lent = ahead.split_promise(clusters, kept);
        let lacking = clusters - lent.as_ref().map_or(0, Promise::count);
        match (lent, lacking) {
            (Some(lent), 0) => Ok(lent),
            (None, _) => volume.space.promise(lacking, volume.context().spared),
            (Some(mut lent), _) => match volume.space.promise(lacking, volume.context().spared) {
                Ok(more) => {
                    lent.join(more);
                    Ok(lent)
                }
                Err(error) => {
                    ahead.join(lent);
                    Err(error)
                }
            },
        }
    }

    /// The bytes of this write are here, of which so many were waited for.
    fn no_longer_expected(&self, state: &mut State, bytes: u64, promised: bool) {
        if state.ahead.is_empty() {
            return;
        }
        if !promised {
            // It takes what is free.
            let kept = self.kept_ahead(&state.ahead);
            drop(state.ahead.split_promise(u64::MAX, kept));
        }
        let geometry = &self.volume.format.geometry;
        state.ahead.came(self.range().outer(geometry.block_size), geometry.cluster_log2);
        if let Some(reserved) = &state.ahead.reserved {
            reserved.pay(bytes);
        }
        if state.ahead.is_empty() {
            state.ahead = AwaitedWrites::default();
        }
    }
}

/// All that may make space free is done: promises become blocks, what was freed can be used.
pub(super) fn find_space(volume: &Volume, free_generation: u64) -> Result<()> {
    volume.space.await_held(free_generation);
    // What fails here is reported when that file is synced.
    let _ = WriteBack::new(volume).bytes(u64::MAX);
    volume.leftovers().reclaim_for_space()?;
    // What other files could not write back is not this write's failure.
    if volume.space.holds_freed() { sync_metadata(volume) } else { Ok(()) }
}

pub(super) fn bytes_of(volume: &Volume, clusters: u64) -> u64 {
    let geometry = &volume.format.geometry;
    clusters << (geometry.cluster_log2 + geometry.block_size.log2())
}

/// Quota records of the owner of a file, where limits count.
pub(super) fn limits_of(volume: &Volume, owner: Ids) -> Result<Vec<(Whose, Record)>> {
    let (mut limits, quota_files) = (Vec::new(), &volume.session.quota_files);
    if volume.context().limited && quota_files.is_enforced() {
        for whose in QuotaKind::ALL.into_iter().zip(owner) {
            let Some(file) = quota_files.file(whose.0) else { continue };
            let found = volume.seqlock_read(file, || volume.view().quota_record_of(quota_files, whose))?;
            limits.extend(found.map(|record| (whose, record)));
        }
    }
    Ok(limits)
}

/// Refuses bytes that would exceed the limits of their owner.
pub(super) fn keep_limits(volume: &Volume, limits: &[(Whose, Record)], bytes: u64) -> Result<()> {
    limits.iter().filter(|_| bytes > 0).try_for_each(|(whose, record)| {
        let reserved = volume.session.quota_files.reserved(*whose);
        let wanted = LimitRequest { bytes, inodes: 0, reserved };
        wanted.refuse_excess(*whose, record, volume.now().seconds)
    })
}

/// True if contents are, or may come to stand, in the inode itself.
fn may_stay_inside(format: &Format, node: &Inode, end: u64) -> bool {
    use ondisk::features::Incompat;
    let is_inside = node.flags().contains(InodeFlags::INLINE_DATA);
    let small = format.has_incompat(Incompat::INLINE_DATA) && node.size() == 0;
    is_inside || small && end <= inline::capacity_max(node) as u64
}

/// Reads a block of a file from the device, up to the file's end.
fn old_contents(view: View<'_>, node: &Inode, block: u64) -> Result<Vec<u8>> {
    let size = view.format.geometry.block_size;
    let start = block << size.log2();
    let len = node.size().saturating_sub(start).min(u64::from(size.bytes()));
    let mut contents = vec![0; bytes::length(len)?];
    view.contents(node).read(start, &mut contents)?;
    Ok(contents)
}

/// The holes among some file blocks.
pub(super) fn holes(view: View<'_>, node: &Inode, blocks: FileBlocks) -> Result<Vec<FileBlocks>> {
    let mut holes = Vec::new();
    for segment in view.map(node).segments(blocks) {
        let segment = segment?;
        if segment.state == Mapping::Hole {
            holes.push(FileBlocks::from_count(segment.logical, segment.count));
        }
    }
    Ok(holes)
}
