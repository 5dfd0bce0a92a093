//! First and last steps of every command that changes an image in place: open it alone, find
//! directories and names, bring everything to disk (I19).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use clap::Args;
use ondisk::features::Compat;
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Error, OpenOptions, Volume, Walk, WriteOrder};

use crate::bulk::Halt;
use crate::clock;
use crate::console::{Console, Failure};
use crate::door;
use crate::image;
use crate::larger;
use crate::reading::{OpenImage, not_writable};
use crate::text::Shown;
use platfs_open::precheck::{self, When};

/// A file or directory that goes to another place.
pub struct Source<'s> {
    /// Its path, of the image or of the host.
    pub path: &'s OsStr,
    /// It is a directory, which may become one whose name ends with a slash.
    pub is_directory: bool,
}

impl<'s> Source<'s> {
    /// Of the image itself.
    #[must_use]
    pub fn inside(image: &OpenImage, path: &'s OsStr) -> Self {
        Source { path, is_directory: is_directory(image, path) }
    }
}

/// A directory of an image and a name in it.
pub struct Place<'p> {
    /// The directory.
    pub directory: InodeNumber,
    /// The last name of the path.
    pub name: &'p [u8],
}

/// The image that a command changes.
#[derive(Args, Debug)]
pub struct Target {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`. Or the first path in a mount by
    /// `plat mount`, as all others then are.
    image: OsString,
    /// Checks the whole volume first, and changes nothing if it is not sound. Without this option it is checked for what
    /// would have the change overwrite other files.
    #[arg(long)]
    check_first: bool,
    /// Checks nothing first. An image made to deceive can have the change overwrite other files.
    #[arg(long, conflicts_with = "check_first")]
    no_check_first: bool,
}

impl Target {
    /// The image as it was named.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.image
    }

    /// Adds the remedy to a failure of a full volume. Commands that bring much have added one with their size before.
    fn remedied(&self, failure: Failure) -> Failure {
        larger::remedied(failure, &self.image, || 0)
    }
}

/// Opens an image alone for writing, does something with it, and closes it again: whatever was done
/// before a failure is brought to disk in order, each change whole or not at all.
///
/// # Errors
/// An image that can't be written or is in use; one that was to be sound and is not; what `work` says; a failed write.
pub fn change(
    target: &Target,
    console: &mut Console<'_>,
    work: impl FnOnce(&OpenImage, &mut Console<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    change_opened(target, open(target, false)?, console, work)
}

/// As [`change`], for work that takes long: a volume without a journal is written by soft updates, so that it needs no
/// check if the work is interrupted.
///
/// # Errors
/// As [`change`].
pub fn change_in_order(
    target: &Target,
    console: &mut Console<'_>,
    work: impl FnOnce(&OpenImage, &mut Console<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    change_opened(target, open(target, true)?, console, work)
}

fn change_opened(
    target: &Target,
    image: OpenImage,
    console: &mut Console<'_>,
    work: impl FnOnce(&OpenImage, &mut Console<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let done = work(&image, console);
    let OpenImage { volume, name } = image;
    volume.space().damage().iter().for_each(|wrong| console.warn(format_args!("{name}: {wrong}")));
    let closed = volume.close().map_err(|error| Failure::about(name, error));
    done.and(closed).map_err(|failure| target.remedied(failure))
}

/// As [`change`], one path after the other: the failure of one is reported, and the others go on.
///
/// # Errors
/// As [`change`]; the output.
pub fn change_each(
    target: &Target,
    paths: &[OsString],
    console: &mut Console<'_>,
    work: impl Fn(&OpenImage, &OsStr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    change(target, console, |image, console| {
        for path in &image.matching(paths)? {
            if let Err(failure) = work(image, path) {
                console.complain(target.remedied(failure))?;
            }
        }
        Ok(())
    })
}

/// The side on which the sources of a command lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// In the image: they may be patterns, or names as they are printed.
    OfImage,
    /// On the host, whose shell expands patterns.
    OfHost,
}

/// As [`change_each`], for commands whose last path is where the others go: a directory, if they
/// are several. `work` gets the image, a path and the last path.
///
/// # Errors
/// As [`change_each`]; fewer than two paths; several for what is no directory.
pub fn change_towards(
    volume: &Target,
    (paths, side): (&[OsString], Sources),
    console: &mut Console<'_>,
    work: impl Fn(&OpenImage, &OsString, &OsString) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let [sources @ .., target] = paths else {
        return Err(Failure::Usage("a path is missing".into()));
    };
    change(volume, console, |image, console| {
        let sources = match side {
            Sources::OfImage => image.matching(sources)?,
            Sources::OfHost => sources.to_vec(),
        };
        if sources.len() > 1 && !is_directory(image, target) {
            let subject = format!("{}: {}", image.name, Shown(target.as_bytes()));
            return Err(Failure::about(subject, "several files need an existing directory to go to"));
        }
        for source in &sources {
            if let Err(failure) = work(image, source, target) {
                console.complain(volume.remedied(failure))?;
            }
        }
        Ok(())
    })
}

/// The failure of work on many files of an image.
#[must_use]
pub fn halted(image: &OpenImage, halt: Halt) -> Failure {
    match halt {
        Halt::At { path, error } => image.failure(&path, &error),
        halt => Failure::about(&image.name, halt),
    }
}

fn open(target: &Target, in_order: bool) -> Result<OpenImage, Failure> {
    let shown = image::shown(target.name()).to_string();
    clock::source_date_epoch()?;
    let device = door::open_write(target.name()).map_err(|error| Failure::about(&shown, error))?;
    let when = When::of(target.check_first, target.no_check_first);
    precheck::sound(when, &device, &shown, platfs_image::clock::now())
        .map_err(|why| Failure::about(&shown, why))?;
    let now = clock::now();
    let seed = now.seconds.cast_unsigned().rotate_left(32) ^ u64::from(now.nanoseconds);
    // A journal on another device can't be written; without it the image is marked until it is in order again.
    let raw = platfs::read_superblock(&*device).ok();
    let elsewhere = raw.is_some_and(|raw| raw.s_journal_inum.get() == 0);
    let bare = raw.is_some_and(|raw| raw.s_feature_compat.get() & Compat::HAS_JOURNAL.bits() == 0);
    let options = OpenOptions::new().write(true).now(now).seed(seed);
    let options = match bare && in_order {
        true => options.ordering(WriteOrder::Softdep),
        false => options.unordered(elsewhere),
    };
    let volume = Volume::open(Arc::clone(&device), &options)
        .map_err(|error| Failure::about(&shown, not_writable(&*device, &shown, &error)))?;
    Ok(OpenImage { volume, name: shown })
}

/// The directory and the name that a path of an image means; slashes at its end do not count.
///
/// # Errors
/// A directory that does not exist, a path without a name.
pub fn place<'p>(image: &OpenImage, path: &'p OsStr) -> Result<Place<'p>, Failure> {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let bytes = bytes.get(..end).unwrap_or_default();
    let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = bytes.split_at(at);
    if matches!(name, b"" | b"." | b"..") {
        let error = Error::Invalid("the path has no name that can be changed".into());
        return Err(image.failure(path.as_bytes(), &error));
    }
    Ok(Place { directory: image.find(OsStr::from_bytes(directory), true)?, name })
}

/// Returns true if a path of an image leads to a directory.
#[must_use]
pub fn is_directory(image: &OpenImage, path: &OsStr) -> bool {
    let found = image.volume.resolve(path.as_bytes()).and_then(|inode| image.volume.metadata(inode));
    found.is_ok_and(|facts| facts.file_type == FileType::Directory)
}

/// Where something goes that is to have the name of `source`: into `target` if that is a directory,
/// else exactly there.
///
/// # Errors
/// A slash at its end, which says that it is a directory, and it is none.
pub fn target(image: &OpenImage, source: &Source<'_>, target: &OsStr) -> Result<OsString, Failure> {
    if target.as_bytes().ends_with(b"/") && !source.is_directory {
        image.find(target, true)?;
    }
    let source = source.path;
    if !is_directory(image, target) {
        return Ok(target.to_owned());
    }
    let source = source.as_bytes();
    let end = source.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let source = source.get(..end).unwrap_or_default();
    let name = source.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Ok(OsString::from_vec(crate::reading::joined(target.as_bytes(), name)))
}

/// Everything in a directory and below, a directory before what is in it, each as (path, inode).
///
/// # Errors
/// A directory that can't be read, or is met for the second time.
pub fn tree(
    image: &OpenImage,
    path: &[u8],
    inode: InodeNumber,
    mut work: impl FnMut(&[u8], InodeNumber) -> Result<(), Failure>,
) -> Result<(), Failure> {
    work(path, inode)?;
    let mut walk = Walk::new(&image.volume);
    let enter = |walk: &mut Walk<'_>, name: &[u8], shown: &[u8], inode| match walk.enter(name, inode) {
        Ok(None) | Err(Error::NotDirectory) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(image.failure(shown, &error)),
    };
    enter(&mut walk, path, path, inode)?;
    while walk.depth() > 0 {
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        let path = crate::reading::joined(walk.path(), &entry.name);
        work(&path, entry.inode)?;
        if walk.is_directory(&entry).map_err(|error| image.failure(&path, &error))? {
            enter(&mut walk, &entry.name, &path, entry.inode)?;
        }
    }
    Ok(())
}
