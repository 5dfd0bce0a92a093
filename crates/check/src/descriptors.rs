//! Group descriptors: whether each is what it says, and where it says its bitmaps and table lie.
//!
//! Broken fields are taken from a backup of the descriptors where one is right; structures without a place then
//! gets a new one behind the pass over inodes ([`super::places`]). Claims the blocks of the layout.
//! Excludes the counts in descriptors, which follow from what is found in use ([`super::space`]).

use std::io;

use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::{Block, Group, bounded};

use super::facts::Facts;
use super::issue::Location;
use super::kinds::opening as kind;
use super::parts::{Part, backup_of, expected, forget_uninit, is_possible, set_place};
use super::places;
use super::reporter::{Finding, Report};
use super::slices::as_index;
use super::staged::staging;
use super::subject::Subject;
use super::usual;
use platfs_device::{Error, Result};

/// Checks every descriptor and claims what the layout takes.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn check(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) -> Result<()> {
    for group in (0..subject.geometry.groups).map(Group) {
        descriptor(subject, group, report);
        flags(subject, group, report);
    }
    places::claim(subject, facts, report);
    Ok(())
}

/// Checks what descriptors themselves say: nothing but their own blocks is read, however many groups there are.
pub(super) fn glance(subject: &mut Subject, facts: &Facts, report: &mut Report<'_>) {
    for group in (0..subject.geometry.groups).map(Group) {
        descriptor(subject, group, report);
    }
    places::claim(subject, facts, report);
}

/// The bytes of a descriptor behind its first 64, of which checksums know.
fn rest(subject: &Subject, group: Group) -> Vec<u8> {
    let size = usize::from(subject.geometry.descriptor_size);
    if size <= 64 {
        return Vec::new();
    }
    let per_block = subject.geometry.descriptors_per_block();
    let at = (group.0 % per_block) as usize * size;
    let block = subject.block(subject.geometry.descriptor_block(group.0 / per_block));
    block.ok().and_then(|block| Some(block.get(at + 64..at + size)?.to_vec())).unwrap_or_default()
}

fn is_sealed(subject: &Subject, group: Group, raw: &RawGroupDescriptor) -> bool {
    subject.sealer.descriptor_is_right(group, raw, &rest(subject, group))
}

/// One descriptor: its checksum and its places.
fn descriptor(subject: &mut Subject, group: Group, report: &mut Report<'_>) {
    let Some(raw) = subject.descriptor(group).copied() else { return };
    let sealed = is_sealed(subject, group, &raw);
    let outside: Vec<Part> =
        Part::ALL.into_iter().filter(|part| !is_possible(subject, group, *part, part.of(&raw))).collect();
    match (sealed, outside.is_empty()) {
        (true, true) => {}
        (false, true) => match moved(subject, group, &raw) {
            parts if parts.is_empty() => checksum(subject, group, &raw, report),
            parts => damaged(subject, group, &parts, report),
        },
        (false, false) => damaged(subject, group, &outside, report),
        (true, false) => {
            for part in outside {
                misplaced(subject, group, part, report);
            }
        }
    }
}

/// Structures that a right backup has elsewhere.
fn moved(subject: &Subject, group: Group, raw: &RawGroupDescriptor) -> Vec<Part> {
    let Some((_, backup)) = backup_of(subject, group, &Part::ALL) else { return Vec::new() };
    Part::ALL.into_iter().filter(|part| part.of(raw) != part.of(&backup)).collect()
}

/// Only the checksum is wrong. Which field did it is not known: marks that hide inodes are dropped.
fn checksum(subject: &mut Subject, group: Group, raw: &RawGroupDescriptor, report: &mut Report<'_>) {
    let mut right = *raw;
    subject.sealer.seal_descriptor(group, &mut right, &rest(subject, group));
    let finding = Finding::new(
        Location::group(group),
        format!("{:#06x}", raw.bg_checksum.get()),
        "the checksum is recomputed; the group's tables and bitmaps are read to their ends",
    )
    .expected(format!("{:#06x}", right.bg_checksum.get()));
    if report.found(&kind::GROUP_CHECKSUM, finding) {
        forget_uninit(subject, group);
        if let Some(raw) = subject.descriptor_mut(group) {
            raw.bg_checksum = right.bg_checksum;
        }
    }
}

fn list(parts: &[Part], raw: &RawGroupDescriptor) -> String {
    let words: Vec<_> = parts.iter().map(|part| format!("{part} at block {}", part.of(raw))).collect();
    words.join(", ")
}

