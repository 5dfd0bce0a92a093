//! Contents of files: reading through the map, and writing whole stretches at once.
//!
//! Owns: turning byte ranges into runs of blocks. Excludes: names, and where blocks are chosen.

use ondisk::corrupt::Place;
use ondisk::inode::{Inode, InodeFlags};
use ondisk::units::{Block, BlockRun, FileBlock, low_u32};

use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::inline;
use crate::map::{self, NewRun, Segment, Segments, State};
use crate::space::{DataRequest, Reserved};
use crate::txn::Update;
use crate::volume::Volume;

/// File blocks that hold the bytes up to `size`.
pub(crate) fn blocks_of(format: &Format, size: u64) -> u64 {
    format.geometry.block_size.blocks_for(size)
}

/// Reads from a file whose inode is known; returns how many bytes, fewer only at the end of file.
///
/// # Errors
/// A broken map, the device's failure.
pub(crate) fn read_at(volume: &Volume, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let left = inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    let Some(buffer) = buffer.get_mut(..len).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        let contents = inline::contents(inode)?;
        fill(buffer, &contents, offset);
        return Ok(len);
    }
    read_mapped(volume, inode, offset, buffer)?;
    Ok(len)
}

/// Copies what lies at `offset` of contents that may be shorter than the size says; zeros behind.
pub(crate) fn fill(buffer: &mut [u8], contents: &[u8], offset: u64) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
    let found = contents.get(start..).unwrap_or_default();
    let len = found.len().min(buffer.len());
    let (head, tail) = buffer.split_at_mut(len);
    head.copy_from_slice(&found[..len]);
    tail.fill(0);
}

fn read_mapped(volume: &Volume, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let log2 = volume.format.geometry.block_size.log2();
    let end = offset + buffer.len() as u64;
    let mut rest = buffer;
    let mut at = offset;
    for segment in
        Segments::new(&*volume.cache, &volume.format, inode, offset >> log2, ((end - 1) >> log2) + 1)
    {
        let segment = segment?;
        let segment_start = u64::from(segment.logical.0) << log2;
        let stop = (segment_start + (segment.count << log2)).min(end);
        let len = usize::try_from(stop - at).unwrap_or(usize::MAX).min(rest.len());
        let (piece, later) = rest.split_at_mut(len);
        match segment.state {
            State::Hole | State::Unwritten(_) => piece.fill(0),
            State::Mapped(block) => {
                let place = volume.format.geometry.byte_offset(block) + (at - segment_start);
                volume.cache.read_data(place, piece).map_err(|source| {
                    Error::io(format!("reading inode {} at {at}", inode.number()), source)
                })?;
            }
        }
        rest = later;
        at = stop;
    }
    // Behind the last block a map can hold nothing was ever written.
    rest.fill(0);
    Ok(())
}

/// Reads all of a file that is known to be small.
///
/// # Errors
/// A size over `limit`; as [`read_at`].
pub(crate) fn read_all(volume: &Volume, inode: &Inode, limit: u64) -> Result<Vec<u8>> {
    if inode.size() > limit {
        let size = inode.size();
        return Err(Error::corrupt(Place::Inode(inode.number()), format!("size {size} is over {limit}")));
    }
    let mut contents = vec![0; usize::try_from(inode.size()).unwrap_or(0)];
    read_at(volume, inode, 0, &mut contents)?;
    Ok(contents)
}

/// The target of a symbolic link. One that is too long for the inode stands in a block of metadata,
/// read through the cache as such.
///
/// # Errors
/// A size of zero or over a block, a broken map, the device's failure.
pub(crate) fn link_target(volume: &Volume, inode: &Inode) -> Result<Vec<u8>> {
    let block_size = volume.format.geometry.block_size;
    let size = inode.size();
    if size == 0 || size > u64::from(block_size.bytes()) {
        let problem = format!("a symbolic link of {size} bytes");
        return Err(Error::corrupt(Place::Inode(inode.number()), problem));
    }
    let mut target = vec![0; usize::try_from(size).unwrap_or(0)];
    if inode.has_map() {
        let block = map::block_at(&*volume.cache, &volume.format, inode, FileBlock(0))?;
        fill(&mut target, &volume.cache.read(block, Role::Plain)?, 0);
    } else if inode.flags().contains(InodeFlags::INLINE_DATA) {
        fill(&mut target, &inline::contents(inode)?, 0);
    } else {
        fill(&mut target, &inode.raw().i_block, 0);
    }
    Ok(target)
}

