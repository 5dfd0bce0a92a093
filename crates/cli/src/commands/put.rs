//! `plat put`: copies files into an image, each whole or not at all.
//!
//! Owns: which paths are meant, standard input, and what is said of a copy that ended early. Files and trees of the host
//! are taken by [`crate::bulk::take`].

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, Replace, Times, Volume};
use platfs_host::{Facts, Kind as HostKind, Opened};

use super::cage;
use super::into_mount;
use super::live::{self, Alone};
use crate::bulk::{Actor, Done, Job, Name, Terms, copy, take};
use crate::commands::replaced::EXISTS;
use crate::console::{Console, Failure};
use crate::larger;
use crate::owner::{Owner, parse_owner};
use crate::progress;
use crate::reading::OpenImage;
use crate::sandbox;
use crate::text::Shown;
use crate::writing::{self, Place, Source, Sources, Target};

/// Arguments of `plat put`.
#[derive(Args, Debug)]
pub struct Put {
    #[command(flatten)]
    image: Target,
    /// Files of the host (`-` is standard input), and behind them where they go in the image: a
    /// directory, or the name of a single file's copy.
    #[arg(required = true, value_name = "FILE... PATH")]
    paths: Vec<OsString>,
    /// Directories, too, with all that is in them. Owners, times, attributes, access control lists, capabilities, devices
    /// and links between files are kept.
    #[arg(short, long, visible_short_alias = 'a', short_alias = 'R', visible_alias = "archive")]
    recursive: bool,
    /// Existing files are replaced; directories never are.
    #[arg(short, long)]
    force: bool,
    /// The owner of all copies, by numbers or names of the image. Without it those of `--recursive` keep theirs, others get
    /// root, or in a mount who asks.
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_owner)]
    owner: Option<Owner>,
}

/// Files named at most of those that are left out.
const LISTED: usize = 50;
/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

fn host(path: &OsStr, what: impl std::fmt::Display + 'static) -> Failure {
    Failure::about(Shown(path.as_bytes()), what)
}

impl Put {
    pub(super) fn cage(&self) -> Option<sandbox::Plan> {
        let plan = cage::changing(self.image.name())?;
        let (_, sources) = self.paths.split_last()?;
        Some(cage::with_sources(plan, sources.iter().filter(|source| *source != "-").map(PathBuf::from)))
    }

    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        if let [path] = &self.paths[..] {
            return Err(no_target(self.image.name(), path));
        }
        if live::is_directory(self.image.name()) {
            let done = into_mount::put(console, self.image.name(), &self.paths, &self.how()?)?;
            return live::say(console, console.is_json(), &done);
        }
        let sum = Cell::new(Done::default());
        writing::change_towards(
            &self.image,
            (&self.paths, Sources::OfHost),
            console,
            |image, source, target| {
                if source == "-" && writing::is_directory(image, target) {
                    let target = Shown(target.as_bytes());
                    return Err(Failure::Usage(format!(
                        "standard input has no name for a file in {target}; give one: `plat put {} - {target}/NAME`",
                        image.name
                    )));
                }
                let is_directory = platfs_host::path::is_directory(source);
                let to = writing::target(image, &Source { path: source, is_directory }, target)?;
                let Place { directory, name } = writing::place(image, &to)?;
                let (done, copied) = self.one(image, source, &To { directory, name, path: &to });
                let mut all = sum.get();
                live::add(&mut all, &done);
                sum.set(all);
                copied.map_err(|failure| {
                    larger::remedied(failure, self.image.name(), || match source == "-" {
                        true => image.bytes(),
                        false => larger::bytes_of(source),
                    })
                })
            },
        )?;
        live::say(console, console.is_json(), &sum.get())
    }

    /// Copies one, and says what was done in any case.
    fn one(&self, image: &OpenImage, source: &OsStr, to: &To<'_>) -> (Done, Result<(), Failure>) {
        if source == "-" {
            return match self.stream(image, &mut progress::stdin(), to) {
                Ok(bytes) => (Done { files: 1, bytes, ..Done::default() }, Ok(())),
                Err(failure) => (Done::default(), Err(failure)),
            };
        }
        let (actor, watcher) = (Actor::root(), Alone);
        let job = Job::new(&image.volume, &actor, &watcher, Terms::ALL);
        let copied = self.take(image, &job, source, to);
        (job.done(), copied)
    }

    fn take(&self, image: &OpenImage, job: &Job<'_>, source: &OsStr, to: &To<'_>) -> Result<(), Failure> {
        let path = Path::new(source);
        let found = platfs_host::named(path).map_err(|error| host(source, error))?;
        if let Some(what) = refused_alone(&found).filter(|_| !self.recursive) {
            return Err(host(source, what));
        }
        let name = &Name::of(to.path.as_bytes(), to.name).map_err(|halt| writing::halted(image, halt))?;
        let target = copy::Target { directory: to.directory, name, path: to.path.as_bytes() };
        let options =
            take::Options { whole: self.recursive, force: self.force, owner: self.owner_in(image)? };
        let mut left_out = LeftOut::default();
        let note = &mut |path: &Path, why: &str| left_out.note(path, why);
        let taken = take::take(job, (path, found), target, options, note);
        taken.map_err(|halt| ended(writing::halted(image, halt), &job.done()))?;
        left_out.into_result(source)
    }

    /// The owner of the copies by the image's numbers, if one is named.
    fn owner_in(&self, image: &OpenImage) -> Result<Option<(u32, u32)>, Failure> {
        let owner = self.owner.as_ref().map(|owner| owner.of(image)).transpose()?;
        Ok(owner.map(|(uid, gid)| (uid.unwrap_or_default(), gid.unwrap_or_default())))
    }

    fn how(&self) -> Result<into_mount::How, Failure> {
        let owner = self.owner.as_ref().map(Owner::numbers).transpose()?;
        Ok(into_mount::How { recursive: self.recursive, force: self.force, owner })
    }

    /// Standard input, whose length is not known before its end; the bytes that it had.
    fn stream(&self, image: &OpenImage, data: &mut dyn Read, to: &To<'_>) -> Result<u64, Failure> {
        let (volume, To { directory, name, path }) = (&image.volume, *to);
        let failed = |error: Error| match error {
            Error::Exists if !self.force => {
                let subject = format!("{}: {}", image.name, Shown(path.as_bytes()));
                Failure::exists(subject, EXISTS)
            }
            error => image.failure(path.as_bytes(), &error),
        };
        match volume.lookup(directory, name) {
            Ok(_) if !self.force => return Err(failed(Error::Exists)),
            Ok(_) | Err(Error::NotFound) => {}
            // A directory that can't be read takes no name: nothing is written for it.
            Err(error) => return Err(failed(error)),
        }
        let now = volume.now();
        let times = Times { access: now, modify: now, change: now, create: Some(now) };
        let (uid, gid) = self.owner_in(image)?.unwrap_or_default();
        let attributes = Attributes { permissions: 0o644, uid, gid, times };
        let new = NewInode { kind: Kind::File, attributes, xattrs: &[] };
        let (number, _pin) = volume.create_unnamed(directory, &new).map_err(failed)?;
        let mut writer = volume.writer(number, 0).map_err(failed)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        loop {
            let count = fill(data, &mut buffer).map_err(|error| host(OsStr::new("-"), error))?;
            let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else { break };
            writer.write_all_at(at, piece).map_err(failed)?;
            at += count as u64;
        }
        drop(writer);
        volume.inode(number).set_times(Some(now), Some(now)).map_err(failed)?;
        name_it(volume, number, directory, name, self.force).map_err(failed)?;
        Ok(at)
    }
}

