//! Check and repair of ext2, ext3 and ext4 volumes, and the witness for everything that platfs writes.
//!
//! It believes nothing but bytes and takes any bytes, in bounded time and memory. It shares no code with what writes
//! volumes: it stands on the format crate (`ondisk`) and on `platfs-device` (devices, reading the superblock, replay of
//! journals). It excludes printing, asking and files: the caller gives a [`Sink`], which gets each [`Issue`] and decides
//! what is repaired.
//!
//! ```no_run
//! use std::fs::File;
//! use std::sync::Arc;
//!
//! use platfs_check::device::FileDevice;
//! use platfs_check::{Decision, Issue, Options, Sink, check};
//!
//! /// Prints every issue, and repairs what can be repaired without loss.
//! struct Careful;
//!
//! impl Sink for Careful {
//!     fn issue(&mut self, issue: Issue) -> Decision {
//!         println!("{}: {}", issue.kind.title, issue.found);
//!         if issue.kind.safe { Decision::Repair } else { Decision::Leave }
//!     }
//! }
//!
//! let file = File::options().read(true).write(true).open("disk.img")?;
//! let outcome = check(Arc::new(FileDevice::new(file)?), &Options::default(), &mut Careful)?;
//! println!("{} files and directories", outcome.summary.inodes_used);
//! // Until here the image was only read.
//! outcome.repaired.apply()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thing takes a writer: what the fast commits in a journal come to. [`check`] refuses a volume that has some to
//! replay; [`check_with`] is given a writer for them, and judges the result like everything else.
//!
//! # How it goes
//!
//! ```text
//!  opening      superblock, or a backup of it           -> Subject
//!  descriptors  where each group keeps its structures   -> claims
//!  resize, log, orphans   inodes that the superblock names
//!  inodes       every record, map and attribute         -> claims, inodes in use, directories
//!  shared       blocks with two owners
//!  directories  every name                              -> links found, parents
//!  connect      every directory hangs below the root
//!  links        names found are names counted
//!  quota        usage
//!  space        bitmaps and counts are what was found in use
//! ```
//!
//! Repairs are made in memory (`staged`), at once, so that later passes see the repaired volume and
//! report causes only, not of their consequences. What is staged goes to the device when the
//! caller says so, whole.
//!
//! A wrong field can lead any repair to any block. So blocks are only written once their owners are
//! known, and not while two own them (`Subject::write`); what is judged before that waits (`finish` of
//! `protection`, `log`, `orphans`). An inode that only the superblock names as the volume's own is not
//! touched where a directory names it (`named`).
//!
//! Passes over inodes and directories run in parallel and silently (`Reporter::Silent`): what is
//! sound leaves its facts. What is not is looked at once more by one thread that reports it,
//! mends it, and takes its facts then; so that the order of issues does not depend on threads.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod apply;
mod bitmap;
mod connect;
mod contents;
mod copies;
mod descriptors;
mod directories;
mod facts;
mod fields;
mod glance;
mod inodes;
mod issue;
mod kinds;
mod links;
mod log;
mod lost_found;
mod named;
mod opening;
mod orphans;
mod paged;
mod parallel;
mod parts;
mod paths;
mod places;
mod plausible;
mod policies;
mod protection;
mod quota;
mod reporter;
mod resize;
mod seed;
mod shared;
mod slices;
mod space;
mod staged;
mod subject;
mod superblock;
mod usual;
mod write_safety;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ondisk::inode::Timestamp;

use platfs_device::Device;
use platfs_device::journal::{FastCommits, NoWriter};

pub use apply::{PIECE_LEN, PieceChange};
pub use glance::glance;
pub use issue::{Decision, Issue, Location, Progress, Sink, Summary};
pub use kinds::{Kind, Severity, all as kinds};
pub use ondisk;
pub use platfs_device as device;
pub use platfs_device::{Error, Result};
pub use staged::Staged;

use facts::Facts;
use reporter::Report;
use subject::Subject;

/// Options of a check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads; volumes too small to share are checked by one.
    pub threads: usize,
    /// Now, as repairs write it into inodes and the superblock.
    pub now: Timestamp,
    /// The block of the superblock to begin with instead of the primary, in blocks of the size
    /// beside it in bytes; without a size every legal one is tried.
    pub superblock: Option<(u64, Option<u32>)>,
    /// Bytes of memory that the check may take for what it knows of the volume, and as many again for
    /// repairs. It takes what the volume's contents need; one that needs more is refused.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: 1, now: Timestamp::from_seconds(0), superblock: None, memory: 2 << 30 }
    }
}

/// Findings of a check, and the repairs that wait to be written.
pub struct Outcome {
    /// Counts.
    pub summary: Summary,
    /// The volume as it is after the repairs that the sink asked for; the device is untouched.
    pub repaired: Arc<Staged>,
    subject: Subject,
    facts: Facts,
}

/// Checks the volume on `device`, gives `sink` every issue, and makes the repairs that it decides
/// for in memory. The device is only read.
///
/// # Errors
/// Only where there is nothing to check: no superblock or backup that could be one, a feature that
/// is not known, a volume beyond the memory bound, fast commits in a journal that is to be replayed
/// ([`Error::FastCommits`]). Damage and failures of the device on the way are issues.
pub fn check(device: Arc<dyn Device>, options: &Options, sink: &mut dyn Sink) -> Result<Outcome> {
    check_with(device, options, &NoWriter, sink)
}

/// Checks a volume as [`check`] does, with a writer that applies the fast commits of a journal in memory.
///
/// # Errors
/// As [`check`], but for fast commits.
pub fn check_with(
    device: Arc<dyn Device>,
    options: &Options,
    fast_commits: &dyn FastCommits,
    sink: &mut dyn Sink,
) -> Result<Outcome> {
    let staged = Arc::new(Staged::new(device, options.memory));
    let mut report = Report::new(sink);
    let mut subject = opening::open(&staged, options, fast_commits, &mut report)?;
    let mut facts = Facts::new(&subject, options);
    descriptors::check(&mut subject, &facts, &mut report)?;
    facts.all_kept()?;
    let protection = protection::judge(&subject, &facts, &mut report);
    quota::numbers(&mut subject, &mut report);
    resize::check(&mut subject, &facts, &mut report)?;
    log::check(&mut subject, &facts, &mut report)?;
    orphans::check(&mut subject, &facts, &mut report)?;
    inodes::check(&mut subject, &mut facts, &mut report)?;
    facts.all_kept()?;
    protection::finish(&mut subject, &facts, protection)?;
    places::find_missing(&mut subject, &facts)?;
    shared::check(&mut subject, &mut facts, &mut report)?;
    log::finish(&mut subject)?;
    orphans::finish(&subject)?;
    directories::check(&mut subject, &mut facts, &mut report)?;
    connect::check(&mut subject, &mut facts, &mut report)?;
    links::check(&mut subject, &mut facts, &mut report)?;
    quota::check(&subject, &facts, &mut report)?;
    // Bitmaps of facts that are not whole would give away what is in use.
    facts.all_kept()?;
    space::check(&mut subject, &facts, &mut report)?;
    let summary = opening::close(&mut subject, &facts, report)?;
    Ok(Outcome { summary, repaired: staged, subject, facts })
}
