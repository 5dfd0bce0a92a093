//! Volumes with a local log against a model: what a crash of the process or of the host leaves, and what a taking over
//! does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::objects::{Fault, Memory, Objects, Patience};
use crate::{Error, LocalLog, Store, Stored, Volume};
use platfs_device::Device;

const SIZE: u64 = 1 << 20;

fn over(objects: &Arc<Memory>) -> Arc<Store> {
    let patience = Patience { limit: Duration::from_secs(1), ..Patience::simulated() };
    Arc::new(Store::new(Arc::clone(objects) as Arc<dyn Objects>, patience, None))
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

/// Some writes, of bytes or of zeros, to a volume and to the model.
fn write(volume: &dyn Device, model: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let start = random.below(SIZE / 512) * 512;
        let len = ((1 + random.below(40)) * 512).min(SIZE - start);
        let place = usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap();
        if random.below(5) == 0 {
            volume.write_zeros(start, len).unwrap();
            model[place].fill(0);
            continue;
        }
        model[place.clone()].fill(u8::try_from(1 + random.below(255)).unwrap());
        volume.write_at(start, &model[place]).unwrap();
    }
}

fn open(objects: &Arc<Memory>, log: &Path) -> crate::Result<Volume> {
    open_of_size(objects, log, 1 << 30)
}

fn open_of_size(objects: &Arc<Memory>, log: &Path, most: u64) -> crate::Result<Volume> {
    let place = LocalLog::of_size(log.to_owned(), most);
    Volume::open_local(&over(objects), "one", ("test", false), &place)
}

/// A store with an empty volume.
fn created() -> Arc<Memory> {
    let objects = Arc::new(Memory::new());
    Volume::create(&over(&objects), "one", SIZE, "test").unwrap().close().unwrap();
    objects
}

/// Gate for writes to a store; a write that may not pass is refused as by a store that is away.
fn gate(objects: &Memory) -> Arc<AtomicBool> {
    let is_open = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&is_open);
    objects.fail(move |what, _| (what == "create" && !own.load(Ordering::Relaxed)).then_some(Fault::Lost));
    is_open
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn parts(log: &Path) -> Vec<std::path::PathBuf> {
    // Of a volume that was closed nothing is left.
    let Ok(entries) = fs::read_dir(log) else { return Vec::new() };
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.file_name().unwrap() != "mark");
    found.sort();
    found
}

#[test]
fn a_flush_ends_without_the_store_and_objects_follow() {
    let (objects, scratch) = (created(), tempfile::tempdir().unwrap());
    let log = scratch.path().join("log");
    let is_open = gate(&objects);
    let volume = open(&objects, &log).unwrap();
    is_open.store(false, Ordering::Relaxed);
    let (mut model, mut random) = (vec![0; 1 << 20], Random(1));
    for _ in 0..200 {
        write(&volume, &mut model, &mut random);
        volume.flush().unwrap();
    }
    assert!(all(&volume) == model, "what waits is read");
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == vec![0; 1 << 20]);
    assert!(volume.drain().is_err(), "the store is away");
    is_open.store(true, Ordering::Relaxed);
    volume.drain().unwrap();
    assert!(all(&volume) == model, "what was sent is read");
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
    assert!(volume.log_objects() < 10, "{} objects of 200 flushes", volume.log_objects());
    volume.close().unwrap();
    assert!(volume.flush().is_err() && parts(&log).is_empty());
    drop(volume);
    assert!(!LocalLog::new(log.clone(), 0).is_used());
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
    assert!(open(&objects, &log).unwrap().notes().is_empty());
}

