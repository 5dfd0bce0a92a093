//! The files of a local log: records behind each other, each at a multiple of 4 KiB.
//!
//! A new file begins when one is full, after that is stable. So only the last file can end in the middle of a record. What
//! follows a record that is not whole was never said to be stable, unless a later one says so: then the log is damaged.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use platfs_device::units::bounded;
use platfs_host::{Directory, Kind};

use super::LocalLog;
use crate::error::{Error, Result};
use crate::extents::{Extents, Source};
use crate::format::log::{DATA_MAX, HEADER_MAX, Header, UNIT, Written, header_len};
use crate::format::{Hash, VolumeId, hash};

/// Where records begin: multiples of this.
const STEP: u64 = 4096;
/// Most bytes of a file, and its part of the whole log.
const PART_MAX: u64 = 64 << 20;
const PARTS: u64 = 8;

/// A record that waits for the store.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its number in the log, from 1.
    pub(crate) number: u64,
    pub(crate) extents: Vec<Written>,
    pub(crate) data_len: u32,
    file: Arc<File>,
    /// Where its data begin.
    at: u64,
}

impl Record {
    /// Bytes of its data.
    pub(crate) fn read(&self, offset: u32, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buffer, self.at + u64::from(offset));
        read.map_err(|error| Error::host("reading the local log", &error))
    }

    /// Lays what it wrote over other ranges, as the source with that number.
    pub(crate) fn lay(&self, over: &mut Extents, object: u32) {
        for extent in &self.extents {
            let source = extent.offset.map_or(Source::Zeros, |offset| Source::At { object, offset });
            over.insert(extent.start, extent.len.into(), source);
        }
    }
}

/// A file.
struct Part {
    name: String,
    file: Arc<File>,
    len: u64,
    /// The number of its last record.
    last: u64,
}

/// The files of a log, the last of which is written.
pub(crate) struct Parts {
    directory: Directory,
    /// For messages.
    path: PathBuf,
    most: u64,
    /// Volume whose records they are.
    volume: VolumeId,
    token: u64,
    all: VecDeque<Part>,
    bytes: u64,
    before: Hash,
    /// The file that is written, once there is one.
    is_begun: bool,
}

impl Parts {
    /// The files of a volume of `size` bytes in a directory, and the records in them. What is not whole at the end is cut
    /// off.
    pub(super) fn open(
        place: &LocalLog,
        directory: &Directory,
        volume: &VolumeId,
        token: u64,
        size: u64,
    ) -> Result<(Self, Vec<Record>)> {
        let failed =
            |error| Error::host(format!("opening the local log {}", place.directory.display()), &error);
        let mut parts = Parts {
            directory: directory.try_clone().map_err(failed)?,
            path: place.directory.clone(),
            most: place.most,
            volume: *volume,
            token,
            all: VecDeque::new(),
            bytes: 0,
            before: [0; 32],
            is_begun: false,
        };
        let mut records: Vec<Record> = Vec::new();
        let found = names(&parts.directory).map_err(|error| parts.failed("reading", &error))?;
        for (at, name) in found.iter().enumerate() {
            let first = u64::from_str_radix(name, 16).unwrap_or(0);
            let read = parts.read(name, size, first).map_err(|error| parts.failed("reading", &error))?;
            let is_next = records.last().is_none_or(|last| last.number + 1 == first);
            if let Some(why) = read.damage(is_next, at + 1 == found.len()) {
                return Err(Error::damaged(parts.path.join(name).display().to_string(), why));
            }
            let cut = || read.file.set_len(read.whole).and_then(|()| read.file.sync_all());
            if read.whole != read.len {
                cut().map_err(|error| parts.failed("cutting", &error))?;
            }
            if read.whole == 0 {
                parts.directory.remove_file(name).map_err(|error| parts.failed("cutting", &error))?;
                continue;
            }
            let last = read.records.last().map_or(0, |record| record.number);
            parts.bytes += read.whole;
            parts.all.push_back(Part { name: name.clone(), file: read.file, len: read.whole, last });
            records.extend(read.records);
        }
        Ok((parts, records))
    }

    /// Reads one file, whose first record has that number, up to what is not whole.
    fn read(&self, name: &str, size: u64, mut next: u64) -> io::Result<ReadPart> {
        let file = Arc::new(self.directory.open_to_write(name)?.0);
        let len = file.metadata()?.len();
        let mut read = ReadPart { file, len, whole: 0, records: Vec::new(), proof: false };
        let mut before = None;
        while read.whole < len {
            let Some((header, sum)) = self.header(&read.file, read.whole, size)? else { break };
            let follows = before.is_none_or(|before| before == header.before);
            if !follows || header.seq != next || next == 0 {
                break;
            }
            let at = read.whole + header_len(&header) as u64;
            if !are_whole(&read.file, at, &header)? {
                break;
            }
            (next, before) = (next.saturating_add(1), Some(sum));
            read.whole = (at + u64::from(header.data_len)).next_multiple_of(STEP).min(len);
            let Header { seq: number, extents, data_len, .. } = header;
            read.records.push(Record { number, extents, data_len, file: Arc::clone(&read.file), at });
        }
        let mut at = read.whole;
        while at < len && !read.proof {
            // A later record that says that this one was stable: it was whole.
            let later = self.header(&read.file, at, size)?;
            read.proof = later.is_some_and(|(header, _)| header.local >= next);
            at += STEP;
        }
        Ok(read)
    }

