//! One file of the host into a directory.

use std::fs::File;

use ondisk::units::InodeNumber;
use platfs_host::{Facts, Handle, Kind};
use platfs_image::archive::Run;

use super::copy::Target;
use super::maker::{Contents, Maker, New, Place, What};
use super::{Halt, Job, take};
use crate::refusal::Refusal;

/// Makes a regular file with the contents, permissions and times of an open file of the host. Returns its inode. The caller
/// needs that, since others may have given the name to another file meanwhile.
///
/// # Errors
/// Errors of the volume, the file or the watcher; then nothing is made.
pub fn put(job: &Job<'_>, file: &File, to: Target<'_>, force: bool) -> Result<InodeNumber, Halt> {
    let failed = |error: std::io::Error| Halt::Stream(Refusal::from(error).at("the source"));
    let facts = Handle::of(file).and_then(|handle| handle.facts()).map_err(failed)?;
    if facts.kind != Kind::File {
        return Err(Halt::refused(to.path, "can only be made of a regular file"));
    }
    job.changeable(to.path, to.directory)?;
    // The kernel gives it its owner afterwards, and with it the bits that lend the owner's rights.
    let asked = take::asked(&Facts { mode: facts.mode & 0o777, ..facts }, None);
    let size = facts.size;
    let runs = take::runs_of(file, size).map_err(failed)?;
    let mut read = |run: &Run, skip: u64, room: &mut [u8]| {
        take::fill(file, run.archive_offset.saturating_add(skip), room).map_err(failed)
    };
    let mut contents = Contents { size, runs: &runs, read: &mut read };
    let new = New { what: What::File, asked, xattrs: Vec::new() };
    let at = Place { directory: to.directory, name: to.name.bytes(), path: to.path };
    Maker::new(job, force).alone(at, new, &mut contents)
}
