//! Finds out what a source is, by its content, and reads it.

use super::archived;
use super::attributes::Ids;
use super::catalogue::{Catalogue, CatalogueBuilder, NewNode, NodeId};
use super::compression;
use super::error::{SourceError, SourceWarning};
use super::input::Section;
use super::options::SourceOptions;
use super::reading::Reading;
use super::{directory, foreign, owners};
use platfs_host::{Directory, Opened, target_of};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A source that was read: the tree that an image of it holds, and what was odd about it.
///
/// Contents stay where they are: archives are open, files of a directory are opened again when they are copied. A
/// program can also make the tree itself: see [`CatalogueBuilder`].
#[derive(Debug)]
pub struct Source {
    catalogue: Catalogue,
    warnings: Vec<SourceWarning>,
    configuration: Option<Vec<u8>>,
}

impl Source {
    /// Reads the source at `path` as it is; see [`SourceOptions::open`].
    ///
    /// # Errors
    /// Any [`SourceError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        SourceOptions::new().open(path)
    }

    /// True if a file begins as an archive does: a tar archive, plain or packed, or one of a kind that is not read.
    #[must_use]
    pub fn is_archive(file: &File) -> bool {
        let section = file.try_clone().and_then(Section::whole);
        section.is_ok_and(|section| compression::begins_archive(&section))
    }

    /// True if the first bytes of a file are those of an archive, or of something packed. Nothing is unpacked, so that this
    /// can be asked before a process has given up its rights.
    #[must_use]
    pub fn may_be_archive(file: &File) -> bool {
        let section = file.try_clone().and_then(Section::whole);
        section.is_ok_and(|section| compression::may_begin_archive(&section))
    }

    /// Options, for what is not to be taken as it is.
    pub fn options() -> SourceOptions {
        SourceOptions::new()
    }

    /// The tree.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The tree alone.
    #[must_use]
    pub fn into_catalogue(self) -> Catalogue {
        self.catalogue
    }

    /// The configuration of a container image, as its JSON: entry point, environment, user. Of several sources that of
    /// the last image.
    #[must_use]
    pub fn configuration(&self) -> Option<&[u8]> {
        self.configuration.as_deref()
    }

    /// Files that lost data while they were copied: see [`SourceOptions::in_use`].
    #[must_use]
    pub fn lost(&self) -> Vec<SourceWarning> {
        self.catalogue.lost()
    }

    /// Oddities that did not keep the source from being read.
    #[must_use]
    pub fn warnings(&self) -> &[SourceWarning] {
        &self.warnings
    }
}

impl From<Catalogue> for Source {
    fn from(catalogue: Catalogue) -> Self {
        Source { catalogue, warnings: Vec::new(), configuration: None }
    }
}

