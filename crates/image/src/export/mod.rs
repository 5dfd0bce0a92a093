//! From an image to an archive or a directory: one walk, two places to put what it meets.
//!
//! An [`Exporter`] goes through a tree of the image in canonical order (a directory's files by name, then its
//! subdirectories), which is the order in which a build lays data out, and hands each file to a [`Sink`]:
//! `archive` writes a tar archive, `directory` makes files of the host.
//!
//! The image is not trusted: names that are no names are refused, a directory is entered once, and all
//! files together hold no more data than the volume has room for, so that the output is bounded.
//! Where the caller asks for it, what can't be read is left out and told ([`Unread`]), and the walk goes on.
//! Facts that a sink cannot keep (a socket in an archive, an owner without privilege) are counted in [`Losses`].

mod archive;
mod difference;
mod directory;
mod error;
mod exporter;
mod losses;
mod unread;

pub use difference::{Aspect, NullSink, OnChange, PathChange};
pub use error::ExportError;
pub use exporter::{Exporter, Packing};
pub use losses::{Loss, Losses};
pub use unread::{Lacks, OnUnread, Unread};

use crate::archive::{Device, Run, Xattr, limits};
use crate::watch::{Meter, Stage, Watch};
use ondisk::features::RoCompat;
use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs::{DirEntry, Metadata, Pin, State, Volume, Walk};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use unread::{KeepGoing, ProbedFile};

/// Bytes read from the image at once.
const CHUNK: usize = 1 << 20;

/// A file met by the walk.
#[derive(Debug)]
pub struct Item<'a> {
    /// The path below the exported directory, without a slash in front; empty for that directory itself.
    pub path: &'a [u8],
    /// The last name of the path.
    pub name: &'a [u8],
    /// Metadata of the item.
    pub metadata: &'a Metadata,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// A symbolic link's target; else empty.
    pub target: Vec<u8>,
    /// A regular file's data; holes lie between.
    pub runs: Vec<Run>,
}

impl Item<'_> {
    /// The number of a device.
    fn device(&self) -> Device {
        let (major, minor) = self.metadata.device.unwrap_or_default();
        Device { major, minor }
    }
}

/// Where exported files go.
pub trait Sink {
    /// A directory, before what is in it.
    ///
    /// # Errors
    /// Any [`ExportError`].
    fn enter(&mut self, item: &Item<'_>) -> Result<(), ExportError>;

    /// The directory entered last and not left, after all that is in it.
    ///
    /// # Errors
    /// Any [`ExportError`].
    fn leave(&mut self) -> Result<(), ExportError>;

    /// Anything else, the first time it is met. `data` reads a regular file's contents.
    ///
    /// # Errors
    /// Any [`ExportError`].
    fn file(&mut self, item: &Item<'_>, data: &mut Contents<'_>) -> Result<(), ExportError>;

    /// One more name of the file that was met at `first`.
    ///
    /// # Errors
    /// Any [`ExportError`].
    fn link(&mut self, item: &Item<'_>, first: &[u8]) -> Result<(), ExportError>;

    /// Something of the image is not handed over.
    fn lose(&mut self, loss: Loss, path: &[u8]);
}

/// Reads the runs of one file.
pub struct Contents<'v> {
    volume: &'v Volume,
    inode: InodeNumber,
    path: &'v [u8],
    meter: &'v mut Meter,
    keep: Option<KeepGoing<'v>>,
    /// Memory that one file leaves to the next.
    room: &'v mut Vec<u8>,
}

impl Contents<'_> {
    /// Hands out the data of `runs` piece by piece, each with its place in the file.
    ///
    /// # Errors
    /// [`ExportError::Image`], and those of `each`.
    pub fn pieces(
        &mut self,
        runs: &[Run],
        mut each: impl FnMut(u64, &[u8]) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        if runs.is_empty() {
            return Ok(());
        }
        let path = self.path;
        let failed = |error| ExportError::Image { path: path.to_vec(), error };
        let file = self.volume.open_file(self.inode).map_err(failed)?;
        let mut buffer = std::mem::take(self.room);
        buffer.resize(longest(runs).min(CHUNK).max(buffer.len()), 0);
        for run in runs {
            let (mut at, end) = (run.file_offset, run.file_offset.saturating_add(run.len));
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(CHUNK).min(buffer.len());
                let piece = buffer.get_mut(..want).unwrap_or_default();
                let mut count = match file.read_at(at, piece) {
                    Ok(count) => count,
                    Err(error) => {
                        self.zeros_for(at..at + want as u64, failed(error))?;
                        0
                    }
                };
                if count == 0 {
                    // Somebody has cut it since its length was asked for.
                    piece.fill(0);
                    count = want;
                }
                each(at, piece.get(..count).unwrap_or_default())?;
                self.meter.bytes(count)?;
                at += count as u64;
            }
        }
        *self.room = buffer;
        Ok(())
    }

    /// Says that zeros stand for bytes that could be read before and can't be now; fails if they may not.
    fn zeros_for(&self, bytes: Range<u64>, error: ExportError) -> Result<(), ExportError> {
        let Some(keep) = self.keep.filter(|keep| keep.zeros) else { return Err(error) };
        keep.tell(self.path, Lacks::Bytes(bytes), &error);
        Ok(())
    }
}

