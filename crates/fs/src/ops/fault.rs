//! Damage that was met is noted in the superblock, so that a check comes before the next use.

use ondisk::corrupt::Place;
use ondisk::superblock::STATE_ERROR;
use ondisk::units::low_u32;

use super::sync::sync_metadata;
use crate::error::{Error, Result};
use crate::volume::Volume;

/// Name in the superblock's error fields, where other systems put a function.
const WHERE: &[u8] = b"platfs";
/// The numbers that Linux gives kinds of errors.
const ERROR_UNKNOWN: u8 = 1;
const ERROR_IO: u8 = 2;
const ERROR_CORRUPT: u8 = 5;

/// Inode and block that a complaint is about; 0 where it is about none.
fn place_of(error: &Error) -> (u32, u64) {
    match error {
        Error::Corrupt(corrupt) => match corrupt.place() {
            Place::Inode(number) | Place::Map(number) | Place::Directory(number) | Place::Xattrs(number) => {
                (number.get(), 0)
            }
            Place::Block(block) => (0, block.0),
            _ => (0, 0),
        },
        _ => (0, 0),
    }
}

impl Volume {
    /// Marks a volume that is open for writing as having errors, and counts and places the error, as Linux
    /// does. Nothing happens to a volume that is only read or that can't be written any more.
    ///
    /// # Errors
    /// The device's failure.
    pub fn note_error(&self, error: &Error) -> Result<()> {
        if !self.space.is_writable() {
            return Ok(());
        }
        let now = self.now().since_1970();
        let time_high = (now >> 32).to_le_bytes()[0];
        let (inode, block) = place_of(error);
        let code = match error {
            Error::Io { .. } => ERROR_IO,
            Error::Corrupt(_) => ERROR_CORRUPT,
            _ => ERROR_UNKNOWN,
        };
        let mut function = [0; 32];
        function[..WHERE.len()].copy_from_slice(WHERE);
        self.session.edit_superblock(|raw| {
            raw.s_state.set(raw.s_state.get() | STATE_ERROR);
            if raw.s_error_count.get() == 0 {
                raw.s_first_error_time.set(low_u32(now));
                raw.s_first_error_time_hi = time_high;
                raw.s_first_error_ino.set(inode);
                raw.s_first_error_block.set(block);
                raw.s_first_error_func = function;
                raw.s_first_error_errcode = code;
            }
            raw.s_last_error_time.set(low_u32(now));
            raw.s_last_error_time_hi = time_high;
            raw.s_last_error_ino.set(inode);
            raw.s_last_error_block.set(block);
            raw.s_last_error_func = function;
            raw.s_last_error_errcode = code;
            raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
        });
        if self.order.has_journal() {
            self.syncing().mark_changed()?;
            return sync_metadata(self);
        }
        self.syncing().write_superblock()
    }
}
