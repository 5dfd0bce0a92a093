//! Volumes that become smaller in use, with inodes in the groups that go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::resize::{Watch, grow_in_use, shrink_in_use};
use platfs::device::{Event, Recorder};
use platfs::placement::DirectoryPolicyKind;
use platfs::{InodeNumber, Kind, OpenOptions, Pin, Replace, Volume, WriteOptions};

use super::shrinking::{Patient, new};
use super::*;

const ROOT: InodeNumber = InodeNumber::ROOT;

/// A file or directory that was made: where it is, and what it is known as.
struct Known {
    path: String,
    number: InodeNumber,
    contents: Option<Vec<u8>>,
}

/// Opens a volume whose directories are spread.
pub(super) fn opened(device: Arc<dyn Device>) -> platfs::Result<Volume> {
    let options = OpenOptions::new().write(true).now(limits().now).delay(8 << 20);
    Volume::open(device, &options.directories(DirectoryPolicyKind::Spread))
}

fn put(volume: &Volume, directory: InodeNumber, name: &str, bytes: &[u8]) -> InodeNumber {
    let number = volume.create(directory, name.as_bytes(), &new(Kind::File)).unwrap();
    // In pieces, so that some maps take blocks of their own.
    for (at, piece) in bytes.chunks(1500).enumerate().step_by(2) {
        volume.write_at(number, at as u64 * 1500, piece, WriteOptions::default()).unwrap();
    }
    volume.sync().unwrap();
    for (at, piece) in bytes.chunks(1500).enumerate().skip(1).step_by(2) {
        volume.write_at(number, at as u64 * 1500, piece, WriteOptions::default()).unwrap();
    }
    number
}

/// Directories of the root are spread over the groups; what is in them follows.
fn spread(volume: &Volume, values: bool) -> Vec<Known> {
    let mut all = Vec::new();
    let mut known = |path: String, number, contents: Option<Vec<u8>>| {
        all.push(Known { path, number, contents });
        number
    };
    let first = known("d0".into(), volume.create(ROOT, b"d0", &new(Kind::Directory)).unwrap(), None);
    for at in 1..18_u64 {
        let name = format!("d{at}");
        let dir = volume.create(ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap();
        let dir = known(name.clone(), dir, None);
        let bytes = Random(at).bytes(40_000);
        let file = known(format!("{name}/file"), put(volume, dir, "file", &bytes), Some(bytes.clone()));
        volume.link(file, first, format!("link{at}").as_bytes()).unwrap();
        volume.link(file, dir, b"again").unwrap();
        known(format!("d0/link{at}"), file, Some(bytes));
        let sub =
            known(format!("{name}/sub"), volume.create(dir, b"sub", &new(Kind::Directory)).unwrap(), None);
        let deep = known(
            format!("{name}/sub/deep"),
            volume.create(sub, b"deep", &new(Kind::Directory)).unwrap(),
            None,
        );
        known(format!("{name}/sub/deep/leaf"), put(volume, deep, "leaf", b"leaf"), Some(b"leaf".to_vec()));
        let long = Kind::Symlink(
            b"a target that is so long that it does not fit the sixty bytes of an inode's record",
        );
        known(format!("{name}/link"), volume.create(dir, b"link", &new(long)).unwrap(), None);
        let size = if values { 3000 } else { 300 };
        let value = vec![u8::try_from(at).unwrap(); size];
        volume.inode(file).set_xattr(b"user.value", &value).unwrap();
        if at % 5 == 0 {
            for n in 0..150 {
                let name = format!("one of many names that make an index necessary {n:04}");
                volume.create(sub, name.as_bytes(), &new(Kind::File)).unwrap();
            }
        }
    }
    volume.sync().unwrap();
    all
}

fn resolve(volume: &Volume, path: &str) -> platfs::Result<InodeNumber> {
    path.split('/').try_fold(ROOT, |at, name| volume.lookup(at, name.as_bytes()))
}

/// Everything is where it was, and known by the number that it had, which is also listed.
fn assert_known(volume: &Volume, all: &[Known], same_numbers: bool) {
    for known in all {
        let number = resolve(volume, &known.path).unwrap();
        assert!(number == known.number || !same_numbers, "{}", known.path);
        let (parent, name) = known.path.rsplit_once('/').unwrap_or(("", &known.path));
        let parent = if parent.is_empty() { ROOT } else { resolve(volume, parent).unwrap() };
        let entry =
            volume.read_dir(parent).unwrap().map(Result::unwrap).find(|entry| entry.name == name.as_bytes());
        assert_eq!(entry.unwrap().inode, number, "{}", known.path);
        let facts = volume.metadata(number).unwrap();
        assert_eq!(facts.inode, number);
        match &known.contents {
            Some(contents) => assert_eq!(&bytes_of(volume, number), contents, "{}", known.path),
            None if facts.file_type == platfs::FileType::Directory => {
                assert_eq!(volume.lookup(number, b".").unwrap(), number, "{}", known.path);
                assert_eq!(volume.lookup(number, b"..").unwrap(), parent, "{}", known.path);
            }
            None => {}
        }
    }
}

fn bytes_of(volume: &Volume, number: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0; 50_000];
    let len = volume.read_at(number, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Looks at what is known, and gives and takes names, until it is asked to stop.
fn beside(volume: &Volume, all: &[Known], stop: &AtomicBool) -> u32 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for (at, pair) in all.windows(2).enumerate() {
            let [one, other] = pair else { continue };
            assert_eq!(resolve(volume, &one.path).unwrap(), one.number, "{}", one.path);
            let Some(contents) = &one.contents else { continue };
            assert_eq!(&bytes_of(volume, one.number), contents, "{}", one.path);
            if other.contents.is_some() {
                continue;
            }
            let is_dir = volume.metadata(other.number).unwrap().file_type == platfs::FileType::Directory;
            let place = if is_dir { other.number } else { ROOT };
            let (name, next) = (format!("new{at}"), format!("next{at}"));
            volume.link(one.number, place, name.as_bytes()).unwrap();
            volume.rename(place, name.as_bytes(), ROOT, next.as_bytes(), Replace::No).unwrap();
            volume.unlink(ROOT, next.as_bytes()).unwrap();
        }
        rounds += 1;
    }
    rounds
}

