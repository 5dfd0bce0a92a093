//! How to open a volume.

use ondisk::inode::Timestamp;
use placement::BlockPolicyKind;

/// What a crash may do to the contents of files, on volumes with a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// Bytes are on the device before a file leads to their blocks: no file shows what others had deleted.
    #[default]
    Ordered,
    /// They may come later: a file that was just written to may show anything where it grew.
    Writeback,
    /// They go through the journal like all else: a write that fits one transaction is there or not.
    Journal,
}

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub(crate) write: bool,
    pub(crate) policy: BlockPolicyKind,
    pub(crate) loading: bool,
    pub(crate) delay: u64,
    pub(crate) unordered: bool,
    pub(crate) force: bool,
    pub(crate) noload: bool,
    pub(crate) data: DataMode,
    pub(crate) discard: bool,
    pub(crate) now: Timestamp,
    pub(crate) seed: u64,
}

impl OpenOptions {
    /// Reading only.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens for writing too.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// The block allocation policy.
    #[must_use]
    pub fn policy(mut self, policy: BlockPolicyKind) -> Self {
        self.policy = policy;
        self
    }

    /// For a loader of a whole tree: inodes and data are laid out in the order in which they are
    /// created, instead of spreading directories for later growth, and times are left to the
    /// loader.
    #[must_use]
    pub fn loading(mut self, loading: bool) -> Self {
        self.loading = loading;
        self
    }

    /// Bytes written by [`Volume::write_at`](crate::Volume::write_at) that may wait in memory before they
    /// get their blocks; with 0, the default, they get them at once.
    #[must_use]
    pub fn delay(mut self, bytes: u64) -> Self {
        self.delay = bytes;
        self
    }

    /// The time that changes get; the library reads no clock.
    #[must_use]
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// Where inode generations begin; the library has no randomness of its own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What the journal says of the contents of files.
    #[must_use]
    pub fn data(mut self, data: DataMode) -> Self {
        self.data = data;
        self
    }

    /// Writes volumes with a journal without using it: what a crash leaves then has to be checked.
    #[must_use]
    pub fn unordered(mut self, unordered: bool) -> Self {
        self.unordered = unordered;
        self
    }

    /// Writes volumes that were not closed cleanly, or are marked as having errors, too: the caller
    /// answers for what that does to them.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Leaves a journal as it is that holds changes which are not in their places: the volume is read
    /// without them, and can't be written.
    #[must_use]
    pub fn noload(mut self, noload: bool) -> Self {
        self.noload = noload;
        self
    }

    /// Tells the device of space that becomes free.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }
}
