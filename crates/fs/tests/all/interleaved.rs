//! Changes while a reader waits for the device, step by step: the device lets others in. That they
//! come to their end shows also that no lock is held over the device (I20).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan};
use platfs::ondisk::units::InodeNumber;
use platfs::{Attributes, Error, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions};

const ROOT: InodeNumber = InodeNumber::ROOT;

type Act = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A device that does something once before or after it reads, or before it writes.
struct Stage {
    memory: MemoryDevice,
    /// Reads to let pass before the next act.
    reads_first: AtomicU64,
    before_read: Act,
    after_read: Act,
    before_write: Act,
}

fn play(act: &Act) {
    let act = act.lock().unwrap().take();
    if let Some(act) = act {
        act();
    }
}

fn set(act: &Act, play: impl FnOnce() + Send + 'static) {
    *act.lock().unwrap() = Some(Box::new(play));
}

impl Device for Stage {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let pass = |left: u64| left.checked_sub(1);
        if self.reads_first.fetch_update(Ordering::SeqCst, Ordering::SeqCst, pass).is_err() {
            play(&self.before_read);
        }
        self.memory.read_at(offset, buffer)?;
        play(&self.after_read);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        play(&self.before_write);
        self.memory.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A small ext2 volume in blocks of 1 KiB.
fn stage() -> Arc<Stage> {
    let memory = MemoryDevice::new(2 << 20);
    let mut options = Options::new(FsType::Ext2);
    options.block_size = Some(1024);
    Plan::new(&options, memory.size()).unwrap().write(&memory).unwrap();
    let [before_read, after_read, before_write] = [(); 3].map(|()| Mutex::default());
    Arc::new(Stage { memory, reads_first: AtomicU64::new(0), before_read, after_read, before_write })
}

fn open(stage: &Arc<Stage>, delay: u64) -> Arc<Volume> {
    let options = OpenOptions::new().write(true).delay(delay);
    Arc::new(Volume::open(stage.clone(), &options).unwrap())
}

fn file(volume: &Volume, name: &[u8], data: &[u8]) -> InodeNumber {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let number = volume.create(ROOT, name, &new).unwrap();
    volume.write_at(number, 0, data, WriteOptions::default()).unwrap();
    number
}

/// Writes a byte into every block that is free.
fn fill_up(volume: &Volume, byte: u8) {
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let number = volume.create(ROOT, format!("filler-{byte}").as_bytes(), &new).unwrap();
    for block in 0.. {
        match volume.write_at(number, block * 1024, &[byte; 1024], WriteOptions::default()) {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
}

fn give_to_others(volume: &Volume, number: InodeNumber) {
    volume.truncate(number, 0).unwrap();
    volume.sync().unwrap();
    fill_up(volume, 0xBB);
}

#[test]
fn a_reader_sees_no_bytes_of_the_file_that_got_its_blocks() {
    let stage = stage();
    let volume = open(&stage, 0);
    let number = file(&volume, b"file", &[0xAA; 20_000]);
    fill_up(&volume, 0xCC);
    volume.sync().unwrap();
    let other = Arc::clone(&volume);
    set(&stage.before_read, move || give_to_others(&other, number));
    let mut buffer = vec![1; 8000];
    let len = volume.read_at(number, 0, &mut buffer).unwrap();
    assert!(stage.before_read.lock().unwrap().is_none(), "the read came to the device");
    assert!(buffer[..len].iter().all(|byte| *byte == 0xAA), "{len} bytes, first {}", buffer[0]);
}

#[test]
fn a_reader_takes_no_block_of_others_for_a_map() {
    let stage = stage();
    let volume = open(&stage, 0);
    let number = file(&volume, b"file", &[0xAA; 100_000]);
    fill_up(&volume, 0xCC);
    Arc::into_inner(volume).unwrap().close().unwrap();
    let volume = open(&stage, 0);
    volume.metadata(number).unwrap();
    let other = Arc::clone(&volume);
    // What is read first is the block of pointers.
    set(&stage.before_read, move || give_to_others(&other, number));
    let mut buffer = vec![1; 8000];
    assert_eq!(volume.read_at(number, 50_000, &mut buffer).unwrap(), 0);
}

#[test]
fn a_reader_sees_no_block_that_was_mapped_and_not_yet_written() {
    let stage = stage();
    let volume = open(&stage, 1 << 20);
    let old = file(&volume, b"old", &[0xBB; 700_000]);
    volume.sync().unwrap();
    volume.unlink(ROOT, b"old").unwrap();
    volume.sync().unwrap();
    let number = file(&volume, b"file", &[0xAA; 8000]);
    assert_ne!(old, ROOT);
    let (mapped, is_mapped) = channel();
    let (seen, is_seen) = channel();
    set(&stage.before_write, move || {
        mapped.send(()).unwrap();
        is_seen.recv().unwrap();
    });
    let flusher = {
        let volume = Arc::clone(&volume);
        std::thread::spawn(move || volume.write_back(None).unwrap())
    };
    is_mapped.recv().unwrap();
    set(&stage.after_read, move || {
        seen.send(()).unwrap();
        flusher.join().unwrap();
    });
    let mut buffer = vec![1; 8000];
    assert_eq!(volume.read_at(number, 0, &mut buffer).unwrap(), 8000);
    assert!(stage.after_read.lock().unwrap().is_none(), "the read came to the device");
    assert!(buffer.iter().all(|byte| *byte == 0xAA), "first {}", buffer[0]);
}

/// Does a verb on a volume of which nothing is in memory; whenever it reads, another must come to its
/// end. Returns how many reads there were.
fn others_go_on(verb: impl Fn(&Volume)) -> u64 {
    for reads in 0.. {
        let stage = stage();
        let volume = open(&stage, 0);
        let directory = NewInode { kind: Kind::Directory, attributes: Attributes::default(), xattrs: &[] };
        let dir = volume.create(ROOT, b"dir", &directory).unwrap();
        file(&volume, b"file", &[1; 100_000]);
        file(&volume, b"other", &[1; 1000]);
        volume.rename(ROOT, b"file", dir, b"file", Replace::Yes).unwrap();
        Arc::into_inner(volume).unwrap().close().unwrap();
        let volume = open(&stage, 0);
        // All that the other verb needs is in memory; much that the first needs is not.
        volume.inode(ROOT).set_permissions(0o700).unwrap();
        let other = Arc::clone(&volume);
        stage.reads_first.store(reads, Ordering::SeqCst);
        let (done, is_done) = channel();
        set(&stage.before_read, move || {
            std::thread::spawn(move || done.send(other.inode(ROOT).set_permissions(0o755)).unwrap());
            is_done.recv_timeout(Duration::from_secs(10)).expect("a verb that waits for nothing").unwrap();
        });
        verb(&volume);
        if stage.before_read.lock().unwrap().take().is_some() {
            return reads;
        }
    }
    0
}

#[test]
fn no_verb_keeps_others_waiting_for_the_device() {
    let dir = |volume: &Volume| volume.lookup(ROOT, b"dir").unwrap();
    assert!(others_go_on(|volume| volume.unlink(dir(volume), b"file").unwrap()) > 3);
    assert!(
        others_go_on(|volume| volume.rename(ROOT, b"other", dir(volume), b"file", Replace::Yes).unwrap()) > 3
    );
    assert!(others_go_on(|volume| assert_ne!(file(volume, b"new", b""), ROOT)) > 1);
    assert!(
        others_go_on(|volume| {
            let number = volume.lookup(dir(volume), b"file").unwrap();
            volume.truncate(number, 5000).unwrap();
        }) > 3
    );
}
