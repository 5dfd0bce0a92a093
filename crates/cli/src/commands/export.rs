//! `plat export`: an image to an archive or a directory.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use ondisk::units::InodeNumber;
use platfs_image::archive::WriteError;
use platfs_image::export::archive::ArchiveSink;
use platfs_image::export::directory::DirectorySink;
use platfs_image::export::{ExportError, Losses, export};

use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::reading::OpenImage;
use crate::text::Shown;

/// The level at which zstd's speed is still that of writing, and its gain most of what there is.
const ZSTD_LEVEL: i32 = 3;

/// Arguments of `plat export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    image: OsString,
    /// A name that ends in .tar, .tar.gz, .tgz, .tar.zst or .tzst for an archive, `-` for an archive on
    /// standard output, anything else for a directory; with a slash at its end always a directory.
    out: PathBuf,
    /// Only this directory of the image and what is below it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    from: OsString,
    /// Replaces an archive that exists.
    #[arg(long, short)]
    force: bool,
}

/// What the output's name asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Stdout,
    Tar,
    Gzip,
    Zstd,
    Directory,
}

/// Endings of archives that are not written here: nobody means a directory by them.
const NOT_WRITTEN: [&str; 20] = [
    ".tar.xz",
    ".txz",
    ".tar.bz2",
    ".tbz",
    ".tbz2",
    ".tar.lz4",
    ".tar.lzma",
    ".tlz",
    ".tar.lz",
    ".tar.br",
    ".tar.Z",
    ".xz",
    ".gz",
    ".zst",
    ".bz2",
    ".zip",
    ".7z",
    ".cpio",
    ".rar",
    ".squashfs",
];

impl Form {
    /// What the name asks for.
    fn of(out: &Path) -> Result<Self, Failure> {
        let form = Self::by_ending(out);
        let name = out.as_os_str().as_bytes();
        let other = NOT_WRITTEN.iter().find(|ending| name.ends_with(ending.as_bytes()));
        match other {
            Some(ending) if form == Self::Directory => Err(Failure::Usage(format!(
                "{}: archives are written as .tar, .tar.gz (.tgz) and .tar.zst (.tzst), not as {ending}; \
                 `plat export IMAGE -` gives a tar archive to other programs, a slash at the end of the name \
                 makes a directory",
                Shown(name)
            ))),
            _ => Ok(form),
        }
    }

    fn by_ending(out: &Path) -> Self {
        let name = out.as_os_str().as_bytes();
        let ends = |suffixes: &[&[u8]]| suffixes.iter().any(|suffix| name.ends_with(suffix));
        match name {
            b"-" => Self::Stdout,
            _ if ends(&[b".tar"]) => Self::Tar,
            _ if ends(&[b".tar.gz", b".tgz"]) => Self::Gzip,
            _ if ends(&[b".tar.zst", b".tzst"]) => Self::Zstd,
            _ => Self::Directory,
        }
    }
}

impl Export {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let form = Form::of(&self.out)?;
        if form != Form::Stdout {
            refuse_existing(&self.out, self.force, form == Form::Directory)?;
        }
        let image = OpenImage::open(&self.image, console)?;
        let from = image.find(&self.from, true)?;
        let out = (form != Form::Stdout).then_some(&*self.out);
        let tree = Tree { image: &image, from, out };
        let losses = match form {
            Form::Stdout => tree.to_archive(&mut *console.out)?.1,
            Form::Directory => make_directory(&self.out, |place| tree.to_directory(place))?,
            Form::Tar | Form::Gzip | Form::Zstd => self.to_file(&tree, form)?,
        };
        losses.lines().for_each(|line| console.warn(line));
        Ok(())
    }

    /// Writes beside the target, and gives it the name when it is whole.
    fn to_file(&self, tree: &Tree<'_>, form: Form) -> Result<Losses, Failure> {
        let failed = |error: io::Error| Failure::about(self.out.display(), error);
        let output = Output::through(&self.out, 0).map_err(failed)?;
        let file = BufWriter::with_capacity(1 << 20, output.file().map_err(failed)?);
        let losses = match form {
            Form::Gzip => {
                let packer = flate2::write::GzEncoder::new(file, flate2::Compression::default());
                let (packer, losses) = tree.to_archive(packer)?;
                flushed(packer.finish()).map_err(failed)?;
                losses
            }
            Form::Zstd => {
                let packer = zstd::Encoder::new(file, ZSTD_LEVEL).map_err(failed)?;
                let (packer, losses) = tree.to_archive(packer)?;
                flushed(packer.finish()).map_err(failed)?;
                losses
            }
            Form::Tar | Form::Stdout | Form::Directory => {
                let (file, losses) = tree.to_archive(file)?;
                flushed(Ok(file)).map_err(failed)?;
                losses
            }
        };
        output.finish().map_err(failed)?;
        Ok(losses)
    }
}

