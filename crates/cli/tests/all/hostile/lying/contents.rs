//! Commands that change all of a volume, or anything in it, on images that lie: every file that could be read before is
//! there after with the same contents, and what is refused leaves each byte as it was.
//!
//! Owns: the commands, and what is compared. Excludes: the lies, and the owners of blocks, which such commands move.
//! `PLATFS_STEPS=10000 cargo test -p platfs-cli --test all no_command_changes_other_files` looks at more pairs of
//! an image and a command.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use ondisk::group::GroupFlags;
use ondisk::units::Block;
use platfs::ondisk::inode::FileType;
use platfs::{Volume, Walk, ondisk};
use testkit::random::Random;
use testkit::scratch::Scratch;
use testkit::sparse;

use super::owners::{Owner, Owners};
use super::trial::{Bench, pairs};
use super::{lie, work};
use crate::hostile::plant::{Image, ready};
use crate::support::plat;

/// A command with its options, a place for the image, and what stands behind it. `HOST/` is a directory of the host.
struct Whole {
    before: &'static [&'static str],
    after: &'static [&'static str],
    /// A failure leaves each byte of the image as it was.
    is_all_or_nothing: bool,
}

const fn all(before: &'static [&'static str], after: &'static [&'static str]) -> Whole {
    Whole { before, after, is_all_or_nothing: true }
}

const fn some(before: &'static [&'static str], after: &'static [&'static str]) -> Whole {
    Whole { before, after, is_all_or_nothing: false }
}

/// Files that commands make lie below `/made`.
const WHOLE: &[Whole] = &[
    all(&["resize", "--min"], &[]),
    all(&["resize"], &["12M"]),
    all(&["resize"], &["40M"]),
    all(&["resize"], &["300M"]),
    all(&["tune", "-O", "quota"], &[]),
    all(&["tune", "-O", "^quota"], &[]),
    all(&["tune", "-O", "^has_journal"], &[]),
    all(&["tune", "-O", "has_journal"], &[]),
    all(&["tune", "-J", "size=4"], &[]),
    all(&["tune", "-O", "orphan_file"], &[]),
    all(&["tune", "-O", "64bit"], &[]),
    all(&["tune", "-O", "^64bit"], &[]),
    all(&["tune", "-O", "metadata_csum"], &[]),
    all(&["tune", "-O", "^metadata_csum"], &[]),
    all(&["tune", "-I", "512"], &[]),
    all(&["tune", "-U", "random"], &[]),
    all(&["tune", "-L", "lies"], &[]),
    some(&["convert", "-q", "--to", "ext4", "--all"], &[]),
    some(&["convert", "-q", "--to", "ext2", "--all"], &[]),
    some(&["defrag", "-q"], &[]),
    some(&["defrag", "-q", "--free"], &[]),
    some(&["quota", "--on", "user,group"], &[]),
    some(&["quota", "--off", "user,group"], &[]),
    some(&["quota", "--recount"], &[]),
    some(&["trim"], &[]),
    some(&["mkdir"], &["/made"]),
    some(&["put", "-r"], &["HOST/many", "/made"]),
    some(&["put"], &["HOST/large", "/made"]),
    some(&["put"], &["HOST/filler", "/made"]),
    some(&["cp", "-r"], &["/a", "/made"]),
    some(&["cp"], &["/large", "/made"]),
    some(&["ln"], &["/comb", "/made"]),
    some(&["fallocate", "-l", "2M"], &["/made"]),
    some(&["import", "-q"], &["HOST/archive.tar"]),
];

/// Type, size, contents and target of each file, as one number.
type Contents = BTreeMap<Vec<u8>, u64>;

/// All that can be read of a volume.
fn contents(bytes: Vec<u8>) -> Contents {
    let mut found = Contents::new();
    let Ok(volume) = Image::from_bytes(bytes).try_volume() else { return found };
    let mut walk = Walk::new(&volume);
    let Ok(root) = volume.resolve(b"/") else { return found };
    if !matches!(walk.enter(b"/", root), Ok(None)) {
        return found;
    }
    while walk.depth() > 0 {
        let Some(entry) = walk.next_entry().cloned() else {
            walk.leave();
            continue;
        };
        let path = [walk.path(), b"/", &entry.name].concat();
        if let Some(is) = read(&volume, entry.inode) {
            found.insert(path, is);
        }
        if walk.is_directory(&entry).unwrap_or(false) {
            let _ = walk.enter(&entry.name, entry.inode);
        }
    }
    found
}

