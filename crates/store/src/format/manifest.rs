//! A volume's manifest: the one object of a volume that is replaced.

use super::bytes::{Reader, magic, narrow};
use super::{Hash, VolumeId, Wrong, hash};

const MAGIC: &[u8; 8] = b"PLATVOL\x01";
/// Most bytes of a manifest.
pub const MANIFEST_MAX: usize = 256 << 10;
/// Most runs of log objects: each opening that ends without a checkpoint adds one.
pub const SEGMENTS_MAX: usize = 2048;
/// Most bytes of a volume: 1 PiB.
pub const SIZE_MAX: u64 = 1 << 50;
/// Most bytes of a name, and of the words on who has a volume open.
pub const TEXT_MAX: usize = 512;

/// Uses of a volume, beyond reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// It is never written: a snapshot.
    pub frozen: bool,
    /// Somebody has it open for writing, or was lost while it was.
    pub open: bool,
    /// It was removed, or is a fork that is not yet made ([`Manifest::is_pending`]). Its manifest stays, so that its epochs
    /// are not used again.
    pub removed: bool,
}

/// Log objects of one epoch, not yet in the map: those from `first` on, before `end`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The volume that wrote them.
    pub volume: VolumeId,
    /// The epoch.
    pub epoch: u64,
    /// The number of the first.
    pub first: u64,
    /// The number behind the last; `u64::MAX` as long as that is open.
    pub end: u64,
    /// The hash of the header before the first: what it must name as the one before it.
    pub before: Hash,
}

/// A manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Its volume.
    pub id: VolumeId,
    /// The volume that it was forked from, or zeros.
    pub parent: VolumeId,
    /// The name, `NAME` or `NAME@SNAPSHOT`.
    pub name: String,
    /// Holder that has the volume open, and since when.
    pub holder: String,
    /// See there.
    pub flags: Flags,
    /// Bytes of the volume.
    pub size: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Each opening for writing takes the next.
    pub epoch: u64,
    /// A random number: no two manifests are the same bytes.
    pub nonce: u64,
    /// The hash of the map's root; zeros where nothing was ever written.
    pub map: Hash,
    /// Log objects that are not in the map, in order.
    pub segments: Vec<Segment>,
}

const FROZEN: u32 = 1;
const OPEN: u32 = 2;
const REMOVED: u32 = 4;
const SEGMENT: usize = 72;

impl Manifest {
    /// True if it is a fork that is being made, or whose maker was lost: no volume, but what it refers to is kept.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.flags.removed && (self.map != [0; 32] || !self.segments.is_empty())
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.holder.len() + size_of_val(&*self.segments)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flag = |is: bool, bit: u32| if is { bit } else { 0 };
        let Flags { frozen, open, removed } = self.flags;
        let flags = flag(frozen, FROZEN) | flag(open, OPEN) | flag(removed, REMOVED);
        let mut out = MAGIC.to_vec();
        out.extend(flags.to_le_bytes());
        out.extend(self.id);
        out.extend(self.parent);
        for number in [self.size, self.created, self.epoch, self.nonce] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.map);
        for text in [&self.name, &self.holder] {
            out.extend(narrow(text.len()));
            out.extend(text.as_bytes());
        }
        out.extend(narrow(self.segments.len()));
        for segment in &self.segments {
            out.extend(segment.volume);
            for number in [segment.epoch, segment.first, segment.end] {
                out.extend(number.to_le_bytes());
            }
            out.extend(segment.before);
        }
        let sum = hash(&out);
        out.extend(sum);
        out
    }

    /// A manifest of its bytes.
    ///
    /// # Errors
    /// The broken rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let at = bytes.len().checked_sub(32).ok_or("is too short for a manifest")?;
        let (body, sum) = bytes.split_at(at);
        let mut reader = Reader::new(body);
        magic(&mut reader, MAGIC)?;
        if hash(body) != *sum {
            return Err("its checksum is wrong".to_owned());
        }
        let flags = reader.u32()?;
        if flags & !(FROZEN | OPEN | REMOVED) != 0 {
            return Err(format!("has flags {flags:#x}, which this version does not know"));
        }
        let mut manifest = Manifest {
            id: reader.array()?,
            parent: reader.array()?,
            name: String::new(),
            holder: String::new(),
            flags: Flags {
                frozen: flags & FROZEN != 0,
                open: flags & OPEN != 0,
                removed: flags & REMOVED != 0,
            },
            size: reader.u64()?,
            created: reader.u64()?,
            epoch: reader.u64()?,
            nonce: reader.u64()?,
            map: reader.array()?,
            segments: Vec::new(),
        };
        manifest.name = text(&mut reader)?;
        manifest.holder = text(&mut reader)?;
        manifest.segments = segments(&mut reader)?;
        reader.end()?;
        if manifest.size > SIZE_MAX {
            return Err(format!("is of {} bytes, at most {SIZE_MAX} are allowed", manifest.size));
        }
        Ok(manifest)
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String, Wrong> {
    let len = reader.count(1)?;
    if len > TEXT_MAX {
        return Err(format!("has a text of {len} bytes, at most {TEXT_MAX} are allowed"));
    }
    reader.text(len)
}

fn segments(reader: &mut Reader<'_>) -> Result<Vec<Segment>, Wrong> {
    let count = reader.count(SEGMENT)?;
    if count > SEGMENTS_MAX {
        return Err(format!("has {count} segments, at most {SEGMENTS_MAX} are allowed"));
    }
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        let segment = Segment {
            volume: reader.array()?,
            epoch: reader.u64()?,
            first: reader.u64()?,
            end: reader.u64()?,
            before: reader.array()?,
        };
        if segment.end < segment.first {
            return Err("has a segment that ends before it begins".to_owned());
        }
        segments.push(segment);
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let segment = Segment { volume: [3; 16], epoch: 9, first: 4, end: u64::MAX, before: [8; 32] };
        Manifest {
            id: [1; 16],
            parent: [2; 16],
            name: "a@b".into(),
            holder: "somebody".into(),
            flags: Flags { open: true, ..Flags::default() },
            size: 1 << 40,
            created: 77,
            epoch: 9,
            nonce: 5,
            map: [6; 32],
            segments: vec![segment],
        }
    }

    #[test]
    fn a_manifest_comes_back_and_a_damaged_one_is_refused() {
        let bytes = example().encode();
        assert_eq!(Manifest::decode(&bytes).unwrap(), example());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_hostile_manifest_with_a_right_checksum_is_refused() {
        let resealed = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = example();
            change(&mut manifest);
            Manifest::decode(&manifest.encode())
        };
        assert!(resealed(&|m| m.size = u64::MAX).unwrap_err().contains("at most"));
        assert!(resealed(&|m| m.name = "x".repeat(600)).unwrap_err().contains("text"));
        assert!(resealed(&|m| m.segments[0].end = 3).unwrap_err().contains("before it begins"));
        let many = |m: &mut Manifest| m.segments = vec![m.segments[0].clone(); SEGMENTS_MAX + 1];
        assert!(resealed(&many).unwrap_err().contains("segments"));
        let mut bytes = example().encode();
        let at = bytes.len() - 32 - SEGMENT - 4;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let end = bytes.len() - 32;
        let sum = hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum);
        assert!(Manifest::decode(&bytes).unwrap_err().contains("counts"));
    }
}
