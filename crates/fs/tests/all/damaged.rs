//! Damaged volumes, in process: every verb ends with a result, soon, whatever the bytes say.
//!
//! The volumes carry no checksums, which would stop most damage at the door, and the damage hits
//! bytes that are not zero, of which metadata has its fair share.

#![cfg(target_os = "linux")]
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ondisk::inode::FileType;
use ondisk::units::InodeNumber;
use platfs::device::MemoryDevice;
use platfs::{Attributes, Kind, NewInode, OpenOptions, Result, Volume};
use testkit::scratch::Scratch;
use testkit::{odd, tool};

/// Inodes looked at in one damaged volume; the trees have a tenth of that.
const VISITED_MAX: usize = 5000;
/// Far above what a round takes, far below what a loop without end takes.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Numbers that differ and repeat from run to run: xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

fn image(scratch: &Scratch, name: &str, options: &[&str]) -> Vec<u8> {
    let tree = scratch.join(format!("{name}-tree"));
    fs::create_dir(&tree).unwrap();
    let modest = odd::Options { many: 60, ..odd::Options::modest() };
    odd::make(&tree, &modest);
    let image = scratch.join(name);
    let mut mke2fs = tool::command("mke2fs");
    tool::run(mke2fs.args(["-q", "-F"]).args(options).arg("-d").arg(&tree).arg(&image).arg("12M"));
    fs::read(&image).unwrap()
}

/// Bytes worth damaging: those of blocks that hold anything, without long runs of one value.
fn targets(bytes: &[u8]) -> Vec<usize> {
    let words = bytes.chunks_exact(4).enumerate();
    let telling = words.filter(|(_, word)| {
        word.iter().any(|byte| *byte != 0) && word.windows(2).any(|pair| pair[0] != pair[1])
    });
    telling.map(|(index, _)| index * 4).collect()
}

fn damage(bytes: &mut [u8], targets: &[usize], random: &mut Random) {
    for _ in 0..=random.below(40) {
        let at = targets[random.below(targets.len())];
        let word: u32 = match random.below(5) {
            0 => 0,
            1 => u32::MAX,
            2 => u32::try_from(random.below(4096)).unwrap(),
            3 => random.next().to_le_bytes()[..4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte)),
            _ => {
                bytes[at + random.below(4)] ^= 1 << random.below(8);
                continue;
            }
        };
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Reads all there is to read; errors are fine.
fn read_everything(volume: &Volume) -> usize {
    let mut visited = HashSet::new();
    let mut waiting = vec![InodeNumber::ROOT];
    let mut buffer = vec![0; 1 << 16];
    while let Some(number) = waiting.pop() {
        if visited.len() >= VISITED_MAX || !visited.insert(number) {
            continue;
        }
        let Ok(metadata) = volume.metadata(number) else { continue };
        let _ = (volume.inode(number).xattr_names(), volume.inode(number).xattrs());
        match metadata.file_type {
            FileType::Directory => {
                let entries = volume.read_dir(number).into_iter().flatten();
                for entry in entries.take(VISITED_MAX).flatten() {
                    let _ = volume.lookup(number, &entry.name);
                    waiting.push(entry.inode);
                }
            }
            FileType::Regular | FileType::Symlink => {
                let _ = volume.read_link(number);
                if let Ok(file) = volume.open_file(number) {
                    let _ = file.read_at(0, &mut buffer);
                    let _ = file.read_at(file.size().saturating_sub(100), &mut buffer);
                    let _ = file.segments().take(VISITED_MAX).filter(Result::is_ok).count();
                }
            }
            _ => {}
        }
    }
    visited.len()
}

fn new_inode(kind: Kind<'_>) -> NewInode<'_> {
    NewInode { kind, attributes: Attributes::default(), xattrs: &[] }
}

/// Changes what a loader changes; errors are fine.
fn write_a_little(volume: &Volume) {
    for index in 0..30 {
        let name = format!("new-{index}");
        let kind = if index % 3 == 0 { Kind::Directory } else { Kind::File };
        let Ok(number) = volume.create(InodeNumber::ROOT, name.as_bytes(), &new_inode(kind)) else {
            continue;
        };
        let _ = volume.inode(number).set_xattr(b"user.some", &[7; 300]);
        if let Ok(mut writer) = volume.writer(number, 20_000) {
            let _ = writer.write_all_at(0, &[8; 20_000]);
        }
    }
    for number in (12..60).filter_map(InodeNumber::new) {
        let _ = volume.inode(number).set_xattr(b"user.other", &[9; 200]);
        let _ = volume.writer(number, 0).map(|mut writer| writer.write_all_at(5000, b"later"));
    }
    let _ = volume.sync();
}

/// Rounds for each kind of volume; `PLATFS_DAMAGE_ROUNDS` asks for more.
fn rounds() -> u64 {
    std::env::var("PLATFS_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(150)
}

fn torment(name: &str, options: &[&str]) {
    let rounds = rounds();
    if !tool::have_tools(name, &["mke2fs"]) {
        return;
    }
    let scratch = Scratch::new("damaged");
    let sound = image(&scratch, name, options);
    let targets = targets(&sound);
    let whole = Volume::open(Arc::new(MemoryDevice::from_bytes(&sound)), &OpenOptions::new()).unwrap();
    assert!(read_everything(&whole) > 100, "the tree is not read at all");
    let (mut opened, mut seen) = (0, 0);
    for round in 0..rounds {
        let mut bytes = sound.clone();
        damage(&mut bytes, &targets, &mut Random(0x9E37_79B9_7F4A_7C15 ^ round << 20));
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let start = Instant::now();
        if let Ok(volume) = Volume::open(device.clone(), &OpenOptions::new()) {
            opened += 1;
            seen += read_everything(&volume);
        }
        if let Ok(volume) = Volume::open(device, &OpenOptions::new().write(true).unordered(true)) {
            write_a_little(&volume);
        }
        assert!(start.elapsed() < ROUND_MAX, "{name}: round {round} took {:?}", start.elapsed());
    }
    // The premise: the damage is not such that nothing is left to look at.
    assert!(
        opened > rounds / 2 && seen > 50 * usize::try_from(rounds).unwrap(),
        "{opened} opened, {seen} seen"
    );
}

#[test]
fn damaged_ext4_ends_in_results() {
    torment("ext4", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal,inline_data,ea_inode"]);
}

#[test]
fn damaged_bigalloc_ends_in_results() {
    torment(
        "bigalloc",
        &["-t", "ext4", "-b", "1024", "-C", "4096", "-O", "^metadata_csum,^has_journal,bigalloc"],
    );
}

#[test]
fn damaged_ext2_ends_in_results() {
    torment("ext2", &["-t", "ext2", "-b", "1024", "-I", "128"]);
}

#[test]
fn damaged_meta_groups_end_in_results() {
    torment(
        "meta-bg",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^has_journal,^resize_inode,meta_bg"],
    );
}
