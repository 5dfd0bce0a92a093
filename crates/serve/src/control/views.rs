//! The mounts through which a program sees a file system, and those that lie in them: the kernel's own calls would come to
//! other files there.
//!
//! Owns: reading a program's table of mounts while it waits for an answer, and which places of the volume are covered.
//! Excludes what is done about it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::{Error, Volume};
use platfs_host::{path, system};
use rustix::fs::{OFlags, StatxFlags};

use crate::bulk::Name;
use platfs_open::door::mounts::{self, Mount};

/// Longest table that is read: room for some 40,000 mounts. Each ticket reads one, a line at a time.
const TABLE_MAX: u64 = 4 << 20;
/// Bytes that are kept of one table. A ticket holds them.
const KEPT_MAX: usize = 256 << 10;
/// Most directories above each other on the way to a root.
const ABOVE_MAX: usize = 4096;

/// A mount of the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
struct View {
    number: u64,
    /// The directory at its top.
    top: Top,
    /// Where that is for the program.
    directory: PathBuf,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Top {
    /// A path from the root directory of the volume.
    Path(PathBuf),
    /// The root directory of the program, which lies inside of the mount, by the kernel's number for it.
    Root(u64),
}

/// A mount that lies in a view.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Over {
    view: u64,
    directory: PathBuf,
}

/// The mounts of one file system as a program sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Views {
    views: Vec<View>,
    over: Vec<Over>,
}

/// A place of the volume: a name in a directory, or the directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    pub(super) directory: InodeNumber,
    pub(super) name: Option<&'a Name>,
}

impl Views {
    /// Of a thread that waits for an answer, and its [`root_of`], by the number of the file system.
    ///
    /// # Errors
    /// The table can't be read, or is too long.
    pub fn of(thread: u32, root: Option<OwnedFd>, file_system: u64) -> io::Result<Self> {
        let table = system::open(format!("/proc/{thread}/mountinfo"), OFlags::RDONLY)?;
        Self::new(table, file_system, root.and_then(|root| view_of(&root, file_system)))
    }

    fn new(mut table: impl Read + Seek, file_system: u64, root: Option<View>) -> io::Result<Self> {
        let mut room = KEPT_MAX;
        let mut views = Vec::new();
        each_of(&mut table, |mount| {
            let Mount { numbers: (number, _), root, directory, .. } = mount;
            let view = View { number, top: Top::Path(root), directory };
            let is_ours = mount.file_system == file_system;
            if is_ours { keep(view, View::len, (&mut views, &mut room)) } else { Ok(()) }
        })?;
        // Of a mount that holds the root directory of the program, the table says nothing.
        views.extend(root.filter(|root| views.iter().all(|view| view.number != root.number)));
        let numbers: HashSet<u64> = views.iter().map(|view| view.number).collect();
        let mut over = Vec::new();
        table.rewind()?;
        each_of(&mut table, |Mount { numbers: (_, view), directory, .. }| {
            let lies_in = numbers.contains(&view);
            let mount = Over { view, directory };
            if lies_in { keep(mount, Over::len, (&mut over, &mut room)) } else { Ok(()) }
        })?;
        Ok(Views { views, over })
    }

    /// Where a mount lies in a place, or below it, of the view with this number, or `everywhere` of any view; `None` if there
    /// is none.
    pub(super) fn covered(
        &self,
        volume: &Volume,
        (number, everywhere): (u64, bool),
        spot: Spot<'_>,
    ) -> Result<Option<&Path>, String> {
        let here = self.views.iter().find(|view| view.number == number);
        if !here.is_some_and(|view| view.holds(volume, spot.directory)) {
            return Err("its mount is none that the program sees".into());
        }
        let named = spot.name.and_then(|name| directory_at(volume, spot.directory, name.bytes()));
        for view in self.views.iter().filter(|view| everywhere || view.number == number) {
            let Some(top) = view.top(volume) else { continue };
            for over in self.over.iter().filter(|over| over.view == view.number) {
                let way = over.directory.strip_prefix(&view.directory);
                let way = way.map_err(|_| "its mounts can't be told apart")?;
                if leads_through(volume, top, way, (spot, named)).map_err(|error| error.to_string())? {
                    return Ok(Some(&over.directory));
                }
            }
        }
        Ok(None)
    }
}

