//! Reads the contents of files, in large pieces and ahead of demand.
//!
//! A consumer walks the catalogue in canonical order and asks for each file's data from front to back.
//! Where an archive has the same order, the next file's data lie just behind: one read of up to 4 MiB then
//! serves hundreds of small files. Where it has not, reading ahead would copy data that are never used. So the
//! read-ahead doubles as long as demand moves forward within what was read or close behind, and starts again when
//! it jumps.

use super::catalogue::{Catalogue, Extent, NodeId, Origin};
use super::error::{SourceError, SourceWarning};
use super::input::Section;
use ondisk::inode::InodeFlags;
use ondisk::invariant;
use ondisk::units::saturated;
use platfs_host::Directory;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most that is read at once.
const WINDOW: usize = 4 << 20;
/// Bytes that are read at once after a jump.
const FIRST: usize = 64 << 10;
/// A gap that still counts as moving forward: headers between the files of an archive.
const GAP: u64 = 64 << 10;
/// Directories of the host kept open.
const DIRECTORIES: usize = 64;

/// Reads data of one catalogue. Each thread has its own.
pub struct DataReader<'c> {
    catalogue: &'c Catalogue,
    window: Vec<u8>,
    /// Where the window's bytes lie.
    origin: Option<Origin>,
    offset: u64,
    ahead: usize,
    /// The most that is read at once.
    most: usize,
    host: HostFiles<'c>,
}

/// Changes to a file of the host after it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataLoss {
    Gone,
    Shorter,
}

/// Files of the host whose data are lost: zeros stand for them.
#[derive(Debug)]
pub(super) struct LostData {
    goes_on: bool,
    files: Mutex<BTreeMap<u32, DataLoss>>,
}

impl LostData {
    /// None so far; whether the reading goes on over them.
    pub(super) fn new(goes_on: bool) -> Self {
        LostData { goes_on, files: Mutex::default() }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<u32, DataLoss>> {
        // Each change is one call.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a file, if the reading goes on over it.
    fn takes(&self, number: u32, lost: DataLoss) -> bool {
        if self.goes_on {
            self.files().insert(number, lost);
        }
        self.goes_on
    }
}

impl Catalogue {
    /// A reader for this catalogue's data.
    #[must_use]
    pub fn reader(&self) -> DataReader<'_> {
        self.reader_within(WINDOW)
    }

    /// A reader that reads at most `most` bytes at once: for a consumer that looks at them only once, and wants them
    /// in a processor's own cache.
    #[must_use]
    pub(crate) fn reader_within(&self, most: usize) -> DataReader<'_> {
        DataReader {
            catalogue: self,
            window: Vec::new(),
            origin: None,
            offset: 0,
            ahead: FIRST.min(most),
            most,
            host: HostFiles { catalogue: self, directories: HashMap::new(), file: None },
        }
    }
}

