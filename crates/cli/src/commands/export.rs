//! `plat export`: an image to an archive or a directory, a directory of a mount to an archive.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::Metadata;
use platfs_host::{Directory, Kind, OutputLocation, Privacy, left_behind, path};
use platfs_image::archive::WriteError;
use platfs_image::export::{Losses, Unread};
use platfs_image::{ExportError, Exporter, Packing};

use super::cage;
use super::keeping_going::{KeepGoingArgs, Lacking};
use super::live;
use super::replaced::{Becomes, may_replace};
use crate::bulk::Done;
use crate::console::{Console, Failure};
use crate::control::client::Found;
use crate::control::protocol::{Verb, flag};
use crate::door::meant::spare;
use crate::door::output::Output;
use crate::image;
use crate::keys::KeyArgs;
use crate::memory;
use crate::reading::OpenImage;
use crate::sandbox::Plan;
use crate::text::Shown;

/// Arguments of `plat export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a directory of a mount.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// A name that ends in .tar, .tar.gz, .tgz, .tar.zst or .tzst for an archive, `-` for an archive on
    /// standard output, anything else for a directory; with a slash at its end always a directory.
    out: PathBuf,
    /// Only this directory of the image and what is below it.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    from: OsString,
    /// Replaces an archive that exists.
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    keep_going: KeepGoingArgs,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// Form of the output, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Stdout,
    Archive(Packing),
    Directory,
}

/// Endings of archives that are not written here: no user means a directory by them.
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
    /// The form that a name asks for.
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
        match out.as_os_str().as_bytes() {
            b"-" => Self::Stdout,
            name => Packing::of_name(name).map_or(Self::Directory, Self::Archive),
        }
    }
}

/// Counts what an export hands out.
#[derive(Default)]
pub(super) struct Counted {
    files: AtomicU64,
    directories: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    /// Takes one file along, and lets it pass.
    fn see(&self, facts: &Metadata) -> bool {
        let kinds = if facts.file_type == FileType::Directory { &self.directories } else { &self.files };
        kinds.fetch_add(1, Ordering::Relaxed);
        if facts.file_type == FileType::Regular {
            self.bytes.fetch_add(facts.size, Ordering::Relaxed);
        }
        true
    }

    /// All of it.
    pub(super) fn done(&self) -> Done {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (files, directories) = (of(&self.files), of(&self.directories));
        Done { files, directories, bytes: of(&self.bytes), attributes_left_out: 0 }
    }
}

impl Export {
    pub(super) fn cage(&self) -> Option<Plan> {
        let out = (Form::by_ending(&self.out) != Form::Stdout).then_some(&*self.out);
        let plan = cage::reading(&[&self.image], &self.keys.files(), out)?;
        let gives = Form::by_ending(&self.out) == Form::Directory;
        Some(if gives { cage::with_attributes(plan) } else { plan })
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let form = Form::of(&self.out)?;
        if form != Form::Stdout {
            // The image itself comes first: `refuse_existing` would say that `rm` removes it.
            spare(&[&self.image], &self.out).map_err(|error| Failure::about(self.out.display(), error))?;
            refuse_existing(&self.out, self.force, form == Form::Directory)?;
        }
        if live::is_directory(&self.image) {
            self.keep_going.refuse_of_mount()?;
            return self.live(console, form);
        }
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        if form == Form::Directory {
            name_left_behind(console, OutputLocation::of(&self.out).ok().as_ref());
        }
        let from = image.find(&self.from, true)?;
        let lacking = Lacking::of(&image.name);
        let tell = |unread: &Unread<'_>| lacking.unread(unread);
        let (counted, json) = (Counted::default(), self.json && form != Form::Stdout);
        let see = |_: &[u8], facts: &Metadata| counted.see(facts);
        let exporter = Exporter::new(&image.volume).from(from).permit(&see);
        let exporter = self.keep_going.apply(exporter, &tell);
        let out = (form != Form::Stdout).then_some(&*self.out);
        let failed = |error| self.keep_going.hinted(error, |error| failure(&image, out, error));
        let done = match form {
            Form::Stdout => exporter.to_archive(&mut *console.out, Packing::Plain).map_err(failed),
            Form::Directory => exporter.to_directory(&self.out).map_err(failed),
            Form::Archive(packing) => {
                self.to_output(|file| exporter.to_archive(file, packing).map_err(failed))
            }
        };
        lacking.say(console)?;
        done?.lines().for_each(|line| console.warn(line));
        live::say(console, json, &counted.done())
    }

