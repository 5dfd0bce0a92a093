//! Images that lie with right checksums, under work: what belongs to the volume itself stays as it is, and whatever
//! else a lie harms is counted by the kind of the lie.
//!
//! Each image is a function of its number: `PLATFS_SEED=17 PLATFS_STEPS=1` looks at one and tells everything.
//! `cargo test --release -p platfs --test check lying -- --ignored --nocapture` looks at 10,000.

mod lie;
mod owners;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use platfs::device::{Device, MemoryDevice};
use platfs::{Attributes, InodeNumber, Kind, NewInode, OpenOptions, Replace, Volume, WriteOptions};
use testkit::random::Random;

use lie::{Lie, Told};
use owners::Owners;

use crate::plant::{Image, bases, ready};

/// The byte that the work writes.
pub const DATA: u8 = 0xD7;

/// What became of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    /// It was not opened for writing, and is as it was.
    Refused,
    /// All was worked on, and nobody was harmed.
    Kept,
    /// A file was harmed that nobody worked on.
    FileHarmed,
    /// The volume itself was harmed.
    VolumeHarmed,
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What is worked on.
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
        if let Ok(number) = self.volume.create(directory, name.as_bytes(), &new) {
            self.touched.insert(number.get());
            let _ = self.volume.write_at(number, 0, &vec![DATA; len], WriteOptions::default());
        }
    }

    /// Work on some of the tree; damage may end any part of it.
    fn all(&mut self, random: &mut Random) {
        let Some(root) = self.touch("/") else { return };
        let new = |kind| NewInode { kind, attributes: Attributes::default(), xattrs: &[] };
        let (written, cut, gone) = match random.below(3) {
            0 => ("/large", "/comb", "/a/b/tiny"),
            1 => ("/comb", "/a/small", "/large"),
            _ => ("/a/b/c/other", "/large", "/comb"),
        };
        if let Some(file) = self.touch(written) {
            for at in [0, 9000, 40_000, 300_000] {
                let _ = self.volume.write_at(file, at, &[DATA; 5000], WriteOptions::default());
            }
            let _ = self.volume.set_xattr(file, b"user.work", &[DATA; 700]);
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
                let made =
                    self.volume.create(directory, format!("dir-{index}").as_bytes(), &new(Kind::Directory));
                self.touched.extend(made.ok().map(InodeNumber::get));
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
        if let Some(filler) = self.touch("/filler") {
            let (mut at, mut len) = (1 << 20, 1 << 20);
            while len >= 1024 {
                match self.volume.write_at(filler, at, &vec![DATA; len], WriteOptions::default()) {
                    Ok(()) => at += len as u64,
                    Err(_) => len /= 4,
                }
            }
        }
        for index in 0..if random.one_in(3) { 3000 } else { 100 } {
            let made = self.volume.create(root, format!("i{index}").as_bytes(), &new(Kind::File));
            match made {
                Ok(number) => self.touched.insert(number.get()),
                Err(_) => break,
            };
        }
    }
}

/// Bases with their owners, made once.
#[derive(Default)]
struct Bench {
    owners: HashMap<&'static str, Owners>,
}

/// What is told of one image.
struct Finding {
    base: &'static str,
    told: Told,
    end: End,
    harmed: Vec<String>,
}

impl Bench {
    fn look(&mut self, number: u64) -> Option<Finding> {
        let mut random = Random(number);
        // Volumes that count quotas are not written.
        let names: Vec<&'static str> = bases().filter(|name| *name != "quota").collect();
        let base = *random.pick(&names)?;
        let owners = self.owners.entry(base).or_insert_with(|| Owners::of(&mut Image::of(base)));
        let mut image = Image::of(base);
        let lie = *random.pick(&lie::ALL)?;
        let told = lie.tell(&mut image, owners, &mut random)?;
        let device = Arc::new(MemoryDevice::from_bytes(&image.bytes));
        let unordered = random.one_in(2);
        let options = OpenOptions::new().write(true).unordered(unordered);
        let options = if random.one_in(3) { options.delay(4 << 20) } else { options };
        let Ok(volume) = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &options) else {
            let same = bytes_of(&device) == image.bytes;
            let end = if same { End::Refused } else { End::VolumeHarmed };
            return Some(Finding { base, told, end, harmed: Vec::new() });
        };
        let mut work = Work { volume: &volume, touched: BTreeSet::new() };
        work.all(&mut random);
        let mut touched = std::mem::take(&mut work.touched);
        touched.extend(told.liar);
        touched.extend(&owners.values);
        let _ = volume.close();
        let after = Image { bytes: bytes_of(&device), format: image.format.clone() };
        let harmed = owners.harmed(&image, &after, &touched, !unordered);
        let end = match () {
            () if harmed.iter().any(|owner| owner.is_volume()) => End::VolumeHarmed,
            // A record tells by itself that its inode is in use.
            () if lie == Lie::InodeBitmap && !harmed.is_empty() => End::VolumeHarmed,
            () if !harmed.is_empty() => End::FileHarmed,
            () => End::Kept,
        };
        Some(Finding { base, told, end, harmed: harmed.iter().map(|owner| format!("{owner:?}")).collect() })
    }
}

/// Ends by kinds of lies, and whether those are about the volume itself.
type Table = BTreeMap<(Lie, bool), BTreeMap<End, u64>>;

/// Looks at images; a table by kinds of lies, and those in which the volume itself was harmed.
fn run(first: u64, count: u64) -> (Table, Vec<String>) {
    let mut bench = Bench::default();
    let (mut table, mut bad) = (Table::new(), Vec::new());
    for number in first..first + count {
        let Some(found) = bench.look(number) else { continue };
        if count <= 3 {
            println!(
                "{number}: {} {:?} {}: {:?} {:?}",
                found.base, found.told.lie, found.told.story, found.end, found.harmed
            );
        }
        *table.entry((found.told.lie, found.told.about_volume)).or_default().entry(found.end).or_default() +=
            1;
        if found.end == End::VolumeHarmed {
            bad.push(format!(
                "{number}: {} {:?} {}: {:?}",
                found.base, found.told.lie, found.told.story, found.harmed
            ));
        }
    }
    (table, bad)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn judge(first: u64, count: u64) {
    let half = count / 2;
    let ((mut table, mut bad), (rest, more)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(first + half, count - half));
        (run(first, half), other.join().unwrap())
    });
    for (kind, ends) in rest {
        for (end, times) in ends {
            *table.entry(kind).or_default().entry(end).or_default() += times;
        }
    }
    bad.extend(more);
    for ((lie, about_volume), ends) in &table {
        let about = if *about_volume { "the volume" } else { "files" };
        println!("{lie:?} about {about}: {ends:?}");
    }
    assert!(bad.is_empty(), "{} of {count}:\n{}", bad.len(), bad[..bad.len().min(40)].join("\n"));
}

#[test]
fn some_lies_harm_no_volume() {
    if ready("some_lies_harm_no_volume") {
        judge(number_from("PLATFS_SEED").unwrap_or(0), number_from("PLATFS_STEPS").unwrap_or(80));
    }
}

#[test]
#[ignore = "long: 10,000 images"]
fn many_lies_harm_no_volume() {
    if ready("many_lies_harm_no_volume") {
        judge(number_from("PLATFS_SEED").unwrap_or(1_000_000), number_from("PLATFS_STEPS").unwrap_or(10_000));
    }
}