impl DataReader<'_> {
    /// Returns data of `extent` from its byte `skip` on, without copying: at least one byte, at most `want`
    /// and what the window holds (4 MiB). Small runs come whole. Empty past the end of the run.
    ///
    /// # Errors
    /// [`SourceError::Host`] if the source cannot be read, or has become shorter.
    pub fn window(&mut self, extent: &Extent, skip: u64, want: usize) -> Result<&[u8], SourceError> {
        let left = saturated::<usize>(extent.len.saturating_sub(skip));
        let want = want.min(left).min(self.most);
        let offset = extent.origin_offset.saturating_add(skip);
        if want == 0 {
            return Ok(&[]);
        }
        if self.held(extent.origin, offset, want).is_none() {
            self.fill(extent, offset, want)?;
        }
        let start =
            invariant!(self.held(extent.origin, offset, want), "the window has what it was filled for");
        Ok(invariant!(self.window.get(start..start + want), "what is held lies in the window"))
    }

    /// Fills `buf` with data of `extent` from its byte `skip` on. Large reads go straight into `buf`.
    ///
    /// # Errors
    /// [`SourceError::Host`] if the source cannot be read or has become shorter; the same if the run is
    /// shorter than the range.
    pub fn read(&mut self, extent: &Extent, skip: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        if extent.len.saturating_sub(skip) < buf.len() as u64 {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(SourceError::host("read", self.path(extent.origin), error));
        }
        let offset = extent.origin_offset.saturating_add(skip);
        if buf.len() >= WINDOW / 4 && self.held(extent.origin, offset, buf.len()).is_none() {
            return self.read_origin(extent.origin, offset, buf);
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let piece = self.window(extent, skip + done as u64, rest.len())?;
            rest.iter_mut().zip(piece).for_each(|(slot, &byte)| *slot = byte);
            done += piece.len();
        }
        Ok(())
    }

    /// Fills `buf` with the contents of a file from `file_offset` on, holes as zeros. Returns how many bytes
    /// that were: fewer than asked for only at the file's end.
    ///
    /// # Errors
    /// As [`DataReader::read`].
    pub fn read_file(
        &mut self,
        node: NodeId,
        file_offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, SourceError> {
        let size = self.catalogue.metadata(node).size;
        let len = saturated::<usize>(size.saturating_sub(file_offset)).min(buf.len());
        let buf = buf.get_mut(..len).unwrap_or_default();
        buf.fill(0);
        let end = file_offset.saturating_add(len as u64);
        for extent in self.catalogue.extents(node) {
            let from = extent.file_offset.max(file_offset);
            let to = extent.file_offset.saturating_add(extent.len).min(end);
            let place = |offset: u64| usize::try_from(offset.saturating_sub(file_offset)).unwrap_or(len);
            if let Some(part) = buf.get_mut(place(from)..place(to)).filter(|part| !part.is_empty()) {
                self.read(&extent, from - extent.file_offset, part)?;
            }
        }
        Ok(len)
    }

    /// The flags of the file of the host whose data were read last.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.host.file.as_ref().map_or(InodeFlags::empty(), |(_, file)| super::directory::flags_of(file))
    }

    /// Where in the window `want` bytes of that place stand, if all of them do.
    fn held(&self, origin: Origin, offset: u64, want: usize) -> Option<usize> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let inside = start.checked_add(want)? <= self.window.len();
        (self.origin == Some(origin) && inside).then_some(start)
    }

    fn fill(&mut self, extent: &Extent, offset: u64, want: usize) -> Result<(), SourceError> {
        let end = self.offset.saturating_add(self.window.len() as u64);
        let forward = (self.offset..end.saturating_add(GAP)).contains(&offset);
        let forward = forward && self.origin == Some(extent.origin);
        self.ahead = if forward { 2 * self.ahead } else { FIRST }.min(self.most);
        // Within a file of the host nothing lies behind the run that is worth reading.
        let bound = match extent.origin {
            Origin::Section(number) => self.catalogue.section(number).map_or(0, Section::bytes),
            Origin::Host(_) => extent.origin_offset.saturating_add(extent.len),
        };
        let room = saturated::<usize>(bound.saturating_sub(offset));
        let len = want.max(self.ahead).min(room).max(want);
        self.origin = None;
        let mut window = std::mem::take(&mut self.window);
        window.resize(len, 0);
        let result = self.read_origin(extent.origin, offset, &mut window);
        self.window = window;
        if result.is_ok() {
            (self.origin, self.offset) = (Some(extent.origin), offset);
        }
        result
    }

    fn read_origin(&mut self, origin: Origin, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let result = match origin {
            Origin::Section(number) => match self.catalogue.section(number) {
                Some(section) => crate::archive::Input::read_exact_at(section, offset, buf),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            Origin::Host(number) => self.host.read(number, offset, buf),
        };
        result.map_err(|error| {
            let shorter = error.kind() == io::ErrorKind::UnexpectedEof;
            let error = if shorter { io::Error::other("it became shorter while it was read") } else { error };
            SourceError::host("read", self.path(origin), error)
        })
    }

    /// Returns the name of an origin in messages.
    fn path(&self, origin: Origin) -> PathBuf {
        match origin {
            Origin::Section(_) => PathBuf::from("the archive"),
            Origin::Host(number) => self.catalogue.host_path(number),
        }
    }
}

