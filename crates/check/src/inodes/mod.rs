//! The pass over inodes: every record, its map and its attributes.
//!
//! Pieces of the inode tables are shared by threads. An inode that is sound leaves its facts: that it
//! is in use, its type, the links it states, the blocks it claims. One that is not becomes a suspect and
//! is examined again by one thread, in the order of numbers, that reports it and mends it. Owns what an
//! inode says by itself; that two claim the same block is for [`super::shared`], what stands in
//! directories for [`super::directories`], what hidden inodes hold for the passes of their features.

mod attributes;
mod contents;
mod encryption;
mod extents;
mod fields;
mod indirect;
mod inline;
mod map;
mod record;
mod region;
mod scan;
pub(super) mod sharing;
mod special;
mod types;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ondisk::inode::FileType;
use ondisk::units::{Block, InodeNumber};

use super::facts::{Directory, Facts};
use super::places;
use super::reporter::Report;
use super::space;
use super::staged::staging;
use super::subject::Subject;
use platfs_device::{Error, Result};

use attributes::Registry;
use record::{Examination, Scratch};
use special::Special;

/// Data that the examinations of all inodes share.
struct Pass<'a> {
    subject: &'a Subject,
    facts: &'a Facts,
    special: Special,
    attributes: Registry,
    /// Nodes of maps that may still be read. A sound volume has each of its blocks at most once as a
    /// node; maps that lead to the same nodes again and again end here.
    nodes: AtomicU64,
    /// True if there is a regular file of 2 GiB and more.
    large: AtomicBool,
    /// True if claims are still being gathered, so that what is claimed has another owner.
    guards: bool,
    /// Where structures of the volume lie, from the first to behind the last block of each, rising; computed at the
    /// first use.
    structures: OnceLock<Vec<(u64, u64)>>,
    suspects: Mutex<Vec<InodeNumber>>,
}

/// Counts of one piece of a table, added up when it is done.
#[derive(Clone, Copy, Default)]
struct Counts {
    files: u64,
    fragmented: u64,
}

impl<'a> Pass<'a> {
    fn new(subject: &'a Subject, facts: &'a Facts) -> Self {
        Pass {
            subject,
            facts,
            special: Special::of(subject),
            attributes: Registry::default(),
            nodes: AtomicU64::new(subject.geometry.blocks.saturating_mul(2)),
            large: AtomicBool::new(false),
            guards: true,
            structures: OnceLock::new(),
            suspects: Mutex::default(),
        }
    }

    /// Returns true if a block belongs to a structure of the volume: 16 bytes of memory for each of these.
    fn is_structure(&self, block: Block) -> bool {
        let spans = self.structures.get_or_init(|| places::structures(self.subject));
        let next = spans.partition_point(|(start, _)| *start <= block.0);
        next.checked_sub(1).and_then(|at| spans.get(at)).is_some_and(|(_, end)| block.0 < *end)
    }

    /// Takes over what an examination found of an inode in use.
    fn commit(&self, scratch: &mut Scratch, counts: &mut Counts, directories: &mut Vec<Directory>) {
        let Some(used) = scratch.used.take() else { return };
        let (facts, number) = (self.facts, scratch.inode.number());
        let index = u64::from(number.index());
        facts.used.insert(index);
        facts.set_file_type(number, used.file_type, scratch.inode.links());
        match used.file_type {
            Some(FileType::Directory) => {
                directories.push(Directory { inode: number, parent: None, dotdot: None });
            }
            Some(FileType::Regular) => counts.files += 1,
            _ => {}
        }
        counts.fragmented += u64::from(used.fragmented);
        for claim in scratch.claims.drain(..) {
            facts.claim(self.subject, claim.start, claim.count);
        }
        self.attributes.commit(self.subject, facts, scratch);
    }

    fn gather(&self, mut directories: Vec<Directory>) {
        if !directories.is_empty() {
            self.facts.gathered.lock().unwrap_or_else(PoisonError::into_inner).append(&mut directories);
        }
    }

    /// Examines a suspect aloud, and takes its facts as far as they hold.
    fn aloud(&self, number: InodeNumber, scratch: &mut Scratch, report: &mut Report<'_>) -> Result<()> {
        let mut counts = Counts::default();
        let mut directories = Vec::new();
        let Some(offset) = self.subject.inode_offset(number) else { return Ok(()) };
        scratch.load(self.subject, number, offset).map_err(|source| Error::io("reading an inode", source))?;
        let mut reporter = report.aloud();
        let mut examination = Examination::new(self, scratch, &mut reporter);
        examination.run();
        examination.mend().map_err(staging("an inode"))?;
        self.commit(scratch, &mut counts, &mut directories);
        self.gather(directories);
        report.summary.files += counts.files;
        report.summary.fragmented += counts.fragmented;
        Ok(())
    }
}

/// Runs the pass.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    let pass = Pass::new(subject, facts);
    scan::run(&pass, report);
    subject.owners_known.store(true, Ordering::Relaxed);
    let mut suspects = std::mem::take(&mut *pass.suspects.lock().unwrap_or_else(PoisonError::into_inner));
    suspects.sort_unstable();
    let mut scratch = Scratch::new(subject);
    for number in suspects {
        pass.aloud(number, &mut scratch, report)?;
    }
    if facts.unread.load(Ordering::Relaxed) {
        space::keep_marked(subject, facts);
    }
    pass.attributes.settle(subject, facts, report)?;
    let resize = pass.special.wants_resize();
    let mut features = pass.special.features(subject.features);
    special::large_files(&mut features, pass.large.load(Ordering::Relaxed), report);
    special::stray_files(subject, facts, report);
    subject.resize_wanted |= resize;
    subject.features = features;
    subject.raw.set_features(features);
    facts.directories = std::mem::take(facts.gathered.get_mut().unwrap_or_else(PoisonError::into_inner));
    facts.directories.sort_unstable_by_key(|row| row.inode);
    Ok(())
}
