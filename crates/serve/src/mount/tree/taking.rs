//! Terms of callers: for whom a mount takes them, and on whose terms a request takes space: limits of quota, and the
//! blocks that the superblock reserves.
//!
//! Owns: who is bound by them. Excludes the limits themselves, which are the library's, and the answers to the kernel's
//! questions (`asking`).
//!
//! As Linux has it, the superblock names who may take the reserve, and `CAP_SYS_RESOURCE` passes over all. Whether a
//! caller has that is asked only where there is no room without.

use fuse::Caller;
use platfs::rights::Powers;
use platfs::{Error, Volume};

use super::callers;
use super::{Altering, Tree};

impl Tree {
    /// The caller of a request as this mount takes it: with `fakeroot`, root.
    pub(super) fn taken_for(&self, caller: Caller) -> Caller {
        if self.terms.fake_root { Caller { uid: 0, gid: 0, ..caller } } else { caller }
    }

    /// Tells if a caller has these capabilities. Whoever is taken for root has all.
    pub(super) fn has(&self, caller: Caller, powers: Powers) -> bool {
        self.terms.fake_root || callers::has(caller, powers)
    }
}

impl Altering<'_> {
    /// Does for a caller what may take space. `work` runs a second time, without limits, if there is no room and the caller
    /// has `CAP_SYS_RESOURCE`.
    pub(super) fn taking<T>(
        &self,
        caller: Caller,
        work: impl Fn(&Volume) -> platfs::Result<T>,
    ) -> platfs::Result<T> {
        match work(&self.volume.on_behalf_of(caller.uid, caller.gid)) {
            Err(Error::NoSpace | Error::QuotaExceeded { .. }) if self.has(caller, Powers::SYS_RESOURCE) => {
                work(&self.volume)
            }
            done => done,
        }
    }
}
