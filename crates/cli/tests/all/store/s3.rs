//! Volumes in a real server of S3: run by `make store-test`, which starts one. `PLATFS_S3` names the store, as
//! `s3://bucket/prefix`; the rest of the environment (`AWS_...`) says how it is reached.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use platfs::device::Device;
use platfs_store::objects::{Listed, Object, Objects, Patience, Version};
use platfs_store::{Address, Error, Push, Result, Store, Stored, Volume, push, ready};
use rustix::process::Signal;
use testkit::fsck::assert_clean;
use testkit::tool;

use super::{Place, json, said, text};
use crate::support::mounted::{Mounted, have_fuse};
use crate::support::{fail, plat, succeed};

/// A prefix of its own in the store of the environment; skips where there is none.
fn store(test: &str) -> Option<String> {
    let Ok(base) = env::var("PLATFS_S3") else {
        tool::skip(test, "PLATFS_S3 names no store (make store-test)");
        return None;
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    Some(format!("{base}/{now:x}"))
}

fn open(url: &str) -> Arc<Store> {
    let objects = Address::parse(url).unwrap().objects().unwrap();
    Arc::new(Store::new(objects, Patience::default(), None))
}

fn number(name: &str, otherwise: u32) -> u32 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn a_volume_of_a_server_is_pushed_read_changed_mounted_and_pulled() {
    let test = "a_volume_of_a_server_is_pushed_read_changed_mounted_and_pulled";
    let Some(url) = store(test) else { return };
    let place = Place::new(test);
    let (image, cache) = (place.image(), place.scratch.join("cache"));
    let one = format!("{url}#one");
    let plat = |words: &[&str]| {
        let mut command = plat(words);
        command.env("PLAT_CACHE", &cache);
        command
    };
    let pushed = json(&mut plat(&["push", "--json", text(&image), &one]));
    assert_eq!(pushed["chunks"], pushed["new_chunks"]);
    assert_eq!(json(&mut plat(&["push", "--json", text(&image), &format!("{url}#two")]))["new_chunks"], 0);
    assert!(said(&mut plat(&["ls", &one, "/etc"])).contains("os-release"));
    assert_eq!(said(&mut plat(&["cat", &one, "/etc/os-release"])), "ID=odd\n");
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert!(fs::read(&back).unwrap() == fs::read(&image).unwrap());
    succeed(&mut plat(&["put", &one, text(&place.scratch.join("tree/etc/os-release")), "/etc/other"]));
    succeed(&mut plat(&["check", "-n", &one]));
    succeed(&mut plat(&["store", "snapshot", &one, "first"]));
    succeed(&mut plat(&["store", "fork", &format!("{one}@first"), "three"]));
    succeed(&mut plat(&["rm", &one, "/large"]));
    assert!(succeed(&mut plat(&["cat", &format!("{url}#three"), "/large"])).stdout.len() == 3_000_000);
    for gone in ["one@first", "two"] {
        succeed(&mut plat(&["store", "rm", &format!("{url}#{gone}")]));
    }
    let gc = |grace: &str| json(&mut plat(&["store", "gc", "--json", "--grace", grace, &url]));
    assert_eq!(gc("24")["removed"], 0);
    thread::sleep(Duration::from_millis(1100));
    gc("0");
    assert!(said(&mut plat(&["store", "verify", &url])).contains("all is well"));
    succeed(&mut plat(&["pull", "--force", &one, text(&back)]));
    assert_clean(&back);
}

#[test]
fn a_mount_that_was_taken_over_while_it_was_stopped_writes_nothing_more() {
    let test = "a_mount_that_was_taken_over_while_it_was_stopped_writes_nothing_more";
    let Some(url) = store(test) else { return };
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let one = format!("{url}#one");
    succeed(&mut plat(&["push", text(&place.image()), &one]));
    let mut mounted = Mounted::new(Path::new(&one), &[]).unwrap();
    fs::write(mounted.path().join("synced"), vec![7; 2_000_000]).unwrap();
    succeed(plat(&["sync"]).arg(mounted.path()));
    fs::write(mounted.path().join("unsynced"), vec![8; 100_000]).unwrap();
    mounted.signal(Signal::STOP);
    let other = place.scratch.join("tree/etc/os-release");
    assert!(fail(&mut plat(&["put", &one, text(&other), "/heir"])).contains("is open for writing"));
    succeed(plat(&["put", &one, text(&other), "/heir"]).env("PLAT_STORE_TAKEOVER", "1"));
    mounted.signal(Signal::CONT);
    assert!(!plat(&["sync"]).arg(mounted.path()).output().unwrap().status.success(), "a zombie's sync");
    mounted.signal(Signal::KILL);
    mounted.wait();
    drop(mounted);
    assert_eq!(said(&mut plat(&["cat", &one, "/heir"])), "ID=odd\n");
    assert!(succeed(&mut plat(&["cat", &one, "/synced"])).stdout == vec![7; 2_000_000]);
    assert!(fail(&mut plat(&["cat", &one, "/unsynced"])).contains("/unsynced"));
    let back = place.scratch.join("back.img");
    succeed(&mut plat(&["pull", &one, text(&back)]));
    assert_clean(&back);
}

/// Value that a writer writes.
fn value(round: u32) -> u8 {
    1 + (round % 250).to_le_bytes()[0]
}

/// Each of these heirs takes the volume over while the writer before it is in the middle of a flush. What a flush
/// acknowledged is there.
#[test]
fn of_many_heirs_none_loses_what_was_acknowledged_and_no_zombie_writes() {
    let test = "of_many_heirs_none_loses_what_was_acknowledged_and_no_zombie_writes";
    let Some(url) = store(test) else { return };
    let takeovers = number("PLATFS_TAKEOVERS", 50);
    let (store, size) = (open(&url), u64::from(takeovers + 1) * 4096);
    let mut writer = Volume::create(&store, "one", size, test).unwrap();
    let mut acknowledged = vec![false; takeovers as usize];
    for round in 0..takeovers {
        let own = u64::from(round) * 4096;
        writer.write_at(own, &[value(round); 4096]).unwrap();
        let start = Barrier::new(2);
        let (flushed, heir) = thread::scope(|scope| {
            let zombie = scope.spawn(|| {
                start.wait();
                // Sometimes the one is first and sometimes the other.
                thread::sleep(Duration::from_micros(u64::from(round) * 7919 % 30_000));
                writer.flush()
            });
            start.wait();
            let heir = Volume::open(&store, "one", test, true).unwrap();
            (zombie.join().unwrap(), heir)
        });
        acknowledged[round as usize] = flushed.is_ok();
        if let Err(error) = flushed {
            assert!(error.to_string().contains("taken over"), "{error}");
        }
        writer.write_at(size - 4096, &[255; 4096]).unwrap();
        assert!(writer.flush().is_err(), "round {round}: a zombie's flush");
        drop(std::mem::replace(&mut writer, heir));
    }
    writer.close().unwrap();
    let volume = Stored::open(&open(&url), "one").unwrap();
    let mut block = vec![0; 4096];
    for (round, is_there) in (0..).zip(&acknowledged) {
        volume.read_at(u64::from(round) * 4096, &mut block).unwrap();
        let holds = |wanted: u8| block.iter().all(|byte| *byte == wanted);
        // One that failed may have come before the seal: its writer learned of the heir in another way.
        assert!(holds(value(round)) || !is_there && holds(0), "round {round}: {is_there}, {}", block[0]);
    }
    volume.read_at(size - 4096, &mut block).unwrap();
    assert!(block.iter().all(|byte| *byte == 0), "what a zombie wrote");
    let lost = acknowledged.iter().filter(|is_there| !**is_there).count();
    println!("{takeovers} takeovers: {lost} flushes refused, the others there");
}

#[test]
fn of_many_that_write_one_object_one_wins() {
    let test = "of_many_that_write_one_object_one_wins";
    let Some(url) = store(test) else { return };
    for round in 0..number("PLATFS_RACES", 25) {
        // Each has eight races for a new object and eight for its replacement.
        ready(&open(&format!("{url}/{round}"))).unwrap();
    }
}

/// `PLATFS_S3_LOOSE` names a store where two can win.
#[test]
fn a_server_where_two_can_win_is_refused() {
    let test = "a_server_where_two_can_win_is_refused";
    let Ok(url) = env::var("PLATFS_S3_LOOSE") else {
        return tool::skip(test, "PLATFS_S3_LOOSE names no store where two can win");
    };
    let refused = ready(&open(&url)).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
}

/// A proxy that holds each request back, and counts: requests, and the longest chain of them that can have waited for
/// each other.
struct Proxy {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    longest: Arc<Mutex<u64>>,
}

impl Proxy {
    fn new(server: String, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, longest) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(0)));
        let shared = (Arc::clone(&requests), Arc::clone(&longest));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, shared) = (TcpStream::connect(&server).unwrap(), shared.clone());
                thread::spawn(move || forward(client, server, delay, &shared));
            }
        });
        Proxy { address, requests, longest }
    }

    /// Takes the counts since the last time.
    fn taken(&self) -> (u64, u64) {
        let longest = std::mem::take(&mut *self.longest.lock().unwrap_or_else(PoisonError::into_inner));
        (longest, self.requests.swap(0, Ordering::Relaxed))
    }
}

