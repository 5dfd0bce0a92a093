//! Images as others want them: the formats that disks of virtual machines, phones and archives have, and what goes
//! beside an image.
//!
//! ```
//! use platfs_image::disk::{Disk, Format};
//! use platfs_image::{Builder, Source};
//! # let directory = tempfile::tempdir()?;
//! # std::fs::create_dir(directory.path().join("tree"))?;
//! # let (tree, image) = (directory.path().join("tree"), directory.path().join("disk.qcow2"));
//!
//! let source = Source::open(&tree)?;
//! Builder::new(&source).disk(Disk { format: Format::Qcow2, ..Disk::default() }).build(&image)?;
//! assert!(std::fs::read(&image)?.starts_with(b"QFI\xfb"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The volume is written into a file without a name first. From there only what it uses goes into the other format:
//! what its bitmaps call free reads as zeros there, whatever an update left behind. Each output appears whole or not
//! at all; the image gets its name last.
//!
//! | module | owns |
//! | --- | --- |
//! | `contents` | the bytes of a disk, and which of them count |
//! | `qcow2`, `vhd`, `android`, `seekable` | one format each |
//! | `bmap` | the list of ranges that a copy needs, with their checksums |
//! | [`verity`] | the tree of hashes that dm-verity checks a volume with |
//!
//! Excluded: reading these formats; the volume itself.

mod android;
mod bmap;
mod contents;
mod qcow2;
#[cfg(feature = "archives")]
mod seekable;
#[cfg(test)]
mod tests;
pub mod verity;
mod vhd;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::output::{Output, Privacy, device_of};
use contents::Contents;
pub use verity::{Seeds, Verity};

/// Format in which the bytes of a disk are stored in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// As they are; what is free is a hole.
    #[default]
    Raw,
    /// QEMU's format, version 3: only clusters that hold something.
    Qcow2,
    /// A fixed VHD: the raw disk, and a sector that describes it.
    Vhd,
    /// Android's sparse format, for `fastboot` and `simg2img`.
    AndroidSparse,
    /// zstd in frames of 1 MiB with a table of them, so that a reader finds any place.
    #[cfg(feature = "archives")]
    Zstd,
}

/// The formats by the names that options and messages use, and the endings of file names.
const FORMATS: &[(Format, &str, &[&str])] = &[
    (Format::Raw, "raw", &["raw", "img"]),
    (Format::Qcow2, "qcow2", &["qcow2"]),
    (Format::Vhd, "vhd", &["vhd"]),
    (Format::AndroidSparse, "simg", &["simg"]),
    #[cfg(feature = "archives")]
    (Format::Zstd, "zstd", &["zst"]),
];

impl Format {
    /// The format of a name that an option gives.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(_, known, _)| *known == name).map(|(format, _, _)| *format)
    }

    /// The format that a file's name means, if its ending means one.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_string_lossy().to_ascii_lowercase();
        let known = FORMATS.iter().find(|(_, _, endings)| endings.contains(&ending.as_str()));
        known.map(|(format, _, _)| *format)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, _, _)| *format == self).map_or("", |(_, name, _)| name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(_, name, _)| *name)
    }
}

/// Format of an image's file, and the files that go beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The format.
    pub format: Format,
    /// Where the map of blocks for `bmaptool` goes, if one is wanted.
    pub bmap: Option<PathBuf>,
    /// Place of a tree of hashes for dm-verity, if the volume gets one.
    pub verity: Option<TreeLocation>,
}

/// Where a tree of hashes goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeLocation {
    /// Behind the volume, on the same disk.
    Behind,
    /// Into a file of its own.
    File(PathBuf),
}

impl Disk {
    /// Returns true if the image is the raw volume, with nothing beside it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Disk::default()
    }

    /// The files beside the image.
    pub fn beside(&self) -> impl Iterator<Item = &Path> {
        let tree = match &self.verity {
            Some(TreeLocation::File(path)) => Some(path),
            _ => None,
        };
        self.bmap.iter().chain(tree).map(PathBuf::as_path)
    }
}

