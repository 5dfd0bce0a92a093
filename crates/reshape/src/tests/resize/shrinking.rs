//! Volumes that become smaller while they are in use.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::resize::{Watch, grow_in_use, shrink_in_use, size_in_use};
use platfs::device::{Event, Recorder};
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Volume, WriteOptions};

use super::*;

const PLACE: &[u8] = b"shrinking";

/// Files that were written, by name: the seed of their bytes and how many there are.
type Written = Mutex<BTreeMap<String, (u64, u64)>>;

pub(super) struct Patient;

impl Watch for Patient {
    fn goes_on(&self, _: u64) -> bool {
        true
    }
}

pub(super) fn opened(device: Arc<dyn Device>) -> Result<Volume, platfs::Error> {
    Volume::open(device, &OpenOptions::new().write(true).now(limits().now).delay(8 << 20))
}

fn write_one(
    volume: &Volume,
    place: InodeNumber,
    written: &Written,
    seed: u64,
    len: u64,
) -> platfs::Result<()> {
    let name = format!("{seed}");
    let xattrs = [(b"user.long".to_vec(), vec![b'x'; 700])];
    let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &xattrs };
    let number = volume.create(place, name.as_bytes(), &new)?;
    let bytes = Random(seed).bytes(len);
    for (at, piece) in (0..).step_by(70_000).zip(bytes.chunks(70_000)) {
        volume.write_at(number, at, piece, WriteOptions::default())?;
    }
    written.lock().unwrap().insert(name, (seed, len));
    Ok(())
}

pub(super) fn new(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

/// Fills a volume to its end, puts directories, links and attributes there, and makes room before them again.
fn prepare(volume: &Volume, written: &Written) -> platfs::Result<InodeNumber> {
    let root = InodeNumber::ROOT;
    let place = match volume.lookup(root, PLACE) {
        Err(_) => volume.create(root, PLACE, &new(Kind::Directory))?,
        Ok(place) => place,
    };
    let late = volume.create(place, b"late", &new(Kind::Directory))?;
    let mut seed = 1;
    while left(volume) > 3 << 20 {
        write_one(volume, place, written, seed, 400_000)?;
        seed += 1;
    }
    volume.sync()?;
    for n in 0..120 {
        let name = format!("a long name that fills blocks of its directory {n:03}");
        let target = format!("/{}{n}", "target/".repeat(20));
        let kind = if n % 2 == 0 { Kind::Symlink(target.as_bytes()) } else { Kind::File };
        volume.create(late, name.as_bytes(), &new(kind))?;
    }
    for late in 0..3 {
        write_one(volume, place, written, 500 + late, 500_000)?;
    }
    volume.sync()?;
    // The first two thirds go.
    for gone in 1..seed * 2 / 3 {
        volume.unlink(place, format!("{gone}").as_bytes())?;
        written.lock().unwrap().remove(&format!("{gone}"));
    }
    volume.sync()?;
    Ok(place)
}

/// Bytes that are free.
fn left(volume: &Volume) -> u64 {
    let geometry = volume.format().geometry;
    volume.space().free_after_sync().unwrap().0 << (geometry.cluster_log2 + geometry.block_size.log2())
}

/// Writes, rewrites and removes files until it is asked to stop.
fn load(volume: &Volume, place: InodeNumber, written: &Written, first: u64, stop: &AtomicBool) {
    let mut random = Random(first);
    for seed in first.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match write_one(volume, place, written, seed, random.below(200_000)) {
            Ok(()) => {}
            Err(platfs::Error::NoSpace | platfs::Error::NoInodes) => {
                let _ = volume.unlink(place, format!("{seed}").as_bytes());
            }
            Err(error) => panic!("{error}"),
        }
        let gone = seed.saturating_sub(8).to_string();
        if written.lock().unwrap().remove(&gone).is_some() {
            volume.unlink(place, gone.as_bytes()).unwrap();
        }
    }
}

