//! The runs of a workload by their seeds: which calls are made, and on which volume.

use testkit::random::Random;

use crate::ace;
use crate::deep::DeepChooser;
use crate::random::Chooser;
use crate::reclaim;
use crate::record::record_on;
use crate::run::Run;
use crate::workload::{Calls, Workload};

/// Records a run of this many calls on a volume where others were made before; for random ones the seed decides where
/// in the log it begins. `None` if a call of a sequence can't be made, or no crash left anything to reclaim.
pub(crate) fn record(workload: &Workload, seed: u64, calls: u64) -> Option<Run> {
    let Calls::Reclaiming { deep } = workload.calls else { return fresh(workload, seed, calls) };
    let before = Workload { calls: reclaim::calls_before(deep), ..*workload };
    let crashed = fresh(&before, seed, reclaim::COUNT_BEFORE)?;
    reclaim::record(workload, &crashed, calls)
}

/// Records a run on a new volume.
fn fresh(workload: &Workload, seed: u64, calls: u64) -> Option<Run> {
    record_on(workload, workload.made(), seed, |caller, begin| {
        match workload.calls {
            Calls::Reclaiming { .. } => {}
            Calls::Random(profile) => {
                let mut chooser = Chooser { caller, random: Random(seed), profile };
                chooser.prepare();
                let before = if seed % 2 == 1 { 0 } else { chooser.random.below(500) };
                chooser.run(before);
                begin(chooser.caller);
                chooser.run(calls);
            }
            Calls::DeepChooser => {
                let mut chooser = DeepChooser { caller, random: Random(seed) };
                // Half of the runs begin with an empty volume.
                let is_empty = seed % 2 == 1;
                if is_empty {
                    begin(chooser.caller);
                }
                chooser.prepare();
                if !is_empty {
                    begin(chooser.caller);
                }
                chooser.run(calls);
            }
            Calls::Sequences => {
                ace::prepare(caller);
                begin(caller);
                ace::run(caller, &ace::sequence(usize::try_from(seed).unwrap()))?;
            }
        }
        Some(())
    })
}
