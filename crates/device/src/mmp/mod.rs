//! Multiple mount protection: the mark by which a host that writes a volume keeps the others off it.
//!
//! Owns: taking the mark, renewing it, and clearing it; the device that writes no more once another host has it. Excludes:
//! the layout of the block (`ondisk::mmp`); which openings take it, which they themselves say.
//!
//! | module | owns |
//! | --- | --- |
//! | `host` | what is asked of the machine: its name, clock and random numbers |
//! | `mark` | where the mark lies, and reading and writing it past all caches |
//! | `acquisition` | the rule of Linux by which it is taken |
//! | `guard` | the device while this host has it |
//!
//! Two hosts that share a disk see nothing of each other but its bytes. Who wants to write changes the sequence in the
//! block, waits until each that had seen the old one must have written its own, and looks again: the last one has it. From
//! then on it renews the sequence, so that who comes later and waits sees it change.

mod acquisition;
mod guard;
mod host;
mod mark;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use acquisition::Purpose;
pub use guard::MmpGuard;
pub use host::{Host, ThisHost};

use crate::{Device, Protection, Result, read_superblock};
use mark::MmpBlock;
use ondisk::mmp::RawMmp;
use ondisk::superblock::RawSuperblock;

/// Takes the mark of the volume on a device, which is given back as one that holds it. A device that other hosts can't
/// write, a volume without multiple mount protection, or one whose block is damaged, comes back as it is.
///
/// It waits: 11 seconds at least, twice that after a host that did not clear its mark.
///
/// # Errors
/// [`Error::InUse`](crate::Error::InUse): another host has it, by name. The device's failure.
pub fn take(device: Arc<dyn Device>, purpose: Purpose, host: Arc<dyn Host>) -> Result<Arc<dyn Device>> {
    Ok(match acquire(&device, purpose, host)? {
        Some(held) => Arc::new(held),
        None => device,
    })
}

/// As [`take`]; `None` where there is nothing to be held.
///
/// # Errors
/// As [`take`].
pub fn acquire(device: &Arc<dyn Device>, purpose: Purpose, host: Arc<dyn Host>) -> Result<Option<MmpGuard>> {
    if device.protection() != Protection::Open {
        return Ok(None);
    }
    // What has no superblock is refused, or mended, by who opens it; and so is a damaged block.
    let Ok(raw) = read_superblock(&**device) else { return Ok(None) };
    let Some(place) = MmpBlock::from_superblock(&raw) else { return Ok(None) };
    acquisition::take(device, place, purpose, host)
}

/// Returns the MMP block of a volume; `None` where it has none, or none that can be read.
#[must_use]
pub fn read_block(device: &dyn Device, raw: &RawSuperblock) -> Option<RawMmp> {
    let place = MmpBlock::from_superblock(raw)?;
    let mut bytes = vec![0; size_of::<RawMmp>()];
    device.read_at(place.offset, &mut bytes).ok()?;
    place.parse(&bytes)
}
