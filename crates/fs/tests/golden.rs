//! The library on images of mke2fs, genext2fs, debugfs and the kernel: it sees what a mount shows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use platfs::device::FileDevice;
use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{OpenOptions, State, Volume};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use testkit::images::{self, Premise};
use testkit::snapshot::{Entry, Rules, Snapshot, differences, digest, target_digest};
use testkit::view::seen;
use testkit::{mount, tool};

fn open(image: &Path) -> Volume {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    Volume::open(Arc::new(device), &OpenOptions::new()).unwrap_or_else(|e| panic!("{}: {e}", image.display()))
}

/// The whole tree of a volume as the library sees it.
struct Walk<'v> {
    volume: &'v Volume,
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Walk<'_> {
    fn tree(volume: &Volume) -> Snapshot {
        let mut walk = Walk { volume, entries: BTreeMap::new() };
        walk.visit(InodeNumber::ROOT, &[]);
        let mut snapshot = Snapshot { entries: walk.entries };
        snapshot.name_links();
        snapshot
    }

    fn visit(&mut self, number: InodeNumber, path: &[u8]) {
        let shown = path.escape_ascii();
        let mut entry = self.entry(number).unwrap_or_else(|e| panic!("{shown}: {e}"));
        if entry.is_directory() {
            let names: Result<Vec<_>, _> =
                self.volume.read_dir(number).unwrap_or_else(|e| panic!("{shown}: {e}")).collect();
            for child in names.unwrap_or_else(|e| panic!("{shown}: {e}")) {
                if child.name == b"." || child.name == b".." {
                    continue;
                }
                if path.is_empty() && child.name == b"lost+found" {
                    entry.links -= 1;
                    continue;
                }
                let below = if path.is_empty() { child.name } else { [path, b"/", &child.name].concat() };
                self.visit(child.inode, &below);
                entry.subdirectories += u64::from(self.entries[&below].is_directory());
            }
        } else if entry.links > 1 {
            // Any name that all names of the file agree on.
            entry.link_of = Some(number.get().to_be_bytes().to_vec());
        }
        self.entries.insert(path.to_vec(), entry);
    }

    fn entry(&self, number: InodeNumber) -> platfs::Result<Entry> {
        let facts = self.volume.metadata(number)?;
        let mut entry = Entry {
            mode: u32::from(facts.file_type.mode_bits() | facts.permissions),
            uid: facts.uid,
            gid: facts.gid,
            mtime: (facts.times.modify.seconds, i64::from(facts.times.modify.nanoseconds)),
            links: u64::from(facts.links),
            subdirectories: 0,
            device: facts.device.map_or(0, |(major, minor)| rustix::fs::makedev(major, minor)),
            size: if facts.file_type == FileType::Directory { 0 } else { facts.size },
            digest: 0,
            data: Vec::new(),
            xattrs: self.volume.xattrs(number)?.into_iter().collect(),
            link_of: None,
        };
        match facts.file_type {
            FileType::Symlink => entry.digest = target_digest(&self.volume.read_link(number)?),
            FileType::Regular => {
                let file = self.volume.open_file(number)?;
                entry.data = self.data_ranges(&file)?;
                let read = |buffer: &mut [u8], at| file.read_at(at, buffer).map_err(std::io::Error::other);
                entry.digest = digest(&entry.data, read).unwrap_or_else(|e| panic!("{number:?}: {e}"));
            }
            FileType::Fifo | FileType::Socket => entry.size = 0,
            _ => {}
        }
        Ok(entry)
    }

    fn data_ranges(&self, file: &platfs::File<'_>) -> platfs::Result<Vec<Range<u64>>> {
        let block = self.volume.format().geometry.block_size.bytes();
        let block = u64::from(block);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut mapped = false;
        for segment in file.segments() {
            let segment = segment?;
            mapped = true;
            if let State::Mapped(_) = segment.state {
                let start = u64::from(segment.logical.0) * block;
                let end = (start + segment.count * block).min(file.size());
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
        }
        // Contents kept in the inode have no map.
        if !mapped && file.size() > 0 {
            ranges.push(0..file.size());
        }
        Ok(ranges)
    }
}

#[test]
fn the_tree_is_what_a_mount_shows() {
    let test = "golden images";
    if !tool::have_root(test) || !mount::have_loop_mount(test) {
        return;
    }
    let mut told = Vec::new();
    for recipe in images::all() {
        if recipe.premises.iter().any(|premise| matches!(premise, Premise::Unclean)) {
            continue;
        }
        let Some(image) = images::golden(test, recipe.name) else { continue };
        let Some(seen) = seen(test, &image) else { continue };
        let volume = open(&image);
        let rules = seen.rules(Rules { hole_granularity: 1024, ..Rules::default() });
        let all = differences(&seen.tree, &Walk::tree(&volume), &rules);
        told.extend(all.into_iter().take(8).map(|line| format!("{}: {line}", recipe.name)));
    }
    assert!(told.is_empty(), "\n{}", told.join("\n"));
}

#[test]
fn every_name_is_found_by_lookup() {
    let test = "lookup on golden images";
    for name in
        ["htree-deep", "large-dir", "htree-ext2-tea", "kernel-odd-ext4", "kernel-odd-inline", "ext2-1k"]
    {
        let Some(image) = images::golden(test, name) else { continue };
        let volume = open(&image);
        let (mut pending, mut looked_up) = (vec![InodeNumber::ROOT], 0);
        while let Some(directory) = pending.pop() {
            for entry in volume.read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(volume.lookup(directory, &entry.name).unwrap(), entry.inode, "{name}");
                looked_up += 1;
                let dots = entry.name == b"." || entry.name == b"..";
                if !dots && entry.file_type == Some(FileType::Directory) {
                    pending.push(entry.inode);
                }
            }
            assert!(volume.lookup(directory, b"no such name").is_err(), "{name}");
        }
        assert!(looked_up > 400, "{name}: {looked_up} names");
    }
}
