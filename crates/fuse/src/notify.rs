//! Telling the kernel what changed without it.
//!
//! The kernel keeps names, attributes and bytes for ever, since all changes come through it. A change that is made
//! beside it is reported here. A message about a name waits for the directory's lock in the kernel, which a program may
//! hold while it waits for an answer. So no thread may send one that serves requests or holds a lock that serving needs.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::wire;

/// The way to tell the kernel.
#[derive(Debug)]
pub struct Notifier {
    device: OwnedFd,
}

impl Notifier {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Notifier { device }
    }

    /// Makes the kernel ask for a name of a directory again, also if it knows that there is none. It returns when
    /// every lookup of the directory has ended that began before.
    ///
    /// # Errors
    /// The connection has ended. That the kernel does not know the name or the directory is no error.
    pub fn name(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.send(&wire::invalidate_name(parent, name))
    }

    /// Makes the kernel ask for the attributes of a node again; with `contents`, also for its bytes or names, of which
    /// it first hands over what was written.
    ///
    /// # Errors
    /// As [`Notifier::name`].
    pub fn node(&self, node: u64, contents: bool) -> io::Result<()> {
        match contents {
            true => self.send(&wire::invalidate_contents(node)),
            false => self.send(&wire::invalidate_attributes(node)),
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        loop {
            match rustix::io::write(&self.device, message) {
                Ok(_) | Err(Errno::NOENT) => return Ok(()),
                // Something is mounted below, or a program holds the node in a way that keeps it.
                Err(Errno::BUSY | Errno::NOTEMPTY | Errno::NOTDIR) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
