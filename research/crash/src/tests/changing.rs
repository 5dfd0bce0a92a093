//! Runs in which the volume as a whole changes do change it.

use crate::model::Model;
use crate::order::Order;
use crate::runs::record;
use crate::workload::{Workload, workload};

/// Pairs of models around a call between which something is so.
fn count(workload: &Workload, is: impl Fn(&Model, &Model) -> bool) -> usize {
    let of = |seed| record(workload, seed, 300).unwrap().history;
    (1..3).flat_map(of).collect::<Vec<_>>().windows(2).filter(|pair| is(&pair[0], &pair[1])).count()
}

#[test]
fn volumes_get_labels_sizes_and_quotas() {
    let journaled = workload(Order::Ordered, "changing").unwrap();
    let bare = workload(Order::Softdep, "changing").unwrap();
    let labels = |workload| count(workload, |one, next| one.whole.label != next.whole.label);
    assert!(labels(&journaled) > 5 && labels(&bare) > 5);
    let on = count(&journaled, |one, next| !one.whole.counted[0] && next.whole.counted[0]);
    let off = count(&journaled, |one, next| one.whole.counted[0] && !next.whole.counted[0]);
    let limits = count(
        &journaled,
        |one, next| matches!((one.whole.limit, next.whole.limit), (Some(before), Some(after)) if before != after),
    );
    assert!(on > 2 && off > 2 && limits > 1, "{on} {off} {limits}");
    let larger = count(&journaled, |one, next| one.whole.blocks < next.whole.blocks);
    let smaller = count(&journaled, |one, next| one.whole.blocks > next.whole.blocks);
    assert!(larger > 5 && smaller > 5, "{larger} {smaller}");
}