/// Makes a volume smaller while it is written; the sizes that it had, or what could not be done.
fn shrunk_under_load(image: &Path, size: u64, written: &Written) -> Result<u64, String> {
    let text = |error: platfs::Error| error.to_string();
    let volume = opened(open(image)).map_err(text)?;
    let place = prepare(&volume, written).map_err(text)?;
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        for writer in 1..=3 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || load(volume, place, written, writer * 10_000, stop));
        }
        let shrink = || {
            let wanted = size_in_use(&volume, size).map_err(|error| error.to_string())?;
            let (after, moved) = shrink_in_use(&volume, size, &Patient).map_err(|error| error.to_string())?;
            assert_eq!((after, after.blocks), (volume.format().geometry, wanted.blocks));
            assert!(moved.blocks > 0);
            Ok::<_, String>(after.blocks << after.block_size.log2())
        };
        let done = shrink();
        std::thread::sleep(std::time::Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        done
    });
    volume.close().map_err(text)?;
    done
}

#[test]
fn a_volume_shrinks_while_it_is_written() {
    shrink_kinds(|name| ["ext4-1k", "meta-bg", "bigalloc", "no-reserve"].contains(&name));
}

#[test]
#[ignore = "24 kinds, a minute; cargo test -p platfs-reshape --lib every_kind_of_volume_shrinks_while -- --ignored"]
fn every_kind_of_volume_shrinks_while_it_is_written() {
    shrink_kinds(|name| !name.starts_with("ext2") && wanted(name));
}

