//! Runs many cells side by side within a memory bound, goes on where an earlier run was cut off, and shows how far
//! it is. What a cell is, its job knows. Results come in the order of the jobs, whichever ends first.

use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::results::{Cell, Record};

/// Name of a cell: two with the same key are the same measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) table: String,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) seed: u64,
    /// Everything else that the figures depend on.
    pub(crate) parameters: Map<String, Value>,
}

impl Key {
    fn names(&self, cell: &Cell) -> bool {
        (&self.table, &self.case, &self.system) == (&cell.table, &cell.case, &cell.system)
            && (self.seed, &self.parameters) == (cell.seed, &cell.parameters)
    }

    /// The cell of this key without figures.
    pub(crate) fn cell(&self) -> Cell {
        Cell {
            table: self.table.clone(),
            case: self.case.clone(),
            system: self.system.clone(),
            seed: self.seed,
            parameters: self.parameters.clone(),
            ..Cell::default()
        }
    }
}

/// Records of a job: a cell, last, and what else is to be kept with it.
pub(crate) type Found = Vec<Record>;

/// Measures the cell of a key.
pub(crate) type Measure = Box<dyn FnOnce(&Key) -> Result<Found, String> + Send>;

/// A cell to be measured.
pub(crate) struct Job {
    pub(crate) key: Key,
    /// Bytes of memory that it takes at most, roughly.
    pub(crate) memory: u64,
    /// How long it takes beside others, in any unit: for the estimate, and to begin with the longest.
    pub(crate) weight: u64,
    pub(crate) run: Measure,
}

/// How much may go on at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) jobs: usize,
    pub(crate) memory: u64,
}

impl Default for Bounds {
    /// A job for each processor, and 4 GiB.
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Bounds { jobs, memory: 4 << 30 }
    }
}

struct State {
    waiting: VecDeque<(usize, Job)>,
    found: Vec<Option<Found>>,
    running: usize,
    memory: u64,
    weight_done: u64,
    failed: Option<String>,
}

/// Runs all jobs but those whose cell is among `earlier`, keeps what each finds by `keep` as soon as it
/// has ended, and returns all in the order of the jobs.
///
/// # Errors
/// The first job that failed, with its key, once those that were running have ended; what `keep` says.
pub(crate) fn run(
    jobs: Vec<Job>,
    bounds: Bounds,
    earlier: &[Record],
    keep: &(dyn Fn(&[Record]) -> Result<(), String> + Sync),
) -> Result<Vec<Found>, String> {
    let mut found: Vec<Option<Found>> = jobs.iter().map(|job| found_earlier(earlier, &job.key)).collect();
    let mut waiting: Vec<_> = jobs.into_iter().enumerate().filter(|(at, _)| found[*at].is_none()).collect();
    // The longest first: the last one to end is a short one then. Equal ones stay in order.
    waiting.sort_by_key(|(_, job)| std::cmp::Reverse(job.weight));
    let weight: u64 = waiting.iter().map(|(_, job)| job.weight).sum();
    let progress = Progress::new(found.len(), found.iter().flatten().count(), weight);
    let (state, news) = (
        Mutex::new(State {
            waiting: waiting.into(),
            found: std::mem::take(&mut found),
            running: 0,
            memory: 0,
            weight_done: 0,
            failed: None,
        }),
        Condvar::new(),
    );
    std::thread::scope(|scope| {
        for _ in 0..bounds.jobs.max(1) {
            scope.spawn(|| work(&state, &news, bounds, keep, &progress));
        }
    });
    progress.end();
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failed {
        Some(error) => Err(error),
        None => Ok(state.found.into_iter().flatten().collect()),
    }
}

