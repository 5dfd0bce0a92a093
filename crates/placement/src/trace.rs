//! Traces: the requests of a workload in a compact form, so that one workload drives every policy.
//!
//! A trace names files and places in files, never places on the volume, so that a free replays
//! under a policy that put the file elsewhere. [`Recorder`] is an event sink: a program that runs
//! an engine with it, a laboratory or a file system, gets the trace of its requests. [`Reader`] decodes one
//! record at a time, in memory that does not grow with the trace, and trusts nothing. The format is
//! described in `research/docs/trace-format.md`. Excludes replaying and files on disk.

mod reader;
mod recorder;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use reader::{Reader, TraceError};
pub use recorder::Recorder;

use crate::layout::Layout;
use crate::request::Kind;
use ondisk::units::bounded;

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"PLATTRC\n";
/// Version of the format that is written, and the only one that is read.
pub const VERSION: u64 = 3;

/// Name of a run of allocations: a file, or a grant that belongs to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A file's data, by the key of its requests.
    File(u64),
    /// A file's metadata, by the same key.
    Metadata(u64),
    /// The grant of this number among those that no file names.
    Grant(u64),
}

/// Where a request would best begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// At this cluster of the volume.
    At(u64),
    /// Behind what is mapped at this place of a file.
    Behind(Name, u64),
}

/// A request, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// File or structure that is allocated to.
    pub name: Name,
    /// Where in it.
    pub at: u64,
    /// Where it would best begin.
    pub goal: Goal,
    /// Shortest run that is of any use.
    pub min: u32,
    /// Length that is wanted.
    pub want: u32,
    /// Use of the clusters.
    pub kind: Kind,
    /// Loading in order.
    pub stream: bool,
    /// The cluster before is that of the goal.
    pub extends: bool,
    /// More is expected behind it.
    pub growing: bool,
    /// It is on account of what is promised.
    pub promised: bool,
    /// Key of the file for the policy.
    pub owner: u64,
    /// Offset in the file for the policy.
    pub offset: u64,
    /// Size of the file as far as known.
    pub size: u64,
    /// Key of the directory.
    pub directory: u64,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A group has this many free clusters at the start. What is used of it lies in front.
    Group {
        /// Number of the group.
        group: u32,
        /// Free clusters.
        free: u32,
    },
    /// A request that was granted.
    Allocate(Ask),
    /// A request that was refused.
    Refused(Ask),
    /// Clusters of a file that are freed.
    Free {
        /// Their file or structure.
        name: Name,
        /// From which place on.
        at: u64,
        /// Number of clusters.
        count: u64,
    },
    /// The last writer of a file is gone.
    Close(u64),
    /// A file was cut or removed.
    Truncate(u64),
    /// Clusters are promised.
    Promise(u64),
    /// Promised clusters are given back.
    EndPromise(u64),
    /// Policies give up what they set aside.
    Settle,
}

/// Appends a number in groups of seven bits, the lowest first; the top bit says that more follow.
fn put(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        // The mask leaves seven bits.
        out.push(bounded::<u8>(rest & 0x7F) | 0x80);
        rest >>= 7;
    }
    out.push(bounded::<u8>(rest));
}

fn put_name(out: &mut Vec<u8>, name: Name) {
    let (tag, key) = match name {
        Name::File(key) => (0, key),
        Name::Metadata(key) => (1, key),
        Name::Grant(number) => (2, number),
    };
    put(out, tag);
    put(out, key);
}

fn put_ask(out: &mut Vec<u8>, ask: &Ask) {
    let flags = [
        ask.kind == Kind::Metadata,
        ask.stream,
        ask.extends,
        ask.growing,
        ask.promised,
        matches!(ask.goal, Goal::Behind(..)),
    ];
    let bits = flags.iter().rev().fold(0u64, |bits, flag| bits << 1 | u64::from(*flag));
    put(out, bits);
    put_name(out, ask.name);
    put(out, ask.at);
    match ask.goal {
        Goal::At(place) => put(out, place),
        Goal::Behind(name, at) => {
            put_name(out, name);
            put(out, at);
        }
    }
    for number in [ask.min, ask.want] {
        put(out, u64::from(number));
    }
    for number in [ask.owner, ask.offset, ask.size, ask.directory] {
        put(out, number);
    }
}

/// Appends the head of a trace.
pub fn put_head(out: &mut Vec<u8>, layout: &Layout) {
    out.extend_from_slice(&MAGIC);
    put(out, VERSION);
    put(out, layout.clusters);
    for number in [
        layout.clusters_per_group,
        layout.groups,
        layout.inodes_per_group,
        layout.groups_per_flex,
        layout.block_bytes,
        layout.blocks_per_cluster,
    ] {
        put(out, u64::from(number));
    }
}

/// Appends a record.
pub fn put_record(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Group { group, free } => {
            out.push(1);
            put(out, u64::from(*group));
            put(out, u64::from(*free));
        }
        Record::Allocate(ask) => {
            out.push(2);
            put_ask(out, ask);
        }
        Record::Refused(ask) => {
            out.push(3);
            put_ask(out, ask);
        }
        Record::Free { name, at, count } => {
            out.push(4);
            put_name(out, *name);
            put(out, *at);
            put(out, *count);
        }
        Record::Close(owner) => put_tagged(out, 5, *owner),
        Record::Truncate(owner) => put_tagged(out, 6, *owner),
        Record::Promise(count) => put_tagged(out, 7, *count),
        Record::EndPromise(count) => put_tagged(out, 8, *count),
        Record::Settle => out.push(9),
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, value: u64) {
    out.push(tag);
    put(out, value);
}
