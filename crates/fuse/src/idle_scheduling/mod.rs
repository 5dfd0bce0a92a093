//! The thread that lets serving threads give way, and takes it back ([`policy`] says when).
//!
//! Owns: the classes of the scheduler and the processors that serving threads are in, how many of them wait at the device, and what is
//! seen of them. It is the only thread that changes a class, and is never in the idle class itself. While few requests come it sleeps, and all threads are in
//! the ordinary class: a request that comes then needs nobody but its own thread.

mod policy;
pub(crate) mod processors;
mod reader_gate;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::attach::GiveWay;
use crate::class::{self, Class};
use crate::server_threads::{SchedStats, Scheduling, ServerThread};
use crate::serving::Serving;

use policy::{Activity, LOOK, Load, Policy, Verdict};
use reader_gate::ReaderGate;

/// A thread wakes the watcher once in this many requests at most.
const OFTEN: u64 = 64;
/// Looks without a request after which a thread is no longer taken to be serving.
const QUIET: u32 = 16;
/// After it could run and did not, a thread gets this long to prove the contrary: it may just have been woken.
const AGAIN: Duration = Duration::from_micros(500);

/// State that the threads that serve and the watcher share.
#[derive(Debug, Default)]
pub(crate) struct SchedulingState {
    server_threads: Mutex<Vec<Arc<ServerThread>>>,
    watcher: OnceLock<Thread>,
    rests: AtomicBool,
    is_over: AtomicBool,
    scheduling: Scheduling,
    /// The door to the device. Over rings nobody passes it.
    reader_gate: ReaderGate,
}

impl SchedulingState {
    pub(crate) fn new(scheduling: Scheduling) -> Self {
        SchedulingState { scheduling, ..SchedulingState::default() }
    }

    /// The door to the device.
    pub(crate) fn reader_gate(&self) -> &ReaderGate {
        &self.reader_gate
    }

    pub(crate) fn add(&self, server_thread: &Arc<ServerThread>) {
        self.server_threads.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(server_thread));
    }

    /// Counts a request on its thread.
    pub(crate) fn count(&self, server_thread: &ServerThread) {
        if server_thread.count() % OFTEN == OFTEN - 1 && self.rests.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// A thread ends: all do.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.rests.store(false, Ordering::SeqCst);
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }
}

/// Starts a watcher for threads that are all registered, where it helps and is allowed.
pub(crate) fn start(serving: &mut Serving, shared: Arc<SchedulingState>, rule: GiveWay) -> io::Result<()> {
    if rule == GiveWay::Auto && !processors::share_a_cache() || !is_allowed() {
        return Ok(());
    }
    let Some(watcher) = Watcher::new(shared, rule) else { return Ok(()) };
    serving.scheduling.gives_way();
    serving.spawn_beside("watcher", move || {
        watcher.run();
        Ok(())
    })
}

