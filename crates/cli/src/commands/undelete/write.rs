//! Recovered files in a directory: whole, or not at all, and never outside of it.
//!
//! The directory is empty at the beginning, and stays open: every name below it is reached from there, component by
//! component, and through no link. Symbolic links are made when all else is there. Nobody knows who was allowed to
//! enter the directories of removed files: only the caller may enter those that are made here.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ondisk::inode::{FileType, TimeField};
use platfs_forensics::RawImage;
use platfs_forensics::removed::Removed;
use platfs_host::{Directory, Facts, Kind, Output, OutputLocation, Privacy};

use crate::console::Failure;
use crate::text::Shown;

/// Bytes that are copied at once.
const STEP: u64 = 1 << 20;
/// Longest name that hosts take.
const NAME_MAX: usize = 255;
/// The directory that files are recovered into.
pub(super) struct Target<'g> {
    root: Directory,
    /// Its path, for messages.
    shown: PathBuf,
    ground: &'g RawImage,
    /// Links that wait until all files are there: where they stand, and what they lead to.
    links: Vec<(PathBuf, Vec<u8>)>,
}

fn about(path: &Path, error: impl std::fmt::Display + 'static) -> Failure {
    Failure::about(Shown(path.as_os_str().as_bytes()), error)
}

impl<'g> Target<'g> {
    /// Facts of the directory that files go to.
    pub(super) fn facts(&self) -> io::Result<Facts> {
        self.root.facts()
    }

    /// Makes the directory, or takes an empty one.
    pub(super) fn new(shown: &Path, ground: &'g RawImage) -> Result<Self, Failure> {
        let root = match OutputLocation::through(shown) {
            Ok(OutputLocation { directory, name, .. }) => entered(&directory, &name),
            // A path that ends in no name, as `.` or `/`.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Directory::open(shown),
            Err(error) => Err(error),
        };
        let root = root.map_err(|error| about(shown, error))?;
        let first = root.entries().map_err(|error| about(shown, error))?.next();
        match first {
            None => Ok(Target { root, shown: shown.to_owned(), ground, links: Vec::new() }),
            Some(_) => Err(about(shown, "is not empty")),
        }
    }

    /// Recovers a file, and says where below the directory it is.
    pub(super) fn recover(&mut self, one: &Removed) -> Result<Vec<u8>, Failure> {
        let unnamed = vec![format!("inode-{}", one.inode.number()).into_bytes()];
        let paths = if one.paths.is_empty() { &unnamed } else { &one.paths };
        let mut first: Option<OutputLocation> = None;
        for path in paths {
            let place = self.place(path, one).map_err(|error| about(&self.shown, error))?;
            let done = match &first {
                Some(first) => first.directory.link(&first.name, &place.directory, &place.name),
                None => self.make(&place, one),
            };
            done.map_err(|error| about(&self.shown.join(&place.path), error))?;
            if one.inode.file_type() == Some(FileType::Symlink) {
                self.links.push((place.path.clone(), self.contents(one)?));
                return Ok(place.path.into_os_string().as_bytes().to_vec());
            }
            first.get_or_insert(place);
        }
        let path = first.map(|place| place.path).unwrap_or_default();
        Ok(path.into_os_string().as_bytes().to_vec())
    }

