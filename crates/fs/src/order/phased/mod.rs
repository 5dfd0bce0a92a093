//! Soft updates: metadata reaches the device without a journal, in an order that lets no crash do harm (invariants
//! I27 to I31).
//!
//! Owns: the phases of an epoch (all that one sync collects), what must be noted of changes so that they can
//! be separated, and which image of a block may stand on the device in which phase. Excludes: what the changes mean to
//! the verbs, when an epoch ends (`sync`), and the recovery of a volume that was cut off in one (`opening`).
//!
//! Between two phases the device is flushed. A block that holds changes of several phases goes out several
//! times, each time with what is allowed so far: [`image`] makes that of what the device had before the epoch
//! and what the block is to be. Two things can't be taken apart like that and are done by the verbs: maps and
//! indexes are not changed in place but moved to new blocks (I28), so that they switch with the record of their
//! inode (`Update::is_own`); and a directory block that a name has left takes no other until the epoch ends, so that
//! the name has room there until then.
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
mod slots;
mod softdep_record;
mod survey;

pub(super) use commit::Commit;
pub(crate) use slots::{facts, is_used};
pub(crate) use softdep_record::{Epoch, RemovedDir, RetainedName, SoftdepRecord};
pub(crate) use survey::{Facts, InodeSnapshot, LinkDelta, Survey};

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
