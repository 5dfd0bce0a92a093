//! Objects of a log: what was written between two points, with checksums of the whole and of each part.

use super::bytes::{Reader, magic, narrow};
use super::{Hash, VolumeId, Wrong, hash};

const MAGIC: &[u8; 8] = b"PLATLOG\x01";
/// Most bytes of data in one object.
pub const DATA_MAX: usize = 8 << 20;
/// Bytes of data that have a checksum of their own, but for the last.
pub const UNIT: usize = 64 << 10;
/// Most extents of one object.
pub const EXTENTS_MAX: usize = 1 << 16;
/// Bytes before the extents.
const FRONT: usize = 104;
const EXTENT: usize = 16;
/// Bytes of a seal: an object with a header only, and nothing in it. No other is as short.
pub const SEAL: usize = FRONT + 32;
/// Most bytes of a header.
pub const HEADER_MAX: usize = FRONT + EXTENTS_MAX * EXTENT + DATA_MAX / UNIT * 32 + 32;
/// In the place of an offset: the bytes are zeros.
const ZEROS: u32 = u32::MAX;

/// Bytes of the header of an object.
#[must_use]
pub fn header_len(header: &Header) -> usize {
    FRONT + header.extents.len() * EXTENT + header.units.len() * 32 + 32
}

/// Bytes of a volume, and where they are in the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The first, in the volume.
    pub start: u64,
    /// Number of bytes.
    pub len: u32,
    /// The first, in the data; nothing for zeros.
    pub offset: Option<u32>,
}

/// Header of an object of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The volume that wrote it.
    pub volume: VolumeId,
    /// The epoch.
    pub epoch: u64,
    /// Its number in that.
    pub seq: u64,
    /// The hash of the header of the one before.
    pub before: Hash,
    /// A random number of the writer's.
    pub nonce: u64,
    /// It ends its epoch: the next is another writer's.
    pub is_seal: bool,
    /// Of a writer with a local log, whose mark is the `nonce` then: the number of the last record that is in here, or in
    /// an object before. Zero without one.
    pub local: u64,
    /// Writes, in order: later ones count where they lie over earlier ones.
    pub extents: Vec<Written>,
    /// Bytes of data.
    pub data_len: u32,
    /// The checksums of the parts of the data.
    pub units: Vec<Hash>,
}

impl Header {
    /// The bytes of an object with this header and these data, and the hash of the header.
    #[must_use]
    pub fn encode(&self, data: &[u8]) -> (Vec<u8>, Hash) {
        let mut out = Vec::with_capacity(FRONT + data.len());
        out.extend(MAGIC);
        out.extend(self.volume);
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.seq.to_le_bytes());
        out.extend(self.before);
        out.extend(self.nonce.to_le_bytes());
        out.extend(u32::from(self.is_seal).to_le_bytes());
        let units = data.len().div_ceil(UNIT);
        out.extend(narrow(FRONT + self.extents.len() * EXTENT + units * 32 + 32));
        out.extend(narrow(data.len()));
        out.extend(narrow(self.extents.len()));
        out.extend(self.local.to_le_bytes());
        for extent in &self.extents {
            out.extend(extent.start.to_le_bytes());
            out.extend(extent.len.to_le_bytes());
            out.extend(extent.offset.unwrap_or(ZEROS).to_le_bytes());
        }
        data.chunks(UNIT).for_each(|unit| out.extend(hash(unit)));
        let sum = hash(&out);
        out.extend(sum);
        out.extend(data);
        (out, sum)
    }

    /// Bytes of the header that begins with these, at least 104.
    ///
    /// # Errors
    /// They are not those of a header, or it would be too long.
    pub fn len(front: &[u8]) -> Result<usize, Wrong> {
        let mut reader = Reader::new(front);
        magic(&mut reader, MAGIC)?;
        reader.take(16 + 8 + 8 + 32 + 8 + 4)?;
        let len = reader.u32()? as usize;
        if !(FRONT + 32..=HEADER_MAX).contains(&len) {
            return Err(format!("has a header of {len} bytes"));
        }
        Ok(len)
    }

    /// A header of its bytes, of a volume of `size` bytes, and its hash.
    ///
    /// # Errors
    /// The broken rule.
    pub fn decode(bytes: &[u8], size: u64) -> Result<(Self, Hash), Wrong> {
        let len = Self::len(bytes)?;
        let bytes = bytes.get(..len).ok_or("ends inside its header")?;
        let (body, sum) = bytes.split_at(len - 32);
        if hash(body) != *sum {
            return Err("the checksum of its header is wrong".to_owned());
        }
        let mut reader = Reader::new(body);
        reader.take(MAGIC.len())?;
        let mut header = Header {
            volume: reader.array()?,
            epoch: reader.u64()?,
            seq: reader.u64()?,
            before: reader.array()?,
            nonce: reader.u64()?,
            is_seal: reader.u32()? != 0,
            local: 0,
            extents: Vec::new(),
            data_len: 0,
            units: Vec::new(),
        };
        reader.u32()?;
        header.data_len = reader.u32()?;
        let count = reader.u32()? as usize;
        header.local = reader.u64()?;
        if header.data_len as usize > DATA_MAX || count > EXTENTS_MAX {
            return Err(format!("has {} bytes of data in {count} extents", header.data_len));
        }
        for _ in 0..count {
            header.extents.push(written(&mut reader, header.data_len, size)?);
        }
        let units = (header.data_len as usize).div_ceil(UNIT);
        if reader.left() != units * 32 {
            return Err(format!("has {} bytes of checksums for {units} parts", reader.left()));
        }
        header.units = (0..units).map(|_| reader.array()).collect::<Result<_, _>>()?;
        let mut own = [0; 32];
        own.copy_from_slice(sum);
        Ok((header, own))
    }
}

