//! `plat get`: files out of an image, whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{File as HostFile, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::{Metadata, Reader, State};
use platfs_host::path;
use platfs_host::{OutputLocation, Privacy};

use super::export::Counted;
use super::keeping_going::{KeepGoingArgs, Lacking};
use super::{cage, cat, export, live, out_of_mount};
use crate::bulk::Done;
use crate::commands::replaced::EXISTS;
use crate::console::{Console, Failure};
use crate::door::meant::spare;
use crate::door::output::Output;
use crate::keys::KeyArgs;
use crate::reading::OpenImage;
use crate::sandbox::Plan;
use crate::text::Shown;

/// Arguments of `plat get`.
#[derive(Args, Debug)]
pub struct Get {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a directory of a mount.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// Files in the image, and behind them, unless there is only one, where they go: a directory, or the name of a single
    /// file's copy, or `-` for standard output. A single file without it goes into this directory.
    #[arg(required = true, value_name = "PATH... [OUT]")]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them, owners and attributes as far as possible.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    keep_going: KeepGoingArgs,
}

impl Get {
    pub(super) fn cage(&self) -> Option<Plan> {
        let plan = cage::reading(&[&self.image], &self.keys.files(), None)?;
        let (_, out) = self.places()?;
        if out == Path::new("-") {
            return Some(plan);
        }
        Some(cage::with_attributes(cage::with_outputs_in(plan, out)))
    }

    /// The files, and where they go.
    fn places(&self) -> Option<(&[OsString], &Path)> {
        match &self.paths[..] {
            [one] => Some((std::slice::from_ref(one), Path::new("."))),
            [sources @ .., out] => Some((sources, Path::new(out))),
            [] => None,
        }
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (sources, out) = self.places().ok_or_else(|| Failure::Usage("a path is missing".into()))?;
        let into_directory = path::is_directory(out);
        let to_stdout = out == Path::new("-");
        if sources.len() > 1 && !into_directory && !to_stdout {
            return Err(needs_directory(out));
        }
        if self.keep_going.keep_going.is_some() && !self.recursive {
            return Err(Failure::Usage("--keep-going needs --recursive".to_owned()));
        }
        if live::is_directory(&self.image) {
            self.keep_going.refuse_of_mount()?;
            return self.live(console, sources, out);
        }
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        let sources = image.matching(sources)?;
        if sources.len() > 1 && !into_directory && !to_stdout {
            return Err(needs_directory(out));
        }
        let mut sum = Done::default();
        for source in &sources {
            let done = match to_stdout {
                true => cat::print(console, &image, source),
                false => self.one((console, &mut sum), &image, source, out),
            };
            if let Err(failure) = done {
                console.complain(failure)?;
            }
        }
        // Standard output has contents, and nothing else.
        live::say(console, console.is_json() && !to_stdout, &sum)
    }

    /// Out of a mount, by the kernel: it has what programs wrote.
    fn live(&self, console: &mut Console<'_>, sources: &[OsString], out: &Path) -> Result<(), Failure> {
        let terms = out_of_mount::How { recursive: self.recursive, force: self.force };
        let mut sum = Done::default();
        for source in sources {
            let done = out_of_mount::get((console, &mut sum), (&self.image, source), out, terms);
            if let Err(failure) = done {
                console.complain(failure)?;
            }
        }
        live::say(console, console.is_json() && out != Path::new("-"), &sum)
    }

