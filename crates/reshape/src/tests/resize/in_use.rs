//! Volumes that become larger while they are in use.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::resize::{grow_in_use, shrink_in_use, size_in_use};
use platfs::device::{Event, Recorder};
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Volume, WriteOptions};

use super::shrinking::Patient;
use super::*;

const PLACE: &[u8] = b"growing";

fn opened(device: Arc<dyn Device>) -> Result<Volume, platfs::Error> {
    Volume::open(device, &OpenOptions::new().write(true).now(limits().now).delay(8 << 20))
}

fn longer(image: &Path, bytes: u64) -> Arc<dyn Device> {
    File::options().write(true).open(image).unwrap().set_len(bytes).unwrap();
    open(image)
}

/// Files that were written, by name: the seed of their bytes and how many there are.
type Written = Mutex<BTreeMap<String, (u64, u64)>>;

fn write_one(
    volume: &Volume,
    directory: InodeNumber,
    written: &Written,
    seed: u64,
    len: u64,
) -> platfs::Result<()> {
    let name = format!("{seed}");
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
    let number = volume.create(directory, name.as_bytes(), &new)?;
    let bytes = Random(seed).bytes(len);
    for (at, piece) in (0..).step_by(70_000).zip(bytes.chunks(70_000)) {
        volume.write_at(number, at, piece, WriteOptions::default())?;
    }
    written.lock().unwrap().insert(name, (seed, len));
    Ok(())
}

/// Writes and removes files until it is asked to stop.
fn load(volume: &Volume, directory: InodeNumber, written: &Written, stop: &AtomicBool) {
    let mut random = Random(7);
    for seed in 1000.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match write_one(volume, directory, written, seed, random.below(200_000)) {
            Ok(()) => {}
            Err(platfs::Error::NoSpace | platfs::Error::NoInodes) => {
                let _ = volume.unlink(directory, format!("{seed}").as_bytes());
            }
            Err(error) => panic!("{error}"),
        }
        if seed % 2 == 0 {
            let gone = format!("{}", seed - random.below(5));
            if written.lock().unwrap().remove(&gone).is_some() {
                volume.unlink(directory, gone.as_bytes()).unwrap();
            }
        }
    }
}

fn without_place(mut files: Snapshot) -> Snapshot {
    files.entries.retain(|path, _| !path.starts_with(PLACE));
    files
}

/// Grows a volume to each of some sizes while it is written; what could not be done.
fn grown_under_load(image: &Path, sizes: &[u64], written: &Written) -> Result<(), String> {
    let text = |error: platfs::Error| error.to_string();
    let mut zeros_from = std::fs::metadata(image).unwrap().len();
    let device = longer(image, *sizes.last().unwrap());
    let volume = opened(device).map_err(text)?;
    let directory = volume.lookup(InodeNumber::ROOT, PLACE).map_err(text)?;
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| load(&volume, directory, written, &stop));
        let mut grow = || {
            for (round, size) in sizes.iter().enumerate() {
                let wanted = size_in_use(&volume, *size).map_err(|error| error.to_string())?;
                let after = grow_in_use(&volume, *size, zeros_from).map_err(|error| error.to_string())?;
                assert_eq!(after, volume.format().geometry);
                assert_eq!(after.blocks, wanted.blocks);
                zeros_from = u64::MAX;
                // More than there was room for before.
                for part in 0..8 {
                    write_one(&volume, directory, written, round as u64 * 8 + part, 900_000).map_err(text)?;
                }
            }
            Ok::<_, String>(())
        };
        let done = grow();
        stop.store(true, Ordering::Relaxed);
        done
    });
    volume.close().map_err(text)?;
    done
}

#[test]
fn a_volume_grows_while_it_is_written() {
    grow_kinds(|name| ["ext4-1k", "meta-bg", "bigalloc"].contains(&name));
}

#[test]
#[ignore = "24 kinds, a minute; cargo test -p platfs-reshape --lib every_kind_of_volume_grows_while -- --ignored"]
fn every_kind_of_volume_grows_while_it_is_written() {
    grow_kinds(|name| !name.starts_with("ext2") && wanted(name));
}

