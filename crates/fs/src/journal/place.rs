//! Where a journal lies, and its superblock: checked before anything of the log is believed.

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::features::Compat;
use ondisk::inode::{FileType, Inode};
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::log::LogFormat;
use ondisk::superblock::RawSuperblock;
use ondisk::units::{Block, InodeNumber, low_u32};

use crate::cache::Cache;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::map::{Map, State};
use crate::ranges::FileBlocks;
use crate::space::Space;
use crate::tx::View;

/// Pieces of the volume that a journal may consist of. mke2fs makes it of one for each group that it
/// crosses.
const PIECES_MAX: usize = 1 << 18;

/// A stretch of the journal that lies in one piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// First block, counted in the journal.
    first: u32,
    count: u32,
    start: Block,
}

/// The journal of a volume.
pub(crate) struct Log {
    device: Arc<dyn Device>,
    pieces: Vec<Piece>,
    /// As [`Log::pieces`], by place: start and end.
    taken: Vec<(u64, u64)>,
    log2: u32,
    pub(crate) superblock: RawJournalSuperblock,
    pub(crate) format: LogFormat,
}

pub(crate) fn bad(problem: impl Into<String>) -> Error {
    Error::corrupt(Place::Journal, problem)
}

impl Log {
    /// The journal of a volume, with its superblock read.
    pub(crate) fn find(device: &Arc<dyn Device>, raw: &RawSuperblock, format: &Format) -> Result<Self> {
        let inode = journal_inode(device, raw, format)?;
        let blocks = inode.1.size() >> format.geometry.block_size.log2();
        let pieces = pieces(&inode.0, format, &inode.1, blocks)?;
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
    pub(crate) fn length(&self) -> u32 {
        self.superblock.log_end().saturating_sub(self.superblock.s_first.get())
    }

    /// The block behind one of the log, which goes round.
    pub(crate) fn next(&self, block: u32) -> u32 {
        if block + 1 >= self.superblock.log_end() { self.superblock.s_first.get() } else { block + 1 }
    }

    /// Blocks of the journal, superblock and fast commits included.
    pub(crate) fn blocks(&self) -> u32 {
        self.superblock.s_maxlen.get()
    }

    /// Where a block of the journal lies on the volume, in bytes.
    pub(crate) fn offset(&self, block: u32) -> Result<u64> {
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

    /// Whether a block of the volume is one of the journal.
    pub(crate) fn holds(&self, block: u64) -> bool {
        let at = self.taken.partition_point(|(start, _)| *start <= block);
        at.checked_sub(1).and_then(|before| self.taken.get(before)).is_some_and(|(_, end)| block < *end)
    }
}

fn journal_inode(device: &Arc<dyn Device>, raw: &RawSuperblock, format: &Format) -> Result<(Cache, Inode)> {
    if !format.features.compat.contains(Compat::HAS_JOURNAL) {
        return Err(bad("is to be replayed, and the volume has none"));
    }
    let Some(number) = InodeNumber::new(raw.s_journal_inum.get()) else {
        return Err(super::elsewhere());
    };
    let cache = Cache::new(Arc::clone(device), format.geometry.block_size, format.sealer);
    let space = Space::for_reading(&**device, format)?;
    let inode = View::new(&cache, format, &space).inode(number)?;
    if inode.file_type() != Some(FileType::Regular) || inode.links() == 0 || !inode.has_map() {
        return Err(bad(format!("inode {number} is not the file of a journal")));
    }
    Ok((cache, inode))
}

fn pieces(cache: &Cache, format: &Format, inode: &Inode, blocks: u64) -> Result<Vec<Piece>> {
    if blocks > format.geometry.blocks {
        return Err(bad(format!("has {blocks} blocks, the volume only {}", format.geometry.blocks)));
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for segment in Map::new(cache, format, inode).segments(FileBlocks::new(0, blocks)) {
        let segment = segment?;
        let State::Mapped(start) = segment.state else {
            return Err(bad(format!("has a hole at its block {}", segment.logical)));
        };
        let count = low_u32(segment.count);
        match pieces.last_mut() {
            Some(last) if last.start.0 + u64::from(last.count) == start.0 => last.count += count,
            _ => pieces.push(Piece { first: segment.logical.0, count, start }),
        }
        if pieces.len() > PIECES_MAX {
            return Err(bad(format!("lies in more than {PIECES_MAX} pieces")));
        }
    }
    Ok(pieces)
}

fn taken(pieces: &[Piece]) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> =
        pieces.iter().map(|piece| (piece.start.0, piece.start.0 + u64::from(piece.count))).collect();
    taken.sort_unstable();
    taken
}