/// A file and a directory that have no names any more, and are in use.
fn unnamed<'v>(volume: &'v Volume) -> Vec<(Pin<'v>, InodeNumber)> {
    let mut held = Vec::new();
    for at in 1..18 {
        let dir = resolve(volume, &format!("d{at}")).unwrap();
        let gone = volume.create(dir, b"gone", &new(Kind::Directory)).unwrap();
        held.push((volume.pin(gone).unwrap(), gone));
        volume.rmdir(dir, b"gone").unwrap();
        let file = put(volume, dir, "gone", &Random(at).bytes(9000));
        held.push((volume.pin(file).unwrap(), file));
        volume.unlink(dir, b"gone").unwrap();
    }
    volume.sync().unwrap();
    held
}

fn highest(all: &[Known]) -> u32 {
    all.iter().map(|known| known.number.get()).max().unwrap()
}

fn shrink_kind(scratch: &Scratch, name: &str, options: &[&str]) -> Result<(), String> {
    let text = |error: platfs::Error| error.to_string();
    // Directories are spread over the groups that lie together, the journal is in the middle.
    let (had, wanted) = if options.contains(&"1024") { (100, 60 * MIB) } else { (210, 130 * MIB) };
    let image = volume(scratch, name, options, had * MIB);
    count_quotas(&image);
    let volume = opened(open(&image)).map_err(text)?;
    let all = spread(&volume, name == "ea-inode");
    let held = unnamed(&volume);
    let stop = AtomicBool::new(false);
    let after = std::thread::scope(|scope| {
        let work = scope.spawn(|| beside(&volume, &all, &stop));
        let done = shrink_in_use(&volume, wanted, &Patient);
        stop.store(true, Ordering::Relaxed);
        eprintln!("{name}: {} rounds beside", work.join().unwrap());
        done
    });
    let (after, _) = after.map_err(|error| error.to_string())?;
    if highest(&all) <= after.inodes() {
        return Err("nothing lay behind the end".into());
    }
    assert_known(&volume, &all, true);
    for (at, (_, number)) in (2..).zip(&held) {
        if at % 2 == 1 {
            assert_eq!(bytes_of(&volume, *number), Random(at / 2).bytes(9000), "{name}");
        }
    }
    drop(held);
    // What is made and removed now has numbers that others had.
    for at in 0..40_u64 {
        let dir = resolve(&volume, &format!("d{}", at % 17 + 1)).unwrap();
        let file = put(&volume, dir, &format!("late{at}"), &Random(at).bytes(3000));
        assert_eq!(bytes_of(&volume, file), Random(at).bytes(3000));
        if at % 2 == 0 {
            volume.unlink(dir, format!("late{at}").as_bytes()).unwrap();
        }
    }
    volume.close().map_err(text)?;
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(after.blocks << after.block_size.log2())
        .unwrap();
    let said = fsck::complaints(&image);
    if !said.is_empty() {
        return Err(said);
    }
    let volume = opened(open(&image)).map_err(text)?;
    assert_known(&volume, &all, false);
    volume.close().map_err(text)
}

