//! Names that users give an image: a file or a block device, or a part of one.
//!
//! `disk.img` is all of it, `disk.img@part2` its second partition, `disk.img@part:root` the one that the GPT
//! calls `root`, `disk.img@1M` or `disk.img@0x100000` what begins at that byte. A file whose name really has
//! an `@` is meant by it. Excludes its other users (but for a writer's lock), and the addresses of object
//! stores.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use platfs::device::partitions::{Growth, Partition, TableError, grow, partitions, shrink};
use platfs::device::{Device, FileDevice, Window};
use platfs_host::{Kind, errno_of, open_named};

use crate::size::parse_size;
use crate::text::Shown;

/// Part of a file or block device that holds the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// A partition, by its number in the partition table.
    Partition(u32),
    /// A partition, by its name in a GPT.
    Named(String),
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

/// Reason for which a disk has no such part. The message is to be put behind the disk's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A directory.
    #[error("is a directory, not a file or block device")]
    Directory,
    /// A fifo, a socket, a character device.
    #[error("is a special file, not a file or block device")]
    Special,
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
    /// The disk has no partition of that name, or several.
    #[error("has {found} partitions with the name `{wanted}`; it has {known}")]
    NoSuchName {
        /// The name asked for.
        wanted: String,
        /// Number of partitions that have it.
        found: usize,
        /// Those there are.
        known: String,
    },
    /// No volume begins there; a number of a partition was meant.
    #[error(
        "byte {0} is no multiple of 512, so that no volume begins there; a partition is named with its number \
         (IMAGE@part2) or its name (IMAGE@part:NAME)"
    )]
    Unaligned(u64),
    /// The offset lies behind the end.
    #[error("byte {offset} lies behind its end, at {size}")]
    BehindEnd {
        /// The offset asked for.
        offset: u64,
        /// The size of the whole.
        size: u64,
    },
}

/// Numbers of Linux: ENXIO, EISDIR, EINVAL.
mod number {
    pub(super) const NO_DEVICE: i32 = 6;
    pub(super) const DIRECTORY: i32 = 21;
    pub(super) const INVALID: i32 = 22;
}

impl PartError {
    /// The number that Linux would give: that of the host, EINVAL for a table or a place that makes no sense and for a
    /// special file, ENXIO for a part that is not there.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            PartError::Io(error) | PartError::Table(TableError::Io(error)) => errno_of(error),
            PartError::Directory => number::DIRECTORY,
            PartError::Table(_) | PartError::Unaligned(_) | PartError::Special => number::INVALID,
            PartError::NoPartition { .. } | PartError::NoSuchName { .. } | PartError::BehindEnd { .. } => {
                number::NO_DEVICE
            }
        }
    }
}

impl ImageSpec {
    /// All of what a name names.
    #[must_use]
    pub fn whole(name: &OsStr) -> Self {
        ImageSpec { path: PathBuf::from(name), part: Part::Whole }
    }

    /// Takes a name apart. What follows an `@` only counts if there is no file of that whole name, and
    /// if it is `part` and a number, or a size.
    #[must_use]
    pub fn parse(name: &OsStr) -> Self {
        let whole = Self::whole(name);
        let bytes = name.as_bytes();
        let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return whole };
        if platfs_host::path::is_taken(name) {
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

    /// Opens the file or block device. Its kind is looked at first: opening a fifo would wait.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn file(&self, write: bool) -> Result<File, PartError> {
        match open_named(&self.path, write)? {
            (_, Some(file)) => Ok(file),
            (facts, None) if facts.kind == Kind::Directory => Err(PartError::Directory),
            (_, None) => Err(PartError::Special),
        }
    }

    /// Opens what is meant: to read, or to write with a lock against other writers of the whole file.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn open(&self, write: bool) -> Result<Arc<dyn Device>, PartError> {
        let file = self.file(write)?;
        let whole: Arc<dyn Device> =
            Arc::new(if write { FileDevice::locked(file)? } else { FileDevice::new(file)? });
        if self.part == Part::Whole {
            return Ok(whole);
        }
        let (start, len) = if write { self.place(&*whole)? } else { self.readable(&*whole)? };
        Ok(Arc::new(Window::new(whole, start, len)?))
    }

    /// First byte and length of the part of `whole` that is meant, all of which must be there.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn place(&self, whole: &dyn Device) -> Result<(u64, u64), PartError> {
        let partition = match &self.part {
            Part::Partition(number) => find(whole, *number)?,
            Part::Named(name) => find_named(whole, name)?,
            Part::Whole | Part::From(_) => return self.readable(whole),
        };
        partition.whole_on(whole)?;
        Ok((partition.start, partition.size))
    }

    /// First byte and length of the part of `whole` that is meant, as far as it is there: a disk may have been cut off.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn readable(&self, whole: &dyn Device) -> Result<(u64, u64), PartError> {
        let size = whole.size();
        match &self.part {
            Part::Whole => Ok((0, size)),
            Part::From(offset) if !offset.is_multiple_of(SECTOR) => Err(PartError::Unaligned(*offset)),
            Part::From(offset) if *offset >= size => Err(PartError::BehindEnd { offset: *offset, size }),
            Part::From(offset) => Ok((*offset, size - offset)),
            Part::Partition(number) => on(whole, &find(whole, *number)?),
            Part::Named(name) => on(whole, &find_named(whole, name)?),
        }
    }
}

