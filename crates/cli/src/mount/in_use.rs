//! Making sure that nobody else uses an image in a way that would hurt.
//!
//! Each mount holds a lock on its image: shared if `ro` was asked for, of its own otherwise; so does
//! each command that changes an image. The kernel's own mounts take no such lock; they are found in
//! its tables.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::image::ImageSpec;

/// The lock on an image. It ends with this value, or with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Locks an image, alone or together with others who only read.
///
/// # Errors
/// Why it can't be used now, without the image's name.
pub fn lock(image: &OsStr, shared: bool) -> Result<Lock, String> {
    let path = ImageSpec::parse(image).path;
    let file = File::open(&path).map_err(|error| error.to_string())?;
    let kind =
        if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    match patiently(&file, kind) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let hint = if shared { "" } else { "; mounts with `-o ro` may share it" };
            return Err(format!("is in use: it is mounted already, or being changed{hint}"));
        }
        Err(error) => return Err(format!("can't be locked: {error}")),
    }
    if let Some(mount) = kernel_mount(&path, &file).map_err(|error| error.to_string())?
        && !(shared && mount.read_only)
    {
        return Err(format!("is in use: the kernel has it mounted on {}", mount.directory.display()));
    }
    Ok(Lock { _file: file })
}

/// Takes a lock. Who has just ended may hold it a moment longer, by a process it started.
fn patiently(file: &File, kind: FlockOperation) -> Result<(), Errno> {
    for _ in 0..25 {
        match rustix::fs::flock(file, kind) {
            Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
    rustix::fs::flock(file, kind)
}

/// Whether nobody holds the lock that a mount holds.
///
/// # Errors
/// The image can't be opened.
pub fn is_free(image: &Path) -> io::Result<bool> {
    let file = File::open(ImageSpec::parse(image.as_os_str()).path)?;
    Ok(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

struct KernelMount {
    directory: PathBuf,
    read_only: bool,
}

/// Where the kernel has a device, or a loop device on this file, mounted.
fn kernel_mount(path: &Path, file: &File) -> io::Result<Option<KernelMount>> {
    let metadata = file.metadata()?;
    let devices = if metadata.file_type().is_block_device() {
        vec![metadata.rdev()]
    } else {
        loop_devices(&fs::canonicalize(path)?)
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    Ok(mounts.lines().filter_map(mount_line).find_map(|(source, mount)| {
        let node = fs::metadata(source).ok()?;
        (node.file_type().is_block_device() && devices.contains(&node.rdev())).then_some(mount)
    }))
}

/// Device numbers of the loop devices on a file.
fn loop_devices(image: &Path) -> Vec<u64> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let found = blocks.filter_map(|block| {
        let backing = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
        if Path::new(backing.trim_end_matches('\n')) != image {
            return None;
        }
        Some(fs::metadata(Path::new("/dev").join(block.file_name())).ok()?.rdev())
    });
    found.collect()
}

fn mount_line(line: &str) -> Option<(PathBuf, KernelMount)> {
    let mut fields = line.split(' ');
    let (source, directory) = (fields.next()?, fields.next()?);
    let read_only = fields.nth(1)?.split(',').any(|word| word == "ro");
    Some((unescaped(source), KernelMount { directory: unescaped(directory), read_only }))
}

/// The kernel writes blanks, line ends and backslashes as three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&out))
}

/// What is mounted on a directory at last: its type and source.
#[must_use]
pub fn mounted_on(directory: &Path) -> Option<(String, PathBuf)> {
    let table = fs::read_to_string("/proc/self/mounts").ok()?;
    let last = table
        .lines()
        .rfind(|line| line.split(' ').nth(1).is_some_and(|field| unescaped(field) == directory))?;
    let mut fields = last.split(' ');
    let source = unescaped(fields.next()?);
    Some((fields.nth(1)?.to_owned(), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table_are_understood() {
        let (source, mount) = mount_line("/dev/loop0 /mnt/a\\040b ext4 ro,relatime 0 0").unwrap();
        assert_eq!(source, Path::new("/dev/loop0"));
        assert_eq!(mount.directory, Path::new("/mnt/a b"));
        assert!(mount.read_only);
        assert!(!mount_line("a b c rw,errors=remount-ro 0 0").unwrap().1.read_only);
    }

    #[test]
    fn readers_share_and_others_do_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().as_os_str();
        let first = lock(name, true).unwrap();
        let second = lock(name, true).unwrap();
        assert!(lock(name, false).unwrap_err().contains("mounted already"));
        assert!(!is_free(file.path()).unwrap());
        drop((first, second));
        let _alone = lock(name, false).unwrap();
        assert!(lock(name, true).is_err());
    }
}
