//! Small changes of directories in place: what `..` says, names that go, names that find room.

use ondisk::dirent::{self, Layout, Name, Record, entries_without_tail};
use ondisk::features::Incompat;
use ondisk::htree::ROOT_ENTRIES;
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{FileBlock, InodeNumber};

use super::blocks::Blocks;
use super::inline;
use super::leaf::Position;
use crate::staged::staging;
use crate::subject::Subject;
use platfs_device::Result;

/// Bytes of a block that hold entries: all before its tail, if it has one.
pub(super) fn region(bytes: &[u8], layout: Layout) -> usize {
    if layout.checksums && dirent::has_tail(bytes) {
        layout.leaf_space().min(bytes.len())
    } else {
        bytes.len()
    }
}

/// Calls `visit` with the entries of each part of a directory, whose bytes may be changed: the part, the
/// bytes, and where in them the entries begin that are not `.` and `..`. What was changed (`true`) is
/// staged with its checksum. Parts that cannot be read are left out. Ends when `visit` says `None`.
fn each_part(
    subject: &Subject,
    inode: &Inode,
    mut visit: impl FnMut(FileBlock, &mut [u8]) -> Option<bool>,
) -> Result<()> {
    let layout = subject.layout();
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        let (mut first, mut second) = (inode.raw().i_block, inline::second_part(inode).unwrap_or_default());
        let mut changed = false;
        let mut go_on = true;
        for (part, bytes) in [(0, first.get_mut(4..).unwrap_or_default()), (1, &mut second[..])] {
            if go_on {
                let answer = visit(FileBlock(part), bytes);
                go_on = answer.is_some();
                changed |= answer == Some(true);
            }
        }
        return if changed { inline::store(subject, inode, &first, &second) } else { Ok(()) };
    }
    let Ok(blocks) = Blocks::of(subject, inode) else { return Ok(()) };
    let seed = subject.seed_of(inode);
    for (at, block) in blocks.each() {
        let Ok(mut bytes) = subject.block(block) else { continue };
        let end = region(&bytes, layout);
        match visit(at, bytes.get_mut(..end).unwrap_or_default()) {
            None => return Ok(()),
            Some(false) => {}
            Some(true) => {
                if dirent::has_tail(&bytes) {
                    seed.seal_directory_leaf(&mut bytes);
                } else {
                    seed.seal_index_node(&mut bytes, ROOT_ENTRIES);
                }
                subject.write(block, &bytes).map_err(staging("a block of a directory"))?;
            }
        }
    }
    Ok(())
}

/// Offsets and entries behind `.` and `..`, up to the first broken one.
fn names(bytes: &[u8], dots: bool, layout: Layout) -> impl Iterator<Item = dirent::Entry<'_>> {
    entries_without_tail(bytes, layout)
        .map_while(std::result::Result::ok)
        .skip(if dots { 2 } else { 0 })
        .filter(|entry| entry.inode.is_some())
}

fn has_dots(inode: &Inode, part: FileBlock) -> bool {
    part.0 == 0 && !inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// Lets `..` of a directory lead to its parent. Nothing where there is no `..`.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn set_dotdot(subject: &Subject, number: InodeNumber, parent: InodeNumber) -> Result<()> {
    let Ok(inode) = subject.inode(number) else { return Ok(()) };
    let layout = subject.layout();
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        let mut first = inode.raw().i_block;
        inline::set_parent(&mut first, parent);
        let second = inline::second_part(&inode).unwrap_or_default();
        return inline::store(subject, &inode, &first, &second);
    }
    let mut seen = false;
    each_part(subject, &inode, |_, bytes| {
        if std::mem::replace(&mut seen, true) {
            return None;
        }
        let second = entries_without_tail(bytes, layout).nth(1);
        let Some(Ok(entry)) = second else { return Some(false) };
        let (changes, at) = (entry.name == b".." && entry.inode != Some(parent), entry.offset);
        if changes && let Some(to) = bytes.get_mut(at..at + 4) {
            to.copy_from_slice(&parent.get().to_le_bytes());
        }
        Some(changes)
    })
}

