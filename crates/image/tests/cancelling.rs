//! Work that is ended, at every moment: a typed error, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "in a test it is a failure with a place")]

use platfs::device::{Device, FileDevice, MemoryDevice};
use platfs::{OpenOptions, Volume};
use platfs_image::{
    BuildError, Builder, Exporter, Packing, Progress, Size, Source, SourceError, Stage, Watch,
};
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
