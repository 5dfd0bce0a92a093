//! Leftovers of a crash with soft updates are reclaimed while the volume is in use (I32 to I34): verbs beside it, and
//! what it costs to open such a volume. Crashes in it are gone through in `research/crash`.

#![cfg(target_os = "linux")]
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::{Device, Event, MemoryDevice, Recorder};
use platfs::mkfs::{FsType, Options, Plan, parse_features};
use platfs::{Attributes, InodeNumber, Kind as NewKind, NewInode, OpenOptions, Volume, WriteOptions};

fn options() -> OpenOptions {
    OpenOptions::new().write(true).ordering(platfs::WriteOrder::Softdep)
}

fn new(kind: NewKind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

fn copy(device: &dyn Device) -> MemoryDevice {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

#[derive(Default)]
struct Issues(Vec<Issue>);

impl Sink for Issues {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(issue);
        Decision::Leave
    }
}

fn assert_clean(device: Arc<dyn Device>) {
    let mut issues = Issues::default();
    check(device, &check::Options::default(), &mut issues).unwrap();
    assert!(issues.0.is_empty(), "{:?}", issues.0);
}

/// Counts what is read.
struct Counting(MemoryDevice, AtomicU64);

impl Counting {
    fn read(&self) -> u64 {
        self.1.swap(0, Ordering::Relaxed)
    }
}

impl Device for Counting {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn large(megabytes: u64, inodes: u64) -> MemoryDevice {
    let device = MemoryDevice::new(megabytes << 20);
    let mut how = Options::new(FsType::Ext4);
    how.features = parse_features("^has_journal").unwrap();
    how.block_size = Some(1024);
    how.inodes = Some(inodes);
    Plan::new(&how, device.size()).unwrap().write(&device).unwrap();
    device
}

/// Device as it is after losing power at a number of flushes of some work.
fn cut_off(base: MemoryDevice, flushes: usize, work: impl Fn(&Volume)) -> MemoryDevice {
    let recorder = Arc::new(Recorder::new(Arc::new(copy(&base))));
    let volume = Volume::open(recorder.clone(), &options()).unwrap();
    work(&volume);
    let mut left = flushes;
    for event in recorder.take() {
        match event {
            Event::Write { offset, data } => base.write_at(offset, &data).unwrap(),
            Event::Flush if left == 0 => break,
            Event::Flush => left -= 1,
            Event::Mark(_) => {}
        }
    }
    base
}

/// Directories in each other, of which none has its name yet, go in one pass; and the volume can be used before
/// that.
#[test]
fn a_nest_without_a_name_goes_in_one_pass() {
    let base = cut_off(large(32, 4000), 2, |volume| {
        let mut directory = InodeNumber::ROOT;
        for _ in 0..400 {
            directory = volume.create(directory, b"inside", &new(NewKind::Directory)).unwrap();
            volume.create(directory, b"beside", &new(NewKind::File)).unwrap();
        }
        volume.sync().unwrap();
    });
    let device = Arc::new(Counting(base, AtomicU64::new(0)));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let at_opening = device.read();
    assert!(volume.leftovers().left().is_some());
    volume.create(InodeNumber::ROOT, b"at once", &new(NewKind::File)).unwrap();
    volume.leftovers().reclaim().unwrap();
    let reclaimed = volume.leftovers().reclaimed();
    let in_all = device.read();
    println!("{at_opening} bytes read at opening, {in_all} by reclaiming, {reclaimed:?}");
    assert!(reclaimed.inodes >= 800, "{reclaimed:?}");
    // Tables, and one block of each directory; what is written back is read too.
    assert!(in_all < 4 << 20, "{in_all} bytes read");
    volume.close().unwrap();
    assert_clean(device);
}

/// Opening reads bitmaps and descriptors, whatever there is in the volume.
#[test]
fn opening_reads_little() {
    let base = cut_off(large(64, 16_000), usize::MAX, |volume| {
        for directory in 0..100 {
            let name = format!("d{directory}");
            let directory =
                volume.create(InodeNumber::ROOT, name.as_bytes(), &new(NewKind::Directory)).unwrap();
            for file in 0..100 {
                volume.create(directory, format!("f{file}").as_bytes(), &new(NewKind::File)).unwrap();
            }
        }
        volume.sync().unwrap();
    });
    let device = Arc::new(Counting(base, AtomicU64::new(0)));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let at_opening = device.read();
    volume.leftovers().reclaim().unwrap();
    let by_reclaiming = device.read();
    println!("{at_opening} bytes read at opening, {by_reclaiming} by reclaiming");
    assert!(at_opening * 10 < by_reclaiming, "{at_opening} of {by_reclaiming} bytes");
    volume.close().unwrap();
    assert_clean(device);
}

/// Space that is about to be reclaimed counts before a writer gets the error that there is none.
#[test]
fn a_full_volume_is_reclaimed_before_it_is_called_full() {
    let fill = |volume: &Volume| {
        let file = volume.create(InodeNumber::ROOT, b"filler", &new(NewKind::File)).unwrap();
        let (free, _) = volume.space().free().unwrap();
        volume
            .write_at(file, 0, &vec![7; usize::try_from((free - 40) << 10).unwrap()], WriteOptions::default())
            .unwrap();
        volume.sync().unwrap();
    };
    for delay in [0, 1 << 20] {
        let device = large(4, 128);
        let volume = Volume::open(Arc::new(copy(&device)), &options()).unwrap();
        drop(volume);
        let recorder = Arc::new(Recorder::new(Arc::new(copy(&device))));
        let volume = Volume::open(recorder.clone(), &options()).unwrap();
        fill(&volume);
        let base = MemoryDevice::new(device.size());
        let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
        recorder.read_at(0, &mut bytes).unwrap();
        base.write_at(0, &bytes).unwrap();
        drop(recorder.take());
        volume.unlink(InodeNumber::ROOT, b"filler").unwrap();
        volume.sync().unwrap();
        // All but the last phase: the name is gone, and so is the inode.
        let events = recorder.take();
        let flushes = events.iter().filter(|event| **event == Event::Flush).count();
        let mut left = flushes - 1;
        for event in events {
            match event {
                Event::Write { offset, data } => base.write_at(offset, &data).unwrap(),
                Event::Flush => left -= 1,
                Event::Mark(_) => {}
            }
            if left == 0 {
                break;
            }
        }
        let base = Arc::new(base);
        let again = Volume::open(base.clone(), &options().delay(delay)).unwrap();
        let (free, _) = again.space().free().unwrap();
        assert!(free < 100 && again.leftovers().left().is_some(), "{free} blocks are free");
        let file = again.create(InodeNumber::ROOT, b"new", &new(NewKind::File)).unwrap();
        again.write_at(file, 0, &vec![9; 1 << 20], WriteOptions::default()).unwrap();
        assert!(again.leftovers().left().is_none(), "it was waited for");
        again.close().unwrap();
        assert_clean(base);
    }
}

/// Many threads change the volume while one reclaims; what it frees has no owner.
#[test]
fn verbs_go_on_beside_it() {
    for seed in 1..=3 {
        let base = cut_off(large(64, 16_000), 2 + seed, |volume| {
            for directory in 0..40 {
                let name = format!("d{directory}");
                let directory =
                    volume.create(InodeNumber::ROOT, name.as_bytes(), &new(NewKind::Directory)).unwrap();
                for file in 0..50 {
                    let file =
                        volume.create(directory, format!("f{file}").as_bytes(), &new(NewKind::File)).unwrap();
                    volume.write_at(file, 0, &[7; 3000], WriteOptions::default()).unwrap();
                }
                if directory.get() % 3 == 0 {
                    volume.sync().unwrap();
                }
            }
            volume.sync().unwrap();
        });
        let device = Arc::new(base);
        let volume = Volume::open(device.clone(), &options()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| volume.leftovers().reclaim().unwrap());
            for thread in 0..4_u64 {
                let volume = &volume;
                scope.spawn(move || {
                    let name = |kind: char, number: u64| format!("{kind}{thread}-{number}").into_bytes();
                    for number in 0..150 {
                        let file = volume
                            .create(InodeNumber::ROOT, &name('n', number), &new(NewKind::File))
                            .unwrap();
                        volume.write_at(file, 0, &[9; 5000], WriteOptions::default()).unwrap();
                        let old = format!("/d{}/f{}", number % 40, thread * 10 + number / 40);
                        if let Ok(inode) = volume.resolve(old.as_bytes()) {
                            let _ = volume.link(inode, InodeNumber::ROOT, &name('l', number));
                            let directory = volume.resolve(format!("/d{}", number % 40).as_bytes()).unwrap();
                            let own = format!("f{}", thread * 10 + number / 40);
                            volume.unlink(directory, own.as_bytes()).unwrap();
                        }
                        if number % 3 == 0 {
                            volume.unlink(InodeNumber::ROOT, &name('n', number)).unwrap();
                        }
                    }
                });
            }
        });
        volume.close().unwrap();
        assert_clean(device);
    }
}

