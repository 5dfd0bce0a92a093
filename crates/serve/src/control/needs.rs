//! The acts that a request needs at each of its places: the kernel must let them through.
//!
//! Owns: the table, for both ends. Excludes how it is proved (`proving`, `tickets`), and rights by owner and mode (`bulk`).

use super::protocol::{Verb, flag};
use crate::bulk::{Act, Acts};

/// Acts that are asked for at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Nothing is done unless all of these are let through.
    pub all: Acts,
    /// Each is needed for files of some kind only.
    pub some: Acts,
}

impl Needs {
    /// Needs of a verb at its first place (0) or its second one.
    #[must_use]
    pub fn of(verb: Verb, place: usize, flags: u32) -> Self {
        let replaced = match flags & flag::FORCE {
            0 => Acts::NONE,
            _ => Acts::of(&[Act::RemoveFile]),
        };
        let write = Acts::of(&[Act::WriteFile]);
        let (all, some) = match (verb, place) {
            (Verb::Import, _) | (Verb::Copy, 1..) => (replaced, Acts::MAKING),
            (Verb::Export, _) | (Verb::Copy, _) => (Acts::NONE, Acts::READING),
            (Verb::Remove, _) => (Acts::NONE, Acts::of(&[Act::List, Act::RemoveFile, Act::RemoveDirectory])),
            (Verb::Put, _) => (write.and(Acts::of(&[Act::MakeFile])).and(replaced), Acts::NONE),
            (Verb::Snapshot, _) => (Acts::READING, Acts::NONE),
            // A directory is listed, a single file is not.
            (Verb::Defrag | Verb::Convert, _) => (write, Acts::of(&[Act::List])),
            (Verb::Tune | Verb::Resize, _) => (write, Acts::NONE),
            (Verb::End, _) => (Acts::NONE, Acts::NONE),
        };
        Needs { all, some }
    }

    /// Tells if names may be taken away. The kernel does not do that with a name on which a mount lies, whichever way leads to
    /// it.
    #[must_use]
    pub fn removes(self) -> bool {
        let all = self.all.and(self.some);
        all.only(Acts::REMOVING) != Acts::NONE
    }

    /// Tells if something changes at the place: then no view for reading only leads there.
    #[must_use]
    pub fn writes(self) -> bool {
        !Acts::READING.has_all(self.all.and(self.some))
    }
}