fn grow_kinds(is_meant: impl Fn(&str) -> bool) {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) || !have_loop_mount("resize") {
        return;
    }
    let scratch = Scratch::new("resize-in-use");
    let mut failures = Vec::new();
    for (name, options) in KINDS.iter().filter(|(name, _)| is_meant(name)) {
        let image = volume(&scratch, name, options, 30 * MIB + 300_000);
        // A kernel without quota mounts a volume with it for reading only.
        if let Err(why) = Mounted::read_write(&image).map(|mounted| {
            std::fs::create_dir(mounted.path().join("growing")).unwrap();
        }) {
            eprintln!("{name}: {why}");
            continue;
        }
        count_quotas(&image);
        let before = files(&image);
        let written = Written::default();
        let done = grown_under_load(&image, &[31 * MIB, 60 * MIB + 5000, 150 * MIB], &written);
        let said = fsck::complaints(&image);
        eprintln!("{name}: {done:?} {} files {said}", written.lock().unwrap().len());
        let refused = ["no-reserve", "no-reserve-no-flex", "sparse-super2"].contains(name);
        if done.is_err() != refused || !said.is_empty() {
            failures.push(format!("{name}: {done:?} {said}"));
            continue;
        }
        assert_same(&without_place(before), &without_place(files(&image)), &Rules::default());
        let mounted = Mounted::read_only(&image).unwrap();
        for (file, (seed, len)) in written.into_inner().unwrap() {
            let bytes = std::fs::read(mounted.path().join("growing").join(&file)).unwrap();
            assert!(bytes == Random(seed).bytes(len), "{name}: {file}");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whatever was written before a crash: the volume has the size that it had, or the one it was to have.
#[test]
fn cut_off_at_any_write_a_volume_in_use_has_one_size_or_the_other() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-in-use-cut");
    for name in ["ext4-1k", "meta-bg"] {
        let options = KINDS.iter().find(|kind| kind.0 == name).unwrap().1;
        let image = volume(&scratch, name, options, 30 * MIB);
        let base = copy(&image, &scratch.join("base"));
        let had = opened(open(&base)).unwrap().format().geometry.blocks;
        let recorder = Arc::new(Recorder::new(longer(&image, 80 * MIB)));
        let volume = opened(Arc::clone(&recorder) as Arc<dyn Device>).unwrap();
        let after = grow_in_use(&volume, 80 * MIB, 30 * MIB).unwrap();
        drop(volume);
        let device = longer(&base, 80 * MIB);
        let mut seen = [0, 0];
        // It is in place when the command has ended.
        assert_eq!(platfs_device::read_superblock(&*open(&image)).unwrap().blocks_count(), after.blocks);
        for event in recorder.take() {
            let Event::Write { offset, data } = event else { continue };
            device.write_at(offset, &data).unwrap();
            let cut = copy(&base, &scratch.join("cut"));
            let volume = opened(open(&cut)).unwrap();
            let blocks = volume.format().geometry.blocks;
            assert!(blocks == had || blocks == after.blocks, "{name}: {blocks}");
            seen[usize::from(blocks == after.blocks)] += 1;
            volume.close().unwrap();
            fsck::assert_clean(&cut);
            // The same again comes to its end.
            let volume = opened(open(&cut)).unwrap();
            assert_eq!(grow_in_use(&volume, 80 * MIB, 30 * MIB).unwrap(), after);
            volume.close().unwrap();
            fsck::assert_clean(&cut);
        }
        eprintln!("{name}: {seen:?} states before and after");
        assert!(seen.iter().all(|count| *count > 0), "{name}: {seen:?}");
    }
}

/// More descriptors than the journal holds come in steps.
#[test]
fn a_growth_too_large_for_the_journal_is_made_in_steps() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-in-use-steps");
    let options = ["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "meta_bg,^resize_inode", "-J", "size=1"];
    let image = volume(&scratch, "steps", &options, 30 * MIB);
    let size = 36 << 30;
    let volume = opened(longer(&image, size)).unwrap();
    let after = grow_in_use(&volume, size, 30 * MIB).unwrap();
    assert_eq!(after.blocks, size >> 10);
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

/// A volume that stayed open could change its size at most 64 times.
#[test]
fn a_volume_gets_another_size_a_hundred_times_while_it_is_open() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-in-use-often");
    let image = volume(&scratch, "often", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 10 * MIB);
    let volume = opened(longer(&image, 20 * MIB)).unwrap();
    for round in 0..50 {
        let (large, small) = (20 * MIB, (10 + round % 3) * MIB);
        assert_eq!(grow_in_use(&volume, large, 10 * MIB).unwrap().blocks, large >> 10, "{round}");
        assert_eq!(shrink_in_use(&volume, small, &Patient).unwrap().0.blocks, small >> 10, "{round}");
    }
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

/// Returns what was written to a byte of the device: after how many flushes, and 4 bytes of it.
fn written_at(events: &[Event], place: u64) -> Vec<(usize, u32)> {
    let (mut flushes, mut found) = (0, Vec::new());
    for event in events {
        match event {
            Event::Write { offset, data } => {
                let inside = place.checked_sub(*offset).and_then(|inside| usize::try_from(inside).ok());
                let bytes = inside.and_then(|inside| data.get(inside..)?.first_chunk());
                found.extend(bytes.map(|bytes| (flushes, u32::from_le_bytes(*bytes))));
            }
            Event::Flush => flushes += 1,
            Event::Mark(_) => {}
        }
    }
    found
}

/// Linux and e2fsck look at the superblock and the descriptors before they replay: it must never count groups that have
/// none.
#[test]
fn descriptors_come_before_a_superblock_that_counts_more_groups_and_after_one_that_counts_fewer() {
    const BLOCKS: u64 = 1024 + 4;
    const DESCRIPTORS: u64 = 2048;
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-in-use-superblock");
    let image = volume(&scratch, "ext4", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 30 * MIB);
    for (size, is_larger) in [(80 * MIB, true), (30 * MIB, false)] {
        let recorder = Arc::new(Recorder::new(longer(&image, 80 * MIB)));
        let volume = opened(Arc::clone(&recorder) as Arc<dyn Device>).unwrap();
        let after = match is_larger {
            true => grow_in_use(&volume, size, 30 * MIB).unwrap(),
            false => shrink_in_use(&volume, size, &Patient).unwrap().0,
        };
        volume.close().unwrap();
        let events = recorder.take();
        let is_counted = |(_, blocks): &(usize, u32)| u64::from(*blocks) == after.blocks;
        let (counted, _) = written_at(&events, BLOCKS).into_iter().find(is_counted).unwrap();
        let descriptors = written_at(&events, DESCRIPTORS);
        let is_ordered = descriptors.iter().any(|(flushes, _)| match is_larger {
            true => *flushes < counted,
            false => *flushes > counted,
        });
        let beside = descriptors.iter().any(|(flushes, _)| *flushes == counted);
        assert!(
            is_ordered && !beside,
            "{size}: superblock behind {counted} flushes, descriptors {descriptors:?}"
        );
    }
    fsck::assert_clean(&image);
}
