//! Images that lie with right checksums, under work: what belongs to the volume itself stays as it is, and whatever
//! else a lie harms is counted by the kind of the lie.
//!
//! Each image is a function of its number: `PLATFS_SEED=17 PLATFS_STEPS=1` looks at one and prints everything.
//! `cargo test --release -p platfs --test all check::lying -- --ignored --nocapture` looks at 10,000.
//! The tests of the command have work of their own on the same images (`lying/` there).

mod lie;
mod owners;
mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::group::GroupFlags;
use platfs::check::{self, Decision, Issue, Sink, check};
use platfs::device::{Device, MemoryDevice};
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions};
use testkit::random::Random;

use owners::DATA;
use trial::{Bench, Finding, Trial, judge, judge_strictly};

use crate::check::plant::{Image, ready};

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Volume that is worked on, and its files.
struct Work<'v> {
    volume: &'v Volume,
    touched: BTreeSet<u32>,
}

impl Work<'_> {
    fn touch(&mut self, path: &str) -> Option<InodeNumber> {
        let number = self.volume.resolve_link(path.as_bytes()).ok()?;
        self.touched.insert(number.get());
        Some(number)
    }

    fn new_file(&mut self, directory: InodeNumber, name: &str, len: usize) {
        let new = NewInode { kind: Kind::File, attributes: Attributes::default(), xattrs: &[] };
        // A new inode had no owner, or a file that went: one in use is harmed.
        if let Ok(number) = self.volume.create(directory, name.as_bytes(), &new) {
            let _ = self.volume.write_at(number, 0, &vec![DATA; len], WriteOptions::default());
        }
    }

    /// Work on some of the tree; damage may end any part of it.
    fn all(&mut self, random: &mut Random) {
        let Some(root) = self.touch("/") else { return };
        let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
        let (written, cut, gone) = match random.below(6) {
            0 => ("/large", "/comb", "/a/b/tiny"),
            1 => ("/comb", "/a/small", "/large"),
            // The large ones stay as they are, and may be harmed.
            2..5 => ("/a/small", "/a/b/c/other", "/a/b/tiny"),
            _ => ("/a/b/c/other", "/large", "/comb"),
        };
        if let Some(file) = self.touch(written) {
            for at in [0, 9000, 40_000, 300_000] {
                let _ = self.volume.write_at(file, at, &[DATA; 5000], WriteOptions::default());
            }
            let _ = self.volume.inode(file).set_xattr(b"user.work", &[DATA; 700]);
        }
        if let Some(file) = self.touch(cut) {
            let _ = self.volume.truncate(file, 10);
        }
        if let (Some(_), Some((parent, name))) = (self.touch(gone), gone.rsplit_once('/')) {
            let parent = if parent.is_empty() { "/" } else { parent };
            if let Some(directory) = self.touch(parent) {
                let _ = self.volume.unlink(directory, name.as_bytes());
            }
        }
        for directory in ["/a/b/c", "/many", "/empty"] {
            let Some(directory) = self.touch(directory) else { continue };
            for index in 0..4 {
                self.new_file(directory, &format!("new-{index}"), 3000);
                let name = format!("dir-{index}");
                let _ = self.volume.create(directory, name.as_bytes(), &new(Kind::Directory));
            }
        }
        if let (Some(directory), Some(moved)) = (self.touch("/a"), self.touch("/nothing")) {
            self.touched.insert(moved.get());
            let _ = self.volume.rename(root, b"nothing", directory, b"moved", Replace::Yes);
        }
        let _ = self.volume.sync();
        if random.one_in(2) {
            return;
        }
        // All that is called free.
        self.new_file(root, "filler", 1 << 20);
        if let Ok(filler) = self.volume.resolve(b"/filler") {
            let (mut at, mut len) = (1 << 20, 1 << 20);
            while len >= 1024 {
                match self.volume.write_at(filler, at, &vec![DATA; len], WriteOptions::default()) {
                    Ok(()) => at += len as u64,
                    Err(_) => len /= 4,
                }
            }
        }
        for index in 0..if random.one_in(3) { 3000 } else { 100 } {
            if self.volume.create(root, format!("i{index}").as_bytes(), &new(Kind::File)).is_err() {
                break;
            }
        }
    }
}

/// Sink that notes if a check finds danger to other files.
#[derive(Default)]
struct Endangered(bool);

impl Sink for Endangered {
    fn issue(&mut self, issue: Issue) -> Decision {
        self.0 |= issue.endangers_others();
        Decision::Leave
    }
}