fn longest(runs: &[Run]) -> usize {
    let longest = runs.iter().map(|run| run.len).max().unwrap_or(0);
    usize::try_from(longest).unwrap_or(CHUNK)
}

/// Options of a walk.
struct WalkOptions<'t> {
    watch: Watch,
    /// Others may change the volume meanwhile; then the directories that the walk is in are held.
    beside_others: bool,
    /// Treatment of what can't be read: it is left out.
    keep: Option<KeepGoing<'t>>,
    /// Extended attributes that are handed over, by their names; all where it is not said.
    shows: Option<&'t exporter::XattrFilter<'t>>,
}

/// Hands all that is below the directory `from`, and itself, to `sink`.
fn export<'v>(
    volume: &'v Volume,
    from: InodeNumber,
    sink: &mut dyn Sink,
    terms: WalkOptions<'v>,
) -> Result<(), ExportError> {
    let mut tree = Tree::new(volume, terms);
    tree.meter.begin(Stage::Exporting, None, None)?;
    tree.enter(b"", from, sink)?;
    tree.held.push(None);
    while tree.walk.depth() > 0 {
        let Some(entry) = tree.walk.next_entry().cloned() else {
            tree.walk.leave();
            tree.held.pop();
            sink.leave()?;
            continue;
        };
        let path = join(tree.walk.path(), &entry.name);
        if !tree.unread.remove(&(path, entry.inode)) {
            let done = tree.descend(&entry, from, sink);
            tree.left_out(&entry, done)?;
        }
    }
    Ok(())
}

/// The state of one walk.
struct Tree<'v> {
    volume: &'v Volume,
    walk: Walk<'v>,
    /// The first path of files with several names.
    firsts: HashMap<InodeNumber, Vec<u8>>,
    /// Bytes of data that the volume may still hold.
    budget: u64,
    meter: Meter,
    room: Vec<u8>,
    beside_others: bool,
    shows: Option<&'v exporter::XattrFilter<'v>>,
    held: Vec<Option<Pin<'v>>>,
    keep: Option<KeepGoing<'v>>,
    /// Names of the directories that the walk is in that were told of, each as a whole path.
    unread: HashSet<(Vec<u8>, InodeNumber)>,
}

impl<'v> Tree<'v> {
    fn new(volume: &'v Volume, terms: WalkOptions<'v>) -> Self {
        let geometry = &volume.format().geometry;
        // Where blocks are shared on purpose, each file alone is bounded by the map's own limits.
        let shared = volume.format().features.ro_compat.contains(RoCompat::SHARED_BLOCKS);
        let bytes = geometry.blocks.saturating_mul(u64::from(geometry.block_size.bytes()));
        let budget = if shared { u64::MAX } else { bytes };
        Self {
            volume,
            walk: Walk::new(volume),
            firsts: HashMap::new(),
            budget,
            meter: Meter::new(terms.watch),
            room: Vec::new(),
            beside_others: terms.beside_others,
            shows: terms.shows,
            held: Vec::new(),
            keep: terms.keep,
            unread: HashSet::new(),
        }
    }

    /// Goes into what an entry of the directory that the walk is in leads to, if that is a directory.
    fn descend(
        &mut self,
        entry: &DirEntry,
        from: InodeNumber,
        sink: &mut dyn Sink,
    ) -> Result<(), ExportError> {
        let Some(held) = self.hold(entry)? else { return Ok(()) };
        if self.is_directory(entry)? && !self.is_lost_and_found(entry, from)? {
            self.enter(&entry.name, entry.inode, sink)?;
            if self.walk.depth() > self.held.len() {
                self.held.push(held);
            }
        }
        Ok(())
    }

