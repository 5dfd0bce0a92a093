//! Our repair of damaged volumes beside e2fsck's: it never keeps fewer files, and never fewer bytes.
//!
//! Every second image has a few fields changed, as in the comparison; the others have whole stretches of metadata
//! overwritten by zeros or noise, as a wild write does. A file is kept if its whole contents can be read under any name below the root. `PLATFS_SEED` and `PLATFS_STEPS` name
//! the first image and how many there are, as in the comparison. Excludes what is right: the comparison judges that.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::sync::Arc;

use ondisk::inode::FileType;
use platfs::check::Staged;
use platfs::device::{Device, MemoryDevice};
use platfs::{InodeNumber, OpenOptions, Volume, ondisk};
use testkit::random::Random;
use testkit::sparse;
use testkit::tool;

use super::number_from;
use super::trial::{Bench, Ready, contents_of, examine};
use crate::check::plant::ready;

/// Images by default.
const IMAGES: u64 = 12;

/// Files by their contents: how many there are, and their bytes.
type Files = BTreeMap<u64, (u64, u64)>;

/// Files and bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Amount {
    files: u64,
    bytes: u64,
}

/// All files that can be read from the root on.
fn files(device: Arc<dyn Device>) -> Files {
    let mut found = Files::new();
    let Ok(volume) = Volume::open(device, &OpenOptions::new().noload(true)) else { return found };
    let (mut seen, mut open) = (HashSet::new(), vec![InodeNumber::ROOT]);
    while let Some(directory) = open.pop() {
        if !seen.insert(directory) {
            continue;
        }
        let Ok(entries) = volume.read_dir(directory) else { continue };
        for entry in entries.map_while(Result::ok).filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
            let Ok(facts) = volume.metadata(entry.inode) else { continue };
            match facts.file_type {
                FileType::Directory => open.push(entry.inode),
                FileType::Regular if facts.size > 0 && seen.insert(entry.inode) => {
                    if let Ok(hash) = contents_of(&volume, entry.inode) {
                        found.entry(hash).or_insert((0, facts.size)).0 += 1;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Files that are left of those before.
fn kept(before: &Files, after: &Files) -> Amount {
    before.iter().fold(Amount::default(), |sum, (hash, (count, size))| {
        let left = after.get(hash).map_or(0, |(left, _)| *left.min(count));
        Amount { files: sum.files + left, bytes: sum.bytes + left * size }
    })
}

impl Bench {
    /// Amounts that both keep of image `number`; `None` where e2fsck does nothing.
    fn beside(&mut self, number: u64) -> Option<(Amount, Amount)> {
        let (ready, mutant) = self.mutant(number);
        let damaged = match number % 2 {
            0 => mutant.device,
            _ => beaten(&ready, &mut Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))),
        };
        let before = files(Arc::clone(&ready.device) as Arc<dyn Device>);
        let theirs = kept(&before, &files(self.by_e2fsck(&ready, &damaged)?));
        let (_, outcome) = examine(damaged as Arc<dyn Device>, false).ok()?;
        Some((kept(&before, &files(outcome.repaired)), theirs))
    }

    /// The volume as e2fsck leaves it.
    fn by_e2fsck(&self, ready: &Ready, mutant: &Staged) -> Option<Arc<dyn Device>> {
        let copy = ready.file.with_extension("theirs");
        let mut bytes = vec![0; usize::try_from(mutant.size()).unwrap()];
        mutant.read_at(0, &mut bytes).unwrap();
        sparse::write(&copy, bytes).unwrap();
        let mut repair = tool::command("timeout");
        let output =
            repair.arg("20").arg(tool::find("e2fsck").unwrap()).arg("-fy").arg(&copy).output().unwrap();
        let code = output.status.code();
        // A repair of a volume that claims to be larger makes the file longer, by up to terabytes.
        fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(mutant.size()).unwrap();
        let after = fs::read(&copy).unwrap();
        fs::remove_file(&copy).unwrap();
        let is_done = code.is_some_and(|code| code < 8);
        is_done.then(|| Arc::new(MemoryDevice::from_bytes(&after)) as Arc<dyn Device>)
    }
}

/// A base with one to three stretches overwritten that begin at structures of the volume.
fn beaten(ready: &Ready, random: &mut Random) -> Arc<Staged> {
    let device = Arc::new(Staged::new(Arc::clone(&ready.device) as Arc<dyn Device>, 64 << 20));
    for _ in 0..=random.below(3) {
        let structures = &ready.inventory.structures;
        let of = &structures[random.below(structures.len() as u64) as usize];
        let start = of.at / 1024 * 1024;
        let len = (1024 << random.below(6)).min(device.size() - start);
        let noise = random.below(2) == 0;
        let bytes: Vec<u8> = (0..len).map(|_| if noise { random.below(256) as u8 } else { 0 }).collect();
        device.write_at(start, &bytes).unwrap();
    }
    device
}

/// Repairs `count` images from number `first` on both ways, and demands that ours keep no less.
fn demand(first: u64, count: u64) {
    let mut bench = Bench::new(false);
    let (mut ours, mut theirs, mut compared) = (Amount::default(), Amount::default(), 0);
    let mut fewer = Vec::new();
    for number in first..first + count {
        let Some((we, they)) = bench.beside(number) else { continue };
        compared += 1;
        ours = Amount { files: ours.files + we.files, bytes: ours.bytes + we.bytes };
        theirs = Amount { files: theirs.files + they.files, bytes: theirs.bytes + they.bytes };
        if we.files < they.files || we.bytes < they.bytes {
            fewer.push(format!("image {number}: {we:?}, e2fsck {they:?}"));
        }
    }
    println!("{compared} images: {ours:?}, e2fsck {theirs:?}");
    assert!(compared > 0 && fewer.is_empty(), "{} keep less:\n{}", fewer.len(), fewer.join("\n"));
}

#[test]
fn no_less_is_kept_than_by_e2fsck() {
    if ready("no_less_is_kept_than_by_e2fsck") {
        demand(number_from("PLATFS_SEED").unwrap_or(0), number_from("PLATFS_STEPS").unwrap_or(IMAGES));
    }
}

#[test]
#[ignore = "long: 5,000 images"]
fn no_less_is_kept_than_by_e2fsck_on_many() {
    if ready("no_less_is_kept_than_by_e2fsck_on_many") {
        let first = number_from("PLATFS_SEED").unwrap_or(5_000_000);
        demand(first, number_from("PLATFS_STEPS").unwrap_or(5_000));
    }
}