fn on(whole: &dyn Device, partition: &Partition) -> Result<(u64, u64), PartError> {
    Ok((partition.start, partition.size_on(whole)?))
}

/// Plans a larger partition, for what a name means on a disk: up to the next one, or to the end.
///
/// # Errors
/// The name means no partition; see [`TableError`].
pub fn grown(spec: &ImageSpec, disk: &dyn Device) -> Result<Growth, PartError> {
    Ok(grow(disk, number_of(spec, disk)?)?)
}

/// Plans a smaller partition of at least `bytes` bytes, for what a name means on a disk. If it is the last one, less of the
/// disk is needed then.
///
/// # Errors
/// As [`grown`]; it is smaller already.
pub fn shrunk(spec: &ImageSpec, disk: &dyn Device, bytes: u64) -> Result<Growth, PartError> {
    Ok(shrink(disk, number_of(spec, disk)?, bytes)?)
}

fn number_of(spec: &ImageSpec, disk: &dyn Device) -> Result<u32, PartError> {
    match &spec.part {
        Part::Partition(number) => Ok(*number),
        Part::Named(name) => Ok(find_named(disk, name)?.number),
        Part::Whole | Part::From(_) => Err(TableError::NoTable.into()),
    }
}

/// Volumes begin where sectors do, on every disk.
const SECTOR: u64 = 512;

fn parse_part(part: &[u8]) -> Option<Part> {
    let text = std::str::from_utf8(part).ok()?;
    if let Some(name) = text.strip_prefix("part:") {
        return Some(Part::Named(name.to_owned()));
    }
    if let Some(number) = text.strip_prefix("part") {
        return number.parse().ok().map(Part::Partition);
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` would take a sign.
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(Part::From),
        None => parse_size(text).ok().map(Part::From),
    }
}

/// The partitions of a disk, for messages.
fn known(all: &[Partition], disk: &dyn Device) -> String {
    let words = all.iter().map(|partition| {
        let name = partition.name.iter().map(|name| Shown(name.as_bytes()).to_string());
        let cut = partition.whole_on(disk).is_err().then(|| "cut off".to_owned());
        let more: Vec<String> = name.chain(cut).collect();
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
        format!("part{}{more}", partition.number)
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn find(disk: &dyn Device, wanted: u32) -> Result<Partition, PartError> {
    let all = partitions(disk)?;
    let known = known(&all, disk);
    let found = all.into_iter().find(|partition| partition.number == wanted);
    found.ok_or(PartError::NoPartition { wanted, known })
}

fn find_named(disk: &dyn Device, wanted: &str) -> Result<Partition, PartError> {
    let all = partitions(disk)?;
    let known = known(&all, disk);
    let mut named: Vec<Partition> =
        all.into_iter().filter(|one| one.name.as_deref() == Some(wanted)).collect();
    match (named.pop(), named.len()) {
        (Some(one), 0) => Ok(one),
        (last, others) => Err(PartError::NoSuchName {
            wanted: Shown(wanted.as_bytes()).to_string(),
            found: others + usize::from(last.is_some()),
            known,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> (PathBuf, Part) {
        let spec = ImageSpec::parse(OsStr::new(name));
        (spec.path, spec.part)
    }

    #[test]
    fn what_is_neither_a_file_nor_a_block_device_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let number = |path: &std::path::Path| {
            ImageSpec::parse(path.as_os_str()).open(false).map(drop).unwrap_err().errno()
        };
        assert_eq!([number(&fifo), number(directory.path())], [number::INVALID, number::DIRECTORY]);
        assert_eq!(number(&directory.path().join("none")), 2);
    }

    #[test]
    fn parts_are_partitions_or_offsets_and_all_else_is_a_name() {
        assert_eq!(spec("a.img@part12"), ("a.img".into(), Part::Partition(12)));
        assert_eq!(spec("a@b.img@1M"), ("a@b.img".into(), Part::From(1 << 20)));
        assert_eq!(spec("a.img@0x100000"), ("a.img".into(), Part::From(1 << 20)));
        assert_eq!(spec("a.img@part:my root"), ("a.img".into(), Part::Named("my root".into())));
        let names = ["a.img", "@part1", "a.img@partition", "a.img@", "a.img@x", "a.img@part-1", "a.img@0x"];
        for name in names.into_iter().chain(["a.img@0x+1", "a.img@-1", "a.img@0x1G"]) {
            assert_eq!(spec(name), (name.into(), Part::Whole));
        }
    }
}
