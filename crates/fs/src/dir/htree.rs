//! Indexed directories: from a name's hash to the leaf that holds it, and growing the index.
//!
//! A path from the root to a leaf is at most three index blocks long, and a walk over leaves that
//! share a hash ends after as many as the directory has blocks: no loop in a broken index holds a
//! reader. A change touches one leaf; when that is full, one leaf more and one block per level. A leaf that lost its last
//! name is given back where that costs no more blocks than the removal changes anyway, unless the policy for directories
//! keeps blocks as Linux does. That policy also decides where a full leaf is divided.

mod shrink;
mod sound;
mod split;

use std::sync::Arc;

use ondisk::dirent::{self, Record};
use ondisk::dirhash::{HashVersion, NameHasher};
use ondisk::features::Incompat;
use ondisk::htree::{self as index, Index, IndexEntry, Kind, Root};
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber};

use super::change::EntryLocation;
use super::picks::HashRange;
use super::{Dir, DirMut, linear, position_u16};
use crate::error::{Error, Result};
use crate::format::Format;
pub(crate) use shrink::Packed;
pub(super) use shrink::{drop_if_empty, pack};
pub(super) use sound::is_sound;
use split::{Halves, LeafEntry};

/// One index block on the way to a leaf.
#[derive(Clone, Copy, Debug)]
struct Frame {
    at: FileBlock,
    block: Block,
    kind: Kind,
    /// The entry that was followed.
    position: usize,
    /// Entries in use.
    len: usize,
}

/// The way to the first leaf that may hold a hash.
#[derive(Clone)]
struct Path {
    version: HashVersion,
    hash: u32,
    /// Least hash of the leaf, as the index says.
    low: u32,
    /// From the root down; never empty.
    frames: Vec<Frame>,
    leaf: FileBlock,
}

/// True if new indexes can be made with the volume's hash.
pub(super) fn is_known(format: &Format) -> bool {
    HashVersion::from_raw(format.hash_version).is_some()
}

pub(super) fn hasher(format: &Format, version: HashVersion) -> NameHasher {
    NameHasher::new(version, format.unsigned_hash, format.hash_seed)
}

fn has_large_dirs(format: &Format) -> bool {
    format.has_incompat(Incompat::LARGEDIR)
}

/// Reads an index block.
fn read_index(reader: &Dir<'_>, at: FileBlock, kind: Kind) -> Result<(Block, Arc<[u8]>)> {
    let block = reader.block_at(at)?;
    Ok((block, reader.blocks.read(block, reader.index_role(kind))?))
}

fn parse_index<'b>(reader: &Dir<'_>, at: FileBlock, kind: Kind, bytes: &'b [u8]) -> Result<Index<'b>> {
    Index::parse(bytes, kind, reader.layout).map_err(|broken| reader.broken(at, broken))
}

/// The file block that an entry leads to: never the root, and inside the directory.
fn child(reader: &Dir<'_>, at: FileBlock, entries: &Index<'_>, position: usize) -> Result<FileBlock> {
    let child = entries.get(position).map_or(FileBlock(0), |entry| entry.block);
    if child.0 == 0 || child.0 >= reader.count()? {
        return Err(reader.broken(at, format!("index entry {position} leads to file block {child}")));
    }
    Ok(child)
}

/// Reads the root of the index, in the first block.
pub(super) fn root(reader: &Dir<'_>) -> Result<Root> {
    let at = FileBlock(0);
    let (_, bytes) = read_index(reader, at, Kind::Root)?;
    Root::parse(&bytes, reader.layout, has_large_dirs(reader.format))
        .map_err(|broken| reader.broken(at, broken))
}

fn find_path(reader: &Dir<'_>, name: &[u8]) -> Result<Path> {
    descend(reader, |version| hasher(reader.format, version).hash(name).major)
}

fn descend(reader: &Dir<'_>, hash: impl Fn(HashVersion) -> u32) -> Result<Path> {
    let (mut at, mut kind) = (FileBlock(0), Kind::Root);
    let (mut block, mut bytes) = read_index(reader, at, kind)?;
    let root = Root::parse(&bytes, reader.layout, has_large_dirs(reader.format));
    let root = root.map_err(|broken| reader.broken(at, broken))?;
    let (hash, mut low) = (hash(root.version), 0);
    let mut frames = Vec::with_capacity(usize::from(root.levels) + 1);
    loop {
        let entries = parse_index(reader, at, kind, &bytes)?;
        let position = entries.find(hash);
        low = entries.get(position).map_or(low, |entry| low.max(entry.hash & !1));
        frames.push(Frame { at, block, kind, position, len: entries.len() });
        at = child(reader, at, &entries, position)?;
        if frames.len() >= usize::from(root.levels) {
            return Ok(Path { version: root.version, hash, low, frames, leaf: at });
        }
        kind = Kind::Node;
        (block, bytes) = read_index(reader, at, kind)?;
    }
}

