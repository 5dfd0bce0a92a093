//! Whole volumes: patches over images of the reference tools, opened and walked to the end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, Volume};
use platfs_fuzz::Patched;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Inodes looked at in one volume, and stretches of one file: enough to meet every structure, and soon over.
const MOST_INODES: usize = 600;
const MOST_SEGMENTS: usize = 2000;

fn walk(volume: &Volume) {
    let mut seen = BTreeSet::from([InodeNumber::ROOT]);
    let mut pending = vec![InodeNumber::ROOT];
    let mut buffer = [0; 5000];
    while let Some(number) = pending.pop() {
        let _ = volume.inode(number).xattrs();
        let Ok(metadata) = volume.metadata(number) else { continue };
        match metadata.file_type {
            FileType::Directory => {
                let Ok(entries) = volume.read_dir(number) else { continue };
                for entry in entries.take(MOST_SEGMENTS) {
                    let Ok(entry) = entry else { break };
                    if seen.len() < MOST_INODES && seen.insert(entry.inode) {
                        let _ = volume.lookup(number, &entry.name);
                        pending.push(entry.inode);
                    }
                }
            }
            FileType::Symlink => drop(volume.read_link(number)),
            FileType::Regular => {
                let Ok(file) = volume.open_file(number) else { continue };
                let _ = file.segments().take(MOST_SEGMENTS).filter(Result::is_err).count();
                for offset in [0, 70_000, metadata.size / 2, metadata.size.saturating_sub(4000)] {
                    let _ = file.read_at(offset, &mut buffer);
                }
            }
            _ => {}
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(device) = Patched::new(bytes) else { return };
    if let Ok(volume) = Volume::open(Arc::new(device), &OpenOptions::new()) {
        walk(&volume);
    }
});
