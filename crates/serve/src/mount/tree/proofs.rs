//! Made-up files by which a program shows what the kernel lets it do in a directory.
//!
//! The holder of a ticket of the control channel finds a directory of its own in the one that the ticket is about, by a
//! name that it alone knows. What it does in there comes here after the kernel has judged it, and is noted on the ticket;
//! nothing of it is in the volume. Owns: these files. Excludes tickets (`control::Tickets`), and the calls that are made
//! (`control::proving`).
//!
//! A node says by its number which ticket it is of, and which file: as high a number is no inode's.

use fuse::{Access, Attributes, Caller, Entry, Errno, FileType, Kind, SetAttr, Time};

use super::{Tree, callers};
use crate::bulk::Act;
use crate::control::Tickets;
use crate::control::proving::made_up;

/// Bit that the numbers of these nodes have.
const MARK: u64 = 1 << 63;
/// Where the number of the ticket begins.
const TICKET_AT: u32 = 8;
/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;

/// A made-up file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The directory of the proof.
    Place,
    File,
    Directory,
    /// One that was made there, and is gone when its name is looked up again.
    New(FileType),
}

/// Types that can be made, in the order of the numbers.
const KINDS: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

impl Part {
    fn number(self) -> u64 {
        match self {
            Part::Place => 0,
            Part::File => 1,
            Part::Directory => 2,
            Part::New(made) => 3 + KINDS.iter().position(|kind| *kind == made).unwrap_or(0) as u64,
        }
    }

    fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Part::Place),
            1 => Some(Part::File),
            2 => Some(Part::Directory),
            number => KINDS.get(usize::try_from(number).ok()?.checked_sub(3)?).map(|kind| Part::New(*kind)),
        }
    }

    fn file_type(self) -> FileType {
        match self {
            Part::Place | Part::Directory => FileType::Directory,
            Part::File => FileType::Regular,
            Part::New(made) => made,
        }
    }
}

/// A node of a proof, and who asks.
pub(super) struct Proof<'t> {
    tickets: &'t Tickets,
    ticket: u32,
    part: Part,
    caller: Caller,
}

/// Returns true if a node is one of a proof.
pub(super) fn is_one(node: u64) -> bool {
    node & MARK != 0
}

impl Tree {
    /// A node of a proof, for the caller of this request.
    pub(super) fn proof(&self, node: u64) -> Option<Proof<'_>> {
        let part = Part::of(node & 0xff).filter(|_| is_one(node))?;
        let ticket = u32::try_from((node ^ MARK) >> TICKET_AT).ok()?;
        Some(Proof { tickets: &self.tickets, ticket, part, caller: callers::current() })
    }

    /// The directory of a proof, if a name in a directory is that.
    pub(super) fn proof_in(&self, parent: u64, name: &[u8]) -> Option<Entry> {
        let (directory, caller) = (self.inode(parent).ok()?, callers::current());
        let ticket = self.tickets.proof(directory, name, caller)?;
        Some(Proof { tickets: &self.tickets, ticket, part: Part::Place, caller }.entry(Part::Place))
    }
}