/// The entry behind a path's leaf, and the level at which it stands.
fn next_entry(reader: &Dir<'_>, path: &Path) -> Result<Option<(usize, IndexEntry)>> {
    let Some(level) = path.frames.iter().rposition(|frame| frame.position + 1 < frame.len) else {
        return Ok(None);
    };
    let frame = &path.frames[level];
    let bytes = reader.blocks.read(frame.block, reader.index_role(frame.kind))?;
    let entries = parse_index(reader, frame.at, frame.kind, &bytes)?;
    Ok(entries.get(frame.position + 1).map(|next| (level, next)))
}

/// Moves a path on to the leaf behind the entry that [`next_entry`] gave for a level.
fn step(reader: &Dir<'_>, path: &mut Path, level: usize) -> Result<()> {
    let levels = path.frames.len();
    let frame = Frame { position: path.frames[level].position + 1, ..path.frames[level] };
    let bytes = reader.blocks.read(frame.block, reader.index_role(frame.kind))?;
    let entries = parse_index(reader, frame.at, frame.kind, &bytes)?;
    path.leaf = child(reader, frame.at, &entries, frame.position)?;
    path.frames.truncate(level);
    path.frames.push(frame);
    while path.frames.len() < levels {
        let (at, kind, position) = (path.leaf, Kind::Node, 0);
        let (block, bytes) = read_index(reader, at, kind)?;
        let entries = parse_index(reader, at, kind, &bytes)?;
        path.leaf = child(reader, at, &entries, position)?;
        path.frames.push(Frame { at, block, kind, position, len: entries.len() });
    }
    Ok(())
}

/// Moves a path on to the next leaf; `false` unless that leaf goes on with the same hash.
fn advance(reader: &Dir<'_>, path: &mut Path) -> Result<bool> {
    match next_entry(reader, path)? {
        Some((level, next)) if next.hash == path.hash | 1 => step(reader, path, level).map(|()| true),
        _ => Ok(false),
    }
}

/// Leaves that share hashes: one, but for where names of one hash go on in the next.
pub(super) struct LeafRun {
    pub(super) leaves: Vec<FileBlock>,
    pub(super) reach: HashRange,
}

/// The leaves with a hash, and those that go on with one of theirs.
pub(super) fn stretch(reader: &Dir<'_>, hash: u32) -> Result<LeafRun> {
    let mut path = descend(reader, |_| hash)?;
    let mut leaves = vec![path.leaf];
    let most = reader.count()?;
    for _ in 0..most {
        let Some((level, next)) = next_entry(reader, &path)? else {
            return Ok(LeafRun { leaves, reach: HashRange { low: path.low, end: None } });
        };
        if next.hash & 1 == 0 {
            return Ok(LeafRun { leaves, reach: HashRange { low: path.low, end: Some(next.hash) } });
        }
        step(reader, &mut path, level)?;
        leaves.push(path.leaf);
    }
    Err(reader.broken(path.leaf, "more leaves go on with one hash than there are blocks"))
}

/// Searches the leaves that may hold a name's hash.
pub(super) fn locate(reader: &Dir<'_>, name: &[u8]) -> Result<Option<EntryLocation>> {
    let mut path = find_path(reader, name)?;
    for _ in 0..reader.count()? {
        let (block, bytes) = reader.leaf(path.leaf)?;
        let found = dirent::find(&bytes, reader.layout, name);
        if let Some(entry) = found.map_err(|broken| reader.broken(path.leaf, broken))? {
            let (at, layout, role) = (path.leaf, reader.layout, reader.leaf_role());
            let (offset, file_type) = (entry.offset, entry.file_type(layout));
            let inode = entry.inode.map(|inode| reader.format.logical_number(inode));
            return Ok(inode.map(|inode| EntryLocation {
                at,
                block,
                role,
                layout,
                offset,
                inode,
                file_type,
            }));
        }
        if !advance(reader, &mut path)? {
            return Ok(None);
        }
    }
    Err(reader.broken(path.leaf, "more leaves go on with one hash than there are blocks"))
}

