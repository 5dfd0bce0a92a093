//! Volumes against a model: what is written is read, whatever the store does meanwhile.

mod cleaning;
mod hooked;
mod model;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::objects::{Fault, Files, Memory, Objects, Patience};
use crate::{Error, Push, Store, Stored, Volume, compact, push};
use platfs_device::{Device, MemoryDevice};

const SIZE: u64 = 3 << 20;

fn patience() -> Patience {
    Patience { limit: Duration::from_secs(1), ..Patience::simulated() }
}

fn over(objects: &Arc<Memory>) -> Arc<Store> {
    Arc::new(Store::new(Arc::clone(objects) as Arc<dyn Objects>, patience(), None))
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn image(size: u64, seed: u64) -> MemoryDevice {
    let device = MemoryDevice::new(size);
    let mut random = Random(seed);
    for block in 0..size / 4096 {
        if block % 300 > 100 {
            let bytes: Vec<u8> = (0..4096).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            device.write_at(block * 4096, &bytes).unwrap();
        }
    }
    device
}

/// One write, of bytes or of zeros, to a volume and to the model.
fn write(volume: &dyn Device, model: &mut [u8], random: &mut Random) {
    let size = model.len() as u64;
    let start = random.below(size / 512) * 512;
    let len = ((1 + random.below(40)) * 512).min(size - start);
    let place = usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap();
    if random.below(5) == 0 {
        volume.write_zeros(start, len).unwrap();
        model[place].fill(0);
        return;
    }
    let value = u8::try_from(1 + random.below(255)).unwrap();
    model[place.clone()].fill(value);
    volume.write_at(start, &model[place]).unwrap();
}

#[test]
fn a_pushed_image_is_read_back_and_only_what_is_missing_travels() {
    let objects = Arc::new(Memory::new());
    let store = over(&objects);
    let device = image(5 << 20, 1);
    let first = push(&store, &device, "one", &Push::default()).unwrap();
    assert_eq!((first.chunks, first.new_chunks), (10, 10));
    assert_eq!(all(&Stored::open(&store, "one").unwrap()), all(&device));
    let again = push(&store, &device, "two", &Push::default()).unwrap();
    assert_eq!((again.chunks, again.new_chunks, again.sent_bytes), (10, 0, 0));
    device.write_at(700_000, &[9; 10]).unwrap();
    assert!(matches!(push(&store, &device, "one", &Push::default()), Err(Error::Exists(_))));
    let force = Push { force: true, ..Push::default() };
    assert_eq!(push(&store, &device, "one", &force).unwrap().new_chunks, 1);
    assert_eq!(all(&Stored::open(&over(&objects), "one").unwrap()), all(&device));
    assert_ne!(all(&Stored::open(&over(&objects), "two").unwrap()), all(&device));
    // What is not in use does not travel.
    let only = Push { only: Some(vec![0..4096, 450_560..450_561]), ..Push::default() };
    let part = push(&store, &device, "part", &only).unwrap();
    assert_eq!(part.chunks, 1);
    assert!(matches!(Stored::open(&store, "three"), Err(Error::NoVolume)));
}

#[test]
fn an_interrupted_push_leaves_nothing_to_be_seen_and_goes_on() {
    let objects = Arc::new(Memory::new());
    let store = over(&objects);
    let device = image(5 << 20, 2);
    let puts = AtomicU64::new(0);
    objects.fail(move |what, key| {
        let is_chunk = what == "put" && key.starts_with("chunk/");
        (is_chunk && puts.fetch_add(1, Ordering::Relaxed) >= 4).then_some(Fault::Lost)
    });
    assert!(matches!(push(&store, &device, "one", &Push::default()), Err(Error::Unavailable(_))));
    objects.heal();
    assert!(matches!(Stored::open(&store, "one"), Err(Error::NoVolume)));
    assert!(!objects.contents().keys().any(|key| key.starts_with("lease/")));
    let rest = push(&store, &device, "one", &Push::default()).unwrap();
    assert!(rest.new_chunks < 10 && rest.new_chunks > 0, "{rest:?}");
    assert_eq!(all(&Stored::open(&store, "one").unwrap()), all(&device));
}

#[test]
fn damage_is_an_error_and_never_wrong_bytes() {
    let objects = Arc::new(Memory::new());
    let device = image(2 << 20, 3);
    push(&over(&objects), &device, "one", &Push::default()).unwrap();
    let volume = Volume::open(&over(&objects), "one", "test", false).unwrap();
    volume.write_at(1 << 20, &[7; 100_000]).unwrap();
    volume.flush().unwrap();
    let wanted = all(&volume);
    std::mem::forget(volume);
    let sound = objects.contents();
    let mut refused = 0;
    for key in sound.keys().filter(|key| !key.starts_with("store")) {
        for at in [0, sound[key].len() / 2, sound[key].len() - 1] {
            let mut damaged: BTreeMap<_, _> = sound.clone();
            damaged.get_mut(key).unwrap()[at] ^= 1;
            let store = over(&Arc::new(Memory::holding(damaged)));
            match Stored::open(&store, "one") {
                Err(Error::Damaged { object, .. }) => assert_eq!(object, *key),
                Err(other) => panic!("{key}: {other}"),
                Ok(volume) => {
                    let mut bytes = vec![0; wanted.len()];
                    match volume.read_at(0, &mut bytes) {
                        Ok(()) => assert!(bytes == wanted, "{key} at {at}: wrong bytes"),
                        Err(error) => assert!(error.to_string().contains(key), "{error}"),
                    }
                    continue;
                }
            }
            refused += 1;
        }
    }
    assert!(refused >= 4, "{refused}");
}

#[test]
fn a_volume_holds_what_was_written_through_openings_and_checkpoints() {
    let objects = Arc::new(Memory::new());
    let mut random = Random(4);
    let mut model = vec![0; usize::try_from(SIZE).unwrap()];
    drop(Volume::create(&over(&objects), "one", SIZE, "test").unwrap());
    for round in 0..12 {
        let volume = Volume::open(&over(&objects), "one", "test", true).unwrap();
        assert!(all(&volume) == model, "round {round}");
        for step in 0..60 {
            write(&volume, &mut model, &mut random);
            if step % 7 == 0 {
                volume.flush().unwrap();
                assert!(all(&volume) == model, "round {round}, step {step}");
            }
        }
        volume.flush().unwrap();
        match round % 3 {
            // The host is lost.
            0 => std::mem::forget(volume),
            1 => volume.close().unwrap(),
            _ => drop(volume),
        }
        assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model, "round {round}");
    }
}

