//! Free space of a mount for its device, as another process asks for it: `FITRIM`, as fstrim(8) does.

use std::ops::Range;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::refusal::Refusal;

use super::tree::control::{TRIM, TRIM_LEN};

/// Discards free space of the mount that a directory lies in: runs of at least `least` bytes inside of `range`, in bytes of
/// the volume. Returns the bytes that were discarded.
///
/// # Errors
/// Why not, without the path's name.
pub fn trim(place: &Path, range: Range<u64>, least: u64) -> Result<u64, Refusal> {
    let opened = platfs_host::path::open(place, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let len = range.end.saturating_sub(range.start);
    let mut question = [0; TRIM_LEN];
    for (to, word) in question.chunks_exact_mut(8).zip([range.start, len, least]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let answer = fuse::exchange::<TRIM, TRIM_LEN>(opened, question);
    let answer = answer.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY | Errno::NOSYS) => {
            Refusal::new(Errno::NOTTY, "not in a mount by `plat mount`; fstrim(8) is for others")
        }
        Some(Errno::PERM) => Refusal::new(Errno::PERM, "only root may discard the free space of a mount"),
        Some(Errno::INVAL) => {
            Refusal::new(Errno::INVAL, "no block is in that range, or no free run can be as long")
        }
        _ => error.into(),
    })?;
    Ok(answer[8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}