fn read(volume: &Volume, inode: platfs::InodeNumber) -> Option<u64> {
    let facts = volume.metadata(inode).ok()?;
    let mut sum = DefaultHasher::new();
    (facts.file_type as u8).hash(&mut sum);
    match facts.file_type {
        FileType::Regular => {
            let mut piece = vec![0; 1 << 20];
            let mut at = 0;
            // A lie about a size has no end worth waiting for.
            while at < facts.size.min(64 << 20) {
                let count = volume.read_at(inode, at, &mut piece).ok().filter(|count| *count > 0)?;
                piece.get(..count)?.hash(&mut sum);
                at += count as u64;
            }
            facts.size.hash(&mut sum);
        }
        FileType::Symlink => volume.read_link(inode).ok()?.hash(&mut sum),
        _ => {}
    }
    Some(sum.finish())
}

/// Works on the image of a number with one command; what was harmed, in words.
fn harm(bench: &mut Bench, number: u64) -> Option<Vec<String>> {
    let mut random = Random(number);
    let trial = bench.trial(&mut random)?;
    let scratch = Scratch::new("lying");
    let image = scratch.join("image");
    sparse::write(&image, &trial.image.bytes).unwrap();
    let fill = random.one_in(2).then(|| super::nearly_all_free(&trial.image));
    let sources = work::sources(&scratch, fill);
    let whole = random.pick(WHOLE)?;
    if whole.before.first() == Some(&"import") {
        let mut tar = testkit::tool::command("tar");
        tar.arg("cf").arg(sources.join("archive.tar")).arg("--transform=s,^,made/,").arg("-C");
        testkit::tool::run(tar.arg(&sources).args(["many", "large"]));
    }
    let mut ran = plat(whole.before);
    ran.arg(&image).args(whole.after.iter().map(|word| match word.strip_prefix("HOST/") {
        Some(name) => sources.join(name).into_os_string(),
        None => word.into(),
    }));
    let output = ran.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut harmed = Vec::new();
    if !matches!(output.status.code(), Some(0 | 1)) || said.contains("panicked") {
        harmed.push(format!("ended with {}", output.status));
    }
    let after = fs::read(&image).unwrap();
    if !trial.is_untouched(&after) {
        if whole.is_all_or_nothing && !output.status.success() {
            harmed.push("failed, and changed bytes".to_owned());
        }
        harmed.extend(differences(&contents(trial.image.bytes.clone()), &contents(after)));
    }
    let story = || format!("{number}: {}: {:?}: {said}", trial.line(), whole.before);
    Some(harmed.into_iter().take(3).map(|what| format!("{what}: {}", story())).collect())
}

fn differences(before: &Contents, after: &Contents) -> Vec<String> {
    let differs = before.iter().filter(|(path, is)| after.get(*path) != Some(is));
    differs.map(|(path, _)| Path::new(&*String::from_utf8_lossy(path)).display().to_string()).collect()
}

#[test]
fn no_command_changes_other_files() {
    if ready("no_command_changes_other_files") {
        pairs(8_000_000, 30, harm);
    }
}

/// A command that finds out before its first write writes nothing at all: neither blocks, nor the end of the file.
#[test]
fn blocks_of_files_that_are_called_free_get_no_drafts() {
    const TEST: &str = "blocks_of_files_that_are_called_free_get_no_drafts";
    if !ready(TEST) {
        return;
    }
    let scratch = Scratch::new("drafts");
    let path = scratch.join("image");
    let mut freed = Image::of("ext4");
    let owners = Owners::of(&mut freed);
    let of_files: Vec<u64> = owners
        .blocks
        .iter()
        .filter(|(_, owner)| matches!(owner, Owner::File(number) if *number > 11))
        .map(|(block, _)| *block)
        .collect();
    for block in &of_files {
        lie::free_block(&mut freed, *block);
    }
    let mut never = Image::of("ext4");
    let group = never.format.geometry.group_of_block(Block(of_files[of_files.len() / 2])).unwrap();
    never.descriptor(group.0, |raw| raw.set_flags(raw.flags() | GroupFlags::BLOCK_UNINIT));
    for image in [freed, never] {
        let commands: [&[&str]; 4] =
            [&["resize", "--min"], &["resize"], &["tune", "-I", "512"], &["tune", "-O", "^64bit"]];
        for before in commands {
            sparse::write(&path, &image.bytes).unwrap();
            let size = if before == ["resize"] { Some("300M") } else { None };
            let output = plat(before).arg(&path).args(size).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{before:?}: {said}");
            assert!(said.contains("not sound, and nothing was changed"), "{before:?}: {said}");
            assert!(fs::read(&path).unwrap() == image.bytes, "{before:?}: {said}");
        }
    }
}
