//! Files that were deleted or cut while in use: the list of orphans and the orphan file.
//!
//! Does what a mount would do: deleted files go. Files to be cut are noted; [`super::inodes`] takes what they
//! have behind their end.

use std::collections::BTreeSet;

use ondisk::features::{Compat, RoCompat};
use ondisk::inode::Inode;
use ondisk::orphan_file;
use ondisk::units::{Block, InodeNumber};

use super::contents;
use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening as kind;
use super::log::clear_inode;
use super::named;
use super::reporter::{Finding, Report};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::Result;

/// Checks both kinds of lists and does what they ask for.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    list(subject, facts, report)?;
    let has_file = subject.has_compat(Compat::ORPHAN_FILE);
    if !has_file {
        if subject.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
            let finding =
                Finding::new(Location::default(), "there is no orphan file", "the mark is taken away");
            if report.found(&kind::ORPHANS_MARKED, finding) {
                unmark(subject);
            }
        }
        return Ok(());
    }
    if !subject.has_compat(Compat::HAS_JOURNAL) {
        let repair = "the orphan file is removed, and the feature turned off";
        let finding = Finding::new(Location::default(), "orphan_file without has_journal", repair);
        if report.found(&kind::ORPHAN_FILE_ALONE, finding) {
            remove_file(subject, facts)?;
        }
        return Ok(());
    }
    file(subject, facts, report)
}

fn unmark(subject: &mut Subject) {
    subject.features.ro_compat -= RoCompat::ORPHAN_PRESENT;
    subject.raw.set_features(subject.features);
}

/// Removes the orphan file. What a directory names is none, and stays a file.
fn remove_file(subject: &mut Subject, facts: &Facts) -> Result<()> {
    let number = subject.raw.s_orphan_file_inum.get();
    subject.features.compat -= Compat::ORPHAN_FILE;
    unmark(subject);
    subject.raw.s_orphan_file_inum.set(0);
    subject.backups_follow = true;
    if number < subject.geometry.first_inode || named::is_named(subject, number) {
        return Ok(());
    }
    clear_inode(subject, facts, number)
}

/// A number that can be an orphan's.
fn possible(subject: &Subject, number: u32) -> bool {
    number >= subject.geometry.first_inode && number <= subject.geometry.inodes()
}

/// The list that begins in the superblock and goes on in deletion times.
fn list(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    let head = subject.raw.s_last_orphan.get();
    if head == 0 {
        return Ok(());
    }
    let mut orphans = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = head;
    let mut broken = None;
    while next != 0 {
        let inode = match contents::inode(subject, next) {
            Ok(inode) if possible(subject, next) => inode,
            _ => {
                broken = Some(format!("inode {next} can't be on it"));
                break;
            }
        };
        if !seen.insert(next) {
            broken = Some(format!("inode {next} is on it twice"));
            break;
        }
        next = inode.raw().i_dtime.get();
        orphans.push(inode);
    }
    let what = |orphans: &[Inode]| described(orphans);
    let (rule, found) = match broken {
        Some(problem) => (&kind::ORPHAN_LIST, format!("{problem}; before it: {}", what(&orphans))),
        None => (&kind::ORPHANS, what(&orphans)),
    };
    let finding = Finding::new(
        Location::default(),
        found,
        "deleted files are removed, others cut at their end, and the list emptied",
    );
    if report.found(rule, finding) {
        subject.raw.s_last_orphan.set(0);
        for orphan in orphans {
            settle(subject, facts, orphan)?;
        }
    }
    Ok(())
}

fn described(orphans: &[Inode]) -> String {
    let deleted = orphans.iter().filter(|inode| inode.links() == 0).count();
    format!("{deleted} deleted and {} cut files", orphans.len() - deleted)
}

/// An orphan is one no longer: without links it goes, and its blocks with it; with links it is cut at its end.
fn settle(subject: &mut Subject, facts: &Facts, mut inode: Inode) -> Result<()> {
    let gone = inode.links() == 0;
    let time = if gone { subject.deletion_time() } else { 0 };
    inode.raw_mut().i_dtime.set(time);
    if !gone {
        subject.cut_wanted.insert(inode.number());
    } else {
        facts.gave_up();
        facts.altered.insert(u64::from(inode.number().index()));
    }
    subject.write_inode(&mut inode).map_err(staging("an orphan"))
}

