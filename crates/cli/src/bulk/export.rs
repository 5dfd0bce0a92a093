//! A tree as an archive, as far as the actor may read it.

use std::io::Write;

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs_image::archive::WriteError;
use platfs_image::{ExportError, Exporter, Packing, Progress, Watch};

use super::{Halt, Job};
use crate::bulk::actor::READ;

/// Writes a directory and all below it as an archive; returns what it can't hold.
///
/// # Errors
/// What the volume, the output or the watcher says, and the first file that the actor may not read.
pub fn export(
    job: &Job<'_>,
    from: InodeNumber,
    out: impl Write,
    packing: Packing,
    watch: impl Fn(&Progress) -> std::ops::ControlFlow<()> + Send + Sync + 'static,
) -> Result<Vec<String>, Halt> {
    job.listable(b"", from)?;
    let may = |path: &[u8], facts: &platfs::Metadata| {
        let done = match facts.file_type {
            FileType::Directory => job.listable(path, facts.inode),
            FileType::Regular => job.with_rights(path, facts.inode, READ),
            _ => return true,
        };
        done.is_ok()
    };
    let exporter = Exporter::new(job.volume).from(from).watch(Watch::new(watch)).permit(&may);
    match exporter.to_archive(out, packing) {
        Ok(losses) => Ok(losses.lines().collect()),
        Err(error) => Err(halt(error)),
    }
}

fn halt(error: ExportError) -> Halt {
    match error {
        ExportError::Image { path, error } => Halt::At { path, error },
        ExportError::Denied { path } => Halt::Denied { path },
        ExportError::Archive { error: WriteError::Io(error), .. } => {
            Halt::Stream(format!("the output: {error}"))
        }
        ExportError::Cancelled(_) => Halt::Stopped,
        error => Halt::Stream(error.to_string()),
    }
}
