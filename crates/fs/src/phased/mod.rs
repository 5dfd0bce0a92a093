//! Soft updates: metadata reaches the device without a journal, in an order that lets no crash do harm (invariants
//! I27 to I31).
//!
//! Owns: the phases of an epoch (all that one sync collects), what must be noted of changes so that they can
//! be told apart, and which image of a block may stand on the device in which phase; and the recovery of a
//! volume that was cut off in one, which goes by what `check` finds. Excludes: what the changes mean to the
//! verbs, and when an epoch ends (`sync`).
//!
//! Between two phases the device is flushed. A block that holds changes of several phases goes out several
//! times, each time with what is allowed so far: [`image`] makes that of what the device had before the epoch
//! and what the block is to be. Two things can't be taken apart like that and are done by the verbs: maps and
//! indexes are not changed in place but moved to new blocks, so that they switch with the record of their
//! inode ([`Update::is_own`](crate::txn::Update::is_own)); and a directory block that a name has left takes no
//! other until the epoch ends, so that the name has room there as long as it must.
//!
//! ```text
//!  Prepare   bitmaps of groups that were never used, whose descriptors still say so
//!  Allocate  bits set; contents of blocks that nothing leads to, new directories as if empty and their own parents
//!  Inode     records, with as many links as they have at any time in the epoch; of directories only that
//!  Up        new directories lead to their parents
//!  Link      names that appear or lead elsewhere; maps of directories
//!  Unlink    names that vanish
//!  Down      directories that go inside of one that goes lead to themselves
//!  Clear     records that go; links of files
//!  Release   bits cleared; links of directories; references to attribute blocks; counts
//! ```

mod commit;
mod image;
mod leaves;
pub(crate) mod mark;
mod notes;
mod recovery;
mod slots;
mod survey;

pub(crate) use commit::Commit;
pub(crate) use notes::{Epoch, Grave, Kept, Notes};
pub(crate) use recovery::{Unclean, recover};
pub(crate) use slots::{facts, is_used};
pub(crate) use survey::{Facts, Sight, Survey, Tally};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use crate::error::{Error, Result};
use crate::txn::Update;

/// A stage of an epoch, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Prepare,
    Allocate,
    Inode,
    Up,
    Link,
    Unlink,
    Down,
    Clear,
    Release,
}

impl Phase {
    const ALL: [Phase; 9] = [
        Phase::Prepare,
        Phase::Allocate,
        Phase::Inode,
        Phase::Up,
        Phase::Link,
        Phase::Unlink,
        Phase::Down,
        Phase::Clear,
        Phase::Release,
    ];
}

/// Refuses, until the epoch has ended, to change a directory block in which the place of a name that left
/// must stay free.
///
/// # Errors
/// [`Error::LogFull`].
pub(crate) fn refuse_left(update: &Update<'_>, block: u64) -> Result<()> {
    match update.epoch() {
        Some(epoch) if epoch.has_kept(block) => Err(Error::LogFull),
        _ => Ok(()),
    }
}

/// Whether a name that left a directory block has to stay there for a while.
pub(crate) fn is_left(update: &Update<'_>, block: u64) -> bool {
    !update.noted().kept(block).is_empty() || update.epoch().is_some_and(|epoch| epoch.has_kept(block))
}

/// What a name led to that leaves its directory block: to be kept there until its inode's new names are on
/// the device.
pub(crate) struct Leaving<'n> {
    pub(crate) block: u64,
    pub(crate) directory: InodeNumber,
    pub(crate) name: &'n [u8],
    pub(crate) inode: InodeNumber,
    pub(crate) file_type: Option<FileType>,
}

impl Leaving<'_> {
    /// Whether the inode may have no name on the device but this one and those that this epoch adds; or be a
    /// directory out of which such a one was moved.
    pub(crate) fn matters(&self, update: &Update<'_>) -> bool {
        let Some(epoch) = update.epoch() else { return false };
        let (noted, number) = (update.noted(), self.inode);
        let named = noted.names_of(number) > 0 || epoch.names_of(number) > 0;
        named || noted.is_left(number) || epoch.is_left(number)
    }

    /// Notes it.
    pub(crate) fn keep(&self, update: &mut Update<'_>) {
        let kept = Kept { name: self.name.to_vec(), inode: self.inode, file_type: self.file_type };
        update.note(|notes| notes.keep(self.block, self.directory, kept));
    }
}
