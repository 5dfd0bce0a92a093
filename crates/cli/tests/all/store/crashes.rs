//! A file system on a volume of a store whose host or store is lost: every prefix of the objects that were written is a
//! state that is opened, judged by the check, and compared with what was acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ondisk::units::BlockSize;
use platfs::check::{Decision, Issue, Sink};
use platfs::device::{Device, Overlay};
use platfs::mkfs::{FsType, Options as Format};
use platfs::{Image, OpenOptions};
use platfs_store::objects::{Listed, Memory, Object, Objects, Patience, Version};
use platfs_store::{Result, Store, Stored, Volume};

const SIZE: u64 = 8 << 20;

/// Objects written to a store, in order; nothing for what was removed.
type Written = Vec<(String, Option<Vec<u8>>)>;

/// A store that writes down what it was asked to write.
#[derive(Default)]
struct Recording {
    inner: Memory,
    written: Mutex<Written>,
}

impl Recording {
    fn note<T>(&self, key: &str, bytes: Option<&[u8]>, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.written.lock().unwrap().push((key.to_owned(), bytes.map(<[u8]>::to_vec)));
        }
        done
    }

    fn len(&self) -> usize {
        self.written.lock().unwrap().len()
    }
}

impl Objects for Recording {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.inner.get(key, most)
    }
    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.inner.range(key, offset, len)
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.note(key, Some(bytes), self.inner.put(key, bytes))
    }
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.note(key, Some(bytes), self.inner.create(key, bytes))
    }
    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.note(key, Some(bytes), self.inner.replace(key, bytes, version))
    }
    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.inner.head(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.inner.list(prefix, each)
    }
    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.inner.names(prefix)
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.note(key, None, self.inner.remove(key))
    }
}

fn over(objects: Arc<dyn Objects>) -> Arc<Store> {
    let patience = Patience { limit: Duration::from_secs(1), ..Patience::simulated() };
    Arc::new(Store::new(objects, patience, None))
}

fn options(seed: u64) -> OpenOptions {
    OpenOptions::new().write(true).seed(seed)
}

/// After how many writes to the store which step was acknowledged.
type Acknowledged = Vec<(usize, u32)>;

/// One opening of the volume: changes with a sync behind every few of them. The host is lost in the end, or not.
fn session(
    (objects, seed): (&Arc<Recording>, u64),
    steps: std::ops::Range<u32>,
    is_lost: bool,
    acknowledged: &mut Acknowledged,
) {
    let store = over(Arc::clone(objects) as Arc<dyn Objects>);
    let volume = Arc::new(Volume::open(&store, "one", "test", true).unwrap());
    let image = Image::on(Arc::clone(&volume) as Arc<dyn Device>, &options(seed)).unwrap();
    for step in steps {
        let root = image.root();
        // Other lengths and other moments of syncs with each seed.
        let odd = (u64::from(step) + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) >> 33;
        let file = format!("/file {}", step % 9);
        root.write(&file, vec![step.to_le_bytes()[0]; 1000 + odd as usize % 60_000]).unwrap();
        match odd % 5 {
            1 => root.rename(&file, format!("/moved {}", step % 4)).unwrap(),
            3 => root.remove_file(&file).unwrap(),
            _ => {}
        }
        root.write("/counter", step.to_string()).unwrap();
        if odd % 3 == 0 {
            image.sync().unwrap();
            acknowledged.push((objects.len(), step));
        }
    }
    if is_lost {
        // Neither the file system nor the volume is closed.
        std::mem::forget(image);
        std::mem::forget(volume);
    } else {
        image.close().unwrap();
        volume.close().unwrap();
    }
}

struct Refusing;

impl Sink for Refusing {
    fn issue(&mut self, issue: Issue) -> Decision {
        panic!("{issue:?}");
    }
}

/// Opens the volume as it is in a store, replays its journal, and has all of it checked; the step that it is at.
fn judged(device: Arc<dyn Device>) -> u32 {
    let block = BlockSize::from_bytes(1024).unwrap();
    let overlay: Arc<dyn Device> = Arc::new(Overlay::new(device, block));
    let image = Image::on(Arc::clone(&overlay), &options(7)).unwrap();
    let step = image.root().read_to_string("/counter").map_or(0, |text| text.parse().unwrap());
    image.close().unwrap();
    let checked = platfs::check::check(overlay, &platfs::check::Options::default(), &mut Refusing);
    assert!(checked.unwrap().summary.is_sound());
    step
}

#[test]
fn every_prefix_of_the_objects_is_a_state_that_holds_what_was_acknowledged() {
    let states = states(7);
    assert!(states > 100, "{states}");
}

#[test]
#[ignore = "ten minutes of a processor: PLATFS_STATES=100000 cargo test -p platfs-cli --test all many_prefixes -- --ignored --nocapture"]
fn many_prefixes_of_the_objects_are_states_that_hold_what_was_acknowledged() {
    let wanted = std::env::var("PLATFS_STATES").map_or(100_000, |text| text.parse().unwrap());
    let (mut found, mut seed) = (0, 0);
    while found < wanted {
        seed += 1;
        found += states(seed);
    }
    println!("{found} states of {seed} runs");
}

/// One run with that seed: how many states it had.
fn states(seed: u64) -> usize {
    let objects = Arc::new(Recording::default());
    let volume: Arc<dyn Device> = {
        let store = over(Arc::clone(&objects) as Arc<dyn Objects>);
        Arc::new(Volume::create(&store, "one", SIZE, "test").unwrap())
    };
    let format = Format::new(FsType::Ext4);
    Image::format(volume, &format, &options(seed)).unwrap().close().unwrap();
    let begun = objects.len();
    let mut acknowledged: Acknowledged = Vec::new();
    for (session_number, first) in (1..200).step_by(40).enumerate() {
        session((&objects, seed), first..first + 40, session_number % 2 == 0, &mut acknowledged);
    }
    let written = objects.written.lock().unwrap().clone();
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let (mut states, mut last) = (0, 0);
    for (number, (key, bytes)) in written.iter().enumerate() {
        match bytes {
            Some(bytes) => drop(contents.insert(key.clone(), bytes.clone())),
            None => drop(contents.remove(key)),
        }
        if number + 1 < begun || !key.starts_with("vol/") {
            continue;
        }
        let promised =
            acknowledged.iter().rfind(|(count, _)| *count <= number + 1).map_or(0, |(_, step)| *step);
        let step = judged(Arc::new(
            Stored::open(&over(Arc::new(Memory::holding(contents.clone()))), "one").unwrap(),
        ));
        assert!(
            step >= promised && step >= last,
            "seed {seed}, after {number} writes: step {step}, promised {promised}, was {last}"
        );
        // The same with an heir, which seals what there is.
        if states % 8 == 0 {
            let store = over(Arc::new(Memory::holding(contents.clone())));
            let heir = Volume::open(&store, "one", "heir", true).unwrap();
            assert_eq!(judged(Arc::new(heir)), step);
        }
        last = step;
        states += 1;
    }
    states
}
