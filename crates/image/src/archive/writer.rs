//! Writes entries to a stream: ustar headers where they suffice, PAX records for the rest.
//!
//! The output is a function of the entries alone: no host names, process numbers or clock. What
//! [`super::Reader`] reads from it equals what was written. Choices where PAX leaves room:
//!
//! - ACLs become `SCHILY.acl.*` text with numbers: GNU tar (`--acls`), star and libarchive take it, and
//!   nothing is lost. All other attributes are `SCHILY.xattr.*`, with `%` and `=` in their names escaped as GNU
//!   tar does.
//! - Sparse files use GNU's PAX version 1.0, whose map stands before the data and has no size limit.
//! - Names of users are not written: a file system knows numbers.
//! - Raw names that are no UTF-8 in a record are announced by `hdrcharset=BINARY`.

use super::acl::{self, Acl};
use super::entry::{Entry, EntryKind, Run, Timestamp, Xattr};
use super::header::{self, BLOCK, BLOCK_BYTES, field};
use super::limits;
use super::{number, pax};
use std::io::{self, Write};
use std::ops::Range;

/// Archives end at a multiple of this, as tape records of 20 blocks did and readers may expect.
const RECORD_BYTES: u64 = 10_240;

/// Reason for which an entry cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Runs out of order, past the end, or not cut at 512 bytes where a hole follows.
    #[error("a file's data runs are not in the form that archives hold")]
    Runs,
    /// Fewer or more bytes than the runs promised.
    #[error("a file's data do not have the length that was announced")]
    Length,
    /// Attributes and names of one entry that no reader would accept.
    #[error("the extended header of one entry would have {0} bytes, more than readers accept")]
    Records(usize),
}

/// Writes an archive. Each [`Writer::entry`] is followed by its data, by [`Writer::data`]; then
/// [`Writer::finish`] ends the archive.
pub struct Writer<W> {
    out: W,
    /// Bytes written.
    written: u64,
    /// Bytes of data still due for the current entry.
    due: u64,
}

impl<W: Write> Writer<W> {
    /// Begins an archive on `out`, which should be buffered.
    pub fn new(out: W) -> Self {
        Self { out, written: 0, due: 0 }
    }

    /// Writes an entry's headers. The places of its runs in an archive are not used; [`align`] brings
    /// runs into the form demanded.
    ///
    /// # Errors
    /// Any [`WriteError`].
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        if self.due != 0 {
            return Err(WriteError::Length);
        }
        let sparse = check_runs(entry)?;
        let map = if sparse { sparse_map(entry) } else { Vec::new() };
        let data: u64 = entry.runs.iter().map(|run| run.len).sum();
        let stored = data.checked_add(map.len() as u64).ok_or(WriteError::Runs)?;
        let mut main = MainHeader::new(entry, stored, sparse);
        let records = main.fill(entry, sparse);
        if records.len() as u64 > limits::PAX_BYTES {
            return Err(WriteError::Records(records.len()));
        }
        if !records.is_empty() {
            self.put(&pax_header(&entry.path, records.len()))?;
            self.put(&records)?;
            self.pad(BLOCK_BYTES)?;
        }
        header::seal(&mut main.block);
        self.put(&main.block)?;
        self.put(&map)?;
        self.due = data;
        Ok(())
    }

    /// Writes the next bytes of the current entry's runs.
    ///
    /// # Errors
    /// [`WriteError::Io`]; [`WriteError::Length`] if more bytes come than the runs have.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.due = self.due.checked_sub(bytes.len() as u64).ok_or(WriteError::Length)?;
        self.put(bytes)?;
        if self.due == 0 { self.pad(BLOCK_BYTES) } else { Ok(()) }
    }

    /// Ends the archive and gives the stream back, flushed.
    ///
    /// # Errors
    /// [`WriteError::Io`]; [`WriteError::Length`] if data are still due.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if self.due != 0 {
            return Err(WriteError::Length);
        }
        self.put(&[0; 2 * BLOCK])?;
        self.pad(RECORD_BYTES)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to a multiple of `unit`, at most one record.
    fn pad(&mut self, unit: u64) -> Result<(), WriteError> {
        let missing = self.written.next_multiple_of(unit) - self.written;
        let zeros = [0; BLOCK];
        let mut left = missing;
        while left > 0 {
            let step = left.min(BLOCK_BYTES);
            self.put(zeros.get(..usize::try_from(step).unwrap_or(BLOCK)).unwrap_or_default())?;
            left -= step;
        }
        Ok(())
    }
}