#[test]
fn many_flushes_end_in_a_checkpoint() {
    let objects = Arc::new(Memory::new());
    let volume = Volume::create(&over(&objects), "one", SIZE, "test").unwrap();
    let mut model = vec![0; usize::try_from(SIZE).unwrap()];
    let mut random = Random(5);
    for _ in 0..300 {
        write(&volume, &mut model, &mut random);
        volume.flush().unwrap();
    }
    assert!(volume.log_objects() < 128);
    assert!(all(&volume) == model);
    std::mem::forget(volume);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
}

/// Objects of logs that are in a store when all that is due was removed.
fn log_objects(objects: &Arc<Memory>) -> usize {
    for _ in 0..2 {
        crate::clean(&over(objects), Duration::ZERO, false).unwrap();
        objects.pass(Duration::from_secs(2));
    }
    let contents = objects.contents();
    contents.keys().filter(|key| key.starts_with("vol/") && !key.ends_with("/manifest")).count()
}

/// A mount that syncs little and often, for long.
#[test]
fn an_open_volume_has_far_fewer_objects_than_it_had_syncs() {
    let objects = Arc::new(Memory::new());
    let size = 64 << 20;
    let volume = Volume::create(&over(&objects), "one", size, "test").unwrap();
    let (mut model, mut random) = (vec![0; usize::try_from(size).unwrap()], Random(13));
    for round in 0..4 {
        // Objects of a block, and at last of as many that 64 of them fill one that is packed.
        let len = if round == 3 { 27 * 4096 } else { 4096 };
        for _ in 0..640 {
            let start = random.below((size - len) / 4096) * 4096;
            let value = u8::try_from(1 + random.below(255)).unwrap();
            let place = usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap();
            model[place.clone()].fill(value);
            volume.write_at(start, &model[place]).unwrap();
            volume.flush().unwrap();
        }
        // Five times 128 are packed, and at last ten times 64; what is younger than the map is not yet.
        let most = if round == 3 { 15 + 10 + 128 } else { 5 * (round + 1) + 128 };
        let count = log_objects(&objects);
        assert!(count <= most, "{count} objects in round {round}");
        assert!(all(&volume) == model);
    }
    std::mem::forget(volume);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
}

