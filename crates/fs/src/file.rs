//! Contents of files: reading through the map, and writing whole stretches at once.
//!
//! Owns: turning byte ranges into runs of blocks: [`Contents`] to read, [`ContentsMut`] to change. Excludes: names,
//! and where blocks are chosen.

use ondisk::corrupt::Place;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, BlockRun, FileBlock, low_u32, saturated};
use placement::{FileState, Mapped};

use crate::bytes;
use crate::cache::Role;
use crate::crypt;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::inline;
use crate::map::{self, MapForm, NewRun, Segment, State};
use crate::ranges::{ByteRange, FileBlocks};
use crate::space::{DataRequest, Reserved};
use crate::tx::{Tx, View};

/// The contents of an inode, to read.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'a> {
    view: View<'a>,
    inode: &'a Inode,
}

/// The contents of an inode, to change. The inode is changed in memory only.
pub(crate) struct ContentsMut<'t, 'v> {
    tx: &'t mut Tx<'v>,
    inode: &'t mut Inode,
}

impl<'a> View<'a> {
    /// The contents of an inode.
    pub(crate) fn contents(self, inode: &'a Inode) -> Contents<'a> {
        Contents { view: self, inode }
    }
}

impl<'v> Tx<'v> {
    /// The contents of an inode, to change.
    pub(crate) fn contents<'t>(&'t mut self, inode: &'t mut Inode) -> ContentsMut<'t, 'v> {
        ContentsMut { tx: self, inode }
    }
}

/// Copies what lies at `offset` of contents that may be shorter than the size says; zeros behind.
pub(crate) fn fill(buffer: &mut [u8], contents: &[u8], offset: u64) {
    let start = saturated::<usize>(offset).min(contents.len());
    let found = contents.get(start..).unwrap_or_default();
    let len = found.len().min(buffer.len());
    let (head, tail) = buffer.split_at_mut(len);
    head.copy_from_slice(&found[..len]);
    tail.fill(0);
}

impl Contents<'_> {
    /// Reads at an offset; returns how many bytes, fewer only at the end of file.
    ///
    /// # Errors
    /// A broken map, the device's failure.
    pub(crate) fn read(self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.inode.size().saturating_sub(offset);
        let len = saturated::<usize>(left).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..len).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        if self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            fill(buffer, &inline::contents(self.inode)?, offset);
            return Ok(len);
        }
        let blocks = ByteRange::new(offset, offset + len as u64).outer(self.view.format.geometry.block_size);
        self.read_segments(self.view.map(self.inode).segments(blocks), offset, buffer)?;
        Ok(len)
    }

    /// Reads what lies in stretches of the file, which cover the range; zeros behind the last.
    ///
    /// # Errors
    /// An error of one of the segments; the device's failure.
    pub(crate) fn read_segments(
        self,
        segments: impl Iterator<Item = Result<Segment>>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let geometry = &self.view.format.geometry;
        let log2 = geometry.block_size.log2();
        let end = offset + buffer.len() as u64;
        let opened = crypt::Opened::for_file(self.view.blocks, self.view.format, self.inode)?;
        let (mut rest, mut at) = (buffer, offset);
        for segment in segments {
            let segment = segment?;
            let start = u64::from(segment.logical.0) << log2;
            let stop = (start + (segment.count << log2)).min(end);
            let len = saturated::<usize>(stop - at).min(rest.len());
            let (piece, later) = rest.split_at_mut(len);
            match segment.state {
                State::Hole | State::Unwritten(_) => piece.fill(0),
                State::Mapped(block) => {
                    let place = geometry.byte_offset(block) + (at - start);
                    self.read_piece(opened.as_ref(), place, at, piece)?;
                }
            }
            (rest, at) = (later, stop);
        }
        // Behind the last block a map can hold nothing was ever written.
        rest.fill(0);
        Ok(())
    }

    /// Reads a part of a mapped segment from its place on the device; `at` is its place in the file.
    fn read_piece(
        self,
        opened: Option<&crypt::Opened<'_>>,
        place: u64,
        at: u64,
        piece: &mut [u8],
    ) -> Result<()> {
        let failed = |source| Error::io(format!("reading inode {} at {at}", self.inode.number()), source);
        let Some(opened) = opened else {
            return self.view.blocks.read_data(place, piece).map_err(failed);
        };
        // Whole units, of which a segment has whole numbers.
        let first = at - at % opened.unit();
        let end = (at + piece.len() as u64).next_multiple_of(opened.unit());
        let mut units = vec![0; bytes::length(end - first)?];
        self.view.blocks.read_data(place - (at - first), &mut units).map_err(failed)?;
        opened.decrypt(first, &mut units);
        let skipped = bytes::length(at - first)?;
        piece.copy_from_slice(bytes::part(&units, skipped..skipped + piece.len())?);
        Ok(())
    }

    /// Reads all of a file that is known to be small.
    ///
    /// # Errors
    /// A size over `limit`; as [`Contents::read`].
    pub(crate) fn read_all(self, limit: u64) -> Result<Vec<u8>> {
        let size = self.inode.size();
        if size > limit {
            let problem = format!("size {size} is over {limit}");
            return Err(Error::corrupt(Place::Inode(self.inode.number()), problem));
        }
        let mut contents = vec![0; bytes::length(size)?];
        self.read(0, &mut contents)?;
        Ok(contents)
    }

    /// The target of a symbolic link. One that is too long for the inode stands in a block of metadata,
    /// read through the cache as such.
    ///
    /// # Errors
    /// A size of zero or over a block, a broken map, the device's failure.
    pub(crate) fn link_target(self) -> Result<Vec<u8>> {
        let size = self.inode.size();
        if size == 0 || size > u64::from(self.view.format.geometry.block_size.bytes()) {
            let problem = format!("a symbolic link of {size} bytes");
            return Err(Error::corrupt(Place::Inode(self.inode.number()), problem));
        }
        let mut target = vec![0; bytes::length(size)?];
        if self.inode.has_map() {
            let block = self.view.map(self.inode).block_at(FileBlock(0))?;
            fill(&mut target, &self.view.blocks.read(block, Role::Plain)?, 0);
        } else if self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            fill(&mut target, &inline::contents(self.inode)?, 0);
        } else {
            fill(&mut target, &self.inode.raw().i_block, 0);
        }
        crypt::target(self.view.blocks, self.view.format, self.inode, target)
    }
}

