//! Free space of a mount for its device, as another process asks for it: `FITRIM`, as fstrim(8) does.

use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::tree::control::{TRIM, TRIM_LEN};

/// Discards the free space of the mount that a directory lies in: from a byte on, as many bytes as are given, in runs of at least
/// `min`. Returns the bytes that were discarded.
///
/// # Errors
/// Why not, without the path's name.
pub fn trim(place: &Path, (start, len): (u64, u64), min: u64) -> Result<u64, String> {
    let opened = platfs_host::path::open(place, OFlags::RDONLY | OFlags::DIRECTORY);
    let opened = opened.map_err(|error| error.to_string())?;
    let mut question = [0; TRIM_LEN];
    for (to, word) in question.chunks_exact_mut(8).zip([start, len, min]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let answer = fuse::exchange::<TRIM, TRIM_LEN>(opened, question);
    let answer = answer.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY | Errno::NOSYS) => {
            "not in a mount by `plat mount`; fstrim(8) is for others".to_owned()
        }
        Some(Errno::PERM) => "only root may discard the free space of a mount".to_owned(),
        Some(Errno::INVAL) => "no block is in that range, or no free run can be as long".to_owned(),
        _ => error.to_string(),
    })?;
    Ok(answer[8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}
