//! Exports, and their targets: a stream, a file, a directory.

use super::archive::ArchiveSink;
use super::difference::{Difference, OnChange};
use super::directory::DirectorySink;
use super::unread::{KeepGoing, OnUnread};
use super::{Contents, ExportError, Item, Loss, Losses, Sink, WalkOptions, export};
use crate::archive::WriteError;
use crate::output::{NewDirectory, Output, OutputLocation, Privacy};
use crate::watch::Watch;
use ondisk::units::InodeNumber;
use platfs::{Metadata, Volume};
use std::io::{self, BufWriter, Write};
use std::path::Path;

#[cfg(feature = "archives")]
/// The level at which zstd's speed is still that of writing, and its gain most of what there is.
const ZSTD_LEVEL: i32 = 3;
/// Bytes written to a file at once.
const BUFFER: usize = 1 << 20;

/// Packing of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    #[default]
    Plain,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Packing {
    /// Packing by the ending of a file's name: `.tar`, `.tar.gz`, `.tgz`, `.tar.zst`, `.tzst`; `None` for all others.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let ends = |endings: &[&[u8]]| endings.iter().any(|ending| name.ends_with(ending));
        match () {
            () if ends(&[b".tar"]) => Some(Self::Plain),
            () if ends(&[b".tar.gz", b".tgz"]) => Some(Self::Gzip),
            () if ends(&[b".tar.zst", b".tzst"]) => Some(Self::Zstd),
            () => None,
        }
    }
}

/// Exports the tree of a volume, or a part of it.
///
/// ```
/// use platfs_image::{Builder, Exporter, Packing, Source};
/// use platfs::{OpenOptions, Volume, device::FileDevice};
/// use std::{fs::File, sync::Arc};
/// # let directory = tempfile::tempdir()?;
/// # let (image, archive) = (directory.path().join("disk.img"), directory.path().join("tree.tar"));
/// # Builder::new(&Source::open("src/export")?).build(&image)?;
///
/// let device = FileDevice::new(File::open(&image)?)?;
/// let volume = Volume::open(Arc::new(device), &OpenOptions::new())?;
/// let losses = Exporter::new(&volume).to_file(&archive, Packing::Plain)?;
/// assert!(losses.is_empty());
/// assert!(Source::open(&archive)?.catalogue().find(b"mod.rs").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is exported before one of the `to_` methods"]
pub struct Exporter<'v> {
    volume: &'v Volume,
    from: InodeNumber,
    watch: Watch,
    permit: Option<&'v FileFilter<'v>>,
    shows: Option<&'v XattrFilter<'v>>,
    beside_others: bool,
    privacy: Privacy,
    since: Option<(&'v Volume, &'v OnChange<'v>)>,
    keep: Option<KeepGoing<'v>>,
}

/// Filter of files, by path and metadata: true if one may be exported.
type FileFilter<'p> = dyn Fn(&[u8], &Metadata) -> bool + Sync + 'p;

/// Filter of extended attributes, by name: true if one is exported.
pub(super) type XattrFilter<'p> = dyn Fn(&[u8]) -> bool + Sync + 'p;

impl<'v> Exporter<'v> {
    /// All of a volume. An empty `lost+found` of the root, as mkfs makes it, is left out: a build makes it again.
    pub fn new(volume: &'v Volume) -> Self {
        let (watch, permit, shows, since) = (Watch::default(), None, None, None);
        let (beside_others, privacy, keep) = (false, Privacy::Private, None);
        Self { volume, from: InodeNumber::ROOT, watch, permit, shows, beside_others, privacy, since, keep }
    }

    /// Permission bits of a new archive. It holds what the volume holds, so nobody else may read it unless this says so.
    pub fn privacy(mut self, privacy: Privacy) -> Self {
        self.privacy = privacy;
        self
    }

    /// Only this directory and what is below it.
    pub fn from(mut self, directory: InodeNumber) -> Self {
        self.from = directory;
        self
    }

    /// Shows the progress to a closure, which can end the work.
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Others may change the volume meanwhile: a name that leads elsewhere when it is its turn is left out, and what a
    /// file has lost is zeros.
    pub fn beside_others(mut self) -> Self {
        self.beside_others = true;
        self
    }