/// Records of an earlier run: its cell, and what stands before it up to the cell before.
fn found_earlier(earlier: &[Record], key: &Key) -> Option<Found> {
    let at = earlier.iter().rposition(|record| matches!(record, Record::Cell(cell) if key.names(cell)))?;
    let before = earlier[..at].iter().rposition(|record| {
        !matches!(record, Record::Aging(_) | Record::Criteria(_) | Record::Curve(_) | Record::Skipped(_))
    });
    Some(earlier[before.map_or(0, |before| before + 1)..=at].to_vec())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds its place among the jobs to a job's records: readers need not depend on which job ended first.
fn numbered(mut found: Found, at: usize) -> Found {
    for record in &mut found {
        if let Record::Cell(cell) = record {
            cell.job = Some(at);
            cell.digest = cell.right_digest();
        }
    }
    found
}

/// A thread that takes jobs while there are some.
fn work(
    state: &Mutex<State>,
    news: &Condvar,
    bounds: Bounds,
    keep: &(dyn Fn(&[Record]) -> Result<(), String> + Sync),
    progress: &Progress,
) {
    while let Some((at, job)) = next(state, news, bounds) {
        let Job { key, memory, weight, run } = job;
        // A job that panics is a job that failed: its memory is given back, the others end in order.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&key)));
        let done = done.unwrap_or_else(|_| Err("it panicked".into()));
        let done = done.map(|found| numbered(found, at));
        let done = done.and_then(|found| keep(&found).map(|()| found));
        let mut state = lock(state);
        state.running -= 1;
        state.memory -= memory;
        state.weight_done += weight;
        match done {
            Ok(found) => state.found[at] = Some(found),
            Err(error) => {
                let Key { table, case, system, seed, .. } = &key;
                let failure = format!("{table}, {case}, {system}, seed {seed}: {error}");
                state.failed.get_or_insert(failure);
            }
        }
        progress.show(state.found.iter().flatten().count(), state.running, state.weight_done);
        news.notify_all();
    }
}

/// The first job that fits into what memory is left; waits for others to end if none does.
fn next(state: &Mutex<State>, news: &Condvar, bounds: Bounds) -> Option<(usize, Job)> {
    let mut held = lock(state);
    loop {
        if held.failed.is_some() || held.waiting.is_empty() {
            return None;
        }
        let (left, alone) = (bounds.memory.saturating_sub(held.memory), held.running == 0);
        // One that is too large for the bound runs alone.
        let fits = held.waiting.iter().position(|(_, job)| job.memory <= left).or(alone.then_some(0));
        if let Some(job) = fits.and_then(|fits| held.waiting.remove(fits)) {
            held.running += 1;
            held.memory += job.1.memory;
            return Some(job);
        }
        held = news.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A line on a terminal, nothing elsewhere.
struct Progress {
    all: usize,
    /// Jobs that were done before.
    earlier: usize,
    weight: u64,
    begun: Instant,
    shown: bool,
}

impl Progress {
    fn new(all: usize, earlier: usize, weight: u64) -> Self {
        let shown = std::io::stderr().is_terminal();
        let progress = Progress { all, earlier, weight, begun: Instant::now(), shown };
        progress.show(earlier, 0, 0);
        progress
    }

    fn show(&self, done: usize, running: usize, weight: u64) {
        if self.shown {
            let text = self.text(done, running, weight, self.begun.elapsed());
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }

    fn text(&self, done: usize, running: usize, weight: u64, elapsed: Duration) -> String {
        let mut text = format!("{done} of {} cells", self.all);
        if self.earlier > 0 {
            text += &format!(", {} of them from before", self.earlier);
        }
        if running > 0 {
            text += &format!(", {running} running");
        }
        if weight > 0 && weight < self.weight {
            let left = elapsed.as_secs().saturating_mul(self.weight - weight) / weight;
            text += &format!(", about {} left", minutes(left));
        }
        text
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn minutes(seconds: u64) -> String {
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn key(case: u64) -> Key {
        let parameters = Map::from_iter([("size".into(), Value::from(case * 2))]);
        Key { table: "t".into(), case: case.to_string(), system: "s".into(), seed: 1, parameters }
    }

    fn job(case: u64, memory: u64, run: impl FnOnce(&Key) -> Result<Found, String> + Send + 'static) -> Job {
        Job { key: key(case), memory, weight: case % 3, run: Box::new(run) }
    }

    #[test]
    fn all_run_within_the_bound_and_come_back_in_order() {
        static HELD: AtomicU64 = AtomicU64::new(0);
        static MOST: AtomicU64 = AtomicU64::new(0);
        let jobs = (0..30).map(|case| {
            let memory = 1 + case % 4;
            job(case, memory, move |key| {
                let now = HELD.fetch_add(memory, Ordering::SeqCst) + memory;
                MOST.fetch_max(now, Ordering::SeqCst);
                std::thread::yield_now();
                HELD.fetch_sub(memory, Ordering::SeqCst);
                Ok(vec![key.cell().into()])
            })
        });
        let bounds = Bounds { jobs: 4, memory: 6 };
        let kept = Mutex::new(0);
        let keep = |found: &[Record]| {
            *lock(&kept) += found.len();
            Ok(())
        };
        let found = run(jobs.collect(), bounds, &[], &keep).unwrap();
        let cases: Vec<_> = found.iter().map(|found| found[0].clone()).collect();
        let numbered = |case: usize| {
            let cell = Cell { job: Some(case), ..key(case as u64).cell() };
            Cell { digest: cell.right_digest(), ..cell }
        };
        assert_eq!(cases, (0..30).map(|case| Record::Cell(numbered(case))).collect::<Vec<_>>());
        assert!(MOST.load(Ordering::SeqCst) <= 6 && *lock(&kept) == 30);
    }

    #[test]
    fn what_was_found_before_is_not_measured_again() {
        let found = |case: u64| {
            let curve = crate::results::Curve { name: format!("curve {case}"), ..Default::default() };
            vec![Record::Curve(curve), Record::Cell(key(case).cell())]
        };
        let mut other = key(2).cell();
        other.parameters.insert("size".into(), Value::from(5));
        let earlier = [vec![Record::Other], found(0), found(1), vec![other.into()]].concat();
        let again = |_: &Key| -> Result<Found, String> { Err("measured again".into()) };
        let jobs = vec![job(0, 1, again), job(1, 1, again), job(2, 1, |key| Ok(vec![key.cell().into()]))];
        let all = run(jobs, Bounds::default(), &earlier, &|_| Ok(())).unwrap();
        assert_eq!(all, [found(0), found(1), numbered(vec![key(2).cell().into()], 2)]);
    }

    #[test]
    fn a_failure_is_reported_with_its_key_and_ends_the_run() {
        for panics in [false, true] {
            let fails = move |_: &Key| -> Result<Found, String> {
                assert!(!panics, "as it should");
                Err("broken".into())
            };
            let jobs = vec![job(7, 1, fails), job(6, 100, |_| Ok(Vec::new()))];
            let error = run(jobs, Bounds { jobs: 1, memory: 10 }, &[], &|_| Ok(())).unwrap_err();
            assert_eq!(error, format!("t, 7, s, seed 1: {}", if panics { "it panicked" } else { "broken" }));
        }
    }

    #[test]
    fn the_estimate_goes_by_weight() {
        let progress = Progress { all: 8, earlier: 2, weight: 40, begun: Instant::now(), shown: false };
        let text = progress.text(4, 2, 10, Duration::from_secs(60));
        assert_eq!(text, "4 of 8 cells, 2 of them from before, 2 running, about 3 min left");
    }
}
