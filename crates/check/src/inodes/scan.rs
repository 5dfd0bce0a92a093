//! The way through the inode tables: large pieces, shared by threads.

use ondisk::units::{Block, Group};

use super::record::{Examination, Scratch};
use super::{Counts, Pass};
use crate::issue::Location;
use crate::kinds::inodes::INODE_TABLE_UNREADABLE;
use crate::parallel;
use crate::reporter::{Finding, Report, Reporter};
use crate::subject::Subject;
use platfs_device::Device;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Bytes of a table that are read at once.
const PIECE_LEN: u64 = 256 << 10;

/// Division of inode tables into pieces.
struct Pieces {
    /// Inodes in a piece: whole blocks.
    inodes: u32,
    per_group: u64,
}

impl Pieces {
    fn of(subject: &Subject) -> Self {
        let geometry = &subject.geometry;
        let blocks = (PIECE_LEN >> geometry.block_size.log2()).max(1);
        let inodes = geometry.inodes_per_block().saturating_mul(u32::try_from(blocks).unwrap_or(1));
        Pieces { inodes, per_group: u64::from(geometry.inodes_per_group.div_ceil(inodes)) }
    }

    /// Group, first inode in it, and inodes of a piece that were ever used.
    fn find(&self, subject: &Subject, piece: u64) -> Option<(Group, u32, u32)> {
        let group = u32::try_from(piece / self.per_group).ok()?;
        let first = u32::try_from(piece % self.per_group).ok()?.checked_mul(self.inodes)?;
        let used = subject.inodes_begun(Group(group));
        let count = used.checked_sub(first)?.min(self.inodes);
        (count > 0).then_some((Group(group), first, count))
    }
}

/// Examines all inodes silently; suspects are left in the pass.
pub(super) fn run(pass: &Pass<'_>, report: &mut Report<'_>) {
    let subject = pass.subject;
    let pieces = Pieces::of(subject);
    let all = u64::from(subject.geometry.groups) * pieces.per_group;
    let sums = Mutex::new((Counts::default(), Vec::new()));
    let begun = |piece| report.progress("inodes", piece, all);
    parallel::share(subject.threads, all, begun, |piece| {
        let Some((group, first, count)) = pieces.find(subject, piece) else { return };
        let mut unread = Vec::new();
        let counts = examine(pass, group, first, count, &mut unread);
        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.0.files += counts.files;
        sums.0.fragmented += counts.fragmented;
        sums.1.append(&mut unread);
    });
    let (counts, mut unread) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.summary.files += counts.files;
    report.summary.fragmented += counts.fragmented;
    unread.sort_unstable();
    for (block, group, problem) in unread {
        let place = Location::group(group).at_block(block);
        pass.facts.unread.store(true, Ordering::Relaxed);
        report.found(&INODE_TABLE_UNREADABLE, Finding::new(place, problem, ""));
    }
}

/// Examines some inodes of a group.
fn examine(
    pass: &Pass<'_>,
    group: Group,
    first: u32,
    count: u32,
    unread: &mut Vec<(Block, Group, String)>,
) -> Counts {
    let subject = pass.subject;
    let (size, mut counts) = (usize::from(subject.geometry.inode_size), Counts::default());
    let Some(start) = subject.geometry.inode_at(group, first).and_then(|inode| subject.inode_offset(inode))
    else {
        return counts;
    };
    let block_len = subject.block_len();
    let len = (size * count as usize).next_multiple_of(block_len);
    let numbers = || (first..first + count).filter_map(|index| subject.geometry.inode_at(group, index));
    let is_hole = subject.device.data_from(start) >= start.saturating_add(len as u64);
    if is_hole && !numbers().any(|number| pass.special.is_used_without_links(number)) {
        // Nothing was ever written there.
        return counts;
    }
    let mut table = vec![0; len];
    let readable = read(subject, start, &mut table, group, unread);
    let (mut scratch, mut suspects, mut directories) = (Scratch::new(subject), Vec::new(), Vec::new());
    for (index, record) in (0..count).zip(table.chunks_exact(size)) {
        let Some(number) = subject.geometry.inode_at(group, first + index) else { break };
        if !readable && is_unread(unread, start + index as u64 * size as u64, subject) {
            // What can't be read may be in use: nothing that it holds must be given away.
            pass.facts.used.insert(u64::from(number.index()));
            continue;
        }
        if is_blank(record) && !pass.special.is_used_without_links(number) {
            continue;
        }
        scratch.refill(number, record);
        let mut reporter = Reporter::silent();
        Examination::new(pass, &mut scratch, &mut reporter).run();
        if reporter.any() {
            suspects.push(number);
        } else {
            pass.commit(&mut scratch, &mut counts, &mut directories);
        }
    }
    if !suspects.is_empty() {
        pass.suspects.lock().unwrap_or_else(PoisonError::into_inner).append(&mut suspects);
    }
    pass.gather(directories);
    counts
}

/// Returns true if a record was never written.
fn is_blank(record: &[u8]) -> bool {
    record.chunks(128).all(|part| part.iter().fold(0, |seen, byte| seen | byte) == 0)
}

fn is_unread(unread: &[(Block, Group, String)], offset: u64, subject: &Subject) -> bool {
    let block = Block(offset >> subject.geometry.block_size.log2());
    unread.iter().any(|(bad, ..)| *bad == block)
}

/// Reads a piece of a table, block by block where it can't be read as a whole; returns true if all was read.
fn read(
    subject: &Subject,
    start: u64,
    table: &mut [u8],
    group: Group,
    unread: &mut Vec<(Block, Group, String)>,
) -> bool {
    let first = Block(start >> subject.geometry.block_size.log2());
    if subject.read(first, table).is_ok() {
        return true;
    }
    for (index, bytes) in table.chunks_mut(subject.block_len()).enumerate() {
        let block = Block(first.0 + index as u64);
        if let Err(problem) = subject.read(block, bytes) {
            bytes.fill(0);
            unread.push((block, group, problem.to_string()));
        }
    }
    unread.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zeros_are_blank() {
        let mut record = [0; 160];
        assert!(is_blank(&record));
        record[159] = 1;
        assert!(!is_blank(&record));
    }
}
