//! A tree as an archive, as far as the actor may read it.

use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, PoisonError};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::rights::READ;
use platfs_image::archive::WriteError;
use platfs_image::{ExportError, Exporter, Packing};

use super::{Act, Halt, Job};
use crate::refusal::Refusal;
use platfs_open::locks::locked;

/// Bytes written at once.
const BUFFER: usize = 1 << 20;

/// Writes a directory and all below it as an archive; returns what it can't hold.
///
/// # Errors
/// Errors of the volume, the output or the watcher, and the first file that the actor may not read.
pub fn export(
    job: &Job<'_>,
    from: InodeNumber,
    out: impl Write,
    packing: Packing,
) -> Result<Vec<String>, Halt> {
    let halted = Mutex::new(None);
    let may = |path: &[u8], facts: &platfs::Metadata| {
        let done = job.go_on().and_then(|()| match facts.file_type {
            FileType::Directory => job.listable(path, facts.inode).map(drop),
            FileType::Regular => {
                job.must(path, Act::ReadFile)?;
                job.with_rights(path, facts.inode, READ).map(drop)
            }
            _ => Ok(()),
        });
        job.count(|done| match facts.file_type {
            FileType::Directory => done.directories += 1,
            _ => done.files += 1,
        });
        done.map_err(|halt| *locked(&halted) = Some(halt)).is_ok()
    };
    let out = BufWriter::with_capacity(BUFFER, Watched { job, out });
    let shows = |name: &[u8]| job.sees(name);
    let exporter = Exporter::new(job.volume).from(from).beside_others().permit(&may).attributes(&shows);
    let done = exporter.to_archive(out, packing);
    match (done, halted.into_inner().unwrap_or_else(PoisonError::into_inner)) {
        (_, Some(halt)) => Err(halt),
        (Ok(losses), None) => Ok(losses.lines().collect()),
        (Err(error), None) => Err(halt(error)),
    }
}

/// An output that is not written to any more once the work is called off.
struct Watched<'j, W> {
    job: &'j Job<'j>,
    out: W,
}

impl<W: Write> Write for Watched<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.job.go_on().map_err(|halt| io::Error::other(halt.to_string()))?;
        let count = self.out.write(bytes)?;
        self.job.count(|done| done.bytes += count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn halt(error: ExportError) -> Halt {
    match error {
        ExportError::Image { path, error } => Halt::At { path, error },
        ExportError::Denied { path } => Halt::Denied { path },
        ExportError::Archive { error: WriteError::Io(error), .. } => {
            Halt::Stream(Refusal::from(error).at("the output"))
        }
        error => Halt::Stream(error.to_string().into()),
    }
}
