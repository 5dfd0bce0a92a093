//! Maps of files from block pointers to extents, or back, one inode after the other.
//!
//! Each converts by itself, as a whole or not at all ([`platfs::Node::convert_map`]). Owns: which inodes are converted.
//! Excludes: the features of the volume, which the caller changes.

use std::collections::HashSet;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::WRITE;
use platfs::{DirEntry, Error, InodeFlags, MapForm, Metadata, Walk};
use serde_json::{Map, Value};

use super::{Halt, Job};
use platfs_image::text::Shown;
use platfs_open::paths::joined;

/// Failures that are reported in words.
const WORDS: usize = 12;

/// Options of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The form that maps get.
    pub form: MapForm,
    /// Only says what would be done.
    pub dry_run: bool,
}

/// Results of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inodes with a map: files, directories, and symbolic links with a block.
    pub inodes: u64,
    /// Those that were converted, or would be.
    pub converted: u64,
    /// Those that stay as they are.
    pub left: u64,
    /// Extents, or runs of pointers, before.
    pub extents_before: u64,
    /// Extents after it.
    pub extents: u64,
    failures: Vec<String>,
}

impl Report {
    /// All of it as an object.
    #[must_use]
    pub fn object(&self) -> Map<String, Value> {
        let counts = [
            ("inodes", self.inodes),
            ("converted", self.converted),
            ("left", self.left),
            ("extents_before", self.extents_before),
            ("extents", self.extents),
        ];
        let mut object: Map<_, _> =
            counts.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect();
        object.insert("failures".to_owned(), self.failures.clone().into());
        object
    }

    fn failed(&mut self, path: &[u8], why: &impl std::fmt::Display) {
        self.left += 1;
        if self.failures.len() < WORDS {
            self.failures.push(format!("{}: {why}", Shown(path)).chars().take(200).collect());
        }
    }
}

/// Converts an inode, and all below it if it is a directory.
///
/// # Errors
/// A place that can't be read; the device's failure; what the watcher says. What was converted until then stays so.
pub fn convert(
    job: &Job<'_>,
    (number, path): (InodeNumber, &[u8]),
    options: Options,
) -> Result<Report, Halt> {
    let mut work = Work { job, options, report: Report::default(), seen: HashSet::new() };
    let facts = job.volume.metadata(number).map_err(Halt::at(path))?;
    work.inode(path, &facts)?;
    if facts.file_type != FileType::Directory {
        return Ok(work.report);
    }
    let mut walk = Walk::new(job.volume);
    work.enter(&mut walk, path, path, &facts)?;
    while walk.depth() > 0 {
        job.go_on()?;
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        let path = joined(walk.path(), &entry.name);
        match work.entry(&mut walk, &entry, &path) {
            // Others may remove it meanwhile.
            Err(Halt::At { error: Error::NotFound, .. }) => {}
            Err(Halt::At { error, .. }) if !is_grave(&error) => work.report.failed(&path, &error),
            done => done?,
        }
    }
    Ok(work.report)
}

fn is_grave(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::WriteFailed | Error::TakenOver | Error::NoSpace)
}

struct Work<'j> {
    job: &'j Job<'j>,
    options: Options,
    report: Report,
    /// Inodes of several names that were looked at.
    seen: HashSet<InodeNumber>,
}

impl Work<'_> {
    fn entry(&mut self, walk: &mut Walk<'_>, entry: &DirEntry, path: &[u8]) -> Result<(), Halt> {
        let facts = self.job.volume.metadata(entry.inode).map_err(Halt::at(path))?;
        match facts.file_type {
            FileType::Directory => {
                self.inode(path, &facts)?;
                self.enter(walk, &entry.name, path, &facts)
            }
            FileType::Regular | FileType::Symlink => self.inode(path, &facts),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, walk: &mut Walk<'_>, name: &[u8], path: &[u8], facts: &Metadata) -> Result<(), Halt> {
        if let Err(denied) = self.job.listable(path, facts.inode) {
            self.report.failed(path, &denied);
            return Ok(());
        }
        match walk.enter(name, facts.inode) {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(Halt::at(path)(error)),
        }
    }

    fn inode(&mut self, path: &[u8], facts: &Metadata) -> Result<(), Halt> {
        let is_new =
            facts.file_type == FileType::Directory || facts.links <= 1 || self.seen.insert(facts.inode);
        let node = self.job.volume.inode(facts.inode);
        let (pieces, blocks) = node.pieces().map_err(Halt::at(path))?;
        let form = self.options.form;
        let is_there = facts.flags.contains(InodeFlags::EXTENTS) == (form == MapForm::Extents);
        // An empty file has a form too: its next block goes by it.
        let has_nothing = blocks == 0 && facts.size == 0 && is_there;
        if !is_new || has_nothing || facts.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        self.report.inodes += 1;
        self.report.extents_before += pieces;
        self.report.extents += pieces;
        if let Err(denied) = self.job.allowed(path, facts, WRITE) {
            self.report.failed(path, &denied);
            return Ok(());
        }
        if self.options.dry_run {
            self.report.converted += u64::from(!is_there);
            return Ok(());
        }
        match node.convert_map(form) {
            Ok(done) => self.report.converted += u64::from(done),
            Err(error) if is_grave(&error) => return Err(Halt::at(path)(error)),
            Err(error) => self.report.failed(path, &error),
        }
        let after = node.pieces().map_err(Halt::at(path))?.0;
        self.report.extents = self.report.extents - pieces + after;
        self.job.count(|done| done.files += 1);
        Ok(())
    }
}
