//! Directories whose names stand in the inode itself (`inline_data`): in the record, behind the parent's number, and in the
//! attribute `system.data`, which grows with them.
//!
//! Owns: beginning one, changing its names, and moving them to a block once the inode has no room. Excludes: listing them
//! (`linear`), and how both parts are stored (`inline`).

use ondisk::corrupt::Place;
use ondisk::dirent::{self, Layout, Record};
use ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags};
use ondisk::units::{FileBlock, InodeNumber};

use super::change::done;
use super::{DirMut, linear};
use crate::error::{Error, Result};
use crate::inline;

/// Bytes of the parent's number, before the first entry.
pub(super) const PARENT_LEN: usize = 4;

/// The layout of entries that no checksum follows.
fn bare(writer: &DirMut<'_, '_>) -> Layout {
    Layout { checksums: false, ..writer.layout }
}

/// Begins a new directory in its inode, where the volume keeps small ones so. Returns
/// `false` where it can't be done; then nothing is changed. Names that mean
/// something else than their bytes go to blocks.
pub(super) fn begin(writer: &mut DirMut<'_, '_>, parent: InodeNumber) -> Result<bool> {
    if writer.dir.flags().intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD) {
        return Ok(false);
    }
    let mut contents = [0; I_BLOCK_LEN];
    let (head, entries) = contents.split_at_mut(PARENT_LEN);
    head.copy_from_slice(&writer.tx.format.physical_number(parent).get().to_le_bytes());
    dirent::init_leaf(entries, bare(writer));
    writer.tx.store_inline(writer.dir, &contents)
}

/// Adds a name; `false` if the inode has no room for it.
pub(super) fn add(writer: &mut DirMut<'_, '_>, record: &Record<'_>) -> Result<bool> {
    let layout = bare(writer);
    let (head, tail) = inline::parts(writer.dir)?;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    let place = |part: &mut [u8]| -> Result<bool> {
        let room = dirent::find_room(part, layout, record.needs());
        let room = room.map_err(|broken| writer.reader().broken(FileBlock(0), broken))?;
        room.iter().for_each(|room| dirent::insert_at(part, layout, *room, record));
        Ok(room.is_some())
    };
    if !place(head.split_at_mut(PARENT_LEN).1)? && !place(&mut tail)? {
        let end = tail.len();
        tail.resize(end + record.needs(), 0);
        dirent::fill(tail.split_at_mut(end).1, layout, [*record]);
    }
    let is_stored = inline::store_parts(writer.dir, &head, &tail)?;
    if is_stored {
        writer.dir.set_size((head.len() + tail.len()) as u64);
    }
    Ok(is_stored)
}

/// Lets `..` lead to another directory; returns where it led.
pub(super) fn set_parent(writer: &mut DirMut<'_, '_>, to: InodeNumber) -> Result<InodeNumber> {
    let (dir, format) = (&mut *writer.dir, writer.tx.format);
    let broken = || Error::corrupt(Place::Directory(dir.number()), "inline, without a parent");
    let before = dirent::inline_parent(&dir.raw().i_block).ok_or_else(broken)?;
    if let Some(parent) = dir.raw_mut().i_block.first_chunk_mut() {
        *parent = format.physical_number(to).get().to_le_bytes();
    }
    Ok(format.logical_number(before))
}

/// Changes the entry with a name in either part.
pub(super) fn change(
    writer: &mut DirMut<'_, '_>,
    name: &[u8],
    change: impl Fn(&mut [u8], Layout, usize) -> std::result::Result<bool, dirent::BrokenEntry>,
) -> Result<Option<InodeNumber>> {
    let layout = bare(writer);
    let (head, tail) = inline::parts(writer.dir)?;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    for in_head in [true, false] {
        let part = if in_head { head.split_at_mut(PARENT_LEN).1 } else { &mut tail };
        let found = find_in(part, layout, name);
        let Some((offset, inode)) = found.map_err(|broken| writer.reader().broken(FileBlock(0), broken))?
        else {
            continue;
        };
        let changed = change(part, layout, offset);
        done(writer, FileBlock(0), changed)?;
        inline::set_parts(writer.dir, &head, &tail)?;
        return Ok(Some(writer.tx.format.logical_number(inode)));
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

/// Moves the names to a block of the directory's own.
pub(super) fn grow_out(writer: &mut DirMut<'_, '_>) -> Result<()> {
    let parent = dirent::inline_parent(&writer.dir.raw().i_block);
    let all = linear::entries_inside(writer.tx.format, writer.dir)?;
    let Some(parent) = parent else { return Ok(()) };
    writer.tx.take_inline(writer.dir)?;
    writer.init(writer.tx.format.logical_number(parent))?;
    for entry in all.iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
        let name = dirent::Name::new(&entry.name);
        let name = name.map_err(|bad| writer.reader().broken(FileBlock(0), bad))?;
        let file_type = entry.file_type.unwrap_or(FileType::Regular);
        let inode = writer.tx.format.physical_number(entry.inode);
        let record = dirent::Record::new(name, inode, file_type, writer.layout);
        if !linear::insert_into(writer, FileBlock(0), &record)? {
            return Err(Error::DirectoryFull("its entries do not fit a block".into()));
        }
    }
    Ok(())
}
