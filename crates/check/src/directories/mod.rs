//! A pass: names and indexes of every directory.
//!
//! Each directory is examined by one thread, its blocks in large pieces. What a sound one says of others
//! (links, parents) is taken when all of it was seen; one that is not is examined once more by one
//! thread that reports it and mends it. What only concerns a block is mended in place; for all else the
//! directory is rewritten from its names ([`rebuild`]). Excludes the maps of directories (the pass over
//! inodes has checked them) and how directories hang together ([`super::connect`]).

pub(super) mod blocks;
pub(super) mod edit;
mod examine;
mod hash;
mod index;
mod inline;
mod leaf;
mod parents;
pub(super) mod rebuild;
mod salvage;
mod store;

use std::sync::{Mutex, PoisonError};

use ondisk::features::{Compat, RoCompat};
use ondisk::superblock::RawSuperblock;
use ondisk::units::InodeNumber;

use self::examine::Scratch;
use self::parents::Tree;
use super::facts::Facts;
use super::issue::Location;
use super::kinds::directories::{DIRECTORY_TWICE, NO_ROOM};
use super::parallel;
use super::reporter::{Finding, Report, Reporter};
use super::slices::as_index;
use super::subject::Subject;
use platfs_device::Result;

/// Directories that a thread takes at once.
const PIECE: usize = 128;

/// `s_encoding_flags`: names that are no text are refused.
const ENCODING_STRICT: u16 = 1;

/// Inodes that names may lead to, and the kinds that these may have.
pub(super) struct Bounds {
    pub(super) inodes: u32,
    first: u32,
    special: [u32; 4],
    /// True if names in directories that ignore case must be UTF-8.
    pub(super) strict: bool,
}

impl Bounds {
    pub(super) fn new(subject: &Subject) -> Self {
        let raw: &RawSuperblock = &subject.raw;
        let quota = subject.has_ro_compat(RoCompat::QUOTA);
        let special = [
            raw.s_usr_quota_inum.get() * u32::from(quota),
            raw.s_grp_quota_inum.get() * u32::from(quota),
            raw.s_prj_quota_inum.get() * u32::from(quota),
            raw.s_orphan_file_inum.get() * u32::from(subject.has_compat(Compat::ORPHAN_FILE)),
        ];
        let strict = raw.s_encoding_flags.get() & ENCODING_STRICT != 0;
        Bounds { inodes: subject.geometry.inodes(), first: raw.first_inode(), special, strict }
    }

    /// Returns true if an inode belongs to the file system itself and has no name.
    pub(super) fn is_reserved(&self, inode: InodeNumber) -> bool {
        (inode.get() < self.first && inode != InodeNumber::ROOT) || self.special.contains(&inode.get())
    }
}

/// Data that all examinations of directories share.
struct Pass<'a> {
    subject: &'a Subject,
    facts: &'a Facts,
    bounds: Bounds,
    tree: Tree,
}

/// Runs the pass.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    let pass =
        Pass { subject, facts, bounds: Bounds::new(subject), tree: Tree::new(facts.directories.len()) };
    for row in silently(&pass, report) {
        aloud(&pass, row, report)?;
    }
    named_twice(&pass, report)?;
    let tree = pass.tree;
    for (at, row) in facts.directories.iter_mut().enumerate() {
        row.parent = tree.parent(at);
        row.dotdot = tree.dotdot(at);
    }
    Ok(())
}

/// Examines all directories in parallel; rows of those that are not sound.
fn silently(pass: &Pass<'_>, report: &mut Report<'_>) -> Vec<usize> {
    let facts = pass.facts;
    let unsound = Mutex::new(Vec::new());
    let rows = facts.directories.len();
    let pieces = rows.div_ceil(PIECE) as u64;
    let begun = |piece| report.progress("directories", piece, pieces);
    parallel::share(pass.subject.threads, pieces, begun, |piece| {
        let mut scratch = Scratch::default();
        let first = as_index(piece).saturating_mul(PIECE);
        for row in first..rows.min(first.saturating_add(PIECE)) {
            let Some(inode) = facts.directories.get(row).map(|row| row.inode) else { continue };
            let mut reporter = Reporter::silent();
            let examined = examine::examine(pass, inode, &mut scratch, &mut reporter);
            if reporter.any() || examined.is_err() {
                unsound.lock().unwrap_or_else(PoisonError::into_inner).push(row);
            } else {
                pass.tree.keep(facts, row, &scratch.found);
            }
        }
    });
    let mut unsound = unsound.into_inner().unwrap_or_else(PoisonError::into_inner);
    unsound.sort_unstable();
    unsound
}

/// Reports a directory that is not sound, and mends it.
fn aloud(pass: &Pass<'_>, row: usize, report: &mut Report<'_>) -> Result<()> {
    let &Pass { subject, facts, .. } = pass;
    let Some(inode) = facts.directories.get(row).map(|row| row.inode) else { return Ok(()) };
    let mut scratch = Scratch::default();
    let whole = examine::examine(pass, inode, &mut scratch, &mut report.aloud())?;
    if whole.rebuild && !whole.stays && !rebuild::rebuild(subject, facts, inode, &whole.rename, &[])? {
        no_room(inode, "the directory cannot be rewritten", report);
    }
    pass.tree.keep(facts, row, &scratch.found);
    Ok(())
}

/// Reports that a repair found no free blocks.
pub(super) fn no_room(inode: InodeNumber, what: &str, report: &mut Report<'_>) {
    report.found(&NO_ROOM, Finding::new(Location::inode(inode), what, ""));
}

/// Directories with more than one name keep one: in the directory that their `..` leads to, or else in the
/// first that names them.
fn named_twice(pass: &Pass<'_>, report: &mut Report<'_>) -> Result<()> {
    let Pass { subject, facts, tree, .. } = pass;
    let mut more = std::mem::take(&mut *tree.more.lock().unwrap_or_else(PoisonError::into_inner));
    more.sort_unstable();
    for claims in more.chunk_by(|a, b| a.0 == b.0) {
        let Some(row) = claims.first().map(|claim| claim.0) else { continue };
        let Some(child) = facts.directories.get(row).map(|row| row.inode) else { continue };
        let mut parents: Vec<_> = claims.iter().map(|claim| claim.1).chain(tree.parent(row)).collect();
        parents.sort_unstable();
        parents.dedup();
        let up = tree.dotdot(row).filter(|up| parents.contains(up));
        let Some(kept) = up.or(parents.first().copied()) else { continue };
        tree.set_parent(row, kept);
        for parent in parents {
            let names = edit::names_of(subject, parent, child);
            for (position, name) in names.into_iter().skip(usize::from(parent == kept)) {
                let found = format!("leads to directory {child}, which directory {kept} names too");
                let finding =
                    Finding::new(Location::inode(parent).named(&name), found, "the name is removed");
                if report.found(&DIRECTORY_TWICE, finding) {
                    edit::remove(subject, parent, position)?;
                    facts.links.lower(u64::from(child.index()));
                    facts.relinked.insert(u64::from(child.index()));
                }
            }
        }
    }
    Ok(())
}