/// The names in a directory that lead to an inode.
pub(crate) fn names_of(
    subject: &Subject,
    directory: InodeNumber,
    child: InodeNumber,
) -> Vec<(Position, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(inode) = subject.inode(directory) else { return found };
    let layout = subject.layout();
    let _ = each_part(subject, &inode, |part, bytes| {
        let dots = has_dots(&inode, part);
        let leading = names(bytes, dots, layout).filter(|entry| entry.inode == Some(child));
        found.extend(leading.map(|entry| ((part, entry.offset), entry.name.to_vec())));
        Some(false)
    });
    found
}

/// The inode that a name leads to.
pub(crate) fn find(subject: &Subject, directory: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
    let inode = subject.inode(directory).ok()?;
    let layout = subject.layout();
    let mut found = None;
    let _ = each_part(subject, &inode, |part, bytes| {
        let dots = has_dots(&inode, part);
        found = names(bytes, dots, layout).find(|entry| entry.name == name).and_then(|entry| entry.inode);
        found.is_none().then_some(false)
    });
    found
}

/// Calls `visit` with each name of a directory.
pub(crate) fn each_name(
    subject: &Subject,
    directory: InodeNumber,
    mut visit: impl FnMut(&[u8], InodeNumber),
) {
    let Ok(inode) = subject.inode(directory) else { return };
    let layout = subject.layout();
    let _ = each_part(subject, &inode, |part, bytes| {
        for entry in names(bytes, has_dots(&inode, part), layout) {
            if let Some(inode) = entry.inode {
                visit(entry.name, inode);
            }
        }
        Some(false)
    });
}

/// Removes the name at a position.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn remove(subject: &Subject, directory: InodeNumber, position: Position) -> Result<()> {
    let Ok(inode) = subject.inode(directory) else { return Ok(()) };
    each_part(subject, &inode, |part, bytes| {
        if part != position.0 {
            return Some(false);
        }
        let at = position.1;
        let name_len = bytes.get(at + 6).map_or(0, |len| usize::from(*len));
        super::leaf::clear(bytes, at, name_len);
        Some(true)
    })
}

/// Lets the name at a position lead to another inode.
///
/// # Errors
/// Repairs take more memory than they may.
pub(crate) fn redirect(
    subject: &Subject,
    directory: InodeNumber,
    position: Position,
    to: InodeNumber,
    file_type: FileType,
) -> Result<()> {
    let Ok(inode) = subject.inode(directory) else { return Ok(()) };
    let typed = subject.has_incompat(Incompat::FILETYPE);
    each_part(subject, &inode, |part, bytes| {
        if part != position.0 {
            return Some(false);
        }
        let at = position.1;
        if let Some(number) = bytes.get_mut(at..at + 4) {
            number.copy_from_slice(&to.get().to_le_bytes());
        }
        if typed && let Some(code) = bytes.get_mut(at + 7) {
            *code = file_type.entry_code();
        }
        Some(true)
    })
}

/// A name that is to be added.
pub(crate) struct NewName {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: InodeNumber,
    pub(crate) file_type: FileType,
}

/// Adds names where a directory without an index has room; those that found none.
///
/// # Errors
/// Repairs take more memory than they may.
pub(super) fn add(subject: &Subject, inode: &Inode, mut new: Vec<NewName>) -> Result<Vec<NewName>> {
    let layout = subject.layout();
    if inode.flags().contains(InodeFlags::INDEX) || inode.flags().contains(InodeFlags::INLINE_DATA) {
        return Ok(new);
    }
    new.reverse();
    each_part(subject, inode, |_, bytes| {
        let mut changed = false;
        while let Some(next) = new.last() {
            let Ok(name) = Name::new(&next.name) else { return Some(changed) };
            let record = Record::new(name, next.inode, next.file_type, layout);
            let Some(at) = room(bytes, layout, record.needs()) else { return Some(changed) };
            dirent::insert_at(bytes, layout, at, &record);
            new.pop();
            changed = true;
        }
        Some(changed)
    })?;
    new.reverse();
    Ok(new)
}

fn room(bytes: &[u8], layout: Layout, needs: usize) -> Option<dirent::Room> {
    dirent::find_room(bytes, layout, needs).ok().flatten()
}
