//! When threads give way to those whose requests they serve.
//!
//! Owns: the decision, from what was seen, as a function of time. Excludes seeing it and acting on it.
//!
//! A program that gets its answer is moved to another processor if one is idle, since its own runs the thread that
//! answers. A thread in the scheduler's idle class does not count: the program stays, and a request costs half. But
//! such a thread gets no processor while others want them. So it is in that class only while requests come close
//! together and processors are idle, and leaves it as soon as it had to wait. Over the device that is for one program
//! at a time: one thread serves it, and several programs want several threads.

use std::time::Duration;

use crate::attach::GiveWay;

/// Time from look to look, while requests come. A thread waits in vain at most about twice as long.
pub(super) const LOOK: Duration = Duration::from_millis(4);
/// Looks after which the load is judged.
const LOOKS: u32 = 16;
/// Fewer requests than these in that many looks are not worth looking on.
const FEW: u64 = 64;
/// How much of one processor's time is idle where giving way costs nobody.
const IDLE: f64 = 0.4;
/// As much of its time a thread waits, and as little is idle, where it is starved without ever being seen stuck.
const WAITS: f64 = 0.75;
const NO_IDLE: f64 = 0.1;
/// For how long no thread gives way after one was starved: from the first to the last, doubled each time that it
/// happens again soon.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(64), Duration::from_secs(2));
/// Time that counts as soon, in multiples of the last backoff.
const SOON: u32 = 8;

/// Activity since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// Requests that were served.
    pub(super) requests: u64,
    /// A thread that gives way could run and did not.
    pub(super) stuck: bool,
}

/// Load since the last judgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Idle time of all processors, in times of the time passed. 0 where it is not known.
    pub(super) idle: f64,
    /// The largest part of its time that a thread waited for a processor.
    pub(super) waits: f64,
    /// More programs ask by turns than one thread should serve.
    pub(super) many_ask: bool,
}

/// Scheduling to be brought about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Threads that serve give way.
    GiveWay,
    /// All threads are as others.
    AsOthers,
    /// All threads are as others, and nobody looks until requests come again.
    Rest,
}

/// The decision and what it remembers.
#[derive(Debug)]
pub(super) struct Policy {
    rule: GiveWay,
    gives_way: bool,
    since: Duration,
    backoff: Duration,
    not_before: Duration,
    looks: u32,
    requests: u64,
}

impl Policy {
    pub(super) fn new(rule: GiveWay) -> Self {
        let zero = Duration::ZERO;
        let (backoff, not_before) = (zero, zero);
        Policy { rule, gives_way: false, since: zero, backoff, not_before, looks: 0, requests: 0 }
    }

    /// Requests come again, after a rest with this load.
    pub(super) fn wake(&mut self, now: Duration, load: Load) -> Verdict {
        (self.looks, self.requests) = (0, 0);
        self.choose(now, load)
    }

    /// After a look. The load is asked for only when it is judged.
    pub(super) fn look(&mut self, now: Duration, seen: Activity, load: impl FnOnce() -> Load) -> Verdict {
        self.looks += 1;
        self.requests = self.requests.saturating_add(seen.requests);
        if seen.stuck && self.gives_way {
            return self.starved(now);
        }
        if self.looks < LOOKS {
            return self.now();
        }
        let requests = std::mem::take(&mut self.requests);
        self.looks = 0;
        if requests < FEW {
            self.gives_way = false;
            return Verdict::Rest;
        }
        let load = load();
        if self.gives_way && self.rule == GiveWay::Auto && load.waits > WAITS && load.idle < NO_IDLE {
            return self.starved(now);
        }
        self.choose(now, load)
    }

    fn choose(&mut self, now: Duration, load: Load) -> Verdict {
        let may = match self.rule {
            GiveWay::Never => false,
            GiveWay::Always => true,
            GiveWay::Auto => load.idle >= IDLE,
        };
        let may = may && !load.many_ask;
        self.gives_way &= !load.many_ask;
        if may && !self.gives_way && now >= self.not_before {
            (self.gives_way, self.since) = (true, now);
        }
        self.now()
    }

