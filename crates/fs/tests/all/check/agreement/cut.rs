//! Repairs that are cut off: whatever part of one reached the device, the next repair finishes.
//!
//! `PLATFS_SEED` and `PLATFS_STEPS` name the first image and how many there are, as in the comparison.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platfs::check::Staged;
use platfs::device::Device;

use super::number_from;
use super::trial::{Bench, examine, lost};
use crate::check::plant::ready;

/// Images of which repairs are cut off by default, and places where they are.
const IMAGES: u64 = 36;
const CUTS: u64 = 6;

/// A device that stops taking writes, the last one in the middle.
struct Failing {
    inner: Arc<Staged>,
    left: AtomicU64,
    taken: AtomicU64,
}

impl Device for Failing {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        match self.left.load(Ordering::Relaxed) {
            0 => {
                self.inner.write_at(offset, &data[..data.len() / 2 / 512 * 512])?;
                Err(io::Error::other("cut off"))
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                self.inner.write_at(offset, data)
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_repair_that_is_cut_off_is_finished_by_the_next() {
    if !ready("a_repair_that_is_cut_off_is_finished_by_the_next") {
        return;
    }
    let mut bench = Bench::new(false);
    let mut cut_off = 0;
    let (first, count) = (number_from("PLATFS_SEED").unwrap_or(0), number_from("PLATFS_STEPS"));
    let count = count.unwrap_or(IMAGES);
    for number in first..first + count {
        // Only of repairs that please when they are not cut off.
        if !bench.look(number).iter().all(super::trial::Finding::is_pleasing) {
            continue;
        }
        let writes = bench.cut(number, u64::MAX).unwrap_or(0);
        let step = (writes / CUTS).max(1);
        for left in (0..writes).step_by(step as usize) {
            bench.cut(number, left);
            cut_off += 1;
        }
    }
    assert!(cut_off >= count, "only {cut_off} repairs were cut off");
}

impl Bench {
    /// Repairs image `number` with a bounded number of writes, then again without a limit, and judges that. How many
    /// writes there were; `None` where there was nothing to repair.
    fn cut(&mut self, number: u64, left: u64) -> Option<u64> {
        let (ready, mutant) = self.mutant(number);
        let device = Arc::new(Failing {
            inner: Arc::clone(&mutant.device),
            left: AtomicU64::new(left),
            taken: AtomicU64::new(0),
        });
        let (_, outcome) = examine(Arc::clone(&device) as Arc<dyn Device>, false).ok()?;
        if outcome.repaired.is_unchanged() {
            return None;
        }
        assert_eq!(outcome.repaired.apply().is_ok(), left == u64::MAX, "image {number} after {left} writes");
        let (first, outcome) = examine(Arc::clone(&mutant.device) as Arc<dyn Device>, false).ok()?;
        if left == u64::MAX {
            assert!(first.ids.is_empty(), "image {number}: {:?}", first.ids);
            return Some(device.taken.load(Ordering::Relaxed));
        }
        let place = format!("image {number} cut off after {left} writes");
        let (again, _) = examine(Arc::clone(&outcome.repaired) as Arc<dyn Device>, false).ok()?;
        assert!(again.ids.is_empty(), "{place}: {:?}", again.ids);
        let said = ready.complaints([&mutant.device, &outcome.repaired]);
        assert!(said.is_empty(), "{place}: {said}");
        let lost = lost(&ready, &mutant, &outcome.repaired);
        assert!(lost.is_none(), "{place}: lost {lost:?}");
        None
    }
}
