//! Runs of an inode's map: stretches of the library joined where they go on, on disk and in the file.

use ondisk::units::{Block, InodeNumber};
use platfs::{FileMap, Segment, State, Volume};
use serde_json::{Value, json};

use crate::mount::places::Place;

/// File blocks that lie together on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// First file block.
    pub(super) logical: u64,
    /// First disk block.
    pub(super) start: Block,
    /// Blocks.
    pub(super) count: u64,
    /// Allocated, but reads as zeros.
    pub(super) unwritten: bool,
}

impl From<Place> for Run {
    fn from(place: Place) -> Self {
        let Place { logical, start, count, unwritten } = place;
        Run { logical, start, count, unwritten }
    }
}

/// Runs joined where they go on.
pub(super) fn joined(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if goes_on(last, &run) => last.count = last.count.saturating_add(run.count),
            _ => all.push(run),
        }
    }
    all
}

/// The table of runs, without a heading.
pub(super) fn line(run: &Run) -> String {
    let end = |first: u64| first.saturating_add(run.count).saturating_sub(1);
    let unwritten = if run.unwritten { " unwritten" } else { "" };
    let (file, disk) = (end(run.logical), end(run.start.0));
    format!("{:>10}..{file:<10} {:>10}..{disk:<10} {:>7}{unwritten}", run.logical, run.start, run.count)
}

/// Heading of the table.
pub(super) const HEADING: &str = "    file blocks            disk blocks            count";

/// A run as JSON.
pub(super) fn object(run: &Run) -> Value {
    json!({
        "file_block": run.logical,
        "disk_block": run.start.0,
        "count": run.count,
        "unwritten": run.unwritten,
    })
}

/// The runs of a map, holes left out.
pub(super) struct Runs<'v> {
    map: FileMap<'v>,
    held: Option<Run>,
}

impl<'v> Runs<'v> {
    /// The runs of an inode.
    pub(super) fn of(volume: &'v Volume, inode: InodeNumber) -> platfs::Result<Self> {
        Ok(Runs { map: volume.map(inode)?, held: None })
    }
}

fn run_of(segment: Segment) -> Option<Run> {
    let (start, unwritten) = match segment.state {
        State::Hole => return None,
        State::Mapped(start) => (start, false),
        State::Unwritten(start) => (start, true),
    };
    Some(Run { logical: u64::from(segment.logical.0), start, count: segment.count, unwritten })
}

fn goes_on(left: &Run, right: &Run) -> bool {
    left.logical.checked_add(left.count) == Some(right.logical)
        && left.start.0.checked_add(left.count) == Some(right.start.0)
        && left.unwritten == right.unwritten
}

impl Iterator for Runs<'_> {
    type Item = platfs::Result<Run>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let run = match self.map.next() {
                Some(Ok(segment)) => run_of(segment),
                Some(Err(error)) => return Some(Err(error)),
                None => return self.held.take().map(Ok),
            };
            match (&mut self.held, run) {
                (_, None) => {}
                (Some(held), Some(run)) if goes_on(held, &run) => held.count += run.count,
                (held, Some(run)) => {
                    if let Some(whole) = held.replace(run) {
                        return Some(Ok(whole));
                    }
                }
            }
        }
    }
}