/// The largest size of a file with this inode's kind of map.
pub(crate) fn size_limit(format: &Format, inode: &Inode) -> u64 {
    use ondisk::features::RoCompat;
    let size = format.geometry.block_size;
    let by_map = map::block_limit(format, inode) << size.log2();
    // Without huge_file the space charged must fit 32 bits of sectors; map blocks take their share.
    let by_charge = if format.has_ro_compat(RoCompat::HUGE_FILE) { u64::MAX } else { ((1 << 32) - 1) << 9 };
    by_map.min(by_charge)
}

/// Data on its way into one file: the space taken for it, ahead of what is mapped.
#[derive(Default)]
pub(crate) struct Ahead {
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
    /// What to ask the volume for when nothing is reserved.
    pub(crate) ask: &'a dyn Fn(&Update<'_>, &Inode) -> Result<DataRequest>,
}

impl Ahead {
    /// Maps (the front of) a hole. Blocks of an indirect map come from the same run as the data, each before the data that
    /// it leads to: so the file is one piece in the order in which it is read.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; a broken map.
    pub(crate) fn map(
        &mut self,
        volume: &Volume,
        update: &mut Update<'_>,
        inode: &mut Inode,
        hole: Unplaced<'_>,
    ) -> Result<BlockRun> {
        let Unplaced { logical, unwritten, .. } = hole;
        let mut given = Vec::new();
        self.leader = None;
        for _ in 0..map::leaders(&*update, &volume.format, inode, logical)? {
            let leader = self.take(volume, update, inode, Unplaced { count: 1, ..hole })?.start;
            self.leader = Some(leader);
            given.push(leader);
        }
        let reach = map::lead(&volume.format, &volume.space, update, inode, (logical, &given))?;
        let run = self.take(volume, update, inode, Unplaced { count: hole.count.min(reach), ..hole })?;
        let new = NewRun { logical, start: run.start, count: run.count, unwritten };
        map::insert(&volume.format, &volume.space, update, inode, new)?;
        Ok(run)
    }

    /// Takes blocks from what is reserved, and charges them.
    fn take(
        &mut self,
        volume: &Volume,
        update: &mut Update<'_>,
        inode: &mut Inode,
        Unplaced { logical, count, ask, .. }: Unplaced<'_>,
    ) -> Result<BlockRun> {
        let format = &volume.format;
        if !self.reserved.as_mut().is_some_and(|reserved| reserved.align_to(logical)) {
            let mut request = ask(update, inode)?;
            let among = map::leaders_among(&*update, format, inode, (logical, request.count))?;
            request.count = request.count.saturating_add(among);
            if let Some(leader) = self.leader {
                request.goal = Block(leader.0 + 1);
            }
            self.reserved = Some(volume.space.reserve_data(&request, update.account())?);
        }
        let Some(reserved) = &mut self.reserved else { return Err(Error::NoSpace) };
        let (run, clusters) = reserved.take(&volume.space, update, count);
        map::charge(format, inode, u64::from(clusters) << format.geometry.cluster_log2);
        Ok(run)
    }
}

/// What a write needs to know beyond the bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteHint {
    /// One past the last byte that will be written in this go: space up to there is asked for at
    /// once.
    pub(crate) end: u64,
    /// The file may well grow behind that: its final size was not announced.
    pub(crate) growing: bool,
}

/// Writes bytes, mapping what was a hole. The inode is changed in memory only.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooLarge`], a broken map, the device's failure. Data may have
/// been written to blocks that then stay free.
pub(crate) fn write_at(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &mut Inode,
    ahead: &mut Ahead,
    offset: u64,
    data: &[u8],
    hint: &WriteHint,
) -> Result<()> {
    let format = &volume.format;
    let log2 = format.geometry.block_size.log2();
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= size_limit(format, inode));
    let Some(end) = end else {
        return Err(Error::FileTooLarge(format!("at most {} bytes", size_limit(format, inode))));
    };
    if data.is_empty() {
        return Ok(());
    }
    zero_behind_end(volume, update, inode, offset)?;
    let mut at = offset;
    let mut rest = data;
    while !rest.is_empty() {
        let logical = FileBlock(low_u32(at >> log2));
        let wanted = ((end - 1) >> log2) + 1 - u64::from(logical.0);
        let found = map::lookup(&*update, format, inode, logical)?;
        let (start, count, fresh) = match found.state {
            State::Mapped(block) => (block, found.count.min(wanted), false),
            State::Unwritten(block) => {
                let count = found.count.min(wanted);
                let range = (u64::from(logical.0), u64::from(logical.0) + count);
                map::set_unwritten(format, &volume.space, update, inode, range, false)?;
                (block, count, true)
            }
            State::Hole => {
                let hole = Segment { count: found.count.min(wanted), ..found };
                let (start, count) = map_hole(volume, update, inode, ahead, hole, hint, false)?;
                (start, count, true)
            }
        };
        let stop = ((u64::from(logical.0) + count) << log2).min(end);
        let len = usize::try_from(stop - at).unwrap_or(usize::MAX).min(rest.len());
        let (piece, later) = rest.split_at(len);
        let inside = at - (u64::from(logical.0) << log2);
        write_run(volume, update, inode, (start, count), inside, piece, fresh)?;
        rest = later;
        at = stop;
    }
    if end > inode.size() {
        inode.set_size(end);
    }
    Ok(())
}

