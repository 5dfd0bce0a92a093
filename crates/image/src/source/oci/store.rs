//! Where an image's files lie: a layout's directory, or an archive of one.

use super::Descriptor;
use super::digest::Digest;
use crate::archive::Input;
use crate::source::catalogue::{Catalogue, NodeId, NodeKind, Origin};
use crate::source::error::SourceError;
use crate::source::input::Section;
use crate::source::reading::Reading;
use ondisk::units::bounded;
use platfs_host::{Directory, Opened, inside};
use serde::de::DeserializeOwned;
use std::path::{Component, Path, PathBuf};

/// The size of an index, manifest or configuration: registries refuse manifests over 4 MiB.
const MAX_JSON: u64 = 8 << 20;
/// Symbolic links followed to a layer: docker-save makes one where two images share it.
const MAX_HOPS: usize = 8;

/// The files of an image.
#[derive(Debug)]
pub(in crate::source) enum Store {
    /// A directory of the host.
    Directory {
        /// Its name in messages.
        path: PathBuf,
        /// It, open.
        directory: Directory,
        /// Blobs lie beside the manifest, named by their digests alone.
        flat: bool,
    },
    /// An archive, read into a catalogue.
    Archive {
        /// Its files.
        files: Box<Catalogue>,
        /// Its name in messages.
        name: String,
    },
}

impl Store {
    /// Opens a file by its path in the image.
    ///
    /// # Errors
    /// [`SourceError::Image`] if it is missing, no regular file, or its path leads out of the image.
    pub(super) fn open(&self, path: &str) -> Result<Section, SourceError> {
        let plain =
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !plain {
            return Err(self.problem(format!("the path {path:?} leads out of the image")));
        }
        match self {
            Self::Directory { path: root, directory, .. } => {
                let shown = root.join(path);
                let failed = |error| SourceError::host("open", &shown, error);
                // A link to a layer of another image leads on, but not out of the layout.
                match inside(directory, Path::new(path)).map_err(failed)?.1 {
                    Opened::File(file) => Section::whole(file).map_err(failed),
                    _ => Err(self.problem(format!("{} is no regular file", shown.display()))),
                }
            }
            Self::Archive { files, .. } => {
                let found = follow(files, path.as_bytes()).and_then(|node| contents(files, node));
                found.ok_or_else(|| {
                    self.problem(format!(
                        "the file {path:?} of the image is missing, sparse, or no regular file"
                    ))
                })
            }
        }
    }

    /// Opens a blob; its size and digest hold.
    pub(super) fn blob(
        &self,
        reading: &mut Reading,
        descriptor: &Descriptor,
    ) -> Result<Section, SourceError> {
        let digest = Digest::parse(&descriptor.digest).map_err(|problem| self.problem(problem))?;
        let is_flat = matches!(self, Self::Directory { flat: true, .. });
        let section = self.open(&if is_flat { digest.name().to_owned() } else { digest.path() })?;
        if section.bytes() != descriptor.size {
            let (have, want) = (section.bytes(), descriptor.size);
            return Err(self.problem(format!("blob {} has {have} bytes, not {want}", descriptor.digest)));
        }
        self.verify(reading, &digest, &section, &descriptor.digest)?;
        Ok(section)
    }

    /// Checks the digest of a file.
    pub(super) fn verify(
        &self,
        reading: &mut Reading,
        digest: &Digest,
        section: &Section,
        name: &str,
    ) -> Result<(), SourceError> {
        match digest.holds(section.stream(), name, &mut reading.meter)? {
            true => Ok(()),
            false => Err(self.problem(format!("{name} is damaged: its digest does not hold"))),
        }
    }

    /// Reads a JSON file of the image.
    pub(super) fn parse<T: DeserializeOwned>(&self, path: &str) -> Result<T, SourceError> {
        self.parse_section(&self.open(path)?, path)
    }

    pub(super) fn parse_section<T: DeserializeOwned>(
        &self,
        section: &Section,
        name: &str,
    ) -> Result<T, SourceError> {
        let bytes = self.bytes(section, name)?;
        serde_json::from_slice(&bytes).map_err(|error| self.problem(format!("{name}: {error}")))
    }

    /// All bytes of a JSON file.
    pub(super) fn bytes(&self, section: &Section, name: &str) -> Result<Vec<u8>, SourceError> {
        if section.bytes() > MAX_JSON {
            return Err(self.problem(format!("{name} has more than {MAX_JSON} bytes")));
        }
        let mut bytes = vec![0; bounded::<usize>(section.bytes())];
        section.read_exact_at(0, &mut bytes).map_err(|error| SourceError::host("read", name, error))?;
        Ok(bytes)
    }

    /// An error about this image.
    pub(super) fn problem(&self, problem: String) -> SourceError {
        let image = match self {
            Self::Directory { path, .. } => path.display().to_string(),
            Self::Archive { name, .. } => name.clone(),
        };
        SourceError::Image { image, problem }
    }
}

/// The file at a path, symbolic links at its end followed.
fn follow(files: &Catalogue, path: &[u8]) -> Option<NodeId> {
    let mut path = path.to_vec();
    for _ in 0..MAX_HOPS {
        let plain: Vec<&[u8]> =
            path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        let node = files.find(&plain.join(&b'/'))?;
        if files.metadata(node).kind != NodeKind::Symlink {
            return Some(node);
        }
        let above = plain.split_last().map(|(_, above)| above).unwrap_or_default();
        let mut names: Vec<&[u8]> =
            if files.target(node).starts_with(b"/") { Vec::new() } else { above.to_vec() };
        for name in files.target(node).split(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                _ => names.push(name),
            }
        }
        path = names.join(&b'/');
    }
    None
}

/// The contents of a file that lie in one piece.
fn contents(files: &Catalogue, node: NodeId) -> Option<Section> {
    let size = files.metadata(node).size;
    let mut extents = files.extents(node);
    let extent = extents.next().filter(|extent| extent.file_offset == 0 && extent.len == size)?;
    match extent.origin {
        Origin::Section(number) => files.section(number)?.part(extent.origin_offset, size),
        Origin::Host(_) => None,
    }
}
