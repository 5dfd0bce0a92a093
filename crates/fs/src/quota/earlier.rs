//! Limits that ordinary files hold, as a volume has them before the feature `quota`: `aquota.user`, `aquota.group` and
//! `aquota.project` in the root directory.
//!
//! Owns: finding and reading them. Excludes: what is counted from then on (`switching`); the files stay as they are.

use ondisk::inode::FileType;
use ondisk::quota::{self, QuotaKind};

use super::Quota;
use crate::bytes;
use crate::error::{Error, Result};

/// Bytes of such a file at most: that of two million ids.
const MOST: u64 = 256 << 20;

impl Quota<'_> {
    /// The contents of the file that holds the limits of a kind from before the feature `quota`; `None` without one.
    ///
    /// # Errors
    /// A file whose limits can't be taken over, with the remedy; the device's failure.
    pub fn earlier(self, kind: QuotaKind) -> Result<Option<Vec<u8>>> {
        let (volume, path) = (self.volume, format!("/aquota.{kind}"));
        let number = match volume.resolve_link(path.as_bytes()) {
            Ok(number) => number,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = volume.metadata(number)?;
        if facts.file_type != FileType::Regular {
            return Ok(None);
        }
        let refused = |why: String| {
            Err(Error::Unsupported(format!(
                "the limits in {path} can't be taken over ({why}): rename or remove it, and set them again then"
            )))
        };
        if facts.size > MOST {
            return refused(format!("it has {} bytes", facts.size));
        }
        let mut contents = vec![0; bytes::length(facts.size)?];
        let mut done = 0;
        while let Some(rest) = contents.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match volume.read_at(number, done as u64, rest)? {
                0 => break,
                count => done += count,
            }
        }
        match quota::records(kind, &contents) {
            Ok(_) => Ok(Some(contents)),
            Err(why) => refused(why),
        }
    }
}
