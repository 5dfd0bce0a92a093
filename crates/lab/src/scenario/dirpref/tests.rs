//! The order of the policies in every cell, in counts.

use super::*;
use std::collections::BTreeMap;

/// Seconds of 2001 under the rule before and after, where nothing waits for metadata.
const PUBLISHED: [(&str, f64, f64); 4] = [
    ("8 GB async untar", 285.0, 144.0),
    ("40 GB async untar", 302.0, 25.7),
    ("8 GB async rm", 130.0, 14.0),
    ("40 GB async rm", 112.0, 2.26),
];

#[test]
fn dirpref_beats_spread_and_near_is_no_worse_in_every_cell() {
    let policies = ["near", "dirpref", "spread"].map(String::from).to_vec();
    let rows = run(&Setup { seed: 1, policies, ..Setup::default() });
    let mut cells: BTreeMap<&str, BTreeMap<&str, [f64; 3]>> = BTreeMap::new();
    for row in &rows {
        let value = |wanted| row.values.iter().find(|(name, _)| *name == wanted).unwrap().1;
        let figures = ["seeks", "seconds", "groups"].map(value);
        cells.entry(&row.case).or_default().insert(&row.policy, figures);
    }
    // 16, and eight of removals after a remount.
    assert_eq!(cells.len(), 24);
    for (case, cell) in &cells {
        let [near, dirpref, spread] = ["near", "dirpref", "spread"].map(|policy| cell[policy]);
        assert!(dirpref[0] < spread[0] && dirpref[1] < spread[1], "{case}: {dirpref:?} {spread:?}");
        assert!(near[0] <= dirpref[0] && near[1] <= dirpref[1], "{case}: {near:?} {dirpref:?}");
        // The old rule is in every group, the others in a few.
        assert!(spread[2] > 990.0 && near[2] < 60.0 && dirpref[2] < 60.0, "{case}");
    }
    for (case, before, after) in PUBLISHED {
        let speedup = cells[case]["spread"][1] / cells[case]["dirpref"][1];
        assert!(speedup >= before / after, "{case}: {speedup}");
    }
}
