//! Request for changes, as values: nothing of it is judged yet.

use ondisk::quota::QuotaKind;
use platfs::mkfs::{Amount, Encoding, FeatureEdit, JournalOptions};

use super::Field;

/// Changes of a volume, in the order of their making: fields, features, the rest.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Fields of the superblock.
    pub fields: Vec<Field>,
    /// Features to set and to clear.
    pub features: Vec<FeatureEdit>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// With a new UUID: keep all checksums, by storing the seed that they were made with (`metadata_csum_seed`).
    pub keep_checksums: bool,
    /// A journal of this kind; in place of the one that there is, if there is one.
    pub journal: Option<JournalOptions>,
    /// Kinds of quota to keep, and to keep no longer.
    pub quotas: Vec<(QuotaKind, bool)>,
    /// Length of the orphan file, which is made if there is none.
    pub orphan_file_size: Option<Amount>,
    /// Encoding of names in directories without case.
    pub encoding: Option<Encoding>,
    /// The protection against two mounts.
    pub mmp: MmpOptions,
    /// Bytes of an inode record, more than there are.
    pub inode_size: Option<u16>,
    /// Give up a journal that waits to be replayed on a device that is gone, with all that only it has.
    pub force: bool,
    /// Bytes for identifiers that have to be made up.
    pub random: [u8; 16],
}

/// Options of multiple mount protection.
#[derive(Clone, Debug, Default)]
pub struct MmpOptions {
    /// Seconds between updates; 0 is the default.
    pub interval: Option<u16>,
    /// Take the mark of a user away that is gone.
    pub clear: bool,
    /// Names of machine and device for the block.
    pub names: (Vec<u8>, Vec<u8>),
}

impl Request {
    /// True if more is asked for than a volume of revision 0 can have.
    pub(super) fn is_for_revision_1(&self) -> bool {
        let sets = |edit: &FeatureEdit| matches!(edit, FeatureEdit::Set(_));
        self.features.iter().any(sets)
            || self.journal.is_some()
            || self.quotas.iter().any(|(_, keeps)| *keeps)
            || self.orphan_file_size.is_some()
            || self.encoding.is_some()
            || self.inode_size.is_some()
    }

    /// True if nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
            && self.features.is_empty()
            && self.quotas.is_empty()
            && self.uuid.is_none()
            && self.journal.is_none()
            && self.orphan_file_size.is_none()
            && self.encoding.is_none()
            && self.inode_size.is_none()
            && self.mmp.interval.is_none()
            && !self.mmp.clear
    }
}
