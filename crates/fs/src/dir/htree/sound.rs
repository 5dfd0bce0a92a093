//! Soundness of an index: it can be walked from end to end.

use ondisk::htree::{IndexEntry, Kind};
use ondisk::units::FileBlock;

use super::{Dir, child, parse_index, read_index, root};
use crate::error::{Error, Result};

/// True if the index leads to each block once, in the order of hashes. What is in the leaves is not looked at.
///
/// # Errors
/// The device's failure.
pub(in super::super) fn is_sound(reader: &Dir<'_>) -> Result<bool> {
    match walk(reader) {
        Err(Error::Corrupt(_)) => Ok(false),
        found => found,
    }
}

fn walk(reader: &Dir<'_>) -> Result<bool> {
    let levels = root(reader)?.levels;
    let count = u64::from(reader.count()?);
    // Blocks of the index and leaves, each with its least hash.
    let mut blocks = vec![(FileBlock(0), 0)];
    let (mut first, mut kind) = (0, Kind::Root);
    for _ in 0..levels {
        let level = first..blocks.len();
        first = blocks.len();
        let mut before = None;
        for node in level {
            let (at, low) = blocks[node];
            for (position, entry) in (0..).zip(children(reader, at, kind)?) {
                // The first entry of a node has the hash of the one that leads there.
                let hash = if position == 0 { low } else { entry.hash };
                let in_order = before.is_none_or(|before| hash > before || hash == before && hash & 1 == 1);
                if !in_order || blocks.len() as u64 >= count {
                    return Ok(false);
                }
                before = Some(hash);
                blocks.push((entry.block, hash));
            }
        }
        kind = Kind::Node;
    }
    blocks.sort_unstable();
    blocks.dedup_by_key(|(at, _)| *at);
    Ok(blocks.len() as u64 == count)
}

fn children(reader: &Dir<'_>, at: FileBlock, kind: Kind) -> Result<Vec<IndexEntry>> {
    let (_, bytes) = read_index(reader, at, kind)?;
    let entries = parse_index(reader, at, kind, &bytes)?;
    (0..entries.len()).try_for_each(|position| child(reader, at, &entries, position).map(|_| ()))?;
    Ok(entries.iter().collect())
}
