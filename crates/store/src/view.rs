//! Places of a volume's bytes: its map, read as far as needed, under what its log says.
//!
//! Owns: the leaves that are in memory, and reading bytes by them. Excludes writing.

use platfs_device::invariant;
use platfs_device::units::bounded;
use std::collections::HashMap;
use std::hash::Hash as Hashed;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::Hash;
use crate::format::log::{Header, UNIT};
use crate::format::manifest::Manifest;
use crate::format::map::{LEAF_SPAN, Leaf, MAP_MAX, Map, Target, leaves};
use crate::keys::{Kind, key_of};
use crate::store::Store;

/// Bytes of leaves that a map keeps in memory, if it keeps more than one, and of headers of log objects.
const LEAVES: usize = 32 << 20;
const HEADERS: usize = 64 << 20;

/// Bytes of a volume: first byte, length, and the object with the offset in it; nothing for zeros.
pub(crate) type Run = (u64, u64, Option<(Target, u32)>);

/// A map and where it comes from.
pub(crate) struct Base {
    store: Arc<Store>,
    size: u64,
    root: Hash,
    index: OnceLock<Vec<Hash>>,
    leaves: Mutex<ByteCache<u64, Leaf>>,
}

/// Things in memory, each with its bytes.
struct ByteCache<K, T> {
    all: HashMap<K, Arc<T>>,
    bytes: usize,
}

impl<K, T> Default for ByteCache<K, T> {
    fn default() -> Self {
        ByteCache { all: HashMap::new(), bytes: 0 }
    }
}

impl<K: Eq + Hashed, T> ByteCache<K, T> {
    /// Keeps one more, in the place of all others where they would be more than that many bytes together.
    fn put(&mut self, name: K, one: Arc<T>, bytes: usize, most: usize) {
        // Two threads may have fetched it.
        if let Some(kept) = self.all.get_mut(&name) {
            *kept = one;
            return;
        }
        if self.bytes + bytes > most {
            *self = ByteCache::default();
        }
        self.bytes += bytes;
        self.all.insert(name, one);
    }
}

/// Bytes of a leaf in memory.
fn bytes_of_leaf(leaf: &Leaf) -> usize {
    size_of::<Leaf>() + size_of_val(&*leaf.objects) + size_of_val(&*leaf.extents)
}

/// Bytes of a header in memory.
fn bytes_of_header(header: &Header) -> usize {
    size_of::<Header>() + size_of_val(&*header.extents) + size_of_val(&*header.units)
}

impl Base {
    /// The map with that root, of a volume of that size.
    pub(crate) fn new(store: Arc<Store>, size: u64, root: Hash) -> Self {
        Base { store, size, root, index: OnceLock::new(), leaves: Mutex::default() }
    }

    /// The names of the leaves; a map of one leaf is its own index.
    pub(crate) fn names(&self) -> Result<&[Hash]> {
        if let Some(names) = self.index.get() {
            return Ok(names);
        }
        let count = leaves(self.size);
        let names = if self.root == [0; 32] {
            vec![[0; 32]; bounded::<usize>(count)]
        } else if count <= 1 {
            vec![self.root]
        } else {
            let bytes = self.store.contents(Kind::Map, &self.root, MAP_MAX)?;
            let damaged = |why| Error::damaged(key_of(Kind::Map, &self.root), why);
            match Map::root(&bytes, self.size).map_err(damaged)? {
                Map::Index(names) => names,
                Map::Leaf(_) => vec![self.root],
            }
        };
        Ok(self.index.get_or_init(|| names))
    }

    /// A leaf by its number.
    pub(crate) fn leaf(&self, number: u64) -> Result<Arc<Leaf>> {
        let lock = || self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = lock().all.get(&number) {
            return Ok(Arc::clone(leaf));
        }
        let names = self.names()?;
        let name = usize::try_from(number).ok().and_then(|at| names.get(at));
        let name = *invariant!(name, "an index has a name for each leaf of the volume");
        if name == [0; 32] {
            return Ok(Arc::default());
        }
        let bytes = self.store.contents(Kind::Map, &name, MAP_MAX)?;
        let damaged = |why| Error::damaged(key_of(Kind::Map, &name), why);
        let leaf = Arc::new(Map::leaf(&bytes, number, self.size).map_err(damaged)?);
        lock().put(number, Arc::clone(&leaf), bytes_of_leaf(&leaf), LEAVES);
        Ok(leaf)
    }

