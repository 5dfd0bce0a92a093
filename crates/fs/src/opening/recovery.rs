//! Recovery before the use of a volume that was not closed cleanly (I30, I32).
//!
//! A crash in an epoch leaves space and inodes in use that have no owner, inodes without a name, counts that are
//! too high, directories with two names, and checksums of bitmaps that fit those of another moment. Only the last has
//! to be put right before the volume is used; the rest is reclaimed while it is (`ops::reclaim`).
//!
//! That goes for volumes that bear the mark of soft updates ([`mark`]). Others were left by programs that keep
//! no such order: a check looks at all of it first. What it finds and can't mend without loss is a person's concern,
//! but for inodes without a name, which are left to be reclaimed.

use std::sync::Arc;

use ondisk::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use platfs_check::{Decision, Issue, PIECE_LEN, Sink, Staged};
use zerocopy::IntoBytes;

use crate::admission::read_superblock;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::OpenOptions;
use crate::order::mark;
use crate::space::{Marked, reseal};

/// Bytes of memory for what changes, and as many for what the check knows.
const MEMORY: u64 = 1 << 30;
/// Issues of inodes that have no name.
const NAMELESS: [&str; 3] = ["directory-unconnected", "inode-unattached", "inode-unattached-empty"];
/// Issues of a directory that was on its way to another: both have its name. It stays where it came
/// first, or where `..` says.
const ON_THE_WAY: [&str; 1] = ["directory-twice"];

/// Issues of quota files: they are made again, with the limits that can be read.
const COUNTED_AGAIN: [&str; 1] = ["quota-file"];

/// Receives what a check finds.
#[derive(Default)]
struct Listener {
    has_nameless: bool,
    /// The first that is a person's concern.
    damage: Option<Issue>,
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        if NAMELESS.contains(&issue.kind.id) {
            self.has_nameless = true;
            return Decision::Leave;
        }
        let id = issue.kind.id;
        if issue.kind.safe || ON_THE_WAY.contains(&id) || COUNTED_AGAIN.contains(&id) {
            return Decision::Repair;
        }
        self.damage.get_or_insert(issue);
        Decision::Leave
    }
}

/// Brings a volume that was not closed cleanly, or has lists of orphans, to where it can be used; returns what has to be
/// reclaimed then.
///
/// # Errors
/// Damage that soft updates do not leave; the device's failure.
pub(super) fn recover(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    has_orphans: bool,
) -> Result<Option<Marked>> {
    let is_ours = mark::is_there(&read_superblock(&**device)?);
    if (!is_ours || has_orphans) && !needs_recovery(device, options)? {
        return Ok(None);
    }
    let mut raw = read_superblock(&**device)?;
    let format = Format::from_superblock(&raw)?;
    let marked = reseal(&**device, &format)?;
    raw.set_free_blocks_count(marked.free.0);
    raw.s_free_inodes_count.set(marked.free.1);
    raw.s_state.set(raw.s_state.get() & !STATE_VALID);
    write_superblock(&**device, &format, raw)?;
    Ok(Some(marked))
}

/// Lets a check look at a volume and mend what it can; says whether anything is left to be reclaimed.
fn needs_recovery(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<bool> {
    let how = platfs_check::Options { now: options.now, memory: MEMORY, ..platfs_check::Options::default() };
    let mut listener = Listener::default();
    let outcome = platfs_check::check(Arc::clone(device), &how, &mut listener)?;
    if let Some(issue) = listener.damage {
        return Err(damaged(&issue));
    }
    write(&**device, &outcome.repaired)?;
    Ok(listener.has_nameless)
}

fn damaged(issue: &Issue) -> Error {
    let whose = issue.place.inode.map_or_else(String::new, |inode| format!(" (inode {inode})"));
    let what = format!("{}{whose}: {}", issue.kind.title, issue.found);
    Error::Unsupported(format!(
        "the volume was not closed cleanly and is damaged; check it before writing: {what}"
    ))
}

fn writing(source: std::io::Error) -> Error {
    Error::io("writing what recovery changed", source)
}

/// Brings repairs to the device, the superblock last, which may say that the volume is in order. Cut off before, it
/// leaves what the next recovery mends likewise.
fn write(device: &dyn Device, repaired: &Staged) -> Result<()> {
    let mut superblock = None;
    for (offset, bytes) in
        repaired.changes().map_err(|source| Error::io("reading what a repair copies", source))?
    {
        if offset == SUPERBLOCK_OFFSET {
            superblock = Some(bytes);
            continue;
        }
        let left = device.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(PIECE_LEN).min(PIECE_LEN);
        device.write_at(offset, bytes.get(..len).unwrap_or_default()).map_err(writing)?;
    }
    device.flush().map_err(writing)?;
    if let Some(bytes) = superblock {
        device.write_at(SUPERBLOCK_OFFSET, &bytes[..]).map_err(writing)?;
        device.flush().map_err(writing)?;
    }
    Ok(())
}

/// Writes the superblock behind all else, and makes that stable.
fn write_superblock(device: &dyn Device, format: &Format, mut raw: RawSuperblock) -> Result<()> {
    device.flush().map_err(writing)?;
    mark::put(&mut raw);
    format.sealer.seal_superblock(&mut raw);
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(writing)?;
    device.flush().map_err(writing)
}
