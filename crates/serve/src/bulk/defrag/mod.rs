//! Files in pieces brought together, and free space brought together.
//!
//! Each file moves by itself, as a whole or not at all ([`platfs::Node::relocate`]): so the work can end anywhere, and
//! is taken up by beginning again. Owns: which files move, and in which order. Excludes: where they go (placement), and
//! how a file moves safely (`platfs`).

mod free_space;
mod holes;
pub mod report;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::{Powers, WRITE};
use platfs::{DirEntry, Error, Metadata, Relocated, Relocation, RelocationGoal, Walk};

use super::{Halt, Job};
use crate::free_runs;
use platfs_image::text::Shown;
use platfs_open::paths::joined;
pub use report::Report;

/// Times that files are tried again for which there was no room.
const PASSES: u32 = 8;

/// Bytes that move before what they left is made free.
const SETTLED_EVERY: u64 = 32 << 20;

/// Blocks from which on a file gets its place before the small ones.
const LARGE: u64 = 512;

/// Options of a defragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Free space is brought together too.
    pub free: bool,
    /// Only says what would be done.
    pub dry_run: bool,
    /// Bytes that are moved in a second, at most; 0 for any.
    pub rate: u64,
    /// Bytes that are moved, at most; 0 for any.
    pub most: u64,
}

/// A place to begin: an inode, and its path as messages show it.
pub type Start<'p> = (InodeNumber, &'p [u8]);

/// A file in pieces.
struct Torn {
    number: InodeNumber,
    directory: Option<InodeNumber>,
    path: Vec<u8>,
    pieces: u64,
    blocks: u64,
}

impl Torn {
    fn clusters(&self, work: &Work<'_>) -> u64 {
        self.blocks.div_ceil(1 << work.job.volume.format().geometry.cluster_log2)
    }
}

/// A file of which only the number is known, as messages show it.
fn as_path(number: InodeNumber) -> Vec<u8> {
    format!("inode {number}").into_bytes()
}

/// The work.
struct Work<'j> {
    job: &'j Job<'j>,
    options: Options,
    report: RefCell<Report>,
    /// Files that were looked at under one of several names.
    seen: HashSet<InodeNumber>,
    /// All files that may move, in the order of the walk.
    files: Vec<InodeNumber>,
    begun: Instant,
    copied: Cell<u64>,
    unsettled: Cell<u64>,
    /// Room was made; what is left of the bound is for files that find room now.
    ending: Cell<bool>,
}

/// Brings files together, in places and below.
///
/// # Errors
/// A place that can't be read; the device's failure; what the watcher says. What was moved until then stays moved.
pub fn defrag(job: &Job<'_>, starts: &[Start<'_>], options: Options) -> Result<Report, Halt> {
    if options.free && !job.actor.has(Powers::SYS_ADMIN) {
        return Err(Halt::refused(b"--free", "files of all users move: only an administrator may do that"));
    }
    let mut work = Work {
        job,
        options,
        report: RefCell::default(),
        seen: HashSet::new(),
        files: Vec::new(),
        begun: Instant::now(),
        copied: Cell::default(),
        unsettled: Cell::default(),
        ending: Cell::default(),
    };
    work.note_free(false)?;
    let mut torn = Vec::new();
    for (number, path) in starts {
        work.below(*number, path, &mut torn)?;
    }
    if options.dry_run {
        work.foresee(&torn)?;
    } else {
        // Long runs are for long files; small ones then take what is left between.
        let (mut large, small): (Vec<_>, Vec<_>) = torn.into_iter().partition(|file| file.blocks >= LARGE);
        large.sort_by_key(|file| std::cmp::Reverse(file.blocks));
        large.extend(small);
        let left = work.passes(large)?;
        let left = work.make_room(left)?;
        work.ending.set(true);
        let left = work.passes(left)?;
        let left = work.in_fewer_pieces(left)?;
        work.keep_longest()?;
        if options.free {
            work.gather_free_space()?;
        }
        let left = work.last_moves(left)?;
        work.settle()?;
        work.note_left(&left)?;
    }
    work.note_free(true)?;
    Ok(work.report.into_inner())
}

impl<'j> Work<'j> {
    fn note_free(&self, after: bool) -> Result<(), Halt> {
        let figures = free_runs::figures(self.job.volume, |_, _| {}).map_err(Halt::at(b"/"))?;
        self.report.borrow_mut().note_free(&figures, after);
        Ok(())
    }

