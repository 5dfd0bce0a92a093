//! What a run of a scenario leaves in a file of results.

use crate::results::{Cell, Results, Verdict};
use crate::scenario::{Scenario, Setup};
use crate::series::Point;
use crate::table::Rows;
use crate::verdict;

/// Appends the rows of all seeds, how the first policy compares, what the criteria did and what
/// happened over time.
///
/// # Errors
/// What the file system says.
pub(crate) fn keep(
    results: &Results,
    scenario: &Scenario,
    setup: &Setup,
    runs: &[Rows],
    points: &[Point],
) -> Result<(), String> {
    let sets = setup.sets.iter().map(|set| (set.to_string(), true.into()));
    let parameters: serde_json::Map<_, _> =
        sets.chain(setup.quick.then(|| ("quick".to_string(), true.into()))).collect();
    for (seed, rows) in (setup.seed..).zip(runs) {
        for row in rows {
            results.add(Cell {
                table: scenario.name.into(),
                case: row.case.clone(),
                system: row.policy.clone(),
                seed,
                parameters: parameters.clone(),
                figures: row.values.iter().copied().collect(),
                ..Cell::default()
            })?;
        }
    }
    if let Some(found) = verdict::compare(runs) {
        results.add(Verdict {
            table: scenario.name.into(),
            text: format!("{} is at least as good as the best of the others", found.ours),
            holds: found.behind.is_empty(),
            detail: told(&found),
        })?;
    }
    setup.counters.criteria(scenario.name).into_iter().try_for_each(|line| results.add(line))?;
    points.iter().try_for_each(|point| results.add(point.frame(scenario.name)))
}

/// In how many cells it is so, and the first where it is not.
fn told(found: &verdict::Comparison) -> String {
    const NAMED: usize = 5;
    let mut text = format!("in {} of {} figures", found.judged - found.behind.len(), found.judged);
    if !found.behind.is_empty() {
        let named = found.behind.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
        text += &format!("; not in {}", named.join("; "));
    }
    let more = found.behind.len().saturating_sub(NAMED);
    if more > 0 { format!("{text}; and {more} more") } else { text }
}
