//! A lack of space while removed files still hold theirs: the kernel gives them back on a way of its own, a moment after
//! their removal.
//!
//! Owns: whether a request that lacks space is done again, and for which files it waits. Excludes their end, which is the
//! library's, and how the kernel gives them back (`fuse`).
//!
//! A request waits as long as there is a file without a name of which nobody has found yet that it stays: that a program
//! has it open. What was waited for in vain is not waited for again before it is closed. That it was closed may be on its
//! way beside a request, on another thread; so there are a few looks all the same.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ondisk::units::InodeNumber;
use platfs::Error;

use super::{Failed, Tree};
use platfs_open::locks::locked;

/// Looks at what is left to come, and the time between them: a long file of many pieces took 66 ms to be given back.
const LOOKS: u32 = 50;
/// Looks where all files without a name were waited for in vain.
const FEW_LOOKS: u32 = 8;
const BETWEEN: Duration = Duration::from_millis(6);

/// Removed files that are still open.
#[derive(Default)]
pub(super) struct Removed {
    /// Those that were waited for in vain.
    staying: Mutex<HashSet<InodeNumber>>,
    /// Looks so far.
    looks: AtomicU64,
}

impl Removed {
    /// How often it is looked whether one of these files has come back.
    fn looks_for(&self, nameless: &[InodeNumber]) -> u32 {
        let staying = locked(&self.staying);
        match nameless.iter().all(|file| staying.contains(file)) {
            _ if nameless.is_empty() => 0,
            true => FEW_LOOKS,
            false => LOOKS,
        }
    }

    /// These were waited for in vain.
    fn stay(&self, nameless: Vec<InodeNumber>) {
        *locked(&self.staying) = nameless.into_iter().collect();
    }

    /// A file was closed or forgotten: it may come back soon, or has.
    pub(super) fn left(&self, file: InodeNumber) {
        locked(&self.staying).remove(&file);
    }

    /// How often it was looked whether removed files had come back.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

fn lacks_space<T>(done: &Result<T, Failed>) -> bool {
    matches!(done, Err(Failed::Error(Error::NoSpace | Error::NoInodes | Error::QuotaExceeded { .. })))
}

impl Tree {
    /// Does some work, and again if it lacks space that removed files still hold.
    pub(super) fn with_room<T>(&self, work: impl Fn() -> Result<T, Failed>) -> Result<T, Failed> {
        let done = work();
        if !lacks_space(&done) {
            return done;
        }
        let (volume, mut looks) = (self.volume_now(), 0);
        loop {
            self.catch_up();
            // Before the work: what comes back meanwhile may have come too late for it.
            let uses = volume.uses();
            let nameless = uses.nameless();
            uses.clear_away()?;
            let done = work();
            if !lacks_space(&done) {
                return done;
            }
            if looks >= self.removed.looks_for(&nameless) {
                self.removed.stay(nameless);
                return done;
            }
            looks += 1;
            self.removed.looks.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(BETWEEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_for_in_vain_is_waited_for_again_once_it_is_closed() {
        let removed = Removed::default();
        let [one, other] = [12, 13].map(|number| InodeNumber::new(number).unwrap());
        assert_eq!((removed.looks_for(&[]), removed.looks_for(&[one])), (0, LOOKS));
        removed.stay(vec![one]);
        assert_eq!((removed.looks_for(&[one]), removed.looks_for(&[one, other])), (FEW_LOOKS, LOOKS));
        removed.left(one);
        assert_eq!(removed.looks_for(&[one]), LOOKS);
    }
}
