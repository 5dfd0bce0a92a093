//! Where a journal lies, and its superblock: checked before anything of the log is believed.

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::features::Compat;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::log::LogFormat;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, InodeNumber, low_u32};

use crate::map::{self, Failure};
use crate::superblock::Format;
use crate::{Device, Error, Result, groups};

/// A stretch of the journal that lies in one piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// First block, counted in the journal.
    first: u32,
    count: u32,
    start: Block,
}

/// The journal of a volume.
pub struct Log {
    device: Arc<dyn Device>,
    pieces: Vec<Piece>,
    /// As [`Log::pieces`], by place: start and end.
    taken: Vec<(u64, u64)>,
    log2: u32,
    /// Its superblock.
    pub superblock: RawJournalSuperblock,
    /// Layout and checksums of its blocks.
    pub format: LogFormat,
}

/// A complaint about the journal: `problem` completes "journal: ...".
pub(super) fn bad(problem: impl Into<String>) -> Error {
    Error::corrupt(Place::Journal, problem)
}

impl Log {
    /// The journal of the volume whose superblock this is, with its own superblock read.
    ///
    /// # Errors
    /// There is none, or it lies on another device; an inode, a map or a superblock that is no journal's; unknown
    /// features; the device's failure.
    pub fn find(device: &Arc<dyn Device>, raw: &RawSuperblock) -> Result<Self> {
        Self::find_in(device, raw, &Format::from_superblock(raw)?)
    }

    pub(super) fn find_in(device: &Arc<dyn Device>, raw: &RawSuperblock, format: &Format) -> Result<Self> {
        let inode = journal_inode(&**device, raw, format)?;
        let blocks = inode.size() >> format.geometry.block_size.log2();
        let pieces = pieces(&**device, format, &inode, blocks)?;
        let mut log = Log {
            device: Arc::clone(device),
            taken: taken(&pieces),
            pieces,
            log2: format.geometry.block_size.log2(),
            superblock: RawJournalSuperblock::empty(format.geometry.block_size, 1, 0, [0; 16]),
            format: LogFormat::new(&RawJournalSuperblock::empty(format.geometry.block_size, 1, 0, [0; 16])),
        };
        let mut bytes = vec![0; format.geometry.block_size.bytes_usize()];
        log.read(0, &mut bytes)?;
        log.superblock = RawJournalSuperblock::parse(&bytes)?;
        log.format = LogFormat::new(&log.superblock);
        log.refuse(format, blocks)?;
        Ok(log)
    }

    fn refuse(&self, format: &Format, blocks: u64) -> Result<()> {
        let raw = &self.superblock;
        let (size, maxlen) = (raw.s_blocksize.get(), raw.s_maxlen.get());
        if size != format.geometry.block_size.bytes() {
            return Err(bad(format!("its blocks have {size} bytes, not the volume's")));
        }
        if u64::from(maxlen) > blocks {
            return Err(bad(format!("it claims {maxlen} blocks, its inode has {blocks}")));
        }
        if !raw.unknown().is_empty() {
            let bits = raw.unknown().bits();
            return Err(Error::Unsupported(format!("the journal uses unknown features ({bits:#x})")));
        }
        if raw.checksums_are_contradictory() {
            return Err(bad("its features ask for checksums that contradict each other"));
        }
        let start = raw.s_start.get();
        if start != 0 && (start < raw.s_first.get() || start >= raw.log_end()) {
            return Err(bad(format!("start {start} is outside of its log")));
        }
        Ok(())
    }

