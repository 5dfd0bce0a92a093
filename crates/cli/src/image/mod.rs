//! From what a user calls an image to a device: a file, a block device, or a part of either.
//!
//! `disk.img` is all of it, `disk.img@part2` its second partition, `disk.img@part:root` the one that the GPT
//! calls `root`, `disk.img@1M` or `disk.img@0x100000` what begins at that byte. A file whose name really has
//! an `@` is meant by it. Excludes what is on the device, and opening it to write: that is the door's.

mod user;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platfs::device::{Device, FileDevice, Window};

use crate::size::parse_size;
use crate::stores;
use crate::text::Shown;

use platfs::device::partitions::{Growth, Partition, TableError, grow, partitions};
pub use user::User;

/// Which part of a file or block device is meant.
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
    /// No such file, and what stands behind its `@` is no part of one.
    #[error(
        "no such file, and `{0}` names no part: IMAGE@part2 is the second partition, IMAGE@part:NAME the one \
         with that name, IMAGE@1M what begins at that byte"
    )]
    NoPart(String),
    /// Another program uses it in a conflicting way.
    #[error("is in use: {0}")]
    InUse(User),
    /// A change of the volume was cut off.
    #[error(
        "a change of it was cut off: the same command takes it back and begins again; or `plat check --undo-from {0} \
         IMAGE` takes it back"
    )]
    Unfinished(String),
    /// A volume of an object store.
    #[error(transparent)]
    Store(#[from] platfs_store::Error),
    /// The command works in a file or block device.
    #[error(
        "is in an object store, and this command needs a file: `plat pull` makes one, `plat push` brings it back"
    )]
    Remote,
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
        /// How many have it.
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

impl ImageSpec {
    /// Takes a name apart. What follows an `@` only counts if there is no file of that whole name, and
    /// if it is `part` and a number, or a size.
    #[must_use]
    pub fn parse(name: &OsStr) -> Self {
        let whole = ImageSpec { path: PathBuf::from(name), part: Part::Whole };
        let bytes = name.as_bytes();
        let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return whole };
        if stores::is_meant(name) || fs::symlink_metadata(name).is_ok() {
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

    /// First byte and length of the part of `whole` that is meant.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn place(&self, whole: &dyn Device) -> Result<(u64, u64), ImageError> {
        let size = whole.size();
        match &self.part {
            Part::Whole => Ok((0, size)),
            Part::From(offset) if !offset.is_multiple_of(SECTOR) => Err(ImageError::Unaligned(*offset)),
            Part::From(offset) if *offset >= size => Err(ImageError::BehindEnd { offset: *offset, size }),
            Part::From(offset) => Ok((*offset, size - offset)),
            Part::Partition(number) => find(&partitions(whole)?, *number),
            Part::Named(name) => find_named(&partitions(whole)?, name),
        }
    }
}