#[test]
fn what_a_killed_process_left_goes_on_and_a_torn_end_is_cut() {
    let (objects, scratch) = (created(), tempfile::tempdir().unwrap());
    let log = scratch.path().join("log");
    let is_open = gate(&objects);
    let (mut model, mut random) = (vec![0; 1 << 20], Random(2));
    for round in 0..30 {
        is_open.store(true, Ordering::Relaxed);
        let volume = open(&objects, &log).unwrap();
        assert!(all(&volume) == model, "round {round}");
        if round % 3 == 0 {
            volume.drain().unwrap();
        }
        is_open.store(round % 4 == 0, Ordering::Relaxed);
        for _ in 0..8 {
            write(&volume, &mut model, &mut random);
            volume.flush().unwrap();
        }
        volume.write_at(0, &[99; 4096]).unwrap();
        // A log is one process's.
        let Err(refused) = open(&objects, &log) else { panic!("opened twice") };
        assert!(refused.to_string().contains("local log"), "{refused}");
        volume.abandon();
        if let (Some(last), 1) = (parts(&log).last(), round % 2) {
            let mut bytes = fs::read(last).unwrap();
            bytes.resize(bytes.len().next_multiple_of(4096) + 5000, 7);
            fs::write(last, bytes).unwrap();
        }
        // Without the log nobody takes it for granted that all is in the store.
        assert!(matches!(Volume::open(&over(&objects), "one", "test", false), Err(Error::Open(_))));
    }
    is_open.store(true, Ordering::Relaxed);
    open(&objects, &log).unwrap().close().unwrap();
    assert!(all(&Stored::open(&over(&objects), "one").unwrap()) == model);
}

/// Contents of a store, with the record that is the last in it.
type Stores = Vec<(usize, BTreeMap<String, Vec<u8>>)>;

/// A run whose log is never shortened: states of the model by record, the ends of records in the one file of the log,
/// and states of the store with the record that each holds.
fn run(seed: u64, log: &Path) -> (Vec<Vec<u8>>, Vec<u64>, Stores) {
    let objects = created();
    let is_open = gate(&objects);
    let volume = open(&objects, log).unwrap();
    let (mut model, mut random) = (vec![0; 1 << 20], Random(seed));
    let (mut models, mut ends) = (vec![model.clone()], vec![0]);
    let mut stores = vec![(0, objects.contents())];
    for _ in 0..9 {
        is_open.store(false, Ordering::Relaxed);
        for _ in 0..=random.below(4) {
            write(&volume, &mut model, &mut random);
            volume.flush().unwrap();
            models.push(model.clone());
            ends.push(fs::metadata(&parts(log)[0]).unwrap().len());
        }
        is_open.store(true, Ordering::Relaxed);
        volume.drain().unwrap();
        stores.push((models.len() - 1, objects.contents()));
    }
    volume.abandon();
    (models, ends, stores)
}

/// Every prefix of the log, also in the middle of a record, with every prefix of the store's objects: the volume is what
/// it was at the last record that either has.
#[test]
fn every_prefix_of_the_log_with_every_prefix_of_the_objects_is_a_state() {
    let states = prefixes(1, 5);
    assert!(states > 500, "{states}");
}

#[test]
#[ignore = "minutes: cargo test -p platfs-store --lib many_prefixes -- --ignored --nocapture"]
fn many_prefixes_of_the_log_with_every_prefix_of_the_objects_are_states() {
    let states: usize = (1..=20).map(|seed| prefixes(seed, 1)).sum();
    println!("{states} states");
}

/// Looks at one of `one_of` states each; how many there are.
fn prefixes(seed: u64, one_of: usize) -> usize {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let (models, ends, stores) = run(seed, &log);
    let file = parts(&log).remove(0);
    let (bytes, name) = (fs::read(&file).unwrap(), file.file_name().unwrap().to_owned());
    let mut states = 0;
    for (record, end) in ends.iter().enumerate() {
        for more in [0, 200, 5000] {
            let len = usize::try_from(end + more).unwrap();
            // The part of a record behind a whole one; that of a short one may be all of it.
            if len > bytes.len() || ends.get(record + 1).is_some_and(|next| end + more >= *next) {
                continue;
            }
            for (stored, contents) in &stores {
                states += 1;
                if states % one_of != 0 {
                    continue;
                }
                let own = scratch.path().join(format!("{states}"));
                copied(&log, &own);
                fs::write(own.join(&name), &bytes[..len]).unwrap();
                let objects = Arc::new(Memory::holding(contents.clone()));
                let at = record.max(*stored);
                judged(&objects, &own, &models[at], states % 2 == 0);
                assert!(!own.exists(), "a log of a volume that was closed");
            }
        }
    }
    states
}

