//! Systems that workloads run on: one vocabulary of operations, and the file systems that carry them out, so
//! that the very same operations run on every one.

#[cfg(feature = "whole")]
mod computer;
#[cfg(feature = "whole")]
mod directory;
mod engine;
#[cfg(feature = "whole")]
mod library;
#[cfg(feature = "whole")]
mod named;

#[cfg(feature = "whole")]
pub(crate) use computer::Computer;
#[cfg(feature = "whole")]
pub(crate) use directory::Directory;
pub(crate) use engine::{EngineAlone, Writing, cut, describe_empty, extend, layout};
#[cfg(feature = "whole")]
pub(crate) use library::{Library, Mounting, Names};
#[cfg(feature = "whole")]
pub(crate) use named::{Named, order};

use crate::traffic::Figures;

/// A path from the root of the file system, without a leading slash; empty for the root itself.
pub(crate) type Name = Box<str>;

/// A client's name for a file that it has open.
pub(crate) type Slot = u32;

/// One call of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    MakeDirectory(Name),
    /// Opens a file; with `create` it is made, or emptied.
    Open {
        slot: Slot,
        path: Name,
        create: bool,
    },
    /// Bytes are zeros: where they lie matters here, not what they are.
    Write {
        slot: Slot,
        offset: u64,
        len: u64,
    },
    Read {
        slot: Slot,
        offset: u64,
        len: u64,
    },
    /// A read or write past the host's memory; a write is on the medium when it returns.
    Direct {
        slot: Slot,
        offset: u64,
        len: u64,
        write: bool,
    },
    /// fsync, or fdatasync.
    Sync {
        slot: Slot,
        data_only: bool,
    },
    Truncate {
        slot: Slot,
        len: u64,
    },
    /// fallocate.
    Reserve {
        slot: Slot,
        offset: u64,
        len: u64,
    },
    /// A part of a file becomes a hole.
    Punch {
        slot: Slot,
        offset: u64,
        len: u64,
    },
    Close(Slot),
    Remove(Name),
    RemoveDirectory(Name),
    Rename(Name, Name),
    Link(Name, Name),
    Symlink {
        target: Name,
        path: Name,
    },
    Status(Name),
    /// A name is looked for that need not be there.
    Look(Name),
    List(Name),
    /// Contents of files are in memory no more.
    DropCaches,
    /// All is stable when it returns.
    SyncAll,
    /// The client computes or waits, in nanoseconds.
    Think(u64),
}

impl Op {
    /// Returns true if a directory is another afterwards.
    pub(crate) fn changes_names(&self) -> bool {
        matches!(
            self,
            Op::MakeDirectory(_)
                | Op::Open { create: true, .. }
                | Op::Remove(_)
                | Op::RemoveDirectory(_)
                | Op::Rename(..)
                | Op::Link(..)
                | Op::Symlink { .. }
        )
    }

    /// Kind of the call, in results.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Op::MakeDirectory(_) => "mkdir",
            Op::Open { create: true, .. } => "create",
            Op::Open { .. } => "open",
            Op::Write { .. } => "write",
            Op::Read { .. } => "read",
            Op::Direct { write: true, .. } => "direct write",
            Op::Direct { .. } => "direct read",
            Op::Sync { .. } => "fsync",
            Op::Truncate { .. } => "truncate",
            Op::Reserve { .. } => "fallocate",
            Op::Punch { .. } => "punch",
            Op::Close(_) => "close",
            Op::Remove(_) => "unlink",
            Op::RemoveDirectory(_) => "rmdir",
            Op::Rename(..) => "rename",
            Op::Link(..) => "link",
            Op::Symlink { .. } => "symlink",
            Op::Status(_) => "stat",
            Op::Look(_) => "lookup",
            Op::List(_) => "readdir",
            Op::DropCaches => "drop",
            Op::SyncAll => "sync",
            Op::Think(_) => "think",
        }
    }
}

/// A program's calls, in order.
pub(crate) type Stream = Box<dyn Iterator<Item = Op> + Send>;

/// Clients that run side by side from the same moment until the last has ended, or no longer than a time.
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) clients: Vec<Stream>,
    /// Nanoseconds after which no call is begun.
    pub(crate) limit: Option<u64>,
}

impl Phase {
    pub(crate) fn new(name: impl Into<String>, clients: Vec<Stream>) -> Self {
        Phase { name: name.into(), clients, limit: None }
    }

    /// No call is begun after `limit` nanoseconds.
    pub(crate) fn within(self, limit: u64) -> Self {
        Phase { limit: Some(limit), ..self }
    }
}

/// A client of a file system.
pub(crate) trait Client: Send {
    /// Carries out a call; bytes that it read or wrote.
    ///
    /// # Errors
    /// Errors of the file system, with the call.
    fn perform(&mut self, op: &Op) -> Result<u64, String>;
}

/// A file system.
pub(crate) trait System: Sync {
    /// A new client, with no file open.
    fn client(&self) -> Box<dyn Client + '_>;
}

/// A file system whose time follows from its calls.
pub(crate) trait Modelled: System {
    /// The time of the client that was served last.
    fn now(&self) -> u64;
    /// The client that is served next has this time.
    fn set_now(&self, now: u64);
    /// Does what is due until a moment beside the clients' calls.
    ///
    /// # Errors
    /// The file system's.
    fn tick(&self, until: u64) -> Result<(), String>;
    /// Returns what the drive did so far.
    fn figures(&self) -> Figures;
}
