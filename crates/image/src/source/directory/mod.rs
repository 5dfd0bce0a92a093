//! A directory of the host into a catalogue.
//!
//! Every file is looked at through an open directory and without following symbolic links, so that a change
//! of the tree meanwhile can't lead the walk out of it. Names of one file are found by device and
//! inode number, holes are asked of the file system, attributes come with ACLs and capabilities. Contents are
//! read later, by [`super::DataReader`].
//!
//! Asking takes longer than remembering: threads list directories, and the caller's puts what they found into the
//! builder. The catalogue does not depend on their order.
//!
//! Times: only the time of contents is taken; the others change when a program reads the directory.

mod layers;
mod list;
mod queue;

pub(super) use list::flags_of;

use super::attributes::{Attributes, Ids};
use super::catalogue::{CatalogueBuilder, CatalogueError, NewNode, NodeId, Origin};
use super::error::{SourceError, SourceWarning};
use super::overlayfs::Sign;
use super::reading::Reading;
use crate::archive::{Device, Times, Timestamp, Xattr};
use list::{LeftOut, ListedEntry, Lister};
use platfs_host::{Directory, Facts, Id, Kind};
use queue::{Job, Queue};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

/// More threads than this wait for each other inside the kernel.
const THREADS: usize = 4;
/// Threads that can be asked for: each costs a stack and an open directory.
const MOST_THREADS: usize = 64;
/// Listings that may wait for the builder.
const WAITING: usize = 64;

/// A failure with a file of the host; its path counts from the source.
struct Failed {
    action: &'static str,
    path: Vec<u8>,
    error: io::Error,
}

impl Failed {
    /// The file is no longer there, or the process that it was about.
    fn is_gone(&self) -> bool {
        let gone = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
        self.error.raw_os_error().is_some_and(|error| gone.contains(&error))
    }

    fn new(action: &'static str, path: &[u8], error: io::Error) -> Self {
        Self { action, path: path.to_vec(), error }
    }

    fn below(self, root: &Path) -> SourceError {
        let path: PathBuf = match self.path.is_empty() {
            true => root.to_owned(),
            false => root.join(OsStr::from_bytes(&self.path)),
        };
        SourceError::host(self.action, path, self.error)
    }
}

/// Reads an open directory, which messages call `root`, into `builder`.
///
/// # Errors
/// [`SourceError::Host`] with a file that failed, [`SourceError::Tree`].
pub(super) fn read(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    root: &Path,
    directory: Directory,
) -> Result<(), SourceError> {
    read_tree(reading, builder, root, directory, false)
}

/// Reads a directory over what is already in `builder`: whiteouts act on that, and are no files.
///
/// # Errors
/// As [`read`].
pub(super) fn read_layer(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    root: &Path,
    directory: Directory,
) -> Result<(), SourceError> {
    read_tree(reading, builder, root, directory, true)
}

fn read_tree(
    reading: &mut Reading,
    builder: &mut CatalogueBuilder,
    root: &Path,
    directory: Directory,
    is_layer: bool,
) -> Result<(), SourceError> {
    let exclude = builder.options().exclude.clone();
    let (threads, stays) = (builder.options().threads, builder.options().one_file_system);
    let kept = directory.try_clone().map_err(|error| SourceError::host("open", root, error))?;
    let host = builder
        .host_root(root, kept)
        .map_err(|error| SourceError::Tree { archive: root.display().to_string(), error })?;
    let mut tree = Tree { reading, builder, root, is_layer, links: HashMap::new(), left_out: 0 };
    let mut lister = Lister::new(&exclude, stays);
    if !lister.has_paths() {
        tree.reading.warnings.push(SourceWarning::NoPaths);
    }
    let device = tree.put_root(&directory, &mut lister).map_err(|failed| failed.below(root))??;
    let queue = Queue::default();
    let (parent, node) = (Arc::new(directory), tree.builder.base());
    queue.push(vec![Job { parent, name: None, device, path: Vec::new(), node, host }]);
    let threads = threads.map_or_else(default_threads, |count| count.get().min(MOST_THREADS));
    let (send, receive) = mpsc::sync_channel(WAITING);
    std::thread::scope(|scope| {
        let mut begun = Err(std::io::Error::from(std::io::ErrorKind::WouldBlock));
        for _ in 0..threads {
            let send = send.clone();
            let list = || queue.work(&mut Lister::new(&exclude, stays), send);
            // Without some of them the others do their work.
            begun = begun.or(std::thread::Builder::new().spawn_scoped(scope, list).map(drop));
        }
        drop(send);
        let begun = begun.map_err(|error| SourceError::host("start a thread for", root, error));
        let done = begun.and_then(|()| tree.take_all(&queue, &receive));
        if let Some(count) = tree.left_out.checked_sub(WARNINGS).filter(|count| *count > 0) {
            tree.reading.warnings.push(SourceWarning::MoreLeftOut { count });
        }
        // Threads end when there is nothing to do, or no receiver left.
        queue.close();
        drop(receive);
        done
    })
}

