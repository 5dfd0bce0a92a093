//! Sizes and space of regular files: truncate, the modes of fallocate, seeking holes.
//!
//! The rules are those of Linux: ranges are bytes; whole blocks change in the map, the parts of
//! blocks at both edges get zeros.

use ondisk::inode::{FileType, Inode, InodeFlags, TimeField};
use ondisk::units::{FileBlock, InodeNumber, low_u32};

use super::attrs::file_type;
use super::rules::{self, Deed};
use super::write::WriteOptions;
use crate::dirty::{Growth, Reason};
use crate::error::{Error, Result};
use crate::map::{self, Segment, Segments, State};
use crate::tx::Tx;
use crate::volume::Volume;
use crate::{file, inline, inode};

/// What is done to a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Space is taken for holes, which go on reading as zeros; the file grows to hold the range.
    Extend,
    /// The same, without growing.
    KeepSize,
    /// The range becomes a hole.
    PunchHole,
    /// The range reads as zeros and has space; the file grows to hold it.
    ZeroRange,
    /// The same, without growing.
    ZeroRangeKeepSize,
    /// The range vanishes: what is behind it moves forward.
    CollapseRange,
    /// A hole of the range's length appears: what is behind its start moves back.
    InsertRange,
}

/// What to look for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// A hole, or space that was never written; the end of the file counts as one.
    Hole,
}

/// Does something to a range, from front to back, in parts of at most so much: as large as the journal has
/// room for, cut at multiples of a unit. What fits is tried twice as long next: ranges may be mostly empty.
pub(super) fn in_parts(
    (mut at, end): (u64, u64),
    unit: u64,
    most: u64,
    mut part: impl FnMut((u64, u64)) -> Result<()>,
) -> Result<()> {
    let mut len = most;
    while at < end {
        let cut = at.saturating_add(len) / unit * unit;
        let stop = cut.max((at / unit + 1) * unit).min(end);
        match part((at, stop)) {
            Err(Error::TooLargeForLog { .. }) if stop - at > unit => len = (stop - at) / 2,
            done => {
                done?;
                at = stop;
                len = len.saturating_mul(2).min(most);
            }
        }
    }
    Ok(())
}

/// Space that is taken by less at once behind the end of a file will be followed by more.
const LITTLE: u64 = 1 << 20;

impl Volume {
    /// Gives a regular file a size: what is behind it is freed, what is added is a hole.
    ///
    /// # Errors
    /// Not a regular file, one that can't be changed, a size over what the map can hold; broken
    /// structures; the device's failure.
    pub fn truncate(&self, number: InodeNumber, size: u64) -> Result<()> {
        self.may_reshape(number, Deed::Truncate, WriteOptions::default())?;
        let file = self.session.delayed.enter(number);
        let _alone = file.close();
        let done = self.change_file(number, |update, node| {
            rules::may(node, Deed::Truncate)?;
            self.resize(update, node, size)
        });
        match done {
            Err(Error::TooLargeForLog { .. }) => self.truncate_in_steps(number, size)?,
            done => done?,
        }
        let mut state = file.state();
        let was_longer = state.pages.end() > size;
        self.session.delayed.change(&file, &mut state, self.now(), |pages| pages.cut(size));
        if state.pages.is_empty() {
            (state.promise, state.clusters, state.growth) = (None, 0, Growth::default());
        }
        drop(state);
        self.space.truncated(number);
        if was_longer { self.note_write(number, WriteOptions::default()) } else { Ok(()) }
    }

    /// Cuts a file of which more goes than one transaction can free: its size changes at once.
    fn truncate_in_steps(&self, number: InodeNumber, size: u64) -> Result<()> {
        // Or it would be finished, and taken off the list, by others meanwhile.
        let _pin = self.pin(number)?;
        self.change_file(number, |update, node| {
            self.join_orphans(update, node);
            self.set_end(update, node, size)
        })?;
        self.cut_in_steps(number, file::blocks_of(&self.format, size))?;
        self.change(|update| {
            let mut node = self.load_in(update, number)?;
            if node.links() == 0 {
                return Ok(());
            }
            self.leave_orphans(update, &node)?;
            node.raw_mut().i_dtime.set(0);
            inode::store(update, &self.format, &self.space, &mut node)
        })
    }