    /// Asks about each directory and file before it is handed out. Where the answer is no, the export ends with
    /// [`ExportError::Denied`].
    pub fn permit(mut self, permit: &'v FileFilter<'v>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Only extended attributes whose names these are.
    pub fn attributes(mut self, shows: &'v XattrFilter<'v>) -> Self {
        self.shows = Some(shows);
        self
    }

    /// Only what an older volume has not. Each change goes to `tell`, too; an archive is a layer of an OCI image: what is
    /// gone has a whiteout, and unpacked over the older tree it makes the newer one.
    pub fn since(mut self, older: &'v Volume, tell: &'v OnChange<'v>) -> Self {
        self.since = Some((older, tell));
        self
    }

    /// Goes on where the image can't be read, and tells of all that the output lacks. A file with bytes that can't be
    /// read is left out, unless zeros may stand for these. Data are read twice.
    pub fn keep_going(mut self, zeros: bool, tell: &'v OnUnread<'v>) -> Self {
        self.keep = Some(KeepGoing { tell, zeros });
        self
    }

    /// Hands every file to `sink`.
    ///
    /// # Errors
    /// Any [`ExportError`], at the first thing that cannot be exported.
    pub fn to_sink(&self, sink: &mut dyn Sink) -> Result<(), ExportError> {
        self.hand_to(sink, false)
    }

    fn hand_to(&self, sink: &mut dyn Sink, is_archive: bool) -> Result<(), ExportError> {
        match self.permit {
            Some(permit) => self.filter(&mut Permitting { sink, permit }, is_archive),
            None => self.filter(sink, is_archive),
        }
    }

    fn filter(&self, sink: &mut dyn Sink, is_archive: bool) -> Result<(), ExportError> {
        let Some((older, tell)) = self.since else { return self.walk(sink) };
        self.walk(&mut Difference::new(sink, older, self.volume, tell, is_archive))
    }

    fn walk(&self, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let (watch, beside_others, shows) = (self.watch.clone(), self.beside_others, self.shows);
        export(self.volume, self.from, sink, WalkOptions { watch, beside_others, shows, keep: self.keep })
    }

    /// Writes a tar archive to a stream, which should be buffered, and flushes it.
    ///
    /// # Errors
    /// Any [`ExportError`].
    pub fn to_archive(&self, mut out: impl Write, packing: Packing) -> Result<Losses, ExportError> {
        let failed = |error| ExportError::Archive { path: Vec::new(), error: WriteError::Io(error) };
        let losses = match packing {
            Packing::Plain => self.tar(&mut out)?.1,
            Packing::Gzip | Packing::Zstd => self.packed(&mut out, packing)?,
        };
        out.flush().map_err(failed)?;
        Ok(losses)
    }

    #[cfg(feature = "archives")]
    fn packed(&self, out: &mut dyn Write, packing: Packing) -> Result<Losses, ExportError> {
        let failed = |error| ExportError::Archive { path: Vec::new(), error: WriteError::Io(error) };
        if packing == Packing::Zstd {
            let packer = zstd::Encoder::new(out, ZSTD_LEVEL).map_err(failed)?;
            let (packer, losses) = self.tar(packer)?;
            return packer.finish().map(|_| losses).map_err(failed);
        }
        let packer = flate2::write::GzEncoder::new(out, flate2::Compression::default());
        let (packer, losses) = self.tar(packer)?;
        packer.finish().map(|_| losses).map_err(failed)
    }

    #[cfg(not(feature = "archives"))]
    fn packed(&self, _: &mut dyn Write, _: Packing) -> Result<Losses, ExportError> {
        let why = "archives are written plain, as .tar: this build was made without archives";
        let error = WriteError::Io(io::Error::new(io::ErrorKind::Unsupported, why));
        Err(ExportError::Archive { path: Vec::new(), error })
    }

    fn tar<W: Write>(&self, out: W) -> Result<(W, Losses), ExportError> {
        let mut sink = ArchiveSink::new(out);
        self.hand_to(&mut sink, true)?;
        sink.finish()
    }

    /// Writes a tar archive into a new file, which appears when it is whole.
    ///
    /// # Errors
    /// Any [`ExportError`]; then no file is left. A file that exists is not replaced.
    pub fn to_file(&self, path: impl AsRef<Path>, packing: Packing) -> Result<Losses, ExportError> {
        let path = path.as_ref();
        let failed = |error: io::Error| ExportError::Output { path: path.to_owned(), error };
        let output = Output::new(path, 0, self.privacy).map_err(failed)?;
        let file = BufWriter::with_capacity(BUFFER, output.file().map_err(failed)?);
        let losses = self.to_archive(file, packing)?;
        output.finish().map_err(failed)?;
        Ok(losses)
    }

    /// Makes the directory `path`, whole or not at all: it must not exist, or be empty.
    ///
    /// # Errors
    /// Any [`ExportError`]; then no directory is left.
    pub fn to_directory(&self, path: impl AsRef<Path>) -> Result<Losses, ExportError> {
        let path = path.as_ref();
        let failed = |error: io::Error| ExportError::Output { path: path.to_owned(), error };
        self.to_place(&OutputLocation::of(path).map_err(failed)?)
    }

    /// Makes a directory in an open one, as [`Exporter::to_directory`] does.
    ///
    /// # Errors
    /// Any [`ExportError`]; then no directory is left.
    pub fn to_place(&self, place: &OutputLocation) -> Result<Losses, ExportError> {
        let failed = |error: io::Error| ExportError::Output { path: place.path.clone(), error };
        let above = place.directory.try_clone().map_err(failed)?;
        let new = NewDirectory::below(above, &place.name).map_err(failed)?;
        let base = new.directory().try_clone().map_err(failed)?;
        let mut sink = DirectorySink::new(base, &place.path).map_err(failed)?;
        self.to_sink(&mut sink)?;
        let losses = sink.losses().clone();
        new.finish().map_err(failed)?;
        Ok(losses)
    }
}

/// A sink that gets what it may.
struct Permitting<'s> {
    sink: &'s mut dyn Sink,
    permit: &'s FileFilter<'s>,
}

impl Permitting<'_> {
    fn ask(&self, item: &Item<'_>) -> Result<(), ExportError> {
        match (self.permit)(item.path, item.metadata) {
            true => Ok(()),
            false => Err(ExportError::Denied { path: item.path.to_vec() }),
        }
    }
}

impl Sink for Permitting<'_> {
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError> {
        self.ask(item)?;
        self.sink.enter(item)
    }

    fn leave(&mut self) -> Result<(), ExportError> {
        self.sink.leave()
    }

    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError> {
        self.ask(item)?;
        self.sink.file(item, data)
    }

    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError> {
        self.sink.link(item, first)
    }

    fn lose(&mut self, loss: Loss, path: &[u8]) {
        self.sink.lose(loss, path);
    }
}
