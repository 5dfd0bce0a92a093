//! Android's sparse format, after `sparse_format.h` of its `libsparse`: pieces of the disk as they are, as one word
//! over and over (zeros), or as places that need not be written.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use super::contents::{Contents, is_zero};
use ondisk::units::bounded;

const MAGIC: u32 = 0xED26_FF3A;
const HEADER_LEN: u16 = 28;
const CHUNK_HEADER_LEN: u16 = 12;
/// Kinds of pieces.
const RAW: u16 = 0xCAC1;
const FILL: u16 = 0xCAC2;
const ANYTHING: u16 = 0xCAC3;
/// The size that fastboot expects.
const BLOCK: u64 = 4096;
/// Blocks of a piece at most: readers hold one in memory.
const MOST: u64 = 4096;

/// A piece: its kind, and its blocks.
type Piece = (u16, Range<u64>);

pub(super) fn write(
    contents: &Contents,
    file: &File,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let block = if contents.len.is_multiple_of(BLOCK) { BLOCK } else { contents.block };
    let blocks = contents.len.div_ceil(block);
    let total =
        u32::try_from(blocks).map_err(|_| io::Error::other("it has more blocks than the format counts"))?;
    let mut out = io::BufWriter::with_capacity(1 << 20, file.try_clone()?);
    out.write_all(&header(block, total, 0))?;
    let mut chunks = 0_u32;
    let mut at = 0;
    for range in contents.units(block) {
        chunks += chunk(contents, &mut out, (ANYTHING, at..range.start), block)?;
        at = range.start;
        while at < range.end {
            let end = range.end.min(at + MOST);
            for (kind, piece) in pieces(contents, at..end, block)? {
                chunks += chunk(contents, &mut out, (kind, piece), block)?;
            }
            alive((end - at) * block)?;
            at = end;
        }
    }
    chunks += chunk(contents, &mut out, (ANYTHING, at..blocks), block)?;
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header(block, total, chunks))
}

/// Blocks that count, divided into zeros and others.
fn pieces(contents: &Contents, range: Range<u64>, block: u64) -> io::Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = vec![0; bounded::<usize>(block)];
    for number in range {
        contents.read(number * block, &mut bytes)?;
        let kind = if is_zero(&bytes) { FILL } else { RAW };
        match pieces.last_mut() {
            Some((last, run)) if *last == kind => run.end += 1,
            _ => pieces.push((kind, number..number + 1)),
        }
    }
    Ok(pieces)
}

/// Writes a piece, if it is not empty; says how many were written.
fn chunk(contents: &Contents, out: &mut impl Write, piece: Piece, block: u64) -> io::Result<u32> {
    let (kind, blocks) = piece;
    let count = blocks.end - blocks.start;
    if count == 0 {
        return Ok(0);
    }
    let len = match kind {
        RAW => count * block,
        FILL => 4,
        _ => 0,
    };
    let small = |number: u64| bounded::<u32>(number).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&[0; 2])?;
    out.write_all(&small(count))?;
    out.write_all(&small(len + u64::from(CHUNK_HEADER_LEN)))?;
    let mut bytes = vec![0; bounded::<usize>(len)];
    if kind == RAW {
        contents.read(blocks.start * block, &mut bytes)?;
    }
    out.write_all(&bytes)?;
    Ok(1)
}

fn header(block: u64, blocks: u32, chunks: u32) -> Vec<u8> {
    let mut header = MAGIC.to_le_bytes().to_vec();
    for part in [1, 0, HEADER_LEN, CHUNK_HEADER_LEN] {
        header.extend(part.to_le_bytes());
    }
    header.extend(bounded::<u32>(block).to_le_bytes());
    header.extend(blocks.to_le_bytes());
    header.extend(chunks.to_le_bytes());
    // No checksum.
    header.extend([0; 4]);
    header
}