    fn one(
        &self,
        (console, sum): (&mut Console<'_>, &mut Done),
        image: &OpenImage,
        source: &OsStr,
        out: &Path,
    ) -> Result<(), Failure> {
        let failed = |error: &platfs::Error| image.failure(source.as_bytes(), error);
        let inode = image.find(source, true)?;
        let facts = image.volume.metadata(inode).map_err(|error| failed(&error))?;
        if facts.file_type == FileType::Directory {
            if !self.recursive {
                let subject = format!("{}: {}", image.name, Shown(source.as_bytes()));
                return Err(Failure::about(subject, "is a directory; --recursive copies it"));
            }
            return self.directory((console, sum), image, inode, &place(source, out)?);
        }
        let place = place(source, out)?;
        if !self.force && place.is_taken() {
            return Err(Failure::exists(Shown(place.path.as_os_str().as_bytes()), EXISTS));
        }
        spare(&[&self.image], &place.path).map_err(|error| outside(&place.path, error))?;
        let file = image.volume.open_file(inode).map_err(|error| failed(&error))?;
        copy_out(&file, &facts, (&place, self.force)).map_err(|problem| match problem {
            Problem::Inside(error) => failed(&error),
            Problem::Outside(error) => outside(&place.path, error),
        })?;
        live::add(sum, &Done { files: 1, bytes: facts.size, ..Done::default() });
        Ok(())
    }

    /// A directory, by the code of `export`: names of the image never lead out of the target.
    fn directory(
        &self,
        (console, sum): (&mut Console<'_>, &mut Done),
        image: &OpenImage,
        inode: InodeNumber,
        place: &OutputLocation,
    ) -> Result<(), Failure> {
        if place.is_taken() {
            return Err(outside(&place.path, "exists; directories are not replaced"));
        }
        export::name_left_behind(console, Some(place));
        let lacking = Lacking::of(&image.name);
        let counted = Counted::default();
        let done = export::tree_to_directory(image, (inode, self.keep_going), place, (&lacking, &counted));
        lacking.say(console)?;
        done?.lines().for_each(|line| console.warn(line));
        live::add(sum, &counted.done());
        Ok(())
    }
}

fn needs_directory(out: &Path) -> Failure {
    let out = Shown(out.as_os_str().as_bytes());
    Failure::Usage(format!("{out}: several files need an existing directory to go to"))
}

/// Where the copy of a file goes.
pub(super) fn place(source: &OsStr, out: &Path) -> Result<OutputLocation, Failure> {
    match Path::new(source).file_name() {
        Some(name) => OutputLocation::of_copy(out, name),
        None if path::is_directory(out) => {
            let what = format!("{}: has no name to be given to a copy", Shown(source.as_bytes()));
            return Err(Failure::Usage(what));
        }
        None => OutputLocation::of(out),
    }
    .map_err(|error| outside(out, error))
}

pub(super) fn outside(target: &Path, what: impl std::fmt::Display + 'static) -> Failure {
    Failure::about(Shown(target.as_os_str().as_bytes()), what)
}

/// Which side failed.
enum Problem {
    Inside(platfs::Error),
    Outside(io::Error),
}

impl From<platfs::Error> for Problem {
    fn from(error: platfs::Error) -> Self {
        Problem::Inside(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Problem::Outside(error)
    }
}

/// Writes a copy beside its place, with holes, permissions and times, and moves it there when it is
/// whole.
fn copy_out(
    file: &Reader<'_>,
    facts: &Metadata,
    (place, force): (&OutputLocation, bool),
) -> Result<(), Problem> {
    let output = Output::begin(place, facts.size, Privacy::Private, force)?;
    let fresh = output.file()?;
    copy_data(file, &fresh)?;
    // Set-id and sticky bits have no meaning for another owner.
    fresh.set_permissions(Permissions::from_mode(u32::from(facts.permissions & 0o777)))?;
    let times = FileTimes::new()
        .set_accessed(host_time(facts.times.access))
        .set_modified(host_time(facts.times.modify));
    fresh.set_times(times)?;
    output.finish()?;
    Ok(())
}

fn host_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let exact = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())));
    exact.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// Copies what is mapped; all else stays a hole.
fn copy_data(file: &Reader<'_>, to: &HostFile) -> Result<(), Problem> {
    let mut buffer = vec![0; CHUNK];
    let mut in_inode = true;
    for segment in file.segments() {
        let segment = segment?;
        in_inode = false;
        if matches!(segment.state, State::Mapped(_)) {
            let (start, len) = file.bytes_of(&segment);
            copy_range(file, to, start, start + len, &mut buffer)?;
        }
    }
    if in_inode {
        copy_range(file, to, 0, file.size(), &mut buffer)?;
    }
    Ok(())
}

fn copy_range(
    file: &Reader<'_>,
    to: &HostFile,
    start: u64,
    end: u64,
    buffer: &mut [u8],
) -> Result<(), Problem> {
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let Some(piece) = buffer.get_mut(..want) else { break };
        let count = file.read_at(at, piece)?;
        if count == 0 {
            break;
        }
        to.write_all_at(piece.get(..count).unwrap_or_default(), at)?;
        at += count as u64;
    }
    Ok(())
}
