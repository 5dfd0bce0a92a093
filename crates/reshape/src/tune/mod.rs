//! Changes of a volume's parameters and features, as tune2fs(8) makes them, and some that it can't.
//!
//! | module | owns |
//! | --- | --- |
//! | `request` | what is asked for, as values |
//! | `fields` | fields of the superblock |
//! | `in_use` | what changes while a volume is mounted, and how its server learns of it |
//! | `features` | which features may be turned on and off, and what goes with each |
//! | `hidden` | files and blocks of the volume itself: journal, orphan file, quota, mount protection |
//! | `lost_journal` | a journal whose device is gone |
//! | `headers` | backups and blocks kept for growth |
//! | `width` | descriptors of 64 and of 32 bytes |
//! | `inode_size` | larger inode records |
//! | `checksums` | every checksum and group flag, after features or UUID changed |
//! | `directories` | blocks of directories, with and without checksums |
//!
//! Excludes: the text of options, moving tables (`resize`).

mod checksums;
mod directories;
mod features;
mod fields;
mod headers;
mod hidden;
mod in_use;
mod inode_size;
mod lost_journal;
mod request;
mod width;

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::superblock::RawSuperblock;
use ondisk::units::Block;
use platfs_device::{Device, read_superblock};

pub use fields::Field;
pub use in_use::{ENCODED_MAX, refuse_more, tune_in_use};
pub use request::{MmpOptions, Request};

use crate::draft::{Change, Draft, Limits, refuse_unsound};
use crate::resize::Plan;
use crate::{Error, Result};

/// A change of parameters, made in memory.
pub struct Tuned {
    /// Change to be written.
    pub change: Change,
    /// The superblock before.
    pub before: RawSuperblock,
    /// The superblock after.
    pub after: RawSuperblock,
    /// Notes for the user: what went along with the change, and what is left to do.
    pub notes: Vec<String>,
}

/// A draft on its way.
struct TuneWork<'r> {
    draft: Draft,
    request: &'r Request,
    /// Kinds of issues whose repair is a part of the change.
    expected: BTreeSet<&'static str>,
    notes: Vec<String>,
    /// True if more than superblocks changes.
    deep: bool,
}

impl TuneWork<'_> {
    /// Before the first change of something else than the superblock: the volume must be sound.
    fn deepen(&mut self) -> Result<()> {
        if self.deep {
            return Ok(());
        }
        self.deep = true;
        let device = Arc::clone(self.draft.device()) as Arc<dyn Device>;
        refuse_unsound(&device, self.draft.limits())
    }
}

/// Makes the changes in memory. The device is only read; [`Change::apply`] writes.
///
/// # Errors
/// A volume that can't be changed as it is, changes that contradict each other or that this volume can't have: each
/// with its reason, and the remedy where there is one.
pub fn tune(device: &Arc<dyn Device>, request: &Request, limits: Limits) -> Result<Tuned> {
    let before = read_superblock(&**device)?;
    if lost_journal::is_meant(request, &before) {
        return lost_journal::give_up(device, request, limits);
    }
    if let Some(wide) = width::alone(request, &before)
        && !width::fits(&before, wide)?
    {
        let change = width::moving(device, wide, &limits)?;
        let after = read_superblock(&**change.staged())?;
        return Ok(Tuned { change, before, after, notes: Vec::new() });
    }
    match (tune_in_place(device, request, limits, &[]), request.inode_size) {
        (Err(Error::NoRun(_)), Some(size)) => tune_with_room(device, request, limits, size),
        (tuned, _) => tuned,
    }
}

/// Files make room for longer inode tables first.
fn tune_with_room(device: &Arc<dyn Device>, request: &Request, limits: Limits, size: u16) -> Result<Tuned> {
    let before = read_superblock(&**device)?;
    let blocks = inode_size::table_blocks(&before, size)?;
    let (plan, places) = Plan::with_room(Arc::clone(device), u64::from(blocks))?;
    let made = plan.draft(Arc::clone(device), device.size(), &limits)?;
    let staged = Arc::clone(made.staged()) as Arc<dyn Device>;
    let tuned = tune_in_place(&staged, request, limits, &places)?;
    let change = made.with(&tuned.change).map_err(Error::io("keeping the change in memory"))?;
    Ok(Tuned { change, before, ..tuned })
}

/// Makes the changes without moving files. Longer inode tables go to `places`, if there are any.
fn tune_in_place(
    device: &Arc<dyn Device>,
    request: &Request,
    limits: Limits,
    places: &[Block],
) -> Result<Tuned> {
    let before = read_superblock(&**device)?;
    if !request.is_empty() {
        refuse_unknown(&before)?;
    }
    let open = if request.mmp.clear { Draft::open_marked } else { Draft::open };
    let draft = open(Arc::clone(device), limits)?;
    let mut work = TuneWork { draft, request, expected: BTreeSet::new(), notes: Vec::new(), deep: false };
    fields::apply(&mut work)?;
    if before.s_rev_level.get() == 0 && request.is_for_revision_1() {
        work.draft.reshape(RawSuperblock::begin_revision_1)?;
    }
    features::apply(&mut work)?;
    if let Some(size) = request.inode_size {
        inode_size::change(&mut work, size, places)?;
    }
    checksums::follow(&mut work, &before)?;
    let mut after = *work.draft.superblock();
    if request.is_empty() || after.as_words() == before.as_words() && !work.deep {
        after = before;
    } else {
        let mut times = after.times();
        times.written = limits.now.since_1970();
        work.draft.superblock_mut().set_times(times);
        after = *work.draft.superblock();
    }
    let expected: Vec<&str> = work.expected.iter().copied().collect();
    let change = if work.deep { work.draft.finish(&expected)? } else { work.draft.finish_fields()? };
    Ok(Tuned { change, before, after, notes: work.notes })
}

/// A feature that nothing here knows may say something of each field.
fn refuse_unknown(raw: &RawSuperblock) -> Result<()> {
    let unknown = raw.features().unknown_to_writers();
    if unknown.is_empty() {
        return Ok(());
    }
    let names = unknown.join(", ");
    Err(platfs_device::Error::Unsupported(format!(
        "only a program that knows its features may change it: {names}"
    ))
    .into())
}

/// The bytes of a superblock, to be compared.
trait AsWords {
    fn as_words(&self) -> &[u8];
}

impl AsWords for RawSuperblock {
    fn as_words(&self) -> &[u8] {
        zerocopy::IntoBytes::as_bytes(self)
    }
}
