//! Options of `plat build` that say what kind of file the image becomes, and what goes beside it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use platfs_image::disk::{Disk, Format, TreeLocation, Verity};

use crate::console::Failure;
use crate::image;

/// Endings of formats that are not written.
const OTHERS: [&str; 5] = ["qcow", "qed", "vhdx", "vmdk", "vdi"];
/// Endings of compressions other than ours.
const PACKED: [&str; 7] = ["gz", "xz", "bz2", "lz4", "lzma", "lzo", "zip"];

/// Kind of file that the image becomes, and files beside it.
#[derive(Args, Debug)]
pub struct DiskArgs {
    /// Format of the image; if not given, the one that the end of its name means (.qcow2, .vhd, .simg, .zst), else raw.
    #[arg(long = "format", value_name = "FORMAT", value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
    /// Writes which blocks of the image a copy needs, with checksums, for `bmaptool copy` (raw or zstd only).
    #[arg(long, value_name = "FILE")]
    bmap: Option<PathBuf>,
    /// Adds a tree of hashes for dm-verity behind the volume, or into FILE, and prints the root hash. It is laid out as
    /// `veritysetup format` does it; salt and UUID are derived from those of the volume.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    verity: Option<OsString>,
}

impl DiskArgs {
    /// Files that are made beside the image.
    pub fn beside(&self) -> Vec<PathBuf> {
        let tree = self.verity.iter().filter(|file| !file.is_empty()).map(PathBuf::from);
        self.bmap.iter().cloned().chain(tree).collect()
    }

    /// The line with which the kernel opens an image through its hashes.
    pub fn opening(&self, image: &OsStr, verity: &Verity) -> String {
        let tree = self.verity.as_deref().filter(|file| !file.is_empty()).unwrap_or(image);
        let (image, tree) = (image::shown(image), image::shown(tree));
        format!("veritysetup open {image} NAME {tree} {} --hash-offset={}", verity.root_hash(), verity.offset)
    }

    /// The disk that is asked for, for an image of that name.
    ///
    /// # Errors
    /// Wrong usage: a name that means a format that is not written, options that do not go together.
    pub fn disk(&self, image: &OsStr) -> Result<Disk, Failure> {
        let path = image::parse(image).path;
        let format = match &self.format {
            Some(name) => Format::named(name).unwrap_or_default(),
            None => format_of(&path, image)?,
        };
        let verity = self.verity.as_ref().map(|file| match file.is_empty() {
            true => TreeLocation::Behind,
            false => TreeLocation::File(file.into()),
        });
        let disk = Disk { format, bmap: self.bmap.clone(), verity };
        if disk.bmap.is_some() && matches!(format, Format::Qcow2 | Format::Vhd | Format::AndroidSparse) {
            let name = format.name();
            let what = "--bmap describes the bytes of raw images (also packed with zstd)";
            return Err(Failure::Usage(format!("{what}, and this one is {name}")));
        }
        Ok(disk)
    }
}

/// The format that a name means; raw if it means none.
fn format_of(path: &Path, image: &OsStr) -> Result<Format, Failure> {
    if let Some(format) = Format::of_name(path) {
        return Ok(format);
    }
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let is_meant = |ending: &str| OTHERS.contains(&ending) || PACKED.contains(&ending);
    let Some(ending) = ending.filter(|ending| is_meant(ending)) else {
        return Ok(Format::Raw);
    };
    let names: Vec<&str> = Format::names().collect();
    let what =
        format!("a name in .{ending} means a format that is not written; these are: {}", names.join(", "));
    let remedy = match PACKED.contains(&ending.as_str()) {
        true => "--format chooses one",
        false => "--format chooses one, and `qemu-img convert` makes others",
    };
    Err(Failure::Usage(format!("{}: {what}; {remedy}", image::shown(image))))
}