    /// Returns the pieces of a range, by the map.
    pub(crate) fn pieces(&self, start: u64, len: u64) -> Result<Vec<Run>> {
        let (mut at, end) = (start, start.saturating_add(len));
        let mut found = Vec::new();
        while at < end {
            let number = at / LEAF_SPAN;
            let stop = end.min((number + 1) * LEAF_SPAN);
            let leaf = self.leaf(number)?;
            let first = leaf.extents.partition_point(|extent| extent.start + u64::from(extent.len) <= at);
            for extent in leaf.extents.get(first..).unwrap_or_default() {
                if extent.start >= stop {
                    break;
                }
                if extent.start > at {
                    found.push((at, extent.start - at, None));
                    at = extent.start;
                }
                let inside = at - extent.start;
                let count = (u64::from(extent.len) - inside).min(stop - at);
                let target =
                    *invariant!(leaf.objects.get(extent.object as usize), "a leaf has its extents' objects");
                let offset = u32::try_from(inside).ok().and_then(|inside| extent.offset.checked_add(inside));
                let offset = invariant!(offset, "an extent lies in its object");
                found.push((at, count, Some((target, offset))));
                at += count;
            }
            if at < stop {
                found.push((at, stop - at, None));
                at = stop;
            }
        }
        Ok(found)
    }
}

/// Reads bytes of objects.
pub(crate) struct Reader {
    store: Arc<Store>,
    headers: Mutex<ByteCache<Hash, Header>>,
}

impl Reader {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Reader { store, headers: Mutex::default() }
    }

    /// See [`Store::taken`].
    pub(crate) fn taken(&self) -> u64 {
        self.store.taken()
    }

    /// Requests side by side where `most` would be good.
    pub(crate) fn at_once(&self, most: usize) -> usize {
        self.store.at_once(most)
    }

    /// Fills a buffer from an object of a volume of `size` bytes.
    pub(crate) fn read(&self, target: &Target, offset: u32, buffer: &mut [u8], size: u64) -> Result<()> {
        match target {
            Target::Chunk { hash, len } => {
                let bytes = self.store.chunk(hash)?;
                if bytes.len() != *len as usize {
                    let why = format!("has {} bytes, the map says {len}", bytes.len());
                    return Err(Error::damaged(key_of(Kind::Chunk, hash), why));
                }
                copied(&bytes, offset as usize, buffer)
            }
            Target::Log { volume, epoch, seq, header, .. } => {
                let place = (volume, *epoch, *seq);
                let found = self.header(place, header, size)?;
                let (mut at, mut rest) = (offset as usize, buffer);
                while !rest.is_empty() {
                    let unit = self.store.log_unit(place, &found, at / UNIT)?;
                    let count = (UNIT - at % UNIT).min(rest.len());
                    let (piece, behind) = rest.split_at_mut(count);
                    copied(&unit, at % UNIT, piece)?;
                    at += count;
                    rest = behind;
                }
                Ok(())
            }
        }
    }

    /// Remembers a header that was read anyway, and hands it back: others may take its place at once.
    pub(crate) fn remember(&self, hash: Hash, header: Header) -> Arc<Header> {
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, header) = (bytes_of_header(&header), Arc::new(header));
        headers.put(hash, Arc::clone(&header), bytes, HEADERS);
        header
    }

    /// True if a part of an object is on this host. What the cache has is unpacked when it is read: ahead of that it would
    /// push others out of memory, which would be unpacked again and again.
    pub(crate) fn is_at_hand(&self, wanted: &Wanted) -> bool {
        let (target, range) = wanted;
        match target {
            Target::Chunk { hash, .. } => self.store.is_kept(hash),
            Target::Log { header, .. } => {
                let headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(header) = headers.all.get(header).map(Arc::clone) else { return false };
                drop(headers);
                self.store.has_units(&header, units(range))
            }
        }
    }

    /// Reads an object from the store, and verifies it.
    pub(crate) fn verify(&self, target: &Target, size: u64) -> Result<()> {
        match target {
            Target::Chunk { len, .. } => self.read(target, 0, &mut vec![0; *len as usize], size),
            Target::Log { volume, epoch, seq, header, .. } => {
                let place = (volume, *epoch, *seq);
                self.store.verified_log(place, &*self.header(place, header, size)?)
            }
        }
    }

    /// Has the store remember a part of an object.
    pub(crate) fn fetch(&self, target: &Target, range: Range<u32>, size: u64) -> Result<()> {
        match target {
            Target::Chunk { hash, .. } => self.store.chunk(hash).map(drop),
            Target::Log { volume, epoch, seq, header, .. } => {
                let place = (volume, *epoch, *seq);
                let found = self.header(place, header, size)?;
                self.store.log_units(place, &found, units(&range))
            }
        }
    }

    fn header(&self, place: (&[u8; 16], u64, u64), hash: &Hash, size: u64) -> Result<Arc<Header>> {
        let lock = || self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().all.get(hash) {
            return Ok(Arc::clone(found));
        }
        // One thread fetches it for all.
        let mut alone = self.store.alone_with(hash);
        if let Some(found) = lock().all.get(hash) {
            return Ok(Arc::clone(found));
        }
        // A fork may be larger than what wrote the object was; its extents are not used here.
        let most = size.max(crate::format::manifest::SIZE_MAX);
        let header = alone.fetched(|| self.store.known_header(place, hash, most))?;
        Ok(self.remember(*hash, header))
    }
}

