//! The blocks of the layout: superblocks, descriptors, bitmaps and inode tables; that each lies where
//! it may and no two in one place. New places for what has none.

use ondisk::units::{Block, Group, InodeNumber};

use super::facts::Facts;
use super::issue::Location;
use super::parts::{Part, backup_of, is_possible, set_place};
use super::reporter::{Finding, Report};
use super::staged::staging;
use super::subject::Subject;
use platfs_device::Result;

/// A structure and its blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// `None` for superblock and descriptors, whose places follow from the geometry.
    part: Option<Part>,
    group: Group,
}

/// Every structure that has a place.
fn spans(subject: &Subject) -> impl Iterator<Item = Span> {
    let geometry = &subject.geometry;
    (0..geometry.groups).map(Group).zip(&subject.descriptors).flat_map(move |(group, raw)| {
        let header = geometry.group_header(group);
        let end = (header.start.0 + u64::from(header.count)).min(geometry.blocks);
        let header = Span { start: header.start.0, end, part: None, group };
        let parts = Part::ALL.map(|part| {
            let start = part.of(raw).0;
            let inside = is_possible(subject, group, part, Block(start));
            Span {
                start,
                end: if inside { start + part.blocks(subject) } else { start },
                part: Some(part),
                group,
            }
        });
        std::iter::once(header).chain(parts).filter(|span| span.start < span.end)
    })
}

/// Where structures lie: first block and block behind the last of each, rising.
pub(super) fn structures(subject: &Subject) -> Vec<(u64, u64)> {
    let mut all: Vec<_> = spans(subject).map(|span| (span.start, span.end)).collect();
    all.sort_unstable();
    all
}

/// Claims the blocks of every structure. Where two have the same block, one of them is reported and moved.
pub(super) fn claim(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) {
    // With bigalloc structures share clusters, which bits can't tell from sharing blocks.
    let sharing = subject.geometry.cluster_log2 > 0;
    if sharing {
        resolve(subject, report);
    }
    if !claim_all(subject, facts) && !sharing {
        for span in spans(subject) {
            unclaim(subject, facts, &span);
        }
        resolve(subject, report);
        claim_all(subject, facts);
    }
}

fn clusters(subject: &Subject, span: &Span) -> (u64, u64) {
    let cluster = |block| subject.geometry.cluster_of(Block(block)).0;
    (cluster(span.start), cluster(span.end - 1) + 1)
}

/// Claims all; returns true if no cluster had two structures.
fn claim_all(subject: &Subject, facts: &Facts) -> bool {
    let mut once = true;
    for span in spans(subject) {
        let (from, end) = clusters(subject, &span);
        facts.claimed.insert_range(from, end, |_| once = false);
    }
    once
}

fn unclaim(subject: &Subject, facts: &Facts, span: &Span) {
    let (from, end) = clusters(subject, span);
    for cluster in from..end {
        facts.claimed.remove(cluster);
    }
}

/// Pairs of structures that overlap, the one that lies further ahead first.
fn collisions(subject: &Subject) -> Vec<(Span, Span)> {
    let mut all: Vec<_> = spans(subject).collect();
    all.sort_unstable();
    let mut found = Vec::new();
    let mut reach: Option<Span> = None;
    for span in all {
        if let Some(before) = reach
            && span.start < before.end
            // Headers of groups too small for them follow from the geometry, and do no harm.
            && (before.part.is_some() || span.part.is_some())
        {
            found.push((before, span));
        }
        if reach.is_none_or(|before| span.end > before.end) {
            reach = Some(span);
        }
    }
    found
}

/// Reports structures that share blocks, and moves one of each pair.
fn resolve(subject: &mut Subject, report: &mut Report<'_>) {
    for (one, other) in collisions(subject) {
        let still = |span: &Span| {
            span.part.is_none_or(|part| {
                subject.descriptor(span.group).is_some_and(|raw| part.of(raw).0 == span.start)
            })
        };
        if !(still(&one) && still(&other)) {
            // An earlier repair took one of them away.
            continue;
        }
        let first_is_wrong = other.part.is_none() || guilty(subject, &one) && !guilty(subject, &other);
        let (wrong, right) = if first_is_wrong { (one, other) } else { (other, one) };
        let Some(part) = wrong.part else { continue };
        let backup = elsewhere(subject, &wrong);
        let whose = match right.part {
            Some(part) => format!("the {part} of group {}", right.group),
            None => format!("the superblock or the descriptors in group {}", right.group),
        };
        let start = wrong.start.max(right.start);
        let finding = Finding::new(
            Location::group(wrong.group).at_block(Block(start)),
            format!("its {part} at block {} overlaps {whose}", wrong.start),
            part.repair(backup),
        );
        if report.found_first(part.collision(), finding) {
            set_place(subject, wrong.group, part, backup.map_or(Block(0), |(_, place)| place));
            // Its bits and bytes may have been written by the other's owner.
            if let Some(Part::BlockBitmap | Part::InodeBitmap) = right.part {
                subject.renewed.insert(right.group.0);
            }
        }
    }
}

/// Another place that a backup knows for the structure.
fn elsewhere(subject: &Subject, span: &Span) -> Option<(Group, Block)> {
    let part = span.part?;
    let (from, raw) = backup_of(subject, span.group, &[part])?;
    (part.of(&raw).0 != span.start).then(|| (from, part.of(&raw)))
}

/// Returns true if a backup says that the structure lies elsewhere.
fn guilty(subject: &Subject, span: &Span) -> bool {
    elsewhere(subject, span).is_some()
}

/// Finds places for structures that have none, once all claims are known. New tables are zeros.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn find_missing(subject: &mut Subject, facts: &Facts) -> Result<()> {
    for group in (0..subject.geometry.groups).map(Group) {
        for part in Part::ALL {
            let Some(raw) = subject.descriptor(group) else { continue };
            if part.of(raw).0 == 0 && subject.renewed.contains(&group.0) {
                move_to_free(subject, facts, group, part)?;
            }
        }
    }
    Ok(())
}

fn move_to_free(subject: &mut Subject, facts: &Facts, group: Group, part: Part) -> Result<()> {
    let blocks = part.blocks(subject);
    let goal = subject.geometry.group_start(group);
    let Some(place) = facts.allocate(subject, goal, blocks) else { return Ok(()) };
    if !is_possible(subject, group, part, place) {
        // The group is full, and without flex_bg nothing of it may lie elsewhere.
        facts.release(subject, place, blocks);
        return Ok(());
    }
    if part == Part::InodeTable {
        let zeros = vec![0; subject.block_len()];
        for block in 0..blocks {
            subject.write(Block(place.0 + block), &zeros).map_err(staging("an inode table"))?;
        }
        // The reserved ones are in use whatever they hold; the root is made.
        let reserved = (1..subject.geometry.first_inode).filter_map(InodeNumber::new);
        let reserved = reserved.filter(|number| *number != InodeNumber::ROOT);
        let here =
            |number: &InodeNumber| subject.geometry.locate_inode(*number).is_some_and(|at| at.0 == group);
        for index in reserved.filter(here).map(|number| u64::from(number.index())) {
            facts.used.insert(index);
            facts.altered.insert(index);
        }
    }
    if let Some(raw) = subject.descriptor_mut(group) {
        part.set(raw, place);
    }
    Ok(())
}