impl SourceOptions {
    /// Reads the source at `path`: an image in a directory (an OCI layout, what docker-save wrote, skopeo's `dir:`), any
    /// other directory, or an archive; of archives, one that holds an OCI layout or docker-save's `manifest.json`
    /// is an image whose layers are merged, any other the tree itself. Archives may be packed with gzip, zstd or
    /// xz. What is no regular file (a pipe) is read once, from front to back.
    ///
    /// # Errors
    /// Any [`SourceError`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Source, SourceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let packed = match OpenedSource::at(path)? {
            OpenedSource::Directory(directory) => return self.directory(path, directory),
            OpenedSource::Stream(stream) => return self.read(stream, &name),
            OpenedSource::File(packed) => packed,
        };
        let mut reading = Reading::new(self)?;
        let section = compression::unpacked(&mut reading, packed, &name)?;
        archived::read(self, reading, &section, &name)
    }

    /// The configuration of the container image at `path`, of which no layer is read; `None` if it is something else.
    ///
    /// # Errors
    /// As [`SourceOptions::open`].
    pub fn configuration(&self, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>, SourceError> {
        let path = path.as_ref();
        let mut reading = Reading::new(self)?;
        reading.skips_layers = true;
        let mut builder = CatalogueBuilder::new(self.clone())?;
        let name = path.display().to_string();
        let section = match OpenedSource::at(path)? {
            OpenedSource::Directory(directory) => {
                archived::image_in(&mut reading, &mut builder, path, directory)?;
                return Ok(reading.configuration);
            }
            OpenedSource::Stream(_) => return Ok(None),
            OpenedSource::File(packed) => compression::unpacked(&mut reading, packed, &name)?,
        };
        Ok(archived::read(self, reading, &section, &name)?.configuration)
    }

    /// Reads an archive from a stream, such as standard input; `name` is how messages call it.
    ///
    /// # Errors
    /// Any [`SourceError`].
    pub fn read(&self, stream: impl Read, name: &str) -> Result<Source, SourceError> {
        let mut reading = Reading::new(self)?;
        let section = compression::spool_stream(&mut reading, stream, name)?;
        archived::read(self, reading, &section, name)
    }

    /// The bytes of an archive at known places: a file as it is, or unpacked into a spool; with the damage before which that
    /// ends. Its entries are not looked at.
    ///
    /// # Errors
    /// [`SourceError::Host`], [`SourceError::Compression`], [`SourceError::NoArchive`], [`SourceError::Foreign`].
    pub fn unpacked(&self, path: impl AsRef<Path>) -> Result<(Section, Vec<SourceWarning>), SourceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match OpenedSource::at(path)? {
            OpenedSource::Directory(_) => {
                Err(SourceError::host("read", path, std::io::Error::from(std::io::ErrorKind::IsADirectory)))
            }
            OpenedSource::Stream(stream) => self.unpacked_stream(stream, &name),
            OpenedSource::File(packed) => {
                let mut reading = Reading::new(self)?;
                let section = compression::unpacked(&mut reading, packed, &name)?;
                foreign::refuse(&section, &name).map(|()| (section, reading.warnings))
            }
        }
    }

    /// Unpacks a stream; `name` is how messages call it.
    ///
    /// # Errors
    /// As [`SourceOptions::unpacked`].
    pub fn unpacked_stream(
        &self,
        stream: impl Read,
        name: &str,
    ) -> Result<(Section, Vec<SourceWarning>), SourceError> {
        let mut reading = Reading::new(self)?;
        let section = compression::spool_stream(&mut reading, stream, name)?;
        foreign::refuse(&section, name).map(|()| (section, reading.warnings))
    }

    /// All bytes of a stream, whatever they are, in a spool.
    ///
    /// # Errors
    /// [`SourceError::Host`].
    pub fn spooled(&self, stream: impl Read, name: &str) -> Result<Section, SourceError> {
        compression::spool_as_it_is(&mut Reading::new(self)?, stream, name)
    }

    /// Reads several sources as one tree: each lies over those before it, as the layers of an OCI image do. What a
    /// later one names replaces what was there; directories are joined; `.wh.NAME` removes what lower ones
    /// have of that name, `.wh..wh..opq` all that they have in its directory.
    ///
    /// # Errors
    /// Any [`SourceError`].
    pub fn overlay<'l>(&self, layers: impl IntoIterator<Item = Layer<'l>>) -> Result<Source, SourceError> {
        let mut reading = Reading::new(self)?;
        let mut builder = CatalogueBuilder::new(self.clone())?;
        let mut any_image = false;
        let mut first = None;
        for layer in layers {
            let name = layer.name();
            any_image |= self.layer(&mut reading, &mut builder, layer)?;
            first.get_or_insert(name);
        }
        if !any_image {
            self.refuse_image_options(&first.unwrap_or_default())?;
        }
        self.finish(reading, builder)
    }

    /// Lays one source over what is there; says whether it is an image.
    fn layer(
        &self,
        reading: &mut Reading,
        builder: &mut CatalogueBuilder,
        layer: Layer<'_>,
    ) -> Result<bool, SourceError> {
        let name = layer.name();
        let section = match layer {
            Layer::Path(path) => match OpenedSource::at(path)? {
                OpenedSource::Directory(directory) => {
                    let directory = match archived::image_in(reading, builder, path, directory)? {
                        None => return Ok(true),
                        Some(directory) => directory,
                    };
                    builder.begin_layer();
                    return directory::read_layer(reading, builder, path, directory).map(|()| false);
                }
                OpenedSource::File(packed) => compression::unpacked(reading, packed, &name)?,
                OpenedSource::Stream(stream) => compression::spool_stream(reading, stream, &name)?,
            },
            Layer::Stream(stream, _) => compression::spool_stream(reading, stream, &name)?,
        };
        archived::layer(reading, builder, &section, &name)
    }

    fn directory(&self, path: &Path, directory: Directory) -> Result<Source, SourceError> {
        let mut reading = Reading::new(self)?;
        let mut builder = CatalogueBuilder::new(self.clone())?;
        let Some(directory) = archived::image_in(&mut reading, &mut builder, path, directory)? else {
            return self.finish(reading, builder);
        };
        self.refuse_image_options(&path.display().to_string())?;
        directory::read(&mut reading, &mut builder, path, directory)?;
        self.finish(reading, builder)
    }

    pub(super) fn finish(
        &self,
        mut reading: Reading,
        mut builder: CatalogueBuilder,
    ) -> Result<Source, SourceError> {
        if builder.dropped_xattrs > 0 {
            reading.warnings.push(SourceWarning::DroppedXattrs { count: builder.dropped_xattrs });
        }
        let placed = self.devices.as_ref().map(|table| table.place(&mut builder)).transpose()?;
        let lost_found = self.make_lost_found(&mut builder)?;
        let mut catalogue = builder.finish();
        if let Some(owner) = &self.owner {
            let ids = owners::resolve(owner, &catalogue, self.prefix.as_deref())?;
            catalogue.own_all(ids);
        }
        if let Some(node) = lost_found {
            catalogue.own(node, Ids::default());
        }
        if let Some(ids) = self.root_ids {
            catalogue.own(catalogue.root(), ids);
        }
        if let Some(mode) = self.root_mode {
            catalogue.permit(catalogue.root(), mode);
        }
        self.root.iter().for_each(|attribute| catalogue.mark_root(attribute));
        if let (Some(table), Some(placed)) = (&self.devices, placed) {
            table.apply(&placed, &mut catalogue, self.prefix.as_deref())?;
        }
        if let Some(table) = &self.fs_config {
            table.apply(&mut catalogue, &self.mount_point)?;
        }
        if let Some(contexts) = &self.contexts
            && !contexts.apply(&mut catalogue, &self.mount_point)?
        {
            reading.warnings.push(SourceWarning::NoLabels { table: contexts.name().to_owned() });
        }
        self.warn_of_owners(&catalogue, &mut reading.warnings);
        Ok(Source { catalogue, warnings: reading.warnings, configuration: reading.configuration })
    }

    /// Tells of owners and of a root directory that are seldom meant.
    fn warn_of_owners(&self, catalogue: &Catalogue, warnings: &mut Vec<SourceWarning>) {
        if let Some((count, Ids { uid, gid })) = catalogue.unmapped().filter(|_| self.owner.is_none()) {
            warnings.push(SourceWarning::Unmapped { count, first: (uid, gid) });
        }
        let mode = catalogue.metadata(catalogue.root()).mode;
        if mode & 0o077 == 0
            && self.root_mode.is_none()
            && self.fs_config.is_none()
            && catalogue.has_own_root()
        {
            warnings.push(SourceWarning::ClosedRoot { mode });
        }
    }
}

