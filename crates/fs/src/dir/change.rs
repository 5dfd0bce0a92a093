//! Taking names out of directories, and letting names lead elsewhere.

use ondisk::dirent::{self, Layout};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber};

use super::{Dir, DirMut, htree, inside, linear};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::order::RetainedName;

/// Where an entry stands, and where it leads.
#[derive(Clone, Copy)]
pub(super) struct EntryLocation {
    pub(super) at: FileBlock,
    pub(super) block: Block,
    pub(super) role: Role,
    pub(super) layout: Layout,
    pub(super) offset: usize,
    pub(super) inode: InodeNumber,
    pub(super) file_type: Option<FileType>,
}

/// The entry with a name, in a directory of blocks.
pub(super) fn locate(reader: &Dir<'_>, name: &[u8]) -> Result<Option<EntryLocation>> {
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
        return inside::change(writer, name, dirent::remove);
    }
    let Some(location) = locate(&writer.reader(), name)? else { return Ok(None) };
    let bytes = writer.tx.edit(location.block, location.role)?;
    let removed = dirent::remove(bytes, location.layout, location.offset);
    done(writer, location.at, removed)?;
    keep_if_it_matters(writer, &location, name)?;
    give_back(writer, location.at, name)?;
    Ok(Some(location.inode))
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
            return inside::set_parent(writer, to).map(Some);
        }
        let to = writer.tx.format.physical_number(to);
        return inside::change(writer, name, |part, layout, offset| {
            dirent::retarget(part, layout, offset, to, file_type)
        });
    }
    let Some(location) = locate(&writer.reader(), name)? else { return Ok(None) };
    writer.tx.refuse_kept(location.block)?;
    let matters = writer.tx.order().awaits_names(location.inode);
    if matters && name != b".." && writer.growth.was_in_use(writer.tx, location.inode)? {
        // The one that loses this name, or what was moved out of it, may have no other on the device; and it can't
        // be kept beside the new.
        return writer.tx.wait_for_commit();
    }
    writer.tx.note(|notes| notes.add(location.block.0));
    let to = writer.tx.format.physical_number(to);
    let bytes = writer.tx.edit(location.block, location.role)?;
    let changed = dirent::retarget(bytes, location.layout, location.offset, to, file_type);
    done(writer, location.at, changed)?;
    Ok(Some(location.inode))
}

/// Notes a name that has to stay on the device for a while, because those that its inode has got are not there
/// yet. Others in the same block appear as it vanishes.
fn keep_if_it_matters(writer: &mut DirMut<'_, '_>, location: &EntryLocation, name: &[u8]) -> Result<()> {
    let directory = writer.dir.number();
    let EntryLocation { inode, file_type, .. } = *location;
    if !writer.tx.awaits_names(inode) {
        return Ok(());
    }
    let bytes = writer.tx.read(location.block, location.role)?;
    let on_disk = Some(writer.tx.format.physical_number(inode));
    let is_there =
        dirent::entries(&bytes, location.layout).any(|entry| entry.is_ok_and(|entry| entry.inode == on_disk));
    if is_there
        || !writer.growth.was_in_use(writer.tx, inode)?
        || !writer.growth.was_in_use(writer.tx, directory)?
    {
        return Ok(());
    }
    let kept = RetainedName { name: name.to_vec(), inode, file_type };
    writer.tx.note(|notes| notes.retain(location.block.0, directory, kept));
    Ok(())
}

pub(super) fn done(
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
/// changed in place, that would write blocks that nothing else changes, and is left to [`DirMut::pack`]. Nothing is given back
/// where the policy for directories keeps blocks as Linux does.
fn give_back(writer: &mut DirMut<'_, '_>, at: FileBlock, name: &[u8]) -> Result<()> {
    if writer.is_as_linux() {
        return Ok(());
    }
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