    /// Keeps a file to the caller, with nothing of it delayed.
    pub(super) fn alone<T>(&self, number: InodeNumber, verb: impl FnOnce() -> Result<T>) -> Result<T> {
        let file = self.session.delayed.enter(number);
        let _alone = file.close();
        self.flush_shared(&file, Reason::Asked)?;
        verb()
    }

    /// Makes a regular file longer: what is added is a hole.
    ///
    /// # Errors
    /// A size below the present one, or over what the map can hold.
    pub fn extend(&self, number: InodeNumber, size: u64) -> Result<()> {
        self.may_reshape(number, Deed::Truncate, WriteOptions::default())?;
        self.alone(number, || {
            self.change_file(number, |update, node| {
                rules::may(node, Deed::Truncate)?;
                if size < node.size() {
                    return Err(Error::Invalid("this only makes a file longer".into()));
                }
                if size == node.size() { Ok(()) } else { self.resize(update, node, size) }
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

    /// As [`Volume::allocate`], on behalf of somebody who may not keep the special bits of the file.
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
        self.may_reshape(number, Deed::Allocate(mode), options)?;
        self.alone(number, || {
            let part = |range| self.allocate_alone(number, mode, range);
            if matches!(mode, Allocate::CollapseRange | Allocate::InsertRange) {
                return part((offset, end));
            }
            let geometry = &self.format.geometry;
            let unit = u64::from(geometry.blocks_per_cluster()) << geometry.block_size.log2();
            in_parts((offset, end), unit, u64::MAX, part)
        })
    }

    /// Before the contents of a file change: whether they may, and what the change takes from it.
    fn may_reshape(&self, number: InodeNumber, deed: Deed, options: WriteOptions) -> Result<()> {
        let node = self.load(number)?;
        rules::may(&node, deed)?;
        if file_type(&node)? == FileType::Regular && self.space.is_writable() {
            self.lose_privileges_first(number, options.drop_special_bits)?;
        }
        Ok(())
    }

    fn allocate_alone(&self, number: InodeNumber, mode: Allocate, (offset, end): (u64, u64)) -> Result<()> {
        self.change_file(number, |update, node| {
            rules::may(node, Deed::Allocate(mode))?;
            if end > file::size_limit(&self.format, node) && mode != Allocate::PunchHole {
                return Err(Error::FileTooLarge(format!(
                    "at most {} bytes",
                    file::size_limit(&self.format, node)
                )));
            }
            file::grow_out(self, update, node)?;
            if !node.flags().contains(InodeFlags::EXTENTS) && mode != Allocate::PunchHole {
                return Err(Error::Unsupported("only files mapped by extents can do that".into()));
            }
            match mode {
                Allocate::Extend | Allocate::KeepSize => self.preallocate(update, node, offset, end)?,
                Allocate::PunchHole => self.punch(update, node, offset, end)?,
                Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => self.zero(update, node, offset, end)?,
                Allocate::CollapseRange => self.collapse(update, node, offset, end)?,
                Allocate::InsertRange => self.spread(update, node, offset, end - offset)?,
            }
            if matches!(mode, Allocate::Extend | Allocate::ZeroRange) && end > node.size() {
                file::zero_behind_end(self, update, node, end)?;
                node.set_size(end);
            }
            Ok(())
        })
    }

    /// The next place at or behind `offset` with data, or with none; `None` where none is left
    /// before the end of the file.
    ///
    /// # Errors
    /// Not a regular file; an offset behind its end; a broken map.
    pub fn seek(&self, number: InodeNumber, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.flush_inode(number)?;
        self.steady(number, || self.seek_once(number, offset, what))
    }

    fn seek_once(&self, number: InodeNumber, offset: u64, what: Seek) -> Result<Option<u64>> {
        let node = self.load(number)?;
        if file_type(&node)? != FileType::Regular {
            return Err(Error::Invalid("only regular files have holes".into()));
        }
        let size = node.size();
        if offset >= size {
            return Ok(None);
        }
        if node.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(Some(if what == Seek::Data { offset } else { size }));
        }
        let log2 = self.format.geometry.block_size.log2();
        let end = file::blocks_of(&self.format, size);
        for segment in Segments::new(&*self.cache, &self.format, &node, offset >> log2, end) {
            let segment = segment?;
            let is_data = matches!(segment.state, State::Mapped(_));
            if is_data == (what == Seek::Data) {
                return Ok(Some(offset.max(u64::from(segment.logical.0) << log2)));
            }
        }
        Ok((what == Seek::Hole).then_some(size))
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
        self.alone(number, || self.map_alone(number, extents))
    }

    fn map_alone(&self, number: InodeNumber, extents: bool) -> Result<()> {
        self.change_file(number, |update, node| {
            rules::may(node, Deed::Remap)?;
            file::grow_out(self, update, node)?;
            if !extents && node.size() > u64::from(u32::MAX) << 9 {
                return Err(Error::FileTooLarge("for block pointers".into()));
            }
            map::switch(&self.format, &self.space, update, node, extents)
        })
    }

    /// Changes a regular file's contents: with the times that brings, and stored.
    fn change_file<'v>(
        &'v self,
        number: InodeNumber,
        verb: impl Fn(&mut Tx<'v>, &mut Inode) -> Result<()>,
    ) -> Result<()> {
        self.change(|update| {
            let mut node = self.load_in(update, number)?;
            match file_type(&node)? {
                FileType::Regular => {}
                FileType::Directory => return Err(Error::IsDirectory),
                _ => return Err(Error::Invalid("only regular files have a size to change".into())),
            }
            let before = node.clone();
            verb(update, &mut node)?;
            if node != before {
                update.touch(&mut node, &[TimeField::Modify, TimeField::Change]);
            }
            self.note_size(node.size());
            self.note_map(&node);
            inode::store(update, &self.format, &self.space, &mut node)
        })
    }

    /// Cuts or lengthens a file. The bytes that its last block holds behind its end become zeros.
    pub(super) fn resize(&self, update: &mut Tx<'_>, node: &mut Inode, size: u64) -> Result<()> {
        let limit = file::size_limit(&self.format, node);
        if size > limit {
            return Err(Error::FileTooLarge(format!("{size} bytes, at most {limit}")));
        }
        if node.flags().contains(InodeFlags::INLINE_DATA) {
            if self.resize_inline(node, size)? {
                return Ok(());
            }
            file::grow_out(self, update, node)?;
        }
        if size >= node.size() {
            file::zero_behind_end(self, update, node, size)?;
        }
        let first = file::blocks_of(&self.format, size);
        map::unmap(&self.format, &self.space, update, node, first, 1 << 32)?;
        self.set_end(update, node, size)
    }

    /// Sets the size of a file whose blocks behind it are gone, or go soon.
    fn set_end(&self, update: &mut Tx<'_>, node: &mut Inode, size: u64) -> Result<()> {
        if size < node.size() {
            let block = u64::from(self.format.geometry.block_size.bytes());
            file::zero_mapped(self, update, node, size, size.next_multiple_of(block))?;
        }
        node.set_size(size);
        Ok(())
    }

    fn resize_inline(&self, node: &mut Inode, size: u64) -> Result<bool> {
        let Some(len) = usize::try_from(size).ok().filter(|len| *len <= inline::capacity_max(node)) else {
            return Ok(false);
        };
        let mut contents = inline::contents(node)?;
        contents.resize(len, 0);
        if contents.is_empty() {
            // As a new file: without contents, mapped.
            inline::take(&self.format, node)?;
            return Ok(true);
        }
        inline::store(&self.format, node, &contents)
    }

    /// Whole blocks inside a range, and those that it touches.
    fn blocks_in(&self, offset: u64, end: u64) -> ((u64, u64), (u64, u64)) {
        let log2 = self.format.geometry.block_size.log2();
        let inner = (file::blocks_of(&self.format, offset), end >> log2);
        let outer = (offset >> log2, file::blocks_of(&self.format, end));
        (inner, outer)
    }

    /// Takes space for the holes of a range. Little by little behind the end is how a file grows; who knows its
    /// size says it at once.
    fn preallocate(&self, update: &mut Tx<'_>, node: &mut Inode, offset: u64, end: u64) -> Result<()> {
        let (_, (mut at, stop)) = self.blocks_in(offset, end);
        let mut ahead = file::Ahead::default();
        let growing = offset == node.size() && end - offset < LITTLE;
        let hint = file::WriteHint { end, growing };
        while at < stop {
            let found = map::lookup(&*update, &self.format, node, FileBlock(low_u32(at)))?;
            let count = found.count.min(stop - at);
            at += match found.state {
                State::Hole => {
                    let hole = Segment { count, ..found };
                    file::map_hole(self, update, node, &mut ahead, hole, &hint, true)?.1
                }
                _ => count,
            };
        }
        Ok(())
    }

    fn punch(&self, update: &mut Tx<'_>, node: &mut Inode, offset: u64, end: u64) -> Result<()> {
        let block = u64::from(self.format.geometry.block_size.bytes());
        let end = end.min(node.size().next_multiple_of(block));
        if offset >= end {
            return Ok(());
        }
        let ((from, to), _) = self.blocks_in(offset, end);
        if from < to {
            map::unmap(&self.format, &self.space, update, node, from, to)?;
        }
        self.zero_edges(update, node, offset, end)
    }

    fn zero(&self, update: &mut Tx<'_>, node: &mut Inode, offset: u64, end: u64) -> Result<()> {
        self.preallocate(update, node, offset, end)?;
        let (inner, _) = self.blocks_in(offset, end);
        if inner.0 < inner.1 {
            map::set_unwritten(&self.format, &self.space, update, node, inner, true)?;
        }
        self.zero_edges(update, node, offset, end)
    }

    /// Zeros in the parts of blocks at both ends of a range.
    fn zero_edges(&self, update: &mut Tx<'_>, node: &Inode, offset: u64, end: u64) -> Result<()> {
        let log2 = self.format.geometry.block_size.log2();
        let ((from, to), _) = self.blocks_in(offset, end);
        if from > to {
            return file::zero_mapped(self, update, node, offset, end);
        }
        file::zero_mapped(self, update, node, offset, from << log2)?;
        file::zero_mapped(self, update, node, to << log2, end)
    }

    /// The unit in which ranges can be moved: a cluster.
    fn whole_units(&self, offset: u64, len: u64) -> Result<(u64, u64)> {
        let geometry = &self.format.geometry;
        let log2 = geometry.block_size.log2();
        let unit = u64::from(geometry.blocks_per_cluster()) << log2;
        if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
            return Err(Error::Invalid(format!("the range has to be made of whole units of {unit} bytes")));
        }
        Ok((offset >> log2, len >> log2))
    }

    fn collapse(&self, update: &mut Tx<'_>, node: &mut Inode, offset: u64, end: u64) -> Result<()> {
        let (from, count) = self.whole_units(offset, end - offset)?;
        if end >= node.size() {
            return Err(Error::Invalid("the range reaches the end of the file: truncate it instead".into()));
        }
        map::collapse(&self.format, &self.space, update, node, from, from + count)?;
        node.set_size(node.size() - (end - offset));
        Ok(())
    }

    fn spread(&self, update: &mut Tx<'_>, node: &mut Inode, offset: u64, len: u64) -> Result<()> {
        let (from, count) = self.whole_units(offset, len)?;
        if offset >= node.size() {
            return Err(Error::Invalid("the range begins behind the end of the file".into()));
        }
        let size = node.size().checked_add(len).filter(|size| *size <= file::size_limit(&self.format, node));
        let size = size.ok_or_else(|| Error::FileTooLarge(format!("{len} bytes more")))?;
        map::spread(&self.format, &self.space, update, node, from, count)?;
        node.set_size(size);
        Ok(())
    }
}