/// Returns true if threads of this process can leave the idle class again: root's can, and others' where `RLIMIT_NICE` lets
/// them have their priority. A thread that ends at once tries it.
fn is_allowed() -> bool {
    let there_and_back = || {
        let this = rustix::thread::gettid();
        class::set_class(this, Class::Idle).and_then(|()| class::set_class(this, Class::Ordinary)).is_ok()
    };
    thread::Builder::new().spawn(there_and_back).is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// A serving thread as the watcher sees it.
struct WatchedThread {
    server_thread: Arc<ServerThread>,
    served: u64,
    turns: SchedStats,
    /// How long it had waited for a processor at the last judgement.
    waited: u64,
    is_idle: bool,
    /// The processor that it was put on, and those that it may be on otherwise.
    put: Option<(usize, CpuSet)>,
    /// Looks since it served something.
    quiet: u32,
}

/// Counters of all threads as of the last look.
struct Snapshot {
    watched_threads: Vec<WatchedThread>,
    /// When the load was judged last, and the idle time until then.
    judged: (Instant, f64),
    stat: Option<File>,
}

/// The watcher.
struct Watcher {
    shared: Arc<SchedulingState>,
    snapshot: Snapshot,
    policy: Policy,
    begun: Instant,
    /// A class could not be changed: none is from now on.
    is_refused: bool,
}

impl Watcher {
    /// `None` where too little can be seen.
    fn new(shared: Arc<SchedulingState>, rule: GiveWay) -> Option<Self> {
        let server_threads =
            std::mem::take(&mut *shared.server_threads.lock().unwrap_or_else(PoisonError::into_inner));
        let begun = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "what the kernel shows of threads and processors")]
        let stat = File::open("/proc/stat").ok();
        let can_see = server_threads
            .iter()
            .all(|server_thread| server_thread.turns().is_some_and(|turns| turns.count > 0));
        if !can_see || (stat.is_none() && rule == GiveWay::Auto) {
            return None;
        }
        let watched_threads = server_threads.into_iter().map(WatchedThread::new).collect();
        let snapshot = Snapshot { watched_threads, judged: (begun, 0.0), stat };
        Some(Watcher { shared, snapshot, policy: Policy::new(rule), begun, is_refused: false })
    }

    /// Watches until a thread ends that serves.
    fn run(mut self) {
        let _ = self.shared.watcher.set(thread::current());
        self.snapshot.load();
        while !self.is_over() {
            if !self.rest() {
                continue;
            }
            let load = self.load();
            self.snapshot.requests();
            let mut verdict = self.policy.wake(self.begun.elapsed(), load);
            while verdict != Verdict::Rest && !self.is_over() {
                self.bring_about(verdict);
                thread::sleep(LOOK);
                verdict = self.look();
            }
            self.bring_about(Verdict::Rest);
        }
        self.bring_about(Verdict::Rest);
    }

    fn is_over(&self) -> bool {
        self.is_refused || self.shared.is_over.load(Ordering::SeqCst)
    }

    /// Sleeps until requests come; `false` if it was woken for something else.
    fn rest(&self) -> bool {
        self.shared.rests.store(true, Ordering::SeqCst);
        thread::park();
        !self.shared.rests.load(Ordering::SeqCst)
    }

    fn look(&mut self) -> Verdict {
        let Watcher { shared, snapshot, policy, begun, .. } = self;
        let seen = Activity { requests: snapshot.requests(), stuck: snapshot.is_stuck() };
        if seen.requests == 0 {
            // The thread that serves may wait for something, and more requests may come.
            shared.reader_gate.pass_on();
        }
        let gave_way = snapshot.watched_threads.iter().any(|watched| watched.is_idle);
        let load = || Load { many_ask: !shared.reader_gate.one_asks(), ..snapshot.load() };
        let verdict = policy.look(begun.elapsed(), seen, load);
        if gave_way && verdict == Verdict::AsOthers {
            self.shared.scheduling.starved();
        }
        verdict
    }

    /// The load since it was asked for last.
    fn load(&mut self) -> Load {
        Load { many_ask: !self.shared.reader_gate.one_asks(), ..self.snapshot.load() }
    }

    /// Brings the classes to what was decided. Of threads that may give way those do that serve.
    fn bring_about(&mut self, verdict: Verdict) {
        self.shared.reader_gate.set_narrow(verdict == Verdict::GiveWay);
        for watched in &mut self.snapshot.watched_threads {
            let is_idle = match watched.quiet {
                _ if verdict != Verdict::GiveWay => false,
                0 => true,
                1..QUIET => watched.is_idle,
                _ => false,
            };
            if is_idle != watched.is_idle && !watched.set_idle(is_idle, &self.shared.scheduling) {
                self.is_refused = true;
            }
        }
        self.follow();
    }

    /// Puts the thread that serves the device on the processor of the program that it serves. Rings have threads of
    /// their own for each processor.
    fn follow(&mut self) {
        let program = self.shared.reader_gate.last();
        let serving = |watched: &&mut WatchedThread| watched.is_idle && watched.quiet == 0;
        if program != 0
            && let Some(watched) = self.snapshot.watched_threads.iter_mut().find(serving)
            && let Some(processor) = processors::of(program)
        {
            watched.stay_at(processor);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Also after a panic nobody may wait outside for ever.
        self.shared.reader_gate.set_narrow(false);
    }
}

impl Snapshot {
    /// Requests since the last look.
    fn requests(&mut self) -> u64 {
        self.watched_threads.iter_mut().map(WatchedThread::requests).sum()
    }

    /// Returns true if a thread that gives way could run and did not, all the time since the last look.
    fn is_stuck(&mut self) -> bool {
        let stuck = |watched_threads: &mut [WatchedThread]| {
            let mut silent =
                watched_threads.iter_mut().filter(|watched| watched.is_idle && watched.quiet > 0);
            silent.any(WatchedThread::did_not_run)
        };
        if !stuck(&mut self.watched_threads) {
            return false;
        }
        thread::sleep(AGAIN);
        self.requests_only();
        stuck(&mut self.watched_threads)
    }

