//! Running phases, and what is measured of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Mutex;
use std::time::Instant;

use crate::system::{Client, Modelled, Op, Phase, System};
use crate::traffic::Figures;

/// Time from which a call counts as slow: S3 counts these.
const SLOW: u64 = 100_000_000;

/// Times of calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds in all, and of the longest.
    pub(crate) time: u64,
    pub(crate) longest: u64,
    /// Calls of more than 100 ms.
    pub(crate) slow: u64,
    /// Requests that read from the drive: in all, and most of one call; in model time only.
    pub(crate) reads: u64,
    pub(crate) most_reads: u64,
}

impl Timing {
    fn note(&mut self, bytes: u64, time: u64, reads: u64) {
        self.calls += 1;
        self.bytes += bytes;
        self.time += time;
        self.longest = self.longest.max(time);
        self.slow += u64::from(time > SLOW);
        self.reads += reads;
        self.most_reads = self.most_reads.max(reads);
    }

    pub(super) fn add(&mut self, other: &Timing) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.slow += other.slow;
        self.reads += other.reads;
        self.most_reads = self.most_reads.max(other.most_reads);
    }
}

/// Timings by kind of call.
pub(crate) type Kinds = BTreeMap<&'static str, Timing>;

/// Result of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    /// Nanoseconds from the start of all clients to the end of the last.
    pub(crate) time: u64,
    pub(crate) kinds: Kinds,
    /// Work of the drive; in model time only.
    pub(crate) drive: Figures,
}

impl Outcome {
    /// Bytes of reads and writes a second, in units of 10^6.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        let bytes: u64 = self.kinds.values().map(|timing| timing.bytes).sum();
        crate::numbers::float(bytes) * 1e3 / crate::numbers::float(self.time.max(1))
    }

    pub(crate) fn seconds(&self) -> f64 {
        crate::numbers::float(self.time) / 1e9
    }
}

/// Runs a phase in model time: the client with the earliest time is next, one call each, so that the same comes out
/// everywhere.
///
/// # Errors
/// The first call that failed.
pub(crate) fn in_model_time(system: &dyn Modelled, phase: Phase) -> Result<Outcome, String> {
    let (begun, before) = (system.now(), system.figures());
    let mut clients: Vec<_> = phase.clients.into_iter().map(|calls| (system.client(), calls)).collect();
    let mut turns: BinaryHeap<_> = (0..clients.len()).map(|client| Reverse((begun, client))).collect();
    let (mut kinds, mut end) = (Kinds::new(), begun);
    while let Some(Reverse((now, index))) = turns.pop() {
        system.tick(now)?;
        system.set_now(now);
        let (client, calls) = &mut clients[index];
        let in_time = phase.limit.is_none_or(|limit| now - begun < limit);
        let Some(op) = in_time.then(|| calls.next()).flatten() else {
            end = end.max(now);
            continue;
        };
        let reads = system.figures().reads;
        let bytes = client.perform(&op).map_err(|error| format!("{}: {error}", phase.name))?;
        let after = system.now();
        kinds.entry(op.kind()).or_default().note(bytes, after - now, system.figures().reads - reads);
        turns.push(Reverse((after, index)));
    }
    system.set_now(end);
    Ok(Outcome { name: phase.name, time: end - begun, kinds, drive: system.figures().since(before) })
}

/// Runs a phase in real time, a thread for each client.
///
/// # Errors
/// The first call that failed; the other clients end before their next call then.
pub(crate) fn in_real_time(system: &dyn System, phase: Phase) -> Result<Outcome, String> {
    let begun = Instant::now();
    let (all, failed) = (Mutex::new(Kinds::new()), Mutex::new(None::<String>));
    std::thread::scope(|scope| {
        for calls in phase.clients {
            let client = system.client();
            let (all, failed) = (&all, &failed);
            scope.spawn(move || {
                let in_time = || phase.limit.is_none_or(|limit| nanoseconds(begun) < limit);
                let done = work(client, calls.take_while(|_| in_time()), failed);
                let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                for (kind, timing) in done {
                    all.entry(kind).or_default().add(&timing);
                }
            });
        }
    });
    let time = nanoseconds(begun);
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match failed {
        Some(error) => Err(format!("{}: {error}", phase.name)),
        None => {
            let kinds = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            Ok(Outcome { name: phase.name, time, kinds, drive: Figures::default() })
        }
    }
}

fn work(
    mut client: Box<dyn Client + '_>,
    calls: impl Iterator<Item = Op>,
    failed: &Mutex<Option<String>>,
) -> Kinds {
    let failure = || failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut kinds = Kinds::new();
    for op in calls {
        if failure().is_some() {
            break;
        }
        let begun = Instant::now();
        match client.perform(&op) {
            Ok(bytes) => kinds.entry(op.kind()).or_default().note(bytes, nanoseconds(begun), 0),
            Err(error) => {
                failure().get_or_insert(error);
            }
        }
    }
    kinds
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