/// One of several sources that lie over each other.
pub enum Layer<'l> {
    /// The source at a path; see [`SourceOptions::open`].
    Path(&'l Path),
    /// An archive from a stream, and how messages call it.
    Stream(&'l mut dyn Read, &'l str),
}

impl Layer<'_> {
    fn name(&self) -> String {
        match self {
            Layer::Path(path) => path.display().to_string(),
            Layer::Stream(_, name) => (*name).to_owned(),
        }
    }
}

impl SourceOptions {
    /// Every volume has this directory: where all is labelled it is, too.
    fn make_lost_found(&self, builder: &mut CatalogueBuilder) -> Result<Option<NodeId>, SourceError> {
        const NAME: &[u8] = b"lost+found";
        if self.contexts.is_none() || self.prefix.is_some() {
            return Ok(None);
        }
        let wrong = |error| SourceError::Tree { archive: "lost+found".into(), error };
        match builder.find(NAME).map_err(wrong)? {
            Some(_) => Ok(None),
            None => builder.put_plain(NAME, 0o700, NewNode::Directory).map(Some).map_err(wrong),
        }
    }
}

/// The thing that the path of a source leads to, opened once.
enum OpenedSource {
    Directory(Directory),
    File(Section),
    /// A pipe or device. A pipe is waited for, as by any command.
    Stream(File),
}

impl OpenedSource {
    fn at(path: &Path) -> Result<Self, SourceError> {
        let failed = |error| SourceError::host("open", path, error);
        Ok(match target_of(path).map_err(failed)?.1 {
            Opened::Directory(directory) => OpenedSource::Directory(directory),
            Opened::File(file) => OpenedSource::File(Section::whole(file).map_err(failed)?),
            Opened::Link(_) | Opened::Other => {
                OpenedSource::Stream(platfs_host::path::open(path, OFlags::RDONLY).map_err(failed)?)
            }
        })
    }
}

#[cfg(test)]
mod tests;
