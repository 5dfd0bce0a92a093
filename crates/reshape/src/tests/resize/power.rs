//! Power failures while a volume becomes smaller in use: all that was flushed stays, and of the rest any sectors.

use std::collections::{BTreeMap, BTreeSet};

use crate::resize::shrink_in_use;
use platfs::check::{self, Decision, Issue, Sink};
use platfs::device::{Event, MemoryDevice, Overlay, Recorder};
use platfs::{InodeNumber, Kind, Volume, WriteOptions};

use super::renumbering::{Syncing, opened};
use super::shrinking::{Patient, new};
use super::*;

const SECTOR: usize = 512;
/// The superblock, whose flags and checksum stand in different sectors: devices write both or none.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;
const SIZES: (u64, u64) = (14 * MIB, 9 * MIB);

/// Directories all over a small volume, with files, links and subdirectories.
fn fill(volume: &Volume) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut put = |directory: InodeNumber, path: String, bytes: Vec<u8>| {
        let name = path.rsplit('/').next().unwrap();
        let number = volume.create(directory, name.as_bytes(), &new(Kind::File)).unwrap();
        volume.write_at(number, 0, &bytes, WriteOptions::default()).unwrap();
        files.insert(path, bytes);
        number
    };
    let mut links = Vec::new();
    for at in 0..14_u64 {
        let name = format!("dir{at}");
        let dir = volume.create(InodeNumber::ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap();
        let bytes = Random(at).bytes(9000);
        let file = put(dir, format!("{name}/file"), bytes.clone());
        let sub = volume.create(dir, b"sub", &new(Kind::Directory)).unwrap();
        put(sub, format!("{name}/sub/leaf"), name.clone().into_bytes());
        links.push((dir, file, bytes));
    }
    for (at, pair) in links.windows(2).enumerate() {
        let [(_, file, bytes), (dir, ..)] = pair else { continue };
        volume.link(*file, *dir, b"link").unwrap();
        files.insert(format!("dir{}/link", at + 1), bytes.clone());
    }
    files
}

struct Issues(Vec<String>);

impl Sink for Issues {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0.push(format!("{}: {}", issue.kind.id, issue.found));
        Decision::Leave
    }
}

/// The volume is sound, and has all files.
fn assert_whole(device: &Arc<Overlay>, files: &BTreeMap<String, Vec<u8>>, state: &str) -> u64 {
    let volume = opened(Arc::clone(device) as Arc<dyn Device>).unwrap();
    for (path, wanted) in files {
        let number = path
            .split('/')
            .try_fold(InodeNumber::ROOT, |at, name| volume.lookup(at, name.as_bytes()))
            .unwrap_or_else(|error| panic!("{state}: {path}: {error}"));
        let mut bytes = vec![0; 10_000];
        let len = volume.read_at(number, 0, &mut bytes).unwrap();
        assert!(bytes[..len] == wanted[..], "{state}: {path}");
    }
    let blocks = volume.format().geometry.blocks;
    volume.close().unwrap();
    let mut issues = Issues(Vec::new());
    let options = check::Options { threads: 1, now: limits().now, ..check::Options::default() };
    check::check(Arc::clone(device) as Arc<dyn Device>, &options, &mut issues).unwrap();
    assert!(issues.0.is_empty(), "{state}: {:?}", issues.0);
    blocks
}

/// Some of the sectors that were written since the last flush.
fn torn(base: &Arc<MemoryDevice>, writes: &[(u64, Arc<[u8]>)], random: &mut Random) -> Arc<Overlay> {
    let device = Arc::new(Overlay::new(base.clone(), ondisk::units::BlockSize::from_bytes(1024).unwrap()));
    let likely = 1 + random.below(8);
    for (offset, data) in writes {
        if SUPERBLOCK.contains(offset) {
            if random.below(8) < likely {
                device.write_at(*offset, data).unwrap();
            }
            continue;
        }
        for (at, bytes) in (*offset..).step_by(SECTOR).zip(data.chunks(SECTOR)) {
            if random.below(8) < likely {
                device.write_at(at, bytes).unwrap();
            }
        }
    }
    device
}

/// Judges `states` states for each flush. Returns how many there were, and the sizes that volumes had.
fn power_failures(states: u64) -> (u64, BTreeSet<u64>) {
    let scratch = Scratch::new("resize-power");
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(SIZES.0).unwrap();
    let kind = ["-t", "ext4", "-b", "1024", "-g", "1024", "-N", "512", "-J", "size=1", "-O", "^resize_inode"];
    tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(kind).arg(&image));
    let bytes = std::fs::read(&image).unwrap();
    let memory = || {
        let device = MemoryDevice::new(SIZES.0);
        device.write_at(0, &bytes).unwrap();
        Arc::new(device)
    };
    let (base, run) = (memory(), memory());
    let mut files = BTreeMap::new();
    for device in [&base, &run] {
        let volume = opened(device.clone()).unwrap();
        files = fill(&volume);
        volume.close().unwrap();
    }
    let recorder = Arc::new(Recorder::new(run));
    let volume = opened(recorder.clone()).unwrap();
    let (after, left) = shrink_in_use(&volume, SIZES.1, &Syncing(&volume)).unwrap();
    assert!(left.inodes > 10 && left.blocks > 10, "{left:?}");
    drop(volume);
    let (mut random, mut count, mut sizes) = (Random(7), 0, BTreeSet::new());
    let mut epoch = Vec::new();
    for event in recorder.take() {
        let Event::Write { offset, data } = event else {
            for _ in 0..if epoch.is_empty() { 0 } else { states } {
                let device = torn(&base, &epoch, &mut random);
                let blocks = assert_whole(&device, &files, &format!("state {count}"));
                sizes.insert(blocks);
                count += 1;
                if blocks != after.blocks && count % 16 == 0 {
                    let volume = opened(device.clone()).unwrap();
                    assert_eq!(shrink_in_use(&volume, SIZES.1, &Patient).unwrap().0.blocks, after.blocks);
                    volume.close().unwrap();
                    assert_whole(&device, &files, &format!("state {count}, made smaller"));
                }
            }
            epoch
                .drain(..)
                .for_each(|(offset, data): (u64, Arc<[u8]>)| base.write_at(offset, &data).unwrap());
            continue;
        };
        epoch.push((offset, data));
    }
    (count, sizes)
}

#[test]
fn a_power_failure_leaves_one_size_and_all_files() {
    if tool::have_tools("resize", &["mke2fs"]) {
        let (count, sizes) = power_failures(2);
        assert!(count > 100 && sizes.len() == 2, "{count} {sizes:?}");
    }
}

#[test]
#[ignore = "100,000 states; cargo test -p platfs-reshape --lib power_failures_often -- --ignored --nocapture"]
fn power_failures_often() {
    let done = power_failures(400);
    eprintln!("{done:?} states and sizes");
    assert!(done.1.len() == 2);
}
