//! `plat cat`: contents of files to standard output.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use super::cage;
use crate::console::{Console, Failure};
use crate::keys::KeyArgs;
use crate::reading::OpenImage;
use crate::sandbox::Plan;

/// Bytes read at once: large enough that the device is never waited for twice for one run.
const CHUNK: usize = 1 << 20;

/// Arguments of `plat cat`.
#[derive(Args, Debug)]
pub struct Cat {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// Files in the image; symbolic links are followed.
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl Cat {
    pub(super) fn cage(&self) -> Option<Plan> {
        cage::reading(&[&self.image], &self.keys.files(), None)
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        for path in &image.matching(&self.paths)? {
            if let Err(failure) = print(console, &image, path) {
                console.complain(failure)?;
            }
        }
        Ok(())
    }
}

/// Writes the contents of a file to standard output.
pub(super) fn print(console: &mut Console<'_>, image: &OpenImage, path: &OsStr) -> Result<(), Failure> {
    let inode = image.find(path, true)?;
    let failed = |error| image.failure(path.as_bytes(), &error);
    let file = image.volume.open_file(inode).map_err(failed)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let count = file.read_at(at, &mut buffer).map_err(failed)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { return Ok(()) };
        console.out.write_all(read)?;
        at += count as u64;
    }
}