    /// Has the server of a mount write the archive.
    fn live(&self, console: &mut Console<'_>, form: Form) -> Result<(), Failure> {
        let from = live::below(&self.image, &self.from);
        let from = from.as_os_str();
        let (stdout, output) = (io::stdout(), None::<Output>);
        let flags = match form {
            Form::Archive(Packing::Gzip) => flag::GZIP,
            Form::Archive(Packing::Zstd) => flag::ZSTD,
            Form::Archive(_) | Form::Stdout => 0,
            Form::Directory => {
                let what =
                    "a directory of a mount is exported as an archive; `cp -a` copies it into a directory";
                return Err(live::host(from, what));
            }
        };
        let failed = |error: io::Error| Failure::about(self.out.display(), error);
        let output = match form {
            Form::Stdout => output,
            _ => Some(Output::through(&self.out, 0, Privacy::Private).map_err(failed)?),
        };
        let file = output.as_ref().map(Output::file).transpose().map_err(failed)?;
        console.out.flush()?;
        let place = live::directory(from)?;
        live::hand_over(&place, from)?;
        let to: &dyn AsFd = file.as_ref().map_or(&stdout as &dyn AsFd, |file| file);
        let own = place.is_served_by_own_user().map_err(|error| live::host(from, error))?;
        let is_taken = own && !live::lies_in(&place, to).map_err(failed)?;
        let places = [place];
        let done = match is_taken {
            true => live::ask(console, (Verb::Export, flags), &places, Some(to))?,
            false => self.through_pipe(console, flags, &places, to)?,
        };
        drop(file);
        output.map_or(Ok(()), Output::finish).map_err(failed)?;
        if self.json && form != Form::Stdout { live::say(console, true, &done) } else { Ok(()) }
    }

    /// Has the server write to a pipe, since it may be another user's or the file may lie in its mount, and passes that on.
    fn through_pipe(
        &self,
        console: &mut Console<'_>,
        flags: u32,
        places: &[Found],
        to: &dyn AsFd,
    ) -> Result<Done, Failure> {
        let failed = |error: io::Error| Failure::about(self.out.display(), error);
        let (mut from, end) = io::pipe().map_err(failed)?;
        let mut to = File::from(to.as_fd().try_clone_to_owned().map_err(failed)?);
        let pass = move || io::copy(&mut from, &mut to).map(drop);
        let passing = thread::Builder::new().spawn(pass);
        let passing = passing.map_err(|error| Failure::about(self.out.display(), memory::lacking(&error)))?;
        let asked = live::ask(console, (Verb::Export, flags), places, Some(&end));
        // The pipe ends when the server has closed it, too.
        drop(end);
        let passed =
            passing.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes it ended")));
        // Where it could not be written, that is the reason.
        passed.map_err(failed)?;
        asked
    }

    /// Writes beside the target, and gives it the name when it is whole.
    fn to_output(
        &self,
        write: impl FnOnce(BufWriter<File>) -> Result<Losses, Failure>,
    ) -> Result<Losses, Failure> {
        let failed = |error: io::Error| Failure::about(self.out.display(), error);
        let output = Output::through(&self.out, 0, image::privacy(&self.image)).map_err(failed)?;
        let losses = write(BufWriter::with_capacity(1 << 20, output.file().map_err(failed)?))?;
        output.finish().map_err(failed)?;
        Ok(losses)
    }
}

/// An error of an export as a failure: about the image, the output or the host, as it is. A reader of standard
/// output, which `out` is if it is nothing, that went away is none.
pub(super) fn failure(image: &OpenImage, out: Option<&Path>, error: ExportError) -> Failure {
    match (error, out) {
        (ExportError::Image { path, error }, _) => image.failure(&path, &error),
        (ExportError::Archive { error: WriteError::Io(error), .. }, Some(out)) => {
            Failure::about(out.display(), error)
        }
        (ExportError::Archive { error: WriteError::Io(error), .. }, None) => Failure::from(error),
        (error @ (ExportError::Host { .. } | ExportError::Output { .. }), _) => {
            Failure::Failed(error.to_string().into())
        }
        (error, _) => Failure::about(&image.name, error),
    }
}

/// Makes a directory of the host, which does not exist, of one of an image; whole or not at all.
pub(super) fn tree_to_directory(
    image: &OpenImage,
    (from, keep_going): (InodeNumber, KeepGoingArgs),
    place: &OutputLocation,
    (lacking, counted): (&Lacking, &Counted),
) -> Result<Losses, Failure> {
    let tell = |unread: &Unread<'_>| lacking.unread(unread);
    let see = |_: &[u8], facts: &Metadata| counted.see(facts);
    let exporter = Exporter::new(&image.volume).from(from).permit(&see);
    let done = keep_going.apply(exporter, &tell).to_place(place);
    done.map_err(|error| keep_going.hinted(error, |error| failure(image, Some(&place.path), error)))
}

/// Names what a killed command left beside a new directory.
pub(super) fn name_left_behind(console: &mut Console<'_>, place: Option<&OutputLocation>) {
    let Some(place) = place else { return };
    let above = place.path.parent().unwrap_or(Path::new(""));
    for name in left_behind(&place.directory) {
        let path = above.join(name);
        let shown = Shown(path.as_os_str().as_bytes());
        console.warn(format!("{shown}: is left of a command that was killed; `rm -r` removes it"));
    }
}

/// Fails if the output exists, unless it may be replaced. An empty directory counts as none.
fn refuse_existing(out: &Path, force: bool, is_directory: bool) -> Result<(), Failure> {
    let Ok(found) = path::entry(out) else { return Ok(()) };
    if is_directory {
        let empty = found.kind == Kind::Directory
            && Directory::open(out).and_then(|it| it.entries()).is_ok_and(|mut names| names.next().is_none());
        return if empty {
            Ok(())
        } else {
            Err(Failure::about(out.display(), "exists and is no empty directory: name a new one"))
        };
    }
    may_replace(out, Becomes::Archive, force)
}
