//! Interface of the mount that the server of the channel works for.

use std::sync::Arc;

use platfs::device::SnapshotDevice;
use platfs::{Error, Volume};

use crate::bulk::Terms;

/// A mount, as the channel sees it.
pub trait Served: Send + Sync {
    /// The volume.
    fn volume(&self) -> &Volume;

    /// Returns true if it can be written.
    fn is_writable(&self) -> bool;

    /// Which extended attributes there are.
    fn terms(&self) -> Terms;

    /// From now on names change beside the kernel.
    fn begin_beside(&self);

    /// That is over again.
    fn end_beside(&self);

    /// A change failed, maybe over damage.
    fn failed(&self, error: &Error);

    /// The device, where snapshots of it can be taken.
    fn keeping(&self) -> Option<Arc<SnapshotDevice>>;

    /// Returns true if a program, at the other end of a socket, may do what is about all of the volume.
    fn keeps(&self, peer: fuse::Caller) -> bool;

    /// Waits no longer for what does not answer.
    fn give_up(&self);

    /// Makes everything stable.
    ///
    /// # Errors
    /// Errors of the volume.
    fn settle(&self) -> Result<(), Error>;
}
