//! What the server of the channel asks of the mount that it works for.

use platfs::{Error, Volume};

/// A mount, as the channel sees it.
pub trait Served: Send + Sync {
    /// The volume.
    fn volume(&self) -> &Volume;

    /// Whether it can be written.
    fn is_writable(&self) -> bool;

    /// Whether access control lists count.
    fn has_lists(&self) -> bool;

    /// Notes that names changed which the kernel did not change: answers that were on their way may be of before.
    fn names_changed(&self);

    /// A change failed, maybe over damage.
    fn failed(&self, error: &Error);

    /// Makes everything stable.
    ///
    /// # Errors
    /// What the volume says.
    fn settle(&self) -> Result<(), Error>;
}