/// A volume that another program left is checked as a whole first: soft updates vouch only for their own.
#[test]
fn others_are_not_trusted() {
    let cut = || {
        cut_off(large(16, 2000), 3, |volume| {
            for file in 0..500 {
                let file = volume
                    .create(InodeNumber::ROOT, format!("f{file}").as_bytes(), &new(NewKind::File))
                    .unwrap();
                volume.write_at(file, 0, &[7; 3000], WriteOptions::default()).unwrap();
            }
            volume.sync().unwrap();
        })
    };
    let read_at_opening = |device: MemoryDevice| {
        let device = Arc::new(Counting(device, AtomicU64::new(0)));
        let volume = Volume::open(device.clone(), &options()).unwrap();
        let read = device.read();
        volume.close().unwrap();
        assert_clean(device);
        read
    };
    let ours = read_at_opening(cut());
    let theirs = cut();
    let mut raw = platfs::read_superblock(&theirs).unwrap();
    let format = platfs::Format::from_superblock(&raw).unwrap();
    let mut times = raw.times();
    times.written += 1;
    raw.set_times(times);
    format.sealer.seal_superblock(&mut raw);
    theirs.write_at(1024, zerocopy::IntoBytes::as_bytes(&raw)).unwrap();
    let theirs = read_at_opening(theirs);
    println!("{ours} bytes read at opening, {theirs} of what somebody else left");
    assert!(ours * 3 < theirs);
}

