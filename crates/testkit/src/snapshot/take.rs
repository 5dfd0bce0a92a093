//! Looking at a tree. Follows no symlink, and stays on one file system.

use super::{Entry, Snapshot};
use rustix::fs::SeekFrom;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that are hashed at a time; a stretch of zeros of this size is not hashed, so that holes and zeros are the same.
const PAGE: usize = 4096;

/// A data range longer than this is a hole that the file system does not report (FUSE): reading it would take for ever.
const LONGEST_DATA: u64 = 64 << 30;

/// Extended attributes that the host puts on files by itself.
const HOST_XATTRS: [&[u8]; 2] = [b"security.selinux", b"security.SMACK64"];

impl Snapshot {
    /// Looks at the tree at `root`, leaving out `lost+found` in the root itself.
    ///
    /// # Errors
    /// The first thing that could not be read, with its path.
    pub fn of(root: &Path) -> Result<Self, String> {
        let mut taker = Taker { root_device: 0, first_names: BTreeMap::new(), entries: BTreeMap::new() };
        let metadata = fs::symlink_metadata(root).map_err(|e| format!("{}: {e}", root.display()))?;
        taker.root_device = metadata.dev();
        taker.visit(root, Vec::new(), &metadata)?;
        let mut snapshot = Self { entries: taker.entries };
        snapshot.name_links();
        Ok(snapshot)
    }

    /// Replaces what `link_of` of each name of a file with several names says, any of these names and the same in each, by the first of them in
    /// byte order; the first itself is no link of another.
    pub fn name_links(&mut self) {
        let mut firsts: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let Some(visited) = &entry.link_of {
                firsts.entry(visited.clone()).or_insert_with(|| path.clone());
            }
        }
        for (path, entry) in &mut self.entries {
            entry.link_of = entry
                .link_of
                .take()
                .and_then(|visited| firsts.get(&visited).cloned())
                .filter(|first| first != path);
        }
    }
}

struct Taker {
    root_device: u64,
    /// Inode number to the first name visited.
    first_names: BTreeMap<u64, Vec<u8>>,
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Taker {
    /// Adds `path` (relative to the root: `relative`) and all that is below it. Recursion is as deep as the tree, which tests make themselves.
    fn visit(&mut self, path: &Path, relative: Vec<u8>, metadata: &Metadata) -> Result<(), String> {
        let fail = |e: io::Error| format!("{}: {e}", path.display());
        let linked = !metadata.is_dir() && metadata.nlink() > 1;
        let first = if linked { self.first_names.get(&metadata.ino()) } else { None };
        if let Some(known) = first.and_then(|first| self.entries.get(first)) {
            self.entries.insert(relative, known.clone());
            return Ok(());
        }
        let mut entry = facts(path, metadata).map_err(fail)?;
        if linked {
            self.first_names.insert(metadata.ino(), relative.clone());
            entry.link_of = Some(relative.clone());
        }
        if metadata.is_dir() && metadata.dev() == self.root_device {
            for child in fs::read_dir(path).map_err(fail)? {
                let child = child.map_err(fail)?;
                let name = child.file_name();
                if relative.is_empty() && name == "lost+found" {
                    entry.links = entry.links.saturating_sub(1);
                    continue;
                }
                let metadata = child.metadata().map_err(|e| format!("{}: {e}", child.path().display()))?;
                entry.subdirectories += u64::from(metadata.is_dir());
                let mut below = relative.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name.as_bytes());
                self.visit(&child.path(), below, &metadata)?;
            }
        }
        self.entries.insert(relative, entry);
        Ok(())
    }
}

fn facts(path: &Path, metadata: &Metadata) -> io::Result<Entry> {
    let mut entry = Entry {
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        links: metadata.nlink(),
        subdirectories: 0,
        device: 0,
        size: 0,
        digest: 0,
        data: Vec::new(),
        xattrs: xattrs(path)?,
        link_of: None,
    };
    if metadata.is_symlink() {
        let target = fs::read_link(path)?;
        entry.size = metadata.len();
        entry.digest = target_digest(target.as_os_str().as_bytes());
    } else if metadata.is_file() {
        let file = File::open(path)?;
        entry.size = metadata.len();
        entry.data = data_ranges(&file, metadata.len())?;
        entry.digest = digest(&entry.data, |buffer, at| file.read_at(buffer, at))?;
    } else if !metadata.is_dir() {
        // Of fifos and sockets this is 0 anyway.
        entry.device = metadata.rdev();
    }
    Ok(entry)
}

/// The digest of a symlink with this target.
pub fn target_digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The digest of a file: of the bytes that are not zero, with their places. `data` are its ranges that hold data, `read_at` reads into
/// a buffer from an offset.
///
/// # Errors
/// The first of `read_at`.
pub fn digest(
    data: &[Range<u64>],
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 256 * PAGE];
    let page = PAGE as u64;
    // Pages that two ranges share are hashed once: `next` is where hashing goes on.
    let mut next = 0;
    for range in data {
        let mut at = (range.start / page * page).max(next);
        while at < range.end {
            let wanted = buffer
                .len()
                .min(usize::try_from(range.end.next_multiple_of(page) - at).unwrap_or(usize::MAX));
            let filled = read_full(&mut read_at, &mut buffer[..wanted], at)?;
            for (index, chunk) in buffer[..filled].chunks(PAGE).enumerate() {
                if chunk.iter().any(|byte| *byte != 0) {
                    hasher.write_u64(at + (index * PAGE) as u64);
                    hasher.write(chunk.trim_end_zeros());
                }
            }
            at += wanted as u64;
        }
        next = at;
    }
    Ok(hasher.finish())
}

trait TrimZeros {
    fn trim_end_zeros(&self) -> &Self;
}

impl TrimZeros for [u8] {
    /// Without the zeros at its end: how much of the last page exists depends on the size only, which is compared by itself.
    fn trim_end_zeros(&self) -> &Self {
        let end = self.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &self[..end]
    }
}

fn read_full(
    read_at: &mut impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    buffer: &mut [u8],
    at: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// The ranges that hold data, by SEEK_DATA and SEEK_HOLE; the whole file where these are not known.
fn data_ranges(file: &File, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL) => return Ok(std::iter::once(0..size).collect()),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        if end <= start {
            break;
        }
        if end - start > LONGEST_DATA {
            return Err(io::Error::other("a data range too long to be read"));
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 64 * 1024];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e.into()),
    };
    let names = list[..length].split_inclusive(|byte| *byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()).map(CString::from);
    let mut found = BTreeMap::new();
    for name in names.filter(|name| !HOST_XATTRS.contains(&name.as_bytes())) {
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name.as_c_str(), &mut value[..])?;
        value.truncate(length);
        found.insert(name.into_bytes(), value);
    }
    Ok(found)
}
