//! The engines' counters at the end of each run, printed in the shape of the kernel's `mb_stats`.

use crate::numbers::float;
use crate::results::Criteria;
use placement::stats::{Criterion, CriterionStats, Stats};
use placement::{BlockPolicyKind, Engine};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Counters of one run.
#[derive(Clone, Debug)]
struct Kept {
    case: String,
    policy: &'static str,
    stats: Stats,
}

/// Where scenarios leave counters, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    kept: Option<Arc<Mutex<Vec<Kept>>>>,
}

impl Ledger {
    /// One that keeps what it is given.
    pub(crate) fn keeping() -> Ledger {
        Ledger { kept: Some(Arc::default()) }
    }

    /// Keeps the counters of an engine.
    pub(crate) fn note(&self, case: &str, policy: BlockPolicyKind, engine: &Engine) {
        if let Some(kept) = &self.kept {
            let run = Kept { case: case.into(), policy: policy.name(), stats: engine.stats() };
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
    }

    /// All that was kept, as text; it is forgotten.
    pub(crate) fn text(&self) -> String {
        let Some(kept) = &self.kept else { return String::new() };
        let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        kept.iter().map(one).collect()
    }

    /// What the criteria did, of policies that have any, as lines of a file of results.
    pub(crate) fn criteria(&self, table: &str) -> Vec<Criteria> {
        let has_any = |run: &Kept| Criterion::ALL.iter().any(|c| run.stats.criterion(*c).hits > 0);
        let of = |run: &Kept, count: fn(&CriterionStats) -> u64| {
            Criterion::ALL.iter().map(|c| (c.name(), float(count(&run.stats.criterion(*c))))).collect()
        };
        let line = |run: &Kept| Criteria {
            table: table.into(),
            case: run.case.clone(),
            system: run.policy.into(),
            hits: of(run, |c| c.hits),
            scanned: of(run, |c| c.extents_scanned),
            ..Criteria::default()
        };
        let Some(kept) = &self.kept else { return Vec::new() };
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|run| has_any(run)).map(line).collect()
    }
}

/// Writing to a string can't fail.
fn one(Kept { case, policy, stats }: &Kept) -> String {
    let mut out = format!("{case}, {policy}:\n");
    for (counter, count) in stats.iter() {
        let _ = writeln!(out, "\t{counter}: {count}");
    }
    for criterion in Criterion::ALL {
        let counts = stats.criterion(criterion);
        let _ = writeln!(out, "\tcr_{}_stats:", criterion.name());
        let figures = [
            ("hits", counts.hits),
            ("groups_considered", counts.groups_considered),
            ("extents_scanned", counts.extents_scanned),
            ("useless_loops", counts.useless_loops),
        ];
        for (figure, count) in figures {
            let _ = writeln!(out, "\t\t{figure}: {count}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::scenario::{SCENARIOS, Setup};
    use crate::table::Rows;

    fn run(ledger: super::Ledger) -> Rows {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "nine-writers").unwrap();
        let policies = vec!["mballoc".into()];
        (scenario.run)(&Setup { quick: true, seed: 1, policies, counters: ledger, ..Setup::default() })
    }

    #[test]
    fn counters_are_told_under_the_kernels_names() {
        let ledger = super::Ledger::keeping();
        run(ledger.clone());
        let text = ledger.text();
        assert!(text.starts_with("9 x 20 MB at once, mballoc:\n\treqs: "), "{text}");
        assert!(text.contains("\tcr_best_avail_stats:\n\t\thits: "));
        assert_eq!(ledger.text(), "");
        run(ledger.clone());
        let lines = ledger.criteria("t");
        assert!(lines.iter().all(|line| line.table == "t" && line.system == "mballoc"));
        assert!(lines.iter().any(|line| line.hits.0.iter().any(|(_, hits)| *hits > 0.0)));
        run(super::Ledger::default());
    }
}
