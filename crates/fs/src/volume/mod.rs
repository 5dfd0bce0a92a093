//! An open volume: the facts of its format, its metadata cache and its free space.
//!
//! Owns: what an open volume consists of, and the superblock in memory. Excludes: opening (`opening`), how changes are
//! made (`attempt`), made stable (`sync`) and kept from readers (`seqlock`), and the verbs (`ops`).

mod attempt;
mod seqlock;
mod sync;

use std::ops::Deref;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ondisk::features::Incompat;
use ondisk::inode::Timestamp;
use ondisk::superblock::RawSuperblock;
use ondisk::units::Group;
use platfs_device::journal::Recovery;

use crate::cache::Cache;
use crate::context::Context;
use crate::error::Result;
use crate::format::Format;
use crate::locks;
use crate::order::Order;
use crate::reclaiming::Reclaiming;
use crate::session::Session;
use crate::space::Space;
use crate::tx::View;
use crate::versioned::Versioned;
use crate::versions::SPACE;
pub(crate) use seqlock::VersionedInode;
use sync::Syncs;

/// An open ext2, ext3 or ext4 volume. Verbs take `&self` and may be called from many threads.
///
/// This is a handle: others of the same volume ([`Volume::at_time`], [`Volume::on_behalf_of`]) share all but on whose terms
/// their verbs are done, and cost next to nothing.
pub struct Volume {
    pub(crate) core: Core,
}

impl Deref for Volume {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// Volume and terms that the verbs of a handle work with.
#[doc(hidden)]
#[expect(unnameable_types, reason = "what a handle leads to; it has no public part")]
pub struct Core {
    pub(crate) shared: Arc<Shared>,
    context: Context,
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// State that all handles of an open volume share.
#[doc(hidden)]
#[expect(unnameable_types, reason = "what a handle leads to; it has no public part")]
pub struct Shared {
    pub(crate) format: Versioned<Format>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) space: Versioned<Space>,
    pub(crate) session: Session,
    /// Held by those that take space from one update to a later one: the volume keeps its shape meanwhile. Taken before
    /// any other lock.
    shape: RwLock<()>,
    /// Held by each verb that changes something, and by a sync while it collects what there is to be
    /// written: an update in flight is never synced.
    writer: Mutex<()>,
    /// The right to write metadata to the device, and how far syncs have come.
    syncs: Syncs,
    recovery: Option<Recovery>,
    /// In which order changes reach the device.
    pub(crate) order: Order,
    /// Leftovers of a crash, to be reclaimed.
    pub(crate) reclaiming: Reclaiming,
}

/// Parts of a volume that opening has made ready.
pub(crate) struct Opened {
    pub(crate) format: Format,
    pub(crate) cache: Arc<Cache>,
    pub(crate) space: Space,
    pub(crate) session: Session,
    pub(crate) order: Order,
    pub(crate) recovery: Option<Recovery>,
}

impl Opened {
    /// Makes a volume of its parts, not used yet.
    pub(crate) fn into_volume(self, context: Context) -> Volume {
        let Opened { format, cache, space, session, order, recovery } = self;
        let shared = Shared {
            format: Versioned::new(format),
            cache,
            space: Versioned::new(space),
            session,
            shape: RwLock::default(),
            writer: Mutex::default(),
            syncs: Syncs::default(),
            recovery,
            order,
            reclaiming: Reclaiming::default(),
        };
        Volume { core: Core { shared: Arc::new(shared), context } }
    }
}

impl Volume {
    /// The facts of the volume's format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The superblock as last read or written.
    #[must_use]
    pub fn superblock(&self) -> RawSuperblock {
        self.session.superblock()
    }

    /// True if the journal may hold changes that were not brought to their places, because the volume was
    /// opened so ([`OpenOptions::noload`](crate::OpenOptions::noload)): reading shows it without them.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.format.has_incompat(Incompat::RECOVER)
    }

    /// Looks at the descriptors of all groups: files of a group with a broken one can't be read, but for
    /// [`OpenOptions::lenient`](crate::OpenOptions::lenient).
    ///
    /// # Errors
    /// The first that is broken.
    pub fn verify_descriptors(&self) -> Result<()> {
        self.space.descriptors().verify()
    }

    /// True if changes go through a journal.
    #[must_use]
    pub fn uses_journal(&self) -> bool {
        self.order.has_journal()
    }

    /// True if a crash at any time leaves a volume that needs no person to repair it.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.order.survives_crashes()
    }

    /// Tells if the volume is open for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.space.is_writable()
    }

    /// Result of replaying the journal when the volume was opened, if there was need of it. A volume that
    /// is only read was replayed in memory: the device is as it was.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// A group's block bitmap: bit `n` is cluster `n` of the group, set if in use; bits behind its last
    /// cluster are set. Groups whose bitmap is not initialised are shown as if it were.
    ///
    /// # Errors
    /// A broken descriptor or bitmap; the device's failure.
    pub fn block_bitmap(&self, group: Group) -> Result<Vec<u8>> {
        self.seqlock_read(SPACE, || self.space.block_bitmap(&*self.cache, group))
    }

    /// The time that changes get by this handle; the library reads no clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.core.context.now
    }

    /// Returns a handle of this volume at another time.
    #[must_use]
    pub fn at_time(&self, now: Timestamp) -> Volume {
        self.with(Context { now, ..self.context() })
    }

    /// Another time for the changes that this handle makes.
    pub fn set_now(&mut self, now: Timestamp) {
        self.core.context.now = now;
    }
}

/// Returns a handle that acts for a process: policies of ext2 and ext3 begin its files in a part of a group of its own
/// ([`platfs_placement` requests](placement::Request::process)). Space is as good without it.
#[must_use]
pub fn for_process(volume: &Volume, process: u32) -> Volume {
    volume.with(Context { process, ..volume.context() })
}

impl Core {
    /// The volume as a reader sees it.
    pub(crate) fn view(&self) -> View<'_> {
        View { blocks: &*self.cache, format: &self.format, space: &self.space }
    }

    /// Has the volume keep its shape.
    pub(crate) fn keep_shape(&self) -> RwLockReadGuard<'_, ()> {
        locks::read(&self.shape)
    }

    /// Waits until nobody needs that the volume keeps its shape.
    pub(crate) fn change_shape(&self) -> RwLockWriteGuard<'_, ()> {
        locks::write(&self.shape)
    }

    /// On whose terms verbs are done.
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Returns a handle of this volume on other terms.
    pub(crate) fn with(&self, context: Context) -> Volume {
        Volume { core: Core { shared: Arc::clone(&self.shared), context } }
    }
}
