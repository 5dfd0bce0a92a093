//! `plat get`: files out of an image, whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File as HostFile, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use ondisk::inode::{FileType, Timestamp};
use ondisk::units::InodeNumber;
use platfs::{Metadata, Reader, State};
use platfs_host::Privacy;

use super::{export, live};
use crate::console::{Console, Failure};
use crate::door::output::Output;
use crate::keys::KeyArgs;
use crate::reading::OpenImage;
use crate::text::Shown;

/// Directories below each other.
const DEPTH_MAX: usize = 1000;

/// Arguments of `plat get`.
#[derive(Args, Debug)]
pub struct Get {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or a directory of a mount.
    image: OsString,
    #[command(flatten)]
    keys: KeyArgs,
    /// Files in the image, and behind them, unless there is only one, where they go: a directory, or
    /// the name of a single file's copy. A single file without it goes into this directory.
    #[arg(required = true, value_name = "PATH... [OUT]")]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them, owners and attributes as far as possible.
    #[arg(short, long)]
    recursive: bool,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
}

impl Get {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (sources, out) = match &self.paths[..] {
            [one] => (std::slice::from_ref(one), Path::new(".")),
            [sources @ .., out] => (sources, Path::new(out)),
            [] => return Err(Failure::Usage("a path is missing".into())),
        };
        let into_directory = out.is_dir();
        if sources.len() > 1 && !into_directory {
            return Err(Failure::Usage(format!(
                "{}: several files need an existing directory to go to",
                Shown(out.as_os_str().as_bytes())
            )));
        }
        if live::is_directory(&self.image) {
            return self.live(console, sources, out);
        }
        let image = OpenImage::open_with(&self.image, &self.keys, console)?;
        for source in sources {
            let target = if into_directory { out.join(base_name(source)?) } else { out.to_owned() };
            if let Err(failure) = self.one(console, &image, source, &target) {
                console.complain(failure)?;
            }
        }
        Ok(())
    }

    /// Out of a mount, by the kernel: it has what programs wrote.
    fn live(&self, console: &mut Console<'_>, sources: &[OsString], out: &Path) -> Result<(), Failure> {
        for source in sources {
            let path = live::below(&self.image, source);
            let target = if out.is_dir() { out.join(base_name(source)?) } else { out.to_owned() };
            if let Err(failure) = self.one_live(&path, &target, 0) {
                console.complain(failure)?;
            }
        }
        Ok(())
    }

    fn one_live(&self, source: &Path, target: &Path, depth: usize) -> Result<(), Failure> {
        let failed = |error: io::Error| outside(source, error);
        // Only a link that was named is followed.
        let look = if depth == 0 { fs::metadata(source) } else { fs::symlink_metadata(source) };
        let facts = look.map_err(failed)?;
        let kind = facts.file_type();
        if (!self.force || kind.is_dir()) && fs::symlink_metadata(target).is_ok() {
            let what = if kind.is_dir() {
                "exists; directories are not replaced"
            } else {
                "exists; --force replaces it"
            };
            return Err(outside(target, what));
        }
        match () {
            () if kind.is_file() => file_live(source, &facts, target),
            () if kind.is_symlink() => {
                let link = fs::read_link(source).map_err(failed)?;
                std::os::unix::fs::symlink(link, target).map_err(|error| outside(target, error))
            }
            () if !kind.is_dir() => {
                Err(outside(source, "is neither a file, a directory nor a symbolic link"))
            }
            () if !self.recursive => Err(outside(source, "is a directory; --recursive copies it")),
            () if depth >= DEPTH_MAX => Err(outside(source, "lies too deep")),
            () => self.directory_live(source, &facts, target, depth),
        }
    }

    fn directory_live(
        &self,
        source: &Path,
        facts: &fs::Metadata,
        target: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| outside(source, error);
        let there = |error: io::Error| outside(target, error);
        fs::create_dir(target).map_err(there)?;
        for entry in fs::read_dir(source).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            self.one_live(&source.join(&name), &target.join(&name), depth + 1)?;
        }
        fs::set_permissions(target, Permissions::from_mode(facts.mode() & 0o777)).map_err(there)?;
        HostFile::open(target).and_then(|made| made.set_times(times_of(facts))).map_err(there)
    }

    fn one(
        &self,
        console: &mut Console<'_>,
        image: &OpenImage,
        source: &OsStr,
        target: &Path,
    ) -> Result<(), Failure> {
        let failed = |error: &platfs::Error| image.failure(source.as_bytes(), error);
        let inode = image.find(source, true)?;
        let facts = image.volume.metadata(inode).map_err(|error| failed(&error))?;
        if facts.file_type == FileType::Directory {
            if !self.recursive {
                let subject = format!("{}: {}", image.name, Shown(source.as_bytes()));
                return Err(Failure::about(subject, "is a directory; --recursive copies it"));
            }
            return directory(console, image, inode, target);
        }
        if !self.force && fs::symlink_metadata(target).is_ok() {
            return Err(outside(target, "exists; --force replaces it"));
        }
        let file = image.volume.open_file(inode).map_err(|error| failed(&error))?;
        copy_out(&file, &facts, target).map_err(|problem| match problem {
            Problem::Inside(error) => failed(&error),
            Problem::Outside(error) => outside(target, error),
        })
    }
}

/// A file of a mount beside its place, moved there when it is whole.
fn file_live(source: &Path, facts: &fs::Metadata, target: &Path) -> Result<(), Failure> {
    let mut from = HostFile::open(source).map_err(|error| outside(source, error))?;
    let mut copy = || {
        let output = Output::begin(target, facts.len(), Privacy::Private)?;
        let mut fresh = output.file()?;
        io::copy(&mut from, &mut fresh)?;
        fresh.set_permissions(Permissions::from_mode(facts.mode() & 0o777))?;
        fresh.set_times(times_of(facts))?;
        output.finish()
    };
    copy().map_err(|error: io::Error| outside(target, error))
}

fn times_of(facts: &fs::Metadata) -> FileTimes {
    match (facts.accessed(), facts.modified()) {
        (Ok(accessed), Ok(modified)) => FileTimes::new().set_accessed(accessed).set_modified(modified),
        _ => FileTimes::new(),
    }
}

/// A directory, by the code of `export`: names of the image never lead out of the target.
fn directory(
    console: &mut Console<'_>,
    image: &OpenImage,
    inode: InodeNumber,
    target: &Path,
) -> Result<(), Failure> {
    if fs::symlink_metadata(target).is_ok() {
        return Err(outside(target, "exists; directories are not replaced"));
    }
    let losses = export::tree_to_directory(image, inode, target)?;
    losses.lines().for_each(|line| console.warn(line));
    Ok(())
}

fn outside(target: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::about(Shown(target.as_os_str().as_bytes()), what)
}

/// The last name of a path as the user wrote it; the image has no say in where files go.
fn base_name(path: &OsStr) -> Result<&OsStr, Failure> {
    Path::new(path).file_name().ok_or_else(|| {
        Failure::Usage(format!("{}: has no name to be given to a copy", Shown(path.as_bytes())))
    })
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
fn copy_out(file: &Reader<'_>, facts: &Metadata, target: &Path) -> Result<(), Problem> {
    let output = Output::begin(target, facts.size, Privacy::Private)?;
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