/// Opens a volume as a crash left it; goes on, crashes again or not, and looks at all of it.
fn judged(objects: &Arc<Memory>, log: &Path, wanted: &[u8], again: bool) {
    let volume = open(objects, log).unwrap();
    assert!(all(&volume) == wanted);
    assert!(volume.notes().is_empty(), "{:?}", volume.notes());
    let mut model = wanted.to_vec();
    write(&volume, &mut model, &mut Random(9));
    volume.flush().unwrap();
    if again {
        volume.abandon();
        let volume = open(objects, log).unwrap();
        assert!(all(&volume) == model);
        volume.close().unwrap();
    } else {
        volume.close().unwrap();
    }
    assert!(all(&Stored::open(&over(objects), "one").unwrap()) == model);
}

#[test]
fn a_zombie_with_a_local_log_writes_nothing_and_its_log_is_kept() {
    let (objects, scratch) = (created(), tempfile::tempdir().unwrap());
    let log = scratch.path().join("log");
    let zombie = open(&objects, &log).unwrap();
    zombie.write_at(0, &[1; 4096]).unwrap();
    zombie.drain().unwrap();
    zombie.write_at(4096, &[2; 4096]).unwrap();
    zombie.flush().unwrap();
    let other = LocalLog::new(scratch.path().join("other"), 1 << 30);
    let refused = Volume::open_local(&over(&objects), "one", ("heir", false), &other);
    assert!(matches!(refused, Err(Error::Open(_))));
    let heir = Volume::open_local(&over(&objects), "one", ("heir", true), &other).unwrap();
    heir.write_at(8192, &[3; 4096]).unwrap();
    heir.flush().unwrap();
    let error = zombie.drain().unwrap_err();
    assert!(error.to_string().contains("taken over"), "{error}");
    zombie.write_at(0, &[4; 4096]).unwrap();
    assert!(zombie.flush().is_err() && zombie.close().is_err());
    drop(zombie);
    heir.close().unwrap();
    // Back on the host of the zombie: what it could not send is kept, and said.
    let volume = open(&objects, &log).unwrap();
    let notes = volume.notes().join("");
    assert!(notes.contains("4096 bytes") && notes.contains("lost-"), "{notes}");
    let mut wanted = vec![0; 1 << 20];
    wanted[..4096].fill(1);
    wanted[8192..12_288].fill(3);
    assert!(all(&volume) == wanted);
    drop(volume);
    let kept = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.display().to_string().contains("lost-")).collect();
    assert_eq!((kept.len(), parts(&kept[0]).len()), (1, 1));
    assert!(open(&objects, &log).unwrap().notes().is_empty(), "said once");
}

#[test]
fn a_log_that_is_full_waits_for_the_store_and_fails_while_that_is_away() {
    let (objects, scratch) = (created(), tempfile::tempdir().unwrap());
    let log = scratch.path().join("log");
    let is_open = gate(&objects);
    let most = 512 << 10;
    let volume = open_of_size(&objects, &log, most).unwrap();
    let (mut model, mut random) = (vec![0; 1 << 20], Random(3));
    let held = || parts(&log).iter().map(|part| fs::metadata(part).unwrap().len()).sum::<u64>();
    let mut largest = 0;
    for _ in 0..200 {
        write(&volume, &mut model, &mut random);
        volume.flush().unwrap();
        largest = largest.max(held());
    }
    assert!(largest > most / 2 && largest <= most, "{largest} bytes of at most {most}");
    is_open.store(false, Ordering::Relaxed);
    let mut flushed = 0;
    let why = loop {
        write(&volume, &mut model, &mut random);
        match volume.flush() {
            Ok(()) => flushed += 1,
            Err(why) => break why,
        }
        assert!(flushed < 100);
    };
    assert!(flushed > 2 && why.to_string().contains("does not answer"), "{flushed}: {why}");
    assert!(held() <= most);
    is_open.store(true, Ordering::Relaxed);
    volume.drain().unwrap();
    assert!(all(&volume) == model);
    volume.abandon();
    let volume = open_of_size(&objects, &log, most).unwrap();
    assert!(all(&volume) == model);
}