/// A volume that is closed before all is reclaimed, because its user wants to leave, is not called in order, and goes
/// on at the next opening.
#[test]
fn stopped_it_goes_on_later() {
    let base = cut_off(large(32, 4000), 2, |volume| {
        for file in 0..300 {
            volume.create(InodeNumber::ROOT, format!("f{file}").as_bytes(), &new(NewKind::File)).unwrap();
        }
        volume.sync().unwrap();
    });
    let device = Arc::new(base);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    assert!(volume.leftovers().reclaim_some().unwrap());
    volume.create(InodeNumber::ROOT, b"meanwhile", &new(NewKind::File)).unwrap();
    volume.leftovers().stop();
    volume.close().unwrap();
    assert_eq!(platfs::read_superblock(&*device).unwrap().s_state.get() & 1, 0, "it is not in order");
    let volume = Volume::open(device.clone(), &options()).unwrap();
    assert!(volume.lookup(InodeNumber::ROOT, b"meanwhile").is_ok() && volume.leftovers().left().is_some());
    volume.leftovers().reclaim().unwrap();
    let raw = platfs::read_superblock(&*device).unwrap();
    assert_eq!((raw.s_state.get() & 1, raw.last_mounted()), (1, &b""[..]), "it is, as soon as it is done");
    volume.close().unwrap();
    assert_clean(device);
}