/// Widens runs to multiples of 512 bytes, or the file's end, and joins those that meet. GNU tar begins the
/// data of each run at a new block, others do not: such runs look the same to all.
#[must_use]
pub fn align(runs: &[Run], size: u64) -> Vec<Run> {
    let mut aligned: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        let start = run.file_offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = run.file_offset.saturating_add(run.len).min(size);
        let end = end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(size).min(size);
        match aligned.last_mut() {
            _ if start >= end => {}
            Some(last) if start <= last.file_offset + last.len => {
                last.len = last.len.max(end - last.file_offset);
            }
            _ => aligned.push(Run { file_offset: start, len: end - start, archive_offset: 0 }),
        }
    }
    aligned
}

/// Checks the runs; true if they leave holes.
fn check_runs(entry: &Entry) -> Result<bool, WriteError> {
    if entry.kind != EntryKind::File {
        return if entry.runs.is_empty() { Ok(false) } else { Err(WriteError::Runs) };
    }
    let mut end = 0;
    let mut covered = 0;
    for run in &entry.runs {
        let run_end = run.file_offset.checked_add(run.len).ok_or(WriteError::Runs)?;
        let cut = run_end.is_multiple_of(BLOCK_BYTES) || run_end == entry.size;
        let starts = run.file_offset.is_multiple_of(BLOCK_BYTES) && run.file_offset >= end;
        if run.len == 0 || !cut || !starts || run_end > entry.size {
            return Err(WriteError::Runs);
        }
        end = run_end;
        covered += run.len;
    }
    if entry.runs.len() > limits::SPARSE_RUNS { Err(WriteError::Runs) } else { Ok(covered != entry.size) }
}