    /// Notes a file, or all files of a directory and below.
    fn below(&mut self, number: InodeNumber, path: &[u8], torn: &mut Vec<Torn>) -> Result<(), Halt> {
        let facts = self.job.volume.metadata(number).map_err(Halt::at(path))?;
        if facts.file_type != FileType::Directory {
            return self.file(number, None, path, torn);
        }
        let mut walk = Walk::new(self.job.volume);
        self.enter(&mut walk, path, path, &facts)?;
        while walk.depth() > 0 {
            self.job.go_on()?;
            let Some(entry) = walk.next_entry().cloned() else {
                walk.leave();
                continue;
            };
            let path = joined(walk.path(), &entry.name);
            // Others may remove it meanwhile.
            if let Err(Halt::At { error, .. }) = self.entry(&mut walk, &entry, &path, torn)
                && !matches!(error, Error::NotFound)
            {
                self.report.borrow_mut().failed(format!("{}: {error}", Shown(&path)));
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &mut Walk<'_>,
        entry: &DirEntry,
        path: &[u8],
        torn: &mut Vec<Torn>,
    ) -> Result<(), Halt> {
        match self.job.volume.entry_type(entry).map_err(Halt::at(path))? {
            FileType::Directory => {
                let facts = self.job.volume.metadata(entry.inode).map_err(Halt::at(path))?;
                self.enter(walk, &entry.name, path, &facts)
            }
            FileType::Regular => self.file(entry.inode, walk.directory(), path, torn),
            _ => Ok(()),
        }
    }

    fn enter(&self, walk: &mut Walk<'_>, name: &[u8], path: &[u8], facts: &Metadata) -> Result<(), Halt> {
        if self.job.listable(path, facts.inode).is_err() {
            self.report.borrow_mut().refused += 1;
            return Ok(());
        }
        match walk.enter(name, facts.inode) {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(Halt::at(path)(error)),
        }
    }

    fn file(
        &mut self,
        number: InodeNumber,
        directory: Option<InodeNumber>,
        path: &[u8],
        torn: &mut Vec<Torn>,
    ) -> Result<(), Halt> {
        let facts = self.job.volume.metadata(number).map_err(Halt::at(path))?;
        if facts.file_type != FileType::Regular || facts.links > 1 && !self.seen.insert(number) {
            return Ok(());
        }
        let (pieces, blocks) = self.job.volume.inode(number).pieces().map_err(Halt::at(path))?;
        let bytes = self.bytes(blocks);
        let mut report = self.report.borrow_mut();
        report.files += u64::from(pieces > 0);
        report.pieces.before += pieces;
        report.pieces.after += pieces;
        if pieces > 1 {
            report.torn.before += 1;
            report.torn.after += 1;
            report.torn_bytes += bytes;
        }
        if pieces > 0 && self.job.allowed(path, &facts, WRITE).is_err() {
            report.refused += 1;
        } else if pieces > 0 {
            self.files.push(number);
            if pieces > 1 {
                torn.push(Torn { number, directory, path: path.to_vec(), pieces, blocks });
            }
        }
        Ok(())
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks << self.job.volume.format().geometry.block_size.log2()
    }

    /// How many files would find a run, one after the other.
    fn foresee(&self, torn: &[Torn]) -> Result<(), Halt> {
        let log2 = self.job.volume.format().geometry.cluster_log2;
        let mut runs = self.free_runs()?;
        let mut report = self.report.borrow_mut();
        let mut files: Vec<_> = torn.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.blocks));
        for file in files {
            let clusters = file.blocks.div_ceil(1 << log2);
            if !runs.take(clusters) {
                report.too_long += 1;
                continue;
            }
            report.moved += 1;
            report.moved_bytes += self.bytes(file.blocks);
            report.torn.after -= 1;
            report.pieces.after -= file.pieces - 1;
        }
        Ok(())
    }

    /// Moves files until none finds room. What moves leaves room for others.
    fn passes(&self, mut torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        for _ in 0..PASSES {
            let moved = self.report.borrow().moved;
            let mut left = Vec::new();
            for file in torn {
                left.extend(self.bring_together(file, RelocationGoal::Wholeness)?);
            }
            self.settle()?;
            torn = left;
            if torn.is_empty() || self.report.borrow().moved == moved {
                break;
            }
        }
        Ok(torn)
    }

    /// Moves a file to a run that holds it. Returns it if it is still in pieces.
    fn bring_together(&self, file: Torn, goal: RelocationGoal) -> Result<Option<Torn>, Halt> {
        if !self.may_move(file.blocks) {
            return Ok(Some(file));
        }
        let wish = Relocation { directory: file.directory, goal, ..Relocation::default() };
        let done = self.relocate(file.number, (&file.path, file.blocks), &wish)?;
        let is_left = |done: &Relocated| done.pieces > 1 && !done.busy;
        Ok(done.filter(is_left).map(|done| Torn { pieces: done.pieces, ..file }))
    }