    /// Makes the directories above a name, and chooses a name that is free.
    fn place(&self, path: &[u8], one: &Removed) -> io::Result<OutputLocation> {
        let mut parts: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(harmless).collect();
        let name = parts.pop().unwrap_or_default();
        let (mut directory, mut path) = (self.root.try_clone()?, PathBuf::new());
        for part in &parts {
            let part = OsStr::from_bytes(part);
            directory = match directory.make_directory(part) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if directory.look(part)?.kind == Kind::Directory {
                        directory.enter(part)?
                    } else {
                        // A file has the name of a directory: what is below goes beside it.
                        path = PathBuf::new();
                        let beside = OsString::from(format!("inode-{}", one.inode.number()));
                        path.push(&beside);
                        directory = entered(&self.root, &beside)?;
                        continue;
                    }
                }
                made => made?,
            };
            path.push(part);
        }
        let name = free(&directory, &name, one)?;
        path.push(&name);
        Ok(OutputLocation { directory, name, path })
    }

    /// Makes a file whole before it has its name. Of a link only the name is taken.
    fn make(&self, place: &OutputLocation, one: &Removed) -> io::Result<()> {
        if one.inode.file_type() == Some(FileType::Symlink) {
            return place.directory.create(&place.name, 0o600).map(|_| ());
        }
        let above = place.directory.try_clone()?;
        let output = Output::below(above, &place.name, one.inode.size(), Privacy::Private)?;
        let mut file = output.file()?;
        self.fill(&mut file, one)?;
        file.set_len(one.inode.size())?;
        file.set_permissions(Permissions::from_mode(u32::from(one.inode.mode() & 0o777)))?;
        let modified = one.inode.time(TimeField::Modify).and_then(|time| {
            let seconds = u64::try_from(time.seconds).ok()?;
            Some(UNIX_EPOCH + Duration::new(seconds, time.nanoseconds))
        });
        file.set_modified(modified.unwrap_or_else(SystemTime::now))?;
        output.finish()
    }

    fn fill(&self, file: &mut File, one: &Removed) -> io::Result<()> {
        if let Some(bytes) = one.inside() {
            return file.write_all(&bytes);
        }
        let log2 = self.ground.geometry().block_size.log2();
        let mut buffer = Vec::new();
        for run in one.runs.iter().filter(|run| !run.unwritten) {
            let start = run.logical << log2;
            let len = (run.count << log2).min(one.inode.size().saturating_sub(start));
            file.seek(SeekFrom::Start(start))?;
            let mut done = 0;
            while done < len {
                let step = STEP.min(len - done);
                buffer.resize(usize::try_from(step).unwrap_or(0), 0);
                self.ground.device().read_at((run.start.0 << log2) + done, &mut buffer)?;
                file.write_all(&buffer)?;
                done += step;
            }
        }
        Ok(())
    }

    /// The target of a symbolic link.
    fn contents(&self, one: &Removed) -> Result<Vec<u8>, Failure> {
        if let Some(bytes) = one.inside() {
            return Ok(bytes);
        }
        let size = usize::try_from(one.inode.size().min(4096)).unwrap_or(0);
        let mut bytes = Vec::new();
        for run in &one.runs {
            let block = self.ground.block(run.start).map_err(|error| about(&self.shown, error))?;
            bytes.extend_from_slice(&block);
        }
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Puts the links in their places.
    pub(super) fn finish(self) -> Result<(), Failure> {
        for (place, target) in &self.links {
            let made = link(&self.root, place, target);
            made.map_err(|error| about(&self.shown.join(place), error))?;
        }
        Ok(())
    }
}

/// Makes a symbolic link in the place of the file that keeps its name.
fn link(root: &Directory, place: &Path, target: &[u8]) -> io::Result<()> {
    let name = place.file_name().unwrap_or_default();
    let above = root.descend(place.parent().unwrap_or(Path::new("")))?;
    above.remove_file(name)?;
    above.symlink(target, name)
}

/// A directory that is made if it is not there.
fn entered(above: &Directory, name: &OsStr) -> io::Result<Directory> {
    match above.make_directory(name) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => above.enter(name),
        made => made,
    }
}

/// A name that is free in a directory.
fn free(directory: &Directory, name: &[u8], one: &Removed) -> io::Result<OsString> {
    for attempt in 0..1_000 {
        let mut free = name.to_vec();
        if attempt > 0 {
            free.truncate(NAME_MAX - 30);
            free.extend(format!("~{}~{attempt}", one.inode.number()).into_bytes());
        }
        if !directory.has(OsStr::from_bytes(&free))? {
            return Ok(OsStr::from_bytes(&free).to_owned());
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "too many files of one name"))
}

/// A name that stays in its directory.
fn harmless(name: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> =
        name.iter().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { *byte }).take(NAME_MAX).collect();
    if matches!(&name[..], b"" | b"." | b"..") {
        name.insert(0, b'_');
        name.truncate(NAME_MAX);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_are() {
        assert_eq!(harmless(b".."), b"_..");
        assert_eq!(harmless(b"."), b"_.");
        assert_eq!(harmless(b""), b"_");
        assert_eq!(harmless(b"a/b\0c"), b"a_b_c");
        assert_eq!(harmless(&[b'x'; 300]).len(), 255);
        assert_eq!(harmless(b"plain name"), b"plain name");
    }
}