/// Checksum and places are wrong: nothing of the descriptor is believed.
fn damaged(subject: &mut Subject, group: Group, outside: &[Part], report: &mut Report<'_>) {
    let Some(raw) = subject.descriptor(group).copied() else { return };
    let backup = backup_of(subject, group, &Part::ALL);
    let usual = if backup.is_none() { usual::table(subject, group) } else { None };
    let repair = match (&backup, usual) {
        (Some((from, _)), _) => format!("it is taken from the backup in group {from}"),
        (None, Some(table)) => {
            format!("there is no good backup: its inode table is at block {table}, and bitmaps are rebuilt")
        }
        (None, None) => {
            "there is no good backup: bitmaps are rebuilt, and the files of an inode table without \
                 a place are lost"
                .to_owned()
        }
    };
    let found = format!("its checksum is wrong, and it has {}", list(outside, &raw));
    if !report.found_first(&kind::GROUP_DESCRIPTOR, Finding::new(Location::group(group), found, repair)) {
        subject.descriptors_left.insert(group.0);
        return;
    }
    let outside = outside.to_vec();
    if let Some(raw) = subject.descriptor_mut(group) {
        match backup {
            Some((_, backup)) => *raw = backup,
            None => {
                outside.iter().for_each(|part| part.set(raw, Block(0)));
                if let Some(table) = usual {
                    raw.set_inode_table(table);
                }
            }
        }
    }
    subject.backups_follow = true;
    forget_uninit(subject, group);
}

/// One structure lies where it can't.
fn misplaced(subject: &mut Subject, group: Group, part: Part, report: &mut Report<'_>) {
    let Some(raw) = subject.descriptor(group).copied() else { return };
    let place = part.of(&raw);
    let backup = backup_of(subject, group, &[part]).map(|(from, raw)| (from, part.of(&raw)));
    let is_table = part == Part::InodeTable && backup.is_none();
    let usual = if is_table { usual::table(subject, group) } else { None };
    let repair = match usual {
        Some(table) => format!("it is at block {table}, where it usually lies"),
        None => part.repair(backup),
    };
    let found = format!("its {part} at block {place}");
    let finding = Finding::new(Location::group(group).at_block(place), found, repair);
    if report.found_first(part.outside(), finding.expected(expected(subject, group))) {
        let known = usual.or(backup.map(|(_, place)| place));
        set_place(subject, group, part, known.unwrap_or(Block(0)));
    }
}

/// Flags and the count of inodes never used, as far as they decide what is read.
fn flags(subject: &mut Subject, group: Group, report: &mut Report<'_>) {
    let Some(raw) = subject.descriptor(group).copied() else { return };
    let uninit = raw.flags() & (GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
    if !subject.features.descriptor_csum() {
        if uninit.is_empty() && raw.unused_inodes() == 0 {
            return;
        }
        let found = format!("flags {:#x}, {} inodes never used", raw.bg_flags.get(), raw.unused_inodes());
        let repair = "they are taken away; the group's table and bitmaps are read to their ends";
        if report.found(&kind::GROUP_UNINIT, Finding::new(Location::group(group), found, repair)) {
            // They meant nothing: what the group's bitmaps say is what it always was.
            let renewed = subject.renewed.contains(&group.0);
            forget_uninit(subject, group);
            if !renewed {
                subject.renewed.remove(&group.0);
            }
        }
        return;
    }
    if group.0 + 1 == subject.geometry.groups && uninit.contains(GroupFlags::BLOCK_UNINIT) {
        let finding = Finding::new(
            Location::group(group),
            "its block bitmap is marked as not yet begun",
            "the mark is taken away and the bitmap written from what is found in use",
        );
        if report.found(&kind::LAST_GROUP_UNINIT, finding)
            && let Some(raw) = subject.descriptor_mut(group)
        {
            raw.set_flags(raw.flags() - GroupFlags::BLOCK_UNINIT);
            subject.renewed.insert(group.0);
        }
    }
    let whole = subject.geometry.inodes_per_group;
    if uninit.contains(GroupFlags::INODE_UNINIT) && (group.0 == 0 || raw.free_inodes() < whole) {
        let finding = Finding::new(
            Location::group(group),
            format!("its inodes are marked as not yet begun, but {} of {whole} are free", raw.free_inodes()),
            "the mark is taken away; the whole table is read",
        );
        if report.found(&kind::INODES_UNINIT, finding) {
            forget_uninit(subject, group);
        }
        return;
    }
    let unused = raw.unused_inodes();
    if unused > raw.free_inodes().min(whole) || unused > 0 && is_tail_marked(subject, group, &raw) {
        // What is wrong shows when the whole table was read.
        if let Some(raw_now) = subject.descriptor_mut(group) {
            raw_now.set_unused_inodes(0);
        }
        subject.unused_doubted.insert(group.0, raw.unused_inodes());
    }
}

/// Returns true if the inode bitmap says that inodes are in use in the part of the table that was never used.
fn is_tail_marked(subject: &Subject, group: Group, raw: &RawGroupDescriptor) -> bool {
    if subject.group_has(group, GroupFlags::INODE_UNINIT) {
        return false;
    }
    let whole = subject.geometry.inodes_per_group as usize;
    let from = whole.saturating_sub(raw.unused_inodes() as usize);
    let Ok(bitmap) = subject.block(raw.inode_bitmap()) else { return true };
    let bytes = bitmap.get(..whole / 8).unwrap_or_default();
    let (first, bit) = (from / 8, from % 8);
    bytes.get(first).is_some_and(|byte| byte >> bit != 0)
        || bytes.get(first + 1..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0))
}

