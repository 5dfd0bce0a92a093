//! Quota files after a crash without a journal (I39).
//!
//! Stored counts may be of another moment than what is in use, and blocks of a quota file of several moments. So a file
//! that is not sound is made again, with the limits that it still has, and all is counted: before the volume is used, since
//! each update charges what it changes.

use std::sync::atomic::Ordering;

use ondisk::quota::{self, QuotaKind};
use ondisk::units::InodeNumber;

use super::count::Count;
use super::{Quota, UsageTable, quota_inode};
use crate::error::{Error, Result};
use crate::ops::change;
use crate::usage::QuotaFile;

/// Where quota of users and groups is kept.
const USUAL: [(QuotaKind, InodeNumber); 2] =
    [(QuotaKind::User, InodeNumber::constant(3)), (QuotaKind::Group, InodeNumber::constant(4))];

/// Outcome of renewing a quota file.
enum Renewed {
    Done,
    NoRoom,
}

impl Quota<'_> {
    /// Files of quota that a crash had left damaged, and what was wrong with each: they were made again when the volume was
    /// opened, with the limits that could be read.
    #[must_use]
    pub fn mended(self) -> Vec<(QuotaKind, String)> {
        self.volume.session.quota_files.mended()
    }

    /// Makes the quota files sound: what charges may rely on. Counts are still to be corrected ([`Quota::recount`]).
    ///
    /// # Errors
    /// A broken inode or bitmap; the device's failure.
    pub(crate) fn mend_files(self) -> Result<()> {
        if self.volume.order.names_files_apart() {
            self.drop_unnamed()?;
        }
        for kind in self.kinds() {
            self.mend(kind)?;
        }
        Ok(())
    }

    /// Counts all again, once the files are sound.
    ///
    /// # Errors
    /// As [`Quota::mend_files`].
    pub(crate) fn correct_counts(self) -> Result<()> {
        match self.recount() {
            Err(Error::NoSpace) => {
                self.come_back();
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// There is no room for what is to be counted: the volume is not called in order, and the next opening tries again.
    fn come_back(self) {
        self.volume.reclaiming.failed.store(true, Ordering::Release);
    }

    /// Frees files that were made and not named yet, or named no more and not freed yet. One of projects is an inode
    /// without a name, and goes as such.
    fn drop_unnamed(self) -> Result<()> {
        let volume = self.volume;
        let raw = volume.superblock();
        for (kind, number) in USUAL {
            let is_named = |kind| quota_inode(&raw, kind) == Some(number);
            let Ok(file) = QuotaFile::open(volume.view(), kind, number) else { continue };
            if !QuotaKind::ALL.into_iter().any(is_named) && file.is_of_kind() {
                change(volume, |tx| tx.drop_file(number))?;
            }
        }
        Ok(())
    }

    fn mend(self, kind: QuotaKind) -> Result<()> {
        let (volume, number) = (self.volume, self.file(kind)?);
        let old = match QuotaFile::open(volume.view(), kind, number) {
            Ok(file) => Some(file.all_blocks()?),
            Err(Error::Corrupt(_)) => None,
            Err(error) => return Err(error),
        };
        let flaw = match &old {
            Some(old) => quota::flaw(kind, old),
            None => Some(format!("inode {number}, which the superblock names, is none")),
        };
        let Some(flaw) = flaw else { return Ok(()) };
        let quota_files = &volume.session.quota_files;
        quota_files.note_mended(kind, flaw);
        // Until it is sound nothing is charged to it: what is reclaimed for its space would be.
        quota_files.set_file(kind, None);
        let done = match &old {
            Some(old) => self.replace(kind, number, old),
            None => self.make_again(kind),
        };
        match done {
            Ok(Renewed::Done) => Ok(()),
            Ok(Renewed::NoRoom) | Err(Error::NoSpace | Error::NoInodes) => {
                // Usage of this kind is not counted until then.
                self.come_back();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a file new contents: in other blocks, or where none are free in those that it has.
    fn replace(self, kind: QuotaKind, number: InodeNumber, old: &[u8]) -> Result<Renewed> {
        let contents = |table: &UsageTable| quota::salvaged(kind, old, table);
        let done = change(self.volume, |tx| {
            let table = Count::of_kind(self.volume, tx.view(), kind)?;
            tx.replace_file(kind, number, &contents(&table))
        });
        if !matches!(done, Err(Error::NoSpace)) {
            return done.map(|()| Renewed::Done);
        }
        let is_done = change(self.volume, |tx| {
            let table = Count::of_kind(self.volume, tx.view(), kind)?;
            tx.rewrite_file(kind, number, &contents(&table))
        })?;
        Ok(if is_done { Renewed::Done } else { Renewed::NoRoom })
    }

    /// Makes a file that the superblock names and that is not there.
    fn make_again(self, kind: QuotaKind) -> Result<Renewed> {
        change(self.volume, |tx| {
            let table = Count::of_kind(self.volume, tx.view(), kind)?;
            let number = tx.make_file(kind, &quota::encode(kind, &table))?;
            tx.name_file(kind, Some(number));
            Ok(())
        })?;
        Ok(Renewed::Done)
    }
}