/// A line that names one path behind the image: where it goes is missing, or the image.
fn no_target(image: &OsStr, path: &OsStr) -> Failure {
    let (image, shown) = (Shown(image.as_bytes()), Shown(path.as_bytes()));
    // A path of an image begins with a slash, and seldom leads to anything on the host.
    let is_inside = path.as_bytes().starts_with(b"/") && !platfs_host::path::is_there(path);
    let name = Path::new(path).file_name().filter(|_| path != "-").unwrap_or(OsStr::new("NAME"));
    Failure::Usage(match is_inside {
        false => format!(
            "where the copy goes is missing, it comes last: `plat put {image} {shown} /{}`",
            Shown(name.as_bytes())
        ),
        true => format!("the image is missing, it comes first: `plat put IMAGE {image} {shown}`"),
    })
}

/// Where a copy goes.
#[derive(Clone, Copy)]
struct To<'a> {
    directory: InodeNumber,
    name: &'a [u8],
    /// All of it, for messages.
    path: &'a OsStr,
}

/// Why what was opened is copied only with all that belongs to it.
pub(super) fn refused_alone((facts, opened): &(Facts, Opened)) -> Option<&'static str> {
    match opened {
        Opened::Directory(_) => Some("is a directory; --recursive copies it"),
        Opened::Other if facts.kind != HostKind::Fifo => {
            Some("is neither a file, a directory nor a symbolic link; --recursive copies it")
        }
        _ => None,
    }
}

/// A failure in the middle, with how far the copies went.
fn ended(failure: Failure, done: &Done) -> Failure {
    match (failure, done.files + done.directories) {
        (Failure::Failed(why), made) if made > 0 => Failure::Failed(why.and(format_args!(
            "{} files and {} directories before it are copied, it and what follows in the order of names are not",
            done.files, done.directories
        ))),
        (failure, _) => failure,
    }
}

/// Files of a source that could not be copied: the first one, and their number.
#[derive(Default)]
pub(super) struct LeftOut {
    lines: String,
    count: usize,
}

impl LeftOut {
    pub(super) fn note(&mut self, path: &Path, why: &str) {
        self.count += 1;
        if self.count <= LISTED {
            let path = Shown(path.as_os_str().as_bytes());
            // To a text nothing fails to be written.
            let _ = write!(self.lines, "\n  {path}: {why}");
        }
    }

    /// A failure that lists it, if there is anything.
    pub(super) fn into_result(self, source: &OsStr) -> Result<(), Failure> {
        let LeftOut { mut lines, count } = self;
        if count == 0 {
            return Ok(());
        }
        if count > LISTED {
            let _ = write!(lines, "\n  and {} more", count - LISTED);
        }
        Err(host(source, format!("{count} left out, all else is copied:{lines}")))
    }
}

/// As much as the buffer holds, less only at the end.
fn fill(data: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match data.read(rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Gives a whole file its name, in place of what had it.
fn name_it(
    volume: &Volume,
    number: InodeNumber,
    directory: InodeNumber,
    name: &[u8],
    force: bool,
) -> platfs::Result<()> {
    match volume.link(number, directory, name) {
        Err(Error::Exists) if force => {}
        done => return done,
    }
    let existing = volume.lookup(directory, name)?;
    if volume.metadata(existing)?.file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    let beside = format!(".plat-put-{number}");
    volume.link(number, directory, beside.as_bytes())?;
    volume.rename(directory, beside.as_bytes(), directory, name, Replace::Yes)
}
