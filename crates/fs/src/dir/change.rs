//! Taking names out of directories, and letting names lead elsewhere.

use ondisk::corrupt::Place;
use ondisk::dirent::{self, Layout};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber};

use super::{Dir, DirMut, htree, linear};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::inline;
use crate::order::Kept;

/// Where an entry stands, and where it leads.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) at: FileBlock,
    pub(super) block: Block,
    pub(super) role: Role,
    pub(super) layout: Layout,
    pub(super) offset: usize,
    pub(super) inode: InodeNumber,
    pub(super) file_type: Option<FileType>,
}

/// The entry with a name, in a directory of blocks.
pub(super) fn locate(reader: &Dir<'_>, name: &[u8]) -> Result<Option<Spot>> {
    if reader.is_indexed() && !matches!(name, b"." | b"..") {
        match htree::locate(reader, name) {
            // Every block can be searched without the index.
            Err(Error::Corrupt(_)) => {}
            answer => return answer,
        }
    }
    linear::locate(reader, name)
}

/// Takes a name out and returns where it led; `None` if there is no such name.
pub(super) fn remove(writer: &mut DirMut<'_, '_>, name: &[u8]) -> Result<Option<InodeNumber>> {
    if writer.dir.flags().contains(InodeFlags::INLINE_DATA) {
        return change_inline(writer, name, dirent::remove);
    }
    let Some(spot) = locate(&writer.reader(), name)? else { return Ok(None) };
    let bytes = writer.tx.edit(spot.block, spot.role)?;
    let removed = dirent::remove(bytes, spot.layout, spot.offset);
    done(writer, spot.at, removed)?;
    keep_if_it_matters(writer, &spot, name)?;
    give_back(writer, spot.at, name)?;
    Ok(Some(spot.inode))
}

/// Lets a name lead to another inode; returns where it led, `None` if there is no such name.
pub(super) fn retarget(
    writer: &mut DirMut<'_, '_>,
    name: &[u8],
    to: InodeNumber,
    file_type: FileType,
) -> Result<Option<InodeNumber>> {
    if writer.dir.flags().contains(InodeFlags::INLINE_DATA) {
        if name == b".." {
            return set_inline_parent(writer, to).map(Some);
        }
        let to = writer.tx.format.on_disk(to);
        return change_inline(writer, name, |part, layout, offset| {
            dirent::retarget(part, layout, offset, to, file_type)
        });
    }
    let Some(spot) = locate(&writer.reader(), name)? else { return Ok(None) };
    writer.tx.refuse_kept(spot.block)?;
    let matters = writer.tx.order().awaits_names(spot.inode);
    if matters && name != b".." && writer.growth.was_in_use(writer.tx, spot.inode)? {
        // The one that loses this name, or what was moved out of it, may have no other on the device; and it can't
        // be kept beside the new.
        return writer.tx.wait_for_commit();
    }
    writer.tx.note(|notes| notes.add(spot.block.0));
    let to = writer.tx.format.on_disk(to);
    let bytes = writer.tx.edit(spot.block, spot.role)?;
    let changed = dirent::retarget(bytes, spot.layout, spot.offset, to, file_type);
    done(writer, spot.at, changed)?;
    Ok(Some(spot.inode))
}

/// Notes a name that has to stay on the device for a while, because those that its inode has got are not there
/// yet. Others in the same block appear as it vanishes.
fn keep_if_it_matters(writer: &mut DirMut<'_, '_>, spot: &Spot, name: &[u8]) -> Result<()> {
    let directory = writer.dir.number();
    let Spot { inode, file_type, .. } = *spot;
    if !writer.tx.awaits_names(inode) {
        return Ok(());
    }
    let bytes = writer.tx.read(spot.block, spot.role)?;
    let on_disk = Some(writer.tx.format.on_disk(inode));
    let is_there =
        dirent::entries(&bytes, spot.layout).any(|entry| entry.is_ok_and(|entry| entry.inode == on_disk));
    if is_there
        || !writer.growth.was_in_use(writer.tx, inode)?
        || !writer.growth.was_in_use(writer.tx, directory)?
    {
        return Ok(());
    }
    let kept = Kept { name: name.to_vec(), inode, file_type };
    writer.tx.note(|notes| notes.keep(spot.block.0, directory, kept));
    Ok(())
}

fn done(
    writer: &DirMut<'_, '_>,
    at: FileBlock,
    changed: std::result::Result<bool, dirent::BrokenEntry>,
) -> Result<()> {
    match changed {
        Ok(true) => Ok(()),
        Ok(false) => Err(writer.reader().broken(at, "an entry is not where it was found")),
        Err(broken) => Err(writer.reader().broken(at, broken)),
    }
}