/// Plans a larger partition, for what a name means on a disk: up to the next one, or to the end.
///
/// # Errors
/// The name means no partition; see [`TableError`].
pub fn grown(spec: &ImageSpec, disk: &dyn Device) -> Result<Growth, ImageError> {
    let number = match &spec.part {
        Part::Partition(number) => *number,
        Part::Named(name) => {
            let all = partitions(disk)?;
            let (start, _) = find_named(&all, name)?;
            all.iter().find(|one| one.start == start).map_or(0, |one| one.number)
        }
        Part::Whole | Part::From(_) => return Err(TableError::NoTable.into()),
    };
    Ok(grow(disk, number)?)
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
fn known(all: &[Partition]) -> String {
    let words = all.iter().map(|partition| match &partition.name {
        Some(name) => format!("part{} ({})", partition.number, Shown(name.as_bytes())),
        None => format!("part{}", partition.number),
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn find(all: &[Partition], wanted: u32) -> Result<(u64, u64), ImageError> {
    let found = all.iter().find(|partition| partition.number == wanted);
    let found = found.map(|partition| (partition.start, partition.size));
    found.ok_or_else(|| ImageError::NoPartition { wanted, known: known(all) })
}

fn find_named(all: &[Partition], wanted: &str) -> Result<(u64, u64), ImageError> {
    let named: Vec<&Partition> = all.iter().filter(|one| one.name.as_deref() == Some(wanted)).collect();
    match named[..] {
        [one] => Ok((one.start, one.size)),
        _ => Err(ImageError::NoSuchName {
            wanted: Shown(wanted.as_bytes()).to_string(),
            found: named.len(),
            known: known(all),
        }),
    }
}

/// Opens a regular file or block device. Its kind is looked at first: opening a fifo would wait. Only the
/// door opens to write.
pub(crate) fn open_file(spec: &ImageSpec, write: bool) -> Result<File, ImageError> {
    if stores::is_meant(spec.path.as_os_str()) {
        return Err(ImageError::Remote);
    }
    let kind = match fs::metadata(&spec.path) {
        Ok(facts) => facts.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_found(spec, error)),
        Err(error) => return Err(error.into()),
    };
    if kind.is_file() || kind.is_block_device() {
        return Ok(OpenOptions::new().read(true).write(write).open(&spec.path)?);
    }
    Err(ImageError::Kind(if kind.is_dir() { "a directory" } else { "a special file" }))
}

/// Whether only what is behind the last `@` is wrong.
fn not_found(spec: &ImageSpec, error: io::Error) -> ImageError {
    let name = spec.path.as_os_str().as_bytes();
    let at = name.iter().rposition(|byte| *byte == b'@').filter(|at| *at > 0);
    let parts = at.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?)));
    match parts {
        Some((path, part)) if Path::new(OsStr::from_bytes(path)).exists() => {
            ImageError::NoPart(Shown(part).to_string())
        }
        _ => error.into(),
    }
}

/// Opens an image for reading.
///
/// # Errors
/// See [`ImageError`].
pub fn open_read(name: &OsStr) -> Result<Arc<dyn Device>, ImageError> {
    if stores::is_meant(name) {
        return Ok(stores::open_read(name)?);
    }
    let spec = ImageSpec::parse(name);
    let whole: Arc<dyn Device> = Arc::new(FileDevice::new(open_file(&spec, false)?)?);
    let (start, len) = spec.place(&*whole)?;
    if spec.part == Part::Whole {
        return Ok(whole);
    }
    Ok(Arc::new(Window::new(whole, start, len)?))
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
        assert_eq!(spec("a.img@0x100000"), ("a.img".into(), Part::From(1 << 20)));
        assert_eq!(spec("a.img@part:my root"), ("a.img".into(), Part::Named("my root".into())));
        let names = ["a.img", "@part1", "a.img@partition", "a.img@", "a.img@x", "a.img@part-1", "a.img@0x"];
        for name in names.into_iter().chain(["a.img@0x+1", "a.img@-1", "a.img@0x1G"]) {
            assert_eq!(spec(name), (name.into(), Part::Whole));
        }
    }

    #[test]
    fn a_file_with_an_at_in_its_name_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk@part1");
        File::create(&path).unwrap().write_all(&[7; 524]).unwrap();
        assert_eq!(ImageSpec::parse(path.as_os_str()).part, Part::Whole);
        let mut with_offset = path.into_os_string();
        with_offset.push("@512");
        let device = open_read(&with_offset).unwrap();
        assert_eq!(device.size(), 12);
    }

    #[test]
    fn what_is_no_device_is_reported() {
        let error = |name: &str| match open_read(OsStr::new(name)) {
            Ok(_) => panic!("{name} opened"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error("/"), "is a directory, not a file or block device");
        assert_eq!(error("/dev/null"), "is a special file, not a file or block device");
        assert!(error("/nowhere@part1").contains("No such file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = |part: &str| format!("{}@{part}", file.path().display());
        assert_eq!(error(&name("512")), "byte 512 lies behind its end, at 0");
        assert!(
            error(&name("2")).contains("byte 2 is no multiple of 512")
                && error(&name("2")).contains("@part2")
        );
        assert!(
            error(&name("root")).contains("`root` names no part")
                && error(&name("root")).contains("@part:NAME")
        );
        assert!(error(&name("part1")).contains("no partition table"));
    }
}
