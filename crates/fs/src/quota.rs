//! Quota: what users, groups and projects use and may use, to see and to change.
//!
//! Owns: reading quota files, limits and times of grace, counting again, also after a crash, and switching kinds of quota
//! on and off. Excludes: what verbs charge while they work (`usage`).

mod count;
mod earlier;
mod files;
mod recovery;
mod switching;

use std::collections::BTreeMap;

use ondisk::features::RoCompat;
use ondisk::quota::{self, QuotaKind, Usage};
use ondisk::superblock::RawSuperblock;
use ondisk::units::InodeNumber;

use crate::error::{Error, Result};
use crate::ops::change;
use crate::usage::QuotaFile;
use crate::volume::Volume;
pub use count::rebuild;

pub use ondisk::quota::parts::{Limits, Record};

type UsageTable = BTreeMap<u32, Usage>;

/// For how long soft limits may be exceeded, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Graces {
    /// Those of space.
    pub bytes: u32,
    /// Those of inodes.
    pub inodes: u32,
}

/// The quota of a volume; see [`Volume::quota`].
#[derive(Clone, Copy)]
pub struct Quota<'v> {
    volume: &'v Volume,
}

impl Volume {
    /// Its quota: what users, groups and projects use and may use.
    #[must_use]
    pub fn quota(&self) -> Quota<'_> {
        Quota { volume: self }
    }
}

impl Quota<'_> {
    /// The kinds of ids whose usage is counted.
    #[must_use]
    pub fn kinds(self) -> Vec<QuotaKind> {
        let raw = self.volume.superblock();
        QuotaKind::ALL.into_iter().filter(|kind| quota_inode(&raw, *kind).is_some()).collect()
    }

    fn file(self, kind: QuotaKind) -> Result<InodeNumber> {
        quota_inode(&self.volume.superblock(), kind).ok_or_else(|| {
            Error::Unsupported(format!(
                "the volume does not count what a {kind} uses; `plat quota --on {kind}` begins that"
            ))
        })
    }

    fn read<T>(self, kind: QuotaKind, look: impl Fn(&QuotaFile<'_>) -> Result<T>) -> Result<T> {
        let number = self.file(kind)?;
        self.volume.seqlock_read(number, || look(&QuotaFile::open(self.volume.view(), kind, number)?))
    }

    /// All that the quota file of a kind says, by id.
    ///
    /// # Errors
    /// A kind that is not counted; a broken quota file; the device's failure.
    pub fn records(self, kind: QuotaKind) -> Result<BTreeMap<u32, Record>> {
        self.read(kind, |file| {
            let all = quota::records(kind, &file.contents()?);
            all.map_err(|problem| file.broken(problem))
        })
    }

    /// Quota record of one id; zeros if there is none.
    ///
    /// # Errors
    /// As [`Quota::records`].
    pub fn record(self, kind: QuotaKind, id: u32) -> Result<Record> {
        let found = self.read(kind, |file| file.record(id))?;
        Ok(found.unwrap_or(Record { id, ..Record::default() }))
    }

    /// Bytes that an id has reserved for what waits to be written back.
    #[must_use]
    pub fn reserved(self, kind: QuotaKind, id: u32) -> u64 {
        self.volume.session.quota_files.reserved((kind, id))
    }

    /// True if limits count.
    #[must_use]
    pub fn is_enforced(self) -> bool {
        self.volume.session.quota_files.is_enforced()
    }

    /// Bytes that a file of an owner, a group and a project may still take by their limits; `None` without limits.
    ///
    /// # Errors
    /// A broken quota file; the device's failure.
    pub fn left(self, ids: [u32; 3]) -> Result<Option<u64>> {
        let (volume, quota_files) = (self.volume, &self.volume.session.quota_files);
        let mut left: Option<u64> = None;
        if !quota_files.is_enforced() {
            return Ok(left);
        }
        for whose in QuotaKind::ALL.into_iter().zip(ids) {
            let Some(file) = quota_files.file(whose.0) else { continue };
            let record = volume.seqlock_read(file, || volume.view().quota_record_of(quota_files, whose))?;
            let Some(Record { usage, limits, bytes_until, .. }) = record else { continue };
            let is_late = bytes_until != 0 && volume.now().since_1970() >= bytes_until;
            let limit = if is_late { limits.soft_bytes } else { limits.hard_bytes };
            if limit > 0 {
                let more = limit.saturating_sub(usage.bytes.saturating_add(quota_files.reserved(whose)));
                left = Some(left.map_or(more, |left| left.min(more)));
            }
        }
        Ok(left)
    }

    /// For how long soft limits may be exceeded.
    ///
    /// # Errors
    /// As [`Quota::records`].
    pub fn graces(self, kind: QuotaKind) -> Result<Graces> {
        let header = self.read(kind, |file| file.header())?;
        Ok(Graces { bytes: header.bytes_grace, inodes: header.inodes_grace })
    }

    /// Says for how long soft limits may be exceeded.
    ///
    /// # Errors
    /// As [`Quota::records`]; a volume that is only read.
    pub fn set_graces(self, kind: QuotaKind, graces: Graces) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| {
            tx.edit_header(kind, file, |header| {
                (header.bytes_grace, header.inodes_grace) = (graces.bytes, graces.inodes);
            })
        })
    }

    /// Sets what an id may use. The grace of a soft limit that is exceeded by then begins; that of one that is kept ends.
    ///
    /// # Errors
    /// As [`Quota::set_graces`]; no space for a record.
    pub fn set_limits(self, kind: QuotaKind, id: u32, limits: Limits) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| tx.edit_record((kind, id), file, |record| record.limits = limits))
    }

    /// Sets when the graces of an id end, in seconds since 1970, where a soft limit is exceeded.
    ///
    /// # Errors
    /// As [`Quota::set_limits`].
    pub fn set_ends(self, kind: QuotaKind, id: u32, bytes: Option<u64>, inodes: Option<u64>) -> Result<()> {
        let file = self.file(kind)?;
        change(self.volume, |tx| {
            tx.edit_record((kind, id), file, |record| {
                record.bytes_until = bytes.unwrap_or(record.bytes_until);
                record.inodes_until = inodes.unwrap_or(record.inodes_until);
            })
        })
    }
}

fn number_of(superblock: &RawSuperblock, kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => superblock.s_usr_quota_inum.get(),
        QuotaKind::Group => superblock.s_grp_quota_inum.get(),
        QuotaKind::Project => superblock.s_prj_quota_inum.get(),
    }
}

fn quota_inode(superblock: &RawSuperblock, kind: QuotaKind) -> Option<InodeNumber> {
    let has = superblock.features().ro_compat.contains(RoCompat::QUOTA);
    InodeNumber::new(number_of(superblock, kind)).filter(|_| has)
}
