//! Identifiers and times of an image: stated, or derived from its contents (I6).

use sha2::{Digest, Sha256};

use crate::clock;
use crate::source::catalogue::Metadata;
use crate::source::{Catalogue, NodeId};

/// Identifiers and the time of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Seconds since 1970: when the volume was made.
    pub time: u64,
}

impl Identity {
    /// Where inode generations begin: bound to the UUID, so that stated identifiers leave nothing to
    /// chance.
    #[must_use]
    pub fn generation_seed(&self) -> u64 {
        self.uuid.iter().zip(&self.hash_seed).take(8).fold(0, |seed, (a, b)| seed << 8 | u64::from(a ^ b))
    }

    /// As [`Identity::generation_seed`], without the UUID.
    pub(super) fn shared_generation_seed(&self) -> u64 {
        self.hash_seed.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }

    /// A seed of checksums without the UUID.
    pub(super) fn shared_checksum_seed(&self) -> u32 {
        self.hash_seed.iter().take(4).fold(0, |seed, byte| seed << 8 | u32::from(*byte))
    }
}

/// The hash seed of images with aligned data, so that those of one base share directories.
pub const SHARED_SEED: [u8; 16] = *b"platfs: aligned.";

/// Parts of the identity that the user gives; the rest is derived or drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenIdentity {
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes.
    pub hash_seed: Option<[u8; 16]>,
    /// The time.
    pub time: Option<u64>,
}

impl GivenIdentity {
    /// Fills what is not stated from another identity, which is asked for only if it is needed.
    #[must_use]
    pub fn or_else(self, rest: impl FnOnce() -> Identity) -> Identity {
        if let GivenIdentity { uuid: Some(uuid), hash_seed: Some(hash_seed), time: Some(time) } = self {
            return Identity { uuid, hash_seed, time };
        }
        let rest = rest();
        Identity {
            uuid: self.uuid.unwrap_or(rest.uuid),
            hash_seed: self.hash_seed.unwrap_or(rest.hash_seed),
            time: self.time.unwrap_or(rest.time),
        }
    }
}

impl From<Identity> for GivenIdentity {
    fn from(identity: Identity) -> Self {
        let Identity { uuid, hash_seed, time } = identity;
        GivenIdentity { uuid: Some(uuid), hash_seed: Some(hash_seed), time: Some(time) }
    }
}

/// Derives the identity from names, attributes, sizes and times: equal trees give equal images. Data
/// do not count, since they are read only once, when the image's identifiers must be known already. The time is that of
/// the newest file, and has come when this returns, unless that file's clock was another one.
#[must_use]
pub fn derived(catalogue: &Catalogue) -> Identity {
    let mut hash = Sha256::new();
    let mut newest = i64::MIN;
    let mut add = |name: &[u8], depth: usize, node: NodeId| {
        let metadata = catalogue.metadata(node);
        newest = newest.max(metadata.stamps.modified.seconds);
        hash.update((depth as u64).to_le_bytes());
        for part in [name, &record(&metadata), catalogue.target(node)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for xattr in catalogue.xattrs(node) {
            for part in [&*xattr.name, &*xattr.value] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
    };
    add(b"", 0, catalogue.root());
    for step in catalogue.walk() {
        add(step.name, step.depth, step.node);
    }
    let time = u64::try_from(newest).unwrap_or(0);
    clock::reach(time);
    from_digest(hash.finalize().into(), time)
}

fn record(metadata: &Metadata) -> Vec<u8> {
    let time = metadata.stamps.modified;
    let mut record = vec![metadata.kind as u8];
    record.extend(metadata.mode.to_le_bytes());
    record.extend(metadata.ids.uid.to_le_bytes());
    record.extend(metadata.ids.gid.to_le_bytes());
    record.extend(time.seconds.to_le_bytes());
    record.extend(time.nanoseconds.to_le_bytes());
    record.extend(metadata.size.to_le_bytes());
    record.extend(metadata.links.to_le_bytes());
    record.extend(metadata.device.major.to_le_bytes());
    record.extend(metadata.device.minor.to_le_bytes());
    record
}

fn from_digest(digest: [u8; 32], time: u64) -> Identity {
    let (first, second) = digest.split_at(16);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(first);
    let mut hash_seed = [0; 16];
    hash_seed.copy_from_slice(second);
    Identity { uuid: version_4(uuid), hash_seed, time }
}

/// Marks sixteen bytes as a random UUID (RFC 9562, version 4, variant 10).
#[must_use]
pub fn version_4(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_becomes_a_well_formed_uuid() {
        let identity = from_digest([0xFF; 32], 7);
        assert_eq!(identity.uuid[6], 0x4F);
        assert_eq!(identity.uuid[8], 0xBF);
        assert_eq!(identity.time, 7);
    }
}