/// The parts of an object that a range lies in.
fn units(range: &Range<u32>) -> Range<usize> {
    range.start as usize / UNIT..(range.end as usize).div_ceil(UNIT)
}

/// Copies out of an object's bytes.
fn copied(bytes: &[u8], offset: usize, buffer: &mut [u8]) -> Result<()> {
    let from = offset.checked_add(buffer.len()).and_then(|end| bytes.get(offset..end));
    let from = from.ok_or_else(|| Error::Invalid("a range behind the end of its object".into()))?;
    buffer.copy_from_slice(from);
    Ok(())
}

/// A volume as it is read: its map, and over it what its log says.
pub(crate) struct View {
    pub(crate) base: Base,
    pub(crate) log: Extents,
    pub(crate) targets: Vec<Target>,
}

impl View {
    /// The volume of a manifest, without its log.
    pub(crate) fn new(store: &Arc<Store>, manifest: &Manifest) -> Self {
        let base = Base::new(Arc::clone(store), manifest.size, manifest.map);
        View { base, log: Extents::default(), targets: Vec::new() }
    }

    /// Lays an object of the log over what there is.
    pub(crate) fn apply(&mut self, header: &Header, hash: Hash) {
        let object = bounded::<u32>(self.targets.len());
        let Header { volume, epoch, seq, data_len, .. } = *header;
        self.targets.push(Target::Log { volume, epoch, seq, header: hash, len: data_len });
        for extent in &header.extents {
            let source = extent.offset.map_or(Source::Zeros, |offset| Source::At { object, offset });
            self.log.insert(extent.start, extent.len.into(), source);
        }
    }

    /// Returns the pieces of a range.
    pub(crate) fn pieces(&self, start: u64, len: u64) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        for piece in self.log.pieces(start, len) {
            match piece.source {
                None => found.extend(self.base.pieces(piece.start, piece.len)?),
                Some(Source::Zeros) => found.push((piece.start, piece.len, None)),
                Some(Source::At { object, offset }) => {
                    let target =
                        *invariant!(self.targets.get(object as usize), "what was laid has its object");
                    found.push((piece.start, piece.len, Some((target, offset))));
                }
            }
        }
        Ok(found)
    }
}

/// Fills a buffer with what ranges are made of.
pub(crate) fn fill(reader: &Reader, runs: &[Run], buffer: &mut [u8], size: u64) -> Result<()> {
    let mut rest = buffer;
    for (_, len, place) in runs {
        let split = usize::try_from(*len).ok().and_then(|len| rest.split_at_mut_checked(len));
        let (piece, behind) = invariant!(split, "the pieces of a range are as long as it");
        match place {
            None => piece.fill(0),
            Some((target, offset)) => reader.read(target, *offset, piece, size)?,
        }
        rest = behind;
    }
    Ok(())
}

/// A part of an object.
pub(crate) type Wanted = (Target, Range<u32>);

/// The parts of objects that ranges are made of.
pub(crate) fn wanted(runs: &[Run]) -> impl Iterator<Item = Wanted> {
    runs.iter().filter_map(|(_, len, place)| {
        let (target, offset) = (*place)?;
        let len = bounded::<u32>(*len);
        Some((target, offset..offset.saturating_add(len)))
    })
}

/// `UnexpectedEof` or `WriteZero` unless the range lies inside `size`.
pub(crate) fn inside(size: u64, offset: u64, len: u64, kind: io::ErrorKind) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(kind, format!("{len} bytes at {offset} are behind the end ({size})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_threads_fetched_counts_once() {
        let mut kept = ByteCache::default();
        (0..3).for_each(|one| kept.put("a", Arc::new(one), 10, 25));
        assert_eq!((kept.bytes, kept.all.get("a").map(|one| **one)), (10, Some(2)));
        kept.put("b", Arc::new(3), 10, 25);
        assert_eq!((kept.bytes, kept.all.len()), (20, 2));
        // One more has no room beside them.
        kept.put("c", Arc::new(4), 10, 25);
        assert_eq!((kept.bytes, kept.all.len()), (10, 1));
    }
}
