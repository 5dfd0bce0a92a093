//! The engines' counters at the end of each run, printed in the shape of the kernel's `mb_stats`.

use placement::stats::{Criterion, Stats};
use placement::{BlockPolicyKind, Engine};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Counters by the name of the run.
type Kept = Vec<(String, Stats)>;

/// Where scenarios leave counters, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    kept: Option<Arc<Mutex<Kept>>>,
}

impl Ledger {
    /// One that keeps what it is given.
    pub(crate) fn keeping() -> Ledger {
        Ledger { kept: Some(Arc::default()) }
    }

    /// Keeps the counters of an engine.
    pub(crate) fn note(&self, case: &str, policy: BlockPolicyKind, engine: &Engine) {
        if let Some(kept) = &self.kept {
            let name = format!("{case}, {}", policy.name());
            kept.lock().unwrap_or_else(PoisonError::into_inner).push((name, engine.stats()));
        }
    }

    /// All that was kept, as text; it is forgotten.
    pub(crate) fn text(&self) -> String {
        let Some(kept) = &self.kept else { return String::new() };
        let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        kept.iter().map(|(name, stats)| one(name, stats)).collect()
    }
}

/// Writing to a string can't fail.
fn one(name: &str, stats: &Stats) -> String {
    let mut out = format!("{name}:\n");
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
        run(super::Ledger::default());
    }
}
