//! From what a user calls an image to a device: a file, a block device, or a part of either.
//!
//! `disk.img` is all of it, `disk.img@part2` its second partition, `disk.img@1M` what begins there.
//! A file whose name really has an `@` is meant by it. Excludes what is on the device.

mod lookalike;
mod partitions;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use platfs::device::{Device, FileDevice, Window};

use crate::size::parse_size;
use crate::text::Shown;

pub use lookalike::lookalike;
pub use partitions::{Partition, TableError, partitions};

/// Which part of a file or block device is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// A partition, by its number in the partition table.
    Partition(u32),
    /// From a byte to the end.
    From(u64),
}

/// An image as named by the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSpec {
    /// The file or block device.
    pub path: PathBuf,
    /// The part of it.
    pub part: Part,
}

/// Why an image can't be opened. The message does not repeat the image's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Something else than a file or block device.
    #[error("is {0}, not a file or block device")]
    Kind(&'static str),
    /// Somebody writes it.
    #[error("is being written by another program")]
    InUse,
    /// The partition can't be found.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The disk has no such partition.
    #[error("has no partition {wanted}; it has {known}")]
    NoPartition {
        /// The number asked for.
        wanted: u32,
        /// Those there are.
        known: String,
    },
    /// The offset lies behind the end.
    #[error("byte {offset} lies behind its end, at {size}")]
    BehindEnd {
        /// The offset asked for.
        offset: u64,
        /// The size of the whole.
        size: u64,
    },
}

impl ImageSpec {
    /// Takes a name apart. What follows an `@` only counts if there is no file of that whole name, and
    /// if it is `part` and a number, or a size.
    #[must_use]
    pub fn parse(name: &OsStr) -> Self {
        let whole = ImageSpec { path: PathBuf::from(name), part: Part::Whole };
        let bytes = name.as_bytes();
        let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return whole };
        if fs::symlink_metadata(name).is_ok() {
            return whole;
        }
        let (path, part) = (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
        match parse_part(part) {
            Some(part) if !path.is_empty() => {
                ImageSpec { path: PathBuf::from(OsStr::from_bytes(path)), part }
            }
            _ => whole,
        }
    }

    /// Opens the device for reading, or for reading and writing; nothing is created or cut.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn open(&self, write: bool) -> Result<Arc<dyn Device>, ImageError> {
        let file = open_file(&self.path, write)?;
        if write {
            lock(&file)?;
        }
        self.part_of(file)
    }

    fn part_of(&self, file: File) -> Result<Arc<dyn Device>, ImageError> {
        let whole: Arc<dyn Device> = Arc::new(FileDevice::new(file)?);
        let size = whole.size();
        let (start, len) = match self.part {
            Part::Whole => return Ok(whole),
            Part::From(offset) if offset >= size => return Err(ImageError::BehindEnd { offset, size }),
            Part::From(offset) => (offset, size - offset),
            Part::Partition(number) => find(&partitions(&*whole)?, number)?,
        };
        Ok(Arc::new(Window::new(whole, start, len)?))
    }
}

fn parse_part(part: &[u8]) -> Option<Part> {
    let text = std::str::from_utf8(part).ok()?;
    match text.strip_prefix("part") {
        Some(number) => number.parse().ok().map(Part::Partition),
        None => parse_size(text).ok().map(Part::From),
    }
}

fn find(all: &[Partition], wanted: u32) -> Result<(u64, u64), ImageError> {
    if let Some(found) = all.iter().find(|partition| partition.number == wanted) {
        return Ok((found.start, found.size));
    }
    let known: Vec<String> = all.iter().map(|partition| format!("part{}", partition.number)).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(ImageError::NoPartition { wanted, known })
}

/// Opens a regular file or block device. Its kind is looked at first: opening a fifo would wait.
fn open_file(path: &Path, write: bool) -> Result<File, ImageError> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(OpenOptions::new().read(true).write(write).open(path)?);
    }
    Err(ImageError::Kind(if kind.is_dir() { "a directory" } else { "a special file" }))
}

/// Takes a lock that is held until the file is closed: two writers would destroy each other's work.
/// A writer that has just ended may hold it a moment longer, by a process it started.
fn lock(file: &File) -> Result<(), ImageError> {
    for _ in 0..25 {
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            // Where the host can't lock, nobody else can either.
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(ImageError::InUse)
}

/// Opens an image for reading.
///
/// # Errors
/// See [`ImageError`].
pub fn open_read(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    ImageSpec::parse(name).open(false)
}

/// Opens an existing image, or a part of one, to be written in place.
///
/// # Errors
/// See [`ImageError`].
pub fn open_write(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    ImageSpec::parse(name).open(true)
}

/// As [`open_write`], for a caller that has the lock on the image already.
///
/// # Errors
/// See [`ImageError`].
pub fn open_write_locked(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    let spec = ImageSpec::parse(name);
    let file = open_file(&spec.path, true)?;
    spec.part_of(file)
}

/// An image's name for messages.
#[must_use]
pub fn shown(name: &OsStr) -> Shown<'_> {
    Shown(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn spec(name: &str) -> (PathBuf, Part) {
        let spec = ImageSpec::parse(OsStr::new(name));
        (spec.path, spec.part)
    }

    #[test]
    fn parts_are_partitions_or_offsets_and_all_else_is_a_name() {
        assert_eq!(spec("a.img@part12"), ("a.img".into(), Part::Partition(12)));
        assert_eq!(spec("a@b.img@1M"), ("a@b.img".into(), Part::From(1 << 20)));
        for name in ["a.img", "@part1", "a.img@partition", "a.img@", "a.img@x", "a.img@part-1"] {
            assert_eq!(spec(name), (name.into(), Part::Whole));
        }
    }

    #[test]
    fn a_file_with_an_at_in_its_name_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk@part1");
        File::create(&path).unwrap().write_all(&[7; 512]).unwrap();
        assert_eq!(ImageSpec::parse(path.as_os_str()).part, Part::Whole);
        let mut with_offset = path.into_os_string();
        with_offset.push("@500");
        let device = open_read(&with_offset).unwrap();
        assert_eq!(device.size(), 12);
    }

    #[test]
    fn what_is_no_device_is_told() {
        let error = |name: &str| match open_read(OsStr::new(name)) {
            Ok(_) => panic!("{name} opened"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error("/"), "is a directory, not a file or block device");
        assert_eq!(error("/dev/null"), "is a special file, not a file or block device");
        assert!(error("/nowhere@part1").contains("No such file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = |part: &str| format!("{}@{part}", file.path().display());
        assert_eq!(error(&name("1")), "byte 1 lies behind its end, at 0");
        assert!(error(&name("part1")).contains("no partition table"));
    }
}