#[test]
fn small_objects_of_many_openings_are_packed() {
    let objects = Arc::new(Memory::new());
    drop(Volume::create(&over(&objects), "one", SIZE, "test").unwrap());
    for number in 0..20 {
        let volume = Volume::open(&over(&objects), "one", "test", false).unwrap();
        volume.write_at(number * 8192, &[7; 4096]).unwrap();
        volume.close().unwrap();
    }
    let wanted = all(&Stored::open(&over(&objects), "one").unwrap());
    assert_eq!(log_objects(&objects), 20);
    let done = compact(&over(&objects), "one", "test", 20).unwrap();
    assert_eq!((done.emptied, done.moved_bytes), (20, 20 * 4096));
    assert_eq!(log_objects(&objects), 1);
    assert_eq!(compact(&over(&objects), "one", "test", 20).unwrap().emptied, 0);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == wanted);
}

#[test]
fn many_writes_without_a_flush_end_in_a_checkpoint() {
    let objects = Arc::new(Memory::new());
    let volume = Volume::create(&over(&objects), "one", 2 << 30, "test").unwrap();
    (0..280_000_u64).for_each(|number| volume.write_zeros(number * 4096, 512).unwrap());
    assert!(volume.log_objects() < 4, "{}", volume.log_objects());
}

#[test]
fn names_that_no_address_has_are_refused() {
    let store = over(&Arc::new(Memory::new()));
    for name in ["", "a b", "a@b@c", "a#b", &"x".repeat(201)] {
        assert!(matches!(Volume::create(&store, name, SIZE, "test"), Err(Error::Invalid(_))), "{name}");
        assert!(
            matches!(push(&store, &image(4096, 1), name, &Push::default()), Err(Error::Invalid(_))),
            "{name}"
        );
    }
    let holder = "\u{10ffff}".repeat(1000);
    drop(Volume::create(&store, "one", SIZE, &holder).unwrap());
    assert!(Stored::open(&store, "one").is_ok());
}

#[test]
fn whoever_was_taken_over_writes_nothing_more() {
    let objects = Arc::new(Memory::new());
    let zombie = Volume::create(&over(&objects), "one", SIZE, "first").unwrap();
    zombie.write_at(0, &[1; 4096]).unwrap();
    zombie.flush().unwrap();
    zombie.write_at(4096, &[2; 4096]).unwrap();
    let refused = Volume::open(&over(&objects), "one", "second", false);
    assert!(matches!(refused, Err(Error::Open(holder)) if holder.contains("first")));
    let heir = Volume::open(&over(&objects), "one", "second", true).unwrap();
    let error = zombie.flush().unwrap_err();
    assert!(error.to_string().contains("taken over"), "{error}");
    assert!(zombie.flush().is_err() && zombie.close().is_err());
    heir.write_at(8192, &[3; 4096]).unwrap();
    heir.close().unwrap();
    let mut wanted = vec![0; usize::try_from(SIZE).unwrap()];
    wanted[..4096].fill(1);
    wanted[8192..12_288].fill(3);
    drop(zombie);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == wanted);
}

#[test]
fn requests_that_fail_or_take_effect_and_fail_change_nothing() {
    let objects = Arc::new(Memory::new());
    let mut model = vec![0; usize::try_from(SIZE).unwrap()];
    let mut random = Random(6);
    let volume = Volume::create(&over(&objects), "one", SIZE, "test").unwrap();
    let mut faults = Random(7);
    objects.fail(move |_, _| match faults.below(5) {
        0 => Some(Fault::Lost),
        1 => Some(Fault::Unanswered),
        _ => None,
    });
    let mut failed = 0;
    for _ in 0..200 {
        write(&volume, &mut model, &mut random);
        failed += u32::from(volume.flush().is_err());
    }
    objects.heal();
    volume.flush().unwrap();
    assert!(failed > 0, "no request failed three times");
    assert!(all(&volume) == model);
    std::mem::forget(volume);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
}

