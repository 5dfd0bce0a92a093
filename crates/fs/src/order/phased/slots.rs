//! Records of inodes: which may stand on the device in which phase.

use ondisk::inode::{FileType, Inode, LINKS_MAX};
use ondisk::units::{InodeNumber, saturated};

use super::{Facts, Phase, SoftdepRecord};
use crate::format::Format;

/// Where a record has the low half of its mode, and its number of links.
const MODE: usize = 0;
const LINKS: usize = 0x1A;
const DELETED: usize = 0x14;
/// Where it has the number of its block of attributes.
const ATTRIBUTES: usize = 0x68;
const ATTRIBUTES_HIGH: usize = 0x76;

fn word(record: &[u8], at: usize) -> u16 {
    record.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// True if a record is that of an inode in use: it has links, or none and was not deleted.
pub(crate) fn is_used(record: &[u8]) -> bool {
    let was_deleted = word(record, DELETED) != 0 || word(record, DELETED + 2) != 0;
    word(record, MODE) != 0 && (word(record, LINKS) > 0 || !was_deleted)
}

/// Reads the fields of a record that a survey counts.
pub(crate) fn facts(record: &[u8]) -> Facts {
    if !is_used(record) {
        return Facts::default();
    }
    let long = |at: usize| u64::from(word(record, at)) | u64::from(word(record, at + 2)) << 16;
    let attributes = long(ATTRIBUTES) | u64::from(word(record, ATTRIBUTES_HIGH)) << 32;
    Facts { is_directory: is_directory(record), attributes }
}

fn is_directory(record: &[u8]) -> bool {
    FileType::from_mode(word(record, MODE)) == Some(FileType::Directory)
}

/// True if records may be shown otherwise in a phase than before it; those of a table that is new are first shown
/// when it is written as zeros.
pub(super) fn changes_in(phase: Phase, is_new: bool) -> bool {
    matches!(phase, Phase::Inode | Phase::Link | Phase::Clear | Phase::Release)
        || is_new && phase == Phase::Allocate
}

/// Brings the records of a block of the inode table, `before` the epoch and `after` it, to what may stand on
/// the device in a phase.
pub(super) fn image(
    format: &Format,
    notes: &SoftdepRecord,
    first: InodeNumber,
    (before, after): (&[u8], &[u8]),
    phase: Phase,
) -> Vec<u8> {
    let size = usize::from(format.geometry.inode_size);
    let mut image = Vec::with_capacity(after.len());
    for (index, (before, after)) in before.chunks(size).zip(after.chunks(size)).enumerate() {
        let number = u32::try_from(index).ok().and_then(|index| first.get().checked_add(index));
        let start = image.len();
        match number.and_then(InodeNumber::new) {
            Some(number) if before.len() == size => {
                let (record, links) = shown(notes, number, before, after, phase);
                image.extend_from_slice(record);
                if links != word(record, LINKS) {
                    set_links(format, number, links, image.get_mut(start..).unwrap_or_default());
                }
            }
            _ => image.extend_from_slice(after),
        }
    }
    image
}

/// The record that is shown in a phase, and with how many links.
fn shown<'r>(
    notes: &SoftdepRecord,
    number: InodeNumber,
    before: &'r [u8],
    after: &'r [u8],
    phase: Phase,
) -> (&'r [u8], u16) {
    let (was, is) = (is_used(before), is_used(after));
    let peak = peak(notes, number, before, after);
    if phase == Phase::Allocate || !is && !was && phase < Phase::Clear {
        return (before, links(before));
    }
    if !is {
        // It may have got names, and lost them again.
        return if phase < Phase::Clear { (before, peak) } else { (after, word(after, LINKS)) };
    }
    let directory = is_directory(after);
    // A file lacks no name once they have vanished; the `..` of directories that go count until they are gone.
    let last = if directory { Phase::Release } else { Phase::Clear };
    if phase >= last {
        return (after, links(after));
    }
    // What a directory leads to are names: they appear when all that they lead to is there.
    let waits = was && directory && phase < Phase::Link;
    (if waits { before } else { after }, peak)
}

/// Links as the device has them. An inode without a name that is still open keeps one there: it is in use, and
/// without a name after a crash.
fn links(record: &[u8]) -> u16 {
    word(record, LINKS).max(u16::from(is_used(record)))
}

/// Most links that an inode needs at any time in the epoch.
fn peak(notes: &SoftdepRecord, number: InodeNumber, before: &[u8], after: &[u8]) -> u16 {
    let was = if is_used(before) { links(before) } else { 0 };
    let is = links(after);
    if is_directory(if is == 0 { before } else { after }) && (is == 1 || was == 1) {
        // It does not count.
        return 1;
    }
    let most = u32::from(was).saturating_add(notes.names_of(number)).min(LINKS_MAX.into());
    is.max(saturated::<u16>(most))
}

fn set_links(format: &Format, number: InodeNumber, links: u16, record: &mut [u8]) {
    let Ok(mut inode) = Inode::parse(number, record) else { return };
    inode.raw_mut().i_links_count.set(links);
    format.sealer.seal_inode(&mut inode);
    record.copy_from_slice(inode.bytes());
}