/// As [`locate`], but returns only where the name leads.
pub(super) fn lookup(reader: &Dir<'_>, name: &[u8]) -> Result<Option<(InodeNumber, Option<FileType>)>> {
    Ok(locate(reader, name)?.map(|location| (location.inode, location.file_type)))
}

/// Adds an entry to the leaf of its hash, making room where there is none.
pub(super) fn insert(writer: &mut DirMut<'_, '_>, record: &Record<'_>) -> Result<()> {
    let mut path = find_path(&writer.reader(), record.name())?;
    let (block, bytes) = writer.reader().leaf(path.leaf)?;
    if linear::insert_into_block(writer, path.leaf, block, &bytes, record)? {
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in dirent::entries(&bytes, writer.layout) {
        let entry = entry.map_err(|broken| writer.reader().broken(path.leaf, broken))?;
        entries.extend(entry.record().map(|record| LeafEntry { record, len: entry.len }));
    }
    let needs = entries.iter().map(|entry| entry.record.needs()).sum::<usize>() + record.needs();
    // Removed names may have left enough room, in pieces. Linux divides the leaf even so.
    if needs <= writer.layout.leaf_space() && !(writer.is_as_linux() && entries.len() > 1) {
        let records = entries.iter().map(|entry| entry.record).chain([*record]);
        return writer.refill_leaf(path.leaf, block, records);
    }
    let block = own_path(writer, &mut path)?;
    make_index_room(writer, &mut path)?;
    let (new_leaf, new_block) = writer.append()?;
    let halves = divide(writer, &entries, *record, path.version);
    let entry = IndexEntry { hash: halves.hash, block: new_leaf };
    writer.refill_leaf(path.leaf, block, halves.low)?;
    writer.fill_leaf(new_leaf, new_block, halves.high)?;
    match path.frames.last() {
        Some(frame) => add_entry(writer, frame, entry),
        None => Err(writer.reader().broken(path.leaf, "no index above it")),
    }
}

/// Divides the entries of a leaf and one more between two, as the policy for directories wants it.
fn divide<'r>(
    writer: &DirMut<'_, '_>,
    entries: &[LeafEntry<'r>],
    record: Record<'r>,
    version: HashVersion,
) -> Halves<'r> {
    let hasher = hasher(writer.tx.format, version);
    if writer.is_as_linux() && entries.len() > 1 {
        return split::halve_as_linux(entries, record, writer.layout.block_size.bytes_usize(), hasher);
    }
    // The new record stands first: of equal hashes it comes before the others.
    let records = [record].into_iter().chain(entries.iter().map(|entry| entry.record)).collect();
    split::halve(records, writer.layout.leaf_space(), hasher)
}

/// Sees to it that the blocks of a path may be rewritten; the leaf's block as it is then.
fn own_path(writer: &mut DirMut<'_, '_>, path: &mut Path) -> Result<Block> {
    for frame in &path.frames {
        writer.make_own(frame.at)?;
    }
    writer.make_own(path.leaf)?;
    for frame in &mut path.frames {
        frame.block = writer.reader().block_at(frame.at)?;
    }
    writer.reader().block_at(path.leaf)
}

/// Adds an entry behind the one that a path followed.
fn add_entry(writer: &mut DirMut<'_, '_>, frame: &Frame, entry: IndexEntry) -> Result<()> {
    let role = writer.reader().index_role(frame.kind);
    let bytes = writer.tx.edit(frame.block, role)?;
    if index::insert_after(bytes, frame.kind, writer.layout, frame.position, entry) {
        Ok(())
    } else {
        Err(writer.reader().broken(frame.at, "index block is full against its count"))
    }
}

/// Sees to it that the lowest index block of a path has room for one more entry: every full block
/// from there up is split; when the root is full too, the index grows by a level.
fn make_index_room(writer: &mut DirMut<'_, '_>, path: &mut Path) -> Result<()> {
    let is_full = |frame: &Frame| frame.len >= usize::from(frame.kind.limit(writer.layout));
    if path.frames.iter().all(is_full) {
        raise(writer, path)?;
    }
    let is_full = |frame: &Frame| frame.len >= usize::from(frame.kind.limit(writer.layout));
    let first_full = path.frames.iter().rposition(|frame| !is_full(frame)).map_or(0, |room| room + 1);
    for level in first_full..path.frames.len() {
        split_node(writer, path, level)?;
    }
    Ok(())
}

