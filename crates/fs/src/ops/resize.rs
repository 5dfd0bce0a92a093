//! Sizes and space of regular files: truncate, the modes of fallocate, seeking holes.
//!
//! The rules are those of Linux: ranges are bytes; whole blocks change in the map, the parts of
//! blocks at both edges get zeros.

use std::ops::Range;

use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::units::InodeNumber;

use super::attrs::file_type;
use super::changing::change;
use super::flush::WriteBack;
use super::rules::{self, Operation};
use super::write::WriteOptions;
use crate::dirty::{Folios, Growth, Reason};
use crate::error::{Error, Result};
use crate::map::{self, MapForm, Segment, State};
use crate::ranges::{ByteRange, FileBlocks, in_parts};
use crate::tx::{Tx, View};
use crate::volume::{VersionedInode, Volume};
use crate::{file, inline};

/// Operation on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Space is taken for holes, which go on reading as zeros; the file grows to hold the range.
    Extend,
    /// As above, without growing.
    KeepSize,
    /// The range becomes a hole.
    PunchHole,
    /// The range reads as zeros and has space; the file grows to hold it.
    ZeroRange,
    /// As above, without growing.
    ZeroRangeKeepSize,
    /// The range vanishes: what is behind it moves forward.
    CollapseRange,
    /// A hole of the range's length appears: what is behind its start moves back.
    InsertRange,
}

/// Kind of range to look for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// A hole, or space that was never written; the end of the file counts as one.
    Hole,
}

/// Space that is taken by less at once behind the end of a file will be followed by more. The first space of a file is
/// not: nearly all programs take what the whole file needs. A mount does not hear of the close, so that room to grow
/// would lie behind each of its files for a long time.
const LITTLE: u64 = 1 << 20;

impl Volume {
    /// Gives a regular file a size: what is behind it is freed, what is added is a hole.
    ///
    /// # Errors
    /// Not a regular file, one that can't be changed, a size over what the map can hold; broken
    /// structures; the device's failure.
    pub fn truncate(&self, number: InodeNumber, size: u64) -> Result<()> {
        let reshape = Reshape::new(self, number);
        reshape.may_reshape(Operation::Truncate, WriteOptions::default())?;
        let file = self.session.delayed.enter(number);
        let _alone = file.close();
        let done = reshape.change_file(|tx, node| {
            rules::may(node, Operation::Truncate)?;
            tx.resize(node, size)
        });
        match done {
            Err(Error::TooLargeForLog { .. }) => reshape.truncate_in_steps(size)?,
            done => done?,
        }
        let mut state = file.state();
        let was_longer = state.pages.end() > size;
        self.session.delayed.change(&file, &mut state, self.now(), |pages| pages.cut(size));
        if state.pages.is_empty() {
            (state.promise, state.clusters, state.growth) = (None, 0, Growth::default());
            state.folios = Folios::default();
            state.reserved = None;
        }
        drop(state);
        self.space.truncated(number);
        if was_longer {
            VersionedInode::read(self, number)?.note_write(WriteOptions::default())
        } else {
            Ok(())
        }
    }

    /// Makes a regular file longer: what is added is a hole.
    ///
    /// # Errors
    /// A size below the present one, or over what the map can hold.
    pub fn extend(&self, number: InodeNumber, size: u64) -> Result<()> {
        let reshape = Reshape::new(self, number);
        reshape.may_reshape(Operation::Truncate, WriteOptions::default())?;
        reshape.alone(|| {
            reshape.change_file(|tx, node| {
                rules::may(node, Operation::Truncate)?;
                if size < node.size() {
                    return Err(Error::Invalid("this only makes a file longer".into()));
                }
                if size == node.size() { Ok(()) } else { tx.resize(node, size) }
            })
        })
    }

    /// Changes the space of a range of a regular file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range and for ranges that can't be moved over whole blocks
    /// (clusters with `bigalloc`); [`Error::Unsupported`] on files with block pointers but for
    /// punching holes; [`Error::FileTooLarge`], [`Error::NoSpace`]; then nothing has changed, or, of a range that is
    /// more than one transaction of the journal can change, the front part. [`Error::TooLargeForLog`] where
    /// such a range is to be collapsed or inserted.
    pub fn allocate(&self, number: InodeNumber, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        self.allocate_as(number, mode, offset, len, WriteOptions::default())
    }