/// The map before the data: counts and places as decimal lines, padded. A hole at the end is written as a last
/// run without length, as GNU tar does.
fn sparse_map(entry: &Entry) -> Vec<u8> {
    let covered_end = entry.runs.last().map_or(0, |run| run.file_offset + run.len);
    let closing = (covered_end != entry.size).then_some((entry.size, 0));
    let pairs = entry.runs.iter().map(|run| (run.file_offset, run.len)).chain(closing);
    let count = entry.runs.len() + usize::from(closing.is_some());
    let mut map = format!("{count}\n").into_bytes();
    for (offset, len) in pairs {
        map.extend_from_slice(format!("{offset}\n{len}\n").as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

fn put_text(block: &mut [u8; BLOCK], place: Range<usize>, text: &[u8]) {
    for (slot, &byte) in header::field_mut(block, place).iter_mut().zip(text) {
        *slot = byte;
    }
}

/// Puts a number into its field; returns false, and leaves zero there, if only a record can hold it.
fn put_number(block: &mut [u8; BLOCK], place: Range<usize>, value: i64) -> bool {
    let fits = number::fits_octal(value, place.len());
    number::write(header::field_mut(block, place), if fits { value } else { 0 });
    fits
}

/// The header of a header: found by old readers as a file of its own.
fn pax_header(path: &[u8], len: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put_text(&mut block, field::NAME, &[b"PaxHeaders/", last_part(path, 80)].concat());
    put_number(&mut block, field::MODE, 0o644);
    put_number(&mut block, field::UID, 0);
    put_number(&mut block, field::GID, 0);
    put_number(&mut block, field::SIZE, i64::try_from(len).unwrap_or(0));
    put_number(&mut block, field::MTIME, 0);
    block[field::TYPE] = b'x';
    put_text(&mut block, field::MAGIC, header::USTAR_MAGIC);
    header::seal(&mut block);
    block
}

/// The last name of a path, at most its first `limit` bytes.
fn last_part(path: &[u8], limit: usize) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let name = path.get(start..).unwrap_or_default();
    name.get(..limit).unwrap_or(name)
}

/// Where to cut a path into prefix (at most 155 bytes) and name (at most 100).
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= field::NAME.len() {
        return Some((b"", path));
    }
    // The last byte may be the slash of a directory, which must stay with its name.
    let last = path.len().checked_sub(1)?;
    let from = last.checked_sub(field::NAME.len())?;
    let cut = (from..last).find(|&i| path.get(i) == Some(&b'/')).filter(|&i| i > 0)?;
    if cut > field::PREFIX.len() { None } else { Some((path.get(..cut)?, path.get(cut + 1..)?)) }
}

struct MainHeader {
    block: [u8; BLOCK],
    stored: u64,
    path: Vec<u8>,
}

impl MainHeader {
    fn new(entry: &Entry, stored: u64, sparse: bool) -> Self {
        let path = if sparse {
            [b"GNUSparseFile.0/", last_part(&entry.path, 80)].concat()
        } else {
            entry.path.clone()
        };
        Self { block: [0; BLOCK], stored, path }
    }

    /// Fills the fields and returns the records for what they cannot hold.
    fn fill(&mut self, entry: &Entry, sparse: bool) -> Vec<u8> {
        let mut records = Vec::new();
        self.fill_names(entry, sparse, &mut records);
        self.fill_numbers(entry, &mut records);
        self.fill_times(entry, &mut records);
        if sparse {
            pax::push(&mut records, b"GNU.sparse.major", b"1");
            pax::push(&mut records, b"GNU.sparse.minor", b"0");
            pax::push(&mut records, b"GNU.sparse.name", &entry.path);
            pax::push(&mut records, b"GNU.sparse.realsize", entry.size.to_string().as_bytes());
        }
        if entry.kind != EntryKind::HardLink {
            push_xattrs(&mut records, &entry.xattrs);
        }
        let not_text =
            std::str::from_utf8(&entry.path).is_err() || std::str::from_utf8(&entry.target).is_err();
        if not_text && !records.is_empty() {
            let mut announced = Vec::new();
            pax::push(&mut announced, b"hdrcharset", b"BINARY");
            announced.extend_from_slice(&records);
            return announced;
        }
        records
    }

    fn fill_names(&mut self, entry: &Entry, sparse: bool, records: &mut Vec<u8>) {
        match split_path(&self.path) {
            Some((prefix, name)) => {
                put_text(&mut self.block, field::PREFIX, prefix);
                put_text(&mut self.block, field::NAME, name);
            }
            None => {
                put_text(&mut self.block, field::NAME, last_part(&entry.path, field::NAME.len()));
                if !sparse {
                    pax::push(records, b"path", &entry.path);
                }
            }
        }
        put_text(&mut self.block, field::LINK, &entry.target);
        if entry.target.len() > field::LINK.len() {
            pax::push(records, b"linkpath", &entry.target);
        }
        put_text(&mut self.block, field::MAGIC, header::USTAR_MAGIC);
        self.block[field::TYPE] = match entry.kind {
            EntryKind::File => b'0',
            EntryKind::HardLink => b'1',
            EntryKind::Symlink => b'2',
            EntryKind::CharDevice => b'3',
            EntryKind::BlockDevice => b'4',
            EntryKind::Directory => b'5',
            EntryKind::Fifo => b'6',
        };
    }

    fn fill_numbers(&mut self, entry: &Entry, records: &mut Vec<u8>) {
        put_number(&mut self.block, field::MODE, i64::from(entry.mode & 0o7777));
        let mut put = |place, key: &[u8], value: u64| {
            // What does not fit 63 bits does not fit the field either.
            if !put_number(&mut self.block, place, i64::try_from(value).unwrap_or(i64::MAX)) {
                pax::push(records, key, value.to_string().as_bytes());
            }
        };
        put(field::SIZE, b"size", self.stored);
        put(field::UID, b"uid", entry.uid.into());
        put(field::GID, b"gid", entry.gid.into());
        if matches!(entry.kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
            put(field::MAJOR, b"SCHILY.devmajor", entry.device.major.into());
            put(field::MINOR, b"SCHILY.devminor", entry.device.minor.into());
        }
    }

    fn fill_times(&mut self, entry: &Entry, records: &mut Vec<u8>) {
        let modified = entry.times.modified;
        let fits = put_number(&mut self.block, field::MTIME, modified.seconds);
        let modified = (!fits || modified.nanoseconds != 0).then_some(modified);
        let mut put = |key: &[u8], time: Option<Timestamp>| {
            if let Some(time) = time {
                pax::push(records, key, pax::format_time(time).as_bytes());
            }
        };
        put(b"mtime", modified);
        put(b"atime", entry.times.accessed);
        put(b"ctime", entry.times.changed);
        put(b"LIBARCHIVE.creationtime", entry.times.created);
    }
}

fn push_xattrs(records: &mut Vec<u8>, xattrs: &[Xattr]) {
    let mut sorted: Vec<&Xattr> = xattrs.iter().collect();
    sorted.sort_unstable();
    for xattr in sorted {
        let acl_key: Option<&[u8]> = match &*xattr.name {
            acl::ACCESS => Some(b"SCHILY.acl.access"),
            acl::DEFAULT => Some(b"SCHILY.acl.default"),
            _ => None,
        };
        match (acl_key, Acl::decode(&xattr.value)) {
            (Some(key), Ok(acl)) => pax::push(records, key, acl.to_text().as_bytes()),
            _ => {
                let key = [b"SCHILY.xattr.", pax::escape_name(&xattr.name).as_slice()].concat();
                pax::push(records, &key, &xattr.value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
