//! Inodes that a sync of their bytes alone has to wait for.
//!
//! Owns: which inodes changed by more than their times since the last commit, as updates are published: their records,
//! or blocks that these lead to. What such an inode was given is needed to read its bytes again, and only a commit
//! brings it to the device. Of all others the bytes lie where the device's own records lead (`fdatasync`). Excludes:
//! bytes that are still delayed (`dirty`), and names.

use std::sync::Mutex;

use ondisk::units::InodeNumber;

use crate::hashing::NumberSet;
use crate::locks::lock;

/// Those of the running transaction or epoch, and those of the one that is being written.
#[derive(Default)]
pub(super) struct Awaited(Mutex<Inodes>);

#[derive(Default)]
struct Inodes {
    running: NumberSet<InodeNumber>,
    written: NumberSet<InodeNumber>,
}

impl Awaited {
    /// An update was published that changed these. The caller has the writer's lock.
    pub(super) fn add(&self, inodes: &[InodeNumber]) {
        if !inodes.is_empty() {
            lock(&self.0).running.extend(inodes);
        }
    }

    /// A commit takes in what was published so far. The caller has the writer's lock.
    pub(super) fn begin(&self) {
        let mut inodes = lock(&self.0);
        let Inodes { running, written } = &mut *inodes;
        written.extend(running.drain());
    }

    /// That commit is on the device.
    pub(super) fn end(&self) {
        lock(&self.0).written.clear();
    }

    /// True if a commit has to come, or to end, before an inode's bytes can be read again after a crash.
    pub(super) fn has(&self, inode: InodeNumber) -> bool {
        let inodes = lock(&self.0);
        inodes.running.contains(&inode) || inodes.written.contains(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_awaited_until_its_commit_has_ended() {
        let [one, other] = [12, 13].map(|number| InodeNumber::new(number).unwrap());
        let awaited = Awaited::default();
        awaited.add(&[one]);
        awaited.begin();
        awaited.add(&[other]);
        assert!(awaited.has(one) && awaited.has(other));
        awaited.end();
        assert!(!awaited.has(one) && awaited.has(other));
        // A commit that failed is followed by none; one that was not made leaves all for the next.
        awaited.begin();
        awaited.begin();
        assert!(awaited.has(other));
        awaited.end();
        assert!(!awaited.has(other));
    }
}