/// Writes a piece into a run of blocks, `inside` bytes from its start; what a fresh run holds
/// around the piece becomes zero.
fn write_run(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &Inode,
    (start, count): (Block, u64),
    inside: u64,
    piece: &[u8],
    fresh: bool,
) -> Result<()> {
    let base = volume.format.geometry.byte_offset(start);
    if fresh {
        put_zeros(update, inode, base, base + inside)?;
    }
    update.put_data(inode.number(), base + inside, piece)?;
    if fresh {
        let end = base + (count << volume.format.geometry.block_size.log2());
        put_zeros(update, inode, base + inside + piece.len() as u64, end)?;
    }
    Ok(())
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Zeros for blocks of an inode, as [`Update::put_data`].
fn put_zeros(update: &mut Update<'_>, inode: &Inode, mut from: u64, to: u64) -> Result<()> {
    while from < to {
        let len = usize::try_from(to - from).unwrap_or(usize::MAX).min(ZEROS.len());
        update.put_data(inode.number(), from, &ZEROS[..len])?;
        from += len as u64;
    }
    Ok(())
}

/// Zeros on the device, for blocks of an inode that read as zeros: the journal has nothing of them.
pub(crate) fn write_zeros(volume: &Volume, inode: &Inode, mut from: u64, to: u64) -> Result<()> {
    while from < to {
        let len = usize::try_from(to - from).unwrap_or(usize::MAX).min(ZEROS.len());
        let written = volume.cache.device().write_at(from, &ZEROS[..len]);
        written.map_err(|source| Error::io(format!("writing inode {}", inode.number()), source))?;
        from += len as u64;
    }
    Ok(())
}

/// Writes zeros over what is mapped and written of the bytes `from..to`.
pub(crate) fn zero_mapped(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &Inode,
    from: u64,
    to: u64,
) -> Result<()> {
    let log2 = volume.format.geometry.block_size.log2();
    if from >= to {
        return Ok(());
    }
    let segments = Segments::new(&*update, &volume.format, inode, from >> log2, ((to - 1) >> log2) + 1);
    for segment in segments.collect::<Result<Vec<_>>>()? {
        if let State::Mapped(block) = segment.state {
            let start = u64::from(segment.logical.0) << log2;
            let base = volume.format.geometry.byte_offset(block);
            let (low, high) = (from.max(start), to.min(start + (segment.count << log2)));
            put_zeros(update, inode, base + (low - start), base + (high - start))?;
        }
    }
    Ok(())
}

/// Before a file grows to reach byte `offset`: what its last block holds behind its end becomes zero,
/// should another system have left something there.
pub(crate) fn zero_behind_end(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &Inode,
    offset: u64,
) -> Result<()> {
    let block = u64::from(volume.format.geometry.block_size.bytes());
    let size = inode.size();
    zero_mapped(volume, update, inode, size, offset.min(size.next_multiple_of(block)))
}

/// Gives blocks to (the front of) a hole; returns the disk run.
pub(crate) fn map_hole(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &mut Inode,
    ahead: &mut Ahead,
    hole: Segment,
    hint: &WriteHint,
    unwritten: bool,
) -> Result<(Block, u64)> {
    let format = &volume.format;
    let hole = Segment { count: up_to_shared(&*update, format, inode, hole)?, ..hole };
    let most = low_u32(hole.count.min(u64::from(u32::MAX)));
    if let Some((start, count)) = implied(&*update, format, inode, hole)? {
        let run = NewRun { logical: hole.logical, start, count, unwritten };
        map::insert(format, &volume.space, update, inode, run)?;
        return Ok((start, u64::from(count)));
    }
    let ask = |update: &Update<'_>, inode: &Inode| {
        let hinted = blocks_of(format, hint.end).saturating_sub(u64::from(hole.logical.0)).max(hole.count);
        Ok(DataRequest {
            goal: goal(volume, update, inode, hole.logical)?,
            logical: hole.logical,
            count: wanted_at_once(format, hinted),
            owner: inode.number(),
            directory: volume.handles.directory_of(inode.number()),
            growing: hint.growing && !volume.options.loading,
        })
    };
    let hole = Unplaced { logical: hole.logical, count: most, unwritten, ask: &ask };
    let run = ahead.map(volume, update, inode, hole)?;
    Ok((run.start, u64::from(run.count)))
}