fn written(reader: &mut Reader<'_>, data_len: u32, size: u64) -> Result<Written, Wrong> {
    let (start, len, offset) = (reader.u64()?, reader.u32()?, reader.u32()?);
    let is_inside = start.checked_add(len.into()).is_some_and(|end| end <= size);
    let is_there = offset == ZEROS || offset.checked_add(len).is_some_and(|end| end <= data_len);
    if !is_inside || !is_there || len == 0 {
        return Err(format!(
            "the extent of {len} bytes at {start} lies outside of the volume or of its data"
        ));
    }
    Ok(Written { start, len, offset: (offset != ZEROS).then_some(offset) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Header, Vec<u8>) {
        let data: Vec<u8> = (0..UNIT + 5000).map(|at| hash(&[at.to_le_bytes()[0]])[1]).collect();
        let units = data.chunks(UNIT).map(hash).collect();
        let at = |start, len, offset| Written { start, len, offset };
        let header = Header {
            volume: [1; 16],
            epoch: 2,
            seq: 3,
            before: [4; 32],
            nonce: 5,
            is_seal: false,
            local: 6,
            extents: vec![
                at(0, 60_000, Some(0)),
                at(1 << 20, 1 << 19, None),
                at(70_000, 10_536, Some(60_000)),
            ],
            data_len: u32::try_from(data.len()).unwrap(),
            units,
        };
        (header, data)
    }

    #[test]
    fn log_objects_come_back_and_damaged_ones_are_refused() {
        let (header, data) = example();
        let (bytes, sum) = header.encode(&data);
        assert_eq!(Header::decode(&bytes, 2 << 20).unwrap(), (header.clone(), sum));
        let len = Header::len(&bytes).unwrap();
        assert_eq!(bytes[len..], data);
        for at in 0..len {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Header::decode(&damaged, 2 << 20).is_err(), "byte {at}");
            assert!(Header::decode(&bytes[..at], 2 << 20).is_err(), "cut at {at}");
        }
        assert!(Header::decode(&bytes, 1 << 20).is_err(), "behind the end of the volume");
        let hostile = |change: &dyn Fn(&mut Header)| {
            let mut header = header.clone();
            change(&mut header);
            Header::decode(&header.encode(&data).0, 2 << 20).unwrap_err()
        };
        assert!(hostile(&|header| header.extents[0].offset = Some(20_000)).contains("outside"));
        assert!(hostile(&|header| header.extents[0].start = u64::MAX).contains("outside"));
        assert!(hostile(&|header| header.extents[0].len = 0).contains("outside"));
    }
}