/// Parts that an output is made of.
pub(crate) struct DiskJob<'a> {
    pub(crate) disk: &'a Disk,
    /// The volume, in a file without a name.
    pub(crate) raw: Output,
    /// The image's name.
    pub(crate) path: &'a Path,
    pub(crate) seeds: Seeds,
    pub(crate) overwrite: bool,
    pub(crate) privacy: Privacy,
    pub(crate) sync: bool,
    /// Asked now and then; an error ends the work.
    pub(crate) alive: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

/// A failure at one of the outputs: what was tried, where, and why it failed.
pub(crate) type Failed = (&'static str, PathBuf, io::Error);

fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failed {
    let path = path.to_owned();
    move |error| (action, path, error)
}

impl DiskJob<'_> {
    /// Makes all outputs, and gives them their names: the image's last.
    pub(crate) fn finish(mut self) -> Result<Option<Verity>, Failed> {
        let path = self.path.to_owned();
        let file = self.raw.file().map_err(at("open", &path))?;
        let device = device_of(&self.raw).map_err(at("open", &path))?;
        let mut contents = Contents::of(&file, device).map_err(at("read", &path))?;
        let mut named = Vec::new();
        let verity = self.verity(&mut contents, &mut named)?;
        if let Some(place) = &self.disk.bmap {
            let text = bmap::text(&contents, self.alive).map_err(at("read", &path))?;
            let output = self.begin(place)?;
            output.file().and_then(|file| write_all(&file, text.as_bytes())).map_err(at("write", place))?;
            named.push((place.clone(), output));
        }
        let image = self.image(&contents)?;
        named.push((path, image.unwrap_or(self.raw)));
        for (path, output) in named {
            if self.sync {
                output.file().and_then(|file| file.sync_all()).map_err(at("sync", &path))?;
            }
            output.finish().map_err(at("name", &path))?;
        }
        Ok(verity)
    }

    fn begin(&self, path: &Path) -> Result<Output, Failed> {
        let begin = if self.overwrite { Output::replacing } else { Output::new };
        begin(path, 0, self.privacy).map_err(at("create", path))
    }

    fn verity(
        &mut self,
        contents: &mut Contents,
        named: &mut Vec<(PathBuf, Output)>,
    ) -> Result<Option<Verity>, Failed> {
        let Some(place) = &self.disk.verity else { return Ok(None) };
        contents.use_all();
        match place {
            TreeLocation::Behind => {
                let file = self.raw.file().map_err(at("open", self.path))?;
                let offset = contents.len.next_multiple_of(verity::HASH_BLOCK);
                let made = verity::write(contents, &file, offset, &self.seeds, self.alive);
                let made = made.map_err(at("write", self.path))?;
                contents.lengthen(&file).map_err(at("read", self.path))?;
                Ok(Some(made))
            }
            TreeLocation::File(path) => {
                let output = self.begin(path)?;
                let file = output.file().map_err(at("open", path))?;
                let made = verity::write(contents, &file, 0, &self.seeds, self.alive);
                named.push((path.clone(), output));
                made.map(Some).map_err(at("write", path))
            }
        }
    }

    /// The image in its format; `None` if the raw file is it.
    fn image(&mut self, contents: &Contents) -> Result<Option<Output>, Failed> {
        let format = self.disk.format;
        if matches!(format, Format::Raw | Format::Vhd) {
            let file = self.raw.file().map_err(at("open", self.path))?;
            let ended =
                if format == Format::Vhd { vhd::end(&file, contents.len, &self.seeds) } else { Ok(()) };
            return ended.map(|()| None).map_err(at("write", self.path));
        }
        let output = self.begin(self.path)?;
        let file = output.file().map_err(at("open", self.path))?;
        let written = match format {
            Format::Qcow2 => qcow2::write(contents, &file, self.alive),
            Format::AndroidSparse => android::write(contents, &file, self.alive),
            #[cfg(feature = "archives")]
            Format::Zstd => seekable::write(contents, &file, self.alive),
            // The raw file is the image.
            Format::Raw | Format::Vhd => return Ok(None),
        };
        written.map(|()| Some(output)).map_err(at("write", self.path))
    }
}

fn write_all(file: &File, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.write_all_at(bytes, 0)
}