    /// The header of this log's record at a place, if one is there.
    fn header(&self, file: &File, at: u64, size: u64) -> io::Result<Option<(Header, Hash)>> {
        let mut bytes = vec![0; 104];
        if file.read_exact_at(&mut bytes, at).is_err() {
            return Ok(None);
        }
        let Ok(len) = Header::len(&bytes) else { return Ok(None) };
        bytes.resize(len.min(HEADER_MAX), 0);
        match file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let found = Header::decode(&bytes, size).ok();
        Ok(found.filter(|(header, _)| header.nonce == self.token && header.volume == self.volume))
    }

    /// True if a record of that many bytes has room beside those that wait.
    pub(crate) fn have_room(&self, len: u64) -> bool {
        self.bytes.saturating_add(len.next_multiple_of(STEP)) <= self.most
    }

    /// Writes the record that a header and its data make; it is stable after the next [`Parts::file`] is.
    pub(crate) fn append(&mut self, mut header: Header, data: &[u8]) -> Result<Record> {
        let part_size = (self.most / PARTS).min(PART_MAX);
        let is_full = self.all.back().is_none_or(|part| part.len >= part_size);
        if !self.is_begun || is_full {
            self.begin(header.seq)?;
        }
        (header.volume, header.nonce, header.before) = (self.volume, self.token, self.before);
        let (bytes, sum) = header.encode(data);
        let Some(part) = self.all.back_mut() else {
            return Err(Error::Invalid("a log without files".into()));
        };
        let at = part.len;
        let written = part.file.write_all_at(&bytes, at);
        let len = (bytes.len() as u64).next_multiple_of(STEP);
        if written.is_ok() {
            (part.len, part.last) = (at + len, header.seq);
            (self.bytes, self.before) = (self.bytes + len, sum);
        }
        let file = Arc::clone(&part.file);
        written.map_err(|error| self.failed("writing", &error))?;
        let at = at + (bytes.len() - data.len()) as u64;
        let data_len = bounded::<u32>(data.len());
        Ok(Record { number: header.seq, extents: header.extents, data_len, file, at })
    }

    /// Begins a file, after the one before is stable.
    fn begin(&mut self, first: u64) -> Result<()> {
        let make = || {
            if let Some(part) = self.all.back() {
                part.file.sync_data()?;
            }
            let name = format!("{first:016x}");
            let file = self.directory.open_or_create(&name)?;
            file.set_len(0)?;
            self.directory.sync()?;
            Ok(Part { name, file: Arc::new(file), len: 0, last: first.saturating_sub(1) })
        };
        let part = make().map_err(|error| self.failed("extending", &error))?;
        self.all.push_back(part);
        (self.before, self.is_begun) = ([0; 32], true);
        Ok(())
    }

    /// The file whose records may not be stable yet.
    pub(crate) fn file(&self) -> Option<Arc<File>> {
        self.all.back().map(|part| Arc::clone(&part.file))
    }

    /// Removes the files that hold only records up to that one. The one that is written stays, unless `also_last`.
    pub(crate) fn forget(&mut self, sent: u64, also_last: bool) {
        while let Some(first) = self.all.front() {
            let is_last = self.all.len() == 1 && self.is_begun;
            if first.last > sent || (is_last && !also_last) {
                break;
            }
            // One that can't be removed is read and passed over by the next opening.
            let _ = self.directory.remove_file(&first.name);
            self.bytes = self.bytes.saturating_sub(first.len);
            self.all.pop_front();
            self.is_begun &= !is_last;
        }
    }

    pub(crate) fn failed(&self, what: &str, error: &io::Error) -> Error {
        Error::host(format!("{what} the local log {}", self.path.display()), error)
    }
}

/// Records found in a file.
struct ReadPart {
    file: Arc<File>,
    len: u64,
    whole: u64,
    records: Vec<Record>,
    /// A record that is not whole was stable once.
    proof: bool,
}

impl ReadPart {
    fn damage(&self, is_next: bool, is_last: bool) -> Option<String> {
        let what = match (is_next, self.proof || (!is_last && self.whole != self.len)) {
            (false, _) => "the file before it is missing".to_owned(),
            (true, true) => format!("the record at byte {} was stable and is not whole", self.whole),
            (true, false) => return None,
        };
        Some(format!(
            "{what}, and what follows can't be sent; without the directory of the file, and with \
             PLAT_STORE_TAKEOVER=1, the volume is opened as its store has it"
        ))
    }
}

/// Returns true if data have the checksums that their header names.
fn are_whole(file: &File, at: u64, header: &Header) -> io::Result<bool> {
    let len = (header.data_len as usize).min(DATA_MAX);
    let mut data = vec![0; len];
    match file.read_exact_at(&mut data, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        done => done?,
    }
    Ok(data.chunks(UNIT).zip(&header.units).all(|(unit, sum)| hash(unit) == *sum))
}

/// The names of the files in a directory, in order.
pub(super) fn names(directory: &Directory) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for name in directory.entries()? {
        let name = name?.to_string_lossy().into_owned();
        if name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            found.push(name);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Bytes of all files.
pub(super) fn bytes(directory: &Directory) -> u64 {
    let facts = |name: String| directory.look(name).ok().filter(|facts| facts.kind == Kind::File);
    names(directory).map_or(0, |names| names.into_iter().filter_map(facts).map(|facts| facts.size).sum())
}

/// Removes all files.
pub(super) fn remove_all(directory: &Directory) -> io::Result<()> {
    names(directory)?.into_iter().try_for_each(|name| directory.remove_file(name))
}
