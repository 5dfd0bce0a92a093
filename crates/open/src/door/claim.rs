//! The locks on what is written: on a range of bytes of a file or block device, and on block devices as the
//! kernel's own mounts take them.
//!
//! A range is locked by a lock of the open file (`F_OFD_SETLK`), so that two partitions of one disk image do
//! not exclude each other and all of it excludes both. It ends when the file is closed, with the process at
//! the latest. Beside it stands a shared flock(2) for programs that lock whole files.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use platfs_host::open_named;
use platfs_host::{path, system};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::ground::{self, Ground, Layer, Node};
use super::users;
use crate::image::{ImageError, User};

/// How a range is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// No other program has it.
    Alone,
    /// Others may have it so, too.
    Shared,
}

/// How often what is taken is tried again: a program that has just ended may hold it a moment longer, by a
/// process that it started.
const TRIES: u32 = if cfg!(test) { 3 } else { 25 };
const PAUSE: Duration = Duration::from_millis(20);
/// How often a reader looks, which reads in any case: a fifth of a second. Tests wait longer, for loaded machines.
const READER_TRIES: u32 = if cfg!(test) { 50 } else { 10 };

/// Tries until it is no longer refused, or often enough.
fn patiently(free: impl FnMut() -> bool) -> bool {
    in_tries(TRIES, free)
}

/// Tries at most `most` times, with a pause between.
fn in_tries(most: u32, mut free: impl FnMut() -> bool) -> bool {
    for _ in 1..most {
        if free() {
            return true;
        }
        thread::sleep(PAUSE);
    }
    free()
}

fn request(layer: &Layer, kind: Kind) -> libc::flock {
    let word = match kind {
        Kind::Alone => libc::F_WRLCK,
        Kind::Shared => libc::F_RDLCK,
    };
    let start = i64::try_from(layer.start).unwrap_or(i64::MAX);
    // A length of 0 means: to the end, wherever that will be.
    let len = i64::try_from(layer.end).map_or(0, |end| end.saturating_sub(start));
    libc::flock {
        l_type: libc::c_short::try_from(word).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

/// Takes a lock; returns true if the range is ours now. Where the host can't lock, other programs can't either.
fn take(file: &File, layer: &Layer, kind: Kind) -> bool {
    let done = fcntl(file, FcntlArg::F_OFD_SETLK(&request(layer, kind)));
    !matches!(done, Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES))
}

/// Returns true if another program has a conflicting lock. Takes no lock.
fn is_taken(file: &File, layer: &Layer, kind: Kind) -> bool {
    let mut request = request(layer, kind);
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut request));
    asked.is_ok() && i32::from(request.l_type) != libc::F_UNLCK
}

/// Locks the bytes of an open file or block device, and of the files below it. What is given back must be
/// kept as long as the file.
pub(super) fn lock(file: &File, ground: &Ground, kind: Kind) -> Result<Vec<File>, ImageError> {
    let Some((first, below)) = ground.layers().split_first() else { return Ok(Vec::new()) };
    let tried = |free: &mut dyn FnMut() -> bool| {
        if free() {
            return Ok(());
        }
        // A mount has a name, and stays: there is nothing to wait for.
        match users::plat_mount(ground) {
            Some(user) => Err(ImageError::InUse(user)),
            None if patiently(free) => Ok(()),
            None => Err(ImageError::InUse(User::Program)),
        }
    };
    let flock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
    tried(&mut || flock() != Err(Errno::WOULDBLOCK))?;
    tried(&mut || take(file, first, kind))?;
    let mut held = Vec::new();
    for layer in below.iter().filter(|layer| matches!(layer.node, Node::File { .. })) {
        if let Ok((_, Some(file))) = open_named(&layer.path, kind == Kind::Alone) {
            tried(&mut || take(&file, layer, kind))?;
            held.push(file);
        }
    }
    tried(&mut || beside(first, below, kind).is_none())?;
    Ok(held)
}

/// A layer, opened to look at its locks.
fn opened(path: &Path) -> Option<File> {
    open_named(path, false).ok()?.1
}

