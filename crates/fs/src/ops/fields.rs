//! Fields of the superblock that change while the volume is in use.
//!
//! Excludes: which fields a user may ask for, and their limits (`platfs_reshape::tune`).

use ondisk::geometry::Geometry;
use ondisk::seal::Sealer;
use ondisk::superblock::RawSuperblock;

use super::sync::sync_metadata;
use crate::error::{Error, Result};
use crate::volume::Volume;

impl Volume {
    /// Changes fields of the superblock on which nothing else in the volume depends, and makes that stable; what `edit`
    /// gives. Counts of what is free and marks of use are the volume's own, and stay as they are. Backups of the
    /// superblock are not written.
    ///
    /// # Errors
    /// A volume that is only read; an edit from which other sizes or other checksums follow, of which nothing is kept;
    /// the device's failure.
    pub fn change_fields<T>(&self, edit: impl FnOnce(&mut RawSuperblock) -> T) -> Result<T> {
        if !self.space.is_writable() {
            return Err(Error::ReadOnly);
        }
        let mut outcome = None;
        self.session.edit_superblock(|raw| {
            let mut edited = *raw;
            let given = edit(&mut edited);
            keep_own(&mut edited, raw);
            let same_sizes =
                Geometry::from_superblock(&edited).is_ok_and(|after| after == self.format.geometry);
            if same_sizes && Sealer::from_superblock(&edited) == self.format.sealer {
                *raw = edited;
                outcome = Some(given);
            }
        });
        let Some(given) = outcome else {
            return Err(Error::Invalid("the volume is in use: its sizes and checksums can't change".into()));
        };
        if self.order.has_journal() {
            self.syncing().mark_changed()?;
            sync_metadata(self)?;
        } else {
            self.syncing().write_superblock()?;
            // A sync has nothing to do where nothing else was changed.
            self.syncing().flush()?;
            sync_metadata(self)?;
        }
        Ok(given)
    }
}

/// Copies fields that the volume keeps up to date by itself.
fn keep_own(edited: &mut RawSuperblock, raw: &RawSuperblock) {
    edited.s_state = raw.s_state;
    edited.s_last_orphan = raw.s_last_orphan;
    edited.s_free_inodes_count = raw.s_free_inodes_count;
    edited.set_free_blocks_count(raw.free_blocks_count());
}