/// Hands bytes on both ways. Bytes of a client behind an answer are a new request.
fn forward(
    client: TcpStream,
    server: TcpStream,
    delay: Duration,
    (requests, longest): &(Arc<AtomicU64>, Arc<Mutex<u64>>),
) {
    let answered = AtomicBool::new(true);
    let own = AtomicU64::new(0);
    let longest = || longest.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = |mut from: &TcpStream, mut to: &TcpStream, is_request: bool| {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if is_request && answered.swap(false, Ordering::Relaxed) {
                requests.fetch_add(1, Ordering::Relaxed);
                own.store(*longest() + 1, Ordering::Relaxed);
                thread::sleep(delay);
            }
            if !is_request && !answered.swap(true, Ordering::Relaxed) {
                let mut longest = longest();
                *longest = own.load(Ordering::Relaxed).max(*longest);
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| copy(&client, &server, true));
        copy(&server, &client, false);
    });
}

/// A mount of a root of 512 MiB behind 25 ms for each request: `PLATFS_ROOT` names a tar or directory with a Debian root.
#[test]
fn a_root_behind_a_slow_line_is_read_with_few_requests_in_a_row() {
    let test = "a_root_behind_a_slow_line_is_read_with_few_requests_in_a_row";
    let Some(url) = store(test) else { return };
    if !have_fuse(test) {
        return;
    }
    let place = Place::new(test);
    let image = place.scratch.join("root.img");
    let Some(source) = env::var_os("PLATFS_ROOT") else {
        return tool::skip(test, "PLATFS_ROOT names no root file system (make demo makes one)");
    };
    succeed(plat(&["build", "--size", "512M"]).arg(source).arg(&image));
    let one = format!("{url}#one");
    let pushed = json(&mut plat(&["push", "--json", text(&image), &one]));
    let server = env::var("AWS_ENDPOINT").unwrap();
    let server = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let proxy = Proxy::new(server, Duration::from_millis(25));
    let cache = place.scratch.join("cache");
    let run = |words: &[&str]| {
        proxy.taken();
        let begun = Instant::now();
        let done = tool::run(
            std::process::Command::new("sh")
                .args(["-ec", &words.join(" ")])
                .env("PLAT", env!("CARGO_BIN_EXE_plat"))
                .env("ONE", &one)
                .env("DIR", place.scratch.path())
                .env("PLAT_CACHE", &cache)
                .env("AWS_ENDPOINT", format!("http://{}", proxy.address)),
        );
        let (rounds, requests) = proxy.taken();
        println!(
            "{}: {rounds} in a row, {requests} requests, {:.2} s",
            words.join(" "),
            begun.elapsed().as_secs_f64()
        );
        (rounds, requests, done.stdout)
    };
    let first = succeed(&mut plat(&["ls", &one, "/"])).stdout;
    println!("{pushed} {}", String::from_utf8_lossy(&first));
    let inside = "mkdir -p $DIR/m; $PLAT mount -o ro $ONE $DIR/m;";
    let after = "; $PLAT umount $DIR/m";
    let file = "etc/os-release";
    let cat = run(&["$PLAT cat $ONE", &format!("/{file}"), "| wc -c"]);
    fs::remove_dir_all(&cache).unwrap();
    let cat_of_mount = run(&[inside, &format!("cat $DIR/m/{file}"), "| wc -c", after]);
    fs::remove_dir_all(&cache).unwrap();
    let ls = run(&[inside, "ls -lR $DIR/m | wc -l", after]);
    fs::remove_dir_all(&cache).unwrap();
    let tar = run(&[inside, "tar c -C $DIR/m . | wc -c", after]);
    let traced = inside.replace("-o ro", "-o ro --trace $DIR/trace");
    let boot = format!("cat $DIR/m/{file} $DIR/m/usr/bin/[a-m]* | wc -c");
    run(&[&traced, &boot, after]);
    fs::remove_dir_all(&cache).unwrap();
    run(&[inside, &boot, after]);
    fs::remove_dir_all(&cache).unwrap();
    let prefetching = inside.replace("-o ro", "-o ro --prefetch $DIR/trace");
    run(&[&prefetching, &boot, after]);
    run(&[inside, "tar c -C $DIR/m . | wc -c", after]);
    let again = run(&[inside, "tar c -C $DIR/m . | wc -c", after]);
    assert!(cat.0 <= 6 && cat_of_mount.0 <= 6, "{} {}", cat.0, cat_of_mount.0);
    assert!(ls.0 <= 20, "{}", ls.0);
    assert!(tar.0 * 4 <= tar.1, "{} {}", tar.0, tar.1);
    assert!(again.1 <= 1 && again.2 == tar.2, "{}: the manifest is asked for, and nothing else", again.1);
}

