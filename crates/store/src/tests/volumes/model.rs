//! Clean-ups, writers, pushes, forks, compactions and readers of one store, a request a step: a scheduler (shuttle)
//! chooses who makes the next. Requests are lost, answered twice, carried out late; programs are killed and sleep for days.
//!
//! Conditions at the end: all that volumes refer to is there, and each has the bytes that its writer gave it.
//!
//! Assumptions, as in `docs/store.md`: a clean-up works for less than a day, and a request that was made once is
//! carried out before the time of the store moves on. Nothing is assumed of how long others sleep, but for readers, which
//! have the grace time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::objects::{Memory, Objects, Patience};
use crate::{Error, Push, Store, Stored, Volume, clean, compact, fork, push, verify};
use platfs_device::{Device, MemoryDevice};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::hooked::{Fate, Hooked, Late};

const SIZE: u64 = 32 << 10;
const BLOCK: usize = 4096;
/// Where writers write.
const PLACE: std::ops::Range<usize> = 4 * BLOCK..5 * BLOCK;
const HOUR: u64 = 3600;
const GRACE: u64 = 2 * HOUR;
/// Steps of others for which a program sleeps now and then.
const SLEEP: usize = 1000;
/// Interleavings of the short run.
const INTERLEAVINGS: usize = 300;

fn chance(one_in: u32) -> bool {
    thread_rng().gen_range(0..one_in) == 0
}

/// State that the programs of one interleaving share.
struct World {
    objects: Arc<Memory>,
    late: Arc<Mutex<Vec<Late>>>,
    now: AtomicU64,
    /// Until when the time may move on, for programs that have only so long.
    limits: Mutex<BTreeMap<u64, u64>>,
    next: AtomicU64,
    /// Bytes that each volume may have at the end.
    states: Mutex<BTreeMap<String, Vec<Vec<u8>>>>,
}

impl World {
    fn of(contents: &BTreeMap<String, Vec<u8>>, ahead: u64) -> Self {
        let objects = Arc::new(Memory::holding(contents.clone()));
        objects.pass(Duration::from_secs(ahead));
        World {
            objects,
            late: Arc::default(),
            now: AtomicU64::new(ahead),
            limits: Mutex::default(),
            next: AtomicU64::new(0),
            states: Mutex::default(),
        }
    }

    /// The store as one program sees it, which may be killed before any of its requests.
    fn store(self: &Arc<Self>) -> Arc<Store> {
        let left = AtomicU64::new(if chance(10) { thread_rng().gen_range(0..60) } else { u64::MAX });
        let own = self.next.fetch_add(1, Ordering::Relaxed);
        // With the seed of a failure (`SHUTTLE_RANDOM_SEED`): who asked for what.
        let is_traced = std::env::var_os("PLATFS_TRACE").is_some();
        let fate = move |what: &str, key: &str| {
            thread::yield_now();
            if is_traced {
                println!("{own}: {what} {key}");
            }
            if left.load(Ordering::Relaxed) == 0 {
                return Fate::Killed;
            }
            left.fetch_sub(1, Ordering::Relaxed);
            if chance(100) {
                // It sleeps while others work.
                (0..SLEEP).for_each(|_| thread::yield_now());
            }
            let writes = matches!(what, "put" | "create" | "replace" | "remove");
            match thread_rng().gen_range(0..40) {
                0 => Fate::Lost,
                1 => Fate::Unanswered,
                2 if writes => Fate::Twice,
                _ => Fate::Done,
            }
        };
        let mut hooked = Hooked::new(&self.objects, fate);
        hooked.late = Arc::clone(&self.late);
        hooked.lingers = Duration::from_secs(120);
        let patience = Patience { limit: Duration::from_secs(20), ..Patience::simulated() };
        Arc::new(Store::new(Arc::new(hooked), patience, None).one_at_a_time())
    }

    /// Does something for which the time moves on by less than `most`.
    fn within<T>(&self, most: u64, work: impl FnOnce() -> T) -> T {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.limits.lock().unwrap().insert(number, self.now.load(Ordering::Relaxed) + most);
        let done = work();
        self.limits.lock().unwrap().remove(&number);
        done
    }

    /// Carries out one of the requests that are on their way, or all.
    fn arrive(&self, all: bool) {
        loop {
            let some = {
                let mut late = self.late.lock().unwrap();
                if late.is_empty() {
                    return;
                }
                let at = thread_rng().gen_range(0..late.len());
                late.swap_remove(at)
            };
            some(&self.objects);
            if !all {
                return;
            }
        }
    }

