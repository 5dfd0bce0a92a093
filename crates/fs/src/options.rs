//! How to open a volume.

use std::fmt;
use std::sync::Arc;

use ondisk::inode::Timestamp;
use placement::policy::BlockPolicy;
use placement::{BlockPolicyKind, DirectoryPolicyKind, Placing};

use crate::device::mmp::{Host, ThisHost};
use crate::keys::Key;

/// Protection of the contents of files against a crash, on volumes with a journal.
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

/// In which order changes reach the device, and when: what a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteOrder {
    /// Through the journal, where there is one; else in any order.
    #[default]
    Journal,
    /// Without a journal, in phases (soft updates): a crash leaves no damage, only space and inodes to be
    /// reclaimed. A journal is left unused.
    Softdep,
    /// As `Softdep`, and each change of metadata is stable when it returns.
    Normal,
    /// As `Normal`, and bytes that are written too.
    Sync,
    /// In any order, past the journal: what a crash leaves has to be checked.
    Async,
}

/// Makes a block policy of the caller's own.
#[derive(Clone)]
pub(crate) struct OwnPolicy(Arc<dyn Fn() -> Box<dyn BlockPolicy> + Send + Sync>);

impl fmt::Debug for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnPolicy")
    }
}

/// The host that takes the mark of multiple mount protection.
#[derive(Clone)]
pub(crate) struct OwnHost(Arc<dyn Host>);