/// A server with nothing between that asks for something twice: what was asked for is over soon after it is answered.
struct Direct(Arc<dyn Objects>);

impl Objects for Direct {
    fn get(&self, key: &str, most: u64) -> Result<Object> {
        self.0.get(key, most)
    }
    fn range(&self, key: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.0.range(key, offset, len)
    }
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.0.put(key, bytes)
    }
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Version> {
        self.0.create(key, bytes)
    }
    fn replace(&self, key: &str, bytes: &[u8], version: &Version) -> Result<Version> {
        self.0.replace(key, bytes, version)
    }
    fn head(&self, key: &str) -> Result<Option<Listed>> {
        self.0.head(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.0.list(prefix, each)
    }
    fn names(&self, prefix: &str) -> Result<Vec<String>> {
        self.0.names(prefix)
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.0.remove(key)
    }
    fn lingers(&self) -> Duration {
        Duration::from_secs(1)
    }
}

fn direct(url: &str) -> Arc<Store> {
    let objects = Address::parse(url).unwrap().objects().unwrap();
    Arc::new(Store::new(Arc::new(Direct(objects)), Patience::default(), None))
}

/// Writes a volume, again and again what it was once, and closes it: what it holds then.
fn rewritten(url: &str, name: &str, stop: &AtomicBool) -> Vec<u8> {
    let (store, mut round) = (direct(url), 0_u64);
    loop {
        let volume = Volume::open(&store, name, "round", false).unwrap();
        for step in 0..6 {
            let block = [u8::try_from((round + step) % 3).unwrap(); 4096];
            volume.write_at((step % 3) << 20, &block).unwrap();
            volume.flush().unwrap();
            if step % 2 == 0 {
                volume.shorten().unwrap();
            }
        }
        let mut bytes = vec![0; usize::try_from(volume.size()).unwrap()];
        volume.read_at(0, &mut bytes).unwrap();
        volume.close().unwrap();
        round += 1;
        if stop.load(Ordering::Relaxed) {
            return bytes;
        }
    }
}

