//! Keys of the objects of this format.
//!
//! Owns: keys, and which keys are ours. Others below the same prefix are other programs': nobody touches them. Excludes
//! marks of the store and of those who work on it.

use crate::format::{Hash, VolumeId, hex, unhex};

/// Kind of an object that is named by its hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Bytes of images.
    Chunk,
    /// Maps.
    Map,
}

impl Kind {
    /// The first part of its keys.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Chunk => "chunk",
            Kind::Map => "map",
        }
    }
}

/// The key of a thing that is named by its hash.
#[must_use]
pub fn key_of(kind: Kind, name: &Hash) -> String {
    format!("{}/{}", kind.word(), hex(name))
}

/// The key of a manifest.
#[must_use]
pub fn key_of_manifest(id: &VolumeId) -> String {
    format!("vol/{}/manifest", hex(id))
}

/// The key of an object of a log.
#[must_use]
pub fn key_of_log(volume: &VolumeId, epoch: u64, seq: u64) -> String {
    format!("vol/{}/{epoch:016x}/{seq:016x}", hex(volume))
}

/// The identifier of the volume of that name: everybody finds its manifest without asking for a list.
#[must_use]
pub fn id_of(name: &str) -> VolumeId {
    let mut id = [0; 16];
    blake3::Hasher::new_derive_key("platfs store 2026 volume name")
        .update(name.as_bytes())
        .finalize_xof()
        .fill(&mut id);
    id
}

/// Kind of an object, by its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyKind {
    /// Contents that are named by their hash.
    Contents,
    /// The manifest of a volume.
    Manifest(VolumeId),
    /// An object of a log: volume, epoch, number.
    Log(VolumeId, u64, u64),
}

impl KeyKind {
    /// Nothing if the key is none that this format gives.
    pub(crate) fn parse(key: &str) -> Option<Self> {
        let number = |text| unhex::<8>(text).map(u64::from_be_bytes);
        let parts: Vec<&str> = key.splitn(5, '/').collect();
        match parts[..] {
            ["chunk" | "map", name] => unhex::<32>(name).map(|_| KeyKind::Contents),
            ["vol", volume, "manifest"] => Some(KeyKind::Manifest(unhex(volume)?)),
            ["vol", volume, epoch, seq] => Some(KeyKind::Log(unhex(volume)?, number(epoch)?, number(seq)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_this_format_are_known_and_others_are_nobodys() {
        assert_eq!(KeyKind::parse(&key_of(Kind::Chunk, &[7; 32])), Some(KeyKind::Contents));
        assert_eq!(KeyKind::parse(&key_of(Kind::Map, &[7; 32])), Some(KeyKind::Contents));
        assert_eq!(KeyKind::parse(&key_of_manifest(&[7; 16])), Some(KeyKind::Manifest([7; 16])));
        assert_eq!(
            KeyKind::parse(&key_of_log(&[7; 16], 3, u64::MAX)),
            Some(KeyKind::Log([7; 16], 3, u64::MAX))
        );
        let (hash, upper) = (hex(&[171; 32]), hex(&[171; 32]).to_uppercase());
        let strange =
            ["map/tiles/1.png", "chunk/data/x", "chunk", "chunk/", "vol//manifest", "vol/x/manifest"];
        let made = [format!("chunk/{upper}"), format!("chunk/{hash}/x"), format!("chunk//{hash}")];
        for key in strange.into_iter().chain(made.iter().map(String::as_str)) {
            assert_eq!(KeyKind::parse(key), None, "{key}");
        }
    }
}
