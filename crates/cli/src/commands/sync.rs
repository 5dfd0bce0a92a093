//! `plat sync`: brings all that was written in a mount to the device.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{Mode, OFlags};

use crate::console::{Console, Failure};
use crate::door;
use crate::text::Shown;

/// The inode of a volume's root.
const ROOT: u64 = 2;

/// Arguments of `plat sync`.
#[derive(Args, Debug)]
pub struct Sync {
    /// A place in what `plat mount` has mounted.
    directory: PathBuf,
}

impl Sync {
    pub(super) fn run(&self, _: &mut Console<'_>) -> Result<(), Failure> {
        let shown = || Shown(self.directory.as_os_str().as_bytes());
        let failed = |error: std::io::Error| Failure::about(shown(), error);
        let place = std::fs::canonicalize(&self.directory).map_err(failed)?;
        let root = root(&place).ok_or_else(|| Failure::about(shown(), "not in a mount by `plat mount`"))?;
        if std::fs::metadata(root).map_err(failed)?.ino() != ROOT {
            return Err(Failure::about(shown(), "the root of the volume is not mounted here"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        // The kernel's pages go to the server first. The kernel does not tell it why: a sync of the root is what makes
        // everything stable.
        rustix::fs::syncfs(&opened).map_err(|error| failed(error.into()))?;
        rustix::fs::fsync(&opened).map_err(|error| failed(error.into()))
    }
}

/// The directory that a mount of ours is on, of a place in it.
fn root(place: &Path) -> Option<&Path> {
    let (root, kind) = place.ancestors().find_map(|at| Some((at, door::mounted_on(at)?.kind)))?;
    (kind == "fuse.plat").then_some(root)
}