/// Data on its way into one file: the space taken for it, ahead of what is mapped.
#[derive(Default)]
pub(crate) struct Allocation {
    reserved: Option<Reserved>,
    /// The block of the map that was taken last for the data that comes next, which best lies behind it.
    leader: Option<Block>,
}

/// File blocks that are a hole and are to get their places.
#[derive(Clone, Copy)]
pub(crate) struct Unplaced<'a> {
    pub(crate) logical: FileBlock,
    pub(crate) count: u32,
    pub(crate) unwritten: bool,
    /// Request to the volume when nothing is reserved.
    pub(crate) ask: &'a dyn Fn(&Tx<'_>, &Inode) -> Result<DataRequest>,
}

impl Allocation {
    /// Maps (the front of) a hole. Blocks of an indirect map come from the same run as the data, each before the data
    /// that it leads to: so the file is one piece in the order in which it is read.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; a broken map.
    pub(crate) fn map(&mut self, tx: &mut Tx<'_>, inode: &mut Inode, hole: Unplaced<'_>) -> Result<BlockRun> {
        let Unplaced { logical, unwritten, .. } = hole;
        let mut given = Vec::new();
        self.leader = None;
        for _ in 0..tx.view().map(inode).leaders(logical)? {
            let leader = self.take(tx, inode, Unplaced { count: 1, ..hole })?.start;
            self.leader = Some(leader);
            given.push(leader);
        }
        let reach = tx.map(inode).lead(logical, &given)?;
        let run = self.take(tx, inode, Unplaced { count: hole.count.min(reach), ..hole })?;
        tx.map(inode).insert(NewRun { logical, start: run.start, count: run.count, unwritten })?;
        Ok(run)
    }

    /// Takes blocks from what is reserved, and charges them.
    fn take(
        &mut self,
        tx: &mut Tx<'_>,
        inode: &mut Inode,
        Unplaced { logical, count, ask, .. }: Unplaced<'_>,
    ) -> Result<BlockRun> {
        if !self.reserved.as_mut().is_some_and(|reserved| reserved.align_to(logical)) {
            let mut request = ask(tx, inode)?;
            let among = tx.view().map(inode).leaders_among(logical, request.count)?;
            request.count = request.count.saturating_add(among);
            if let Some(leader) = self.leader {
                request.goal = Block(leader.0 + 1);
            }
            self.reserved = Some(tx.space_mut()?.reserve_data(&request)?);
        }
        let Some(reserved) = &mut self.reserved else { return Err(Error::NoSpace) };
        let (run, clusters) = tx.space_mut()?.take(reserved, count);
        let blocks = u64::from(clusters) << tx.format.geometry.cluster_log2;
        tx.map(inode).charge(blocks);
        Ok(run)
    }
}

