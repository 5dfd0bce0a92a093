//! Beginning and ending to count the usage of a kind of ids.
//!
//! In a journal all of it is one transaction. With soft updates a crash may bring the file's record without what the
//! superblock says of it, or that alone: so a file is stable before it is named, and its name gone before it goes. A file
//! that a crash left without a name goes when the volume is opened next (`recovery`).

use std::collections::BTreeMap;

use ondisk::features::RoCompat;
use ondisk::quota::{self, QuotaKind};
use ondisk::units::InodeNumber;

use super::count::Count;
use super::{Quota, UsageTable, quota_inode};
use crate::error::{Error, Result};
use crate::ops::change;
use crate::tx::Tx;

/// Times that a moment is waited for in which bitmaps say all, while others change the volume.
const MOMENTS: u32 = 1000;

type Named = (QuotaKind, InodeNumber);

/// Contents of files that held limits before.
type Earlier = BTreeMap<QuotaKind, Vec<u8>>;

impl Quota<'_> {
    /// Begins to count the usage of some kinds of ids: their files are made from what all inodes in use hold, with the
    /// limits of [`Quota::earlier`]. A kind that is counted already stays as it is.
    ///
    /// # Errors
    /// Projects on a volume that has none; earlier limits that can't be taken over; more ids than one transaction of the journal can hold; no space; a broken
    /// inode or bitmap. Then nothing has changed.
    pub fn switch_on(self, kinds: &[QuotaKind]) -> Result<()> {
        let volume = self.volume;
        if kinds.contains(&QuotaKind::Project) && !volume.format.has_ro_compat(RoCompat::PROJECT) {
            let what =
                "the volume has no projects (feature `project`); `plat tune -Q prjquota` gives it both";
            return Err(Error::Unsupported(what.into()));
        }
        let earlier = |kind: &QuotaKind| Ok(self.earlier(*kind)?.map(|contents| (*kind, contents)));
        let earlier: Earlier =
            kinds.iter().filter_map(|kind| earlier(kind).transpose()).collect::<Result<_>>()?;
        volume.sync()?;
        let is_apart = volume.order.names_files_apart();
        let mut left = MOMENTS;
        let made = change(volume, |tx| {
            // The bitmaps must say of all inodes whether they are in use.
            if tx.space.has_work() {
                left -= 1;
                return if left > 0 { tx.wait_for_commit() } else { Err(busy()) };
            }
            let made = self.make_missing(tx, kinds, &earlier)?;
            if !is_apart {
                name_all(tx, &made);
            }
            Ok(made)
        })?;
        volume.sync()?;
        if is_apart && !made.is_empty() {
            change(volume, |tx| {
                name_all(tx, &made);
                Ok(())
            })?;
            volume.sync()?;
        }
        Ok(())
    }

    fn make_missing(self, tx: &mut Tx<'_>, kinds: &[QuotaKind], earlier: &Earlier) -> Result<Vec<Named>> {
        let raw = self.volume.superblock();
        let tables = Count::of_all(self.volume, tx.view())?;
        let quota_files = &self.volume.session.quota_files;
        let mut made = Vec::new();
        for kind in kinds {
            if quota_inode(&raw, *kind).is_some() || quota_files.file(*kind).is_some() {
                continue;
            }
            let none = UsageTable::new();
            let table = tables.get(*kind as usize).unwrap_or(&none);
            let contents = match earlier.get(kind) {
                Some(limits) => quota::update(*kind, limits, table),
                None => quota::encode(*kind, table),
            };
            made.push((*kind, tx.make_file(*kind, &contents)?));
        }
        Ok(made)
    }

    /// Ends the counting of some kinds of ids: their files go, with all limits.
    ///
    /// # Errors
    /// A broken quota file; the device's failure. Then nothing has changed.
    pub fn switch_off(self, kinds: &[QuotaKind]) -> Result<()> {
        let volume = self.volume;
        let is_apart = volume.order.names_files_apart();
        let gone = change(volume, |tx| {
            let raw = volume.superblock();
            let named = kinds.iter().filter_map(|kind| Some((*kind, quota_inode(&raw, *kind)?)));
            let named: Vec<Named> = named.collect();
            for (kind, number) in &named {
                if !is_apart {
                    tx.drop_file(*number)?;
                }
                tx.name_file(*kind, None);
            }
            Ok(named)
        })?;
        volume.sync()?;
        if is_apart && !gone.is_empty() {
            change(volume, |tx| {
                let is_again = |number| {
                    QuotaKind::ALL.iter().any(|kind| tx.session.quota_files.file(*kind) == Some(number))
                };
                let gone: Vec<_> =
                    gone.iter().map(|(_, number)| *number).filter(|number| !is_again(*number)).collect();
                gone.into_iter().try_for_each(|number| tx.drop_file(number))
            })?;
            volume.sync()?;
        }
        Ok(())
    }
}

fn name_all(tx: &mut Tx<'_>, made: &[Named]) {
    made.iter().for_each(|(kind, number)| tx.name_file(*kind, Some(*number)));
}

fn busy() -> Error {
    let source = std::io::ErrorKind::ResourceBusy.into();
    Error::io("counting what is in use, while others take and free inodes", source)
}
