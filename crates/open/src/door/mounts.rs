//! The kernel's table of mounts, as this process sees it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platfs_host::system;

/// One line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Its number, and that of the mount that it lies in.
    pub numbers: (u64, u64),
    /// The number by which the kernel knows the file system.
    pub file_system: u64,
    /// The block device, if the file system is on one by itself.
    pub(super) device: Option<u64>,
    /// Which directory of the file system is seen here.
    pub root: PathBuf,
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The type of file system.
    pub kind: String,
    /// Source of the mount.
    pub source: PathBuf,
    /// The volume, not only this view of it, is not written.
    pub read_only: bool,
}

/// All mounts, the last one on a directory last. Empty where there is no such table.
pub(super) fn all() -> Vec<Mount> {
    of(&system::read("/proc/self/mountinfo").unwrap_or_default()).collect()
}

/// The mounts of a table.
pub fn of(table: &[u8]) -> impl Iterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(line)
}

/// Returns the topmost mount on a directory.
#[must_use]
pub fn mounted_on(directory: &Path) -> Option<Mount> {
    all().into_iter().rfind(|mount| mount.directory == directory)
}

/// Mounts by `plat mount`.
#[must_use]
pub fn of_ours() -> Vec<Mount> {
    all().into_iter().filter(|mount| mount.kind == "fuse.plat").collect()
}

/// `ID PARENT MAJOR:MINOR ROOT DIRECTORY OPTIONS [TAG...] - TYPE SOURCE OPTIONS-OF-THE-VOLUME`
fn line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let text = |at: usize| std::str::from_utf8(fields.get(at)?).ok();
    let (major, minor) = text(2)?.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let dash = fields.iter().position(|field| *field == b"-")?;
    let words = fields.get(dash + 3)?;
    Some(Mount {
        numbers: (text(0)?.parse().ok()?, text(1)?.parse().ok()?),
        file_system: rustix::fs::makedev(major, minor),
        root: unescaped(fields.get(3)?),
        // Volumes without a block device of their own have the major number 0.
        device: (major != 0).then(|| rustix::fs::makedev(major, minor)),
        directory: unescaped(fields.get(4)?),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescaped(fields.get(dash + 2)?),
        read_only: words.split(|byte| *byte == b',').any(|word| word == b"ro"),
    })
}

/// The kernel writes blanks, line ends and backslashes as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
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
    PathBuf::from(OsStr::from_bytes(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_understood() {
        let text =
            b"36 35 7:3 / /mnt/a\\040b rw,noatime shared:1 master:2 - ext4 /dev/loop3 ro,errors=remount-ro";
        let mount = line(text).unwrap();
        assert_eq!((mount.numbers, mount.root.as_path()), ((36, 35), Path::new("/")));
        assert_eq!(mount.device, Some(rustix::fs::makedev(7, 3)));
        assert_eq!((mount.directory.as_path(), &*mount.kind), (Path::new("/mnt/a b"), "ext4"));
        assert_eq!((mount.source.as_path(), mount.read_only), (Path::new("/dev/loop3"), true));
        let text = b"36 35 0:52 / /m ro - fuse.plat /a.img@part1 rw,user_id=0";
        let mount = line(text).unwrap();
        assert_eq!((mount.device, mount.read_only), (None, false), "the volume counts, not the view");
        for wrong in
            ["", "36 35 7:3 / /mnt rw", "36 35 x / /mnt rw - ext4 /dev/sda rw", "36 35 7:3 / /m rw - ext4"]
        {
            assert_eq!(line(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(mounted_on(Path::new("/")).is_some());
    }
}
