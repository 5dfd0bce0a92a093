//! Soft updates: crashes of volumes that are written in phases. Every state that the device may be left in, of
//! recorded random runs, shows no damage before recovery; and after it, by opening the volume again or by
//! e2fsck, holds all that was promised.
//!
//! `PLATFS_SEED=n cargo test -p platfs-crash --test softdep KIND` repeats the run of a failure.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crash::deep::Places;
use crash::faults::phased as faults;
use crash::softdep::{KINDS, Kind, Run, by_blocks, enumerate, made, options, places, record, record_deep};
use crash::workload::{self, Model};
use platfs::device::{Device, MemoryDevice, Recorder};
use platfs::{Attributes, InodeNumber, Kind as NewKind, NewInode, OpenOptions, Replace, Volume};
use testkit::tool;

fn seed(standard: u64) -> u64 {
    std::env::var("PLATFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(standard)
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn in_suite(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let run = record(kind(name), seed(1), 300);
    let count = enumerate(kind(name), &run, seed(1), 1000, 25).unwrap_or_else(|what| panic!("{what}"));
    println!("{name}: {count} states");
    assert!(count >= 600, "only {count} states");
}

/// `cargo test --release -p platfs-crash --test softdep -- --ignored --nocapture`, with `PLATFS_STATES` for another number.
#[test]
#[ignore = "takes long"]
fn many_states() {
    let wanted = std::env::var("PLATFS_STATES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let only = std::env::var("PLATFS_KIND").ok();
    for kind in KINDS.iter().filter(|kind| only.as_ref().is_none_or(|only| kind.name == only)) {
        let (mut count, mut seed) = (0, seed(1000));
        while count < wanted {
            let deep = kind.name.ends_with("_deep");
            let run = if deep { record_deep(kind, seed, 150) } else { record(kind, seed, 200) };
            count += enumerate(kind, &run, seed, wanted, 50).unwrap_or_else(|what| panic!("{what}"));
            seed += 1;
        }
        println!("{}: {count} states up to seed {seed}", kind.name);
    }
}

fn in_suite_deep(name: &str) {
    if !tool::have_tools(name, &["e2fsck"]) {
        return;
    }
    let run = record_deep(kind(name), seed(1), 150);
    let count = enumerate(kind(name), &run, seed(1), 500, 25).unwrap_or_else(|what| panic!("{what}"));
    println!("{name}: {count} states");
    assert!(count >= 400, "only {count} states");
}

#[test]
fn ext2_deep() {
    in_suite_deep("ext2_deep");
}

#[test]
fn ext4_deep() {
    in_suite_deep("ext4_deep");
}

#[test]
fn bigalloc_deep() {
    in_suite_deep("bigalloc_deep");
}

/// Faults that soft updates could have, put into what was recorded of right ones: each is found.
#[test]
fn faults_are_found() {
    for (name, fault) in faults::FAULTS {
        let found = (1..=FAULTY_RUNS).find_map(|seed| {
            let kind = kind("ext2_1k");
            let mut run = record(kind, seed, 300);
            run.events = faults::put(*fault, &places(&run.base), run.events);
            enumerate(kind, &run, seed, 2500, 0).err()
        });
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        println!("{name}: {}", found.chars().take(160).collect::<String>());
    }
}

/// Runs in which a fault must show.
const FAULTY_RUNS: u64 = 4;

/// An attribute block that two files share goes on being counted by both as long as both may lead to it.
#[test]
fn a_shared_attribute_block_is_not_changed_under_others() {
    let kind = kind("ext2_1k");
    let base = made(kind);
    let recorder = Arc::new(Recorder::new(Arc::new(base)));
    let new = NewInode { kind: NewKind::File, attributes: Attributes::default(), xattrs: &[] };
    let any = Volume::open(recorder.clone(), &OpenOptions::new().write(true)).unwrap();
    let mut model = Model::default();
    let (mut inodes, mut value) = (BTreeMap::new(), BTreeMap::new());
    for id in 1..=3_u32 {
        let name = format!("f{id}");
        let number = any.create(InodeNumber::ROOT, name.as_bytes(), &new).unwrap();
        any.set_xattr(number, b"user.v", &[5; 300]).unwrap();
        model.names.insert([b"/", name.as_bytes()].concat(), workload::Node::File(id));
        inodes.insert(id, number);
        value.insert(id, 5);
    }
    let blocks: BTreeSet<_> =
        inodes.values().map(|number| any.metadata(*number).unwrap().attribute_block).collect();
    assert_eq!(blocks.len(), 1, "they share a block");
    any.close().unwrap();
    let base = MemoryDevice::new(kind.megabytes << 20);
    let mut bytes = vec![0; usize::try_from(base.size()).unwrap()];
    recorder.read_at(0, &mut bytes).unwrap();
    base.write_at(0, &bytes).unwrap();
    drop(recorder.take());
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let mut values = vec![value.clone()];
    for (id, to) in [(1, Some(6)), (2, None), (3, Some(7)), (2, Some(7))] {
        recorder.mark(values.len() as u64);
        match to {
            Some(to) => {
                volume.set_xattr(inodes[&id], b"user.v", &[to; 300]).unwrap();
                value.insert(id, to);
            }
            None => {
                volume.remove_xattr(inodes[&id], b"user.v").unwrap();
                value.remove(&id);
            }
        }
        values.push(value.clone());
    }
    volume.close().unwrap();
    let history = vec![model; values.len()];
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    let run = Run { base, events, history, values, inodes, directories: Vec::new() };
    let count = enumerate(kind, &run, 1, 1000, 8).unwrap_or_else(|what| panic!("{what}"));
    assert!(count > 20, "{count} states");
}

/// A directory that files were moved out of is replaced by another one: it must be found until they are found
/// where they went.
#[test]
fn a_replaced_directory_keeps_its_name_until_what_left_it_has_another() {
    let kind = kind("ext2_1k");
    let recorder = Arc::new(Recorder::new(Arc::new(made(kind))));
    let volume = Volume::open(recorder.clone(), &options(kind)).unwrap();
    let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
    let make = |name: &[u8]| volume.create(InodeNumber::ROOT, name, &new(NewKind::Directory)).unwrap();
    let (old, other, target) = (make(b"old"), make(b"other"), make(b"target"));
    let file = volume.create(old, b"f", &new(NewKind::File)).unwrap();
    volume.sync().unwrap();
    let mut bytes = vec![0; usize::try_from(recorder.size()).unwrap()];
    recorder.read_at(0, &mut bytes).unwrap();
    let base = MemoryDevice::from_bytes(&bytes);
    drop(recorder.take());
    recorder.mark(1);
    volume.rename(old, b"f", target, b"f", Replace::Yes).unwrap();
    recorder.mark(2);
    volume.rename(InodeNumber::ROOT, b"other", InodeNumber::ROOT, b"old", Replace::Yes).unwrap();
    volume.sync().unwrap();
    let model = |names: &[&str]| {
        let node = |name: &str| {
            if name.ends_with('f') { workload::Node::File(1) } else { workload::Node::Directory }
        };
        let names = names.iter().map(|name| (name.as_bytes().to_vec(), node(name))).collect();
        Model { names, files: BTreeMap::from([(1, workload::Contents::default())]) }
    };
    let history = vec![
        model(&["/old", "/old/f", "/other", "/target"]),
        model(&["/old", "/other", "/target", "/target/f"]),
        model(&["/old", "/target", "/target/f"]),
    ];
    let places = |all: &[(&str, InodeNumber)]| -> Places {
        let root = [(Vec::new(), InodeNumber::ROOT)].into_iter();
        root.chain(all.iter().map(|(path, number)| (path.as_bytes().to_vec(), *number))).collect()
    };
    let before = places(&[("/old", old), ("/other", other), ("/target", target)]);
    let directories = vec![before.clone(), before, places(&[("/old", other), ("/target", target)])];
    let events = by_blocks(recorder.take(), u64::from(kind.block_size));
    let inodes = BTreeMap::from([(1, file)]);
    let run = Run { base, events, history, values: Vec::new(), inodes, directories };
    enumerate(kind, &run, 1, 1000, 8).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn ext2_1k() {
    in_suite("ext2_1k");
}

#[test]
fn ext4_1k() {
    in_suite("ext4_1k");
}

#[test]
fn ext4_4k() {
    in_suite("ext4_4k");
}

#[test]
fn bigalloc() {
    in_suite("bigalloc");
}
