//! After a crash (I30): what a volume that was written in phases was left with is put in order, without a person.
//!
//! A crash leaves space and inodes in use that belong to nobody, inodes without a name, counts that are too
//! high, and checksums of bitmaps that fit those of another moment. A check finds all that; what it would put
//! into lost+found is freed instead: an inode without a name had none that was promised. Whatever else it finds,
//! and can't mend without loss, is a person's concern.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::inode::Inode;
use ondisk::superblock::SUPERBLOCK_OFFSET;
use ondisk::units::InodeNumber;

use crate::admission::read_superblock;
use crate::check::{self, Decision, Issue, PIECE_LEN, Sink, Staged};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::OpenOptions;
use crate::space::Descriptors;

/// Bytes of memory for what changes, and as many for what the check knows.
const MEMORY: u64 = 1 << 30;
/// How deep directories without a name may lie in each other: each round frees one level, and paths are no
/// longer than this many names.
const ROUNDS: u32 = 2048;
/// What is told of inodes that have no name.
const NAMELESS: [&str; 3] = ["directory-unconnected", "inode-unattached", "inode-unattached-empty"];
/// What is told of a directory that was on its way to another: both have its name. It stays where it came
/// first, or where `..` says.
const ON_THE_WAY: [&str; 1] = ["directory-twice"];

/// Hears what a check finds.
#[derive(Default)]
struct Listener {
    nameless: BTreeSet<InodeNumber>,
    /// The first that is a person's concern.
    damage: Option<Issue>,
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        if NAMELESS.contains(&issue.kind.id) {
            self.nameless.extend(issue.place.inode);
            return Decision::Leave;
        }
        if issue.kind.safe || ON_THE_WAY.contains(&issue.kind.id) {
            return Decision::Repair;
        }
        self.damage.get_or_insert(issue);
        Decision::Leave
    }
}

/// Puts a volume in order that was not closed cleanly.
///
/// # Errors
/// Damage that soft updates do not leave; the device's failure.
pub(crate) fn recover(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<()> {
    let staged = Arc::new(Staged::new(Arc::clone(device), MEMORY));
    let how = check::Options { now: options.now, memory: MEMORY, ..check::Options::default() };
    for _ in 0..ROUNDS {
        let mut listener = Listener::default();
        let outcome = check::check(Arc::clone(&staged) as Arc<dyn Device>, &how, &mut listener)?;
        if let Some(issue) = listener.damage {
            return Err(damaged(&issue));
        }
        if listener.nameless.is_empty() {
            return write(&**device, &staged, &outcome.repaired);
        }
        free(&staged, &listener.nameless)?;
    }
    Err(Error::Unsupported("the volume was not closed cleanly; check it before writing".into()))
}

fn damaged(issue: &Issue) -> Error {
    let whose = issue.place.inode.map_or_else(String::new, |inode| format!(" (inode {inode})"));
    let what = format!("{}{whose}: {}", issue.kind.title, issue.found);
    Error::Unsupported(format!(
        "the volume was not closed cleanly and is damaged; check it before writing: {what}"
    ))
}

/// Frees inodes that have no name, in the staged volume. What they had, the next round finds unused.
fn free(staged: &Staged, nameless: &BTreeSet<InodeNumber>) -> Result<()> {
    let format = Format::from_superblock(&read_superblock(staged)?)?;
    let descriptors = Descriptors::load(staged, &format)?;
    for number in nameless {
        let (block, offset) = descriptors.inode_place(&format, *number)?;
        let at = format.geometry.byte_offset(block) + offset as u64;
        let mut gone = Inode::blank(*number, format.geometry.inode_size);
        // As small as a number of an inode it would be taken for a link of a list.
        gone.raw_mut().i_dtime.set(u32::MAX);
        format.sealer.seal_inode(&mut gone);
        let staging = |source| Error::io("freeing an inode without a name", source);
        staged.write_at(at, gone.bytes()).map_err(staging)?;
    }
    Ok(())
}

/// Brings it all to the device, the superblock last, which says that the volume is in order. Cut off before, it
/// leaves what the next recovery mends likewise.
fn write(device: &dyn Device, freed: &Staged, repaired: &Staged) -> Result<()> {
    let writing = |source| Error::io("writing what recovery changed", source);
    let mut superblock = None;
    for (offset, bytes) in freed.changes().into_iter().chain(repaired.changes()) {
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