#[test]
fn a_directory_is_a_store_and_one_of_many_wins() {
    let directory = tempfile::tempdir().unwrap();
    let files = || Arc::new(Files::new(directory.path().join("store"))) as Arc<dyn Objects>;
    let store = || Arc::new(Store::new(files(), patience(), None));
    crate::ready(&store()).unwrap();
    let mut model = vec![0; usize::try_from(SIZE).unwrap()];
    let mut random = Random(8);
    let volume = Volume::create(&store(), "one", SIZE, "test").unwrap();
    (0..50).for_each(|_| write(&volume, &mut model, &mut random));
    volume.close().unwrap();
    assert!(all(&Stored::open(&store(), "one").unwrap()) == model);
    let mut keys = Vec::new();
    files()
        .list("vol/", &mut |listed| {
            keys.push(listed.key);
            Ok(())
        })
        .unwrap();
    assert!(keys.iter().any(|key| key.ends_with("/manifest")) && keys.len() > 1, "{keys:?}");
    for wrong in ["../x", "a/../b", "/a", "a//b", ".making/x", "A"] {
        assert!(files().put(wrong, b"x").is_err(), "{wrong}");
    }
}

#[test]
fn a_store_where_two_can_win_is_refused() {
    struct Loose(Memory);
    impl Objects for Loose {
        fn get(&self, key: &str, most: u64) -> crate::Result<crate::objects::Object> {
            self.0.get(key, most)
        }
        fn range(&self, key: &str, offset: u64, len: u64) -> crate::Result<Vec<u8>> {
            self.0.range(key, offset, len)
        }
        fn put(&self, key: &str, bytes: &[u8]) -> crate::Result<()> {
            self.0.put(key, bytes)
        }
        fn create(&self, key: &str, bytes: &[u8]) -> crate::Result<crate::objects::Version> {
            // Looks first and writes then, as some servers do.
            if self.0.head(key)?.is_some() {
                return Err(Error::Exists(key.into()));
            }
            std::thread::sleep(Duration::from_millis(5));
            self.0.put(key, bytes)?;
            Ok(self.0.get(key, 1 << 20)?.version)
        }
        fn replace(
            &self,
            key: &str,
            bytes: &[u8],
            version: &crate::objects::Version,
        ) -> crate::Result<crate::objects::Version> {
            self.0.replace(key, bytes, version)
        }
        fn head(&self, key: &str) -> crate::Result<Option<crate::objects::Listed>> {
            self.0.head(key)
        }
        fn list(
            &self,
            prefix: &str,
            each: &mut dyn FnMut(crate::objects::Listed) -> crate::Result<()>,
        ) -> crate::Result<()> {
            self.0.list(prefix, each)
        }
        fn names(&self, prefix: &str) -> crate::Result<Vec<String>> {
            self.0.names(prefix)
        }
        fn remove(&self, key: &str) -> crate::Result<()> {
            self.0.remove(key)
        }
    }
    let store = Arc::new(Store::new(Arc::new(Loose(Memory::new())), patience(), None));
    let refused = Volume::create(&store, "one", SIZE, "test").err().unwrap();
    assert!(refused.to_string().contains("conditional writes"), "{refused}");
}