    /// Notes who has served since, without a look.
    fn requests_only(&mut self) {
        for watched in &mut self.watched_threads {
            if watched.server_thread.served() != watched.served {
                watched.quiet = 0;
            }
        }
    }

    /// The load since it was asked for last.
    fn load(&mut self) -> Load {
        let (before, idle_before) = self.judged;
        let passed = before.elapsed().as_secs_f64().max(0.001);
        let idle_now = self.stat.as_ref().and_then(idle_seconds);
        self.judged = (Instant::now(), idle_now.unwrap_or(idle_before));
        let waits = self.watched_threads.iter_mut().map(|watched| watched.waited(passed)).fold(0.0, f64::max);
        Load { idle: (self.judged.1 - idle_before).max(0.0) / passed, waits, many_ask: false }
    }
}

impl WatchedThread {
    fn new(server_thread: Arc<ServerThread>) -> Self {
        WatchedThread {
            server_thread,
            served: 0,
            turns: SchedStats::default(),
            waited: 0,
            is_idle: false,
            put: None,
            quiet: QUIET,
        }
    }

    /// Requests since the last look.
    fn requests(&mut self) -> u64 {
        let served = self.server_thread.served();
        let requests = served.wrapping_sub(std::mem::replace(&mut self.served, served));
        self.quiet = if requests == 0 { self.quiet.saturating_add(1).min(QUIET) } else { 0 };
        if requests > 0 && self.is_idle {
            self.turns = self.server_thread.turns().unwrap_or_default();
        }
        requests
    }

    /// Returns true if it could run and did not since its counters were read last.
    fn did_not_run(&mut self) -> bool {
        let Some(turns) = self.server_thread.turns() else { return false };
        let before = std::mem::replace(&mut self.turns, turns);
        (turns.ran, turns.count) == (before.ran, before.count) && self.server_thread.is_runnable()
    }

    /// The part of the time passed that it waited for a processor.
    fn waited(&mut self, passed: f64) -> f64 {
        if self.quiet == QUIET {
            return 0.0;
        }
        let waited = self.server_thread.turns().unwrap_or_default().waited;
        let since = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        Duration::from_nanos(since).as_secs_f64() / passed
    }

    /// Puts it on a processor. Elsewhere it is only slower.
    fn stay_at(&mut self, processor: usize) {
        let (at, all) = self.put.unzip();
        if at == Some(processor) || processor >= CpuSet::MAX_CPU {
            return;
        }
        let Ok(all) = all.map_or_else(|| sched_getaffinity(Some(self.server_thread.thread)), Ok) else {
            return;
        };
        let mut one = CpuSet::new();
        one.set(processor);
        if all.is_set(processor) && sched_setaffinity(Some(self.server_thread.thread), &one).is_ok() {
            self.put = Some((processor, all));
        }
    }

    /// Lets it be on any processor again.
    fn go_anywhere(&mut self) {
        if let Some((_, all)) = self.put.take() {
            // One that has ended is nowhere.
            let _ = sched_setaffinity(Some(self.server_thread.thread), &all);
        }
    }

    /// Puts it into the idle class or takes it out; whether that was done.
    fn set_idle(&mut self, idle: bool, scheduling: &Scheduling) -> bool {
        let class = if idle { Class::Idle } else { Class::Ordinary };
        if class::set_class(self.server_thread.thread, class).is_err() {
            return false;
        }
        self.is_idle = idle;
        if !idle {
            self.go_anywhere();
        }
        self.turns = self.server_thread.turns().unwrap_or_default();
        scheduling.changed(idle);
        true
    }
}

/// Idle time of all processors since the machine was started, in seconds. While a thread waits for its ring, the system
/// counts idle time as waiting for devices, so both fields are summed.
fn idle_seconds(stat: &File) -> Option<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let mut text = [0; 256];
    let len = stat.read_at(&mut text, 0).ok()?;
    let first = std::str::from_utf8(text.get(..len)?).ok()?.lines().next()?;
    let mut fields = first.split_ascii_whitespace().skip(4);
    let (idle, waits) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    Some((idle + waits) / TICKS_A_SECOND)
}