impl fmt::Debug for OwnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnHost")
    }
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) write: bool,
    pub(crate) placing: Placing,
    pub(crate) stripe: Option<u32>,
    pub(crate) own_policy: Option<OwnPolicy>,
    pub(crate) tunables: Vec<(String, u32)>,
    pub(crate) loading: bool,
    pub(crate) replaying: bool,
    pub(crate) expect_closes: bool,
    pub(crate) delay: u64,
    pub(crate) cache: Option<u64>,
    pub(crate) bitmaps: Option<u64>,
    pub(crate) ordering: WriteOrder,
    pub(crate) force: bool,
    pub(crate) noload: bool,
    pub(crate) lenient: bool,
    pub(crate) data: DataMode,
    pub(crate) discard: bool,
    pub(crate) limits: bool,
    pub(crate) now: Timestamp,
    pub(crate) seed: u64,
    pub(crate) keys: Vec<Key>,
    pub(crate) host: Option<OwnHost>,
    pub(crate) unshared: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            write: false,
            placing: Placing::default(),
            stripe: None,
            own_policy: None,
            tunables: Vec::new(),
            loading: false,
            replaying: false,
            expect_closes: true,
            delay: 0,
            cache: None,
            bitmaps: None,
            ordering: WriteOrder::default(),
            force: false,
            noload: false,
            lenient: false,
            data: DataMode::default(),
            discard: false,
            limits: true,
            now: Timestamp::default(),
            seed: 0,
            keys: Vec::new(),
            host: None,
            unshared: false,
        }
    }
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

    /// Keys of encrypted files, for reading only: names and contents are shown as the programs that wrote them see them.
    /// Without a key for them, names are shown as Linux shows them without one, and contents are refused.
    #[must_use]
    pub fn keys(mut self, keys: &[Key]) -> Self {
        self.keys = keys.to_vec();
        self
    }

    /// Policies and their parameters, over what the volume itself says ([`crate::placing`]).
    #[must_use]
    pub fn placing(mut self, placing: Placing) -> Self {
        self.placing = placing;
        self
    }

    /// Blocks of a RAID stripe, instead of what the superblock says; 1 for none. Policies that know stripes align
    /// by it: those called `mballoc`.
    #[must_use]
    pub fn stripe(mut self, blocks: u32) -> Self {
        self.stripe = Some(blocks);
        self
    }

    /// The block allocation policy; if not said, that of the volume, else the library's default.
    #[must_use]
    pub fn policy(mut self, policy: BlockPolicyKind) -> Self {
        self.placing.blocks = Some(policy);
        self
    }

    /// A block allocation policy of the caller's own, in place of one of the library's; it has no tunables. The example
    /// `policy` of this crate has one.
    #[must_use]
    pub fn own_policy(mut self, make: impl Fn() -> Box<dyn BlockPolicy> + Send + Sync + 'static) -> Self {
        self.own_policy = Some(OwnPolicy(Arc::new(make)));
        self
    }

    /// Tunables of the policies, by name; opening fails for names and values that they don't have.
    #[must_use]
    pub fn tunables(mut self, tunables: &[(&str, u32)]) -> Self {
        self.tunables = tunables.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        self
    }

    pub(crate) fn own_block_policy(&self) -> Option<Box<dyn BlockPolicy>> {
        self.own_policy.as_ref().map(|OwnPolicy(make)| make())
    }

    /// The policy that says where inodes of directories and files go.
    #[must_use]
    pub fn directories(mut self, policy: DirectoryPolicyKind) -> Self {
        self.placing.inodes = Some(policy);
        self
    }

    /// Says if the caller reports when files are closed, by [`Uses::release`](crate::Uses::release); it does if
    /// not said. Where it does not, whether a file still grows is judged by the rhythm of its writes.
    #[must_use]
    pub fn expect_closes(mut self, expect: bool) -> Self {
        self.expect_closes = expect;
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

    /// A good value of [`OpenOptions::delay`] on a machine with `memory` bytes: 1/32 of them, between 32 and
    /// 320 MiB. Files that grow side by side stay in one piece while all of them fit.
    #[must_use]
    pub fn suggested_delay(memory: u64) -> u64 {
        (memory / 32).clamp(32 << 20, 320 << 20)
    }

    /// Bytes written by [`Volume::write_at`](crate::Volume::write_at) that may wait in memory before they
    /// get their blocks; with 0, the default, they get them at once.
    #[must_use]
    pub fn delay(mut self, bytes: u64) -> Self {
        self.delay = bytes;
        self
    }

    /// Memory for metadata blocks, in bytes, before clean ones are dropped; 32 MiB if not said. Changed ones
    /// are on their way to the device once they take half of it, where no journal holds them.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> Self {
        self.cache = Some(bytes);
        self
    }

    /// Memory for what is known of the free space of groups, in bytes; all that was seen is kept if not said. What was unused
    /// for longest is dropped after a sync, and its bitmap read again when it is wanted.
    #[must_use]
    pub fn bitmaps(mut self, bytes: u64) -> Self {
        self.bitmaps = Some(bytes);
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

    /// Sets the journaling of the contents of files.
    #[must_use]
    pub fn data(mut self, data: DataMode) -> Self {
        self.data = data;
        self
    }

    /// In which order changes reach the device.
    #[must_use]
    pub fn ordering(mut self, ordering: WriteOrder) -> Self {
        self.ordering = ordering;
        self
    }

    /// Writes volumes with a journal without using it: what a crash leaves then has to be checked.
    #[must_use]
    pub fn unordered(mut self, unordered: bool) -> Self {
        match (unordered, self.ordering) {
            (true, _) => self.ordering = WriteOrder::Async,
            (false, WriteOrder::Async) => self.ordering = WriteOrder::Journal,
            (false, _) => {}
        }
        self
    }

    /// The host that takes the mark of a volume with multiple mount protection: its name, its clock, how it waits. If not
    /// said, this machine.
    #[must_use]
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(OwnHost(host));
        self
    }

    /// Says that no other host can reach the volume, as a file that was just made: the mark of multiple mount protection is
    /// not taken. Without it an opening for writing of a volume that has one waits for 11 seconds or more, and while the
    /// volume is open the mark is renewed ([`mmp`](crate::device::mmp)); [`Device::protection`](crate::device::Device)
    /// of devices that hold it, or that nobody else reaches, says so by itself.
    #[must_use]
    pub fn unshared(mut self, unshared: bool) -> Self {
        self.unshared = unshared;
        self
    }

    /// The host whose mark is to be taken before anything is written, if one is.
    pub(crate) fn marking(&self) -> Option<Arc<dyn Host>> {
        let is_meant = self.write && !(self.loading || self.replaying || self.unshared);
        let own = || self.host.as_ref().map(|OwnHost(host)| Arc::clone(host));
        is_meant.then(|| own().unwrap_or_else(|| Arc::new(ThisHost::new(b"platfs"))))
    }

    /// For replay of fast commits: the volume is opened as its log left it, and nothing is done to it but what the
    /// caller does.
    pub(crate) fn replaying(write: bool) -> Self {
        let replaying = OpenOptions { replaying: true, ..Self::new() };
        replaying.write(write).loading(true).unordered(true).force(true)
    }

    pub(crate) fn uses_journal(&self) -> bool {
        self.ordering == WriteOrder::Journal
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

    /// Reads what is there of a damaged volume: one whose device ends before it does, or with descriptors of groups whose
    /// checksum is wrong, as Linux reads them. Such a volume can't be written.
    #[must_use]
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// Enforces limits of quota, or not; the default is to enforce. Usage is counted in any case.
    #[must_use]
    pub fn limits(mut self, limits: bool) -> Self {
        self.limits = limits;
        self
    }

    /// Discards space that becomes free.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }
}
