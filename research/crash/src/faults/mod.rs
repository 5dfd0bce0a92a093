//! Faults put into what was recorded of a right writer: each must be found, or nothing is proved.

pub(crate) mod journal;
pub(crate) mod phased;

use crate::campaign::Violation;
use crate::judge::{Depth, enumerate};
use crate::order::Order;
use crate::run::Run;
use crate::runs::record;
use crate::workload::{Workload, workload};

/// A fault that a writer could have.
pub struct Fault {
    /// Its name on a command line.
    pub name: &'static str,
    /// The fault, in words.
    pub about: &'static str,
    order: Order,
    on: &'static str,
    put: FaultKind,
}

enum FaultKind {
    Journal(journal::Tampering),
    Phased(phased::Tampering),
    Promises,
}

/// Those of soft updates that show while what an earlier crash left is being reclaimed, too.
const OF_RECLAIMING: &[(&str, &str)] = &[
    ("reclaiming-early-clear", "early-clear"),
    ("reclaiming-early-removal", "early-removal"),
    ("reclaiming-no-flush-before-bits", "no-flush-before-bits"),
];

/// Runs in which a fault must show.
const RUNS: u64 = 6;

impl Fault {
    /// The workload in which it shows.
    ///
    /// # Panics
    /// If the tables of faults and workloads don't fit each other.
    #[must_use]
    pub fn workload(&self) -> Workload {
        workload(self.order, self.on).unwrap()
    }

    fn put(&self, run: &mut Run) {
        let events = std::mem::take(&mut run.events);
        run.events = match self.put {
            FaultKind::Journal(change) => change(events, run.workload.shape.block_size as usize),
            FaultKind::Phased(change) => phased::put(change, &phased::places(&run.base), events),
            FaultKind::Promises => phased::promise_early(events),
        };
    }

    /// Goes through the states of runs with it, from a seed on, to the first that is wrong.
    #[must_use]
    pub fn find(&self, first: u64) -> Option<Violation> {
        let workload = self.workload();
        (first..first + RUNS).find_map(|seed| {
            let mut run = record(&workload, seed, 400)?;
            self.put(&mut run);
            let wrong = enumerate(&run, Depth::PLAIN, |_| true).wrong?;
            Some(Violation::new(workload, seed, wrong))
        })
    }
}

/// All of them.
pub fn faults() -> impl Iterator<Item = Fault> {
    let of_journal = journal::FAULTS.iter().map(|(order, name, about, change)| Fault {
        name,
        about,
        order: *order,
        on: "ext3_1k",
        put: FaultKind::Journal(*change),
    });
    let of_phases = phased::FAULTS.iter().map(|(name, about, change)| Fault {
        name,
        about,
        order: Order::Softdep,
        on: "ext2_1k",
        put: FaultKind::Phased(*change),
    });
    let of_reclaiming = OF_RECLAIMING.iter().filter_map(|(name, same)| {
        let (_, about, change) = phased::FAULTS.iter().find(|(other, ..)| other == same)?;
        let put = FaultKind::Phased(*change);
        Some(Fault { name, about, order: Order::Softdep, on: "ext2_reclaiming", put })
    });
    let of_calls = [("normal-returns-early", Order::Normal), ("sync-returns-early", Order::Sync)].map(
        |(name, order)| {
            let about = "a call returns before what it changed is stable";
            Fault { name, about, order, on: "ext2_1k", put: FaultKind::Promises }
        },
    );
    of_journal.chain(of_phases).chain(of_reclaiming).chain(of_calls)
}
