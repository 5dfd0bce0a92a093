//! How large a journal is.

use ondisk::features::Compat;
use ondisk::journal::MIN_JOURNAL_BLOCKS;

use super::options::Options;
use super::shape::{Shape, invalid, wrong};
use crate::Result;
use ondisk::invariant;

/// Most blocks of a journal, as mke2fs allows.
const MOST: u64 = 10_240_000;
/// Part of the journal's size that the fast-commit area has where nothing else is said.
const FAST_COMMIT_SHARE: u32 = 64;
/// Volumes with fewer blocks get no journal.
pub(super) const LEAST_VOLUME: u64 = 2048;

/// Blocks of the journal that mke2fs gives a volume of this number of blocks.
#[must_use]
pub fn default_blocks(blocks: u64) -> u32 {
    const K: u64 = 1024;
    match blocks {
        _ if blocks < 32 * K => 1024,
        _ if blocks < 256 * K => 4096,
        _ if blocks < 512 * K => 8192,
        _ if blocks < 4096 * K => 16_384,
        _ if blocks < 8192 * K => 32_768,
        _ if blocks < 16_384 * K => 65_536,
        _ if blocks < 32_768 * K => 131_072,
        _ => 262_144,
    }
}

/// Blocks of the log and of the fast-commit area behind it.
pub(super) fn of_volume(options: &Options, shape: &Shape, free: u64) -> Result<(u32, u32)> {
    let size = u64::from(shape.block_size.bytes());
    let log = match options.journal.size {
        Some(bytes) => bytes / size,
        None => u64::from(default_blocks(shape.blocks)),
    };
    let fast = match options.journal.fast_commit_size {
        Some(_) if !shape.features.compat.contains(Compat::FAST_COMMIT) => {
            return wrong("-J", "a fast-commit size needs the fast_commit feature (-O fast_commit)");
        }
        Some(bytes) => bytes / size,
        None if shape.features.compat.contains(Compat::FAST_COMMIT) => log / u64::from(FAST_COMMIT_SHARE),
        None => 0,
    };
    let least = u64::from(MIN_JOURNAL_BLOCKS);
    if log < least || log.saturating_add(fast) > MOST {
        return wrong("-J", format!("a journal of {log} blocks is not from {least} to {MOST} blocks"));
    }
    if log + fast > free / 2 && options.journal.size.is_some() {
        return invalid(format!("a journal of {log} blocks is too large: only {free} blocks are free"));
    }
    let log = invariant!(u32::try_from(log), "the journal has at most MOST blocks");
    Ok((log, invariant!(u32::try_from(fast), "the journal has at most MOST blocks")))
}
