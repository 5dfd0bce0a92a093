//! Admission: judging if bytes are a volume at all, and if a volume may be written.

use ondisk::corrupt::Place;
use ondisk::features::{Compat, Features, Incompat};
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use ondisk::units::Block;

use crate::device::{self, Device, mmp};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::OpenOptions;

/// Reads the primary superblock of a device.
///
/// # Errors
/// The device's failure, or bytes that are no superblock.
pub fn read_superblock(device: &dyn Device) -> Result<RawSuperblock> {
    Ok(device::read_superblock(device)?)
}

/// Refuses volumes that can't even be read (I13).
pub(crate) fn refuse_unreadable(features: Features) -> Result<()> {
    Ok(device::refuse_unreadable(features)?)
}

/// Refuses volumes that must not be written, or not in this way.
pub(crate) fn refuse_unwritable(
    raw: &RawSuperblock,
    device: &dyn Device,
    format: &Format,
    options: &OpenOptions,
) -> Result<()> {
    let features = format.features;
    let refuse = |problem: &str| Err(Error::Unsupported(problem.into()));
    if features.incompat.contains(Incompat::RECOVER) {
        return refuse("the journal must be replayed before the volume is written");
    }
    let elsewhere = features.compat.contains(Compat::HAS_JOURNAL) && raw.s_journal_inum.get() == 0;
    if elsewhere && options.uses_journal() {
        return refuse(
            "the journal is on another device, which is not written: only unordered writing is possible",
        );
    }
    if raw.s_state.get() & STATE_ERROR != 0 && !options.force {
        return refuse("the volume is marked as having errors; check it before writing");
    }
    if raw.s_state.get() & STATE_VALID == 0 && !options.force {
        return refuse("the volume was not closed cleanly, or is in use; check it before writing");
    }
    refuse_used_elsewhere(raw, device, format)?;
    let unknown = features.unwritable();
    if unknown == Features::default() {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "the volume uses features that can't be written: {}",
        unknown.names().join(", ")
    )))
}

/// Refuses volumes with structures that have no clean order without a journal: values that several inodes
/// refer to, and names inside of records.
pub(crate) fn refuse_unphased(format: &Format) -> Result<()> {
    let disordered = Incompat::EA_INODE | Incompat::INLINE_DATA;
    let found = Features { incompat: format.features.incompat & disordered, ..Features::default() };
    if found.incompat.is_empty() {
        return Ok(());
    }
    let names = found.names().join(", ");
    Err(Error::Unsupported(format!(
        "the volume uses features that soft updates keep in no order, since they have names inside of records \
         (inline_data) or values that several records count (ea_inode): {names}"
    )))
}

/// Refuses a volume that another host uses, or might, as its block of multiple mount protection says.
fn refuse_used_elsewhere(raw: &RawSuperblock, device: &dyn Device, format: &Format) -> Result<()> {
    if !format.has_incompat(Incompat::MMP) {
        return Ok(());
    }
    let block = Block(raw.s_mmp_block.get());
    if !format.geometry.contains(block, 1) {
        let problem = format!("the block of multiple mount protection, {block}, lies outside the volume");
        return Err(Error::corrupt(Place::Superblock, problem));
    }
    let Some(mark) = mmp::read_block(device, raw) else {
        return Err(Error::corrupt(Place::Block(block), "is no block of multiple mount protection"));
    };
    if mark.is_clean() {
        return Ok(());
    }
    let host = String::from_utf8_lossy(mark.node()).into_owned();
    Err(Error::InUse(format!("'{}' has it, or did not close it", host.escape_default())))
}