/// Visits the mounts of a table, a line at a time.
fn each_of(table: impl Read, mut visit: impl FnMut(Mount) -> io::Result<()>) -> io::Result<()> {
    let (mut lines, mut line, mut left) = (BufReader::new(table.take(TABLE_MAX + 1)), Vec::new(), TABLE_MAX);
    loop {
        line.clear();
        let len = lines.read_until(b'\n', &mut line)? as u64;
        if len == 0 {
            return Ok(());
        }
        let many = || io::Error::new(io::ErrorKind::FileTooLarge, "too many mounts");
        left = left.checked_sub(len).ok_or_else(many)?;
        mounts::of(&line).try_for_each(&mut visit)?;
    }
}

/// Keeps one more mount, as far as there is room for it.
fn keep<T>(one: T, len: fn(&T) -> usize, (kept, room): (&mut Vec<T>, &mut usize)) -> io::Result<()> {
    *room = room.checked_sub(len(&one)).ok_or_else(|| io::Error::other("too many mounts"))?;
    kept.push(one);
    Ok(())
}

impl Over {
    /// Bytes of memory.
    fn len(&self) -> usize {
        size_of::<Over>() + self.directory.as_os_str().len()
    }
}

impl View {
    /// Bytes of memory.
    fn len(&self) -> usize {
        let top = if let Top::Path(path) = &self.top { path.as_os_str().len() } else { 0 };
        size_of::<View>() + top + self.directory.as_os_str().len()
    }

    /// The directory at its top.
    fn top(&self, volume: &Volume) -> Option<InodeNumber> {
        match &self.top {
            Top::Path(path) => {
                let mut names = path.components().filter_map(name_of);
                names.try_fold(InodeNumber::ROOT, |at, name| volume.lookup(at, name).ok())
            }
            Top::Root(fuse::ROOT) => Some(InodeNumber::ROOT),
            Top::Root(number) => InodeNumber::new(u32::try_from(*number).ok()?),
        }
    }

    /// Returns true if what is known of it is about a directory: of a mount that holds the program's root directory, what lies
    /// outside of that is not.
    fn holds(&self, volume: &Volume, directory: InodeNumber) -> bool {
        match (&self.top, self.top(volume)) {
            (Top::Root(_), Some(top)) => is_above(volume, top, directory),
            (_, top) => top.is_some(),
        }
    }
}

fn name_of(component: Component<'_>) -> Option<&[u8]> {
    match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    }
}

/// Returns true if a directory is another one or lies above it.
fn is_above(volume: &Volume, above: InodeNumber, mut here: InodeNumber) -> bool {
    for _ in 0..ABOVE_MAX {
        if here == above {
            return true;
        }
        match volume.lookup(here, b"..") {
            Ok(up) if up != here => here = up,
            _ => return false,
        }
    }
    false
}

/// The directory that a name leads to: it has one name only, which may be written in another way (`casefold`).
fn directory_at(volume: &Volume, directory: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
    let found = volume.lookup(directory, name).ok()?;
    let facts = volume.metadata(found).ok()?;
    (facts.file_type == FileType::Directory).then_some(found)
}

