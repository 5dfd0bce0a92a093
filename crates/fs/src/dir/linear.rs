//! Directories as plain lists of blocks: searching and listing every block, adding at the end.

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::dirent::{self, Layout, Record};
use ondisk::features::Compat;
use ondisk::htree::{self as index, Kind};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber};

use super::change::EntryLocation;
use super::inside::PARENT_LEN;
use super::{BlockMap, Dir, DirEntry, DirMut, htree, listed};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::inline;

/// A block as a list of entries; `None` for an index node, which has none. Which of the three kinds
/// a block of an indexed directory is shows only when it is read. The entries of a root reach to
/// the end of the block, where Linux may leave the shape of a leaf's tail behind: the layout says
/// that there is none.
pub(super) fn list_block(reader: &Dir<'_>, at: FileBlock) -> Result<Option<(Arc<[u8]>, Layout)>> {
    let block = reader.block_at(at)?;
    let leaf = || Ok(Some((reader.blocks.read(block, reader.leaf_role())?, reader.layout)));
    if !reader.dir.flags().contains(InodeFlags::INDEX) {
        return leaf();
    }
    if at.0 == 0 {
        let bytes = reader.blocks.read(block, reader.index_role(Kind::Root))?;
        return Ok(Some((bytes, Layout { checksums: false, ..reader.layout })));
    }
    let bytes = reader.blocks.read(block, Role::Plain)?;
    if index::looks_like_node(&bytes, reader.layout) {
        reader.blocks.read(block, reader.index_role(Kind::Node))?;
        return Ok(None);
    }
    leaf()
}

/// Searches every block.
pub(super) fn lookup(reader: &Dir<'_>, name: &[u8]) -> Result<Option<(InodeNumber, Option<FileType>)>> {
    for at in (0..reader.count()?).map(FileBlock) {
        let Some((bytes, layout)) = list_block(reader, at)? else { continue };
        let found = dirent::find(&bytes, layout, name).map_err(|broken| reader.broken(at, broken))?;
        if let Some(entry) = found {
            let inode = entry.inode.map(|inode| reader.format.logical_number(inode));
            return Ok(inode.map(|inode| (inode, entry.file_type(reader.layout))));
        }
    }
    Ok(None)
}

/// As [`lookup`], but returns where the entry stands.
pub(super) fn locate(reader: &Dir<'_>, name: &[u8]) -> Result<Option<EntryLocation>> {
    for at in (0..reader.count()?).map(FileBlock) {
        let Some((bytes, layout)) = list_block(reader, at)? else { continue };
        let found = dirent::find(&bytes, layout, name).map_err(|broken| reader.broken(at, broken))?;
        let Some((entry, inode)) = found.and_then(|entry| Some((entry, entry.inode?))) else { continue };
        let is_root = at.0 == 0 && reader.dir.flags().contains(InodeFlags::INDEX);
        let role = if is_root { reader.index_role(Kind::Root) } else { reader.leaf_role() };
        let (offset, file_type) = (entry.offset, entry.file_type(reader.layout));
        let (block, inode) = (reader.block_at(at)?, reader.format.logical_number(inode));
        return Ok(Some(EntryLocation { at, block, role, layout, offset, inode, file_type }));
    }
    Ok(None)
}

/// Shows every name to `see`.
pub(super) fn visit(reader: &Dir<'_>, mut see: impl FnMut(&[u8])) -> Result<()> {
    for at in (0..reader.count()?).map(FileBlock) {
        let Some((bytes, layout)) = list_block(reader, at)? else { continue };
        for entry in dirent::entries(&bytes, layout) {
            let entry = entry.map_err(|broken| reader.broken(at, broken))?;
            if entry.inode.is_some() {
                see(entry.name);
            }
        }
    }
    Ok(())
}

/// Entries of an inline directory.
pub(super) fn entries_inside(format: &Format, dir: &Inode) -> Result<Vec<DirEntry>> {
    let (head, tail) = inline::parts(dir)?;
    inline_entries(format, dir, head, tail)
}

/// Entries of an inline directory from its two parts: the 60 bytes in the inode, and the attribute. `..` is made of the
/// parent's number; there is no `.`.
pub(super) fn inline_entries(
    format: &Format,
    dir: &Inode,
    head: &[u8],
    tail: &[u8],
) -> Result<Vec<DirEntry>> {
    let layout = Layout::new(format.geometry.block_size, &format.features);
    let broken = |problem: String| Error::corrupt(Place::Directory(dir.number()), problem);
    let parent = dirent::inline_parent(head).ok_or_else(|| broken("inline, without a parent".into()))?;
    let dots = |name: &[u8], inode| DirEntry {
        name: name.to_vec(),
        inode,
        file_type: layout.file_types.then_some(FileType::Directory),
    };
    let mut all = vec![dots(b".", dir.number()), dots(b"..", format.logical_number(parent))];
    for (part, region) in [("inode", head.split_at(PARENT_LEN).1), ("attribute", tail)] {
        for entry in dirent::entries_without_tail(region, layout) {
            let entry = entry.map_err(|problem| broken(format!("inline, in the {part}: {problem}")))?;
            all.extend(listed(format, layout, &entry));
        }
    }
    Ok(all)
}