    /// As [`Volume::allocate`], on behalf of a user who may not keep the special bits of the file.
    ///
    /// # Errors
    /// As [`Volume::allocate`].
    pub fn allocate_as(
        &self,
        number: InodeNumber,
        mode: Allocate,
        offset: u64,
        len: u64,
        options: WriteOptions,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or_else(|| Error::Invalid("an empty range, or one beyond all files".into()))?;
        let reshape = Reshape { keep_times: options.keep_times, ..Reshape::new(self, number) };
        reshape.may_reshape(Operation::Allocate(mode), options)?;
        reshape.alone(|| {
            // ext4 gives up the windows of a file where it makes a hole or moves what is behind one (`ext4_punch_hole`,
            // `ext4_collapse_range`, `ext4_insert_range`).
            let moves = matches!(mode, Allocate::PunchHole | Allocate::CollapseRange | Allocate::InsertRange);
            if self.space.wants_file() && moves {
                self.space.truncated(number);
            }
            let part = |range: Range<u64>| reshape.allocate_alone(mode, range.into());
            if matches!(mode, Allocate::CollapseRange | Allocate::InsertRange) {
                return part(offset..end);
            }
            let geometry = &self.format.geometry;
            let unit = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
            in_parts(offset..end, unit, u64::MAX, part)
        })
    }

    /// The next place at or behind `offset` with data, or with none; `None` where none is left
    /// before the end of the file.
    ///
    /// # Errors
    /// Not a regular file; an offset behind its end; a broken map.
    pub fn seek(&self, number: InodeNumber, offset: u64, what: Seek) -> Result<Option<u64>> {
        WriteBack::new(self).inode(number)?;
        VersionedInode::read(self, number)?.seqlock_read(|view, node| seek_in(view, node, offset, what))
    }

    /// Maps a regular file by an extent tree, or by block pointers; its data stays where it is.
    ///
    /// # Errors
    /// A volume without extents; towards block pointers: space that was never written, blocks out
    /// of their reach, `bigalloc`.
    pub fn set_mapping(&self, number: InodeNumber, extents: bool) -> Result<()> {
        if extents && !self.format.has_incompat(ondisk::features::Incompat::EXTENTS) {
            return Err(Error::Unsupported("the volume has no extents".into()));
        }
        Reshape::new(self, number).alone(|| Reshape::new(self, number).map_alone(extents))
    }
}

/// A regular file whose size or space changes.
#[derive(Clone, Copy)]
pub(super) struct Reshape<'v> {
    volume: &'v Volume,
    number: InodeNumber,
    /// See [`WriteOptions::keep_times`].
    keep_times: bool,
}

impl<'v> Reshape<'v> {
    pub(super) fn new(volume: &'v Volume, number: InodeNumber) -> Self {
        Reshape { volume, number, keep_times: false }
    }

