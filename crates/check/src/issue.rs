//! Report of a check: issues as values, progress, and the sums at the end.

use ondisk::units::{Block, FileBlock, Group, InodeNumber};

use super::kinds::Kind;

/// Where an issue is, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// The block group.
    pub group: Option<Group>,
    /// The inode.
    pub inode: Option<InodeNumber>,
    /// The block of the volume.
    pub block: Option<Block>,
    /// The block of the inode's contents.
    pub file_block: Option<FileBlock>,
    /// The name in the directory that `inode` is.
    pub name: Option<Vec<u8>>,
}

impl Location {
    /// A place that is known as far as its inode.
    #[must_use]
    pub fn inode(inode: InodeNumber) -> Self {
        Location { inode: Some(inode), ..Location::default() }
    }

    /// A place that is known as far as its group.
    #[must_use]
    pub fn group(group: Group) -> Self {
        Location { group: Some(group), ..Location::default() }
    }

    /// Adds a block of the volume.
    #[must_use]
    pub fn at_block(self, block: Block) -> Self {
        Location { block: Some(block), ..self }
    }

    /// Adds a block of the inode's contents.
    #[must_use]
    pub fn at_file_block(self, block: FileBlock) -> Self {
        Location { file_block: Some(block), ..self }
    }

    /// Adds a name in the directory.
    #[must_use]
    pub fn named(self, name: &[u8]) -> Self {
        Location { name: Some(name.to_vec()), ..self }
    }
}

/// Something that is not as the format wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// The rule that is broken.
    pub kind: &'static Kind,
    /// Where.
    pub place: Location,
    /// State that was found, with its value.
    pub found: String,
    /// State that should be there; empty where the kind says it all.
    pub expected: String,
    /// Effect of the repair, with its consequences for contents; empty where there is none.
    pub repair: String,
    /// Something is in use beyond what is stated: marked free, or used by more than its count says.
    pub is_overused: bool,
}

/// Answer of a sink to an issue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Repair it, in memory.
    Repair,
    /// Leave it as it is; what depends on it may be reported too.
    Leave,
}

/// Progress of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Name of the pass that runs.
    pub pass: &'static str,
    /// Done of `of`, in units of the pass.
    pub done: u64,
    /// All there is to do in this pass.
    pub of: u64,
}

/// Receives what a check finds.
pub trait Sink {
    /// Receives an issue and decides. The order of issues is the same for the same volume. The decision makes no
    /// difference for an issue without a repair, and none after an issue that leaves a bitmap or a table of inodes at
    /// an impossible place.
    fn issue(&mut self, issue: Issue) -> Decision;

    /// Receives how far the check is, a few times a second at most.
    fn progress(&mut self, progress: Progress) {
        let _ = progress;
    }
}

/// Counts of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Issues found.
    pub issues: u64,
    /// Of these: repaired, in memory.
    pub repaired: u64,
    /// Inodes of the volume.
    pub inodes: u64,
    /// Inodes in use, reserved ones included.
    pub inodes_used: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks in use (whole clusters).
    pub blocks_used: u64,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Files and directories whose blocks lie in more than one piece.
    pub fragmented: u64,
}

impl Summary {
    /// Returns true if nothing is wrong, or nothing is any more.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.issues == self.repaired
    }
}
