//! How often a reader of a volume waits for the store: requests one behind the other, counted.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use platfs::device::{Device, FileDevice};
use platfs::{Image, OpenOptions};
use platfs_store::objects::{Counts, Listed, Memory, Object, Objects, Patience, Version};
use platfs_store::{Cache, Push, Result, Store, Stored, Volume, clean, push, verify};
use testkit::scratch::Scratch;

/// A store where each request takes its time, and that knows the longest chain of requests that can have waited for each
/// other.
#[derive(Default)]
struct Slow {
    inner: Memory,
    time: Duration,
    /// The longest chain of those that have ended.
    ended: Mutex<u64>,
    requests: AtomicU64,
}

impl Slow {
    fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        let ended = || self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let own = *ended() + 1;
        std::thread::sleep(self.time);
        let done = work();
        let mut longest = ended();
        *longest = own.max(*longest);
        done
    }
}

impl Objects for Slow {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.of(|| self.inner.get(key, most))
    }
    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.of(|| self.inner.range(key, offset, len))
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.of(|| self.inner.put(key, bytes))
    }
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.of(|| self.inner.create(key, bytes))
    }
    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.of(|| self.inner.replace(key, bytes, version))
    }
    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.of(|| self.inner.head(key))
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.of(|| self.inner.list(prefix, each))
    }
    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.of(|| self.inner.names(prefix))
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.of(|| self.inner.remove(key))
    }
}