    fn pass(&self, seconds: u64) {
        let limit = self.limits.lock().unwrap().values().min().copied().unwrap_or(u64::MAX);
        let now = self.now.load(Ordering::Relaxed);
        if now + seconds >= limit {
            return;
        }
        self.arrive(true);
        self.now.store(now + seconds, Ordering::Relaxed);
        self.objects.pass(Duration::from_secs(seconds));
    }

    fn may_be(&self, name: &str, bytes: Vec<u8>) {
        self.states.lock().unwrap().entry(name.to_owned()).or_default().push(bytes);
    }
}

fn bytes_of(device: &dyn Device) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    for (at, piece) in (0..).step_by(BLOCK).zip(bytes.chunks_mut(BLOCK)) {
        device.read_at(at, piece)?;
    }
    Ok(bytes)
}

fn plain(objects: &Arc<Memory>) -> Arc<Store> {
    let inner = Arc::clone(objects) as Arc<dyn Objects>;
    Arc::new(Store::new(inner, Patience::default(), None).one_at_a_time())
}

fn image(value: u8) -> MemoryDevice {
    let device = MemoryDevice::new(SIZE);
    device.write_at(0, &[value; 2 * BLOCK]).unwrap();
    device
}

/// A store with volumes, and with much that nobody refers to and that is due: old maps of `a`, the chunks of images that
/// will be pushed again.
fn beginning() -> &'static (BTreeMap<String, Vec<u8>>, u64) {
    static BEGINNING: OnceLock<(BTreeMap<String, Vec<u8>>, u64)> = OnceLock::new();
    BEGINNING.get_or_init(|| {
        let objects = Arc::new(Memory::new());
        let store = plain(&objects);
        push(&store, &image(1), "a", &Push::default()).unwrap();
        for value in [2, 0, 3, 0, 2] {
            let volume = Volume::open(&store, "a", "test", false).unwrap();
            volume.write_at(PLACE.start as u64, &[value; BLOCK]).unwrap();
            volume.close().unwrap();
        }
        push(&store, &image(4), "gone", &Push::default()).unwrap();
        push(&store, &image(5), "p", &Push::default()).unwrap();
        fork(&store, "gone", "trace").unwrap();
        for name in ["gone", "trace"] {
            crate::remove(&store, name).unwrap();
        }
        // What an interleaving begins with is old by its clock.
        objects.pass(Duration::from_secs(1000 * HOUR));
        clean(&store, Duration::from_secs(GRACE), false).unwrap();
        (objects.contents(), 1010 * HOUR)
    })
}

/// Writes a volume: again and again what it was once.
fn write(world: &Arc<World>) {
    let store = world.store();
    let Ok(volume) = Volume::open(&store, "a", "writer", chance(4)) else { return };
    let Ok(mut model) = bytes_of(&volume) else { return };
    // So many small objects that they are packed, or a few at one place.
    let blocks = if chance(8) { 0..model.len() / BLOCK } else { 0..thread_rng().gen_range(1..4) };
    let packs = blocks.len() > 3;
    for block in blocks {
        let value = [0, 0, 2, 3][thread_rng().gen_range(if packs { 2..4 } else { 0..4 })];
        let place = if packs { block * BLOCK..(block + 1) * BLOCK } else { PLACE };
        model[place.clone()].fill(value);
        // What is written may be there from now on, if nobody has taken the volume.
        world.may_be("a", model.clone());
        volume.write_at(place.start as u64, &model[place]).unwrap();
        let done = if !packs && chance(2) { volume.shorten() } else { volume.drain() };
        if done.is_err() {
            break;
        }
    }
    if chance(4) {
        volume.abandon();
        return;
    }
    let _ = volume.close();
}

fn push_again(world: &Arc<World>) {
    let (name, value) = [("p", 4), ("q", 4), ("q", 1), ("p", 5)][thread_rng().gen_range(0..4)];
    let device = image(value);
    world.may_be(name, bytes_of(&device).unwrap());
    let _ = push(&world.store(), &device, name, &Push { force: true, ..Push::default() });
}

/// Forks from hand to hand.
fn hop(world: &Arc<World>) {
    let store = world.store();
    let names = ["a", "f1", "trace", "f2"];
    for pair in names.windows(2) {
        let is_renamed = pair[0] != "a" && chance(3);
        let done = match is_renamed {
            true => crate::rename(&store, pair[0], pair[1]),
            false => fork(&store, pair[0], pair[1]).map(drop),
        };
        if done.is_err() {
            return;
        }
        if !is_renamed && pair[0] != "a" && chance(2) {
            let _ = crate::remove(&store, pair[0]);
        }
    }
}