/// Lists a directory block by block, without `.` and `..`.
pub(crate) struct Listing<'a> {
    blocks: &'a dyn Blocks,
    format: &'a Format,
    map: &'a dyn BlockMap,
    dir: Inode,
    /// Entries of the last block read.
    batch: std::vec::IntoIter<DirEntry>,
    /// Error to return when the batch is used up.
    complaint: Option<Error>,
    next: u32,
    count: u32,
}

impl<'a> Listing<'a> {
    pub(super) fn new(
        blocks: &'a dyn Blocks,
        format: &'a Format,
        map: &'a dyn BlockMap,
        dir: Inode,
    ) -> Result<Self> {
        let mut listing = Listing {
            blocks,
            format,
            map,
            dir,
            batch: Vec::new().into_iter(),
            complaint: None,
            next: 0,
            count: 0,
        };
        if listing.dir.flags().contains(InodeFlags::INLINE_DATA) {
            let mut entries = entries_inside(format, &listing.dir)?;
            Dir::new(blocks, format, &listing.dir, map).show(entries.iter_mut())?;
            listing.batch = entries.into_iter();
        } else {
            listing.count = Dir::new(blocks, format, &listing.dir, map).count()?;
        }
        Ok(listing)
    }

    /// Blocks read so far.
    pub(crate) fn blocks_read(&self) -> u64 {
        u64::from(self.next)
    }

    /// Reads the next block that has entries.
    fn load(&mut self) -> Result<()> {
        let at = FileBlock(self.next);
        self.next += 1;
        let reader = Dir::new(self.blocks, self.format, &self.dir, self.map);
        let Some((bytes, layout)) = list_block(&reader, at)? else { return Ok(()) };
        let mut batch = Vec::new();
        for entry in dirent::entries(&bytes, layout) {
            match entry {
                Ok(entry) => batch.extend(listed(self.format, layout, &entry)),
                Err(broken) => {
                    self.complaint = Some(reader.broken(at, broken));
                    break;
                }
            }
        }
        reader.show(batch.iter_mut())?;
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for Listing<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.find(|entry| !matches!(&entry.name[..], b"." | b"..")) {
                return Some(Ok(entry));
            }
            if let Some(complaint) = self.complaint.take() {
                self.next = self.count;
                return Some(Err(complaint));
            }
            if self.next >= self.count {
                return None;
            }
            if let Err(error) = self.load() {
                self.complaint = Some(error);
            }
        }
    }
}

/// Adds an entry: to the last block, which has room most often; else, if it is the only one, by
/// turning to an index; else to the first block with room; else to a new one. Where blocks come and go as in Linux, the last
/// of several blocks is not tried first.
pub(super) fn insert(writer: &mut DirMut<'_, '_>, record: &Record<'_>) -> Result<()> {
    let last = writer.reader().count()? - 1;
    // Linux begins with the first block.
    let begins_at_end = last == 0 || !writer.is_as_linux();
    if begins_at_end && insert_into(writer, FileBlock(last), record)? {
        return Ok(());
    }
    if last == 0
        && writer.tx.format.features.compat.contains(Compat::DIR_INDEX)
        && htree::is_known(writer.tx.format)
    {
        return htree::convert(writer, record);
    }
    for at in 0..last + u32::from(!begins_at_end) {
        if insert_into(writer, FileBlock(at), record)? {
            return Ok(());
        }
    }
    let (at, block) = writer.append()?;
    writer.fill_leaf(at, block, [*record])
}

/// Adds an entry to a leaf; `false` if it has no room.
pub(super) fn insert_into(writer: &mut DirMut<'_, '_>, at: FileBlock, record: &Record<'_>) -> Result<bool> {
    let reader = writer.reader();
    let (block, bytes) = reader.leaf(at)?;
    insert_into_block(writer, at, block, &bytes, record)
}

/// As [`insert_into`], for a leaf that was read already.
pub(super) fn insert_into_block(
    writer: &mut DirMut<'_, '_>,
    at: FileBlock,
    block: Block,
    bytes: &[u8],
    record: &Record<'_>,
) -> Result<bool> {
    writer.tx.refuse_kept(block)?;
    let reader = writer.reader();
    let room = dirent::find_room(bytes, reader.layout, record.needs());
    let Some(room) = room.map_err(|broken| reader.broken(at, broken))? else { return Ok(false) };
    let role = reader.leaf_role();
    writer.tx.note(|notes| notes.add(block.0));
    dirent::insert_at(writer.tx.edit(block, role)?, writer.layout, room, record);
    Ok(true)
}