/// Gives back the block that a name was in, if it was the last there. Where maps and indexes move instead of being
/// changed in place, that would write blocks that nothing else changes, and is left to [`DirMut::pack`].
fn give_back(writer: &mut DirMut<'_, '_>, at: FileBlock, name: &[u8]) -> Result<()> {
    if !writer.dir.flags().contains(InodeFlags::INDEX) {
        return drop_empty_tail(writer, at);
    }
    let in_leaf = at.0 > 0 && writer.reader().is_indexed();
    if in_leaf && writer.tx.order().changes_in_place() {
        return htree::drop_if_empty(writer, at, name);
    }
    Ok(())
}

/// Frees the blocks at the end of a directory without an index that hold no entry, once one there
/// lost its last.
pub(super) fn drop_empty_tail(writer: &mut DirMut<'_, '_>, at: FileBlock) -> Result<()> {
    let count = writer.reader().count()?;
    if writer.dir.flags().contains(InodeFlags::INDEX) || at.0 + 1 != count {
        return Ok(());
    }
    let mut keep = count;
    while keep > 1 {
        let reader = writer.reader();
        let (block, bytes) = reader.leaf(FileBlock(keep - 1))?;
        if writer.tx.has_kept(block) {
            break;
        }
        if dirent::entries(&bytes, reader.layout).any(|entry| !entry.is_ok_and(|entry| entry.inode.is_none()))
        {
            break;
        }
        keep -= 1;
    }
    if keep == count {
        return Ok(());
    }
    writer.growth.cut(writer.tx, writer.dir, FileBlock(keep))?;
    writer.dir.set_size(u64::from(keep) * u64::from(writer.layout.block_size.bytes()));
    Ok(())
}

fn set_inline_parent(writer: &mut DirMut<'_, '_>, to: InodeNumber) -> Result<InodeNumber> {
    let (dir, format) = (&mut *writer.dir, writer.tx.format);
    let broken = || Error::corrupt(Place::Directory(dir.number()), "inline, without a parent");
    let before = dirent::inline_parent(&dir.raw().i_block).ok_or_else(broken)?;
    if let Some(parent) = dir.raw_mut().i_block.first_chunk_mut() {
        *parent = format.on_disk(to).get().to_le_bytes();
    }
    Ok(format.known_as(before))
}

/// Changes the entry with a name in either part of an inline directory.
fn change_inline(
    writer: &mut DirMut<'_, '_>,
    name: &[u8],
    change: impl Fn(&mut [u8], Layout, usize) -> std::result::Result<bool, dirent::BrokenEntry>,
) -> Result<Option<InodeNumber>> {
    let layout = Layout { checksums: false, ..writer.layout };
    let (head, tail) = inline::parts(writer.dir)?;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    for in_head in [true, false] {
        // The parent's number comes before the entries.
        let part = if in_head { head.get_mut(4..).unwrap_or_default() } else { &mut tail };
        let found = find_in(part, layout, name);
        let Some((offset, inode)) = found.map_err(|broken| writer.reader().broken(FileBlock(0), broken))?
        else {
            continue;
        };
        let changed = change(part, layout, offset);
        done(writer, FileBlock(0), changed)?;
        inline::set_parts(writer.dir, &head, &tail)?;
        return Ok(Some(writer.tx.format.known_as(inode)));
    }
    Ok(None)
}

fn find_in(
    part: &[u8],
    layout: Layout,
    name: &[u8],
) -> std::result::Result<Option<(usize, InodeNumber)>, dirent::BrokenEntry> {
    for entry in dirent::entries_without_tail(part, layout) {
        let entry = entry?;
        if let (Some(inode), true) = (entry.inode, entry.name == name) {
            return Ok(Some((entry.offset, inode)));
        }
    }
    Ok(None)
}

/// Moves the entries of an inline directory to a block of its own.
pub(super) fn grow_out(writer: &mut DirMut<'_, '_>) -> Result<()> {
    let parts = inline::parts(writer.dir)?;
    let parent = dirent::inline_parent(parts.0);
    let all = linear::inline_entries(writer.tx.format, writer.dir, parts)?;
    let Some(parent) = parent else { return Ok(()) };
    writer.tx.take_inline(writer.dir)?;
    writer.init(writer.tx.format.known_as(parent))?;
    for entry in all.iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
        let name = dirent::Name::new(&entry.name);
        let name = name.map_err(|bad| writer.reader().broken(FileBlock(0), bad))?;
        let file_type = entry.file_type.unwrap_or(FileType::Regular);
        let inode = writer.tx.format.on_disk(entry.inode);
        let record = dirent::Record::new(name, inode, file_type, writer.layout);
        if !linear::insert_into(writer, FileBlock(0), &record)? {
            return Err(Error::DirectoryFull("its entries do not fit a block".into()));
        }
    }
    Ok(())
}