/// Hints of a write beyond its bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteHint {
    /// One past the last byte that will be written in this go: space up to there is asked for at
    /// once.
    pub(crate) end: u64,
    /// The file may well grow behind that: its final size was not announced.
    pub(crate) growing: bool,
    /// Space is reserved, by a call that says how much.
    pub(crate) reserved: bool,
}

/// Blocks that get bytes.
#[derive(Clone, Copy)]
struct WriteTarget {
    start: Block,
    count: u64,
    /// Their old contents belong to no file: what gets no bytes becomes zero.
    fresh: bool,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Zeros for a range of bytes of the device, in pieces.
fn each_zeros(range: ByteRange, mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = saturated::<usize>(range.end - at).min(ZEROS.len());
        write(at, &ZEROS[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Blocks to ask for at once. A file that fits a group is asked for whole, so that it gets one run;
/// a longer one in pieces, which follow each other where the volume allows, instead of hunting for
/// the one place that holds it all.
fn wanted_at_once(format: &Format, blocks: u64) -> u32 {
    const PIECE: u64 = 8192;
    let whole = u64::from(format.geometry.blocks_per_group);
    low_u32(if blocks <= whole { blocks.max(1) } else { PIECE.min(whole) })
}

/// Request for the space of a hole and of the blocks that will follow it.
fn request(tx: &Tx<'_>, inode: &Inode, hole: Segment, hint: &WriteHint) -> Result<DataRequest> {
    let behind = tx.format.geometry.block_size.blocks_for(hint.end);
    let hinted = behind.saturating_sub(u64::from(hole.logical.0)).max(hole.count);
    let before = block_before(tx, inode, hole.logical)?;
    let file = match tx.space.wants_file() {
        true => Some(state_of(tx, inode, hole.logical, hint)?),
        false => None,
    };
    Ok(DataRequest {
        goal: before.unwrap_or_else(|| tx.space.contents_home(inode.number())),
        logical: hole.logical,
        count: wanted_at_once(tx.format, hinted),
        owner: inode.number(),
        directory: tx.session.handles.directory_of(inode.number()),
        growing: hint.growing && !tx.session.is_loading(),
        process: if before.is_none() { tx.context.process } else { 0 },
        file,
    })
}

/// The state of a file that ext4 knows when it allocates.
fn state_of(tx: &Tx<'_>, inode: &Inode, logical: FileBlock, hint: &WriteHint) -> Result<FileState> {
    let geometry = &tx.format.geometry;
    let ratio = geometry.blocks_per_cluster();
    // ext4 asks for whole clusters, from the first block of one on.
    let begin = FileBlock(logical.0 - logical.0 % ratio);
    let around = tx.view().map(inode).around(begin)?;
    let disk = |block: Block| block.0.saturating_sub(u64::from(geometry.first_data_block));
    let mapped = |(logical, block): (u64, Block)| Mapped { logical, disk: disk(block) };
    let number = inode.number();
    let delays = tx.session.delayed.is_on();
    let seen = tx.session.delayed.find(number).filter(|_| delays);
    let waiting = seen.map_or(0, |file| file.state().pages.end());
    let is_regular = inode.file_type() == Some(FileType::Regular);
    let first = || tx.space.first_goal(number, tx.context.process, delays, is_regular);
    let goal = around.likely.unwrap_or_else(first);
    Ok(FileState {
        bytes: inode.size().max(waiting),
        goal: geometry.cluster_of(goal),
        before: around.before.map(mapped),
        behind: around.behind.map(mapped),
        reserved: hint.reserved,
        // Write-back itself is one of the users.
        is_open: hint.reserved || tx.session.handles.users(number) > 1,
    })
}

/// Where new data would best begin if there is a block before it in the file: behind that.
fn block_before(tx: &Tx<'_>, inode: &Inode, logical: FileBlock) -> Result<Option<Block>> {
    if let Some(before) = logical.0.checked_sub(1)
        && let State::Mapped(block) | State::Unwritten(block) =
            tx.view().map(inode).lookup(FileBlock(before))?.state
    {
        return Ok(Some(Block(block.0 + 1)));
    }
    Ok(None)
}

impl ContentsMut<'_, '_> {
    fn view(&self) -> View<'_> {
        self.tx.view()
    }

    /// Bytes of contents.
    pub(crate) fn size(&self) -> u64 {
        self.inode.size()
    }

    /// Writes bytes, mapping what was a hole.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::FileTooLarge`], a broken map, the device's failure. Data may have
    /// been written to blocks that then stay free.
    pub(crate) fn write(
        &mut self,
        ahead: &mut Allocation,
        offset: u64,
        data: &[u8],
        hint: &WriteHint,
    ) -> Result<()> {
        let size = self.tx.format.geometry.block_size;
        let limit = map::size_limit(self.tx.format, MapForm::of_inode(self.inode));
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= limit);
        let Some(end) = end else { return Err(Error::FileTooLarge(format!("at most {limit} bytes"))) };
        if data.is_empty() {
            return Ok(());
        }
        self.zero_behind_end(offset)?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let blocks = ByteRange::new(at, end).outer(size);
            let target = self.target(ahead, blocks, hint)?;
            let start = blocks.start << size.log2();
            let stop = (start + (target.count << size.log2())).min(end);
            let len = saturated::<usize>(stop - at).min(rest.len());
            let (piece, later) = rest.split_at(len);
            self.write_run(target, at - start, piece)?;
            (rest, at) = (later, stop);
        }
        if end > self.inode.size() {
            self.inode.set_size(end);
        }
        Ok(())
    }

    /// Blocks for the front of some file blocks.
    fn target(
        &mut self,
        ahead: &mut Allocation,
        blocks: FileBlocks,
        hint: &WriteHint,
    ) -> Result<WriteTarget> {
        let found = self.view().map(self.inode).lookup(blocks.first())?;
        let count = found.count.min(blocks.len());
        Ok(match found.state {
            State::Mapped(start) => WriteTarget { start, count, fresh: false },
            State::Unwritten(start) => {
                let written = FileBlocks::from_count(found.logical, count);
                self.tx.map(self.inode).set_unwritten(written, false)?;
                WriteTarget { start, count, fresh: true }
            }
            State::Hole => {
                let (start, count) = self.map_hole(ahead, Segment { count, ..found }, hint, false)?;
                WriteTarget { start, count, fresh: true }
            }
        })
    }

    /// Writes a piece into a run of blocks, `inside` bytes from its start; what a fresh run holds
    /// around the piece becomes zero.
    fn write_run(&mut self, run: WriteTarget, inside: u64, piece: &[u8]) -> Result<()> {
        let geometry = &self.tx.format.geometry;
        let base = geometry.byte_offset(run.start);
        let end = base + (run.count << geometry.block_size.log2());
        if run.fresh {
            self.put_zeros(ByteRange::new(base, base + inside))?;
        }
        self.tx.put_data(self.inode.number(), base + inside, piece)?;
        if run.fresh {
            self.put_zeros(ByteRange::new(base + inside + piece.len() as u64, end))?;
        }
        Ok(())
    }

    /// Zeros for blocks of the inode, as [`Update::put_data`](crate::txn::Update::put_data).
    fn put_zeros(&mut self, range: ByteRange) -> Result<()> {
        each_zeros(range, |at, zeros| self.tx.put_data(self.inode.number(), at, zeros))
    }

    /// Zeros on the device, for blocks of the inode that read as zeros: the journal has nothing of them.
    pub(crate) fn write_zeros(&mut self, range: ByteRange) -> Result<()> {
        each_zeros(range, |at, zeros| {
            let written = self.tx.device().write_at(at, zeros);
            written.map_err(|source| Error::io(format!("writing inode {}", self.inode.number()), source))
        })
    }

    /// Writes zeros over what is mapped and written of some bytes.
    pub(crate) fn zero_mapped(&mut self, range: ByteRange) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let geometry = &self.tx.format.geometry;
        let size = geometry.block_size;
        let segments = self.view().map(self.inode).segments(range.outer(size));
        for segment in segments.collect::<Result<Vec<_>>>()? {
            if let State::Mapped(block) = segment.state {
                let held = FileBlocks::from_count(segment.logical, segment.count).bytes(size);
                let base = geometry.byte_offset(block);
                let (low, high) = (range.start.max(held.start), range.end.min(held.end));
                let place = ByteRange::new(base + (low - held.start), base + (high - held.start));
                self.put_zeros(place)?;
            }
        }
        Ok(())
    }