/// Pushes two images in turn under one name, and forks from hand to hand.
fn pushed_and_forked(url: &str, images: &[platfs::device::MemoryDevice; 2], stop: &AtomicBool) {
    let store = direct(url);
    let force = Push { force: true, ..Push::default() };
    for round in 0.. {
        // A clean-up that is under way refuses a push.
        let _ = push(&store, &images[round % 2], "pushed", &force);
        for pair in ["one", "hop", "step", "jump"].windows(2) {
            if platfs_store::fork(&store, pair[0], pair[1]).is_ok() && pair[0] != "one" {
                platfs_store::remove(&store, pair[0]).unwrap();
            }
        }
        let _ = platfs_store::remove(&store, "jump");
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// `PLATFS_ROUNDS=200` is the long run.
#[test]
fn clean_ups_and_compactions_beside_writers_lose_nothing() {
    let test = "clean_ups_and_compactions_beside_writers_lose_nothing";
    let Some(url) = store(test) else { return };
    let images = [1_u8, 2].map(|seed| {
        let image = platfs::device::MemoryDevice::new(4 << 20);
        (0..8).for_each(|at| image.write_at(at << 19, &[seed + u8::try_from(at).unwrap(); 100_000]).unwrap());
        image
    });
    for name in ["one", "two", "packed"] {
        push(&direct(&url), &images[0], name, &Push::default()).unwrap();
    }
    let (mut removed, mut cleaned) = (0, 0);
    for round in 0..number("PLATFS_ROUNDS", 3) {
        let stop = AtomicBool::new(false);
        let written: Vec<Vec<u8>> = thread::scope(|scope| {
            let writers = ["one", "two"].map(|name| scope.spawn(|| rewritten(&url, name, &stop)));
            scope.spawn(|| pushed_and_forked(&url, &images, &stop));
            let packed = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    rewritten(&url, "packed", &AtomicBool::new(true));
                    platfs_store::compact(&direct(&url), "packed", "round", 100).unwrap();
                }
            });
            for _ in 0..3 {
                // Times of a store are in seconds.
                thread::sleep(Duration::from_millis(1100));
                match platfs_store::clean(&direct(&url), Duration::ZERO, false) {
                    Ok(done) => (removed, cleaned) = (removed + done.removed, cleaned + 1),
                    Err(error) => assert!(matches!(error, Error::Refused(_)), "round {round}: {error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
            packed.join().unwrap();
            writers.map(|writer| writer.join().unwrap()).into()
        });
        let mut findings = Vec::new();
        platfs_store::verify(&direct(&url), &mut |finding| findings.push(finding)).unwrap();
        assert!(findings.is_empty(), "round {round}: {findings:?}");
        for (name, wanted) in ["one", "two"].into_iter().zip(written) {
            let mut bytes = vec![0; wanted.len()];
            Stored::open(&direct(&url), name).unwrap().read_at(0, &mut bytes).unwrap();
            assert!(bytes == wanted, "round {round}: {name}");
        }
        println!("round {round}: {cleaned} clean-ups removed {removed} objects");
    }
    println!("{cleaned} clean-ups removed {removed} objects");
    assert!(removed > 0);
}
