//! Recovered files in a directory: whole, or not at all, and never outside of it.
//!
//! The directory is empty at the beginning, and symbolic links are made when all else is there: no path can lead
//! through one.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ondisk::inode::{FileType, TimeField};
use platfs_forensics::Ground;
use platfs_forensics::removed::Removed;

use crate::console::Failure;
use crate::text::Shown;

/// Bytes that are copied at once.
const STEP: u64 = 1 << 20;
/// Longest name that hosts take.
const NAME_MAX: usize = 255;
/// Names of files that are not whole yet.
const UNFINISHED: &str = ".plat-undelete-unfinished";

/// The directory that files are recovered into.
pub(super) struct Target<'g> {
    root: PathBuf,
    ground: &'g Ground,
    /// Links that wait until all files are there: where they stand, and what they lead to.
    links: Vec<(PathBuf, Vec<u8>)>,
}

fn about(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::about(Shown(path.as_os_str().as_bytes()), error)
}

impl<'g> Target<'g> {
    /// Makes the directory, or takes an empty one.
    pub(super) fn new(root: &Path, ground: &'g Ground) -> Result<Self, Failure> {
        match fs::create_dir(root) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(root).map_err(|error| about(root, error))?;
                if entries.next().is_some() {
                    return Err(about(root, "is not empty"));
                }
            }
            done => done.map_err(|error| about(root, error))?,
        }
        Ok(Target { root: root.to_owned(), ground, links: Vec::new() })
    }

    /// Recovers a file, and says where below the directory it is.
    pub(super) fn recover(&mut self, one: &Removed) -> Result<Vec<u8>, Failure> {
        let unnamed = vec![format!("inode-{}", one.inode.number()).into_bytes()];
        let paths = if one.paths.is_empty() { &unnamed } else { &one.paths };
        let mut first: Option<PathBuf> = None;
        for path in paths {
            let place = self.place(path, one).map_err(|error| about(&self.root, error))?;
            let done = match &first {
                Some(first) => fs::hard_link(self.root.join(first), self.root.join(&place)),
                None => self.make(&self.root.join(&place), one),
            };
            done.map_err(|error| about(&self.root.join(&place), error))?;
            if one.inode.file_type() == Some(FileType::Symlink) {
                self.links.push((self.root.join(&place), self.contents(one)?));
                return Ok(place.into_os_string().as_bytes().to_vec());
            }
            first.get_or_insert(place);
        }
        Ok(first.unwrap_or_default().into_os_string().as_bytes().to_vec())
    }

    /// Makes the directories above a name, and chooses a name that is free.
    fn place(&self, path: &[u8], one: &Removed) -> io::Result<PathBuf> {
        let mut parts: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(harmless).collect();
        let name = parts.pop().unwrap_or_default();
        let mut place = PathBuf::new();
        for part in &parts {
            place.push(OsStr::from_bytes(part));
            let full = self.root.join(&place);
            match fs::create_dir(&full) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if !fs::symlink_metadata(&full)?.is_dir() {
                        // A file has the name of a directory: what is below goes beside it.
                        place = PathBuf::from(format!("inode-{}", one.inode.number()));
                        fs::create_dir_all(self.root.join(&place))?;
                    }
                }
                done => done?,
            }
        }
        for attempt in 0..1_000 {
            let mut free = name.clone();
            if attempt > 0 {
                free.truncate(NAME_MAX - 30);
                free.extend(format!("~{}~{attempt}", one.inode.number()).into_bytes());
            }
            let whole = place.join(OsStr::from_bytes(&free));
            match fs::symlink_metadata(self.root.join(&whole)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(whole),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "too many files of one name"))
    }

    /// Makes a file whole under another name first. Of a link only the name is taken.
    fn make(&self, place: &Path, one: &Removed) -> io::Result<()> {
        if one.inode.file_type() == Some(FileType::Symlink) {
            return File::create_new(place).map(|_| ());
        }
        let unfinished = self.root.join(UNFINISHED);
        let made = self.write(&unfinished, one).and_then(|()| fs::rename(&unfinished, place));
        if made.is_err() {
            // What is left of it would look like a file; the failure itself is what counts.
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    fn write(&self, place: &Path, one: &Removed) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(place)?;
        self.fill(&mut file, one)?;
        file.set_len(one.inode.size())?;
        file.set_permissions(Permissions::from_mode(u32::from(one.inode.mode() & 0o777)))?;
        let modified = one.inode.time(TimeField::Modify).and_then(|time| {
            let seconds = u64::try_from(time.seconds).ok()?;
            Some(UNIX_EPOCH + Duration::new(seconds, time.nanoseconds))
        });
        file.set_modified(modified.unwrap_or_else(SystemTime::now))
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
            let block = self.ground.block(run.start).map_err(|error| about(&self.root, error))?;
            bytes.extend_from_slice(&block);
        }
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Puts the links in their places.
    pub(super) fn finish(self) -> Result<(), Failure> {
        for (place, target) in &self.links {
            let made = fs::remove_file(place)
                .and_then(|()| std::os::unix::fs::symlink(OsStr::from_bytes(target), place));
            made.map_err(|error| about(place, error))?;
        }
        Ok(())
    }
}

/// A name that stays in its directory.
fn harmless(name: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> =
        name.iter().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { *byte }).take(NAME_MAX).collect();
    if matches!(&name[..], b"" | b"." | b"..") || name.starts_with(UNFINISHED.as_bytes()) {
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