/// What is exported.
struct Tree<'i> {
    image: &'i OpenImage,
    from: InodeNumber,
    /// What it goes to, for messages; standard output if nothing.
    out: Option<&'i Path>,
}

impl Tree<'_> {
    /// Writes an archive to `out`, and gives it back.
    fn to_archive<W: Write>(&self, out: W) -> Result<(W, Losses), Failure> {
        let mut sink = ArchiveSink::new(out);
        let done = export(&self.image.volume, self.from, &mut sink).and_then(|()| sink.finish());
        done.map_err(|error| self.failure(error))
    }

    /// Fills the directory `place`.
    fn to_directory(&self, place: &Path) -> Result<Losses, Failure> {
        let done = DirectorySink::new(place).and_then(|mut sink| {
            export(&self.image.volume, self.from, &mut sink)?;
            Ok(sink.losses().clone())
        });
        done.map_err(|error| self.failure(error))
    }

    /// An error of the walk as a failure: about the image, the output or the host, as it is. A reader of standard
    /// output that went away is none.
    fn failure(&self, error: ExportError) -> Failure {
        match (error, self.out) {
            (ExportError::Image { path, error }, _) => self.image.failure(&path, &error),
            (ExportError::Archive { error: WriteError::Io(error), .. }, Some(out)) => {
                Failure::about(out.display(), error)
            }
            (ExportError::Archive { error: WriteError::Io(error), .. }, None) => Failure::from(error),
            (error @ ExportError::Host { .. }, _) => Failure::Failed(error.to_string()),
            (error, _) => Failure::about(&self.image.name, error),
        }
    }
}

/// Makes the directory `target`, which does not exist, of a directory of an image; whole or not at all.
pub(super) fn tree_to_directory(
    image: &OpenImage,
    from: InodeNumber,
    target: &Path,
) -> Result<Losses, Failure> {
    make_directory(target, |place| Tree { image, from, out: Some(target) }.to_directory(place))
}

fn flushed<W: Write>(out: io::Result<W>) -> io::Result<()> {
    out?.flush()
}

/// Fails if the output exists, unless it may be replaced. An empty directory counts as none.
fn refuse_existing(out: &Path, force: bool, is_directory: bool) -> Result<(), Failure> {
    let Ok(metadata) = std::fs::symlink_metadata(out) else { return Ok(()) };
    if is_directory {
        let empty = metadata.is_dir() && std::fs::read_dir(out).is_ok_and(|mut names| names.next().is_none());
        return if empty {
            Ok(())
        } else {
            Err(Failure::about(out.display(), "exists and is no empty directory"))
        };
    }
    if force && !metadata.is_dir() {
        return Ok(());
    }
    Err(Failure::about(out.display(), "exists; --force replaces a file"))
}

/// Makes a directory beside the target, fills it, and gives it the target's name when it is whole.
fn make_directory(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<Losses, Failure>,
) -> Result<Losses, Failure> {
    let failed = |error: io::Error| Failure::about(target.display(), error);
    let temporary = tempfile::Builder::new().prefix(".plat-").tempdir_in(parent(target)).map_err(failed)?;
    let losses = fill(temporary.path())?;
    std::fs::rename(temporary.path(), target).map_err(failed)?;
    // The name is gone: there is nothing left to remove.
    let _ = temporary.keep();
    Ok(losses)
}

/// The directory that holds a path.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}
