//! Giving back the blocks of an indexed directory that hold no names.
//!
//! A leaf that is empty, or was joined with the one before it, leaves the index, and with it each node that led to
//! nothing else. The last blocks of the directory fill the holes, so that it has none, and the end is freed. All of it is
//! part of the caller's update. Names keep their places in listings, which are hashes. A directory whose index is
//! damaged stays as it is.

use ondisk::dirent::{self, Layout, Record};
use ondisk::htree::{self as index, Kind};
use ondisk::inode::InodeFlags;
use ondisk::units::{FileBlock, InodeNumber};

use super::{Dir, DirMut, Frame, Path, descend, find_path, is_sound, next_entry, parse_index, root, step};
use crate::cache::{Blocks, Role};
use crate::error::{Error, Result};

/// Bytes of `.` and `..`.
const DOTS: usize = 24;

/// Gives a leaf back if it holds no names any more; the last was `name`.
pub(in super::super) fn drop_if_empty(writer: &mut DirMut<'_, '_>, at: FileBlock, name: &[u8]) -> Result<()> {
    let reader = writer.reader();
    let (block, bytes) = reader.leaf(at)?;
    if !is_empty(&reader, &bytes) || writer.tx.has_kept(block) {
        return Ok(());
    }
    match readable(find_path(&reader, name).and_then(|path| follow(&reader, path, at)))? {
        Some(Some(path)) => drop_leaf(writer, &path).map(|_| ()),
        _ => Ok(()),
    }
}

/// Turns damage into `None`; other errors stay.
fn readable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Corrupt(_)) => Ok(None),
        found => found.map(Some),
    }
}

fn is_empty(reader: &Dir<'_>, bytes: &[u8]) -> bool {
    dirent::entries(bytes, reader.layout).all(|entry| entry.is_ok_and(|entry| entry.inode.is_none()))
}

