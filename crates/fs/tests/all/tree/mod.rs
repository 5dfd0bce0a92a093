//! A volume's tree as the library sees it, to be compared with what others show.

use std::collections::BTreeMap;
use std::ops::Range;

use platfs::ondisk::inode::FileType;
use platfs::ondisk::units::InodeNumber;
use platfs::{State, Volume};
use testkit::snapshot::{Entry, Snapshot, digest, target_digest};

/// The whole tree of a volume as the library sees it.
pub struct Walk<'v> {
    volume: &'v Volume,
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Walk<'_> {
    /// All of it.
    pub fn tree(volume: &Volume) -> Snapshot {
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
            xattrs: self.volume.inode(number).xattrs()?.into_iter().collect(),
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

    fn data_ranges(&self, file: &platfs::Reader<'_>) -> platfs::Result<Vec<Range<u64>>> {
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
