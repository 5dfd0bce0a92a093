//! The tree of an image as one number: every fact of every name, as the library reads it.

use ondisk::inode::FileType;
use platfs::device::FileDevice;
use platfs::{OpenOptions, Volume};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// SHA-256 of a listing, one line for each name, in the order of paths.
pub fn digest(image: &Path) -> String {
    let device = Arc::new(FileDevice::new(File::open(image).unwrap()).unwrap());
    let volume = Volume::open(device, &OpenOptions::new()).unwrap();
    let mut lines = BTreeMap::new();
    let mut pending = vec![(Vec::new(), volume.resolve(b"/").unwrap())];
    while let Some((path, inode)) = pending.pop() {
        lines.insert(path.clone(), facts(&volume, inode));
        if volume.metadata(inode).unwrap().file_type != FileType::Directory {
            continue;
        }
        for entry in volume.read_dir(inode).unwrap() {
            let entry = entry.unwrap();
            if entry.name != b"." && entry.name != b".." {
                pending.push(([&path[..], b"/", &entry.name].concat(), entry.inode));
            }
        }
    }
    let mut all = Sha256::new();
    for (path, facts) in lines {
        all.update(format!("{} {facts}\n", path.escape_ascii()));
    }
    super::hex(&all.finalize())
}

fn facts(volume: &Volume, inode: platfs::InodeNumber) -> String {
    let metadata = volume.metadata(inode).unwrap();
    let mut facts = format!(
        "{:?} {:o} {}:{} {} links, {} bytes, {:?} {}.{:09}",
        metadata.file_type,
        metadata.permissions,
        metadata.uid,
        metadata.gid,
        metadata.links,
        metadata.size,
        metadata.device,
        metadata.times.modify.seconds,
        metadata.times.modify.nanoseconds,
    );
    match metadata.file_type {
        FileType::Regular => {
            let (mut digest, mut at, mut piece) = (Sha256::new(), 0, vec![0; 1 << 16]);
            loop {
                let count = volume.read_at(inode, at, &mut piece).unwrap();
                if count == 0 {
                    break;
                }
                digest.update(&piece[..count]);
                at += count as u64;
            }
            write!(facts, " {}", super::hex(&digest.finalize())).unwrap();
        }
        FileType::Symlink => {
            write!(facts, " -> {}", volume.read_link(inode).unwrap().escape_ascii()).unwrap();
        }
        _ => {}
    }
    let mut attributes = volume.inode(inode).xattrs().unwrap();
    attributes.sort();
    for (name, value) in attributes {
        write!(facts, " {}={}", name.escape_ascii(), super::hex(&Sha256::digest(&value))).unwrap();
    }
    facts
}