    fn starved(&mut self, now: Duration) -> Verdict {
        let (least, most) = BACKOFF;
        let is_soon = now.saturating_sub(self.since) < self.backoff * SOON;
        self.backoff = if is_soon { (self.backoff * 2).min(most) } else { least };
        (self.gives_way, self.not_before) = (false, now + self.backoff);
        Verdict::AsOthers
    }

    fn now(&self) -> Verdict {
        if self.gives_way { Verdict::GiveWay } else { Verdict::AsOthers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Activity = Activity { requests: 100, stuck: false };
    const FREE: Load = Load { idle: 1.0, waits: 0.4, many_ask: false };
    const FULL: Load = Load { idle: 0.0, waits: 0.4, many_ask: false };

    /// Looks until the next judgement.
    fn judged(policy: &mut Policy, now: &mut Duration, seen: Activity, load: Load) -> Verdict {
        let mut verdict = policy.now();
        for _ in 0..LOOKS {
            *now += LOOK;
            verdict = policy.look(*now, seen, || load);
        }
        verdict
    }

    #[test]
    fn threads_give_way_only_where_processors_are_idle() {
        let mut now = Duration::ZERO;
        let mut policy = Policy::new(GiveWay::Auto);
        assert_eq!(policy.wake(now, FULL), Verdict::AsOthers);
        assert_eq!(judged(&mut policy, &mut now, BUSY, FULL), Verdict::AsOthers);
        assert_eq!(judged(&mut policy, &mut now, BUSY, FREE), Verdict::GiveWay);
        // More of our own requests may take what was idle.
        assert_eq!(judged(&mut policy, &mut now, BUSY, FULL), Verdict::GiveWay);
        let starved = Load { idle: 0.0, waits: 0.9, many_ask: false };
        assert_eq!(judged(&mut policy, &mut now, BUSY, starved), Verdict::AsOthers);
        assert_eq!(Policy::new(GiveWay::Auto).wake(now, FREE), Verdict::GiveWay);
        assert_eq!(Policy::new(GiveWay::Never).wake(now, FREE), Verdict::AsOthers);
        assert_eq!(Policy::new(GiveWay::Always).wake(now, FULL), Verdict::GiveWay);
    }

    #[test]
    fn a_thread_that_is_stuck_stops_it_at_once_and_for_longer_each_time() {
        let mut now = Duration::ZERO;
        let mut policy = Policy::new(GiveWay::Always);
        let stuck = Activity { requests: 0, stuck: true };
        let mut pauses = Vec::new();
        for _ in 0..8 {
            while judged(&mut policy, &mut now, BUSY, FREE) != Verdict::GiveWay {}
            now += LOOK;
            assert_eq!(policy.look(now, stuck, || FREE), Verdict::AsOthers);
            pauses.push(policy.backoff.as_millis());
        }
        assert_eq!(pauses, [64, 128, 256, 512, 1024, 2000, 2000, 2000]);
        for _ in 0..1000 {
            judged(&mut policy, &mut now, BUSY, FREE);
        }
        assert_eq!(policy.look(now, stuck, || FREE), Verdict::AsOthers);
        assert_eq!(policy.backoff, BACKOFF.0);
    }

    #[test]
    fn threads_serve_side_by_side_where_one_is_not_enough() {
        let mut now = Duration::ZERO;
        let mut policy = Policy::new(GiveWay::Auto);
        let many = Load { many_ask: true, ..FREE };
        assert_eq!(policy.wake(now, many), Verdict::AsOthers);
        assert_eq!(judged(&mut policy, &mut now, BUSY, FREE), Verdict::GiveWay);
        assert_eq!(judged(&mut policy, &mut now, BUSY, many), Verdict::AsOthers);
        assert_eq!(judged(&mut policy, &mut now, BUSY, FREE), Verdict::GiveWay);
    }

    #[test]
    fn nobody_looks_where_few_requests_come() {
        let mut now = Duration::ZERO;
        let mut policy = Policy::new(GiveWay::Always);
        assert_eq!(policy.wake(now, FREE), Verdict::GiveWay);
        let few = Activity { requests: 3, stuck: false };
        assert_eq!(judged(&mut policy, &mut now, few, FREE), Verdict::Rest);
        assert_eq!(policy.now(), Verdict::AsOthers);
    }
}
