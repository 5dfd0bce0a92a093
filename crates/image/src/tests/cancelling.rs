//! Work that is ended, at every moment: a typed error, and nothing left behind. And work that goes on where it can't read.

use crate::export::Unread;
use crate::{BuildError, Builder, Exporter, Packing, Progress, Size, Source, SourceError, Stage, Watch};
use platfs::device::{Device, FileDevice, MemoryDevice};
use platfs::{OpenOptions, Volume};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A watch that ends the work when it is asked for the time after `calls` times.
fn after(calls: usize) -> Watch {
    let left = AtomicUsize::new(calls);
    Watch::new(move |_: &Progress| {
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if before.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub")).unwrap();
    for name in ["a", "b", "sub/c"] {
        fs::write(root.join(name), vec![b'x'; 3 << 20]).unwrap();
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_build_that_is_ended_leaves_no_file() {
    let scratch = tempfile::tempdir().unwrap();
    tree(&scratch.path().join("tree"));
    let source = Source::open(scratch.path().join("tree")).unwrap();
    let image = scratch.path().join("disk.img");
    for size in [Size::Auto, Size::Min] {
        let mut calls = 0;
        while let Err(error) = Builder::new(&source).size(size).watch(after(calls)).build(&image) {
            assert!(error.is_cancelled(), "{error}");
            assert_eq!(names(scratch.path()), BTreeSet::from(["tree".into()]));
            calls += 1;
        }
        assert!(calls > 12, "{calls}");
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_device_then_holds_no_volume() {
    let scratch = tempfile::tempdir().unwrap();
    tree(scratch.path());
    let source = Source::open(scratch.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let mut calls = 0;
    while let Err(error) = Builder::new(&source).watch(after(calls)).build_on(Arc::clone(&device)) {
        assert!(matches!(error, BuildError::Cancelled(_)), "{error}");
        assert!(Volume::open(Arc::clone(&device), &OpenOptions::new()).is_err());
        calls += 1;
    }
    Volume::open(device, &OpenOptions::new()).unwrap();
}

#[test]
fn reading_and_exporting_end_too() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    tree(&path("tree"));
    Builder::new(&Source::open(path("tree")).unwrap()).build(path("disk.img")).unwrap();
    let before = names(scratch.path());
    let device = FileDevice::new(File::open(path("disk.img")).unwrap()).unwrap();
    let volume = Volume::open(Arc::new(device), &OpenOptions::new()).unwrap();
    for calls in 0..6 {
        let exporter = Exporter::new(&volume).watch(after(calls));
        assert!(exporter.to_file(path("out.tar"), Packing::Gzip).is_err());
        assert!(exporter.to_directory(path("out")).is_err());
        assert_eq!(names(scratch.path()), before);
    }
    Exporter::new(&volume).to_file(path("out.tar.gz"), Packing::Gzip).unwrap();
    for source in ["tree", "out.tar.gz"] {
        for calls in 0..5 {
            let ended = Source::options().watch(after(calls)).open(path(source));
            assert!(matches!(ended, Err(SourceError::Cancelled(_))), "{source} {calls}");
        }
    }
}

#[test]
fn progress_comes_to_its_totals() {
    let scratch = tempfile::tempdir().unwrap();
    tree(&scratch.path().join("tree"));
    let source = Source::open(scratch.path().join("tree")).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let watch = Watch::new(move |progress: &Progress| {
        sink.lock().unwrap().push(*progress);
        ControlFlow::Continue(())
    });
    Builder::new(&source).watch(watch).build(scratch.path().join("disk.img")).unwrap();
    let seen = seen.lock().unwrap();
    let last = |stage: Stage| *seen.iter().rev().find(|progress| progress.stage == stage).unwrap();
    let (names, data) = (last(Stage::Names), last(Stage::Data));
    assert_eq!((names.total_files, names.files), (Some(4), 4));
    assert_eq!((data.total_files, data.files), (Some(3), 3));
    assert_eq!((data.total_bytes, data.bytes), (Some(9 << 20), 9 << 20));
    assert!(seen.iter().zip(seen.iter().skip(1)).all(|(one, next)| next.bytes <= one.bytes + (1 << 20)));
}

/// A device that fails in the blocks of a set, each of 1 KiB.
struct Bad {
    under: MemoryDevice,
    blocks: Mutex<BTreeSet<u64>>,
}

impl Device for Bad {
    fn size(&self) -> u64 {
        self.under.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let blocks = offset / 1024..(offset + buffer.len() as u64).div_ceil(1024);
        match self.blocks.lock().unwrap().range(blocks).next() {
            Some(block) => Err(std::io::Error::other(format!("block {block} is bad"))),
            None => self.under.read_at(offset, buffer),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.under.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A volume with three files and two directories, on which 8 KiB of `a` and the directory `lost` are bad.
fn with_bad_blocks(scratch: &Path) -> Volume {
    tree(&scratch.join("tree"));
    fs::create_dir(scratch.join("tree/lost")).unwrap();
    fs::write(scratch.join("tree/lost/d"), vec![b'y'; 5000]).unwrap();
    let source = Source::open(scratch.join("tree")).unwrap();
    Builder::new(&source).build(scratch.join("disk.img")).unwrap();
    let under = MemoryDevice::from_bytes(&fs::read(scratch.join("disk.img")).unwrap());
    let bad = Arc::new(Bad { under, blocks: Mutex::default() });
    let open = || Volume::open(Arc::clone(&bad) as Arc<dyn Device>, &OpenOptions::new()).unwrap();
    let volume = open();
    let start = |path: &str| {
        let segment =
            volume.map(volume.resolve_link(path.as_bytes()).unwrap()).unwrap().next().unwrap().unwrap();
        match segment.state {
            platfs::State::Mapped(start) => start.0,
            _ => panic!("{path} begins with a hole"),
        }
    };
    let unit = u64::from(volume.format().geometry.block_size.bytes()) / 1024;
    let (file, directory) = (start("a") * unit, start("lost") * unit);
    bad.blocks.lock().unwrap().extend((file + 12..file + 20).chain([directory]));
    open()
}

/// Lines that an export reports, one for each message.
fn told(exporter: Exporter<'_>, zeros: bool, out: &Path) -> Vec<String> {
    let lines = Mutex::new(Vec::new());
    let tell = |unread: &Unread<'_>| {
        lines.lock().unwrap().push(format!("{} {:?}", String::from_utf8_lossy(unread.path), unread.lacks));
    };
    exporter.keep_going(zeros, &tell).to_directory(out).unwrap();
    lines.into_inner().unwrap()
}

#[test]
fn bad_blocks_cost_only_what_lies_in_them() {
    let scratch = tempfile::tempdir().unwrap();
    let volume = with_bad_blocks(scratch.path());
    let exporter = Exporter::new(&volume);
    let out = scratch.path().join("stopped");
    assert!(exporter.to_directory(&out).is_err() && !out.exists(), "without the option nothing is left");

    let out = scratch.path().join("out");
    let lines = told(exporter.clone(), false, &out);
    assert_eq!(lines, ["a FileFor(12288..20480)", "lost Names"]);
    assert_eq!(names(&out), BTreeSet::from(["b".into(), "lost".into(), "sub".into()]));
    assert_eq!(names(&out.join("lost")), BTreeSet::new());
    assert_eq!(fs::read(out.join("sub/c")).unwrap(), vec![b'x'; 3 << 20]);

    let out = scratch.path().join("zeros");
    let lines = told(exporter.clone(), true, &out);
    assert_eq!(lines, ["a Bytes(12288..20480)", "lost Names"]);
    let mut whole = vec![b'x'; 3 << 20];
    whole[12288..20480].fill(0);
    assert!(fs::read(out.join("a")).unwrap() == whole, "all else of the file is there");
    assert_eq!(fs::read(out.join("b")).unwrap(), vec![b'x'; 3 << 20]);

    let mut archive = Vec::new();
    let lines = Mutex::new(0);
    let tell = |_: &Unread<'_>| *lines.lock().unwrap() += 1;
    exporter.keep_going(true, &tell).to_archive(&mut archive, Packing::Plain).unwrap();
    assert_eq!(*lines.lock().unwrap(), 2);
    fs::write(scratch.path().join("out.tar"), archive).unwrap();
    let source = Source::open(scratch.path().join("out.tar")).unwrap();
    assert!(source.catalogue().find(b"sub/c").is_some() && source.catalogue().find(b"lost/d").is_none());
}
