//! A run is a function of its seed: what a campaign finds can be looked at again.

use crate::runs::record;
use crate::{Order, workloads};

#[test]
fn runs_repeat_themselves() {
    for workload in Order::ALL.into_iter().flat_map(workloads) {
        for seed in 4..6 {
            let runs =
                [(), ()].map(|()| record(&workload, seed, workload.calls.count()).map(|run| run.events));
            let [one, other] = runs.map(Option::unwrap_or_default);
            let first = one.iter().zip(&other).position(|(one, other)| one != other);
            assert!(first.is_none() && one.len() == other.len(), "{workload}, seed {seed}: event {first:?}");
        }
    }
}
