//! Directories waiting to be listed, and the threads that list them.

use super::list::{GONE, Lister};
use super::{Failed, Listing};
use crate::source::catalogue::NodeId;
use platfs_host::Directory;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A directory to be listed.
pub(super) struct Job {
    /// The open directory that holds it, or itself if it has no name.
    pub(super) parent: Arc<Directory>,
    pub(super) name: Option<Vec<u8>>,
    /// File system of the directory that holds it; of the top its own.
    pub(super) device: u64,
    /// Its path below the source.
    pub(super) path: Vec<u8>,
    pub(super) node: NodeId,
    pub(super) host: u32,
}

/// The last one in is the first out: so the open directories are those on the way to where the threads
/// are, and not a whole level of the tree.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    closed: bool,
}

impl Queue {
    /// Adds directories.
    pub(super) fn push(&self, jobs: Vec<Job>) {
        self.state().jobs.extend(jobs);
        self.changed.notify_all();
    }

    /// Says that no more come, and drops those that wait.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.jobs.clear();
        self.changed.notify_all();
    }

    /// Lists directories until the queue is closed, or its results are no longer received.
    pub(super) fn work(&self, lister: &mut Lister<'_>, listings: SyncSender<Result<Listing, Failed>>) {
        while let Some(job) = self.next() {
            let listed = list(lister, job);
            if listings.send(listed).is_err() {
                break;
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A panic of another thread ends the program by itself: the state is whole at every unlock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn list(lister: &mut Lister<'_>, job: Job) -> Result<Listing, Failed> {
    let opened = match &job.name {
        None => job.parent.try_clone(),
        Some(name) => job.parent.enter(OsStr::from_bytes(name)),
    };
    let mut directory = match opened.map_err(|error| Failed::new("open", &job.path, error)) {
        Err(failed) if failed.is_gone() => return Ok(Listing::without(job, GONE)),
        opened => opened?,
    };
    let facts = directory.facts().map_err(|error| Failed::new("look at", &job.path, error))?;
    let device = facts.id.device;
    if let Some(reason) = lister.stops_at(job.device, device, &directory) {
        return Ok(Listing::without(job, reason));
    }
    let (found, left_out) = lister.list(&mut directory, &job.path)?;
    Ok(Listing { directory: Some((Arc::new(directory), device)), job, found, left_out })
}