/// Reads all descriptors, of the primary or the copy that belongs to the superblock of `group`. Blocks
/// that can't be read are reported and count as zeros, which no descriptor is.
///
/// # Errors
/// More of them than fit into `memory` bytes.
pub(super) fn read(
    device: &dyn platfs_device::Device,
    geometry: &ondisk::geometry::Geometry,
    memory: u64,
    mut failed: impl FnMut(Block, &io::Error),
) -> Result<Vec<RawGroupDescriptor>> {
    if u64::from(geometry.groups) * 64 > memory {
        return Err(Error::Unsupported(format!(
            "{} block groups need more memory than is allowed",
            geometry.groups
        )));
    }
    let mut descriptors = Vec::new();
    let size = usize::from(geometry.descriptor_size);
    let mut bytes = vec![0; geometry.block_size.bytes_usize()];
    for block in (0..geometry.descriptor_blocks()).map(|index| geometry.descriptor_block(index)) {
        if let Err(error) = device.read_at(geometry.byte_offset(block), &mut bytes) {
            failed(block, &error);
            bytes.fill(0);
        }
        descriptors.extend(bytes.chunks_exact(size).map(RawGroupDescriptor::parse));
    }
    descriptors.truncate(as_index(u64::from(geometry.groups)));
    Ok(descriptors)
}

/// Stages the descriptors that are not what the device holds, with their checksums, in the primary and,
/// where their repair calls for it, in every backup.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn write(subject: &mut Subject) -> Result<()> {
    let geometry = subject.geometry;
    for index in 0..geometry.descriptor_blocks() {
        write_block(subject, index, geometry.descriptor_block(index))
            .map_err(staging("group descriptors"))?;
    }
    if !subject.backups_follow {
        return Ok(());
    }
    for group in (1..geometry.groups).map(Group) {
        let meta = geometry.meta_descriptor_held_by(group);
        let copies = (0..geometry.descriptors_behind(group))
            .map(|index| (index, geometry.descriptor_block_copy(index, group)));
        for (index, block) in copies.chain(meta) {
            // A backup on a bad place of the device is none; the volume does not need it now.
            let _ = write_block(subject, index, block);
        }
    }
    Ok(())
}

fn write_block(subject: &mut Subject, index: u32, block: Block) -> io::Result<()> {
    let geometry = subject.geometry;
    let per_block = geometry.descriptors_per_block();
    let size = usize::from(geometry.descriptor_size);
    let mut bytes = subject.block(block).unwrap_or_else(|_| vec![0; subject.block_len()]);
    let mut changed = false;
    for (at, stored) in bytes.chunks_exact_mut(size).enumerate() {
        let group = Group(index * per_block + bounded::<u32>(at));
        let Some(raw) = subject.descriptors.get_mut(as_index(u64::from(group.0))) else {
            break;
        };
        // One of which nothing is believed would pass for good with a new checksum.
        let stays = subject.descriptors_left.contains(&group.0);
        if stays || RawGroupDescriptor::parse(stored) == in_effect(*raw, size) {
            continue;
        }
        let rest = stored.get(64..).unwrap_or_default().to_vec();
        subject.sealer.seal_descriptor(group, raw, &rest);
        raw.store(stored);
        changed = true;
    }
    if changed { subject.write(block, &bytes) } else { Ok(()) }
}

/// The descriptor as `size` bytes can hold it.
fn in_effect(raw: RawGroupDescriptor, size: usize) -> RawGroupDescriptor {
    let mut bytes = [0; 64];
    raw.store(bytes.get_mut(..size.min(64)).unwrap_or_default());
    RawGroupDescriptor::parse(&bytes)
}
