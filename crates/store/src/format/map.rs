//! Maps: which bytes of a volume are where. A map is one leaf, or an index of leaves of 1 GiB each.

use super::bytes::{Reader, magic, narrow};
use super::log::DATA_MAX;
use super::{Hash, VolumeId, Wrong};
use platfs_device::units::saturated;

const MAGIC: &[u8; 8] = b"PLATMAP\x01";
/// Bytes of a volume that one leaf is about.
pub const LEAF_SPAN: u64 = 1 << 30;
/// Most bytes of a map object, unpacked: an index of 1 PiB.
pub const MAP_MAX: usize = 48 << 20;
/// Bytes of a chunk, but for the last of a volume.
pub const CHUNK: usize = 512 << 10;
/// Most bytes of a chunk that is read.
pub const CHUNK_MAX: usize = 4 << 20;

const LEAF: u32 = 0;
const INDEX: u32 = 1;
/// Added to either where a mark follows.
const OWN: u32 = 2;
const OF_CHUNK: u32 = 1;
const OF_LOG: u32 = 2;
const EXTENT: usize = 20;

/// An object that holds bytes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Target {
    /// A chunk.
    Chunk {
        /// Its name.
        hash: Hash,
        /// Its bytes, unpacked.
        len: u32,
    },
    /// An object of a log.
    Log {
        /// The volume that wrote it.
        volume: VolumeId,
        /// The epoch.
        epoch: u64,
        /// Its number.
        seq: u64,
        /// The hash of its header.
        header: Hash,
        /// Bytes of its data.
        len: u32,
    },
}

impl Target {
    /// Bytes that extents may lie in.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Target::Chunk { len, .. } | Target::Log { len, .. } => *len,
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a volume that lie in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first, in the volume.
    pub start: u64,
    /// Number of bytes.
    pub len: u32,
    /// Number of the object, among those of the leaf.
    pub object: u32,
    /// The first, in the object.
    pub offset: u32,
}

/// One leaf: what is not in an extent reads as zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaf {
    /// The objects.
    pub objects: Vec<Target>,
    /// The extents, in order, none over another.
    pub extents: Vec<Extent>,
}

/// A map object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Map {
    /// All of a volume of at most 1 GiB, or one of the parts of a larger one.
    Leaf(Leaf),
    /// The names of the leaves; zeros where all of it is zeros.
    Index(Vec<Hash>),
}

/// Number of leaves of a volume.
#[must_use]
pub fn leaves(size: u64) -> u64 {
    size.div_ceil(LEAF_SPAN)
}

