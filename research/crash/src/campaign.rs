//! Going through the states of many runs of the workloads of an order, side by side, and counting.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::ace::SEQUENCES;
use crate::judge::{BadState, Depth, StateCounts, enumerate, judge_one, safely};
use crate::run::Run;
use crate::runs::record;
use crate::workload::{Calls, Workload};

/// A state that does not hold what was promised, or shows damage.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Of which workload.
    pub workload: Workload,
    /// Of which run.
    pub seed: u64,
    /// Which of its states.
    pub state: u64,
    /// Words that name the state.
    pub name: String,
    /// The fault, in words.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(workload: Workload, seed: u64, wrong: BadState) -> Self {
        let BadState { number, name, what } = wrong;
        Violation { workload, seed, state: number, name, what }
    }

    /// The arguments with which the command judges this state again.
    #[must_use]
    pub fn arguments(&self) -> String {
        let Violation { workload, seed, state, .. } = self;
        let (order, name) = (workload.order.name(), workload.name);
        format!("--order {order} --workload {name} --seed {seed} --state {state}")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { workload, seed, state, name, what } = self;
        write!(f, "{workload}, seed {seed}, state {state} ({name}): {what}")
    }
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first seed of each workload.
    pub seed: u64,
    /// Different states of all workloads together, after which it is enough.
    pub states: u64,
    /// Runs of a workload, at most.
    pub runs: u64,
    /// Judgements made of each state.
    pub depth: Depth,
    /// Threads.
    pub jobs: usize,
}

/// Counts of a workload.
#[derive(Clone, Debug)]
pub struct WorkloadCounts {
    /// Which.
    pub workload: Workload,
    /// Runs.
    pub runs: u64,
    /// Crash states that were met, the same ones more than once.
    pub met: u64,
    /// Those that were recovered and judged: in a run each once, and again behind a promise.
    pub judged: u64,
    /// Different ones: none of them was met in another run or workload before.
    pub distinct: u64,
    /// Those given to e2fsck, too.
    pub by_e2fsck: u64,
    /// Those that are wrong: of a run the first.
    pub violations: Vec<Violation>,
}

impl WorkloadCounts {
    fn new(workload: Workload) -> Self {
        WorkloadCounts {
            workload,
            runs: 0,
            met: 0,
            judged: 0,
            distinct: 0,
            by_e2fsck: 0,
            violations: Vec::new(),
        }
    }
}

/// Wrong states after which a campaign ends.
const ENOUGH_WRONG: usize = 10;
/// States that a run in progress counts for, where the next run is chosen.
const OF_A_RUN: u64 = 1000;

/// State that the threads share.
struct Progress {
    tallies: Vec<WorkloadCounts>,
    /// Runs that were begun and are not done, by workload.
    running: Vec<u64>,
    begun: Vec<u64>,
    seen: HashSet<u64>,
}

struct Campaign<'c> {
    limits: &'c Limits,
    on_progress: &'c (dyn Fn(u64) + Sync),
    progress: Mutex<Progress>,
}

impl Campaign<'_> {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self, progress: &Progress) -> bool {
        let wrong: usize = progress.tallies.iter().map(|tally| tally.violations.len()).sum();
        progress.seen.len() as u64 >= self.limits.states || wrong >= ENOUGH_WRONG
    }

    /// The workload of which there are fewest states so far, and the seed of its next run.
    fn next(&self) -> Option<(usize, Workload, u64)> {
        let mut progress = self.progress();
        if self.is_over(&progress) {
            return None;
        }
        let most = |tally: &WorkloadCounts| match tally.workload.calls {
            Calls::Sequences => self.limits.runs.min(SEQUENCES as u64),
            _ => self.limits.runs,
        };
        let open = (0..progress.tallies.len())
            .filter(|at| progress.begun[*at] < most(&progress.tallies[*at]))
            .min_by_key(|at| progress.tallies[*at].distinct + progress.running[*at] * OF_A_RUN)?;
        let seed = self.limits.seed + progress.begun[open];
        progress.begun[open] += 1;
        progress.running[open] += 1;
        Some((open, progress.tallies[open].workload, seed))
    }

    /// Counts a state; whether more are wanted.
    fn see(&self, at: usize, identity: u64) -> bool {
        let mut progress = self.progress();
        if progress.seen.insert(identity) {
            progress.tallies[at].distinct += 1;
            (self.on_progress)(progress.seen.len() as u64);
        }
        !self.is_over(&progress)
    }

    fn work(&self) {
        while let Some((at, workload, seed)) = self.next() {
            let looked = match recorded(&workload, seed) {
                Ok(Some(run)) => enumerate(&run, self.limits.depth, |identity| self.see(at, identity)),
                Ok(None) => StateCounts::default(),
                Err(wrong) => StateCounts { wrong: Some(wrong), ..StateCounts::default() },
            };
            let mut progress = self.progress();
            progress.running[at] -= 1;
            let tally = &mut progress.tallies[at];
            let StateCounts { met, judged, by_e2fsck, wrong } = looked;
            (tally.runs, tally.met) = (tally.runs + u64::from(met > 0), tally.met + met);
            (tally.judged, tally.by_e2fsck) = (tally.judged + judged, tally.by_e2fsck + by_e2fsck);
            tally.violations.extend(wrong.map(|wrong| Violation::new(workload, seed, wrong)));
        }
    }
}

/// Records a run; nothing if it is a sequence of which a call can't be made. A call that fails is wrong, too.
fn recorded(workload: &Workload, seed: u64) -> Result<Option<Run>, BadState> {
    let run = safely(|| record(workload, seed, workload.calls.count()));
    run.map_err(|what| BadState { number: 0, name: "without a crash".into(), what })
}

/// Goes through the states of runs of some workloads, which get about as many each. `on_progress` gets the number of
/// different states so far.
pub fn explore(
    workloads: &[Workload],
    limits: &Limits,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Vec<WorkloadCounts> {
    let progress = Progress {
        tallies: workloads.iter().copied().map(WorkloadCounts::new).collect(),
        running: vec![0; workloads.len()],
        begun: vec![0; workloads.len()],
        seen: HashSet::new(),
    };
    let campaign = Campaign { limits, on_progress, progress: Mutex::new(progress) };
    thread::scope(|scope| {
        for _ in 0..limits.jobs.max(1) {
            scope.spawn(|| campaign.work());
        }
    });
    campaign.progress.into_inner().unwrap_or_else(PoisonError::into_inner).tallies
}

/// Judges one state of a run again, with all that can be asked; `see` gets what the device holds before recovery.
///
/// # Errors
/// The run has no such state.
pub fn replay(
    workload: &Workload,
    seed: u64,
    state: u64,
    with_e2fsck: bool,
    see: impl FnOnce(&[u8]),
) -> Result<Option<Violation>, String> {
    let run = match recorded(workload, seed) {
        Ok(run) => run.ok_or_else(|| format!("{workload}: sequence {seed} can't be made"))?,
        Err(wrong) => return Ok(Some(Violation::new(*workload, seed, wrong))),
    };
    let looked = judge_one(&run, state, with_e2fsck, see);
    let looked = looked.ok_or_else(|| format!("{workload}: the run of seed {seed} has no state {state}"))?;
    Ok(looked.wrong.map(|wrong| Violation::new(*workload, seed, wrong)))
}
