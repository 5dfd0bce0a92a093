//! Directories inside their inode: the parent and entries in `i_block`, more of them in the value of the
//! attribute `system.data`.
//!
//! `.` is not stored, `..` is only a number. Whether the size of the inode fits what is there is for the
//! pass over inodes.

use ondisk::dirent;
use ondisk::inode::{I_BLOCK_LEN, Inode};
use ondisk::units::{FileBlock, InodeNumber};
use ondisk::xattr::{self, Entry, NameIndex, Value};

use super::leaf::{Examiner, RebuildDecision, RegionLocation};
use crate::issue::Location;
use crate::kinds::directories::{DIRECTORY_DOTDOT, ENTRY_DUPLICATE, INLINE_SIZE};
use crate::reporter::{Finding, Reporter};
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Name of the attribute behind its prefix `system.`.
const DATA: &[u8] = b"data";
/// Bytes of the parent's number.
const PARENT_LEN: usize = 4;

fn is_data(entry: &Entry<'_>) -> bool {
    entry.index == NameIndex::SYSTEM && entry.name == DATA
}

/// The part of an inline directory's entries that stands in the attribute.
pub(super) fn second_part(inode: &Inode) -> Option<Vec<u8>> {
    let entries = xattr::in_inode(inode).ok()?;
    match entries.into_iter().find(is_data)?.value {
        Value::Here(bytes) => Some(bytes.to_vec()),
        Value::Inode { .. } => None,
    }
}

/// Stores both parts and the size that they have.
pub(super) fn store(subject: &Subject, inode: &Inode, first: &[u8], second: &[u8]) -> Result<()> {
    let mut changed = inode.clone();
    changed
        .raw_mut()
        .i_block
        .copy_from_slice(first.first_chunk::<I_BLOCK_LEN>().unwrap_or(&[0; I_BLOCK_LEN]));
    if let Ok(entries) = xattr::in_inode(inode)
        && second_part(inode).is_some_and(|old| old != second)
    {
        let data = Entry::here(NameIndex::SYSTEM, DATA, second);
        let entries: Vec<_> =
            entries.into_iter().map(|entry| if is_data(&entry) { data } else { entry }).collect();
        // No value is longer than it was, so that they fit.
        let _ = xattr::store_in_inode(&mut changed, &entries);
    }
    changed.set_size((I_BLOCK_LEN + second.len()) as u64);
    subject.write_inode(&mut changed).map_err(staging("an inode"))
}

/// Examines both parts.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn examine(
    subject: &Subject,
    mut examiner: Examiner<'_>,
    reporter: &mut Reporter<'_, '_>,
) -> Result<RebuildDecision> {
    let inode = examiner.inode;
    let mut first = inode.raw().i_block;
    let mut second = second_part(inode).unwrap_or_default();
    let mut changed = size(&mut second, inode, reporter) | parent(&mut first, &mut examiner, reporter);
    let region = |part| RegionLocation { file_block: FileBlock(part), block: None, hashes: None };
    let head = first.get_mut(PARENT_LEN..).unwrap_or_default();
    changed |= examiner.walk(head, &region(0), false, reporter);
    changed |= examiner.walk(&mut second, &region(1), false, reporter);
    for (part, at) in std::mem::take(&mut examiner.whole.rename) {
        let region = if part.0 == 0 { first.get_mut(PARENT_LEN..).unwrap_or_default() } else { &mut second };
        rename(region, at, &mut examiner);
        changed = true;
    }
    examiner.whole.rebuild = false;
    examiner.seen.sort_unstable();
    if reporter.is_silent() && examiner.seen.windows(2).any(|pair| pair.first() == pair.last()) {
        reporter.found(&ENTRY_DUPLICATE, || Finding::new(Location::default(), "", ""));
    }
    if changed {
        store(subject, inode, &first, &second)?;
    }
    Ok(examiner.whole)
}

/// The second part holds whole entries or nothing.
fn size(second: &mut Vec<u8>, inode: &Inode, reporter: &mut Reporter<'_, '_>) -> bool {
    let len = second.len();
    if len == 0 || (len.is_multiple_of(4) && len >= dirent::MIN_ENTRY_LEN) {
        return false;
    }
    let mend = reporter.found(&INLINE_SIZE, || {
        Finding::new(
            Location::inode(inode.number()),
            format!("{len} bytes in the attribute"),
            "cut to whole entries",
        )
    });
    if mend {
        let fits = len & !3;
        second.truncate(if fits < dirent::MIN_ENTRY_LEN { 0 } else { fits });
    }
    mend
}

/// The parent must be an inode; which one is for the pass over the tree.
fn parent(
    first: &mut [u8; I_BLOCK_LEN],
    examiner: &mut Examiner<'_>,
    reporter: &mut Reporter<'_, '_>,
) -> bool {
    examiner.found.dotdot = dirent::inline_parent(first);
    if examiner.found.dotdot.is_some() {
        return false;
    }
    let place = Location::inode(examiner.inode.number());
    let mend =
        reporter.found(&DIRECTORY_DOTDOT, || Finding::new(place, "no parent", "the parent is put back"));
    if mend {
        set_parent(first, InodeNumber::ROOT);
        examiner.facts.dotdot_left.remove(u64::from(examiner.inode.number().index()));
    } else {
        examiner.facts.dotdot_left.insert(u64::from(examiner.inode.number().index()));
    }
    mend
}

/// Writes the parent into `i_block`.
pub(super) fn set_parent(first: &mut [u8; I_BLOCK_LEN], parent: InodeNumber) {
    if let Some(to) = first.first_chunk_mut::<PARENT_LEN>() {
        *to = parent.get().to_le_bytes();
    }
}

/// Gives the entry at an offset another name of the same length: there is no room for a longer one.
fn rename(region: &mut [u8], at: usize, examiner: &mut Examiner<'_>) {
    let Some(len) = region.get(at + 6).map(|len| usize::from(*len)) else { return };
    let Some(name) = region.get_mut(at + 8..at + 8 + len) else { return };
    for last in (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z') {
        if let Some(byte) = name.last_mut() {
            *byte = last;
        }
        if !examiner.known.contains_key(&*name) {
            break;
        }
    }
    examiner.known.insert(name.to_vec(), examiner.inode.number());
}
