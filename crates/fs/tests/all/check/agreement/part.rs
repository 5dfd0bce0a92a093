//! Repairs of which every second one is declined: nothing is damaged further, and after the rest is repaired later
//! the volume is sound.
//!
//! `PLATFS_SEED` and `PLATFS_STEPS` name the first image and how many there are, as in the comparison.

use std::sync::Arc;

use platfs::device::Device;

use super::number_from;
use super::trial::{Bench, Ears, Finding, examine, listen, lost};
use crate::check::plant::ready;

/// Images by default.
const IMAGES: u64 = 54;

#[test]
fn what_is_declined_can_be_agreed_to_later() {
    if !ready("what_is_declined_can_be_agreed_to_later") {
        return;
    }
    let mut bench = Bench::new(false);
    let (first, count) = (number_from("PLATFS_SEED").unwrap_or(0), number_from("PLATFS_STEPS"));
    let mut faults = Vec::new();
    for number in first..first + count.unwrap_or(IMAGES) {
        // Only of repairs that please when all are made.
        if bench.look(number).iter().all(Finding::is_pleasing) {
            for which in 0..2 {
                faults.extend(
                    bench.part(number, which).map(|fault| format!("image {number}, {which}: {fault}")),
                );
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

impl Bench {
    /// Repairs image `number` but for every second issue, then the rest, and judges that.
    fn part(&mut self, number: u64, which: u64) -> Option<String> {
        let (ready, mutant) = self.mutant(number);
        let ears = Ears::leaving(2, which);
        let (before, outcome) = match listen(Arc::clone(&mutant.device) as Arc<dyn Device>, ears) {
            Ok(found) => found,
            Err(Finding::Broken { how }) => return Some(how),
            Err(_) => return None,
        };
        let partly = outcome.repaired;
        let (rest, outcome) = examine(Arc::clone(&partly) as Arc<dyn Device>, false).ok()?;
        let (settled, _) = examine(Arc::clone(&outcome.repaired) as Arc<dyn Device>, false).ok()?;
        if !settled.ids.iter().all(|id| rest.stay.contains(id)) {
            return Some(format!(
                "not settled: {:?} after {:?} after {:?}",
                settled.ids, rest.ids, before.ids
            ));
        }
        let device = &outcome.repaired;
        let said = ready.complaints([&mutant.device, &partly, device]);
        if !said.is_empty() {
            return Some(format!("e2fsck: {said}\n after {:?} after {:?}", rest.ids, before.ids));
        }
        if let Some(lost) = lost(&ready, &mutant, device) {
            return Some(format!("lost {lost:?} after {:?} after {:?}", rest.ids, before.ids));
        }
        None
    }
}
