//! Shelves: where the small files of a directory go on without a search.
//!
//! A shelf is opened when the tightest run for a small file was not tight: then the files that
//! follow fit beside it as well as anywhere else. It is a hint, not a claim: every use verifies
//! that the place is still free, and it ends after its width so that tight holes which
//! appeared meanwhile are seen.

use crate::request::Request;
use crate::stats::Counter;
use crate::sync::{Mutex, MutexGuard};
use crate::view::View;
use ondisk::units::Cluster;
use std::collections::BTreeMap;

/// Independent tables, so that threads in different directories don't meet.
const SHARDS: usize = 16;
/// Directories a table remembers.
const DIRECTORIES: usize = 64;

#[derive(Clone, Copy)]
struct Shelf {
    next: Cluster,
    left: u32,
}

/// The shelves of all directories.
pub(super) struct Shelves {
    /// Clusters a directory uses from a shelf before it searches again.
    width: u32,
    shards: [Mutex<BTreeMap<u64, Shelf>>; SHARDS],
}

impl Shelves {
    pub(super) fn new(width: u32) -> Self {
        Shelves { width, shards: Default::default() }
    }

    fn shard<'a>(&'a self, view: &View<'_>, directory: u64) -> Option<MutexGuard<'a, BTreeMap<u64, Shelf>>> {
        let index = usize::try_from(directory).unwrap_or(0) % SHARDS;
        Some(view.lock(self.shards.get(index)?))
    }

    /// The next place on the directory's shelf. One that is used up, or whose place someone else took, is no more.
    pub(super) fn take(&self, view: &View<'_>, request: &Request) -> Option<Cluster> {
        let mut shelves = self.shard(view, request.directory)?;
        let shelf = shelves.get_mut(&request.directory)?;
        let start = shelf.next;
        if shelf.left < request.want || view.reach(start, request.want) < request.want {
            shelves.remove(&request.directory);
            return None;
        }
        shelf.next = Cluster(start.0 + u64::from(request.want));
        shelf.left -= request.want;
        view.note(Counter::WindowHits, 1);
        Some(start)
    }

    /// Opens a shelf behind a file that begins at `start`, unless that run fits tightly.
    pub(super) fn open(&self, view: &View<'_>, request: &Request, start: Cluster) {
        let reach = view.reach(start, self.width.max(request.want));
        if reach <= request.want.saturating_mul(2).saturating_add(8) {
            return;
        }
        let Some(mut shelves) = self.shard(view, request.directory) else { return };
        if shelves.len() >= DIRECTORIES {
            shelves.clear();
        }
        let next = Cluster(start.0 + u64::from(request.want));
        shelves.insert(request.directory, Shelf { next, left: reach - request.want });
        view.note(Counter::Leases, 1);
    }
}
