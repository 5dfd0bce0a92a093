//! Files that an output may replace: those of its own kind, and empty ones, and only where that is asked for.
//!
//! Excludes files in use, and files that the command reads.

use std::fs::File;
use std::path::Path;

use platfs::device::{is_blank, is_image_or_blank};
use platfs_host::path::entry;
use platfs_host::{Opened, target_of};
use platfs_image::Source;

use crate::console::Failure;
use crate::image;

/// Refusal of an output that exists.
pub(super) const EXISTS: &str = "exists; --force replaces it";

/// Kinds of outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    /// A disk or volume.
    Image,
    /// An archive.
    Archive,
}

impl Becomes {
    fn name(self) -> &'static str {
        match self {
            Becomes::Image => "image",
            Becomes::Archive => "archive",
        }
    }

    fn is_of(self, file: &File, out: &Path) -> bool {
        if self == Becomes::Archive && Source::may_be_archive(file) {
            return true;
        }
        image::open_read(out.as_os_str()).is_ok_and(|device| match self {
            Becomes::Image => is_image_or_blank(&*device),
            // As an archive without entries is.
            Becomes::Archive => is_blank(&*device),
        })
    }
}

/// Refuses an output that exists: without `force` anything, with it a file of another kind, which has this name by mistake.
/// Devices and pipes are written to, not replaced.
///
/// # Errors
/// It is refused.
pub(super) fn may_replace(out: &Path, kind: Becomes, force: bool) -> Result<(), Failure> {
    let Ok(facts) = entry(out) else { return Ok(()) };
    let shown = image::shown(out.as_os_str());
    let is_other = match target_of(out) {
        Ok((_, Opened::File(file))) => !kind.is_of(&file, out),
        Ok((_, Opened::Directory(_))) => {
            return Err(Failure::exists(shown, "is a directory: name a file, in it or elsewhere"));
        }
        // A link that leads nowhere is replaced. A file that can't be read may be of any kind, and stays.
        Err(_) if facts.kind == platfs_host::Kind::Symlink => false,
        Err(error) => {
            let why = format!("exists and can't be read, so --force does not replace it: {error}");
            return Err(Failure::exists(shown, why));
        }
        Ok(_) => false,
    };
    let kind = kind.name();
    let why = match (is_other, force) {
        (true, _) => {
            format!("exists and is no {kind}, which --force does not replace: `rm {shown}` removes it")
        }
        (false, false) => EXISTS.to_owned(),
        (false, true) => return Ok(()),
    };
    Err(Failure::exists(shown, why))
}