fn shrink_kinds(is_meant: impl Fn(&str) -> bool) {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) || !have_loop_mount("resize") {
        return;
    }
    let scratch = Scratch::new("resize-shrinking");
    let (mut failures, mut refused, mut kinds) = (Vec::new(), 0, 0);
    for (name, options) in KINDS.iter().filter(|(name, _)| is_meant(name)) {
        kinds += 1;
        // A cluster for each block of attributes takes more.
        let (had, less) = if *name == "bigalloc" { (100, 75) } else { (60, 31) };
        let image = volume(&scratch, name, options, had * MIB);
        count_quotas(&image);
        let made = opened(open(&image)).unwrap();
        made.create(InodeNumber::ROOT, PLACE, &new(Kind::Directory)).unwrap();
        made.close().unwrap();
        let before = files(&image);
        let written = Written::default();
        let done = shrunk_under_load(&image, less * MIB + 300_000, &written);
        if let Ok(bytes) = done {
            File::options().write(true).open(&image).unwrap().set_len(bytes).unwrap();
        }
        let said = fsck::complaints(&image);
        eprintln!("{name}: {done:?} {} files {said}", written.lock().unwrap().len());
        let far = |why: &String| why.contains("second backup");
        if done.as_ref().is_err_and(far) && said.is_empty() {
            refused += 1;
            continue;
        }
        if done.is_err() || !said.is_empty() {
            failures.push(format!("{name}: {done:?} {said}"));
            continue;
        }
        let after = files(&image);
        let mine = after.entries.keys().filter(|path| path.starts_with(PLACE)).count();
        assert_eq!(mine, written.lock().unwrap().len() + 122, "{name}");
        assert_same(&without_place(before), &without_place(after), &Rules::default());
        let mounted = Mounted::read_only(&image).unwrap();
        for (file, (seed, len)) in written.into_inner().unwrap() {
            let bytes = std::fs::read(mounted.path().join("shrinking").join(&file)).unwrap();
            assert!(bytes == Random(seed).bytes(len), "{name}: {file}");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(refused * 3 < kinds, "{refused} of {kinds} refused");
}

fn without_place(mut files: Snapshot) -> Snapshot {
    files.entries.retain(|path, _| !path.starts_with(PLACE));
    files
}

/// Whatever was written before a crash: the volume has the size that it had, or the one it was to have.
#[test]
fn cut_off_at_any_write_a_shrinking_volume_has_one_size_or_the_other() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-shrinking-cut");
    let options = ["-t", "ext4", "-b", "1024", "-g", "2048"];
    let image = volume(&scratch, "cut", &options, 24 * MIB);
    let written = Written::default();
    let wanted = 16 * MIB;
    {
        let volume = opened(open(&image)).unwrap();
        prepare(&volume, &written).unwrap();
        volume.close().unwrap();
    }
    let base = copy(&image, &scratch.join("base"));
    let had = opened(open(&base)).unwrap().format().geometry.blocks;
    let recorder = Arc::new(Recorder::new(open(&image)));
    let volume = opened(Arc::clone(&recorder) as Arc<dyn Device>).unwrap();
    let (after, _) = shrink_in_use(&volume, wanted, &Patient).unwrap();
    drop(volume);
    let device = open(&base);
    let events: Vec<_> = recorder.take().into_iter().collect();
    let step = (events.len() / 12).max(1);
    let mut seen = [0, 0];
    for (at, event) in events.into_iter().enumerate() {
        let Event::Write { offset, data } = event else { continue };
        device.write_at(offset, &data).unwrap();
        let is_late = platfs_device::read_superblock(&*device).unwrap().blocks_count() == after.blocks;
        if at % step != 0 && !(is_late && seen[1] < 8) {
            continue;
        }
        let cut = copy(&base, &scratch.join("cut"));
        let volume = opened(open(&cut)).unwrap();
        let blocks = volume.format().geometry.blocks;
        assert!(blocks == had || blocks == after.blocks, "{blocks}");
        seen[usize::from(blocks == after.blocks)] += 1;
        // The same again comes to its end.
        if blocks == had {
            assert_eq!(shrink_in_use(&volume, wanted, &Patient).unwrap().0, after);
        } else {
            assert_eq!(grow_in_use(&volume, wanted, u64::MAX).unwrap(), after);
        }
        let place = volume.lookup(InodeNumber::ROOT, PLACE).unwrap();
        for (name, (seed, len)) in &*written.lock().unwrap() {
            let mut bytes = Vec::new();
            let number = volume.lookup(place, name.as_bytes()).unwrap();
            std::io::Read::read_to_end(&mut volume.open_file(number).unwrap(), &mut bytes).unwrap();
            assert!(bytes == Random(*seed).bytes(*len), "{name}");
        }
        volume.close().unwrap();
        fsck::assert_clean(&cut);
    }
    eprintln!("{seen:?} states before and after");
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// An impossible size is refused at once, with a size that can be, and changes nothing.
#[test]
fn a_size_that_is_too_small_is_refused_with_one_that_is_not() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-shrinking-refused");
    let image = volume(&scratch, "refused", &["-t", "ext4", "-b", "1024", "-g", "2048"], 60 * MIB);
    let volume = opened(open(&image)).unwrap();
    let written = Written::default();
    prepare(&volume, &written).unwrap();
    let had = volume.format().geometry;
    let why = size_in_use(&volume, 9 * MIB).unwrap_err().to_string();
    assert!(why.contains("KiB"), "{why}");
    assert!(shrink_in_use(&volume, 9 * MIB, &Patient).is_err());
    struct Impatient;
    impl Watch for Impatient {
        fn goes_on(&self, copied: u64) -> bool {
            copied < 100_000
        }
    }
    let why = shrink_in_use(&volume, 40 * MIB, &Impatient).unwrap_err().to_string();
    assert!(why.contains("called off"), "{why}");
    assert_eq!(volume.format().geometry, had);
    // All of the volume is given out again.
    let place = volume.lookup(InodeNumber::ROOT, PLACE).unwrap();
    let mut seed = 50_000;
    while left(&volume) > 2 * MIB {
        write_one(&volume, place, &written, seed, 900_000).unwrap();
        seed += 1;
    }
    volume.close().unwrap();
    fsck::assert_clean(&image);
}

/// The last group that stays may never have been used.
#[test]
fn an_empty_volume_shrinks_to_whole_groups() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-shrinking-empty");
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(300 * MIB).unwrap();
    let kind = ["-t", "ext4", "-b", "1024"];
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(kind).arg(&image));
    let volume = opened(open(&image)).unwrap();
    let bytes = (19 * 8192 + 1) << 10;
    let (after, _) = shrink_in_use(&volume, bytes, &Patient).unwrap();
    assert_eq!(after.blocks << 10, bytes);
    volume.close().unwrap();
    File::options().write(true).open(&image).unwrap().set_len(bytes).unwrap();
    fsck::assert_clean(&image);
}
