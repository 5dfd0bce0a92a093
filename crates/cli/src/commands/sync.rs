//! `plat sync`: brings all that was written in a mount to the device.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use platfs_host::path;
use rustix::fs::OFlags;

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
        let place = path::whole(&self.directory).map_err(failed)?;
        let root = root(&place).ok_or_else(|| Failure::about(shown(), "not in a mount by `plat mount`"))?;
        if path::facts(root).map_err(failed)?.id.inode != ROOT {
            return Err(Failure::about(shown(), "the root of the volume is not mounted here"));
        }
        let opened = path::open(root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
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