/// Listing waits for the system more than it computes: more threads than these only get in its way.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}

/// Most warnings that are kept of a source: a directory in use can lose any number of files.
const WARNINGS: usize = 64;

/// The entries of one directory.
struct Listing {
    /// The directory with its file system; none if it was not entered.
    directory: Option<(Arc<Directory>, u64)>,
    job: Job,
    found: Vec<ListedEntry>,
    left_out: LeftOut,
}

impl Listing {
    /// A directory that is not entered stays empty.
    fn without(job: Job, reason: &'static str) -> Self {
        let left_out = vec![(job.path.clone(), reason)];
        Listing { directory: None, job, found: Vec::new(), left_out }
    }
}

/// Puts what was found into the builder.
struct Tree<'a> {
    reading: &'a mut Reading,
    builder: &'a mut CatalogueBuilder,
    root: &'a Path,
    /// Names of whiteouts have their meaning.
    is_layer: bool,
    /// Files of several names met before.
    links: HashMap<Id, NodeId>,
    /// Paths that were left out.
    left_out: usize,
}

impl Tree<'_> {
    /// Puts the directory that the source is; its file system.
    fn put_root(
        &mut self,
        directory: &Directory,
        lister: &mut Lister<'_>,
    ) -> Result<Result<u64, SourceError>, Failed> {
        let facts = directory.facts().map_err(|error| Failed::new("look at", b"", error))?;
        let xattrs = lister.xattrs_of_root(directory)?;
        Ok(self.put_base(&facts, &xattrs).map(|()| facts.id.device))
    }

    fn put_base(&mut self, facts: &Facts, xattrs: &[Xattr]) -> Result<(), SourceError> {
        let sign = self.sign(b"", facts, xattrs)?;
        let put = self.builder.put(b"", attributes(facts, self.shown(xattrs)), NewNode::Directory);
        let node = put.map_err(|error| self.misplaced(error))?;
        self.hide_below(sign, node)
    }

    /// Takes listings until no directory is left.
    fn take_all(
        &mut self,
        queue: &Queue,
        listings: &mpsc::Receiver<Result<Listing, Failed>>,
    ) -> Result<(), SourceError> {
        let mut due = 1_usize;
        while due > 0 {
            let Ok(listing) = listings.recv() else { break };
            let jobs = self.take(listing.map_err(|failed| failed.below(self.root))?)?;
            due = due + jobs.len() - 1;
            queue.push(jobs);
        }
        Ok(())
    }

    /// Puts the entries of a directory; returns its subdirectories, to be listed.
    fn take(&mut self, listing: Listing) -> Result<Vec<Job>, SourceError> {
        let mut jobs = Vec::new();
        let Listing { directory, job, found, left_out } = listing;
        let left_out = left_out.into_iter().map(|(path, reason)| SourceWarning::LeftOut { path, reason });
        for warning in left_out {
            self.left_out += 1;
            if self.left_out <= WARNINGS {
                self.reading.warnings.push(warning);
            }
        }
        let Some((directory, device)) = directory else { return Ok(jobs) };
        self.builder.set_flags(job.node, list::flags_of(&*directory));
        for (found, sign) in self.whiteouts(&job, found)? {
            self.reading.meter.file()?;
            let path = join(&job.path, &found.name);
            if self.builder.options().except.contains(&(found.facts.id.device, found.facts.id.inode)) {
                let reason = "it is what the image is to replace";
                self.reading.warnings.push(SourceWarning::LeftOut { path, reason });
                continue;
            }
            if let Some((node, host)) = self.put(&job, &path, &found, sign)? {
                let parent = Arc::clone(&directory);
                jobs.push(Job { parent, name: Some(found.name), device, path, node, host });
            }
        }
        Ok(jobs)
    }

    /// Puts one entry; a directory's node and number come back.
    fn put(
        &mut self,
        job: &Job,
        path: &[u8],
        found: &ListedEntry,
        sign: Sign,
    ) -> Result<Option<(NodeId, u32)>, SourceError> {
        let facts = &found.facts;
        let is_directory = facts.kind == Kind::Directory;
        let several = !is_directory && facts.links > 1;
        if let Some(&node) = self.links.get(&facts.id).filter(|_| several) {
            let linked = self.builder.link_at(job.node, &found.name, node);
            return linked.map(|()| None).map_err(|error| self.misplaced(error));
        }
        if is_directory {
            let attributes = attributes(facts, self.shown(&found.xattrs));
            let put = self.builder.put_host_directory(job.node, job.host, &found.name, attributes);
            let (node, host) = put.map_err(|error| self.misplaced(error))?;
            self.hide_below(sign, node)?;
            return Ok(Some((node, host)));
        }
        let put = self.put_leaf(job, found).map_err(|error| self.misplaced(error))?;
        match put {
            Some(node) if several => drop(self.links.insert(facts.id, node)),
            Some(_) => {}
            None => {
                let reason = "its kind is unknown";
                self.reading.warnings.push(SourceWarning::LeftOut { path: path.to_vec(), reason });
            }
        }
        Ok(None)
    }

    /// Puts a file that is no directory. `None` for a kind that no file system of ours has.
    fn put_leaf(&mut self, job: &Job, found: &ListedEntry) -> Result<Option<NodeId>, CatalogueError> {
        let facts = &found.facts;
        let device = device_of(facts);
        let new = match facts.kind {
            Kind::File => NewNode::File {
                size: facts.size,
                runs: &found.runs,
                origin: match found.runs.is_empty() {
                    true => Origin::Section(0),
                    false => self.builder.add_host_file(job.host, &found.name)?,
                },
            },
            Kind::Symlink => NewNode::Symlink(&found.target),
            Kind::CharDevice => NewNode::CharDevice(device),
            Kind::BlockDevice => NewNode::BlockDevice(device),
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
            Kind::Directory | Kind::Unknown => return Ok(None),
        };
        let attributes = attributes(facts, self.shown(&found.xattrs));
        let node = self.builder.put_at(job.node, &found.name, attributes, new)?;
        self.builder.set_flags(node, found.flags);
        Ok(Some(node))
    }

    fn misplaced(&self, error: CatalogueError) -> SourceError {
        SourceError::Tree { archive: self.root.display().to_string(), error }
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

fn device_of(facts: &Facts) -> Device {
    let (major, minor) = facts.device;
    Device { major, minor }
}

fn attributes(facts: &Facts, xattrs: Vec<Xattr>) -> Attributes {
    let (seconds, nanoseconds) = facts.modified;
    Attributes {
        mode: u16::try_from(facts.mode).unwrap_or(0),
        ids: Ids { uid: facts.uid, gid: facts.gid },
        times: Times { modified: Timestamp { seconds, nanoseconds }, ..Times::default() },
        xattrs,
    }
}

#[cfg(test)]
mod tests;