impl Proof<'_> {
    fn entry(&self, part: Part) -> Entry {
        let node = MARK | u64::from(self.ticket) << TICKET_AT | part.number();
        Entry { node, generation: 0, attributes: made(node, part, self.caller) }
    }

    /// Notes what the kernel let through.
    fn note(&self, act: Act) -> fuse::Result<()> {
        if self.tickets.note(self.ticket, self.caller, act) { Ok(()) } else { Err(Errno::STALE) }
    }

    /// As [`Proof::note`], if this is the file or directory that it is about.
    fn note_of(&self, is_meant: bool, act: Act) -> fuse::Result<()> {
        if is_meant { self.note(act) } else { Err(Errno::NOENT) }
    }

    fn is(&self, part: Part) -> bool {
        self.part == part
    }

    pub(super) fn find(&self, name: &[u8]) -> fuse::Result<Entry> {
        match name {
            _ if !self.is(Part::Place) || self.tickets.thread(self.ticket) != Some(self.caller) => {
                Err(Errno::NOENT)
            }
            name if name == made_up::FILE.as_bytes() => Ok(self.entry(Part::File)),
            name if name == made_up::DIRECTORY.as_bytes() => Ok(self.entry(Part::Directory)),
            _ => Err(Errno::NOENT),
        }
    }

    /// Anybody may look whose these are.
    pub(super) fn attributes(&self) -> fuse::Result<Attributes> {
        let owner = self.tickets.thread(self.ticket).ok_or(Errno::STALE)?;
        Ok(made(self.entry(self.part).node, self.part, owner))
    }

    pub(super) fn create(&self, kind: Kind<'_>) -> fuse::Result<Entry> {
        let (act, file_type) = match kind {
            Kind::Regular => (Act::MakeFile, FileType::Regular),
            Kind::Directory => (Act::MakeDirectory, FileType::Directory),
            Kind::Symlink(_) => (Act::MakeSymlink, FileType::Symlink),
            Kind::CharDevice(..) => (Act::MakeCharDevice, FileType::CharDevice),
            Kind::BlockDevice(..) => (Act::MakeBlockDevice, FileType::BlockDevice),
            Kind::Fifo => (Act::MakeFifo, FileType::Fifo),
            Kind::Socket => (Act::MakeSocket, FileType::Socket),
        };
        self.note_of(self.is(Part::Place), act)?;
        Ok(self.entry(Part::New(file_type)))
    }

    /// The file gets a name in the directory: another one than that in which it has its first.
    pub(super) fn link(&self, node: u64) -> fuse::Result<Entry> {
        let file = self.entry(Part::File);
        self.note_of(self.is(Part::Directory) && file.node == node, Act::Link)?;
        Ok(file)
    }

    pub(super) fn unlink(&self, name: &[u8]) -> fuse::Result<()> {
        self.note_of(self.is(Part::Place) && name == made_up::FILE.as_bytes(), Act::RemoveFile)
    }

    pub(super) fn remove_directory(&self, name: &[u8]) -> fuse::Result<()> {
        self.note_of(self.is(Part::Place) && name == made_up::DIRECTORY.as_bytes(), Act::RemoveDirectory)
    }

    /// That a file is opened to be read is noted when it is read: of a mount for reading only, the kernel does not say it.
    pub(super) fn open(&self, access: Access) -> fuse::Result<()> {
        if access.write && self.is(Part::File) { self.note(Act::WriteFile) } else { Ok(()) }
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> fuse::Result<usize> {
        self.note_of(self.is(Part::File), Act::ReadFile)?;
        let byte = buffer.first_mut().filter(|_| offset == 0);
        Ok(byte.map_or(0, |byte| {
            *byte = b'\n';
            1
        }))
    }

    pub(super) fn list(&self) -> fuse::Result<()> {
        self.note_of(self.is(Part::Place), Act::List)
    }

    pub(super) fn change(&self, change: &SetAttr) -> fuse::Result<Attributes> {
        if change.permissions.is_some_and(|bits| bits & SET_ID == SET_ID) {
            self.note_of(self.is(Part::File), Act::SetId)?;
        }
        self.attributes()
    }
}

/// Attributes of a made-up file, which is its owner's alone.
fn made(node: u64, part: Part, owner: Caller) -> Attributes {
    let file_type = part.file_type();
    let (permissions, links) = if file_type == FileType::Directory { (0o700, 2) } else { (0o600, 1) };
    Attributes {
        inode: node,
        file_type,
        permissions,
        links,
        uid: owner.uid,
        gid: owner.gid,
        device: (0, 0),
        size: u64::from(part == Part::File),
        sectors: 0,
        block_size: 4096,
        access: Time::default(),
        modify: Time::default(),
        change: Time::default(),
        birth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_numbers_of_their_own() {
        let parts = [Part::Place, Part::File, Part::Directory].into_iter();
        for (at, part) in parts.chain(KINDS.map(Part::New)).enumerate() {
            assert_eq!((part.number(), Part::of(part.number())), (at as u64, Some(part)));
        }
        assert_eq!(Part::of(10), None);
    }
}