/// Lets the library work on the image of a number.
fn look(bench: &mut Bench, number: u64) -> Option<Finding> {
    let mut random = Random(number);
    work_on(bench.trial(&mut random)?, &mut random)
}

/// As `look`, if a check does not refuse the image.
fn look_checked(bench: &mut Bench, number: u64) -> Option<Finding> {
    let mut random = Random(number);
    let trial = bench.trial(&mut random)?;
    let device = Arc::new(MemoryDevice::from_bytes(&trial.image.bytes));
    let mut endangered = Endangered::default();
    let checked = check(Arc::clone(&device) as Arc<dyn Device>, &check::Options::default(), &mut endangered);
    if endangered.0 || checked.is_err() {
        return Some(trial.refused(&bytes_of(&device)));
    }
    work_on(trial, &mut random)
}

fn work_on(trial: Trial<'_>, random: &mut Random) -> Option<Finding> {
    let device = Arc::new(MemoryDevice::from_bytes(&trial.image.bytes));
    let unordered = random.one_in(2);
    let options = OpenOptions::new().write(true).unordered(unordered);
    let options = if random.one_in(3) { options.delay(4 << 20) } else { options };
    let Ok(volume) = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &options) else {
        return Some(trial.refused(&bytes_of(&device)));
    };
    let mut work = Work { volume: &volume, touched: BTreeSet::new() };
    work.all(random);
    let touched = std::mem::take(&mut work.touched);
    let _ = volume.close();
    Some(trial.end(bytes_of(&device), touched, !unordered))
}

#[test]
fn some_lies_harm_no_volume() {
    if ready("some_lies_harm_no_volume") {
        judge(0, 40, look);
    }
}

/// A descriptor that calls a table never used would have it cleared for the next new inode, with the files in it. The
/// record of one counts by its checksum, or by the mark that the table was cleared when the volume was made.
#[test]
fn a_table_called_unused_is_not_cleared_over_a_record_with_names() {
    if !ready("a_table_called_unused_is_not_cleared_over_a_record_with_names") {
        return;
    }
    for (sealed, cleared, kept) in [(true, false, true), (false, true, true), (false, false, false)] {
        let mut image = Image::of("ext4");
        let per_group = image.format.geometry.inodes_per_group;
        let number = InodeNumber::new(per_group + 3).unwrap();
        image.inode(number, |inode| {
            inode.raw_mut().i_mode.set(0o100_644);
            inode.raw_mut().i_links_count.set(1);
        });
        let (at, len) = (image.inode_at(number), usize::from(image.format.geometry.inode_size));
        image.bytes[at + 20] ^= u8::from(!sealed);
        image.descriptor(1, |raw| {
            let flags = raw.flags().difference(GroupFlags::INODE_ZEROED) | GroupFlags::INODE_UNINIT;
            raw.set_flags(if cleared { flags | GroupFlags::INODE_ZEROED } else { flags });
            raw.set_free_inodes(per_group);
            raw.set_unused_inodes(per_group);
        });
        let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
        let options = OpenOptions::new().write(true);
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        let mut work = Work { volume: &volume, touched: BTreeSet::new() };
        // More than two groups have.
        (0..2 * per_group).for_each(|index| work.new_file(InodeNumber::ROOT, &format!("i{index}"), 0));
        let told = volume.space().damage().iter().any(|wrong| {
            wrong.to_string().contains(&format!("counts inode {number} as never used, which has 1 names"))
        });
        volume.close().unwrap();
        let after = bytes_of(&device);
        assert_eq!(after[at..at + len] == image.bytes[at..at + len], kept, "{sealed} {cleared}");
        assert_eq!(told, kept, "{sealed} {cleared}");
    }
}

#[test]
fn some_lies_that_pass_a_check_harm_no_file() {
    if ready("some_lies_that_pass_a_check_harm_no_file") {
        judge_strictly(6_000_000, 100, look_checked);
    }
}

#[test]
#[ignore = "long: 10,000 images"]
fn many_lies_that_pass_a_check_harm_no_file() {
    if ready("many_lies_that_pass_a_check_harm_no_file") {
        judge_strictly(1_000_000, 10_000, look_checked);
    }
}

#[test]
#[ignore = "long: 10,000 images"]
fn many_lies_harm_no_volume() {
    if ready("many_lies_harm_no_volume") {
        judge(1_000_000, 10_000, look);
    }
}
