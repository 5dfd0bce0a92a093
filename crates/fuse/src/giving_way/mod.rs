//! The thread that lets serving threads give way, and takes it back ([`policy`] says when).
//!
//! Owns: the classes of the scheduler and the processors that serving threads are in, how many of them wait at the device, and what is
//! seen of them. It is the only thread that changes a class, and is never in the idle class itself. While few requests come it sleeps, and all threads are in
//! the ordinary class: a request that comes then needs nobody but its own thread.

mod door;
mod policy;
pub(crate) mod processors;

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
use crate::seats::{Scheduling, Seat, Turns};
use crate::serving::Serving;

use door::Door;
use policy::{LOOK, Load, Policy, Seen, Verdict};

/// A thread wakes the watcher once in this many requests at most.
const OFTEN: u64 = 64;
/// Looks without a request after which a thread is no longer taken to be serving.
const QUIET: u32 = 16;
/// After it could run and did not, a thread gets this long to prove the contrary: it may just have been woken.
const AGAIN: Duration = Duration::from_micros(500);

/// What the threads that serve and the watcher share.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    seats: Mutex<Vec<Arc<Seat>>>,
    watcher: OnceLock<Thread>,
    rests: AtomicBool,
    is_over: AtomicBool,
    scheduling: Scheduling,
    /// The door to the device. Over rings nobody passes it.
    door: Door,
}

impl Watched {
    pub(crate) fn new(scheduling: Scheduling) -> Self {
        Watched { scheduling, ..Watched::default() }
    }

    /// The door to the device.
    pub(crate) fn door(&self) -> &Door {
        &self.door
    }