    /// Before a file grows to reach byte `offset`: what its last block holds behind its end becomes zero,
    /// should another system have left something there.
    pub(crate) fn zero_behind_end(&mut self, offset: u64) -> Result<()> {
        let block = u64::from(self.tx.format.geometry.block_size.bytes());
        let size = self.inode.size();
        self.zero_mapped(ByteRange::new(size, offset.min(size.next_multiple_of(block))))
    }

    /// Gives blocks to (the front of) a hole; returns the disk run.
    pub(crate) fn map_hole(
        &mut self,
        ahead: &mut Allocation,
        hole: Segment,
        hint: &WriteHint,
        unwritten: bool,
    ) -> Result<(Block, u64)> {
        let hole = Segment { count: self.up_to_shared(hole)?, ..hole };
        let most = low_u32(hole.count.min(u64::from(u32::MAX)));
        let logical = hole.logical;
        if let Some((start, count)) = self.implied(hole)? {
            self.tx.map(self.inode).insert(NewRun { logical, start, count, unwritten })?;
            return Ok((start, u64::from(count)));
        }
        let ask = |tx: &Tx<'_>, inode: &Inode| request(tx, inode, hole, hint);
        let run = ahead.map(self.tx, self.inode, Unplaced { logical, count: most, unwritten, ask: &ask })?;
        Ok((run.start, u64::from(run.count)))
    }