#[test]
fn a_log_that_is_damaged_is_refused_and_nothing_is_sent() {
    let (objects, scratch) = (created(), tempfile::tempdir().unwrap());
    let log = scratch.path().join("log");
    let is_open = gate(&objects);
    let volume = open(&objects, &log).unwrap();
    is_open.store(false, Ordering::Relaxed);
    for number in 0..4 {
        volume.write_at(number * 8192, &[7; 8192]).unwrap();
        volume.flush().unwrap();
    }
    volume.abandon();
    is_open.store(true, Ordering::Relaxed);
    let file = parts(&log).remove(0);
    let sound = fs::read(&file).unwrap();
    let before = objects.contents().len();
    for at in (300..sound.len()).step_by(1999).filter(|at| at % 12_288 < 8000) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged).unwrap();
        match open(&objects, &log) {
            Ok(volume) => {
                // Of the last two nobody wrote later that they are stable.
                assert!(at >= 24_576, "byte {at}");
                volume.abandon();
            }
            Err(why) => {
                assert!(why.to_string().contains("was stable and is not whole"), "{why}");
                assert_eq!(fs::read(&file).unwrap(), damaged, "nothing is cut off");
            }
        }
        if at < 12_288 {
            assert!(objects.contents().keys().filter(|key| key.starts_with("vol/")).count() < before + 40);
        }
    }
}

/// A volume that is four fifths full and written all over again and again, its log compacted and cleaned up now and then.
#[test]
fn ageing_at_four_fifths_writes_little_more_than_was_written() {
    const LARGE: u64 = 48 << 20;
    let objects = Arc::new(Memory::new());
    let store = over(&objects);
    Volume::create(&store, "one", LARGE, "test").unwrap().close().unwrap();
    let (full, mut random) = (LARGE / 5 * 4 / 4096, Random(5));
    let mut bytes = vec![0; 64 << 10];
    let mut written = 0;
    let (mut begun, mut rounds) = (0, 0);
    for round in 0..12 {
        let volume = Volume::open(&store, "one", "test", false).unwrap();
        let mut own = 0;
        while own < if round == 0 { full * 4096 } else { LARGE / 2 } {
            let blocks = 1 + random.below(16);
            let at = if round == 0 { own / 4096 } else { random.below(full - blocks) };
            let len = usize::try_from(blocks * 4096).unwrap();
            bytes[..len].fill(u8::try_from(1 + random.below(255)).unwrap());
            volume.write_at(at * 4096, &bytes[..len]).unwrap();
            own += len as u64;
            if random.below(32) == 0 {
                volume.flush().unwrap();
            }
        }
        volume.close().unwrap();
        if round == 0 {
            begun = store.counts().bytes_out;
            continue;
        }
        (written, rounds) = (written + own, rounds + 1);
        crate::compact(&store, "one", "test", 20).unwrap();
        for _ in 0..2 {
            crate::clean(&store, Duration::ZERO, false).unwrap();
            objects.pass(Duration::from_secs(2));
        }
    }
    let sent = store.counts().bytes_out - begun;
    let held: u64 = objects.contents().values().map(|object| object.len() as u64).sum();
    let times = |count: u64, of: u64| count * 100 / of;
    let (sent, held) = (times(sent, written), times(held, full * 4096));
    println!(
        "{rounds} rounds: sent {sent} % of what was written, the store holds {held} % of what is in use"
    );
    assert!(sent <= 130 && held <= 300, "sent {sent} %, held {held} %");
}