/// The orphan file: its blocks, what they list, and the mark that they list something.
fn file(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    let number = subject.raw.s_orphan_file_inum.get();
    let place = InodeNumber::new(number).map_or_else(Location::default, Location::inode);
    let read = read_file(subject, number);
    let (inode, blocks) = match read {
        Ok(read) => read,
        Err(problem) => {
            let repair = "the orphan file is removed, and the feature turned off";
            if report.found(&kind::ORPHAN_FILE, Finding::new(place, problem, repair)) {
                remove_file(subject, facts)?;
            }
            return Ok(());
        }
    };
    let orphans = match entries(subject, &inode, &blocks) {
        Ok(orphans) => orphans,
        Err(problem) if named::is_named(subject, number) => {
            let found = format!("{problem}; a directory names it: it is an ordinary file");
            let repair = "the feature is turned off, and the file stays";
            if report.found(&kind::ORPHAN_FILE, Finding::new(place, found, repair)) {
                remove_file(subject, facts)?;
            }
            return Ok(());
        }
        Err(problem) => {
            let repair = "it is made an empty one again";
            if report.found(&kind::ORPHAN_FILE, Finding::new(place, problem, repair)) {
                clean(subject, inode, &blocks)?;
                unmark(subject);
            }
            return Ok(());
        }
    };
    if orphans.is_empty() {
        if subject.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
            let finding = Finding::new(place, "the orphan file is empty", "the mark is taken away");
            if report.found(&kind::ORPHANS_MARKED, finding) {
                unmark(subject);
            }
        }
        return Ok(());
    }
    let finding = Finding::new(
        place,
        described(&orphans),
        "deleted files are removed, others cut at their end, and the file emptied",
    );
    if report.found(&kind::ORPHANS, finding) {
        for orphan in orphans {
            settle(subject, facts, orphan)?;
        }
        clean(subject, inode, &blocks)?;
        unmark(subject);
    }
    Ok(())
}

/// The orphan file's inode and all its blocks, whatever its size.
fn read_file(subject: &Subject, number: u32) -> Result<(Inode, Vec<Block>), String> {
    let inode = contents::inode(subject, number)?;
    let runs = contents::runs(subject, &inode)?;
    let mut next = 0;
    let mut blocks = Vec::new();
    for run in runs {
        if run.logical != next {
            return Err("the orphan file has holes".to_owned());
        }
        next += run.count;
        blocks.extend((0..run.count).map(|at| Block(run.start.0 + at)));
    }
    if blocks.is_empty() { Err("the orphan file has no blocks".to_owned()) } else { Ok((inode, blocks)) }
}

/// The inodes that the blocks list.
fn entries(subject: &Subject, inode: &Inode, blocks: &[Block]) -> Result<Vec<Inode>, String> {
    let block_size = subject.geometry.block_size;
    if inode.size() != (blocks.len() as u64) << block_size.log2() {
        return Err(format!("its size is {} bytes, but it has {} blocks", inode.size(), blocks.len()));
    }
    let seed = subject.seed_of(inode);
    let mut orphans = Vec::new();
    let mut seen = BTreeSet::new();
    for block in blocks {
        let bytes = subject.block(*block).map_err(|error| error.to_string())?;
        let listed = orphan_file::entries(seed, *block, &bytes).map_err(|error| error.to_string())?;
        for number in listed {
            if !possible(subject, number.get()) || !seen.insert(number) {
                return Err(format!("it lists inode {number}, which can't be"));
            }
            orphans.push(contents::inode(subject, number.get())?);
        }
    }
    Ok(orphans)
}

/// Gives the file the size of its blocks; [`finish`] makes each an empty one.
fn clean(subject: &mut Subject, mut inode: Inode, blocks: &[Block]) -> Result<()> {
    subject.orphan_file_wanted = true;
    let size = (blocks.len() as u64) << subject.geometry.block_size.log2();
    if inode.size() != size {
        inode.set_size(size);
        subject.write_inode(&mut inode).map_err(staging("the orphan file"))?;
    }
    Ok(())
}

/// Makes every block of the orphan file an empty one, where that was asked for: once all owners of blocks are known,
/// and files that shared blocks with it have copies.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn finish(subject: &Subject) -> Result<()> {
    if !subject.orphan_file_wanted {
        return Ok(());
    }
    // A map that lost blocks since is reported by the next check.
    let Ok((inode, blocks)) = read_file(subject, subject.raw.s_orphan_file_inum.get()) else { return Ok(()) };
    let mut bytes = vec![0; subject.block_len()];
    for block in blocks {
        orphan_file::write(subject.seed_of(&inode), block, &[], &mut bytes);
        subject.write(block, &bytes).map_err(staging("the orphan file"))?;
    }
    Ok(())
}