    /// Blocks of the log.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.superblock.log_end().saturating_sub(self.superblock.s_first.get())
    }

    /// The block behind one of the log, which goes round.
    #[must_use]
    pub fn next(&self, block: u32) -> u32 {
        if block + 1 >= self.superblock.log_end() { self.superblock.s_first.get() } else { block + 1 }
    }

    /// Blocks of the journal, superblock and fast commits included.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.superblock.s_maxlen.get()
    }

    /// Where a block of the journal lies on the volume, in bytes.
    ///
    /// # Errors
    /// The journal has no such block.
    pub fn offset(&self, block: u32) -> Result<u64> {
        let at = self.pieces.partition_point(|piece| piece.first <= block);
        let piece = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        let piece = piece.filter(|piece| block - piece.first < piece.count);
        let piece = piece.ok_or_else(|| bad(format!("has no block {block}")))?;
        Ok((piece.start.0 + u64::from(block - piece.first)) << self.log2)
    }

    pub(crate) fn read(&self, block: u32, bytes: &mut [u8]) -> Result<()> {
        let read = self.device.read_at(self.offset(block)?, bytes);
        read.map_err(|source| Error::io(format!("reading block {block} of the journal"), source))
    }

    /// Blocks that the device has room for.
    pub(crate) fn room(&self) -> u64 {
        self.device.size() >> self.log2
    }

    /// True if a block of the volume is one of the journal.
    pub(crate) fn holds(&self, block: u64) -> bool {
        let at = self.taken.partition_point(|(start, _)| *start <= block);
        at.checked_sub(1).and_then(|before| self.taken.get(before)).is_some_and(|(_, end)| block < *end)
    }
}

fn journal_inode(device: &dyn Device, raw: &RawSuperblock, format: &Format) -> Result<Inode> {
    if !format.features.compat.contains(Compat::HAS_JOURNAL) {
        return Err(bad("is to be replayed, and the volume has none"));
    }
    let Some(number) = InodeNumber::new(raw.s_journal_inum.get()) else {
        return Err(super::elsewhere());
    };
    let inode = groups::inode(device, format, number)?;
    if inode.file_type() != Some(FileType::Regular) || inode.links() == 0 || !inode.has_map() {
        return Err(bad(format!("inode {number} is not the file of a journal")));
    }
    Ok(inode)
}

/// Reads a block of the journal's map, with its checksum verified.
fn read_node(device: &dyn Device, format: &Format, inode: &Inode, block: Block) -> Result<Vec<u8>> {
    if !format.geometry.contains(block, 1) {
        let problem = format!("leads to block {block}, which lies outside the volume");
        return Err(Error::corrupt(Place::Map(inode.number()), problem));
    }
    let mut bytes = vec![0; format.geometry.block_size.bytes_usize()];
    device
        .read_at(format.geometry.byte_offset(block), &mut bytes)
        .map_err(|source| Error::io(format!("reading block {block}"), source))?;
    let seed = format.sealer.inode_seed(inode.number(), inode.generation());
    if inode.flags().contains(InodeFlags::EXTENTS) && !seed.extent_node_is_right(&bytes) {
        return Err(Error::corrupt(Place::Block(block), "checksum of the extent node is wrong"));
    }
    Ok(bytes)
}

fn pieces(device: &dyn Device, format: &Format, inode: &Inode, blocks: u64) -> Result<Vec<Piece>> {
    if blocks > format.geometry.blocks {
        return Err(bad(format!("has {blocks} blocks, the volume only {}", format.geometry.blocks)));
    }
    let read = |block| read_node(device, format, inode, block);
    let map = map::walk(&format.geometry, inode, blocks, read).map_err(|failure| match failure {
        Failure::Read(error) => error,
        Failure::Broken(problem) => Error::corrupt(Place::Map(inode.number()), problem),
    })?;
    let mut pieces = Vec::new();
    let mut next = 0;
    for run in map.runs {
        if run.logical != next || run.unwritten {
            break;
        }
        let count = run.count.min(blocks - next);
        pieces.push(Piece { first: low_u32(next), count: low_u32(count), start: run.start });
        next += count;
    }
    if next < blocks {
        return Err(bad(format!("has a hole at its block {next}")));
    }
    Ok(pieces)
}

fn taken(pieces: &[Piece]) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> =
        pieces.iter().map(|piece| (piece.start.0, piece.start.0 + u64::from(piece.count))).collect();
    taken.sort_unstable();
    taken
}