/// The holder of a lock that would be in the way.
pub(super) fn holder(file: &File, ground: &Ground, kind: Kind) -> Option<User> {
    let (first, below) = ground.layers().split_first()?;
    let files = || below.iter().filter(|layer| matches!(layer.node, Node::File { .. }));
    let taken = is_taken(file, first, kind)
        || files().any(|layer| opened(&layer.path).is_some_and(|file| is_taken(&file, layer, kind)))
        || beside(first, below, kind).is_some();
    taken.then(|| users::plat_mount(ground).unwrap_or(User::Program))
}

/// The program that may be changing what is only read. A mount has a name, and stays; one that has just ended is given a
/// moment.
pub(super) fn writer(file: &File, ground: &Ground) -> Option<User> {
    let mut found = None;
    in_tries(READER_TRIES, || {
        found = holder(file, ground, Kind::Shared);
        found != Some(User::Program)
    });
    found
}

/// A lock on the disk of a partition, or on a partition of a disk, which is another node of the same bytes.
fn beside(first: &Layer, below: &[Layer], kind: Kind) -> Option<()> {
    let taken = |path: &Path, layer: &Layer| opened(path).is_some_and(|file| is_taken(&file, layer, kind));
    let disks = below.iter().filter(|layer| layer.block().is_some());
    let on_disk = disks.into_iter().any(|layer| taken(&layer.path, layer));
    let parts = first.block().map(ground::partitions).unwrap_or_default();
    let on_part = parts
        .into_iter()
        .filter(|(start, size, _)| *start < first.end && first.start < start.saturating_add(*size));
    let whole = |path: &Path| Layer { start: 0, end: u64::MAX, path: path.to_owned(), ..first.clone() };
    let on_part = on_part.into_iter().any(|(_, _, path)| taken(&path, &whole(&path)));
    (on_disk || on_part).then_some(())
}

/// Opens a block device exclusively: the kernel's mounts and other programs that ask for the same are refused.
/// `None`: it is taken.
fn exclusive(path: &Path, write: bool) -> Option<std::io::Result<File>> {
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    match path::open(path, access | OFlags::EXCL) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => None,
        opened => Some(opened),
    }
}

/// A block device takes no writes. Linux opens it for writing all the same, and only each write fails.
pub(super) fn is_write_protected(file: &File) -> bool {
    let Ok(facts) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    let said = system::text(format!("/sys/dev/block/{major}:{minor}/ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

/// The holder of a block device that was opened exclusively. What can't be opened says nothing.
pub(super) fn taken(block: u64, path: PathBuf) -> Option<User> {
    let free = patiently(|| exclusive(&path, false).is_some());
    (!free).then(|| User::Claimed { device: path, holders: ground::holders(block) })
}

/// Takes a block device for as long as the file that is given back is open. A range that is no partition of
/// the kernel's can't be taken: then only claims of overlapping partitions are looked for.
pub(super) fn exclusively(path: &Path, ground: &Ground) -> Result<Option<File>, ImageError> {
    let Some(layer) = ground.layers().first() else { return Ok(None) };
    let block = layer.block().unwrap_or_default();
    let in_use = |path: &Path| {
        let parts = ground::partitions(block).into_iter().filter_map(|part| ground::block_of(&part.2));
        let holders = std::iter::once(block).chain(parts).flat_map(ground::holders).collect();
        ImageError::InUse(User::Claimed { device: path.to_owned(), holders })
    };
    if (layer.start, layer.end) == (0, u64::MAX) {
        let mut opened = None;
        if !patiently(|| {
            opened = exclusive(path, true);
            opened.is_some()
        }) {
            return Err(in_use(path));
        }
        return Ok(opened.transpose()?);
    }
    let parts = ground::partitions(block);
    let met = parts
        .iter()
        .filter(|(start, size, _)| *start < layer.end && layer.start < start.saturating_add(*size));
    let met: Vec<&Path> = met.map(|part| &*part.2).collect();
    let looked_at = if parts.is_empty() { vec![path] } else { met };
    for path in looked_at {
        if !patiently(|| exclusive(path, false).is_some()) {
            return Err(in_use(path));
        }
    }
    Ok(None)
}
