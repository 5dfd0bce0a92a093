//! zstd in frames of their own with a table of them, after `zstd_seekable_compression_format.md` of zstd: any `zstd -d`
//! unpacks the whole, and a reader that knows the table unpacks any place.

use std::fs::File;
use std::io::{self, Write};

use super::contents::{Contents, PIECE_LEN};

const LEVEL: i32 = 9;
/// A frame that decompressors leave out, and the end of a table of frames.
const SKIPPABLE: u32 = 0x184D_2A5E;
const TABLE_END: u32 = 0x8F92_EAB1;

pub(super) fn write(
    contents: &Contents,
    file: &File,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 20, file.try_clone()?);
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    let mut table = Vec::new();
    let mut frames = 0_u32;
    let mut bytes = vec![0; PIECE_LEN];
    let mut at = 0;
    while at < contents.len {
        let len = usize::try_from(contents.len - at).map_or(PIECE_LEN, |left| left.min(PIECE_LEN));
        let Some(piece) = bytes.get_mut(..len) else { break };
        contents.read(at, piece)?;
        let packed = compressor.compress(piece)?;
        out.write_all(&packed)?;
        table.extend(length(packed.len())?.to_le_bytes());
        table.extend(length(len)?.to_le_bytes());
        frames += 1;
        at += len as u64;
        alive(len as u64)?;
    }
    table.extend(frames.to_le_bytes());
    // No checksums in the table: the frames have them.
    table.push(0);
    table.extend(TABLE_END.to_le_bytes());
    out.write_all(&SKIPPABLE.to_le_bytes())?;
    out.write_all(&length(table.len())?.to_le_bytes())?;
    out.write_all(&table)?;
    out.flush()
}

fn length(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| io::Error::other("the table of frames is too long for its format"))
}