    /// Moves files that fit nowhere as a whole into half as many pieces. Returns those that are still in pieces.
    fn in_fewer_pieces(&self, torn: Vec<Torn>) -> Result<Vec<Torn>, Halt> {
        let mut left = Vec::new();
        for file in torn {
            let most_pieces = file.pieces / 2;
            let wish = Relocation { most_pieces, directory: file.directory, ..Relocation::default() };
            let done = if most_pieces > 1 {
                self.relocate(file.number, (&file.path, file.blocks), &wish)?
            } else {
                None
            };
            match done {
                Some(done) if done.pieces > 1 => left.push(Torn { pieces: done.pieces, ..file }),
                Some(_) => {}
                None => left.push(file),
            }
        }
        self.settle()?;
        Ok(left)
    }

    /// Notes why files are still in pieces.
    fn note_left(&self, left: &[Torn]) -> Result<(), Halt> {
        let runs = self.free_runs()?;
        let reserve = self.longest_before() << self.job.volume.format().geometry.cluster_log2;
        for file in left {
            let keeps = if runs.longest() >= file.clusters(self) { reserve } else { 0 };
            let may = self.may_move(file.blocks + keeps);
            let mut report = self.report.borrow_mut();
            *(if may { &mut report.too_long } else { &mut report.beyond }) += 1;
        }
        Ok(())
    }

    /// Moves a file, if there is a better place. `None` if it can't be moved.
    fn relocate(
        &self,
        number: InodeNumber,
        (path, blocks): (&[u8], u64),
        wish: &Relocation,
    ) -> Result<Option<Relocated>, Halt> {
        self.job.go_on()?;
        if !self.may_move(blocks) {
            return Ok(None);
        }
        let done = self.job.volume.inode(number).relocate(wish, &|bytes| self.pace(bytes));
        let mut report = self.report.borrow_mut();
        let done = match done {
            Ok(done) => done,
            Err(Error::NotFound) => return Ok(None),
            Err(_) if self.is_another(number) => return Ok(None),
            Err(Error::NotPermitted(_)) => {
                report.refused += 1;
                return Ok(None);
            }
            Err(error @ (Error::Io { .. } | Error::WriteFailed | Error::TakenOver)) => {
                return Err(Halt::at(path)(error));
            }
            Err(error) => {
                report.failed(format!("{}: {error}", Shown(path)));
                return Ok(None);
            }
        };
        report.busy += u64::from(done.busy);
        if done.blocks > 0 || done.pieces < done.pieces_before {
            let bytes = self.bytes(done.blocks);
            report.moved += 1;
            report.moved_bytes += bytes;
            // Parts of it that make room for another file may leave it in more.
            report.pieces.after = (report.pieces.after + done.pieces).saturating_sub(done.pieces_before);
            report.torn.after -= u64::from(done.pieces == 1 && done.pieces_before > 1).min(report.torn.after);
            self.unsettled.set(self.unsettled.get() + bytes);
            self.job.count(|sum| {
                sum.files += 1;
                sum.bytes += bytes;
            });
        }
        drop(report);
        if self.unsettled.get() >= SETTLED_EVERY {
            self.settle()?;
        }
        Ok(Some(done))
    }

    /// Returns true if a number is that of something else by now: the file was removed.
    fn is_another(&self, number: InodeNumber) -> bool {
        self.job.volume.metadata(number).is_ok_and(|facts| facts.file_type != FileType::Regular)
    }

    /// Makes what was left behind free.
    fn settle(&self) -> Result<(), Halt> {
        self.unsettled.set(0);
        self.job.volume.commit().map_err(Halt::at(b"/"))
    }

    /// Returns true if a number of blocks more may be moved. Without a bound by the caller, files that are whole are moved for a
    /// quarter of the bytes of those that are not, and a little more at the end; where free space is to be brought
    /// together, for as much as is free.
    fn may_move(&self, blocks: u64) -> bool {
        let report = self.report.borrow();
        let rest = if self.ending.get() { report.torn_bytes / 25 } else { 0 };
        let by_pieces = report.torn_bytes + report.torn_bytes / 4 + rest;
        let most = match self.options {
            Options { most, .. } if most > 0 => most,
            Options { free: true, .. } => by_pieces.max(report.free_bytes),
            _ => by_pieces,
        };
        report.moved_bytes + self.bytes(blocks) <= most
    }

    /// Waits where more would be moved in a second than may.
    fn pace(&self, bytes: u64) {
        self.copied.set(self.copied.get() + bytes);
        let Some(millis) = (self.copied.get().saturating_mul(1000)).checked_div(self.options.rate) else {
            return;
        };
        let due = Duration::from_millis(millis);
        while let Some(left) = due.checked_sub(self.begun.elapsed()).filter(|left| !left.is_zero()) {
            if self.job.go_on().is_err() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}