impl Map {
    /// Its bytes. The same map has the same bytes, whoever writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.bytes(None)
    }

    /// Its bytes with a mark that nobody else uses: no other map has these, so that no other program can come to refer to
    /// an object with them by chance.
    #[must_use]
    pub fn encode_own(&self, mark: &[u8; 16]) -> Vec<u8> {
        self.bytes(Some(mark))
    }

    fn bytes(&self, mark: Option<&[u8; 16]>) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let kind = match self {
            Map::Index(_) => INDEX,
            Map::Leaf(_) => LEAF,
        };
        out.extend((kind | mark.map_or(0, |_| OWN)).to_le_bytes());
        out.extend(mark.into_iter().flatten());
        match self {
            Map::Index(names) => {
                out.extend(narrow(names.len()));
                names.iter().for_each(|name| out.extend(name));
            }
            Map::Leaf(leaf) => {
                out.extend(narrow(leaf.objects.len()));
                leaf.objects.iter().for_each(|target| put_target(&mut out, target));
                out.extend(narrow(leaf.extents.len()));
                for extent in &leaf.extents {
                    out.extend(extent.start.to_le_bytes());
                    for number in [extent.len, extent.object, extent.offset] {
                        out.extend(number.to_le_bytes());
                    }
                }
            }
        }
        out
    }

    /// The root of the map of a volume of `size` bytes.
    ///
    /// # Errors
    /// The broken rule.
    pub fn root(bytes: &[u8], size: u64) -> Result<Self, Wrong> {
        let wanted = leaves(size);
        if wanted <= 1 {
            return Self::leaf(bytes, 0, size).map(Map::Leaf);
        }
        let mut reader = Reader::new(bytes);
        if kind(&mut reader)? != INDEX {
            return Err("is no index, which a volume of that size has".to_owned());
        }
        let count = reader.count(32)?;
        if count as u64 != wanted {
            return Err(format!("has {count} leaves, the volume {wanted}"));
        }
        let names = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Map::Index(names))
    }

    /// The leaf with that number of a volume of `size` bytes.
    ///
    /// # Errors
    /// The broken rule.
    pub fn leaf(bytes: &[u8], number: u64, size: u64) -> Result<Leaf, Wrong> {
        let mut reader = Reader::new(bytes);
        if kind(&mut reader)? != LEAF {
            return Err("is no leaf".to_owned());
        }
        let count = reader.count(40)?;
        let objects = (0..count).map(|_| target(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let count = reader.count(EXTENT)?;
        let mut leaf = Leaf { objects, extents: Vec::with_capacity(count) };
        let mut at = number.saturating_mul(LEAF_SPAN);
        let end = at.saturating_add(LEAF_SPAN).min(size);
        for _ in 0..count {
            let [start, numbers @ ..] =
                [reader.u64()?, reader.u32()?.into(), reader.u32()?.into(), reader.u32()?.into()];
            let [len, object, offset] = numbers.map(saturated::<u32>);
            let extent = Extent { start, len, object, offset };
            at = fits(&extent, &leaf.objects, at, end)?;
            leaf.extents.push(extent);
        }
        reader.end()?;
        Ok(leaf)
    }
}

/// The kind of a map; the mark behind it says nothing.
fn kind(reader: &mut Reader<'_>) -> Result<u32, Wrong> {
    magic(reader, MAGIC)?;
    let kind = reader.u32()?;
    if !matches!(kind & !OWN, LEAF | INDEX) {
        return Err(format!("is a map of kind {kind}, which this version does not know"));
    }
    if kind & OWN != 0 {
        reader.array::<16>()?;
    }
    Ok(kind & !OWN)
}

/// The end of an extent, which begins where the one before it ends or later, and lies in its leaf and its object.
fn fits(extent: &Extent, objects: &[Target], from: u64, end: u64) -> Result<u64, Wrong> {
    let Extent { start, len, object, offset } = *extent;
    let wrong = |problem: &str| Err(format!("the extent of {len} bytes at {start} {problem}"));
    let Some(target) = objects.get(object as usize) else { return wrong("is in no object of the map") };
    let Some(stop) = start.checked_add(len.into()).filter(|stop| *stop <= end && start >= from && len > 0)
    else {
        return wrong("lies over another, or outside of its leaf");
    };
    if offset.checked_add(len).is_none_or(|stop| stop > target.len()) {
        return wrong("reaches behind the end of its object");
    }
    Ok(stop)
}

fn put_target(out: &mut Vec<u8>, target: &Target) {
    match target {
        Target::Chunk { hash, len } => {
            out.extend(OF_CHUNK.to_le_bytes());
            out.extend(len.to_le_bytes());
            out.extend(hash);
        }
        Target::Log { volume, epoch, seq, header, len } => {
            out.extend(OF_LOG.to_le_bytes());
            out.extend(len.to_le_bytes());
            out.extend(volume);
            out.extend(epoch.to_le_bytes());
            out.extend(seq.to_le_bytes());
            out.extend(header);
        }
    }
}

fn target(reader: &mut Reader<'_>) -> Result<Target, Wrong> {
    let (kind, len) = (reader.u32()?, reader.u32()?);
    let (target, most) = match kind {
        OF_CHUNK => (Target::Chunk { hash: reader.array()?, len }, CHUNK_MAX),
        OF_LOG => {
            let (volume, epoch, seq) = (reader.array()?, reader.u64()?, reader.u64()?);
            (Target::Log { volume, epoch, seq, header: reader.array()?, len }, DATA_MAX)
        }
        other => return Err(format!("names an object of kind {other}, which this version does not know")),
    };
    if len as usize > most {
        return Err(format!("names an object of {len} bytes, at most {most} are allowed"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf() -> Leaf {
        let log = Target::Log { volume: [1; 16], epoch: 2, seq: 3, header: [4; 32], len: 9000 };
        let objects = vec![Target::Chunk { hash: [5; 32], len: 4096 }, log];
        let extent = |start, len, object, offset| Extent { start, len, object, offset };
        Leaf { objects, extents: vec![extent(0, 4096, 0, 0), extent(8192, 1000, 1, 8000)] }
    }

    #[test]
    fn maps_come_back() {
        let bytes = Map::Leaf(leaf()).encode();
        assert_eq!(Map::root(&bytes, 10_000).unwrap(), Map::Leaf(leaf()));
        let own = Map::Leaf(leaf()).encode_own(&[8; 16]);
        assert_eq!(Map::root(&own, 10_000).unwrap(), Map::Leaf(leaf()));
        assert_ne!(own, Map::Leaf(leaf()).encode_own(&[9; 16]));
        let index = Map::Index(vec![[0; 32], [7; 32]]);
        assert_eq!(Map::root(&index.encode_own(&[8; 16]), LEAF_SPAN + 1).unwrap(), index);
        assert_eq!(Map::root(&index.encode(), LEAF_SPAN + 1).unwrap(), index);
        assert!(Map::root(&index.encode(), 2 * LEAF_SPAN + 1).unwrap_err().contains("leaves"));
        assert!(Map::root(&bytes, LEAF_SPAN + 1).is_err() && Map::root(&index.encode(), 5).is_err());
    }

    #[test]
    fn hostile_leaves_are_refused() {
        let refused = |change: &dyn Fn(&mut Leaf)| {
            let mut hostile = leaf();
            change(&mut hostile);
            Map::leaf(&Map::Leaf(hostile).encode(), 0, 10_000).unwrap_err()
        };
        assert!(refused(&|leaf| leaf.extents[1].start = 4000).contains("over another"));
        assert!(refused(&|leaf| leaf.extents[1].start = u64::MAX - 3).contains("over another"));
        assert!(refused(&|leaf| leaf.extents[1].start = 9999).contains("outside"));
        assert!(refused(&|leaf| leaf.extents[1].len = 0).contains("outside"));
        assert!(refused(&|leaf| leaf.extents[1].offset = 8001).contains("behind the end"));
        assert!(refused(&|leaf| leaf.extents[1].offset = u32::MAX).contains("behind the end"));
        assert!(refused(&|leaf| leaf.extents[1].object = 2).contains("no object"));
        assert!(
            refused(&|leaf| leaf.objects[0] = Target::Chunk { hash: [0; 32], len: u32::MAX })
                .contains("at most")
        );
        let bytes = Map::Leaf(leaf()).encode();
        for at in 0..bytes.len() {
            assert!(Map::leaf(&bytes[..at], 0, 10_000).is_err(), "cut at {at}");
        }
    }
}
