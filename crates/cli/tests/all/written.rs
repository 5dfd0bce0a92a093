//! Images that releases wrote: the recipes of this release still give the same bytes, and what any release wrote is still
//! read as the same tree.
//!
//! `written.txt` has a line for each recipe and release: release, recipe, SHA-256 of the image, SHA-256 of the tree in it. A
//! change that writes other bytes is a change that users see: it gets new lines, with the next release's number, and the
//! old ones stay. `PLATFS_WRITTEN=1 cargo test -p platfs-cli --test all written:: -- --nocapture` prints the lines as they are now.
//!
//! Images are kept in the cache as `written/IMAGE-SHA-256.img`. One of an older release that this machine does not have can't
//! be made again; that is said, and skipped.

mod archive;
mod tree;

use crate::support::{plat, succeed};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use testkit::scratch::{Scratch, cache_dir};
use testkit::{fsck, tool};

/// The table.
const TABLE: &str = include_str!("written.txt");
/// The release whose lines the recipes must give.
const RELEASE: &str = "0.1.0";

/// How an image is made: its name, and the words behind `plat`; `@` is the archive of [`archive::odd`].
const RECIPES: &[(&str, &str)] = &[
    ("mkfs-ext2-1k", "mkfs -q -t ext2 -b 1024 IMAGE 8M"),
    ("mkfs-ext3", "mkfs -q -t ext3 -b 4096 -J size=4 IMAGE 32M"),
    ("mkfs-ext4", "mkfs -q -t ext4 IMAGE 64M"),
    ("mkfs-ext4-bigalloc", "mkfs -q -t ext4 -O bigalloc -C 16384 IMAGE 64M"),
    ("mkfs-ext4-64k", "mkfs -q -t ext4 -b 65536 IMAGE 64M"),
    ("mkfs-ext4-no-flex", "mkfs -q -t ext4 -b 1024 -O ^flex_bg,^metadata_csum,^64bit IMAGE 24M"),
    ("build-ext4", "build -q --reproducible @ IMAGE"),
    ("build-ext4-min", "build -q --reproducible --size min @ IMAGE"),
    ("build-ext4-4k", "build -q --reproducible -b 4096 @ IMAGE"),
    ("build-ext4-inline", "build -q --reproducible -O inline_data @ IMAGE"),
    ("build-ext4-bigalloc", "build -q --reproducible -O bigalloc -C 32768 @ IMAGE"),
    ("build-ext4-64k", "build -q --reproducible -b 65536 @ IMAGE"),
    ("build-ext4-journal", "build -q --reproducible -t ext4 -J size=4 --size 48M @ IMAGE"),
    ("build-ext3", "build -q --reproducible -t ext3 --size 48M @ IMAGE"),
    ("build-ext2-small-inodes", "build -q --reproducible -t ext2 -I 128 @ IMAGE"),
    ("build-identity", "build -q -U 01234567-89ab-cdef-0123-456789abcdef -L label @ IMAGE"),
];
const UUID: &str = "11111111-2222-3333-4444-555555555555";
const SEED: &str = "hash_seed=99999999-2222-3333-4444-555555555555";
const TIME: &str = "1700000000";

/// A line of the table.
struct Written<'a> {
    release: &'a str,
    recipe: &'a str,
    image: &'a str,
    tree: &'a str,
}

fn table() -> Vec<Written<'static>> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let lines = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [release, recipe, image, tree] = words[..] else { panic!("four words, not {line:?}") };
        Written { release, recipe, image, tree }
    });
    lines.collect()
}

fn digest_of(path: &Path) -> String {
    let (mut file, mut digest, mut piece) = (fs::File::open(path).unwrap(), Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut piece).unwrap();
        if count == 0 {
            return hex(&digest.finalize());
        }
        digest.update(&piece[..count]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn make(words: &str, archive: &Path, image: &Path) {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = plat(&words[..1]);
    command.env("SOURCE_DATE_EPOCH", TIME);
    if words[0] == "mkfs" {
        command.args(["-U", UUID]);
    }
    if !words.contains(&"--reproducible") {
        command.args(["-E", SEED]);
    }
    for word in &words[1..] {
        match *word {
            "@" => command.arg(archive),
            "IMAGE" => command.arg(image),
            word => command.arg(word),
        };
    }
    succeed(&mut command);
}

/// Where an image of these bytes is kept.
fn kept(digest: &str) -> PathBuf {
    cache_dir().join("written").join(format!("{digest}.img"))
}

/// Puts an image into the cache, whole or not at all.
fn keep(image: &Path, digest: &str) {
    let place = kept(digest);
    if place.exists() {
        return;
    }
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let fresh = place.with_extension(format!("{}.new", std::process::id()));
    tool::run(tool::command("cp").arg("--sparse=always").arg(image).arg(&fresh));
    fs::rename(&fresh, &place).unwrap();
}

#[test]
fn this_release_writes_what_it_wrote() {
    let scratch = Scratch::new("written");
    let source = scratch.join("odd.tar");
    fs::write(&source, archive::odd()).unwrap();
    let prints = std::env::var_os("PLATFS_WRITTEN").is_some();
    let (table, mut wrong) = (table(), Vec::new());
    for (name, words) in RECIPES {
        let image = scratch.join("image");
        make(words, &source, &image);
        if tool::find("e2fsck").is_some() {
            fsck::assert_clean(&image);
        }
        let (digest, tree) = (digest_of(&image), tree::digest(&image));
        if prints {
            println!("{RELEASE} {name} {digest} {tree}");
        } else {
            let line = table.iter().find(|line| line.release == RELEASE && line.recipe == *name);
            let line = line.unwrap_or_else(|| panic!("{name} has no line of {RELEASE} in written.txt"));
            if line.image != digest || line.tree != tree {
                wrong.push(*name);
            } else {
                keep(&image, &digest);
            }
        }
        fs::remove_file(&image).unwrap();
    }
    assert!(wrong.is_empty(), "other bytes or trees than {RELEASE} wrote: {wrong:?}");
}

#[test]
fn what_releases_wrote_is_read() {
    let mut missing = Vec::new();
    for line in table() {
        let place = kept(line.image);
        if !place.exists() {
            // Those of this release are being made, and read then.
            if line.release != RELEASE {
                missing.push(format!("{} of {}", line.recipe, line.release));
            }
            continue;
        }
        assert_eq!(digest_of(&place), line.image, "{} in the cache is damaged", place.display());
        assert_eq!(tree::digest(&place), line.tree, "{} of {} is read otherwise", line.recipe, line.release);
    }
    if !missing.is_empty() {
        tool::skip("what_releases_wrote_is_read", &format!("not in the cache: {}", missing.join(", ")));
    }
}