/// Blocks to ask for at once. A file that fits a group is asked for whole, so that it gets one run;
/// a longer one in pieces, which follow each other where the volume allows, instead of hunting for
/// the one place that holds it all.
fn wanted_at_once(format: &Format, blocks: u64) -> u32 {
    const PIECE: u64 = 8192;
    let whole = u64::from(format.geometry.blocks_per_group);
    low_u32(if blocks <= whole { blocks.max(1) } else { PIECE.min(whole) })
}

/// Where new data would best begin: behind the block before it, else in the inode's group.
fn goal(volume: &Volume, update: &Update<'_>, inode: &Inode, logical: FileBlock) -> Result<Block> {
    if let Some(before) = logical.0.checked_sub(1)
        && let State::Mapped(block) | State::Unwritten(block) =
            map::lookup(update, &volume.format, inode, FileBlock(before))?.state
    {
        return Ok(Block(block.0 + 1));
    }
    Ok(volume.space.contents_home(&volume.format, inode.number()))
}

/// Blocks of a hole before the cluster in which it ends, if that one already serves blocks behind the
/// hole: those in it must take their own places there.
fn up_to_shared(blocks: &dyn Blocks, format: &Format, inode: &Inode, hole: Segment) -> Result<u64> {
    let ratio = u64::from(format.geometry.blocks_per_cluster());
    let end = u64::from(hole.logical.0) + hole.count;
    let last = end - end % ratio;
    if last == end || last <= u64::from(hole.logical.0) {
        return Ok(hole.count);
    }
    for behind in Segments::new(blocks, format, inode, end, last + ratio) {
        if behind?.state != State::Hole {
            return Ok(last - u64::from(hole.logical.0));
        }
    }
    Ok(hole.count)
}

/// With `bigalloc`, a block whose cluster already serves a neighbour in the file must take its own
/// place in that cluster.
fn implied(
    blocks: &dyn Blocks,
    format: &Format,
    inode: &Inode,
    hole: Segment,
) -> Result<Option<(Block, u32)>> {
    let ratio = format.geometry.blocks_per_cluster();
    let inside = hole.logical.0 % ratio;
    if ratio == 1 {
        return Ok(None);
    }
    let first = hole.logical.0 - inside;
    let cluster = Segments::new(blocks, format, inode, u64::from(first), u64::from(first) + u64::from(ratio));
    for neighbour in cluster {
        let neighbour = neighbour?;
        if let State::Mapped(block) | State::Unwritten(block) = neighbour.state {
            let cluster_start = block.0.saturating_sub(u64::from(neighbour.logical.0 - first));
            let count = u64::from(ratio - inside).min(hole.count);
            return Ok(Some((Block(cluster_start + u64::from(inside)), low_u32(count))));
        }
    }
    Ok(None)
}

/// Writes bytes into a file whose contents may be in its inode, where they stay as long as they fit.
/// Contents that are `complete` may move there.
///
/// # Errors
/// As [`write_at`].
pub(crate) fn write_at_any(
    volume: &Volume,
    update: &mut Update<'_>,
    inode: &mut Inode,
    ahead: &mut Ahead,
    (offset, data): (u64, &[u8]),
    hint: &WriteHint,
    complete: bool,
) -> Result<()> {
    let format = &volume.format;
    if complete && inline::store(format, inode, data)? {
        return Ok(());
    }
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        let mut contents = inline::contents(inode)?;
        let end = offset.saturating_add(data.len() as u64);
        if let (Ok(start), Ok(end)) = (usize::try_from(offset), usize::try_from(end))
            && end <= inline::capacity_max(inode)
        {
            contents.resize(contents.len().max(end), 0);
            if let Some(to) = contents.get_mut(start..end) {
                to.copy_from_slice(data);
            }
            if inline::store(format, inode, &contents)? {
                return Ok(());
            }
        }
        grow_out(volume, update, inode)?;
    }
    write_at(volume, update, inode, ahead, offset, data, hint)
}

/// Moves contents out of the inode into blocks.
///
/// # Errors
/// As [`write_at`].
pub(crate) fn grow_out(volume: &Volume, update: &mut Update<'_>, inode: &mut Inode) -> Result<()> {
    if !inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    let contents = inline::take(&volume.format, inode)?;
    let hint = WriteHint { end: contents.len() as u64, growing: false };
    write_at(volume, update, inode, &mut Ahead::default(), 0, &contents, &hint)
}