fn shrink_kinds(is_meant: impl Fn(&str) -> bool) {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-renumbering");
    let mut failures = Vec::new();
    for (name, options) in KINDS.iter().filter(|(name, _)| is_meant(name)) {
        match shrink_kind(&scratch, name, options) {
            // The second backup has its place at the end.
            Err(why) if why.contains("second backup") => {}
            Err(why) => failures.push(format!("{name}: {why}")),
            Ok(()) => {}
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn inodes_behind_the_end_get_other_numbers_in_use() {
    shrink_kinds(|name| ["ext4-1k", "inline-data", "ea-inode"].contains(&name));
}

#[test]
#[ignore = "24 kinds, a minute; cargo test -p platfs-reshape --lib inodes_of_every_kind -- --ignored"]
fn inodes_of_every_kind_of_volume_get_other_numbers_in_use() {
    shrink_kinds(|name| !name.starts_with("ext2") && wanted(name));
}

/// Makes stable what was done so far again and again, so that a crash can fall between two inodes.
pub(super) struct Syncing<'v>(pub(super) &'v Volume);

impl Watch for Syncing<'_> {
    fn goes_on(&self, _: u64) -> bool {
        self.0.sync().is_ok()
    }
}

/// Whatever was written before a crash: each inode has its old number or its new one, with all names and contents, and the
/// same again comes to its end.
#[test]
fn cut_off_at_any_write_each_inode_has_one_number() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-renumbering-cut");
    let image = volume(&scratch, "cut", &["-t", "ext4", "-b", "1024", "-g", "2048"], 100 * MIB);
    let all = {
        let volume = opened(open(&image)).unwrap();
        let all = spread(&volume, false);
        volume.close().unwrap();
        all
    };
    let base = copy(&image, &scratch.join("base"));
    let recorder = Arc::new(Recorder::new(open(&image)));
    let volume = opened(Arc::clone(&recorder) as Arc<dyn Device>).unwrap();
    let (after, _) = shrink_in_use(&volume, 60 * MIB, &Syncing(&volume)).unwrap();
    drop(volume);
    let device = open(&base);
    let events: Vec<_> = recorder.take().into_iter().collect();
    let step = (events.len() / 24).max(1);
    let mut states = BTreeSet::new();
    for (at, event) in events.into_iter().enumerate() {
        let Event::Write { offset, data } = event else { continue };
        device.write_at(offset, &data).unwrap();
        if at % step != 0 {
            continue;
        }
        let cut = copy(&base, &scratch.join("cut"));
        let volume = opened(open(&cut)).unwrap();
        assert_known(&volume, &all, false);
        let numbers: Vec<_> = all.iter().map(|known| resolve(&volume, &known.path).unwrap()).collect();
        states.insert(numbers.iter().filter(|number| number.get() > after.inodes()).count());
        volume.close().unwrap();
        fsck::assert_clean(&cut);
        let volume = opened(open(&cut)).unwrap();
        if volume.format().geometry != after {
            assert_eq!(shrink_in_use(&volume, 60 * MIB, &Patient).unwrap().0, after);
        }
        assert_known(&volume, &all, false);
        volume.close().unwrap();
        fsck::assert_clean(&cut);
    }
    eprintln!("{states:?} inodes behind the end");
    assert!(states.len() > 2, "{states:?}");
}

/// Opened before each: a size that was had once, and again.
#[test]
fn a_volume_shrinks_and_grows_and_shrinks_in_one_opening() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("resize-renumbering-again");
    let image = volume(&scratch, "again", &["-t", "ext4", "-b", "1024", "-g", "2048"], 100 * MIB);
    let volume = opened(open(&image)).unwrap();
    let all = spread(&volume, false);
    let mut late = Vec::new();
    for round in 0..3_u64 {
        shrink_in_use(&volume, 60 * MIB, &Patient).unwrap();
        assert_known(&volume, &all, true);
        grow_in_use(&volume, 100 * MIB, u64::MAX).unwrap();
        // They get the numbers of groups that were gone.
        for at in 0..60_u64 {
            let name = format!("round {round} {at}");
            let dir = volume.create(ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap();
            let bytes = Random(round * 100 + at).bytes(2000);
            let file = put(&volume, dir, "file", &bytes);
            late.push(Known { path: name.clone(), number: dir, contents: None });
            late.push(Known { path: format!("{name}/file"), number: file, contents: Some(bytes) });
        }
        volume.sync().unwrap();
        assert_known(&volume, &late, true);
    }
    let numbers: BTreeSet<_> = late.iter().map(|known| known.number).collect();
    assert_eq!(numbers.len(), late.len());
    volume.close().unwrap();
    fsck::assert_clean(&image);
    let volume = opened(open(&image)).unwrap();
    assert_known(&volume, &all, false);
    assert_known(&volume, &late, false);
}