    /// Tells of what an entry leads to if the image is why it could not be handed over, and that is to end nothing.
    fn left_out(&mut self, entry: &DirEntry, done: Result<(), ExportError>) -> Result<bool, ExportError> {
        match (done, self.keep) {
            (Ok(()), _) => Ok(false),
            (Err(error), Some(keep)) if error.is_of_image() => {
                keep.tell(&join(self.walk.path(), &entry.name), Lacks::All, &error);
                Ok(true)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Holds what a name of the directory that the walk is in led to, where others may change that; `None` if it leads
    /// elsewhere now.
    fn hold(&self, entry: &DirEntry) -> Result<Option<Option<Pin<'v>>>, ExportError> {
        let Some(directory) = self.walk.directory().filter(|_| self.beside_others) else {
            return Ok(Some(None));
        };
        let Ok(pin) = self.volume.pin(entry.inode) else { return Ok(None) };
        match self.volume.lookup(directory, &entry.name) {
            Ok(found) => Ok((found == entry.inode).then_some(Some(pin))),
            Err(platfs::Error::NotFound) => Ok(None),
            Err(error) => Err(ExportError::Image { path: join(self.walk.path(), &entry.name), error }),
        }
    }

    /// Hands a directory to the sink, and then all in it that is no directory.
    fn enter(&mut self, name: &[u8], inode: InodeNumber, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let path = join(self.walk.path(), name);
        let failed = |error| ExportError::Image { path: path.clone(), error };
        check_name(&path, name, self.walk.depth() == 0)?;
        let metadata = self.volume.metadata(inode).map_err(failed)?;
        if is_encrypted(&metadata) && self.volume.inode(inode).is_locked().map_err(failed)? {
            return self.enter_locked(&path, name, &metadata, sink);
        }
        match (self.walk.enter(name, inode).map_err(failed)?, self.keep) {
            (Some(error), Some(keep)) => keep.tell(&path, Lacks::Names, &failed(error)),
            (Some(error), None) => return Err(failed(error)),
            (None, _) => {}
        }
        let xattrs = self.xattrs(&path, inode)?;
        let (target, runs) = (Vec::new(), Vec::new());
        sink.enter(&Item { path: &path, name, metadata: &metadata, xattrs, target, runs })?;
        let mut last: &[u8] = b"";
        let entries = self.walk.entries().to_vec();
        for entry in &entries {
            let done = self.entry(&path, entry, entry.name == last, sink);
            last = &entry.name;
            if self.left_out(entry, done)? {
                self.unread.insert((join(&path, &entry.name), entry.inode));
            }
        }
        Ok(())
    }

    /// Hands what an entry of the directory at `path` leads to to the sink, unless it is a directory.
    fn entry(
        &mut self,
        path: &[u8],
        entry: &DirEntry,
        is_second: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), ExportError> {
        let path = join(path, &entry.name);
        check_name(&path, &entry.name, false)?;
        if is_second {
            let problem = "a name stands twice in its directory".to_owned();
            return Err(ExportError::Image { path, error: platfs::Error::Invalid(problem) });
        }
        let Some(_held) = self.hold(entry)? else { return Ok(()) };
        if self.is_directory(entry)? {
            return Ok(());
        }
        self.put(&path, &entry.name, entry.inode, sink)
    }

    /// Hands an encrypted directory to the sink, as an empty one: the names in it are no names without the key.
    fn enter_locked(
        &mut self,
        path: &[u8],
        name: &[u8],
        metadata: &Metadata,
        sink: &mut dyn Sink,
    ) -> Result<(), ExportError> {
        let xattrs = self.xattrs(path, metadata.inode)?;
        sink.enter(&Item { path, name, metadata, xattrs, target: Vec::new(), runs: Vec::new() })?;
        sink.lose(Loss::Encrypted, path);
        sink.leave()
    }

    /// Hands something other than a directory to the sink.
    fn put(
        &mut self,
        path: &[u8],
        name: &[u8],
        inode: InodeNumber,
        sink: &mut dyn Sink,
    ) -> Result<(), ExportError> {
        self.meter.file()?;
        let failed = |error| ExportError::Image { path: path.to_vec(), error };
        let metadata = self.volume.metadata(inode).map_err(failed)?;
        if is_encrypted(&metadata) && self.volume.inode(inode).is_locked().map_err(failed)? {
            sink.lose(Loss::Encrypted, path);
            return Ok(());
        }
        let mut item = Item {
            path,
            name,
            metadata: &metadata,
            xattrs: Vec::new(),
            target: Vec::new(),
            runs: Vec::new(),
        };
        if let Some(first) = self.firsts.get(&inode) {
            return sink.link(&item, first);
        }
        item.xattrs = self.xattrs(path, inode)?;
        match metadata.file_type {
            FileType::Symlink => {
                item.target = self.volume.read_link(inode).map_err(failed)?;
                let usable = !item.target.is_empty() && item.target.len() <= limits::TARGET_BYTES;
                if !usable || item.target.contains(&0) {
                    return Err(ExportError::Name { path: path.to_vec(), what: "the link's target" });
                }
            }
            FileType::Regular => {
                let Some(runs) = self.readable_runs(path, inode, metadata.size)? else { return Ok(()) };
                item.runs = runs;
            }
            _ => {}
        }
        let (meter, keep, room) = (&mut self.meter, self.keep, &mut self.room);
        sink.file(&item, &mut Contents { volume: self.volume, inode, path, meter, keep, room })?;
        if metadata.links > 1 {
            self.firsts.insert(inode, path.to_vec());
        }
        Ok(())
    }

    fn xattrs(&self, path: &[u8], inode: InodeNumber) -> Result<Vec<Xattr>, ExportError> {
        let xattrs = self.volume.inode(inode).xattrs();
        let xattrs = xattrs.map_err(|error| ExportError::Image { path: path.to_vec(), error });
        let xattrs = match (xattrs, self.keep) {
            (Err(error), Some(keep)) => {
                keep.tell(path, Lacks::Attributes, &error);
                Vec::new()
            }
            (xattrs, _) => xattrs?,
        };
        let boxed = |(name, value): (Vec<u8>, Vec<u8>)| Xattr { name: name.into(), value: value.into() };
        let is_shown = |(name, _): &(Vec<u8>, Vec<u8>)| self.shows.is_none_or(|shows| shows(name));
        Ok(xattrs.into_iter().filter(is_shown).map(boxed).collect())
    }

    /// The runs of a file's data that can be read, where that is asked for; `None` if the file is left out.
    fn readable_runs(
        &mut self,
        path: &[u8],
        inode: InodeNumber,
        size: u64,
    ) -> Result<Option<Vec<Run>>, ExportError> {
        let runs = self.runs(path, inode, size)?;
        let Some(keep) = self.keep else { return Ok(Some(runs)) };
        let block = u64::from(self.volume.format().geometry.block_size.bytes());
        let file = self.volume.open_file(inode);
        let file = file.map_err(|error| ExportError::Image { path: path.to_vec(), error })?;
        keep.sift(&ProbedFile { path, file: &file, runs: &runs, block }, &mut self.meter)
    }

    /// The runs of a file's data. What is allocated but not written reads as zeros and counts as a hole.
    fn runs(&mut self, path: &[u8], inode: InodeNumber, size: u64) -> Result<Vec<Run>, ExportError> {
        let failed = |error| ExportError::Image { path: path.to_vec(), error };
        let block = u64::from(self.volume.format().geometry.block_size.bytes());
        let file = self.volume.open_file(inode).map_err(failed)?;
        let mut runs: Vec<Run> = Vec::new();
        let mut mapped = false;
        for segment in file.segments() {
            let segment = segment.map_err(failed)?;
            mapped = true;
            let start = u64::from(segment.logical.0).saturating_mul(block);
            let end = start.saturating_add(segment.count.saturating_mul(block)).min(size);
            if !matches!(segment.state, State::Mapped(_)) || start >= end {
                continue;
            }
            self.spend(path, end - start)?;
            match runs.last_mut() {
                Some(last) if last.file_offset + last.len == start => last.len += end - start,
                _ => runs.push(Run { file_offset: start, len: end - start, archive_offset: 0 }),
            }
            if runs.len() > limits::SPARSE_RUNS {
                let error =
                    platfs::Error::Unsupported(format!("more than {} runs of data", limits::SPARSE_RUNS));
                return Err(failed(error));
            }
        }
        // Contents kept in the inode have no map.
        if !mapped && size > 0 {
            runs.push(Run { file_offset: 0, len: size, archive_offset: 0 });
        }
        Ok(runs)
    }

    fn spend(&mut self, path: &[u8], bytes: u64) -> Result<(), ExportError> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| ExportError::Budget { path: path.to_vec() })?;
        Ok(())
    }