    /// Blocks of a hole before the cluster in which it ends, if that one already serves blocks behind the
    /// hole: those in it must take their own places there.
    fn up_to_shared(&self, hole: Segment) -> Result<u64> {
        let ratio = u64::from(self.tx.format.geometry.blocks_per_cluster());
        let end = u64::from(hole.logical.0) + hole.count;
        let last = end - end % ratio;
        if last == end || last <= u64::from(hole.logical.0) {
            return Ok(hole.count);
        }
        for behind in self.view().map(self.inode).segments(FileBlocks::new(end, last + ratio)) {
            if behind?.state != State::Hole {
                return Ok(last - u64::from(hole.logical.0));
            }
        }
        Ok(hole.count)
    }

    /// With `bigalloc`, a block whose cluster already serves a neighbour in the file must take its own
    /// place in that cluster.
    fn implied(&self, hole: Segment) -> Result<Option<(Block, u32)>> {
        let ratio = self.tx.format.geometry.blocks_per_cluster();
        let inside = hole.logical.0 % ratio;
        if ratio == 1 {
            return Ok(None);
        }
        let first = hole.logical.0 - inside;
        let cluster = FileBlocks::from_count(FileBlock(first), u64::from(ratio));
        for neighbour in self.view().map(self.inode).segments(cluster) {
            let neighbour = neighbour?;
            if let State::Mapped(block) | State::Unwritten(block) = neighbour.state {
                let cluster_start = block.0.saturating_sub(u64::from(neighbour.logical.0 - first));
                let count = u64::from(ratio - inside).min(hole.count);
                return Ok(Some((Block(cluster_start + u64::from(inside)), low_u32(count))));
            }
        }
        Ok(None)
    }

    /// Writes bytes into a file whose contents may be in its inode, where they stay while they fit.
    /// Contents that are `complete` may move there.
    ///
    /// # Errors
    /// As [`ContentsMut::write`].
    pub(crate) fn write_any(
        &mut self,
        ahead: &mut Allocation,
        (offset, data): (u64, &[u8]),
        hint: &WriteHint,
        complete: bool,
    ) -> Result<()> {
        if complete && self.tx.store_inline(self.inode, data)? {
            return Ok(());
        }
        if self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            let mut contents = inline::contents(self.inode)?;
            let end = offset.saturating_add(data.len() as u64);
            if let (Ok(start), Ok(end)) = (usize::try_from(offset), usize::try_from(end))
                && end <= inline::capacity_max(self.inode)
            {
                contents.resize(contents.len().max(end), 0);
                bytes::put(&mut contents, start, data)?;
                if self.tx.store_inline(self.inode, &contents)? {
                    return Ok(());
                }
            }
            self.grow_out()?;
        }
        self.write(ahead, offset, data, hint)
    }

    /// Moves contents out of the inode into blocks.
    ///
    /// # Errors
    /// As [`ContentsMut::write`].
    pub(crate) fn grow_out(&mut self) -> Result<()> {
        if !self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let contents = self.tx.take_inline(self.inode)?;
        let hint = WriteHint { end: contents.len() as u64, growing: false, reserved: false };
        self.write(&mut Allocation::default(), 0, &contents, &hint)
    }
}