/// A root of that size with some thousand files, in a store.
fn pushed(scratch: &Scratch, size: &str) -> Memory {
    let tree = scratch.join("tree");
    let mut number = 0_u32;
    for directory in 0..200 {
        let path = tree.join(format!("usr/share/package {}/part {directory}", directory % 23));
        fs::create_dir_all(&path).unwrap();
        for file in 0..15 {
            number += 1;
            let len = number * 7919 % 9000;
            let bytes: Vec<u8> = (0..len).map(|at| (at * number).to_be_bytes()[1]).collect();
            fs::write(path.join(format!("file {file}")), bytes).unwrap();
        }
    }
    let noise = |seed: u32| move |at: u32| (at ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    for large in 0..6 {
        let bytes: Vec<u8> = (0..5_000_000).map(noise(large)).collect();
        fs::write(tree.join(format!("usr/large {large}")), bytes).unwrap();
    }
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/os-release"), "ID=odd\n").unwrap();
    let image = scratch.join("disk.img");
    crate::support::build(&tree, &image, &["--size", size]);
    let memory = Arc::new(Memory::new());
    let store = over(Arc::clone(&memory) as Arc<dyn Objects>, None);
    let device = FileDevice::new(fs::File::open(&image).unwrap()).unwrap();
    push(&store, &device, "root", &Push::default()).unwrap();
    Memory::holding(memory.contents())
}

fn over(objects: Arc<dyn Objects>, cache: Option<Cache>) -> Arc<Store> {
    Arc::new(Store::new(objects, Patience::default(), cache))
}

fn mounted(store: &Arc<Store>) -> Image {
    let stored = Arc::new(Stored::open(store, "root").unwrap());
    plat_cli::stores::early(Arc::clone(&stored) as Arc<dyn Device>, |ranges| stored.will_read(ranges));
    Image::on(stored, &OpenOptions::new()).unwrap()
}

/// Looks at everything below a directory, and reads it if wanted: bytes of files.
fn walked(image: &Image, path: &str, reads: bool) -> u64 {
    let mut bytes = 0;
    let names: Vec<Vec<u8>> =
        image.read_dir(path).unwrap().map(|entry| entry.unwrap().name().to_vec()).collect();
    for name in names {
        let path = format!("{path}/{}", String::from_utf8(name).unwrap());
        let facts = image.symlink_metadata(&path).unwrap();
        bytes += match () {
            () if facts.is_dir() => walked(image, &path, reads),
            () if reads => image.read(&path).unwrap().len() as u64,
            () => facts.size,
        };
    }
    bytes
}

#[test]
fn a_reader_waits_for_few_requests_one_behind_the_other() {
    let scratch = Scratch::new("a_reader_waits_for_few_requests_one_behind_the_other");
    let contents = pushed(&scratch, "512M").contents();
    let counted = |work: &dyn Fn(&Image)| {
        let inner = Memory::holding(contents.clone());
        let slow = Arc::new(Slow { inner, time: Duration::from_millis(25), ..Slow::default() });
        work(&mounted(&over(Arc::clone(&slow) as Arc<dyn Objects>, None)));
        let ended = *slow.ended.lock().unwrap();
        (ended, slow.requests.load(Ordering::Relaxed))
    };
    let cat = counted(&|image| {
        assert_eq!(image.read_to_string("/etc/os-release").unwrap(), "ID=odd\n");
    });
    let ls = counted(&|image| assert!(walked(image, "", false) > 30_000_000));
    let tar = counted(&|image| assert!(walked(image, "", true) > 30_000_000));
    println!("rounds and requests: cat {cat:?}, ls -lR {ls:?}, tar {tar:?}");
    assert!(cat.0 <= 6, "cat: {cat:?}");
    assert!(ls.0 <= 20, "ls -lR: {ls:?}");
    assert!(tar.0 * 4 <= tar.1, "tar: {tar:?}");
}

#[test]
fn a_clean_up_asks_for_many_volumes_side_by_side() {
    let memory = Arc::new(Memory::new());
    let store = over(Arc::clone(&memory) as Arc<dyn Objects>, None);
    for number in 0..40_u8 {
        let volume = Volume::create(&store, &format!("v{number}"), 3 << 30, "test").unwrap();
        (0..3).for_each(|leaf| volume.write_at(leaf << 30, &[number + 1; 4096]).unwrap());
        volume.close().unwrap();
    }
    let inner = Memory::holding(memory.contents());
    let slow = Arc::new(Slow { inner, time: Duration::from_millis(10), ..Slow::default() });
    let done = clean(&over(Arc::clone(&slow) as Arc<dyn Objects>, None), Duration::ZERO, true).unwrap();
    assert_eq!((done.removed, done.waiting), (0, 0));
    let (longest, requests) = (*slow.ended.lock().unwrap(), slow.requests.load(Ordering::Relaxed));
    // A manifest, an index and three leaves of each.
    assert!(requests >= 200 && longest <= 60, "{longest} of {requests}");
}

#[test]
fn a_check_reads_many_objects_side_by_side() {
    let memory = Arc::new(Memory::new());
    let store = over(Arc::clone(&memory) as Arc<dyn Objects>, None);
    let volume = Volume::create(&store, "v", 1 << 30, "test").unwrap();
    for chunk in 0..200_u64 {
        volume.write_at(chunk << 20, &[u8::try_from(chunk).unwrap() + 1; 512 << 10]).unwrap();
        volume.flush().unwrap();
    }
    volume.close().unwrap();
    let inner = Memory::holding(memory.contents());
    let slow = Arc::new(Slow { inner, time: Duration::from_millis(25), ..Slow::default() });
    let read = verify(&over(Arc::clone(&slow) as Arc<dyn Objects>, None), &mut |found| panic!("{found:?}"));
    let (longest, requests) = (*slow.ended.lock().unwrap(), slow.requests.load(Ordering::Relaxed));
    assert!(read.unwrap() > 100 && longest * 4 <= requests, "{longest} of {requests}");
}

#[test]
fn many_readers_ask_the_store_as_often_as_one() {
    let scratch = Scratch::new("many_readers_ask_the_store_as_often_as_one");
    let contents = pushed(&scratch, "96M").contents();
    let objects: Arc<dyn Objects> = Arc::new(Slow {
        inner: Memory::holding(contents),
        time: Duration::from_millis(2),
        ..Slow::default()
    });
    // Each is a process of its own, but for the address space.
    let read = |cache: &Path| -> Counts {
        let store = over(Arc::clone(&objects), Some(Cache::new(cache.to_owned(), 1 << 30)));
        assert!(walked(&mounted(&store), "", true) > 30_000_000);
        store.counts()
    };
    let one = read(&scratch.join("one"));
    let shared = scratch.join("shared");
    let readers = std::env::var("PLATFS_READERS").map_or(READERS, |text| text.parse().unwrap());
    let all: Vec<Counts> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(|| read(&shared))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let bytes: u64 = all.iter().map(|counts| counts.bytes_in).sum();
    println!("{readers} readers: {bytes} bytes, one {}", one.bytes_in);
    assert!(bytes * 100 <= one.bytes_in * 105, "{bytes} of {}", one.bytes_in);
    // A later process asks for the manifest, which is what can change.
    assert_eq!(read(&shared).reads, 1);
}

/// Readers at the same time; `PLATFS_READERS` says how many otherwise.
const READERS: usize = 12;