    fn is_directory(&self, entry: &DirEntry) -> Result<bool, ExportError> {
        let path = || join(self.walk.path(), &entry.name);
        self.walk.is_directory(entry).map_err(|error| ExportError::Image { path: path(), error })
    }

    fn is_lost_and_found(&self, entry: &DirEntry, from: InodeNumber) -> Result<bool, ExportError> {
        if from != InodeNumber::ROOT || self.walk.depth() != 1 || entry.name != b"lost+found" {
            return Ok(false);
        }
        let failed = |error| ExportError::Image { path: entry.name.clone(), error };
        let metadata = self.volume.metadata(entry.inode).map_err(failed)?;
        let plain = (metadata.uid, metadata.gid, metadata.permissions) == (0, 0, 0o700);
        Ok(plain && self.volume.read_dir(entry.inode).map_err(failed)?.next().is_none())
    }
}

fn is_encrypted(metadata: &Metadata) -> bool {
    metadata.flags.contains(InodeFlags::ENCRYPT)
}

/// A name that can leave the image: one component, and none that leads elsewhere.
fn check_name(path: &[u8], name: &[u8], is_top: bool) -> Result<(), ExportError> {
    let plain = !name.is_empty() && name.len() <= limits::NAME_BYTES && !matches!(name, b"." | b"..");
    if is_top || (plain && !name.contains(&b'/') && !name.contains(&0)) {
        return Ok(());
    }
    Err(ExportError::Name { path: path.to_vec(), what: "the name" })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}