/// Bytes that a store holds below a prefix.
fn held(objects: &Memory, prefix: &str) -> u64 {
    let objects = objects.contents();
    objects.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn what_is_mostly_overwritten_is_given_back() {
    let objects = Arc::new(Memory::new());
    let store = over(&objects);
    let size = 16 << 20;
    let volume = Volume::create(&store, "one", size, "test").unwrap();
    let mut model = vec![0; usize::try_from(size).unwrap()];
    let mut put = |volume: &Volume, start: usize, len: usize, value: u8| {
        model[start..start + len].fill(value);
        volume.write_at(start as u64, &model[start..start + len]).unwrap();
    };
    // Objects of 1 MiB, of which all but 100 kB are overwritten, half of them after a snapshot.
    for number in 0..8 {
        put(&volume, number << 20, 1 << 20, 1);
        volume.flush().unwrap();
    }
    for number in 0..4 {
        put(&volume, number << 20, 900_000, 2);
    }
    volume.close().unwrap();
    crate::fork(&store, "one", "one@snapshot").unwrap();
    let volume = Volume::open(&store, "one", "test", false).unwrap();
    for number in 4..8 {
        put(&volume, number << 20, 900_000, 3);
    }
    volume.close().unwrap();
    let before = held(&objects, "vol/");
    let done = compact(&store, "one", "test", 20).unwrap();
    // The four that the snapshot needs stay, and so do the two with what is new.
    assert_eq!((done.objects, done.emptied, done.freed_bytes), (10, 0, 0), "all are the snapshot's");
    crate::remove(&store, "one@snapshot").unwrap();
    let done = compact(&store, "one", "test", 20).unwrap();
    let rest = (8 << 20) - 8 * 900_000;
    assert_eq!((done.objects, done.emptied, done.moved_bytes), (10, 8, rest));
    assert_eq!(done.freed_bytes, 8 << 20);
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
    for _ in 0..2 {
        crate::clean(&store, Duration::ZERO, false).unwrap();
        objects.pass(Duration::from_secs(2));
    }
    let after = held(&objects, "vol/");
    assert!(after + (8 << 20) < before + rest + 20_000, "{before} bytes before, {after} after");
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
    assert_eq!(compact(&store, "one", "test", 20).unwrap().emptied, 0);
    let mut problems = Vec::new();
    crate::verify(&store, &mut |finding| problems.push(finding)).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_fork_of_a_large_volume_is_five_requests() {
    let objects = Arc::new(Memory::new());
    let volume = Volume::create(&over(&objects), "one", 1 << 40, "test").unwrap();
    for number in 0..1024 {
        volume.write_at(number << 30, &[7; 4096]).unwrap();
    }
    volume.close().unwrap();
    for name in ["two", "one@first"] {
        let store = over(&objects);
        crate::fork(&store, "one", name).unwrap();
        let counts = store.counts();
        assert_eq!(
            (counts.reads, counts.writes),
            (3, 2),
            "the mark of the store, and two manifests, each of them twice"
        );
    }
    let mut block = [0; 4096];
    Stored::open(&over(&objects), "two").unwrap().read_at(1023 << 30, &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
}

#[test]
fn of_two_clean_ups_at_once_one_works_and_nothing_in_use_goes() {
    let objects = Arc::new(Memory::new());
    let device = image(5 << 20, 9);
    push(&over(&objects), &device, "one", &Push::default()).unwrap();
    push(&over(&objects), &image(5 << 20, 10), "two", &Push::default()).unwrap();
    crate::remove(&over(&objects), "two").unwrap();
    for _ in 0..8 {
        let start = std::sync::Barrier::new(4);
        let done: Vec<_> = std::thread::scope(|scope| {
            let clean = || {
                start.wait();
                crate::clean(&over(&objects), Duration::ZERO, false)
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(clean)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(done.iter().any(Result::is_ok), "{done:?}");
        for refused in done.into_iter().filter_map(Result::err) {
            assert!(
                matches!(refused, Error::Refused(_) | Error::Conflict(_) | Error::Exists(_)),
                "{refused}"
            );
        }
        objects.pass(Duration::from_secs(2));
    }
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == all(&device));
    assert!(objects.contents()["gc/running"].starts_with(b"ended "));
    assert_eq!(crate::stats(&over(&objects)).unwrap().unused_objects, 0);
}

#[test]
fn what_is_read_forward_is_fetched_side_by_side_and_once() {
    let objects = Arc::new(Memory::new());
    let device = image(64 << 20, 11);
    push(&over(&objects), &device, "one", &Push::default()).unwrap();
    let most = Arc::new(Mutex::new((0, 0)));
    let noted = Arc::clone(&most);
    objects.fail(move |what, key| {
        if what == "get" && key.starts_with("chunk/") {
            noted.lock().unwrap().0 += 1;
        }
        None
    });
    let store = over(&objects);
    let volume = Stored::open(&store, "one").unwrap();
    let mut buffer = vec![0; 128 << 10];
    for at in (0..volume.size()).step_by(buffer.len()) {
        volume.read_at(at, &mut buffer).unwrap();
        let mut noted = most.lock().unwrap();
        // Chunks that were asked for beyond those that were read.
        noted.1 = noted.1.max(noted.0 - i64::try_from(at >> 19).unwrap());
    }
    drop(volume);
    let (asked, ahead) = *most.lock().unwrap();
    let chunks = i64::try_from(objects.contents().keys().filter(|key| key.starts_with("chunk/")).count());
    assert_eq!(Ok(asked), chunks);
    assert!(ahead > 4, "never more than {ahead} ahead");
    // What will be read is fetched though nobody reads it.
    let store = over(&objects);
    let volume = Stored::open(&store, "one").unwrap();
    volume.will_read(&[0..8 << 20, 1 << 60..u64::MAX]);
    let begun = std::time::Instant::now();
    while store.counts().reads < 16 + 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", store.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Number of times that threads that read ahead went to sleep, in all of this process.
fn sleeps_ahead() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let status = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let ahead = status.filter(|status| status.starts_with("Name:\tahead\n"));
    let line = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    ahead.filter_map(line).sum()
}

#[test]
fn reads_of_what_is_at_hand_wake_nobody_and_single_chunks_are_fetched() {
    const READS: u64 = 50_000;
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(16 << 20, 12), "one", &Push::default()).unwrap();
    let store = over(&objects);
    let volume = Stored::open(&store, "one").unwrap();
    let begun = std::time::Instant::now();
    let chunks = objects.contents().keys().filter(|key| key.starts_with("chunk/")).count() as u64;
    for at in (0..16 << 20).step_by(512 << 10) {
        // Threads are asleep now and then when the next chunk is wanted.
        if at % (2 << 20) == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        volume.will_read(std::slice::from_ref(&(at..at + (512 << 10))));
    }
    // The manifest and the map, too.
    while store.counts().reads < chunks + 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", store.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (before, mut buffer) = (sleeps_ahead(), vec![0; 1024]);
    for number in 0..READS {
        volume.read_at(number * 7919 % (16 << 20) / 1024 * 1024, &mut buffer).unwrap();
    }
    let sleeps = sleeps_ahead().saturating_sub(before);
    assert!(sleeps < READS / 10, "{sleeps} times woken by {READS} reads");
}

/// Manifests, maps and objects of logs whose checksums are right and whose contents are hostile.
#[test]
fn hostile_objects_are_refused_in_bounded_time_and_memory() {
    use crate::format::manifest::{Manifest, Segment};
    use crate::{id_of, key_of_manifest};
    let objects = Arc::new(Memory::new());
    push(&over(&objects), &image(2 << 20, 12), "one", &Push::default()).unwrap();
    let key = key_of_manifest(&id_of("one"));
    let sound = Manifest::decode(&objects.contents()[&key]).unwrap();
    let segment = |first, end| Segment { volume: sound.id, epoch: 1, first, end, before: [0; 32] };
    let hostile: [(&str, Manifest); 6] = [
        ("missing", Manifest { segments: vec![segment(0, u64::MAX - 1)], ..sound.clone() }),
        ("no such object", Manifest { map: [9; 32], ..sound.clone() }),
        ("another volume", Manifest { id: [1; 16], ..sound.clone() }),
        ("damaged", Manifest { size: 1 << 50, ..sound.clone() }),
        ("damaged", Manifest { size: 4096, ..sound.clone() }),
        ("damaged", Manifest { size: u64::MAX, ..sound.clone() }),
    ];
    for (word, manifest) in hostile {
        let mut contents = objects.contents();
        contents.insert(key.clone(), manifest.encode());
        let store = over(&Arc::new(Memory::holding(contents)));
        let read = |volume: Stored| volume.read_at(0, &mut [0; 4096]).map_err(|error| error.to_string());
        let opened = Stored::open(&store, "one").map_err(|error| error.to_string());
        let why = opened.and_then(read).unwrap_err();
        assert!(why.contains(word), "{word}: {why}");
        assert!(crate::clean(&store, Duration::ZERO, false).is_err(), "{word}: cleaned up");
    }
}
