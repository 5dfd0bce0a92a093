//! The library's errors about a volume in words for a person, with the remedy.
//!
//! Owns: those words and remedies. Excludes errors of opening a file ([`crate::image::ImageError`]).

use ondisk::features::{Incompat, RoCompat};
use ondisk::geometry::Geometry;
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use platfs::Error;
use platfs::device::Device;

/// The remedy for what breaks a rule of the format.
pub const CHECK: &str = "`plat check -n` shows more, `plat check` repairs";

/// Hint for what is not supported.
pub const INFO: &str = "`plat info` shows what is known";

/// The complaint about a device that can't be opened as a volume, with the remedy: what it holds instead, if it has no
/// superblock; how long it should be, if its end is missing.
#[must_use]
pub fn no_superblock(device: &dyn Device, name: &str, error: &Error) -> String {
    if let Ok(raw) = platfs::read_superblock(device) {
        return match missing_end(device, &raw) {
            Some(bytes) => format!(
                "{error}; the volume takes {bytes} bytes: copy it again, or make the image as long (`truncate -s`) and \
                 `plat check` keeps what is there"
            ),
            None => explained(error),
        };
    }
    let hint = platfs::device::lookalike(device, name).map(|hint| format!("; {hint}")).unwrap_or_default();
    let error = error.to_string();
    let why = error.strip_suffix(": not an ext2, ext3 or ext4 volume").unwrap_or(&error);
    format!("is no ext2, ext3 or ext4 volume ({why}){hint}")
}

/// The complaint about a volume that can't be opened for writing, with the remedy that helps: a check where it was not
/// closed cleanly.
#[must_use]
pub fn not_writable(device: &dyn Device, name: &str, error: &Error) -> String {
    let Error::Unsupported(_) = error else { return no_superblock(device, name, error) };
    let is_unclean = platfs::read_superblock(device).is_ok_and(|raw| {
        let is_pending = raw.s_feature_incompat.get() & Incompat::RECOVER.bits() != 0;
        is_pending || raw.s_state.get() & (STATE_VALID | STATE_ERROR) != STATE_VALID
    });
    match is_unclean {
        true => format!("{error}; `plat check -p` brings a volume in order"),
        false => closed(device, name).map_or_else(|| explained(error), |remedy| format!("{error}; {remedy}")),
    }
}

/// The way to write a volume that a feature closes.
fn closed(device: &dyn Device, name: &str) -> Option<String> {
    let found = platfs::read_superblock(device).ok()?.s_feature_ro_compat.get();
    let has = |feature: RoCompat| found & feature.bits() != 0;
    if has(RoCompat::READONLY) {
        return Some(format!("`plat tune -O ^read-only {name}` lets it be written"));
    }
    has(RoCompat::SHARED_BLOCKS).then(|| {
        format!(
            "`plat tune -O ^shared_blocks {name} && plat check -y {name}` gives each file blocks of its own"
        )
    })
}

/// The bytes that a volume takes, where the device ends before.
fn missing_end(device: &dyn Device, raw: &RawSuperblock) -> Option<u64> {
    let geometry = Geometry::from_superblock(raw).ok()?;
    let bytes = geometry.byte_offset(ondisk::units::Block(geometry.blocks));
    (bytes > device.size()).then_some(bytes)
}

/// The library's words, and what the user can do about it.
#[must_use]
pub fn explained(error: &Error) -> String {
    match error {
        Error::Corrupt(_) => format!("{error}; {CHECK}"),
        Error::Unsupported(_) => format!("{error}; {INFO}"),
        _ => error.to_string(),
    }
}
