//! The counters of an engine, as lines of results, and printed in the shape of the kernel's `mb_stats`.

use std::fmt::Write;

use placement::stats::{Criterion, CriterionStats, Stats};

use crate::numbers::float;
use crate::results::{Criteria, Figures};

impl Criteria {
    /// Turns an engine's statistics into counts by criterion.
    pub(crate) fn of(stats: &Stats) -> Criteria {
        let by = |count: fn(&CriterionStats) -> u64| -> Figures {
            Criterion::ALL.iter().map(|c| (c.name(), float(count(&stats.criterion(*c))))).collect()
        };
        Criteria {
            hits: by(|c| c.hits),
            scanned: by(|c| c.extents_scanned),
            considered: by(|c| c.groups_considered),
            useless: by(|c| c.useless_loops),
            counters: stats.iter().map(|(name, count)| (name, float(count))).collect(),
            ..Criteria::default()
        }
    }

    /// Returns true if the policy has criteria, and any was met.
    pub(crate) fn has_hits(&self) -> bool {
        self.hits.0.iter().any(|(_, hits)| *hits > 0.0)
    }

    /// The counters under the names of `mb_stats`.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}, {}:\n", self.case, self.system);
        // Writing to a string can't fail.
        for (counter, count) in &self.counters.0 {
            let _ = writeln!(out, "\t{counter}: {count}");
        }
        for (criterion, hits) in &self.hits.0 {
            let of = |figures: &Figures| figures.get(criterion).unwrap_or(0.0);
            let _ = writeln!(out, "\tcr_{criterion}_stats:");
            let _ = writeln!(out, "\t\thits: {hits}");
            let _ = writeln!(out, "\t\tgroups_considered: {}", of(&self.considered));
            let _ = writeln!(out, "\t\textents_scanned: {}", of(&self.scanned));
            let _ = writeln!(out, "\t\tuseless_loops: {}", of(&self.useless));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{EXPERIMENTS, records};
    use crate::plan::Plan;
    use crate::results::Record;

    #[test]
    fn counters_stand_under_the_kernels_names() {
        let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == "nine-writers").unwrap();
        let plan = Plan { quick: true, seed: 1, policies: vec!["mballoc".into()], ..Plan::default() };
        let criteria = |record| if let Record::Criteria(criteria) = record { Some(criteria) } else { None };
        let found: Vec<Criteria> = records(experiment, &plan).into_iter().filter_map(criteria).collect();
        let text: String = found.iter().map(Criteria::text).collect();
        assert!(text.starts_with("9 x 20 MB at once, mballoc:\n\treqs: "), "{text}");
        assert!(text.contains("\tcr_best_avail_stats:\n\t\thits: "));
        assert!(found.iter().all(|line| line.table == "nine-writers" && line.system == "mballoc"));
        assert!(found.iter().any(Criteria::has_hits));
    }
}
