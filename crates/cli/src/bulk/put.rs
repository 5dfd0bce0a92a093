//! One file of the host into a directory.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use ondisk::inode::Timestamp;
use platfs_image::archive::Run;

use super::copy::Target;
use super::maker::{Contents, Maker, New, Place, What};
use super::{Asked, Halt, Job};

/// Makes a regular file with the contents, permissions and times of an open file of the host.
///
/// # Errors
/// What the volume, the file or the watcher says; then nothing is made.
pub fn put(job: &Job<'_>, file: &File, to: Target<'_>, force: bool) -> Result<(), Halt> {
    let failed = |error: std::io::Error| Halt::Stream(format!("the source: {error}"));
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(Halt::refused(to.path, "can only be made of a regular file"));
    }
    job.changeable(to.path, to.directory)?;
    let time = |seconds, nanoseconds: i64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    let times = (time(facts.atime(), facts.atime_nsec()), time(facts.mtime(), facts.mtime_nsec()));
    let permissions = u16::try_from(facts.mode() & 0o777).unwrap_or(0o644);
    let asked = Asked { permissions, owner: None, times: Some(times) };
    let size = facts.len();
    let runs =
        if size == 0 { Vec::new() } else { vec![Run { file_offset: 0, len: size, archive_offset: 0 }] };
    let mut read = |run: &Run, skip: u64, room: &mut [u8]| {
        file.read_exact_at(room, run.archive_offset.saturating_add(skip)).map_err(failed)
    };
    let mut contents = Contents { size, runs: &runs, read: &mut read };
    let mut maker = Maker::new(job, force);
    let new = New { what: What::File, asked, xattrs: Vec::new() };
    maker.make(
        Place { directory: to.directory, name: to.name.bytes(), path: to.path },
        new,
        &mut contents,
    )?;
    maker.flush()
}