/// Gives the index a level more: a node that takes over the root's entries. Nodes hold three
/// entries more than the root, so this one has room.
fn raise(writer: &mut DirMut<'_, '_>, path: &mut Path) -> Result<()> {
    let most = index::max_levels(has_large_dirs(writer.tx.format));
    let levels = path.frames.len() + 1;
    let root = path.frames[0];
    if levels > usize::from(most) {
        return Err(Error::DirectoryFull(format!("its index has {most} full levels")));
    }
    let entries = index_entries(writer, &root)?;
    let (at, block) = writer.append()?;
    let role = writer.reader().index_role(Kind::Node);
    index::init_node(writer.tx.create(block, role), writer.layout, entries);
    let role = writer.reader().index_role(Kind::Root);
    let levels = u8::try_from(levels).unwrap_or(most);
    index::raise_root(writer.tx.edit(root.block, role)?, writer.layout, levels, at);
    path.frames[0] = Frame { position: 0, len: 1, ..root };
    path.frames.insert(1, Frame { at, block, kind: Kind::Node, ..root });
    Ok(())
}

fn index_entries(writer: &DirMut<'_, '_>, frame: &Frame) -> Result<Vec<IndexEntry>> {
    let reader = writer.reader();
    let bytes = reader.blocks.read(frame.block, reader.index_role(frame.kind))?;
    Ok(parse_index(&reader, frame.at, frame.kind, &bytes)?.iter().collect())
}

/// Moves the upper half of a full node to a new one, whose entry goes to the level above, which
/// has room.
fn split_node(writer: &mut DirMut<'_, '_>, path: &mut Path, level: usize) -> Result<()> {
    let node = path.frames[level];
    let mut entries = index_entries(writer, &node)?;
    let high = entries.split_off(entries.len() / 2);
    let (at, block) = writer.append()?;
    let hash = high.first().map_or(0, |first| first.hash);
    let kept = entries.len();
    let moved = high.len();
    let role = writer.reader().index_role(Kind::Node);
    index::init_node(writer.tx.create(block, role), writer.layout, high);
    let bytes = writer.tx.edit(node.block, role)?;
    index::truncate(bytes, Kind::Node, writer.layout, position_u16(kept));
    let parent = path.frames[level - 1];
    add_entry(writer, &parent, IndexEntry { hash, block: at })?;
    path.frames[level - 1].len += 1;
    if let Some(position) = node.position.checked_sub(kept) {
        path.frames[level] = Frame { at, block, position, len: moved, ..node };
        path.frames[level - 1].position += 1;
    } else {
        path.frames[level].len = kept;
    }
    Ok(())
}

/// Turns a directory of one full block into an indexed one with two leaves.
pub(super) fn convert(writer: &mut DirMut<'_, '_>, record: &Record<'_>) -> Result<()> {
    let first = FileBlock(0);
    let (_, bytes) = writer.reader().leaf(first)?;
    let mut entries = Vec::new();
    let (mut dots, mut front) = (Vec::with_capacity(2), 0);
    for entry in dirent::entries(&bytes, writer.layout) {
        let entry = entry.map_err(|broken| writer.reader().broken(first, broken))?;
        match (dots.len(), entry.inode) {
            (0 | 1, Some(inode)) if entry.name == [b"." as &[u8], b".."][dots.len()] => {
                dots.push(inode);
                front += entry.len;
            }
            (0 | 1, _) => return Err(writer.reader().broken(first, "does not begin with `.` and `..`")),
            _ => entries.extend(entry.record().map(|record| LeafEntry { record, len: entry.len })),
        }
    }
    let (&[own, parent], Some(version)) = (&dots[..], HashVersion::from_raw(writer.tx.format.hash_version))
    else {
        return Err(writer.reader().broken(first, "does not begin with `.` and `..`"));
    };
    if let Some(last) = entries.last_mut() {
        // In a leaf of their own the entries begin where `.` did, and the last covers the rest. `..` may have covered the
        // place of a name that went.
        last.len += front;
    }
    writer.make_own(first)?;
    let block = writer.reader().block_at(first)?;
    let (low, low_block) = writer.append()?;
    let (high, high_block) = writer.append()?;
    let halves = divide(writer, &entries, *record, version);
    let entry = IndexEntry { hash: halves.hash, block: high };
    writer.fill_leaf(low, low_block, halves.low)?;
    writer.fill_leaf(high, high_block, halves.high)?;
    let role = writer.reader().index_role(Kind::Root);
    let root = writer.tx.rewrite(block, role)?;
    index::init_root(root, writer.layout, (own, parent), version, low);
    index::insert_after(root, Kind::Root, writer.layout, 0, entry);
    writer.dir.set_flags(writer.dir.flags() | InodeFlags::INDEX);
    Ok(())
}
