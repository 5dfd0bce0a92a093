//! Changes that a volume in use takes: fields of the superblock, and a UUID where no checksum begins with it.

use ondisk::features::{Compat, Incompat};
use ondisk::seal::crc32c;
use ondisk::superblock::RawSuperblock;
use ondisk::units::saturated;

use super::{Field, Request};
use crate::Result;
use crate::error::{Error, refused};

/// Makes the changes in the superblock of a volume that is in use.
///
/// # Errors
/// A change for which the volume must not be mounted, and as [`super::tune`]. The superblock may be changed in part then.
pub fn tune_in_use(raw: &mut RawSuperblock, request: &Request) -> Result<()> {
    refuse_more(request)?;
    fields(raw, request)?;
    uuid(raw, request)
}

/// Refuses a request for more than a volume in use takes, as far as that is known without the volume.
///
/// # Errors
/// Changes for which the volume has to be unmounted.
pub fn refuse_more(request: &Request) -> Result<()> {
    let rest = Request { fields: Vec::new(), uuid: None, ..request.clone() };
    if !rest.is_empty() {
        return refused(
            "only fields of the superblock and the UUID change while the volume is mounted: unmount it first",
        );
    }
    if request.fields.iter().any(|field| matches!(field, Field::HashSeed(_) | Field::ForceCheck)) {
        return refused(
            "the seed of hashes and the mark of errors change only while the volume is not mounted",
        );
    }
    Ok(())
}

fn fields(raw: &mut RawSuperblock, request: &Request) -> Result<()> {
    request.fields.iter().try_for_each(|field| field.store(raw))
}

fn uuid(raw: &mut RawSuperblock, request: &Request) -> Result<()> {
    let Some(uuid) = request.uuid.filter(|uuid| *uuid != raw.s_uuid) else { return Ok(()) };
    let mut features = raw.features();
    if features.compat.contains(Compat::STABLE_INODES) {
        return refused("the UUID can't change: stable_inodes says that encrypted files depend on it");
    }
    let stored = features.incompat.contains(Incompat::CSUM_SEED);
    let depends = features.descriptor_csum() || features.incompat.contains(Incompat::EA_INODE);
    match (stored, depends, request.keep_checksums && features.metadata_csum()) {
        (true, ..) | (_, false, _) => {}
        (false, true, true) => {
            features.incompat |= Incompat::CSUM_SEED;
            raw.s_checksum_seed.set(crc32c(!0, &raw.s_uuid));
            raw.set_features(features);
        }
        _ if features.metadata_csum() => {
            return refused(
                "checksums begin with the UUID: with --fast the seed of the old one is stored, else unmount first",
            );
        }
        _ => return refused("checksums begin with the UUID: unmount the volume first"),
    }
    raw.s_uuid = uuid;
    Ok(())
}

/// The most bytes that changes take on their way.
pub const ENCODED_MAX: usize = 4096;

impl Request {
    /// Encodes the part of the request that a volume in use takes: fields and the UUID.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut add = |tag: u8, bytes: &[u8]| {
            out.push(tag);
            // A text that is cut here is longer than any field, and is refused where it would be stored.
            out.push(saturated::<u8>(bytes.len()));
            out.extend(bytes.iter().take(usize::from(u8::MAX)));
        };
        for field in &self.fields {
            let (tag, bytes) = field.encode();
            add(tag, &bytes);
        }
        if let Some(uuid) = &self.uuid {
            add(if self.keep_checksums { FAST } else { UUID }, uuid);
        }
        out
    }

    /// The request that some bytes are.
    ///
    /// # Errors
    /// Bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self> {
        let wrong = || Error::Usage("the changes can't be understood".into());
        let mut request = Request::default();
        while let Some((&[tag, len], rest)) = bytes.split_first_chunk() {
            let (value, rest) = rest.split_at_checked(usize::from(len)).ok_or_else(wrong)?;
            bytes = rest;
            if tag == UUID || tag == FAST {
                request.uuid = Some(value.try_into().map_err(|_| wrong())?);
                request.keep_checksums = tag == FAST;
            } else {
                request.fields.push(Field::decode(tag, value).ok_or_else(wrong)?);
            }
        }
        if bytes.is_empty() { Ok(request) } else { Err(wrong()) }
    }
}

const UUID: u8 = 254;
const FAST: u8 = 255;