    /// Cuts a file of which more goes than one transaction can free: its size changes at once.
    fn truncate_in_steps(&self, size: u64) -> Result<()> {
        // Or it would be finished, and taken off the list, by others meanwhile.
        let _pin = self.volume.pin(self.number)?;
        self.change_file(|tx, node| {
            tx.join_orphans(node);
            tx.set_end(node, size)
        })?;
        self.volume.uses().cut_in_steps(self.number, self.volume.format.blocks_for(size))?;
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            if node.links() == 0 {
                return Ok(());
            }
            tx.leave_orphans(&node)?;
            node.raw_mut().i_dtime.set(0);
            tx.store(&mut node)
        })
    }

    /// Keeps a file to the caller, with nothing of it delayed.
    pub(super) fn alone<T>(&self, verb: impl FnOnce() -> Result<T>) -> Result<T> {
        let file = self.volume.session.delayed.enter(self.number);
        let _alone = file.close();
        WriteBack::new(self.volume).file(&file, Reason::Asked)?;
        verb()
    }

    /// Before the contents of a file change: whether they may, and what the change takes from it.
    fn may_reshape(&self, operation: Operation, options: WriteOptions) -> Result<()> {
        let mut seen = VersionedInode::read(self.volume, self.number)?;
        rules::may(seen.node(), operation)?;
        if file_type(seen.node())? == FileType::Regular && self.volume.space.is_writable() {
            seen.lose_privileges(options.drop_special_bits)?;
        }
        Ok(())
    }

    fn allocate_alone(&self, mode: Allocate, range: ByteRange) -> Result<()> {
        self.change_file(|tx, node| {
            rules::may(node, Operation::Allocate(mode))?;
            let limit = map::size_limit(&self.volume.format, MapForm::of_inode(node));
            if range.end > limit && mode != Allocate::PunchHole {
                return Err(Error::FileTooLarge(format!("at most {limit} bytes")));
            }
            tx.contents(node).grow_out()?;
            if !node.flags().contains(InodeFlags::EXTENTS) && mode != Allocate::PunchHole {
                return Err(Error::Unsupported("only files mapped by extents can do that".into()));
            }
            match mode {
                Allocate::Extend | Allocate::KeepSize => tx.preallocate(node, range)?,
                Allocate::PunchHole => tx.punch(node, range)?,
                Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => tx.zero(node, range)?,
                Allocate::CollapseRange => tx.collapse(node, range)?,
                Allocate::InsertRange => tx.spread(node, range)?,
            }
            if matches!(mode, Allocate::Extend | Allocate::ZeroRange) && range.end > node.size() {
                tx.contents(node).zero_behind_end(range.end)?;
                node.set_size(range.end);
            }
            Ok(())
        })
    }

    fn map_alone(&self, extents: bool) -> Result<()> {
        self.change_file(|tx, node| {
            rules::may(node, Operation::Remap)?;
            tx.contents(node).grow_out()?;
            map::may_have(tx.format, node, if extents { MapForm::Extents } else { MapForm::Pointers })?;
            tx.map(node).switch(extents)
        })
    }

    /// Changes a regular file's contents: with the times that brings, and stored.
    fn change_file(&self, verb: impl Fn(&mut Tx<'v>, &mut Inode) -> Result<()>) -> Result<()> {
        change(self.volume, |tx| {
            let mut node = tx.inode(self.number)?;
            match file_type(&node)? {
                FileType::Regular => {}
                FileType::Directory => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid("only regular files have a size to change".into())),
            }
            let before = node.clone();
            verb(tx, &mut node)?;
            if node != before && !self.keep_times {
                tx.touch(&mut node, &[TimeField::Modify, TimeField::Change]);
            }
            tx.note_size(node.size());
            tx.note_map(&node);
            tx.store(&mut node)
        })
    }
}

/// As [`Volume::seek`], in an inode.
fn seek_in(view: View<'_>, node: &Inode, offset: u64, what: Seek) -> Result<Option<u64>> {
    if file_type(node)? != FileType::Regular {
        return Err(Error::Invalid("only regular files have holes".into()));
    }
    let size = node.size();
    if offset >= size {
        return Ok(None);
    }
    if node.flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(Some(if what == Seek::Data { offset } else { size }));
    }
    let block_size = view.format.geometry.block_size;
    for segment in view.map(node).segments(ByteRange::new(offset, size).outer(block_size)) {
        let segment = segment?;
        let is_data = matches!(segment.state, State::Mapped(_));
        if is_data == (what == Seek::Data) {
            return Ok(Some(offset.max(u64::from(segment.logical.0) << block_size.log2())));
        }
    }
    Ok((what == Seek::Hole).then_some(size))
}

impl<'v> Tx<'v> {
    /// Cuts or lengthens a file. The bytes that its last block holds behind its end become zeros.
    pub(super) fn resize(&mut self, node: &mut Inode, size: u64) -> Result<()> {
        let limit = map::size_limit(self.format, MapForm::of_inode(node));
        if size > limit {
            return Err(Error::FileTooLarge(format!("{size} bytes, at most {limit}")));
        }
        if node.flags().contains(InodeFlags::INLINE_DATA) {
            if self.resize_inline(node, size)? {
                return Ok(());
            }
            self.contents(node).grow_out()?;
        }
        if size >= node.size() {
            self.contents(node).zero_behind_end(size)?;
        }
        let first = self.format.blocks_for(size);
        self.map(node).unmap(FileBlocks::behind(first))?;
        self.set_end(node, size)
    }

