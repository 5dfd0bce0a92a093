//! A pass: the tree: every directory hangs below the root, and its `..` says so.
//!
//! Parents are known from names; this pass goes up from each directory until it comes to one that it
//! has seen. Excludes files, which [`super::links`] counts, and lost+found itself.

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::directories::{self, edit};
use super::facts::{Directory, Facts};
use super::issue::Location;
use super::kinds::directories::{DIRECTORY_CYCLE, DIRECTORY_PARENT, DIRECTORY_UNCONNECTED, ROOT_MISSING};
use super::lost_found::{self, NewDirectory};
use super::reporter::{Finding, Report};
use super::subject::Subject;
use ondisk::invariant;
use platfs_device::Result;

/// State of a directory in the search for a path to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Unseen,
    /// It is on the path that is followed now.
    OnPath,
    /// The path from it was followed before.
    Done,
}

/// Runs the pass.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    root(subject, facts, report)?;
    let mut climb = Climb { visits: vec![Visit::Unseen; facts.directories.len()], path: Vec::new() };
    for row in 0..facts.directories.len() {
        climb.from(row, subject, facts, report)?;
    }
    for row in 0..facts.directories.len() {
        dotdot(subject, facts, report, row)?;
    }
    Ok(())
}

/// Makes a root directory where there is none.
fn root(subject: &Subject, facts: &mut Facts, report: &mut Report<'_>) -> Result<()> {
    let number = InodeNumber::ROOT;
    if facts.file_type(number) == Some(FileType::Directory) {
        if let Some(row) = facts.directory(number).and_then(|row| facts.directories.get_mut(row)) {
            row.parent = Some(number);
        }
        return Ok(());
    }
    let finding = Finding::new(Location::inode(number), "no directory", "an empty root directory is made");
    // One that is something else was reported by the pass over inodes, and was to stay.
    let gone = facts.file_type(number).is_none() && !facts.used.contains(u64::from(number.index()));
    if gone && report.found(&ROOT_MISSING, finding) {
        let Some(start) = lost_found::place_for_directory(subject, facts) else {
            directories::no_room(number, "the root directory cannot be made", report);
            return Ok(());
        };
        facts.names_lost();
        let root = NewDirectory { number, parent: number, permissions: 0o755, start };
        lost_found::make_directory(subject, facts, &root)?;
    }
    Ok(())
}

fn is_here(facts: &Facts, directory: &Directory) -> bool {
    facts.used.contains(u64::from(directory.inode.index()))
}

/// The ways up from all directories.
struct Climb {
    visits: Vec<Visit>,
    /// Rows on the path that is followed now.
    path: Vec<usize>,
}

impl Climb {
    /// Goes up from a directory; reports it if that ends elsewhere than at the root.
    fn from(
        &mut self,
        row: usize,
        subject: &Subject,
        facts: &mut Facts,
        report: &mut Report<'_>,
    ) -> Result<()> {
        self.path.clear();
        let mut at = row;
        while let Some(directory) = facts.directories.get(at).copied() {
            let Some(way) = self.visits.get_mut(at) else { break };
            match *way {
                Visit::Done => break,
                Visit::OnPath => {
                    cycle(subject, facts, report, self.lowest(at)?)?;
                    break;
                }
                Visit::Unseen => *way = Visit::OnPath,
            }
            self.path.push(at);
            if directory.inode == InodeNumber::ROOT || !is_here(facts, &directory) {
                break;
            }
            match directory.parent.and_then(|parent| facts.directory(parent)) {
                Some(parent) => at = parent,
                None => {
                    unconnected(subject, facts, report, &directory);
                    break;
                }
            }
        }
        for row in &self.path {
            // Rows get on the path only after their own state was changed.
            *invariant!(self.visits.get_mut(*row), "each row on the path has a state") = Visit::Done;
        }
        Ok(())
    }

    /// The lowest inode of the circle that closes at a row, wherever it was entered.
    fn lowest(&self, at: usize) -> Result<usize> {
        let circle = self.path.iter().skip_while(|row| **row != at);
        Ok(*invariant!(circle.min(), "a circle closes at a row on the path"))
    }
}

fn unconnected(subject: &Subject, facts: &mut Facts, report: &mut Report<'_>, directory: &Directory) {
    let number = directory.inode;
    if *facts.unread.get_mut() {
        return;
    }
    let says = directory.dotdot.map_or_else(|| "no `..`".into(), |up| format!("its `..` leads to {up}"));
    let finding = Finding::new(Location::inode(number), says, lost_found::adoption(subject, facts, number));
    // Where a repair took names away, this one is reported there.
    if facts.explains_lack(number, 1) || report.found(&DIRECTORY_UNCONNECTED, finding) {
        adopt(facts, directory);
    }
}

fn adopt(facts: &mut Facts, directory: &Directory) {
    facts.adopted.insert(directory.inode);
    if let Some(up) = directory.dotdot {
        facts.relinked.insert(u64::from(up.index()));
    }
}

fn cycle(subject: &Subject, facts: &mut Facts, report: &mut Report<'_>, row: usize) -> Result<()> {
    let Some(directory) = facts.directories.get(row).copied() else { return Ok(()) };
    let (number, Some(parent)) = (directory.inode, directory.parent) else { return Ok(()) };
    let found = format!("it is below directory {parent}, which is below it");
    let finding = Finding::new(Location::inode(number), found, lost_found::adoption(subject, facts, number));
    if report.found(&DIRECTORY_CYCLE, finding) {
        for (position, _) in edit::names_of(subject, parent, number) {
            edit::remove(subject, parent, position)?;
            facts.links.lower(u64::from(number.index()));
        }
        invariant!(facts.directories.get_mut(row), "a directory that was walked has a row").parent = None;
        facts.relinked.insert(u64::from(parent.index()));
        adopt(facts, &directory);
    }
    Ok(())
}

/// Compares `..` with the parent, and counts it as a link there.
fn dotdot(subject: &Subject, facts: &Facts, report: &mut Report<'_>, row: usize) -> Result<()> {
    let Some(directory) = facts.directories.get(row).copied() else { return Ok(()) };
    let count = |up: InodeNumber| facts.links.raise(u64::from(up.index()));
    match (directory.parent, directory.dotdot) {
        _ if !is_here(facts, &directory) => {}
        (None, _) if facts.adopted.contains(&directory.inode) => {}
        (None, None) => {}
        (Some(_), None) if facts.dotdot_left.contains(u64::from(directory.inode.index())) => {}
        (None, Some(up)) => count(up),
        (Some(parent), Some(up)) if parent == up => count(up),
        (Some(parent), None) => {
            edit::set_dotdot(subject, directory.inode, parent)?;
            count(parent);
        }
        (Some(parent), Some(up)) => {
            let place = Location::inode(directory.inode).named(b"..");
            let finding =
                Finding::new(place, format!("leads to {up}"), "it is set").expected(format!("{parent}"));
            if report.found(&DIRECTORY_PARENT, finding) {
                edit::set_dotdot(subject, directory.inode, parent)?;
                count(parent);
            } else {
                count(up);
            }
        }
    }
    Ok(())
}
