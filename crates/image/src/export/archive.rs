//! Exported files into a tar archive. What `build` reads from it is the tree that was exported.

use super::{Contents, ExportError, Item, Loss, Losses, Sink};
use crate::archive::{Device, Entry, EntryKind, Times, Timestamp, WriteError, Writer, writer};
use ondisk::inode::FileType;
use std::io::Write;

/// Writes a tar archive.
pub(super) struct ArchiveSink<W> {
    writer: Writer<W>,
    losses: Losses,
}

impl<W: Write> ArchiveSink<W> {
    /// Begins an archive on `out`, which should be buffered.
    pub(super) fn new(out: W) -> Self {
        Self { writer: Writer::new(out), losses: Losses::default() }
    }

    /// Ends the archive; gives the stream back, and what was lost.
    ///
    /// # Errors
    /// [`ExportError::Archive`].
    pub(super) fn finish(self) -> Result<(W, Losses), ExportError> {
        let out = self.writer.finish().map_err(|error| ExportError::Archive { path: Vec::new(), error })?;
        Ok((out, self.losses))
    }

    fn put(&mut self, entry: &Entry) -> Result<(), ExportError> {
        self.writer.entry(entry).map_err(|error| failed(&entry.path, error))
    }
}

impl<W: Write> Sink for ArchiveSink<W> {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError> {
        let path = if item.path.is_empty() { b"./".to_vec() } else { [item.path, b"/"].concat() };
        self.put(&Entry { path, ..entry(item, EntryKind::Directory) })
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        let kind = match item.metadata.file_type {
            FileType::Regular => EntryKind::File,
            FileType::Symlink => EntryKind::Symlink,
            FileType::CharDevice => EntryKind::CharDevice,
            FileType::BlockDevice => EntryKind::BlockDevice,
            FileType::Fifo => EntryKind::Fifo,
            FileType::Directory | FileType::Socket => {
                self.losses.note(Loss::Socket, item.path);
                return Ok(());
            }
        };
        let entry = entry(item, kind);
        self.put(&entry)?;
        let writer = &mut self.writer;
        data.pieces(&entry.runs, |_, piece| writer.data(piece).map_err(|error| failed(item.path, error)))
    }

    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError> {
        if item.metadata.file_type == FileType::Socket {
            self.losses.note(Loss::Socket, item.path);
            return Ok(());
        }
        self.put(&Entry { target: first.to_vec(), size: 0, ..entry(item, EntryKind::HardLink) })
    }

    fn lose(&mut self, loss: Loss, path: &[u8]) {
        self.losses.note(loss, path);
    }
}

fn failed(path: &[u8], error: WriteError) -> ExportError {
    ExportError::Archive { path: path.to_vec(), error }
}

fn entry(item: &Item<'_>, kind: EntryKind) -> Entry {
    let metadata = item.metadata;
    let has_device = matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice);
    let size = if kind == EntryKind::File { metadata.size } else { 0 };
    Entry {
        offset: 0,
        path: item.path.to_vec(),
        kind,
        target: item.target.clone(),
        mode: metadata.permissions,
        uid: metadata.uid,
        gid: metadata.gid,
        device: if has_device { item.device() } else { Device::default() },
        times: times(metadata.times),
        size,
        xattrs: item.xattrs.clone(),
        runs: writer::align(&item.runs, size),
    }
}

/// Times that equal that of contents are not written: a reader takes them from it.
fn times(times: platfs::Times) -> Times {
    let modified = times.modify;
    let other = |time| Some(time).filter(|time: &Timestamp| *time != modified);
    Times {
        modified,
        accessed: other(times.access),
        changed: other(times.change),
        created: times.create.and_then(other),
    }
}