fn read(world: &Arc<World>) {
    let store = world.store();
    world.within(GRACE, || {
        let Ok(volume) = Stored::open(&store, "a") else { return };
        let done = bytes_of(&volume).map(drop);
        let is_lost = |error: &std::io::Error| {
            !matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::InvalidInput)
        };
        assert!(!done.as_ref().is_err_and(is_lost), "{done:?}");
    });
}

fn clean_up(world: &Arc<World>) {
    let store = world.store();
    // One that writes nothing is a reader beside others.
    let dry = chance(8);
    let most = if dry { GRACE } else { 20 * HOUR };
    let done = world.within(most, || clean(&store, Duration::from_secs(GRACE), dry));
    assert!(!matches!(done, Err(Error::Damaged { .. } | Error::Missing(_))), "{done:?}");
}

/// A clean-up each day.
fn clean_daily(world: &Arc<World>) {
    for _ in 0..3 {
        clean_up(world);
        world.pass(26 * HOUR);
    }
}

fn time_goes_on(world: &Arc<World>) {
    for _ in 0..12 {
        thread::yield_now();
        match thread_rng().gen_range(0..4) {
            0 => world.pass(HOUR),
            1 => world.pass(3 * HOUR),
            2 => world.pass(26 * HOUR),
            _ => world.arrive(false),
        }
    }
}

/// Checks that nothing was lost.
fn judge(world: &Arc<World>) {
    let store = plain(&world.objects);
    world.arrive(true);
    for _ in 0..3 {
        let look = |finding: crate::Finding| panic!("{}: {}", finding.volume, finding.problem);
        verify(&store, &mut look.clone()).unwrap();
        let states = world.states.lock().unwrap();
        for (name, states) in &*states {
            if let Ok(volume) = Stored::open(&store, name) {
                let now = bytes_of(&volume).unwrap();
                assert!(states.contains(&now), "{name} is of nobody");
            }
        }
        drop(states);
        world.objects.pass(Duration::from_secs(26 * HOUR));
        match clean(&store, Duration::from_secs(GRACE), false) {
            Ok(_) | Err(Error::Refused(_)) => {}
            Err(error) => panic!("a last clean-up: {error}"),
        }
    }
}

fn interleaving() {
    let (contents, ahead) = beginning();
    let world = Arc::new(World::of(contents, *ahead));
    for (name, value) in [("a", 1), ("p", 5)] {
        let mut bytes = bytes_of(&image(value)).unwrap();
        if name == "a" {
            bytes[PLACE].fill(2);
        }
        world.may_be(name, bytes);
    }
    let mut programs: Vec<fn(&Arc<World>)> = vec![clean_up, time_goes_on, write];
    let others = [write, clean_up, clean_daily, push_again, hop, read, pack];
    programs.extend((0..3).map(|_| others[thread_rng().gen_range(0..others.len())]));
    let begun: Vec<_> = programs
        .into_iter()
        .map(|program| {
            let world = Arc::clone(&world);
            thread::spawn(move || program(&world))
        })
        .collect();
    begun.into_iter().for_each(|program| program.join().unwrap());
    judge(&world);
    let done = 1 + DONE.fetch_add(1, Ordering::Relaxed);
    if done.is_multiple_of(100_000) {
        println!("{done} interleavings");
    }
}

/// Interleavings so far.
static DONE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn pack(world: &Arc<World>) {
    let _ = compact(&world.store(), "a", "compaction", 100);
}

/// `PLATFS_STEPS=1000000` is the long run.
#[test]
fn nothing_in_use_is_removed_in_any_order_of_requests() {
    let steps = std::env::var("PLATFS_STEPS").ok().and_then(|steps| steps.parse().ok());
    let count = steps.unwrap_or(INTERLEAVINGS);
    beginning();
    let begun = std::time::Instant::now();
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::None;
    let scheduler = shuttle::scheduler::RandomScheduler::new(count / 2 + 1);
    shuttle::Runner::new(scheduler, config.clone()).run(interleaving);
    let scheduler = shuttle::scheduler::PctScheduler::new(4, count / 2);
    shuttle::Runner::new(scheduler, config).run(interleaving);
    println!("{} interleavings in {:?}", count / 2 * 2 + 1, begun.elapsed());
}