    /// Sets the size of a file whose blocks behind it are gone, or go soon.
    fn set_end(&mut self, node: &mut Inode, size: u64) -> Result<()> {
        if size < node.size() {
            let block = u64::from(self.format.geometry.block_size.bytes());
            self.contents(node).zero_mapped(ByteRange::new(size, size.next_multiple_of(block)))?;
        }
        node.set_size(size);
        Ok(())
    }

    fn resize_inline(&mut self, node: &mut Inode, size: u64) -> Result<bool> {
        let Some(len) = usize::try_from(size).ok().filter(|len| *len <= inline::capacity_max(node)) else {
            return Ok(false);
        };
        let mut contents = inline::contents(node)?;
        contents.resize(len, 0);
        if contents.is_empty() {
            // As a new file: without contents, mapped.
            self.take_inline(node)?;
            return Ok(true);
        }
        self.store_inline(node, &contents)
    }

    /// Takes space for the holes of a range. A file that grows takes a little behind its end each time; a caller that
    /// knows the size takes all of it at once.
    fn preallocate(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        let mut left = range.outer(self.format.geometry.block_size);
        let mut ahead = file::Allocation::default();
        let growing = range.start > 0 && range.start == node.size() && range.len() < LITTLE;
        // One that is longer than an extent is raised like a write (`ext4_alloc_file_blocks`).
        let reserved = left.len() <= u64::from(ondisk::extent::MAX_UNWRITTEN);
        let hint = file::WriteHint { end: range.end, growing, reserved };
        while !left.is_empty() {
            let found = self.view().map(node).lookup(left.first())?;
            let count = found.count.min(left.len());
            left.start += match found.state {
                State::Hole => {
                    let hole = Segment { count, ..found };
                    self.contents(node).map_hole(&mut ahead, hole, &hint, true)?.1
                }
                _ => count,
            };
        }
        Ok(())
    }

    fn punch(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        let size = self.format.geometry.block_size;
        let end = range.end.min(node.size().next_multiple_of(u64::from(size.bytes())));
        let range = ByteRange { end, ..range };
        if range.is_empty() {
            return Ok(());
        }
        let inner = range.inner(size);
        if !inner.is_empty() {
            self.map(node).unmap(inner)?;
        }
        self.zero_edges(node, range)
    }

    fn zero(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        self.preallocate(node, range)?;
        let inner = range.inner(self.format.geometry.block_size);
        if !inner.is_empty() {
            self.map(node).set_unwritten(inner, true)?;
        }
        self.zero_edges(node, range)
    }

    /// Zeros in the parts of blocks at both ends of a range.
    fn zero_edges(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        let size = self.format.geometry.block_size;
        let inner = range.inner(size);
        let mut contents = self.contents(node);
        if inner.start > inner.end {
            return contents.zero_mapped(range);
        }
        let whole = inner.bytes(size);
        contents.zero_mapped(ByteRange { end: whole.start, ..range })?;
        contents.zero_mapped(ByteRange { start: whole.end, ..range })
    }

    /// The blocks of a range that can be moved: one of whole clusters.
    fn whole_units(&self, range: ByteRange) -> Result<FileBlocks> {
        let geometry = &self.format.geometry;
        let unit = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
        if !range.start.is_multiple_of(unit) || !range.len().is_multiple_of(unit) {
            return Err(Error::Invalid(format!("the range has to be made of whole units of {unit} bytes")));
        }
        Ok(range.outer(geometry.block_size))
    }

    fn collapse(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        let blocks = self.whole_units(range)?;
        if range.end >= node.size() {
            return Err(Error::Invalid("the range reaches the end of the file: truncate it instead".into()));
        }
        self.map(node).collapse(blocks)?;
        node.set_size(node.size() - range.len());
        Ok(())
    }

    fn spread(&mut self, node: &mut Inode, range: ByteRange) -> Result<()> {
        let blocks = self.whole_units(range)?;
        if range.start >= node.size() {
            return Err(Error::Invalid("the range begins behind the end of the file".into()));
        }
        let limit = map::size_limit(self.format, MapForm::of_inode(node));
        let size = node.size().checked_add(range.len()).filter(|size| *size <= limit);
        let size = size.ok_or_else(|| Error::FileTooLarge(format!("{} bytes more", range.len())))?;
        self.map(node).spread(blocks)?;
        node.set_size(size);
        Ok(())
    }
}