impl Catalogue {
    /// Files of the host for which zeros stand in part, and why, in the order of the source.
    pub(super) fn lost(&self) -> Vec<SourceWarning> {
        let told = |(number, lost): (&u32, &DataLoss)| SourceWarning::Lost {
            path: self.host_path(*number),
            reason: match lost {
                DataLoss::Gone => "it vanished while the tree was read; zeros stand for its data",
                DataLoss::Shorter => "it became shorter while it was read; zeros stand for the rest",
            },
        };
        self.lost.files().iter().map(told).collect()
    }

    /// The path of a file of the host, for messages.
    fn host_path(&self, number: u32) -> PathBuf {
        let Some((root, mut names)) = self.host_names(number) else { return PathBuf::new() };
        names.reverse();
        let names = names.into_iter().map(OsStr::from_bytes);
        names.fold(root.to_owned(), |path, name| path.join(name))
    }
}

/// Opens files of the host, name by name below the source's root, so that no symbolic link put there
/// meanwhile leads out of it.
struct HostFiles<'c> {
    catalogue: &'c Catalogue,
    directories: HashMap<u32, Directory>,
    file: Option<(u32, File)>,
}

/// True if an error of opening a listed file means that the file is gone, or another stands in its place.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
    )
}

/// Fills a buffer as far as a file goes; how far that was.
fn read_as_far(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl HostFiles<'_> {
    fn read(&mut self, number: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let lost = &self.catalogue.lost;
        let done = match self.open(number) {
            Ok(file) => read_as_far(file, offset, buf)?,
            Err(error) if is_gone(&error) && lost.takes(number, DataLoss::Gone) => 0,
            Err(error) => return Err(error),
        };
        let rest = buf.get_mut(done..).unwrap_or_default();
        let is_gone = self.file.as_ref().is_none_or(|(held, _)| *held != number);
        if rest.is_empty() || is_gone || lost.takes(number, DataLoss::Shorter) {
            rest.fill(0);
            return Ok(());
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn open(&mut self, number: u32) -> io::Result<&File> {
        let held = self.file.take().filter(|(held, _)| *held == number);
        let file = match held {
            Some((_, file)) => file,
            None => {
                let catalogue = self.catalogue;
                let (directory, name) = catalogue.host_directory(number).ok_or(io::ErrorKind::NotFound)?;
                self.directory(directory)?.open_file(OsStr::from_bytes(name))?.0
            }
        };
        Ok(&self.file.insert((number, file)).1)
    }

    fn directory(&mut self, number: u32) -> io::Result<&Directory> {
        let catalogue = self.catalogue;
        // Upwards to the first directory that is open, then down again.
        let mut path = Vec::new();
        let mut at = number;
        while !self.directories.contains_key(&at) {
            let Some((parent, name)) = catalogue.host_parent(at) else { break };
            path.push((at, name));
            at = parent;
        }
        if self.directories.len() + 1 > DIRECTORIES {
            self.directories.retain(|&held, _| held == at);
        }
        if let Entry::Vacant(vacant) = self.directories.entry(at) {
            let root = catalogue.host_root(at).ok_or(io::ErrorKind::NotFound)?;
            vacant.insert(root.directory.try_clone()?);
        }
        let mut above = at;
        for (directory, name) in path.into_iter().rev() {
            let parent = self.directories.get(&above).ok_or(io::ErrorKind::NotFound)?;
            let opened = parent.enter(OsStr::from_bytes(name))?;
            if self.directories.len() >= 2 * DIRECTORIES {
                self.directories.clear();
            }
            self.directories.insert(directory, opened);
            above = directory;
        }
        self.directories.get(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