/// A path moved on to a leaf that has the same hash.
fn follow(reader: &Dir<'_>, mut path: Path, leaf: FileBlock) -> Result<Option<Path>> {
    for _ in 0..reader.count()? {
        if path.leaf == leaf {
            return Ok(Some(path));
        }
        if !super::advance(reader, &mut path)? {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Takes the leaf at the end of a path out of the directory, with what leads to it alone. Its names are gone, or in other
/// leaves. `false` if nothing was done, since the index is not in order.
fn drop_leaf(writer: &mut DirMut<'_, '_>, path: &Path) -> Result<bool> {
    let Some(level) = path.frames.iter().rposition(|frame| frame.len > 1) else {
        return become_one_block(writer, Vec::new());
    };
    let mut free: Vec<FileBlock> = path.frames.iter().skip(level + 1).map(|frame| frame.at).collect();
    free.push(path.leaf);
    let keeper = path.frames[level];
    let root_len = path.frames[0].len - usize::from(level == 0);
    let folds = root_len == 1 && path.frames.len() > 1;
    if !can_fill(&writer.reader(), path.leaf, free.len() > 1 || folds)? {
        return Ok(false);
    }
    writer.make_own(keeper.at)?;
    take_entry(writer, &keeper)?;
    if folds {
        free.extend(fold(writer)?);
    }
    free.sort_unstable();
    for hole in free.into_iter().rev() {
        fill_hole(writer, hole)?;
    }
    let count = writer.reader().count()?;
    writer.growth.cut(writer.tx, writer.dir, FileBlock(count))?;
    Ok(true)
}

/// True if holes can be filled: something leads to each block that would move. If one block only becomes free, it is
/// known which that is.
fn can_fill(reader: &Dir<'_>, hole: FileBlock, many: bool) -> Result<bool> {
    if many {
        return is_sound(reader);
    }
    let last = FileBlock(reader.count()?.saturating_sub(1));
    Ok(last == hole || readable(pointer(reader, last))?.flatten().is_some())
}

fn take_entry(writer: &mut DirMut<'_, '_>, frame: &Frame) -> Result<()> {
    let reader = writer.reader();
    let (block, role) = (reader.block_at(frame.at)?, reader.index_role(frame.kind));
    let bytes = writer.tx.edit(block, role)?;
    if index::remove(bytes, frame.kind, writer.layout, frame.position) {
        return Ok(());
    }
    Err(writer.reader().broken(frame.at, "an index entry is not where it was found"))
}

/// Has the root take over the entries of the only node below it, as often as that goes; the nodes.
fn fold(writer: &mut DirMut<'_, '_>) -> Result<Vec<FileBlock>> {
    let mut nodes = Vec::new();
    loop {
        let reader = writer.reader();
        let levels = root(&reader)?.levels;
        let (at, kind) = (FileBlock(0), Kind::Root);
        let (_, bytes) = super::read_index(&reader, at, kind)?;
        let entries = parse_index(&reader, at, kind, &bytes)?;
        if levels < 2 || entries.len() > 1 {
            return Ok(nodes);
        }
        let node = super::child(&reader, at, &entries, 0)?;
        let (_, bytes) = super::read_index(&reader, node, Kind::Node)?;
        let below: Vec<_> = parse_index(&reader, node, Kind::Node, &bytes)?.iter().collect();
        if below.len() > usize::from(kind.limit(writer.layout)) {
            return Ok(nodes);
        }
        writer.make_own(at)?;
        let (block, role) = (writer.reader().block_at(at)?, writer.reader().index_role(kind));
        let bytes = writer.tx.edit(block, role)?;
        index::set_root(bytes, writer.layout, levels - 1, below);
        nodes.push(node);
    }
}

/// Moves the last block of the directory into one that nothing leads to. The directory is shorter by one block then.
fn fill_hole(writer: &mut DirMut<'_, '_>, hole: FileBlock) -> Result<()> {
    let last = FileBlock(writer.reader().count()?.saturating_sub(1));
    if last != hole {
        let found = pointer(&writer.reader(), last)?;
        let frame = found.ok_or_else(|| writer.reader().broken(last, "the index does not lead to it"))?;
        writer.make_own(hole)?;
        writer.make_own(frame.at)?;
        let reader = writer.reader();
        let (from, to) = (reader.block_at(last)?, reader.block_at(hole)?);
        let (above, role) = (reader.block_at(frame.at)?, reader.index_role(frame.kind));
        writer.tx.refuse_kept(from)?;
        writer.tx.refuse_kept(to)?;
        let bytes = writer.tx.read(from, Role::Plain)?;
        let kind = writer.role_of(last, &bytes);
        writer.hide_until_link(to)?;
        writer.tx.create(to, kind).copy_from_slice(&bytes);
        if !index::retarget(writer.tx.edit(above, role)?, frame.kind, writer.layout, frame.position, hole) {
            return Err(writer.reader().broken(frame.at, "an index entry is not where it was found"));
        }
    }
    let len = u64::from(writer.layout.block_size.bytes());
    writer.dir.set_size(u64::from(last.0) * len);
    Ok(())
}

/// The index block whose entry leads to a block other than the first; the entry is the frame's position.
fn pointer(reader: &Dir<'_>, to: FileBlock) -> Result<Option<Frame>> {
    let bytes = reader.blocks.read(reader.block_at(to)?, Role::Plain)?;
    let path = if index::looks_like_node(&bytes, reader.layout) {
        // Without checksums an empty leaf looks the same, and is not found by its hash.
        let entries = parse_index(reader, to, Kind::Node, &bytes).ok();
        entries.and_then(|entries| entries.get(1)).map(|entry| descend(reader, |_| entry.hash & !1))
    } else {
        let mut names = dirent::entries(&bytes, reader.layout).filter_map(std::result::Result::ok);
        names.find(|entry| entry.inode.is_some()).map(|entry| find_path(reader, entry.name))
    };
    if let Some(path) = path {
        let path = path?;
        if let Some(at) = path.frames.iter().position(|frame| frame.at == to) {
            return Ok(at.checked_sub(1).map(|above| path.frames[above]));
        }
        if let Some(path) = follow(reader, path, to)? {
            return Ok(path.frames.last().copied());
        }
    }
    search(reader, to)
}

/// As [`pointer`], by reading the index from end to end.
fn search(reader: &Dir<'_>, to: FileBlock) -> Result<Option<Frame>> {
    let mut path = descend(reader, |_| 0)?;
    for _ in 0..reader.count()? {
        if path.leaf == to {
            return Ok(path.frames.last().copied());
        }
        if let Some(at) = path.frames.iter().position(|frame| frame.at == to) {
            return Ok(at.checked_sub(1).map(|above| path.frames[above]));
        }
        let Some((level, _)) = next_entry(reader, &path)? else { return Ok(None) };
        step(reader, &mut path, level)?;
    }
    Ok(None)
}

/// Turns a directory into one block, with these names, which fit it.
fn become_one_block(writer: &mut DirMut<'_, '_>, names: Vec<Record<'_>>) -> Result<bool> {
    let first = FileBlock(0);
    let Some(parent) = parent(&writer.reader())? else { return Ok(false) };
    writer.make_own(first)?;
    let block = writer.reader().block_at(first)?;
    writer.dir.set_flags(writer.dir.flags() & !InodeFlags::INDEX);
    let own = writer.tx.format.physical_number(writer.dir.number());
    let dots = dirent::dots(writer.layout, own, parent);
    writer.refill_leaf(first, block, dots.into_iter().chain(names))?;
    writer.growth.cut(writer.tx, writer.dir, FileBlock(1))?;
    writer.dir.set_size(u64::from(writer.layout.block_size.bytes()));
    Ok(true)
}

/// Where `..` of the root leads, as it is called on disk.
fn parent(reader: &Dir<'_>) -> Result<Option<InodeNumber>> {
    let (_, bytes) = super::read_index(reader, FileBlock(0), Kind::Root)?;
    let layout = Layout { checksums: false, ..reader.layout };
    let found = dirent::find(&bytes, layout, b"..").map_err(|broken| reader.broken(FileBlock(0), broken))?;
    Ok(found.and_then(|entry| entry.inode))
}

/// How far packing has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packed {
    /// Names from this hash on are still to be looked at.
    Until(u32),
    /// All was looked at.
    All,
}

/// Joins the first two neighbouring leaves from a hash on whose names fit three quarters of one, or gives an empty one
/// back.
pub(in super::super) fn pack(writer: &mut DirMut<'_, '_>, from: u32) -> Result<Packed> {
    let reader = writer.reader();
    let mut path = descend(&reader, |_| from)?;
    for _ in 0..reader.count()? {
        let (_, bytes) = reader.leaf(path.leaf)?;
        if is_empty(&reader, &bytes) {
            let hash = path.low;
            return drop_leaf(writer, &path).map(|done| if done { Packed::Until(hash) } else { Packed::All });
        }
        let Some((level, next)) = next_entry(&reader, &path)? else {
            let is_only = path.frames.iter().all(|frame| frame.len == 1);
            return if is_only { unindex(writer, path.leaf) } else { Ok(Packed::All) };
        };
        let mut after = path.clone();
        step(&reader, &mut after, level)?;
        if level + 1 == path.frames.len()
            && fits(&reader, used(&reader, path.leaf)? + used(&reader, after.leaf)?)
        {
            return join(writer, &path, &after);
        }
        path = after;
        path.low = next.hash & !1;
    }
    Ok(Packed::All)
}

/// Bytes of the names in a leaf.
fn used(reader: &Dir<'_>, leaf: FileBlock) -> Result<usize> {
    let (_, bytes) = reader.leaf(leaf)?;
    let mut used = 0;
    for entry in dirent::entries(&bytes, reader.layout) {
        let entry = entry.map_err(|broken| reader.broken(leaf, broken))?;
        used += entry.record().map_or(0, |record| record.needs());
    }
    Ok(used)
}

/// True if these bytes fit a block that keeps room for later names.
fn fits(reader: &Dir<'_>, bytes: usize) -> bool {
    bytes <= reader.layout.leaf_space() / 4 * 3
}

/// Moves the names of the only leaf to the first block, if they fit it.
fn unindex(writer: &mut DirMut<'_, '_>, leaf: FileBlock) -> Result<Packed> {
    let reader = writer.reader();
    let (block, bytes) = reader.leaf(leaf)?;
    if fits(&reader, used(&reader, leaf)? + DOTS) && is_sound(&reader)? {
        writer.tx.refuse_kept(block)?;
        become_one_block(writer, records(&bytes, writer.layout))?;
    }
    Ok(Packed::All)
}

fn records(bytes: &[u8], layout: Layout) -> Vec<Record<'_>> {
    dirent::entries(bytes, layout).filter_map(|entry| entry.ok().and_then(|entry| entry.record())).collect()
}

/// Moves the names of a leaf to the one before it, and gives it back.
fn join(writer: &mut DirMut<'_, '_>, one: &Path, other: &Path) -> Result<Packed> {
    if !is_sound(&writer.reader())? {
        return Ok(Packed::All);
    }
    writer.make_own(one.leaf)?;
    writer.make_own(other.leaf)?;
    let reader = writer.reader();
    let ((to, low), (from, high)) = (reader.leaf(one.leaf)?, reader.leaf(other.leaf)?);
    writer.tx.refuse_kept(to)?;
    writer.tx.refuse_kept(from)?;
    let names = records(&low, writer.layout).into_iter().chain(records(&high, writer.layout));
    writer.refill_leaf(one.leaf, to, names)?;
    if drop_leaf(writer, other)? {
        return Ok(Packed::Until(one.low));
    }
    // Its names would be there twice.
    Err(writer.reader().broken(other.leaf, "the index does not lead to it"))
}
