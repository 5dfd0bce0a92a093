//! The map of blocks that `bmaptool` copies by, in version 2.0 of its format: which blocks of an image count, with the
//! SHA-256 of each run of them and of the map itself.

use std::fmt::Write;
use std::io;
use std::ops::Range;

use sha2::{Digest, Sha256};

use super::contents::{Contents, PIECE_LEN};

pub(super) fn text(contents: &Contents, alive: &mut dyn FnMut(u64) -> io::Result<()>) -> io::Result<String> {
    let block = contents.block;
    let ranges = contents.units(block);
    let mut lines = String::new();
    for range in &ranges {
        let hash = hash(contents, range, alive)?;
        let last = range.end - 1;
        let shown = if range.start == last { format!("{last}") } else { format!("{}-{last}", range.start) };
        lines.push_str(&format!("        <Range chksum=\"{hash}\">{shown}</Range>\n"));
    }
    let mapped: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let whole = |hash: &str| {
        let (len, blocks) = (contents.len, contents.len.div_ceil(block));
        format!(
            "<?xml version=\"1.0\" ?>\n<bmap version=\"2.0\">\n    <ImageSize>{len}</ImageSize>\n    \
             <BlockSize>{block}</BlockSize>\n    <BlocksCount>{blocks}</BlocksCount>\n    \
             <MappedBlocksCount>{mapped}</MappedBlocksCount>\n    <ChecksumType>sha256</ChecksumType>\n    \
             <BmapFileChecksum>{hash}</BmapFileChecksum>\n    <BlockMap>\n{lines}    </BlockMap>\n</bmap>\n"
        )
    };
    // The map's own checksum is that of the map with zeros in its place.
    let own = hex(&Sha256::digest(whole(&"0".repeat(64)).as_bytes()));
    Ok(whole(&own))
}

fn hash(
    contents: &Contents,
    blocks: &Range<u64>,
    alive: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<String> {
    let mut hash = Sha256::new();
    let (mut at, end) = (blocks.start * contents.block, (blocks.end * contents.block).min(contents.len));
    let mut bytes = vec![0; PIECE_LEN];
    while at < end {
        let len = usize::try_from(end - at).map_or(PIECE_LEN, |left| left.min(PIECE_LEN));
        let Some(piece) = bytes.get_mut(..len) else { break };
        contents.read(at, piece)?;
        hash.update(piece);
        at += len as u64;
        alive(len as u64)?;
    }
    Ok(hex(&hash.finalize()))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