    pub(crate) fn add(&self, seat: &Arc<Seat>) {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(seat));
    }

    /// Counts a request on its thread.
    pub(crate) fn count(&self, seat: &Seat) {
        if seat.count() % OFTEN == OFTEN - 1 && self.rests.load(Ordering::SeqCst) {
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

/// Starts a watcher for threads that all have their seats, where it helps and is allowed.
pub(crate) fn start(serving: &mut Serving, shared: Arc<Watched>, rule: GiveWay) -> io::Result<()> {
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

/// Whether threads of this process can leave the idle class again: root's can, and others' where `RLIMIT_NICE` lets
/// them have their priority. A thread that ends at once tries it.
fn is_allowed() -> bool {
    let there_and_back = || {
        let this = rustix::thread::gettid();
        class::set_class(this, Class::Idle).and_then(|()| class::set_class(this, Class::Ordinary)).is_ok()
    };
    thread::Builder::new().spawn(there_and_back).is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// A serving thread as the watcher sees it.
struct Subject {
    seat: Arc<Seat>,
    served: u64,
    turns: Turns,
    /// How long it had waited for a processor at the last judgement.
    waited: u64,
    is_idle: bool,
    /// The processor that it was put on, and those that it may be on otherwise.
    put: Option<(usize, CpuSet)>,
    /// Looks since it served something.
    quiet: u32,
}

/// What there is to be seen.
struct Sight {
    subjects: Vec<Subject>,
    /// When the load was judged last, and the idle time until then.
    judged: (Instant, f64),
    stat: Option<File>,
}

/// The watcher.
struct Watcher {
    shared: Arc<Watched>,
    sight: Sight,
    policy: Policy,
    begun: Instant,
    /// A class could not be changed: none is from now on.
    is_refused: bool,
}

impl Watcher {
    /// `None` where too little can be seen.
    fn new(shared: Arc<Watched>, rule: GiveWay) -> Option<Self> {
        let seats = std::mem::take(&mut *shared.seats.lock().unwrap_or_else(PoisonError::into_inner));
        let begun = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "what the kernel shows of threads and processors")]
        let stat = File::open("/proc/stat").ok();
        let can_see = seats.iter().all(|seat| seat.turns().is_some_and(|turns| turns.count > 0));
        if !can_see || (stat.is_none() && rule == GiveWay::Auto) {
            return None;
        }
        let subjects = seats.into_iter().map(Subject::new).collect();
        let sight = Sight { subjects, judged: (begun, 0.0), stat };
        Some(Watcher { shared, sight, policy: Policy::new(rule), begun, is_refused: false })
    }

    /// Watches until a thread ends that serves.
    fn run(mut self) {
        let _ = self.shared.watcher.set(thread::current());
        self.sight.load();
        while !self.is_over() {
            if !self.rest() {
                continue;
            }
            let load = self.load();
            self.sight.requests();
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
        let Watcher { shared, sight, policy, begun, .. } = self;
        let seen = Seen { requests: sight.requests(), stuck: sight.is_stuck() };
        if seen.requests == 0 {
            // The thread that serves may wait for something, and more requests may come.
            shared.door.pass_on();
        }
        let gave_way = sight.subjects.iter().any(|subject| subject.is_idle);
        let load = || Load { many_ask: !shared.door.one_asks(), ..sight.load() };
        let verdict = policy.look(begun.elapsed(), seen, load);
        if gave_way && verdict == Verdict::AsOthers {
            self.shared.scheduling.starved();
        }
        verdict
    }

    /// The load since it was asked for last.
    fn load(&mut self) -> Load {
        Load { many_ask: !self.shared.door.one_asks(), ..self.sight.load() }
    }

    /// Brings the classes to what was decided. Of threads that may give way those do that serve.
    fn bring_about(&mut self, verdict: Verdict) {
        self.shared.door.set_narrow(verdict == Verdict::GiveWay);
        for subject in &mut self.sight.subjects {
            let is_idle = match subject.quiet {
                _ if verdict != Verdict::GiveWay => false,
                0 => true,
                1..QUIET => subject.is_idle,
                _ => false,
            };
            if is_idle != subject.is_idle && !subject.set_idle(is_idle, &self.shared.scheduling) {
                self.is_refused = true;
            }
        }
        self.follow();
    }

    /// Puts the thread that serves the device on the processor of the program that it serves. Rings have threads of
    /// their own for each processor.
    fn follow(&mut self) {
        let program = self.shared.door.last();
        let serving = |subject: &&mut Subject| subject.is_idle && subject.quiet == 0;
        if program != 0
            && let Some(subject) = self.sight.subjects.iter_mut().find(serving)
            && let Some(processor) = processors::of(program)
        {
            subject.stay_at(processor);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Also after a panic nobody may wait outside for ever.
        self.shared.door.set_narrow(false);
    }
}

impl Sight {
    /// Requests since the last look.
    fn requests(&mut self) -> u64 {
        self.subjects.iter_mut().map(Subject::requests).sum()
    }

    /// Whether a thread that gives way could run and did not, all the time since the last look.
    fn is_stuck(&mut self) -> bool {
        let stuck = |subjects: &mut [Subject]| {
            let mut silent = subjects.iter_mut().filter(|subject| subject.is_idle && subject.quiet > 0);
            silent.any(Subject::did_not_run)
        };
        if !stuck(&mut self.subjects) {
            return false;
        }
        thread::sleep(AGAIN);
        self.requests_only();
        stuck(&mut self.subjects)
    }

    /// Notes who has served since, without a look.
    fn requests_only(&mut self) {
        for subject in &mut self.subjects {
            if subject.seat.served() != subject.served {
                subject.quiet = 0;
            }
        }
    }

    /// The load since it was asked for last.
    fn load(&mut self) -> Load {
        let (before, idle_before) = self.judged;
        let passed = before.elapsed().as_secs_f64().max(0.001);
        let idle_now = self.stat.as_ref().and_then(idle_seconds);
        self.judged = (Instant::now(), idle_now.unwrap_or(idle_before));
        let waits = self.subjects.iter_mut().map(|subject| subject.waited(passed)).fold(0.0, f64::max);
        Load { idle: (self.judged.1 - idle_before).max(0.0) / passed, waits, many_ask: false }
    }
}

impl Subject {
    fn new(seat: Arc<Seat>) -> Self {
        Subject {
            seat,
            served: 0,
            turns: Turns::default(),
            waited: 0,
            is_idle: false,
            put: None,
            quiet: QUIET,
        }
    }

    /// Requests since the last look.
    fn requests(&mut self) -> u64 {
        let served = self.seat.served();
        let requests = served.wrapping_sub(std::mem::replace(&mut self.served, served));
        self.quiet = if requests == 0 { self.quiet.saturating_add(1).min(QUIET) } else { 0 };
        if requests > 0 && self.is_idle {
            self.turns = self.seat.turns().unwrap_or_default();
        }
        requests
    }

    /// Whether it could run and did not since its turns were looked at last.
    fn did_not_run(&mut self) -> bool {
        let Some(turns) = self.seat.turns() else { return false };
        let before = std::mem::replace(&mut self.turns, turns);
        (turns.ran, turns.count) == (before.ran, before.count) && self.seat.is_runnable()
    }

    /// The part of the time passed that it waited for a processor.
    fn waited(&mut self, passed: f64) -> f64 {
        if self.quiet == QUIET {
            return 0.0;
        }
        let waited = self.seat.turns().unwrap_or_default().waited;
        let since = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        Duration::from_nanos(since).as_secs_f64() / passed
    }

    /// Puts it on a processor. Elsewhere it is only slower.
    fn stay_at(&mut self, processor: usize) {
        let (at, all) = self.put.unzip();
        if at == Some(processor) || processor >= CpuSet::MAX_CPU {
            return;
        }
        let Ok(all) = all.map_or_else(|| sched_getaffinity(Some(self.seat.thread)), Ok) else { return };
        let mut one = CpuSet::new();
        one.set(processor);
        if all.is_set(processor) && sched_setaffinity(Some(self.seat.thread), &one).is_ok() {
            self.put = Some((processor, all));
        }
    }

    /// Lets it be on any processor again.
    fn go_anywhere(&mut self) {
        if let Some((_, all)) = self.put.take() {
            // One that has ended is nowhere.
            let _ = sched_setaffinity(Some(self.seat.thread), &all);
        }
    }

    /// Puts it into the idle class or takes it out; whether that was done.
    fn set_idle(&mut self, idle: bool, scheduling: &Scheduling) -> bool {
        let class = if idle { Class::Idle } else { Class::Ordinary };
        if class::set_class(self.seat.thread, class).is_err() {
            return false;
        }
        self.is_idle = idle;
        if !idle {
            self.go_anywhere();
        }
        self.turns = self.seat.turns().unwrap_or_default();
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
