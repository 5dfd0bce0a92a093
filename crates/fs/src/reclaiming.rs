//! How far the reclaiming of what a crash left has come.
//!
//! Owns: what is known of it while a volume is in use. Excludes: doing it (`ops::reclaim`), and the counting (`order`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::units::InodeNumber;

use crate::bits::Bits;

/// Stage of reclaiming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Survey,
    Clusters,
    Inodes,
    Links,
    Nameless,
    Directories,
    Attributes,
    Done,
}

/// Progress of reclaiming, and work left.
pub(crate) struct Work {
    pub(crate) stage: Stage,
    /// Where the stage has come to.
    pub(crate) at: u64,
    /// Clusters that were marked at opening and not found to have an owner.
    pub(crate) clusters: Bits,
    /// Inodes that are marked and whose records say that they are not in use.
    pub(crate) strays: Vec<InodeNumber>,
    /// Directories without a name that are being emptied, each in the one before it.
    pub(crate) nest: Vec<InodeNumber>,
}

/// Reclaiming, as the volume knows it.
#[derive(Default)]
pub(crate) struct Reclaiming {
    pub(crate) work: Mutex<Option<Work>>,
    /// Something is left to be done.
    pub(crate) pending: AtomicBool,
    /// It came upon damage, and ended: the volume stays marked as not in order.
    pub(crate) failed: AtomicBool,
    pub(crate) stopped: AtomicBool,
    pub(crate) seen: AtomicU64,
    pub(crate) total: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) inodes: AtomicU64,
}

/// How far reclaiming has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Inodes that were looked at.
    pub seen: u64,
    /// Inodes that are to be looked at.
    pub total: u64,
    /// Inodes freed that had no name, or were only marked.
    pub inodes: u64,
    /// Blocks freed that had no owner.
    pub blocks: u64,
}

impl Work {
    /// Goes to the beginning of a stage.
    pub(crate) fn enter(&mut self, stage: Stage) {
        (self.stage, self.at) = (stage, 0);
    }
}

impl Reclaiming {
    /// True if anything is left.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// True if the volume must not be marked clean.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_pending() || self.failed.load(Ordering::Acquire)
    }
}