impl Field {
    /// A number for the field, and its value.
    fn encode(&self) -> (u8, Vec<u8>) {
        let number = |number: u64| number.to_le_bytes().to_vec();
        match self {
            Field::Label(text) => (1, text.clone()),
            Field::LastMounted(text) => (2, text.clone()),
            Field::ReservedPercent(percent) => (3, number(percent.to_bits())),
            Field::ReservedBlocks(blocks) => (4, number(*blocks)),
            Field::ReservedUser(uid) => (5, number((*uid).into())),
            Field::ReservedGroup(gid) => (6, number((*gid).into())),
            Field::OnError(behaviour) => (7, number(u64::from(super::fields::number_of(*behaviour)))),
            Field::MostMounts(most) => (8, number(most.cast_unsigned().into())),
            Field::Mounts(mounts) => (9, number((*mounts).into())),
            Field::CheckInterval(seconds) => (10, number((*seconds).into())),
            Field::LastChecked(seconds) => (11, number(*seconds)),
            Field::MountOption(bits, on) => (12, number(u64::from(*bits) | u64::from(*on) << 32)),
            Field::MountText(text) => (13, text.clone()),
            Field::Stride(blocks) => (14, number((*blocks).into())),
            Field::StripeWidth(blocks) => (15, number((*blocks).into())),
            Field::HashAlgorithm(hash) => (16, number((*hash).into())),
            Field::HashSeed(seed) => (17, seed.to_vec()),
            Field::TestVolume(on) => (18, number((*on).into())),
            Field::ForceCheck => (19, Vec::new()),
        }
    }

    fn decode(tag: u8, value: &[u8]) -> Option<Self> {
        let number = || value.try_into().ok().map(u64::from_le_bytes);
        let short = || number().and_then(|number| u32::try_from(number).ok());
        let shorter = || number().and_then(|number| u16::try_from(number).ok());
        Some(match tag {
            1 => Field::Label(value.to_vec()),
            2 => Field::LastMounted(value.to_vec()),
            3 => Field::ReservedPercent(f64::from_bits(number()?)),
            4 => Field::ReservedBlocks(number()?),
            5 => Field::ReservedUser(short()?),
            6 => Field::ReservedGroup(short()?),
            7 => Field::OnError(super::fields::behaviour(shorter()?)?),
            8 => Field::MostMounts(shorter()?.cast_signed()),
            9 => Field::Mounts(shorter()?),
            10 => Field::CheckInterval(short()?),
            11 => Field::LastChecked(number()?),
            12 => Field::MountOption(u32::try_from(number()? & 0xFFFF_FFFF).ok()?, number()? >> 32 & 1 == 1),
            13 => Field::MountText(value.to_vec()),
            14 => Field::Stride(shorter()?),
            15 => Field::StripeWidth(short()?),
            16 => Field::HashAlgorithm(u8::try_from(number()?).ok()?),
            17 => Field::HashSeed(value.try_into().ok()?),
            18 => Field::TestVolume(number()? == 1),
            19 => Field::ForceCheck,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use platfs::mkfs::OnError;

    use super::*;

    fn all() -> Vec<Field> {
        vec![
            Field::Label(b"a label".to_vec()),
            Field::LastMounted(b"/x".to_vec()),
            Field::ReservedPercent(2.5),
            Field::ReservedBlocks(1 << 40),
            Field::ReservedUser(70_000),
            Field::ReservedGroup(7),
            Field::OnError(OnError::Panic),
            Field::MostMounts(-1),
            Field::Mounts(9),
            Field::CheckInterval(77),
            Field::LastChecked(1 << 33),
            Field::MountOption(0x60, true),
            Field::MountText(b"data=journal".to_vec()),
            Field::Stride(4),
            Field::StripeWidth(8),
            Field::HashAlgorithm(2),
            Field::HashSeed([3; 16]),
            Field::TestVolume(true),
            Field::ForceCheck,
        ]
    }

    #[test]
    fn what_is_asked_for_arrives() {
        let request =
            Request { fields: all(), uuid: Some([9; 16]), keep_checksums: true, ..Request::default() };
        let bytes = request.encode();
        assert!(bytes.len() <= ENCODED_MAX);
        let read = Request::decode(&bytes).unwrap();
        assert_eq!((read.fields, read.uuid, read.keep_checksums), (request.fields, request.uuid, true));
        for cut in 1..bytes.len() {
            // Cut between two fields it is another request; elsewhere none.
            if let Ok(less) = Request::decode(&bytes[..cut]) {
                assert_eq!(less.encode(), bytes[..cut]);
            }
        }
        assert!(Request::decode(&[77, 0]).is_err() && Request::decode(&[4, 1, 0]).is_err());
    }

    #[test]
    fn a_volume_in_use_takes_fields_only() {
        let mut raw = RawSuperblock::zeroed();
        raw.s_rev_level.set(1);
        let label = Request { fields: vec![Field::Label(b"x".to_vec())], ..Request::default() };
        tune_in_use(&mut raw, &label).unwrap();
        assert_eq!(raw.label(), b"x");
        let journal = Request { journal: Some(Default::default()), ..label.clone() };
        assert!(tune_in_use(&mut raw, &journal).is_err());
        let seed = Request { fields: vec![Field::HashSeed([1; 16])], ..Request::default() };
        assert!(tune_in_use(&mut raw, &seed).is_err());
    }

    #[test]
    fn a_text_too_long_for_its_length_is_refused_by_its_field() {
        let request = Request { fields: vec![Field::Label(vec![b'x'; 300])], ..Request::default() };
        let decoded = Request::decode(&request.encode()).unwrap();
        assert!(decoded.fields[0].store(&mut RawSuperblock::zeroed()).is_err());
    }
}