/// Returns true if the way to a mount, from the top of its view on, leads to a place or through it. A mount on a directory hides
/// nothing from who has it open.
fn leads_through(
    volume: &Volume,
    top: InodeNumber,
    way: &Path,
    (spot, named): (Spot<'_>, Option<InodeNumber>),
) -> Result<bool, Error> {
    let mut here = top;
    for name in way.components().filter_map(name_of) {
        let next = match volume.lookup(here, name) {
            // It was moved or removed a moment ago.
            Err(Error::NotFound | Error::NotDirectory) => None,
            found => Some(found?),
        };
        let is_here = here == spot.directory;
        let is_meant = |wanted: &Name| wanted.bytes() == name || next.is_some() && next == named;
        if is_here && spot.name.is_none_or(is_meant) {
            return Ok(true);
        }
        let Some(next) = next else { return Ok(false) };
        here = next;
    }
    Ok(false)
}

/// The root directory of a thread, which only those see who could trace it.
#[must_use]
pub fn root_of(thread: u32) -> Option<OwnedFd> {
    system::open(format!("/proc/{thread}/root"), OFlags::PATH).ok().map(OwnedFd::from)
}

/// The mount that holds the root directory of a thread, if it is one of this file system. No server is asked: it may be
/// this one.
fn view_of(root: &OwnedFd, file_system: u64) -> Option<View> {
    let facts = path::parts_of(root, StatxFlags::INO).ok()?;
    let found = rustix::fs::makedev(facts.stx_dev_major, facts.stx_dev_minor);
    let number = mount_of(root).ok().filter(|_| found == file_system)?;
    Some(View { number, top: Top::Root(facts.stx_ino), directory: PathBuf::from("/") })
}

/// The number of the mount through which a file is open. No server is asked: it may be this one.
pub(super) fn mount_of(file: &impl AsFd) -> io::Result<u64> {
    let facts = path::parts_of(file, StatxFlags::MNT_ID);
    match facts.ok().filter(|facts| facts.stx_mask & StatxFlags::MNT_ID.bits() != 0) {
        Some(facts) => Ok(facts.stx_mnt_id),
        None => mount_by_proc(file),
    }
}

/// The mount of a file for kernels before 5.8, from `/proc`. A process that hides ([`platfs_open::process::hide`])
/// can't read it there unless it is root's.
fn mount_by_proc(file: &impl AsFd) -> io::Result<u64> {
    let text = system::text(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("/proc does not say in which mount a file is open"))
}

/// A path as messages show it.
pub(super) fn shown(path: &Path) -> impl std::fmt::Display + '_ {
    platfs_image::text::Shown(OsStr::as_bytes(path.as_os_str()))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const TABLE: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/sda rw\n\
        40 20 0:52 / /m rw - fuse.plat /a.img rw\n\
        41 40 0:52 /v/ro /m/v/ro ro - fuse.plat /a.img rw\n\
        42 40 0:60 / /m/v/hidden\\040one rw - tmpfs tmpfs rw\n\
        43 42 0:61 / /m/v/hidden\\040one/below rw - tmpfs tmpfs rw\n\
        44 20 0:52 /v /view rw - fuse.plat /a.img rw\n";

    fn views(root: Option<View>) -> Views {
        Views::new(Cursor::new(TABLE), rustix::fs::makedev(0, 52), root).unwrap()
    }

    #[test]
    fn mounts_of_a_file_system_are_told_from_those_that_lie_in_them() {
        let found = views(None);
        assert_eq!(found.views.iter().map(|view| view.number).collect::<Vec<_>>(), [40, 41, 44]);
        let over: Vec<_> =
            found.over.iter().map(|over| (over.view, over.directory.to_str().unwrap())).collect();
        assert_eq!(over, [(40, "/m/v/ro"), (40, "/m/v/hidden one")]);
        let root = |number| View { number, top: Top::Root(12), directory: "/".into() };
        assert_eq!(views(Some(root(20))).views.len(), 4, "one that the table does not show");
        assert_eq!(views(Some(root(44))), found, "one that it shows");
    }

    #[test]
    fn what_is_kept_of_a_table_is_bounded() {
        let many: Vec<u8> = (0..9000)
            .flat_map(|at| format!("{} 40 0:60 / /m/{at:040} rw - tmpfs t rw\n", at + 50).into_bytes())
            .collect();
        let table = [TABLE, &many].concat();
        let of = |minor| Views::new(Cursor::new(&table), rustix::fs::makedev(0, minor), None);
        assert!(of(52).is_err());
        assert!(of(61).is_ok(), "others are not kept");
    }

    #[test]
    fn a_table_without_end_is_read_to_its_bound() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                self.0 += buffer.len() as u64;
                Ok(buffer.len())
            }
        }
        impl Seek for Endless {
            fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
                Ok(0)
            }
        }
        let mut table = Endless(0);
        assert_eq!(Views::new(&mut table, 1, None).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(table.0 <= TABLE_MAX + 1);
    }

    #[test]
    fn this_process_has_a_table() {
        let file = std::fs::File::open("/").unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let facts = rustix::fs::stat("/").unwrap();
        let views = Views::of(thread, root_of(thread), facts.st_dev).unwrap();
        let number = mount_of(&file).unwrap();
        assert_eq!(mount_by_proc(&file).unwrap(), number);
        assert!(views.views.iter().any(|view| view.number == number), "{number}: {views:?}");
    }
}
